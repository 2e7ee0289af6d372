"""Compares what views show with what a session's files say (`stored_lines`); every difference is a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    CompactionBlock,
    DMailBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_tree import Checkpoint
from kimi_tui.projection.transcript import TranscriptModel
from support.stored_lines import (
    Line,
    Place,
    Said,
    kind_of,
    read_line,
    replaced_by,
    text,
    world_lines,
)


def shown_in(chat: TranscriptModel) -> list[tuple[Said, Place]]:
    """What stands in the chat at full strength, in order, and where it says that it stands."""
    found: list[tuple[Said, Place]] = []
    for block in chat.blocks:
        said = _said(block)
        if said is not None and block.live:
            at = -1 if block.checkpoint is None else block.checkpoint
            found.append((said, Place(at, block.uid, block.number)))
    return found


def _said(block: Block) -> Said | None:
    match block:
        case UserBlock(queued=False):
            return Said("user", block.text)
        case AgentBlock():
            return Said("agent", block.stream.text)
        case ToolBlock():
            return Said("tool", block.tool, block.output if block.over else None)
        case DMailBlock():
            return Said("dmail", block.text)
        case CompactionBlock():
            return Said("summary", block.summary)
        case _:
            return None


def untrue_of_request(sent: Sequence[dict[str, Any]], line: Line) -> Iterator[str]:
    """What is wrong with the messages that the model is sent."""
    if list(sent) != line.records:
        yield f"the model is sent\n{sent}\nwhere the file has\n{line.records}"


def untrue_of_chat(chat: TranscriptModel, line: Line) -> Iterator[str]:
    """What is wrong with the chat, which should show this line."""
    shown, stored = shown_in(chat), line.said()
    if [said for said, _ in shown] != [said for said, _ in stored]:
        yield f"the chat shows\n{_listed(shown)}\nwhere the file has\n{_listed(stored)}"
    elif shown != stored:
        yield f"the chat says that it stands at\n{_listed(shown)}\nwhere the file has\n{_listed(stored)}"


def untrue_of_rows(timeline: TimelineModel, line: Line) -> Iterator[str]:
    """What is wrong with the rows of the live line."""
    tried = {segment.uid for segment in line.segments if segment.holds_steers_only}
    shown = [
        (one.id, one.uid, "step" if one.uid in tried else _kind(one)) for one in timeline.tree.live
    ]
    stored = [
        (segment.id, segment.uid, "step" if segment.uid in tried else segment.kind)
        for segment in line.segments
    ]
    if shown != stored:
        yield f"the timeline has {shown}\nwhere the file has {stored}"
    rows = [row for row in _all_rows(timeline) if row.line is None and row.is_words]
    heard = [
        row.checkpoint.said[row.said] if row.kind == "said" else row.checkpoint.words
        for row in rows
        if not row.checkpoint.is_summary
    ]
    said = [
        text(message)
        for segment in line.segments
        for message in segment.messages
        if kind_of(message) == "user" and segment.kind not in ("compaction", "summary")
    ]
    if sorted(heard) != sorted(said):
        yield f"the timeline has rows for {heard}\nwhere the user said {said}"


def _kind(checkpoint: Checkpoint) -> str:
    return "step" if checkpoint.kind in ("interrupted", "error") else checkpoint.kind


def untrue_of_world_lines(timeline: TimelineModel, folder: Path) -> Iterator[str]:
    """What is wrong with the lines that were left: each step once, behind the one that it followed."""
    tree = timeline.tree
    before: dict[str, str] = {}
    for n in [0, *world_lines(folder)]:
        uids = read_line(folder, n).uids
        for uid, previous in zip(uids, ["", *uids], strict=False):
            before[uid] = previous
    drawn: dict[str, str] = {}
    lines = list(tree.lines.values())
    names = {one.key: one.uid for one in chain(tree.live, *(line.checkpoints for line in lines))}
    for line in (None, *lines):
        own = tree.live if line is None else line.checkpoints
        previous = "" if line is None or line.root else names.get(line.parent, "")
        name = "the live line" if line is None else f"world line {line.n}"
        if line is not None and not own:
            yield f"{name} is drawn without a step"
        for one in own:
            if one.uid in drawn:
                yield f"#{one.id} {one.uid} is drawn twice, once on {name}"
            drawn[one.uid] = previous
            previous = one.uid
    if drawn != before:
        false = {uid: was for uid, was in drawn.items() if before.get(uid) != was}
        true = {uid: before.get(uid) for uid in false}
        missing = before.keys() - drawn.keys()
        yield f"the timeline has {false}, and not {missing}, where the files have {true}"
    rows = [row.checkpoint for row in _all_rows(timeline) if row.kind == "checkpoint"]
    uids = sorted(one.uid for one in rows if one is not None)
    if uids != sorted(drawn):
        yield f"the timeline's rows unfolded are {uids}, its tree has {sorted(drawn)}"


def _all_rows(timeline: TimelineModel) -> list[Any]:
    """All rows there are, with every line unfolded."""
    from kimi_tui.projection.timeline_rows import Builder

    lines = list(timeline.tree.lines.values())
    folds = [(line.is_open, line.is_whole) for line in lines]
    for line in lines:
        line.is_open = line.is_whole = True
    rows = [row for row in Builder(timeline.tree).live(0, len(timeline.tree.live)) if row]
    for line, (is_open, is_whole) in zip(lines, folds, strict=True):
        line.is_open, line.is_whole = is_open, is_whole
    return rows


def untrue_of_curve(timeline: TimelineModel, folder: Path) -> Iterator[str]:
    """What is wrong with the curve: the steps before the summaries, then the live ones, each as full as it was."""
    replaced = replaced_by(folder)
    first = read_line(folder).uids[:1]
    past: list[str] = []
    while first and first[0] in replaced:
        before = replaced[first[0]]
        past = before + past
        first = before[:1]
    shown = [one.uid for one in timeline.tree.before_now()]
    if shown != past:
        yield f"the curve's past is {shown}\nwhere the files have {past}"
    tokens = {
        segment.uid: segment.tokens
        for n in [0, *world_lines(folder)]
        for segment in read_line(folder, n).segments
        if segment.is_measured
    }
    for one in [*timeline.tree.before_now(), *timeline.tree.live]:
        if one.kind == "step" and one.uid in tokens and one.tokens != tokens[one.uid]:
            yield f"#{one.id} stands at {one.tokens} where the file has {tokens[one.uid]}"


def untrue_of_list(rows: Sequence[Mapping[str, Any]], line: Line) -> Iterator[str]:
    """What is wrong with the checkpoints of a line as the command line lists them, as scripts read them."""
    steps = {"interrupted": "step", "error": "step"}
    rows = [row for row in rows if row["said"] is None]
    shown = [
        (
            row["id"],
            steps.get(row["kind"], row["kind"]),
            row["tokens"] if segment.is_measured else None,
        )
        for row, segment in zip(rows, line.segments, strict=False)
    ]
    stored = [
        (segment.id, segment.kind, segment.tokens if segment.is_measured else None)
        for segment in line.segments
    ]
    if shown != stored or len(rows) != len(line.segments):
        yield f"listed are {shown}\nwhere the file has {stored}"


def _listed(shown: Sequence[tuple[Said, Place]]) -> str:
    return "\n".join(f"  {said} {place}" for said, place in shown)
