"""The images of a session: each stored once, as a file under the hash of its content, beside the context that names it.

A message holds a reference, `images/HASH.png`, in the place where kimi-cli has a `data:` URL. So a context stays small and
quick to read, copy and compare, however often its lines repeat an image, and forks share the files. A request has the image
itself: `expanded` inserts it. Everything here blocks and belongs in a thread.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from kimi_tui.filesystem import NotARegularFile, Storage, read_regular
from kimi_tui.foreign_text import one_line
from kimi_tui.images import (
    MAX_BYTES,
    MEDIA_TYPES,
    Image,
    ImageRefused,
    is_image,
    media_type_of,
    read_image,
)
from kimi_tui.llm.message import ContentPart, ImagePart, ImageURL, Message, TextPart
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.jsonl import encode, parse

IMAGES_NAME = "images"
MAX_SENT_BYTES = 80_000_000
"""Bytes of all images in one request. Providers accept 32 to 100 MB, and a hand-made session may name one image any number of times."""
_LEFT_OUT = TextPart(text="[an older image, left out because a request has a limit of images]")
_UNREADABLE = "[an image that cannot be read]"
_NAME_CHARS = 200
_SUFFIXES = {media_type: kind.lower() for kind, media_type in MEDIA_TYPES.items()}
_REFERENCE = re.compile(rf"{IMAGES_NAME}/([0-9a-f]{{64}})\.({'|'.join(_SUFFIXES.values())})")


class ImageStore:
    """The image files of one session.

    Args:
        folder: the session's folder.
        storage: the disk.
    """

    def __init__(self, folder: Path, storage: Storage) -> None:
        self._folder = folder
        self._storage = storage
        self._types: dict[bytes, str] = {}
        """The media type of each image that was sent, by its hash: in a hand-made session nobody has checked the images."""

    def put(self, image: Image) -> None:
        """Store an image, unless it is stored already. Call it before the message that names the image is written.

        Raises:
            StorageTrouble: the disk refused.
        """
        path = self._folder / _reference(image)
        try:
            if _stored_bytes(path) == image.data:
                return
            if path.parent.is_symlink():
                raise NotARegularFile(errno.ELOOP, "its folder is a link", str(path.parent))
            is_first = not path.parent.exists()
            self._storage.make_folder(path.parent)
            self._storage.replace_file(path, image.data)
            if is_first:
                self._storage.sync_folder(self._folder)
        except OSError as error:
            raise StorageTrouble.of(f"save {image.name}", error) from error

    def get(self, url: str) -> Image | None:
        """Return the image that a reference names, without its size and name; None if the file is missing or has changed."""
        found = _REFERENCE.fullmatch(url)
        if found is None:
            return None
        data = _stored_bytes(self._folder / url)
        if hashlib.sha256(data).hexdigest() != found[1] or not is_image(data[:16]):
            return None
        return Image(f"image/{found[2]}", data, 0, 0, "")

    def taken_in(self, line: bytes) -> bytes:
        """Store the images in a record of another program, and return the record with references in their place.

        Data that is no image stays unchanged, and so does every byte of a record without images.

        Raises:
            StorageTrouble: the disk refused.
        """
        record = parse(line) if b"data:image/" in line else None
        if not isinstance(record, dict):
            return line
        changed = False
        left: list[object] = [record]
        while left:
            value = left.pop()
            if isinstance(value, list):
                left += cast("list[object]", value)
            elif isinstance(value, dict):
                known = cast("dict[str, object]", value)
                left += known.values()
                if isinstance(url := known.get("url"), str) and (image := image_in(url)):
                    self.put(image)
                    known |= image_part(image).image_url.model_dump(exclude_none=True)
                    changed = True
        return encode(record).rstrip(b"\n") if changed else line

    def expanded(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages with the images in place of their references; beyond `MAX_SENT_BYTES` only the newest images."""
        found = list(messages)
        left = MAX_SENT_BYTES
        for place in range(len(found) - 1, -1, -1):
            content = found[place].content
            if isinstance(content, str) or not any(isinstance(part, ImagePart) for part in content):
                continue
            parts: list[ContentPart] = []
            for part in reversed(content):
                sent = self._with_data(part) if left > 0 or not _is_reference(part) else _LEFT_OUT
                parts.insert(0, sent)
                left -= len(sent.image_url.url) if isinstance(sent, ImagePart) else 0
            found[place] = found[place].model_copy(update={"content": parts})
        return found

    def _with_data(self, part: ContentPart) -> ContentPart:
        if not isinstance(part, ImagePart):
            return part
        image = self.get(part.image_url.url)
        url = part.image_url.url if image is None else image.data_url()
        if not url.startswith("data:"):
            return part
        data = url.partition(";base64,")[2]
        if media_type := self._type_of(data):
            url = f"data:{media_type};base64,{data}"
            where = part.image_url.model_copy(update={"url": url})
            return part.model_copy(update={"image_url": where})
        # A server would refuse every later request with this image.
        name = one_line((part.image_url.name or "")[:_NAME_CHARS])
        return TextPart(text=f"[image {name}, which cannot be read]" if name else _UNREADABLE)

    def _type_of(self, data: str) -> str:
        """Return the media type of a base64 image; empty if it cannot be decoded. The result is cached."""
        key = hashlib.sha256(data.encode("utf-8", "replace")).digest()
        if key not in self._types:
            try:
                self._types[key] = media_type_of(base64.b64decode(data, validate=True))
            except ValueError:
                self._types[key] = ""
        return self._types[key]


def _stored_bytes(path: Path) -> bytes:
    """Read a stored file; return nothing if there is no file that could have been stored."""
    try:
        return read_regular(path, MAX_BYTES)
    except OSError:
        return b""


def image_in(url: str) -> Image | None:
    """Return the image in a `data:` URL; None if it holds no image that can be sent."""
    head, _, data = url.partition(";base64,")
    if not head.startswith("data:image/"):
        return None
    try:
        return read_image(base64.b64decode(data), "")
    except (ImageRefused, ValueError):
        return None


def _is_reference(part: ContentPart) -> bool:
    return isinstance(part, ImagePart) and part.image_url.url.startswith(f"{IMAGES_NAME}/")


def _reference(image: Image) -> str:
    return f"{IMAGES_NAME}/{image.sha256}.{_SUFFIXES[image.media_type]}"


def image_part(image: Image, *, attached: bool = False) -> ImagePart:
    """Return the part of a message that names a stored image; `attached` is set if the program added it because the text
    names its file.
    """
    where = ImageURL(
        url=_reference(image),
        name=image.name,
        media_type=image.media_type,
        width=image.width,
        height=image.height,
        n_bytes=len(image.data),
    )
    return ImagePart(image_url=where, attached=attached or None)


def hash_of(url: str) -> str:
    """Return the hash that a reference names; empty if the URL is no reference."""
    found = _REFERENCE.fullmatch(url)
    return found[1] if found is not None else ""


def reference_of(sha256: str, media_type: str) -> str:
    """Return the reference to an image with these facts; such an image need not exist."""
    return f"{IMAGES_NAME}/{sha256}.{_SUFFIXES.get(media_type, '')}"
