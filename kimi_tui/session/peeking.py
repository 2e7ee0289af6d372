"""Reads a session that another process may have open: a copy of its files is opened, so that nothing of it is repaired."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

from kimi_tui.session.session import Session
from kimi_tui.session.side_files import STATE_NAME


@contextlib.asynccontextmanager
async def peeked(session: Session) -> AsyncGenerator[Session]:
    """The session as it is on the disk now, open without its lock. What is changed of it goes nowhere.

    Args:
        session: Not opened here.

    Raises:
        StorageTrouble: It cannot be read at all.
    """
    with tempfile.TemporaryDirectory(prefix="kimi-tui-") as folder:
        copy = Path(folder) / session.id
        await asyncio.to_thread(_copy, session.dir, copy)
        copied = Session(copy, session.work_dir)
        report = await copied.open()
        # What was repaired is the copy: of the files nothing was kept anywhere, and their end may still be being written.
        copied.report = replace(report, torn_bytes=0, remarks=())
        try:
            yield copied
        finally:
            await copied.aclose()


def _copy(folder: Path, copy: Path) -> None:
    copy.mkdir()
    for path in [*sorted(folder.glob("*.jsonl")), folder / STATE_NAME]:
        with contextlib.suppress(OSError):
            shutil.copyfile(path, copy / path.name)
