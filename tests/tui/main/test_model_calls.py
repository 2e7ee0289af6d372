"""Model calls that fail, wait, break off or are stopped, as the person sees them in the whole app."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import (
    ChatServer,
    Chunk,
    call,
    cut,
    delta,
    gate,
    reply,
    say,
    status,
    stream,
)
from support.chat_server import Stall as Stalled
from support.screens import Desk, desk

from kimi_tui.app_paths import log_file
from kimi_tui.config.model_choice import FolderModel, in_folder
from kimi_tui.config.settings import Config, ModelConfig, ProviderConfig
from kimi_tui.launch import Options, launch_of
from kimi_tui.wire.events import Notice


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def stored(home: Path) -> list[dict[str, Any]]:
    """Return the records of the only session."""
    (file,) = home.glob("sessions/*/*/context.jsonl")
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def row_with(one: Desk, words: str) -> str:
    """Return the row of the screen that contains this text."""
    return next(row for row in one.text().split("\n") if words in row)


async def test_a_missing_key_and_a_wait_that_is_given_up(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(
            status(401, {"error": {"message": "no such key"}}),
            say("Better now."),
            status(529, headers={"Retry-After": "40"}),
            say("Later."),
        )
        await one.ready()
        await one.say("Hello")
        shown = " ".join((await one.sees("Nothing was lost. Press Enter to try")).split())
        assert "× Model request failed" in shown
        assert "401: no such key" in row_with(one, "Model request failed")
        assert "This server needs an API key, and none was sent." in shown
        await one.idle()
        assert str(one.screen.prompt.area.placeholder).startswith("Enter to continue")
        await one.pilot.press("enter")
        await one.sees("Better now.")
        await one.idle()
        assert [m["role"] for m in server.requests[-1].messages] == ["system", "user"]
        await one.say("Hello again")
        await one.sees("Retrying in")
        await one.pilot.press("escape")
        await one.idle()
        shown = await one.sees("Stopped by you")
        assert "Retrying" not in shown
        assert len(server.requests) == 3
        await one.pilot.press("enter")
        await one.sees("Later.")


@pytest.mark.exhaustive
async def test_a_wait_is_counted_down_and_cut_short(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(
            status(429, {"error": {"message": "Slow down"}}, headers={"Retry-After": "40"}),
            gate(1, say("Here it is.")),
        )
        await one.ready()
        await one.say("Hello")
        await one.sees("Retrying in")
        card = row_with(one, "Retrying in")
        assert "429: Slow down" in card
        assert "gives up in 10 min" in card
        assert "Enter now   Esc stop" in one.text()
        # The field gives way to the longer words with the next layout.
        await one.until(lambda: "retrying in " in row_with(one, "step 1"))
        found = re.search(r"Retrying in (\d+) s", card)
        assert found
        first = int(found[1])
        assert 38 <= first <= 41
        await one.until(lambda: f"Retrying in {first - 2} s" in one.text())
        # Words in the prompt are a message, not a wish to try now.
        await one.pilot.press("x", "backspace")
        assert len(server.requests) == 1
        await one.pilot.press("enter")
        await one.sees("Retrying now")
        assert "Enter now" not in one.text()
        assert "retrying in " not in row_with(one, "step 1")
        server.release()
        await one.sees("Here it is.")
        await one.idle()
        assert "Retrying" not in one.text()


@pytest.mark.exhaustive
async def test_an_answer_that_breaks_off_goes_from_the_screen(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        half = stream(*(delta(content=f"half{n} ") for n in range(5)), Stalled())
        server.script(half, say("The whole answer."))
        await one.ready()
        await one.say("Hello")
        await one.sees("half4")
        # The line is cut while the person reads.
        await server.stop()
        await one.until(lambda: "half" not in one.text())
        await server.start_again()
        await one.pilot.press("enter")
        await one.sees("The whole answer.")
        assert "half" not in one.text()
        await one.idle()
        assert "half" not in str(stored(home))


@pytest.mark.exhaustive
async def test_stopped_in_the_middle_of_the_text(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(cut(say("One two three four.", piece=4), 4, Stalled()), say("Five."))
        await one.ready()
        await one.say("Count")
        await one.sees("One two")
        await one.pilot.press("escape")
        await one.idle()
        shown = await one.sees("Stopped by you")
        assert "One two" in shown
        assert stored(home)[-1]["interrupted"] is True
        await one.say("Go on")
        await one.sees("Five.")
        assert "One two" in json.dumps(server.requests[-1].messages)


@pytest.mark.exhaustive
async def test_a_steer_waits_is_edited_and_taken(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(gate(2, call("Glob", {"pattern": "*"})), say("Both done."))
        await one.ready()
        await one.say("First")
        await server.at_gate.wait()
        await one.say("Second thought")
        assert "queued" in (await one.sees("Second thought"))
        await one.pilot.press("up")
        await one.until(lambda: one.screen.prompt.area.text == "Second thought")
        await one.until(lambda: "queued" not in one.text())
        await one.pilot.press("end", "space", *"again", "enter")
        await one.sees("queued")
        server.release()
        await one.sees("Both done.")
        await one.idle()
        assert "queued" not in one.text()
        sent = json.dumps(server.requests[1].messages)
        assert sent.count("Second thought") == sent.count("Second thought again") == 1


@pytest.mark.exhaustive
async def test_a_model_without_tools(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        no_tools = {"error": {"message": "kimi-test does not support tools"}}
        server.script(status(400, no_tools), say("In words alone."))
        await one.ready()
        await one.say("Hello")
        await one.sees("This model does not support tools")
        assert "/tools off" in one.text()
        await one.idle()
        await one.say("/tools off")
        await one.sees("In words alone.")
        assert "tools" not in server.requests[-1].body
        assert one.screen.bench.header.heading.model == "kimi-test without tools"
        await one.say("/tools on")
        await one.until(lambda: one.screen.bench.header.heading.model == "kimi-test")


@pytest.mark.exhaustive
async def test_thinking_is_set_sent_and_shown(home: Path) -> None:
    models = [{"id": "kimi-test", "owned_by": "vllm", "max_model_len": 60_000}]
    async with (
        ChatServer(models=models) as server,
        desk(home, server.base_url, dialect=None) as one,
    ):
        server.script(gate(1, say("First.")), say("Second."), say("Third."), say("Fourth."))
        await one.ready()
        await one.say("Hello")
        await server.at_gate.wait()
        # Twice, and while the model answers: it holds from the next call on.
        for _ in range(2):
            await one.say("/thinking ON")
            await one.sees("kimi-test reasons. /thinking can set on or off.")
            await one.sees("It applies to this folder from now on.")
        server.release()
        await one.sees("First.")
        await one.idle()
        assert "chat_template_kwargs" not in server.requests[0].body
        assert one.screen.bench.header.heading.model == "kimi-test thinking"
        await one.say("again")
        await one.sees("Second.")
        await one.idle()
        assert server.requests[1].body["chat_template_kwargs"] == {"enable_thinking": True}
        await one.say("/thinking max")
        await one.sees("kimi-test does not support 'max'. Use on or off.")
        assert one.screen.bench.header.heading.model == "kimi-test thinking"
        await one.say("/thinking off")
        await one.until(lambda: one.screen.bench.header.heading.model == "kimi-test")
        await one.say("and again")
        await one.sees("Third.")
        await one.idle()
        assert server.requests[2].body["chat_template_kwargs"] == {"enable_thinking": False}
        await one.say("/thinking")
        await one.sees("kimi-test does not reason. /thinking can set on or off.")
        # The setting holds here, with any model, and in no other folder.
        inside = launch_of(Options(work_dir=str(home / "app")))
        assert inside.given["default_thinking"] == ("off", "this folder")
        assert "default_model" not in inside.given
        assert (
            in_folder(Config(default_thinking="on"), FolderModel("", "low")).default_thinking
            == "low"
        )
        assert not launch_of(Options(work_dir=str(home))).given
        await one.say("/thinking default")
        await one.until(lambda: not list((home / "models").iterdir()))
        assert not launch_of(Options(work_dir=str(home / "app"))).given


@pytest.mark.exhaustive
async def test_what_was_set_of_thinking_holds_for_the_next_model_too(home: Path) -> None:
    models = [{"id": name, "owned_by": "vllm"} for name in ("kimi-test", "other")]
    async with (
        ChatServer(models=models) as server,
        desk(home, server.base_url, dialect=None) as one,
    ):
        server.script(say("First."))
        await one.ready()
        await one.say("/thinking off")
        await one.sees("kimi-test does not reason.")
        await one.say("/model other")
        await one.sees("The agent now uses other.")
        await one.say("Hello")
        await one.sees("First.")
        assert server.requests[0].body["chat_template_kwargs"] == {"enable_thinking": False}


async def test_a_model_that_does_not_take_what_was_set_of_thinking_is_told_of(home: Path) -> None:
    config = Config(
        models={"fixed": ModelConfig("fixed", "other", "fixed", 32_000)},
        providers={
            "other": ProviderConfig("other", "http://127.0.0.1:9/v1", "k", dialect="generic")
        },
    )
    models = [{"id": "kimi-test", "owned_by": "vllm"}]
    async with (
        ChatServer(models=models) as server,
        desk(home, server.base_url, config=config, dialect=None) as one,
    ):
        await one.ready()
        await one.say("/thinking off")
        await one.sees("kimi-test does not reason.")
        await one.say("/model fixed")
        await one.sees("Reasoning effort: fixed has no known setting")
        assert one.screen.bench.header.heading.model == "fixed"


@pytest.mark.exhaustive
async def test_a_setting_that_the_server_refuses_is_not_shown_as_sent(home: Path) -> None:
    models = [{"id": "kimi-test", "owned_by": "vllm"}]
    refusal = status(400, {"error": {"message": '"kimi-test" does not support thinking'}})
    async with (
        ChatServer(models=models) as server,
        desk(home, server.base_url, dialect=None) as one,
    ):
        server.script(refusal, say("Without."))
        await one.ready()
        await one.say("/thinking on")
        await one.until(lambda: one.screen.bench.header.heading.model == "kimi-test thinking")
        await one.say("Hello")
        await one.sees("Without.")
        await one.until(lambda: one.screen.bench.header.heading.model == "kimi-test")


@pytest.mark.exhaustive
async def test_an_answer_that_is_overdue_is_waited_on_where_the_user_says_so(home: Path) -> None:
    config = Config(first_answer_timeout_s=0.3)
    async with ChatServer() as server, desk(home, server.base_url, config=config) as one:
        server.script(gate(0, say("At last.")), gate(0, say("Never.")))
        await one.ready()
        await one.say("Hello")
        for key, then in (("1", "At last."), ("n", "Your answer: Stop the turn")):
            await one.until(lambda: (p := one.screen.bench.question) is not None and p.accepts_keys)
            shown = one.text()
            assert "127.0.0.1 has not begun to answer for 0.3 s. Keep waiting for the" in shown
            assert "1  Keep waiting" in shown
            await one.pilot.press(key)
            if key == "1":
                server.release()
            await one.sees(then)
            await one.idle()
            if key == "1":
                assert len(server.requests) == 1
                await one.say("Again")
        assert one.screen.conversation.state.can_resume


@pytest.mark.exhaustive
async def test_what_a_local_server_says_of_itself_is_known_before_the_first_message(
    home: Path,
) -> None:
    async with ChatServer() as server:
        server.route("GET", "/api/version", reply({"version": "0.30"}))
        server.route("POST", "/api/show", reply({"capabilities": ["completion", "tools"]}))
        loaded = {"name": "kimi-test", "context_length": 4_096}
        server.route("GET", "/api/ps", reply({"models": [loaded]}))
        async with desk(home, server.base_url, window=None, dialect=None) as one:
            await one.sees("kimi-test has a context window")
            await one.sees("F4 or /window creates and uses a copy with a context window of 32,768")
            await one.sees("/tools on sends all tools.")
            await one.until(
                lambda: (u := one.screen.conversation.state.usage) is not None and u.limit == 4_096
            )
            assert not server.requests
            await one.sees("kimi-test lean")
            # After one key the larger model is used.
            made = {"name": "kimi-test:32k", "context_length": 32_768}
            server.models = ["kimi-test", "kimi-test:32k"]
            server.route("GET", "/api/ps", reply({"models": [loaded, made]}))
            server.route("POST", "/api/create", reply({"status": "success"}))
            await one.pilot.press("f4")
            await one.sees("kimi-test:32k")
            await one.until(
                lambda: (u := one.screen.conversation.state.usage) is not None and u.limit == 32_768
            )
            shown = await one.sees("The agent now uses kimi-test:32k")
            assert "few tools" not in shown
            (asked,) = [r for r in server.other_requests if r.path == "/api/create"]
            assert asked.body["parameters"] == {"num_ctx": 32_768}


@pytest.mark.exhaustive
async def test_the_session_names_the_prompt_cache(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, dialect="moonshot") as one:
        server.script(say("Hello."))
        await one.ready()
        await one.say("Hello")
        await one.sees("Hello.")
        soul = one.screen.conversation.soul
        assert soul is not None
        assert server.requests[0].body["prompt_cache_key"] == soul.session.id


@pytest.mark.exhaustive
async def test_what_the_engine_has_to_say_is_shown_and_its_estimates_are_in_the_log(
    home: Path,
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        trouble = Chunk({"error": {"message": "No credit left", "code": 402}})
        server.script(say("Hello.", usage=(9_000, 5)), stream(delta(content="half of it"), trouble))
        await one.ready()
        await one.say("/compact")
        await one.sees("There is nothing to compact yet.")
        soul = one.screen.conversation.soul
        assert soul is not None
        soul.wire.publish(Notice("error", "The disk is full.", "Free some space.", "disk"))
        await one.sees("Free some space.")
        soul.wire.publish(Notice("info", "Saved again.", topic="disk", solved=True))
        shown = await one.sees("Saved again.")
        assert "The disk is full." not in shown
        # Estimates are compared with the figures of the server.
        await one.say("Hello")
        await one.sees("9.0k / 32.0k")
        await one.idle()
        assert "the server says 9000, difference +" in log_file().read_text()
        # An error event in the stream.
        await one.say("Hello again")
        shown = await one.sees("Model request failed")
        assert "402: No credit left" in shown
        await one.idle()
        # A text that is in no context is not on the screen either.
        assert "half of it" not in one.text()
        assert stored(home)[-1]["role"] == "user"


@pytest.mark.exhaustive
async def test_the_model_names_the_session_after_its_first_turn(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.title = say('"Rotate the **keys**."\nof the server')
        server.script(say("Done."), say("Done again."))
        await one.ready()
        await one.say("Please have a look at the keys that the server uses")
        await one.until(lambda: one.screen.conversation.state.title == "Rotate the keys")
        soul = one.screen.conversation.soul
        assert soul is not None
        assert soul.session.state.title == "Rotate the keys"
        await one.idle()
        await one.say("Again")
        await one.sees("Done again.")
        await one.idle()
        (asked,) = server.title_requests
        assert asked.body["max_tokens"] == 64
        assert len(server.requests) == 2
        assert "keys that the server uses" in asked.messages[-1]["content"]
        assert asked.body.get("tools") is None


@pytest.mark.exhaustive
async def test_without_a_name_by_the_model_the_first_words_stay(home: Path) -> None:
    async with ChatServer() as server:
        server.script(say("Done."), say("Done."))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.say("Look at the keys")
            await one.until(lambda: len(server.title_requests) == 1)
            await one.idle()
            assert one.screen.conversation.state.title == "Look at the keys"
            assert "!" not in one.text()
        async with desk(home, server.base_url, config=Config(titles=False)) as one:
            await one.ready()
            await one.say("Look at the locks")
            await one.sees("Done.")
            await one.idle()
            assert len(server.title_requests) == 1
