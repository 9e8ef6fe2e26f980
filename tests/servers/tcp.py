"""A proxy for any protocol over TCP, which can stop passing bytes on, or cut connections."""

from __future__ import annotations

import contextlib
import socket
import threading


class TCPProxy:
    """Stands before a server on loopback; a context manager.

    Args:
        port: The server's port.
    """

    def __init__(self, port: int) -> None:
        self.upstream = port
        self.connections = 0
        """How many have been made."""
        self._stall_after: int | None = None
        self._cut_after: int | None = None
        self._stop = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> TCPProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        with contextlib.suppress(OSError):  # Closing alone would not end a waiting accept.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def stall_after(self, count: int) -> None:
        """From now on, send each client so many bytes more, and then nothing."""
        self._stall_after = count

    def cut_after(self, count: int) -> None:
        """From now on, send each client so many bytes more, and then hang up."""
        self._cut_after = count

    def heal(self) -> None:
        """Pass everything on, on connections made from now on."""
        self._stall_after = self._cut_after = None

    def cut(self) -> None:
        """Hang up on everybody."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._sockets.clear()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.upstream))
            except OSError:
                continue
            self.connections += 1
            self._sockets += [client, server]
            for source, target, down in ((client, server, False), (server, client, True)):
                threading.Thread(
                    target=self._pass, args=(source, target, down), daemon=True
                ).start()

    def _pass(self, source: socket.socket, target: socket.socket, down: bool) -> None:
        sent = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                limit = self._stall_after if self._cut_after is None else self._cut_after
                if not down or limit is None:
                    sent = 0
                    target.sendall(data)
                    continue
                target.sendall(data[: max(0, limit - sent)])
                sent += len(data)
                if sent >= limit:
                    if self._cut_after is None:
                        self._stop.wait()
                    break
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
