"""`kimi-tui sessions`: lists, renames, archives, forks, deletes and prunes sessions; how commands find one.

Nothing is ever deleted without the user's yes, deleted sessions stay in the trash first, and the live line is never pruned.
`session_details` prints the contents of a session (`sessions show` and `export`, `checkpoints`, `worldlines`), as reading
them needs the engine.
"""

from __future__ import annotations

import asyncio
import os
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kimi_tui.app_paths import data_dir, short
from kimi_tui.commands.console import (
    CommandLineParser,
    command,
    complain,
    confirmed,
    line_number,
    print_json,
    print_table,
    say,
    with_world_line,
)
from kimi_tui.invocation import command_words
from kimi_tui.program import DONE, FAILED
from kimi_tui.session.errors import SessionLocked, SessionNotFound, UnknownWorldLine
from kimi_tui.session.listing import SessionInfo, describe
from kimi_tui.session.lock import holder_of
from kimi_tui.session.metadata import read_state
from kimi_tui.session.moved_folder import former_folders
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.session import Session
from kimi_tui.session.store import TRASH_DAYS, SessionStore, disk_use, opened
from kimi_tui.tui.formatting import age, counted, cut, line_words, size_words, tokens

# --- the session of a command


def chosen_session(name: str | None) -> Session:
    """Return the session with that id, or the newest of the current folder; not yet opened.

    Raises:
        SessionNotFound: there is no such session; the text says what to do.
    """
    store = SessionStore(data_dir())
    here = Path.cwd()
    if name is not None:
        return store.find(name, here)
    newest = store.newest(here)
    if newest is None:
        raise SessionNotFound(
            _moved_words(store)
            or "This folder has no sessions. Use --session ID for one of another folder; kimi-tui sessions list --all shows the ids."
        )
    return newest


def lacking_words(session: Session, what: str) -> str:
    """Return the sentence that says why a command cannot be used with a session of an external agent; empty for one of ours."""
    name = read_state(session.dir).external_agent
    if not name:
        return ""
    from kimi_tui.external.agents import title_of

    return f"{what} works only with kimi-tui's own agent, and session {session.id[:8]} uses {title_of(name)}."


# --- the command `sessions`


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui sessions ARGUMENTS`; return the exit code."""
    options = _parser().parse_args(arguments)
    store = SessionStore(data_dir())
    match options.verb:
        case "show" | "export":
            return _print_content(store.find(options.session, Path.cwd()), options)
        case "rename" | "archive":
            return asyncio.run(_rename_or_archive(store, options))
        case "delete":
            return _delete(store, options)
        case "restore":
            say(f"Restored session {store.restore(options.session).id} from the trash.")
            return DONE
        case "fork":
            return asyncio.run(_fork(store, options))
        case "prune":
            return asyncio.run(_prune(store, options))
        case _:
            return _list(store, options)


def _parser() -> CommandLineParser:
    parser = CommandLineParser(
        prog="kimi-tui sessions",
        description="Manage the stored sessions. Without a subcommand, list the sessions of this folder.",
        allow_abbrev=False,
    )
    parser.set_defaults(verb="list", all=False, archived=False, json=False)
    parser.add_argument("--json", action="store_true", help="print JSON")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=CommandLineParser)

    def verb(name: str, about: str, *, session: bool = True) -> CommandLineParser:
        made = verbs.add_parser(name, help=about, description=about, allow_abbrev=False)
        if session:
            made.add_argument(
                "session", metavar="ID", help="the id of the session, or the start of the id"
            )
        return made

    listing = verb("list", "list the sessions of this folder", session=False)
    listing.add_argument("--all", action="store_true", help="list the sessions of every folder")
    listing.add_argument("--archived", action="store_true", help="include archived sessions")
    listing.add_argument("--json", action="store_true", default=SUPPRESS, help="print JSON")
    showing = verb("show", "show the details of a session")
    showing.add_argument("--json", action="store_true", default=SUPPRESS, help="print JSON")
    verb("export", "print a session's conversation as Markdown")
    verb("rename", "change the title of a session").add_argument("title", metavar="TITLE")
    verb("archive", "archive a session, so that lists do not show it").add_argument(
        "--undo", action="store_true", help="unarchive the session"
    )
    verb("fork", "copy a session, with its world lines, into a new one")
    deleting = verb("delete", f"move a session to the trash, where it stays for {TRASH_DAYS} days")
    deleting.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    deleting.add_argument(
        "--for-good", action="store_true", help="delete the session permanently, without the trash"
    )
    verb("restore", "restore a session from the trash")
    pruning = verb(
        "prune",
        "delete world lines (branches) of a session, with the sub-agents that only they have",
    )
    pruning.add_argument(
        "lines",
        metavar="N",
        type=line_number,
        nargs="*",
        help="the numbers of the world lines (default: all but the current one)",
    )
    pruning.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    return parser


def _print_content(session: Session, options: Namespace) -> int:
    # Half of the engine is imported here, which most verbs do not need.
    from kimi_tui.commands import session_details as details

    if options.verb == "export":
        return asyncio.run(details.print_markdown(session))
    return asyncio.run(details.print_session(session, as_json=options.json))


def list_in_session(name: str, arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui checkpoints ARGUMENTS`, or `worldlines`; return the exit code."""
    is_of_lines = name == "worldlines"
    about = (
        "the world lines (branches) of a session"
        if is_of_lines
        else "the checkpoints of a session, oldest first"
    )
    parser = command(name, f"List {about}.")
    if not is_of_lines:
        with_world_line(
            parser, "show the checkpoints of world line K (default: the current world line)"
        )
    options = parser.parse_args(arguments)
    session = chosen_session(options.session)
    from kimi_tui.commands import session_details as details

    if is_of_lines:
        return asyncio.run(details.print_world_lines(session, as_json=options.json))
    return asyncio.run(details.print_checkpoints(session, options.world_line, as_json=options.json))


def _list(store: SessionStore, options: Namespace) -> int:
    infos = store.list(None if options.all else Path.cwd(), archived=options.archived, counted=True)
    for remark in store.passed_over(None if options.all else Path.cwd()):
        complain(remark)
    if options.json:
        print_json([_described(info) for info in infos])
        return DONE
    moved = "" if options.all else _moved_words(store)
    if not infos:
        none = "There are no sessions." if options.all else "This folder has no sessions."
        say(moved or none)
        return DONE
    now = datetime.now(UTC)
    has_agents = any(info.external_agent for info in infos)
    rows = [
        [
            info.id[:8],
            _title(info),
            age(datetime.fromtimestamp(info.updated_at, UTC), now),
            "" if info.messages is None else f"{info.messages:,}",
            "" if info.tokens is None else tokens(info.tokens),
            size_words(info.size_bytes),
            size_words(info.world_lines_bytes) if info.world_lines else "",
            *([_agent(info)] if has_agents else []),
            *([short(Path(info.work_dir))] if options.all else []),
        ]
        for info in infos
    ]
    head = ["id", "title", "age", "messages", "tokens", "size", "world lines"]
    head += [*(["agent"] if has_agents else []), *(["folder"] if options.all else [])]
    print_table(head, rows, right=(3, 4, 5, 6))
    if moved:
        complain(moved)
    return DONE


def _moved_words(store: SessionStore) -> str:
    """Return a sentence: sessions of a missing folder may belong to the current one, and how to continue them. It is empty if
    there are none.
    """
    said: list[str] = []
    for former in former_folders(store, Path.cwd()):
        n_sessions = len(former.sessions)
        count = "1 session belongs" if n_sessions == 1 else f"{n_sessions:,} sessions belong"
        command = command_words("--session", former.sessions[0].name[:8])
        said.append(
            f"{count} to {short(Path(former.path))}, which no longer exists. "
            f"To resume the newest one here: {command}"
        )
    return "\n".join(said)


def _title(info: SessionInfo) -> str:
    """Return the title, and the origin of a copy, which has the same title."""
    origin = f" (fork of {info.forked_from[:8]})" if info.forked_from else ""
    return cut(info.title, 48 - len(origin)) + origin


def _agent(info: SessionInfo) -> str:
    """Return the title of the external agent of a session; empty for our own agent."""
    if not info.external_agent:
        return ""
    from kimi_tui.external.agents import title_of

    return title_of(info.external_agent)


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
        "external_agent": info.external_agent or None,
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
    info = describe(session.dir)
    title = cut(info.title if info else "Untitled", 40)
    for_good = " permanently" if options.for_good else ""
    question = f"Delete session {session.id[:8]} ({title}, {size}){for_good}?"
    if not options.yes and not confirmed(question):
        return FAILED
    if options.for_good:
        from kimi_tui.futures.leftovers import remove_left_to

        store.delete(session)
        remove_left_to(session.dir, os.environ)
        say(f"Deleted session {session.id} permanently.")
    else:
        thrown = store.move_to_trash(session)
        command = command_words("sessions", "restore", session.id[:8])
        say(
            f"Moved session {session.id} to the trash ({short(thrown)}). Within {TRASH_DAYS} days, {command} brings it back."
        )
    return DONE


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
                raise UnknownWorldLine(
                    f"There is no world line {n}. kimi-tui worldlines lists them."
                )
        if not chosen:
            say("This session has no other world line, so nothing was deleted.")
            return DONE
        from kimi_tui.soul.pruning import agents_of_lines, agents_size, prune_lines

        names = await asyncio.to_thread(agents_of_lines, session, chosen)
        of_agents = await asyncio.to_thread(agents_size, session, names)
        size = size_words(sum(sizes[n] for n in chosen) + of_agents)
        agents = f" and {counted(len(names), 'sub-agent')}" if names else ""
        question = f"Delete {len(chosen)} world lines{agents} ({size})? You can then no longer read them, switch to them, or undo the operations that left them."
        if len(chosen) == 1:
            from kimi_tui.soul.checkpoint_table import shown_lines

            shown = (await asyncio.to_thread(shown_lines, session)).get(chosen[0])
            what = line_words(chosen[0], shown.name if shown else "")
            question = f"Delete {what}{agents} ({size})? You can then no longer read it, switch to it, or undo the operation that left it."
        if not options.yes and not confirmed(question):
            return FAILED
        freed = await asyncio.to_thread(prune_lines, session, chosen)
    say(f"Freed {size_words(freed)} on the disk.")
    return DONE
