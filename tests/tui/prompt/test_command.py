"""The meaning of a line of the prompt: a command, a message or a slip; and the commands that are found for a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import each

from kimi_tui.config.keymap import DEFAULT_KEYS
from kimi_tui.tui.main.commands.peer_commands import ELSEWHERE
from kimi_tui.tui.main.commands.table import COMMANDS
from kimi_tui.tui.prompt.command import line_and_number, number
from kimi_tui.tui.prompt.menu import found


@each(
    "text, command",
    [
        ("/compact", ("compact", "")),
        ("/Compact the tests ", ("compact", "the tests")),
        ("/rewind 12", ("rewind", "12")),
        ("/usr/bin/python fails", None),
        ("/", None),
        ("compact", None),
        (" /compact", None),
        ("/compact\nmore", None),
        ("/2", None),
        ("//compact", None),
        # This word is similar to no command, and another slash follows.
        ("/tmp and /etc are full, clean them", None),
    ],
)
def test_what_is_a_command_and_what_a_message(text: str, command: tuple[str, str] | None) -> None:
    parsed = COMMANDS.parse(text)
    found = None if parsed.command is None else (parsed.command.name, parsed.argument)
    assert (found, parsed.unknown) == (command, "")


@pytest.mark.parametrize(
    ("text", "unknown", "meant"),
    [
        ("/hepl", "hepl", ["help"]),
        ("/hel me", "hel", ["help"]),
        ("/modle gpt-5", "modle", ["model"]),
        ("/COMPCT", "compct", ["compact"]),
        ("/res", "res", ["sessions", "rewind"]),
        ("/tmp", "tmp", []),
        ("/tmp is full, clean it", "tmp", []),
        ("/etc of this container needs a look", "etc", []),
        ("/zzz9_zz 1", "zzz9_zz", []),
        ("/nothing", "nothing", []),
        ("/" + "rewind" * 4, "rewind" * 4, []),
    ],
)
def test_a_slip_is_no_message(text: str, unknown: str, meant: list[str]) -> None:
    parsed = COMMANDS.parse(text)
    assert parsed.command is None
    names = [one.name for one in parsed.meant]
    assert (parsed.unknown, names[: len(meant) or 1]) == (unknown, meant)
    assert len({*names}) == len(names)


@given(st.text(max_size=40))
def test_every_text_is_a_command_a_message_or_a_slip(text: str) -> None:
    parsed = COMMANDS.parse(text)
    assert not (parsed.command and parsed.unknown)
    if not text.startswith("/"):
        assert parsed == COMMANDS.parse("hello")


def test_the_command_of_the_very_name_is_offered_first() -> None:
    for command in COMMANDS:
        assert COMMANDS.matching(command.name)[0] is command


def test_every_command_has_a_row_of_its_own() -> None:
    assert len({command.handler for command in COMMANDS}) == len(list(COMMANDS))
    assert all(command.key == DEFAULT_KEYS.get(command.name, "") for command in COMMANDS)


def test_menu_and_palette_find_commands() -> None:
    assert [command.name for command in COMMANDS.matching("red")] == ["redo"]
    assert found(COMMANDS, "go back")[0].name == "timeline"
    assert found(COMMANDS, "no such thing") == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", (0, 12)),
        ("#12", (0, 12)),
        ("2:12", (2, 12)),
        ("000000000012", (0, 12)),
        ("1234567890", None),
        ("", None),
        (":3", None),
        ("x:3", None),
    ],
)
def test_the_number_of_a_checkpoint(text: str, value: tuple[int, int] | None) -> None:
    assert line_and_number(text) == value
    assert (number(text) is None) == (value is None or ":" in text)


def test_titles_and_helps_fit_into_the_menu() -> None:
    for command in COMMANDS:
        assert len(command.title.split()) <= 5, command.name
        assert len(command.title) <= 30, command.name
        assert len(command.help) <= 80, command.name
        assert command.help[0].isupper(), command.name
        assert command.help.endswith("."), command.name


def test_commands_of_other_agents_do_something_or_are_answered() -> None:
    words = (
        "title config clear new exit quit status cost usage init memory mcp agents login logout resume sessions theme vim "
        "export share undo redo diff review commit permissions allowed-tools approvals bug feedback ps bashes todos copy doctor "
        "hooks ide output-style privacy-settings release-notes changelog terminal-setup upgrade yolo auto plan "
        "compact setup model effort add-dir checkpoint rewind restore stats tools editor help keys jobs jump ? compress "
        "summarize models connect branch context sandbox version about"
    )
    for word in words.split():
        parsed = COMMANDS.parse(f"/{word}")
        assert (parsed.command is None) == (word in ELSEWHERE), word
    names = [*(one.name for one in COMMANDS), *(alias for one in COMMANDS for alias in one.aliases)]
    assert len(names) == len({*names, *ELSEWHERE}) - len(ELSEWHERE), "a word has one meaning"
