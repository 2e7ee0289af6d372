"""The choice of a model: what a server lists, names that it does not know, and what is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.screens import Desk, desk

from kimi_tui.config.file import read_config
from kimi_tui.config.model_choice import (
    FolderModel,
    ModelChoice,
    Overrides,
    choose_model,
    keep_folder_model,
)
from kimi_tui.config.settings import Config, ModelPrices
from kimi_tui.launch import Launch, Options, launch_of
from kimi_tui.llm.models import FoundModel, LocalServer
from kimi_tui.tui.model_setup import models
from kimi_tui.tui.model_setup.models import (
    SERVERS,
    ModelPick,
    choice_of,
    model_facts,
    remember_model,
    server_of,
)
from kimi_tui.tui.model_setup.screens import ModelScreen
from kimi_tui.tui.model_setup.welcome import ways

MODELS = ("kimi-test", {"id": "kimi-large", "context_length": 64_000}, "text-embedding-3")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and nothing about models in the environment."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.delenv("KIMI_MODEL_NAME", raising=False)
    return tmp_path


def configure(home: Path, base_url: str) -> Launch:
    """Return a configuration with a comment, and how the program starts with it."""
    path = home / "config.toml"
    path.write_text(
        f"""# my own words
default_model = "fast"

[providers.mine]
type = "openai_legacy"
base_url = "{base_url}"
api_key = "sk-1"

[models.fast]
provider = "mine"
model = "kimi-test"  # the quick one
"""
    )
    config = read_config(path)
    choice = choose_model(config, Overrides(), {})
    assert isinstance(choice, ModelChoice)
    return Launch(work_dir=home / "app", config_path=path, config=config, choice=choice)


async def started(one: Desk, launch: Launch) -> None:
    """Have the program believe that it was started so."""
    await one.ready()
    one.app.launch = launch


@pytest.mark.exhaustive
async def test_the_list_has_the_servers_chat_models_and_narrows_by_typing(home: Path) -> None:
    async with ChatServer(models=MODELS) as server, desk(home, server.base_url) as one:
        await started(one, configure(home, server.base_url))
        await one.say("/model")
        await one.until(lambda: isinstance(one.app.screen, ModelScreen))
        shown = await one.sees("kimi-large")
        assert "64" in shown
        assert "fast" in shown
        assert "text-embedding-3" not in shown
        assert "kimi-test" not in shown.split("Which model")[1], "it stands there as fast"
        await one.pilot.press(*"large")
        await one.until(lambda: "Paste another key" not in one.text())
        await one.pilot.press("enter")
        await one.sees("The agent now uses kimi-large.")
        await one.sees("It is now the default model.")
        text = (home / "config.toml").read_text()
        assert "# my own words" in text
        assert "# the quick one" in text
        again = choose_model(read_config(home / "config.toml"), Overrides(), {})
        assert isinstance(again, ModelChoice)
        # A server on this machine tells its window at each start.
        assert (again.model, again.window, again.api_key) == ("kimi-large", None, "sk-1")
        server.script(say("Large words."))
        await one.say("Hello")
        await one.sees("Large words.")
        assert server.requests[-1].body["model"] == "kimi-large"
        # The first model is chosen again, by its name in the configuration.
        await one.say("/model fast")
        await one.sees("The agent now uses kimi-test.")
        await one.until(lambda: read_config(home / "config.toml").default_model == "fast")
        assert list(read_config(home / "config.toml").models) == ["fast", "kimi-large"]


@pytest.mark.exhaustive
async def test_a_name_that_nobody_knows_is_said_with_near_ones(home: Path) -> None:
    async with ChatServer(models=MODELS) as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/model kimi-larg")
        await one.sees("test has no model kimi-larg. Did you mean kimi-large?")
        await one.say("/model banana")
        await one.sees("test has no model banana.")
        choice = one.app.launch.choice
        assert isinstance(choice, ModelChoice)
        assert choice.model == "kimi-test"
        await one.say("/model kimi-large")
        await one.sees("The agent now uses kimi-large.")
        await one.sees("this session only")
        assert not (home / "config.toml").exists()


@pytest.mark.exhaustive
async def test_a_fault_while_a_model_is_looked_for_ends_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(launch: Launch, name: str) -> Launch | str:
        raise RuntimeError("a fault")

    monkeypatch.setattr(models, "model_by_name", broken)
    async with ChatServer(models=MODELS) as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/model kimi-large")
        await one.sees("kimi-tui had an internal error. You can continue.")
        server.script(say("Still here."))
        await one.say("Hello")
        await one.sees("Still here.")


async def test_a_model_that_cannot_be_used_changes_nothing_and_is_not_remembered(
    home: Path,
) -> None:
    async with ChatServer(models=MODELS) as server, desk(home, server.base_url) as one:
        launch = configure(home, server.base_url)
        path = home / "config.toml"
        far = """[providers.far]
type = "openai_legacy"
base_url = "http://llm.example.test/v1"
api_key = "sk-2"

[models.far]
provider = "far"
model = "kimi-test"
"""
        path.write_text(path.read_text() + far)
        before = path.read_text()
        await started(one, launch._replace(config=read_config(path)))
        for _ in range(2):
            await one.say("/model far")
            await one.sees("stays the same.")
            assert "would be sent to llm.example.test unencrypted" in one.text()
        assert path.read_text() == before
        for choice in (one.app.launch.choice, one.screen.conversation.launch.choice):
            assert isinstance(choice, ModelChoice)
            assert choice.base_url == server.base_url
        # One that turns out so only when it is taken leaves the session with the model that it has.
        refused = launch._replace(choice=ModelChoice("far", "http://b.example/v1", "m", "k"))
        one.screen.conversation.use(refused)
        await one.sees("would be sent to b.example unencrypted")
        choice = one.screen.conversation.launch.choice
        assert isinstance(choice, ModelChoice)
        assert choice.base_url == server.base_url


async def test_what_flags_or_the_environment_said_is_not_remembered(home: Path) -> None:
    launch = configure(home, "http://127.0.0.1:9/v1")
    choice = launch.choice
    assert isinstance(choice, ModelChoice)
    after = launch._replace(choice=choice._replace(model="other"))
    before = (home / "config.toml").read_text()
    flagged = launch._replace(choice=choice._replace(model="by-flag"))
    pick = ModelPick(after)
    assert "this session only" in (await remember_model(flagged, pick, {})).holds
    assert "KIMI_MODEL_NAME" in (await remember_model(launch, pick, {"KIMI_MODEL_NAME": "x"})).holds
    keyed = after._replace(choice=choice._replace(model="other", api_key="sk-of-a-variable"))
    assert (
        "this session only"
        in (await remember_model(flagged, ModelPick(keyed, None, True), {})).holds
    )
    assert (home / "config.toml").read_text() == before
    assert not (home / "models").exists()
    assert (await remember_model(launch, ModelPick(launch), {})).holds == ""
    (home / "config.toml").write_text("not = [toml")
    assert "could not be saved" in (await remember_model(launch, pick, {})).holds


async def test_a_model_with_its_thinking_can_be_for_this_folder_alone(home: Path) -> None:
    listed = (
        {"id": "kimi-test", "context_length": 64_000},
        {
            "id": "thinker",
            "context_length": 128_000,
            "supported_parameters": ["tools", "reasoning"],
            "architecture": {"input_modalities": ["text", "image"]},
            "pricing": {"prompt": "0.0000006", "completion": "0.0000025"},
        },
    )
    async with ChatServer(models=listed) as server, desk(home, server.base_url) as one:
        launch = configure(home, server.base_url)
        path = home / "config.toml"
        text = path.read_text().replace("api_key", 'dialect = "deepseek"\napi_key')
        path.write_text(text)
        config = read_config(path)
        choice = choose_model(config, Overrides(), {})
        assert isinstance(choice, ModelChoice)
        (home / "app").mkdir(exist_ok=True)
        await started(one, launch._replace(config=config, choice=choice))
        await one.say("/model")
        shown = await one.sees("128k   sees  thinks  $0.60 in, $2.50 out")
        assert "✓ fast" in shown
        assert "64.0k" in shown, "what the server says of a model of the configuration"
        assert "✓ thinker" not in shown
        await one.pilot.press("down")
        await one.sees("Reasoning effort [default]  off   on   low   high   max")
        await one.pilot.press("left", "right", "right", "right", "right", "right", "right")
        await one.sees("[max]")
        await one.pilot.press("left")
        await one.sees("[high]")
        await one.pilot.press("ctrl+s")
        await one.sees("The agent now uses thinker.")
        await one.sees("This folder uses it from now on.")
        server.script(say("Words."))
        await one.say("Hello")
        await one.sees("Words.")
        body = server.requests[-1].body
        assert (body["model"], body["reasoning_effort"]) == ("thinker", "high")
        assert read_config(path).default_model == "fast"
        assert read_config(path).default_thinking == ""
        assert not list((home / "app").iterdir()), "nothing in the work folder"
        inside = launch_of(Options(work_dir=str(home / "app")))
        outside = launch_of(Options(work_dir=str(home)))
        said = launch_of(Options(work_dir=str(home / "app"), model="fast", thinking=False))
        assert (inside.choice.model, outside.choice.model) == ("thinker", "kimi-test")
        assert inside.given["default_model"] == ("thinker", "this folder")
        assert isinstance(inside.choice, ModelChoice)
        assert (inside.choice.thinking, inside.choice.api_key) == ("high", "sk-1")
        assert isinstance(said.choice, ModelChoice)
        assert (said.choice.model, said.choice.thinking) == ("kimi-test", "off")
        # The list begins with what holds now; a default for all takes the place of what was for the folder.
        await one.say("/model")
        await one.sees("✓ thinker")
        await one.sees("[high]")
        await one.pilot.press("up", "left", "enter")
        await one.sees("The agent now uses kimi-test.")
        await one.sees("It is now the default model.")
        again = launch_of(Options(work_dir=str(home / "app")))
        assert isinstance(again.choice, ModelChoice)
        assert (again.choice.model, again.choice.thinking) == ("kimi-test", "low")
        assert not list((home / "models").iterdir())


@pytest.mark.parametrize(
    "broken", [b"", b"[1]", b'{"model": 1}', b"[" * 4000, b"\xff", b'{"model": "gone"}']
)
def test_what_is_kept_for_a_folder_may_be_broken(home: Path, broken: bytes) -> None:
    configure(home, "http://127.0.0.1:9/v1")
    keep_folder_model(home, FolderModel("fast", "high"))
    (kept,) = (home / "models").iterdir()
    assert launch_of(Options(work_dir=str(home))).given["default_thinking"].value == "high"
    kept.write_bytes(broken)
    launch = launch_of(Options(work_dir=str(home)))
    assert (launch.choice.model, dict(launch.given)) == ("kimi-test", {})


# --- without a screen


def test_the_servers_of_moonshot_are_told_apart() -> None:
    urls = [server.base_url for server in SERVERS]
    assert len(set(urls)) == len(urls)
    assert [SERVERS[server_of(url)].base_url for url in urls] == urls
    assert SERVERS[server_of("https://api.moonshot.cn/v1")].name == "moonshot-cn"
    assert SERVERS[server_of("https://elsewhere/v1")].base_url == ""


def test_what_is_saved_of_a_listed_model() -> None:
    model = FoundModel("m", 1000, frozenset({"tools", "thinking"}))
    choice = choice_of(model, "p", "https://h/v1", "k")
    assert choice == ModelChoice("p", "https://h/v1", "m", "k", 1000, None, ("thinking",))
    assert choice_of(FoundModel("m"), "p", "https://h/v1", "k").capabilities is None


def test_words_about_models_and_servers() -> None:
    assert model_facts(FoundModel("m", 262_144, frozenset({"thinking"}))) == (
        "262k",
        "",
        "thinks",
        "",
    )
    seen = FoundModel("kimi-k3", None, None, price=(0.0, 0.0))
    assert model_facts(seen, thinks=True) == ("~1.0M", "sees", "thinks", "free")
    prices = ModelPrices(1, 0.1, 2, "€")
    assert model_facts(FoundModel("m"), prices)[3] == "€1.00 in, €2.00 out"
    assert model_facts(FoundModel("m")) == ("",) * 4
    one = LocalServer("vLLM", "http://127.0.0.1:8000/v1", (FoundModel("a"),))
    assert ways((one,))[1].about == "found: vLLM on port 8000; 1 model"
    others = tuple(
        LocalServer(name, "http://127.0.0.1:1/v1", (FoundModel("a"), FoundModel("b")))
        for name in ("Ollama", "llama.cpp", "LM Studio")
    )
    about = ways((*others, one))[1].about
    assert about == "found: Ollama, llama.cpp, LM Studio, vLLM; 7 models"
    assert len(about) <= 55, "it must be readable in a window of 60 columns"
    assert "no Ollama" in ways(())[1].about


def test_nothing_is_configured_by_default() -> None:
    assert Launch(Path("/x"), Path("/y")).config == Config()
