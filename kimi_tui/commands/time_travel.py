"""`kimi-tui rewind`, `jump`, `undo`, `redo` and `dmail`: the operations of the app, carried out by the same engine.

The outcome of an operation, or of its preview, is printed for users or as JSON, and gives an exit code.
"""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kimi_tui.app_paths import log_file
from kimi_tui.commands.console import (
    CommandLineParser,
    checkpoint_number,
    command,
    complain,
    place_on_a_line,
    print_json,
    print_table,
    say,
)
from kimi_tui.commands.sessions import chosen_session, lacking_words
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.futures import are_left
from kimi_tui.logging_setup import start_logging
from kimi_tui.program import CONFLICTS, DONE, FAILED, USAGE
from kimi_tui.soul.rewind_values import (
    END,
    FileOutcome,
    FilesChoice,
    FilesPreview,
    Reversal,
    RewindOutcome,
    RewindPreview,
    Target,
)
from kimi_tui.tui.formatting import NAME_WIDTH, counted, cut, line_words, tokens

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.wire.events import Event

_LEFT_ALONE = "not restored: something else changed it, its old content is no longer stored, or it could not be written"


def run(name: str, arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui NAME ARGUMENTS`; return the exit code."""
    options = _PARSERS[name]().parse_args(arguments)
    options.name = name
    return asyncio.run(_travel(options))


def _rewind_parser() -> CommandLineParser:
    parser = command(
        "rewind",
        "Rewind the session to checkpoint N. Everything from checkpoint N on becomes a world line (a branch).",
    )
    parser.add_argument(
        "n", metavar="N", type=checkpoint_number, help="the number of the checkpoint"
    )
    return _with_files(parser)


def _with_files(parser: CommandLineParser, *, only: bool = True) -> CommandLineParser:
    more = ", or restore only the files (only)" if only else ""
    parser.add_argument(
        "--files",
        choices=("keep", "restore", *(("only",) if only else ())),
        default="keep",
        help=f"keep the files as they are (keep, the default){' or' if not only else ','} restore them as well (restore){more}",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would happen without doing it"
    )
    return parser


def _switch_parser(name: str) -> CommandLineParser:
    parser = command(name, "Switch the session to a world line. The current world line is kept.")
    parser.add_argument(
        "place",
        metavar="K[:N]",
        type=place_on_a_line,
        help="world line K, or with K:N only the part before its checkpoint N",
    )
    return _with_files(parser)


def _dmail_parser() -> CommandLineParser:
    parser = command(
        "dmail",
        "Rewind the session to checkpoint N and leave a D-Mail (a note) there, which the agent reads in its next turn. "
        "No request is sent to a model now.",
    )
    parser.add_argument(
        "n", metavar="N", type=checkpoint_number, help="the number of the checkpoint"
    )
    parser.add_argument("text", metavar="TEXT", help="the text of the D-Mail")
    return _with_files(parser, only=False)


_PARSERS = {
    "rewind": _rewind_parser,
    "switch": partial(_switch_parser, "switch"),
    "jump": partial(_switch_parser, "jump"),
    "undo": partial(command, "undo", "Undo the last rewind, switch, D-Mail, compaction or clear."),
    "redo": partial(command, "redo", "Redo the last undo."),
    "dmail": _dmail_parser,
}


async def _travel(options: Namespace) -> int:
    if options.name == "dmail" and not options.text.strip():
        complain("The text of the D-Mail is empty.")
        return USAGE
    session = chosen_session(options.session)
    if options.name == "dmail" and (words := lacking_words(session, "kimi-tui dmail")):
        complain(f"{words} Rewind with kimi-tui rewind {options.n}, then write a message.")
        return FAILED
    # The whole engine is imported here, so that a usage message does not wait for it.
    from kimi_tui.soul.assembly import open_soul

    start_logging(log_file())
    # The soul has no model: it carries out operations only, and records them as in the app.
    soul = await open_soul(session=session, provider=None, follow_files=False)
    async with aclosing(soul):
        if await asyncio.to_thread(are_left, session):
            from kimi_tui.futures.leftovers import take_up, taken_words

            if taken := await take_up(soul):
                complain(taken_words(taken))
        match options.name:
            case "rewind":
                return await _rewind(soul, options)
            case "switch" | "jump":
                return await _switch(soul, options)
            case "dmail":
                return await _dmail(soul, options)
            case _:
                return await _undo_or_redo(soul, options)


async def _rewind(soul: KimiSoul, options: Namespace) -> int:
    words = ("Rewound to", "Would rewind to")
    return await _go(soul, options, Target(options.n), words, f"checkpoint #{options.n}")


async def _switch(soul: KimiSoul, options: Namespace) -> int:
    from kimi_tui.soul.checkpoint_table import shown_lines

    line, point = options.place
    shown = (await in_daemon_thread(shown_lines, soul.session)).get(line)
    where = line_words(line, shown.name if shown else "")
    where = where if point is None else f"checkpoint #{point} of {where}"
    target = Target(END if point is None else point, line)
    more = {"world_line": line}
    return await _go(soul, options, target, ("Switched to", "Would switch to"), where, more)


async def _dmail(soul: KimiSoul, options: Namespace) -> int:
    target = Target(options.n)
    files = await _looked_at(soul, options, target)
    if files is None:
        return FAILED
    if options.dry_run:
        preview = await soul.dmails.preview(options.n, options.text, "person")
        outcome = outcome_of_preview(replace(preview, files=files), options.files)
        said = f"Would send the D-Mail to checkpoint #{options.n}"
        return print_outcome(options, outcome, said, applied=False)
    outcome = await soul.dmails.send(target, options.text, options.files)
    said = f"The D-Mail is at checkpoint #{options.n}, and the agent reads it in its next turn"
    return print_outcome(options, with_files(outcome, files_left_alone(files)), said)


async def _go(
    soul: KimiSoul,
    options: Namespace,
    target: Target,
    words: tuple[str, str],
    where: str,
    more: Mapping[str, object] | None = None,
) -> int:
    """Carry out an operation on conversation, files or both, or only report what it would do; return the exit code.

    Args:
        soul: the engine.
        options: the options, with `files` and `dry_run`.
        target: the target.
        words: the sentences about the operation, done and not done.
        where: the words for the target.
        more: further keys for scripts.
    """
    files = await _looked_at(soul, options, target)
    if files is None:
        return FAILED
    if options.dry_run:
        outcome = outcome_of_preview(await soul.travel.preview(target), options.files)
    else:
        outcome = await soul.travel.rewind(target, options.files)
        outcome = with_files(outcome, files_left_alone(files))
    said = f"{words[options.dry_run]} {where}"
    if options.files == "only":
        of = where.removeprefix("before ")
        said = f"{'Would restore' if options.dry_run else 'Restored'} the files of {of}"
        if not outcome.changed:
            # Nothing at all happened, so there are no figures either.
            would = "would be" if options.dry_run else "was"
            said = f"No file of {of} {would} restored."
    return print_outcome(options, outcome, said, more, applied=not options.dry_run)


async def _looked_at(soul: KimiSoul, options: Namespace, target: Target) -> FilesPreview | None:
    """Return the plan for the files, empty if they stay; None if there is no plan, which has been reported."""
    if options.files == "keep":
        return FilesPreview()
    await soul.files_ready()
    files = (await soul.travel.preview(target)).files or FilesPreview()
    if files.reason:
        complain(files.reason)
        return None
    return files


async def _undo_or_redo(soul: KimiSoul, options: Namespace) -> int:
    await soul.files_ready()
    heard = soul.wire.subscribe()
    before = soul.used
    said = await (_undo(soul) if options.name == "undo" else soul.travel.redo())
    entry = soul.session.context.journal.entries[-1]
    outcome = RewindOutcome(
        checkpoint_id=entry.checkpoint_id,
        messages_dropped=entry.messages_dropped,
        tokens_before=before,
        tokens_after=soul.used,
        files=files_restored([record.event for record in heard.drain()]),
    )
    return print_outcome(options, outcome, said.text, {"operation": entry.reason})


async def _undo(soul: KimiSoul) -> Reversal:
    """Undo the newest operation; the lines that it takes along have the names of the timeline."""
    from kimi_tui.soul.checkpoint_table import shown_timeline

    found = await soul.travel.preview_undo()
    if found.left_from < 0:
        return await soul.travel.undo()
    timeline = await in_daemon_thread(shown_timeline, soul.session)
    return await soul.travel.undo(cut(timeline.name_from(found.left_from), NAME_WIDTH))


def with_files(outcome: RewindOutcome, more: Iterable[FileOutcome]) -> RewindOutcome:
    """Return an outcome with further files, which the operation did not concern."""
    known = {one.path for one in outcome.files}
    return replace(outcome, files=(*outcome.files, *(one for one in more if one.path not in known)))


def outcome_of_preview(preview: RewindPreview, choice: FilesChoice) -> RewindOutcome:
    """Return the outcome that a rewind would have."""
    goes = choice != "only"
    return RewindOutcome(
        checkpoint_id=preview.target.id,
        messages_dropped=preview.messages if goes else 0,
        tokens_before=preview.tokens_before,
        tokens_after=preview.tokens_after if goes else preview.tokens_before,
        files=() if choice == "keep" else planned_files(preview.files),
    )


def planned_files(files: FilesPreview | None) -> tuple[FileOutcome, ...]:
    """Return the planned outcome of each file."""
    if files is None:
        return ()
    return (
        *(
            FileOutcome(one.path, one.fate, one.reason, is_lost=one.fate == "skip")
            for one in files.files
        ),
        *(FileOutcome(path, "skip", reason) for path, reason in files.not_covered),
    )


def files_left_alone(files: FilesPreview | None) -> tuple[FileOutcome, ...]:
    """Return the files that no restore covers."""
    return tuple(one for one in planned_files(files) if one.fate == "skip")


def files_restored(events: Iterable[Event]) -> tuple[FileOutcome, ...]:
    """Return the outcome of each file, from the engine's events."""
    from kimi_tui.wire.events import FilesRestored

    found: list[FileOutcome] = []
    for event in events:
        if isinstance(event, FilesRestored):
            made = frozenset(event.created)
            found += [
                FileOutcome(path, "create" if path in made else "restore")
                for path in event.restored
            ]
            found += [FileOutcome(path, "delete") for path in event.deleted]
            found += [FileOutcome(path, "conflict", _LEFT_ALONE) for path in event.conflicts]
    return tuple(found)


def print_outcome(
    options: Namespace,
    outcome: RewindOutcome,
    said: str,
    more: Mapping[str, object] | None = None,
    *,
    applied: bool = True,
) -> int:
    """Print an outcome as the options require; return the exit code.

    Args:
        options: the options, with `json`.
        outcome: the outcome.
        said: the outcome in words: a sentence, or its beginning, to which the figures are added.
        more: further keys for scripts.
        applied: false if the operation was only previewed.
    """
    if options.json:
        print_json({**(more or {}), **_facts(outcome), "applied": applied})
    elif said.endswith("."):
        say(said)
    else:
        say(f"{said}{_figures(outcome)}.")
        if outcome.files:
            print_table(
                ["file", "change", "why"],
                [[one.path, one.fate, one.reason] for one in outcome.files],
            )
    if not (applied and outcome.conflicts):
        return DONE
    complain(f"Not restored: {', '.join(outcome.conflicts)}.")
    return CONFLICTS


def _facts(outcome: RewindOutcome) -> dict[str, object]:
    """Return the outcome as a JSON object, for scripts."""
    return {
        "checkpoint_id": outcome.checkpoint_id if outcome.checkpoint_id >= 0 else None,
        "messages_dropped": outcome.messages_dropped,
        "tokens_before": outcome.tokens_before,
        "tokens_after": outcome.tokens_after,
        "files": [
            {"path": one.path, "change": one.fate, "reason": one.reason or None}
            for one in outcome.files
        ],
    }


def _figures(outcome: RewindOutcome) -> str:
    """Return `: 9 messages left behind, 550 to 110 tokens`; empty if the conversation stays unchanged."""
    if not outcome.messages_dropped and outcome.tokens_before == outcome.tokens_after:
        return ""
    left = counted(outcome.messages_dropped, "message")
    return f": {left} removed, {tokens(outcome.tokens_before)} tokens before, {tokens(outcome.tokens_after)} after"
