"""nginx as a bucket: a plain, fast file server that answers the requests of S3's reading side.

Objects are files: `/bucket/key` is `root/bucket/key`, with HEAD, ranges, ETag and If-Match, and PUT
and DELETE where they are allowed. It checks no signatures, and can't list.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.servers.processes import free_port

MISSING = "nginx is not installed here: run `make system` as root (it needs apt)"

_CONFIG = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log warn;
{user}
worker_processes {workers};
events {{ worker_connections 1024; }}
http {{
    sendfile on;
    tcp_nodelay on;
    keepalive_requests 1000000;
    client_max_body_size 0;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    default_type application/octet-stream;
    log_format requests '$request_method $uri $status $body_bytes_sent';
    access_log {folder}/access.log requests;
    server {{
        listen 127.0.0.1:{port};
        root {root};
        {methods}
        rewrite ^/([^/]+)$ /$1/ last;
        location ~ ^/[^/]+/$ {{
            if ($args ~ list-type) {{ return 501; }}
            autoindex on;  # So that a bucket is found by HEAD.
        }}
        location ~ ^/[^/]+/denied/ {{ deny all; }}
    }}
}}
"""


def program() -> str:
    """Where nginx is.

    Raises:
        RuntimeError: If it is not installed; the message says what to do.
    """
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError(MISSING)
    return found


class Nginx:
    """A server of a folder's files; a context manager. What is below `denied/` it refuses.

    Args:
        folder: For its configuration and logs.
        root: The folder that it serves; each folder in it is a bucket.
        can_write: Whether it takes PUT and DELETE.
        workers: Its processes.
    """

    def __init__(
        self, folder: Path, root: Path, *, can_write: bool = False, workers: int = 1
    ) -> None:
        self._program = program()
        self._folder, self._root = folder, root
        self._can_write, self._workers = can_write, workers
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "access.log"
        """A line for each answer: method, path, status, bytes of the body."""
        self.url = ""

    def __enter__(self) -> Nginx:
        self._folder.mkdir(parents=True, exist_ok=True)
        for _ in range(20):  # Somebody may take the port between our asking and its listening.
            if self._start(free_port()):
                return self
        raise RuntimeError(f"nginx did not start: {(self._folder / 'error.log').read_text()}")

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def requests(self) -> list[tuple[str, str, int, int]]:
        """What was answered so far: method, path, status and the bytes of the body."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        parts = [line.rsplit(" ", 2) for line in lines]
        return [(*head.split(" ", 1), int(status), int(size)) for head, status, size in parts]  # type: ignore[misc]

    def _start(self, port: int) -> bool:
        config = self._folder / "nginx.conf"
        config.write_text(
            _CONFIG.format(
                folder=self._folder,
                root=self._root,
                port=port,
                workers=self._workers,
                # Otherwise its workers would not be root any more, and could not read our folders.
                user="user root;" if os.geteuid() == 0 else "",
                methods=(
                    "dav_methods PUT DELETE; create_full_put_path on;"
                    if self._can_write
                    else "dav_methods off;"
                ),
            )
        )
        error_log = str(self._folder / "error.log")
        command = [self._program, "-c", str(config), "-e", error_log]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                if self._process.poll() is not None:
                    return False  # It is somebody else's port.
                self.url = f"http://127.0.0.1:{port}"
                return True
            time.sleep(0.01)
        return False
