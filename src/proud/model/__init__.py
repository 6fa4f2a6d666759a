"""What leaves the house: a saved model, its format, predictions, confidence and evaluation. Imports nothing of training."""
