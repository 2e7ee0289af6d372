"""Lenient reading of JSON of unknown shape: accessors return an empty value of their type if the value does not fit."""

from __future__ import annotations

import json
import re
from typing import Any, cast


def parse(data: bytes | str) -> Any:
    """Parse JSON, accepting raw control characters, lone surrogates and broken UTF-8.

    Raises:
        ValueError: the data is not JSON, or is nested too deeply.
    """
    # An import of the function by name would take longer than reading a token with it.
    import pydantic_core

    try:
        return pydantic_core.from_json(data)
    except (ValueError, TypeError):  # the latter for text with surrogates
        text = _decoded(data) if isinstance(data, bytes) else data
        try:
            return json.loads(text, strict=False)
        except RecursionError:
            raise ValueError("nested too deeply") from None


def _decoded(data: bytes) -> str:
    try:
        # Halves of a surrogate pair that were written separately are joined to a character.
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def is_object(text: str) -> bool:
    """Return whether the text is one complete JSON object."""
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(parse(text), dict)
    except ValueError:
        return False


def listing(value: Any) -> list[Any]:
    """Return the value if it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return the value if it is text, else an empty text."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """Return the value as a number that is not negative, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if number >= 0 else None


_HALF = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")


def can_have_halves(data: bytes) -> bool:
    """Return whether a text of this JSON can contain halves of surrogate pairs."""
    return _HALF.search(data) is not None


class Halves:
    """Joins text that comes in pieces of which one was split inside a character, whose halves come as surrogates."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the text that is complete after this piece; a lone half becomes U+FFFD."""
        if not self._held and (piece.isascii() or not piece):
            return piece
        if not piece:
            return ""
        piece = self._held + piece
        self._held = piece[-1] if "\ud800" <= piece[-1] <= "\udbff" else ""
        return without_surrogates(piece[:-1] if self._held else piece)

    def finish(self) -> str:
        """Return the text that was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return "\ufffd" if held else ""


def text_only(value: Any) -> Any:
    """Return the value with `without_surrogates` applied to every text and key in it."""
    match value:
        case str():
            return without_surrogates(value)
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {without_surrogates(key): text_only(one) for key, one in items}
        case list():
            return [text_only(one) for one in cast("list[Any]", value)]
        case _:
            return value


def without_surrogates(value: str) -> str:
    """Return the text with lone surrogates, which no encoding can represent, replaced by U+FFFD."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        # Two neighbouring halves are joined to one character; only the remaining ones are replaced.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value
