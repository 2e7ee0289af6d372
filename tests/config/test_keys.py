"""What `[keys]` may say, and what is said of the rest."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import _character_to_key

import kimi_tui.tui
from kimi_tui.config.keys import DEFAULT_KEYS
from kimi_tui.config.model import Config
from kimi_tui.config.reading import parse_config


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
    assert {name: set(keys.split(",")) for name, keys in DEFAULT_KEYS.items()} == bound


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Ctrl+K", "ctrl+k"),
        ("f12", "f12"),
        ("f2, ctrl+y", "f2,ctrl+y"),
        ("ctrl+Home", "ctrl+home"),
        ("ctrl+shift+up", "ctrl+shift+up"),
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


@pytest.mark.parametrize("text", ["?", "K", "f2,z", "shift+z", "space", "left_square_bracket"])
def test_what_is_typed_into_the_prompt_is_no_key_of_what_holds_everywhere(text: str) -> None:
    config = parse(f"help = '{text}'")
    assert config.keys == {}
    assert config.notices == (
        f"config.toml: keys.help is {text}, which writes into the prompt; the rest is used.",
    )


@pytest.mark.parametrize(
    "text", ["ctrl+banana", "banana", "strg+k", "ctrl+", "ctrl++", "f25", "ctrl k", "a,", ","]
)
def test_what_is_no_key_is_named_and_the_action_keeps_its_own(text: str) -> None:
    config = parse(f"compact = '{text}'\ntimeline = 'f2'")
    assert config.keys == {"timeline": "f2"}
    assert config.notices == (f"config.toml: keys.compact is no key: {text!r}; the rest is used.",)


def test_what_is_no_action_is_named() -> None:
    config = parse("banana = 'f2'\n'timeline.undo' = 'z'")
    assert config.keys == {"timeline.undo": "z"}
    assert config.notices == (
        "config.toml: keys.banana names no action that has a key; the rest is used.",
    )


@pytest.mark.parametrize(
    ("keys", "used", "named"),
    [
        ("compact = 'ctrl+t'", {}, ["keys.compact is ctrl+t, which is the key of timeline"]),
        (
            "compact = 'f2'\ntimeline = 'f2'",
            {"compact": "f2"},
            ["keys.timeline is f2, which is the key of compact"],
        ),
        # They change places.
        (
            "compact = 'ctrl+t'\ntimeline = 'ctrl+o'",
            {"compact": "ctrl+t", "timeline": "ctrl+o"},
            [],
        ),
        # Who cannot get what was wanted keeps a key that somebody else wanted.
        (
            "timeline = 'ctrl+o'\ncompact = 'f1'",
            {},
            [
                "keys.compact is f1, which is the key of help",
                "keys.timeline is ctrl+o, which is the key of compact",
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
