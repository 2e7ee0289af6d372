"""The menu of commands over the prompt: what Enter, Tab, Esc, the arrows and a click do at every stage of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each
from support.chat_server import ChatServer, call, say, stall
from support.screens import Desk, desk

from kimi_tui.config.settings import Config, ModelConfig
from kimi_tui.tui.dialogs.help import HelpScreen
from kimi_tui.tui.main.commands.table import COMMANDS
from kimi_tui.tui.prompt.command import Command, Values
from kimi_tui.tui.prompt.menu import CommandMenu


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def ran(one: Desk, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the commands that are run from now on, with their arguments, none of which is carried out."""
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(
        type(one.screen), "run_command", lambda _, name, text="": found.append((name, text))
    )
    return found


def asked(server: ChatServer) -> int:
    """Return how often the server was asked for its models."""
    return sum(request.path.endswith("/models") for request in server.other_requests)


async def offers(one: Desk, name: str) -> None:
    """Wait until the menu has chosen this command."""
    offered = one.screen.completion
    await one.until(lambda: offered.command is not None and offered.command.name == name)


async def click_on(one: Desk, typed: str, wanted: str) -> None:
    """Type the beginning of a command, and click on a row of the menu once it has taken its place for it."""
    await one.pilot.press(*typed)
    await offers(one, COMMANDS.offered(typed)[0].name)
    await one.pilot.pause()
    y = next(at for at, row in enumerate(one.text().split("\n")) if wanted in row)
    await one.pilot.click(offset=(6, y))


async def test_enter_or_a_click_runs_what_is_highlighted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        area = one.screen.prompt.area
        # Typed and sent in one go it is what the menu would have chosen, also before there is one.
        with monkeypatch.context() as alone:
            commands = ran(one, alone)
            assert one.screen.completion.menu is None
            area.load_text("/he")
            area.action_send()
            await one.until(lambda: commands == [("help", "")])
            await one.pilot.press("/")
            await one.sees("/timeline")
            area.load_text("/und")
            area.action_send()
            await one.until(lambda: commands == [("help", ""), ("undo", "")])
        await one.pilot.press(*"/he")
        await one.sees("/help")
        await one.pilot.press("enter")
        await one.until(lambda: isinstance(one.app.screen, HelpScreen))
        assert area.text == ""
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        assert one.screen.completion.command is None
        await one.pilot.press("up")
        assert area.text == "/help"
        assert server.requests == []
        await one.pilot.press("ctrl+u")
        # A click leaves the focus in the prompt.
        await click_on(one, "/he", "/help")
        await one.until(lambda: isinstance(one.app.screen, HelpScreen))
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        assert area.text == ""
        assert area.has_focus
        # A command that needs an argument waits for it.
        await click_on(one, "/swi", "/switch")
        await one.until(lambda: area.text == "/switch ")
        await one.pilot.press("ctrl+u")
        # A message that was sent before opens no menu.
        for text in ("/usage", "/undo"):
            await one.say(text)
            await one.until(lambda: area.text == "")
        await one.pilot.press("up")
        await one.until(lambda: area.text == "/undo")
        await one.pilot.press("up")
        assert area.text == "/usage"
        assert one.screen.completion.command is None


@pytest.mark.exhaustive
async def test_more_than_is_shown_is_said_and_found(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        every = len(COMMANDS.offered("/"))
        await one.pilot.press("/")
        await one.sees(f"1 to 8 of {every}")
        await one.pilot.press("up")
        await one.sees(f"{every - 7} to {every} of {every}")
        # The row that says so chooses nothing.
        y = next(at for at, row in enumerate(one.text().split("\n")) if f"of {every}" in row)
        await one.pilot.click(offset=(6, y))
        assert one.screen.prompt.area.text == "/"
        await one.pilot.press(*"help")
        await one.until(lambda: f"of {every}" not in one.text())
        await one.pilot.press("ctrl+u", "ctrl+p")
        await one.sees("1 to 14 of")
        # The palette finds a command with its slash, and says if there is none.
        await one.pilot.press(*"/settings")
        menu = one.app.screen.query_one(CommandMenu)
        await one.until(lambda: menu.chosen is not None and menu.chosen.name == "settings")
        await one.pilot.press("ctrl+u", *"zzzq")
        await one.sees("No command matches")
        await one.pilot.press("ctrl+u")
        await one.until(lambda: "No command matches" not in one.text())


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_the_palette_is_whole_on_every_screen(home: Path, size: tuple[int, int]) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=size) as one:
        await one.ready()
        await one.pilot.press("ctrl+p")
        await one.sees("Enter choose")
        for _ in range(len(COMMANDS.offered("/")) // 2):
            await one.pilot.press("down", "down")
            assert "Esc close" in one.text(), one.text()


@pytest.mark.exhaustive
@each("name", [command.name for command in COMMANDS])
async def test_enter_at_every_stage_of_every_word(name: str) -> None:
    for length in range(len(name) + 1):
        shown = COMMANDS.offered(f"/{name[:length]}")
        assert COMMANDS[name] in shown
        if length == len(name):
            assert shown[0].name == name


@pytest.mark.exhaustive
async def test_enter_runs_the_chosen_one_at_every_row(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        commands = ran(one, monkeypatch)
        table = one.screen.commands
        await one.pilot.press("/", "enter")
        await one.sees("begins a command")
        assert (one.screen.prompt.area.text, commands) == ("/", []), "none is chosen"
        for command in COMMANDS.offered("/"):
            await one.pilot.press("down")
            await offers(one, command.name)
        await one.pilot.press("enter")
        await one.until(lambda: commands == [(COMMANDS.offered("/")[-1].name, "")])
        for prefix in ("re", "co", "compact", "t"):
            for row in range(len(COMMANDS.offered(f"/{prefix}"))):
                commands.clear()
                shown = table.offered(f"/{prefix}")
                await one.pilot.press("/", *prefix)
                await offers(one, shown[0].name)
                await one.pilot.press(*["down"] * row)
                await offers(one, shown[row].name)
                await one.pilot.press("enter")
                await one.until(lambda: bool(commands))
                assert commands == [(shown[row].name, "")]
                assert one.screen.prompt.area.text == ""
                is_named = prefix == shown[0].name
                if shown[row].name.startswith(prefix) and not (
                    is_named or shown[row].needs_argument
                ):
                    assert table.offered(f"/{prefix}")[0] == shown[row], "it is the first now"
        assert server.requests == [], "a slash alone is never sent"


@pytest.mark.exhaustive
async def test_no_row_moves_while_one_is_chosen(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(stall())
        await one.ready()
        await one.say("Work")
        await one.until(lambda: one.screen.conversation.state.running)
        await one.pilot.press(*"/u")
        await offers(one, "undo")
        # A queued message comes like this, while another one is searched.
        one.screen.send("/usage")
        one.screen._follow_prompt()  # pyright: ignore[reportPrivateUsage]
        assert one.screen.commands.offered("/u")[0].name == "undo"
        await offers(one, "undo")
        await one.pilot.press("escape", "backspace", "backspace", "/", "u")
        await offers(one, "usage")
        await one.pilot.press("escape", "escape")
        await one.idle()


@pytest.mark.exhaustive
async def test_escape_closes_it_and_keeps_the_text(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(stall())
        await one.ready()
        await one.say("Work")
        await one.until(lambda: one.screen.conversation.state.running)
        await one.pilot.press(*"/he")
        await offers(one, "help")
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.completion.command is None)
        assert one.screen.prompt.area.text == "/he"
        assert one.screen.conversation.state.running, "the agent works on"
        await one.pilot.press("enter")
        await one.sees('"/he" is not a command. Did you mean /help')
        assert one.screen.prompt.area.text == "/he"
        await one.pilot.press("l")
        await offers(one, "help")
        await one.pilot.press("escape", "escape")
        await one.idle()


@pytest.mark.exhaustive
async def test_arguments(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.pilot.press(*"/ren")
        await offers(one, "rename")
        await one.pilot.press("tab")
        assert one.screen.prompt.area.text == "/rename "
        # Its usage is still visible, and the arrows are not for it.
        await one.sees("/rename [TITLE]")
        assert one.screen.completion.command is None
        await one.pilot.press(*"Apples", "enter")
        await one.sees("This session is now called Apples.")
        await one.pilot.press(*"/switch", "enter")
        await one.sees("/switch K[:N]: Continue on world line K")
        assert one.screen.prompt.area.text == "/switch ", "it waits for what it needs"
        await one.pilot.press(*"x", "enter")
        await one.sees('"x" is not a world line.')
        commands = ran(one, monkeypatch)
        await one.pilot.press(*"/new folder please", "enter")
        await one.sees("/new takes no argument.")
        assert one.screen.prompt.area.text == "/new folder please"
        assert commands == []


@pytest.mark.exhaustive
async def test_what_looks_like_a_path_is_a_message(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        for n, (typed, sent) in enumerate(
            (
                ("/tmp and /var are full", "/tmp and /var are full"),
                ("/usr/bin/python fails", "/usr/bin/python fails"),
                (" /help is a command", "/help is a command"),
                ("//help", "//help"),
            )
        ):
            server.script(say(f"Understood {n}."))
            await one.say(typed)
            await one.sees(f"Understood {n}.")
            assert sent in str(server.requests[-1].body["messages"][-1])
            await one.idle()


async def test_an_unknown_command_is_sent_by_a_second_enter_alone(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        area = one.screen.prompt.area
        for typed, words in (
            ("/tmp is full, clean it", '"/tmp" is not a command. Ctrl+P lists all commands.'),
            ("/docs", '"/docs" is not a command. F1 is the help; docs/guide.md is the user guide.'),
            ("/hel me", '"/hel" is not a command. Did you mean /help?'),
        ):
            await one.say(typed)
            await one.sees(words)
            await one.until(lambda typed=typed: area.text == typed)
            # Another text is not sent by the same key.
            await one.pilot.press("x", "enter")
            await one.sees("is not a command")
            assert area.text == f"{typed}x"
            await one.pilot.press("ctrl+u")
        assert server.requests == []
        server.script(say("Understood."))
        await one.say("/tmp is full, clean it")
        await one.sees("Enter again sends the text as a message.")
        await one.pilot.press("enter")
        await one.sees("Understood.")
        assert "/tmp is full, clean it" in str(server.requests[-1].body["messages"][-1])
        await one.idle()
        # From the history it is a message at once.
        await one.pilot.press("up")
        await one.until(lambda: area.text == " /tmp is full, clean it")


async def test_a_question_mark_in_the_empty_prompt_shows_the_keys(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(60, 20)) as one:
        await one.ready()
        area = one.screen.prompt.area
        monkeypatch.setattr("kimi_tui.tui.prompt.area.KEYS_AFTER_S", 0.01)
        await one.pilot.press("question_mark")
        await one.until(lambda: isinstance(one.app.screen, HelpScreen))
        shown = await one.sees("type to search")
        assert "change what runs without asking" in shown, "it is one page"
        assert area.text == ""
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        # A message may begin with it, if it is typed in one go.
        monkeypatch.setattr("kimi_tui.tui.prompt.area.KEYS_AFTER_S", 60.0)
        await one.pilot.press(*"?a")
        assert area.text == "?a"


@pytest.mark.exhaustive
async def test_the_values_of_an_argument_are_offered(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(
        models={name: ModelConfig(name, "test", name, None) for name in ("big-one", "Other")}
    )
    async with ChatServer() as server, desk(home, server.base_url, config=config) as one:
        await one.ready()
        runs = ran(one, monkeypatch)
        area = one.screen.prompt.area
        for typed, keys, wanted in (
            ("/theme ", ("enter",), ("theme", "")),
            ("/theme ", ("down", "down", "down", "enter"), ("theme", "light")),
            ("/theme l", ("enter",), ("theme", "light")),
            ("/theme zebra", ("enter",), ("theme", "zebra")),
            ("/model o", ("enter",), ("model", "o")),
            ("/model o", ("down", "enter"), ("model", "Other")),
            ("/model o", ("tab", "enter"), ("model", "Other")),
            ("/model other", ("enter",), ("model", "Other")),
            ("/model ", ("down", "enter"), ("model", "big-one")),
            ("/model one/more", ("enter",), ("model", "one/more")),
            ("/tools of", ("tab", "enter"), ("tools", "off")),
            ("/mode al", ("enter",), ("mode", "al")),
            ("/mode al", ("tab", "enter"), ("mode", "all")),
            ("/mode all", ("enter",), ("mode", "all")),
        ):
            # The last character is typed: the menu follows each letter, as others look at.
            area.put(typed[:-1])
            await one.pilot.press("space" if typed.endswith(" ") else typed[-1])
            await one.until(lambda typed=typed: area.text == typed)
            await one.pilot.press(*keys)
            await one.until(lambda: area.text == "")
            await one.until(lambda: bool(runs))
            assert runs == [wanted]
            runs.clear()
        await one.pilot.press(*"/theme", "space")
        assert "/theme light" in await one.sees("/theme 16")
        await one.pilot.press("l", "tab")
        await one.until(lambda: area.text == "/theme light")


@pytest.mark.exhaustive
async def test_checkpoints_are_offered_by_what_happened_at_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        (Path(one.screen.transcript.work_dir) / "calc.py").write_text("x = 1\n")
        server.script(call("ReadFile", {"path": "calc.py"}), say("It is short."))
        await one.say("Look at calc.py")
        await one.idle()
        runs = ran(one, monkeypatch)
        area = one.screen.prompt.area
        for name in ("dmail", "rewind", "bookmark"):
            help_of_command = COMMANDS[name].help
            await one.pilot.press(*f"/{name}", "space")
            await one.until(lambda: area.text.endswith(" "))
            shown = await one.sees(f"/{name} 0")
            rows = {
                row.split()[1]: row
                for row in shown.split("\n")
                if f"/{name} " in row and row.split()[1].isdigit()
            }
            # Checkpoint 0 is the message, 1 the step with its tool, 2 the answer.
            assert list(rows) == ["2", "1", "0"], shown
            assert "Look at calc.py" in rows["0"]
            assert "Read calc.py" in rows["1"]
            assert "It is short." in rows["2"]
            assert not any(help_of_command in row for row in rows.values()), shown
            # The command itself is in front, then the newest: the second row down is the step.
            await one.pilot.press(*"1")
            await one.until(lambda: area.text.endswith("1"))
            await one.pilot.press("enter")
            await one.until(lambda: bool(runs))
            assert runs == [(name, "1")]
            runs.clear()
            area.take()


@pytest.mark.exhaustive
async def test_thinking_offers_what_the_model_takes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url, dialect="vllm") as one:
        await one.ready()
        runs = ran(one, monkeypatch)
        await one.pilot.press(*"/thinking", "space")
        shown = await one.sees("/thinking off")
        assert "/thinking high" not in shown
        await one.pilot.press(*"o", "down", "enter")
        await one.until(lambda: runs == [("thinking", "off")])
    async with ChatServer() as server, desk(home, server.base_url, dialect="generic") as one:
        await one.ready()
        await one.pilot.press(*"/thinking", "space")
        assert "/thinking on " not in await one.sees("/thinking [on")


@pytest.mark.exhaustive
async def test_model_offers_what_the_server_lists(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(models={"mine": ModelConfig("mine", "test", "served-0", None)})
    models = [{"id": f"served-{n}"} for n in range(3)] + [{"id": "bad\x1b[2J"}]
    async with (
        ChatServer(models=models) as server,
        desk(home, server.base_url, config=config) as one,
    ):
        await one.ready()
        runs = ran(one, monkeypatch)
        await one.pilot.press(*"/model", "space")
        shown = await one.sees("/model served-2")
        n_asked = asked(server)
        assert "/model mine" in shown
        assert "served-0" not in shown, "the configuration has it under a name of its own"
        assert "bad" not in shown
        # A choice by the arrows stays, and Enter at the beginning of a name runs none.
        await one.pilot.press(*"s", "down", "down", "enter")
        await one.until(lambda: runs == [("model", "served-2")])
        runs.clear()
        await one.pilot.press(*"/model", "space", *"serv", "enter")
        await one.until(lambda: runs == [("model", "serv")])
        assert asked(server) == n_asked, "it is asked once"


def test_what_the_arrows_chose_stays_chosen_when_more_is_offered() -> None:
    known = ["a-1", "a-2"]

    def models() -> tuple[Command, ...]:
        return COMMANDS.with_values("/model a", Values(models=tuple(known)))

    menu = CommandMenu({})
    menu.show(models(), is_first_chosen=False)
    assert menu.chosen is None
    assert menu.completion is not None
    assert menu.completion.name == "model a-1"
    menu.move(1)
    menu.move(1)
    known.insert(0, "a-0")
    menu.show(models(), is_first_chosen=False, is_same_text=True)
    assert menu.chosen is not None
    assert menu.chosen.name == "model a-2"
    menu.show(models(), is_first_chosen=False)
    assert menu.chosen is None
    menu.move(-1)
    assert menu.chosen is not None
    assert menu.chosen.name == "model a-2"
