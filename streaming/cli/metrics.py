"""`shardstream metrics`: what runs on this machine, for Prometheus to collect."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from rich.console import Console

from streaming.cli import output
from streaming.cli.tables import console, show
from streaming.watch.prometheus import PrometheusCollector

__all__ = ["Metric", "Serving", "metrics"]


@dataclass(frozen=True)
class Metric:
    """One figure."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Serving:
    """Where metrics are served."""

    url: str


def metrics(host: str, port: int, once: bool, as_json: bool) -> None:
    """Serve the metrics of what runs on this machine until it is interrupted, or print them.

    Args:
        host: The address to listen on.
        port: The port; 0 for any that is free.
        once: Whether to print them instead.
        as_json: Whether to print JSON: the metrics, or where they are served.

    Raises:
        OSError: If this system does not tell what runs, or that address can't be had.
    """
    registry = CollectorRegistry()
    registry.register(PrometheusCollector())
    if once:
        _print(registry, as_json)
    else:
        _serve(registry, host, port, as_json)


def _print(registry: CollectorRegistry, as_json: bool) -> None:
    if as_json:
        metrics = [Metric(*each[:3]) for family in registry.collect() for each in family.samples]
        print(output.as_json(metrics))
    else:
        print(generate_latest(registry).decode(), end="")


def _serve(registry: CollectorRegistry, host: str, port: int, as_json: bool) -> None:
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
