"""Tool cards: one row that says it all, and under it what `hanging` makes."""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.chat.blocks import ToolBlock, ToolState
from kimi_tui.tui.chat.hanging import hanging_rows, has_more
from kimi_tui.tui.chat.lines import HIT_FOLD, RIGHT, Line, Span, cells, width_of
from kimi_tui.tui.chat.rows import FACT_GAP, Fact, Room, number_span, pin_of, title_row
from kimi_tui.tui.chat.targets import todo_summary
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.numbers import change, cut, duration, grouped, path
from kimi_tui.wire.display import BriefBlock, DiffBlock, ShellBlock, TodoBlock

NAME_WIDTH = 6
NARROW = 70
SMALLEST_TARGET = 12


def tool_card(block: ToolBlock, room: Room) -> list[Line]:
    """All rows of a tool card."""
    body = hanging_rows(block, room)
    return [_title(block, room, foldable=bool(body) or has_more(block)), *body]


def _state_glyph(state: ToolState, glyphs: Glyphs) -> Span:
    match state:
        case "done":
            return Span(glyphs.done, "ok")
        case "failed":
            return Span(glyphs.failed, "error")
        case "stopped" | "rejected":
            return Span(glyphs.stopped, "quiet")
        case "running" | "waiting":
            return Span(glyphs.running, "accent")
        case "writing":
            return Span(glyphs.pending, "quiet")


def _title(block: ToolBlock, room: Room, *, foldable: bool) -> Line:
    number = number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    is_letter = block.tool == "SendDMail"
    name = cut(block.name, max(NAME_WIDTH, room.width // 3), room.glyphs.cut)
    head = [
        Span("  "),
        Span(room.glyphs.dmail, "dmail") if is_letter else _state_glyph(block.state, room.glyphs),
        Span(" "),
        Span(name, "dmail" if is_letter else "tool"),
    ]
    if block.target or block.display:
        head.append(
            Span(" " * max(1, NAME_WIDTH - cells(name)) if cells(name) <= NAME_WIDTH else " ")
        )
        if is_letter:
            head.append(Span(" "))
    facts = _facts(block)
    target = _target(block)
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
    is_path = block.tool in {"ReadFile", "WriteFile", "StrReplaceFile"}
    shown = path(target, free, room.glyphs.cut) if is_path else cut(target, free, room.glyphs.cut)
    return title_row(room, [*head, Span(shown)], facts, number, hit=HIT_FOLD if foldable else "")


def title_text(block: ToolBlock) -> str:
    """All that the card's first row may say."""
    facts = " ".join(span.text for fact in _facts(block) for span in fact.spans)
    return f"{block.name} {_target(block)} {facts} #{block.checkpoint}"


def _rank(fact: Fact) -> int:
    return fact.rank


def _free(room: Room, head: Sequence[Span], facts: Sequence[Fact], number: Span | None) -> int:
    taken = sum(width_of(fact.spans) + FACT_GAP for fact in facts)
    taken += FACT_GAP + max(3, cells(number.text)) if number is not None else 0
    return max(1, room.width - RIGHT - width_of(head) - taken)


def _target(block: ToolBlock) -> str:
    for shown in block.display:
        if isinstance(shown, TodoBlock):
            done = sum(1 for item in shown.items if item.status == "done")
            return todo_summary(done, len(shown.items))
        if isinstance(shown, DiffBlock) and not block.target:
            return one_line(shown.path)
    return block.target


def _facts(block: ToolBlock) -> list[Fact]:
    """Result, time, tokens: in this order, with what may go first ranked highest."""
    out: list[Fact] = []
    failed = block.state == "failed"
    if block.state == "waiting":
        out.append(Fact((Span("waits for you", "accent"),), 0))
    elif block.state == "rejected":
        out.append(Fact((Span("you said no", "ink"),), 0))
    elif block.state == "stopped":
        out.append(Fact((Span("stopped by you", "ink"),), 0))
    brief = ""
    seconds = 0.0
    shell: ShellBlock | None = None
    added = removed = 0
    has_diff = has_list = False
    for shown in block.display:
        match shown:
            case ShellBlock():
                shell = shown
                seconds = shown.duration_s
            case DiffBlock():
                has_diff = True
                added += shown.added
                removed += shown.removed
            case BriefBlock(text):
                brief = one_line(text)
            case TodoBlock():
                # The target says it already.
                has_list = True
    if shell is not None and shell.exit_code is not None:
        style, rank = ("error", 0) if shell.exit_code else ("quiet", 4)
        out.append(Fact((Span(f"exit {shell.exit_code}", style),), rank))
    elif has_diff and not failed:
        spans = [Span(f"+{grouped(added)}", "ok")] if added or not removed else []
        if removed:
            spans.extend(
                [Span(" "), Span(f"−{grouped(removed)}", "error")]
                if spans
                else [Span(f"−{grouped(removed)}", "error")]
            )
        out.append(Fact(tuple(spans), 1))
    elif brief and brief != block.target and not has_list and block.state in {"done", "failed"}:
        out.append(Fact((Span(brief, "error" if failed else "quiet"),), 0 if failed else 3))
    elif failed:
        out.append(Fact((Span("failed", "error"),), 0))
    if block.state == "stopped":
        seconds = seconds or block.duration_s
    # What was refused has not run: the time is the one that the person took.
    if block.state != "rejected" and (seconds or shell is not None or block.duration_s >= 2):
        out.append(Fact((Span(duration(seconds or block.duration_s), "quiet"),), 5))
    if block.tokens:
        out.append(
            Fact((Span(change(block.tokens, estimated=block.tokens_estimated), "quiet"),), 2)
        )
    return out
