"""What the program and the process of a sub-agent tell each other, line by line, without a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.soul import launch_at

from kimi_tui.futures import agent_copies, set_files
from kimi_tui.futures.agent_child import AgentChild, ProgramApproval
from kimi_tui.futures.agent_copies import CopySet, _Copy
from kimi_tui.futures.orders import AgentOrder, Order, event_record, question_record
from kimi_tui.futures.turns import ModelServer, ModelTurns
from kimi_tui.futures.values import NoFutures
from kimi_tui.llm.message import user_message
from kimi_tui.session.session import Session
from kimi_tui.soul.agent_copies import CopyEnd, NoCopies
from kimi_tui.tools.base import ApprovalQuestion, Asks
from kimi_tui.tools.outcome import ToolProblem, ToolRejected
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import encode_record
from kimi_tui.wire.queue import Wire
from kimi_tui.workspace.base import NoBase

QUESTION = ApprovalQuestion(Asks("tool", is_change=True), "Write it?", "a.txt")
READY = {"ready": {"model": "stand-in", "mode": "all"}}
DONE = {"ended": {"reason": "done"}}


class Owner:
    """The session's side: it notes what it is told, and answers by `answer`."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.answer: str | BaseException = "yes"
        self.asked = asyncio.Event()

    def begun(self, model: str, facts: Sequence[ev.Event]) -> None:
        self.told.append(("begun", model, *facts))

    def heard(self, record: ev.EventRecord) -> None:
        self.told.append(("heard", record.event))

    def spent(self, cost: float) -> None:
        self.told.append(("spent", cost))

    def waits(self, words: str) -> None:
        self.told.append(("waits", words))

    def unsaid(self, text: str) -> None:
        self.told.append(("unsaid", text))

    async def ask(self, question: ApprovalQuestion, key: str, tool: str, also: object) -> str:
        self.told.append(("asked", question, key, tool))
        self.asked.set()
        if self.answer == "never":
            await asyncio.Event().wait()
        if isinstance(self.answer, BaseException):
            raise self.answer
        return str(self.answer)


class Process:
    """Stands for a `FutureProcess`: it tells lines, and notes what it is told."""

    lines: Sequence[Mapping[str, Any]] = ()
    why = ""
    before_end: Callable[[], Awaitable[object]] | None = None
    made: list[Process]

    def __init__(
        self, key: str, server: object, heard: Any, words: Sequence[str], folder: Path
    ) -> None:
        self.key, self.heard, self.words, self.folder = key, heard, words, folder
        self.said: list[dict[str, Any]] = []
        self.news = asyncio.Event()
        """Set when it was told something."""
        self.is_stopped = False
        self.order: Order | None = None
        type(self).made.append(self)

    async def run(self, order: Order) -> str:
        self.order = order
        for line in type(self).lines:
            self.heard(line)
        if (before_end := type(self).before_end) is not None:
            await before_end()
        return type(self).why

    def say(self, **message: Any) -> None:
        self.said.append(message)
        self.news.set()

    async def stop(self) -> None:
        self.is_stopped = True


class Scene:
    """A copy whose process a test plays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Path, tier: str = "overlay") -> None:
        self.process = type("Played", (Process,), {"made": []})
        monkeypatch.setattr(agent_copies, "FutureProcess", self.process)
        self.moves: list[tuple[Path, Path]] = []
        monkeypatch.setattr(
            set_files, "move_to", lambda _, before, now: self.moves.append((before, now))
        )
        monkeypatch.setattr(agent_copies, "move_to", set_files.move_to)
        self.owner = Owner()
        self.gone: list[str] = []
        self.turns = ModelTurns(lambda _: 2, self.gone.append, lambda *_: None)
        self.turns.join("key", ModelServer("http://server", "m"))

        async def view() -> Any:
            words = lambda: ("over:there",)  # noqa: E731
            return SimpleNamespace(
                tier=tier, words=words, folder=work / "view", variables={"A": "b"}
            )

        self.copy = _Copy(
            "key",
            SimpleNamespace(view=view),  # type: ignore[arg-type]
            SimpleNamespace(),  # type: ignore[arg-type]
            self.turns,
            Session(work / "session", work),
            Order("session", "Do it.", {}, {}),
            self.owner,  # type: ignore[arg-type]
        )

    def plays(self, *lines: Mapping[str, Any], why: str = "") -> None:
        self.process.lines, self.process.why = lines, why

    @property
    def said(self) -> list[dict[str, Any]]:
        return self.process.made[0].said


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    return Scene(monkeypatch, tmp_path)


def record(event: ev.Event, source: str = "") -> dict[str, Any]:
    return {"record": encode_record(ev.EventRecord(1, 1.0, event, source=source))}


async def test_all_that_it_tells_reaches_the_session(scene: Scene) -> None:
    retry = ev.StepRetry(1, 1, 2, 0.5, "busy", status=429)
    broken = ev.StepRetry(1, 2, 2, 0.5, "broken", status=500)
    refused: list[str] = []
    scene.turns.refused = refused.append  # type: ignore[method-assign]
    scene.plays(
        READY,
        {"facts": [event_record(ev.ModeChanged("all")), "nonsense", {"type": "Unknown"}]},
        record(ev.TextPart("I begin.")),
        record(ev.TextPart("of another"), "other"),
        {"record": "nonsense"},
        record(retry),
        record(broken),
        {"spent": [1, 2, 3, 0.25]},
        {"spent": [1, 2, 3]},
        {"spent": [1, 2, 3, "x"]},
        {"gate": "ask"},
        {"gate": "nonsense"},
        {"nothing": "known"},
        DONE,
    )
    assert await scene.copy.run() == CopyEnd("done")
    assert scene.owner.told == [
        ("begun", "stand-in", ev.ModeChanged("all")),
        ("heard", ev.TextPart("I begin.")),
        ("heard", retry),
        ("heard", broken),
        ("spent", 0.25),
    ]
    assert refused == ["key"]
    assert scene.gone == ["key"]
    (played,) = scene.process.made
    assert (played.key, played.words, played.folder.name) == (
        *("key", ("level:view", "over:there"), "view"),
    )
    assert played.order is not None
    assert {"A": "b"}.items() <= played.order.variables.items()
    assert int(played.order.variables["PORT"]) > 0
    assert scene.moves == []
    # Nobody listens any more.
    scene.copy.set_mode("ask")
    assert scene.said == []


@pytest.mark.parametrize(
    ("lines", "why", "end"),
    [
        ((READY, {"ended": {"reason": "rejected"}}), "", CopyEnd("rejected")),
        (
            (READY, {"ended": {"reason": "error", "error": "No.", "advice": "Do."}}),
            "",
            CopyEnd("error", "No.", "Do."),
        ),
        (
            (READY, {"ended": {"reason": "interrupted", "limit": "Too much."}}),
            "",
            CopyEnd("error", "Too much."),
        ),
        ((READY,), "It was killed.", CopyEnd("error", "It was killed.")),
        ((READY,), "", CopyEnd("error", "Its process exited before it was done.")),
        (
            (READY, {"ended": {"reason": "odd"}}),
            "",
            CopyEnd("error", "Its process exited before it was done."),
        ),
    ],
)
async def test_how_it_ended(
    scene: Scene, lines: Sequence[Mapping[str, Any]], why: str, end: CopyEnd
) -> None:
    scene.plays(*lines, why=why)
    assert await scene.copy.run() == end


@pytest.mark.parametrize("why", ["It cannot be mounted.", ""])
async def test_one_that_did_nothing_cannot_work_here(scene: Scene, why: str) -> None:
    scene.plays(why=why)
    scene.copy.say("early")
    with pytest.raises(NoCopies, match=why or "exited before it was done"):
        await scene.copy.run()
    assert scene.owner.told == [("unsaid", "early")]


async def test_a_disk_that_refuses_is_the_reason(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scene.process, "run", refuses)
    with pytest.raises(NoCopies, match="No space left on device"):
        await scene.copy.run()


async def test_it_is_told_what_was_said_before_it_could_take_it(scene: Scene) -> None:
    scene.plays(READY, {"facts": []}, DONE)
    scene.copy.say("early")

    async def later() -> None:
        scene.copy.say("now")
        scene.copy.say("too late")
        for taken in (
            ev.SteerTaken("1", "early", number=1),
            ev.SteerTaken("2", "now", number=2),
            ev.SteerTaken("3", "too late", withdrawn=True, handed_back=True),
        ):
            scene.process.made[0].heard(record(taken))
        scene.copy.set_mode("plan")
        scene.copy.end("Too much.")
        scene.copy.go()
        scene.copy.publish(ev.ModeChanged("ask"))

    scene.process.before_end = staticmethod(later)
    await scene.copy.run()
    assert scene.said == [
        {"type": "steer", "text": "early"},
        {"type": "steer", "text": "now"},
        {"type": "steer", "text": "too late"},
        {"type": "mode", "mode": "plan"},
        {"type": "limit", "text": "Too much."},
        {"type": "go"},
        {"type": "event", "event": event_record(ev.ModeChanged("ask"))},
    ]
    # The program gives back what did not go into its conversation.
    assert [one for one in scene.owner.told if one[0] == "unsaid"] == [("unsaid", "too late")]


async def test_one_that_is_stopped_before_its_process_starts_starts_none(scene: Scene) -> None:
    await scene.copy.stop()
    assert await scene.copy.run() == CopyEnd("interrupted")
    assert [one.order for one in scene.process.made] == [None]


async def test_a_stop_reaches_its_process(scene: Scene) -> None:
    scene.plays(READY)
    scene.process.before_end = staticmethod(scene.copy.stop)
    assert await scene.copy.run() == CopyEnd("interrupted")
    assert scene.process.made[0].is_stopped


async def test_its_session_is_that_of_its_folder_while_it_works_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scene = Scene(monkeypatch, tmp_path, "elsewhere")
    scene.plays(READY, DONE)
    await scene.copy.run()
    assert scene.moves == [(tmp_path, tmp_path / "view"), (Path(), tmp_path)]
    assert scene.process.made[0].words == ()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("instead", {"text": "instead"}),
        (ToolRejected("no, thanks"), {"rejected": "no, thanks"}),
        (ToolProblem("Not now.", brief="plan"), {"problem": "Not now.", "brief": "plan"}),
        (KeyError("x"), {"problem": "The question could not be asked: KeyError."}),
    ],
)
async def test_a_question_is_answered_and_its_process_takes_the_answer(
    scene: Scene, answer: Any, told: dict[str, Any]
) -> None:
    lines: list[dict[str, Any]] = []
    its = ProgramApproval(Wire(), "ask", lines.append)
    asking = asyncio.create_task(its.ask(QUESTION, key="k", tool="WriteFile"))
    await asyncio.sleep(0)
    assert lines == [
        {"ask": 1, "question": question_record(QUESTION), "key": "k", "tool": "WriteFile"}
    ]
    scene.owner.answer = answer
    scene.plays(READY, *lines)

    async def answered() -> None:
        await scene.process.made[0].news.wait()

    scene.process.before_end = staticmethod(answered)
    await scene.copy.run()
    assert scene.owner.told == [("asked", QUESTION, "k", "WriteFile")]
    assert scene.said == [{"type": "answered", "id": 1, **told}]
    # Answers to other questions, and a second one to this, change nothing.
    for line in ({"id": 2, "text": "x"}, {"id": "1"}, {}, *scene.said, *scene.said):
        its.answered(line)
    if isinstance(answer, str):
        assert await asking == answer
    else:
        kind = ToolRejected if isinstance(answer, ToolRejected) else ToolProblem
        with pytest.raises(kind) as raised:
            await asking
        if isinstance(answer, ToolProblem):
            assert (str(raised.value), getattr(raised.value, "brief", "")) == ("Not now.", "plan")
    assert its._waiting == {}


async def test_a_question_is_withdrawn_with_its_call(scene: Scene) -> None:
    lines: list[dict[str, Any]] = []
    its = ProgramApproval(Wire(), "ask", lines.append)
    asking = asyncio.create_task(its.ask(QUESTION, key="k", tool="WriteFile"))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert lines[1:] == [{"unask": 1}]
    scene.owner.answer = "never"
    scene.plays(READY, lines[0])

    async def withdrawn() -> None:
        await scene.owner.asked.wait()
        scene.process.made[0].heard({"unask": 7})
        scene.process.made[0].heard(lines[1])
        await scene.process.made[0].news.wait()

    scene.process.before_end = staticmethod(withdrawn)
    await scene.copy.run()
    ((answer),) = scene.said
    assert (answer["id"], answer["brief"]) == (1, "question withdrawn")
    # The callback that forgets a task may come only in the next round of the loop.
    await asyncio.sleep(0)
    assert scene.copy._asking == {}


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NoFutures("There are no snapshots.", "target"), "There are no snapshots."),
        (NoBase("There is no room."), "There is no room."),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
async def test_where_the_files_cannot_be_made_the_reason_is_told_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    async def settled() -> None: ...

    def refuses(*_: object) -> Any:
        raise error

    soul: Any = SimpleNamespace(
        session=Session(tmp_path / "session", tmp_path),
        file_history=SimpleNamespace(settled=settled),
        folder=SimpleNamespace(reason=""),
    )
    copies = CopySet(soul, launch_at(tmp_path), 2)
    monkeypatch.setattr(copies._planner, "files", refuses)
    with pytest.raises(NoCopies) as no:
        await copies.open()
    assert str(no.value) == why
    assert copies._is_closed


class Heard:
    """Stands for the engine of a sub-agent in its process."""

    def __init__(self, messages: Sequence[Any] = ()) -> None:
        self.did: list[Any] = []
        self.facts: tuple[ev.Event, ...] = (ev.ModeChanged("all"),)
        self.status = ev.TitleChanged("a title")
        self.session = SimpleNamespace(context=SimpleNamespace(messages=messages))
        self.inbox = SimpleNamespace(steers=())
        self.wire = SimpleNamespace(publish=self.did.append)

    def say(self, text: str) -> None:
        self.did.append(("say", text))

    async def run(self, text: str) -> None:
        self.did.append(("run", text))

    async def resume(self) -> None:
        self.did.append("resume")


def process(message: str = "", said: Sequence[str] = ()) -> tuple[AgentChild, list[Any]]:
    """Return the object of a sub-agent's process, and the list of what it tells."""
    agent = AgentOrder("general-1", "owner", "work", {}, list(said), 3, 0, 0.0)
    told: list[Any] = []
    child = AgentChild(
        Order("session", message, {}, {}, agent=agent._asdict()),
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
    )
    child._tell = told.append  # type: ignore[method-assign]
    return child, told


@pytest.mark.parametrize(
    ("message", "said", "messages", "did"),
    [
        ("Do it.", [], [], [("run", "Do it.")]),
        ("", ["now"], [user_message("hi")], [("say", "now"), "resume"]),
        ("", [], [user_message("hi")], ["resume"]),
        ("", [], [], []),
    ],
)
async def test_its_turn_begins_or_goes_on(
    message: str, said: list[str], messages: list[Any], did: list[Any]
) -> None:
    child, told = process(message, said)
    soul = Heard(messages)
    await child._turn(soul)  # type: ignore[arg-type]
    assert soul.did == did
    assert told == [{"facts": [event_record(soul.facts[0]), event_record(soul.status)]}]
    assert child._turn_over.is_set() == (not did)


async def test_its_process_takes_what_the_program_tells() -> None:
    child, told = process()
    # Before its session is open there is nothing to tell.
    for line in ({"type": "steer", "text": "x"}, {"type": "mode"}, {"type": "answered", "id": 1}):
        assert child._take(line)
    wire = Wire()
    its = child._approve("ask", wire)
    assert isinstance(its, ProgramApproval)
    soul = Heard()
    child._soul = soul  # type: ignore[assignment]
    event = ev.ModeChanged("all")
    assert child._take({"type": "event", "event": event_record(event)})
    assert child._take({"type": "event", "event": "nonsense"})
    assert child._take({"type": "mode", "mode": "plan"})
    assert child._take({"type": "steer", "text": "now"})
    assert its.mode == "plan"
    asking = asyncio.create_task(its.ask(QUESTION, key="k", tool="WriteFile"))
    await asyncio.sleep(0)
    assert child._take({"type": "answered", "id": 1, "text": "yes"})
    assert await asking == "yes"
    assert not child._take({"type": "go"})
    child._end = ev.TurnEnd("done")
    assert child._take({"type": "steer", "text": "too late"})
    assert soul.did == [event, ("say", "now")]
    assert told[1:] == []
