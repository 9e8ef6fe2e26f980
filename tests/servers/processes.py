"""Programs that serve: started, waited for until they say that they listen, ended with us."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import IO

# The shell ends the program when its own input ends, and so however we end.
_WATCHED = '"$@" </dev/null & program=$!; exec >/dev/null 2>&1; cat; kill $program; wait $program'


@contextlib.contextmanager
def serving(command: list[str], listens: str) -> Iterator[re.Match[str]]:
    """Run a program until the end of the block.

    Args:
        command: The program and its arguments.
        listens: Regular expression of what it prints, on a line, once it listens.

    Yields:
        The match.

    Raises:
        RuntimeError: If it ends without having said so; with what it has said instead.
    """
    process = subprocess.Popen(
        ["sh", "-c", _WATCHED, "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    output = process.stdout
    try:
        yield _wait_for(listens, output, command)
    finally:
        process.stdin.close()
        process.wait(30)


def _wait_for(listens: str, output: IO[str], command: list[str]) -> re.Match[str]:
    said: list[str] = []
    for line in output:
        said.append(line)
        match = re.search(listens, line)
        if match:
            # Nobody reads on: without this the program would stand still once the pipe is full.
            threading.Thread(target=lambda: [None for _ in output], daemon=True).start()
            return match
    raise RuntimeError(f"{command[0]} ended before it listened: {''.join(said)[-2000:]}")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
