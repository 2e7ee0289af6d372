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
from kimi_tui.projection.timeline_tree import CheckpointNode
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.soul.rewind_values import RewindPreview
from kimi_tui.tool_cards import short_name
from support.stored_lines import (
    Line,
    Place,
    Said,
    Segment,
    journal,
    kind_of,
    read_line,
    replaced_by,
    said_in,
    text,
    world_lines,
)
from support.time_traveller import Views


def shown_in(chat: TranscriptModel) -> list[tuple[Said, Place]]:
    """Return the things that the chat shows at full strength, in order, with the places that it gives for them."""
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
    """Yield what is wrong with the messages that the model is sent."""
    if list(sent) != line.records:
        yield f"the model is sent\n{sent}\nwhere the file has\n{line.records}"


def untrue_of_chat(chat: TranscriptModel, line: Line) -> Iterator[str]:
    """Yield what is wrong with the chat, which should show this line."""
    shown, stored = shown_in(chat), line.said()
    told = [said for one in chat.blocks if (said := _said(one)) is not None]
    words = [said.text for said in told if said.kind in ("user", "agent") and said.text]
    if twice := {text for text in words if words.count(text) > 1}:
        yield f"the chat has {twice} more than once"
    if [said for said, _ in shown] != [said for said, _ in stored]:
        yield f"the chat shows\n{_listed(shown)}\nwhere the file has\n{_listed(stored)}"
    elif shown != stored:
        yield f"the chat says that it stands at\n{_listed(shown)}\nwhere the file has\n{_listed(stored)}"


def untrue_of_rows(timeline: TimelineModel, line: Line) -> Iterator[str]:
    """Yield what is wrong with the rows of the live line."""
    live = timeline.tree.live
    most = max((max(one.tokens, one.tokens_end) for one in live), default=0)
    if timeline.most_tokens() != most:
        yield f"the bars are drawn for {timeline.most_tokens()} tokens, where {most} are the most"
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
    rows = [row for row in _all_rows(timeline) if row.line is None and row.checkpoint is not None]
    heard: dict[str, list[str]] = {}
    for row in rows:
        name = f"#{row.checkpoint.id}"
        words = row.checkpoint.words if row.is_words else name
        words = row.checkpoint.said[row.said] if row.kind == "said" else words
        heard.setdefault(row.checkpoint.uid, []).append(words)
    said = {segment.uid: _rows_of(segment) for segment in line.segments}
    for segment in line.segments:
        if segment.kind in ("compaction", "summary"):
            del said[segment.uid], heard[segment.uid]
        elif segment.holds_steers_only:
            # The timeline may also have rows of a step that failed, and of the turn whose steers alone were kept.
            for rows_there in (heard[segment.uid], said[segment.uid]):
                if f"#{segment.id}" in rows_there:
                    rows_there.remove(f"#{segment.id}")
    if list(heard.items()) != list(said.items()):
        yield f"the timeline has rows for {heard}\nwhere the file has {said}"


def _rows_of(segment: Segment) -> list[str]:
    """Return the rows of a checkpoint: its messages of the user, and the checkpoint itself if it began with none of them."""
    said = [text(message) for message in segment.messages if kind_of(message) == "user"]
    if segment.kind == "user" and not segment.holds_steers_only:
        return said
    before = _n_carried(segment)
    return [*said[:before], f"#{segment.id}", *said[before:]]


def _n_carried(segment: Segment) -> int:
    """Return how many messages of the user a D-Mail carried over, each of which began a turn or went on with it."""
    kinds = [kind_of(message) for message in segment.messages]
    if segment.kind != "dmail":
        return 0
    last = max(place for place, kind in enumerate(kinds) if kind == "dmail")
    return kinds[:last].count("user")


def untrue_of_gauge(views: Views, used: int) -> Iterator[str]:
    """Yield what is wrong with the shown use of the window; `used` is the engine's figure."""
    shown = views.gauge.status.used
    if shown != used:
        yield f"the gauge says {shown}, the engine {used}"
    if views.timeline.used != shown:
        yield f"the timeline says {views.timeline.used} where the gauge says {shown}"


def untrue_of_preview(preview: RewindPreview, line: Line, timeline: TimelineModel) -> Iterator[str]:
    """Yield what is wrong with what the preview of a rewind to a checkpoint of the live line says that it drops."""
    place = next(n for n, one in enumerate(line.segments) if one.id == preview.target.id)
    goes, there = line.segments[place:], line.segments[place]
    kinds = [one.kind for one in goes]
    shown = (preview.steps, preview.turns, preview.messages)
    # Steps are what have a number, here as on the timeline and on the cards.
    n_turns = kinds.count("user") + sum(map(_n_carried, goes))
    stored = (len(goes), n_turns, sum(len(one.messages) for one in goes))
    if shown != stored:
        yield f"a rewind to #{there.id} takes {shown} where the file has {stored}"
    counted = {len(timeline.tree.live) - place, line.segments[-1].id - there.id + 1}
    if counted != {preview.steps}:
        yield f"a rewind to #{there.id} takes {preview.steps}, where rows and card say {counted}"
    left = min(there.tokens or 0, preview.tokens_before)
    if there.is_measured and preview.tokens_after != left:
        yield f"a rewind to #{there.id} leaves {preview.tokens_after} of {there.tokens}"
    row = timeline.tree.live[place]
    frees = preview.tokens_before - preview.tokens_after
    if there.is_measured and frees != timeline.frees(row):
        yield f"a rewind to #{there.id} frees {frees}, its row says {timeline.frees(row)}"
    named = [(one.kind, one.name or one.text) for one in reversed(preview.dropped)]
    said = [(one.kind, one.text.split("\n")[0]) for segment in goes for one, _ in said_in(segment)]
    returned = preview.prompt.split("\n\n") if preview.prompt else []
    rows = _rows_of(there)
    chosen = rows[: rows.index(f"#{there.id}")][-1:] if there.kind == "dmail" else []
    if there.kind != "user" and returned != chosen:
        yield f"a rewind to #{there.id} gives back {returned} where the file has {chosen}"
    for words in returned:
        if ("user", words) not in said:
            yield f"a rewind to #{there.id} gives back {words!r}, which nobody said there"
        else:
            said.remove(("user", words))
    if named != said:
        yield f"a rewind to #{there.id} names {named}\nwhere the file has {said}, without {returned}"


def untrue_of_names(timeline: TimelineModel, folder: Path) -> Iterator[str]:
    """Yield what is wrong with the reasons why lines were left, and with their names."""
    sizes = {n: (folder / f"context_{n}.jsonl").stat().st_size for n in world_lines(folder)}
    # An operation whose line is only the beginning of a stored one did not leave that line.
    left = [one for one in journal(folder) if one.get("n") and one["size"] == sizes.get(one["n"])]
    for line in timeline.tree.lines.values():
        reasons = [one["op"] for one in left if one["n"] == line.n]
        made = [one for one in reasons if one not in ("undo", "redo")]
        # Undo and redo only bring back earlier lines.
        if line.reason != (made or reasons[:1] or [line.reason])[-1]:
            yield f"world line {line.n} was left by {line.reason}, where the journal has {reasons}"
        own = {one.uid for one in line.checkpoints}
        segments = [one for one in read_line(folder, line.n).segments if one.uid in own]
        words = {said.text.split("\n")[0] for one in segments for said, _ in said_in(one)}
        # If several D-Mails were sent, each begins with its target.
        words |= {
            row for one in left if one["n"] == line.n for row in one.get("text", "").split("\n")
        }
        name = line.own_words
        calls = {said.text for one in segments for said, _ in said_in(one) if said.kind == "tool"}
        words |= {short_name(one) for one in calls}
        if name and not any(name.startswith(one) for one in words if one):
            yield f"world line {line.n} is called {name!r}, where the file has {words}"


def _kind(checkpoint: CheckpointNode) -> str:
    return "step" if checkpoint.kind in ("interrupted", "error") else checkpoint.kind


def untrue_of_world_lines(timeline: TimelineModel, folder: Path) -> Iterator[str]:
    """Yield what is wrong with the lines that were left: each step must come once, after the one that it followed."""
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
    """Return all rows, with every line unfolded."""
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
    """Yield what is wrong with the curve: the steps before the summaries, then the live ones, each with its tokens."""
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
    """Yield what is wrong with the checkpoints of a line as the command line lists them for scripts."""
    steps = {"interrupted": "step", "error": "step"}
    told = [f"#{row['id']}" if row["said"] is None else row["label"] for row in rows]
    kinds = ("step", "dmail")
    said = [row for one in line.segments for row in (_rows_of(one) if one.kind in kinds else ())]
    if missing := [row for row in said if row not in told] or said != [
        row for row in told if row in said
    ]:
        yield f"listed are {told}\nwhere the file has {said}, {missing}"
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
