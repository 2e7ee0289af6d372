"""WriteFile and StrReplaceFile: replace a whole file or exact passages of it, after the user's approval, in one step.

Both read the file, check that the agent knows this version, compute the new text, ask, and write it (`change_file`).

Readers see either the old or the new file, and a crash leaves one of the two: the new file is written beside the old one and
renamed within the same folder descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator

from kimi_tui.filesystem import create_file, discard, new_temporary_name, publish, sync_folder
from kimi_tui.text_encoding import UTF8, encoding_of
from kimi_tui.tools import text as texts
from kimi_tui.tools.base import Changes, ToolEnv, TypedTool
from kimi_tui.tools.files import (
    HASHED_LIMIT_BYTES,
    Content,
    content_version,
    missing,
    parent_of,
    read_whole,
    read_whole_in,
    refused,
    stat_version,
)
from kimi_tui.tools.outcome import FileEdit, ToolOutcome, ToolProblem
from kimi_tui.tools.paths import (
    ResolvedPath,
    ask_to_change,
    is_secret_by_name,
    locate,
    look_outside,
    protected_reason,
    read_approval_on_error,
)
from kimi_tui.tools.sandbox.remembered import OutsideLook
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.scan import is_settled, stamp_from, stamp_of

Compute = Callable[[ResolvedPath, Content | None], str]
"""Computes the whole new text from the content on disk (None: no file); raises `ToolProblem`. It runs in a thread."""

LIMIT_S = 20.0
"""Seconds in which the edits of one call must be computed."""
_PLACES_NAMED = 8


async def change_file(path: str, compute: Compute, env: ToolEnv) -> FileEdit:
    """Change one file after the user's approval.

    Args:
        path: the path as the model wrote it.
        compute: computes the new text.
        env: the environment of the call.

    Raises:
        ToolProblem: the file cannot be changed; nothing was written.
        ToolRejected: the user said no.
    """

    def plan() -> tuple[ResolvedPath, _Plan | ToolProblem, str]:
        target = locate(path, env.work_dir, env.environ)
        look = look_outside()
        try:
            planned = _planned(target, compute, env, look)
        except ToolProblem as problem:
            return target, problem, ""
        return target, planned, protected_reason(target, env.environ, look=look)

    target, planned, why_protected = await asyncio.to_thread(plan)
    if isinstance(planned, ToolProblem):
        async with read_approval_on_error(target, env):
            raise planned
    content, edit, data, lost = planned
    n_links = content.stat.st_nlink if content else 1
    await ask_to_change(target, edit, env, why_protected=why_protected, n_links=n_links, lost=lost)
    await _write_to_completion(path, target, data, content, env)
    return edit


def _why_lost(
    target: ResolvedPath, content: Content | None, env: ToolEnv, look: OutsideLook
) -> str:
    """Say why no snapshot has the present contents of this file; empty if one has."""
    if content is None:
        return ""
    if _is_beyond_snapshots(content):
        return "it is too large for a snapshot"
    if target.inside and is_secret_by_name(target, env.environ, look=look):
        return "files that may be secret are not in snapshots"
    return ""


def _is_beyond_snapshots(content: Content) -> bool:
    """Return whether the file is too large for snapshots."""
    return content.stat.st_size > Limits().max_file_bytes


async def _write_to_completion(
    path: str, target: ResolvedPath, data: bytes, content: Content | None, env: ToolEnv
) -> None:
    """Write in a thread and wait for its end even if cancelled, so that no write is under way afterwards, and none begins.

    Raises:
        ToolProblem: the path leads elsewhere by now; or see `replace_file`.
        asyncio.CancelledError: the call was cancelled meanwhile.
    """

    stopped = threading.Event()

    def write() -> None:
        # Other work of the thread may have come first, and the user may have stopped the call meanwhile.
        if stopped.is_set():
            raise ToolProblem(f"{path} was not written.", brief="stopped")
        if locate(path, env.work_dir, env.environ).real != target.real:
            raise ToolProblem(
                f"{path} leads to another file now than when the user was asked. Nothing was written.",
                brief="path changed",
            )
        # The version is noted here, because a cancelled caller gets no further and the agent's own write must not count as
        # another's.
        env.versions.saw(target.real, replace_file(target, data, content, env.named))

    running = asyncio.ensure_future(env.writer(write))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # the exception is read, so that asyncio does not report it
        raise


def _check_known(target: ResolvedPath, content: Content | None, env: ToolEnv) -> None:
    seen = env.versions.seen(target.real)
    if seen is not None and content is not None and content.version != seen:
        raise ToolProblem(
            f"{target.written} changed on disk since you last read it. Nothing was written: read it again, "
            "then base the change on what it contains now.",
            brief="changed on disk",
        )


class _Plan(NamedTuple):
    """The facts about a write: the file as it is, the edit, the bytes, and why no snapshot has the present contents (`_why_lost`)."""

    content: Content | None
    edit: FileEdit
    data: bytes
    lost: str


def _planned(target: ResolvedPath, compute: Compute, env: ToolEnv, look: OutsideLook) -> _Plan:
    content = read_whole(target)
    _check_known(target, content, env)
    after = compute(target, content)
    data = texts.encode(after, _encoding_kept(content, after))
    if content is not None and data == content.data:
        raise ToolProblem(
            f"{target.written} already contains exactly this; nothing was written.",
            brief="no change",
        )
    before = None if content is None else _shown_before(content)
    unseen = ""
    if content is not None and content.data and not texts.binary_kind(content.data):
        unseen = texts.unseen_changes(texts.decode(content.data), after)
    edit = FileEdit(target.shown, before, texts.for_display(after), unseen)
    return _Plan(content, edit, data, _why_lost(target, content, env, look))


def _encoding_kept(content: Content | None, after: str) -> str:
    """Return the encoding of a file if its byte order mark is still in the new text; else UTF-8."""
    if content is None or not after.startswith("\ufeff"):
        return UTF8
    return encoding_of(content.data)


def _shown_before(content: Content) -> str:
    size = texts.format_size(content.stat.st_size)
    if _is_beyond_snapshots(content):
        return f"({size}, not shown; too large for a snapshot, so it cannot be restored)\n"
    if content.stat.st_size > HASHED_LIMIT_BYTES:
        return f"({size}, not shown)\n"
    if kind := texts.binary_kind(content.data[: texts.PROBE_BYTES]):
        return f"({kind}, {size})\n"
    return texts.for_display(texts.decode(content.data))


def replace_file(
    target: ResolvedPath,
    data: bytes,
    expected: Content | None,
    named: Callable[[str], None] = sync_folder,
) -> str:
    """Replace a whole file in one step, keeping its mode and owner; return the new version. It blocks, so call it in a thread.

    Args:
        target: the file; missing folders above it are created.
        data: the whole new content.
        expected: the content that was read before the user was asked; None if the file did not exist.
        named: syncs the names of a folder, now or later.

    Raises:
        ToolProblem: the file is not as expected any more, or the disk refused. Nothing was changed then.
    """
    name, parent = target.real.name, target.real.parent
    # A created folder has its own name in another one.
    made = [] if expected is not None else _missing(parent)
    with parent_of(target, create=True) as folder:
        looked_ns = time.time_ns()
        old = _check_unchanged(folder, target, expected)
        temporary = new_temporary_name(name)
        try:
            # A new file gets its mode from the umask, a replacement that of the old file.
            create_file(
                temporary,
                folder,
                data,
                mode=None if old is None else stat.S_IMODE(old.st_mode),
                owner=None if old is None else (old.st_uid, old.st_gid),
                replaces="" if old is None else name,
            )
            if old is not None:
                _check_still_unchanged(temporary, old, looked_ns, folder, target, expected)
            publish(temporary, name, folder, replace=expected is not None)
        except FileExistsError as error:
            raise _changed(target) from error
        except OSError as error:
            raise refused(error, target.written) from error
        # Some file systems cannot sync folders.
        with contextlib.suppress(OSError):
            for one in (parent, *(folder.parent for folder in made)):
                named(str(one))
        if len(data) <= HASHED_LIMIT_BYTES:
            return content_version(data)
        try:
            return stat_version(os.stat(name, dir_fd=folder, follow_symlinks=False))
        except OSError:
            # Somebody has removed it since, so whatever is there next is not what the agent knows.
            return ""


def _missing(folder: Path) -> list[Path]:
    """Return those of a folder and the folders above it that do not exist, innermost first."""
    return list(takewhile(lambda one: not os.path.lexists(one), (folder, *folder.parents)))


def _check_unchanged(
    folder: int, target: ResolvedPath, expected: Content | None
) -> os.stat_result | None:
    """Return the state of the file, whose mode may have changed while the user was asked; None if it does not exist.

    Raises:
        ToolProblem: its content is not as expected, or it is read-only.
    """
    found = read_whole_in(folder, target)
    if (found is None) != (expected is None):
        raise _changed(target)
    if found is None or expected is None:
        return None
    if not found.stat.st_mode & 0o222:
        raise ToolProblem(
            f"{target.written} is read-only (mode {stat.S_IMODE(found.stat.st_mode):04o}).",
            brief="read-only",
        )
    if found.version != expected.version:
        raise _changed(target)
    return found.stat


def _check_still_unchanged(
    temporary: str,
    old: os.stat_result,
    looked_ns: int,
    folder: int,
    target: ResolvedPath,
    expected: Content | None,
) -> None:
    """Check again just before the file is replaced: writing and syncing the new one takes longer than anything else, and what
    somebody wrote meanwhile would be lost.

    Args:
        temporary: the new file, which is deleted after an error.
        old: the state of the old one before it was read.
        looked_ns: the time before that, in nanoseconds since the epoch.
        folder: the open folder of the file.
        target: its path.
        expected: the content that it had; None if it did not exist.

    Raises:
        ToolProblem: the file is not as expected any more.
    """
    stamp = stamp_from(old)
    if is_settled(stamp, looked_ns) and stamp_of(target.real.name, folder) == stamp:
        return
    try:
        _check_unchanged(folder, target, expected)
    except BaseException:
        discard(temporary, folder)
        raise


def _changed(target: ResolvedPath) -> ToolProblem:
    return ToolProblem(
        f"{target.written} changed on disk in the meantime. Nothing was written: read it again, then repeat the change.",
        brief="changed on disk",
    )


class WriteFileParams(BaseModel):
    """The arguments of WriteFile: the path and the contents."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="From the work folder, or absolute.")
    content: str
    mode: Literal["overwrite", "append"] = "overwrite"


class WriteFile(TypedTool[WriteFileParams]):
    """Writes whole files."""

    name = "WriteFile"
    changes: Changes = "edits"
    params = WriteFileParams
    lean_params = ("path", "content", "mode")

    async def run(self, params: WriteFileParams, env: ToolEnv) -> ToolOutcome:
        """Write the file, after the user's approval."""

        def compute(target: ResolvedPath, content: Content | None) -> str:
            return _new_text(params, target, content)

        edit = await change_file(params.path, compute, env)
        n_lines = len(edit.after.splitlines())
        lines = "1 line" if n_lines == 1 else f"{n_lines} lines"
        verb = "Created" if edit.before is None else "Wrote"
        if params.mode == "append" and edit.before is not None:
            verb = "Appended to"
        return ToolOutcome(
            message=f"{verb} {edit.path}; it has {lines} now.",
            brief=lines if verb != "Appended to" else f"{lines} now",
            effects=(edit,),
        )


def _check_written(*written: str) -> None:
    """Check that a text of the model has no lone surrogate: in the text of a file it stands for an undecodable byte.

    Raises:
        ToolProblem: the text has one.
    """
    if not all(map(texts.encodable, written)):
        raise ToolProblem(
            "The text has half of a surrogate pair, which a file cannot contain. Leave it out."
        )


def _new_text(params: WriteFileParams, target: ResolvedPath, content: Content | None) -> str:
    _check_written(params.content)
    if content is None:
        return params.content
    too_large = content.stat.st_size > HASHED_LIMIT_BYTES
    if params.mode == "append":
        if too_large:
            size = texts.format_size(HASHED_LIMIT_BYTES)
            raise ToolProblem(
                f"{target.written} is larger than {size}: append with Shell instead.",
                brief="too large",
            )
        old = texts.decode(content.data)
        end = texts.line_end(old)
        return old + (params.content if end == "\n" else texts.with_line_end(params.content, end))
    if too_large or texts.binary_kind(content.data):
        return params.content
    return texts.with_format_of(texts.decode(content.data), params.content)


class Edit(BaseModel):
    """One replacement."""

    model_config = ConfigDict(extra="forbid")

    old: str
    new: str = Field(description="Empty removes `old`.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


class StrReplaceFileParams(BaseModel):
    """The file and its edits."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="From the work folder, or absolute.")
    edit: list[Edit] = Field(min_length=1)

    @field_validator("edit", mode="before")
    @classmethod
    def _single(cls, value: Any) -> Any:
        return [value] if isinstance(value, (dict, Edit)) else value


class StrReplaceFile(TypedTool[StrReplaceFileParams]):
    """Edits files by exact text."""

    name = "StrReplaceFile"
    changes: Changes = "edits"
    params = StrReplaceFileParams
    lean_params = ("path", "edit")

    async def run(self, params: StrReplaceFileParams, env: ToolEnv) -> ToolOutcome:
        """Make all edits after the user's approval, or none."""
        counts: list[int] = []
        stopped = threading.Event()

        def compute(target: ResolvedPath, content: Content | None) -> str:
            text = _editable(target, content)
            deadline = time.monotonic() + LIMIT_S
            for number, edit in enumerate(params.edit, start=1):
                which = f"Edit {number} of {len(params.edit)}: " if len(params.edit) > 1 else ""
                if stopped.is_set() or time.monotonic() > deadline:
                    raise ToolProblem(
                        f"{number - 1:,} of {len(params.edit):,} edits took {LIMIT_S:.0f} s. Nothing was written: "
                        "make fewer edits in one call, or change the file with Shell.",
                        brief="out of time",
                    )
                text, count = replaced(text, edit, which)
                counts.append(count)
            return text

        try:
            edit = await change_file(params.path, compute, env)
        finally:
            # A thread cannot be cancelled, so the flag ends the computation when nobody waits for it any more.
            stopped.set()
        n_replaced = sum(counts)
        times = "1 replacement" if n_replaced == 1 else f"{n_replaced} replacements"
        return ToolOutcome(
            message=f"Edited {edit.path}: {times}.", brief=_counts(edit), effects=(edit,)
        )


def _counts(edit: FileEdit) -> str:
    n_after, n_before = edit.after.count("\n"), (edit.before or "").count("\n")
    difference = n_after - n_before
    if difference == 0:
        return "edited"
    return f"{'+' if difference > 0 else '−'}{abs(difference)} line{'' if abs(difference) == 1 else 's'}"


def _editable(target: ResolvedPath, content: Content | None) -> str:
    if content is None:
        raise missing(target)
    size = texts.format_size(content.stat.st_size)
    if content.stat.st_size > HASHED_LIMIT_BYTES:
        raise ToolProblem(
            f"{target.written} has {size}, which is too large to edit here; use Shell.",
            brief="too large",
        )
    if kind := texts.binary_kind(content.data):
        raise ToolProblem(
            f"{target.written} is {kind} ({size}) and cannot be edited as text.", brief="binary"
        )
    return texts.decode(content.data)


def replaced(text: str, edit: Edit, which: str = "") -> tuple[str, int]:
    """Return the text after one edit, and the number of places that were changed.

    Raises:
        ToolProblem: the old text is empty, missing, or not unique.
    """
    if not edit.old:
        raise ToolProblem(
            f"{which}`old` is empty; to create or rewrite a file use WriteFile.", brief="empty text"
        )
    _check_written(edit.old, edit.new)
    if edit.old == edit.new:
        raise ToolProblem(
            f"{which}`old` and `new` are the same; nothing would change.", brief="no change"
        )
    view = texts.LineEndView(text)
    old, new = _as_in(view.text, edit)
    count = view.text.count(old)
    if count == 0:
        raise ToolProblem(which + _not_found(view.text, old), brief="text not found")
    if not edit.replace_all and len(places := _lines_of(view.text, old)) > 1:
        n_places = max(count, len(places))
        lines = ", ".join(map(str, places))
        more = ", …" if n_places > _PLACES_NAMED else ""
        raise ToolProblem(
            f"{which}`old` is not unique: it occurs {n_places} times, at lines {lines}{more}. Add surrounding lines "
            "to make it unique, or set `replace_all`.",
            brief=f"{n_places} matches",
        )
    if len(text) + count * (len(new) - len(old)) > HASHED_LIMIT_BYTES * 4:
        raise ToolProblem(
            f"{which}the file would become larger than {texts.format_size(HASHED_LIMIT_BYTES * 4)}; use Shell.",
            brief="too large",
        )
    return view.replaced(old, new), count


def _as_in(text: str, edit: Edit) -> tuple[str, str]:
    """Return the edit with LF as line ends, as in `text`."""
    old, new = texts.with_line_end(edit.old, "\n"), texts.with_line_end(edit.new, "\n")
    # The model wrote a final newline although the last line of the file has none.
    is_last = old not in text and old.endswith("\n") and len(old) > 1 and text.endswith(old[:-1])
    return (old[:-1], new.removesuffix("\n")) if is_last else (old, new)


def _lines_of(text: str, old: str) -> list[int]:
    """Return the lines of the first places of a text; these may overlap, as those of two braces among three do."""
    lines: list[int] = []
    position = text.find(old)
    number, counted = 1, 0
    while position >= 0 and len(lines) < _PLACES_NAMED:
        number += text.count("\n", counted, position)
        counted = position
        lines.append(number)
        position = text.find(old, position + 1)
    return lines


def _not_found(text: str, old: str) -> str:
    passage = texts.nearest_passage(texts.for_display(text), texts.for_display(old))
    if not passage:
        return "`old` was not found in the file, nor anything similar. Read the file again."
    return f"`old` was not found. The nearest passage in the file is:\n{passage}\nCopy the text exactly, with its spaces."
