"""An external agent does the turns of a session: what it says and does, what it asks for, time travel, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.covered import whole_sandbox

from kimi_tui.agent_parts import parts_of
from kimi_tui.config.settings import ConfigError
from kimi_tui.external.connection import _MOST_AHEAD, AgentFailed
from kimi_tui.external.pipe import _MOST_ASKED
from kimi_tui.external.serving import _Terminal
from kimi_tui.launch import Options, launch_of
from kimi_tui.soul import assembly
from kimi_tui.soul.errors import RunCancelled
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tool_cards import DiffBlock, ShellBlock, TodoBlock
from kimi_tui.wire import events as ev

from .conftest import AgentDesk

Able = Callable[[str], None]


async def test_a_turn_is_told_and_stored_as_one_of_our_own(desk: AgentDesk, able: Able) -> None:
    able("options")
    async with desk.session() as one:
        assert parts_of(one.soul) == {"session", "travel", "lines", "marks"}
        said = await one.say(
            "think Let me see.",
            *["plan look,edit"] * 2,
            "say I write.",
            "write a.txt one",
            "say Done.",
            "usage 500 20000",
        )
        assert said == "I write. Done. "
        assert [one.text for one in one.of(ev.ThinkPart)] == ["Let me see."]
        assert [step.n for step in one.of(ev.StepBegin)] == [1, 2, 3]
        results = one.of(ev.ToolResult)
        assert [call.key for call in one.of(ev.ToolCall)] == [each.key for each in results]
        plan, edit = (result.display[0] for result in results)
        assert isinstance(plan, TodoBlock)
        assert [item.status for item in plan.items] == ["done", "in_progress"]
        assert isinstance(edit, DiffBlock)
        assert (edit.path, edit.added, edit.created) == ("a.txt", 1, True)
        changed = one.of(ev.FilesChanged)[0]
        assert (changed.paths, changed.key) == (("a.txt",), results[1].key)
        assert changed.uid == one.of(ev.CheckpointCreated)[2].uid
        # A call that changed files is followed by a checkpoint.
        kinds = [point.kind for point in one.of(ev.CheckpointCreated)]
        assert kinds == ["user", "step", "step", "step"]
        assert [message.role for message in one.messages] == [
            *("user", "assistant", "tool", "assistant", "tool", "assistant")
        ]
        status = one.soul.status
        assert (status.used >= 500, status.limit, status.total_input) == (True, 20_000, 10)
        assert one.soul.cost is not None
        assert one.soul.model_name == "Small"
        assert one.soul.agent_words == "scripted, Ask"
        await one.soul.set_setting(one.soul.settings[0], "code")
        assert one.soul.agent_words == "scripted, Code"
        # An agent that was started anew gets the settings that the user chose.
        with pytest.raises(AgentFailed):
            await one.say("die 4")
        await one.say("say Again.")
        assert one.soul.agent_words == "scripted, Code"


async def test_an_agent_changes_its_mode_and_shows_a_picture(desk: AgentDesk, able: Able) -> None:
    able("modes")
    async with desk.session() as one:
        await one.soul.prepare_model()
        await one.soul.begin_session()
        assert one.soul.agent_words == "scripted, Ask"
        assert await one.say("picture", "mode code", "say Now.") == "[image]Now. "
        assert one.soul.agent_words == "scripted, Code"
        title = one.soul.session.title
        assert await one.soul.name_session() == ""
        assert one.soul.session.title == title
        await one.say("title A picture")
        assert await one.soul.name_session() == one.soul.session.title == "A picture"
        (told,) = one.of(ev.Notice)
        assert told.text == "The mode of the agent is now: scripted, Code."


async def test_a_change_that_failed_is_none(desk: AgentDesk) -> None:
    async with desk.session() as one:
        await one.say("refused a.txt")
        (result,) = one.of(ev.ToolResult)
        assert result.is_error
        assert not [block for block in result.display if isinstance(block, DiffBlock)]
        assert not one.of(ev.FilesChanged)


async def test_a_question_has_exactly_the_answers_of_the_agent(desk: AgentDesk) -> None:
    async with desk.session() as one:
        one.answer = lambda _: "Always go for it"
        said = await one.say("ask execute echo hi")
        (asked,) = one.asked
        assert asked.options == ("Go for it", "Always go for it")
        assert (asked.no_offer, asked.detail) == ("Better not", "echo hi")
        assert json.loads(said)["optionId"] == "ever"
        result = one.of(ev.ToolResult)[0]
        assert (result.output, result.is_error) == ("hi\n", False)
        assert (asked.key, asked.tool) == (result.key, "Shell")
        assert [one.exit_code for one in result.display if isinstance(one, ShellBlock)] == [0]
        one.answer = lambda _: "no"
        assert json.loads(await one.say("ask edit something"))["optionId"] == "no"


async def test_a_command_that_was_allowed_is_asked_for_again_only_if_another_one_runs(
    desk: AgentDesk,
) -> None:
    long = "echo " + "x" * 90
    async with desk.session("ask") as one:
        one.answer = lambda asked: asked.options[0] if asked.options else "yes"
        assert await one.say(f"asked {long}") == f"{long[5:]}\n"
        (asked,) = one.asked
        assert asked.detail.split("\n")[0] == long
        # The card has the command alone, and not the text of its arguments as output.
        (started,) = one.of(ev.ToolStarted)
        assert json.loads(started.arguments) == {"command": long}
        assert "".join(each.text for each in one.of(ev.ToolOutput)) == f"{long[5:]}\n"
        # The agent runs something else than it asked for.
        assert await one.say("asked echo hello => echo other") == "other\n"
        asked = one.asked[-1]
        assert len(one.asked) == 3
        assert "echo other" in asked.detail
        one.answer = lambda asked: asked.options[0] if asked.options else "no"
        assert "refused" in await one.say("asked echo hello => echo hello; touch made")
        assert not (desk.work / "made").exists()


async def test_files_and_commands_are_served_in_the_folder_alone(
    desk: AgentDesk,
) -> None:
    (desk.work / "in.txt").write_text("inside\n")
    (desk.work / "out").symlink_to(desk.home / "config.toml")
    async with desk.session() as one:
        said = await one.say(f"read {desk.work}/in.txt")
        assert json.loads(said) == {"content": "inside\n"}
        (desk.work / "lines.txt").write_text("1\n2\n3\n")
        for part, text in (("2 -", "2\n3\n"), ("- 1", "1\n"), ("2 1", "2\n"), ("9 1", "")):
            said = await one.say(f"readpart {part} {desk.work}/lines.txt")
            assert json.loads(said) == {"content": text}
        for path in ("../home/config.toml", f"{desk.work}/../home/config.toml", f"{desk.work}/out"):
            assert "error" not in json.loads(said)
            assert "message" in json.loads(await one.say(f"read {path}"))
            assert "message" in json.loads(await one.say(f"save {path} x"))
        assert "external_agents" in (desk.home / "config.toml").read_text()
        assert json.loads(await one.say(f"save {desk.work}/made.txt text")) == "saved"
        assert (desk.work / "made.txt").read_text() == "text\n"
        # The agent has no call for it, so it has a card of its own, with the change.
        result = one.of(ev.ToolResult)[-1]
        assert not result.is_error
        assert DiffBlock in [type(block) for block in result.display]
        assert json.loads(await one.say(f"save {desk.work}/made.txt text")) == "saved"
        said = [json.loads(await one.say(f"read {path}")) for path in (desk.work, desk.work / "no")]
        assert [each["message"] for each in said] == [
            "it is a folder, not a regular file",
            "Resource not found",
        ]
        # A command is asked for as one of our own, and not again where it was just allowed.
        one.answer = lambda _: "yes"
        code, shown = json.loads(await one.say("terminal echo out; exit 3"))
        assert code == {"exitCode": 3}
        assert shown["output"] == "out\n"
        (asked,) = one.asked
        assert (asked.question, asked.detail) == ("Run this command?", "echo out; exit 3")
        one.answer = lambda _: "no"
        code, shown = json.loads(await one.say("terminal touch never"))
        assert "refused" in shown["output"]
        assert not (desk.work / "never").exists()
        await one.soul.set_mode("ask")
        said = json.loads(await one.say(f"save {desk.work}/made.txt other"))
        assert said["message"] == "The user refused this. no"
        assert (desk.work / "made.txt").read_text() == "text\n"


async def test_a_request_without_a_call_has_a_card_and_one_of_another_session_is_refused(
    desk: AgentDesk,
) -> None:
    (desk.work / "in.txt").write_text("inside\n")
    async with desk.session("all") as one:
        assert await one.say("alone echo out") == "out\n"
        (started,) = one.of(ev.ToolStarted)
        assert json.loads(started.arguments) == {"command": "echo out"}
        # A terminal is gone after its turn.
        assert await one.say("output") == "Resource not found"
        assert await one.say("elsewhere") == "unknown session\n" * 4
        assert (desk.work / "in.txt").read_text() == "inside\n"


async def test_files_go_back_and_the_agent_is_told_the_rest_as_text(desk: AgentDesk) -> None:
    async with desk.session() as one:
        await one.say("write a.txt first", "say Wrote it.")
        await one.say("write a.txt second", "quietly b.txt made")
        assert (desk.work / "b.txt").exists()
        await one.soul.travel.rewind(Target(one.point), "restore")
        assert (desk.work / "a.txt").read_text() == "first\n"
        assert not (desk.work / "b.txt").exists()
        known = json.loads(await one.say("know"))
        assert len(desk.sent_of("session/new")) == 2
        assert "write a.txt first" in known[0]
        assert "Wrote it." in known[0]
        assert "second" not in known[0]
        assert known[1] == "know"
        assert any("new session of its own" in notice.text for notice in one.of(ev.Notice))
        await one.soul.travel.undo()


async def test_an_agent_that_forks_goes_back_itself(desk: AgentDesk, able: Able) -> None:
    able("fork load")
    async with desk.session() as one:
        await one.say("say one")
        await one.say("say two")
        await one.soul.travel.rewind(Target(one.point))
        assert json.loads(await one.say("know")) == ["say one", "know"]
        await one.soul.travel.undo()
        assert json.loads(await one.say("know")) == ["say one", "say two", "know"]
        assert len(desk.sent_of("session/new")) == 1
        assert not one.of(ev.Notice)


async def test_a_session_goes_on_with_its_agent(desk: AgentDesk, able: Able) -> None:
    able("load")
    async with desk.session() as one:
        await one.say("write a.txt one")
        session_id = one.soul.session.id
    async with desk.session(session=session_id) as one:
        assert json.loads(await one.say("know")) == ["write a.txt one", "know"]
        assert "REPEATED" not in str(one.events)
    able("fork load")
    async with desk.session(session=session_id) as one:
        await one.soul.begin_session()
        await one.say("say Where I was.")
        assert len(desk.sent_of("session/fork")) == 1
        # The program says nothing of its own.
        await one.soul.set_mode("plan")
        await one.say("say On.")
        prompts = [
            [part["text"] for part in each["prompt"]] for each in desk.sent_of("session/prompt")
        ]
        assert prompts == [["write a.txt one"], ["know"], ["say Where I was."], ["say On."]]
    # Without its program the session is shown, and a turn says what is missing.
    desk.configure(["no-such-agent"])
    async with desk.session(session=session_id) as one:
        (words,) = await one.soul.prepare_model()
        assert words.startswith('The program "no-such-agent" of the external agent scripted is not')
        with pytest.raises(AgentFailed, match="is not installed"):
            await one.say("hello")
        assert [message.text for message in one.messages if message.role == "user"] == [
            *("write a.txt one", "know", "say Where I was.", "say On.", "hello")
        ]


@pytest.mark.parametrize(
    "word",
    [
        "hang",
        "ask execute sleep 9",
        pytest.param("terminal sleep 60", marks=pytest.mark.exhaustive),
    ],
)
async def test_a_stop_ends_the_turn_within_a_second(desk: AgentDesk, word: str) -> None:
    async with desk.session("all" if word.startswith("terminal") else "edits") as one:
        one.answer = lambda _: None
        turn = asyncio.create_task(one.say("say Here.", word))
        there = {"h": ev.TextPart, "a": ev.ApprovalRequest, "t": ev.ToolStarted}[word[0]]
        await one.until(lambda: one.of(there))
        began = time.monotonic()
        await one.soul.interrupt()
        # Twice the promise: the machine may be loaded.
        assert time.monotonic() - began < 2
        with pytest.raises(RunCancelled):
            await turn
        assert any(message.interrupted for message in one.messages)
        assert await one.say("say Still here.") == "Still here. "


@pytest.mark.parametrize(
    ("word", "words"),
    [
        (
            "die 4",
            "scripted is no longer running: it exited with code 4; its last output: ValueError",
        ),
        pytest.param(
            "fail no money",
            "scripted could not answer: no money.",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
async def test_what_goes_wrong_is_one_line_and_the_session_stays(
    desk: AgentDesk, word: str, words: str
) -> None:
    async with desk.session() as one:
        with pytest.raises(AgentFailed) as failed:
            await one.say("say Half.", word)
        assert failed.value.message.startswith(words)
        assert await one.say("say Again.") == "Again. "
        assert [message.role for message in one.messages] == [
            *("user", "assistant", "user", "assistant")
        ]


async def test_lines_that_are_no_messages_change_nothing(desk: AgentDesk, able: Able) -> None:
    able("noise fork load")
    async with desk.session() as one:
        await one.say("say First.")
        # The session is a copy now, while which was made its messages could have come again.
        assert await one.say("say Before.", "junk", "say After.") == "Before. After. "
        assert one.soul.host.connection is not None
        assert one.soul.host.connection.n_skipped > 10
        names = str([call.arguments for call in one.of(ev.ToolCall)])
        assert "\x1b" not in names
        assert len(names) < 2_000


async def test_an_escape_that_a_step_leaves_open_swallows_nothing_of_the_next_one(
    desk: AgentDesk,
) -> None:
    async with desk.session() as one:
        said = await one.say("say Before.\x1b]0;", "write a.txt first", "say After.")
        assert "Before." in said
        assert "After." in said
        assert "\x1b" not in said


async def test_an_agent_may_ask_any_number_of_questions_one_after_the_other(
    desk: AgentDesk,
) -> None:
    (desk.work / "in.txt").write_text("inside\n")
    async with desk.session() as one, asyncio.timeout(60):
        said = await one.say(*[f"read {desk.work}/in.txt"] * (_MOST_ASKED + 1))
        assert said.count("inside") == _MOST_ASKED + 1


async def test_an_agent_that_is_far_ahead_waits(desk: AgentDesk) -> None:
    async with desk.session() as one:
        await one.say("say Here.")
        connection = one.soul.host.connection
        assert connection is not None
        # Nobody takes updates from here on.
        connection._is_read = True
        for _ in range(_MOST_AHEAD):
            connection.note(connection.session, "an update")
        further = asyncio.create_task(connection._has_room())
        await asyncio.sleep(0)
        assert not further.done()
        connection.next_update()
        await further
        connection.end_reading()


async def test_an_agent_that_is_not_there_is_said_before_the_screen(desk: AgentDesk) -> None:
    def tried(name: str) -> str:
        with pytest.raises(ConfigError) as error:
            launch_of(Options(work_dir=str(desk.work), external_agent=name))
        return str(error.value)

    assert tried("nobody").startswith(
        'There is no external agent "nobody": kimi-tui knows claude, '
    )
    assert 'The program "codex-acp" of the external agent codex is not installed' in tried("codex")
    assert "npm install -g" in tried("codex")
    planted = desk.work / "agent"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    desk.configure([str(planted)])
    assert "sandboxed commands can change it" in tried("scripted")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("login", "scripted is not logged in: Authentication required."),
        ("future", "scripted uses version 9 of the Agent Client Protocol"),
    ],
)
async def test_an_agent_that_cannot_begin_says_why(
    desk: AgentDesk, able: Able, words: str, said: str
) -> None:
    able(words)
    async with desk.session() as one:
        with pytest.raises(AgentFailed) as failed:
            await one.say("hello")
        assert failed.value.message.startswith(said)


@pytest.mark.exhaustive
async def test_a_flood_of_questions_is_stopped_with_the_turn(desk: AgentDesk) -> None:
    async with desk.session() as one:
        one.answer = lambda _: None
        turn = asyncio.create_task(one.say("flood 500"))
        await one.until(lambda: one.asked)
        await one.soul.interrupt()
        with pytest.raises(RunCancelled):
            await turn
        assert len(one.asked) == 1
        assert await one.say("say Calm.") == "Calm. "


@pytest.mark.exhaustive
async def test_an_agent_that_does_not_stop_is_started_anew(desk: AgentDesk, able: Able) -> None:
    able("deaf")
    async with desk.session() as one:
        turn = asyncio.create_task(one.say("say Here.", "deaf"))
        await one.until(lambda: one.of(ev.TextPart))
        await one.soul.interrupt()
        with pytest.raises(RunCancelled):
            await turn
        assert await one.say("say New.") == "New. "
        assert len(desk.sent_of("initialize")) == 2


@pytest.mark.exhaustive
async def test_an_agent_that_never_answers_can_be_stopped_at_its_start(
    desk: AgentDesk, able: Able
) -> None:
    able("mute")
    async with desk.session() as one:
        turn = asyncio.create_task(one.say("hello"))
        await one.until(lambda: one.of(ev.StepBegin))
        began = time.monotonic()
        await one.soul.interrupt()
        assert time.monotonic() - began < 2
        with pytest.raises(RunCancelled):
            await turn


@pytest.mark.exhaustive
async def test_a_huge_answer_is_kept_in_bounds(desk: AgentDesk) -> None:
    async with desk.session() as one:
        said = await one.say("big 5000000", "say end")
        assert len(said) == 2_000_000
        assert any("left out" in notice.text for notice in one.of(ev.Notice))


@pytest.mark.exhaustive
async def test_images_go_to_an_agent_that_takes_them(desk: AgentDesk, able: Able) -> None:
    from support.made_images import flat, saved

    from kimi_tui.images import read_image

    able("image")
    image = read_image(saved(flat(4, 4)), "shot.png")
    async with desk.session() as one:
        await one.soul.prepare_model()
        await one.soul.run("say Seen.", [image])
        (prompt,) = desk.sent_of("session/prompt")
        assert [block["type"] for block in prompt["prompt"]] == ["text", "image"]


@pytest.mark.exhaustive
async def test_a_fork_of_the_session_does_not_share_the_agents_session(
    desk: AgentDesk, able: Able
) -> None:
    able("load")
    async with desk.session() as one:
        await one.say("say one")
        forked = await one.soul.travel.fork()
    async with desk.session(session=forked.session_id) as one:
        assert "say one" in json.loads(await one.say("know"))[0]
        assert len(desk.sent_of("session/new")) == 2


async def test_a_session_that_was_begun_without_a_turn_is_told_all_that_was_said(
    desk: AgentDesk,
) -> None:
    async with desk.session() as one:
        await one.say("say one")
        await one.say("say two")
        session_id = one.soul.session.id
    async with desk.session(session=session_id) as one:
        await one.soul.begin_session()
        told, known = json.loads(await one.say("know"))
        assert known == "know"
        assert "say one" in told
        assert "say two" in told


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["edits", "all"])
async def test_commands_for_an_agent_are_in_the_sandbox_in_the_modes_that_ask_nothing(
    desk: AgentDesk, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    found = whole_sandbox(Path("/"))
    monkeypatch.setattr(assembly, "find_sandbox", lambda *_: found)
    config = desk.home / "config.toml"
    config.write_text(config.read_text().replace("enabled = false", "enabled = true"))
    outside = desk.folder / "outside"
    async with desk.session(mode) as one:
        one.answer = lambda _: "yes"
        await one.say(f"terminal echo x > {outside}; echo x > inside")
        assert (desk.work / "inside").exists()
        assert outside.exists() == (mode == "edits") == bool(one.asked)


def test_output_is_cut_only_beyond_its_limit() -> None:
    terminal = _Terminal(3)
    terminal.hear("abc")
    assert (terminal.output, terminal.cut) == ("abc", False)
    terminal.hear("d")
    assert (terminal.output, terminal.cut) == ("bcd", True)


async def test_our_own_sessions_open_as_before(desk: AgentDesk) -> None:
    """A session of our own agent has no external one, and none is started for it."""
    launch = launch_of(Options(work_dir=str(desk.work)))
    assert launch.external_agent == ()
    assert not desk.log.exists()


async def test_a_program_that_is_no_agent_is_ended_with_one_line(desk: AgentDesk) -> None:
    desk.configure(["yes", "no message of any protocol"])
    async with desk.session() as one:
        (words,) = await one.soul.prepare_model()
        assert words.startswith(
            "scripted is no longer running: its output is not the Agent Client Protocol."
        )


async def test_a_session_that_lost_the_newest_messages_is_told_those_alone(
    desk: AgentDesk, able: Able
) -> None:
    able("fork load")
    async with desk.session() as one:
        await one.say("say one")
        with pytest.raises(AgentFailed):
            await one.say("say Half.", "die 4")
        known = json.loads(await one.say("know"))
        assert known[0] == "say one"
        assert "Half." in known[1]
        assert "say one" not in known[1]
        (said,) = [each.text for each in one.of(ev.Notice)]
        assert said == (
            "scripted did not keep the newest 2 messages. Its session gets them as text."
        )
