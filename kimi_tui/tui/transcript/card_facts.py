"""The title of a tool's card: its target, and the facts at its right (result, time, tokens), without layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.foreign_text import one_line, shown_name
from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.projection.subagents import agent_state_words, agent_target
from kimi_tui.projection.tool_calls import todo_summary
from kimi_tui.tool_cards import ALLOWED_BY, BriefBlock, DiffBlock, ImageBlock, ShellBlock, TodoBlock
from kimi_tui.tui.diff import change_counts
from kimi_tui.tui.formatting import change, counted, duration, money, tokens
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.rows import CardFact, Span

if TYPE_CHECKING:
    from kimi_tui.wire.events import AgentChanged


_STOPPED_BY = {
    "user": "stopped by you",
    "exit": "kimi-tui exited",
    "failure": "the answer broke off",
}


def has_answers(block: ToolBlock) -> bool:
    """Return whether the rows below a card's title have questions with their answers, so that the title need not have them."""
    return block.card.shows == "answers" and block.state == "done" and bool(block.output.strip())


def target_of(block: ToolBlock) -> str:
    """Return what a call is about: its path, command or number; of a todo list how much of it is done; the task of a sub-agent."""
    if block.agent is not None:
        return agent_target(block.agent)
    if has_answers(block):
        return ""
    for shown in block.display:
        if isinstance(shown, TodoBlock):
            done = sum(1 for item in shown.items if item.status == "done")
            return todo_summary(done, len(shown.items))
        if isinstance(shown, DiffBlock) and not block.target:
            return shown_name(shown.path)
    return block.target


def _agent_facts(block: ToolBlock, one: AgentChanged, currency: str) -> list[CardFact]:
    """Return the facts of a sub-agent's card: what it does or how it ended, its tokens, cost and time."""
    style = {"asking": "warn", "failed": "error", "stopped": "ink", "paused": "accent"}
    words = "stopped" if block.state == "rejected" else agent_state_words(one)
    out = [CardFact((Span(words, style.get(one.state, "quiet")),), 0)]
    if one.state in ("failed", "stopped", "paused", "asking") and one.step:
        out.append(CardFact((Span(counted(one.step, "step"), "quiet"),), 3))
    if one.tokens:
        out.append(CardFact((Span(f"{tokens(one.tokens)} tokens", "quiet"),), 2))
    if one.cost > 0:
        out.append(CardFact((Span(money(one.cost, currency), "quiet"),), 4))
    if one.is_over and one.ended_at - one.began_at >= 2:
        out.append(CardFact((Span(duration(one.ended_at - one.began_at), "quiet"),), 5))
    return out


def facts_of(block: ToolBlock, currency: str = "$") -> list[CardFact]:
    """Return the facts of a card: result, time, tokens. If room is short, those with the highest rank are left out first.

    Args:
        block: the tool call.
        currency: the sign of amounts.
    """
    if block.agent is not None:
        return _agent_facts(block, block.agent, currency)
    out: list[CardFact] = []
    failed = block.state == "failed"
    if block.state == "waiting":
        out.append(CardFact((Span("waiting for your answer", "accent"),), 0))
    elif block.state == "rejected":
        out.append(CardFact((Span("you said no", "ink"),), 0))
    elif block.state == "stopped":
        out.append(CardFact((Span(_STOPPED_BY[block.stopped_by], "ink"),), 0))
    elif block.state == "unsent":
        out.append(CardFact((Span("not sent", "ink"),), 0))
    elif block.state == "recalled":
        out.append(CardFact((Span("withdrawn", "ink"),), 0))
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
                # The target shows the number already.
                has_list = True
            case ImageBlock():
                # The image is named below, with its size.
                pass
    if shell is not None and shell.exit_code is not None:
        style, rank = ("error", 0) if shell.exit_code else ("quiet", 4)
        out.append(CardFact((Span(f"exit {shell.exit_code}", style),), rank))
        _, _, more = brief.partition(f" · {ALLOWED_BY}")[0].partition(" · ")
        if more:
            out.append(CardFact((Span(more, style),), 0 if more != "sandbox" else 4))
    elif has_diff and not failed:
        counts = change_counts(added, removed, UNICODE, blank="ink") or [("+0", "ok")]
        out.append(CardFact(tuple(Span(*one) for one in counts), 1))
        # A check after the edit has failed, or has changed the file.
        if checked := brief.partition(" · ")[2]:
            out.append(CardFact((Span(checked, "error" if "failed" in checked else "quiet"),), 0))
    elif has_answers(block) and "\n" not in block.output.strip():
        # The answer is below, beside its question.
        pass
    elif brief and brief != block.target and not has_list and block.state in {"done", "failed"}:
        out.append(CardFact((Span(brief, "error" if failed else "quiet"),), 0 if failed else 3))
    elif failed:
        out.append(CardFact((Span("failed", "error"),), 0))
    if block.state == "stopped":
        seconds = seconds or block.duration_s
    # A refused call has not run; its duration is the time that the user took.
    if block.state != "rejected" and (seconds or shell is not None or block.duration_s >= 2):
        out.append(CardFact((Span(duration(seconds or block.duration_s), "quiet"),), 5))
    if block.tokens:
        out.append(
            CardFact((Span(change(block.tokens, estimated=block.tokens_estimated), "quiet"),), 2)
        )
    return out


def title_text(block: ToolBlock) -> str:
    """Return the complete text of a card's first row, for the search."""
    facts = " ".join(span.text for fact in facts_of(block) for span in fact.spans)
    return f"{block.name} {target_of(block)} {facts} #{block.checkpoint}"
