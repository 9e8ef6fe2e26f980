"""What can be indexed like an array: numbers, negative ones, slices, lists, arrays of numbers."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["Array"]


class _BadIndexError(TypeError, ValueError):
    """Something that is no index: a TypeError by Python's custom, a ValueError by 0.13's."""


class Array:
    """Gives a class that has ``size`` and ``get_item`` the indexing of a list, and more.

    * ``x[3]``, ``x[-1]``: one item;
    * ``x[2:9:3]``: a list of items;
    * ``x[[5, 1]]``, ``x[np.array([5, 1])]``: a list of items, through the class's own
      ``__getitem__``, so that a subclass that overrides it sees each number.

    Example:
        >>> class Squares(Array):
        ...     size = 10
        ...     def get_item(self, idx):
        ...         return idx * idx
        >>> squares = Squares()
        >>> squares[-1], squares[2:5], squares[[0, 3]]
        (81, [4, 9, 16], [0, 9])
    """

    @property
    def size(self) -> int:
        """How many items there are."""
        raise NotImplementedError

    def get_item(self, idx: int) -> Any:
        """Return the item at ``idx``, which is from 0 to ``size - 1``."""
        raise NotImplementedError

    def __getitem__(self, at: Any) -> Any:
        """Return the item, or the list of items, at an index.

        Raises:
            IndexError: Out of range.
            TypeError: Not an index.
        """
        if isinstance(at, slice):
            return [self.get_item(i) for i in range(*at.indices(self.size))]
        if isinstance(at, list) or (isinstance(at, np.ndarray) and at.ndim):
            return [self[i] for i in at]
        try:
            if isinstance(
                at, np.bool_
            ):  # once an integer in NumPy; a mask is not a list of numbers
                raise TypeError
            number = operator.index(at)
        except TypeError:
            raise _BadIndexError(
                f"{type(self).__name__} takes an integer, a slice, or a list or array of integers "
                f"in brackets, not {type(at).__name__}"
            ) from None
        size = self.size
        if not -size <= number < size:
            raise IndexError(f"index {number} is out of range: {type(self).__name__} has {size}")
        return self.get_item(number + size if number < 0 else number)

    def __iter__(self) -> Iterator[Any]:
        """Yield every item in turn."""
        for i in range(self.size):
            yield self[i]
