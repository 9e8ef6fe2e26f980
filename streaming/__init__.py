"""Stream sharded data sets from object stores into PyTorch training loops."""

__version__ = "0.1.0"
