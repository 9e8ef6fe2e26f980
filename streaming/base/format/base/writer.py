"""What all writers share, under its old import path."""

from streaming.format.writer import JointWriter, SplitWriter, Writer

__all__ = ["JointWriter", "SplitWriter", "Writer"]
