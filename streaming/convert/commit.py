"""The beginning and the end of a conversion: `prepare` and `commit`.

Until `commit` has written the index there is no data set at `out` (or only the old one); a run that
is killed at any moment leaves what the next one goes on from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streaming.convert.errors import ConvertError
from streaming.convert.job import Job, PartReport, Skipped, check_failures
from streaming.convert.ledger import FOLDER, INDEX, Ledger, sha256
from streaming.convert.source import Source
from streaming.convert.transforms import Transform, identity
from streaming.format.errors import FormatError
from streaming.format.index import Index
from streaming.format.merge import moved_shard
from streaming.format.replace import dataset_files
from streaming.format.writer_checks import check_compression, check_hashes, check_size_limit

__all__ = ["MODES", "Report", "commit", "prepare"]

MODES = ("create", "append", "overwrite")
_PART = re.compile(r"(\d{5,})/")
"""What is in a part's folder; folders of years and the like have names of another form."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a conversion has done."""

    out: str
    columns: dict[str, str]
    parts: int
    resumed_parts: int
    """How many of them an earlier run had finished."""
    rows: int
    """Rows read from the source."""
    samples: int
    """Samples written."""
    shards: int
    bytes: int
    """Of the shards' files, compressed if they are."""
    total_samples: int
    """Of the whole data set: with `mode="append"`, what was there before as well."""
    skipped: tuple[Skipped, ...] = ()
    """The samples that were left out, and why, in order."""
    version: str | None = None
    """With `mode="append"`, the name that the old index is kept under."""
    seconds: float = 0.0


def prepare(
    source: Source,
    out: str,
    *,
    columns: Mapping[str, str],
    dropped: Iterable[str] = (),
    transform: Transform | None = None,
    compression: str | None = None,
    hashes: Sequence[str] | None = None,
    size_limit: int | str | None = 1 << 26,
    on_error: str = "raise",
    max_errors: int | None = 100,
    mode: str = "create",
    resume: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Job:
    """Check the place, and note the job there.

    Args:
        source: What is converted.
        out: A folder or a URL.
        columns: The encoding of each column.
        dropped: Columns of the source that are left out.
        transform: What makes samples of a row.
        compression: Of the shards; with `mode="append"` None stands for the data set's own.
        hashes: To be kept of the shards' files; with `mode="append"` None stands for its own.
        size_limit: Most bytes in a shard before compression.
        on_error: "raise" or "skip".
        max_errors: How many samples may be skipped; None for any number.
        mode: "create", "append" or "overwrite".
        resume: Whether to go on from what an earlier run has finished; if not, it is removed.
        storage_options: Options of the store of `out`.

    Returns:
        The job, for `write_part` and `commit`.

    Raises:
        ConvertError: If an unfinished conversion of something else is there, or a data set with
            other columns is to be appended to.
        FileExistsError: If there is something already, and the mode is "create".
        FileNotFoundError: If there is no data set to append to.
        ValueError, TypeError: If an argument makes no sense.
    """
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; it must be one of {', '.join(MODES)}")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is {on_error!r}; it must be 'raise' or 'skip'")
    out = out.rstrip("/") or out
    ledger = Ledger(out, storage_options)
    if not ledger.store.can_write:
        raise ValueError(f"{out} can only be read; name a place to write to")
    index = ledger.read(INDEX)
    base = _entries(index, ledger) if index is not None else []
    if mode == "append":
        if index is None:
            raise FileNotFoundError(
                f"there is no data set at {out} to append to: it has no {INDEX}; convert with "
                'mode="create"'
            )
        _check_base(base, columns, ledger.store.url_of(INDEX))
        compression = base[-1]["compression"] if base and compression is None else compression
        hashes = base[-1]["hashes"] if base and hashes is None else hashes
    facts: dict[str, Any] = {
        "source": source.describe(),
        "columns": dict(sorted(columns.items())),
        "dropped": sorted(dropped),
        "transform": None if transform is None else identity(transform),
        "compression": check_compression(compression),
        "hashes": check_hashes(list(hashes or ())),
        "size_limit": check_size_limit(size_limit),
        "mode": mode,
        "content": source.fingerprint(),
    }
    fingerprint = sha256(json.dumps(facts, sort_keys=True).encode())
    first = _begin(ledger, facts, fingerprint, resume, index, base)
    return Job(
        source=source,
        out=out,
        columns=dict(columns),
        transform=transform,
        dropped=frozenset(dropped),
        compression=facts["compression"],
        hashes=tuple(facts["hashes"]),
        size_limit=facts["size_limit"],
        on_error=on_error,
        max_errors=max_errors,
        mode=mode,
        resume=resume,
        first=first,
        fingerprint=fingerprint,
        storage_options=dict(storage_options or {}),
    )


def _begin(
    ledger: Ledger,
    facts: dict[str, Any],
    fingerprint: str,
    resume: bool,
    index: bytes | None,
    base: list[dict[str, Any]],
) -> int:
    """Note the job, or find it noted; return the number of its first part's folder."""
    old = ledger.job()
    if old is not None and resume:
        if old["fingerprint"] == fingerprint:
            return int(old["first"])
        changed = [name for name in facts if old["facts"].get(name) != facts[name]]
        raise ConvertError(
            f"{ledger.out} holds an unfinished conversion that differs in {', '.join(changed)}; "
            "give the same arguments to go on with it, or resume=False to begin anew"
        )
    if old is not None:
        _abandon(ledger, int(old["first"]), base)
    elif facts["mode"] == "create":
        found = ledger.first_key()
        if found is not None:
            raise FileExistsError(
                f"{ledger.out} is not empty (it has {found}); name another place, or pass "
                'mode="append" or mode="overwrite"'
            )
    if index is not None and facts["mode"] == "create":
        raise FileExistsError(
            f'there is a data set at {ledger.out}; pass mode="append" or mode="overwrite"'
        )
    first = 1 + max((_folder_number(shard) for shard in base), default=-1)
    if facts["mode"] == "overwrite" and index is not None:
        ledger.keep_old_index(index)
    ledger.write_job(
        {
            "version": 1,
            "facts": facts,
            "fingerprint": fingerprint,
            "first": first,
            "base": None if index is None else sha256(index),
        }
    )
    return first


def _abandon(ledger: Ledger, first: int, base: Sequence[Mapping[str, Any]]) -> None:
    """Remove what an unfinished conversion has written. It may not have noted all of it."""
    if all(_folder_number(shard) < first for shard in base):  # else it had been committed
        keys = ledger.keys()
        parts = map(_PART.match, keys)
        ledger.delete(part.string for part in parts if part and int(part.group(1)) >= first)
    ledger.clear()


def commit(job: Job, reports: Sequence[PartReport]) -> Report:
    """Make the parts a data set: write its index, then remove the records.

    Args:
        job: The conversion.
        reports: Of all its parts, in any order.

    Returns:
        What the conversion has done.

    Raises:
        ConvertError: If a part is missing, too many samples were skipped, or someone else has
            changed the data set meanwhile.
        StoreError: If the index can't be written; nothing has been published then.
    """
    reports = sorted(reports, key=lambda report: report.number)
    numbers = [report.number for report in reports]
    if numbers != list(range(len(numbers))):
        raise ConvertError(
            f"a data set needs a report of each part, once; there are those of {numbers[:20]}"
        )
    skipped = tuple(one for report in reports for one in report.skipped)
    check_failures(
        sum(r.failures for r in reports), job.max_errors, skipped[-1] if skipped else None
    )
    ledger = Ledger(job.out, job.storage_options)
    ours = [
        moved_shard(shard, job.folder(report.number))
        for report in reports
        for shard in report.shards
    ]
    total, version = _publish(job, ledger, ours)
    ledger.clear(job.folder(number) for number in numbers)
    return Report(
        out=job.out,
        columns=dict(job.columns),
        parts=len(reports),
        resumed_parts=sum(report.resumed for report in reports),
        rows=sum(report.rows for report in reports),
        samples=sum(report.samples for report in reports),
        shards=len(ours),
        bytes=sum(report.bytes for report in reports),
        total_samples=total,
        skipped=skipped,
        version=version,
    )


def _publish(job: Job, ledger: Ledger, ours: list[dict[str, Any]]) -> tuple[int, str | None]:
    """Write the index, unless a run that was cut off afterwards has; return samples, version."""
    record = ledger.job() or {}
    index = ledger.read(INDEX)
    now = None if index is None else sha256(index)
    base = _entries(index, ledger) if index is not None else []
    version = None
    if now == record.get("base"):
        kept = base if job.mode == "append" else []
        if job.mode == "append" and index is not None:
            version = _keep_version(ledger, index)
        shards = kept + ours
        data = json.dumps({"version": 2, "shards": shards}, sort_keys=True).encode()
        ledger.write(INDEX, data)
    else:
        shards = base
        # JSON has no tuples: compare what was written with what would be.
        if json.loads(json.dumps(ours)) != shards[len(shards) - len(ours) :]:
            raise ConvertError(
                f"{ledger.store.url_of(INDEX)} has been changed since this conversion began; "
                "nothing has been published. Begin anew with resume=False"
            )
        version = _last_version(ledger)[1] if job.mode == "append" else None
    if job.mode == "overwrite":
        _remove_old(ledger, shards)
    return sum(int(shard["samples"]) for shard in shards), version


def _keep_version(ledger: Ledger, index: bytes) -> str:
    """Keep the old index under the next version's name; return the name."""
    number, name = _last_version(ledger)
    if name is None or ledger.read(name) != index:
        name = f"index-v{number + 1}.json"
        ledger.write(name, index)
    return name


def _last_version(ledger: Ledger) -> tuple[int, str | None]:
    number = 0
    while ledger.store.exists(f"index-v{number + 1}.json"):
        number += 1
    return number, f"index-v{number}.json" if number else None


def _remove_old(ledger: Ledger, shards: Sequence[Mapping[str, Any]]) -> None:
    """Remove the files of the data set that has been replaced, and its versions."""
    old = ledger.old_index()
    if old is None:
        return
    stale = dataset_files(old)
    for number in range(1, _last_version(ledger)[0] + 1):
        stale.add(f"index-v{number}.json")
    keep = dataset_files(json.dumps({"version": 2, "shards": list(shards)}).encode())
    ledger.delete(name for name in stale - keep if not name.startswith(FOLDER))


def _entries(index: bytes, ledger: Ledger) -> list[dict[str, Any]]:
    """What an index says of its shards, checked."""
    Index.parse(index, ledger.store.url_of(INDEX))
    return list(json.loads(index)["shards"])


def _check_base(base: list[dict[str, Any]], columns: Mapping[str, str], where: str) -> None:
    names = sorted(columns)
    encodings = [columns[name] for name in names]
    for shard in base:
        if shard["format"] != "mds":
            raise FormatError(
                f"{where}: its shards are {shard['format']}; only MDS data sets can be appended to"
            )
        if [shard["column_names"], shard["column_encodings"]] != [names, encodings]:
            there = dict(zip(shard["column_names"], shard["column_encodings"], strict=True))
            raise ConvertError(
                f"{where}: its columns are {_columns(there)}, but those to be appended are "
                f"{_columns(columns)}; make them the same by columns= or by a transform"
            )


def _columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {encoding}" for name, encoding in sorted(columns.items()))


def _folder_number(shard: Mapping[str, Any]) -> int:
    name = (shard.get("raw_data") or shard["zip_data"])["basename"].partition("/")
    return int(name[0]) if name[1] and name[0].isdigit() else -1
