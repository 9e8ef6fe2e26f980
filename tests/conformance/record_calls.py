"""Record what mosaicml-streaming 0.13.0 gives for the calls in `calls/`, into `calls.json`.

How to run it, in an environment of its own and from any folder:

    python -m venv oracle
    oracle/bin/pip install mosaicml-streaming==0.13.0 torchvision transformers
    oracle/bin/python tests/conformance/record_calls.py [NAME ...]

Names record those scenarios anew and keep the others.
Nothing else is needed, and nothing of this project is imported but the calls themselves. The tests
make the same calls of this package and compare.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def record(key: str, name: str) -> Any:
    """What one scenario gives, or why it failed; in a process of its own, which leaves nothing."""
    from calls import SCENARIOS, encode
    from calls.scenario import public

    with tempfile.TemporaryDirectory() as folder:
        try:
            target = public(name.removeprefix("streaming."))
            return encode(SCENARIOS[key](target, Path(folder))), None
        except Exception:
            return None, f"{key}: {traceback.format_exc()}"


def main() -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import streaming

    if not streaming.__version__.startswith("0.13"):
        raise SystemExit(f"this records mosaicml-streaming 0.13, not {streaming.__file__}")
    from calls import SCENARIOS, scenario_of

    signatures = json.loads((HERE / "signatures.json").read_text())
    homes = {scenario_of(name): name for name in reversed(signatures)}
    homes.update({key: key for key in SCENARIOS if key.startswith("streaming.")})
    wanted = sys.argv[1:] or sorted(SCENARIOS)
    path = HERE / "calls.json"
    recorded = json.loads(path.read_text()) if path.exists() and sys.argv[1:] else {}
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for key in wanted:
            value, failure = pool.apply(record, (key, homes[key]))
            if failure:
                print(failure)
            else:
                recorded[key] = value
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(recorded.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"recorded {len(recorded)} of {len(SCENARIOS)}")


if __name__ == "__main__":
    main()
