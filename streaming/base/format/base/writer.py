"""What all writers share, under its old import path."""

from streaming.format.writer import Writer
from streaming.format.writer_kinds import JointWriter, SplitWriter

__all__ = ["JointWriter", "SplitWriter", "Writer"]
