"""Where the recorded facts lie that the tests compare with."""

from pathlib import Path

CONFORMANCE = Path(__file__).parent / "conformance"
"""Data sets, orders and signatures recorded from mosaicml-streaming 0.13.0."""
