"""A disk that does not take the conversation: said from the first moment on, and to be seen until it is over."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.cases import each
from support.chat_server import ChatServer, say
from support.screens import desk

from kimi_tui.config.settings import Config
from kimi_tui.filesystem import Storage
from kimi_tui.tui.frame_rows import HeaderText, fit_heading


class Disk:
    """Refuses all writes while `refuses` is an error number."""

    refuses = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = Storage.write

        def write(storage: Storage, fd: int, data: bytes | memoryview) -> int:
            if self.refuses:
                raise OSError(self.refuses, os.strerror(self.refuses))
            return real(storage, fd, data)

        monkeypatch.setattr(Storage, "write", write)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("number", "size", "theme"),
    [
        (errno.ENOSPC, (120, 40), "dark"),
        (errno.EACCES, (80, 24), "light"),
        (errno.EROFS, (60, 20), "dark"),
    ],
)
async def test_trouble_from_the_start_is_said_and_stays_in_sight(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    size: tuple[int, int],
    theme: str,
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    disk = Disk(monkeypatch)
    disk.refuses = number
    async with ChatServer() as server:
        server.script(say("one"), say("two"))
        async with desk(tmp_path, server.base_url, size=size, config=Config(theme=theme)) as on:
            await on.sees("! not saved")
            # The reason stands in a notice, which may need more than one row for it; in a small one it is cut.
            reason = os.strerror(number) if size[0] >= 80 else "Could not save the conversation"
            await on.until(lambda: reason in " ".join(on.text().replace("▌", "").split()))
            await on.ready()
            await on.say("first")
            await on.idle()
            assert "! not saved" in on.text()
            await on.pilot.resize_terminal(60, 20)
            await on.sees("! not saved")
            disk.refuses = 0
            await on.say("second")
            await on.idle()
            await on.until(lambda: "not saved" not in on.text())
            await on.sees("The conversation can be saved again.")


def tell_trouble(home: Path) -> None:
    """The program was killed while the disk refused."""
    (record,) = home.glob("sessions/*/*/wire.jsonl")
    with record.open("a") as file:
        file.write(
            '{"seq": 99999, "timestamp": 1.0, "message": {"type": "Notice", "payload":'
            ' {"level": "error", "text": "no room", "advice": "", "topic": "disk",'
            ' "solved": false}}}\n'
        )


@pytest.mark.exhaustive
async def test_trouble_of_an_earlier_run_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with ChatServer() as server:
        server.script(say("one"))
        async with desk(tmp_path, server.base_url) as on:
            await on.ready()
            await on.say("first")
            await on.idle()
        tell_trouble(tmp_path)
        async with desk(tmp_path, server.base_url, resume="newest") as on:
            await on.ready()
            await on.sees("one")
            assert "not saved" not in on.text()


@each("width", range(24, 200, 8))
def test_the_sign_has_its_place_at_every_width(width: int) -> None:
    heading = HeaderText(
        "A long title of a session", "~/work/folder", "main", "kimi-k2", unsaved=True
    )
    shown = fit_heading(heading, width, "…")
    assert shown.trouble == "! not saved"
    parts = [p for p in (shown.title, shown.folder, shown.model, shown.mode, shown.trouble) if p]
    taken = sum(map(len, parts)) + 3 * (len(parts) - 1)
    assert taken + (2 + len(shown.branch) if shown.branch else 0) <= max(width, 28)
