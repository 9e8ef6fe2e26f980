"""A real S3 API on loopback: moto's server, in this process or in one of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

CREDENTIALS = {"access_key_id": "test", "secret_access_key": "test-secret"}
"""Storage options; moto takes any."""

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": CREDENTIALS["access_key_id"],
    "AWS_SECRET_ACCESS_KEY": CREDENTIALS["secret_access_key"],
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
"""What keeps a client to these credentials, whatever the machine's owner has set up."""


def botocore_client(url: str) -> Any:
    """A plain client of a server, to look at a bucket past the code under test."""
    import botocore.session
    from botocore.config import Config

    session = botocore.session.Session()
    session.set_credentials(*CREDENTIALS.values())
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    return session.create_client("s3", "us-east-1", endpoint_url=url, config=config)


@contextlib.contextmanager
def threaded_server() -> Iterator[str]:
    """Run moto's server in a thread of this process; gives its URL."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)  # It would print every request.
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextlib.contextmanager
def server_process() -> Iterator[str]:
    """Run moto's server in a process of its own; gives its URL."""
    code = (
        "import logging, sys\n"
        "from moto.server import ThreadedMotoServer\n"
        "logging.getLogger('werkzeug').setLevel(logging.CRITICAL)\n"
        "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\n"
        "server.start()\n"
        "print(server.get_host_and_port()[1], flush=True)\n"
        "sys.stdin.read()\n"  # Ends with whoever started it, however that ends.
        "server.stop()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)
