"""Keeping the C library from giving freed memory back to the system at once."""

from functools import cache

import numpy as np

_BLOCK_BYTES = (32 << 20) - (64 << 10)
"""The largest block that glibc adapts to, 32 MiB, less what it adds to it."""


@cache
def keep_freed_memory() -> None:
    """Let this process use the memory of one batch again for the next, not ask for it anew.

    By default, glibc gives memory back as soon as 128 KiB at the end of the heap are free, and
    blocks of that size at once. Where every batch is larger than that, its pages are unmapped when
    it is freed, and mapped and zeroed for the next one, page by page: more than what reading it
    takes. But glibc adapts to its program: when a larger block is freed, blocks up to that size
    come from the heap from then on, of which twice as much may lie free (``M_MMAP_THRESHOLD`` in
    mallopt(3)). So one is freed here, of which no page was ever touched.

    Whoever has set these limits (``MALLOC_TRIM_THRESHOLD_`` and the like) keeps them, and with
    other libraries nothing changes.
    """
    np.empty(_BLOCK_BYTES, np.uint8)  # not a bytearray, which writes its zeros
