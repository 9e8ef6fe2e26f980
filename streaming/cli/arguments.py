"""Arguments and options that several commands share."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from streaming.cli.place import Access, parse_options
from streaming.cli.watch import Watch

__all__ = [
    "Force",
    "Other",
    "OutOptions",
    "Present",
    "Run",
    "Share",
    "Trace",
    "Unsafe",
    "Url",
    "Workers",
    "command",
]

F = TypeVar("F", bound=Callable[..., None])

Url = Annotated[str, typer.Argument(help="A data set: a folder or a URL.", show_default=False)]
Other = Annotated[str, typer.Argument(help="Another one.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Trace = Annotated[bool, typer.Option("--traceback", help="Show an error's traceback.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="An option of the store, as name=value.", metavar="N=V"),
]
OutOptions = Annotated[
    list[str] | None,
    typer.Option("--out-option", help="One of the second place's store.", metavar="N=V"),
]
Timeout = Annotated[float, typer.Option(help="Longest wait for the next bytes, in seconds.")]
Unsafe = Annotated[
    bool,
    typer.Option(
        "--allow-unsafe-types", help="Decode pkl columns, which runs code of whoever wrote them."
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="How many files are handled at once.", show_default=False)
]
Share = Annotated[str, typer.Option(help="Share of the samples to decode: 0.01, 1%, all, none.")]
Present = Annotated[
    bool, typer.Option("--present", help="Shards may be missing, as they are in a cache.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace a data set that is there.")]


@dataclass(frozen=True, slots=True)
class Run:
    """What every command is told: how stores are reached, and how results are shown."""

    access: Access
    as_json: bool

    def other(self, options: list[str] | None) -> Access:
        """How the second place's store is reached."""
        return replace(self.access, options=parse_options(options or ()))

    def finish(self, result: Any) -> None:
        """Print a result; end with status 1 if it says that something is not as it should be."""
        from streaming.cli import output

        if self.as_json:
            typer.echo(output.as_json(result))
        else:
            from streaming.cli.tables import console, show

            show(result, console())
        if not getattr(result, "ok", True):
            raise typer.Exit(1)


def _common(
    json: AsJson = False,
    option: Options = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> Run:
    """The options that every command has."""
    access = Access(timeout_s=timeout, options=parse_options(option or ()))
    watched = sys.stderr is not None and sys.stderr.isatty()
    return Run(replace(access, on_shard=Watch()) if watched else access, json)


def command(app: typer.Typer, **settings: Any) -> Callable[[F], F]:
    """Make a function a command, with the options that every command has besides its own.

    Args:
        app: What it is a command of.
        **settings: Of `app.command`.

    Returns:
        A decorator of functions that take a `Run`, then their own arguments.
    """

    def add(fn: F) -> F:
        own = list(inspect.signature(fn).parameters.values())[1:]
        common = list(inspect.signature(_common).parameters.values())
        hints = get_type_hints(fn, include_extras=True)
        hints |= get_type_hints(_common, include_extras=True)

        def called(**values: Any) -> None:
            run = _common(**{one.name: values.pop(one.name) for one in common})
            try:
                fn(run, **values)
            finally:
                if isinstance(run.access.on_shard, Watch):
                    run.access.on_shard.close()

        called.__name__, called.__doc__ = fn.__name__, fn.__doc__
        called.__annotations__ = {one.name: hints[one.name] for one in [*own, *common]}
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one.replace(annotation=hints[one.name]) for one in [*own, *common]]
        )
        app.command(**settings)(called)
        return fn

    return add
