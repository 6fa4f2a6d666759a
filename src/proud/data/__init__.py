"""Domains as uint8 tensors: where images come from, how they are decoded, and who may see which labels."""
