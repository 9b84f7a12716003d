"""Schedule families: which rows suit a kernel, the default first."""
