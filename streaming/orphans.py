"""A worker whose rank's process is gone ends soon, whatever it waits for."""

import os
import select
import threading

GRACE_S = 5.5
"""How long an orphan may take to end by itself: torch's workers look for their parent every 5 s."""

_watched: "tuple[int, int] | None" = None


def end_with(parent: int) -> None:
    """End this worker's process when another has ended, if it does not do so by itself.

    A worker looks for its parent between batches only. One that is waiting for a server or for a
    lock would live on for as long as that takes, with nobody to read for.

    Args:
        parent: Process id of the rank that this worker works for.
    """
    global _watched
    me = os.getpid()
    if _watched == (me, parent) or not hasattr(os, "pidfd_open"):
        return
    _watched = me, parent
    try:
        fd = os.pidfd_open(parent)
    except ProcessLookupError:
        fd = -1
    except OSError:
        return  # an older kernel; then torch's own look has to do
    threading.Thread(target=_watch, args=(fd,), name="streaming-parent", daemon=True).start()


def _watch(fd: int) -> None:
    if fd >= 0:
        # The descriptor becomes readable when the process ends.
        ended = select.poll()
        ended.register(fd, select.POLLIN)
        ended.poll()
        os.close(fd)
    threading.Event().wait(GRACE_S)
    os._exit(1)
