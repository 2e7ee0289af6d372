"""The table of all slash commands: word, key, help, argument, and the function that runs it.

Key bindings, command palette, completion menu, help and footer are made from this table. The functions import what they
need when they run, so that the table can be loaded before the first paint.
"""

from __future__ import annotations

from collections.abc import Callable

from kimi_tui.config.file import THEMES
from kimi_tui.tui.main.commands import rewind, session, view, world_lines
from kimi_tui.tui.prompt.command import Command, CommandTable, Value, Values


def _one_of(*values: str) -> Callable[[Values], tuple[Value, ...]]:
    return lambda _: values


def _checkpoints(known: Values) -> tuple[Value, ...]:
    return known.checkpoints


def _world_lines(known: Values) -> tuple[Value, ...]:
    return known.world_lines


def _models(known: Values) -> tuple[str, ...]:
    return known.models


def _thinking(known: Values) -> tuple[str, ...]:
    return known.thinking


COMMANDS = CommandTable(
    Command(
        "timeline",
        "Go to the timeline",
        "Choose a step to go back to; nothing is ever lost.",
        view.timeline,
        key="ctrl+t",
        opens=True,
    ),
    Command(
        "chat",
        "Go to the chat",
        "Walk its blocks with keys: unfold, pin, go back to one; Tab in an empty prompt does it, too.",
        view.chat,
        opens=True,
    ),
    Command(
        "search",
        "Search the chat",
        "Find a text in the chat or in the world line on view, also where it is folded.",
        view.search,
        key="ctrl+f",
        argument="[text]",
        opens=True,
    ),
    Command(
        "copy",
        "Copy the last answer",
        "Put it into the clipboard; code: only its newest piece of code, N: its Nth one.",
        view.copy,
        argument="[code | N]",
    ),
    Command(
        "rewind",
        "Rewind to a checkpoint",
        "Look at what a rewind to checkpoint N takes, then decide; without N, choose it.",
        rewind.rewind,
        argument="[N]",
        opens=True,
        values=_checkpoints,
        exact=True,
    ),
    Command(
        "dmail",
        "Send a D-Mail",
        "Write to the agent's past self at checkpoint N; it goes on from there.",
        rewind.dmail,
        argument="N [text]",
        opens=True,
        values=_checkpoints,
        exact=True,
    ),
    Command(
        "jump",
        "Jump to a world line",
        "Go on with line K, or with what precedes its checkpoint N.",
        world_lines.jump,
        argument="K[:N]",
        opens=True,
        values=_world_lines,
        exact=True,
    ),
    Command(
        "worldline",
        "Read a world line",
        "Show line K in the place of the chat; without a number, return to now.",
        world_lines.read,
        argument="[K]",
        opens=True,
        values=_world_lines,
        exact=True,
    ),
    Command(
        "compare",
        "Compare a world line with now",
        "Show line K and the live line side by side, from where they part.",
        world_lines.compare,
        argument="[K]",
        opens=True,
        values=_world_lines,
        exact=True,
    ),
    Command(
        "bookmark",
        "Bookmark a checkpoint",
        "Give checkpoint N a name that stands on the timeline.",
        world_lines.bookmark,
        argument="N [name]",
        opens=True,
        values=_checkpoints,
        exact=True,
    ),
    Command(
        "name",
        "Name a world line",
        "Call line K what was tried there; without a name, asks for one.",
        world_lines.name,
        argument="K [name]",
        opens=True,
        values=_world_lines,
        exact=True,
    ),
    Command(
        "pin",
        "Pin a message",
        "Keep what stands at checkpoint N from being dropped, or no longer.",
        world_lines.pin,
        argument="N",
        values=_checkpoints,
        exact=True,
    ),
    Command(
        "summary",
        "Read the summary",
        "What the agent still knows of a compacted part; it can be edited.",
        rewind.summary,
        opens=True,
    ),
    Command(
        "clear",
        "Clear the conversation",
        "Begin anew in this session; what was said becomes a world line, and undo brings it back.",
        session.clear,
    ),
    Command(
        "undo",
        "Undo",
        "Reverse the last rewind, D-Mail, compaction or clear.",
        session.undo,
    ),
    Command(
        "redo",
        "Redo",
        "Do again what was undone.",
        session.redo,
    ),
    Command(
        "compact",
        "Compact the conversation",
        "Replace older messages by a summary; undo brings them back.",
        rewind.compact,
        key="ctrl+o",
        argument="[what to keep]",
    ),
    Command(
        "replay",
        "Play the session back",
        "Watch it from the beginning; nothing is changed.",
        session.replay,
        opens=True,
    ),
    Command(
        "turn",
        "Show your message before",
        "The one before or after what is at the top of the chat.",
        view.turn,
        argument="[before | after]",
        values=_one_of("before", "after"),
    ),
    Command(
        "fold",
        "Unfold the chosen block",
        "Or fold it: of the chat, what was chosen there, else the last one on view.",
        view.fold,
        opens=True,
    ),
    Command(
        "link",
        "Open a link",
        "The first of the chosen block of the chat; then its next one.",
        view.link,
    ),
    Command(
        "select",
        "Select all of the chat",
        "Shift and the arrows select less; y copies it.",
        view.select,
        opens=True,
    ),
    Command(
        "notices",
        "List the notices",
        "What was told in this run, with times.",
        view.notices,
        opens=True,
    ),
    Command(
        "usage",
        "Show the usage",
        "Tokens of the window and of the whole session.",
        session.usage,
        aliases=("cost",),
    ),
    Command(
        "context",
        "Show what the window holds",
        "The system prompt, each file of notes, tools, messages by kind, attachments, with their tokens.",
        session.context,
        opens=True,
    ),
    Command(
        "stats",
        "Show the statistics",
        "What this session did and cost: steps, tools, tokens, time travel, waiting.",
        session.stats,
        opens=True,
    ),
    Command(
        "mode",
        "Change what needs asking",
        "plan only; ask before changes; accept edits in the folder; and commands in a sandbox; or allow all.",
        session.mode,
        key="shift+tab",
        argument="[plan | ask | edits | sandboxed | all]",
        values=_one_of("plan", "ask", "edits", "sandboxed", "all"),
        # A slip must not choose the mode that allows everything.
        exact=True,
    ),
    Command(
        "plan",
        "Plan first",
        "The agent makes a plan and changes nothing before you agree to it; again: no longer.",
        session.plan,
        argument="[on | off]",
        values=_one_of("on", "off"),
    ),
    Command(
        "permissions",
        "Show what is allowed",
        "What you allowed for this session; with a number, or all, it is asked for again.",
        session.permissions,
        argument="[N | all]",
    ),
    Command(
        "sandbox",
        "Show the sandbox",
        "Show where commands can write, and the size of their private caches; reset empties these.",
        session.sandbox,
        argument="[reset]",
        values=_one_of("reset"),
    ),
    Command(
        "model",
        "Change the model",
        "Another model of the configuration or of the server, another key, or a local server.",
        session.model,
        argument="[NAME]",
        values=_models,
        exact=True,
        opens=True,
    ),
    Command(
        "tools",
        "Choose which tools the model gets",
        "All, few in a short form (lean, for small windows and slow models), or none; add NAME adds one to the few.",
        session.tools,
        argument="[on | lean | off | add NAME]",
        values=_one_of("on", "lean", "off", "add"),
    ),
    Command(
        "window",
        "Give the model a larger context window",
        "At Ollama a model with 32,768 tokens is made and used; at other local servers, how to start them.",
        session.window,
        key="f4",
    ),
    Command(
        "thinking",
        "Set how much the model thinks",
        "In this folder, from the next call on; without a word, what holds and what it takes.",
        session.thinking,
        argument="[on | off | low … max | default]",
        values=_thinking,
        aliases=("effort",),
    ),
    Command(
        "init",
        "Write notes for agents",
        "Have the agent look at the folder and write AGENTS.md, or bring it up to date.",
        session.init,
    ),
    Command(
        "stop",
        "Stop the agent",
        "End the running turn; what is complete is kept.",
        session.stop,
    ),
    Command(
        "background",
        "Send the command to the background",
        "The one that the agent waits for runs on beside the conversation, and the agent goes on.",
        session.background,
        key="ctrl+b",
    ),
    Command(
        "jobs",
        "Show what runs in the background",
        "Commands beside the conversation; stop N ends one, output N shows what it printed.",
        session.jobs,
        argument="[stop N | output N]",
        values=_one_of("stop", "output"),
        opens=True,
    ),
    Command(
        "continue",
        "Let the agent go on",
        "Go on from here without a new message.",
        session.resume,
    ),
    Command(
        "fork",
        "Fork into a new session",
        "Copy the conversation, or what precedes checkpoint N, into a session of its own.",
        rewind.fork,
        argument="[N]",
        opens=True,
        values=_checkpoints,
        exact=True,
    ),
    Command(
        "export",
        "Write the conversation to a file",
        "As Markdown, with its tools; without FILE, one in the work folder. Nothing is overwritten.",
        session.export,
        argument="[FILE]",
    ),
    Command(
        "rename",
        "Rename the session",
        "Call it TITLE; without one, asks for it.",
        session.rename,
        argument="[TITLE]",
    ),
    Command(
        "sessions",
        "Choose another session",
        "Of this folder or of all: search, go on, rename, archive, fork, delete.",
        session.sessions,
        argument="[words]",
        opens=True,
        aliases=("resume",),
    ),
    Command(
        "new",
        "Start a new session",
        "An empty session in the same folder.",
        session.new,
        opens=True,
    ),
    Command(
        "theme",
        "Change the colours",
        "The next of dark, light and sixteen colours, or the named one: ours, or one of Textual's.",
        view.theme,
        argument="[dark | light | 16 | NAME]",
        values=_one_of(*THEMES),
    ),
    Command(
        "settings",
        "Change the settings",
        "Every key of the configuration with its value and where that comes from.",
        view.settings,
        opens=True,
    ),
    Command(
        "commands",
        "Show all commands",
        "Find a command by name.",
        view.palette,
        key="ctrl+p",
        opens=True,
    ),
    Command(
        "help",
        "Show the help",
        "All keys and commands.",
        view.help_page,
        key="f1",
        opens=True,
    ),
    Command(
        "history",
        "Search what was sent",
        "Find a message that was sent, in this folder and then in the others.",
        view.history,
        key="ctrl+r",
    ),
    Command(
        "editor",
        "Write in the editor",
        "Open what stands in the prompt in $VISUAL or $EDITOR; Ctrl+X Ctrl+E does it, too.",
        view.editor,
    ),
    Command(
        "suspend",
        "Suspend",
        "Back to the shell; fg there brings it back.",
        view.suspend,
        key="ctrl+z",
    ),
    Command(
        "quit",
        "Quit",
        "The session can be continued later.",
        view.leave,
        key="ctrl+q",
        aliases=("exit",),
    ),
)
