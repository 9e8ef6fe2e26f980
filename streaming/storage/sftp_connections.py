"""Connections to SSH servers: made, kept for the next transfer, dropped when they are spoilt."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from streaming.storage.errors import AccessDenied, NotFound, ObjectChanged

__all__ = ["Connection", "Connections", "LoginError", "Options", "UnknownHostError", "is_answer"]

_KEEPALIVE_S = 30


class LoginError(Exception):
    """There is a connection, but nothing to log in with."""


@dataclass(frozen=True)
class Options:
    """All that a connection depends on."""

    host: str
    port: int
    username: str | None
    password: str | None = field(repr=False)
    key_file: str | None
    key_passphrase: str | None = field(repr=False)
    known_hosts_file: str | None
    check_host_key: bool
    max_connections: int
    timeout_s: float


class UnknownHostError(Exception):
    """The server's key is in none of the files."""


class Connection:
    """A connection of its own to the server, with one SFTP session on it."""

    def __init__(self, options: Options) -> None:
        import paramiko

        self._client = paramiko.SSHClient()
        try:
            _load_host_keys(self._client, options)
            self._log_in(options)
            self._client.get_transport().set_keepalive(_KEEPALIVE_S)
            self.sftp = self._client.open_sftp()
            self.sftp.get_channel().settimeout(options.timeout_s)
        except BaseException:
            self.drop()
            raise

    def _log_in(self, options: Options) -> None:
        import paramiko

        chosen = options.key_file is not None or options.password is not None
        try:
            self._client.connect(
                options.host,
                options.port,
                options.username,
                options.password,
                key_filename=options.key_file,
                passphrase=options.key_passphrase,
                # Servers let one try a few keys only: those that were named must be among them.
                allow_agent=not chosen,
                look_for_keys=not chosen,
                timeout=options.timeout_s,
                banner_timeout=options.timeout_s,
                auth_timeout=options.timeout_s,
                channel_timeout=options.timeout_s,
            )
        except paramiko.SSHException as exc:
            # One class stands for broken connections, and for keys that can't be used.
            if type(exc) is paramiko.SSHException and self.alive:
                raise LoginError(str(exc)) from exc
            raise

    @property
    def alive(self) -> bool:
        """Whether the server has not hung up."""
        transport = self._client.get_transport()
        return transport is not None and transport.is_active()

    def drop(self) -> None:
        """Hang up; a read that is under way in another thread ends."""
        self._client.close()


class Connections:
    """The process's connections to one server; a transfer takes one for itself."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        # What goes wrong is raised here; where nobody listens to paramiko's log, it need not be
        # printed besides.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())

    def take(self) -> Connection:
        """A connection for one transfer: one that is idle, or a new one."""
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.alive:
                    return connection
        return Connection(self._options)

    def give(self, connection: Connection, *, sound: bool) -> None:
        """Keep a connection for the next transfer, if no answers are outstanding on it."""
        with self._lock:
            if sound and connection.alive and len(self._idle) < self._options.max_connections:
                self._idle.append(connection)
                return
        connection.drop()

    @contextlib.contextmanager
    def lend(self) -> Iterator[Any]:
        """Use a connection's SFTP session within a `with` statement."""
        connection = self.take()
        try:
            yield connection.sftp
        except BaseException as exc:
            self.give(connection, sound=is_answer(exc))
            raise
        self.give(connection, sound=True)


def is_answer(exc: BaseException) -> bool:
    """Whether an exception is the server's answer, after which the connection is as good as new."""
    return isinstance(exc, (FileNotFoundError, PermissionError, NotFound, ObjectChanged))


class _Refuse:
    """What is done with a server that is not known."""

    def missing_host_key(self, client: object, hostname: str, key: Any) -> None:
        host, port = hostname, "22"
        if hostname.startswith("["):
            host, _, port = hostname[1:].partition("]:")
        raise UnknownHostError(
            f"{key.get_name()} {key.fingerprint}. If that is the right one: "
            f"ssh-keyscan -p {port} {host} >> ~/.ssh/known_hosts"
        )


class _Accept:
    def missing_host_key(self, client: object, hostname: str, key: Any) -> None:
        pass


def _load_host_keys(client: Any, options: Options) -> None:
    for named in (options.key_file, options.known_hosts_file):
        if named is not None and not os.path.isfile(named):
            raise AccessDenied(f"sftp://{options.host}: there is no file {named}")
    client.set_missing_host_key_policy(_Refuse() if options.check_host_key else _Accept())
    if not options.check_host_key:
        return
    if options.known_hosts_file is not None:
        client.load_system_host_keys(options.known_hosts_file)
        return
    client.load_system_host_keys()
    with contextlib.suppress(OSError):
        client.load_system_host_keys("/etc/ssh/ssh_known_hosts")
