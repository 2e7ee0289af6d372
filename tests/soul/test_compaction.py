"""Compaction: what the model is asked to summarise, what is kept word for word, and what is left when it fails."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.cases import each
from support.chat_server import call, calls, gate, say, stall, status
from support.effort import most_in_a_callback
from support.made_images import flat, saved
from support.soul import Stage, next_event, stage, until_end

from kimi_tui.config.settings import LoopControl
from kimi_tui.llm.message import (
    FunctionCall,
    ImagePart,
    ImageURL,
    Message,
    TextPart,
    ToolCall,
    user_message,
)
from kimi_tui.llm.provider import ChatProvider
from kimi_tui.llm.request import SUMMARY_READ
from kimi_tui.prompts import prompt
from kimi_tui.soul import tasks
from kimi_tui.soul.compaction import (
    AskModel,
    Compacted,
    CompactionPlan,
    SimpleCompaction,
    compaction_named,
)
from kimi_tui.soul.conversation_text import conversation_text
from kimi_tui.soul.errors import NothingToCompact, UnknownCompaction
from kimi_tui.soul.messages import internal_kind, summary_message, user_words
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire import events as ev

TOO_LONG = {
    "error": {"message": "maximum context length is 4096 tokens", "code": "context_length_exceeded"}
}


def marker(n: int) -> Message:
    return user_message(f"<system>CHECKPOINT {n}</system>")


def answer(text: str, *names: str) -> Message:
    made: dict[str, Any] = {"role": "assistant", "content": text}
    if names:
        made["tool_calls"] = [
            {"id": f"c{i}", "function": {"name": name, "arguments": json.dumps({"path": name})}}
            for i, name in enumerate(names)
        ]
    return Message.model_validate(made)


def result(text: str, number: int = 0) -> Message:
    return Message(role="tool", content=text, tool_call_id=f"c{number}")


PLAN = SimpleCompaction().plan


def test_markers_and_reminders_are_neither_counted_nor_kept() -> None:
    words = user_words("now")
    messages = [
        marker(0),
        user_words("old"),
        marker(1),
        answer("old answer"),
        marker(2),
        words,
        user_message("<system-reminder>x</system-reminder>"),
        marker(3),
        answer("new answer"),
        marker(4),
    ]
    plan = PLAN(messages, [words])
    assert list(plan.kept) == [words, messages[8]]
    assert list(plan.old) == messages[:5]


def test_calls_are_never_parted_from_their_results() -> None:
    messages = [
        user_words("go"),
        answer("", "a"),
        result("ra"),
        marker(2),
        answer("", "b", "c"),
        result("rb", 0),
        result("rc", 1),
        answer("", "d"),
        result("rd"),
    ]
    plan = PLAN(messages, [messages[0]])
    # The running turn's prompt is kept although it is far back.
    assert list(plan.kept) == [messages[0], *messages[4:]]


def test_the_same_words_of_an_earlier_turn_are_not_kept() -> None:
    first, second = user_words("continue"), user_words("continue")
    messages = [
        first,
        answer("1"),
        second,
        answer("2", "a"),
        result("r"),
        answer("3", "b"),
        result("r"),
        answer("4"),
    ]
    plan = PLAN(messages, [second])
    assert list(plan.kept) == [second, *messages[5:]]


def test_letters_in_the_kept_part_stay() -> None:
    letter = user_message(
        "<system>You just got a D-Mail from your future self. D-Mail content:\n\nx</system>"
    )
    messages = [user_words("a"), answer("b"), user_words("c"), letter, answer("d")]
    assert list(PLAN(messages, []).kept) == messages[2:]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user_words("a")],
        [marker(0), user_words("a"), marker(1), answer("b")],
        [summary_message("S"), user_words("a"), answer("b")],
        [marker(0), summary_message("S"), marker(1), user_words("a"), marker(2), answer("b")],
    ],
)
def test_nothing_to_do(messages: list[Message]) -> None:
    with pytest.raises(NothingToCompact):
        PLAN(messages, [])


def test_a_summary_is_summarised_again_with_what_followed() -> None:
    messages = [summary_message("S"), user_words("a"), answer("b"), user_words("c"), answer("d")]
    plan = PLAN(messages, [])
    assert list(plan.old) == messages[:3]
    text = conversation_text(plan.old, 1_000)
    assert text.startswith("[Summary of what came before]\nS")


async def talk(on: Stage, *texts: str) -> None:
    for text in texts:
        on.server.script(say(f"answer {text}", usage=(1_000, 10)))
        await on.soul.run(text)


async def test_by_key(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.py").write_text("print(1)\n")
        on.server.script(
            call("ReadFile", {"path": "a.py"}, think="secret thought"), say("answer one")
        )
        await on.soul.run("one")
        await talk(on, "two", "three")
        on.server.script(say("# Summary", think="thinking about it", usage=(700, 30)))
        await on.soul.compact("keep the names")

        request = on.server.requests[-1]
        assert "tools" not in request.body
        text = on.sent()[0][1]
        assert [role for role, _ in on.sent()] == ["user"]
        for part in ("one", '"path": "a.py"', "print(1)", "answer two", "keep the names"):
            assert part in text
        assert "three" not in text.partition("\n---\n")[0]
        assert "CHECKPOINT" not in text

        system = on.file()[0]
        records = on.file()[1:]
        assert system["role"] == "_system_prompt"
        # The kept messages have their checkpoints and markers, with other numbers.
        assert [(r["role"], r.get("id")) for r in records] == [
            ("_checkpoint", 0),
            ("user", None),
            ("_usage", None),
            ("_checkpoint", 1),
            ("user", None),
            ("user", None),
            ("_checkpoint", 2),
            ("user", None),
            ("_usage", None),
            ("assistant", None),
            ("_usage", None),
            ("_usage", None),
        ]
        assert records[1]["content"][1] == {"type": "text", "text": "# Summary"}
        assert records[5]["content"] == "three"
        left = [r for r in on.file("context_1.jsonl") if r["role"] == "_checkpoint"]
        assert [r.get("was") for r in records if "id" in r] == [
            None,
            *(r["uid"] for r in left[-2:]),
        ]
        figures = [r["token_count"] for r in records if r["role"] == "_usage"]
        assert figures == sorted(figures)

        await talk(on, "four")
        assert on.sent()[0][1].endswith("# Summary")
        assert on.sent()[1:] == [
            ("assistant", SUMMARY_READ),
            ("user", "three"),
            ("assistant", "answer three"),
            ("user", "four"),
        ]

        (begin,), (end,) = on.ear.of(ev.CompactionBegin), on.ear.of(ev.CompactionEnd)
        assert not begin.automatic
        assert begin.tokens_before == end.tokens_before == 1_010
        assert (end.summary, end.world_line, end.error) == ("# Summary", 1, "")
        names = on.ear.names()
        at = names.index("CompactionBegin")
        assert names[at : at + 7] == [
            "CompactionBegin",
            *["CheckpointCreated"] * 3,
            "CompactionEnd",
            "LineChanged",
            "StatusUpdate",
        ]
        point = [p for p in on.ear.of(ev.CheckpointCreated) if p.kind == "compaction"]
        assert [p.id for p in point] == [0]
        status_after = [s for s in on.ear.of(ev.StatusUpdate) if s.used == end.tokens_after]
        assert status_after
        assert status_after[0].estimated


@pytest.mark.exhaustive
async def test_the_size_after_it_stays_an_estimate_until_the_next_answer(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await talk(on, "one", "two", "three")
        on.server.script(say("# Summary"))
        await on.soul.compact()
        (end,) = on.ear.of(ev.CompactionEnd)

        def shown() -> ev.StatusUpdate:
            return next(
                r.event
                for r in reversed(on.soul.opened_with)
                if isinstance(r.event, ev.StatusUpdate)
            )

        await on.reopen()
        assert (shown().used, shown().estimated) == (end.tokens_after, True)
        await on.soul.travel.undo()
        await on.soul.travel.redo()
        assert on.ear.of(ev.StatusUpdate)[-1].estimated
        await talk(on, "four")
        await on.reopen()
        assert not shown().estimated


async def test_nothing_to_do_is_said(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.compact()
        await talk(on, "one")
        await on.soul.compact()
        assert [n.level for n in on.ear.notices()] == ["info", "info"]
        assert not on.ear.of(ev.CompactionBegin)
        assert len(on.server.requests) == 1


async def test_a_failure_leaves_the_context_alone(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await talk(on, "one", "two", "three")
        before = on.file()
        on.server.script(status(400, {"error": {"message": "no such thing"}}))
        await on.soul.compact()
        on.server.script(calls([("ReadFile", {"path": "x"})]))
        await on.soul.compact()
        ends = on.ear.of(ev.CompactionEnd)
        assert "no such thing" in ends[0].error
        assert "no summary" in ends[1].error
        assert on.file() == before
        assert not (on.session.dir / "context_1.jsonl").exists()
        await talk(on, "four")
        assert on.sent()[-1] == ("user", "four")


async def test_a_stop_leaves_the_context_alone(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await talk(on, "one", "two", "three")
        before = on.file()
        on.server.script(stall(2))
        job = asyncio.create_task(on.soul.compact())
        await next_event(on.soul.wire.subscribe(), ev.CompactionBegin)
        await on.server.received(4)
        await asyncio.wait_for(on.soul.interrupt(), 20)
        await job
        assert on.ear.of(ev.CompactionEnd)[0].error
        assert on.file() == before
        assert not on.soul.running


@pytest.mark.exhaustive
async def test_by_the_rule_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    async with stage(tmp_path, window=40_000) as on:
        await talk(on, "one " * 2_000, "two")
        on.server.script(
            call("Glob", {"pattern": "*"}, text="first", usage=(2_000, 10)),
            call("Glob", {"pattern": "*"}, text="second", usage=(34_000, 10)),
            say("SUMMARY", usage=(900, 50)),
            say("done", usage=(3_000, 5)),
        )
        await on.soul.run("the task")
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert on.ear.of(ev.CompactionBegin)[0].automatic
        roles = on.sent()
        assert roles[0][1].endswith("SUMMARY")
        assert roles[2] == ("user", "the task")
        assert [role for role, _ in roles[3:]] == ["assistant", "tool", "assistant", "tool"]
        assert "first" in roles[3][1]
        assert "second" in roles[5][1]
        # The same step continues after the checkpoints of the kept messages.
        assert [e.n for e in on.ear.of(ev.StepBegin)][-3:] == [1, 2, 3]
        assert on.ear.of(ev.CheckpointCreated)[-1].id == 4


async def test_still_too_long_is_an_error_and_no_loop(tmp_path: Path) -> None:
    async with stage(tmp_path, window=20_000) as on:
        on.server.script(say("short"), say("SUMMARY"))
        await until_end(on.soul.run("one"))
        await until_end(on.soul.run("again " * 14_000))
        end = on.ear.of(ev.TurnEnd)[-1]
        assert end.reason == "error"
        assert "compacted" in end.error
        assert "20,000" in end.error
        assert len(on.server.requests) == 2
        # A compaction that frees next to nothing is not kept, and the checkpoint that the advice names is there.
        assert "Rewind to an earlier checkpoint" in end.advice
        assert not (on.session.dir / "context_1.jsonl").exists()
        assert on.ear.of(ev.CompactionEnd)[-1].error
        outcome = await on.soul.travel.rewind(Target(2))
        assert outcome.prompt.startswith("again")


async def test_still_too_long_with_something_to_go_back_to(tmp_path: Path) -> None:
    async with stage(tmp_path, window=20_000) as on:
        on.server.script(say("short"), say("SUMMARY"))
        await until_end(on.soul.run("first " * 5_000))
        await until_end(on.soul.run("again " * 14_000))
        end = on.ear.of(ev.TurnEnd)[-1]
        assert end.reason == "error"
        assert "still takes" in end.error
        # The user can rewind to the kept checkpoints, as the advice says.
        assert [point.id for point in on.session.context.checkpoints] == [0, 1, 2]
        assert "Rewind to an earlier checkpoint" in end.advice
        assert (await on.soul.travel.rewind(Target(2))).prompt.startswith("again")


async def test_what_frees_nothing_is_not_kept(tmp_path: Path) -> None:
    bare = SimpleCompaction(max_preserved_messages=0)
    async with stage(tmp_path, window=20_000, compaction=bare) as on:
        on.server.script(say("answer " * 9_000, piece=70))
        await on.soul.run("word " * 11_000)
        before = on.file()
        on.server.script(say("longer " * 26_000, piece=70), say("word " * 13_000, piece=70))
        await on.soul.compact()
        assert "compaction frees nothing" in on.ear.of(ev.CompactionEnd)[-1].error
        assert on.file() == before
        await on.soul.compact()
        assert not on.ear.of(ev.CompactionEnd)[-1].error
        # All that is left of the line is the summary; before it leads only an undo.
        assert [point.id for point in on.session.context.checkpoints] == [0]
        on.server.script(say("on"))
        await on.soul.resume()
        assert on.ear.notices()[-1].advice.startswith("Undo the compaction")


def test_how_many_messages_stay() -> None:
    messages = [
        user_words("a"),
        answer("1"),
        user_words("b"),
        answer("2"),
        user_words("c"),
        answer("3"),
    ]
    for number, kept in ((2, messages[4:]), (3, messages[3:]), (1, messages[5:])):
        assert list(SimpleCompaction(max_preserved_messages=number).plan(messages, []).kept) == kept
    assert list(SimpleCompaction(max_preserved_messages=0).plan(messages, [messages[4]]).kept) == [
        messages[4]
    ]


def test_the_prompt_asks_for_what_must_not_get_lost() -> None:
    task = prompt("compaction")
    assert "## Completed tasks" in task
    assert "one summary of both" in task
    assert "signatures" in task
    assert "whole" in task


class Halving:
    """A strategy of somebody else's Python: the newest half stays, and nothing is asked of the model."""

    def plan(
        self, messages: Sequence[Message], turn: Sequence[Message], pinned: Collection[int] = ()
    ) -> CompactionPlan:
        middle = len(messages) // 2
        return CompactionPlan(tuple(messages[:middle]), tuple(messages[middle:]))

    async def compact(
        self,
        plan: CompactionPlan,
        provider: ChatProvider,
        ask: AskModel,
        *,
        instructions: str,
        budget: int,
    ) -> Compacted:
        if instructions == "fail":
            raise ZeroDivisionError
        return Compacted("HALF", (summary_message("HALF"), *plan.kept), 0, 0, 0)


async def test_a_strategy_that_the_configuration_names(tmp_path: Path) -> None:
    assert isinstance(compaction_named("simple"), SimpleCompaction)
    made = compaction_named(f"{__name__}:Halving")
    async with stage(tmp_path, compaction=made) as on:
        on.server.script(say("one"), say("two"))
        await on.soul.run("first")
        await on.soul.run("second")
        await on.soul.compact("fail")
        assert "ZeroDivisionError" in on.ear.of(ev.CompactionEnd)[-1].error
        assert not (on.session.dir / "context_1.jsonl").exists()
        await on.soul.compact()
        assert on.ear.of(ev.CompactionEnd)[-1].summary == "HALF"
        assert len(on.server.requests) == 2


@each(
    "name, why",
    [
        ("clever", "use simple"),
        ("", "use simple"),
        (":Halving", "use simple"),
        ("no_such_module_here:Halving", "ModuleNotFoundError"),
        (f"{__name__}:Absent", "AttributeError"),
        (f"{__name__}:Stage", "TypeError"),
        ("pathlib:Path", "lacks the methods plan and compact"),
        ("x" * 10_000, "use simple"),
    ],
)
def test_a_strategy_that_there_is_not(name: str, why: str) -> None:
    with pytest.raises(UnknownCompaction) as caught:
        compaction_named(name)
    assert why in caught.value.message
    assert "loop_control.compaction" in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400


async def test_a_prompt_that_fills_the_window_is_answered_if_it_fits(tmp_path: Path) -> None:
    async with stage(tmp_path, window=20_000) as on:
        on.server.script(say("yes", usage=(17_000, 10)))
        await on.soul.run("again " * 12_000)
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert "nearly full" in on.ear.notices()[0].text


async def test_a_prompt_longer_than_the_window_is_an_error(tmp_path: Path) -> None:
    async with stage(tmp_path, window=20_000) as on:
        await until_end(on.soul.run("again " * 18_000))
        assert "nothing older" in on.ear.of(ev.TurnEnd)[-1].error
        assert not on.server.requests


@pytest.mark.exhaustive
async def test_a_refusal_as_too_long_compacts_once_and_goes_on(tmp_path: Path) -> None:
    limits = LoopLimits(LoopControl(same_call_limit=0))
    async with stage(tmp_path, limits=limits) as on:
        (on.work / "a.txt").write_text("some words here\n" * 380)
        on.server.script(*(call("ReadFile", {"path": "a.txt"}) for _ in range(20)), say("read"))
        await on.soul.run("read all")
        await talk(on, "two", "three")
        # The refusal does not give the length of the window.
        refusal = {"error": {"message": "This exceeds the context window", "type": "invalid"}}
        on.server.script(status(400, refusal), say("SUMMARY"), say("done"))
        await on.soul.run("four")
        refused, summary, retried = on.server.requests[-3:]
        assert len(summary.raw) < 0.6 * len(refused.raw)
        assert len(retried.raw) < len(refused.raw)
        assert "SUMMARY" in on.sent()[0][1]
        assert on.sent()[-1] == ("user", "four")
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        assert len(on.ear.of(ev.CompactionEnd)) == 1


async def test_a_second_refusal_is_an_error(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        # With all tools, also in the small window that the refusal names.
        on.soul.use_tools("on")
        await talk(on, "one", "two", "three")
        on.server.script(status(400, TOO_LONG), say("SUMMARY"), status(400, TOO_LONG))
        await until_end(on.soul.run("four"))
        assert on.ear.of(ev.TurnEnd)[-1].reason == "error"
        assert [one.automatic for one in on.ear.of(ev.CompactionBegin)] == [True]
        assert len(on.ear.of(ev.CompactionEnd)) == 1
        assert on.server.left == 0


async def test_a_refused_summary_is_asked_for_with_less(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "big.txt").write_text("some words here\n" * 900)
        on.server.script(call("ReadFile", {"path": "big.txt"}), say("read"))
        await on.soul.run("read")
        await talk(on, "two", "three")
        on.server.script(*[status(400, TOO_LONG)] * 3, say("SUMMARY"))
        await on.soul.compact()
        sizes = [len(request.raw) for request in on.server.requests[-4:]]
        assert sizes[0] > sizes[1] > sizes[2] > sizes[3]
        assert on.ear.of(ev.CompactionEnd)[-1].summary == "SUMMARY"


async def test_images_go_to_models_that_see(tmp_path: Path) -> None:
    async with stage(tmp_path, capabilities=["image_in", "tools"]) as on:
        await talk(on, "one")
        data = base64.b64encode(saved(flat(8, 8))).decode()
        image = ImagePart(image_url=ImageURL(url=f"data:image/png;base64,{data}"))
        await on.session.context.append(
            [Message(role="user", content=[TextPart(text="what is this"), image])]
        )
        await talk(on, "two", "three")
        on.server.script(say("SUMMARY"))
        await on.soul.compact()
        content = on.server.requests[-1].messages[1]["content"]
        assert [part["type"] for part in content] == ["text", "image_url"]
        assert internal_kind(on.session.context.messages[0]) == "compaction"


async def test_stopped_while_it_is_applied_it_has_happened(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await talk(on, "one", "two", "three")
        on.server.script(gate(2, say("SUMMARY of it")))
        job = asyncio.create_task(on.soul.compact())
        await on.server.at_gate.wait()
        on.server.release()
        # Stop it at whatever moment after the answer: either all of it happened, or nothing.
        await asyncio.sleep(0)
        await on.soul.interrupt()
        await job
        (end,) = on.ear.of(ev.CompactionEnd)
        happened = (on.session.dir / "context_1.jsonl").exists()
        assert happened is (not end.error)


@pytest.mark.exhaustive
async def test_what_a_compaction_reads_is_freed_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_SLICE_S", 0.0)
    n_results = 3_000
    async with stage(tmp_path, window=10_000_000, follow_files=False) as on:
        await talk(on, "one")
        made = [
            ToolCall(id=f"c{n}", function=FunctionCall(name="Glob", arguments="{}"))
            for n in range(n_results)
        ]
        results = [Message(role="tool", content="x", tool_call_id=one.id) for one in made]
        answer = Message(role="assistant", content="", tool_calls=made)
        await on.soul._conversation.append([answer, *results])
        await talk(on, "two", "three")
        on.server.script(say("# Summary", usage=(700, 30)))
        with most_in_a_callback() as most:
            await on.soul.compact()
        assert len(on.sent()) < 20
        assert most.n_calls < n_results
