"""Several processes that train one network: what a method sees of them, and how they exchange tensors."""
