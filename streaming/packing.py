"""Batches on their way from a worker process: their arrays in shared memory, the rest in a message.

A worker gathers a parcel's arrays straight into a buffer of the :class:`Arena`, and the message
says where in it they are. Tensors that are not there, because a transform made them, and long byte
strings are copied into another buffer; what is small, or what torch has a way of its own for,
travels in the message. Packing is done before the message is queued, so that what can't be sent is
an error of its batch.
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
import threading
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch._utils import ExceptionWrapper

from streaming.arena import Arena, Buffers, Region, Space
from streaming.turns import Failure, Parcel

SMALL_BYTES = 32 << 10
"""Up to so much of a parcel's data travels in the message: a buffer would cost more."""
_ALIGNMENT = 64

_CODES = {
    torch.bool: "|b1",
    **{getattr(torch, f"int{8 * size}"): f"i{size}" for size in (1, 2, 4, 8)},
    **{getattr(torch, f"uint{8 * size}"): f"u{size}" for size in (1, 2, 4, 8)},
    **{getattr(torch, f"float{8 * size}"): f"f{size}" for size in (2, 4, 8)},
}
"""What NumPy calls torch's types."""
_AS_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""What travels in place of types that NumPy does not know, such as bfloat16, by their bytes."""

_numbers = itertools.count()
_arenas: WeakValueDictionary[int, Arena] = WeakValueDictionary()


def register(arena: Arena) -> int:
    """Let what comes through an arena be opened in this process; its number."""
    number = next(_numbers)
    _arenas[number] = arena
    return number


class LongBytes:
    """A list of byte strings, to be sent through a buffer."""

    __slots__ = ("values",)

    def __init__(self, values: list[bytes]) -> None:
        self.values = values


class Packer:
    """A worker's side: packs parcels of batches.

    Args:
        arena: Where buffers are.
        number: The arena's number in the receiving process.
        worker: The worker's number.
    """

    def __init__(self, arena: Arena, number: int, worker: int) -> None:
        self._number = number
        self._worker = worker
        self._buffers = Buffers(arena, worker)
        self._spaces: list[Space] = []
        self._copies: list[tuple[int, Any]] = []
        self._copied = 0
        self._of_torch: Callable[[Any], Any] = _reduced
        self._has_files = False

    def empty(self, size: int) -> NDArray[np.uint8]:
        """Memory for arrays of the next parcel, ``size`` bytes or more."""
        space = self._buffers.take(size) if size > SMALL_BYTES else None
        if space is None:
            return np.empty(size, np.uint8)
        self._spaces.append(space)
        return space.array

    def pack(self, parcel: Parcel[Any]) -> Packed:
        """Make a message of a parcel; of an error, if it can't be sent."""
        try:
            return self._pack(parcel)
        except Exception:
            parcel.items = []
            parcel.failure = failure_in(self._worker)
            return self._pack(parcel)
        finally:
            self._spaces = []

    def _pack(self, parcel: Parcel[Any]) -> Packed:
        self._copies, self._copied, self._has_files = [], 0, False
        file = io.BytesIO()
        pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = self._reducers()
        pickler.dump((parcel.items, parcel.failure))
        copies = self._copy()
        regions = [copies, *(space.send() for space in self._spaces)]
        sizes = [self._copied, *(len(space.array) for space in self._spaces)]
        self._copies = []
        message, at_once = file.getvalue(), self._has_files
        return Packed((self._number, self._worker, parcel.ended, message, regions, sizes, at_once))

    def _reducers(self) -> dict[type, Callable[[Any], Any]]:
        known = dict(reduction.ForkingPickler(io.BytesIO()).dispatch_table)
        self._of_torch = known.get(torch.Tensor, _reduced)
        return {**known, torch.Tensor: self._tensor, LongBytes: self._long_bytes}

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if not _is_plain(tensor):
            own, self._has_files = self._of_torch, True
            return own(tensor)
        if tensor.dtype not in _CODES:
            integers = tensor.view(_AS_INTEGERS[tensor.element_size()])
            return _seen_as, (integers, tensor.dtype)
        code = _CODES[tensor.dtype]
        address, shape = tensor.data_ptr(), tuple(tensor.shape)
        for at, space in enumerate(self._spaces):
            if 0 <= address - space.address < len(space.array):
                return _tensor_of, (at + 1, address - space.address, code, shape)
        return _tensor_of, (0, self._keep(tensor.numpy(), tensor.nbytes), code, shape)

    def _long_bytes(self, column: LongBytes) -> Any:
        sizes = list(map(len, column.values))
        return _bytes_of, (self._keep(column.values, sum(sizes)), sizes)

    def _keep(self, values: Any, size: int) -> int:
        """Note what is to be copied; return where it will be."""
        at = self._copied
        self._copies.append((at, values))
        self._copied += -(-size // _ALIGNMENT) * _ALIGNMENT
        return at

    def _copy(self) -> Region | bytearray:
        """Copy what was noted, into a buffer or for the message."""
        space = self._buffers.take(self._copied) if self._copied > SMALL_BYTES else None
        out: Any = bytearray(self._copied) if space is None else space.array
        view = memoryview(out)
        for at, values in self._copies:
            if isinstance(values, list):
                for value in values:
                    view[at : at + len(value)] = value
                    at += len(value)
            else:
                np.ndarray(values.shape, values.dtype, out, at)[...] = values
        return out if space is None else space.send()


def _reduced(tensor: Any) -> Any:
    return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is nothing but its bytes."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and tensor.is_contiguous()
        and not tensor.is_quantized
        and (tensor.dtype in _CODES or tensor.element_size() in _AS_INTEGERS)
    )


class Packed:
    """A parcel that was packed, before it is sent: what arrives is :class:`Received`.

    Args:
        state: What arrives.
    """

    __slots__ = ("_state",)

    def __init__(self, state: tuple[Any, ...]) -> None:
        self._state = state

    def __reduce__(self) -> Any:
        return Received, self._state


class Received:
    """A parcel as it arrives. If nobody opens it, its buffers are given back.

    Args:
        number: The arena's number in this process.
        worker: The worker's number.
        ended: Whether nothing comes after it.
        message: What is not in buffers.
        regions: The buffers, or what would have been in them.
        sizes: How many bytes of each are used.
        at_once: Whether to open it at once: files of the worker's are in it, which can be had only
            as long as the worker is there. It ends when what it has sent has come, and it may be
            long before it is a parcel's turn.
    """

    def __init__(
        self,
        number: int,
        worker: int,
        ended: bool,
        message: bytes,
        regions: list[Region | bytearray],
        sizes: list[int],
        at_once: bool = False,
    ) -> None:
        self._worker, self._ended, self._message = worker, ended, message
        self._arena = _arenas.get(number)
        self._regions, self._sizes = regions, sizes
        self._pid = os.getpid()
        self._parcel: Parcel[Any] | None = None
        self._failed: Exception | None = None
        if at_once:
            try:
                self.open()
            except Exception as error:
                self._failed = error

    def open(self) -> Parcel[Any]:
        """The parcel. Its tensors are views over buffers."""
        if self._failed is not None:
            raise self._failed
        if self._parcel is None:
            arrays: list[Any] = []
            while self._regions:
                arrays.append(self._open(self._regions.pop(0), self._sizes.pop(0)))
            _opening.arrays = arrays
            try:
                items, failure = pickle.loads(self._message)
            finally:
                _opening.arrays = []
            self._parcel = Parcel(self._worker, items, self._ended, failure)
        return self._parcel

    def _open(self, region: Region | bytearray, size: int) -> Any:
        if isinstance(region, bytearray):
            return region
        assert self._arena is not None
        return self._arena.open(region, size)

    def pin_memory(self, device: Any = None) -> Received:
        """Called by the loader's pinning thread."""
        parcel = self.open()
        parcel.items = [item.pin_memory(device) for item in parcel.items]
        return self

    def __del__(self) -> None:
        if self._arena is not None and self._pid == os.getpid():
            for region in self._regions:
                if not isinstance(region, bytearray):
                    self._arena.release(region[0])


class _Opening(threading.local):
    """The buffers of the parcel that this thread is opening."""

    arrays: list[Any] = []  # noqa: RUF012  # replaced, never changed


_opening = _Opening()


def _tensor_of(region: int, at: int, code: str, shape: tuple[int, ...]) -> torch.Tensor:
    memory = _opening.arrays[region]
    array: NDArray[Any] = np.ndarray(shape, code, memory, at)
    # What came in the message may be a small part of it, which should not keep all of it.
    return torch.from_numpy(array.copy() if isinstance(memory, bytearray) else array)


def _seen_as(integers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return integers.view(dtype)


def _bytes_of(at: int, sizes: list[int]) -> list[bytes]:
    view = memoryview(_opening.arrays[0])
    values = []
    for size in sizes:
        values.append(bytes(view[at : at + size]))
        at += size
    return values


def failure_in(worker: int) -> Failure:
    """The error that is being handled, as torch sends it from a worker process."""
    wrapper: Any = ExceptionWrapper(  # type: ignore[no-untyped-call]
        where=f"in DataLoader worker process {worker}"
    )
    try:
        pickle.dumps(wrapper)
    except Exception:
        wrapper.exc_type = RuntimeError
    failure: Failure = wrapper
    return failure
