"""Bytes of a file as text and back, so that what an edit does not touch stays byte for byte.

Invalid UTF-8 travels as lone surrogates and returns as it was; line endings and a byte order mark are kept.
"""

from __future__ import annotations

from kimi_tui.tools.problem import ToolProblem

PROBE_BYTES = 8192
_BOM = "\ufeff"
_MAGIC = (
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "an ELF program"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


def binary_kind(start: bytes) -> str:
    """What kind of binary file begins like this; empty where it looks like text."""
    for magic, kind in _MAGIC:
        if start.startswith(magic):
            return kind
    return "a binary file" if b"\0" in start[:PROBE_BYTES] else ""


def decode(data: bytes) -> str:
    """The text of a file, reversible by `encode`."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The bytes of a text.

    Raises:
        ToolProblem: it holds half a surrogate pair that did not come from a file.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ToolProblem(
            "The text has half of a surrogate pair, which no file can hold."
        ) from error


def for_people(text: str) -> str:
    """The text as diffs show it: line feeds only, undecodable bytes as U+FFFD, no byte order mark."""
    shown = text.removeprefix(_BOM).replace("\r\n", "\n")
    return shown.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def uses_crlf(text: str) -> bool:
    """Whether most lines end with CR LF."""
    crlf = text.count("\r\n")
    return crlf > 0 and crlf * 2 >= text.count("\n")


def to_crlf(text: str) -> str:
    """The text with every line end as CR LF."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def in_the_manner_of(old: str, new: str) -> str:
    """`new` as a replacement of all of `old`: with its line endings, byte order mark and final newline."""
    if uses_crlf(old):
        new = to_crlf(new)
    if old.startswith(_BOM) and not new.startswith(_BOM):
        new = _BOM + new
    if old.endswith("\n") and new and not new.endswith("\n"):
        new += "\r\n" if uses_crlf(old) else "\n"
    return new


def size_in_words(n_bytes: int) -> str:
    """`840 bytes`, `12.3 kB`, `4.1 MB`."""
    if n_bytes < 1000:
        return f"{n_bytes} byte{'' if n_bytes == 1 else 's'}"
    value = n_bytes / 1000
    for unit in ("kB", "MB", "GB"):
        if value < 999.95 or unit == "GB":
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{n_bytes} bytes"
