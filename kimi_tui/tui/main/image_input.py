"""Reads images for the prompt, from pasted paths, files chosen behind `@` and the clipboard, and puts chips into its text.

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
"""The most paths that are taken from one paste."""
_HEAD_BYTES = 16
_WINDOWS = re.compile(r"([A-Za-z]):[\\/](.*)")


class ImageInput:
    """Reads images for the prompt: from pasted paths, files and the clipboard.

    Args:
        bench: the workbench with the prompt.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._chips = bench.images
        self._reading: set[asyncio.Task[None]] = set()
        self._order = asyncio.Lock()
        self._n_sent = 0
        """So many messages were sent and wait for what is read."""
        self._late: list[tuple[str, str]] = []
        """What came when the field had been emptied already: what was written, and what takes its place."""

    # --- from the desktop into the field

    def reads_for(self, text: str) -> bool:
        """Whether a message must wait: an image that it may name is being read, or a message sent before waits.

        True also for an image that came between Enter, which empties the field, and the event about the message.
        """
        self._reading = {task for task in self._reading if not task.done()}
        is_late = any(written in text for written, _ in self._late)
        return bool(self._reading or self._n_sent or is_late)

    def read_path(self, written: str, pasted: str) -> None:
        """Replace a pasted text in the field by chips, where it is the path of one image or several.

        Args:
            written: what stands for the paste in the field.
            pasted: the text.
        """
        self._start(self._read_path(written.strip(), pasted))

    def read_clipboard(self, written: str) -> None:
        """Replace a placeholder in the field by the content of the clipboard: an image's chip, or text."""
        if not self._n_sent:
            # Of one that was deleted before it came.
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
            # What was copied in the program itself is known without any other.
            text = clean_pasted(app_of(bench.screen).clipboard)
            if not text:
                bench.tell(clipping.trouble)
        self._exchange(written, text)
        if clipping.text and may_be_path(text):
            self.read_path(text, text)

    async def _made(self, make: Callable[[], Sequence[Image]]) -> Sequence[Image]:
        try:
            return await asyncio.to_thread(make)
        except ImageRefused as error:
            self._bench.tell(str(error), level="warning")
        except OSError as error:
            self._bench.tell(
                f"The image cannot be read: {error.strerror or error}.", level="warning"
            )
        return ()

    def _exchange(self, written: str, text: str) -> None:
        if not self._bench.prompt.area.exchange(written, text):
            self._late.append((written, text))

    async def settled(self, text: str) -> str:
        """Wait until the images of a message are read; returns it with their chips. Messages keep their order."""
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
    """The images whose paths were pasted; none where it is anything else. Takes long.

    Args:
        pasted: a path, or several, as terminals write dragged files: quoted, with escaped blanks, or as URLs.
        folder: the folder that relative paths start from.
        home: the user's home folder.

    Raises:
        ImageRefused: one cannot be sent, or is called an image and is none.
        OSError: one cannot be read.
    """
    for words in _readings(pasted.strip()):
        paths = [_path(word, folder, home) for word in words[: MOST + 1]]
        if not 0 < len(paths) <= MOST:
            continue
        taken = [*map(_is_image, paths)]
        if all(taken):
            return [_read(path) for path in paths]
        # Who drags a file that is called so means its picture.
        refused = [p for p, is_taken in zip(paths, taken, strict=True) if not is_taken]
        if all(map(_is_file, paths)) and refused[0].suffix.lower() in IMAGE_ENDINGS:
            raise ImageRefused(not_taken(one_line(refused[0].name)), brief=NO_IMAGE)
    return []


def _readings(pasted: str) -> list[list[str]]:
    """What a paste may mean, in words: a single path with blanks in it, else as a shell takes it.

    Windows and web pages put what cannot be seen before a path; a name may hold it as well.
    """
    found: list[list[str]] = []
    for text in dict.fromkeys((pasted, without_invisible(pasted).strip())):
        found.append([text])
        with suppress(ValueError):
            found.append(shlex.split(text))
    return found


def _path(word: str, folder: Path, home: Path) -> Path:
    if word.startswith("file:"):
        with suppress(ValueError):  # brackets that are no address
            url = urlsplit(word)
            word = unquote(url.path) if url.netloc in ("", "localhost") else ""
    elif (found := _WINDOWS.fullmatch(word)) is not None:
        # As Windows writes it, where this system has its disks.
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
    """Whether it is a file that begins like an image; a file of another kind is not waited for."""
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


def _read(path: Path) -> Image:
    check_size(path.stat().st_size, path.name)
    return read_image(read_regular(path, MAX_FILE_BYTES, links=True), path.name)
