"""`kimi-tui sessions`: lists, shows, exports, renames, archives, forks, deletes and prunes sessions; how commands open one.

`kimi-tui checkpoints` and `kimi-tui worldlines` list what is in one session. Nothing is ever deleted without the user's yes,
what is lies in the trash first, and the live line is never pruned.
"""

from __future__ import annotations

import asyncio
import contextlib
from argparse import SUPPRESS, Namespace
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kimi_tui.app_paths import config_file, data_dir, log_file, short
from kimi_tui.commands.console import (
    DONE,
    FAILED,
    Parser,
    command,
    complain,
    confirmed,
    line_number,
    print_json,
    print_pairs,
    print_table,
    say,
)
from kimi_tui.config.file import read_config
from kimi_tui.config.settings import ConfigError, ModelPrices
from kimi_tui.foreign_text import clean_source
from kimi_tui.logging_setup import start_logging
from kimi_tui.session.errors import SessionLocked, SessionNotFound, UnknownWorldLine
from kimi_tui.session.listing import SessionInfo, describe
from kimi_tui.session.lock import holder_of
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.session import Session
from kimi_tui.session.store import (
    TRASH_DAYS,
    DiskUse,
    SessionStore,
    disk_use,
    prune,
    read_only_copy,
)
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
from kimi_tui.soul.kimisoul import KimiSoul, open_soul
from kimi_tui.soul.usage import Cost, Statistics, session_statistics
from kimi_tui.tui.formatting import (
    age,
    change,
    counted,
    cut,
    line_words,
    size_words,
    statistics_pairs,
    time_of,
    tokens,
)

# --- the session that a command is about


def chosen_session(name: str | None) -> Session:
    """The session of that id, or the newest of the current folder; not yet opened.

    Raises:
        SessionNotFound: there is none; the text says what to do.
    """
    store = SessionStore(data_dir())
    here = Path.cwd()
    if name is not None:
        return store.find(name, here)
    newest = store.newest(here)
    if newest is None:
        raise SessionNotFound("There is no session of this folder; choose one with --session ID.")
    return newest


@contextlib.asynccontextmanager
async def opened(session: Session) -> AsyncGenerator[Session]:
    """The session, open.

    Raises:
        SessionLocked: another process has it open.
        StorageTrouble: it cannot be opened at all.
    """
    await session.open()
    try:
        yield session
    finally:
        await session.aclose()


@contextlib.asynccontextmanager
async def engine(session: Session) -> AsyncGenerator[KimiSoul]:
    """The engine on the session, with no model: operations only. What they do is recorded as in the app.

    Raises:
        SessionLocked: another process has it open.
        StorageTrouble: it cannot be opened at all.
    """
    start_logging(log_file())
    soul = await open_soul(session=session, provider=None, follow_files=False)
    try:
        yield soul
    finally:
        await soul.aclose()


# --- the command `sessions`


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui sessions ARGUMENTS`; returns the exit code."""
    options = _parser().parse_args(arguments)
    store = SessionStore(data_dir())
    match options.verb:
        case "show":
            return asyncio.run(show(store.find(options.session, Path.cwd()), as_json=options.json))
        case "export":
            return asyncio.run(_export(store.find(options.session, Path.cwd())))
        case "rename" | "archive":
            return asyncio.run(_rename_or_archive(store, options))
        case "delete":
            return _delete(store, options)
        case "restore":
            say(f"{store.restore(options.session).id} is among the sessions again.")
            return DONE
        case "fork":
            return asyncio.run(_fork(store, options))
        case "prune":
            return asyncio.run(_prune(store, options))
        case _:
            return _list(store, options)


def _parser() -> Parser:
    parser = Parser(
        prog="kimi-tui sessions",
        description="Look after the sessions on disk. Without a verb, list those of this folder.",
        allow_abbrev=False,
    )
    parser.set_defaults(verb="list", all=False, archived=False, json=False)
    parser.add_argument("--json", action="store_true", help="print JSON")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)

    def verb(name: str, about: str, *, session: bool = True) -> Parser:
        made = verbs.add_parser(name, help=about, description=about, allow_abbrev=False)
        if session:
            made.add_argument("session", metavar="ID", help="a session's id, or its beginning")
        return made

    listing = verb("list", "list the sessions of this folder", session=False)
    listing.add_argument("--all", action="store_true", help="those of every folder")
    listing.add_argument("--archived", action="store_true", help="also those put away")
    listing.add_argument("--json", action="store_true", default=SUPPRESS, help="print JSON")
    showing = verb("show", "say everything about one session")
    showing.add_argument("--json", action="store_true", default=SUPPRESS, help="print JSON")
    verb("export", "print a session's conversation as Markdown")
    verb("rename", "call a session something else").add_argument("title", metavar="TITLE")
    verb("archive", "put a session away").add_argument(
        "--undo", action="store_true", help="take it back"
    )
    verb("fork", "copy a session, with its world lines, into a new one")
    deleting = verb("delete", f"put a session into the trash, for {TRASH_DAYS} days")
    deleting.add_argument("--yes", action="store_true", help="do not ask")
    deleting.add_argument("--for-good", action="store_true", help="not into the trash")
    verb("restore", "take a session out of the trash")
    pruning = verb("prune", "delete world lines that were left; never the live line")
    pruning.add_argument(
        "lines", metavar="N", type=line_number, nargs="*", help="which world lines (default: all)"
    )
    pruning.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _list(store: SessionStore, options: Namespace) -> int:
    infos = store.list(None if options.all else Path.cwd(), archived=options.archived, counted=True)
    for remark in store.passed_over(None if options.all else Path.cwd()):
        complain(remark)
    if options.json:
        print_json([_described(info) for info in infos])
        return DONE
    if not infos:
        say("There is no session of this folder." if not options.all else "There is no session.")
        return DONE
    now = datetime.now(UTC)
    rows = [
        [
            info.id[:8],
            _title(info),
            age(datetime.fromtimestamp(info.updated_at, UTC), now),
            "" if info.messages is None else f"{info.messages:,}",
            "" if info.tokens is None else tokens(info.tokens),
            size_words(info.size_bytes),
            size_words(info.world_lines_bytes) if info.world_lines else "",
            *([short(Path(info.work_dir))] if options.all else []),
        ]
        for info in infos
    ]
    head = ["id", "title", "age", "messages", "tokens", "size", "world lines"]
    print_table([*head, *(["folder"] if options.all else [])], rows, right=(3, 4, 5, 6))
    return DONE


def _title(info: SessionInfo) -> str:
    """The title, and what it is a copy of: that has the same title."""
    origin = f" (fork of {info.forked_from[:8]})" if info.forked_from else ""
    return cut(info.title, 48 - len(origin)) + origin


def _described(info: SessionInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "title": info.title,
        "work_dir": info.work_dir,
        "updated_at": datetime.fromtimestamp(info.updated_at, UTC).isoformat(timespec="seconds"),
        "messages": info.messages,
        "tokens": info.tokens,
        "size_bytes": info.size_bytes,
        "world_lines": info.world_lines,
        "world_lines_bytes": info.world_lines_bytes,
        "archived": info.archived,
        "forked_from": info.forked_from or None,
    }


async def _rename_or_archive(store: SessionStore, options: Namespace) -> int:
    async with opened(store.find(options.session, Path.cwd())) as session:
        if options.verb == "rename":
            session.rename(options.title)
        else:
            session.archive(not options.undo)
    return DONE


def _delete(store: SessionStore, options: Namespace) -> int:
    session = store.find(options.session, Path.cwd())
    holder = holder_of(session.dir)
    if holder is not None:
        raise SessionLocked(holder)
    size = size_words(disk_use(session.dir).total)
    title = cut(session_title(session), 40)
    for_good = " for good" if options.for_good else ""
    question = f"Delete session {session.id[:8]} ({title}, {size}){for_good}?"
    if not options.yes and not confirmed(question):
        return FAILED
    if options.for_good:
        store.delete(session)
        say(f"Deleted {session.id}.")
    else:
        thrown = store.move_to_trash(session)
        say(f"Deleted {session.id}; for {TRASH_DAYS} days it is {short(thrown)}.")
    return DONE


def session_title(session: Session) -> str:
    """What a session is called, without opening it."""
    info = describe(session.dir)
    return info.title if info else "Untitled"


async def _fork(store: SessionStore, options: Namespace) -> int:
    copy = await store.find(options.session, Path.cwd()).fork()
    say(copy.id)
    return DONE


async def _prune(store: SessionStore, options: Namespace) -> int:
    async with opened(store.find(options.session, Path.cwd())) as session:
        sizes = stored_world_lines(session.dir)
        chosen = sorted(set(options.lines)) or list(sizes)
        for n in chosen:
            if n not in sizes:
                raise UnknownWorldLine(f"There is no world line {n}.")
        if not chosen:
            say("No line was ever left here; there is nothing to free.")
            return DONE
        size = size_words(sum(sizes[n] for n in chosen))
        what = f"{len(chosen)} world lines"
        if len(chosen) == 1:
            shown = (await asyncio.to_thread(shown_lines, session)).get(chosen[0])
            what = line_words(chosen[0], shown.name if shown else "")
        question = f"Delete {what}, {size}? No more reading, jumping to or undoing of that."
        if not options.yes and not confirmed(question):
            return FAILED
        freed = prune(session, chosen)
    say(f"Freed {size_words(freed)}.")
    return DONE


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


async def show(session: Session, *, as_json: bool) -> int:
    """Print it, also of a session that another process has open; returns the exit code.

    Raises:
        StorageTrouble: it cannot be opened at all.
    """
    async with _readable(session) as read:
        found = await asyncio.to_thread(_look, read, session.dir)
    if as_json:
        print_json(_facts(read, found))
    else:
        _print(read, found)
    return DONE


def _readable(session: Session) -> contextlib.AbstractAsyncContextManager[Session]:
    """The session, open; a copy of it where another process has it open."""
    return read_only_copy(session) if holder_of(session.dir) is not None else opened(session)


async def _export(session: Session) -> int:
    async with _readable(session) as read:
        messages = read.context.world_line.messages
        text = await asyncio.to_thread(lambda: clean_source(as_markdown(messages[:])))
    print(text, end="")
    return DONE


def _stored_prices() -> dict[str, ModelPrices]:
    """The prices in the user's file (kimi-cli's has none); none where it cannot be read, which is reported elsewhere."""
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
    """The JSON object of a session's statistics, for scripts."""
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
            f"{size_words(use.total)}: {size_words(use.live)} live, {size_words(use.world_lines)} "
            f"world lines, {size_words(use.record)} record, {size_words(use.other)} other",
        ),
        *statistics_pairs(found.figures),
    ]
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


# --- world lines, as every command lists them


def line_facts(line: WorldLine, shown: ShownLine | None = None) -> dict[str, Any]:
    """A world line as scripts read it."""
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
    """World lines as a table, as on the timeline; what it does not show, having nothing of its own, is named below."""
    now = datetime.now(UTC)
    drawn = [line for line in lines if line.n not in shown or shown[line.n].n_steps]
    print_table(
        ["line", "name", "left by", "to", "steps", "messages", "before", "after", "age"],
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
            say(f"World line {line.n} has no step of its own: another line has all of it.")


def _after_words(line: WorldLine, shown: ShownLine | None) -> str:
    after = _tokens_after(line, shown)
    is_measured = not after or (shown is not None and shown.after_measured)
    return tokens(after, estimated=not is_measured)


def _tokens_after(line: WorldLine, shown: ShownLine | None) -> int:
    """What the window held when it had been left: by the server's figure, where there was one since."""
    return (shown.tokens_after if shown is not None else 0) or line.left_by.tokens_after


def _n_steps(line: WorldLine, shown: ShownLine | None) -> int:
    """The steps that only this line has; where no timeline knows it, those that the live line has not."""
    return shown.n_steps if shown is not None else len(line.checkpoints) - line.shared


def _reason_words(reason: str) -> str:
    """A kind or a reason as people read it."""
    return "D-Mail" if reason == "dmail" else reason


def _age_of(iso: str, now: datetime) -> str:
    """How long ago, or nothing where that is not known."""
    then = time_of(iso)
    return age(then, now) if then else ""


# -- what is in one session --------------------------------------------------------------------------


def list_in_session(name: str, arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui NAME ARGUMENTS`; returns the exit code."""
    if name == "worldlines":
        options = command(name, "List the lines that were left.").parse_args(arguments)
        return asyncio.run(_worldlines(chosen_session(options.session), as_json=options.json))
    parser = command(name, "List the checkpoints of a session, oldest first.")
    parser.add_argument(
        "--world-line",
        metavar="K",
        type=line_number,
        default=0,
        help="those of a line that was left (default: the live line)",
    )
    options = parser.parse_args(arguments)
    session = chosen_session(options.session)
    return asyncio.run(_checkpoints(session, options.world_line, as_json=options.json))


async def _checkpoints(session: Session, world_line: int, *, as_json: bool) -> int:
    async with opened(session):
        rows = await asyncio.to_thread(list_checkpoints, session, world_line)
    if as_json:
        print_json([row_facts(row) for row in rows])
    elif rows:
        _print_rows(rows)
    else:
        say("There is no checkpoint yet.")
    return DONE


def row_facts(row: CheckpointRow) -> dict[str, Any]:
    """The JSON object of a checkpoint, for scripts."""
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
                # A message that has no checkpoint of its own has no figures either.
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


async def _worldlines(session: Session, *, as_json: bool) -> int:
    async with opened(session):
        lines = await asyncio.to_thread(session.world_lines.list, session.context.world_line)
        shown = await asyncio.to_thread(shown_lines, session) if lines else {}
    if as_json:
        print_json([line_facts(line, shown.get(line.n)) for line in lines])
    elif lines:
        _print_lines(lines, shown)
    else:
        say("No line was ever left here.")
    return DONE
