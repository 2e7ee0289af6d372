"""JSON Lines as bytes: cut at line feeds only, read as leniently as can be, written so that every line is one object.

U+2028, U+0085 and their like inside strings are data. A line that cannot be read is somebody's decision, not an exception.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic_core import from_json

CHUNK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line as it stands: where it begins, its bytes without the line feed, and whether it had one."""

    number: int
    offset: int
    data: bytes
    complete: bool

    @property
    def end(self) -> int:
        """Where the next line begins."""
        return self.offset + len(self.data) + self.complete


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line that could not be read; it stays in its file."""

    line: int
    byte: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line} (byte {self.byte}): {self.reason}"


def lines(read: Callable[[int, int], bytes], start: int = 0) -> Iterator[RawLine]:
    """Every line of a file, the last one marked as not complete where its line feed is missing.

    Args:
        read: Gives up to `size` bytes at `offset`, nothing at the end: `read(size, offset)`.
        start: Where to begin; the beginning of a line.
    """
    number = 1
    offset = start
    position = start
    parts: list[bytes] = []
    while chunk := read(CHUNK_BYTES, position):
        position += len(chunk)
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            data = chunk[begin:end]
            if parts:
                parts.append(data)
                data = b"".join(parts)
                parts.clear()
            yield RawLine(number, offset, data, complete=True)
            number += 1
            offset += len(data) + 1
            begin = end + 1
        if begin < len(chunk):
            parts.append(chunk[begin:] if begin else chunk)
    if parts:
        yield RawLine(number, offset, b"".join(parts), complete=False)


def parse(data: bytes) -> dict[str, Any] | str | None:
    """One line as an object; None for a blank one; a reason for one that cannot be read."""
    try:
        value = from_json(data)
    except ValueError:
        # Zeros are what a power cut leaves of bytes that were never written; a good record may follow them.
        stripped = data.removeprefix(_BOM).strip(b"\0 \t\r\n")
        if not stripped:
            return None if not data.strip() else "zero bytes only"
        try:
            value = json.loads(stripped.decode("utf-8", errors="replace"), strict=False)
        except RecursionError:
            return "nested too deeply"
        except ValueError:
            return "not JSON"
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return "not an object"


def encode(record: Mapping[str, Any]) -> bytes:
    """One line of JSON with its line feed. What JSON cannot hold (NaN, endless numbers) is written as null."""
    try:
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        text = json.dumps(_plain(record, 0), ensure_ascii=False, separators=(",", ":"))
    try:
        data = text.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8, but JSON can spell it.
        escaped = json.dumps(json.loads(text), ensure_ascii=True, separators=(",", ":"))
        data = escaped.encode()
    return data + b"\n"


_MAX_DEPTH = 100
_MAX_BITS = 4_000


def _plain(value: object, depth: int) -> object:
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): _plain(item, depth + 1) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in cast("list[object]", value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value.bit_length() < _MAX_BITS else None
    return value if value is None or isinstance(value, (str, bool)) else str(value)
