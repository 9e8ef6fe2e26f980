"""What all ready data sets have in common."""

import inspect
import pickle
from typing import Any

import numpy as np
import pytest

from streaming import MDSWriter, Stream, StreamingDataset
from streaming._ready import CLASSIC_DEFAULTS, DatasetArguments, ReadyDataset, passes_on
from streaming.multimodal import StreamingOutsideGIWebVid
from streaming.text import StreamingC4, StreamingEnWiki
from streaming.vision import StreamingADE20K, StreamingCOCO, StreamingVisionDataset

CLASSES = [
    *(StreamingADE20K, StreamingCOCO, StreamingVisionDataset, StreamingC4, StreamingEnWiki),
    StreamingOutsideGIWebVid,
]


@pytest.fixture
def numbers(tmp_path):
    with MDSWriter(out=str(tmp_path / "n"), columns={"n": "int"}, size_limit=300) as out:
        for n in range(100):
            out.write({"n": n})
    return str(tmp_path / "n")


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    shown = inspect.signature(function).parameters
    return {name: p for name, p in shown.items() if p.kind is p.KEYWORD_ONLY}


def test_written_down_arguments_are_those_of_the_dataset():
    assert set(DatasetArguments.__annotations__) == set(parameters(StreamingDataset))


@pytest.mark.parametrize("cls", CLASSES)
def test_signature_shows_every_argument(cls):
    shown, base = parameters(cls), parameters(StreamingDataset)
    assert set(base) <= set(shown)
    for name, parameter in base.items():
        if name != "batch_size":
            assert shown[name].default == CLASSIC_DEFAULTS.get(name, parameter.default)
    assert all(p.kind is not p.VAR_KEYWORD for p in inspect.signature(cls).parameters.values())


def test_passes_on_prefers_own_parameters():
    def base(self, *, a=1, b=2): ...

    @passes_on(base, b=5)
    def derived(self, *, a=7, **arguments): ...

    assert str(inspect.signature(derived)) == "(self, *, b=5, a=7)"


def test_unknown_argument_is_refused(numbers):
    with pytest.raises(TypeError, match="unexpected keyword argument 'shufle'"):
        ReadyDataset(local=numbers, shufle=True)


def test_order_is_the_classic_one(numbers):
    arguments = {"local": numbers, "batch_size": 4, "shuffle": True, "num_canonical_nodes": 2}
    ready = [s["n"] for s in ReadyDataset(**arguments)]
    assert ready == [s["n"] for s in StreamingDataset(**arguments, **CLASSIC_DEFAULTS)]
    assert ready != [s["n"] for s in StreamingDataset(**arguments)]
    chosen = ReadyDataset(**arguments, shuffle_algo="naive")
    expected = StreamingDataset(**arguments, shuffle_algo="naive")
    assert [s["n"] for s in chosen] == [s["n"] for s in expected]


def test_takes_streams(numbers):
    streams = [Stream(local=numbers, choose=20), Stream(local=numbers, choose=12)]
    dataset = ReadyDataset(streams=streams, batch_size=4, num_canonical_nodes=1)
    assert len([*dataset]) == 32


def test_sample_of_a_subclass_overriding_getitem(tmp_path):
    with MDSWriter(out=str(tmp_path), columns={"x": "ndarray", "y": "int"}) as out:
        for y in range(8):
            out.write({"x": np.full((2, 2), y, np.uint8), "y": y})

    class Labels(StreamingVisionDataset):
        def __getitem__(self, at):
            _, label = super().__getitem__(at)
            return label * 10

    dataset = Labels(local=str(tmp_path), batch_size=2, num_canonical_nodes=1)
    assert [*dataset] == [y * 10 for y in range(8)]


def test_survives_pickling(numbers):
    dataset = ReadyDataset(local=numbers, batch_size=2, shuffle=True, num_canonical_nodes=2)
    again = pickle.loads(pickle.dumps(dataset))
    assert again[7] == dataset[7]
    assert again.shuffle_algo == "py1s"
