"""Sizes and numbers as people write them: `"64mb"`, `"10k"`, `"a,b,c"`."""

from __future__ import annotations

__all__ = ["bytes_to_int", "get_list_arg", "number_abbrev_to_int"]

# Longest first, so that "kb" is not taken for "b".
_BYTES = {unit + "b": 1 << 10 * i for i, unit in enumerate("kmgtpezy", 1)} | {"b": 1}
_NUMBERS = {unit: 1000**i for i, unit in enumerate("kmbt", 1)}


def bytes_to_int(bytes_str: int | str) -> int:
    """Read a number of bytes.

    Args:
        bytes_str: A number, or a number with one of the suffixes b, kb, mb, gb, tb, pb, eb, zb, yb
            in either case; each stands for 1024 times the one before. Only a number with a suffix
            above b may have a fraction.

    Returns:
        The number of bytes, rounded towards zero.

    Raises:
        ValueError: If the text is neither.
        TypeError: If it is neither text nor a number.

    Example:
        >>> bytes_to_int("64mb"), bytes_to_int("1.5 KB"), bytes_to_int("300"), bytes_to_int(300)
        (67108864, 1536, 300, 300)
    """
    return _parse(bytes_str, _BYTES, whole=("b",), what="number of bytes", example="'64mb'")


def number_abbrev_to_int(abbrev_str: int | str) -> int:
    """Read a number that may be abbreviated.

    Args:
        abbrev_str: A number, or a number with one of the suffixes k, m, b, t in either case:
            thousands, millions, billions, trillions. Only a number with a suffix may have a
            fraction.

    Returns:
        The number, rounded towards zero.

    Raises:
        ValueError: If the text is neither.
        TypeError: If it is neither text nor a number.

    Example:
        >>> number_abbrev_to_int("10k"), number_abbrev_to_int("1.5 M"), number_abbrev_to_int(7)
        (10000, 1500000, 7)
    """
    return _parse(abbrev_str, _NUMBERS, whole=(), what="number", example="'10k'")


def get_list_arg(text: str) -> list[str]:
    """Split a command line's argument at its commas.

    Args:
        text: The argument. Spaces belong to the parts.

    Returns:
        The parts; none of an empty text.

    Example:
        >>> get_list_arg("train,val"), get_list_arg("")
        (['train', 'val'], [])
    """
    return text.split(",") if text else []


def _parse(
    value: int | float | str, units: dict[str, int], whole: tuple[str, ...], what: str, example: str
) -> int:
    """Read a number with one of these suffixes; `whole` are those that take no fraction."""
    if not isinstance(value, str):
        try:
            return int(value)
        except (TypeError, ValueError, OverflowError) as exc:
            kind = TypeError if isinstance(exc, TypeError) else ValueError
            raise kind(f"{value!r} is not a {what}: give an integer or text as {example}") from exc
    text = value.strip().lower()
    suffix = next((unit for unit in units if text.endswith(unit)), "")
    digits = text[: len(text) - len(suffix)].strip()
    # What float() and int() accept besides (inf, 1e3, 1_000) is more likely to be a mistake.
    if set(digits) <= set("+-.0123456789"):
        try:
            if suffix and suffix not in whole:
                # As floating-point numbers: a size has to be the same as it has always been.
                return int(float(digits) * units[suffix])
            if suffix or digits.isdigit():
                return int(digits)
        except ValueError:
            pass
    raise ValueError(
        f"{value!r} is not a {what}: write a number and one of the suffixes "
        f"{', '.join(sorted(units, key=units.__getitem__))}, as {example}"
    )
