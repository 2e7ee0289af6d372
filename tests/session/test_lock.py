"""Only one process opens a session; its lock ends with it, and the next process says who holds it."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kimi_tui.llm.message import user_message
from kimi_tui.session.errors import SessionLocked, StorageTrouble
from kimi_tui.session.lock import SessionLock, holder_of
from kimi_tui.session.session import Session

HOLD = """
import sys
from pathlib import Path
from kimi_tui.session.lock import SessionLock
lock = SessionLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the session of `tmp_path` open."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


async def test_the_second_is_told_who_holds_it_and_may_fork(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    (tmp_path / "context.jsonl").write_text('{"role":"user","content":"hi"}\n')
    session = Session(tmp_path, Path("/w"))
    with pytest.raises(SessionLocked, match=f"process {other.pid} on .*[Ff]ork"):
        await session.open()
    assert holder_of(tmp_path) == f"process {other.pid} on {os.uname().nodename}"
    copy = await session.fork()
    await copy.open()
    assert [message.text for message in copy.context.messages] == ["hi"]
    await copy.context.append([user_message("there")])
    await copy.aclose()
    assert (tmp_path / "context.jsonl").read_text() == '{"role":"user","content":"hi"}\n'


async def test_a_lock_of_the_dead_never_blocks(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert str(other.pid) in (tmp_path / "lock").read_text()
    assert holder_of(tmp_path) is None
    session = Session(tmp_path, Path("/w"))
    await session.open()
    assert str(os.getpid()) in (tmp_path / "lock").read_text()
    await session.aclose()


def background_child() -> subprocess.Popen[bytes]:
    """Start and return a child that has every descriptor that children can have."""
    return subprocess.Popen(["sleep", "60"], close_fds=False)


async def test_a_child_left_in_the_background_does_not_keep_it(tmp_path: Path) -> None:
    session = Session(tmp_path, Path("/w"))
    await session.open()
    child = background_child()
    await session.context.append([user_message("hi")])
    await session.aclose()
    try:
        again = Session(tmp_path, Path("/w"))
        await again.open()
        await again.aclose()
    finally:
        child.kill()
        child.wait()


async def test_twice_in_one_process_is_refused_too(tmp_path: Path) -> None:
    session = Session(tmp_path, Path("/w"))
    await session.open()
    with pytest.raises(SessionLocked, match=str(os.getpid())):
        await Session(tmp_path, Path("/w")).open()
    # Closing the other one must not have let go of this one's lock.
    with pytest.raises(SessionLocked):
        await Session(tmp_path, Path("/w")).open()
    await session.aclose()


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EROFS, "read-only"), (errno.EACCES, "not writable")]
)
async def test_a_folder_that_takes_nothing_is_named_with_the_reason(
    tmp_path: Path, number: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(tmp_path, Path("/w"))
    await session.open()
    await session.aclose()
    open_file = os.open

    def refused(path: str | Path, flags: int, *rest: int, dir_fd: int | None = None) -> int:
        if Path(path).name == "lock" and flags & os.O_RDWR:
            raise OSError(number, os.strerror(number))
        return open_file(path, flags, *rest, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refused)
    again = Session(tmp_path, Path("/w"))
    await again.open()
    (remark,) = again.remarks
    assert words in remark
    assert str(tmp_path) in remark
    assert "lock" not in remark
    await again.aclose()


def test_a_lock_that_cannot_be_opened_is_no_folder_without_locks(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    lock = SessionLock(tmp_path)
    with pytest.raises(StorageTrouble, match="open the session"):
        lock.acquire()
    assert not lock.held
    assert lock.supported


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
async def test_where_nothing_can_be_locked_it_is_said_once_and_works(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_fd: int, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    session = Session(tmp_path, Path("/w"))
    await session.open()
    assert len(session.remarks) == 1
    assert "does not support file locks" in session.remarks[0]
    await session.context.append([user_message("one")])
    # Another process opens it as well; the second one to write notices the first.
    with (tmp_path / "context.jsonl").open("ab") as file:
        file.write(b'{"role":"user","content":"theirs"}\n')
    said: list[str] = []
    session.context.listen(lambda _trouble: None, said.append)
    await session.context.append([user_message("two")])
    assert len(said) == 1
    await session.aclose()


def test_somebody_who_only_looks_does_not_get_in_the_way(tmp_path: Path) -> None:
    lock = SessionLock(tmp_path)
    lock.acquire()
    lock.release()
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    with pytest.raises(SessionLocked, match="another process"):
        lock.acquire()
    os.close(looking)
    lock.acquire()
    assert lock.held
    lock.release()


async def test_a_lock_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    session = Session(tmp_path / "s", tmp_path)
    await session.open()
    said: list[str] = []
    session.context.listen(lambda _trouble: None, said.append)
    await session.sync()
    (tmp_path / "s" / "lock").unlink()
    await session.sync()
    await session.sync()
    assert said == ["The session's lock file was deleted; it was created again."]
    with pytest.raises(SessionLocked):
        await Session(tmp_path / "s", tmp_path).open()
    await session.aclose()
    await Session(tmp_path / "s", tmp_path).open()


async def test_who_took_a_deleted_lock_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    session = Session(tmp_path / "s", tmp_path)
    await session.open()
    said: list[str] = []
    session.context.listen(lambda _trouble: None, said.append)
    (tmp_path / "s" / "lock").unlink()
    other = Session(tmp_path / "s", tmp_path)
    await other.open()
    await session.context.append([user_message("kept")])
    for _ in range(2):
        await session.sync()
    (words,) = said
    assert words.startswith(
        "The session's lock file was deleted, so another program may write to this session. Quit the other program."
    )
    assert f"process {os.getpid()}" in words
    assert session.lock.held
    await session.aclose()
    assert "kept" in (tmp_path / "s" / "context.jsonl").read_text()
    await other.aclose()


def test_a_lock_that_is_not_held_has_nothing_to_check(tmp_path: Path) -> None:
    lock = SessionLock(tmp_path)
    assert lock.check() == ""
    lock.acquire()
    assert lock.check() == ""
    lock.release()
    assert lock.check() == ""
