"""Every command of the main screen in one table: its word after `/`, its key, what it does.

The key bindings, the command palette, the menu of the prompt, the help screen and the footer are all made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from textual.keys import key_to_character


class Command(NamedTuple):
    """Something the person can ask the program to do.

    Attributes:
        name: the word after `/`, and its name in `[keys]`.
        title: what the palette calls it.
        help: one sentence.
        action: the method of the main screen, without `action_`; it gets the argument text.
        key: the default key, empty for none.
        argument: what may follow the word, as the help writes it.
    """

    name: str
    title: str
    help: str
    action: str
    key: str = ""
    argument: str = ""


COMMANDS: tuple[Command, ...] = (
    Command(
        "timeline",
        "Go to the timeline",
        "Choose a step to go back to; nothing is ever lost.",
        "timeline",
        "ctrl+t",
    ),
    Command(
        "search",
        "Search the chat",
        "Find a text in the chat or in the world line on view, also where it is folded.",
        "search",
        "ctrl+f",
        "[text]",
    ),
    Command(
        "rewind",
        "Rewind to a checkpoint",
        "Look at what a rewind to checkpoint N takes, then decide.",
        "rewind",
        argument="N",
    ),
    Command(
        "dmail",
        "Send a D-Mail",
        "Write to the agent's past self at checkpoint N; it goes on from there.",
        "dmail",
        argument="N [letter]",
    ),
    Command(
        "jump",
        "Jump to a world line",
        "Go on with line K, or with what precedes its checkpoint N.",
        "jump",
        argument="K[:N]",
    ),
    Command(
        "worldline",
        "Read a world line",
        "Show line K in the place of the chat; without a number, return to now.",
        "worldline",
        argument="[K]",
    ),
    Command(
        "compare",
        "Compare a world line with now",
        "Show line K and the live line side by side, from where they part.",
        "compare",
        argument="[K]",
    ),
    Command(
        "bookmark",
        "Bookmark a checkpoint",
        "Give checkpoint N a name that stands on the timeline.",
        "bookmark",
        argument="N [name]",
    ),
    Command(
        "pin",
        "Pin a message",
        "Keep what stands at checkpoint N from being dropped, or no longer.",
        "pin",
        argument="N",
    ),
    Command(
        "summary",
        "Read the summary",
        "What the agent still knows of a compacted part; it can be edited.",
        "summary",
    ),
    Command("undo", "Undo", "Reverse the last rewind, D-Mail or compaction.", "undo"),
    Command("redo", "Redo", "Do again what was undone.", "redo"),
    Command(
        "compact",
        "Compact the conversation",
        "Replace older messages by a summary; undo brings them back.",
        "compact",
        "ctrl+o",
        "[what to keep]",
    ),
    Command(
        "replay",
        "Play the session back",
        "Watch it from the beginning; nothing is changed.",
        "replay",
    ),
    Command("usage", "Show the usage", "Tokens of the window and of the whole session.", "usage"),
    Command(
        "stats",
        "Show the statistics",
        "What this session did and cost: steps, tools, tokens, time travel, waiting.",
        "stats",
    ),
    Command(
        "mode",
        "Change what needs asking",
        "ask before changes, accept edits in the folder, or allow all.",
        "mode",
        "shift+tab",
        "[ask | edits | all]",
    ),
    Command(
        "model",
        "Change the model",
        "Another model of the configuration, another key, or a local server.",
        "model",
        argument="[NAME]",
    ),
    Command(
        "tools",
        "Work with or without tools",
        "A model that calls none can still answer: off goes on without them.",
        "tools",
        argument="[on | off]",
    ),
    Command("stop", "Stop the agent", "End the running turn; what is complete is kept.", "stop"),
    Command(
        "continue",
        "Let the agent go on",
        "Go on from here without a new message.",
        "resume",
    ),
    Command(
        "fork",
        "Fork into a new session",
        "Copy the conversation, or what precedes checkpoint N, into a session of its own.",
        "fork",
        argument="[N]",
    ),
    Command(
        "rename",
        "Rename the session",
        "Call it TITLE; without one, what was said first.",
        "rename",
        argument="[TITLE]",
    ),
    Command("new", "Start a new session", "An empty session in the same folder.", "new"),
    Command(
        "theme",
        "Change the colours",
        "The next of dark, light and sixteen colours, or the named one.",
        "theme",
        argument="[dark | light | 16]",
    ),
    Command("commands", "Show all commands", "Find a command by name.", "palette", "ctrl+p"),
    Command("help", "Show the help", "All keys and commands.", "help", "f1"),
    Command(
        "suspend", "Suspend", "Back to the shell; fg there brings it back.", "suspend", "ctrl+z"
    ),
    Command("quit", "Quit", "The session can be continued later.", "quit", "ctrl+q"),
)

BY_NAME: dict[str, Command] = {command.name: command for command in COMMANDS}


def matching(prefix: str) -> tuple[Command, ...]:
    """The commands whose name begins with `prefix`, in the table's order."""
    return tuple(command for command in COMMANDS if command.name.startswith(prefix))


def parse(text: str) -> tuple[str, str] | None:
    """A line of the prompt as a command's word and its argument; None where it is a message.

    Only `/word` with nothing but letters and dashes counts, so that a path may begin a message.
    """
    if not text.startswith("/"):
        return None
    word, _, argument = text[1:].partition(" ")
    word = word.strip()
    if not word.replace("-", "").isalpha() or not word.isascii() or "\n" in word:
        return None
    return word.lower(), argument.strip()


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


def key_name(key: str) -> str:
    """A key as people read it: `Ctrl+T`, `F1`, `Esc`; of several keys the first."""
    first = key.split(",")[0].strip()
    parts = first.split("+")
    return "+".join(_KEY_NAMES.get(part) or _plain_name(part) for part in parts)


def _plain_name(part: str) -> str:
    """A letter, a sign or a function key, or the word on a key that needs no other name."""
    sign = key_to_character(part) or ""
    if sign.isprintable() and sign:
        return sign.upper()
    return part.upper() if part[1:].isdigit() else part.capitalize()


def keys_of(name: str, keys: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of a command as they are now, as events name them; none where it has none."""
    bound = keys.get(name, BY_NAME[name].key)
    return tuple(key.strip() for key in bound.split(",") if key.strip())


def key_of(name: str, keys: Mapping[str, str]) -> str:
    """The key of a command as it is now, for people; empty where it has none."""
    command = BY_NAME[name]
    key = keys.get(name, command.key)
    return key_name(key) if key else ""
