"""ReadFile: returns numbered lines of a text file, from its start, from a line on, or from its end; or an image."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import aiofiles
from aiofiles.threadpool.binary import AsyncBufferedReader
from pydantic import BaseModel, ConfigDict, Field, field_validator

from kimi_tui.images import ImageRefused, check_size, is_image, read_image
from kimi_tui.text_encoding import UTF8, encoding_name, encoding_of
from kimi_tui.tools.base import Changes, ToolEnv, TypedTool
from kimi_tui.tools.files import (
    HASHED_LIMIT_BYTES,
    content_version,
    open_for_reading,
    refused,
    stat_version,
)
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem, failure
from kimi_tui.tools.paths import ResolvedPath, ask_to_read, holds_secrets, locate, own_result
from kimi_tui.tools.text import (
    LINE_CHARS,
    PROBE_BYTES,
    WINDOW_BYTES,
    LineWindow,
    as_utf8_lines,
    binary_kind,
    counted,
    format_size,
)

MAX_LINES = 1000
_AT_ONCE_BYTES = 64 * 1024
"""Bytes that are handled on the event loop."""
_BLOCK_BYTES = 256 * 1024
_UNSAVED = "This is the unsaved text in the user's editor. Your edits change the file on the disk, which may differ from this text."
_COUNTED_BYTES = 256 * 1024 * 1024
"""Bytes up to which lines are counted only to give their total or to number a tail; beyond, the answer says that they are not."""

_T = TypeVar("_T")


class ReadFileParams(BaseModel):
    """Which lines of which file."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="From the work folder, or absolute.")
    line_offset: int = Field(
        default=1,
        description="The first line, from 1; negative counts from the end (-100: the last 100).",
        ge=-MAX_LINES,
    )
    n_lines: int = Field(default=MAX_LINES, description="How many lines.", ge=1, le=MAX_LINES)

    @field_validator("line_offset")
    @classmethod
    def _from_one(cls, value: int) -> int:
        return value or 1


class ReadFile(TypedTool[ReadFileParams]):
    """Reads text files."""

    name = "ReadFile"
    changes: Changes = "nothing"
    params = ReadFileParams
    lean_params = ("path", "line_offset", "n_lines")

    async def run(self, params: ReadFileParams, env: ToolEnv) -> ToolOutcome:
        """Read the lines; ask first outside the work folder."""
        target, n_links, asks, data = await asyncio.to_thread(_found, params.path, env)
        if data is not None:
            source = _Source(None, data, len(data), content_version(data))
            return await _read(source, target, params, env)
        if asks:
            await ask_to_read(target, env, n_links=n_links)

        def opener(path: str, flags: int) -> int:
            return open_for_reading(target)[0]

        try:
            async with aiofiles.open(target.real, "rb", opener=opener) as file:
                found = os.fstat(file.fileno())
                if found.st_nlink > n_links:
                    await ask_to_read(target, env, n_links=found.st_nlink)
                return await _read(await _Source.of(file, found), target, params, env)
        except OSError as error:
            raise refused(error, params.path) from error


async def _read(
    source: _Source, target: ResolvedPath, params: ReadFileParams, env: ToolEnv
) -> ToolOutcome:
    """Read the lines from an open file."""
    is_unsaved = env.unsaved is not None and await source.take_unsaved(
        await env.unsaved(str(target.real))
    )
    start = await source.read_at(0, PROBE_BYTES)
    if is_image(start) and env.sees:
        return await _image_outcome(target, source, env)
    if kind := binary_kind(start):
        facts = f"{params.path} is {kind} ({format_size(source.size)}), not text"
        if is_image(start):
            blind = f"{facts}, and you cannot see images."
            return failure(blind, brief="this model cannot see images")
        return failure(f"{facts}.", brief="binary")
    format_facts = await source.as_lines(params.path)
    if is_unsaved:
        format_facts.append(_UNSAVED)
    limit = WINDOW_BYTES if env.room_chars is None else _room_for_lines(env.room_chars)
    window, numbered_from = await _read_window(source, params, limit)
    env.versions.saw(target.real, source.version)
    return _outcome(target, params, source, window, numbered_from, format_facts)


class _FoundFile(NamedTuple):
    """The file that was found at a path.

    Attributes:
        target: the place.
        n_links: the number of names of the file.
        asks: whether `ask_to_read` has to look closer.
        data: the bytes of a small file that may be read; None for any other.
    """

    target: ResolvedPath
    n_links: int
    asks: bool
    data: bytes | None = None


def _found(path: str, env: ToolEnv) -> _FoundFile:
    """Look at a path, and read a small file at once, which takes less than another thread would; call it in a thread."""
    target = locate(path, env.work_dir, env.environ)
    if (own := own_result(target, env)) is not None:
        target = locate(str(own), env.work_dir, env.environ)
    if not target.inside:
        return _FoundFile(target, _n_links(target), asks=True)
    if holds_secrets(target, env.environ):
        return _FoundFile(target, 1, asks=True)
    return _FoundFile(target, 1, asks=False, data=_small_file(target))


def _small_file(target: ResolvedPath) -> bytes | None:
    """Return the bytes of a small file with one name; None for another, or one that cannot be read.

    Raises:
        ToolProblem: the file is missing, not regular, or not readable.
    """
    handle, found = open_for_reading(target)
    try:
        if found.st_nlink > 1 or found.st_size > _AT_ONCE_BYTES:
            return None
        data = os.read(handle, _AT_ONCE_BYTES + 1)
        # The kernel's own files tell no size, and a read may be short.
        return data if len(data) == found.st_size else None
    except OSError:
        return None
    finally:
        os.close(handle)


def _n_links(target: ResolvedPath) -> int:
    """Return the number of names of a file; 1 if there is no file, or no regular one."""
    try:
        found = os.lstat(target.real)
    except OSError:
        return 1
    return found.st_nlink if stat.S_ISREG(found.st_mode) else 1


async def _image_outcome(target: ResolvedPath, source: _Source, env: ToolEnv) -> ToolOutcome:
    name = target.real.name
    try:
        check_size(source.size, name)
        data = await source.read_at(0, source.size)
        image = await asyncio.to_thread(read_image, data, name)
    except ImageRefused as no:
        return failure(str(no), brief=no.brief)
    env.versions.saw(target.real, source.version)
    size = f"{image.width}x{image.height}"
    made = "" if image.data == data else f", of a file of {format_size(source.size)}"
    facts = f"An image, {size}, {format_size(len(image.data))}{made}. It comes after the results."
    return ToolOutcome(message=facts, brief=size, images=(image,))


class _Source:
    """A file to read at any offset: small ones from memory, large ones in blocks off the event loop."""

    def __init__(
        self, file: AsyncBufferedReader | None, data: bytes | None, size: int, version: str
    ) -> None:
        self._file = file
        self._data = data
        self.size = size
        """The size in bytes; after `as_lines`, that of the converted text."""
        self.version = version

    @classmethod
    async def of(cls, file: AsyncBufferedReader, found: os.stat_result) -> _Source:
        if found.st_size <= HASHED_LIMIT_BYTES:
            data = await file.read(HASHED_LIMIT_BYTES + 1)
            if len(data) <= HASHED_LIMIT_BYTES:
                version = await _quickly(content_version, data)
                return cls(file, data, len(data), version)
        return cls(file, None, found.st_size, stat_version(found))

    async def take_unsaved(self, text: str | None) -> bool:
        """Have the text of an editor read in place of the file's, if there is one that differs; return whether it does.

        The version stays that of the file on the disk, which is the one that edits change.
        """
        if text is None or self._data is None:
            return False
        data = text.encode("utf-8", "replace")
        saved, _ = await asyncio.to_thread(as_utf8_lines, self._data)
        # An editor may give every line end as a line feed.
        is_same = saved.replace(b"\r\n", b"\n") == data.replace(b"\r\n", b"\n")
        if is_same or len(data) > HASHED_LIMIT_BYTES:
            return False
        self._data, self.size = data, len(data)
        return True

    async def as_lines(self, path: str) -> list[str]:
        """Make `read_at` return UTF-8 with line feeds from now on, and return the facts about the file's format.

        Raises:
            ToolProblem: the file has another encoding than UTF-8 and is too large to be read as a whole.
        """
        if self._data is not None:
            self._data, facts = await _quickly(as_utf8_lines, self._data)
            self.size = len(self._data)
            return facts
        encoding = encoding_of(await self.read_at(0, PROBE_BYTES), is_whole=False)
        if encoding != UTF8:
            raise ToolProblem(
                f"{path} is {encoding_name(encoding)} text of {format_size(self.size)}; files in this encoding can be read "
                f"up to {format_size(HASHED_LIMIT_BYTES)}. Convert it: iconv -f {encoding_name(encoding)} -t UTF-8.",
                brief="too large",
            )
        return []

    async def read_at(self, offset: int, size: int) -> bytes:
        if self._data is not None:
            return self._data[offset : offset + size]
        assert self._file is not None
        await self._file.seek(offset)
        return await self._file.read(size)


async def _quickly(work: Callable[[bytes], _T], data: bytes) -> _T:
    """Do something with the bytes of a file: in a thread, unless they are so few that it would answer later than it takes."""
    return work(data) if len(data) <= _AT_ONCE_BYTES else await asyncio.to_thread(work, data)


def _room_for_lines(room_chars: int) -> int:
    """Return the bytes of lines that fit a result with this number of characters, in which each line has a number."""
    return min(WINDOW_BYTES, max(400, room_chars * 3 // 4))


async def _read_window(
    source: _Source, params: ReadFileParams, limit_bytes: int
) -> tuple[LineWindow, int | None]:
    """Return the window, and the number of its line 1 in the file (None: unknown, so lines are numbered from the end)."""
    if params.line_offset > 0:
        window = LineWindow(params.line_offset, params.n_lines, limit_bytes)
        counted_to = 0
        offset = 0
        while offset < source.size and (not window.done or counted_to < _COUNTED_BYTES):
            block = await source.read_at(offset, _BLOCK_BYTES)
            if not block:
                break
            window.feed(block)
            offset += len(block)
            counted_to += len(block) if window.done else 0
            await asyncio.sleep(0)
        window.finish()
        return window, 1 if offset >= source.size else 0
    n_tail = -params.line_offset
    start = await _tail_start(source, n_tail)
    window = LineWindow(1, min(n_tail, params.n_lines), limit_bytes)
    offset = start
    while offset < source.size:
        block = await source.read_at(offset, _BLOCK_BYTES)
        if not block:
            break
        window.feed(block)
        offset += len(block)
        await asyncio.sleep(0)
    window.finish()
    return window, await _count_before(source, start)


async def _tail_start(source: _Source, n_lines: int) -> int:
    """Return where the last `n_lines` lines begin."""
    offset = source.size
    wanted = n_lines
    last = await source.read_at(source.size - 1, 1) if source.size else b""
    if last == b"\n":
        wanted += 1
    while offset > 0:
        start = max(0, offset - _BLOCK_BYTES)
        block = await source.read_at(start, offset - start)
        found = block.count(b"\n")
        if found >= wanted:
            position = len(block)
            for _ in range(wanted):
                position = block.rindex(b"\n", 0, position)
            return start + position + 1
        wanted -= found
        offset = start
        await asyncio.sleep(0)
    return 0


async def _count_before(source: _Source, end: int) -> int | None:
    if end > _COUNTED_BYTES:
        return None
    n_lines, offset = 1, 0
    while offset < end:
        block = await source.read_at(offset, min(_BLOCK_BYTES, end - offset))
        if not block:
            break
        n_lines += block.count(b"\n")
        offset += len(block)
        await asyncio.sleep(0)
    return n_lines


def _outcome(
    target: ResolvedPath,
    params: ReadFileParams,
    source: _Source,
    window: LineWindow,
    numbered_from: int | None,
    format_facts: list[str],
) -> ToolOutcome:
    if source.size == 0:
        return ToolOutcome(message=f"{target.shown} is empty.", brief="empty")
    tail = params.line_offset < 0
    if not window.lines:
        lines = counted(window.total, "line")
        raise ToolProblem(
            f"{params.path} has only {lines}; line_offset {params.line_offset} is past its end.",
            brief="past the end",
        )
    # If a tail is too far from the start for counting, its lines are numbered from the end.
    shift = 0
    if tail:
        shift = numbered_from - 1 if numbered_from is not None else -window.total - 1
    numbers = [line.number + shift for line in window.lines]
    output = "\n".join(
        f"{number:>6}\t{line.text}{' …' if line.cut else ''}"
        for number, line in zip(numbers, window.lines, strict=True)
    )
    total: int | None = None
    if tail:
        total = shift + window.total if numbered_from is not None else None
    elif numbered_from:
        total = window.total
    first, last = numbers[0], numbers[-1]
    whole = total is not None and first == 1 and last == total
    facts = [_extent(first, last, total, whole, source.size)]
    if window.full:
        facts.append(f"Stopped at {_limit_words(window.limit_bytes)}.")
    if total is None or last < total:
        facts.append(f"Continue with line_offset={last + 1}." if last + 1 else "")
    if any(line.cut for line in window.lines):
        facts.append(f"Lines over {LINE_CHARS} characters are cut (…).")
    if window.invalid:
        facts.append("Bytes that are not UTF-8 are shown as \ufffd.")
    if window.n_crlf:
        some = "Some lines" if window.n_crlf < window.n_ended else "Lines"
        facts.append(f"{some} end with CR LF.")
    facts += format_facts
    return ToolOutcome(
        output=output,
        message=" ".join(fact for fact in facts if fact),
        brief=counted(len(numbers), "line") if whole else f"lines {first:,}–{last:,}",
    )


def _limit_words(limit_bytes: int) -> str:
    if limit_bytes == WINDOW_BYTES:
        return f"{WINDOW_BYTES // 1024} KiB"
    return f"{format_size(limit_bytes)}, the most that fits your context"


def _extent(first: int, last: int, total: int | None, whole: bool, size_bytes: int) -> str:
    if whole:
        return f"The whole file, {counted(last, 'line')}."
    of = f"of {total:,}" if total is not None else f"of a file of {format_size(size_bytes)}"
    return f"Lines {first} to {last} {of}."
