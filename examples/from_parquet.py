"""Convert Parquet files and stream them: ``python examples/from_parquet.py``.

A few Parquet files of readings are written first, to have something to convert. Then
``streaming.convert`` cuts them into parts, converts these in several processes, and derives a
column on the way. All samples are streamed, shuffled, and compared with the rows that went in.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming import StreamingDataLoader, StreamingDataset
from streaming.convert import convert

COLUMNS = {"id": "int64", "celsius": "float32", "place": "str", "frost": "uint8"}
PLACES = ["Oslo", "Lima", "Accra", "Hanoi"]


def write_parquet(folder: Path, files: int, rows: int) -> pa.Table:
    """Write files of several row groups; return all their rows."""
    folder.mkdir()
    tables = []
    for number in range(files):
        rng = np.random.default_rng(number)
        table = pa.table(
            {
                "id": np.arange(number * rows, (number + 1) * rows),
                "celsius": rng.normal(8, 12, rows).astype(np.float32),
                "place": rng.choice(PLACES, rows),
            }
        )
        pq.write_table(table, folder / f"readings-{number:04}.parquet", row_group_size=500)
        tables.append(table)
    return pa.concat_tables(tables)


def add_frost(row: dict[str, Any]) -> dict[str, Any]:
    """A sample of a row. At the module's top level, so that worker processes find it."""
    return {**row, "celsius": np.float32(row["celsius"]), "frost": np.uint8(row["celsius"] < 0)}


def read_back(out: str, cache: str) -> list[tuple[int, float, str, int]]:
    """All samples, in the order of their ids."""
    dataset = StreamingDataset(remote=out, local=cache, shuffle=True, batch_size=50)
    loader = StreamingDataLoader(dataset, batch_size=50, num_workers=2)
    return sorted(
        sample
        for batch in loader
        for sample in zip(
            batch["id"].tolist(),
            batch["celsius"].tolist(),
            batch["place"],
            batch["frost"].tolist(),
            strict=True,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1000, help="rows in each file")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = write_parquet(Path(folder, "raw"), args.files, args.rows)
        report = convert(
            f"{folder}/raw/*.parquet",
            f"{folder}/shards",
            transform=add_frost,
            columns=COLUMNS,
            workers=args.workers,
            compression="zstd",
            hashes=["xxh64"],
            part_size="16kb",
        )
        found = read_back(f"{folder}/shards", f"{folder}/cache")
    wanted = [
        (row["id"], row["celsius"], row["place"], int(row["celsius"] < 0))
        for row in table.to_pylist()
    ]
    print(f"{report.rows:,} rows, {report.samples:,} samples")
    print("streamed:", "the same" if found == wanted else "DIFFERENT")


if __name__ == "__main__":
    main()
