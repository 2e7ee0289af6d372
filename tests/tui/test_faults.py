"""An error of a callback or a task is reported, wherever it is scheduled, and nothing else stops because of it."""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import warnings
from contextvars import Context, copy_context
from pathlib import Path

import pytest
from support.cases import first_only
from support.chat_server import ChatServer, call, say
from support.screens import desk
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Size
from textual.message_pump import MessagePump
from textual.widgets import Static
from textual.worker import Worker

import kimi_tui.tui
from kimi_tui.projection import session_model as main_model
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.tokens import GaugeModel
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tui.faults import FAULT, Callbacks, each, reported, run_detached
from kimi_tui.wire.events import EventRecord, StepBegin, TurnBegin

TUI = Path(kimi_tui.tui.__file__).parent
OWN = TUI / "faults.py"
BARE = frozenset(
    {
        "call_at",
        "call_soon",
        "call_soon_threadsafe",
        "create_task",
        "ensure_future",
        "add_done_callback",
        "add_signal_handler",
        "add_reader",
        "add_writer",
        "run_in_executor",
        "run_coroutine_threadsafe",
    }
)


def bare_calls(source: str) -> list[int]:
    """Return the lines that schedule on the event loop without a report of what is raised there."""
    found: list[int] = []
    # Most modules name none of them: these need not be parsed.
    if not any(name in source for name in (*BARE, "call_later", "exit_on_error")):
        return found
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        # Few names need the owner of the call, so it is written out for these alone: it is the most expensive part.
        owner = ast.unparse(node.func.value) if name in BARE or name == "call_later" else ""
        of_loop = "loop" in owner.lower() or owner == "asyncio"
        is_ours = "callbacks" in owner.lower()
        swallows = any(
            keyword.arg == "exit_on_error"
            and isinstance(keyword.value, ast.Constant)
            and not keyword.value.value
            for keyword in node.keywords
        )
        if (name in BARE and not is_ours) or (name == "call_later" and of_loop) or swallows:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "source",
    [
        "asyncio.get_running_loop().call_later(1, f)",
        "loop.call_at(1, f)",
        "self._loop.call_soon(f)",
        "asyncio.create_task(f())",
        "asyncio.ensure_future(f())",
        "task.add_done_callback(f)",
        "self.run_worker(f(), exit_on_error=False)",
    ],
)
def test_what_is_forbidden_is_found(source: str) -> None:
    assert bare_calls(source) == [1]


@pytest.mark.exhaustive
def test_nothing_is_scheduled_without_a_report() -> None:
    bare = [
        f"{path.relative_to(TUI)}:{line}"
        for path in sorted(TUI.rglob("*.py"))
        if path != OWN
        for line in bare_calls(path.read_text("utf-8"))
    ]
    assert not bare, "use kimi_tui.tui.faults"


async def test_callbacks_and_tasks_report_what_they_raise() -> None:
    errors: list[Exception] = []
    callbacks = Callbacks(errors.append)
    done = asyncio.Event()

    async def fails() -> None:
        raise ValueError("task")

    def fail() -> None:
        raise ValueError("callback")

    callbacks.call_later(0.0, fail)
    ended = asyncio.Event()
    callbacks.start(fails(), ended.set)
    await ended.wait()
    callbacks.call_later(0.0, done.set)
    await done.wait()
    assert sorted(map(str, errors)) == ["callback", "task"]


async def test_closing_ends_what_still_runs() -> None:
    callbacks = Callbacks(lambda error: None)
    task = callbacks.start(asyncio.sleep(3600, None))
    await asyncio.sleep(0)
    await callbacks.close()
    assert task.cancelled()


async def test_what_is_cancelled_before_it_begins_is_closed() -> None:
    async def nothing() -> None:
        pass

    callbacks = Callbacks(lambda error: None)
    ended: list[bool] = []
    work = nothing()
    callbacks.start(work, lambda: ended.append(True))
    await callbacks.close()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
    assert ended == [True]


@pytest.mark.exhaustive
async def test_the_work_of_a_worker_begins_with_it() -> None:
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")
        raise ValueError("later")

    class Reporting(App[None]):
        def report(self, error: Exception) -> None:
            begun.append(str(error))

    async with Reporting().run_test() as pilot:
        app = pilot.app
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            # A search does this with every letter: the earlier worker is cancelled before it has begun.
            app.run_worker(reported(app, work), exclusive=True)
            last = app.run_worker(reported(app, work, begun.append), exclusive=True)
            await last.wait()
            # Coroutines that others left may be collected here, too; collecting everything would take long.
            gc.collect(1)
        assert not [one for one in warned if issubclass(one.category, RuntimeWarning)]
        assert begun[:2] == ["work", "later"]
        assert begun[2].startswith(FAULT)


def test_each_goes_on_behind_what_fails() -> None:
    taken: list[int] = []
    errors: list[Exception] = []

    def take(number: int) -> None:
        taken.append(10 // number)

    assert not each((1, 0, 2), take, errors.append)
    assert taken == [10, 5]
    assert isinstance(errors[0], ZeroDivisionError)
    assert each((1,), take, errors.append)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.sample
@pytest.mark.parametrize("kind", [TimelineModel, GaugeModel, TranscriptModel])
@pytest.mark.parametrize("again", first_only([True, False]))
async def test_a_view_that_cannot_take_an_event_is_told_of_and_the_others_go_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, kind: type, again: bool
) -> None:
    apply = kind.apply
    failures: list[int] = []

    def broken(self: object, record: EventRecord, *told: object) -> object:
        # The second step of the only turn fails, if `again` also when the view is rebuilt.
        if isinstance(record.event, StepBegin) and record.event.n == 2 and (again or not failures):
            failures.append(record.seq)
            raise RuntimeError("this view is broken")
        return apply(self, record, *told)

    monkeypatch.setattr(kind, "apply", broken)
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(
            call("ReadFile", {"path": "nothing"}), say("The first answer."), say("The second.")
        )
        await one.ready()
        await one.say("A question")
        await one.until(lambda: bool(failures))
        await one.sees("kimi-tui had an internal error")
        await one.sees("The first answer.")
        await one.idle()
        log = (home / "logs" / "kimi-tui.log").read_text()
        assert "this view is broken" in log
        assert "Traceback" in log
        await one.say("Another question")
        shown = await one.sees("The second.")
        await one.idle()
        assert one.app.is_running
        # Both turns stand on the timeline, whatever was broken.
        timeline = one.screen.bench.views.timeline.model
        assert timeline is not None
        await one.until(lambda: len(timeline_points(one.screen.bench.views.timeline.model)) == 5)
        assert "2 " in shown
        # The fault is reported, but only once, so that it does not fill the log.
        assert (home / "logs" / "kimi-tui.log").read_text().count("Traceback") == 1


def timeline_points(model: TimelineModel | None) -> list[object]:
    """Return the checkpoints that it shows."""
    return list(model.tree.live) if model is not None else []


@pytest.mark.exhaustive
async def test_a_fault_in_the_frame_of_the_screen_is_told_of(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce = main_model.reduce

    def broken(state: object, record: EventRecord) -> object:
        if isinstance(record.event, TurnBegin):
            raise RuntimeError("this frame is broken")
        return reduce(state, record)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(main_model, "reduce", broken)
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("The answer."))
        await one.ready()
        await one.say("A question")
        await one.sees("The answer.")
        await one.sees("kimi-tui had an internal error")


async def test_what_nobody_caught_on_the_loop_is_told_of(home: Path) -> None:
    def fail() -> None:
        raise RuntimeError("nobody catches this")

    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        asyncio.get_running_loop().call_soon(fail)
        await one.sees("kimi-tui had an internal error")
        assert "nobody catches this" in (home / "logs" / "kimi-tui.log").read_text()


async def test_what_is_scheduled_holds_no_widget() -> None:
    class Shown(Static):
        """Schedules in its own handler, and from a worker of its own."""

        def on_mount(self) -> None:
            callbacks = Callbacks(lambda error: None)
            look()
            callbacks.call_later(0, look)
            self.run_worker(self._work(callbacks))

        async def _work(self, callbacks: Callbacks) -> None:
            callbacks.start(looking())
            await run_detached(looking())

    contexts: list[Context] = []
    whole = asyncio.Event()

    def look() -> None:
        contexts.append(copy_context())
        if len(contexts) == 4:
            whole.set()

    async def looking() -> None:
        look()

    class Showing(App[None]):
        def compose(self) -> ComposeResult:
            yield Shown()

    app = Showing()
    async with app.run_test():
        async with asyncio.timeout(50):
            await whole.wait()
        named = [
            {type(value) for value in context.values() if isinstance(value, MessagePump | Worker)}
            for context in contexts
        ]
        assert named.count({type(app)}) == 3
        assert {Shown, type(app)} in named  # the handler's own


@pytest.mark.exhaustive
async def test_a_timer_comes_and_the_window_follows_however_late_the_clock_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    now = 0.0

    def later() -> float:
        nonlocal now
        now += 10.0  # others have the processor between any two looks
        return now

    async with ChatServer() as server, desk(tmp_path, server.base_url, size=(120, 40)) as one:
        with monkeypatch.context() as patched:
            patched.setattr("textual.timer._time.get_time", later)
            came = asyncio.Event()
            one.screen.set_timer(0.002, came.set)
            await asyncio.wait_for(came.wait(), 20)
            one.app.post_message(events.Resize(Size(100, 30), Size(100, 30)))
            await one.until(lambda: one.screen.size == Size(100, 30))
