"""The session's side of sub-agents that write at the same time: their files, figures, words, questions and ends, without processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from support.chat_server import Answer, Request, call, calls, gate, say, strict
from support.copies_here import CopiesHere, CopyHere
from support.soul import Stage, next_event, stage, until_end

from kimi_tui.session.errors import SessionLocked
from kimi_tui.session.session import Session
from kimi_tui.soul.agent_copies import NoCopies
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.model_slot import Budget
from kimi_tui.soul.rewind_values import Target
from kimi_tui.soul.subagents import Subagents
from kimi_tui.wire import events as ev
from kimi_tui.workspace.restore import FileChange
from kimi_tui.workspace.tracker import Brought, Tracker

SCRIPTS: dict[str, list[Answer]] = {}
"""The answers to each sub-agent, by the word of its task, and those to the session's agent by no word."""


def act(request: Request) -> Answer:
    """Answer an agent by its task."""
    if (refused := strict(request)) is not None:
        return refused
    word = ""
    if "You are a sub-agent" in str(request.messages[0]["content"]):
        task = str(request.messages[1]["content"])
        word = next(one for one in SCRIPTS if one and f"do {one}" in task)
    return SCRIPTS[word].pop(0)


def both(*words: str) -> Answer:
    """Have a sub-agent for each of these words called at once."""
    return calls(
        [
            ("Agent", {"description": word, "prompt": f"do {word}", "kind": "general"})
            for word in words
        ],
        usage=(10, 1),
    )


def write(path: str, text: str = "new\n", **options: Any) -> Answer:
    return call("WriteFile", {"path": path, "content": text}, **options)


class Beside(NamedTuple):
    on: Stage
    copies: CopiesHere

    @property
    def agents(self) -> Subagents:
        assert isinstance(self.on.soul.agents, Subagents)
        return self.on.soul.agents

    def script(self, **answers: Sequence[Answer]) -> None:
        """Have two or more sub-agents called at once, and each give its answers."""
        SCRIPTS[""] = [both(*answers), say("all", usage=(10, 1))]
        SCRIPTS.update({word: [*some] for word, some in answers.items()})

    def made(self) -> list[CopyHere]:
        """Return the copies in the order of the calls."""
        return sorted(self.copies.made, key=lambda one: one.place)

    def results(self) -> list[tuple[str, str]]:
        """Return what the session's agent was told of each sub-agent, and what that answered."""
        texts = [m.text for m in self.on.soul.session.context.messages if m.role == "tool"]
        found = [one.removeprefix("<system>").partition("</system>") for one in texts]
        return [(told, said) for told, _, said in found]


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncGenerator[Beside]:
    SCRIPTS.clear()
    async with stage(tmp_path) as on:
        on.server.route("POST", "/v1/chat/completions", act)
        (on.work / "a.txt").write_text("a\n")
        on.soul.use_agents()
        on.soul.agent_copies = copies = CopiesHere(on.soul, tmp_path)
        yield Beside(on, copies)


async def test_their_files_come_in_order_of_the_calls(beside: Beside) -> None:
    on = beside.on
    beside.script(
        one=[write("b.txt", usage=(100, 10)), say("first", usage=(50, 5))],
        two=[write("c.txt", usage=(30, 3)), say("second", usage=(20, 2))],
    )
    assert await on.soul.run("go") == "done"
    assert beside.results() == [
        ("general-1, 2 steps, 1 file changed.", "first"),
        ("general-2, 2 steps, 1 file changed.", "second"),
    ]
    one, two = beside.made()
    assert [(copy.place, copy.order.text) for copy in (one, two)] == [(0, "do one"), (1, "do two")]
    assert ((one.at / "b.txt").exists(), (two.at / "b.txt").exists()) == (True, False)
    assert beside.copies.counts == [2]
    assert on.ear.notices() == []
    first, second = beside.agents.states
    assert [(one.state, one.step, one.calls, one.files) for one in (first, second)] == [
        ("done", 2, 1, 1)
    ] * 2
    assert (first.input, first.output, second.tokens) == (150, 15, 55)
    assert (on.soul.status.total_input, on.soul.status.total_output) >= (200, 20)
    assert (first.is_future, first.model, first.cost) == (True, "stand-in", -1.0)
    assert (on.work / "c.txt").read_text() == "new\n"
    for state in (first, second):
        folder = on.session.dir / "subagents" / state.name
        assert not (folder / "files").exists()
        assert json.loads((folder / "agent.json").read_text())["copy"] == ""
        assert beside.agents._agents[state.name].soul is None
    await on.soul.travel.rewind(Target(0), "restore")
    assert [one.name for one in on.work.iterdir()] == ["a.txt"]
    await on.soul.travel.undo()
    assert (on.work / "b.txt").exists()


async def test_one_that_ends_first_waits_for_its_turn_and_takes_nothing_more(
    beside: Beside,
) -> None:
    on, agents = beside.on, beside.agents
    closed: list[int] = []
    beside.copies.before_end = lambda _: closed.append(beside.copies.n_closed)
    beside.script(one=[gate(0, say("first"))], two=[write("c.txt"), say("second")])
    heard = on.soul.wire.subscribe()
    turn = asyncio.create_task(on.soul.run("go"))
    waits = await next_event(heard, ev.AgentChanged, lambda one: one.why.startswith("It has ended"))
    assert (waits.name, waits.state, waits.doing) == ("general-2", "waiting", "")
    with pytest.raises(SoulError, match="general-2 has ended"):
        agents.steer("general-2", "too late")
    await agents.stop("general-2")
    assert agents._agents["general-2"].soul is None
    assert not (on.work / "c.txt").exists()
    on.server.release()
    assert await turn == "done"
    assert [one.state for one in agents.states] == ["done", "done"]
    assert (on.work / "c.txt").exists()
    with pytest.raises(SoulError, match="general-1 has ended"):
        agents.steer("general-1", "too late")
    # The files of the set are removed when all have ended.
    assert closed == [0, 0]
    assert beside.copies.n_closed == 1


async def test_what_differs_in_the_work_folder_is_told_and_kept_aside(beside: Beside) -> None:
    on = beside.on
    (on.work / "sub").mkdir()
    for name in ("b", "c", "d"):
        (on.work / "sub" / name).write_text("old\n")
    first = "for one in a.txt sub/b sub/c sub/d; do echo first > $one; done"
    second = "echo 2 > a.txt; echo second > sub/b; rm sub/c; ln -sf b sub/d; echo own > own.txt"
    beside.script(
        one=[call("Shell", {"command": first}), say("first")],
        two=[call("Shell", {"command": second}), say("second")],
    )
    assert await on.soul.run("go") == "done"
    assert (on.work / "own.txt").exists()
    assert (on.work / "sub" / "b").read_text() == "first\n"
    (_, (told, _)) = beside.results()
    kept = on.session.dir / "results" / "general-2"
    lines = told.split("\n")
    assert lines[0].endswith("Its changes of 4 files were not applied to the work folder:")
    assert sorted(lines[1:-1]) == [
        f"- a.txt: also changed in the work folder; its version is in {kept / 'a.txt'}",
        f"- sub/b: also changed in the work folder; its version is in {kept / 'sub' / 'b'}",
        "- sub/c: also changed in the work folder; it deleted the file",
        "- sub/d: also changed in the work folder; its version is a symbolic link, which was not copied",
    ]
    assert lines[-1] == "Merge them yourself if they are needed."
    assert [(kept / name).read_text() for name in ("a.txt", "sub/b")] == ["2\n", "second\n"]
    assert kept.stat().st_mode & 0o77 == 0


@pytest.mark.parametrize(("n_conflicts", "n_failures", "more"), [(45, 1, 5), (39, 1, 0)])
def test_of_many_files_that_differ_some_are_named(
    tmp_path: Path, n_conflicts: int, n_failures: int, more: int
) -> None:
    agents = object.__new__(Subagents)
    agents._main = SimpleNamespace(session=SimpleNamespace(dir=tmp_path))  # type: ignore[assignment]
    agent = SimpleNamespace(state=SimpleNamespace(name="general-1"))
    conflicts = tuple(FileChange(f"{n}.txt", "conflict", None, None) for n in range(n_conflicts))
    failures = {f"{n}.bin": "it is busy" for n in range(n_failures)}
    brought = Brought(conflicts=conflicts, failures=failures)
    words = agents._files_words(agent, brought, "")  # type: ignore[arg-type]
    assert f"Its changes of {n_conflicts + n_failures} files were not applied" in words
    assert words.count("it deleted the file") == min(n_conflicts, 40)
    assert words.count("\n- 0.bin: it is busy") == 1
    assert (f"\nAnd {more} more.\n" in words) == bool(more)
    assert "more." in words or not more
    assert agents._files_words(agent, Brought(("a",)), "") == ""  # type: ignore[arg-type]
    assert "could not be applied to the work folder: full." in agents._files_words(
        agent,  # type: ignore[arg-type]
        Brought(),
        "full",
    )


async def test_what_the_disk_refuses_is_brought_before_the_next_turn(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = beside.on
    apply = Tracker.apply_difference
    refusals = {"general-1": 3, "general-2": 1}

    def refuses(self: Tracker, *given: Any) -> Brought:
        refusals[given[-1]] -= 1
        if refusals[given[-1]] >= 0:
            raise OSError(28, "No space left on device")
        return apply(self, *given)

    monkeypatch.setattr(Tracker, "apply_difference", refuses)
    beside.script(one=[write("b.txt"), say("first")], two=[write("c.txt"), say("second")])
    assert await on.soul.run("go") == "done"
    assert [told.partition(". ")[2] for told, _ in beside.results()] == [
        "Its file changes could not be applied to the work folder: No space left on device. "
        "kimi-tui tries again before the next turn."
    ] * 2
    while beside.agents._closing:
        await asyncio.wait(beside.agents._closing)
    # The one whose files cannot be brought does not keep those of the other back.
    assert [name for name in ("b.txt", "c.txt") if (on.work / name).exists()] == ["c.txt"]
    assert on.ear.notices() == []
    (on.work / "b.txt").write_text("by a person\n")
    await beside.agents.settle()
    (notice,) = [one.text for one in on.ear.notices()]
    assert notice.startswith("general-1: It worked on its own copy")
    assert "b.txt: also changed in the work folder" in notice
    assert (on.work / "b.txt").read_text() == "by a person\n"
    await beside.agents.settle()
    assert len(on.ear.notices()) == 1


# -- words, questions and figures ----------------------------------------------------------------------


async def test_it_is_told_modes_and_words_and_its_events_are_heard(beside: Beside) -> None:
    on, agents = beside.on, beside.agents
    beside.script(
        one=[gate(0, write("b.txt")), gate(0, say("first"))],
        two=[gate(0, say("second"))],
    )
    turn = asyncio.create_task(on.soul.run("go"))
    await on.server.received(3)
    one, two = beside.made()
    # Its history is at hand while another process has its session.
    history, subscription = await agents.listen("general-1")
    _, gone = await agents.listen("general-1")
    await agents.unlisten("general-1", gone)
    gone.drain()
    assert [type(record.event) for record in history].count(ev.TurnBegin) == 1
    await on.soul.set_mode("edits")
    one.owner.heard(ev.EventRecord(0, 0.0, ev.ModeChanged("plan")))
    agents.steer("general-1", "be quick")
    one.owner.waits("Waiting for a free slot.")
    # Its card says so as what it does; its own view, where that can be seen, as a remark.
    waits = agents.state("general-1")
    assert (waits.doing, waits.remark) == ("Waiting for a free slot.",) * 2
    one.owner.waits("")
    # Neither progress nor output is kept, and pieces of one text are one.
    for event in (
        ev.TextPart("one "),
        ev.TextPart("text"),
        ev.PromptProgress(1, 2),
        ev.ToolOutput("k", "x"),
    ):
        one.owner.heard(ev.EventRecord(0, 0.0, event))
    (late, other) = await agents.listen("general-1")
    await agents.unlisten("general-1", other)
    assert late[-1].event == ev.TextPart("one text")
    heard = [record.event for record in subscription.drain()]
    assert {ev.ToolOutput("k", "x"), ev.PromptProgress(1, 2)} <= {*heard}
    two.owner.unsaid("wait\nfor me")
    on.server.release()
    await on.server.received(4)
    while "be quick" not in str(on.server.requests[-1].messages):
        await on.server.received(len(on.server.requests) + 1)
    on.server.release()
    assert await turn == "done"
    assert (one.modes, two.modes) == (["edits"], ["edits"])
    assert [one.text for one in on.ear.notices()] == [
        "general-2 ended before it read your message: wait for me"
    ]
    # Whoever listened goes on hearing it, and who went hears nothing.
    assert any(isinstance(record.event, ev.TurnEnd) for record in subscription.drain())
    assert gone.drain() == []
    assert agents._agents["general-1"].soul is not None
    await agents.unlisten("general-1", subscription)
    assert agents._agents["general-1"].soul is None


async def test_a_question_waits_in_the_one_queue_and_a_no_ends_that_one(beside: Beside) -> None:
    on, agents = beside.on, beside.agents
    await on.soul.set_mode("ask")
    beside.script(one=[write("b.txt")], two=[say("second")])
    heard = on.soul.wire.subscribe()
    turn = asyncio.create_task(on.soul.run("go"))
    asked = await next_event(heard, ev.ApprovalRequest)
    assert (asked.agent, asked.tool, asked.key) == ("general-1", "WriteFile", "")
    while agents.state("general-1").state != "asking":
        await next_event(heard, ev.AgentChanged)
    beside.made()[0].owner.waits("Not told while it asks.")
    assert agents.state("general-1").doing != "Not told while it asks."
    on.soul.answer(asked.id, "no")
    assert await turn == "done"
    stopped = agents.state("general-1")
    assert (stopped.state, stopped.why) == ("stopped", "You refused its request.")
    (told, _), (_, second) = beside.results()
    assert told.endswith("The user refused what it asked for. It had not answered yet.")
    assert second == "second"


async def test_one_is_stopped_alone_and_its_finished_steps_stay(beside: Beside) -> None:
    on, agents = beside.on, beside.agents
    beside.script(
        one=[
            call("WriteFile", {"path": "b.txt", "content": "b"}, text="I begin."),
            gate(0, say("never")),
        ],
        two=[gate(0, say("second"))],
    )
    turn = asyncio.create_task(on.soul.run("go"))
    await on.server.received(4)
    await agents.stop("general-1")
    on.server.release()
    assert await turn == "done"
    stopped = agents.state("general-1")
    assert (stopped.state, stopped.why) == ("stopped", "You stopped it.")
    assert (on.work / "b.txt").exists()
    assert beside.results() == [
        (
            "general-1, 2 steps, 1 file changed. The user stopped it. Its last message follows.",
            "I begin.",
        ),
        ("general-2, 1 step.", "second"),
    ]


async def test_the_turn_is_stopped_and_their_files_come_behind_it(beside: Beside) -> None:
    on, agents = beside.on, beside.agents
    beside.script(
        one=[write("b.txt"), gate(0, say("never"))],
        two=[write("c.txt"), gate(0, say("never"))],
    )
    turn = asyncio.create_task(until_end(on.soul.run("go")))
    await on.server.received(5)
    await on.soul.interrupt()
    await turn
    while agents._closing:
        await asyncio.wait(agents._closing)
    assert [(one.state, one.why) for one in agents.states] == [("stopped", "You stopped it.")] * 2
    assert {one.name for one in on.work.iterdir()} == {"a.txt", "b.txt", "c.txt"}
    assert beside.copies.n_closed == 1
    on.server.release()


@pytest.mark.parametrize("limit", ["steps", "tokens", "the session's tokens"])
async def test_limits_end_each_of_them(beside: Beside, limit: str) -> None:
    on, agents = beside.on, beside.agents
    settings = on.soul.agents_config
    if limit == "steps":
        on.soul.agents_config = settings._replace(steps=1)
    elif limit == "tokens":
        on.soul.agents_config = settings._replace(tokens=100)
    else:
        conversation = agents._conversation
        whole = Budget(conversation.spent.tokens + 300)
        conversation.limits = conversation.limits._replace(budget=whole)
    beside.script(
        one=[write("b.txt", usage=(120, 10)), write("b.txt", usage=(120, 10)), say("never")],
        two=[write("c.txt", usage=(120, 10)), write("c.txt", usage=(120, 10)), say("never")],
    )
    await until_end(asyncio.ensure_future(on.soul.run("go")))
    assert [one.state for one in agents.states] == ["failed", "failed"]
    assert all(limit.rpartition(" ")[2][:-1] in one.why for one in agents.states)
    written, all_files = {one.name for one in on.work.iterdir()}, {"a.txt", "b.txt", "c.txt"}
    # Of what the session has, the later one may find nothing left for its first step.
    is_shared = limit == "the session's tokens"
    assert {"a.txt"} < written <= all_files if is_shared else written == all_files


async def test_its_cost_is_what_its_process_tells(beside: Beside) -> None:
    on, agents = beside.on, beside.agents
    beside.script(one=[gate(0, say("first", usage=(7, 3)))], two=[say("second")])
    turn = asyncio.create_task(on.soul.run("go"))
    await on.server.received(3)
    beside.made()[0].owner.spent(0.25)
    on.server.release()
    assert await turn == "done"
    assert [one.cost for one in agents.states] == [0.25, -1.0]


# -- where there are no copies -------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["files", "process", "nobody"])
async def test_without_copies_they_work_one_after_another_and_one_line_says_why(
    beside: Beside, why: str
) -> None:
    on, agents = beside.on, beside.agents
    if why == "nobody":
        on.soul.agent_copies = None
    elif why == "files":
        beside.copies.refuses = NoCopies("The disk is full.")
    else:
        beside.copies.refuses_process = NoCopies("The disk is full.")
    reads = call("ReadFile", {"path": "b.txt"})
    beside.script(one=[gate(0, write("b.txt")), say("first")], two=[reads, say("second")])
    heard = on.soul.wire.subscribe()
    turn = asyncio.create_task(on.soul.run("go"))
    if why != "nobody":
        after = await next_event(heard, ev.AgentChanged, lambda one: "called before" in one.why)
        assert after.state == "waiting"
    await on.server.received(2)
    agents.steer("general-2", "be brief")
    on.server.release()
    assert await turn == "done"
    assert [one.text for one in on.ear.notices()] == (
        []
        if why == "nobody"
        else [
            "The sub-agents work one after another, without copies of the files: The disk is full."
        ]
    )
    # The second one has seen what the first one did.
    assert "new" in str(on.server.requests[-2].messages)
    assert "be brief" in str(on.server.requests[-2].messages)
    assert [(one.state, one.is_future) for one in agents.states] == [("done", False)] * 2
    assert [said for _, said in beside.results()] == ["first", "second"]
    assert not [*(on.session.dir / "subagents").glob("*/files")]


async def test_one_that_works_in_the_folder_because_its_process_cannot_can_be_stopped(
    beside: Beside,
) -> None:
    on, agents = beside.on, beside.agents
    beside.copies.refuses_process = NoCopies("It cannot work here.")
    beside.script(one=[write("b.txt"), gate(0, say("never"))], two=[say("second")])
    turn = asyncio.create_task(on.soul.run("go"))
    await on.server.received(3)
    await agents.stop("general-1")
    assert await turn == "done"
    on.server.release()
    assert [(one.state, one.is_future) for one in agents.states] == [
        ("stopped", False),
        ("done", False),
    ]


async def test_one_that_cannot_be_started_fails_alone(beside: Beside) -> None:
    on, agents = beside.on, beside.agents
    beside.copies.refuses = SoulError("It is odd.", advice="")
    beside.script(one=[], two=[])
    assert await on.soul.run("go") == "done"
    assert [(one.state, one.why) for one in agents.states] == [("failed", "It is odd.")] * 2
    assert "The sub-agent could not be started. It is odd." in str(on.sent())


# -- going on ------------------------------------------------------------------------------------------


async def test_back_to_a_step_of_one_and_on_from_there(beside: Beside) -> None:
    on, agents = beside.on, beside.agents
    beside.script(
        one=[write("b.txt"), say("first")],
        two=[write("c.txt"), write("d.txt"), say("second")],
    )
    await on.soul.run("go")
    history, subscription = await agents.listen("general-2")
    await agents.unlisten("general-2", subscription)
    points = [r.event for r in history if isinstance(r.event, ev.CheckpointCreated)]
    preview = await agents.preview("general-2", Target(points[2].id))
    assert preview.files is not None
    assert [one.path for one in preview.files.files] == ["d.txt"]
    assert agents._agents["general-2"].soul is None
    await agents.rewind("general-2", Target(points[2].id), "restore")
    assert agents._agents["general-2"].soul is None
    assert not (on.work / "d.txt").exists()
    assert (on.work / "c.txt").exists()
    assert [one.state for one in agents.states] == ["done", "paused"]
    SCRIPTS["two"] = [write("e.txt"), say("again")]
    SCRIPTS[""] = [say("all again")]
    agents.steer("general-2", "another file")
    assert await on.soul.resume() == "done"
    assert (on.work / "e.txt").exists()
    assert [said for _, said in beside.results()] == ["first", "again"]
    assert agents.state("general-2").state == "done"
    assert "another file" in str(on.server.requests[-3].messages)


async def test_a_lock_that_its_process_still_has_is_waited_for(beside: Beside) -> None:
    on, agents = beside.on, beside.agents
    held: list[Session] = []

    def hold(copy: CopyHere) -> None:
        if copy.order.name == "general-1":
            session = Session(copy.order.folder, on.work)
            session.lock.acquire()
            held.append(session)
            loop.call_later(0.02, session.lock.release)

    loop = asyncio.get_running_loop()
    beside.copies.before_end = hold
    beside.script(one=[write("b.txt"), say("first")], two=[say("second")])
    assert await on.soul.run("go") == "done"
    assert (on.work / "b.txt").exists()
    # One that has nothing to be brought is not waited for.
    held[0].lock.acquire()
    with pytest.raises(SessionLocked):
        await agents.rewind("general-1", Target(0))
    held[0].lock.release()
