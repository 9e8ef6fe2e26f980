"""Registries: classes and functions that users add under a name, and that a configuration names.

Built on `catalogue`, whose registries of one namespace share their entries throughout the process
and can be extended by installed packages through entry points.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast, overload

import catalogue

__all__ = [
    "TypedRegistry",
    "construct_from_registry",
    "create_registry",
    "import_file",
    "save_registry",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


class TypedRegistry(catalogue.Registry, Generic[T]):  # type: ignore[misc]
    """A `catalogue.Registry` whose entries have a type that checkers know, and a description.

    Entries are kept for each namespace, not for each object: two registries of one namespace hold
    the same entries. A name that is registered again replaces what it stood for.

    Args:
        namespace: The parts of the registry's name, such as `("mycompany", "decoders")`.
        entry_points: Whether installed packages may add entries, by entry points in the group that
            is the namespace joined by underscores.
        description: What the registry is for.

    Example:
        >>> decoders: TypedRegistry[type] = TypedRegistry(("example", "decoders"))
        >>> @decoders.register_class("plain")
        ... class Plain: ...
        >>> decoders.get("plain").__name__, "plain" in decoders, "fancy" in decoders
        ('Plain', True, False)
    """

    def __init__(
        self, namespace: Sequence[str], entry_points: bool = False, description: str = ""
    ) -> None:
        super().__init__(namespace, entry_points=entry_points)
        self.description = description

    def __call__(self, name: str, func: T | None = None) -> Any:
        """The same as `register`, with the entry allowed by position."""
        return super().register(name, func=func)

    @overload
    def register(self, name: str, *, func: T) -> T: ...
    @overload
    def register(self, name: str, *, func: None = None) -> Callable[[F], F]: ...
    def register(self, name: str, *, func: Any = None) -> Any:
        """Add an entry.

        Args:
            name: What it is to be found under.
            func: The entry. If it is left out, the result is a decorator that adds what it
                decorates.

        Returns:
            The entry itself, or the decorator.
        """
        return super().register(name, func=func)

    @overload
    def register_class(self, name: str, *, func: C) -> C: ...
    @overload
    def register_class(self, name: str, *, func: None = None) -> Callable[[C], C]: ...
    def register_class(self, name: str, *, func: Any = None) -> Any:
        """The same as `register`; type checkers keep the decorated class's type."""
        return super().register(name, func=func)

    def get(self, name: str) -> T:
        """The entry of that name.

        Raises:
            catalogue.RegistryError: There is none; the message lists those that there are.
        """
        return cast(T, super().get(name))

    def get_all(self) -> dict[str, T]:
        """Every entry by its name, those of entry points included."""
        return cast("dict[str, T]", super().get_all())

    def get_entry_point(self, name: str, default: T | None = None) -> T:
        """The entry that an installed package declares under this name, or `default`."""
        return cast(T, super().get_entry_point(name, default))

    def get_entry_points(self) -> dict[str, T]:
        """Every entry that installed packages declare, by its name."""
        return cast("dict[str, T]", super().get_entry_points())


def create_registry(
    *namespace: str, generic_type: type[T], entry_points: bool = False, description: str = ""
) -> TypedRegistry[T]:
    """Make a registry.

    Args:
        namespace: The parts of its name.
        generic_type: What its entries are, for type checkers; nothing is checked at run time.
        entry_points: Whether installed packages may add entries.
        description: What it is for.

    Example:
        >>> losses = create_registry("example", "losses", generic_type=type, description="Losses.")
        >>> losses.register("zero", func=int)
        <class 'int'>
        >>> losses.get_all(), losses.description
        ({'zero': <class 'int'>}, 'Losses.')
    """
    return TypedRegistry(namespace, entry_points=entry_points, description=description)


def construct_from_registry(
    name: str,
    registry: TypedRegistry[Any],
    partial_function: bool = True,
    pre_validation_function: Callable[[Any], None] | type | None = None,
    post_validation_function: Callable[[Any], None] | None = None,
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Construct what a registry's entry describes.

    An entry that is a class gives an instance; a function, itself with the arguments bound.

    Args:
        name: The entry's name.
        registry: Where it is registered.
        partial_function: For an entry that is a function: bind the arguments to it (the default),
            or call it with them. Classes are always called.
        pre_validation_function: Checks the entry before it is used: a class that it must be a
            subclass of, or a function that is given the entry and raises if it won't do.
        post_validation_function: The same for what was made, by a function.
        kwargs: The arguments.

    Raises:
        catalogue.RegistryError: There is no entry of that name.
        ValueError: The entry is neither a class nor callable, or not a subclass of the class
            required.

    Example:
        >>> tables = create_registry("example", "tables", generic_type=type)
        >>> tables.register("dict", func=dict)
        <class 'dict'>
        >>> construct_from_registry("dict", tables, kwargs={"a": 1})
        {'a': 1}
    """
    entry: Any = registry.get(name)
    where = f"entry {name!r} of registry {'.'.join(registry.namespace)}"
    if isinstance(pre_validation_function, type):
        if not (isinstance(entry, type) and issubclass(entry, pre_validation_function)):
            raise ValueError(
                f"{where} has to be a subclass of {pre_validation_function}: {entry!r}"
            )
    elif callable(pre_validation_function):
        pre_validation_function(entry)
    elif pre_validation_function is not None:
        raise ValueError(
            f"pre_validation_function has to be a class or a function: {pre_validation_function!r}"
        )
    if not callable(entry):
        raise ValueError(f"{where} can't be constructed, it is no class or function: {entry!r}")
    bind_only = partial_function and not isinstance(entry, type)
    made = functools.partial(entry, **(kwargs or {})) if bind_only else entry(**(kwargs or {}))
    if post_validation_function is not None:
        post_validation_function(made)
    return made


def import_file(loc: str | Path) -> ModuleType:
    """Run a Python file as a module, for its effects: what it registers.

    The module gets a name of its own, made from the file's path, in `sys.modules`, so that the
    classes it defines can be pickled (by processes that imported the file too) and be dataclasses.
    Each call runs the file anew.

    Raises:
        FileNotFoundError: There is no such file.
        RuntimeError: The file raised; its exception is the cause.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "plugin.py")
        ...     _ = path.write_text("answer = 42")
        ...     import_file(path).answer
        42
    """
    path = Path(loc)
    if not path.is_file():
        raise FileNotFoundError(f"no Python file to import at {path}")
    digest = hashlib.blake2s(str(path.resolve()).encode(), digest_size=4).hexdigest()
    name = f"streaming_imported_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} is not a Python file: its name has to end in .py")
    module = importlib.util.module_from_spec(spec)
    previous = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        if previous is None:
            del sys.modules[name]
        else:
            sys.modules[name] = previous
        raise RuntimeError(f"importing {path} failed: {type(e).__name__}: {e}") from e
    return module


@contextlib.contextmanager
def save_registry() -> Iterator[None]:
    """Undo at the end of the block what was registered within it, in any registry: for tests.

    Example:
        >>> colours = create_registry("example", "colours", generic_type=str)
        >>> with save_registry():
        ...     _ = colours.register("red", func="#f00")
        >>> "red" in colours
        False
    """
    saved = dict(catalogue.REGISTRY)
    try:
        yield
    finally:
        catalogue.REGISTRY.clear()
        catalogue.REGISTRY.update(saved)
