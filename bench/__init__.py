"""Workloads by name, timed beside eager PyTorch and torch.compile: ``python -m bench``."""
