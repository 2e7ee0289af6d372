"""Long reads run in threads that the end of the program does not wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.session import context
from kimi_tui.session.session import Session
from kimi_tui.soul import history
from kimi_tui.soul.history import take_up_history

STORED = Path(__file__).parent / "soul" / "damaged_records" / "not-doubled"
FILES = ("context.jsonl", "wire.jsonl")
PATIENCE_S = 20.0
"""Only a test that fails waits for so long."""

Work = Callable[[], Coroutine[Any, Any, object]]


class Gate:
    """Holds the thread that comes to it, as a file on a dead disk would."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def wait(self, *_arguments: Any, **_options: Any) -> Any:
        self.reached.set()
        self.opened.wait(PATIENCE_S)
        raise OSError("the gate was opened")


@pytest.fixture
def gate() -> Any:
    made = Gate()
    yield made
    made.opened.set()


def ends(gate: Gate, work: Work) -> bool:
    """Run work on an event loop of its own, cancel it once it is held at the gate, and return whether the loop ends."""

    async def main() -> None:
        task = asyncio.create_task(work())  # type: ignore[arg-type]
        assert await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        task.cancel()
        await asyncio.wait([task])

    running = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    running.start()
    running.join(PATIENCE_S / 2)
    return not running.is_alive()


async def test_result_and_error_come_back() -> None:
    assert await in_daemon_thread(divmod, 7, 2) == (3, 1)
    assert await in_daemon_thread(int, "11", base=2) == 3
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(divmod, 7, 0)


async def test_the_function_sees_the_context_variables_of_its_caller() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("of the caller")
    assert await in_daemon_thread(variable.get) == "of the caller"


def test_the_event_loop_ends_while_a_thread_reads(gate: Gate) -> None:
    assert ends(gate, lambda: in_daemon_thread(gate.wait))


def _copied(folder: Path) -> Session:
    return Session(Path(copytree(STORED, folder / "stored")), folder)


def _bytes(session: Session) -> list[bytes]:
    return [(session.dir / name).read_bytes() for name in FILES]


async def _open_and_take_up(session: Session) -> None:
    try:
        await session.open()
        await take_up_history(session)
    finally:
        await session.aclose()


@pytest.mark.parametrize(("module", "name"), [(context, "scan"), (history, "read_stored")])
def test_the_event_loop_ends_while_a_session_is_read(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    session = _copied(tmp_path)
    before = _bytes(session)
    monkeypatch.setattr(module, name, gate.wait)
    assert ends(gate, lambda: _open_and_take_up(session))
    monkeypatch.undo()
    assert _bytes(session) == before
    # The lock is free, and the session is whole.
    again = Session(session.dir, tmp_path)
    asyncio.run(_open_and_take_up(again))
    assert again.report is not None
    assert not again.report.sentences()


def test_a_write_is_waited_for(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write under way when the loop ends is done when it has ended."""
    written, begun = tmp_path / "written", threading.Event()

    def write() -> None:
        begun.set()
        gate.opened.wait(PATIENCE_S)
        written.write_text("whole")

    async def work() -> None:
        writing = asyncio.ensure_future(asyncio.to_thread(write))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        try:
            await in_daemon_thread(gate.wait)
        finally:
            gate.opened.set()
            writing.cancel()

    assert ends(gate, work)
    assert written.read_text() == "whole"
