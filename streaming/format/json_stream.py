"""Reading a large JSON object without holding all of it as objects at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

__all__ = ["json_members"]

_SPACE = re.compile(r"[ \t\n\r]*")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def json_members(text: str, streamed: str) -> Iterator[tuple[str, Any]]:
    """Yield the members of a JSON object, one of them by and by.

    Args:
        text: The whole text.
        streamed: Name of the member whose value, if it is an array, is an iterator of its items.
            What is left of it when the next member is asked for is skipped.

    Raises:
        ValueError: The text is not a JSON object.

    Example:
        >>> for name, value in json_members('{"a": 1, "b": [2, 3]}', "b"):
        ...     print(name, value if name == "a" else list(value))
        a 1
        b [2, 3]
    """
    scan = _Scanner(text)
    scan.take("{")
    if scan.peek() == "}":
        scan.take("}")
    else:
        while True:
            name = scan.value()
            if not isinstance(name, str):
                raise ValueError(f"a member's name must be a string, got {name!r}")
            scan.take(":")
            if name == streamed and scan.peek() == "[":
                items = scan.items()
                yield name, items
                for _ in items:
                    pass
            else:
                yield name, scan.value()
            if scan.peek() != ",":
                break
            scan.take(",")
        scan.take("}")
    if scan.peek():
        raise ValueError(f"something follows the object, at character {scan.at}")


class _Scanner:
    """A place in a JSON text."""

    def __init__(self, text: str) -> None:
        self.at = 0
        self._text = text

    def peek(self) -> str:
        """Go to what follows white space; return the character there, or an empty string."""
        match = _SPACE.match(self._text, self.at)
        assert match is not None
        self.at = match.end()
        return self._text[self.at : self.at + 1]

    def take(self, char: str) -> None:
        """Go past a character that must follow."""
        found = self.peek()
        if found != char:
            raise ValueError(f"{char!r} must be at character {self.at}, there is {found!r}")
        self.at += 1

    def value(self) -> Any:
        """Go past a value and return it."""
        self.peek()
        value, self.at = _DECODER.raw_decode(self._text, self.at)
        return value

    def items(self) -> Iterator[Any]:
        """Go past an array, yielding its items."""
        self.take("[")
        if self.peek() == "]":
            self.take("]")
            return
        while True:
            yield self.value()
            if self.peek() != ",":
                break
            self.take(",")
        self.take("]")
