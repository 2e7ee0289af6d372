"""`kimi-tui sessions`: list, show, rename, archive, fork and delete sessions, and free what left world lines take.

Nothing is ever deleted without the person's yes, and the live line is never pruned.
"""

from __future__ import annotations

import asyncio
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kimi_tui.commands.arguments import DONE, FAILED, Parser, line_number
from kimi_tui.commands.chosen import opened
from kimi_tui.commands.output import confirmed, print_json, print_table, say
from kimi_tui.commands.showing import show
from kimi_tui.commands.sizes import size_words
from kimi_tui.places import data_dir, short
from kimi_tui.session.errors import SessionHeld, UnknownWorldLine
from kimi_tui.session.line_files import stored_lines
from kimi_tui.session.listing import SessionInfo, describe
from kimi_tui.session.lock import holder_of
from kimi_tui.session.pruning import disk_use, prune
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore
from kimi_tui.tui.numbers import age, cut, tokens


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui sessions ARGUMENTS`; returns the exit code."""
    options = _parser().parse_args(arguments)
    store = SessionStore(data_dir())
    match options.verb:
        case "show":
            return asyncio.run(show(store.find(options.session, Path.cwd()), as_json=options.json))
        case "rename" | "archive":
            return asyncio.run(_note(store, options))
        case "delete":
            return _delete(store, options)
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
    verb("rename", "call a session something else").add_argument("title", metavar="TITLE")
    verb("archive", "put a session away").add_argument(
        "--undo", action="store_true", help="take it back"
    )
    verb("fork", "copy a session, with its world lines, into a new one")
    verb("delete", "delete a session for good").add_argument(
        "--yes", action="store_true", help="do not ask"
    )
    pruning = verb("prune", "delete world lines that were left; never the live line")
    pruning.add_argument(
        "lines", metavar="N", type=line_number, nargs="*", help="which world lines (default: all)"
    )
    pruning.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _list(store: SessionStore, options: Namespace) -> int:
    infos = store.list(None if options.all else Path.cwd(), archived=options.archived)
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
            cut(info.title, 48),
            age(datetime.fromtimestamp(info.updated_at, UTC), now),
            "" if info.messages is None else f"{info.messages:,}",
            "" if info.tokens is None else tokens(info.tokens),
            size_words(info.size_bytes),
            str(info.world_lines or ""),
            *([short(Path(info.work_dir))] if options.all else []),
        ]
        for info in infos
    ]
    head = ["id", "title", "age", "messages", "tokens", "size", "world lines"]
    print_table([*head, *(["folder"] if options.all else [])], rows, right=(3, 4, 5, 6))
    return DONE


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
    }


async def _note(store: SessionStore, options: Namespace) -> int:
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
        raise SessionHeld(holder)
    size = size_words(disk_use(session.dir).total)
    title = cut(session_title(session), 40)
    question = f"Delete session {session.id[:8]} ({title}, {size}) for good?"
    if not options.yes and not confirmed(question):
        return FAILED
    store.delete(session)
    say(f"Deleted {session.id}.")
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
        sizes = stored_lines(session.dir)
        chosen = sorted(set(options.lines)) or list(sizes)
        for n in chosen:
            if n not in sizes:
                raise UnknownWorldLine(f"There is no world line {n}.")
        if not chosen:
            say("No line was ever left here; there is nothing to free.")
            return DONE
        size = size_words(sum(sizes[n] for n in chosen))
        what = f"world line {chosen[0]}" if len(chosen) == 1 else f"{len(chosen)} world lines"
        question = f"Delete {what} ({size})? No more reading, jumping to or undoing of that."
        if not options.yes and not confirmed(question):
            return FAILED
        freed = prune(session, chosen)
    say(f"Freed {size_words(freed)}.")
    return DONE
