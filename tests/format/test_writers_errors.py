"""Every mistake is an error at the call that makes it, and the writer is as it was before."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming.format.encodings.base import Encoding
from streaming.format.encodings.mds import _encodings, register_encoding
from streaming.format.errors import (
    EncodeError,
    EncodeRangeError,
    EncodeTypeError,
    FormatError,
)
from streaming.format.writer_checks import ColumnError
from streaming.format.writer_json import JSONWriter
from streaming.format.writer_mds import MDSWriter
from streaming.format.writer_xsv import CSVWriter, TSVWriter, XSVWriter
from tests.format.writing import COLUMNS, SAMPLES, WRITERS, names, read_all

ALL = sorted(WRITERS)


def make(format: str, out: Path, columns: Any = None, **kwargs: Any) -> Any:
    if format == "xsv":
        kwargs.setdefault("separator", "|")
    columns = {"n": "int", "s": "str"} if columns is None else columns
    return WRITERS[format](columns=columns, out=out, **kwargs)


# Arguments.

WRONG_ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"columns": {"n": "in"}}, TypeError, r"column 'n': there is no encoding 'in'.*'int'"),
    ({"columns": {"n": "in"}}, FormatError, r"There are .*str"),
    ({"columns": {"n": 3}}, TypeError, r"column 'n'"),
    ({"columns": {3: "int"}}, TypeError, r"column 3"),
    ({"columns": []}, TypeError, r"columns is \[\]"),
    ({"columns": {}}, ValueError, r"columns is empty"),
    ({"compression": "zst"}, FormatError, r"'zst'.*zstd"),
    ({"compression": "zstd:99"}, FormatError, r"zstd:99"),
    ({"compression": "snappy:1"}, FormatError, r"snappy:1"),
    ({"compression": 3}, TypeError, r"compression is 3"),
    ({"hashes": ["sha2"]}, FormatError, r"no hash 'sha2'; did you mean 'sha\d+'\?"),
    ({"hashes": ["sha1", "md5"]}, ValueError, r"in order: \['md5', 'sha1'\]"),
    ({"hashes": ["md5", "md5"]}, ValueError, r"each once"),
    ({"hashes": "md5"}, TypeError, r"give a list: \['md5'\]"),
    ({"size_limit": -1}, ValueError, r"size_limit is -1"),
    ({"size_limit": "-1kb"}, ValueError, r"size_limit is '-1kb'"),
    ({"size_limit": "64 megs"}, ValueError, r"'64 megs' is not a number of bytes"),
    ({"size_limit": []}, TypeError, r"\[\] is not a number of bytes"),
    ({"size_limits": 3}, TypeError, r"Writer: there is no argument 'size_limits'"),
    ({"exists_ok": True}, TypeError, r"did you mean 'exist_ok'\?"),
    ({"max_workers": 0}, ValueError, r"max_workers is 0"),
    ({"max_workers": "3"}, TypeError, r"max_workers is '3'"),
    ({"retry": -1}, ValueError, r"retry is -1"),
    ({"retry": None}, TypeError, r"retry is None"),
]


@pytest.mark.parametrize(("wrong", "error", "message"), WRONG_ARGUMENTS)
@pytest.mark.parametrize("format", ALL)
def test_wrong_arguments(
    format: str, wrong: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        make(format, tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()


WRONG_PLACES: list[tuple[Any, type[Exception], str]] = [
    (3, TypeError, "out is 3"),
    (None, TypeError, "out is None"),
    ((1, 2, 3), TypeError, r"out is \(1, 2, 3\)"),
    (("a",), TypeError, "out is"),
    ("", ValueError, "name a folder or a URL"),
    (("", ""), ValueError, "name a folder or a URL"),
    (("held://a", "held://b"), ValueError, "the first of a pair has to be a local folder"),
    (("same", "./same"), ValueError, "both are the folder"),
    ("nosuch://bucket", ValueError, "no store is known for nosuch://"),
    ("http://127.0.0.1:1/x", ValueError, "can only be read"),
]


@pytest.mark.parametrize(("out", "error", "message"), WRONG_PLACES)
def test_wrong_places(
    out: Any, error: type[Exception], message: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        MDSWriter(columns=COLUMNS, out=out)
    assert names(tmp_path) == []


def test_one_place_by_two_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="both are the folder"):
        MDSWriter(columns=COLUMNS, out=(tmp_path / "same", f"file://{tmp_path}/same"))


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        ("ndarray:int33", r"column 'v': ndarray of 'int33': must be one of"),
        ("ndarray:int32:0", r"column 'v': ndarray of shape \(0,\)"),
        ("int:3", r"column 'v': .*int takes no parameters"),
        ("ndaray:int32", r"column 'v': there is no encoding 'ndaray:int32'"),
    ],
)
def test_wrong_parameters_of_encodings(encoding: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=message):
        MDSWriter(columns={"v": encoding}, out=tmp_path / "out")


def test_a_file_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file"):
        MDSWriter(columns=COLUMNS, out=tmp_path / "file", exist_ok=True)


def test_csv_has_its_separator() -> None:
    for writer in (CSVWriter, TSVWriter):
        with pytest.raises(TypeError, match="use XSVWriter"):
            writer(columns=COLUMNS, out="out", separator=";")
    with pytest.raises(TypeError, match="separator"):
        XSVWriter(columns=COLUMNS, out="out")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("separator", "newline", "columns", "error", "message"),
    [
        ("", "\n", COLUMNS, ValueError, "separator is empty"),
        ("|", "", COLUMNS, ValueError, "newline is empty"),
        (3, "\n", COLUMNS, TypeError, "separator is 3"),
        ("|", None, COLUMNS, TypeError, "newline is None"),
        ("\n", "\n", COLUMNS, ValueError, "can't be told apart"),
        ("\r", "\r\n", COLUMNS, ValueError, "can't be told apart"),
        ("a\nb", "\n", COLUMNS, ValueError, "can't be told apart"),
        ("|", "\n", {"a|b": "int"}, ValueError, "one of them holds it"),
        ("|", "\n", {"a\nb": "int"}, ValueError, "one of them holds it"),
        ("||", "\n", {"a|": "int", "b": "int"}, ValueError, "one of them holds it"),
    ],
)
def test_marks_of_xsv(
    separator: Any, newline: Any, columns: Any, error: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        XSVWriter(columns=columns, separator=separator, newline=newline, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("newline", "error"), [("", ValueError), ("a", ValueError), (3, TypeError)]
)
def test_newline_of_json(newline: Any, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error, match="newline is"):
        JSONWriter(columns=COLUMNS, newline=newline, out=tmp_path / "out")


# Samples.

WRONG_SAMPLES: list[tuple[Any, type[Exception], str]] = [
    ({"n": 1}, ColumnError, r"sample 2 lacks column 's'; the data set's columns are n, s"),
    ({"n": 1}, KeyError, r"sample 2 lacks"),
    ({}, ColumnError, r"sample 2 lacks columns 'n', 's'"),
    ({"n": 1, "s": "x", "t": 3}, ColumnError, r"sample 2 has column 't' too much"),
    ({"n": 1, "t": "x"}, ColumnError, r"sample 2 lacks column 's'"),
    ([1, 2], TypeError, r"sample 2 is a list"),
    (None, TypeError, r"sample 2 is a NoneType"),
    ({"n": "1", "s": "x"}, EncodeTypeError, r"column 'n' of sample 2: .*'1'"),
    ({"n": "1", "s": "x"}, AttributeError, r"column 'n' of sample 2"),
    ({"n": None, "s": "x"}, TypeError, r"column 'n' of sample 2"),
    ({"n": 1.5, "s": "x"}, TypeError, r"column 'n' of sample 2"),
    ({"n": 1, "s": 2}, TypeError, r"column 's' of sample 2: .*2"),
    ({"n": 1, "s": None}, TypeError, r"column 's' of sample 2"),
]


@pytest.mark.parametrize(("wrong", "error", "message"), WRONG_SAMPLES)
@pytest.mark.parametrize("format", ALL)
def test_wrong_samples(
    format: str, wrong: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with make(format, tmp_path, size_limit=40) as writer:
        for i, sample in enumerate(SAMPLES):
            if i == 2:
                shards, size = len(writer.shards), writer.new_shard_size
                for method in (writer.write, writer.encode_sample):
                    with pytest.raises(error, match=message):
                        method(wrong)
                assert (len(writer.shards), writer.new_shard_size) == (shards, size)
            writer.write(sample)
    assert read_all(tmp_path) == SAMPLES


WRONG_VALUES: list[tuple[str, Any, type[Exception], str]] = [
    ("int", 2**63, EncodeRangeError, "9223372036854775808"),
    ("int", 2**63, OverflowError, "9223372036854775808"),
    ("uint8", 256, EncodeRangeError, "256 does not fit"),
    ("uint8", -1, EncodeRangeError, "-1 does not fit"),
    ("uint8", 1.5, TypeError, "1.5"),
    ("uint8", "3", TypeError, "'3'"),
    ("float32", 1e300, EncodeRangeError, r"1e\+300 is too large"),
    ("float32", "1", TypeError, "'1'"),
    ("float64", None, TypeError, "None"),
    ("str", "\ud800", EncodeError, "UTF-8"),
    ("str", b"\xff", EncodeTypeError, "not an encoded value"),
    ("bytes", "x", TypeError, "bytes"),
    ("ndarray", [1, 2], TypeError, "list"),
    ("ndarray:int32", np.arange(3, dtype="int64"), TypeError, "int32.*int64"),
    ("ndarray:int32:3", np.arange(3, dtype="int64"), TypeError, "int32.*int64"),
    ("ndarray:int32:3", np.arange(4, dtype="int32"), TypeError, r"\(3,\).*\(4,\)"),
    ("ndarray:int32:3", np.zeros((1, 3), "int32"), TypeError, r"\(3,\).*\(1, 3\)"),
    ("json", float("nan"), EncodeRangeError, "nan"),
    ("json", {1, 2}, TypeError, "set"),
    ("pkl", lambda: 0, EncodeTypeError, "pickled"),
]


@pytest.mark.parametrize(("encoding", "value", "error", "message"), WRONG_VALUES)
def test_wrong_values_of_mds(
    encoding: str, value: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    writer = MDSWriter(columns={"ok": "int", "v": encoding}, out=tmp_path)
    with pytest.raises(error, match=f"column 'v' of sample 0: .*{message}") as caught:
        writer.write({"ok": 1, "v": value})
    assert isinstance(caught.value, EncodeError)
    assert writer.new_samples == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_json_has_no_such_floats(value: float, tmp_path: Path) -> None:
    with (
        JSONWriter(columns={"f": "float"}, out=tmp_path) as writer,
        pytest.raises(EncodeRangeError, match=r"column 'f' of sample 0: .*no form in JSON"),
    ):
        writer.write({"f": value})


def test_xsv_has_all_floats(tmp_path: Path) -> None:
    with CSVWriter(columns={"f": "float"}, out=tmp_path) as writer:
        for value in (float("nan"), float("inf"), -0.0):
            writer.write({"f": value})
    assert (tmp_path / "shard.00000.csv").read_bytes() == b"f\nnan\ninf\n-0.0\n"


@pytest.mark.parametrize(
    ("format", "value", "message"),
    [
        (
            "csv",
            "x,y",
            r"column 's' of sample 0: .*the separator ',', and CSV has no quotes: 'x,y'",
        ),
        ("csv", "x\ny", r"the newline '\\n'"),
        ("tsv", "x\ty", r"the separator '\\t'"),
        ("xsv", "x|y", r"the separator '\|'"),
        ("csv", "\ud800", r"UTF-8"),
    ],
)
def test_text_that_would_break_a_line(
    format: str, value: str, message: str, tmp_path: Path
) -> None:
    with make(format, tmp_path) as writer:
        with pytest.raises(EncodeRangeError, match=message):
            writer.write({"n": 1, "s": value})
        others = {"csv": "a|b\tc", "tsv": "a,b|c", "xsv": "a,b\tc"}[format]
        writer.write({"n": 1, "s": others})
    assert read_all(tmp_path) == [{"n": 1, "s": others}]


def test_text_that_makes_up_a_mark_with_its_neighbour(tmp_path: Path) -> None:
    columns = {"a": "str", "b": "str"}
    with XSVWriter(columns=columns, separator="||", newline="<>", out=tmp_path) as writer:
        for wrong in ({"a": "x|", "b": "y"}, {"a": "x", "b": "|y|"}, {"a": "||", "b": ""}):
            if wrong["b"] == "|y|":
                writer.write(wrong)  # "x|||y|<>" is x, then |y|
            else:
                with pytest.raises(EncodeRangeError):
                    writer.write(wrong)
        writer.write({"a": "<", "b": "y<"})
        with pytest.raises(EncodeRangeError, match="the newline '<>'"):
            writer.write({"a": "<>", "b": "y"})
    assert read_all(tmp_path) == [{"a": "x", "b": "|y|"}, {"a": "<", "b": "y<"}]


# Encodings that do not keep their word.


class Careless(Encoding):
    """Returns whatever it is given."""

    def encode(self, obj: Any) -> Any:
        if isinstance(obj, Exception):
            raise obj
        return obj

    def decode(self, data: bytes) -> Any:
        return data


class CarelessOfSize(Careless):
    size = 3


@pytest.fixture(autouse=True)
def _careless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.format.encodings.mds._encodings", dict(_encodings))
    register_encoding("careless", Careless)
    register_encoding("careless3", CarelessOfSize)


@pytest.mark.parametrize(
    ("encoding", "value", "message"),
    [
        ("careless", "text", "the encoding careless made a str, not bytes"),
        ("careless", bytearray(b"x"), "made a bytearray"),
        ("careless3", b"xx", "the encoding careless3 made 2 bytes; its size is 3"),
        ("careless", RuntimeError("no"), "RuntimeError: no"),
        ("careless", OverflowError("no"), "OverflowError: no"),
    ],
)
def test_encodings_that_are_wrong(encoding: str, value: Any, message: str, tmp_path: Path) -> None:
    with MDSWriter(columns={"v": encoding}, out=tmp_path) as writer:
        with pytest.raises(EncodeError, match=f"column 'v' of sample 0: .*{message}"):
            writer.write({"v": value})
        writer.write({"v": b"xyz"})
    assert read_all(tmp_path) == [{"v": b"xyz"}]


class Vast(bytes):
    """Says that it has 4 GiB."""

    def __len__(self) -> int:
        return 1 << 32


def test_a_value_of_4_gib(tmp_path: Path) -> None:
    with MDSWriter(columns={"v": "careless"}, out=tmp_path) as writer:
        with pytest.raises(EncodeError, match="column 'v' of sample 0 has 4294967296 bytes"):
            writer.write({"v": Vast(b"x")})
        writer.write({"v": b"x"})
    assert read_all(tmp_path) == [{"v": b"x"}]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> int:
    """Offsets that reach less far."""
    most = 400
    for module in ("layout", "writer"):
        monkeypatch.setattr(f"streaming.format.{module}.MAX_SHARD_BYTES", most)
    return most


@pytest.mark.parametrize("limit", [None, 300, 1000])
@pytest.mark.parametrize("format", ALL)
def test_a_sample_that_no_shard_can_hold(
    format: str, limit: int | None, small_shards: int, tmp_path: Path
) -> None:
    with make(format, tmp_path, size_limit=limit) as writer:
        writer.write(SAMPLES[0])
        before = (len(writer.shards), writer.new_shard_size)
        with pytest.raises(EncodeRangeError, match=r"sample 1 has \d+ bytes.*offsets have 32 bits"):
            writer.write({"n": 1, "s": "x" * 400})
        assert (len(writer.shards), writer.new_shard_size) == before
        writer.write(SAMPLES[1])
    assert read_all(tmp_path) == SAMPLES[:2]


@pytest.mark.parametrize("format", ALL)
def test_without_a_limit_a_shard_ends_before_its_offsets_do(
    format: str, small_shards: int, tmp_path: Path
) -> None:
    samples = [{"n": i, "s": "x" * i} for i in range(60)]
    with make(format, tmp_path, size_limit=None) as writer:
        for sample in samples:
            writer.write(sample)
    assert read_all(tmp_path) == samples
    sizes = [shard["raw_data"]["bytes"] for shard in writer.shards]
    assert len(sizes) > 3
    assert small_shards - 80 < max(sizes) <= small_shards


def test_a_largest_sample_just_fits(small_shards: int, tmp_path: Path) -> None:
    with MDSWriter(columns={"s": "str"}, out=tmp_path, size_limit=None) as writer:
        room = small_shards - writer.extra_bytes_per_shard - 4 - 4
        with pytest.raises(EncodeRangeError):
            writer.write({"s": "x" * (room + 1)})
        writer.write({"s": "x" * room})
    assert writer.shards[0]["raw_data"]["bytes"] == small_shards
