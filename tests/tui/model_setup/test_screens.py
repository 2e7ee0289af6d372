"""The first run: three ways to begin, a key that is checked at once, and what is saved."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from support.cases import first_only
from support.chat_server import ChatServer, status
from support.screens import Desk, no_servers
from support.stored_sessions import store_session
from textual import events
from textual.widgets import Input

from kimi_tui.config.file import parse_config, read_config
from kimi_tui.config.model_choice import ModelChoice, NeedsChoice, Overrides, choose_model
from kimi_tui.config.settings import Config, ProviderConfig
from kimi_tui.launch import Launch
from kimi_tui.llm import models as discovery
from kimi_tui.llm.models import FoundModel, LocalServer
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.keyboard import SeenQuestion
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.model_setup.models import SERVERS
from kimi_tui.tui.model_setup.screens import KeyScreen, LocalScreen
from kimi_tui.tui.model_setup.welcome import StartOptions, WelcomeScreen


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


ACCEPTS = SeenQuestion.accepts


@pytest.fixture(autouse=True)
def keys_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys count before what they answer was drawn: tests press them at once."""
    monkeypatch.setattr(SeenQuestion, "accepts", lambda _seen, _at: True)  # pyright: ignore[reportUnknownLambdaType]


def app(home: Path, choice: ModelChoice | NeedsChoice = NeedsChoice()) -> KimiApp:  # noqa: B008
    """Return the program with nothing configured."""
    return KimiApp(Launch(work_dir=home, config_path=home / "config.toml", choice=choice))


async def paste_key(one: Desk, base_url: str, key: str) -> None:
    """From the first screen to a pasted key for another server."""
    await one.pilot.press("1")
    await one.until(lambda: isinstance(one.app.screen, KeyScreen))
    await one.pilot.press("down", "down", "down", "down", "enter")
    await one.until(lambda: one.app.screen.query_one("#url", Input).has_focus)
    one.app.screen.query_one("#url", Input).value = base_url
    await one.pilot.press("enter")
    await one.until(lambda: one.app.screen.query_one("#key", Input).has_focus)
    # All at once, as a paste is.
    one.app.screen.query_one("#key", Input).value = key


@pytest.mark.exhaustive
async def test_one_ctrl_c_says_that_a_second_one_quits(home: Path) -> None:
    running = app(home)
    async with running.run_test(size=(60, 20)) as pilot:
        one = Desk(running, pilot)
        await one.sees("Esc quit")
        await pilot.press("ctrl+c")
        await one.sees("Press Ctrl+C again to quit.")
        await pilot.press("down", "up")
        assert "again to quit" not in await one.sees("Esc quit")
        await pilot.press("1")
        await one.until(lambda: isinstance(running.screen, KeyScreen))
        await pilot.press("ctrl+c")
        await one.sees("Press Ctrl+C again to quit.")
        assert running.return_code is None
        await pilot.press("ctrl+c")
        await one.until(lambda: running.return_code == 0)


@pytest.mark.exhaustive
async def test_who_wanted_to_choose_a_session_does_so_when_there_is_a_model(home: Path) -> None:
    store_session(home, home, "Fix the parser", "Done.")
    async with ChatServer(models=["small"]) as server:
        running = KimiApp(Launch(work_dir=home, config_path=home / "config.toml", picks=True))
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await paste_key(one, server.base_url, "sk-secret-key")
            await one.sees("accepted, 1 model")
            await pilot.press("enter")
            await one.sees("1 here, 1 in all")
            await one.sees("Fix the parser")
            await pilot.press("enter")
            await one.until(lambda: isinstance(running.screen, MainScreen))
            await one.ready()
            assert one.screen.conversation.state.title == "Fix the parser"
            await one.screen.conversation.close()


@pytest.mark.exhaustive
async def test_a_pasted_key_is_checked_at_once_saved_and_used(home: Path) -> None:
    async with ChatServer(models=["small", "large"]) as server:
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await paste_key(one, server.base_url, "sk-secret-key")
            shown = await one.sees("accepted, 2 models")
            assert "sk-secret-key" not in shown
            asked = next(one for one in server.other_requests if one.path == "/v1/models")
            assert asked.headers["authorization"] == "Bearer sk-secret-key"
            await pilot.press("down", "enter")
            await one.sees("What shall we work on?")
            await one.ready()
            assert one.screen.conversation.state.model.name == "large"
            await one.screen.conversation.close()
    config = read_config(home / "config.toml")
    assert config.models["large"].model == "large"
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600


async def test_what_is_no_url_is_said_at_once_and_can_be_mended(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.tui.keyboard.LEAVING_S", 0.0)  # nobody types as fast as a script
    running = app(home)
    async with running.run_test(size=(80, 24)) as pilot:
        one = Desk(running, pilot)
        await pilot.press("1")
        await one.until(lambda: isinstance(running.screen, KeyScreen))
        await pilot.press("down", "down", "down", "down", "enter", *"host/v1", "enter")
        await one.sees("must begin with https:// or http://")
        url = running.screen.query_one("#url", Input)
        assert url.has_focus
        await pilot.press("home", *"https://", "enter")
        await one.until(lambda: running.screen.query_one("#key", Input).has_focus)
        assert url.value == "https://host/v1"
        await pilot.press("enter")
        await one.sees("type any word")
        url.value = "http://api.openai.com/v1"
        running.screen.query_one("#key", Input).focus()
        await pilot.press("enter")
        await one.sees("Begin the base URL with https://")
        url.value = "https://host/v1"
        # That another address was ignored is said only as long as the first one stays.
        running.screen.query_one("#key", Input).value = "http://other-host/v1"
        await one.sees("This is a URL, not a key")
        url.value = "http://third-host/v1"
        await one.until(lambda: "This is a URL, not a key" not in one.text())


PASTED = (
    ("https://host/v1\tsk-secret-key-secret", "https://host/v1", "sk-secret-key-secret"),
    ("https://host/v1\nsk-secret-key-secret\n", "https://host/v1", "sk-secret-key-secret"),
    ("sk-secret-key-secret https://host/v1", "https://host/v1", "sk-secret-key-secret"),
    ("sk-secret-key-secret", "", "sk-secret-key-secret"),
    (f"{'0a' * 16}.{'aB3d' * 4}", "", f"{'0a' * 16}.{'aB3d' * 4}"),
    ("abcdefghijklmnopqrstuvwxyz012345", "", "abcdefghijklmnopqrstuvwxyz012345"),
    ("https://host/v1", "https://host/v1", ""),
    ("127.0.0.1:8000/v1", "127.0.0.1:8000/v1", ""),
    ("localhost", "localhost", ""),
)
"""Pasted texts, each with the URL and the key that it gives."""


@pytest.mark.exhaustive
async def test_a_key_that_is_pasted_as_url_is_never_shown(home: Path) -> None:
    running = app(home)
    async with running.run_test(size=(80, 24)) as pilot:
        one = Desk(running, pilot)
        await pilot.press("1")
        await one.until(lambda: isinstance(running.screen, KeyScreen))
        await pilot.press("down", "down", "down", "down", "enter")
        fields = [running.screen.query_one(name, Input) for name in ("#url", "#key")]
        for pasted, url, key in PASTED:
            for field in fields:
                field.value = ""
            fields[0].focus()
            await one.until(lambda: fields[0].has_focus)
            fields[0].post_message(events.Paste(pasted))
            await one.until(lambda values=[url, key]: [field.value for field in fields] == values)
            await one.until(lambda at=bool(key): fields[at].has_focus)
            assert not key or key not in one.text(), pasted


async def test_an_enter_that_was_meant_for_the_key_chooses_no_model(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer(models=["first", "second"]) as server:
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await paste_key(one, server.base_url, "")
            seen = running.screen.seen  # type: ignore[attr-defined]
            await one.until(lambda: not seen._paint.waits)
            # The list of models comes by itself, and the terminal has not drawn it yet.
            monkeypatch.setattr(SeenQuestion, "QUIET_S", 0.0)
            monkeypatch.setattr(SeenQuestion, "accepts", ACCEPTS)
            seen._painted()
            monkeypatch.setattr(seen._paint, "begin", lambda: None)
            running.screen.query_one("#key", Input).value = "sk-good-key"
            await one.sees("accepted, 2 models")
            await pilot.press("enter")
            await pilot.pause()
            assert isinstance(running.screen, KeyScreen)
            assert not (home / "config.toml").exists()
            monkeypatch.undo()
            monkeypatch.setenv("KIMI_TUI_HOME", str(home))
            monkeypatch.setattr(SeenQuestion, "accepts", lambda _seen, _at: True)  # pyright: ignore[reportUnknownLambdaType]
            await pilot.press("down", "enter")
            await one.sees("What shall we work on?")
            await one.ready()
            await one.screen.conversation.close()
    assert read_config(home / "config.toml").default_model == "second"


async def test_a_base_url_needs_no_scheme_and_another_one_takes_the_models_away(
    home: Path,
) -> None:
    async with ChatServer(models=["only-here"]) as server:
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await pilot.press("1")
            await one.until(lambda: isinstance(running.screen, KeyScreen))
            await pilot.press("down", "down", "down", "down", "enter")
            running.screen.query_one("#url", Input).value = server.base_url.removeprefix("http://")
            running.screen.query_one("#key", Input).value = "sk-test-sk-test"
            await one.sees("only-here")
            # The text in the fields is saved.
            url = running.screen.query_one("#url", Input)
            assert url.value == server.base_url
            url.value = "http://127.0.0.1:9/v1"
            await one.until(lambda: "only-here" not in one.text())


@pytest.mark.exhaustive
async def test_a_refused_key_says_why_and_nothing_is_saved(home: Path) -> None:
    async with ChatServer() as server:
        server.route("GET", "/v1/models", status(401, {"error": {"message": "bad key"}}))
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await paste_key(one, server.base_url, "sk-wrong-key")
            await one.sees("bad key")
            assert "sk-wrong-key" not in one.text()
            # There is no prompt yet to write a command into.
            await one.until(
                lambda: "this server. Your choice is saved in" in " ".join(one.text().split())
            )
            assert not (home / "config.toml").exists()
            # A user who goes back finds the typed text, and the key is checked again.
            server.route("GET", "/v1/models", status(200, {"data": [{"id": "there-now"}]}))
            await pilot.press("escape")
            await one.until(lambda: not isinstance(running.screen, KeyScreen))
            await pilot.press("1")
            await one.sees("there-now")
            assert running.screen.query_one("#url", Input).value == server.base_url


async def test_a_server_without_a_list_of_models_asks_for_the_name(home: Path) -> None:
    async with ChatServer() as server:
        server.route("GET", "/v1/models", status(404, {"error": "no such path"}))
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await paste_key(one, server.base_url, "sk-good-key")
            await one.until(lambda: running.screen.query_one("#name", Input).has_focus)
            # Nothing was found there: it is said, and a second Enter insists.
            await pilot.press(*"my-mode", "enter")
            await one.sees('"my-mode" at')
            await one.sees("Press Enter again to use it anyway.")
            assert not (home / "config.toml").exists()
            await pilot.press("l", "enter")
            await one.sees('"my-model" at')
            assert isinstance(running.screen, KeyScreen)
            await pilot.press("enter")
            await one.sees("What shall we work on?")
            await one.ready()
            await one.screen.conversation.close()
    assert read_config(home / "config.toml").default_model == "my-model"


@pytest.mark.exhaustive
async def test_a_disk_that_refuses_is_told_and_the_choice_is_used(home: Path) -> None:
    (home / "file").write_text("")
    async with ChatServer(models=["m"]) as server:
        running = KimiApp(Launch(work_dir=home, config_path=home / "file" / "config.toml"))
        async with running.run_test(size=(100, 30)) as pilot:
            one = Desk(running, pilot)
            await paste_key(one, server.base_url, "sk-good-key")
            await one.sees("accepted, 1 model")
            await pilot.press("enter")
            await one.sees("could not be saved")
            await one.screen.conversation.close()


@pytest.mark.exhaustive
async def test_a_base_url_without_its_key_asks_for_that_alone(home: Path) -> None:
    running = app(home, NeedsChoice("https://host.example/v1"))
    async with running.run_test(size=(80, 24)) as pilot:
        one = Desk(running, pilot)
        await one.until(lambda: isinstance(running.screen, KeyScreen))
        shown = await one.sees("https://host.example/v1")
        assert "Another server" in shown
        assert running.screen.query_one("#key", Input).has_focus
        await pilot.press("escape")
        await one.until(lambda: isinstance(running.screen, WelcomeScreen))


@pytest.mark.exhaustive
async def test_a_local_server_is_found_and_used_without_a_key(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer(models=["llama"]) as server:
        found = (LocalServer("Ollama", server.base_url, (FoundModel("llama", 4096),)),)

        async def servers() -> list[LocalServer]:
            return list(found)

        monkeypatch.setattr("kimi_tui.llm.models.local_servers", servers)
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await one.sees("found: Ollama on port")
            await pilot.press("2")
            await one.until(lambda: isinstance(running.screen, LocalScreen))
            await one.sees("4.1k")
            await pilot.press("enter")
            await one.sees("What shall we work on?")
            await one.ready()
            await one.screen.conversation.close()
    config = read_config(home / "config.toml")
    assert config.providers["ollama"].api_key == ""
    # The window is asked for each time, since the server may start with another one.
    assert config.models["llama"].max_context_size is None


async def test_many_models_are_narrowed_by_letters_and_looked_for_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    async def servers() -> list[LocalServer]:
        looks.append(1)
        models = tuple(FoundModel(f"run-{number}-of-{len(looks)}") for number in range(12))
        return [LocalServer("Ollama", "http://127.0.0.1:9/v1", models)]

    monkeypatch.setattr("kimi_tui.llm.models.local_servers", servers)
    running = app(home)
    async with running.run_test(size=(80, 24)) as pilot:
        one = Desk(running, pilot)
        await one.sees("12 models")
        await pilot.press("2")
        await one.sees("run-3-of-1")
        await pilot.press("r")
        await one.sees("filter: r")
        await pilot.press("ctrl+r")
        await one.sees("run-3-of-2")


def begun_with(home: Path, base_url: str, key: str) -> KimiApp:
    """Return the program as the environment's key and server alone start it."""
    environ = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": base_url}
    chosen = choose_model(Config(), Overrides(), environ)
    assert isinstance(chosen, ModelChoice)
    assert not chosen.model
    return app(home, chosen)


async def test_a_key_of_the_environment_alone_asks_which_model(home: Path) -> None:
    async with ChatServer(models=["small", "large"]) as server:
        running = begun_with(home, server.base_url, "sk-of-environment")
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            assert "The key stays in the" in await one.sees("accepted, 2 models")
            await pilot.press("down", "enter")
            await one.until(
                lambda: (
                    isinstance(running.screen, MainScreen) and one.screen.conversation.state.ready
                )
            )
            assert one.screen.conversation.state.model.name == "large"
            await one.screen.conversation.close()
        config = read_config(home / "config.toml")
        assert config.models[config.default_model].model == "large"
        assert "sk-of-environment" not in (home / "config.toml").read_text()
        environ = {"OPENAI_API_KEY": "sk-of-environment", "OPENAI_BASE_URL": server.base_url}
        again = choose_model(config, Overrides(), environ)
        assert isinstance(again, ModelChoice)
        assert (again.model, again.api_key) == ("large", "sk-of-environment")


@pytest.mark.exhaustive
async def test_a_server_with_one_model_that_chats_needs_no_choice(home: Path) -> None:
    async with ChatServer(models=["text-embedding-3-small", "only"]) as server:
        running = begun_with(home, server.base_url, "sk-of-environment")
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await one.ready()
            assert one.screen.conversation.state.model.name == "only"
            assert not (home / "config.toml").exists()
            await one.screen.conversation.close()


@pytest.mark.parametrize("size", first_only([(60, 20), (80, 24)]))
async def test_a_server_that_cannot_be_asked_is_told_beside_the_other_ways(
    home: Path, size: tuple[int, int]
) -> None:
    async with ChatServer(models=["small", "large"]) as server:
        gone = server.base_url
    running = begun_with(home, gone, "sk-of-environment")
    async with running.run_test(size=size) as pilot:
        one = Desk(running, pilot)
        shown = await one.sees("Watch the demo")
        assert "127.0.0.1" in shown
        assert "Paste a key" in shown
        assert "Use a local server" in shown
        assert "readable by you alone" in shown
        await pilot.press("escape")
        await one.until(lambda: running.return_code == 0)


async def test_a_key_that_may_not_be_sent_ends_nothing_and_what_was_said_is_kept(
    home: Path,
) -> None:
    chosen = ModelChoice("server", "http://llm.example.test/v1", "m", api_key="sk-of-environment")
    stored = ProviderConfig(*chosen[:2], chosen.api_key, "openai_legacy")
    config = Config(providers={stored.name: stored})
    running = KimiApp(Launch(home, home / "config.toml", config=config, choice=chosen))
    async with running.run_test(size=(80, 30)) as pilot:
        one = Desk(running, pilot)
        one.screen.conversation.say("a first message")
        await one.sees("would be sent to llm.example.test unencrypted")
        assert isinstance(running.screen, WelcomeScreen)
        assert running.return_code is None
        assert one.screen.bench.prompt.area.text == "a first message"
        await pilot.press("1")
        await one.until(lambda: isinstance(running.screen, KeyScreen))
        shown = await one.sees("Your choice is saved in")
        assert running.screen.query_one("#url", Input).value == chosen.base_url
        assert "The key stays in the environment" not in shown


@pytest.mark.exhaustive
async def test_a_key_pressed_twice_opens_one_screen_and_what_was_wrong_is_said(home: Path) -> None:
    config = parse_config(b'default_model = "gone"\n', home / "config.toml")
    launch = Launch(home, home / "config.toml", config=config, notices=config.notices)
    running = KimiApp(launch)
    async with running.run_test(size=(60, 20)) as pilot:
        one = Desk(running, pilot)
        shown = await one.sees("[models.gone]")
        assert "Watch the demo" in shown
        # Both are on their way before the first one is heard.
        ways = running.screen.query_one(StartOptions)
        ways.post_message(StartOptions.Picked(ways))
        ways.post_message(StartOptions.Picked(ways))
        # More servers than rows: that there are more is said.
        await one.sees(f"1 to 8 of {len(SERVERS)}")
        await pilot.press("end")
        await one.sees(f"{len(SERVERS) - 7} to {len(SERVERS)} of {len(SERVERS)}")
        await pilot.press("escape")
        await one.sees("Watch the demo")
        assert isinstance(running.screen, WelcomeScreen)


@pytest.mark.exhaustive
async def test_the_footer_lists_what_the_focused_field_takes(home: Path) -> None:
    running = app(home)
    async with running.run_test(size=(80, 24)) as pilot:
        one = Desk(running, pilot)
        await one.sees("Enter or 1 to 3 choose")
        await pilot.press("enter")
        # The servers, then the field of a key.
        await one.sees("Enter continue   ↑↓ choose   letters filter   Tab next field")
        await pilot.press("enter")
        await one.sees("Enter check the key   Tab next field   Esc back")
        assert "↑↓" not in one.text()


@pytest.mark.exhaustive
async def test_all_ways_are_on_every_screen(home: Path) -> None:
    running = app(home)
    async with running.run_test(size=(120, 40)) as pilot:
        one = Desk(running, pilot)
        for size in ((120, 40), (80, 24), (60, 20)):
            await pilot.resize_terminal(*size)
            await one.until(lambda size=size: running.screen.size == size)
            await one.sees("Which model should the agent use?")
            for words in ("Paste a key", "Use a local server", "Watch the demo", "readable by you"):
                await one.sees(words)
            assert one.text().split("\n")[-1].strip().startswith("Enter or 1 to 3 choose"), size


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("size", "url"),
    first_only([((80, 24), " api.moonshot.ai/v1"), ((120, 40), "https://api.moonshot.ai/v1")], 2),
)
async def test_addresses_stand_where_they_can_be_read(
    home: Path, size: tuple[int, int], url: str
) -> None:
    running = app(home)
    async with running.run_test(size=size) as pilot:
        one = Desk(running, pilot)
        await one.sees("Which model should the agent use?")
        await pilot.press("enter")
        assert url in await one.sees("Moonshot (Kimi), global")
        await pilot.resize_terminal(60, 20)
        await one.until(lambda: url not in one.text())
        assert "http" not in one.text()
        assert "Moonshot (Kimi), global" in one.text()


@pytest.mark.exhaustive
async def test_a_server_that_loads_its_model_is_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer(models=["qwen"]) as server:
        loading = status(503, {"error": {"code": 503, "message": "Loading model"}})
        is_ready: list[bool] = []
        server.route("GET", "/v1/models", lambda _: None if is_ready else loading)
        ports = {"llama.cpp": server.port}
        monkeypatch.setattr(discovery, "_PAUSE_S", 0.05)
        monkeypatch.setattr(discovery, "_LOOPBACK_TIMEOUT_S", 5.0)

        async def servers(asked: dict[str, int] | None = None) -> list[LocalServer]:
            return await real(asked or ports)

        real = discovery.local_servers
        monkeypatch.setattr("kimi_tui.llm.models.local_servers", servers)
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await one.sees(f"llama.cpp on port {server.port} is loading its model")
            await pilot.press("2")
            await one.until(lambda: isinstance(running.screen, LocalScreen))
            await one.sees("is loading its model and will be listed when")
            is_ready.append(True)
            await one.sees("qwen")
            await pilot.press("enter")
            await one.sees("What shall we work on?")
            await one.ready()
            assert one.screen.conversation.state.model.name == "qwen"
            await one.screen.conversation.close()


@pytest.mark.exhaustive
async def test_a_base_url_is_put_right_saved_so_and_said(home: Path) -> None:
    async with ChatServer(models=["m", "text-embedding-3-small"]) as server:
        server.route("GET", "/models", status(404, "no such page", content_type="text/html"))
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await paste_key(one, server.origin, "sk-secret-key")
            url, key = (running.screen.query_one(name, Input) for name in ("#url", "#key"))
            for typed in ("/", "/v1/chat/completions", "/v1/ ", ""):
                shown = await one.sees(f"accepted, 1 model at {server.base_url}")
                assert "embedding" not in shown
                # The text in the field is saved.
                await one.until(lambda: url.value == server.base_url)
                if typed:
                    url.value = server.origin + typed
                    await one.until(lambda: "accepted" not in one.text())
                    # Pasted once more.
                    key.value = ""
                    await pilot.pause()
                    key.value = "sk-secret-key"
            await pilot.press("enter")
            await one.sees("What shall we work on?")
            await one.ready()
            await one.screen.conversation.close()
    config = read_config(home / "config.toml")
    assert [provider.base_url for provider in config.providers.values()] == [server.base_url]


# --- faults of the program


async def faulty(*_: object, **__: object) -> None:
    """In place of what asks servers, or saves."""
    raise ZeroDivisionError


@pytest.mark.exhaustive
async def test_a_fault_in_a_check_or_while_saving_is_told_and_it_can_be_tried_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with ChatServer(models=["small"]) as server:
        running = app(home)
        async with running.run_test(size=(100, 30)) as pilot:
            one = Desk(running, pilot)
            with monkeypatch.context() as patched:
                patched.setattr("kimi_tui.llm.models.chat_models", faulty)
                await paste_key(one, server.base_url, "sk-secret-key")
                await one.sees("kimi-tui had an internal error")
            await pilot.press("enter")
            await one.sees("accepted, 1 model")
            await one.until(lambda: "kimi-tui had an internal error" not in one.text())
            with monkeypatch.context() as patched:
                patched.setattr("kimi_tui.tui.model_setup.screens.save", faulty)
                await pilot.press("enter")
                await one.sees("kimi-tui had an internal error")
            await pilot.press("enter")
            await one.sees("What shall we work on?")
            await one.ready()
            await one.screen.conversation.close()
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.exhaustive
async def test_without_a_local_server_or_behind_a_fault_it_is_said_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.llm.models.local_servers", faulty)
    running = app(home)
    async with running.run_test(size=(80, 24)) as pilot:
        one = Desk(running, pilot)
        await one.sees("no Ollama")
        await pilot.press("down", "enter")
        await one.sees("kimi-tui had an internal error")
        monkeypatch.setattr("kimi_tui.llm.models.local_servers", no_servers)
        await pilot.press("ctrl+r")
        await one.sees("Start a server and press Ctrl+R")
        last = "Ctrl+R search again   Esc back"
        # There is nothing to choose.
        await one.until(lambda: one.text().split("\n")[-1].strip() == last)
        await pilot.press("escape", "escape")
        await one.until(lambda: running.return_code == 0)


@pytest.mark.exhaustive
async def test_an_accepted_key_without_models_needs_no_second_enter(home: Path) -> None:
    async with ChatServer() as server:
        server.route("GET", "/v1/models", status(200, {"data": []}))
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await paste_key(one, server.base_url, "sk-good-key")
            await one.until(lambda: running.screen.query_one("#name", Input).has_focus)
            await pilot.press(*"mine", "enter")
            await one.sees("What shall we work on?")
            await one.ready()
            await one.screen.conversation.close()


KEY = "sk-proj-4f9Aq7Lx2Zt8Wn3Rb6Yc1Vd5Ke0Hs7Jm"


@pytest.mark.exhaustive
async def test_what_is_pasted_on_the_first_screen_goes_into_its_field(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("KIMI_TUI_HOME", str(home))
    async with ChatServer() as server:
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await one.sees("Enter or 1 to 3 choose")
            running.screen.post_message(events.Paste("some words"))
            await one.sees("neither an API key nor a URL")
            await pilot.press("down")
            await one.until(lambda: "neither" not in one.text())
            running.screen.post_message(events.Paste(f"{KEY}\n"))
            await one.until(lambda: isinstance(running.screen, KeyScreen))
            # The key is not sent before the user has seen which server would get it.
            shown = await one.sees("Nothing was sent yet")
            assert running.screen.query_one("#key", Input).value == KEY
            assert KEY not in shown
            await pilot.press("escape")
            await one.until(lambda: isinstance(running.screen, WelcomeScreen))
        running = app(home)
        async with running.run_test(size=(80, 24)) as pilot:
            one = Desk(running, pilot)
            await one.sees("Which model should the agent use?")
            running.screen.post_message(events.Paste(server.base_url))
            await one.sees("This is a URL, so it was moved")
            assert running.screen.query_one("#url", Input).value == server.base_url
            assert not server.other_requests


@pytest.mark.exhaustive
async def test_an_unusable_proxy_is_named_where_the_key_is_checked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://127.0.0.1:1")
    for name in ("HTTPS_PROXY", "https_proxy", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    running = app(home)
    async with running.run_test(size=(80, 24)) as pilot:
        one = Desk(running, pilot)
        await paste_key(one, "https://api.example.test/v1", "sk-secret-key")
        await one.until(lambda: 'ALL_PROXY is "gopher://' in " ".join(one.text().split()))
        assert isinstance(running.screen, KeyScreen)
        assert not running.screen.query_one("#name-row").display
