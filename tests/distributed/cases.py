"""What the ranks and the test of them agree on."""

METHODS = ("random", "stratified", "per_stream", "device_per_stream")
GLOBAL_BATCH = 16
NODES = 4
"""Canonical nodes."""
STOP_AFTER = 3
"""Global batches of the second epoch before it is stopped."""
