"""Tool results as the context stores them, and `ToolMemory`, the tools' knowledge of the conversation from these results.

A result is one `tool` message in kimi-cli's form: a sentence about the call in `<system>` tags, then the unchanged output.
`tool_message` writes it and `outcome_of` reads it back.

`ToolMemory` has the todo list, the version of each file when the agent last saw it, and the reminders that it got. All of it
is computed from the messages of the live world line, so that a rewind, a D-Mail or an undo reverts it too; for this the key
`saw` beside a result has the versions that the call saw.

`blocks_of` makes the blocks that cards draw for the effects of a tool; diffs are bounded, and large ones computed in a thread.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, cast

from kimi_tui import lenient_json
from kimi_tui.images import Image
from kimi_tui.llm.message import ContentPart, Message, TextPart, ToolCall
from kimi_tui.session.context_index import WorldLineContent
from kimi_tui.session.images import image_part
from kimi_tui.soul.messages import call_arguments
from kimi_tui.soul.project_notes import brought_by
from kimi_tui.tool_cards import (
    BriefBlock,
    CardOf,
    DiffBlock,
    DisplayBlock,
    ImageBlock,
    TodoBlock,
    TodoItem,
    card_of,
)
from kimi_tui.tools.outcome import Effect, FileEdit, ToolOutcome
from kimi_tui.workspace.diff import diff_lines

CARD_LINES = 200
"""Rows of a diff that a card keeps; the counts are always of the whole change."""
_SMALL_CHARS = 8_000
NOT_RUN = "Not run: the user refused another call of this step."
_REFUSED = "The user refused this call"
REJECTED = f"{_REFUSED}. Do not reach the same end another way; ask what they want."
# Results of such calls begin like this in a stored session; older versions wrote "person".
_STOPPED = re.compile(
    "The (user|person) stopped this call |Not run: the ((user|person) stopped|answer broke off) "
)
_NEVER_RAN = re.compile("The (user|person) refused this call|Not run: ")


def tool_message(call_id: str, outcome: ToolOutcome) -> Message:
    """Return the stored message for one result."""
    parts: list[ContentPart] = []
    if outcome.is_error:
        parts.append(TextPart(text=f"<system>ERROR: {outcome.message or 'It failed.'}</system>"))
    elif outcome.message:
        parts.append(TextPart(text=f"<system>{outcome.message}</system>"))
    if outcome.output:
        parts.append(TextPart(text=outcome.output))
    elif not parts:
        parts.append(TextPart(text="<system>Tool output is empty.</system>"))
    parts += map(image_part, outcome.images)
    return Message(role="tool", content=parts, tool_call_id=call_id)


def outcome_of(message: Message) -> ToolOutcome:
    """Return the outcome in a stored result; effects and display are not stored in it."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    first = texts[0] if texts else ""
    if first.startswith("<system>") and first.endswith("</system>"):
        line = first.removeprefix("<system>").removesuffix("</system>")
        failed = line.startswith("ERROR: ")
        return ToolOutcome("".join(texts[1:]), line.removeprefix("ERROR: "), failed)
    return ToolOutcome("".join(texts))


def never_ran(outcome: ToolOutcome) -> bool:
    """Return whether the call was refused, or the agent was stopped before it started."""
    return _NEVER_RAN.match(outcome.message) is not None


def was_stopped(outcome: ToolOutcome) -> bool:
    """Return whether the user stopped the call, or the agent before the call started, or its answer broke off."""
    return _STOPPED.match(outcome.message) is not None


def rejection(feedback: str) -> ToolOutcome:
    """Return the outcome of a call that the user refused, with their reason if they gave one."""
    if feedback:
        return ToolOutcome(
            message=f"{_REFUSED} and says: {feedback}",
            is_error=True,
            brief="refused",
        )
    return ToolOutcome(message=REJECTED, is_error=True, brief="refused")


_STATUSES = frozenset({"pending", "in_progress", "done"})


class ToolMemory:
    """The tools' knowledge of the live world line: the files that the agent has read, and its todo list.

    Args:
        card: returns the cards of tools; the card of one tool says that its calls set the list.

    Attributes:
        todos: the todo list; None if none was set.
        versions: the version of each file when the agent last saw it, by absolute path.
        notes: the paths of the folders' notes that the agent was given.
        mode: the approval mode as the agent was last told; empty if it was not told.
        folder: the path of the work folder as the agent was told after a change; empty if it was not told.
        known: whether the memory was computed since `forget`.
    """

    def __init__(self, card: CardOf = card_of) -> None:
        self._card = card
        self.todos: tuple[TodoItem, ...] | None = None
        self.versions: dict[str, str] = {}
        self.notes: set[str] = set()
        self.mode = self.folder = ""
        self.known = False

    def forget(self) -> None:
        """Drop everything, as the conversation has changed."""
        self.todos, self.known = None, False
        # Running calls hold references to this dictionary, so it is cleared and not replaced.
        self.versions.clear()
        self.notes, self.mode, self.folder = set(), "", ""

    def compute(self, messages: Iterable[Message]) -> None:
        """Compute the memory from the messages of a world line, oldest first."""
        self.forget()
        calls: list[ToolCall] = []
        position = 0
        for message in messages:
            self._see(message)
            if message.tool_calls:
                calls, position = message.tool_calls, 0
            elif message.role == "tool":
                # Results follow in the order of their calls; ids may repeat or be empty.
                if position < len(calls):
                    self._take(calls[position], message)
                position += 1
            elif message.role == "user" and (extra := message.model_extra):
                if notes := brought_by(message):
                    self.notes.add(notes)
                if isinstance(mode := extra.get("mode"), str):
                    self.mode = mode
                if isinstance(folder := extra.get("work_dir"), str):
                    self.folder = folder
        self.known = True

    def update(self, outcome: ToolOutcome) -> None:
        """Add the outcome of a call that has just ended."""
        for effect in outcome.effects:
            if isinstance(effect, TodoBlock):
                self.todos = effect.items

    def _see(self, message: Message) -> None:
        saw = (message.model_extra or {}).get("saw")
        if isinstance(saw, dict):
            for path, version in cast("dict[object, object]", saw).items():
                if isinstance(path, str) and isinstance(version, str):
                    self.versions[path] = version

    def _take(self, call: ToolCall, result: Message) -> None:
        card = self._card(call.function.name)
        if card.shows == "list" and card.keys and not outcome_of(result).is_error:
            todos = _todos(card.keys[0], call.function.arguments)
            if todos is not None:
                self.todos = todos


def with_versions(message: Message, noted: Mapping[str, str]) -> Message:
    """Return the message with the versions of files that its call (or its attachments) showed, as `ToolMemory.compute` reads them."""
    if not noted:
        return message
    return message.model_copy(update={"saw": dict(noted)})


def _todos(key: str, arguments: str | None) -> tuple[TodoItem, ...] | None:
    items = call_arguments(arguments).get(key)
    if not isinstance(items, list):
        return None
    found: list[TodoItem] = []
    for item in cast("list[object]", items):
        row = lenient_json.mapping(item)
        title, status = row.get("title"), row.get("status")
        if isinstance(title, str) and isinstance(status, str) and status in _STATUSES:
            found.append(
                TodoItem(title.strip(), cast('Literal["pending", "in_progress", "done"]', status))
            )
    return tuple(found)


def call_key(checkpoint_uid: str, position: int) -> str:
    """Return the key of a tool call on the wire: it is unique in a session, and computed from the context alone.

    Args:
        checkpoint_uid: the uid of the checkpoint that the call follows.
        position: its place among the calls after that checkpoint, from 0.
    """
    return f"{checkpoint_uid}:{position}"


def pending_calls(line: WorldLineContent) -> dict[str, ToolCall]:
    """Return the calls at the end of a world line that have no result, by their keys.

    A result belongs to the first call of its id without one, as servers may use an id twice.
    """
    if not line.checkpoints:
        return {}
    point = line.checkpoints[-1]
    pending: dict[str, ToolCall] = {}
    n_calls = 0
    for place in range(point.message_index, line.index.n_messages):
        message = line.messages[place]
        if message.role == "assistant":
            calls = message.tool_calls or ()
            pending = {
                call_key(point.uid, n_calls + number): call for number, call in enumerate(calls)
            }
            n_calls += len(calls)
        elif message.role == "tool":
            key = next(
                (key for key, call in pending.items() if call.id == message.tool_call_id), None
            )
            pending.pop(key or "", None)
        elif not line.index.is_marker(place):
            pending = {}
    return pending


def files_written(messages: Sequence[Message], card: CardOf = card_of) -> dict[str, int]:
    """Return how often each path was changed with the file tools, by calls that did not fail; `card` returns the cards of tools."""
    failed = _failed_calls(messages)
    files: dict[str, int] = {}
    for position, message in enumerate(messages):
        for order, call in enumerate(message.tool_calls or ()):
            look = card(call.function.name)
            if look.shows == "diff" and (position, order) not in failed:
                arguments = call_arguments(call.function.arguments)
                path = next((str(arguments[key]) for key in look.keys if key in arguments), "")
                files[path] = files.get(path, 0) + 1
    return files


def _failed_calls(messages: Sequence[Message]) -> set[tuple[int, int]]:
    """Return the calls, by (message, place in it), whose result says that they failed; results follow in the order of the calls."""
    failed: set[tuple[int, int]] = set()
    for position, message in enumerate(messages):
        if not message.tool_calls:
            continue
        for order in range(len(message.tool_calls)):
            at = position + 1 + order
            if (
                at >= len(messages)
                or messages[at].role != "tool"
                or outcome_of(messages[at]).is_error
            ):
                failed.add((position, order))
    return failed


async def blocks_of(
    effects: Iterable[Effect], brief: str = "", images: Iterable[Image] = ()
) -> tuple[DisplayBlock, ...]:
    """Return the blocks of a finished call: its brief fact first, then its images, then its changes."""
    blocks: list[DisplayBlock] = [BriefBlock(brief)] if brief else []
    blocks += map(ImageBlock.of, images)
    for effect in effects:
        match effect:
            case FileEdit():
                blocks.append(await diff_of(effect, CARD_LINES))
            case _:
                blocks.append(effect)
    return tuple(blocks)


async def diffs_of(edits: Iterable[FileEdit]) -> tuple[DisplayBlock, ...]:
    """Return the complete diffs that the user must see before a yes."""
    return tuple([await diff_of(edit, None) for edit in edits])


async def change_more_than(edits: Iterable[FileEdit], most: int) -> bool:
    """Return whether edits add and remove more than `most` lines in all."""
    n_lines = 0
    for edit in edits:
        changed = (edit.before or "").count("\n") + edit.after.count("\n")
        if n_lines + changed > most:
            block = await asyncio.to_thread(diff_block, edit, 0)
            changed = block.added + block.removed
        n_lines += changed
    return n_lines > most


async def diff_of(edit: FileEdit, max_lines: int | None) -> DiffBlock:
    """Return one edit as a diff; large texts are compared in a thread."""
    if len(edit.before or "") + len(edit.after) <= _SMALL_CHARS:
        return diff_block(edit, max_lines)
    return await asyncio.to_thread(diff_block, edit, max_lines)


def diff_block(edit: FileEdit, max_lines: int | None = CARD_LINES) -> DiffBlock:
    """Return the change of one file, by lines.

    Args:
        edit: the edit, with both texts complete.
        max_lines: the largest number of rows to keep; None for all of them.
    """
    diff = diff_lines(edit.before or "", edit.after, max_lines)
    return DiffBlock(edit.path, diff.added, diff.removed, diff.rows, edit.before is None)
