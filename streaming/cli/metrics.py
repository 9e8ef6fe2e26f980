"""`shardstream metrics`: what runs on this machine, for Prometheus to collect."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, start_http_server
from rich.console import Console

from streaming.cli import output
from streaming.cli.tables import console, show
from streaming.watch.prometheus import PrometheusCollector

__all__ = ["Serving", "metrics"]


@dataclass(frozen=True)
class Serving:
    """Where metrics are served."""

    url: str


def metrics(host: str, port: int, as_json: bool) -> None:
    """Serve the metrics of what runs on this machine until it is interrupted.

    Args:
        host: The address to listen on.
        port: The port; 0 for any that is free.
        as_json: Whether to say as JSON where that is.

    Raises:
        OSError: If this system does not tell what runs, or that address can't be had.
    """
    registry = CollectorRegistry()
    registry.register(PrometheusCollector())
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise OSError(f"Can't serve on {host}:{port} ({error}): give another --port") from error
    serving = Serving(f"http://{_spoken(host)}:{server.server_port}/metrics")
    if as_json:
        print(output.as_json(serving, indent=None), flush=True)
    else:
        show(serving, console())
    try:
        thread.join()
    except KeyboardInterrupt:  # how it is meant to end
        server.shutdown()
        server.server_close()


def _spoken(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@show.register
def _(result: Serving, out: Console) -> None:
    out.print(f"serving {result.url} until Ctrl-C", soft_wrap=True, highlight=False)
