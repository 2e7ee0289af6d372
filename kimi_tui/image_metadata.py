"""Image files without what a camera or a program wrote beside the picture: where it was taken, by whom, with what.

Nothing is encoded anew: parts of the file are left out, what is behind its end too. What is kept is what decides how the
picture looks, colour profiles among it; how it is turned is not.
"""

from __future__ import annotations

import re
import struct

_PNG_HEAD = b"\x89PNG\r\n\x1a\n"
_PNG_KEPT = frozenset(
    (
        *(b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS"),
        *(b"cHRM", b"gAMA", b"iCCP", b"sBIT", b"sRGB", b"cICP", b"pHYs", b"bKGD"),
    )
)
_WEBP_KEPT = frozenset((b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ICCP"))
_WEBP_EXIF_OR_XMP = 0x08 | 0x04
_EOI, _SOS, _COMMENT = 0xD9, 0xDA, 0xFE
_APP0, _APP2, _APP14, _APP15 = 0xE0, 0xE2, 0xEE, 0xEF
_JPEG_MARK = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])", re.DOTALL)
"""Behind a scan: two bytes that are neither data nor a restart of it."""


def without_metadata(data: bytes, kind: str) -> bytes:
    """The file of one still picture without what tells more than it shows; empty where the file is odd.

    Args:
        data: the file.
        kind: `PNG`, `JPEG`, `WEBP` or `GIF`.
    """
    try:
        match kind:
            case "PNG":
                return _png(data)
            case "JPEG":
                return _jpeg(data)
            case "WEBP":
                return _webp(data)
            case _:
                # Comments and blocks of programs; the same bytes within the picture are rare.
                return b"" if b"!\xfe" in data or b"!\xff" in data else data
    except (IndexError, struct.error):
        return b""


def _png(data: bytes) -> bytes:
    parts, at = [_PNG_HEAD], len(_PNG_HEAD)
    while True:
        size, name = struct.unpack_from(">I4s", data, at)
        end = at + size + 12
        if name in _PNG_KEPT:
            parts.append(data[at:end])
        at = end
        if name == b"IEND":
            return b"".join(parts) if end <= len(data) else b""


def _jpeg(data: bytes) -> bytes:
    parts, at = [data[:2]], 2
    while True:
        if data[at] != 0xFF:
            return b""
        if (mark := data[at + 1]) == 0xFF:  # padding
            at += 1
            continue
        if mark == _EOI:
            return b"".join((*parts, data[at : at + 2]))
        end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
        if mark == _SOS:
            following = _JPEG_MARK.search(data, end)
            if following is None:
                return b""
            end = following.start()
        is_profile = mark == _APP2 and data.startswith(b"ICC_PROFILE\0", at + 4)
        tells_more = _APP0 < mark <= _APP15 and mark != _APP14 and not is_profile
        if not tells_more and mark != _COMMENT:
            parts.append(data[at:end])
        at = end


def _webp(data: bytes) -> bytes:
    parts, at = list[bytes](), 12
    end = 8 + struct.unpack_from("<I", data, 4)[0]
    if not at < end <= len(data):
        return b""
    while at < end:
        name, size = struct.unpack_from("<4sI", data, at)
        part = data[at : at + 8 + size]
        if name == b"VP8X":
            part = part[:8] + bytes((part[8] & ~_WEBP_EXIF_OR_XMP,)) + part[9:]
        if name in _WEBP_KEPT:
            parts.append(part + b"\0" * (size % 2))
        at += 8 + size + size % 2
    body = b"".join((b"WEBP", *parts))
    return b"RIFF" + struct.pack("<I", len(body)) + body
