"""Says what a rewind would take, before anything happens."""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.session.readable_line import known_checkpoint
from kimi_tui.session.tokens import LineTokens, message_tokens
from kimi_tui.session.worldlines import WorldLines
from kimi_tui.soul.internal_messages import dmail_text, is_said, summary_text
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.money import Cost
from kimi_tui.soul.protocol import GoingMessage, RewindPreview, Target
from kimi_tui.soul.segments import Segment, call_target, label_of, segments
from kimi_tui.soul.tool_message import outcome_of

_WITH_A_PROMPT = frozenset({"user", "dmail"})


def rewind_prompt(segment: Segment) -> str:
    """What goes back into the prompt after a rewind to this checkpoint: the person's words, if it began with them."""
    return segment.said if segment.kind in _WITH_A_PROMPT else ""


def preview_of(line: LiveLine, target: Target) -> RewindPreview:
    """What a rewind to a checkpoint of the live line would do. Reads what goes: call it in a thread.

    Raises:
        KeyError: there is no such checkpoint.
    """
    context = line.context
    point = context.checkpoint_of(target.id)
    place = next(i for i, c in enumerate(context.checkpoints) if c.uid == point.uid)
    going = segments(context.checkpoints, context.messages, place)
    used = line.used
    after, is_estimated = line.figure_before(target.id)
    return RewindPreview(
        target=target,
        label=going[0].label,
        steps=_count(going, "step"),
        turns=_count(going, "user"),
        messages=sum(len(segment.messages) for segment in going),
        tokens_before=used,
        tokens_after=min(after, used),
        estimated=line.estimated or is_estimated or after > used,
        goes=_goes(going, line, target_first=True),
        prompt=rewind_prompt(going[0]),
        cost=_cost(going, line),
    )


def preview_of_jump(line: LiveLine, world_lines: WorldLines, target: Target) -> RewindPreview:
    """What a jump to a checkpoint of a line that was left would do: what the live line has of its own goes.

    Raises:
        KeyError: there is no such world line or checkpoint.
    """
    index = world_lines.index(target.world_line)
    point = known_checkpoint(index, target.id)
    messages = world_lines.messages_of(target.world_line)
    place = index.checkpoints.index(point)
    there = segments(index.checkpoints[: place + 2], messages, place)[0]
    live = line.context.checkpoints
    shared = 0
    for mine, other in zip(live, index.checkpoints[:place], strict=False):
        if mine.uid != other.uid:
            break
        shared += 1
    going = segments(live, line.context.messages, shared)
    if index.usage_before(point.offset) is None:
        # Without a figure of the server's the tools' descriptions have to be estimated, too.
        after = line.accounting.estimate_with(messages[: point.message_index])
    else:
        after = LineTokens().before(index, point.offset, messages)
    return RewindPreview(
        target=target,
        label=there.label,
        steps=_count(going, "step"),
        turns=_count(going, "user"),
        messages=sum(len(segment.messages) for segment in going),
        tokens_before=line.used,
        tokens_after=after,
        estimated=True,
        goes=_goes(going, line, target_first=False),
        prompt=rewind_prompt(there),
        cost=_cost(going, line),
    )


def _cost(going: Sequence[Segment], line: LiveLine) -> Cost | None:
    """What the calls of what goes have cost; what nothing goes of costs nothing to tell."""
    points = [segment.point for segment in going]
    return line.ledger.cost_of(points, line.context.index) if points else None


def _count(going: Sequence[Segment], kind: str) -> int:
    return sum(1 for segment in going if segment.kind == kind)


def _goes(
    going: Sequence[Segment], line: LiveLine, *, target_first: bool
) -> tuple[GoingMessage, ...]:
    """Everything that goes, newest first."""
    costs = _costs(going, line)
    entries: list[GoingMessage] = []
    for place in range(len(going) - 1, -1, -1):
        is_target = target_first and place == 0
        entries += _entries(going[place], costs[place], line, is_target=is_target)
    return tuple(entries)


def _costs(going: Sequence[Segment], line: LiveLine) -> list[int | None]:
    """What each step added: its own figure against the next one's; None where there is none."""
    costs: list[int | None] = []
    for place, segment in enumerate(going):
        own = segment.point.tokens
        following = next(
            (later.point.tokens for later in going[place + 1 :] if later.point.tokens is not None),
            line.used,
        )
        costs.append(None if own is None or segment.kind != "step" else max(0, following - own))
    return costs


def _entries(
    segment: Segment, cost: int | None, line: LiveLine, *, is_target: bool
) -> list[GoingMessage]:
    """What a segment loses, newest first. The words that come back into the prompt are not listed."""
    entries: list[GoingMessage] = []
    results = [message for message in segment.messages if message.role == "tool"]
    sizes = [line.accounting.estimated(message_tokens(message)) for message in results]
    order = 0
    for message in segment.messages:
        letter, summary = dmail_text(message), summary_text(message)
        if letter is not None:
            entries.append(GoingMessage("dmail", label_of(letter)))
        elif summary is not None:
            entries.append(GoingMessage("summary", label_of(summary)))
        elif is_said(message) and not (is_target and rewind_prompt(segment)):
            entries.append(GoingMessage("user", label_of(message.text)))
        elif message.role == "assistant":
            if message.text.strip():
                entries.append(GoingMessage("agent", label_of(message.text)))
            for call in message.tool_calls or ():
                failed = order < len(results) and outcome_of(results[order]).is_error
                tokens = sizes[order] if order < len(sizes) else None
                if cost is not None and len(results) == 1:
                    tokens = cost
                entries.append(
                    GoingMessage("tool", call_target(call), call.function.name, failed, tokens)
                )
                order += 1
    return entries[::-1]
