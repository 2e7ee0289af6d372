"""The keys that the footer of the main screen lists, by the focused part and the agent's state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from textual.binding import Binding

from kimi_tui.agent_parts import PartName
from kimi_tui.projection.session_state import SessionState
from kimi_tui.tui.first_page import idle_hints, known
from kimi_tui.tui.formatting import counted
from kimi_tui.tui.frame_rows import Hint
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.key_names import key_of, line_break_key, sent_key_of
from kimi_tui.tui.prompt.completion import Offered

Place = Literal[
    Offered,
    "prompt",
    "chat",
    "timeline",
    "future row",
    "begun",
    "filter",
    "missed",
    "found",
    "line",
    "future",
    "ended future",
    "subagent",
    "ended subagent",
    "future subagent",
    "search",
    "matches",
    "copy",
]


MODES: Mapping[str, Hint] = {
    "insert": ("INSERT", "Esc: normal mode"),
    "replace": ("REPLACE", "Esc: normal mode"),
    "normal": ("NORMAL", "i: write"),
    "visual": ("VISUAL", "Esc: normal mode"),
    "lines": ("V-LINE", "Esc: normal mode"),
}
"""The words in the footer for vim's modes of the prompt."""


HELP_TITLES: Mapping[Place, str] = {
    "chat": "Chat",
    "timeline": "Timeline",
    "future row": "Timeline",
    "begun": "Timeline",
    "filter": "Timeline",
    "missed": "Timeline",
    "found": "Timeline",
    "line": "World line",
    "future": "Viewing a future",
    "ended future": "Viewing a future",
    "subagent": "Viewing a sub-agent",
    "ended subagent": "Viewing a sub-agent",
    "future subagent": "Viewing a sub-agent of a future",
    "search": "Search",
    "matches": "Search",
    "copy": "Selecting with a cursor",
}
"""The title of the help's section for each focused part; without one the help begins with the prompt."""


_NEEDS: Mapping[str, PartName] = {
    "background": "tasks",
    "chat.pin": "model",
    "chat.preview": "travel",
    "future.answer": "model",
    "future.message": "model",
    "future.page": "model",
    "future.stop": "model",
    "compact": "model",
    "line.compare": "lines",
    "line.jump": "travel",
    "line.send": "dmails",
    "mode": "session",
    "timeline.bookmark": "marks",
    "timeline.choose": "travel",
    "timeline.pin": "model",
    "timeline.read": "lines",
    "timeline.redo": "travel",
    "timeline.undo": "travel",
    "window": "model",
}
"""The part of the agent that an action needs."""


def keys_with(keys: Mapping[str, str], parts: Collection[PartName]) -> Mapping[str, str]:
    """Return the keys by action, without actions for which the agent lacks the part, so that no list names them."""
    lacking = {name: "" for name, part in _NEEDS.items() if part not in parts}
    return {**keys, **lacking} if lacking else keys


def hints(
    place: Place,
    state: SessionState,
    keys: Mapping[str, str],
    glyphs: Glyphs,
    now: float,
    *,
    extended: bool = False,
    empty: bool = False,
) -> tuple[Hint, ...]:
    """Return the keys of the focused area, most used first.

    Args:
        place: the area.
        state: the state of the session.
        keys: the configured keys, by action.
        glyphs: the set of signs in use.
        now: seconds since 1970.
        extended: whether the terminal sends Shift+Enter as a key of its own.
        empty: whether the prompt is empty, so that `?` shows the keys.
    """
    if place == "chat":
        return _in_chat(keys, opens=bool(state.agents))

    def key(name: str) -> str:
        return key_of(name, keys)

    arrows = f"{glyphs.up}{glyphs.down}"
    if place == "timeline":
        return known(
            (arrows, "move"),
            (key("timeline.choose"), "preview"),
            (key("timeline.filter"), "filter"),
            (key("timeline.fold"), "unfold"),
            (_both("timeline.older_turn", "timeline.newer_turn", keys), "turn"),
            (key("timeline.leave"), "close"),
            (key("timeline.read"), "read"),
            (key("timeline.bookmark"), "bookmark"),
            (key("timeline.undo"), "undo"),
            (key("timeline.keys"), "keys"),
        )
    if place == "future row":
        return known(
            (arrows, "move"),
            (key("timeline.choose"), "read and steer"),
            (key("timeline.filter"), "filter"),
            (_both("timeline.older_turn", "timeline.newer_turn", keys), "turn"),
            (key("timeline.leave"), "close"),
            (key("timeline.undo"), "undo"),
            (key("timeline.keys"), "keys"),
        )
    if place == "begun":
        return (("Esc", "show all steps"),)
    if place == "missed":
        return (("Esc", "show all steps"), ("Ctrl+U", "clear"))
    if place == "filter":
        return (("Enter", "go to the step"), ("Esc", "show all steps"), ("Ctrl+U", "clear"))
    if place == "found":
        return known(
            (arrows, "move"),
            (key("timeline.choose"), "preview"),
            (key("timeline.filter"), "change the filter"),
            (key("timeline.leave"), "show all steps"),
            (key("timeline.bookmark"), "bookmark"),
            (key("timeline.keys"), "keys"),
        )
    if place == "line":
        return known(
            (key("line.jump"), "switch here"),
            (key("line.compare"), "compare"),
            (key("line.send"), "copy message"),
            (key("search"), "search"),
            (key("line.leave"), "back"),
            (key("help"), "help"),
            (key("line.next"), "next message"),
            (_both("chat.turn_before", "chat.turn_after", keys), "turn"),
        )
    if place in ("future", "ended future"):
        acts = ((key("future.message"), "send it a message"), (key("future.stop"), "stop it"))
        return known(
            *(acts if place == "future" else ()),
            (key("future.page"), "side by side"),
            (key("search"), "search"),
            (key("future.leave"), "back"),
            (key("help"), "help"),
            (key("future.next"), "next message"),
        )
    if place == "future subagent":
        return known(
            (key("future.message"), "send the future a message"),
            (key("search"), "search"),
            (key("future.leave"), "back to the future"),
            (key("help"), "help"),
            (key("future.next"), "next message"),
        )
    if place in ("subagent", "ended subagent"):
        acts = ((key("subagent.message"), "send it a message"), (key("subagent.stop"), "stop it"))
        return known(
            *(acts if place == "subagent" else ()),
            (key("chat.preview"), "rewind it"),
            (key("timeline"), "its timeline"),
            (key("search"), "search"),
            (key("subagent.leave"), "back"),
            (key("help"), "help"),
            (key("subagent.next"), "next message"),
        )
    if place == "search":
        return known(
            ("Enter", "next"),
            (sent_key_of("search.up", keys, extended=extended), "previous"),
            (key("search.end"), "end"),
            (
                key("search.text"),
                f"go to the chat, where {key('search.next')} and {key('search.before')} find matches",
            ),
        )
    if place == "copy":
        return known(
            (arrows, "move"),
            (key("copy.take"), "copy"),
            (_both("copy.mark", "copy.lines", keys), "select characters, lines"),
            ("Esc", "end"),
            (_both("copy.word", "copy.back", keys), "word"),
            (_both("copy.turn_before", "copy.turn_after", keys), "turn"),
            (key("copy.swap"), "other end of the selection"),
            (key("copy.author"), "who wrote the line"),
        )
    if place == "matches":
        return known(
            (key("search.next"), "next"),
            (key("search.before"), "previous"),
            (key("search"), "search"),
            ("Esc", "end"),
        )
    if place == "prompt":
        return _in_prompt(state, keys, now, extended=extended, empty=empty)
    # The words depend on the offers of the completion menu.
    send = key("send")
    choose, close = (arrows, "choose"), ("Esc", "close")
    write_out, helps = (key("complete"), "complete"), (key("help"), "help")
    if place == "command":
        return known((send, "run"), choose, write_out, close, helps)
    if place == "unfinished":
        return known((send, "complete"), choose, close, helps)
    if place == "commands":
        return known(choose, write_out, close, helps)
    if place == "usage":
        return known((send, "run"), (line_break_key(keys, extended=extended), "new line"), helps)
    if place == "file":
        return known((send, "accept"), choose, close, helps)
    if place == "written":
        usual = _in_prompt(state, keys, now, extended=extended)
        return known(usual[0], choose, close, helps)
    if place == "sent":
        return known((send, "accept"), choose, (key("history"), "previous"), ("Esc", "back"), helps)
    return known(("Esc", "back"), helps)


def _in_prompt(
    state: SessionState,
    keys: Mapping[str, str],
    now: float,
    *,
    extended: bool,
    empty: bool = False,
) -> tuple[Hint, ...]:
    """Return the keys of the prompt, if nothing is offered."""
    send = key_of("send", keys)
    timeline = (key_of("timeline", keys), "timeline")
    compact = (key_of("compact", keys), "compact")
    more: tuple[Hint, ...] = (
        (key_of("commands", keys), "commands"),
        (key_of("help", keys), "help"),
    )
    n_agents = len(state.working_agents)
    agents_words = "the sub-agent" if n_agents == 1 else "the sub-agents"
    stop = (key_of("escape", keys), f"stop {agents_words}" if n_agents else "stop")
    jobs: tuple[Hint, ...] = ()
    if n_agents:
        jobs = ((counted(n_agents, "sub-agent"), "/agents"),)
    if state.jobs:
        jobs = (*jobs, (counted(state.jobs, "task"), "/tasks"))
    if state.running:
        first: tuple[Hint, ...] = (
            (
                send,
                "steer" if state.takes_steers and not state.waits_for_own else "queue the message",
            ),
            stop,
        )
        if state.retry_until > now:
            first = ((send, "steer (empty: retry now)"), stop)
        if state.commands and state.step:  # the agent does not wait for commands of the user
            first = (*first, (key_of("background", keys), "background"))
        return known(*first, *jobs, timeline, compact, *more)
    if state.compacting:
        return known(stop, *jobs, timeline, *more)
    if not state.has_messages and not state.can_resume:
        return idle_hints(keys, extended=extended, empty=empty)
    line_break = (line_break_key(keys, extended=extended), "new line")
    begin = (send, "send, or continue" if state.can_resume else "send")
    # An empty prompt needs no new line: the key that lists all others is more useful there, and in short rows.
    first, last = (begin, line_break), more
    if empty:
        first, last = (begin, ("?", "keys")), (more[0], line_break, more[1])
    if not state.has_messages:
        return known(*first, timeline, *last)
    return known(*first, *jobs, timeline, compact, *last)


_PAIRS = (
    ("chat.above", "chat.below", "block"),
    ("chat.turn_before", "chat.turn_after", "turn"),
)
_SHORT = {"chat.preview": "go back", "chat.fold": "unfold", "chat.copy": "copy", "chat.pin": "pin"}


def _in_chat(keys: Mapping[str, str], *, opens: bool = False) -> tuple[Hint, ...]:
    """Return the keys of the chat, from its bindings: those of a pair as one, the way out before rare ones.

    Args:
        keys: the configured keys, by action.
        opens: whether there are cards of sub-agents, which the key opens that goes back elsewhere.
    """
    from kimi_tui.tui.transcript.transcript import Transcript

    paired = {name for first, second, _ in _PAIRS for name in (first, second)}
    bound = [one for one in Transcript.BINDINGS if isinstance(one, Binding) and one.id]
    words = {
        one.id: _SHORT.get(one.id, one.description.lower())
        for one in bound
        if one.id and one.id not in paired
    }
    if opens and "chat.preview" in words:
        words["chat.preview"] = "go back, or open a sub-agent"
    often = [name for name in _SHORT if name in words]
    rest = [name for name in words if name not in often]
    return known(
        *((_both(first, second, keys), meaning) for first, second, meaning in _PAIRS),
        *((key_of(name, keys), words[name]) for name in often),
        ("Esc", "back"),
        *((key_of(name, keys), words[name]) for name in rest),
    )


def _both(first: str, second: str, keys: Mapping[str, str]) -> str:
    return " ".join(filter(None, (key_of(first, keys), key_of(second, keys))))
