"""The reducer of tool calls, from the first piece of their arguments to their results: it computes target, state, output and tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from kimi_tui.display_names import some_of, unmarked
from kimi_tui.foreign_text import clean, one_line, shown_name
from kimi_tui.projection.blocks import NOTHING, BlockList, Change, ToolBlock, ToolState, both
from kimi_tui.prompts import CUT_OFF
from kimi_tui.tool_cards import AGENT_NAMES, LIKELY_KEYS, Card, short_name
from kimi_tui.wire.events import (
    AgentChanged,
    ApprovalResolved,
    FilesChanged,
    ToolCall,
    ToolResult,
    ToolStarted,
)

TARGET_LIMIT = 1_000
"""The largest number of characters of a target: more never fit in a row."""


def argument(arguments: str, key: str) -> str:
    """Return the text of one argument, as far as it was received; empty if it is missing or no string."""
    return next(iter_arguments(arguments, key), "")


def iter_arguments(arguments: str, key: str) -> Iterator[str]:
    """Yield every string under this key, including those in a list of objects, as far as they were received."""
    for found in _pattern(key).finditer(arguments[:65_536]):
        yield _string_value(found[1])


def _string_value(raw: str) -> str:
    if "\\" not in raw:
        return raw
    try:
        return str(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return raw


@lru_cache(maxsize=64)
def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(rf'"{re.escape(key)}"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)


@lru_cache(maxsize=64)
def _number(key: str) -> re.Pattern[str]:
    return re.compile(rf'"{re.escape(key)}"\s*:\s*"?(\d+)')


def target(card: Card, arguments: str, work_dir: str = "") -> str:
    """Return the target of a call: a path, a command, a pattern; empty while it is unknown.

    Args:
        card: the card of the tool.
        arguments: the JSON text so far.
        work_dir: paths below it are shown relative to it.
    """
    match card.kind:
        case "progress":
            return _progress(card.keys[0], arguments) if card.keys else ""
        case "number":
            numbers = (_number(key).search(arguments) for key in card.keys)
            text = next((found[1] for found in numbers if found is not None), "")
        case "path" | "text":
            keys = card.keys or LIKELY_KEYS
            text = next((value for key in keys if (value := argument(arguments, key))), "")
            text = text[:TARGET_LIMIT]
            if card.shows == "answers":
                text = unmarked(text)
            text = shown_name(text) if card.kind == "path" else one_line(text)
            folder = work_dir.rstrip("/") + "/"
            if work_dir and (card.kind == "path" or not card.keys):
                text = text.removeprefix(folder)
    return card.form.replace("{}", text, 1) if text else ""


def _progress(key: str, arguments: str) -> str:
    """Return how many entries of a list are done, in words."""
    try:
        parsed: object = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return ""
    entries = cast("dict[str, object]", parsed).get(key) if isinstance(parsed, dict) else None
    if not isinstance(entries, list):
        return ""
    rows = cast("list[object]", entries)
    done = sum(
        1
        for row in rows
        if isinstance(row, dict) and cast("dict[str, object]", row).get("status") == "done"
    )
    return todo_summary(done, len(rows))


def todo_summary(done: int, count: int) -> str:
    """Return `1 of 3 done`."""
    return f"{done} of {count} done" if count else "nothing to do"


def changed_words(block: ToolBlock) -> str:
    """Return `3 files changed, can be restored`; empty if no file changed. After a compaction restoring is not mentioned."""
    if not block.n_changed:
        return ""
    files = "1 file" if block.n_changed == 1 else f"{block.n_changed:,} files"
    if block.is_past:
        return f"{files} changed"
    if block.n_lost == 0:
        return f"{files} changed, can be restored"
    if block.n_lost >= block.n_changed:
        return f"{files} changed, cannot be restored"
    named = f" ({some_of(block.lost, NAMED_LOST, block.n_lost)})" if block.lost else ""
    return f"{files} changed, {block.n_lost:,} of them cannot be restored{named}"


def ignored_words(block: ToolBlock) -> str:
    """Return a sentence about the new files that a rule ignores; empty if there are none."""
    if not block.n_ignored:
        return ""
    named = some_of(block.ignored, NAMED_LOST, block.n_ignored)
    return f"A rewind does not delete new ignored files: {named}"


NAMED = 8
"""The largest number of paths that are kept of the files that a command changed."""
NAMED_LOST = 3
"""The largest number of paths that are kept of the changed files that cannot be restored."""
PATH_LIMIT = 200
AGENT_TAIL_S = 0.25
"""Seconds between two updates of a card by what its sub-agent streams: several may write at once, faster than anybody reads."""
AGENT_TAIL_CHARS = 400
"""The largest number of characters that are kept of what a sub-agent streams."""
ARGUMENTS_LIMIT = 65_536
"""The largest number of characters of a call's arguments that are kept: only its target is read from them."""
SURE_AFTER = 4_096
"""Characters of arguments after which a known target is final."""


@dataclass(slots=True)
class _Tail:
    """The end of what the sub-agent of a call streams, and when the card of the call showed it."""

    key: str
    text: str = ""
    kind: type[object] = object
    shown_at: float = 0.0


class ToolCalls:
    """Applies the events of the tool calls of the running turn to their blocks."""

    def __init__(self, blocks: BlockList) -> None:
        self._list = blocks
        self._open: dict[str, ToolBlock] = {}
        self._dmails: list[ToolBlock] = []
        self._undelivered: list[ToolBlock] = []
        """The D-Mails of the running step, whose blocks are removed when they are delivered."""
        self._changed: dict[str, str] = {}
        """Commands with which the user replaced those of calls, by the calls' keys."""
        self._own: set[str] = set()
        """The keys of commands that the user ran, outside of any step."""
        self._agents: dict[str, AgentChanged] = {}
        """The sub-agents of the session, by the keys of the calls that started them."""
        self._tails: dict[str, _Tail] = {}
        """The end of what each sub-agent streams, by its name."""
        self.work_dir = ""

    def begin(self, event: ToolCall, at: float) -> Change:
        """Add the block of a call that the model begins to stream."""
        block = self._list.new(ToolBlock, at)
        block.call = event.key
        block.tool = event.name
        block.given_card = event.card
        block.name = short_name(event.name, event.card)
        block.arguments = event.arguments[:ARGUMENTS_LIMIT]
        block.target = target(block.card, block.arguments, self.work_dir)
        block.agent = self._agents.get(event.key)
        self._open[event.key] = block
        return self._list.append_of_attempt(block)

    def more(self, key: str, arguments: str) -> Change:
        """Append a chunk of a call's arguments."""
        block = self._open.get(key)
        if block is None:
            return NOTHING
        before = len(block.arguments)
        block.arguments = (block.arguments + arguments)[:ARGUMENTS_LIMIT]
        is_read = bool(block.card.text)
        if before > SURE_AFTER and block.target and not is_read:
            return NOTHING
        found = target(block.card, block.arguments, self.work_dir)
        if found == block.target and not is_read:
            return NOTHING
        block.target = found
        return self._list.touched(block)

    def started(self, event: ToolStarted, at: float) -> Change:
        """Note that a tool runs."""
        self._list.keep_attempts()
        change = NOTHING
        if event.key not in self._open and (again := self._ended(event.key)) is not None:
            # A sub-agent goes on whose call had ended with a stop.
            again.arguments = event.arguments[:ARGUMENTS_LIMIT]
            again.output = again.message = ""
            again.display = ()
            self._open[event.key] = again
        if event.key not in self._open:
            # Beside commands of the user, only a sub-agent that goes on has no beginning of a call before it.
            if event.name not in AGENT_NAMES:
                self._own.add(event.key)
            change = self.begin(ToolCall(event.key, event.name, event.arguments), at)
        block = self._open[event.key]
        block.is_own = event.key in self._own
        if (event.name, event.arguments) != (block.tool, block.arguments):
            block.arguments = event.arguments[:ARGUMENTS_LIMIT]
            block.target = target(block.card, block.arguments, self.work_dir) or block.target
        block.target = self._changed.get(event.key) or block.target
        block.state = "running"
        block.at = at
        return both(change, self._list.touched(block))

    def _ended(self, key: str) -> ToolBlock | None:
        """Return the block of a call that has ended."""
        for block in reversed(self._list.blocks[self._list.base :]):
            if isinstance(block, ToolBlock) and block.call == key:
                return block
        return None

    def output(self, key: str, text: str) -> Change:
        """Append live output of a running call."""
        block = self._open.get(key)
        if block is None:
            return NOTHING
        block.add_output(clean(text))
        return self._list.touched(block)

    def result(self, event: ToolResult, at: float) -> Change:
        """Set the result of a call."""
        block = self._open.pop(event.key, None)
        self._changed.pop(event.key, None)
        if block is None:
            return NOTHING
        self._list.keep_attempts()
        if event.rejected:
            block.state = "rejected"
        elif event.interrupted:
            block.state = "stopped"
            if event.message == CUT_OFF:
                block.stopped_by = "failure"
        else:
            block.state = "failed" if event.is_error else "done"
        block.output = event.output
        block.message = event.message
        block.display = event.display
        block.duration_s = event.duration_s
        if block.state == "stopped" and not event.duration_s:
            block.duration_s = max(0.0, at - block.at)
        block.live_output.clear()
        if not block.card.text and block.card.shows != "answers":
            block.arguments = ""
        elif block.card.is_letter and block.state == "done":
            self._undelivered.append(block)
        return self._list.touched(block)

    def changed(self, event: FilesChanged) -> Change:
        """Set the files that a call changed on its card, unless the card has a diff. Older records name a step and no call."""
        blocks = self._list.blocks
        for index in range(len(blocks) - 1, self._list.base - 1, -1):
            block = blocks[index]
            if not isinstance(block, ToolBlock) or block.card.shows == "diff":
                continue
            is_of_step = not event.key and block.uid == event.uid != ""
            if block.call == event.key or (is_of_step and block.card.is_command):
                named = (shown_name(path[:PATH_LIMIT]) for path in event.paths[:NAMED])
                block.changed = (*block.changed, *named)[:NAMED]
                block.n_changed += len(event.paths)
                block.n_lost += event.lost
                lost = (shown_name(path[:PATH_LIMIT]) for path in event.lost_paths)
                block.lost = (*block.lost, *lost)[:NAMED_LOST]
                block.n_ignored += event.ignored
                ignored = (shown_name(path[:PATH_LIMIT]) for path in event.ignored_paths)
                block.ignored = (*block.ignored, *ignored)[:NAMED_LOST]
                block.touch()
                return Change(index)
        return NOTHING

    def agent_changed(self, event: AgentChanged) -> Change:
        """Set the state of a sub-agent on the card of the call that started it."""
        self._agents[event.key] = event
        if event.is_running:
            # The call has another key after the conversation went back into it.
            self._tails.setdefault(event.name, _Tail(event.key)).key = event.key
        else:
            self._tails.pop(event.name, None)
        block = self._open.get(event.key)
        if block is None:
            calls = (one for one in reversed(self._list.blocks) if isinstance(one, ToolBlock))
            block = next((one for one in calls if one.call == event.key), None)
        if block is None or not event.key or block.agent == event:
            return NOTHING
        block.agent = event
        return self._list.touched(block)

    def agent_said(self, name: str, text: str, at: float, kind: type[object]) -> Change:
        """Show the last line of what a sub-agent streams on its card, a few times a second.

        Args:
            name: the name of the sub-agent.
            text: the next piece.
            at: when it came, in seconds since 1970.
            kind: the class of its event; another one than before begins a new line.
        """
        tail = self._tails.get(name)
        if tail is None:
            return NOTHING
        if kind is not tail.kind:
            tail.kind, text = kind, f"\n{text}"
        tail.text = (tail.text + text)[-AGENT_TAIL_CHARS:]
        block = self._open.get(tail.key)
        if block is None or 0 <= at - tail.shown_at < AGENT_TAIL_S:
            return NOTHING
        line = clean(tail.text).rstrip().rpartition("\n")[2].strip()
        if not line or [line] == block.live_output:
            return NOTHING
        tail.shown_at, block.live_output = at, [line]
        return self._list.touched(block)

    def agents_again(self) -> Change:
        """Set the present states of sub-agents on cards that came back with their world line."""
        change = NOTHING
        for block in self._list.blocks if self._agents else ():
            if isinstance(block, ToolBlock) and block.agent != self._agents.get(block.call):
                block.agent = self._agents.get(block.call)
                change = both(change, self._list.touched(block))
        return change

    def waits(self, key: str) -> Change:
        """Note that a call waits for approval."""
        block = self._open.get(key)
        if block is None:
            return NOTHING
        block.state = "waiting"
        return self._list.touched(block)

    def dmails_wait(self) -> Change:
        """Note that the step's D-Mails, which have their results already, wait for approval."""
        self._dmails = [
            block
            for block in self._list.blocks[self._list.base :]
            if isinstance(block, ToolBlock)
            and block.card.is_letter
            and block.uid == self._list.uid
            and block.state == "done"
        ]
        return self._dmails_become("waiting")

    def _dmails_become(self, state: ToolState, why: str = "") -> Change:
        change = NOTHING
        for block in self._dmails:
            block.state, block.message = state, why
            change = both(change, self._list.touched(block))
        return change

    def answered(self, event: ApprovalResolved) -> Change:
        """Apply the answer to the pending approval (there is only one at a time)."""
        if self._dmails:
            change = self._dmails_become(*_dmail_state(event))
            self._dmails = []
            return change
        if event.answer == "no":
            # The result that follows shows the answer.
            return NOTHING
        for block in self._open.values():
            if block.state == "waiting":
                block.state = "running"
                if event.feedback and block.card.is_command:
                    block.target = self._changed[block.call] = one_line(event.feedback)
                return self._list.touched(block)
        return NOTHING

    def step_over(self) -> Change:
        """End the step: its remaining D-Mails were not delivered."""
        change = NOTHING
        for block in self._undelivered:
            if block.state == "done":
                block.state = "unsent"
                change = both(change, self._list.touched(block))
        self._undelivered = []
        return change

    def dropped(self) -> Change:
        """Stop the calls that were being streamed, as the attempt failed."""
        change = NOTHING
        for key, block in list(self._open.items()):
            if block.state == "writing":
                block.state, block.stopped_by = "stopped", "failure"
                change = both(change, self._list.touched(block))
                del self._open[key]
        return change

    def stop(self) -> Change:
        """End the turn: calls without a result are marked as stopped."""
        change = NOTHING
        for block in self._open.values():
            block.state = "stopped"
            change = both(change, self._list.touched(block))
        self._open.clear()
        self._changed.clear()
        return change

    def forget(self) -> None:
        """Forget the calls: the context was reverted."""
        self._open.clear()
        self._changed.clear()
        self._dmails, self._undelivered = [], []

    def cost(self, checkpoint: int, tokens: int, *, estimated: bool) -> Change:
        """Show the tokens that a step added to the window on its last card alone."""
        change = NOTHING
        wanted: int | None = tokens
        blocks = self._list.blocks
        for index in range(len(blocks) - 1, self._list.base - 1, -1):
            block = blocks[index]
            if block.checkpoint is not None and block.checkpoint < checkpoint:
                break
            if isinstance(block, ToolBlock) and block.checkpoint == checkpoint:
                if block.call in self._own:
                    continue
                had_it = block.tokens is not None
                if block.tokens != wanted or (had_it and block.tokens_estimated != estimated):
                    block.tokens, block.tokens_estimated = wanted, estimated
                    block.touch()
                    change = Change(index)
                if had_it:
                    # Only one card shows the tokens, and this was it.
                    break
                wanted = None
        return change


def _dmail_state(event: ApprovalResolved) -> tuple[ToolState, str]:
    """Return the state of D-Mails after the user's answer, and the text that the user gave."""
    if event.answer != "no":
        return "done", ""
    # The turn was stopped while the question was pending.
    return (
        ("stopped", "") if event.feedback == "stopped" else ("rejected", one_line(event.feedback))
    )
