"""The protection of the process and the release of freed memory, checked from within a fresh process; and its garbage collector.

Garbage is not collected while a session is read; after a long one its objects are not visited any more.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from kimi_tui import own_process
from kimi_tui.soul.errors import TurnFailed

HARDENED = """
import ctypes, os, subprocess
from kimi_tui.own_process import harden
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)  # root may read everything
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
read = ["cat", f"/proc/{os.getpid()}/environ"]
before = subprocess.run(read, capture_output=True)
harden()
after = subprocess.run(read, capture_output=True)
print(b"hush-hush" in before.stdout, b"hush-hush" in after.stdout, after.returncode != 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_child_cannot_read_keys_from_our_environment() -> None:
    environ = {**os.environ, "KIMI_API_KEY": "hush-hush"}
    done = subprocess.run(
        [sys.executable, "-c", HARDENED], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False", "True"]


_GLIBC = hasattr(ctypes.CDLL(None), "mallopt") and Path("/proc/self/status").exists()

_PIECE_BYTES = 8_000_000
# After a piece of 8 MB was freed once, the C library takes the next one from its heap. Objects that are made after it keep
# the heap from shrinking.
_FREED_BETWEEN_OTHERS = f"""
from pathlib import Path
from kimi_tui import own_process
from kimi_tui.soul.errors import TurnFailed

def held_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon:")).split()[1]) * 1000

{{first}}
large = bytearray({_PIECE_BYTES})
del large
before = held_bytes()
large = bytearray(b"x" * {_PIECE_BYTES // 2})
behind = bytearray(400_000)
del large
{{then}}
print(held_bytes() - before)
"""


def _kept(first: str, then: str = "") -> int:
    """Return the number of bytes that a process keeps after large pieces were allocated and freed."""
    program = _FREED_BETWEEN_OTHERS.format(first=first, then=then)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(not _GLIBC, reason="the C library has no such choice")
def test_large_pieces_are_given_back_as_soon_as_they_are_freed() -> None:
    assert _kept("own_process.tune_malloc()") < _PIECE_BYTES // 4


@pytest.mark.skipif(not _GLIBC, reason="the C library has no such choice")
def test_what_was_kept_is_given_back_when_asked() -> None:
    assert _kept("", "own_process.trim_heap()") < _PIECE_BYTES // 4


@pytest.mark.skipif(not _GLIBC, reason="the C library has no such choice")
def test_without_either_it_is_kept() -> None:
    """This is the baseline of the others: if memory leaves without either measure, neither is needed."""
    assert _kept("") > _PIECE_BYTES // 4


@pytest.fixture
def as_it_was() -> Generator[None]:
    """Restore the state of Python's garbage collector afterwards, except for objects that others froze."""
    threshold, enabled = gc.get_threshold(), gc.isenabled()
    gc.unfreeze()
    yield
    gc.set_threshold(*threshold)
    (gc.enable if enabled else gc.disable)()
    gc.unfreeze()


@pytest.mark.usefixtures("as_it_was")
def test_nothing_is_collected_while_a_session_is_read() -> None:
    collector = own_process.GarbageCollector()
    collector.hold()
    collector.begin()
    assert not gc.isenabled()
    collector.release(1)
    assert gc.isenabled()
    assert not gc.get_freeze_count()


@pytest.mark.usefixtures("as_it_was")
def test_what_a_long_history_left_is_looked_at_again_with_the_next_one() -> None:
    collector = own_process.GarbageCollector()
    collector.begin()
    collector.hold()
    collector.release(own_process.LONG)
    assert gc.isenabled()
    assert gc.get_freeze_count()
    collector.hold()
    assert not gc.get_freeze_count()
    collector.release()
    assert gc.isenabled()


@pytest.mark.usefixtures("as_it_was")
def test_what_was_read_of_a_session_that_is_left_too_early_is_not_looked_at() -> None:
    collector = own_process.GarbageCollector()
    collector.begin()
    collector.abandon()
    assert not gc.get_freeze_count()
    collector.hold()
    collector.abandon()
    assert gc.isenabled()
    assert gc.get_freeze_count()


@pytest.mark.usefixtures("as_it_was")
def test_what_was_not_held_is_not_released() -> None:
    gc.disable()
    own_process.GarbageCollector().release(own_process.LONG)
    assert not gc.isenabled()
    assert not gc.get_freeze_count()


@pytest.mark.usefixtures("as_it_was")
def test_a_pause_ends_with_its_work_but_not_before_a_session_is_read() -> None:
    collector = own_process.GarbageCollector()
    collector.begin()
    with collector.paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), collector.paused():
        _ = 1 / 0
    assert gc.isenabled()
    with collector.paused():
        collector.hold()
    assert not gc.isenabled()
    with collector.paused():
        collector.release()
    assert gc.isenabled()


def test_the_event_loop_gets_its_turn_beside_a_thread_that_computes() -> None:
    before, computed = sys.getswitchinterval(), list[int]()

    def compute() -> None:
        computed.append(sum(n % 7 for n in range(5_000_000)))

    try:
        own_process.share_interpreter()
        thread, turns = threading.Thread(target=compute), 0
        thread.start()
        while thread.is_alive():
            # This gives up the lock, as a wait of the event loop does.
            time.sleep(0)
            turns += 1
    finally:
        sys.setswitchinterval(before)
    # The thread computes for a quarter of a second, and has the lock for one of them at a time.
    assert turns > 60


@pytest.mark.parametrize("option", ["-v", "-d"])
def test_too_low_a_limit_of_memory_is_one_line(option: str, tmp_path: Path) -> None:
    """Under such a limit the program hung: a thread that finds no memory dies before it tells anyone that it began."""
    environ = {
        "KIMI_TUI_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "KIMI_API_KEY": "k",
        "KIMI_MODEL_NAME": "m",
        "KIMI_BASE_URL": "http://127.0.0.1:9/v1",
    }
    program = f"ulimit {option} 390000; exec {sys.executable} -m kimi_tui -p hello"
    ran = subprocess.run(
        ["/bin/sh", "-c", program], env=environ, cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert ran.stderr == (
        f"kimi-tui: Memory is limited to 380 MiB here (ulimit {option}), and kimi-tui needs 384 MiB. "
        "Start it in a shell with a higher limit.\n"
    )
    assert not (tmp_path / "logs").exists()


def test_a_lack_of_memory_or_threads_is_told_from_other_errors() -> None:
    assert "raise the limit (ulimit -v)" in own_process.lack_of_memory(MemoryError())
    refused = own_process.lack_of_memory(RuntimeError("can't start new thread"))
    assert "refused another thread" in refused
    assert not own_process.lack_of_memory(RuntimeError("something else"))
    failed = TurnFailed(MemoryError())
    assert failed.message == own_process.lack_of_memory(MemoryError())
    assert "No message was lost." in failed.advice
