"""The images of a session: each stored once, as a file under the hash of its content, beside the context that names it.

A message holds a reference, `images/HASH.png`, in the place where kimi-cli has a `data:` URL. So a context stays small and
quick to read, copy and compare, however often its lines repeat an image, and forks share the files. What is sent has the
image itself: `expanded` puts it there. Everything here blocks and belongs in a thread.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.images import MAX_FILE_BYTES, MEDIA_TYPES, Image, is_image
from kimi_tui.llm.message import ContentPart, ImagePart, ImageURL, Message
from kimi_tui.session.errors import StorageTrouble

IMAGES_NAME = "images"
_SUFFIXES = {media_type: kind.lower() for kind, media_type in MEDIA_TYPES.items()}
_REFERENCE = re.compile(rf"{IMAGES_NAME}/([0-9a-f]{{64}})\.({'|'.join(_SUFFIXES.values())})")


class ImageStore:
    """The images of one session.

    Args:
        folder: the session's.
        storage: the disk.
    """

    def __init__(self, folder: Path, storage: Storage) -> None:
        self._folder = folder
        self._storage = storage

    def put(self, image: Image) -> None:
        """Store an image, unless it is there already; before the message that names it.

        Raises:
            StorageTrouble: the disk refused.
        """
        path = self._folder / _reference(image)
        try:
            if os.path.lexists(path) and read_regular(path, MAX_FILE_BYTES) == image.data:
                return
            is_first = not path.parent.exists()
            self._storage.make_folder(path.parent)
            self._storage.replace_file(path, image.data)
            if is_first:
                self._storage.sync_folder(self._folder)
        except OSError as error:
            raise StorageTrouble.of(f"save {image.name}", error) from error

    def get(self, url: str) -> Image | None:
        """The image that a reference names, without its size and name; None where it is not there, or not what it was."""
        found = _REFERENCE.fullmatch(url)
        if found is None:
            return None
        try:
            data = read_regular(self._folder / url, MAX_FILE_BYTES)
        except OSError:
            return None
        if hashlib.sha256(data).hexdigest() != found[1] or not is_image(data[:16]):
            return None
        return Image(f"image/{found[2]}", data, 0, 0, "")

    def expanded(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages as they are sent, each reference replaced by what it names."""
        return [self._expanded(message) for message in messages]

    def _expanded(self, message: Message) -> Message:
        if isinstance(message.content, str) or not any(map(_is_reference, message.content)):
            return message
        parts = [self._with_data(part) for part in message.content]
        return message.model_copy(update={"content": parts})

    def _with_data(self, part: ContentPart) -> ContentPart:
        if not isinstance(part, ImagePart) or (image := self.get(part.image_url.url)) is None:
            return part
        where = part.image_url.model_copy(update={"url": image.data_url()})
        return part.model_copy(update={"image_url": where})


def _is_reference(part: ContentPart) -> bool:
    return isinstance(part, ImagePart) and part.image_url.url.startswith(f"{IMAGES_NAME}/")


def _reference(image: Image) -> str:
    return f"{IMAGES_NAME}/{image.sha256}.{_SUFFIXES[image.media_type]}"


def image_part(image: Image, *, attached: bool = False) -> ImagePart:
    """The part of a message that names a stored image; `attached` where it is there because the text names its file."""
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
    """The hash that a reference names; empty where it is none."""
    found = _REFERENCE.fullmatch(url)
    return found[1] if found is not None else ""


def reference_of(sha256: str, media_type: str) -> str:
    """The reference to an image of which these facts are known; it may name nothing."""
    return f"{IMAGES_NAME}/{sha256}.{_SUFFIXES.get(media_type, '')}"
