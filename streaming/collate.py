"""torch's default collate, without its threads.

To stack tensors, torch divides the copying between as many threads as there are cores, and waits
for all of them. Where others use the cores, as workers do, one of the threads is not scheduled, and
the others wait for it actively: what takes one thread a millisecond was seen to take 250. Copying
is bound by memory, so that one thread does nearly as well as several on an idle machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate, get_worker_info
from torch.utils.data._utils import collate as torchs

THREADED_NUMEL = 1 << 15
"""Up to so many numbers, torch uses one thread."""

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By size, the types as which numbers are copied: NumPy hasn't got all of torch's."""


def collate_like_torch(samples: list[Any]) -> Any:
    """Make a batch of samples, equal to what ``torch.utils.data.default_collate`` makes of them.

    Types that were added to torch's ``default_collate_fn_map`` are collated as it says.

    Args:
        samples: The samples.

    Returns:
        The batch: tensors and arrays of shape ``(...)`` become a tensor of shape
        ``(len(samples), ...)``.

    Raises:
        Exception: What torch's raises.

    Example:
        >>> collate_like_torch([{"x": np.zeros(3)}, {"x": np.ones(3)}])["x"].shape
        torch.Size([2, 3])
    """
    functions: dict[Any, Callable[..., Any]] = torchs.default_collate_fn_map
    if get_worker_info() is not None or functions.get(torch.Tensor) is not torchs.collate_tensor_fn:
        return default_collate(samples)  # in a worker, one thread collates into shared memory
    return torchs.collate(samples, collate_fn_map={**functions, torch.Tensor: _stack})


def _stack(tensors: Sequence[torch.Tensor], *, collate_fn_map: dict[Any, Any]) -> torch.Tensor:
    words = _words_of(tensors)
    if words is None:
        stacked: torch.Tensor = torchs.collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
        return stacked
    first = tensors[0]
    batch = torch.empty((len(tensors), *first.shape), dtype=first.dtype, device="cpu")
    np.stack(words, out=batch.view(_WORDS[first.itemsize]).numpy())
    return batch


def _words_of(tensors: Sequence[torch.Tensor]) -> list[NDArray[Any]] | None:
    """Tensors as arrays over their memory; None if torch is to stack them."""
    first = tensors[0]
    word = _WORDS.get(first.itemsize)
    if word is None or first.numel() * len(tensors) < THREADED_NUMEL:
        return None
    dtype, shape = first.dtype, first.shape
    if all(_is_plain(x) and x.dtype == dtype and x.shape == shape for x in tensors):
        return [x.view(word).numpy() for x in tensors]
    return None


def _is_plain(x: torch.Tensor) -> bool:
    """Whether a tensor is nothing but numbers in a row, in this process's memory."""
    return (
        type(x) is torch.Tensor
        and x.device.type == "cpu"
        and x.layout is torch.strided
        and not (x.is_nested or x.is_quantized or x.requires_grad or x.is_conj() or x.is_neg())
        and x.is_contiguous()
    )
