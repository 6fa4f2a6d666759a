"""When to believe a model: calibration, prediction sets, abstention, a diagnosis of each site, what to label next.

Imports `ops` and nothing above it, so that training, deployment and reports can all use it.
"""
