"""Reliability of a model: calibration, prediction sets, abstention, diagnosis of sites, selection of images to label.

Imports only `ops`, so that training, deployment and reports can all use it.
"""
