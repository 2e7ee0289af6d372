"""Images as models take them: known by their content, decoded once, turned upright, and small enough to be sent.

What is kept of an image is what every provider takes: PNG, JPEG, WebP or GIF, at most 2,000 pixels a side and 5 MB as
base64. One that is so already, and of less than a megabyte, stays as it is, but for what its file tells beside the picture:
places, times, names. Of any other the form is kept that takes the least: it is sent again with every step, and some plans
take no more than 2 MB a request. Nothing that cannot be decoded becomes an `Image`: in a conversation it would fail every
request from then on.

Pillow takes tens of milliseconds to import, and is imported with the first image.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import threading
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
"""Of an image as it is sent: 5 MB are allowed, and base64 takes four bytes for three."""
_LIGHT_BYTES = 1_000_000
MAX_FILE_BYTES = 50_000_000
MAX_PIXELS = 50_000_000
"""Of an image as it comes: decoded they take up to 200 MB, twice for a moment, and of one image at a time."""
_SCALED_FIRST = frozenset({"L", "LA", "RGB", "RGBA", "CMYK"})
"""Modes of Pillow's in which an image can be made smaller as it is; only then it is copied."""
MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}
"""By Pillow's names."""
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
_JPEG_MARK = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])", re.DOTALL)
"""Behind a scan: two bytes that are neither data nor a restart of it."""


class ImageRefused(Exception):
    """This cannot be sent as an image. The text is one line for the user, or for the model.

    Attributes:
        brief: why, in a few words without the file's name.
    """

    def __init__(self, message: str, *, brief: str) -> None:
        super().__init__(message)
        self.brief = brief


@dataclass(frozen=True)
class Image:
    """An image that can be sent to a model.

    Attributes:
        media_type: one of `MEDIA_TYPES`.
        data: the file.
        width, height: in pixels.
        name: what the user knows it by, one clean line.
    """

    media_type: str
    data: bytes = field(repr=False)
    width: int
    height: int
    name: str

    @cached_property
    def sha256(self) -> str:
        """The hash of its data in hexadecimal: what it is stored under."""
        return hashlib.sha256(self.data).hexdigest()

    def data_url(self) -> str:
        """The form in which it is sent."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode('ascii')}"


def image_tokens(width: int, height: int) -> int:
    """About how many tokens an image of that size takes.

    One for each patch of 28 by 28 pixels, as Kimi's encoder (MoonViT: patches of 14, two by two of them merged) and Qwen's
    have it, and at most 4,096. Anthropic's width * height / 750 is the same to a tenth; OpenAI's tiles come to less.
    """
    patches = -(-width // _PATCH_SIDE) * -(-height // _PATCH_SIDE)
    return max(1, min(patches, _MAX_TOKENS))


def is_image(head: bytes) -> bool:
    """Whether a file that begins like this (16 bytes are enough) is an image of a kind that models take."""
    return bool(_kind(head))


def _kind(head: bytes) -> str:
    """Pillow's name for it; empty where it is none."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    return "WEBP" if head.startswith(b"RIFF") and head[8:12] == b"WEBP" else ""


NO_IMAGE = "not a PNG, JPEG, WebP or GIF"


def not_taken(name: str) -> str:
    """What is said of a file that is no image, or one of another kind."""
    return f"{name} is not an image that models take: PNG, JPEG, WebP or GIF."


def read_image(data: bytes, name: str) -> Image:
    """The image that a file holds. Takes up to a second, so call it in a thread.

    Args:
        data: the file.
        name: what the user knows it by. It says nothing of what the file is.

    Raises:
        ImageRefused: it is none, or none that can be sent.
    """
    name = one_line(name)[:_MAX_NAME]
    kind = _kind(data)
    shown = name or "It"
    if not kind:
        raise ImageRefused(not_taken(shown), brief=NO_IMAGE)
    check_size(len(data), shown)
    with _decoding:
        try:
            return _read(data, kind, name)
        except ImageRefused:
            raise
        except Exception as error:
            # Decoders fail in any way on bytes that somebody made up.
            raise ImageRefused(
                f"{shown} is a broken {kind} image: it cannot be decoded.", brief="a broken image"
            ) from error


def media_type_of(data: bytes) -> str:
    """What the file of an image is; empty where it cannot be decoded as it is. Takes up to a second: for a thread."""
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
            # Decoders fail in any way on bytes that somebody made up.
            return ""
    return MEDIA_TYPES[kind]


def check_size(n_bytes: int, name: str) -> None:
    """Refuse a file by its size, before it is read.

    Raises:
        ImageRefused: it is too large.
    """
    if n_bytes > MAX_FILE_BYTES:
        most = MAX_FILE_BYTES // 1_000_000
        size = f"{n_bytes / 1e6:,.0f} MB"
        raise ImageRefused(
            f"{name} has {size}; images may have {most} MB.", brief=f"too large, {size}"
        )


def _read(data: bytes, kind: str, name: str) -> Image:
    from PIL import Image as Pillow

    # Its own guard only warns, in the middle of the screen; what is asked below holds.
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
                f"{name} is {width:,}x{height:,}; images may have {most} million pixels.",
                brief="too many pixels",
            )
        # Not every provider takes one that moves: of those the first picture stands for all.
        moves = kind in ("GIF", "WEBP") and bool(getattr(picture, "is_animated", False))
        turned = _orientation(picture)
        if max(width, height) > MAX_SIDE:
            # A JPEG is decoded no larger than it must be.
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
    profile = made.info.get("icc_profile")
    made.info = {"icc_profile": profile} if profile else {}
    media_type, smaller = _encoded(made, kind, name)
    if may_stay and len(bare) <= len(smaller):
        return as_it_is
    return Image(media_type, smaller, made.width, made.height, name)


def _orientation(picture: Picture) -> Transpose | None:
    """How a camera wants it turned; None where it stands upright, or nobody can say."""
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
        # What it shows is whole all the same.
        return None


def _plain(picture: Picture) -> Picture:
    """The same in colours of eight bits, with transparency only where there is any."""
    if picture.mode.startswith("I"):
        # Sixteen bits of grey. Types of `point` are not complete.
        grey: Any = picture
        shades: Picture = grey.point(partial(mul, 1 / 256), "L")
        return shades.convert("RGB")
    is_clear = "transparency" in picture.info or picture.mode in ("RGBA", "LA", "PA", "RGBa", "La")
    clear = picture.convert("RGBA") if is_clear else None
    if clear is not None and clear.getchannel("A").getextrema() != (255, 255):
        return clear
    return (clear or picture).convert("RGB")


def _encoded(picture: Picture, kind: str, name: str) -> tuple[str, bytes]:
    """Media type and file: as PNG or JPEG, whichever is smaller. What is transparent stays so, where PNG is small enough."""
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
        f"{name} is too large to be sent, also as a small JPEG.", brief="too large to be sent"
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
    """The file of one still picture without what a camera or a program wrote beside it; empty where the file is odd.

    Nothing is encoded anew: parts of the file are left out, what is behind its end too. What is kept is what decides how the
    picture looks, colour profiles among it; how it is turned is not.

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
