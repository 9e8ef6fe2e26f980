"""The commands: what they take, and which function does it.

A command imports its function when it is called, so that `--help` comes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.arguments import (
    Force,
    Other,
    OutOptions,
    Present,
    Run,
    Share,
    Trace,
    Unsafe,
    Url,
    Workers,
    command,
)
from streaming.cli.converting import add_commands
from streaming.cli.place import Place, open_place

__all__ = ["app"]

app = typer.Typer(
    name="shardstream",
    help="Make, look at, check, mend and move data sets of shards, wherever they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from streaming import __version__

        typer.echo(f"shardstream {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    traceback: Trace = False,
) -> None:
    pass


@command(app)
def info(
    run: Run,
    url: Url,
) -> None:
    """Show a data set's schema, shards, samples, sizes; a tree if it was merged."""
    from streaming.cli.info import info as work

    run.finish(work(open_place(url, run.access)))


Columns = Annotated[
    list[str] | None, typer.Option("--column", "-c", help="A column to show; repeat for more.")
]
Images = Annotated[
    Path | None, typer.Option("--save-images", help="A folder to save images to.", metavar="DIR")
]
Full = Annotated[bool, typer.Option("--full", help="Show long values whole.")]


@command(app)
def head(
    run: Run,
    url: Url,
    number: Annotated[int, typer.Option("--number", "-n", min=0, help="How many samples.")] = 5,
    column: Columns = None,
    save_images: Images = None,
    full: Full = False,
    allow_unsafe_types: Unsafe = False,
) -> None:
    """Show the first samples (as JSON, one a line)."""
    place = open_place(url, run.access)
    ids = range(min(number, place.index.num_samples))
    _show_samples(place, ids, column, save_images, full, run.as_json, allow_unsafe_types)


@command(app, context_settings={"ignore_unknown_options": True})
def cat(
    run: Run,
    url: Url,
    samples: Annotated[
        list[str] | None,
        typer.Argument(help="Numbers and ranges: 7, -1, 10:20, ::100. All if there is none."),
    ] = None,
    column: Columns = None,
    save_images: Images = None,
    full: Full = False,
    allow_unsafe_types: Unsafe = False,
) -> None:
    """Show samples by their numbers (as JSON, one a line)."""
    from streaming.cli.samples import parse_ids

    for text in samples or ():
        if text.startswith("-") and not text.lstrip("-")[:1].isdigit():
            raise ValueError(f"there is no option {text}")
    place = open_place(url, run.access)
    ids = parse_ids(samples or (), place.index.num_samples)
    _show_samples(place, ids, column, save_images, full, run.as_json, allow_unsafe_types)


def _show_samples(
    place: Place,
    ids: Sequence[int],
    columns: list[str] | None,
    images: Path | None,
    full: bool,
    json: bool,
    unsafe: bool,
) -> None:
    from streaming.cli.output import as_json
    from streaming.cli.samples import samples

    shown = samples(place, ids, columns=columns or (), images=images, full=full, unsafe=unsafe)
    if json:
        for one in shown:
            typer.echo(as_json(one, indent=None))
        return
    from streaming.cli.tables import console, show

    out = console()
    for one in shown:
        show(one, out)


@command(app)
def verify(
    run: Run,
    url: Url,
    decode: Share = "0.01",
    seed: Annotated[int, typer.Option(min=0, help="Which samples are decoded.")] = 0,
    present: Present = False,
    workers: Workers = None,
    allow_unsafe_types: Unsafe = False,
) -> None:
    """Check every size, hash and table of offsets, and decode a share of the samples.

    The exit status is 0 if the data set is whole, 1 if it is not, 2 if that can't be found out.
    """
    from streaming.cli.verify import parse_share
    from streaming.cli.verify import verify as work

    found = work(
        url,
        run.access,
        share=parse_share(decode),
        seed=seed,
        workers=workers,
        present_only=present,
        unsafe=allow_unsafe_types,
    )
    run.finish(found)


@command(app)
def repair(
    run: Run,
    url: Annotated[str, typer.Argument(help="The copy to be mended.", show_default=False)],
    remote: Annotated[
        str, typer.Argument(help="The data set that it is a copy of.", show_default=False)
    ],
    decode: Share = "0.01",
    present: Present = False,
    workers: Workers = None,
    allow_unsafe_types: Unsafe = False,
) -> None:
    """Fetch again what is damaged or missing in a copy of a data set."""
    from streaming.cli.repair import repair as work
    from streaming.cli.verify import parse_share

    done = work(
        url,
        remote,
        run.access,
        run.access,
        share=parse_share(decode),
        workers=workers,
        present_only=present,
        unsafe=allow_unsafe_types,
    )
    run.finish(done)


@command(app)
def merge(
    run: Run,
    out: Annotated[str, typer.Argument(help="The folder or URL whose index is written.")],
    parts: Annotated[
        list[str] | None, typer.Argument(help="The data sets; all below it if there is none.")
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy parts that are elsewhere.")] = False,
    workers: Workers = None,
) -> None:
    """Write one index over several data sets, so that they are read as one."""
    from streaming.cli.merge import merge as work

    run.finish(work(out, parts or (), run.access, copy=copy, workers=workers))


@command(app)
def reshard(
    run: Run,
    url: Url,
    out: Annotated[str, typer.Argument(help="Where to.", show_default=False)],
    size_limit: Annotated[
        str | None, typer.Option(help="Most bytes in a shard, as in 64mb; the old limit if none.")
    ] = None,
    compression: Annotated[
        str | None, typer.Option(help="As in zstd or zstd:7, or none; the old one if not given.")
    ] = None,
    hash: Annotated[
        list[str] | None, typer.Option("--hash", help="A hash to keep, or none; repeat for more.")
    ] = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Shuffle all samples.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="The shuffle's seed.")] = 0,
    force: Force = False,
    workers: Workers = None,
    out_option: OutOptions = None,
) -> None:
    """Write the same samples into other shards."""
    from streaming.cli.reshard import reshard as work

    done = work(
        url,
        out,
        run.access,
        run.other(out_option),
        size_limit=size_limit,
        compression={None: "", "none": None}.get(compression, compression),
        hashes=None if hash is None else [name for name in hash if name != "none"],
        seed=seed if shuffle else None,
        force=force,
        workers=workers,
    )
    run.finish(done)


@command(app)
def cp(
    run: Run,
    url: Url,
    out: Annotated[str, typer.Argument(help="Where to.", show_default=False)],
    force: Force = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep files that are there, if their hash is right.")
    ] = False,
    workers: Workers = None,
    out_option: OutOptions = None,
) -> None:
    """Copy a data set from one store to another, verified, its index last."""
    from streaming.cli.cp import cp as work

    accesses = run.access, run.other(out_option)
    run.finish(work(url, out, *accesses, force=force, resume=resume, workers=workers))


@command(app)
def ls(
    run: Run,
    url: Annotated[str, typer.Argument(help="A folder or a URL.", show_default=False)],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="List files at every depth.")
    ] = False,
    long: Annotated[bool, typer.Option("--long", "-l", help="Show sizes.")] = False,
    workers: Workers = None,
) -> None:
    """List what is in a store; folders that are data sets are marked."""
    from streaming.cli.ls import ls as work

    run.finish(work(url, run.access, recursive=recursive, sizes=long, workers=workers))


@command(app)
def diff(
    run: Run,
    url: Url,
    other: Other,
    limit: Annotated[int, typer.Option(min=0, help="How many samples are listed.")] = 100,
    workers: Workers = None,
    allow_unsafe_types: Unsafe = False,
    out_option: OutOptions = None,
) -> None:
    """Compare two data sets: columns, counts, and which samples differ by their content.

    The exit status is 0 if they hold the same samples in the same order, and 1 if they don't.
    """
    from streaming.cli.diff import diff as work

    places = [
        open_place(where, access)
        for where, access in ((url, run.access), (other, run.other(out_option)))
    ]
    run.finish(work(*places, limit=limit, workers=workers, unsafe=allow_unsafe_types))


@command(app)
def state(
    run: Run,
    file: Annotated[str, typer.Argument(help="A checkpoint: JSON, or of torch.save.")],
) -> None:
    """Show which data sets' states are in a checkpoint. No code in it is run."""
    from streaming.cli.state import state as work

    run.finish(work(file, run.access))


@command(app)
def doctor(
    run: Run,
    url: Annotated[str | None, typer.Argument(help="A data set to look at as well.")] = None,
    cache: Annotated[str | None, typer.Option(help="The folder that shards are kept in.")] = None,
    shards: Annotated[int, typer.Option(min=1, help="How many shards are read.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Which ones.")] = 0,
    workers: Workers = None,
) -> None:
    """Look at this machine, and at the way to a data set; suggest what could be better."""
    from streaming.cli.doctor import doctor as work

    found = work(url, run.access, cache=cache, shards=shards, seed=seed, workers=workers)
    run.finish(found)


@command(app)
def bench(
    run: Run,
    url: Url,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a batch.")] = 32,
    workers: Annotated[int, typer.Option(min=0, help="The loader's worker processes.")] = 2,
    seconds: Annotated[float, typer.Option(help="Time for each way of reading.")] = 10.0,
    shuffle: Annotated[bool, typer.Option(help="Whether samples come shuffled.")] = True,
    allow_unsafe_types: Unsafe = False,
) -> None:
    """Measure how fast a data set is read here, against bare reading of its bytes."""
    from streaming.cli.bench import bench as work

    found = work(
        url,
        run.access,
        batch_size=batch_size,
        workers=workers,
        seconds=seconds,
        shuffle=shuffle,
        unsafe=allow_unsafe_types,
    )
    run.finish(found)


@command(app)
def plan(
    run: Run,
    config: Annotated[
        list[Path] | None,
        typer.Argument(help="A run's settings, as YAML; several for --serve.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the report as a page.", metavar="FILE")
    ] = None,
    suggestions: Annotated[bool, typer.Option(help="Look for better settings.")] = True,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show a page where plans are changed and compared.")
    ] = False,
    port: Annotated[int, typer.Option(help="The page's port.")] = 8501,
    host: Annotated[str, typer.Option(help="The page's address.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
) -> None:
    """Predict how a run will stream its data: throughput, waits, bytes, cost, cache."""
    from streaming.cli import plan as work

    if serve:
        work.serve(config or [], host, port, browser)
    else:
        run.finish(work.plan(work.only(config or []), html, suggestions))


@command(app)
def top(
    run: Run,
    every: Annotated[float, typer.Option(help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
) -> None:
    """Show the datasets that run on this machine, and who waits for what (Ctrl-C ends it)."""
    from streaming.cli.top import top as work

    work(every, once, run.as_json)


@command(app)
def metrics(
    run: Run,
    port: Annotated[int, typer.Option(help="The port to listen on; 0 for a free one.")] = 9400,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Print them instead.")] = False,
) -> None:
    """Serve figures on what runs on this machine for Prometheus to collect (Ctrl-C ends it)."""
    from streaming.cli.metrics import metrics as work

    work(host, port, once, run.as_json)


add_commands(app)
