"""The encoding of a text file, by its byte order mark: UTF-16, UTF-32, else UTF-8.

Only the mark identifies an encoding: one without a mark, such as Latin-1, cannot be distinguished from binary data. Editors
on Windows write the mark, and PowerShell does with every `>`.
"""

from __future__ import annotations

import codecs

# The mark of UTF-32 begins with that of UTF-16, so it comes first.
_MARKED = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
UTF8 = "utf-8"
_BOM = "\ufeff"


def encoding_of(data: bytes, *, is_whole: bool = True) -> str:
    """Return the encoding of a text file: the one of its byte order mark if the whole file is valid in it, else `utf-8`.

    Args:
        data: the bytes of the file, or its first few thousand bytes.
        is_whole: False if the file may continue after `data`, so that a character may be incomplete at the end.

    Returns:
        The name of a Python codec that keeps the mark as U+FEFF: `utf-16-le`, `utf-16-be`, `utf-32-le`, `utf-32-be` or `utf-8`.
    """
    for mark, encoding in _MARKED:
        if data.startswith(mark):
            try:
                text = codecs.getincrementaldecoder(encoding)().decode(data, final=is_whole)
            except UnicodeDecodeError:
                continue
            if "\0" not in text:
                return encoding
    return UTF8


def encoding_name(encoding: str) -> str:
    """Return the usual name of an encoding: `UTF-16` for `utf-16-le`."""
    return "-".join(encoding.upper().split("-")[:2])


def as_shown(data: bytes) -> str:
    """Return the text of a file, or of its beginning, for reading only: decoded by its byte order mark, without the mark,
    undecodable bytes as U+FFFD.
    """
    encoding = encoding_of(data, is_whole=False)
    return data.decode(encoding, "replace").removeprefix(_BOM)
