"""How a file tool changes a file: read, check that the agent knows this version, compute, ask, write in one step.

Whoever reads the file meanwhile sees the old one or the new one, and a crash leaves one of the two: the new file is
written beside the old one and renamed within the same folder descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import Callable

from kimi_tui.filesystem import create_file, publish, sync_folder
from kimi_tui.tools import text as texts
from kimi_tui.tools.base import FileEdit, ToolEnv, ToolProblem
from kimi_tui.tools.files import (
    HASHED_LIMIT_BYTES,
    Content,
    content_version,
    look,
    parent_of,
    read_whole,
    refused,
    stat_version,
)
from kimi_tui.tools.paths import (
    ResolvedPath,
    ask_to_change,
    holds_secrets,
    locate,
    read_approval_on_error,
)
from kimi_tui.workspace.entries import Limits

Compute = Callable[[ResolvedPath, Content | None], str]
"""From what is on disk (None: nothing) to the whole new text; raises `ToolProblem`. Runs in a thread."""


async def change_file(path: str, compute: Compute, env: ToolEnv) -> FileEdit:
    """Change one file, with the user's yes.

    Args:
        path: as the model wrote it.
        compute: makes the new text.
        env: of the call.

    Raises:
        ToolProblem: it cannot be done; nothing was written.
        ToolRejected: the user said no.
    """
    target = await asyncio.to_thread(locate, path, env.work_dir, env.environ)
    async with read_approval_on_error(target, env):
        content, edit, data = await asyncio.to_thread(_planned, target, compute, env)
    await ask_to_change(
        target,
        edit,
        env,
        n_links=content.stat.st_nlink if content else 1,
        lost=await asyncio.to_thread(_why_lost, target, content, env),
    )
    again = await asyncio.to_thread(locate, path, env.work_dir, env.environ)
    if again.real != target.real:
        raise ToolProblem(
            f"{path} leads somewhere else than when it was asked for. Nothing was written.",
            brief="path changed",
        )
    await _write_to_completion(target, data, content, env)
    return edit


def _why_lost(target: ResolvedPath, content: Content | None, env: ToolEnv) -> str:
    """Why no snapshot holds what this file holds now; empty where one does."""
    if content is None:
        return ""
    if _is_beyond_snapshots(content):
        return "is too large to be brought back"
    if target.inside and holds_secrets(target, env.environ):
        return "is in no snapshot, as it may be secret, and cannot be brought back"
    return ""


def _is_beyond_snapshots(content: Content) -> bool:
    """Whether no snapshot holds this file, because it is too large for one."""
    return content.stat.st_size > Limits().max_file_bytes


async def _write_to_completion(
    target: ResolvedPath, data: bytes, content: Content | None, env: ToolEnv
) -> None:
    """Write in a thread and wait for its end even when cancelled: then it has happened or not, but is not under way.

    Raises:
        ToolProblem: see `replace_file`.
        asyncio.CancelledError: cancelled meanwhile.
    """

    def write() -> None:
        # In here, because a cancelled caller gets no further, and the agent's own write is no foreign change.
        env.versions.saw(target.real, replace_file(target, data, content))

    running = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # read, so that asyncio reports no error that nobody asked for
        raise


def _check_known(target: ResolvedPath, content: Content | None, env: ToolEnv) -> None:
    seen = env.versions.seen(target.real)
    if seen is not None and content is not None and content.version != seen:
        raise ToolProblem(
            f"{target.written} changed on disk since you last read it. Nothing was written: read it again, "
            "then make the change against what it holds now.",
            brief="changed on disk",
        )


def _planned(
    target: ResolvedPath, compute: Compute, env: ToolEnv
) -> tuple[Content | None, FileEdit, bytes]:
    content = read_whole(target)
    _check_known(target, content, env)
    after = compute(target, content)
    data = texts.encode(after)
    if content is not None and data == content.data:
        raise ToolProblem(
            f"{target.written} already holds exactly this; nothing was written.", brief="no change"
        )
    before = None if content is None else _shown_before(content)
    unseen = ""
    if content is not None and content.data and not texts.binary_kind(content.data):
        unseen = texts.unseen_changes(texts.decode(content.data), after)
    edit = FileEdit(target.shown, before, texts.for_display(after), unseen)
    return content, edit, data


def _shown_before(content: Content) -> str:
    size = texts.format_size(content.stat.st_size)
    if _is_beyond_snapshots(content):
        return f"({size}, not shown; too large to be brought back)\n"
    if content.stat.st_size > HASHED_LIMIT_BYTES:
        return f"({size}, not shown)\n"
    if kind := texts.binary_kind(content.data[: texts.PROBE_BYTES]):
        return f"({kind}, {size})\n"
    return texts.for_display(texts.decode(content.data))


def replace_file(target: ResolvedPath, data: bytes, expected: Content | None) -> str:
    """Replace all of a file in one step, keeping its mode and owner; returns the new version. Blocks: for a thread.

    Args:
        target: the file; missing folders on the way are made.
        data: all of its new content.
        expected: what was read before the user was asked; None where the file did not exist.

    Raises:
        ToolProblem: the file is not as expected any more, or the disk refused. Nothing was changed then.
    """
    name = target.real.name
    with parent_of(target, create=True) as folder:
        _check_unchanged(name, folder, target, expected)
        temporary = f".{name[:100]}.{secrets.token_hex(6)}.tmp"
        old = None if expected is None else expected.stat
        try:
            # A new file gets its mode from the umask; one that replaces another gets that one's.
            create_file(
                temporary,
                folder,
                data,
                mode=None if old is None else stat.S_IMODE(old.st_mode),
                owner=None if old is None else (old.st_uid, old.st_gid),
            )
            publish(temporary, name, folder, replace=expected is not None)
        except FileExistsError as error:
            raise _changed(target) from error
        except OSError as error:
            raise refused(error, target.written) from error
        # Folders that cannot be synced are so on their file system.
        with contextlib.suppress(OSError):
            sync_folder(".", dir_fd=folder)
        if len(data) <= HASHED_LIMIT_BYTES:
            return content_version(data)
        return stat_version(os.stat(name, dir_fd=folder, follow_symlinks=False))


def _check_unchanged(
    name: str, folder: int, target: ResolvedPath, expected: Content | None
) -> None:
    found = look(name, folder, target)
    if (found is None) != (expected is None):
        raise _changed(target)
    if found is None or expected is None:
        return
    if not found.st_mode & 0o222:
        raise ToolProblem(
            f"{target.written} is read-only (mode {stat.S_IMODE(found.st_mode):04o}).",
            brief="read-only",
        )
    now = read_whole(target)
    if now is None or now.version != expected.version:
        raise _changed(target)


def _changed(target: ResolvedPath) -> ToolProblem:
    return ToolProblem(
        f"{target.written} changed on disk in the meantime. Nothing was written: read it again, then repeat the change.",
        brief="changed on disk",
    )
