"""What `shardstream doctor` asks this machine."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util

from streaming.format.mapping import is_network_device

__all__ = ["Check", "free_bytes", "machine", "usable_cores"]

_GIB = 1 << 30
_EXTRAS = {
    "PIL": "images",
    "brotli": "compression",
    "snappy": "compression",
    "azure.identity": "azure",
    "databricks.sdk": "databricks",
    "huggingface_hub": "hf",
    "paramiko": "sftp",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    value: str
    status: str = "ok"
    """ok, or warning, or error."""
    advice: str = ""
    """What to do about it."""


def machine(cache: str | None = None) -> list[Check]:
    """Look at what this machine has for streaming.

    Args:
        cache: The folder that shards will be kept in; None for the temporary folder.

    Returns:
        What was found; nothing of it raises.

    Example:
        >>> [check.name for check in machine()][:2]
        ['python', 'torch']
    """
    checks = [
        _python(),
        *_packages(),
        _cores(),
        *_memory(),
        _files(),
        *_shared_memory(),
        _disk(cache),
    ]
    return [*checks, *_extras()]


def _python() -> Check:
    return Check("python", f"{platform.python_version()} on {platform.platform()}")


def _packages() -> Iterator[Check]:
    for name in ("torch", "numpy", "shardstream"):
        try:
            yield Check(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Check(name, "not installed", "error", f"pip install {name}")


def usable_cores() -> float:
    """How many cores this process may use: of its affinity and its control group, the fewer."""
    try:
        cores: float = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        cores = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        pass
    return cores


def _cores() -> Check:
    cores = usable_cores()
    return Check(
        "cores",
        f"{cores:g} of {os.cpu_count()}",
        "warning" if cores < 2 else "ok",
        "loader workers and training share one core: a job with more cores will load faster"
        if cores < 2
        else "",
    )


def _memory() -> Iterator[Check]:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
        total, free = found["MemTotal"], found["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):  # not Linux
        return
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            total = min(total, int(file.read()))
    except (OSError, ValueError):  # no control group, or one without a limit
        pass
    free = min(free, total)
    advice = "each loader worker is a process of its own: use fewer" if free < 2 * _GIB else ""
    value = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB available"
    yield Check("memory", value, "warning" if advice else "ok", advice)


def _files() -> Check:
    try:
        import resource
    except ImportError:  # Windows
        return Check("open files", "no limit that is known")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    known = "no limit" if soft == resource.RLIM_INFINITY else f"{soft}"
    if soft != resource.RLIM_INFINITY and soft < 4096:
        advice = f"ulimit -n {65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)}"
        return Check("open files", known, "warning", f"workers open many shards: {advice}")
    return Check("open files", known)


def _shared_memory() -> Iterator[Check]:
    if not sys.platform.startswith("linux"):
        return
    path = "/dev/shm"
    try:
        size, free = shutil.disk_usage(path).total, free_bytes(path)
    except OSError:
        advice = "torch's workers hand batches over through it: mount a tmpfs there"
        yield Check(path, "there is none", "error", advice)
        return
    value = f"{free / _GIB:.1f} of {size / _GIB:.1f} GiB free"
    if free < _GIB:
        advice = (
            "torch's workers hand batches over through it, and die when it is full: start the "
            "container with --shm-size=8g (or --ipc=host)"
        )
        yield Check(path, value, "warning", advice)
    else:
        yield Check(path, value)


def free_bytes(path: str) -> int:
    """Bytes that are free for us where a folder is, or would be made."""
    return shutil.disk_usage(_existing(path)).free


def _existing(path: str) -> str:
    """A folder, or the nearest one above it that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _disk(cache: str | None) -> Check:
    path = cache or tempfile.gettempdir()
    free = free_bytes(path)
    low = free < 10 * _GIB
    if is_network_device(os.stat(_existing(path)).st_dev):
        advice = "it is a network file system: shards are read faster from a disk of this machine"
        return Check(f"disk at {path}", f"{free / _GIB:.1f} GiB free", "warning", advice)
    advice = "shards are kept there: name a larger disk by local=, or bound them by cache_limit="
    return Check(
        f"disk at {path}",
        f"{free / _GIB:.1f} GiB free",
        "warning" if low else "ok",
        advice if low else "",
    )


def _extras() -> Iterator[Check]:
    missing = sorted({extra for module, extra in _EXTRAS.items() if not _is_there(module)})
    have = sorted(set(_EXTRAS.values()) - set(missing))
    yield Check("extras", ", ".join(have) or "none")
    if missing:
        names = ",".join(missing)
        advice = f"if you need them: pip install 'shardstream[{names}]'"
        yield Check("extras missing", ", ".join(missing), "ok", advice)


def _is_there(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False
