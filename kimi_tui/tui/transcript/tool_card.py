"""The card of a tool call as rows: a title with facts at the right, and below it a diff, a list, images or the output.

`tool_card` makes all rows of a card; what its title says is in `card_facts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kimi_tui.display_names import unmarked
from kimi_tui.foreign_text import clean, expand_tabs, one_line
from kimi_tui.projection.blocks import (
    ToolBlock,
    ToolState,
)
from kimi_tui.projection.subagents import agent_news
from kimi_tui.projection.tool_calls import (
    argument,
    changed_words,
    ignored_words,
    iter_arguments,
)
from kimi_tui.tool_cards import ALLOWED_BY, BriefBlock, DiffBlock, ImageBlock, TodoBlock
from kimi_tui.tui.diff import band_rows, common_indent
from kimi_tui.tui.formatting import cut, cut_head, path
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.rows import (
    FACT_GAP,
    HANGING,
    HIT_AGENT,
    HIT_FOLD,
    HIT_LINE,
    LINE_LIMIT,
    MARGIN,
    RIGHT,
    CardFact,
    LayoutRoom,
    Line,
    Span,
    cells,
    chop,
    fold_mark,
    image_rows,
    number_span,
    paragraph,
    pin_of,
    prose_width,
    spans_width,
    title_row,
    wrap,
)
from kimi_tui.tui.transcript.card_facts import facts_of, target_of
from kimi_tui.tui.transcript.markdown_stream import whole_answer

if TYPE_CHECKING:
    from kimi_tui.wire.events import AgentChanged

TAIL_ROWS = 3
OWN_ROWS = 20
"""The largest number of rows of the output of a command that the user ran."""
DIFF_ROWS = 12
UNFOLDED_ROWS = 1_000
AGENT_ROWS = 4
"""The largest number of rows of a sub-agent's answer in a folded card."""
AGENT_CHARS = 2_000
"""The characters of that answer from which these rows are made."""
ANSWER_ROWS = 24
"""The largest number of rows of questions and answers in a folded card; four of usual length fit."""
_WHY_CHARS = 200
"""The first characters of a line, in which the reason of a failure is looked for."""
_SAYS_WHY = re.compile(
    r"^\s*(?:FAILED|ERROR|FATAL|error(?:\[\w+\])?:|fatal:|panic:|E  +\S|[\w.]*(?:Error|Exception)\b:|npm ERR!)"
)
NAME_WIDTH = 6
NARROW = 70
SMALLEST_TARGET = 12


def tool_card(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """Yield all rows of a tool card."""
    body = body_rows(block, room)
    first = next(body, None)
    yield _title(block, room, foldable=first is not None or has_more(block))
    if first is not None:
        yield first
        yield from body


def _state_glyph(state: ToolState, glyphs: Glyphs) -> Span:
    match state:
        case "done":
            return Span(glyphs.done, "ok")
        case "failed":
            return Span(glyphs.failed, "error")
        case "stopped" | "rejected" | "unsent" | "recalled":
            return Span(glyphs.stopped, "quiet")
        case "running" | "waiting":
            return Span(glyphs.running, "accent")
        case "writing":
            return Span(glyphs.pending, "quiet")


def agent_sign(one: AgentChanged, glyphs: Glyphs) -> Span:
    """Return the sign of what a sub-agent does, or how it ended."""
    match one.state:
        case "waiting":
            return Span(glyphs.pending, "quiet")
        case "asking":
            return Span(glyphs.caution, "warn")
        case "working":
            return Span(glyphs.running, "accent")
        case "paused":
            return Span(glyphs.stopped, "accent")
        case "failed":
            return Span(glyphs.failed, "error")
        case "stopped":
            return Span(glyphs.stopped, "quiet")
        case "done":
            return Span(glyphs.done, "ok")


def _title(block: ToolBlock, room: LayoutRoom, *, foldable: bool) -> Line:
    number = number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    is_dmail = block.card.is_letter
    ink = "quiet" if block.state in {"unsent", "recalled"} else "dmail" if is_dmail else "tool"
    name = cut(block.name, max(NAME_WIDTH, room.width // 3), room.glyphs.cut)
    agent = block.agent
    sign = (
        _state_glyph(block.state, room.glyphs) if agent is None else agent_sign(agent, room.glyphs)
    )
    head = [
        Span("  "),
        Span(room.glyphs.dmail, ink) if is_dmail else sign,
        Span(" "),
        Span(name, ink),
    ]
    if block.target or block.display or agent is not None:
        head.append(
            Span(" " * max(1, NAME_WIDTH - cells(name)) if cells(name) <= NAME_WIDTH else " ")
        )
        if is_dmail:
            head.append(Span(" "))
    facts = facts_of(block, room.currency)
    target = target_of(block)
    if room.width < NARROW and facts:
        best = min(fact.rank for fact in facts)
        facts = [fact for fact in facts if fact.rank == best]
    wanted = min(cells(target), max(SMALLEST_TARGET, room.width // 4))
    while facts and _free(room, head, facts, number) < wanted:
        worst = max(facts, key=_rank)
        if worst.rank <= 1:
            break
        facts.remove(worst)
    free = _free(room, head, facts, number)
    is_path = block.card.kind == "path"
    shown = path(target, free, room.glyphs.cut) if is_path else cut(target, free, room.glyphs.cut)
    hit = HIT_AGENT if agent is not None else HIT_FOLD if foldable else ""
    return title_row(room, [*head, Span(shown)], facts, number, hit=hit)


def _rank(fact: CardFact) -> int:
    return fact.rank


def _free(
    room: LayoutRoom, head: Sequence[Span], facts: Sequence[CardFact], number: Span | None
) -> int:
    taken = sum(spans_width(fact.spans) + FACT_GAP for fact in facts)
    taken += FACT_GAP + max(3, cells(number.text)) if number is not None else 0
    return max(1, room.width - RIGHT - spans_width(head) - taken)


def has_more(block: ToolBlock) -> bool:
    """Return whether an unfolded card shows more than a folded one."""
    return bool(block.n_ignored) or (
        bool(block.output.strip()) and block.card.shows not in {"list", "answers"}
    )


def body_rows(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """Yield the rows of a card below its first one."""
    if block.card.is_letter:
        yield from _dmail_rows(block, room)
        return
    if block.card.shows == "text":
        yield from _text_rows(block, room)
        return
    if block.agent is not None:
        yield from _agent_rows(block, block.agent, room)
        return
    is_empty = True
    for place, shown in enumerate(block.display):
        if isinstance(shown, TodoBlock) and (not room.low or block.unfolded):
            rows = _todo(shown, room)
        elif isinstance(shown, DiffBlock) and block.state != "failed":
            rows = _diff(shown, place, room, unfolded=block.unfolded)
        elif isinstance(shown, ImageBlock):
            rows = image_rows([shown], room, (Span(" " * HANGING),))
        else:
            continue
        for row in rows:
            is_empty = False
            yield row
    if is_empty:
        yield from _output_rows(block, room)
    elif block.unfolded and block.card.shows == "diff":
        yield from _output(block, 0, room)
    yield from _allowed_by(block, room)
    if words := changed_words(block):
        named = f"{words}: {', '.join(block.changed)}"
        named += f" {room.glyphs.cut}" if len(block.changed) < block.n_changed else ""
        yield _files_row(named, room)
    if block.unfolded and (words := ignored_words(block)):
        yield _files_row(words, room)


def _files_row(words: str, room: LayoutRoom) -> Line:
    shown = cut(words, room.width - HANGING - RIGHT, room.glyphs.cut)
    return Line((Span(" " * HANGING), Span(shown, "quiet")), hit=HIT_FOLD, margin=HANGING)


def _allowed_by(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """Yield the complete setting that would allow the refused read of a command, so that it can be copied."""
    for shown in block.display:
        if isinstance(shown, BriefBlock):
            _, found, setting = shown.text.partition(ALLOWED_BY)
            words = [Span(f"{found}{one_line(setting)}", "quiet")]
            rows = wrap(words, room.width - HANGING - RIGHT) if found else []
            for at, row in enumerate(rows):
                is_soft = at < len(rows) - 1
                yield Line((Span(" " * HANGING), *row), margin=HANGING, soft=is_soft)


def _output_rows(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """Yield the rows of a tool's output, complete or so far."""
    own_rows = TAIL_ROWS if room.lowest else OWN_ROWS
    if not block.over:
        if block.card.shows == "answer":
            # Each line is what the sub-agent does now, in place of the one before.
            return iter(_last_rows(list(block.live_output)[-1:], 1, room, block))
        keep = own_rows if block.is_own else TAIL_ROWS
        return _tail(list(block.live_output), block.live_count, keep, room, block)
    if block.is_own and not block.unfolded:
        return _own_output(block, own_rows, room)
    if block.card.is_command:
        keep = 1 if room.lowest else TAIL_ROWS
        if block.state in {"stopped", "rejected"}:
            keep = 0
        return _output(block, keep, room)
    if block.state == "failed":
        return _output(block, TAIL_ROWS, room)
    if block.card.shows == "answer":
        return _answer(block, room)
    if block.card.shows == "answers":
        return _answers(block, room)
    return _output(block, 0, room)


def _own_output(block: ToolBlock, most: int, room: LayoutRoom) -> Iterator[Line]:
    """Yield the output of a command that the user ran in order to read it: all of it, or its head and tail."""
    text = clean(block.output).strip("\n")
    if not text.strip() and block.state == "failed":
        text = clean(block.message).strip()
    lines = text.split("\n") if text.strip() else []
    if len(lines) <= most:
        return iter(_last_rows(lines, len(lines), room, block))
    tail = most // 2
    head = most - tail - 1
    mark = Span(fold_mark(len(lines) - head - tail), "ink")
    how = Span(f"   {room.unfold_keys} shows all" if room.unfold_keys else "", "quiet")
    between = Line((Span(" " * HANGING), mark, how), hit=HIT_FOLD, margin=HANGING)
    return iter(
        [
            *_last_rows(lines[:head], head, room, block),
            between,
            *_last_rows(lines[-tail:], tail, room, block),
        ]
    )


def _answers(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """Yield the rows of questions and answers, each answer at the end of its line."""
    lead = Span(" " * HANGING)
    width = prose_width(room.width)
    asked = [one_line(question) for question in iter_arguments(block.arguments, "question")]
    rows: list[Line] = []
    for line in clean(block.output).strip().split("\n", UNFOLDED_ROWS)[:UNFOLDED_ROWS]:
        question = next((one for one in asked if line.startswith(f"{one} ")), "")
        spans = [Span(unmarked(question), "quiet"), Span(line[len(question) : LINE_LIMIT], "ink")]
        wrapped = wrap([span for span in spans if span.text], width)
        last = len(wrapped) - 1
        rows += [
            Line((lead, *row), hit=HIT_FOLD, soft=index < last, margin=HANGING)
            for index, row in enumerate(wrapped)
        ]
    shown = rows[: UNFOLDED_ROWS if block.unfolded else ANSWER_ROWS]
    yield from shown
    if len(rows) > len(shown):
        mark = Span(fold_mark(len(rows) - len(shown)))
        yield Line((lead, mark), hit=HIT_FOLD, margin=HANGING)


def _output(block: ToolBlock, keep: int, room: LayoutRoom) -> Iterator[Line]:
    if not keep and not block.unfolded:
        return iter(())
    text = clean(block.output).strip("\n")
    if not text.strip() and block.state == "failed":
        text = clean(block.message).strip()
    lines = text.split("\n") if text else []
    if not block.unfolded:
        # A blank last line contains no information.
        lines = [line for line in lines if line.strip()] if keep < len(lines) else lines
    return _tail(lines, len(lines), keep, room, block)


def _tail(
    lines: list[str], count: int, keep: int, room: LayoutRoom, block: ToolBlock
) -> Iterator[Line]:
    if block.unfolded:
        return _unfolded(lines, count, room, block)
    while lines and not lines[-1].strip():
        lines = lines[:-1]
        count -= 1
    return iter(_last_rows(lines[-keep:] if keep else [], count, room, block))


def _unfolded(lines: list[str], count: int, room: LayoutRoom, block: ToolBlock) -> Iterator[Line]:
    indent = Span(" " * HANGING)
    wide = room.width - HANGING - RIGHT
    shown = lines[:UNFOLDED_ROWS]
    for line in shown:
        says_why = block.state == "failed" and _SAYS_WHY.match(line[:_WHY_CHARS])
        parts = chop([Span(expand_tabs(line[:LINE_LIMIT]), "error" if says_why else "quiet")], wide)
        last = len(parts) - 1
        for index, part in enumerate(parts):
            chopped = 0 if index < last else None
            yield Line((indent, *part), margin=HANGING, chopped=chopped)
    if count > len(shown):
        more = Span(f"{fold_mark(count - len(shown))} more", "quiet")
        yield Line((indent, more), margin=HANGING)


def _last_rows(shown: list[str], count: int, room: LayoutRoom, block: ToolBlock) -> list[Line]:
    indent = Span(" " * HANGING)
    wide = room.width - HANGING - RIGHT
    hidden = count - len(shown)
    why = (
        next((line for line in reversed(shown) if _SAYS_WHY.match(line[:_WHY_CHARS])), None)
        if block.state == "failed"
        else None
    )
    rows = [
        Line(
            (
                indent,
                Span(
                    cut(expand_tabs(line[:LINE_LIMIT]), wide, room.glyphs.cut),
                    "error" if line is why else "quiet",
                ),
            ),
            hit=HIT_FOLD,
            margin=HANGING,
        )
        for line in shown
    ]
    if hidden > 0 and rows:
        mark = Span(f"   {fold_mark(hidden)}", "ink" if block.over else "quiet")
        if spans_width(rows[-1].spans) + cells(mark.text) <= room.width - RIGHT:
            rows[-1] = rows[-1]._replace(spans=(*rows[-1].spans, mark))
        else:
            rows.append(
                Line((indent, Span(mark.text.strip(), "ink")), hit=HIT_FOLD, margin=HANGING)
            )
    return rows


def _todo(todo: TodoBlock, room: LayoutRoom) -> list[Line]:
    rows: list[Line] = []
    for item in todo.items:
        match item.status:
            case "done":
                mark, style = Span(room.glyphs.done, "ok"), "quiet"
            case "in_progress":
                mark, style = Span(room.glyphs.running, "accent"), "strong"
            case "pending":
                mark, style = Span(room.glyphs.pending, "quiet"), "ink"
        indent = Span(" " * HANGING)
        rows += paragraph(
            one_line(item.title) or " ",
            style,
            prose_width(room.width) - 4,
            (indent, mark, Span(" ")),
            (indent, Span("  ")),
            hit=HIT_FOLD,
            margin=HANGING,
        )
    return rows


def presented(block: ToolBlock) -> str:
    """Return the text that a call presents to the user, such as a D-Mail or a plan, with the user's changes; empty for none."""
    card = block.card
    if not card.text:
        return ""
    was_changed = card.shows == "text" and block.state == "done" and block.output
    return block.output if was_changed else argument(block.arguments, card.text)


def _dmail_rows(block: ToolBlock, room: LayoutRoom) -> list[Line]:
    width, lead = prose_width(room.width), (Span(" " * MARGIN),)
    rows = paragraph(clean(presented(block)).strip(), "ink", width, lead)
    if block.state == "rejected" and block.message:
        rows += paragraph(f"You: {block.message}", "quiet", width, lead)
    return rows


def _text_rows(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """Yield the rows of a text in Markdown, such as that of a plan; for a folded card only the first ones.

    The question about it has the text while the call waits for the answer.
    """
    if block.state == "waiting":
        return
    most = UNFOLDED_ROWS if block.unfolded else DIFF_ROWS
    yield from _markdown_rows(clean(presented(block)).strip(), most, room)


def _agent_rows(block: ToolBlock, one: AgentChanged, room: LayoutRoom) -> Iterator[Line]:
    """Yield what a sub-agent does in one row while it works, or why it did not end in order; then its answer, folded."""
    lead = Span(" " * HANGING)
    width, mark = room.width - HANGING - RIGHT, room.glyphs.cut
    shown = cut(expand_tabs(agent_news(one)), width, mark)
    if not shown and block.live_output:
        shown = cut_head(expand_tabs(block.live_output[-1]), width, mark)
    if shown:
        style = "error" if one.state == "failed" else "quiet"
        yield Line((lead, Span(shown, style)), hit=HIT_AGENT, margin=HANGING)
    if not block.over:
        return
    yield from _answer(block, room)
    if words := changed_words(block):
        yield Line((lead, Span(words, "quiet")), hit=HIT_FOLD, margin=HANGING)


def _answer(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """Yield the output of a call as Markdown, folded."""
    text = clean(block.output).strip()
    most = UNFOLDED_ROWS if block.unfolded else 1 if room.lowest else AGENT_ROWS
    # An answer may be long, and only its beginning is laid out for a folded card.
    chars = len(text) if block.unfolded else AGENT_CHARS
    yield from _markdown_rows(text[:chars], most, room, hidden=text.count("\n", chars))


def _markdown_rows(text: str, most: int, room: LayoutRoom, *, hidden: int = 0) -> Iterator[Line]:
    """Yield the first rows of a text in Markdown, and how many more there are, beside `hidden` ones that are not laid out."""
    lead = Span(" " * (HANGING - MARGIN))
    rows = whole_answer(text, room.width - (HANGING - MARGIN), room.glyphs) if text else []
    shown = rows[:most]
    for row in (one.shown for one in shown):
        margin = row.margin + len(lead.text)
        yield row._replace(spans=(lead, *row.spans), hit=row.hit or HIT_FOLD, margin=margin)
    if hidden := hidden + len(rows) - len(shown):
        mark = Span(fold_mark(hidden))
        yield Line((Span(" " * HANGING), mark), hit=HIT_FOLD, margin=HANGING)


def _diff(diff: DiffBlock, place: int, room: LayoutRoom, *, unfolded: bool) -> Iterator[Line]:
    lines = list(enumerate(diff.lines))
    limit = len(lines) if unfolded else DIFF_ROWS
    if room.lowest and not unfolded:
        lines = [(n, line) for n, line in lines if line.sign != " "]
    shown = lines[:limit]
    dedent = common_indent(diff.lines)
    for n, line in shown:
        hit = f"{HIT_LINE}{place}.{n}"
        for row in band_rows(line, dedent, room.width - RIGHT, room.glyphs):
            yield row._replace(hit=hit)
    hidden = max(len(lines), diff.added + diff.removed) - len(shown)
    if hidden > 0:
        yield Line((Span(" " * HANGING), Span(fold_mark(hidden))), hit=HIT_FOLD, margin=HANGING)
