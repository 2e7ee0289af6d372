"""The keys that `[keys]` accepts, and the notices about the others."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cases import each
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import _character_to_key

import kimi_tui.tui
from kimi_tui.config.file import parse_config
from kimi_tui.config.keymap import _OUTSIDE_PROMPT, DEFAULT_KEYS, EDITING
from kimi_tui.config.settings import Config
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.transcript.copy_mode import ACTIONS


def parse(keys: str) -> Config:
    return parse_config(f"[keys]\n{keys}".encode(), Path("config.toml"))


def everything_below(node: type[DOMNode]) -> Iterator[type[DOMNode]]:
    for one in node.__subclasses__():
        yield one
        yield from everything_below(one)


def test_every_action_is_known_with_its_keys() -> None:
    for module in pkgutil.walk_packages(kimi_tui.tui.__path__, "kimi_tui.tui."):
        importlib.import_module(module.name)
    bound: dict[str, set[str]] = {}
    for node in everything_below(DOMNode):
        if node.__module__.startswith("kimi_tui."):
            for binding in Binding.make_bindings(node.__dict__.get("BINDINGS", [])):
                if binding.id:
                    bound.setdefault(binding.id, set()).add(binding.key)
    # The keys of the cursor in the chat are looked up only while there is one; otherwise they would have a meaning without it.
    cursor = {f"copy.{action}" for action in ACTIONS}
    known = {name: set(keys.split(",")) for name, keys in DEFAULT_KEYS.items()}
    assert {name for name in known if name.startswith("copy.")} == cursor
    assert {name: keys for name, keys in known.items() if name not in cursor} == bound


@each(
    "text, key",
    [
        ("Ctrl+K", "ctrl+k"),
        ("f12", "f12"),
        ("f2, ctrl+y", "f2,ctrl+y"),
        ("ctrl+Home", "ctrl+home"),
        ("ctrl+shift+up", "ctrl+shift+up"),
        ("shift+ctrl+up", "ctrl+shift+up"),
        ("super+shift+z", "shift+super+z"),
        ("ctrl+ctrl+k", "ctrl+k"),
        ("question_mark", "question_mark"),
        ("K", "K"),
        ("shift+k", "K"),
        ("é", "é"),
        *((sign, _character_to_key(sign)) for sign in "?/\\-+_@[]~|"),
    ],
)
def test_a_key_is_taken_as_the_terminal_names_it(text: str, key: str) -> None:
    config = parse(f"'summary.leave' = '{text}'")
    assert (config.keys, config.notices) == ({"summary.leave": key}, ())


@each(
    "text, sent",
    [
        *(("ctrl+i", "tab"), ("ctrl+m", "enter"), ("ctrl+h", "backspace")),
        *(("ctrl+left_square_bracket", "escape"), ("ctrl+2", "2"), ("ctrl+comma", "comma")),
        *(("ctrl+shift+k", "ctrl+k"), ("ctrl+tab", "tab"), ("ctrl+i,shift+space", "tab")),
        *((text, "") for text in ("ctrl+k", "ctrl+i,f2", "ctrl+space", "alt+i", "ctrl+underscore")),
    ],
)
def test_a_key_that_terminals_cannot_tell_from_another_one_is_named(text: str, sent: str) -> None:
    config = parse(f"'line.jump' = '{text}'")
    first = text.split(",")[0]
    told = f"config.toml: keys.line.jump is {first}, which most terminals send as {sent}; the rest of the file is used."
    assert (config.keys, config.notices) == ({"line.jump": text}, (told,) if sent else ())


@pytest.mark.parametrize("text", ["?", "K", "f2,z", "shift+z", "space", "left_square_bracket"])
def test_what_is_typed_into_the_prompt_is_no_key_of_what_holds_everywhere(text: str) -> None:
    config = parse(f"help = '{text}'")
    assert config.keys == {}
    bad = text.split(",")[-1]
    assert config.notices == (
        f"config.toml: keys.help is {bad}, a key that types text, so it cannot be a shortcut; the rest of the file is used.",
    )


def test_the_keys_that_edit_the_prompt_are_those_of_its_field() -> None:
    bound = PromptArea._merge_bindings().key_to_bindings
    ours = {binding.id for bindings in bound.values() for binding in bindings if binding.id}
    edit = {key for key, bindings in bound.items() if not any(one.id for one in bindings)}
    assert edit == EDITING
    # The app's own key for the end is asked before the field.
    everywhere = {name for name in DEFAULT_KEYS if "." not in name}
    assert everywhere - ours - {"quit"} == _OUTSIDE_PROMPT


@pytest.mark.parametrize("text", ["f6", "ctrl+k", "f2,ctrl+a", "Home"])
def test_what_edits_the_prompt_is_no_key_of_what_stands_outside_it(text: str) -> None:
    config = parse(f"timeline = '{text}'\nsearch = '{text}'")
    assert "timeline" not in config.keys
    assert "search" in config.keys  # the prompt's own, which goes before
    bad = text.split(",")[-1]
    assert config.notices == (
        f"config.toml: keys.timeline is {bad}, which edits the prompt and cannot be a shortcut; the rest of the file is used.",
    )


@each(
    "text",
    [
        *("ctrl+banana", "banana", "strg+k", "ctrl+", "ctrl++", "f25", "ctrl k", "a,", ","),
        # The characters of these keys depend on the keyboard.
        *("shift+1", "shift+/", "shift+slash", "shift+ß"),
    ],
)
def test_what_is_no_key_is_named_and_the_action_keeps_its_own(text: str) -> None:
    config = parse(f"compact = '{text}'\ntimeline = 'f2'")
    assert config.keys == {"timeline": "f2"}
    assert config.notices == (
        f"config.toml: keys.compact is not a key: {text!r}; the rest of the file is used.",
    )


def test_a_name_that_an_action_had_before_is_taken() -> None:
    config = parse("'letter.draft' = 'f3'\n'letter.cancel' = 'f4'\n'dmail.cancel' = 'f5'")
    assert config.keys == {"dmail.draft": "f3", "dmail.cancel": "f5"}
    assert config.notices == ()


def test_what_is_no_action_is_named() -> None:
    config = parse("banana = 'f2'\n'timeline.undo' = 'z'")
    assert config.keys == {"timeline.undo": "z"}
    assert config.notices == (
        "config.toml: keys.banana is not an action; the rest of the file is used.",
    )


@pytest.mark.parametrize(
    ("keys", "used", "named"),
    [
        ("compact = 'ctrl+t'", {}, ["keys.compact is ctrl+t, which already belongs to timeline"]),
        (
            "compact = 'f2'\ntimeline = 'f2'",
            {"compact": "f2"},
            ["keys.timeline is f2, which already belongs to compact"],
        ),
        # They change places.
        (
            "compact = 'ctrl+t'\ntimeline = 'ctrl+o'",
            {"compact": "ctrl+t", "timeline": "ctrl+o"},
            [],
        ),
        # A command that cannot have its configured key keeps its default, even if another command wants that.
        (
            "timeline = 'ctrl+o'\ncompact = 'f1'",
            {},
            [
                "keys.compact is f1, which already belongs to help",
                "keys.timeline is ctrl+o, which already belongs to compact",
            ],
        ),
        # Other areas may use the same keys.
        (
            "'timeline.undo' = 'n'\n'compare.next' = 'm'",
            {"timeline.undo": "n", "compare.next": "m"},
            [],
        ),
        ("timeline = 'ctrl+t,f2'", {"timeline": "ctrl+t,f2"}, []),
        ("compact = ''", {}, []),
    ],
)
def test_one_key_is_given_to_one_action(keys: str, used: dict[str, str], named: list[str]) -> None:
    config = parse(keys)
    assert config.keys == used
    assert [notice.partition(";")[0] for notice in config.notices] == [
        f"config.toml: {one}" for one in named
    ]
