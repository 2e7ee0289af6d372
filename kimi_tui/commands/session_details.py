"""The contents of one session: `kimi-tui sessions show` and `export`, `kimi-tui checkpoints` and `worldlines`.

Unlike `sessions`, this module reads the conversation, with the engine.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kimi_tui.app_paths import config_file, reason_of, short
from kimi_tui.commands.console import complain, print_json, print_pairs, print_table, say
from kimi_tui.config.file import read_config
from kimi_tui.config.settings import ConfigError, ModelPrices
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.filesystem import Storage
from kimi_tui.foreign_text import clean_source
from kimi_tui.program import DONE, FAILED, USAGE
from kimi_tui.session.errors import SessionLocked
from kimi_tui.session.journal import FUTURE
from kimi_tui.session.session import Session
from kimi_tui.session.store import DiskUse, disk_use, opened, read_only_copy
from kimi_tui.session.world_lines import WorldLine
from kimi_tui.soul.checkpoint_table import (
    CheckpointRow,
    ShownLine,
    list_checkpoints,
    shown_lines,
    shown_timeline,
    tokens_now,
)
from kimi_tui.soul.conversation_text import as_markdown
from kimi_tui.soul.stored_agents import agents_as_markdown
from kimi_tui.soul.usage import Cost, Statistics, session_statistics
from kimi_tui.tui.formatting import (
    age,
    change,
    counted,
    cut,
    size_words,
    statistics_pairs,
    time_of,
    tokens,
)

# --- everything about one session


@dataclass(frozen=True, slots=True)
class _Findings:
    title: str
    messages: int
    tokens: int
    checkpoints: int
    use: DiskUse
    lines: list[WorldLine]
    shown: dict[int, ShownLine]
    figures: Statistics


async def print_session(session: Session, *, as_json: bool) -> int:
    """Print everything about a session, even of one that another process has open; return the exit code.

    Raises:
        StorageTrouble: the session cannot be opened at all.
    """
    async with readable(session) as read:
        found = await in_daemon_thread(_look, read, session.dir)
    if as_json:
        print_json(_facts(read, found))
    else:
        _print(read, found)
    return DONE


@contextlib.asynccontextmanager
async def readable(session: Session) -> AsyncGenerator[Session]:
    """Open the session; if another process has it open, open a copy."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            read = await stack.enter_async_context(opened(session))
        except SessionLocked:
            read = await stack.enter_async_context(read_only_copy(session))
        yield read


async def print_markdown(session: Session, output: Path | None = None) -> int:
    """Print the conversation as Markdown, or write it into a new file; return the exit code."""
    agents = await agents_as_markdown(session)
    async with readable(session) as read:
        messages = read.context.world_line.messages
        text = await in_daemon_thread(lambda: clean_source(as_markdown(messages[:], agents)))
    return written(text, output)


async def print_conversation(session: Session, output: Path | None = None) -> int:
    """Print messages, checkpoints and world lines as JSON, or write them into a new file; return the exit code."""
    async with readable(session) as read:
        line = read.context.world_line
        shown = await in_daemon_thread(shown_lines, read)
        facts: dict[str, Any] = {
            "id": session.id,
            "title": read.title or "Untitled",
            "work_dir": str(session.work_dir),
            "messages": [message.stored() for message in line.messages[:]],
            "checkpoints": [row_facts(row) for row in list_checkpoints(read)],
            "world_lines": [
                line_facts(one, shown.get(one.n)) for one in read.world_lines.list(line)
            ],
        }
    return written(json.dumps(facts, ensure_ascii=True, indent=2) + "\n", output)


def written(text: str, output: Path | None) -> int:
    """Print a text, or write it into a new file; return the exit code."""
    if output is None:
        print(text, end="")
        return DONE
    try:
        Storage().write_new(output, text.encode("utf-8", "replace"))
    except FileExistsError:
        complain(f'"{output}" already exists. Choose another name with -o FILE.')
        return USAGE
    except OSError as error:
        complain(f'"{output}" cannot be written: {reason_of(error, named_in_text=output)}.')
        return FAILED
    return DONE


def _stored_prices() -> dict[str, ModelPrices]:
    """Return the prices in the user's file (kimi-cli's has none); none if it cannot be read, which is reported elsewhere."""
    try:
        return read_config(config_file()).prices
    except ConfigError:
        return {}


def _look(session: Session, folder: Path) -> _Findings:
    context = session.context
    lines = session.world_lines.list(context.world_line)
    timeline = shown_timeline(session)
    return _Findings(
        title=session.title or "Untitled",
        messages=context.index.counts(0)[0],
        tokens=tokens_now(session, timeline),
        checkpoints=len(context.checkpoints),
        use=disk_use(folder),
        lines=lines,
        shown=shown_lines(session, timeline),
        figures=session_statistics(session, _stored_prices()),
    )


def _facts(session: Session, found: _Findings) -> dict[str, Any]:
    use = found.use
    return {
        "id": session.id,
        "title": found.title,
        "work_dir": str(session.work_dir),
        "archived": session.state.archived,
        "forked_from": session.state.forked_from or None,
        "external_agent": session.state.external_agent or None,
        "imported_from": session.state.imported_from or None,
        "messages": found.messages,
        "tokens": found.tokens,
        "checkpoints": found.checkpoints,
        "size_bytes": use.total,
        "live_bytes": use.live,
        "world_lines_bytes": use.world_lines,
        "record_bytes": use.record,
        "other_bytes": use.other,
        "world_lines": [line_facts(line, found.shown.get(line.n)) for line in found.lines],
        "statistics": statistics_facts(found.figures),
        "remarks": session.remarks,
    }


def statistics_facts(figures: Statistics) -> dict[str, Any]:
    """Return a session's statistics as a JSON object, for scripts."""
    return {
        "turns": figures.turns,
        "steps": figures.steps,
        "tool_calls": dict(figures.tool_calls),
        "tool_failures": figures.tool_failures,
        "input_tokens": figures.input_tokens,
        "cached_tokens": figures.cached_tokens,
        "output_tokens": figures.output_tokens,
        "dmails": figures.dmails,
        "dmail_tokens_saved": figures.dmail_tokens_saved,
        "dmail_rules": [
            {
                "name": one.name,
                "fired": one.fired,
                "drafted": one.drafted,
                "sent": one.sent,
                "refused": one.refused,
                "tokens_taken_out": one.taken,
                "calls_since": one.calls,
                "saved": round(one.saved, 6),
                "cost": round(one.cost, 6),
                "net": round(one.net, 6),
                "currency": one.currency or None,
            }
            for one in figures.dmail_rules
        ],
        "compactions": [
            {"tokens_before": before, "tokens_after": after, "ratio": _ratio(before, after)}
            for before, after, _ in figures.compactions
        ],
        "rewinds": figures.rewinds,
        "cost": _cost_facts(figures.cost),
        "model_s": round(figures.model_s, 3),
        "tools_s": round(figures.tools_s, 3),
        "person_s": round(figures.user_s, 3),
    }


def _cost_facts(cost: Cost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    amounts = {currency: round(amount, 6) for currency, amount in cost.amounts}
    return {"amounts": amounts, "exact": cost.is_exact, "whole": cost.is_whole}


def _ratio(before: int, after: int) -> float | None:
    return round(after / before, 4) if before > 0 else None


def _print(session: Session, found: _Findings) -> None:
    use = found.use
    say(found.title)
    say(f"{session.id}, in {short(session.work_dir)}")
    print()
    pairs = [
        (
            "conversation",
            f"{counted(found.messages, 'message')}, {tokens(found.tokens)} tokens, "
            f"{counted(found.checkpoints, 'checkpoint')}",
        ),
        (
            "on disk",
            f"{size_words(use.total)}: {size_words(use.live)} current conversation, {size_words(use.world_lines)} "
            f"world lines, {size_words(use.record)} event log, {size_words(use.other)} other",
        ),
        *statistics_pairs(found.figures),
    ]
    if session.state.external_agent:
        from kimi_tui.external.agents import title_of

        pairs.append(("agent", title_of(session.state.external_agent)))
    if session.state.imported_from:
        pairs.append(("imported from", session.state.imported_from))
    if session.state.forked_from:
        pairs.append(("forked from", session.state.forked_from))
    print_pairs(pairs)
    if found.lines:
        print()
        _print_lines(found.lines, found.shown)
    for remark in session.remarks:
        say(f"! {remark}")


# --- the list of world lines of every command


def line_facts(line: WorldLine, shown: ShownLine | None = None) -> dict[str, Any]:
    """Return a world line as a JSON object, for scripts."""
    return {
        "n": line.n,
        "name": shown.name or None if shown is not None else None,
        "reason": line.reason,
        "checkpoint_id": line.left_by.checkpoint_id if line.left_by.checkpoint_id >= 0 else None,
        "at": line.left_by.at or None,
        "tokens_before": line.left_by.tokens_before,
        "tokens_after": _tokens_after(line, shown),
        "messages_dropped": line.left_by.messages_dropped,
        "checkpoints": len(line.checkpoints),
        "steps": _n_steps(line, shown),
        "text": line.left_by.text,
    }


def _print_lines(lines: Sequence[WorldLine], shown: Mapping[int, ShownLine]) -> None:
    """Print world lines as a table, as on the timeline; lines that it does not show, as they have nothing of their own, are
    listed below.
    """
    now = datetime.now(UTC)
    drawn = [line for line in lines if line.n not in shown or shown[line.n].n_steps]
    print_table(
        ["line", "name", "reason", "to", "steps", "messages", "tokens before", "after", "age"],
        [
            [
                str(line.n),
                cut(shown[line.n].name, 50) if line.n in shown else "",
                _reason_words(line.reason),
                f"#{line.left_by.checkpoint_id}" if line.left_by.checkpoint_id >= 0 else "",
                f"{_n_steps(line, shown.get(line.n)):,}",
                f"{line.left_by.messages_dropped:,}",
                tokens(line.left_by.tokens_before),
                _after_words(line, shown.get(line.n)),
                _age_of(line.left_by.at, now),
            ]
            for line in drawn
        ],
        right=(0, 3, 4, 5, 6, 7),
    )
    for line in lines:
        if line not in drawn:
            say(
                f"World line {line.n} has no steps of its own; all its steps are part of another world line."
            )


def _after_words(line: WorldLine, shown: ShownLine | None) -> str:
    if line.reason == FUTURE:
        return ""  # nothing has left the context
    after = _tokens_after(line, shown)
    is_measured = not after or (shown is not None and shown.after_measured)
    return tokens(after, estimated=not is_measured)


def _tokens_after(line: WorldLine, shown: ShownLine | None) -> int:
    """Return the tokens in the window when the line had been left: the server's figure, if there was one since."""
    return (shown.tokens_after if shown is not None else 0) or line.left_by.tokens_after


def _n_steps(line: WorldLine, shown: ShownLine | None) -> int:
    """Return the number of steps that only this line has; if no timeline knows the line, of those that the live line does not have."""
    return shown.n_steps if shown is not None else len(line.checkpoints) - line.shared


def _reason_words(reason: str) -> str:
    """Return a kind or a reason in words."""
    return "D-Mail" if reason == "dmail" else reason


def _age_of(iso: str, now: datetime) -> str:
    """Return how long ago a time was; empty if it is unknown."""
    then = time_of(iso)
    return age(then, now) if then else ""


# --- checkpoints and world lines


async def print_checkpoints(session: Session, world_line: int, *, as_json: bool) -> int:
    """Print the checkpoints of a world line (0: the live one), oldest first; return the exit code.

    Raises:
        UnknownWorldLine: no line has that number.
        StorageTrouble: the session cannot be opened at all.
    """
    async with readable(session) as read:
        rows = await in_daemon_thread(list_checkpoints, read, world_line)
    if as_json:
        print_json([row_facts(row) for row in rows])
    elif rows:
        _print_rows(rows)
    else:
        say("The session has no checkpoints yet.")
    return DONE


def row_facts(row: CheckpointRow) -> dict[str, Any]:
    """Return a checkpoint as a JSON object, for scripts."""
    return {
        "id": row.id,
        "world_line": row.world_line,
        "kind": row.kind,
        "label": row.label,
        "at": row.at or None,
        "tokens": row.tokens,
        "tokens_change": row.tokens_change,
        "files_changed": row.files_changed,
        "bookmark": row.bookmark or None,
        "said": row.said if row.said >= 0 else None,
    }


def _print_rows(rows: Sequence[CheckpointRow]) -> None:
    now = datetime.now(UTC)
    print_table(
        ["", "kind", "tokens", "change", "files", "age", "what"],
        [
            [
                f"#{row.id}",
                _reason_words(row.kind),
                # A message without a checkpoint of its own has no figures either.
                "" if row.said >= 0 else tokens(row.tokens, estimated=row.estimated),
                "" if row.said >= 0 else change(row.tokens_change, estimated=row.change_estimated),
                f"±{row.files_changed}" if row.files_changed else "",
                _age_of(row.at, now),
                cut(f"[{row.bookmark}] {row.label}" if row.bookmark else row.label, 60),
            ]
            for row in rows
        ],
        right=(0, 2, 3, 4),
    )


async def print_world_lines(session: Session, *, as_json: bool) -> int:
    """Print the world lines that were left; return the exit code.

    Raises:
        StorageTrouble: the session cannot be opened at all.
    """
    async with readable(session) as read:
        lines = await in_daemon_thread(read.world_lines.list, read.context.world_line)
        shown = await in_daemon_thread(shown_lines, read) if lines else {}
    if as_json:
        print_json([line_facts(line, shown.get(line.n)) for line in lines])
    elif lines:
        _print_lines(lines, shown)
    else:
        say("The session has no other world lines (branches).")
    return DONE
