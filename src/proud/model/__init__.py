"""A saved model: its format, predictions, confidence and evaluation. Imports nothing of training."""
