"""Packages whose names are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, Iterable[str]], submodules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package that imports nothing until it is asked.

    `import streaming` has to be quick, and a script that only writes shards should not wait for
    torch. A name is looked up once; then it is an ordinary attribute.

    Args:
        package: The package's `__name__`.
        modules: The public names by the module that holds them.
        submodules: The package's modules that are its attributes without having been imported.

    Returns:
        The two functions, to be assigned in the package.

    Example:
        >>> getattribute, _ = lazy_names("streaming", {"fractions": ["Fraction"]}, ["base"])
        >>> getattribute("Fraction")
        <class 'fractions.Fraction'>
        >>> getattribute("base").__name__
        'streaming.base'
    """
    home = {name: module for module, names in modules.items() for name in names}
    known = frozenset(submodules)

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name in home:
            value: Any = getattr(importlib.import_module(home[name]), name)
        elif name in known:
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*vars(sys.modules[package]), *home, *known})

    return __getattr__, __dir__
