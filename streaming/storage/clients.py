"""Clients of object stores: one for each process and set of options, made when first needed.

Connections can be shared by threads but not by processes: a forked child that went on using its
parent's sockets would mix their answers. Clients are therefore kept here, under the process's id,
and never in a store, which so can be pickled, copied and forked freely.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from streaming.storage.errors import MissingPackage

_clients: dict[tuple[int, Hashable], Any] = {}
_lock = threading.Lock()
_is_collector_off = False


def shared_client(options: Hashable, make: Callable[[], Any]) -> Any:
    """The process's client for some options.

    Creation is serialised over all options, because the makers of clients (a boto3 session, for
    one) are often not safe to use from several threads even where their clients are.

    Args:
        options: All that `make` depends on, provider included.
        make: Makes the client.

    Returns:
        The same client for equal options within one process.
    """
    name = (os.getpid(), options)
    client = _clients.get(name)
    if client is None:
        with _lock:
            client = _clients.get(name)
            if client is None:
                with _without_collector():
                    client = _clients[name] = make()
    return client


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the garbage collector from running, to be used by one thread at a time.

    Importing and making a client makes very many objects that stay. The collector takes that for a
    reason to look, in vain, at all that a process with torch has: for longer than making the client
    takes.
    """
    global _is_collector_off
    if not gc.isenabled():
        yield
        return
    _is_collector_off = True
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _is_collector_off = False


def environment_token(*prefixes: str) -> str:
    """A token of the environment variables that a client reads by itself.

    Part of `shared_client`'s options, so that a changed environment makes a new client; a hash,
    because a store is pickled with it and the variables may hold secrets.

    Args:
        prefixes: What the variables' names begin with.

    Returns:
        A hexadecimal string.
    """
    found = sorted(item for item in os.environ.items() if item[0].startswith(prefixes))
    return hashlib.blake2s(repr(found).encode()).hexdigest()


def _after_fork() -> None:
    # Another thread of the parent may have held the lock; here nobody would ever release it. The
    # parent's clients stay where they are, unused: closing them could disturb its connections.
    global _lock, _is_collector_off
    _lock = threading.Lock()
    if _is_collector_off:
        _is_collector_off = False
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def require(module: str, *, package: str, url: str) -> ModuleType:
    """Import a client's module, or say how to install it.

    Args:
        module: The module: "azure.storage.blob".
        package: What pip installs: "shardstream[azure]".
        url: For whose sake.

    Returns:
        The module.

    Raises:
        MissingPackage: If it can't be imported because it is not there.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name is None or not (module + ".").startswith(exc.name + "."):
            raise  # It is there; something that it needs itself is not.
        raise MissingPackage(
            f"{url}: reading and writing there needs {module}. Run: pip install '{package}'",
            url=url,
        ) from exc
