"""Every public name has the signature that it has in mosaicml-streaming; ours only adds to it."""

import inspect
from inspect import Parameter
from typing import Any

import pytest

from tests.public_names import RECORDED, resolve

READY = (
    *("allow_unsafe_types", "batching_method", "replication", "sampling_granularity"),
    *("sampling_method", "stream_config", "stream_name", "streams"),
)
"""What the ready data sets take, since they take every argument of StreamingDataset."""

DATASETS = (
    *("StreamingADE20K", "StreamingC4", "StreamingCIFAR10", "StreamingCOCO", "StreamingDataset"),
    *("StreamingEnWiki", "StreamingImageNet", "StreamingInsideWebVid", "StreamingOutsideDTWebVid"),
    *("StreamingOutsideGIWebVid", "StreamingPile", "StreamingVisionDataset"),
)

PLACE = (
    *("rank", "world_size", "local_world_size", "device_mesh", "replicate_dims", "pad"),
    "max_connections",
)
"""What every dataset takes besides."""

ADDED: dict[str, tuple[str, ...]] = {
    "Stream": ("storage_options",),
    "StreamingADE20K": READY,
    "StreamingADE20K.get_item": ("retry",),
    "StreamingC4": READY,
    "StreamingC4.get_item": ("retry",),
    "StreamingCIFAR10": READY,
    "StreamingCIFAR10.get_item": ("retry",),
    "StreamingCOCO": READY,
    "StreamingCOCO.get_item": ("retry",),
    "StreamingEnWiki": READY,
    "StreamingEnWiki.get_item": ("retry",),
    "StreamingImageNet": READY,
    "StreamingImageNet.get_item": ("retry",),
    "StreamingInsideWebVid.get_item": ("retry",),
    "StreamingOutsideDTWebVid": READY,
    "StreamingOutsideDTWebVid.get_item": ("retry",),
    "StreamingOutsideGIWebVid": READY,
    "StreamingOutsideGIWebVid.get_item": ("retry",),
    "StreamingPile": READY,
    "StreamingPile.get_item": ("retry",),
    "StreamingVisionDataset": READY,
    "StreamingVisionDataset.get_item": ("retry",),
    "StreamingDataLoader": ("worker_type", "batch_transform"),
    "StreamingDataLoader.load_state_dict": ("strict",),
    "decompress": ("max_bytes",),
}
"""Every parameter that ours has and the recorded signature has not."""

for _name in DATASETS:
    ADDED[_name] = ADDED.get(_name, ()) + PLACE
    ADDED[f"{_name}.load_state_dict"] = ("strict",)

OPTIONAL = {f"{name}.state_dict": ("num_samples", "from_beginning") for name in DATASETS}
"""Every parameter that was required and is not any more."""

VARIADIC = {"VAR_POSITIONAL", "VAR_KEYWORD"}


def callables(name: str) -> dict[str, tuple[list[dict[str, Any]], Any]]:
    """The recorded parameters and our object, for a function, or for a class and its methods."""
    record, found = RECORDED[name], resolve(name)
    short = name.rpartition(".")[2]
    if "call" in record:
        return {short: (record["call"], found)}
    methods = {
        f"{short}.{method}": (parameters, getattr(found, method, None))
        for method, parameters in record["methods"].items()
    }
    return {short: (record["init"], found), **methods}


def same_default(recorded: dict[str, Any], ours: Parameter) -> bool:
    if "default" not in recorded:
        return ours.default is Parameter.empty
    if recorded["default"] == "<type>":
        return isinstance(ours.default, type)
    return bool(recorded["default"] == ours.default)


def differences(label: str, recorded: list[dict[str, Any]], ours: list[Parameter]) -> list[str]:
    """What a call that was right by the recorded signature could trip over."""
    by_name = {p.name: p for p in ours}
    wrong = []
    for parameter in recorded:
        name, kind = parameter["name"], parameter["kind"]
        if name not in by_name:
            wrong.append(f"{label} lacks {name}")
        elif by_name[name].kind.name != kind:
            wrong.append(f"{label}: {name} is {by_name[name].kind.name}, not {kind}")
        elif name in OPTIONAL.get(label, ()) and "default" not in parameter:
            if by_name[name].default is Parameter.empty:
                wrong.append(f"{label}: {name} has no default")
        elif kind not in VARIADIC and not same_default(parameter, by_name[name]):
            wrong.append(
                f"{label}: {name} defaults to {by_name[name].default!r}, "
                f"not {parameter.get('default', 'none at all')!r}"
            )
    names = {p["name"] for p in recorded}
    added = [p for p in ours if p.name not in names]
    wrong += [f"{label} adds {p.name}" for p in added if p.name not in ADDED.get(label, ())]
    wrong += [
        f"{label}: {p.name} has no default"
        for p in added
        if p.kind.name not in VARIADIC and p.default is Parameter.empty
    ]
    positional = [p["name"] for p in recorded if p["kind"] == "POSITIONAL_OR_KEYWORD"]
    order = [p.name for p in ours if p.kind.name == "POSITIONAL_OR_KEYWORD"]
    if order[: len(positional)] != positional:
        wrong.append(f"{label}: the order is {order}, not {positional}")
    return wrong


@pytest.mark.parametrize("name", RECORDED)
def test_signature(name: str) -> None:
    wrong = []
    for label, (recorded, ours) in callables(name).items():
        if ours is None:
            wrong.append(f"{label} is missing")
        else:
            wrong += differences(label, recorded, [*inspect.signature(ours).parameters.values()])
    properties = RECORDED[name].get("properties", ())
    wrong += [f"{name} lacks the property {p}" for p in properties if not is_property(name, p)]
    assert not wrong


def is_property(name: str, attribute: str) -> bool:
    return isinstance(inspect.getattr_static(resolve(name), attribute, None), property)


def test_table_of_additions_is_true() -> None:
    listed = {(label, name) for label, names in ADDED.items() for name in names}
    real = {
        (label, parameter)
        for name in RECORDED
        for label, (_, ours) in callables(name).items()
        for parameter in inspect.signature(ours).parameters
    }
    recorded = {
        (label, parameter["name"])
        for name in RECORDED
        for label, (parameters, _) in callables(name).items()
        for parameter in parameters
    }
    assert listed <= real
    assert not listed & recorded


def test_differences_are_seen() -> None:
    def recorded(a, b=1, *, c=2): ...

    def ours(b, a=1, *, c=3, d, **kwargs): ...

    old = [
        {"name": p.name, "kind": p.kind.name}
        | ({} if p.default is Parameter.empty else {"default": p.default})
        for p in inspect.signature(recorded).parameters.values()
    ]
    assert differences("f", old, [*inspect.signature(recorded).parameters.values()]) == []
    assert differences("f", old, [*inspect.signature(ours).parameters.values()]) == [
        "f: a defaults to 1, not 'none at all'",
        "f: b defaults to <class 'inspect._empty'>, not 1",
        "f: c defaults to 3, not 2",
        "f adds d",
        "f adds kwargs",
        "f: d has no default",
        "f: the order is ['b', 'a'], not ['a', 'b']",
    ]
