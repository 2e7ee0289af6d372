"""What goes with a D-Mail: the person's words since then, the facts the program knows, and the letter itself.

What the person said is never undone by the agent, so it is carried over in its order; earlier letters are not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from kimi_tui.llm.message import Message
from kimi_tui.prompts.load import prompt
from kimi_tui.soul.internal_messages import is_said
from kimi_tui.soul.marks import whole_groups
from kimi_tui.soul.tool_message import never_ran, outcome_of
from kimi_tui.soul.transcript import shortened
from kimi_tui.tools.base import ToolOutcome
from kimi_tui.tools.changed_command import command_that_ran

_MAX_FILES = 40
_MAX_COMMANDS = 12
_MAX_COMMAND_CHARS = 160
_MAX_SHOWN_CHARS = 1_200
Author = Literal["agent", "person"]
_FILE_TOOLS = frozenset({"WriteFile", "StrReplaceFile"})


@dataclass(frozen=True, slots=True)
class Letter:
    """A D-Mail ready to be delivered.

    `carried` goes into the context first, then `message`. `text` is what was written, `facts` what was added, `pinned`
    are the places in `carried` that the person pinned.
    """

    carried: tuple[Message, ...]
    message: Message
    text: str
    facts: str
    pinned: tuple[int, ...] = ()


def write_letter(
    checkpoint_id: int,
    texts: Sequence[str],
    undone: Sequence[Message],
    *,
    files_note: str = "",
    restored: Collection[str] = (),
    changed: Mapping[str, str] | None = None,
    work_dir: str = "",
    pinned: Collection[int] = (),
    author: Author = "agent",
) -> Letter:
    """The letter for a checkpoint.

    Args:
        checkpoint_id: where it goes.
        texts: what was written, in the order in which it was sent.
        undone: every message from that checkpoint on.
        files_note: what became of the files of that time, where they were asked for.
        restored: files that are brought back.
        changed: the files that were seen to differ from that time, each with a remark or nothing.
        work_dir: what their paths are relative to.
        pinned: the places in `undone` of messages that the person pinned: they are carried over like the person's words.
        author: who wrote it.
    """
    undone = list(undone)
    stay = set(whole_groups(undone, pinned))
    places = [place for place, m in enumerate(undone) if place in stay or is_said(m)]
    carried = tuple(undone[place] for place in places)
    text = "\n\n".join(part.strip() for part in texts)
    files = _still_changed(files_written(undone), changed or {}, restored, work_dir)
    facts = _facts(undone, carried, files_note, files)
    name = "dmail_letter" if author == "agent" else "dmail_by_hand"
    body = prompt(name, CHECKPOINT=str(checkpoint_id), FACTS=facts, TEXT=text)
    return Letter(
        carried,
        letter_message(body, author),
        text,
        facts,
        tuple(order for order, place in enumerate(places) if place in pinned),
    )


def letter_message(body: str, author: Author) -> Message:
    """The stored message of a letter; `author` is an extra key, so that the letter's card can tell it later."""
    if author == "agent":
        return Message(role="user", content=body)
    return Message.model_validate({"role": "user", "content": body, "author": author})


def author_of(message: Message) -> Author:
    """Who wrote a letter."""
    return "person" if (message.model_extra or {}).get("author") == "person" else "agent"


def files_written(messages: Sequence[Message]) -> dict[str, int]:
    """How often each path was changed with the file tools, by the calls that did not fail."""
    failed = _failed_calls(messages)
    files: dict[str, int] = {}
    for position, message in enumerate(messages):
        for order, call in enumerate(message.tool_calls or ()):
            if call.function.name in _FILE_TOOLS and (position, order) not in failed:
                path = str(_arguments(call.function.arguments).get("path", ""))
                files[path] = files.get(path, 0) + 1
    return files


def _still_changed(
    written: Mapping[str, int],
    changed: Mapping[str, str],
    restored: Collection[str],
    work_dir: str,
) -> dict[str, str]:
    """The files that are not what they were, those that commands changed among them, each with what is to be said of it."""
    found: dict[str, str] = {}
    for path, n in written.items():
        name = _relative(path, work_dir)
        said = [f"{n} {'edit' if n == 1 else 'edits'}", changed.get(name, "")]
        if name not in restored:
            found[name] = ", ".join(part for part in said if part)
    return found | {
        path: said for path, said in changed.items() if path not in found and path not in restored
    }


def _relative(path: str, work_dir: str) -> str:
    """A path as a tool was given it, as snapshots name it; one outside the work folder stays absolute."""
    full = os.path.normpath(os.path.join(work_dir, path))
    inside = work_dir.rstrip("/") + "/"
    return full.removeprefix(inside) if work_dir else os.path.normpath(path)


def _facts(
    undone: Sequence[Message],
    carried: Sequence[Message],
    files_note: str,
    files: Mapping[str, str],
) -> str:
    commands: list[str] = []
    shown: list[str] = []
    results = {each.tool_call_id: outcome_of(each) for each in undone if each.role == "tool"}
    for message in undone:
        if message.role != "assistant":
            continue
        if message.text.strip():
            shown.append(message.text.strip())
        for call in message.tool_calls or ():
            arguments = _arguments(call.function.arguments)
            if call.function.name == "Shell" and "command" in arguments:
                result = results.get(call.id, ToolOutcome())
                if not never_ran(result):
                    commands.append(command_that_ran(str(arguments["command"]), result.message))
    lines: list[str] = []
    if files:
        names = [f"`{path}` ({said})" if said else f"`{path}`" for path, said in files.items()]
        lines.append(f"- Files changed since then, and still changed: {_some(names, _MAX_FILES)}.")
    elif not files_written(undone):
        lines.append("- No file was changed with the file tools since then.")
    if commands:
        quoted = [f"`{shortened(c, _MAX_COMMAND_CHARS)}`" for c in dict.fromkeys(commands)]
        lines.append(f"- Commands that were run: {_some(quoted, _MAX_COMMANDS)}.")
    if files_note:
        lines.append(f"- {files_note}")
    if any(is_said(message) for message in carried):
        lines.append("- What the person said since then stands before this message.")
    if not all(is_said(message) for message in carried):
        lines.append(
            "- What the person pinned stands before this message too, as it was: it has been done already."
        )
    if shown:
        text = shortened("\n".join(shown), _MAX_SHOWN_CHARS)
        quoted_text = "\n".join(f"  > {line}" for line in text.split("\n"))
        lines.append(
            f"- The person has already read this from you; do not repeat it:\n{quoted_text}"
        )
    return "\n".join(lines)


def _failed_calls(messages: Sequence[Message]) -> set[tuple[int, int]]:
    """Calls by (message, place in it) whose result says that they failed; results follow in the order of the calls."""
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


def _arguments(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _some(names: Sequence[str], most: int) -> str:
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join(names[:most]) + f" and {len(names) - most} more"
