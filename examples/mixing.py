"""Mix three sources, with other weights in each phase: ``python examples/mixing.py``.

The sources are what every Python installation has: the code of its library, the text of its
docstrings, and the names of its functions and classes. They are written as three data sets and
mixed by weights that change from phase to phase, as in a curriculum. Each phase is a dataset
of its own; the shards that one has fetched, the next finds. A checkpoint holds the phase beside the
loader's state, and a new loader goes on from it with the very next batch.
"""

import ast
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset

PHASES = (
    {"code": 8, "docs": 1, "names": 1},
    {"code": 4, "docs": 4, "names": 2},
    {"code": 1, "docs": 8, "names": 1},
)
SAMPLES_IN_A_PHASE = 1000
BATCH_SIZE = 20


def texts() -> Iterator[tuple[str, str]]:
    """Pieces of text, each with its source."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:120]:
        source = path.read_text(errors="replace")
        for start in range(0, len(source), 2000):
            yield "code", source[start : start + 2000]
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield "names", f"{path.stem}.{node.name}"
                if text := ast.get_docstring(node):
                    yield "docs", text


def write_sources(remote: str) -> dict[str, int]:
    """One data set for each source; how many samples each has."""
    sizes: Counter[str] = Counter()
    columns = {"source": "str", "text": "str"}
    writers = {
        name: MDSWriter(out=f"{remote}/{name}", columns=columns, size_limit="256kb")
        for name in PHASES[0]
    }
    for name, text in tqdm(texts(), desc="Writing", unit=" samples"):
        writers[name].write({"source": name, "text": text})
        sizes[name] += 1
    for writer in writers.values():
        writer.finish()
    return dict(sizes)


def open_phase(remote: str, local: str, phase: int) -> StreamingDataLoader:
    streams = [
        Stream(remote=f"{remote}/{name}", local=f"{local}/{name}", proportion=weight)
        for name, weight in PHASES[phase].items()
    ]
    dataset = StreamingDataset(
        streams=streams, epoch_size=SAMPLES_IN_A_PHASE, shuffle=True, batch_size=BATCH_SIZE
    )
    return StreamingDataLoader(dataset, batch_size=BATCH_SIZE, num_workers=2)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        remote, local = f"{folder}/remote", f"{folder}/cache"
        sizes = write_sources(remote)
        print("\n  samples    " + ", ".join(f"{n:,} {name}" for name, n in sizes.items()))

        checkpoint: dict = {}
        after: list[list[str]] = []
        for phase in range(len(PHASES)):
            loader = open_phase(remote, local, phase)
            seen: Counter[str] = Counter()
            for number, batch in enumerate(loader, 1):
                seen.update(batch["source"])
                if checkpoint and phase == checkpoint["phase"]:
                    after.append(batch["text"])
                if (phase, number) == (1, 15):
                    checkpoint = {"phase": phase, "loader": loader.state_dict()}
            shares = ", ".join(f"{seen[name] / seen.total():.0%} {name}" for name in sizes)
            print(f"  phase {phase}    {shares}")

        resumed = open_phase(remote, local, checkpoint["phase"])
        resumed.load_state_dict(checkpoint["loader"])
        again = [batch["text"] for batch in resumed]
    print(f"  resumed    {'the same' if again == after else 'OTHER'} {len(again)} batches")
    if again != after or not again:
        sys.exit("The resumed loader went another way.")


if __name__ == "__main__":
    main()
