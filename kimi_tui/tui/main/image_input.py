"""Reads images for the prompt and other fields, from pasted paths, files chosen behind `@` and the clipboard, and puts chips into its text.

Reading takes a while. Until then the path or a placeholder is in the field; the chip replaces it, and a message that is sent
meanwhile waits for the chip. This module is imported with the first image.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kimi_tui.app_paths import reason_of
from kimi_tui.filesystem import open_regular, read_regular
from kimi_tui.foreign_text import clean_pasted, one_line, without_invisible
from kimi_tui.images import (
    MAX_FILE_BYTES,
    NO_IMAGE,
    Image,
    ImageRefused,
    check_size,
    is_image,
    not_taken,
    read_image,
)
from kimi_tui.tui.desktop import read_clipboard
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.prompt.area import IMAGE_ENDINGS, may_be_path
from kimi_tui.tui.screens import app_of

MOST = 10
"""The largest number of paths that are taken from one paste."""
_HEAD_BYTES = 16
_WINDOWS = re.compile(r"([A-Za-z]):[\\/](.*)")


class ImageInput:
    """Reads images for a field: from pasted paths, files and the clipboard.

    Args:
        bench: the workbench.
        exchange: replaces a piece of the text in the field, and returns whether it was there; None for the prompt.
        tell: says what cannot be read, called as `Workbench.tell`; None for that.
    """

    def __init__(
        self,
        bench: Workbench,
        exchange: Callable[[str, str], bool] | None = None,
        tell: Callable[..., object] | None = None,
    ) -> None:
        self._bench = bench
        self._put = exchange or bench.prompt.area.exchange
        self._tell = tell or bench.tell
        self._chips = bench.images
        self._reading: set[asyncio.Task[None]] = set()
        self._order = asyncio.Lock()
        self._n_sent = 0
        """The number of sent messages that wait for images."""
        self._late: list[tuple[str, str]] = []
        """The results that came after the field was emptied: the placeholder, and its replacement."""

    # --- from the desktop into the field

    def reads_for(self, text: str) -> bool:
        """Return whether a message must wait: an image that it may name is being read, or a message sent before waits.

        It is also true for an image that came between Enter, which empties the field, and the event about the message.
        """
        self._reading = {task for task in self._reading if not task.done()}
        is_late = any(written in text for written, _ in self._late)
        return bool(self._reading or self._n_sent or is_late)

    def read_path(self, written: str, pasted: str) -> None:
        """Replace a pasted text in the field by chips, if it is the path of one image or several.

        Args:
            written: the placeholder of the paste in the field.
            pasted: the text.
        """
        self._start(self._read_path(written.strip(), pasted))

    def read_clipboard(self, written: str) -> None:
        """Replace a placeholder in the field by the content of the clipboard: an image's chip, or text."""
        if not self._n_sent:
            # Results of a message that was deleted before they came are dropped.
            self._late.clear()
        self._start(self._read_clipboard(written))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._reading.add(self._bench.start(work))

    async def _read_path(self, written: str, pasted: str) -> None:
        folder = Path(self._bench.transcript.work_dir)
        images = await self._made(lambda: images_at(pasted, folder, Path.home()))
        if images:
            self._exchange(written, " ".join(map(self._chips.add, images)))

    async def _read_clipboard(self, written: str) -> None:
        bench = self._bench
        folders = [Path(bench.transcript.work_dir)]
        clipping = await asyncio.to_thread(read_clipboard, dict(os.environ), folders)
        text = clean_pasted(clipping.text)
        if clipping.image:
            images = await self._made(lambda: [read_image(clipping.image, "clipboard")])
            text = " ".join(map(self._chips.add, images))
        elif not text:
            # Text that was copied in the program itself is known without a clipboard program.
            text = clean_pasted(app_of(bench.screen).clipboard)
            if not text:
                self._tell(clipping.trouble)
        self._exchange(written, text)
        if clipping.text and may_be_path(text):
            self.read_path(text, text)

    async def _made(self, make: Callable[[], Sequence[Image]]) -> Sequence[Image]:
        try:
            return await asyncio.to_thread(make)
        except ImageRefused as error:
            self._tell(str(error), level="warning")
        except OSError as error:
            self._tell(f"The image cannot be read: {reason_of(error)}.", level="warning")
        return ()

    def _exchange(self, written: str, text: str) -> None:
        if not self._put(written, text):
            self._late.append((written, text))

    async def settled(self, text: str) -> str:
        """Wait until the images of a message are read; return it with their chips. Messages keep their order."""
        self._n_sent += 1
        try:
            async with self._order:
                while left := {task for task in self._reading if not task.done()}:
                    await asyncio.wait(left)
                for one in tuple(self._late):
                    if one[0] in text:
                        text = text.replace(*one, 1)
                        self._late.remove(one)
                return text
        finally:
            self._n_sent -= 1
            if not self._n_sent:
                self._late.clear()


def images_at(pasted: str, folder: Path, home: Path) -> list[Image]:
    """Read the images whose paths were pasted; none if the text is anything else. It takes long.

    Args:
        pasted: a path, or several, as terminals write dragged files: quoted, with escaped blanks, or as URLs.
        folder: the folder that relative paths start from.
        home: the user's home folder.

    Raises:
        ImageRefused: an image cannot be sent, or a file with an image's name is none.
        OSError: a file cannot be read.
    """
    for words in _readings(pasted.strip()):
        paths = [_path(word, folder, home) for word in words[: MOST + 1]]
        if not 0 < len(paths) <= MOST:
            continue
        taken = [*map(_is_image, paths)]
        if all(taken):
            return [_read_image_file(path) for path in paths]
        # A user who drags a file with an image's name means its picture.
        refused = [p for p, is_taken in zip(paths, taken, strict=True) if not is_taken]
        if all(map(_is_file, paths)) and refused[0].suffix.lower() in IMAGE_ENDINGS:
            raise ImageRefused(not_taken(one_line(refused[0].name)), brief=NO_IMAGE)
    return []


def _readings(pasted: str) -> list[list[str]]:
    """Return the possible meanings of a paste, as paths: a single path with blanks in it, else the words that a shell would find.

    Windows and web pages put invisible characters before a path; a name may contain them as well.
    """
    found: list[list[str]] = []
    for text in dict.fromkeys((pasted, without_invisible(pasted).strip())):
        found.append([text])
        with suppress(ValueError):
            found.append(shlex.split(text))
    return found


def _path(word: str, folder: Path, home: Path) -> Path:
    if word.startswith("file:"):
        with suppress(ValueError):  # the brackets contain no address
            url = urlsplit(word)
            word = unquote(url.path) if url.netloc in ("", "localhost") else ""
    elif (found := _WINDOWS.fullmatch(word)) is not None:
        # Windows writes paths so; this is where this system mounts its disks.
        rest = found[2].replace("\\", "/")
        word = f"/mnt/{found[1].lower()}/{rest}"
    elif word.startswith("~/"):
        return home / word[2:]
    return folder / word


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _is_image(path: Path) -> bool:
    """Return whether the file begins like an image; a special file is not waited for."""
    try:
        handle = open_regular(path, links=True)
    except (OSError, ValueError):
        return False
    try:
        return is_image(os.read(handle, _HEAD_BYTES))
    except OSError:
        return False
    finally:
        os.close(handle)


def _read_image_file(path: Path) -> Image:
    check_size(path.stat().st_size, path.name)
    return read_image(read_regular(path, MAX_FILE_BYTES, links=True), path.name)
