"""Hints above the prompt when something happens for the first time, such as the first D-Mail; each once per account.

A file in the data folder lists the hints that were shown. A hint without room at the time (a question or another hint is
shown, the prompt is covered) counts as not shown, and comes the next time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Literal, cast

from kimi_tui.app_paths import make_private
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.tool_cards import IN_THE_WAY
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.main.conversation import ConversationController
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.wire import events as wire

if TYPE_CHECKING:
    from kimi_tui.tui.approval.panel import ApprovalPanel
    from kimi_tui.tui.prompt.bar import PromptBar

log = logging.getLogger(__name__)

FirstTime = Literal[
    "turn",
    "help",
    "dmail",
    "line",
    "compacted",
    "context",
    "stopped",
    "steered",
    "pasted",
    "refused",
    "early",
    "subagent",
]
READ_S = 2.0
"""The least number of seconds that a hint stays: a key hides it only after the user can have read it."""
FULL = 0.6
"""The share of the context window from which on the hint about compaction is shown."""
WORDS: Mapping[FirstTime, tuple[str, ...]] = {
    "turn": ("{timeline}: go back to any step, files included", "{timeline}: go back to any step"),
    "help": ("{help} lists all keys and commands",),
    "dmail": (
        "The agent dropped steps and left itself a note (a D-Mail); {timeline} shows it",
        "The agent left itself a note (D-Mail); {timeline} shows it",
        "{timeline} shows the agent's D-Mail",
    ),
    "line": (
        "The old messages are now a world line (a branch); {timeline} shows it",
        "The old messages are a world line (branch): {timeline}",
        "{timeline} shows the new world line",
    ),
    "compacted": (
        "Older messages became a summary (a compaction); {timeline} shows it",
        "A summary replaced older messages; {timeline} shows it",
        "{timeline} shows the new summary",
    ),
    "context": (
        "{compact} replaces older messages with a summary",
        "{compact} sums up older messages",
    ),
    "stopped": (
        "{history-back} gets the message back into the prompt",
        "{history-back} gets the message back",
    ),
    "steered": (
        "The agent reads it at its next step; {history-back} takes it back",
        "Read next step; {history-back} takes it back",
    ),
    "pasted": (
        "To open the pasted text, press Left, then {send}",
        "Left, then {send}: open the text",
    ),
    "refused": (
        "What sandboxed commands may do is set in /settings",
        "/settings: what commands may do",
    ),
    "early": (
        "Pressed too early: answer after you have stopped typing",
        "Too early: stop typing, then answer",
    ),
    "subagent": (
        "Click the card of a sub-agent, or Tab and {chat.preview}, to read and steer it",
        "Tab, then {chat.preview}: read and steer a sub-agent",
        "Tab, {chat.preview}: read a sub-agent",
    ),
}
"""The texts of the hints, the longest first. Names of actions stand for their keys.

The first text fits over the prompt of a terminal of 80 columns, the last one of 40. The widest that fits is chosen when the hint is
drawn, so that a narrower terminal does not cut off its key.
"""
TELLING: frozenset[FirstTime] = frozenset({"dmail", "line", "compacted"})
"""The hints that say what has just happened to the conversation. They replace another hint that was shown long enough."""
_MAX_BYTES = 4_096


def read_seen(path: Path) -> set[FirstTime]:
    """Read the hints that were shown from the file; none if it cannot be read. Blocks."""
    try:
        found = json.loads(read_regular(path, _MAX_BYTES))
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, RecursionError) as error:
        log.warning("which hints were shown cannot be read: %s: %s", path, error)
        return set()
    names = cast("list[object]", found) if isinstance(found, list) else []
    return {name for name in WORDS if name in names}


def keep_seen(path: Path, seen: FirstTime) -> None:
    """Add a hint to those that were shown; if the disk refuses, it will be shown again. Blocks."""
    try:
        make_private(path.parent)
        # Another program may have shown other hints meanwhile.
        names = sorted(read_seen(path) | {seen})
        Storage().replace_file(path, json.dumps(names).encode("ascii"), shared=True)
    except OSError as error:
        log.warning("that a hint was shown is not kept: %s: %s", path, error)


class FirstTimeHints:
    """Shows the first-time hints of a session.

    Args:
        bench: the workbench above whose prompt, or in whose question, they are shown.
        conversation: the session, whose settings say whether hints are shown.
        file: the list of those that were shown; None if that is not to be kept, as in the demo.
    """

    def __init__(
        self, bench: Workbench, conversation: ConversationController, file: Path | None
    ) -> None:
        self._bench = bench
        self._conversation = conversation
        self._file = file
        self._seen: set[FirstTime] | None = None
        """The hints that were shown; None until the file was read, during which no hint is shown."""
        self._place: PromptBar | ApprovalPanel | None = None
        """The widget that shows a hint."""
        self._visible: FirstTime | None = None
        """The hint that it shows."""
        self._shown_at = 0.0
        self._is_compactable = True
        """Whether the newest compaction did not fail: else its card says what helps."""
        # The conversation's state may be ahead: it has taken all events of a batch before the first comes here.
        self._in_turn = conversation.state.running

    async def learn(self) -> None:
        """Read the list of hints that were shown."""
        self._seen = await asyncio.to_thread(read_seen, self._file) if self._file else set()

    def apply(self, event: wire.Event) -> None:
        """Show the hint for an event, if such an event happens for the first time."""
        if isinstance(event, wire.TurnEnd):
            self._in_turn = False
        match event:
            case wire.ContextReverted(reason="dmail", author="agent"):
                self.happened("dmail")
            case wire.ContextReverted(reason="rewind" | "clear") | wire.LineChanged(op="jump"):
                self.happened("line")
            case wire.CompactionEnd(error=error):
                self._is_compactable = not error
                if not error:
                    self.happened("compacted")
            case wire.StatusUpdate(used=used, limit=limit) if used > FULL * limit:
                if self._is_compactable:
                    self.happened("context")
            case wire.AgentChanged(state="working"):
                self.happened("subagent")
            case wire.TurnBegin():
                self._in_turn = True
                if self._visible == "stopped":
                    # The stopped message is no longer the newest one, to which the key leads.
                    self._hide()
            case wire.SteerQueued(when="now") if self._in_turn:
                self.happened("steered")
            case wire.SteerTaken() if self._visible == "steered":
                # The hint is over, whether the agent has read the message or the user has it back.
                self._hide()
            case wire.ToolResult(is_error=True, message=message) if IN_THE_WAY in message:
                self.happened("refused")
            case wire.TurnEnd(reason="interrupted") if not self._conversation.state.own_command:
                self.happened("stopped")
            case wire.TurnEnd(reason="done"):
                if not self.happened("turn"):
                    self.happened("help")
            case _:
                pass

    def happened(self, what: FirstTime, panel: ApprovalPanel | None = None) -> bool:
        """Show a hint if it was never shown; return whether it is visible now.

        Args:
            what: the hint.
            panel: the approval in which it is shown; None for above the prompt, where that is visible.
        """
        bench = self._bench
        is_free = bench.screen.is_current and bench.prompt.display and not bench.reading
        place = bench.prompt if panel is None and is_free else panel
        if place is None or not self._conversation.launch.config.hints:
            return False
        if self._seen is None or what in self._seen:
            return False
        if self._place is not None and not (what in TELLING and self._was_read):
            return False
        written = [self._written(form) for form in WORDS[what]]
        forms = tuple(form for form in written if form)
        if not forms:
            return False
        self._hide()
        self._seen.add(what)
        self._place, self._visible, self._shown_at = place, what, time.monotonic()
        place.hint = forms
        if self._file is not None:
            bench.start(asyncio.to_thread(keep_seen, self._file, what))
        return True

    def _written(self, form: str) -> str:
        """Return a text with the keys of its actions; empty if one of them has no key."""
        words = ""
        for said, action, *_ in Formatter().parse(form):
            key = key_of(action, self._bench.keys) if action else ""
            if action and not key:
                return ""
            words += said + key
        return words

    @property
    def _was_read(self) -> bool:
        return time.monotonic() - self._shown_at >= READ_S

    def _hide(self) -> None:
        if self._place is not None:
            self._place.hint = ""
            self._place = self._visible = None

    def key_pressed(self) -> None:
        """Hide the visible hint, if the user can have read it."""
        if self._was_read:
            self._hide()
