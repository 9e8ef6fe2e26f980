"""The commands: what they take, and which function does it.

A command imports its function when it is called, so that `--help` comes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.arguments import (
    AsJson,
    Force,
    Options,
    Other,
    OutOptions,
    Present,
    Share,
    Timeout,
    Trace,
    Unsafe,
    Url,
    Workers,
    access_of,
    finish,
)
from streaming.cli.place import Place, open_place

__all__ = ["app"]

app = typer.Typer(
    name="shardstream",
    help="Look at, check, mend and move data sets of shards, wherever they are.",
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


@app.command()
def info(
    url: Url,
    json: AsJson = False,
    option: Options = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Show a data set's schema, shards, samples, sizes; a tree if it was merged."""
    from streaming.cli.info import info as work

    finish(work(open_place(url, access_of(option, timeout))), json)


Columns = Annotated[
    list[str] | None, typer.Option("--column", "-c", help="A column to show; repeat for more.")
]
Images = Annotated[
    Path | None, typer.Option("--save-images", help="A folder to save images to.", metavar="DIR")
]
Full = Annotated[bool, typer.Option("--full", help="Show long values whole.")]


@app.command()
def head(
    url: Url,
    number: Annotated[int, typer.Option("--number", "-n", min=0, help="How many samples.")] = 5,
    column: Columns = None,
    save_images: Images = None,
    full: Full = False,
    json: AsJson = False,
    allow_unsafe_types: Unsafe = False,
    option: Options = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Show the first samples (as JSON, one a line)."""
    place = open_place(url, access_of(option, timeout))
    ids = range(min(number, place.index.num_samples))
    _show_samples(place, ids, column, save_images, full, json, allow_unsafe_types)


@app.command(context_settings={"ignore_unknown_options": True})
def cat(
    url: Url,
    samples: Annotated[
        list[str] | None,
        typer.Argument(help="Numbers and ranges: 7, -1, 10:20, ::100. All if there is none."),
    ] = None,
    column: Columns = None,
    save_images: Images = None,
    full: Full = False,
    json: AsJson = False,
    allow_unsafe_types: Unsafe = False,
    option: Options = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Show samples by their numbers (as JSON, one a line)."""
    from streaming.cli.samples import parse_ids

    for text in samples or ():
        if text.startswith("-") and not text.lstrip("-")[:1].isdigit():
            raise ValueError(f"there is no option {text}")
    place = open_place(url, access_of(option, timeout))
    ids = parse_ids(samples or (), place.index.num_samples)
    _show_samples(place, ids, column, save_images, full, json, allow_unsafe_types)


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


@app.command()
def verify(
    url: Url,
    decode: Share = "0.01",
    seed: Annotated[int, typer.Option(min=0, help="Which samples are decoded.")] = 0,
    present: Present = False,
    workers: Workers = None,
    json: AsJson = False,
    allow_unsafe_types: Unsafe = False,
    option: Options = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Check every size, hash and table of offsets, and decode a share of the samples.

    The exit status is 0 if the data set is whole, 1 if it is not, 2 if that can't be found out.
    """
    from streaming.cli.verify import parse_share
    from streaming.cli.verify import verify as work

    found = work(
        url,
        access_of(option, timeout),
        share=parse_share(decode),
        seed=seed,
        workers=workers,
        present_only=present,
        unsafe=allow_unsafe_types,
    )
    finish(found, json)


@app.command()
def repair(
    url: Annotated[str, typer.Argument(help="The copy to be mended.", show_default=False)],
    remote: Annotated[
        str, typer.Argument(help="The data set that it is a copy of.", show_default=False)
    ],
    decode: Share = "0.01",
    present: Present = False,
    workers: Workers = None,
    json: AsJson = False,
    allow_unsafe_types: Unsafe = False,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="An option of the remote's store.", metavar="N=V"),
    ] = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Fetch again what is damaged or missing in a copy of a data set."""
    from streaming.cli.repair import repair as work
    from streaming.cli.verify import parse_share

    access = access_of(option, timeout)
    done = work(
        url,
        remote,
        access,
        access,
        share=parse_share(decode),
        workers=workers,
        present_only=present,
        unsafe=allow_unsafe_types,
    )
    finish(done, json)


@app.command()
def merge(
    out: Annotated[str, typer.Argument(help="The folder or URL whose index is written.")],
    parts: Annotated[
        list[str] | None, typer.Argument(help="The data sets; all below it if there is none.")
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy parts that are elsewhere.")] = False,
    workers: Workers = None,
    json: AsJson = False,
    option: Options = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Write one index over several data sets, so that they are read as one."""
    from streaming.cli.merge import merge as work

    finish(work(out, parts or (), access_of(option, timeout), copy=copy, workers=workers), json)


@app.command()
def reshard(
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
    json: AsJson = False,
    option: Options = None,
    out_option: OutOptions = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Write the same samples into other shards."""
    from streaming.cli.reshard import reshard as work

    done = work(
        url,
        out,
        access_of(option, timeout),
        access_of(out_option, timeout),
        size_limit=size_limit,
        compression={None: "", "none": None}.get(compression, compression),
        hashes=None if hash is None else [name for name in hash if name != "none"],
        seed=seed if shuffle else None,
        force=force,
        workers=workers,
    )
    finish(done, json)


@app.command()
def cp(
    url: Url,
    out: Annotated[str, typer.Argument(help="Where to.", show_default=False)],
    force: Force = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep files that are there, if their hash is right.")
    ] = False,
    workers: Workers = None,
    json: AsJson = False,
    option: Options = None,
    out_option: OutOptions = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Copy a data set from one store to another, verified, its index last."""
    from streaming.cli.cp import cp as work

    accesses = access_of(option, timeout), access_of(out_option, timeout)
    finish(work(url, out, *accesses, force=force, resume=resume, workers=workers), json)


@app.command()
def ls(
    url: Annotated[str, typer.Argument(help="A folder or a URL.", show_default=False)],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="List files at every depth.")
    ] = False,
    long: Annotated[bool, typer.Option("--long", "-l", help="Show sizes.")] = False,
    workers: Workers = None,
    json: AsJson = False,
    option: Options = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """List what is in a store; folders that are data sets are marked."""
    from streaming.cli.ls import ls as work

    access = access_of(option, timeout)
    finish(work(url, access, recursive=recursive, sizes=long, workers=workers), json)


@app.command()
def diff(
    url: Url,
    other: Other,
    limit: Annotated[int, typer.Option(min=0, help="How many samples are listed.")] = 100,
    workers: Workers = None,
    json: AsJson = False,
    allow_unsafe_types: Unsafe = False,
    option: Options = None,
    out_option: OutOptions = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Compare two data sets: columns, counts, and which samples differ by their content.

    The exit status is 0 if they hold the same samples in the same order, and 1 if they don't.
    """
    from streaming.cli.diff import diff as work

    places = [
        open_place(where, access_of(options, timeout))
        for where, options in ((url, option), (other, out_option))
    ]
    finish(work(*places, limit=limit, workers=workers, unsafe=allow_unsafe_types), json)


@app.command()
def state(
    file: Annotated[str, typer.Argument(help="A checkpoint: JSON, or of torch.save.")],
    json: AsJson = False,
    option: Options = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Show which data sets' states are in a checkpoint. No code in it is run."""
    from streaming.cli.state import state as work

    finish(work(file, access_of(option, timeout)), json)


@app.command()
def doctor(
    url: Annotated[str | None, typer.Argument(help="A data set to look at as well.")] = None,
    cache: Annotated[str | None, typer.Option(help="The folder that shards are kept in.")] = None,
    shards: Annotated[int, typer.Option(min=1, help="How many shards are read.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Which ones.")] = 0,
    workers: Workers = None,
    json: AsJson = False,
    option: Options = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Look at this machine, and at the way to a data set; suggest what could be better."""
    from streaming.cli.doctor import doctor as work

    access = access_of(option, timeout)
    found = work(url, access, cache=cache, shards=shards, seed=seed, workers=workers)
    finish(found, json)


@app.command()
def bench(
    url: Url,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a batch.")] = 32,
    workers: Annotated[int, typer.Option(min=0, help="The loader's worker processes.")] = 2,
    seconds: Annotated[float, typer.Option(help="Time for each way of reading.")] = 10.0,
    shuffle: Annotated[bool, typer.Option(help="Whether samples come shuffled.")] = True,
    json: AsJson = False,
    allow_unsafe_types: Unsafe = False,
    option: Options = None,
    timeout: Timeout = 60.0,
    traceback: Trace = False,
) -> None:
    """Measure how fast a data set is read here, against bare reading of its bytes."""
    from streaming.cli.bench import bench as work

    found = work(
        url,
        access_of(option, timeout),
        batch_size=batch_size,
        workers=workers,
        seconds=seconds,
        shuffle=shuffle,
        unsafe=allow_unsafe_types,
    )
    finish(found, json)
