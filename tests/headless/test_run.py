"""`kimi-tui -p`: the prompt and standard input, the answer and what is beside it, refusals, budgets, and which session is used."""

from __future__ import annotations

import json
import os
import threading

import pytest
from headless.conftest import Scripts
from support.chat_server import call, calls, say, status

from kimi_tui.headless import standard_input

# -- the prompt


def test_the_answer_is_alone_on_standard_output(scripts: Scripts) -> None:
    (scripts.work / "a.txt").write_text("hello\n")
    scripts.server.script(
        call("ReadFile", {"path": "a.txt"}, text="I look."), say("It says hello.")
    )
    ran = scripts.run("-p", "what is in a?")
    assert (ran.code, ran.out, ran.err) == (0, "It says hello.\n", "· ReadFile a.txt\n")
    assert scripts.server.server.title_requests == []
    scripts.server.script(say("As before."))
    ran = scripts.run("--quiet", "--continue", "and now?")
    assert (ran.code, ran.out, ran.err) == (0, "As before.\n", "")
    assert "what is in a?" in scripts.sent()
    assert len(scripts.sessions()) == 1


def test_what_is_progress_is_left_out_with_quiet(scripts: Scripts) -> None:
    scripts.server.script(call("ReadFile", {"path": "a.txt"}), say("It is not there."))
    ran = scripts.run("--quiet", "-p", "what is in a?")
    assert (ran.code, ran.err) == (0, "")


def test_terminal_sequences_of_the_model_are_left_out(scripts: Scripts) -> None:
    scripts.server.script(say("a\x1b[31mred\x1b]0;title\x07 b\x9b2J"), say("a\x1b[31mred"))
    assert scripts.run("-p", "hi").out == "ared b\n"
    assert scripts.result("-p", "hi")["result"] == "ared"


@pytest.mark.parametrize("arguments", [["-p"], ["-p", "-"], []])
def test_the_prompt_is_read_from_standard_input(scripts: Scripts, arguments: list[str]) -> None:
    scripts.server.script(say("Hello."))
    assert scripts.run(*arguments, stdin="grüß dich\n".encode()).out == "Hello.\n"
    assert scripts.sent() == "grüß dich"


def test_a_pipe_without_an_option_is_a_text_beside_the_message(scripts: Scripts) -> None:
    scripts.server.script(say("It fails."))
    (scripts.work / "secret.txt").write_text("not asked for")
    log = b"\x1b[31mFAILED\x1b[0m @secret.txt </stdin>\n"
    assert scripts.run("explain", stdin=log).out == "It fails.\n"
    assert scripts.sent() == "explain\n\n<stdin>\nFAILED @secret.txt <\\/stdin>\n</stdin>"


def test_an_open_pipe_that_sends_nothing_is_left(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_input.StandardInput.__init__, "__defaults__", (0, 0.05))
    scripts.server.script(say("Hello."))
    reader, writer = os.pipe()
    try:
        ran = scripts.run("-p", "hi", stdin=reader)
    finally:
        os.close(reader)
        os.close(writer)
    assert (ran.code, ran.out) == (0, "Hello.\n")
    assert ran.err.startswith("kimi-tui: no data on standard input for 0 s")


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (b"", "there is no prompt: standard input is empty"),
        (b" \n", "there is no prompt"),
        (b"\x7fELF\0\1", "is not text"),
        (b"x" * 10_000_001, "longer than 10 MB"),
    ],
)
def test_what_is_no_prompt_is_said(scripts: Scripts, stdin: bytes, words: str) -> None:
    ran = scripts.run("-p", stdin=stdin)
    assert ran.code == 2
    assert words in ran.complaint
    assert not scripts.sessions()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", ""], "the prompt is empty"),
        (["-p", "x", "--max-steps", "0"], '"0" is not a whole number'),
        (["-p", "x", "--max-time", "soon"], '"soon" is not a time'),
        (["-p", "x", "--max-cost", "nan"], '"nan" is not an amount'),
        (["-p", "x", "--max-cost", "1"], 'the prices of "stand-in" are not configured'),
        (["-p", "x", "--deltas"], "--deltas needs"),
        (["-p", "--input-format", "stream-json"], "needs --output-format stream-json"),
        (["-p", "x", "--ephemeral", "--continue"], "cannot be used with --continue"),
        (["-p", "x", "-o", "no/such/file"], "there is no folder"),
        (["-p", "x", "-o", "."], "is a folder"),
        (["-p", "x", "-o", "-"], "needs the name of a file"),
        (["-p", "x", "--add-dir", "/"], '--add-dir: "/" contains the work folder'),
        (["-p", "x", "--json-schema", "no.json"], '"no.json" cannot be read'),
        (["-p", "x", "--allow", "python3.12 x.py"], "it is an interpreter"),
        (["-p", "x", "--allow", "a && b"], "not one simple command"),
        (["-p", "x", "--allow", "mcp__"], "write mcp__SERVER__TOOL for one tool"),
        (["-p", "x", "--allow", "mcp__files__read x"], "write mcp__SERVER__TOOL for one tool"),
        (["-p", "x", "--demo"], "--demo cannot be used together"),
        (["-p", "x", "--resume"], "--resume cannot be used together"),
        (["-p", "x", "--mode", "yolo"], "invalid choice"),
        (["-p", "x", "--session", "nope"], "nope"),
    ],
)
def test_wrong_usage_is_one_line_before_anything_is_sent(
    scripts: Scripts, arguments: list[str], words: str
) -> None:
    ran = scripts.run(*arguments)
    assert ran.code == 2
    assert words in ran.complaint
    assert not scripts.server.requests
    assert not scripts.sessions()


def test_without_a_key_or_a_model_it_says_how_to_set_one(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_BASE_URL", "https://models.example/v1")
    monkeypatch.delenv("KIMI_API_KEY")
    ran = scripts.run("-p", "hi")
    assert (ran.code, "there is no API key for https://models.example/v1" in ran.complaint) == (
        2,
        True,
    )
    monkeypatch.setenv("KIMI_BASE_URL", "HTTP://api.moonshot.ai/v1")
    assert "is not encrypted. Begin the base URL with https://" in scripts.run("-p", "hi").complaint
    monkeypatch.delenv("KIMI_BASE_URL")
    assert "no model is configured. Set KIMI_API_KEY" in scripts.run("-p", "hi").complaint


# -- formats


def test_json_is_the_result(scripts: Scripts) -> None:
    scripts.server.script(
        call("ReadFile", {"path": "a"}, usage=(100, 5)), say("No such file.", usage=(120, 7, 90))
    )
    found = scripts.result("-p", "read a")
    assert found["duration_ms"] >= 0
    assert scripts.sessions()[0].name == found["session_id"]
    assert {name: found[name] for name in ("subtype", "is_error", "num_turns", "result")} == {
        "subtype": "success",
        "is_error": False,
        "num_turns": 2,
        "result": "No such file.",
    }
    assert found["usage"] == {
        "input_tokens": 130,
        "cache_read_input_tokens": 90,
        "output_tokens": 12,
    }
    assert (found["permission_denials"], found["total_cost_usd"]) == ([], None)


def test_a_stream_has_the_events_of_the_wire(scripts: Scripts) -> None:
    scripts.server.script(call("ReadFile", {"path": "a"}, text="I look."), say("It is not there."))
    ran = scripts.run("-p", "read a", "--mode", "ask", "--output-format", "stream-json")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    kinds = [line["type"] for line in lines if line["type"] != "StatusUpdate"]
    assert kinds == [
        "init",
        "TurnBegin",
        "CheckpointCreated",
        "StepBegin",
        "CheckpointCreated",
        "TextPart",
        "ToolCall",
        "ToolStarted",
        "ToolResult",
        "StepBegin",
        "CheckpointCreated",
        "TextPart",
        "TurnEnd",
        "result",
    ]
    assert lines[0]["session_id"] == lines[-1]["session_id"]
    events = lines[1:-1]
    assert all({"seq", "at", "source"} <= set(line) for line in events)
    assert [line["seq"] for line in events] == sorted(line["seq"] for line in events)
    (called,) = (line for line in events if line["type"] == "ToolCall")
    assert json.loads(called["arguments"]) == {"path": "a"}


def test_with_deltas_the_pieces_are_lines(scripts: Scripts) -> None:
    from support.chat_server import delta, stream

    scripts.server.script(stream(*[delta(content=word) for word in ("one ", "two ", "three")]))
    ran = scripts.run("-p", "count", "--output-format", "stream-json", "--deltas")
    texts = [json.loads(line) for line in ran.out.splitlines()]
    assert "".join(one["text"] for one in texts if one["type"] == "TextPart") == "one two three"


def test_the_answer_also_goes_into_a_file(scripts: Scripts) -> None:
    scripts.server.script(say("Hello.\nThere."), status(401, {"error": {"message": "Bad key"}}))
    assert scripts.run("-p", "hi", "-o", "out.txt").out == "Hello.\nThere.\n"
    assert (scripts.work / "out.txt").read_text() == "Hello.\nThere.\n"
    assert scripts.run("-p", "hi", "-o", "out.txt").code == 1
    assert (scripts.work / "out.txt").read_text() == "Hello.\nThere.\n"


# -- refusals


def test_what_would_ask_is_refused_and_told(scripts: Scripts) -> None:
    scripts.server.script(call("Shell", {"command": "touch x"}), say("I could not."))
    found = scripts.result("-p", "make x", "--mode", "ask")
    assert not (scripts.work / "x").exists()
    assert (found["exit_code"], found["result"]) == (0, "I could not.")
    (denied,) = found["permission_denials"]
    assert (denied["tool_name"], denied["tool_input"]) == ("Shell", {"command": "touch x"})
    assert "nobody is here to answer" in scripts.sent()


def test_a_refusal_is_said_on_standard_error(scripts: Scripts) -> None:
    scripts.server.script(call("Shell", {"command": "touch x"}), say("I could not."))
    ran = scripts.run("-p", "make x", "--mode", "ask")
    assert (
        "kimi-tui: refused: Shell touch x (it needs approval; allow it with --allow or" in ran.err
    )


def test_a_refused_page_names_the_setting_that_allows_it(scripts: Scripts) -> None:
    page = call("FetchURL", {"url": "https://docs.example:8443/a?b"})
    for rules in ((), ("--allow", "git push")):
        scripts.server.script(page, say("I could not."))
        ran = scripts.run("-p", "read it", "--strict", *rules)
        assert ran.code == 3
        assert (
            "refused: FetchURL https://docs.example:8443/a?b (it needs approval; "
            'allow it with allow = ["docs.example:8443"] in [web] of config.toml)'
        ) in ran.err


def test_a_rule_covers_commands_that_begin_so(scripts: Scripts) -> None:
    scripts.server.script(
        call("Shell", {"command": "touch x y"}), call("Shell", {"command": "touch z"}), say("Well.")
    )
    found = scripts.result("-p", "make x", "--mode", "ask", "--allow", "touch x")
    assert {path.name for path in scripts.work.iterdir()} == {"x", "y"}
    (denied,) = found["permission_denials"]
    assert denied["tool_input"] == {"command": "touch z"}


def test_a_question_of_the_agent_is_told_that_nobody_is_there(scripts: Scripts) -> None:
    asked = {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}
    scripts.server.script(call("AskUserQuestion", asked), say("I took a."))
    assert scripts.run("-p", "choose").out == "I took a.\n"


def test_a_plan_is_the_answer_where_nothing_may_change(scripts: Scripts) -> None:
    scripts.server.script(call("ExitPlanMode", {"plan": "1. Do it."}), say("The plan: 1. Do it."))
    ran = scripts.run("--plan", "-p", "plan it")
    assert (ran.code, ran.out) == (0, "The plan: 1. Do it.\n")
    assert "nobody can approve the plan" in ran.err


def test_without_a_sandbox_the_first_line_says_so_with_the_cure(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kimi_tui.soul import assembly
    from kimi_tui.tools.sandbox.policy import NoSandbox

    def none(*_: object) -> object:
        raise NoSandbox("this machine refuses user namespaces")

    scripts.config.unlink()
    monkeypatch.setattr(assembly, "find_sandbox", none)
    scripts.server.script(call("Shell", {"command": "touch x"}), say("I could not."))
    ran = scripts.run("-p", "make x")
    first = ran.err.splitlines()[0]
    assert "this machine refuses user namespaces" in first
    assert "--mode all runs them; use it only in a container or VM that you can throw away" in first
    scripts.server.script(call("Shell", {"command": "touch x"}), say("Done."))
    ran = scripts.run("-p", "make x", "--mode", "all")
    assert (ran.code, ran.err) == (0, "· Shell touch x\n")
    assert (scripts.work / "x").exists()


# -- sessions


def test_a_session_is_chosen_forked_or_not_kept(scripts: Scripts) -> None:
    scripts.server.script(say("One."))
    first = scripts.result("-p", "first")["session_id"]
    scripts.server.script(say("Two."), say("Three."), say("Four."))
    assert scripts.result("-p", "second", "--session", first[:8])["session_id"] == first
    forked = scripts.result("-p", "third", "--session", first, "--fork")["session_id"]
    assert forked != first
    assert "second" in scripts.sent()
    assert scripts.result("-p", "fourth", "--ephemeral")["result"] == "Four."
    assert {path.name for path in scripts.sessions()} == {first, forked}


def test_bare_leaves_the_notes_out(scripts: Scripts) -> None:
    (scripts.work / "AGENTS.md").write_text("Speak like a pirate.")
    scripts.server.script(say("Arr."), say("Hello."))
    scripts.run("-p", "hi")
    assert "pirate" in str(scripts.server.requests[-1].messages[0])
    scripts.run("-p", "hi", "--bare")
    assert "pirate" not in str(scripts.server.requests[-1].messages)


# -- a schema

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_an_answer_that_fits_is_structured(scripts: Scripts) -> None:
    (scripts.work / "s.json").write_text(json.dumps(SCHEMA))
    scripts.server.script(say('```json\n{"n": 4}\n```'), say('{"n": 5}'))
    assert scripts.run("-p", "count", "--json-schema", "s.json").out == '{"n": 4}\n'
    assert scripts.result("-p", "count", "--json-schema", "s.json")["structured_output"] == {"n": 5}
    assert '"required"' in scripts.sent(0)


def test_an_answer_that_does_not_fit_is_repaired_once(scripts: Scripts) -> None:
    (scripts.work / "s.json").write_text(json.dumps(SCHEMA))
    scripts.server.script(say("four", usage=(10, 1)), say('{"n": 4}', usage=(20, 2)))
    found = scripts.result("-p", "count", "--json-schema", "s.json", "-o", "out.json")
    assert (found["structured_output"], found["num_turns"]) == ({"n": 4}, 2)
    assert found["usage"]["input_tokens"] == 30
    assert json.loads((scripts.work / "out.json").read_text()) == {"n": 4}
    assert "it is not JSON" in scripts.sent()
    scripts.server.script(say("four"), say('{"n": "four"}'))
    found = scripts.result("-p", "count", "--json-schema", "s.json")
    assert (found["exit_code"], found["is_error"]) == (1, True)
    assert found["errors"] == ["The answer does not match the schema: $.n is not integer."]


# -- messages as lines


def lines_of(*messages: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in messages)


LINES = ("-p", "--input-format", "stream-json", "--output-format", "stream-json")


def test_several_turns_in_one_process(scripts: Scripts) -> None:
    scripts.server.script(
        say("One."), status(401, {"error": {"message": "Bad key"}}), say("Three.")
    )
    said = lines_of(
        {"type": "user", "text": "first"},
        {
            "type": "user",
            "message": {"role": "user", "content": [{"type": "text", "text": "second"}]},
        },
        {"type": "nonsense"},
        {"type": "user", "text": "third"},
        {"type": "close"},
        {"type": "user", "text": "never"},
    )
    ran = scripts.run(*LINES, stdin=said)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    results = [line for line in lines if line["type"] == "result"]
    assert [one["exit_code"] for one in results] == [0, 1, 0]
    assert [one["result"] for one in results] == ["One.", "", "Three."]
    (bad,) = (line for line in lines if line["type"] == "error")
    assert bad["message"].startswith('"nonsense" is not a type of message: use user, steer,')
    assert ran.code in (1, 2)
    assert len({one["session_id"] for one in results}) == 1


def test_a_question_waits_for_its_answer(scripts: Scripts) -> None:
    scripts.server.script(
        calls([("Shell", {"command": "touch x"}), ("Shell", {"command": "touch y"})]), say("Done.")
    )
    reader, writer = os.pipe()
    out_reader, out_writer = os.pipe()
    seen: list[str] = []

    def other_program() -> None:
        with open(out_reader, encoding="utf-8") as out, open(writer, "wb", 0) as to:
            to.write(lines_of({"type": "set_mode", "mode": "ask"}, {"type": "user", "text": "go"}))
            answers = iter(("once", "no"))
            for line in out:
                event = json.loads(line)
                seen.append(event["type"])
                if event["type"] == "ApprovalRequest":
                    answer = {"id": event["id"], "answer": next(answers), "feedback": ""}
                    to.write(lines_of({"type": "answer", **answer}))
                if event["type"] == "result":
                    to.write(lines_of({"type": "close"}))

    other = threading.Thread(target=other_program)
    other.start()
    try:
        ran = scripts.run(*LINES, stdin=reader, stdout=out_writer)
    finally:
        os.close(reader)
        other.join(30)
    assert ran.code == 0
    assert ((scripts.work / "x").exists(), (scripts.work / "y").exists()) == (True, False)
    assert seen.count("ApprovalRequest") == 2
    assert seen[-1] == "result"


def test_when_nobody_can_answer_any_more_questions_are_refused(scripts: Scripts) -> None:
    scripts.server.script(call("Shell", {"command": "touch x"}), say("I could not."))
    said = lines_of({"type": "set_mode", "mode": "ask"}, {"type": "user", "text": "go"})
    ran = scripts.run(*LINES, stdin=said)
    result = json.loads(ran.out.splitlines()[-1])
    assert (ran.code, result["result"]) == (0, "I could not.")
    assert len(result["permission_denials"]) == 1
