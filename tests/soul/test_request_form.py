"""The lean form for small windows, and none of the tools where a model takes none: what is sent, said, and still works."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support.cases import each
from support.chat_server import ChatServer, call, calls, reply, say, status
from support.soul import Stage, next_event, stage, until_end

from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.llm.provider import ModelInfo
from kimi_tui.llm.tokens import estimate_fixed
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.request_form import LEAN_BELOW, RequestForm, form_for
from kimi_tui.soul.rewind_values import Target
from kimi_tui.soul.system_prompt import build_system_prompt, lean_prompt
from kimi_tui.tools.toolset import default_toolset
from kimi_tui.wire import events as ev

DAY = date(2026, 11, 28)
MOST_TOKENS = 4_200
"""The largest number of estimated tokens of the system prompt and the tools in an ordinary folder, without FetchURL."""
MOST_WITH_WEB = 4_800
"""The same with FetchURL."""
MOST_LEAN_TOKENS = 1_300
"""The largest number of estimated tokens of the lean prompt and its tools."""
LEAN = ["ReadFile", "Grep", "WriteFile", "StrReplaceFile", "Shell"]


def names(request: Any) -> list[str]:
    """Return the tools of a request."""
    return [tool["function"]["name"] for tool in request.body.get("tools", [])]


def info(window: int, *, tools: bool = True, lean: bool | None = None) -> ModelInfo:
    known = ModelInfo("p", "m", window, lean=lean)
    return known if tools else replace(known, capabilities=frozenset())


@each(
    "model, wish, form",
    [
        (info(LEAN_BELOW), "", RequestForm()),
        (info(LEAN_BELOW - 1), "", RequestForm(lean=True)),
        (info(4_096), "on", RequestForm()),
        (info(4_096), "off", RequestForm(lean=True, tools=False)),
        (info(128_000), "lean", RequestForm(lean=True)),
        (info(128_000), "off", RequestForm(tools=False)),
        (info(128_000, lean=True), "", RequestForm(lean=True)),
        (info(4_096, lean=False), "", RequestForm()),
        (info(128_000, tools=False), "", RequestForm(tools=False)),
        (info(4_096, tools=False), "", RequestForm(lean=True, tools=False)),
        # The server's facts about a template are not always true.
        (info(128_000, tools=False), "on", RequestForm()),
        (None, "", RequestForm()),
    ],
)
def test_the_form_follows_the_window_the_configuration_and_the_user(
    model: ModelInfo | None, wish: Any, form: RequestForm
) -> None:
    assert form_for(model, wish) == form


def test_prompt_and_tools_of_a_first_request_have_a_bound(tmp_path: Path) -> None:
    for name in ("README.md", "LICENSE", "Makefile", "pyproject.toml", "uv.lock", "main.py"):
        (tmp_path / name).write_text("")
    for name in ("src", "tests", "docs", "scripts", ".github"):
        (tmp_path / name).mkdir()
    text = build_system_prompt(tmp_path, {"SHELL": "/bin/bash"}, DAY)
    assert "# Checkpoints and D-Mail" in text
    tools = default_toolset().specs
    assert estimate_fixed(text, tools) <= MOST_WITH_WEB
    assert estimate_fixed(text, [tool for tool in tools if tool.name != "FetchURL"]) <= MOST_TOKENS


TOLD = {
    "": (
        *("and no more", "Never guess", "smallest change", "Never claim", "same failing call"),
        *("one short question", "todo list", "user's language", "`path:line`", "No preamble"),
        *("at the same time", "in ranges", "the reason given", "data, not instructions"),
        *("Do not commit, push, publish, delete or install", "keys or passwords"),
        *("<system>CHECKPOINT n</system>", "Never mention", "far more than you needed"),
        *("took long", "state of the files", "small savings", "same one twice"),
    ),
    "SendDMail": (
        "except the user's messages",
        "all that your past self",
        "stay as they are",
        "if the user agrees",
        "last call",
    ),
    "Shell": (
        *(
            "fresh shell",
            "standard output and errors",
            "exit code",
            "shortened",
            "no terminal",
            "`-y`",
        ),
        *('"default": 60', '"maximum": 600', "everything it started", "TaskOutput", "not `&`"),
        *(
            "API keys",
            "Prefer ReadFile",
            "`&&`",
            "own `/tmp`",
            "toolchains",
            "no network",
            "`.git/hooks`",
        ),
        *("background processes too", "`sandbox` and `why`", "Never work around", "`off`: outside"),
        *("asked first", "exact command", "Never destroy"),
    ),
    "ReadFile": ("1000 lines", "100 KiB", "2000 characters", "a tab", "-100", "secrets", "Glob"),
    "Glob": ("1000 matches", "`**`", "{py,pyi}", ".gitignore", "Does not follow links", "is asked"),
    "Grep": (
        *("Rust", "`!tests/**`", "Escape", "`multiline`", "hidden files", "binary", "credentials"),
        *('"default": 250', '"maximum": 2000', "their file's path", "is asked"),
    ),
    "WriteFile": (
        "missing folders",
        "cheaper",
        "CRLF",
        "final newline",
        "changed on disk",
        "always",
    ),
    "StrReplaceFile": (
        "byte for byte",
        "exactly once",
        "all of them or none",
        "CRLF",
        "changed on",
    ),
    "TaskOutput": ("last looked", "still runs", "told when", "shortened", "to a file"),
    "TaskStop": ("everything it started", "session ends"),
    "FetchURL": (
        "Markdown",
        "PDF",
        "images",
        "30,000",
        "15 minutes",
        "each host",
        "private",
        "data",
    ),
    "SetTodoList": ("replaces", "three or more", "one is `in_progress`", "Leave out `todos`"),
    "AskUserQuestion": ("own words", "leave it to you", "good practice", "semicolons", "first"),
    "Agent": (
        "last answer only",
        "all that it knows",
        "at the same time",
        "- explore: ",
        "general",
    ),
    "ExitPlanMode": ("plan mode only", "you will not do", "how you will check", "AskUserQuestion"),
}
"""Words of the rules and facts that a model is told: in the system prompt, and in each tool's description and schema."""


def test_no_rule_or_fact_is_lost(tmp_path: Path) -> None:
    told = {one.name: f"{one.description} {one.parameters}" for one in default_toolset().specs}
    told[""] = build_system_prompt(tmp_path, {}, DAY)
    lost = [
        (name, words)
        for name, facts in TOLD.items()
        for words in facts
        if words.replace('"', "'") not in " ".join(told[name].replace('"', "'").split())
    ]
    assert lost == []
    assert TOLD.keys() == told.keys()


@pytest.mark.parametrize("odd", ["plain", "many names", "long path", "signs", "many notes"])
def test_lean_prompt_and_tools_have_a_bound_in_any_folder(tmp_path: Path, odd: str) -> None:
    work = tmp_path / "work"
    if odd == "long path":
        for _ in range(12):
            work /= "a-b.c_d" * 20
    work.mkdir(parents=True)
    for n in range(100 if odd == "many names" else 0):
        (work / f"a-{n}_b.tar.gz-{'x' * 90}").write_text("")
    for n in range(60 if odd == "signs" else 0):
        (work / f"{'!-@' * 60}{n}").write_text("")
    if odd == "many notes":
        (work / "AGENTS.md").write_text("Rules. " * 9_000)
    stored = build_system_prompt(work, {"SHELL": "/bin/" + "z/" * 100}, DAY)
    for tools in (True, False):
        text = lean_prompt(stored, work, {}, tools=tools)
        specs = default_toolset().lean().specs if tools else ()
        assert estimate_fixed(text, specs) <= MOST_LEAN_TOKENS
    if odd == "many notes":
        assert "AGENTS.md" in lean_prompt(stored, work, {}, tools=True)
    assert [spec.name for spec in default_toolset().lean().specs] == LEAN


def test_the_lean_prompt_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    stored = build_system_prompt(tmp_path, {"SHELL": "/bin/zsh"}, DAY)
    first = lean_prompt(stored, tmp_path, {}, tools=True)
    (tmp_path / "b.py").write_text("")
    assert lean_prompt(stored, tmp_path, {"SHELL": "/bin/sh"}, tools=True) == first
    assert f"Work folder: {tmp_path}" in first
    assert "a.py" in first
    # A prompt of another program says nothing that could be taken from it.
    other = lean_prompt("Another prompt.", tmp_path, {"SHELL": "/bin/sh"}, tools=True)
    assert f"Work folder: {tmp_path}" in other
    assert "Another" not in other


def test_lean_schemas_are_taken_by_the_tools() -> None:
    tools = default_toolset().lean()
    for spec in tools.specs:
        assert set(spec.parameters["required"]) <= set(spec.parameters["properties"])
        assert "description" not in str(spec.parameters)
    assert tools.accepts("StrReplaceFile", '{"path": "a", "edit": [{"old": "x", "new": "y"}]}')
    assert not tools.accepts("StrReplaceFile", '{"path": "a"}')
    assert not tools.accepts("Glob", '{"pattern": "*"}')
    assert default_toolset().lean(["Glob"]).accepts("Glob", '{"pattern": "*"}')


@pytest.mark.exhaustive
async def test_a_small_window_works_from_hello_to_an_edit(tmp_path: Path) -> None:
    async with stage(tmp_path, window=4_096) as on:
        (on.work / "a.txt").write_text("".join(f"line {n} of many\n" for n in range(2_000)))
        edit = {"path": "a.txt", "edit": {"old": "line 3 of many\n", "new": "three\n"}}
        on.server.script(say("Hello."))
        await on.soul.run("hello")
        on.server.script(call("ReadFile", {"path": "a.txt"}), call("StrReplaceFile", edit))
        on.server.script(say("done"), call("Shell", {"command": "seq 1 9000"}), say("done"))
        await on.soul.run("make line 3 say three")
        read = on.sent()[4][1]
        await on.soul.run("count")
        ran = on.sent()[-1][1]
        assert [end.reason for end in on.ear.of(ev.TurnEnd)] == ["done", "done", "done"]
        assert "three\n" in (on.work / "a.txt").read_text()
        for request in on.server.requests:
            assert names(request) == LEAN
            assert "CHECKPOINT" not in str(request.body)
            assert "SendDMail" not in str(request.body)
        # A sixth of the window, and how to go on.
        assert len(read) < 4_000
        assert "Continue with line_offset=" in read
        assert "9000" in ran
        assert "shortened" in ran
        (notice,) = [one for one in on.ear.notices() if one.topic == ev.FORM_TOPIC]
        assert "4,096" in notice.text
        assert "/tools on" in notice.advice
        # The whole prompt is stored, and the user has checkpoints.
        assert "# Checkpoints and D-Mail" in on.file()[0]["content"]
        assert len(on.session.context.checkpoints) == 9


async def test_many_calls_at_once_share_the_room(tmp_path: Path) -> None:
    async with stage(tmp_path, window=4_096) as on:
        (on.work / "a.txt").write_text("some words in a line\n" * 3_000)
        reads = [("ReadFile", {"path": "a.txt", "line_offset": n}) for n in range(1, 5)]
        on.server.script(calls(reads), say("done"))
        await on.soul.run("read")
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert not on.ear.of(ev.CompactionBegin)
        assert sum(len(text) for role, text in on.sent() if role == "tool") < 4_000


async def test_the_users_own_dmails_and_rewinds_work_in_the_lean_form(tmp_path: Path) -> None:
    async with stage(tmp_path, window=6_000) as on:
        on.server.script(say("one"), say("two"), say("again"))
        await on.soul.run("first")
        await on.soul.run("second")
        await on.soul.dmails.send(Target(2), "Do not go there.")
        await on.soul.resume()
        assert "Do not go there." in on.sent()[-1][1]
        assert names(on.server.requests[-1]) == LEAN
        await on.soul.travel.undo()
        assert (await on.soul.travel.rewind(Target(2))).prompt == "second"


async def test_tools_are_added_and_taken_by_name(tmp_path: Path) -> None:
    async with stage(tmp_path, window=8_000) as on:
        on.server.script(say("one"), say("two"), say("three"), say("four"))
        await on.soul.run("hi")
        on.soul.use_tools("lean", ("Glob",))
        await on.soul.run("more")
        assert names(on.server.requests[-1]) == ["ReadFile", "Glob", *LEAN[1:]]
        on.soul.use_tools("on")
        assert on.soul.tools_form == "on"
        await on.soul.run("all")
        assert "SendDMail" in names(on.server.requests[-1])
        on.soul.use_tools("off")
        await on.soul.run("none")
        assert not names(on.server.requests[-1])
        assert "You have no tools here" in on.server.requests[-1].messages[0]["content"]
        assert [one.form for one in on.ear.of(ev.ToolsChanged)] == ["lean", "on", "off"]
        assert "ToolsChanged" not in (on.session.dir / "wire.jsonl").read_text()


async def test_another_model_has_its_own_form(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"), say("three"))
        await on.soul.run("hi")
        assert "CHECKPOINT 1" in str(on.server.requests[-1].body)
        large = on.soul.used
        on.soul.set_provider(model(on, window=12_000))
        assert on.soul.used < large - 2_900
        await on.soul.run("more")
        assert names(on.server.requests[-1]) == LEAN
        # The markers that are stored are not sent, nor counted.
        assert "CHECKPOINT" not in str(on.server.requests[-1].body)
        on.soul.set_provider(model(on, window=100_000))
        await on.soul.run("and more")
        assert on.server.requests[-1].body["tools"] == on.server.requests[0].body["tools"]
        assert on.server.requests[-1].messages[0] == on.server.requests[0].messages[0]


def model(on: Stage, **options: Any) -> OpenAICompatible:
    return OpenAICompatible(
        provider="test",
        base_url=on.server.base_url,
        api_key="",
        model="stand-in",
        **{"dialect": "generic", **options},
    )


async def test_a_refusal_that_names_a_small_window_brings_the_lean_form(tmp_path: Path) -> None:
    refusal = {"error": {"message": "This model's maximum context length is 6000 tokens."}}
    async with stage(tmp_path) as on:
        on.server.script(status(400, refusal), say("Hello."))
        await on.soul.run("hello")
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert not on.ear.of(ev.CompactionBegin)
        assert len(names(on.server.requests[0])) > len(LEAN)
        assert names(on.server.requests[1]) == LEAN


class Local:
    """A server that says of itself what Ollama or llama.cpp says, and an engine on it that is told nothing by a configuration."""

    def __init__(self, server: ChatServer) -> None:
        self.server = server

    def is_ollama(self, window: int, *capabilities: str) -> None:
        running = {"models": [{"name": "stand-in", "context_length": window}]}
        self.server.route("GET", "/api/version", reply({"version": "0.20"}))
        shown = {"capabilities": list(capabilities), "model_info": {"q.context_length": 40_960}}
        self.server.route("POST", "/api/show", reply(shown))
        self.server.route("GET", "/api/ps", reply(running))

    def is_llamacpp(self, window: int, **caps: bool) -> None:
        props = {"default_generation_settings": {"n_ctx": window}, "chat_template_caps": caps}
        self.server.route("GET", "/props", reply(props))

    async def open(self, on: Stage, **options: Any) -> KimiSoul:
        on.soul.set_provider(model(on, dialect=None, **options))
        on.ear.forget()
        return on.soul


async def test_ollama_as_it_is_installed_says_hello(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        local = Local(on.server)
        local.is_ollama(4_096, "completion", "tools")
        soul = await local.open(on)
        on.server.script(say("Hello."))
        await soul.run("hello")
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert names(on.server.requests[-1]) == LEAN
        (notice,) = [one for one in on.ear.notices() if one.topic == ev.FORM_TOPIC]
        assert "F4" in notice.advice
        assert "32,768" in notice.advice
        # It is said once, not in every turn.
        on.server.script(say("Hello again."))
        await soul.run("and again")
        assert [one for one in on.ear.notices() if one.topic == ev.FORM_TOPIC] == [notice]


@pytest.mark.sample
@pytest.mark.parametrize("server", ["ollama", "llama.cpp"])
async def test_a_template_without_tools_is_chatted_with_without_them(
    tmp_path: Path, server: str
) -> None:
    async with stage(tmp_path) as on:
        local = Local(on.server)
        if server == "ollama":
            local.is_ollama(40_000, "completion")
        else:
            local.is_llamacpp(40_000, supports_tools=False)
        soul = await local.open(on, capabilities=["thinking"])
        on.server.script(say("Hello."), say("Hello again."))
        await soul.run("hello")
        await soul.run("hello again")
        for request in on.server.requests:
            assert "tools" not in request.body
            assert "you have no tools" in request.messages[0]["content"]
        (notice,) = [one for one in on.ear.notices() if one.topic == ev.FORM_TOPIC]
        assert "does not support tools" in notice.text
        parts = {part.name: part.tokens for part in await soul.window_parts()}
        assert parts["tools"] == 0
        # The user may know better, and say so.
        soul.use_tools("on")
        on.server.script(say("three"))
        await soul.run("with tools")
        assert on.server.requests[-1].body["tools"]


async def test_llamacpp_with_a_small_window_names_its_flag(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        local = Local(on.server)
        local.is_llamacpp(2_048, supports_tools=True)
        soul = await local.open(on)
        on.server.script(say("Hello."))
        await soul.run("hello")
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert "-c" in on.ear.notices()[0].advice


async def answered(on: Stage, answer: str, option: int = 0) -> ev.ApprovalRequest:
    """Answer the next question of the program."""
    heard = on.soul.wire.subscribe()
    asked = await next_event(heard, ev.ApprovalRequest)
    on.soul.answer(asked.id, answer, asked.options[option] if answer == "once" else "")  # type: ignore[arg-type]
    return asked


async def test_where_even_lean_is_too_small_the_user_may_go_on_without_tools(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, window=1_100) as on:
        on.server.script(say("Hello."))
        answer = asyncio.create_task(answered(on, "once"))
        await on.soul.run("hello")
        asked = await answer
        assert asked.kind == "pause"
        assert "of 1,100 tokens (system prompt" in asked.question
        assert "tools" in asked.question
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert not names(on.server.requests[-1])
        assert on.soul.tools_form == "off"


async def test_who_does_not_want_that_is_told_what_takes_the_room(tmp_path: Path) -> None:
    async with stage(tmp_path, window=1_100) as on:
        answer = asyncio.create_task(answered(on, "no"))
        await until_end(on.soul.run("hello " * 200))
        await answer
        end = on.ear.of(ev.TurnEnd)[-1]
        assert end.reason == "error"
        assert "of 1,100 tokens (system prompt" in end.error
        assert "newest messages" not in end.error
        for way in ("Rewind", "/clear", "larger window"):
            assert way in end.advice
        assert not on.server.requests


@pytest.mark.exhaustive
async def test_two_long_answers_in_a_small_window_are_compacted(tmp_path: Path) -> None:
    async with stage(tmp_path, window=2_048) as on:
        on.soul.use_tools("off")
        words = "word " * 700
        on.server.script(say(words, piece=90), say(words, piece=90))
        await on.soul.run("one")
        await on.soul.run("two")
        # A model that runs on, as small ones do: its summary is ended, not the window.
        on.server.script(say("A summary of it. " * 400, piece=17), say("three"))
        await on.soul.run("three?")
        (end,) = on.ear.of(ev.CompactionEnd)
        assert not end.error
        assert len(end.summary) < 2_500
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert on.sent()[-1] == ("user", "three?")
        for request in on.server.requests:
            assert estimate_request(request) < 2_048
        assert on.soul.used < 1_536


@pytest.mark.exhaustive
async def test_a_long_turn_in_a_small_window_is_compacted_as_it_goes(tmp_path: Path) -> None:
    async with stage(tmp_path, window=4_096) as on:
        (on.work / "a.txt").write_text("some words in a line\n" * 3_000)

        def answer(request: Any) -> Any:
            if "at most" in str(request.messages[-1]["content"]):
                return say("The file has words in lines.")
            return say("done") if len(on.server.requests) > 14 else step(len(on.server.requests))

        def step(n: int) -> Any:
            return call("ReadFile", {"path": "a.txt", "line_offset": 1 + 40 * n})

        on.server.script(*[answer] * 40)
        await on.soul.run("read all of it")
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        assert len(on.ear.of(ev.CompactionEnd)) >= 2
        assert not [end for end in on.ear.of(ev.CompactionEnd) if end.error]
        assert "read all of it" in str(on.sent())
        for request in on.server.requests:
            assert estimate_request(request) < 4_096


def estimate_request(request: Any) -> int:
    """Return the estimated tokens of a request."""
    return estimate_fixed(str(request.body["messages"]), ())


async def test_the_folders_notes_are_named_where_they_are_too_long(tmp_path: Path) -> None:
    async with stage(tmp_path, window=4_096) as on:
        (on.work / "sub").mkdir()
        (on.work / "sub" / "AGENTS.md").write_text("Rules. " * 4_000)
        (on.work / "sub" / "a.txt").write_text("a\n")
        on.server.script(call("ReadFile", {"path": "sub/a.txt"}), say("done"))
        await on.soul.run("read")
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert "sub/AGENTS.md" in str(on.sent())
        assert "Rules. Rules." not in str(on.sent())


@pytest.mark.exhaustive
async def test_a_model_that_reads_slowly_is_offered_the_lean_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.soul.loop.SLOW_PROMPT_S", 0.0)
    async with stage(tmp_path) as on:
        on.server.script(say("far"))
        await on.soul.run("hello")
        # A server elsewhere is slow for other reasons.
        assert not on.ear.notices()
        local = Local(on.server)
        local.is_llamacpp(40_000, supports_tools=True)
        soul = await local.open(on)
        on.server.script(say("one"), say("two"))
        await soul.run("hello")
        await soul.run("hello")
        (notice,) = on.ear.notices()
        assert "/tools lean" in notice.advice


async def test_a_configuration_asks_for_the_lean_form(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.soul.set_provider(model(on, window=100_000, lean=True))
        on.server.script(say("Hello."))
        await on.soul.run("hello")
        assert names(on.server.requests[-1]) == LEAN
        assert "configuration" in on.ear.notices()[-1].text


async def test_figures_hold_when_the_session_is_opened_with_another_form(tmp_path: Path) -> None:
    async with stage(tmp_path, window=6_000) as on:
        on.server.script(say("one " * 300, piece=90))
        await on.soul.run("hello")
        lean = on.soul.used
        assert not on.soul.status.estimated
        # The window is not known before the server was asked, so the whole form is assumed at first.
        on.window = 100_000
        await on.reopen()
        whole = on.soul.used
        assert whole > lean + 2_900
        assert on.soul.status.estimated
        on.soul.use_tools("lean")
        assert (on.soul.used, on.soul.status.estimated) == (lean, False)
