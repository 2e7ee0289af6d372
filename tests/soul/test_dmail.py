"""D-Mails in the running engine: what the past self is sent, and that the person's words are never undone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, calls, gate, say
from support.soul import next_event, stage, until_end

from kimi_tui.config.settings import LoopControl
from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.session.schema import DMAIL_START
from kimi_tui.soul.checkpoint_table import list_checkpoints
from kimi_tui.soul.messages import dmail_text, is_user_words
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tui.rows import LayoutRoom
from kimi_tui.tui.transcript.tool_card import tool_card
from kimi_tui.wire import events as ev


def mail(message: str, checkpoint_id: int, **more: Any) -> tuple[str, dict[str, Any]]:
    return ("SendDMail", {"message": message, "checkpoint_id": checkpoint_id, **more})


def letters(text: str) -> list[str]:
    return [
        part.rpartition("D-Mail content:\n\n")[2].partition("</system>")[0]
        for part in text.split(DMAIL_START)[1:]
    ]


async def test_the_prefix_and_the_mail(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "big.txt").write_text("a\nb\n")
        on.server.script(
            call("Glob", {"pattern": "*"}, usage=(100, 10)),
            call("ReadFile", {"path": "big.txt"}, text="I read it whole.", usage=(200, 10)),
            calls([mail("big.txt is a, b", 2)], usage=(300, 10)),
            say("done", usage=(150, 5)),
        )
        await on.soul.run("summarise")
        before, after = on.sent(1), on.sent(3)
        # The request begins with the same bytes as that at #2, followed by the D-Mail in the place of the last result.
        assert after[: len(before)] == before
        (letter,) = after[len(before) :]
        assert letter[0] == "user" or letters(letter[1])
        assert letters(letter[1]) == ["big.txt is a, b"]
        assert "I read it whole." in letter[1]
        assert "NOT sent" not in str(after)

        assert [r["id"] for r in on.file() if r["role"] == "_checkpoint"] == [0, 1, 2, 3]
        assert [r["id"] for r in on.file("context_1.jsonl") if r["role"] == "_checkpoint"] == [
            0,
            1,
            2,
            3,
        ]
        (reverted,) = on.ear.of(ev.ContextReverted)
        assert (reverted.reason, reverted.checkpoint_id, reverted.from_checkpoint) == (
            "dmail",
            2,
            3,
        )
        assert (reverted.world_line, reverted.tool_calls_dropped) == (1, 2)
        assert reverted.text == "big.txt is a, b"
        assert reverted.tokens_before > reverted.tokens_after
        dmail = next(p for p in on.ear.of(ev.CheckpointCreated) if p.kind == "dmail")
        assert (dmail.id, dmail.label) == (2, "D-Mail from #3")
        names = on.ear.names()
        at = names.index("ContextReverted")
        assert names[at : at + 4] == [
            "ContextReverted",
            "CheckpointCreated",
            "LineChanged",
            "StatusUpdate",
        ]
        # The past self takes the same step again.
        assert [e.n for e in on.ear.of(ev.StepBegin)] == [1, 2, 3, 3]


@pytest.mark.parametrize("target", [0, 1])
async def test_the_persons_words_survive(tmp_path: Path, target: int) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("hello"))
        await on.soul.run("first words")
        on.server.script(calls([mail("be brief", target)]), say("done"))
        await on.soul.run("second words")
        text = "\n".join(text for _, text in on.sent())
        assert text.count("first words") == 1
        assert text.count("second words") == 1
        assert text.index("first words") < text.index("second words") < text.index(DMAIL_START)
        assert ("assistant", "hello") not in on.sent()
        (reverted,) = on.ear.of(ev.ContextReverted)
        words = ("first words", "second words")
        assert reverted.carried == (words if target == 0 else words[1:])
        assert [m.text for m in on.session.context.messages if is_user_words(m)] == list(words)


async def test_to_the_current_checkpoint(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(calls([mail("again", 1)], text="hm"), say("done"))
        await on.soul.run("hi")
        assert letters(on.sent()[-1][1]) == ["again"]
        assert [role for role, _ in on.sent()] == ["user"]


@pytest.mark.exhaustive
async def test_several_mails_of_one_step(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            call("Glob", {"pattern": "*"}),
            calls([mail("first", 2), mail("second", 1), mail("third", 2)]),
            say("done"),
        )
        await on.soul.run("hi")
        # The earliest checkpoint wins, and every message arrives in its order, with the place it was meant for.
        (reverted,) = on.ear.of(ev.ContextReverted)
        assert reverted.checkpoint_id == 1
        assert letters(on.sent()[-1][1]) == [
            "To checkpoint 2:\n\nfirst\n\nTo checkpoint 1:\n\nsecond\n\nTo checkpoint 2:\n\nthird"
        ]


@pytest.mark.exhaustive
async def test_earlier_letters_are_not_carried_over(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            call("Glob", {"pattern": "*"}),
            calls([mail("one", 2)]),
            calls([mail("two", 1)]),
            say("done"),
        )
        await on.soul.run("hi")
        assert letters(on.sent(2)[-1][1]) == ["one"]
        assert letters(on.sent(3)[-1][1]) == ["two"]
        assert [dmail_text(m) for m in on.session.context.messages if dmail_text(m)] == ["two"]
        assert (on.session.dir / "context_2.jsonl").exists()


async def test_a_rejected_call_beside_it_drops_the_mail(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="ask") as on:
        on.server.script(
            calls([("Shell", {"command": "touch x"}), mail("never", 0)], usage=(10, 1))
        )
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("hi"))
        request = await next_event(heard, ev.ApprovalRequest)
        on.soul.answer(request.id, "no")
        await turn
        assert on.ear.of(ev.TurnEnd)[-1].reason == "rejected"
        assert not on.ear.of(ev.ContextReverted)
        assert not (on.work / "x").exists()
        # Nor does it go off later; and nobody is told that it had been sent.
        on.server.script(say("fine"))
        await on.soul.run("go on")
        assert not on.ear.of(ev.ContextReverted)
        chat, timeline = TranscriptModel(), TimelineModel()
        for record in await on.soul.history():
            chat.apply(record)
            timeline.apply(record)
        cards = [block for block in chat.blocks if isinstance(block, ToolBlock)]
        assert [card.state for card in cards] == ["rejected", "unsent"]
        assert "not sent" in "".join(line.text for line in tool_card(cards[1], LayoutRoom(80)))
        assert [c.target for c in timeline.tree.live[1].calls or ()][1] == "not sent, to #0"
        assert list_checkpoints(on.session)[1].label == "Shell touch x, D-Mail not sent, to #0"
        assert any("NOT sent" in text for role, text in on.sent() if role == "tool")


async def test_a_mail_whose_line_is_live_again_was_sent_and_taken_back(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            call("Glob", {"pattern": "*"}), calls([mail("Ask.", 1)]), say("done"), say("fine")
        )
        await on.soul.run("look")
        await on.soul.travel.rewind(Target(END, 1))
        # Nobody sent a message: the line continues after the step that had sent the D-Mail.
        await on.soul.resume()
        chat, timeline = TranscriptModel(), TimelineModel()
        for record in await on.soul.history():
            chat.apply(record)
            timeline.apply(record)
        cards = [block for block in chat.blocks if isinstance(block, ToolBlock)]
        assert [card.state for card in cards] == ["done", "recalled"]
        assert "withdrawn" in "".join(line.text for line in tool_card(cards[1], LayoutRoom(80)))
        assert [c.target for c in timeline.tree.live[2].calls or ()] == ["to #1"]
        assert "the user undid it" in on.sent()[-1][1]


async def test_a_no_with_a_reason_goes_on(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="ask") as on:
        on.server.script(call("Shell", {"command": "touch x"}), say("as you wish"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("hi"))
        request = await next_event(heard, ev.ApprovalRequest)
        assert request.detail == "touch x"
        on.soul.answer(request.id, "no", "use the file tool")
        await turn
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert "use the file tool" in on.sent()[-1][1]


async def test_unknown_checkpoints_are_an_error_to_the_model(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(calls([mail("x", 7)]), say("ok"))
        await on.soul.run("hi")
        assert "no checkpoint 7" in on.sent()[-1][1]
        assert not on.ear.of(ev.ContextReverted)


@pytest.mark.exhaustive
async def test_after_a_compaction_old_numbers_are_gone(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        for text in ("one", "two", "three"):
            on.server.script(say(text))
            await on.soul.run(f"say {text}")
        on.server.script(say("SUMMARY"))
        await on.soul.compact()
        on.server.script(calls([mail("x", 5)]), calls([mail("x", 0)]), calls([mail("y", 3)]))
        on.server.script(say("ok"))
        await on.soul.run("hi")
        errors = [r.message for r in on.ear.of(ev.ToolResult) if r.is_error]
        assert "There is no checkpoint 5" in errors[0]
        assert "summary" in errors[1]
        # The summary and the person's words are still there after the one that could be delivered.
        assert "SUMMARY" in on.sent()[0][1]
        assert on.sent()[-1][1].startswith("hi\n\n<system>")
        assert letters(on.sent()[-1][1]) == ["y"]


async def test_a_mail_and_a_queued_steer(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(3, calls([mail("past", 1)])), say("done"))
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.at_gate.wait()
        on.soul.say("and hurry")
        on.server.release()
        await turn
        text = on.sent()[-1][1]
        assert text.index("hi") < text.index("past") < text.index("and hurry")
        assert on.ear.of(ev.ContextReverted)[0].carried == ()


@pytest.mark.exhaustive
async def test_a_steer_that_had_gone_in_is_carried_over(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(2, call("Glob", {"pattern": "*"})), calls([mail("past", 1)]))
        on.server.script(say("done"))
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.at_gate.wait()
        on.soul.say("only *.py")
        on.server.release()
        await turn
        text = on.sent()[-1][1]
        assert text.index("hi") < text.index("only *.py") < text.index("past")
        assert text.count("only *.py") == 1


@pytest.mark.exhaustive
async def test_the_guard_against_loops(tmp_path: Path) -> None:
    limits = LoopLimits(LoopControl(same_dmail_limit=0))
    async with stage(tmp_path, limits=limits) as on:
        for _ in range(6):
            on.server.script(calls([mail("again", 1)]))
        on.server.script(say("I stop"))
        await on.soul.run("hi")
        assert len(on.ear.of(ev.ContextReverted)) == 5
        assert "Stop sending" in on.sent()[-1][1]
        assert ["#1" in n.text for n in on.ear.notices()] == [True]
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"


@pytest.mark.exhaustive
async def test_every_call_counts_against_the_limit(tmp_path: Path) -> None:
    control = LoopControl(max_steps_per_turn=3, same_dmail_limit=0)
    limits = LoopLimits(control, dmails_to_one_checkpoint=99)
    async with stage(tmp_path, limits=limits) as on:
        for _ in range(4):
            on.server.script(calls([mail("again", 1)]))
        await until_end(on.soul.run("hi"))
        assert len(on.server.requests) == 3
        assert "3 steps" in on.ear.of(ev.TurnEnd)[-1].error


@pytest.mark.exhaustive
async def test_the_letter_says_what_was_changed_and_run(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            calls(
                [
                    ("WriteFile", {"path": "new.py", "content": "x = 1\n"}),
                    ("WriteFile", {"path": ".", "content": "no"}),
                    ("Shell", {"command": "echo hi"}),
                ],
                text="I write it.",
            ),
            calls([mail("files are done", 1)]),
            say("done"),
        )
        await on.soul.run("write")
        facts = on.ear.of(ev.ContextReverted)[0].facts
        assert "`new.py` (1 edit)" in facts
        assert "`.`" not in facts
        assert "`echo hi`" in facts
        assert "> I write it." in facts
        assert facts in on.sent()[-1][1]
        assert (on.work / "new.py").read_text() == "x = 1\n"


async def test_the_letter_names_what_ran_and_not_what_was_asked_for(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="ask") as on:
        on.server.script(
            call("Shell", {"command": "echo asked"}),
            call("Shell", {"command": "echo refused"}),
            calls([mail("look", 1)]),
            say("done"),
        )
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("go"))
        request = await next_event(heard, ev.ApprovalRequest)
        on.soul.answer(request.id, "once", "echo changed")
        request = await next_event(heard, ev.ApprovalRequest)
        assert "\nchanged" in on.sent()[-1][1]
        assert "The user changed the command" in on.sent()[-1][1]
        on.soul.answer(request.id, "no", "not that")
        await turn
        facts = on.ear.of(ev.ContextReverted)[0].facts
        assert "Commands that were run: `echo changed`." in facts


async def test_what_tools_remember_goes_back_too(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.py").write_text("one\n")
        todo = [{"title": "look", "status": "pending"}]
        on.server.script(
            calls([("SetTodoList", {"todos": todo}), ("ReadFile", {"path": "a.py"})]),
            calls([("SetTodoList", {"todos": [{"title": "other", "status": "done"}]})]),
            calls([mail("back", 2)]),
            call("SetTodoList", {}),
            say("done"),
        )
        await on.soul.run("go")
        assert "look" in on.sent()[-1][1]
        assert "other" not in on.sent()[-1][1]
        # Read at a version that the agent still knows of, so a foreign change is noticed, also in a new process.
        (on.work / "a.py").write_text("two\n")
        await on.reopen()
        edit = {"path": "a.py", "edit": {"old": "two", "new": "three"}}
        on.server.script(call("StrReplaceFile", edit), say("ok"))
        await on.soul.run("edit")
        assert "changed on disk" in on.sent()[-1][1]
        assert (on.work / "a.py").read_text() == "two\n"


async def test_in_plan_mode_the_files_stay_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="edits") as on:
        on.server.script(call("WriteFile", {"path": "a.txt", "content": "one\n"}), say("Written."))
        await on.soul.run("write")
        await on.soul.set_mode("plan")
        on.server.script(calls([mail("do not", 0, restore_files=True)]), say("I see."))
        await on.soul.run("back")
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        assert "They were not restored. Plan mode" in str(on.sent())
        assert (on.work / "a.txt").exists()
