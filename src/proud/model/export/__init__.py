"""A saved model as a file that needs nothing of ours: ONNX, torch.export, timm."""
