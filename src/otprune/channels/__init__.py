"""The label machine: which channels of which tensors are one and the same thing."""
