"""An editor drives a session over the Agent Client Protocol: turns, questions, options, time travel, and what goes wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema
from support.chat_server import call, calls, gate, say, status
from support.editor import Desk, Editor, said
from support.made_images import flat, saved


async def new(agent: Any, desk: Desk, **more: Any) -> str:
    return (await agent.new_session(cwd=str(desk.work), mcp_servers=[], **more)).session_id


async def ask(agent: Any, session: str, text: str) -> str:
    return (await agent.prompt(session_id=session, prompt=said(text))).stop_reason


def states(editor: Editor) -> list[tuple[str, str]]:
    """Return the states of the tool calls, with their titles."""
    kinds = (schema.ToolCallStart, schema.ToolCallProgress)
    found = [one for one in editor.updates if isinstance(one, kinds)]
    return [(one.title or "", one.status or "") for one in found if one.status]


async def test_a_turn_is_told_as_it_happens(desk: Desk) -> None:
    desk.server.script(
        call("WriteFile", {"path": "a.txt", "content": "one\ntwo\n"}, text="I write."),
        call("Shell", {"command": "seq 3; exit 2"}),
        say("Done."),
    )
    async with desk.editor("all") as (editor, agent):
        session = await new(agent, desk)
        found = await agent.prompt(session_id=session, prompt=said("write it"))
    assert found.stop_reason == "end_turn"
    assert found.usage.total_tokens > 0
    assert editor.text == "I write.Done."
    assert states(editor) == [
        ("Write", "pending"),
        ("Write a.txt", "in_progress"),
        ("Write a.txt", "completed"),
        ("Shell", "pending"),
        ("seq 3; exit 2", "in_progress"),
        ("seq 3; exit 2", "failed"),
    ]
    ended = [one for one in editor.of(schema.ToolCallProgress) if one.status == "completed"]
    diff = ended[0].content[0]
    assert (diff.path, diff.new_text, diff.old_text) == (str(desk.work / "a.txt"), "one\ntwo", None)
    assert editor.of(schema.UsageUpdate)[-1].size == 200_000
    commands = editor.of(schema.AvailableCommandsUpdate)[0].available_commands
    assert {"rewind", "undo", "redo", "checkpoints", "worldlines", "compact"} <= {
        one.name for one in commands
    }


async def test_a_question_has_the_words_and_answers_of_the_app(desk: Desk) -> None:
    desk.server.script(
        call("Shell", {"command": "touch made"}),
        say("Made."),
        call("Shell", {"command": "touch no"}),
    )
    async with desk.editor("ask") as (editor, agent):
        session = await new(agent, desk)
        assert await ask(agent, session, "make it") == "end_turn"
        editor.choose = lambda _: "no"
        assert await ask(agent, session, "again") == "end_turn"
    assert (desk.work / "made").exists()
    assert not (desk.work / "no").exists()
    question, answers = editor.asked[0]
    words = question.content[0].content.text
    assert words.startswith("Run this command?\n\n    touch made\n\n")
    assert (question.title, question.kind) == ("touch made", "execute")
    assert question.raw_input == {"command": "touch made"}
    assert answers[0], answers[-1] == ("once", "no")


async def test_a_sub_agent_is_a_call_and_its_questions_name_it(desk: Desk) -> None:
    desk.server.script(
        calls([("Agent", {"description": "write b", "prompt": "Write b.txt"})]),
        call("WriteFile", {"path": "b.txt", "content": "x\n"}),
        say("written"),
        say("All done."),
    )
    async with desk.editor("ask") as (editor, agent):
        assert await ask(agent, await new(agent, desk), "go") == "end_turn"
    assert (desk.work / "b.txt").exists()
    question, _ = editor.asked[0]
    assert question.content[0].content.text.startswith("general-1: ")
    # The editor has no card of the call that the question is about, so the question has one of its own, which ends with the answer.
    (card,) = [one for one in editor.of(schema.ToolCallStart) if one.title.startswith("general-1:")]
    told = [
        one for one in editor.of(schema.ToolCallProgress) if one.tool_call_id == card.tool_call_id
    ]
    assert [one.status for one in told] == ["completed"]
    # What it says and calls itself is not the session's.
    assert editor.text == "All done."


async def test_a_question_of_the_agent_is_answered_by_one_of_its_options(desk: Desk) -> None:
    asked = {
        "questions": [{"question": "Which?", "options": [{"label": "red"}, {"label": "blue"}]}]
    }
    desk.server.script(call("AskUserQuestion", asked), say("Blue it is."))
    async with desk.editor() as (editor, agent):
        editor.choose = lambda options: next(one.option_id for one in options if one.name == "blue")
        assert await ask(agent, await new(agent, desk), "choose") == "end_turn"
    assert "blue" in json.dumps(desk.server.requests[-1].messages[-1])


async def test_forms_say_what_one_choice_cannot(desk: Desk) -> None:
    options = [{"label": "red"}, {"label": "blue"}, {"label": "green"}]
    several = {"questions": [{"question": "Which?", "options": options, "multi_select": True}]}
    one = {"questions": [{"question": "Which one?", "options": options}]}
    desk.server.script(
        call("AskUserQuestion", several),
        call("AskUserQuestion", one),
        call("Shell", {"command": "touch no"}),
        call("Shell", {"command": "touch first"}),
        say("Done."),
    )
    filled = iter(
        [
            {"answers": ["option-2", "option-0", "option-77", 5], "text": " mauve "},
            {"answers": "option-1", "text": 7},
            {"text": "it is of no use"},
            {"text": "touch second"},
        ]
    )
    chosen = iter(["why", "change"])
    async with desk.editor(shows_forms=True) as (editor, agent):
        editor.fill = lambda _: next(filled)
        editor.choose = lambda _: next(chosen)
        assert await ask(agent, await new(agent, desk), "choose") == "end_turn"
    results = [str(request.messages[-1]) for request in desk.server.requests[1:]]
    assert "red; green; mauve" in results[0]
    assert "blue" in results[1]
    assert "it is of no use" in results[2]
    assert (desk.work / "second").exists()
    assert not (desk.work / "first").exists()
    assert not (desk.work / "no").exists()
    words, fields = editor.forms[0]
    assert words.startswith("Which?")
    assert fields.properties is not None
    assert [one.title for one in fields.properties["answers"].items.any_of] == [
        "red",
        "blue",
        "green",
    ]
    assert editor.asked[0][1] == ["once", "change", "no", "why"]


async def test_without_the_promised_forms_a_choice_is_asked(desk: Desk) -> None:
    asked = {"questions": [{"question": "Which?", "options": [{"label": "red"}]}]}
    desk.server.script(
        call("AskUserQuestion", asked), say("Red."), call("Shell", {"command": "touch no"})
    )
    async with desk.editor(shows_forms=True) as (editor, agent):
        session = await new(agent, desk)
        assert await ask(agent, session, "choose") == "end_turn"
        assert "red" in str(desk.server.requests[1].messages[-1])
        # A reason that nobody can enter is a no without one.
        editor.choose = lambda options: options[-1].option_id
        assert await ask(agent, session, "run it") == "end_turn"
    assert not (desk.work / "no").exists()


@pytest.mark.parametrize("asks", [False, True], ids=["while it answers", "while it asks"])
async def test_cancel_ends_the_turn_within_a_second(desk: Desk, asks: bool) -> None:
    desk.server.script(call("Shell", {"command": "touch x"}) if asks else gate(1, say("a b c d")))
    async with desk.editor() as (editor, agent):
        session = await new(agent, desk)
        editor.choose = lambda _: None
        turn = asyncio.create_task(agent.prompt(session_id=session, prompt=said("go")))
        if asks:
            await editor.until(schema.ToolCallStart)
            await asyncio.wait_for(editor.is_asked.wait(), 20)
        else:
            await asyncio.to_thread(desk.server.wait_at_gate)
        await agent.cancel(session_id=session)
        assert (await asyncio.wait_for(turn, 20)).stop_reason == "cancelled"
        desk.server.release()
        desk.server.script(say("Still here."))
        assert await ask(agent, session, "hello?") == "end_turn"
    assert editor.text.endswith("Still here.")


async def test_time_travel_says_first_what_it_takes(desk: Desk) -> None:
    desk.server.script(call("WriteFile", {"path": "a.txt", "content": "x"}), say("Done."))
    made = desk.work / "a.txt"
    async with desk.editor("all") as (editor, agent):
        session = await new(agent, desk)
        await ask(agent, session, "write it")
        editor.updates.clear()
        await ask(agent, session, "/checkpoints")
        assert editor.text.startswith("- **#0** write it\n- **#1** Write a.txt, 1 file changed")
        editor.choose = lambda _: "no"
        await ask(agent, session, "/rewind 0")
        assert made.exists()
        words = editor.asked[-1][0].content[0].content.text
        assert "- removes 3 steps, 4 messages" in words
        assert "- can restore a.txt" in words
        editor.choose = lambda _: "restore"
        await ask(agent, session, "/rewind #0")
        assert not made.exists()
        await ask(agent, session, "/worldlines")
        assert "- **1** write it" in editor.text
        await ask(agent, session, "/undo")
        assert made.exists()
        await ask(agent, session, "/redo")
        assert not made.exists()
        editor.updates.clear()
        desk.server.script(say("Later."))
        await ask(agent, session, "go on")
        editor.choose = lambda _: "no"
        await ask(agent, session, "/undo")
        assert editor.asked[-1][0].title == "Undo the rewind to #0"
        assert editor.text.endswith("Nothing changed.")
        await ask(agent, session, "/rewind 0 keep-files")
        assert editor.asked[-1][1] == ["keep", "no"]
        for wrong in ("/rewind", "/rewind 9", "/switch 7", "/rewind -1", "/rewind 0 x", "/compact"):
            await ask(agent, session, wrong)
        assert editor.asked[-1][1] == ["compact", "no"]
        editor.choose = lambda options: options[0].option_id
        await ask(agent, session, "/compact")
        assert editor.text.endswith("Nothing was compacted.")  # it is too short for that
    assert "Which checkpoint?" in editor.text
    assert "Traceback" not in editor.text
    assert "KeyError" not in editor.text


async def test_what_was_rewound_is_not_shown_when_a_session_is_loaded(desk: Desk) -> None:
    desk.server.script(say("first answer"), say("second answer"))
    async with desk.editor("all") as (editor, agent):
        session = await new(agent, desk)
        await ask(agent, session, "first")
        await ask(agent, session, "second")
        editor.choose = lambda options: options[0].option_id
        await ask(agent, session, "/rewind 2")
    async with desk.editor("all") as (editor, agent):
        listed = (await agent.list_sessions(cwd=str(desk.work))).sessions
        assert [one.session_id for one in listed] == [session]
        await agent.load_session(cwd=str(desk.work), session_id=session, mcp_servers=[])
        assert [one.content.text for one in editor.of(schema.UserMessageChunk)] == ["first"]
        assert editor.text == "first answer"
        copy = (await agent.fork_session(cwd=str(desk.work), session_id=session)).session_id
        assert copy != session
        editor.updates.clear()
        await agent.resume_session(cwd=str(desk.work), session_id=session)
        assert editor.text == ""
        desk.server.script(say("third answer"))
        await ask(agent, session, "third")
    assert "second" not in json.dumps(desk.server.requests[-1].messages)


async def test_a_message_that_only_contains_the_name_of_a_command_goes_to_the_model(
    desk: Desk,
) -> None:
    desk.server.script(say("Fine."), say("Fine too."))
    async with desk.editor("all") as (editor, agent):
        session = await new(agent, desk)
        await ask(agent, session, "(undo it)")
        await ask(agent, session, "-undo")
        assert editor.text == "Fine.Fine too."
    said_by_user = json.dumps(desk.server.requests[-1].messages)
    assert "(undo it)" in said_by_user
    assert "-undo" in said_by_user


async def test_a_session_without_a_message_is_loaded_and_resumed_while_it_is_open(
    desk: Desk,
) -> None:
    desk.server.script(say("Here."))
    async with desk.editor("all") as (editor, agent):
        session = await new(agent, desk)
        await agent.load_session(session_id=session, cwd=str(desk.work), mcp_servers=[])
        await agent.resume_session(session_id=session, cwd=str(desk.work))
        assert await ask(agent, session, "hello") == "end_turn"
        assert editor.text == "Here."


async def test_mode_model_and_thinking_are_options(desk: Desk) -> None:
    desk.configure(
        f'[providers.p]\ntype = "openai"\nbase_url = "{desk.server.base_url}"\napi_key = "sk-other-key"\n'
        'dialect = "openrouter"\n'
        '[models.small]\nprovider = "p"\nmodel = "small-1"\nmax_context_size = 50000\n'
        '[providers.far]\ntype = "openai"\nbase_url = "http://llm.example.test/v1"\napi_key = "k"\n'
        '[models.far]\nprovider = "far"\nmodel = "small-1"\n'
        '[providers.odd]\ntype = "openai"\nbase_url = "http://127.0.0.1:8/v1"\ndialect = "odd"\n'
        '[models.odd]\nprovider = "odd"\nmodel = "small-1"\n'
        '[providers.twin]\ntype = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n'
        '[models.twin]\nprovider = "twin"\nmodel = "small-1"\n'
    )
    async with desk.editor("ask") as (editor, agent):
        session = await new(agent, desk)
        found = await agent.set_config_option(config_id="mode", session_id=session, value="plan")
        values = {one.id: one.current_value for one in found.config_options}
        assert values["mode"] == "plan"
        assert values["model"] == "stand-in"
        await agent.set_session_mode(session_id=session, mode_id="all")
        assert (await editor.until(schema.CurrentModeUpdate)).current_mode_id == "plan"
        found = await agent.set_config_option(config_id="model", session_id=session, value="twin")
        assert {one.id: one.current_value for one in found.config_options}["model"] == "twin"
        for value, why in (("far", "unencrypted"), ("odd", "is not a dialect")):
            with pytest.raises(acp.RequestError, match=why):
                await agent.set_config_option(config_id="model", session_id=session, value=value)
        found = await agent.set_config_option(config_id="model", session_id=session, value="small")
        assert {one.id: one.current_value for one in found.config_options}["model"] == "small"
        thinking = found.config_options[-1]
        assert (thinking.category, thinking.current_value) == ("thought_level", "default")
        assert "high" in [one.value for one in thinking.options]
        for value, sent in (("high", {"effort": "high"}), ("default", None)):
            options = {"config_id": thinking.id, "session_id": session, "value": value}
            found = await agent.set_config_option(**options)
            assert found.config_options[-1].current_value == value
            desk.server.script(say("hi"))
            await ask(agent, session, "hello")
            assert desk.server.requests[-1].body.get("reasoning") == sent
        for name, value in (("mode", "god"), ("model", "none"), ("x", "y")):
            with pytest.raises(acp.RequestError) as refused:
                await agent.set_config_option(config_id=name, session_id=session, value=value)
            assert str(refused.value).startswith("There is no")
    assert desk.server.requests[-1].body["model"] == "small-1"
    assert desk.server.requests[-1].headers["authorization"] == "Bearer sk-other-key"


@pytest.mark.exhaustive
async def test_an_editor_deletes_a_session_into_the_trash(desk: Desk) -> None:
    desk.server.script(say("Hello."), say("Hello."))
    async with desk.process() as (_, agent):
        kept, gone = await new(agent, desk), await new(agent, desk)
        for session in (kept, gone):
            await ask(agent, session, "hi")

        async def delete(session: Any) -> Any:
            return await agent._conn.send_request("session/delete", {"sessionId": session})

        await delete(gone[:8])
        assert len((await agent.list_sessions()).sessions) == 2
        await delete(gone)
        await delete(gone)
        assert [one.session_id for one in (await agent.list_sessions()).sessions] == [kept]
        for wrong in ("", 5, None):
            with pytest.raises(acp.RequestError, match="names no session"):
                await delete(wrong)
        with pytest.raises(acp.RequestError):
            await agent._conn.send_request("session/no_such_method", {})
    assert [path.name for path in (desk.home / "trash").glob("*/*/*")] == [gone]


@pytest.mark.exhaustive
async def test_the_editors_mcp_servers_run_beside_our_own(desk: Desk) -> None:
    server = schema.McpServerStdio(
        name="of the editor",
        command=sys.executable,
        args=["-S", str(Path(__file__).parent.parent / "support" / "mcp_server.py")],
        env=[],
    )
    desk.server.script(call("mcp__of-the-editor__add", {"a": 2, "b": 3}), say("Five."))
    async with desk.editor("ask") as (editor, agent):
        made = await agent.new_session(cwd=str(desk.work), mcp_servers=[server])
        assert await ask(agent, made.session_id, "add") == "end_turn"
    (question, _) = editor.asked[0]
    assert question.raw_input == {"a": 2, "b": 3}
    assert "5" in json.dumps(desk.server.requests[-1].messages[-1])


async def test_files_images_and_embedded_texts_come_with_a_prompt(desk: Desk) -> None:
    (desk.work / "a b.txt").write_text("of the file\n")
    (desk.work / "secret.txt").write_text("not asked for")
    desk.configure('[models.stand-in]\nprovider = "p"\nmodel = "stand-in"\n')
    desk.server.script(say("Seen."))
    blocks = [
        acp.text_block("Compare "),
        acp.resource_link_block("a b", (desk.work / "a b.txt").as_uri()),
        acp.text_block(" and "),
        acp.resource_block(acp.embedded_text_resource("file:///other/b.txt", "x @secret.txt")),
    ]
    async with desk.editor("all") as (_, agent):
        session = await new(agent, desk)
        await agent.prompt(session_id=session, prompt=blocks)
        sent = json.dumps(desk.server.requests[-1].messages[-1])
        picture = base64.b64encode(saved(flat(2, 2))).decode()
        wrong: list[list[Any]] = [
            [acp.image_block("%%%", "image/png")],
            [acp.image_block(base64.b64encode(b"no image").decode(), "image/png")],
            [acp.audio_block("aaaa", "audio/wav")],
            [acp.text_block("  ")],
            [acp.image_block(picture, "image/png")],
        ]
        for one in wrong:
            with pytest.raises(acp.RequestError) as refused:
                await agent.prompt(session_id=session, prompt=one)
            assert "Traceback" not in str(refused.value)
    assert '@\\"a b.txt\\" and [/other/b.txt]' in sent
    assert "of the file" in sent
    assert "/other/b.txt:\\nx @secret.txt" in sent
    assert "not asked for" not in sent


async def test_files_are_read_as_they_are_in_the_editor(desk: Desk) -> None:
    path = desk.work / "a.txt"
    path.write_text("saved\n")
    desk.server.script(
        call("ReadFile", {"path": "a.txt"}),
        call("ReadFile", {"path": "b.txt"}),
        say("Read."),
    )
    (desk.work / "b.txt").write_text("on the disk\n")
    async with desk.editor("all", reads_files=True) as (editor, agent):
        editor.files[str(path)] = "not saved\n"
        await ask(agent, await new(agent, desk), "read it")
    first = json.dumps(desk.server.requests[1].messages[-1])
    assert "1\\tnot saved" in first
    assert "edits change the file on the disk" in first
    assert "on the disk" in json.dumps(desk.server.requests[2].messages[-1])


async def test_what_goes_wrong_is_one_sentence(desk: Desk) -> None:
    desk.server.script(status(401, {"error": {"message": "bad key"}}))
    async with desk.editor() as (_, agent):
        session = await new(agent, desk)
        with pytest.raises(acp.RequestError) as failed:
            await ask(agent, session, "hello")
        assert "401" in str(failed.value)
        assert "sk-test-key" not in str(failed.value)
        for request in (
            agent.new_session(cwd="relative", mcp_servers=[]),
            agent.new_session(cwd=str(desk.work / "none"), mcp_servers=[]),
            agent.load_session(cwd=str(desk.work), session_id="0" * 36, mcp_servers=[]),
            agent.prompt(session_id="none", prompt=said("x")),
            agent.new_session(
                cwd=str(desk.work),
                mcp_servers=[schema.McpServerStdio(name="x", command=" ", args=[], env=[])],
            ),
        ):
            with pytest.raises(acp.RequestError) as refused:
                await request
            assert "\n" not in str(refused.value)


async def test_without_a_model_the_editor_is_told_to_set_one_up(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KIMI_BASE_URL", "KIMI_API_KEY", "KIMI_MODEL_NAME"):
        monkeypatch.delenv(name)
    async with desk.editor() as (_, agent):
        with pytest.raises(acp.RequestError) as refused:
            await new(agent, desk)
    assert refused.value.code == -32000
    assert "No model is configured" in str(refused.value)


@pytest.mark.exhaustive
async def test_standard_output_is_the_protocols_alone(desk: Desk) -> None:
    desk.server.script(say("Hello."))
    async with desk.process("--mode", "all") as (editor, agent):
        assert await ask(agent, await new(agent, desk), "hi") == "end_turn"
    assert editor.text == "Hello."


@pytest.mark.slow  # it starts the program
def test_lines_that_are_no_messages_are_answered_and_ignored(desk: Desk) -> None:
    start = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}}
    lines = [
        b"nonsense",
        b"[]",
        b'{"method": 5}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"",
        json.dumps(start).encode(),
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "kimi_tui", "acp"],
        input=b"\n".join(lines) + b"\n",
        capture_output=True,
        env=desk.environment,
        cwd=desk.work,
        timeout=50,
        check=False,
    )
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [one.get("error", {}).get("code") for one in answers] == [
        *(-32700, -32600, -32600, -32700, -32700),
        None,
    ]
    assert answers[-1]["result"]["protocolVersion"] == 1
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_the_line_that_installs_the_package_is_said(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kimi_tui.commands import acp as command
    from kimi_tui.external import agents

    monkeypatch.setattr(agents, "find_spec", lambda _: None)
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert command.run([]) == 1
    said = capsys.readouterr().err
    assert "needs the Python package agent-client-protocol" in said
    assert "Install it with: " in said
