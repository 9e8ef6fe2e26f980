"""Every public name is called, and gives what it gives in mosaicml-streaming 0.13.

The calls and how they were recorded: `tests/conformance/calls` and `record_calls.py` beside it.
"""

import inspect
import json
import sys
import threading
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.conformance.calls import SCENARIOS, encode, scenario_of
from tests.conformance_data import CONFORMANCE
from tests.public_names import RECORDED, resolve

GIVEN: dict[str, Any] = json.loads((CONFORMANCE / "calls.json").read_text())

NOT_RECORDED = {
    "DBFSDownloader": "the client needs Databricks' package there, which was not installed",
    "DatabricksUnityCatalogDownloader": "the same",
}

UNREACHABLE = (
    *("S3Uploader", "GCSUploader", "OCIUploader", "AzureUploader", "AzureDataLakeUploader"),
    *("HFUploader", "AlipanUploader", "DBFSUploader", "DatabricksUnityCatalogUploader"),
)
"""Whose methods need a server; those that have one are called in `tests/storage`."""

UNKNOWN = "an unknown name is a ValueError that says which there are"
BY_HAND = "a shard that was flushed by hand is not written again with the next one"
FIRST_EPOCH = "before the first epoch a state is of epoch 0, not -1"
TRUE_LENGTH = "the length is that of the epoch, with what pads 64 canonical nodes"
NEXT_EPOCH = "next_epoch is what the loaded state says"
LISTED = "what was uploaded is listed"
TEXT_BY_HAND = {f"/3/6/mapping/{at}/1/bytes": BY_HAND for at in (0, 3, 4)}

DIFFERENT: dict[str, dict[str, str]] = {
    "Array": {
        **dict.fromkeys(("/8", "/9"), "a number out of range is an IndexError"),
        "/12/returns": "a slice can go backwards",
    },
    "CSVWriter": TEXT_BY_HAND,
    "CloudUploader": {
        **dict.fromkeys(("/5/1/0", "/5/1/1"), LISTED),
        **dict.fromkeys(("/6/2", "/6/3"), "the base class uploads to any store"),
    },
    "JSONWriter": TEXT_BY_HAND,
    "JointWriter": {"/8/mapping": BY_HAND},
    "LocalUploader": dict.fromkeys(("/1/0", "/1/1"), LISTED),
    "MDSWriter": {f"/3/6/mapping/{at}/1/bytes": BY_HAND for at in (0, 2)},
    "SplitWriter": {"/8/mapping": BY_HAND},
    "StreamingADE20K": {"/3/0/mapping/0/1": FIRST_EPOCH, "/3/1": TRUE_LENGTH},
    "StreamingC4": {"/6/0/mapping/0/1": FIRST_EPOCH, "/6/1": TRUE_LENGTH},
    "StreamingCIFAR10": {"/9/0/mapping/0/1": FIRST_EPOCH, "/9/1": TRUE_LENGTH},
    "StreamingCOCO": {"/2/0/mapping/0/1": FIRST_EPOCH, "/2/1": TRUE_LENGTH},
    "StreamingDataLoader": {
        "/1/mapping/0/1": FIRST_EPOCH,
        "/5/mapping": "a state after the last batch says that its epoch is over",
    },
    "StreamingDataset": {
        "/10/raises": "a missing data set is a FileNotFoundError",
        **dict.fromkeys(("/11", "/12", "/13", "/16", "/17"), "the constructor checks arguments"),
    },
    "StreamingEnWiki": {"/2/0/mapping/0/1": FIRST_EPOCH, "/2/1": TRUE_LENGTH},
    "StreamingImageNet": {"/9/0/mapping/0/1": FIRST_EPOCH, "/9/1": TRUE_LENGTH},
    "StreamingInsideWebVid": {
        "/2/0/mapping/0/1": FIRST_EPOCH,
        "/2/7/2": "the first iteration fixes the default block size, not asking for a state",
    },
    "StreamingOutsideDTWebVid": {"/7/3": NEXT_EPOCH},
    "StreamingOutsideGIWebVid": {"/7/3": NEXT_EPOCH},
    "StreamingPile": {"/6/0/mapping/0/1": FIRST_EPOCH, "/6/1": TRUE_LENGTH},
    "StreamingVisionDataset": {"/9/0/mapping/0/1": FIRST_EPOCH, "/9/1": TRUE_LENGTH},
    "TSVWriter": TEXT_BY_HAND,
    "XSVWriter": TEXT_BY_HAND,
    "generate_work": {"/4/raises": UNKNOWN},
    "get_partitions": {"/2/raises": UNKNOWN},
    "get_shuffle": {"/5/raises": UNKNOWN},
    "is_json_encoded": {"/8/raises": UNKNOWN},
    "is_mds_encoding": {
        "/6": "an unknown data type is no encoding, rather than a failed assertion"
    },
    "reader_from_json": {"/5/raises": UNKNOWN},
    "retry": dict.fromkeys(("/3/0", "/3/1"), "a list of exception classes works too"),
    "xsv_decode": {"/4/raises": UNKNOWN},
    "xsv_encode": {"/10/raises": UNKNOWN},
}
"""Where ours gives something else, by the path to it in the result, and why that is right."""

NAMES = [*RECORDED, *(key for key in SCENARIOS if key.startswith("streaming."))]


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


def differences(recorded: Any, ours: Any, path: str = "") -> dict[str, str]:
    """The places where two encoded values differ, and how."""
    if isinstance(ours, list) and isinstance(recorded, list) and ours != recorded:
        # A state says in addition which order it belongs to.
        ours = [
            each for each in ours if not (isinstance(each, list) and each[:1] == ["fingerprint"])
        ]
    if isinstance(recorded, dict) and isinstance(ours, dict) and recorded.keys() == ours.keys():
        pairs = [(key, recorded[key], ours[key]) for key in recorded]
    elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        pairs = [(at, *both) for at, both in enumerate(zip(recorded, ours, strict=True))]
    else:
        same = type(recorded) is type(ours) and recorded == ours
        return {} if same else {path: f"{json.dumps(recorded)} -> {json.dumps(ours)}"[:2000]}
    found: dict[str, str] = {}
    for key, one, other in pairs:
        if key == "raises":
            # Whoever catches the exception there has to catch ours; but who catches assertions?
            if one[0] not in other and one[0] != "AssertionError":
                found[f"{path}/raises"] = f"{one[0]} -> {other}"
        else:
            found |= differences(one, other, f"{path}/{key}")
    return found


def profiled(run: Any, *args: Any) -> tuple[Any, set[CodeType]]:
    """A call's result, and the code of every function called meanwhile, in any thread."""
    codes: set[CodeType] = set()

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return run(*args), codes
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def code_of(function: Any) -> CodeType | None:
    function = inspect.unwrap(getattr(function, "__func__", function))
    return getattr(function, "__code__", None)


def parts(name: str) -> dict[str, Any]:
    """The function, or the class's constructor, methods and properties, that have to be called."""
    record, found = RECORDED.get(name, {}), resolve(name)
    short = name.rpartition(".")[2]
    if not isinstance(found, type):
        return {short: found}
    methods = {f"{short}.{m}": getattr(found, m) for m in record.get("methods", ())}
    for attribute in record.get("properties", ()):
        methods[f"{short}.{attribute}"] = inspect.getattr_static(found, attribute).fget
    concrete = {k: m for k, m in methods.items() if not getattr(m, "__isabstractmethod__", False)}
    return {short: found.__init__, **concrete}


def first_home(name: str) -> str:
    """The first path under which the recorded names have the same thing."""
    found = resolve(name)
    short = name.rpartition(".")[2]
    return next(n for n in NAMES if n.rpartition(".")[2] == short and resolve(n) is found)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_call(name: str, tmp_path: Path) -> None:
    if first_home(name) != name:
        return  # the same object by another path
    key = scenario_of(name)
    assert key is not None, f"nothing calls {name}"
    result, codes = profiled(SCENARIOS[key], resolve(name), tmp_path)
    if key in NOT_RECORDED:
        assert key not in GIVEN
    else:
        found = differences(GIVEN[key], encode(result))
        expected = DIFFERENT.get(name.rpartition(".")[2], {})
        assert found.keys() == expected.keys(), "\n".join(f"{k}: {v}" for k, v in found.items())
    called = {label: code_of(f) in codes for label, f in parts(name).items() if code_of(f)}
    unreachable = name.rpartition(".")[2] in UNREACHABLE
    assert [label for label, yes in called.items() if not (yes or unreachable)] == []


def test_nothing_is_left_out() -> None:
    assert [name for name in RECORDED if scenario_of(name) is None] == []
    used = {scenario_of(name) for name in NAMES}
    assert sorted(set(SCENARIOS) - used) == []
    assert sorted(GIVEN) == sorted(set(SCENARIOS) - set(NOT_RECORDED))
