"""The losses of the paper as pure functions of tensors."""
