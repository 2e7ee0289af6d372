"""Futures on the main screen: started by command and in the preview, on the timeline, read live, answered, and set side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.chat_server import ChatServer, gate, say, status
from support.fake_futures import FakeFutures
from support.made_images import flat, saved
from support.screens import Desk, desk
from textual import events

from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.tui.dialogs.text_dialog import TextDialog
from kimi_tui.tui.futures.dialog import FormArea, FuturesDialog
from kimi_tui.tui.futures.page import FuturesPage
from kimi_tui.tui.keyboard import LetterRun
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.wire.events import (
    AgentChanged,
    ApprovalRequest,
    CheckpointCreated,
    FilesRestored,
    Notice,
    StepBegin,
    TextPart,
    ToolCall,
    ToolStarted,
    TurnBegin,
)


@asynccontextmanager
async def table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ChatServer
) -> AsyncIterator[tuple[Desk, FakeFutures]]:
    """Return an open session with one turn, and the futures that it will have."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.setattr("kimi_tui.tui.futures.dialog.WAIT_S", 0.0)
    async with desk(tmp_path, server.base_url) as one:
        await one.ready()
        soul = one.screen.conversation.soul
        assert soul is not None
        fake = FakeFutures(soul.wire)
        one.screen.futures._engine = fake  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        server.script(say("Good."))
        await one.say("Read the tokenizer")
        await one.idle()
        yield one, fake


async def started(one: Desk, fake: FakeFutures, command: str = "/futures 2 Use a set") -> None:
    """Start futures by a command, and wait until the timeline has them."""
    await one.say(command)
    await one.until(lambda: isinstance(one.app.screen, FuturesDialog))
    await one.sees("The first requests together send")
    await one.pilot.press("enter")
    await one.until(lambda: bool(fake.plans))
    await one.sees("2 futures started")
    await one.sees("├─· 1   Use a set")


def asks(number: int) -> ApprovalRequest:
    """Return a request for a command."""
    return ApprovalRequest(
        f"r{number}", f"c{number}", "Run this command?", f"make test{number}", ""
    )


async def answer(one: Desk, key: str) -> None:
    """Press a key once the question takes keys."""
    await one.until(lambda: (panel := one.screen.bench.question) is not None and panel.accepts_keys)
    await one.pilot.press(key)


async def test_they_grow_on_the_timeline_while_the_conversation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        await one.say("/futures 9 Use a set")
        await one.sees("The number of futures must be from 2 to 4, not 9.")
        assert one.screen.prompt.area.text == "/futures 9 Use a set"
        one.screen.prompt.area.take()
        await started(one, fake)
        (plan,) = fake.plans
        assert [variant.message for variant in plan.variants] == ["Use a set", "Use a set"]
        assert plan.target.is_end
        first, second = (state.key for state in fake.states)
        fake.work(first, "I read it.", step=4)
        await one.sees("step 4")
        server.script(say("I go on."))
        await one.say("What else?")
        await one.idle()
        await one.sees("I go on.")
        fake.end(first, check="passed", check_exit=0)
        await one.sees("Future 1 (Use a set) has ended: check passed.")
        fake.end(second, check="failed", check_exit=2)
        await one.sees("The futures have ended: 1 of 2 passed the check.")


async def test_keys_that_come_at_once_reach_the_fields_to_which_they_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, _):
        await one.say("/futures 2")
        await one.until(lambda: isinstance(one.app.screen, FuturesDialog))
        keys = ["up", "right", "down", *"first", "tab", *"second", "down", *"make", "up", *"s"]
        for key in keys:
            one.app.post_message(events.Key(key, key if len(key) == 1 else None))
        dialog = one.app.screen
        assert isinstance(dialog, FuturesDialog)
        form = dialog._form  # pyright: ignore[reportPrivateUsage]
        # The dialog's own words may have any of these on the screen.
        await one.until(lambda: form.messages[1] == "seconds")
        assert (form.messages[:2], form.check) == (["first", "seconds"], "make")
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.is_current)


async def test_one_is_read_live_steered_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        await started(one, fake)
        first, second = (state.key for state in fake.states)
        fake.work(second, "I begin with the ", step=1)
        timeline = one.screen.bench.views.timeline
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        await one.sees("Enter preview")
        timeline.select((f"future {second}", 0))
        await one.sees("Enter read and steer")
        await one.pilot.press("enter")
        await one.sees("I begin with the")
        assert one.screen.futures.view is not None
        fake.tell(second, TextPart("tokenizer itself."))
        await one.sees("tokenizer itself.")
        await one.sees("Reading future 2")
        await one.pilot.press("m")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.pilot.press(*"faster", "enter")
        await one.until(lambda: fake.said == [(second, "faster")])
        await one.until(lambda: one.screen.is_current)
        # What is typed here is for this future, and is asked about before it is sent.
        typed = "use a set and keep it small"
        LetterRun.DEBOUNCE_S = 30.0
        await one.pilot.press(*("space" if letter == " " else letter for letter in typed))
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        dialog = one.app.screen
        assert isinstance(dialog, TextDialog)
        await one.until(lambda: dialog.area.text.endswith(typed))
        assert sum(isinstance(each, TextDialog) for each in one.app.screen_stack) == 1
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.is_current)
        LetterRun.DEBOUNCE_S = 0.0
        assert one.screen.prompt.area.text == ""
        await one.sees("stop it")
        await one.pilot.press("x")
        await one.until(lambda: fake.stopped == [second])
        fake.end(second)
        await one.until(lambda: "stop it" not in one.text())
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.futures.view is None)
        await one.sees("Good.")
        assert first not in fake.stopped


async def test_the_card_of_a_sub_agent_in_a_future_is_opened_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        await started(one, fake)
        second = fake.states[1].key
        key = f"{second}-1:0"
        fake.tell(
            second,
            StepBegin(1),
            CheckpointCreated(2, f"{second}-1", "step"),
            ToolCall(key, "Agent", '{"description": "callers"}'),
            ToolStarted(key, "Agent", '{"description": "callers"}'),
        )
        agent = AgentChanged("general-101", title="callers", key=key, state="working", step=1)
        fake.tell_agent(second, agent, TurnBegin("Find the callers."), StepBegin(1))
        fake.change(second, state="running", step=1)
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        one.screen.bench.views.timeline.select((f"future {second}", 0))
        await one.pilot.press("enter")
        await one.sees("callers")

        # Enter on a message of the future is no rewind of a step of the session with the same number.
        await one.until(lambda: one.screen.futures.view is not None)
        view = one.screen.futures.view
        assert view is not None
        view.transcript.post_message(view.transcript.CheckpointClicked(view.transcript, 0, 0))
        await one.sees("You cannot rewind to a step of a future from this view.")
        assert one.screen.is_current

        await one.pilot.press("shift+tab")
        await one.until(lambda: isinstance(view.transcript.chosen, ToolBlock))
        await one.pilot.press("enter")
        await one.until(lambda: one.screen.futures.agent_view is not None)
        await one.sees("Find the callers.")
        await one.sees("Reading general-101 of future 2. Esc returns to the future.")
        fake.tell_agent(second, replace(agent, step=2), TextPart("There are three."))
        await one.sees("There are three.")
        await one.sees("step 2")
        await one.pilot.press("m")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.sees("Message to future 2")
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.is_current)
        # Back to the future, and from there to the timeline, from which that was opened.
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.futures.view is not None)
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.beside.view is None)
        assert one.screen.bench.timeline_pane.has_keys


async def test_what_was_told_before_a_rebuild_is_drawn_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, _):
        soul = one.screen.conversation.soul
        assert soul is not None
        # The events are drawn long after they were told.
        monkeypatch.setattr("kimi_tui.tui.main.feed.GATHERED_S", 2.0)
        soul.wire.publish(FilesRestored("", ("made.py",)))
        one.screen.conversation.rebuild()
        before = one.screen.bench.views.timeline.model
        await one.until(lambda: one.screen.bench.views.timeline.model is not before)
        await one.sees("1 file restored")
        soul.wire.publish(Notice("error", "It is told later."))
        monkeypatch.setattr("kimi_tui.tui.main.feed.GATHERED_S", 0.0)
        soul.wire.publish(Notice("error", "It is told at once."))
        await one.sees("It is told at once.")
        assert one.text().count("1 file restored") == 1


async def test_pasted_images_go_along_with_the_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shot = tmp_path / "shot.png"
    shot.write_bytes(saved(flat(40, 30)))
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        await one.say("/futures 2 Make it like")
        await one.until(lambda: isinstance(one.app.screen, FuturesDialog))
        dialog = one.app.screen
        assert isinstance(dialog, FuturesDialog)
        await one.until(lambda: isinstance(dialog.focused, FormArea))
        area = dialog.focused
        assert isinstance(area, FormArea)
        area.move_cursor(area.document.end)
        area.post_message(events.Paste(str(shot)))
        await one.sees("[image shot.png 40x30")
        await one.sees("The first requests together send")
        await one.pilot.press("enter")
        await one.until(lambda: bool(fake.plans))
        for variant in fake.plans[0].variants:
            (image,) = variant.images
            assert (image.name, image.width) == ("shot.png", 40)
            soul = one.screen.conversation.soul
            assert soul is not None
            stored = await soul.image(image)
            assert stored is not None
            assert stored.data == shot.read_bytes()


async def test_all_that_is_asked_waits_in_one_queue_with_the_name_of_its_future(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        await started(one, fake)
        first, second = (state.key for state in fake.states)
        offer = "Yes, and allow edits in this folder for this session"
        fake.ask(second, replace(asks(1), session_offer=offer))
        await one.sees("Future 2: Use a set")
        await one.sees("Yes, and allow edits in this folder for this future")
        fake.ask(first, replace(asks(1), agent="general-101"))
        await one.sees("1 of 2")
        await one.sees("n  No, and stop this future")
        await one.sees("Esc stop this future")
        await answer(one, "y")
        # Requests of different futures may have the same id.
        await one.until(lambda: fake.answers == [(second, "r1", "once", "")])
        await one.sees("Sub-agent general-101 of future 1: Use a set")
        await answer(one, "escape")
        await one.until(lambda: fake.stopped == [first])
        fake.asked.clear()
        fake.change(first, asks=())
        await one.until(lambda: one.screen.bench.question is None)


async def test_a_question_is_answered_while_a_future_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        await started(one, fake)
        first, second = (state.key for state in fake.states)
        fake.work(second, "I begin.", step=1)
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        one.screen.bench.views.timeline.select((f"future {second}", 0))
        await one.pilot.press("enter")
        await one.sees("I begin.")
        view = one.screen.futures.view
        assert view is not None
        await one.pilot.press("r")
        await one.sees("No question is waiting for your answer.")
        fake.ask(first, asks(1))
        await one.sees("Press r to answer.")
        assert view.transcript.has_focus
        await one.pilot.press("r")
        await one.until(lambda: one.screen.bench.question is one.screen.focused)
        await one.sees("Esc stop this future")
        await answer(one, "y")
        await one.until(lambda: fake.answers == [(first, "r1", "once", "")])
        await one.until(lambda: view.transcript.has_focus)
        fake.ask(second, asks(2))
        await one.sees("Press r to answer.")
        # Back in the conversation Esc leads to the question, as usual.
        await one.pilot.press("escape")
        await one.sees("Press Esc to answer.")
        fake.asked.clear()
        fake.change(second, asks=())
        await one.until(lambda: one.screen.bench.question is None)


async def test_from_any_checkpoint_by_a_key_of_the_preview(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        await one.say("/rewind 0")
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        await one.confirm("x", "Try several ways from here")
        await one.until(lambda: isinstance(one.app.screen, FuturesDialog))
        await one.sees("Futures from #0")
        await one.sees("The first requests together send")
        await one.pilot.press("enter")
        await one.until(lambda: bool(fake.plans))
        assert fake.plans[0].target.id == 0
        await one.say("/futures")
        await one.until(lambda: isinstance(one.app.screen, FuturesPage))
        await one.sees("3 of 3 still running")
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.is_current)
        assert fake.wire(fake.states[0].key)._subscriptions == []  # pyright: ignore[reportPrivateUsage]


@pytest.mark.exhaustive
async def test_after_a_turn_that_failed_three_ways_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        server.script(status(400))
        await one.say("Make it faster")
        await one.idle()
        await one.until(lambda: one.screen.conversation.state.can_resume)
        await one.say("/futures")
        await one.until(lambda: isinstance(one.app.screen, FuturesDialog))
        await one.sees("Try it three ways, from #2")
        await one.sees("The first requests together send")
        await one.pilot.press("enter")
        await one.until(lambda: len(fake.plans) == 1)
        # What became of them is shown first, although the failed turn is still the newest one.
        for state in [*fake.states]:
            fake.end(state.key)
        await one.sees("The futures have ended")
        await one.say("/futures")
        await one.until(lambda: isinstance(one.app.screen, FuturesPage))
        await one.pilot.press("n")
        await one.until(lambda: isinstance(one.app.screen, FuturesDialog))
        await one.sees("Try it three ways, from #2")
        await one.pilot.press("escape")


async def test_whoever_keeps_a_future_is_back_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        name = "Use a set in place of the list, and say how much faster it is"
        await one.say(f"/futures 2 {name}")
        await one.until(lambda: isinstance(one.app.screen, FuturesDialog))
        await one.sees("The first requests together send")
        await one.pilot.press("enter")
        await one.until(lambda: bool(fake.plans))
        first, second = (state.key for state in fake.states)
        fake.end(first)
        await one.sees(f"Future 1 ({name[:39].rstrip()}…) has ended")
        fake.end(second)
        await one.sees("The futures have ended")
        await one.say("/futures")
        await one.until(lambda: isinstance(one.app.screen, FuturesPage))
        await one.pilot.press("right", "d")
        await one.sees("Keep it")
        await one.pilot.press("escape")
        await one.until(lambda: isinstance(one.app.screen, FuturesPage))
        page = one.app.screen
        assert isinstance(page, FuturesPage)
        assert page.chosen.key == second
        await one.pilot.press("d")
        await one.sees("Keep it")
        await one.pilot.press("enter")
        await one.until(lambda: isinstance(one.app.screen, FuturesPage))
        await one.pilot.press("d")
        await one.sees("Keep it")
        await one.pilot.press("down")
        await one.pilot.press("enter")
        await one.sees("Future 2 was deleted.")
        assert [state.key for state in fake.states] == [first]


async def test_an_ended_future_is_deleted_only_once_the_turn_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        await started(one, fake)
        first = fake.states[0].key
        fake.work(first, "Done.", step=1)
        fake.end(first)
        server.script(gate(0, say("Later.")))
        await one.say("Go on")
        await one.until(lambda: one.screen.conversation.state.running)
        await one.say("/futures")
        await one.until(lambda: isinstance(one.app.screen, FuturesPage))
        await one.pilot.press("d")
        await one.sees("Future 1 cannot be deleted while the agent works.")
        await one.sees("Try again when the turn has ended.")
        assert one.screen.is_current
        server.release()
        await one.idle()


@pytest.mark.exhaustive
async def test_whoever_quits_is_told_that_futures_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        await started(one, fake)
        await one.pilot.press("ctrl+c")
        await one.sees("2 futures are running and will be stopped.")
        fake.end(fake.states[0].key)
        fake.end(fake.states[1].key)


@pytest.mark.exhaustive
async def test_a_question_of_the_conversation_has_its_place_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.chat_server import call

    async with ChatServer() as server, table(tmp_path, monkeypatch, server) as (one, fake):
        await started(one, fake)
        server.script(call("WriteFile", {"path": "a.py", "content": "1\n"}), say("Done."), gate(0))
        await one.say("Write a file")
        await one.until(lambda: one.screen.bench.question is not None)
        fake.ask(fake.states[0].key, asks(1))
        await one.sees("1 of 2")
        panel = one.screen.bench.question
        assert panel is not None
        assert panel.asker == ""
        await answer(one, "y")
        await one.sees("Future 1: Use a set")
        await one.idle()
        assert (Path(one.screen.transcript.work_dir) / "a.py").exists()
