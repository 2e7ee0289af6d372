"""What was written and not sent, kept in the session's folder for a program that does not see its end.

The messages that wait for the end of a turn, the draft in the prompt, and the images that these name. Reading and writing
block and belong in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.foreign_text import clean, clean_pasted
from kimi_tui.image_names import CHIP
from kimi_tui.tui.prompt.area import Draft, chip_of

if TYPE_CHECKING:
    from kimi_tui.images import Image

FOLLOW_UPS = "follow_ups.json"
DRAFT = "draft.json"
IMAGES = "unsent_images"
"""A folder: each image under the hash of its content, and `index.json`, which says what chip each stands behind."""
MOST_IMAGES = 50
MOST_IMAGE_BYTES = 64 << 20
"""Of all of them; what is more is not kept, and the user is told so when the draft comes back."""
_INDEX = "index.json"
_HASH = re.compile(r"[0-9a-f]{64}")
_MAX_BYTES = 2 << 20
"""More is neither kept nor read."""
_MOST = 100
"""Chips, and messages that wait."""
_MOST_HIDDEN = 50_000
"""Characters that cannot be seen: no draft that was kept here holds many, and each takes microseconds to clean."""
_CHIP = re.compile(r"\[Pasted [\d,]{1,15} lines?(?:, (\d{1,6}))?\]", re.ASCII)


def write_follow_ups(folder: Path, texts: Sequence[str]) -> None:
    """Keep what waits.

    Raises:
        OSError: it is not kept.
    """
    _write(folder / FOLLOW_UPS, list(texts))


def read_follow_ups(folder: Path) -> list[str]:
    """What was kept; nothing where it cannot be read."""
    found = _read(folder / FOLLOW_UPS)
    texts = cast("list[object]", found)[:_MOST] if isinstance(found, list) else []
    return [clean(text) for text in texts if isinstance(text, str) and text.strip()]


def write_draft(folder: Path, draft: Draft) -> None:
    """Keep what stands in the prompt; nothing where that is empty.

    Raises:
        OSError: it is not kept.
    """
    record = {"text": draft.text, "pastes": dict(draft.pastes)}
    _write(folder / DRAFT, record if draft.text else None)


def read_draft(folder: Path) -> Draft:
    """The draft that was kept; an empty one where there is none, or it cannot be read."""
    found = _read(folder / DRAFT)
    record = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    text, kept = record.get("text"), record.get("pastes")
    pastes = cast("dict[str, object]", kept) if isinstance(kept, dict) else {}
    read: dict[str, str] = {}
    for chip, pasted in islice(pastes.items(), _MOST):
        if isinstance(pasted, str) and (named := _CHIP.fullmatch(chip)):
            shown = clean_pasted(pasted)
            # What it says of itself is all that is seen of it before it is sent.
            if chip == chip_of(shown, int(named[1] or 1)):
                read[chip] = shown
    return Draft(clean(text) if isinstance(text, str) else "", read)


def write_images(folder: Path, images: Mapping[str, Image]) -> None:
    """Keep the images of what was not sent, by their chips, and no others.

    Raises:
        OSError: some of them are not kept.
    """
    place, storage = folder / IMAGES, Storage()
    if place.is_symlink():
        return  # what is in there is somebody else's
    index: dict[str, dict[str, str]] = {}
    left = MOST_IMAGE_BYTES
    trouble: OSError | None = None
    try:
        if images:
            storage.make_folder(place)
        for chip, image in [*images.items()][:MOST_IMAGES]:
            left -= len(image.data)
            if left < 0:
                break
            if _read_image(place, image.sha256) != image.data:
                storage.replace_file(place / image.sha256, image.data)
            index[chip] = {"sha256": image.sha256, "name": image.name}
    except OSError as error:
        trouble = error
    if index or place.exists():
        _write(place / _INDEX, index)
    named = {one["sha256"] for one in index.values()}
    with contextlib.suppress(OSError):
        for entry in os.listdir(place):
            if _HASH.match(entry.removeprefix(".")) and entry not in named:
                (place / entry).unlink()
        if not named:
            place.rmdir()
    if trouble is not None:
        raise trouble


def read_images(folder: Path) -> dict[str, Image]:
    """The images that were kept, by their chips: those that are still what they were. Each is decoded, as if it came anew."""
    from kimi_tui.images import ImageRefused, read_image

    place = folder / IMAGES
    found = _read(place / _INDEX)
    index = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    images: dict[str, Image] = {}
    left = MOST_IMAGE_BYTES
    for chip, value in [*index.items()][:MOST_IMAGES]:
        facts = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        sha256, name = facts.get("sha256"), facts.get("name")
        if not (CHIP.fullmatch(chip) and isinstance(sha256, str) and isinstance(name, str)):
            continue
        data = _read_image(place, sha256)
        left -= len(data)
        if left < 0:
            break
        with contextlib.suppress(ImageRefused):
            images[chip] = read_image(data, name)
    return images


def _read_image(place: Path, sha256: str) -> bytes:
    """A kept file; nothing where it is not what its name says."""
    from kimi_tui.images import MAX_BYTES

    try:
        data = read_regular(place / sha256, MAX_BYTES) if _HASH.fullmatch(sha256) else b""
    except OSError:
        return b""
    return data if hashlib.sha256(data).hexdigest() == sha256 else b""


def _write(path: Path, value: object) -> None:
    data = json.dumps(value).encode("ascii") if value else b""
    if 0 < len(data) <= _MAX_BYTES:
        Storage().replace_file(path, data)
        return
    path.unlink(missing_ok=True)
    if data:
        raise OSError(errno.EFBIG, "it is too long", str(path))


def _read(path: Path) -> object:
    try:
        written = read_regular(path, _MAX_BYTES).decode()
        found: object = json.loads(written)
        # Written out again, for they may stand there as escapes.
        shown = json.dumps(found, ensure_ascii=False)
    except (OSError, ValueError, RecursionError):
        return None
    n_hidden = len(shown) - sum(map(str.isprintable, shown)) + shown.count("\\u00")
    return found if n_hidden <= _MOST_HIDDEN else None
