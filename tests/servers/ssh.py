"""OpenSSH's own server, run as whoever runs the tests, on a port of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import IO

MISSING = "OpenSSH's {} is not installed here: run `make system` as root (it needs apt)"


def program(name: str) -> str:
    """Where one of OpenSSH's programs is.

    Raises:
        RuntimeError: If it is not installed; the message says what to do.
    """
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError(MISSING.format(name))
    return found


def new_key(path: Path, passphrase: str = "") -> Path:
    """Make a key pair; the public one is beside it, with `.pub`."""
    made = ["-q", "-t", "ed25519", "-N", passphrase, "-C", "tests", "-f", str(path)]
    subprocess.run([program("ssh-keygen"), *made], check=True)
    return path


class SSHServer:
    """An sshd; a context manager.

    Args:
        folder: For its keys and configuration.
        sftp: Arguments of its SFTP server ("-R": nothing may be written).
    """

    def __init__(self, folder: Path, sftp: str = "") -> None:
        self._sshd = program("sshd")
        folder.mkdir(parents=True, exist_ok=True)
        self.user = getpass.getuser()
        self.key = new_key(folder / "client-key")
        self.host_key = new_key(folder / "host-key")
        self._config = folder / "sshd_config"
        self._log = folder / "log"
        self._authorized = folder / "authorized_keys"
        self.authorize(self.key)
        self._sftp = sftp
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def authorize(self, key: Path) -> None:
        with open(self._authorized, "a") as file:
            file.write(Path(f"{key}.pub").read_text())

    def known_hosts(self, path: Path, *ports: int, key: Path | None = None) -> Path:
        """Write the file by which a client knows this server on these ports."""
        kind, public, _ = Path(f"{key or self.host_key}.pub").read_text().split()
        path.write_text("".join(f"[127.0.0.1]:{port} {kind} {public}\n" for port in ports))
        return path

    def __enter__(self) -> SSHServer:
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # Where it locks itself in, if it is root.
        for _ in range(20):  # Somebody may take the port between our asking and its listening.
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            if self._start():
                return self
        raise RuntimeError(f"sshd did not start: {self._log.read_text()}")

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def _start(self) -> bool:
        self._config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.host_key}\nPidFile none\n"
            f"AuthorizedKeysFile {self._authorized}\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "PermitRootLogin prohibit-password\nMaxStartups 100\nLoginGraceTime 30\n"
            f"Subsystem sftp internal-sftp {self._sftp}\n"
        )
        command = [self._sshd, "-D", "-e", "-f", str(self._config)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)
        lines = self._process.stderr
        assert lines is not None
        said = b""
        for line in lines:
            said += line
            if line.startswith(b"Server listening on"):
                break
        self._log.write_bytes(said)
        if b"Server listening on" not in said:
            self._process.wait(30)
            return False
        # What it and its sessions say later goes to the log, so that the pipe never fills.
        threading.Thread(target=self._keep_log, args=(lines,), daemon=True).start()
        return True

    def _keep_log(self, lines: IO[bytes]) -> None:
        with open(self._log, "ab", buffering=0) as log, lines:
            for line in lines:
                log.write(line)
