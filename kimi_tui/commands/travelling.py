"""`kimi-tui rewind`, `jump`, `undo`, `redo` and `dmail`: what a person does in the app, done by the same engine."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Sequence

from kimi_tui.commands.arguments import (
    FAILED,
    USAGE,
    Parser,
    checkpoint_number,
    command,
    place_on_a_line,
)
from kimi_tui.commands.chosen import chosen_session, engine
from kimi_tui.commands.output import complain
from kimi_tui.commands.results import Result, left_alone, of_outcome, restored, tell, would_be
from kimi_tui.soul.kimi_soul import KimiSoul
from kimi_tui.soul.protocol import Target


def run(name: str, arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui NAME ARGUMENTS`; returns the exit code."""
    options = _PARSERS[name]().parse_args(arguments)
    options.name = name
    return asyncio.run(_travel(options))


def _rewind_parser() -> Parser:
    parser = command(
        "rewind", "Go back to before checkpoint N. What is left behind becomes a world line."
    )
    parser.add_argument("n", metavar="N", type=checkpoint_number, help="the checkpoint")
    parser.add_argument(
        "--files",
        choices=("keep", "restore", "only"),
        default="keep",
        help="leave the working files alone (default), bring them back too, or bring back only them",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what it would do")
    return parser


def _jump_parser() -> Parser:
    parser = command("jump", "Make a line that was left the live one. It stays.")
    parser.add_argument(
        "place",
        metavar="K[:N]",
        type=place_on_a_line,
        help="world line K, or what of it precedes its checkpoint N",
    )
    return parser


def _undo_parser() -> Parser:
    return command("undo", "Reverse the newest operation that is not undone.")


def _redo_parser() -> Parser:
    return command("redo", "Do again what was undone last.")


def _dmail_parser() -> Parser:
    parser = command(
        "dmail",
        "Go back to checkpoint N with a letter, which the agent reads in its next turn. No model is asked now.",
    )
    parser.add_argument("n", metavar="N", type=checkpoint_number, help="the checkpoint")
    parser.add_argument("text", metavar="TEXT", help="the letter")
    return parser


_PARSERS = {
    "rewind": _rewind_parser,
    "jump": _jump_parser,
    "undo": _undo_parser,
    "redo": _redo_parser,
    "dmail": _dmail_parser,
}


async def _travel(options: Namespace) -> int:
    if options.name == "dmail" and not options.text.strip():
        complain("The letter is empty.")
        return USAGE
    async with engine(chosen_session(options.session)) as soul:
        match options.name:
            case "rewind":
                return await _rewind(soul, options)
            case "jump":
                return await _jump(soul, options)
            case "dmail":
                return await _dmail(soul, options)
            case _:
                return await _undo_or_redo(soul, options)


async def _rewind(soul: KimiSoul, options: Namespace) -> int:
    target = Target(options.n)
    if options.files != "keep":
        await soul.files_ready()
    looked = options.dry_run or options.files != "keep"
    preview = await soul.preview(target) if looked else None
    files = preview.files if preview is not None and options.files != "keep" else None
    if files is not None and files.reason:
        complain(files.reason)
        return FAILED
    if options.dry_run and preview is not None:
        result = would_be(preview, options.files)
    else:
        result = of_outcome(await soul.rewind(target, options.files), left_alone(files))
    what = f"the files of #{options.n}" if options.files == "only" else f"to before #{options.n}"
    if options.dry_run:
        what = f"Would {'bring back' if options.files == 'only' else 'go back'} {what}"
    else:
        what = f"{'Brought back' if options.files == 'only' else 'Went back'} {what}"
    return tell(options, result, what)


async def _jump(soul: KimiSoul, options: Namespace) -> int:
    line, point = options.place
    result = of_outcome(await soul.jump(line, point))
    where = f"world line {line}" if point is None else f"#{point} of world line {line}"
    return tell(options, result, f"Went to {where}", {"world_line": line})


async def _dmail(soul: KimiSoul, options: Namespace) -> int:
    result = of_outcome(await soul.dmail(Target(options.n), options.text))
    said = f"The letter is at #{options.n}, where the agent reads it in its next turn"
    return tell(options, result, said)


async def _undo_or_redo(soul: KimiSoul, options: Namespace) -> int:
    await soul.files_ready()
    heard = soul.wire.subscribe()
    before = soul.used
    said = await (soul.undo() if options.name == "undo" else soul.redo())
    entry = soul.session.context.journal.entries[-1]
    result = Result(
        checkpoint_id=entry.checkpoint_id,
        messages_dropped=entry.messages_dropped,
        tokens_before=before,
        tokens_after=soul.used,
        files=restored([record.event for record in heard.drain()]),
    )
    return tell(options, result, said, {"operation": entry.reason})
