"""The contents of `[keys]`: the actions that have keys, and how keys are written.

This module is separate from the screens that bind the keys, so that a file is checked before anything is drawn.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from functools import cache

DEFAULT_KEYS: Mapping[str, str] = {
    "background": "ctrl+b",
    "chat.above": "k",
    "chat.below": "j",
    "chat.copy": "y",
    "chat.copy_code": "Y",
    "chat.copy_mode": "v",
    "chat.fold": "space",
    "chat.link": "o",
    "chat.pin": "P",
    "chat.preview": "enter",
    "chat.select": "shift+down",
    "chat.select_all": "ctrl+a",
    "chat.select_up": "shift+up",
    "chat.turn_after": "right_square_bracket",
    "chat.turn_before": "left_square_bracket",
    "commands": "ctrl+p",
    "compact": "ctrl+o",
    "compare.down": "down",
    "compare.jump": "j",
    "compare.leave": "escape,q",
    "compare.next": "n",
    "compare.page_down": "pagedown",
    "compare.page_up": "pageup",
    "compare.send": "s",
    "compare.side": "tab",
    "compare.unfold": "enter,space",
    "compare.up": "up,k",
    "compare.whole": "J",
    "complete": "tab",
    "copy.author": "a",
    "copy.back": "b",
    "copy.bottom": "G",
    "copy.down": "j,down",
    "copy.end": "dollar_sign,end",
    "copy.leave": "escape,q",
    "copy.left": "h,left",
    "copy.lines": "V",
    "copy.mark": "v",
    "copy.page_down": "pagedown",
    "copy.page_up": "pageup",
    "copy.right": "l,right",
    "copy.start": "0,home",
    "copy.swap": "o",
    "copy.take": "y,enter",
    "copy.text": "circumflex_accent",
    "copy.top": "g",
    "copy.turn_after": "right_square_bracket",
    "copy.turn_before": "left_square_bracket",
    "copy.up": "k,up",
    "copy.word": "w",
    "copy.word_end": "e",
    "delete-or-quit": "ctrl+d",
    "dmail.cancel": "escape",
    "dmail.draft": "ctrl+l",
    "escape": "escape",
    "future.answer": "r",
    "future.before": "shift+tab",
    "future.leave": "escape",
    "future.message": "m",
    "future.next": "tab",
    "future.page": "c",
    "future.stop": "x",
    "futures.before": "left",
    "futures.current": "j",
    "futures.down": "down",
    "futures.files": "tab,shift+tab",
    "futures.leave": "escape,q",
    "futures.new": "n",
    "futures.next": "right",
    "futures.opinion": "o",
    "futures.page_down": "pagedown",
    "futures.page_up": "pageup",
    "futures.prune": "d",
    "futures.read": "w",
    "futures.send": "s",
    "futures.stop": "x",
    "futures.unfold": "enter,space",
    "futures.up": "up,k",
    "help": "f1",
    "history": "ctrl+r",
    "history-back": "up",
    "history-forward": "down",
    "interrupt": "ctrl+c",
    "line.before": "shift+tab",
    "line.compare": "c",
    "line.jump": "j",
    "line.leave": "escape",
    "line.next": "tab",
    "line.send": "s",
    "legend": "f2",
    "mode": "shift+tab",
    # The first key is the one that is shown.
    "newline": (
        "shift+enter,alt+enter,ctrl+j,ctrl+enter,alt+shift+enter,ctrl+shift+enter,alt+ctrl+enter,"
        "alt+ctrl+shift+enter"
    ),
    "page-down": "pagedown",
    "page-up": "pageup",
    "paste": "ctrl+v",
    "preview.bring_back": "space",
    "preview.cancel": "escape",
    "preview.choose": "enter",
    "preview.details": "tab",
    "preview.down": "down,j",
    "preview.line": "right",
    "preview.line_before": "left",
    "preview.page_down": "pagedown",
    "preview.page_up": "pageup",
    "preview.up": "up,k",
    "quit": "ctrl+q",
    "redraw": "ctrl+l",
    "replay.back": "left",
    "replay.beginning": "home",
    "replay.continue": "c",
    "replay.end": "end",
    "replay.faster": "equals_sign,plus",
    "replay.leave": "escape,q",
    "replay.on": "right",
    "replay.play": "space",
    "replay.slower": "minus",
    "replay.timeline": "ctrl+t,t",
    "replay.turn_after": "right_square_bracket",
    "replay.turn_before": "left_square_bracket",
    "search": "ctrl+f",
    "search.again": "ctrl+f",
    "search.before": "N",
    "search.down": "down",
    "search.end": "escape",
    "search.next": "n",
    "search.page_down": "pagedown",
    "search.page_up": "pageup",
    "search.text": "tab",
    "search.up": "up,shift+enter",
    "send": "enter",
    "sessions.archive": "a",
    "sessions.archived": "v",
    "sessions.delete": "d,delete",
    "sessions.everywhere": "tab",
    "sessions.find": "slash,ctrl+f",
    "sessions.fork": "f",
    "sessions.leave": "escape,q",
    "sessions.others": "i",
    "sessions.rename": "n",
    "summary.leave": "enter,escape,q",
    "suspend": "ctrl+z",
    "subagent.answer": "r",
    "subagent.before": "shift+tab",
    "subagent.leave": "escape",
    "subagent.message": "m",
    "subagent.next": "tab",
    "subagent.stop": "x",
    "timeline": "ctrl+t",
    "timeline.bookmark": "b",
    "timeline.choose": "enter",
    "timeline.down": "down,j",
    "timeline.filter": "slash",
    "timeline.fold": "space",
    "timeline.keys": "question_mark",
    "timeline.leave": "escape",
    "timeline.newer_turn": "right_square_bracket",
    "timeline.newest": "home",
    "timeline.older_turn": "left_square_bracket",
    "timeline.newer_branch": "right_curly_bracket",
    "timeline.older_branch": "left_curly_bracket",
    "timeline.oldest": "end",
    "timeline.page_down": "pagedown",
    "timeline.page_up": "pageup",
    "timeline.pin": "P",
    "timeline.read": "w",
    "timeline.redo": "U",
    "timeline.replay": "p",
    "timeline.undo": "u",
    "timeline.up": "up,k",
    "undo-typing": "ctrl+minus,ctrl+underscore,super+z",
    "window": "f4",
}
"""The keys of every action. An action with a dot in its name belongs to one area of the screen, the others work everywhere."""
_FORMER = {"letter.cancel": "dmail.cancel", "letter.draft": "dmail.draft"}
"""Former names of actions, which files may still contain."""

_OUTSIDE_PROMPT = frozenset(
    {
        *("background", "commands", "compact", "escape", "help"),
        *("legend", "mode", "redraw", "timeline", "window"),
    }
)
"""Actions that work everywhere and get only the keys that the prompt does not use."""
_YIELDING = frozenset({"legend", "window"})
"""Actions that got a key in a later version: a file that gives this key to another action stays valid, and they have no key then."""
EDITING = frozenset(
    (
        *("left", "right", "home", "end", "backspace", "delete", "f6", "f7"),
        *("ctrl+a", "ctrl+e", "ctrl+k", "ctrl+u", "ctrl+w", "ctrl+x", "ctrl+y"),
        *("ctrl+left", "ctrl+right", "ctrl+pageup", "ctrl+pagedown", "ctrl+backspace"),
        *("ctrl+delete", "ctrl+shift+z"),
        *("ctrl+shift+k", "ctrl+shift+left", "ctrl+shift+right"),
        *(f"shift+{key}" for key in ("up", "down", "left", "right", "home", "end")),
        *("alt+backspace", "alt+delete", "alt+left", "alt+right"),
        *("alt+b", "alt+d", "alt+e", "alt+f"),
        *(f"super+{key}" for key in ("backspace", "c", "x", "y")),
    )
)
"""Keys that edit the text in the prompt; no action may have them."""

_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
_NAMED = frozenset(
    (
        *("escape", "enter", "tab", "space", "backspace", "delete", "insert", "home", "end"),
        *("pageup", "pagedown", "up", "down", "left", "right"),
        *(f"f{n}" for n in range(1, 25)),
    )
)
_SHORT_NAMES = {
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "low_line": "underscore",
    "plus_sign": "plus",
    "reverse_solidus": "backslash",
    "solidus": "slash",
}
_PLAIN = frozenset(("enter", "tab", "space", "backspace", "escape"))
_AS_CONTROL = {"i": "tab", "m": "enter", "h": "backspace", "left_square_bracket": "escape"}
_WITH_CONTROL = frozenset(
    (
        *("at", "backslash", "right_square_bracket", "circumflex_accent", "underscore"),
        *("minus", "slash", "question_mark"),
    )
)
"""Characters that with Ctrl make a key of their own, or that of another character."""


def usable_keys(wanted: Mapping[str, str], report: Callable[[str, str], None]) -> dict[str, str]:
    """Return the keys that actions really get, by the names of terminal events.

    Args:
        wanted: the keys in the file, by action; an empty text keeps an action's default keys.
        report: called with the name of an action that does not get its keys, or not in every terminal, and the reason.
    """
    found: dict[str, str] = {}
    for given, text in wanted.items():
        name = _FORMER.get(given, given)
        if name != given and name in wanted:
            continue
        key = _normal_keys(text)
        if name not in DEFAULT_KEYS:
            from difflib import get_close_matches  # most files have no unknown action

            near = get_close_matches(name[:40], DEFAULT_KEYS, n=1, cutoff=0.7)
            hint = f": did you mean `{near[0]}`?" if near else ""
            report(name, f"is not an action{hint}")
        elif text and key is None:
            report(name, f"is not a key: {text[:40]!r}")
        elif key and not _area(name) and (bad := _first(_writes, key, text)):
            report(name, f"is {bad}, a key that types text, so it cannot be a shortcut")
        elif key and name in _OUTSIDE_PROMPT and (bad := _first(EDITING.__contains__, key, text)):
            report(name, f"is {bad}, which edits the prompt and cannot be a shortcut")
        elif key:
            found[name] = key
    while (clash := _clash(found)) is not None:
        name, key, owner = clash
        del found[name]
        report(name, f"is {key}, which already belongs to {owner}")
    for name, keys in found.items():
        sent = [(key, _sent_as(key)) for key in keys.split(",")]
        if all(other is not None for _, other in sent):
            key, other = sent[0]
            report(name, f"is {key}, which most terminals send as {other}")
    return found


@cache
def _signs() -> Mapping[str, str]:
    """Return the characters of the keyboard with the names of their keys. Computed only when keys are configured, as it reads
    the names of Unicode.
    """
    long = {
        sign: unicodedata.name(sign).lower().replace("-", "_").replace(" ", "_")
        for sign in map(chr, range(33, 127))
        if not sign.isalnum()
    }
    return {sign: _SHORT_NAMES.get(name, name) for sign, name in long.items()}


def _normal_keys(text: str) -> str | None:
    keys = [_normal(part.strip()) for part in text.split(",")]
    known = [key for key in keys if key is not None]
    return ",".join(known) if len(known) == len(keys) else None


def _normal(text: str) -> str | None:
    if len(text) == 1:
        return _signs().get(text, text) if text.isprintable() and text != " " else None
    *held, key = text.lower().split("+")
    modifiers = sorted(set(held))  # the order in events
    if not _MODIFIERS.issuperset(modifiers):
        return None
    is_sign = key in _signs() or key in _signs().values()
    if modifiers == ["shift"] and (is_sign or len(key) == 1):
        # A terminal sends a capital letter instead, or a character that depends on the keyboard.
        capital = key.upper()
        return capital if len(capital) == 1 and capital != key else None
    if len(key) == 1 or is_sign or key in _NAMED:
        return "+".join((*modifiers, _signs().get(key, key)))
    return None


def _sent_as(key: str) -> str | None:
    """Return the key that a terminal without the kitty protocol sends instead of this one; None if it sends this one."""
    *held, last = key.split("+")
    if key in ("shift+tab", "ctrl+space") or not held:
        return None
    if last in _PLAIN and held != ["alt"]:
        return last
    if "ctrl" not in held:
        return None
    if last in _AS_CONTROL:
        return _AS_CONTROL[last]
    if "shift" in held and len(last) == 1:
        return f"ctrl+{last}"
    is_sign = last in _signs().values() and last not in _WITH_CONTROL
    return last if is_sign or last.isdigit() else None


def _first(is_bad: Callable[[str], bool], keys: str, text: str) -> str:
    """Return the first unusable key, as the file writes it; empty if all are usable."""
    written = zip(keys.split(","), text.split(","), strict=True)
    return next((part.strip() for key, part in written if is_bad(key)), "")


def _writes(key: str) -> bool:
    return len(key) == 1 or key == "space" or key in _signs().values()


def _clash(wanted: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Return an action, a key for it, and another action of the same area that has that key already; None if no keys clash."""
    taken = {
        (_area(name), key): name
        for name, keys in DEFAULT_KEYS.items()
        if name not in wanted and name not in _YIELDING
        for key in keys.split(",")
    }
    for name, keys in wanted.items():
        for key in keys.split(","):
            owner = taken.setdefault((_area(name), key), name)
            if owner != name:
                return name, key, owner
    return None


def _area(name: str) -> str:
    area, dot, _ = name.partition(".")
    return area if dot else ""
