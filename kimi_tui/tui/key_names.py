"""The names of keys for people: `Ctrl+T`, `F1`, `Esc`. Without Textual, as the first frame names keys before it is imported."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache

from kimi_tui.config.keymap import DEFAULT_KEYS

_KEY_NAMES = {
    "escape": "Esc",
    "enter": "Enter",
    "space": "Space",
    "tab": "Tab",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "slash": "/",
    "backslash": "\\",
    "minus": "-",
    "plus": "+",
    "underscore": "_",
    "at": "@",
}


@cache
def key_name(key: str) -> str:
    """Return the name of a key for people: `Ctrl+T`, `F1`, `Esc`; for several keys the first; empty for none."""
    first = next((name for one in key.split(",") if (name := one.strip())), "")
    if len(first) == 1:
        return first  # this is a letter alone; J is another key than j
    parts = first.split("+")
    return "+".join(_KEY_NAMES.get(part) or _plain_name(part) for part in parts)


def key_named(name: str, keys: Mapping[str, str]) -> str:
    """Return the event name of a key with this name for people; empty for a text that is no single key.

    Args:
        name: the name, as `key_name` returns it.
        keys: the configured keys, by action.
    """
    bound = (key for action in DEFAULT_KEYS for key in keys_of(action, keys))
    fixed = ("escape", "enter", "tab", "space", "ctrl+u")
    return next((key for key in (*fixed, *bound) if key_name(key) == name), "")


def _plain_name(part: str) -> str:
    """Return a letter, a sign or a function key, or the word on a key that needs no other name."""
    try:
        sign = part if len(part) == 1 else unicodedata.lookup(part.replace("_", " ").upper())
    except KeyError:
        sign = ""
    if sign.isprintable() and sign:
        return sign.upper()
    return part.upper() if part[1:].isdigit() else part.capitalize()


def keys_of(name: str, keys: Mapping[str, str]) -> tuple[str, ...]:
    """Return the present keys of an action (`send`, `help`, `chat.fold`), by their event names; none if it has none.

    Args:
        name: the name of the action in `[keys]`.
        keys: the configured keys, by action.
    """
    bound = keys.get(name, DEFAULT_KEYS.get(name, ""))
    return tuple(key.strip() for key in bound.split(",") if key.strip())


def key_of(name: str, keys: Mapping[str, str]) -> str:
    """Return the first of an action's present keys, for people; empty if it has none. See `keys_of`."""
    return key_name(keys.get(name, DEFAULT_KEYS.get(name, "")))


def sent_key_of(name: str, keys: Mapping[str, str], *, extended: bool) -> str:
    """Return the first of an action's keys that the terminal can send, for people; empty if there is none.

    Args:
        name: the name of the action in `[keys]`.
        keys: the configured keys, by action.
        extended: as in `newline_keys`.
    """
    found = (key for key in keys_of(name, keys) if extended or not _is_enter_of_its_own(key))
    return key_name(next(found, ""))


def _is_enter_of_its_own(key: str) -> bool:
    """Return whether the key is Enter with modifiers that an older terminal sends as Enter alone."""
    return key.endswith("+enter") and key != "alt+enter"


def newline_keys(keys: Mapping[str, str], *, extended: bool) -> tuple[str, ...]:
    """Return the keys that begin a new line and that the terminal can send, for people, the one to show first.

    Args:
        keys: the configured keys, by action.
        extended: whether the terminal sends Shift+Enter as a key of its own. If not, it sends Enter for it, and no Alt+Enter
            if that maximises its window.
    """
    bound = keys_of("newline", keys)
    if not extended:
        plain = [key for key in bound if not _is_enter_of_its_own(key)]
        bound = tuple(sorted(plain, key=lambda key: key == "alt+enter"))
    return tuple(map(key_name, bound))


def line_break_key(keys: Mapping[str, str], *, extended: bool) -> str:
    """Return the key that begins a new line in the prompt: Enter itself if it does nothing else; empty for none.

    Args:
        keys: the configured keys, by action.
        extended: as in `newline_keys`.
    """
    bound = {
        key
        for name, default in DEFAULT_KEYS.items()
        if "." not in name
        for key in keys.get(name, default).split(",")
    }
    if "enter" not in bound:
        return key_name("enter")
    return next(iter(newline_keys(keys, extended=extended)), "")
