"""Images in a form that models accept: recognised by their content, decoded once, turned upright, and small enough to be sent.

An image is stored in a form that every provider accepts: PNG, JPEG, WebP or GIF, at most 2,000 pixels a side and 5 MB as
base64. An image that is so already, and smaller than a megabyte, stays unchanged except for the metadata in its file: places,
times, names. Any other is stored in the smallest form, as it is sent again with every step, and some plans accept no more
than 2 MB per request. Data that cannot be decoded never becomes an `Image`: in a conversation it would make every later
request fail.

Pillow takes tens of milliseconds to import, and is imported with the first image.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import threading
import zlib
from dataclasses import dataclass, field
from functools import cached_property, partial
from io import BytesIO
from operator import mul
from typing import TYPE_CHECKING, Any

from kimi_tui.foreign_text import one_line

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from PIL.Image import Transpose

MAX_SIDE = 2_000
MAX_BYTES = 3_750_000
"""Bytes of an image when it is sent: 5 MB are allowed, and base64 takes four bytes for three."""
_LIGHT_BYTES = 1_000_000
MAX_FILE_BYTES = 50_000_000
MAX_PIXELS = 50_000_000
"""Pixels of an image when it comes: decoded it takes up to 200 MB, twice for a moment, and only one image is decoded at a time."""
_SCALED_FIRST = frozenset({"L", "LA", "RGB", "RGBA", "CMYK"})
"""Modes of Pillow in which an image can be scaled directly, and is copied only afterwards."""
MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}
"""The media types by Pillow's names of formats."""
_PATCH_SIDE = 28
_MAX_TOKENS = 4_096
_MAX_NAME = 200
_ORIENTATION = 0x0112
_QUALITIES = (90, 75, 50)
_decoding = threading.Lock()

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
_GIF_DRAWING, _GIF_TEXT = 0xF9, 0x01
_PROFILE_HEAD = b"ICC_PROFILE\0"
_PROFILE_PIECE = 0xFFFF - 2 - len(_PROFILE_HEAD) - 2
_PROFILE_HEADER = 128
_MOST_PROFILE_BYTES = 4 << 20
_MOST_TAGS = 200
_COLOUR_TAGS = frozenset(
    (
        *(b"wtpt", b"bkpt", b"chad", b"lumi", b"chrm", b"cicp", b"gamt", b"rXYZ", b"gXYZ", b"bXYZ"),
        *(b"rTRC", b"gTRC", b"bTRC", b"kTRC", b"A2B0", b"A2B1", b"A2B2", b"B2A0", b"B2A1", b"B2A2"),
    )
)
_NO_TEXT = struct.pack(">4sIII2s2sII", b"mluc", 0, 1, 12, b"en", b"US", 2, 28) + b"\0-\0\0"
"""A tag with one text, a dash; every profile has two such tags."""
_JPEG_MARK = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])", re.DOTALL)
"""The end of a scan: two bytes that are neither data nor a restart marker."""


class ImageRefused(Exception):
    """The file cannot be sent as an image. The text is one line for the user, or for the model.

    Attributes:
        brief: the reason in a few words, without the file's name.
    """

    def __init__(self, message: str, *, brief: str) -> None:
        super().__init__(message)
        self.brief = brief


@dataclass(frozen=True)
class Image:
    """An image that can be sent to a model.

    Attributes:
        media_type: one of `MEDIA_TYPES`.
        data: the bytes of the file.
        width, height: the size in pixels.
        name: the name that the user knows, one clean line.
    """

    media_type: str
    data: bytes = field(repr=False)
    width: int
    height: int
    name: str

    @cached_property
    def sha256(self) -> str:
        """The hash of the data in hexadecimal, which is its name in the store."""
        return hashlib.sha256(self.data).hexdigest()

    def data_url(self) -> str:
        """Return the `data:` URL in which the image is sent."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode('ascii')}"


def image_tokens(width: int, height: int) -> int:
    """Estimate the tokens of an image of that size.

    It is one token per patch of 28 by 28 pixels, as in the encoders of Kimi (MoonViT: patches of 14, two by two of them
    merged) and Qwen, and at most 4,096. Anthropic's width * height / 750 is the same to a tenth; OpenAI's tiles come to less.
    """
    patches = -(-width // _PATCH_SIDE) * -(-height // _PATCH_SIDE)
    return max(1, min(patches, _MAX_TOKENS))


def is_image(head: bytes) -> bool:
    """Return whether a file that begins like this (16 bytes are enough) is an image of a kind that models accept."""
    return bool(_kind(head))


def _kind(head: bytes) -> str:
    """Return Pillow's name for the format; empty if it is not one."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    return "WEBP" if head.startswith(b"RIFF") and head[8:12] == b"WEBP" else ""


NO_IMAGE = "not a PNG, JPEG, WebP or GIF"


def not_taken(name: str) -> str:
    """Return the sentence about a file that is no image, or one of another kind."""
    return f"{name}: unsupported image format. Use PNG, JPEG, WebP or GIF."


def read_image(data: bytes, name: str) -> Image:
    """Read an image from a file's bytes. It takes up to a second, so call it in a thread.

    Args:
        data: the bytes of the file.
        name: the name that the user knows. It does not determine the format.

    Raises:
        ImageRefused: the file is no image, or one that cannot be sent.
    """
    name = one_line(name)[:_MAX_NAME]
    kind = _kind(data)
    shown = name or "It"
    if not kind:
        raise ImageRefused(not_taken(shown), brief=NO_IMAGE)
    check_size(len(data), shown)
    with _decoding:
        try:
            return _decoded(data, kind, name)
        except ImageRefused:
            raise
        except Exception as error:
            # Decoders may raise any exception for malicious bytes.
            raise ImageRefused(
                f"{shown} is a broken {kind} image: it cannot be decoded.", brief="a broken image"
            ) from error


def media_type_of(data: bytes) -> str:
    """Return the media type of an image file; empty if it cannot be decoded as it is. It takes up to a second, so call it in a thread."""
    from PIL import Image as Pillow

    Pillow.MAX_IMAGE_PIXELS = None
    kind = _kind(data)
    with _decoding:
        try:
            with Pillow.open(BytesIO(data), formats=[kind]) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    return ""
                picture.load()
        except Exception:
            # Decoders may raise any exception for malicious bytes.
            return ""
    return MEDIA_TYPES[kind]


def check_size(n_bytes: int, name: str) -> None:
    """Refuse a file by its size, before it is read.

    Raises:
        ImageRefused: the file is too large.
    """
    if n_bytes > MAX_FILE_BYTES:
        most = MAX_FILE_BYTES // 1_000_000
        size = f"{n_bytes / 1e6:,.0f} MB"
        raise ImageRefused(
            f"{name} is {size}; the limit for images is {most} MB.", brief=f"too large, {size}"
        )


def _decoded(data: bytes, kind: str, name: str) -> Image:
    from PIL import Image as Pillow

    # Pillow's own guard only warns, on the terminal; the check below enforces the limit.
    Pillow.MAX_IMAGE_PIXELS = None
    with Pillow.open(BytesIO(data), formats=[kind]) as picture:
        width, height = picture.size
        if width < 1 or height < 1:
            raise ImageRefused(
                f"{name} is an empty {kind} image: {width}x{height}.", brief="an empty image"
            )
        if width * height > MAX_PIXELS:
            most = MAX_PIXELS // 1_000_000
            raise ImageRefused(
                f"{name} is {width:,}x{height:,}; the limit for images is {most} million pixels.",
                brief="too many pixels",
            )
        # Not every provider accepts animations, so the first picture replaces them.
        moves = kind in ("GIF", "WEBP") and bool(getattr(picture, "is_animated", False))
        turned = _orientation(picture)
        if max(width, height) > MAX_SIDE:
            # A JPEG is decoded no larger than necessary.
            picture.draft(picture.mode, (MAX_SIDE, MAX_SIDE))
        picture.load()
        bare = b"" if moves or turned is not None else without_metadata(data, kind)
        as_it_is = Image(MEDIA_TYPES[kind], bare, width, height, name)
        may_stay = max(width, height) <= MAX_SIDE and 0 < len(bare) <= MAX_BYTES
        if may_stay and len(bare) <= _LIGHT_BYTES:
            return as_it_is
        if picture.mode in _SCALED_FIRST:
            picture.thumbnail((MAX_SIDE, MAX_SIDE))
        made = _plain(picture)
    made.thumbnail((MAX_SIDE, MAX_SIDE))
    if turned is not None:
        made = made.transpose(turned)
    # Comments and the like would be written again.
    profile = without_texts(made.info.get("icc_profile") or b"")
    made.info = {"icc_profile": profile} if profile else {}
    media_type, smaller = _encoded(made, kind, name)
    if may_stay and len(bare) <= len(smaller):
        return as_it_is
    return Image(media_type, smaller, made.width, made.height, name)


def _orientation(picture: Picture) -> Transpose | None:
    """Return how a camera wants the picture turned; None if it is upright, or if that is unknown."""
    from PIL.Image import Transpose as To

    turns = {
        2: To.FLIP_LEFT_RIGHT,
        3: To.ROTATE_180,
        4: To.FLIP_TOP_BOTTOM,
        5: To.TRANSPOSE,
        6: To.ROTATE_270,
        7: To.TRANSVERSE,
        8: To.ROTATE_90,
    }
    try:
        return turns.get(picture.getexif().get(_ORIENTATION, 1))
    except Exception:
        # The picture is complete all the same.
        return None


def _plain(picture: Picture) -> Picture:
    """Return the picture in colours of eight bits, with transparency only if it has any."""
    if picture.mode.startswith("I"):
        # This is sixteen-bit grey. Type stubs of `point` are incomplete.
        grey: Any = picture
        shades: Picture = grey.point(partial(mul, 1 / 256), "L")
        return shades.convert("RGB")
    is_clear = "transparency" in picture.info or picture.mode in ("RGBA", "LA", "PA", "RGBa", "La")
    clear = picture.convert("RGBA") if is_clear else None
    if clear is not None and clear.getchannel("A").getextrema() != (255, 255):
        return clear
    return (clear or picture).convert("RGB")


def _encoded(picture: Picture, kind: str, name: str) -> tuple[str, bytes]:
    """Encode the picture as PNG or JPEG, whichever is smaller; return media type and bytes. Transparency is kept if the PNG
    is small enough.
    """
    png = b"" if kind == "JPEG" else _saved(picture, "PNG")
    is_small = 0 < len(png) <= MAX_BYTES
    if is_small and picture.mode == "RGBA":
        return MEDIA_TYPES["PNG"], png
    opaque = _on_white(picture)
    for quality in _QUALITIES:
        jpeg = _saved(opaque, "JPEG", quality=quality)
        if is_small and len(png) <= len(jpeg):
            return MEDIA_TYPES["PNG"], png
        if len(jpeg) <= MAX_BYTES:
            return MEDIA_TYPES["JPEG"], jpeg
    raise ImageRefused(
        f"{name} is too large to send, even shrunk to a small JPEG.", brief="too large to be sent"
    )


def _on_white(picture: Picture) -> Picture:
    from PIL import Image as Pillow

    if picture.mode == "RGB":
        return picture
    white = Pillow.new("RGB", picture.size, "white")
    white.paste(picture, mask=picture.getchannel("A"))
    return white


def _saved(picture: Picture, kind: str, **options: int) -> bytes:
    file = BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def without_metadata(data: bytes, kind: str) -> bytes:
    """Return the file of one still picture without the metadata of a camera or a program; empty if the file is odd.

    Nothing is encoded anew: parts of the file, and bytes after its end, are left out. The parts that determine how the
    picture looks are kept, including colour profiles without their texts; the orientation is not kept.

    Args:
        data: the bytes of the file.
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
                return _gif(data)
    except (IndexError, struct.error):
        return b""


def _png(data: bytes) -> bytes:
    parts, at = [_PNG_HEAD], len(_PNG_HEAD)
    while True:
        size, name = struct.unpack_from(">I4s", data, at)
        end = at + size + 12
        if name == b"iCCP":
            parts.append(_png_profile(data[at + 8 : end - 4]))
        elif name in _PNG_KEPT:
            parts.append(data[at:end])
        at = end
        if name == b"IEND":
            return b"".join(parts) if end <= len(data) else b""


def _png_profile(chunk: bytes) -> bytes:
    """Return the chunk with a colour profile, without the profile's name, which may contain anything."""
    _, _, packed = chunk.partition(b"\0")
    try:
        profile = zlib.decompressobj().decompress(packed[1:], _MOST_PROFILE_BYTES)
    except zlib.error:
        return b""
    if not (kept := without_texts(profile)):
        return b""
    body = b"iCCP" + b"icc\0\0" + zlib.compress(kept)
    return struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))


def _gif(data: bytes) -> bytes:
    """Return a GIF without extensions, except those that say how the picture is drawn."""
    at = 13 + _colours(data[10])
    parts = [data[:at]]
    drawing = b""
    while True:
        match data[at]:
            case 0x3B:
                return b"".join((*parts, b"\x3b"))
            case 0x2C:
                end = _behind_blocks(data, at + 11 + _colours(data[at + 9]))
                parts += [drawing, data[at:end]]
                drawing = b""
            case 0x21:
                end = _behind_blocks(data, at + 2)
                if data[at + 1] == _GIF_DRAWING:
                    drawing = data[at:end]
                elif data[at + 1] == _GIF_TEXT:
                    # The block before it only says how the text is drawn.
                    drawing = b""
            case _:
                return b""
        at = end


def _colours(flags: int) -> int:
    """Return the size in bytes of the colour table that follows."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _behind_blocks(data: bytes, at: int) -> int:
    while size := data[at]:
        at += 1 + size
    return at + 1


def _jpeg(data: bytes) -> bytes:
    parts, at = [data[:2]], 2
    profile: dict[int, bytes] = {}
    place = 0
    while True:
        if data[at] != 0xFF:
            return b""
        if (mark := data[at + 1]) == 0xFF:  # these bytes are padding
            at += 1
            continue
        if mark == _EOI:
            parts[place:place] = _jpeg_profile(profile)
            return b"".join((*parts, data[at : at + 2]))
        end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
        if mark == _SOS:
            following = _JPEG_MARK.search(data, end)
            if following is None:
                return b""
            end = following.start()
        body = data[at + 4 : end]
        if mark == _APP2 and body.startswith(_PROFILE_HEAD):
            place = place or len(parts)
            profile[body[len(_PROFILE_HEAD)]] = body[len(_PROFILE_HEAD) + 2 :]
        elif mark == _APP0 and body.startswith(b"JFIF\0"):
            # The thumbnail after it is left out.
            parts.append(_segment(_APP0, body[:12] + b"\0\0"))
        elif mark == _APP14 and body.startswith(b"Adobe"):
            parts.append(_segment(_APP14, body[:12]))
        elif not _APP0 <= mark <= _APP15 and mark != _COMMENT:
            parts.append(data[at:end])
        at = end


def _segment(mark: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, mark, len(body) + 2) + body


def _jpeg_profile(pieces: dict[int, bytes]) -> list[bytes]:
    """Return the segments with a colour profile that was split into pieces."""
    profile = (
        without_texts(b"".join(pieces[number] for number in sorted(pieces))) if pieces else b""
    )
    cut = [profile[at : at + _PROFILE_PIECE] for at in range(0, len(profile), _PROFILE_PIECE)]
    return [
        _segment(_APP2, _PROFILE_HEAD + bytes((number, len(cut))) + piece)
        for number, piece in enumerate(cut, 1)
    ]


def without_texts(profile: bytes) -> bytes:
    """Return a colour profile (ICC) with only the parts that determine colours; empty if it is not valid."""
    try:
        return _colours_alone(profile)
    except struct.error:
        return b""


def _colours_alone(profile: bytes) -> bytes:
    (n_tags,) = struct.unpack_from(">I", profile, _PROFILE_HEADER)
    if profile[36:40] != b"acsp" or n_tags > _MOST_TAGS:
        return b""
    table, body = [b"desc", b"cprt"], [_NO_TEXT, _NO_TEXT]
    for number in range(n_tags):
        name, at, size = struct.unpack_from(">4sII", profile, _PROFILE_HEADER + 4 + 12 * number)
        if name in _COLOUR_TAGS and at + size <= len(profile):
            table.append(name)
            body.append(profile[at : at + size])
    # Its author, date and device are removed.
    head = bytearray(profile[:_PROFILE_HEADER])
    for at, size in ((4, 4), (24, 12), (48, 8), (80, 48)):
        head[at : at + size] = bytes(size)
    at = _PROFILE_HEADER + 4 + 12 * len(table)
    tags, values = b"", b""
    for name, value in zip(table, body, strict=True):
        tags += struct.pack(">4sII", name, at + len(values), len(value))
        values += value + bytes(-len(value) % 4)
    head[0:4] = struct.pack(">I", at + len(values))
    head[24:36] = struct.pack(">6H", 2000, 1, 1, 0, 0, 0)
    return bytes(head) + struct.pack(">I", len(table)) + tags + values


def _webp(data: bytes) -> bytes:
    parts, at = list[bytes](), 12
    end = 8 + struct.unpack_from("<I", data, 4)[0]
    if not at < end <= len(data):
        return b""
    while at < end:
        name, size = struct.unpack_from("<4sI", data, at)
        part = data[at : at + 8 + size]
        if name == b"ICCP":
            profile = without_texts(part[8:])
            part = name + struct.pack("<I", len(profile)) + profile if profile else b""
        if name == b"VP8X":
            part = part[:8] + bytes((part[8] & ~_WEBP_EXIF_OR_XMP,)) + part[9:]
        if name in _WEBP_KEPT:
            parts.append(part + b"\0" * (len(part) % 2))
        at += 8 + size + size % 2
    body = b"".join((b"WEBP", *parts))
    return b"RIFF" + struct.pack("<I", len(body)) + body
