"""`kimi-tui diff [A..B]`: what changed between two checkpoints, as a patch that `git apply` takes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import Any

from kimi_tui.commands.console import (
    CommandLineParser,
    command,
    complain,
    print_json,
    say,
    with_world_line,
)
from kimi_tui.commands.session_details import readable
from kimi_tui.commands.sessions import chosen_session
from kimi_tui.display_names import counted
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.program import DONE, FAILED
from kimi_tui.session.session import Session
from kimi_tui.soul.patches import (
    NoFiles,
    PatchOfSession,
    PointRange,
    parse_range,
    patch_of_session,
)
from kimi_tui.tui.formatting import cut_middle
from kimi_tui.workspace.patch import FilePatch, LeftOut, quoted

_MOST_NAMED = 10
_BAR_CELLS = 40
_COLOURS = {"@": "36", "+": "32", "-": "31"}


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui diff ARGUMENTS`; return the exit code."""
    parser = command(
        "diff",
        "Print what changed in the files between two checkpoints, as a patch for git apply. A checkpoint means the "
        "files before its step. Files that snapshots leave out are named on standard error.",
    )
    with_range(
        parser,
        "the checkpoints, for example 5..9; 5 alone means from #5 to now (default: the whole session)",
    )
    with_world_line(
        parser,
        "use the checkpoints of world line (branch) K (default: the current one); one checkpoint alone means from it to the end of K",
    )
    parser.add_argument("--stat", action="store_true", help="print a diffstat instead of the patch")
    options = parser.parse_args(arguments)
    return asyncio.run(_diff(chosen_session(options.session), options))


def with_range(parser: CommandLineParser, about: str) -> None:
    """Add the argument `A..B`, a range of checkpoints; without it, `range` is the whole session.

    Args:
        parser: the parser of the command.
        about: what the range chooses, for its help.
    """
    parser.add_argument(
        "range",
        metavar="A..B",
        nargs="?",
        type=_point_range,
        default=PointRange(),
        help=about,
    )


def _point_range(text: str) -> PointRange:
    try:
        return parse_range(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error).removesuffix(".")) from error


async def _diff(session: Session, options: Namespace) -> int:
    async with readable(session) as read:
        try:
            found = await asyncio.to_thread(
                patch_of_session, read, session.dir, options.range, options.world_line
            )
        except NoFiles as error:
            complain(str(error))
            return FAILED
    if options.json:
        _print_facts(found)
    elif options.stat:
        print_stat(list(found.files()))
    else:
        _print_patch(found)
    complain_of(found.left_out, found.remarks)
    return DONE


def complain_of(left_out: Sequence[LeftOut], remarks: Sequence[str]) -> None:
    """Say on standard error what a patch does not have."""
    for path, why in left_out[:_MOST_NAMED]:
        complain(f'"{path}" is left out: {why}.')
    if len(left_out) > _MOST_NAMED:
        complain(f"{len(left_out) - _MOST_NAMED:,} more files are left out.")
    for remark in remarks:
        complain(f"A snapshot is incomplete: {remark}")


def _print_facts(found: PatchOfSession) -> None:
    files: list[dict[str, Any]] = [
        {
            "path": one.pair.path,
            "old_path": one.pair.old_path if one.pair.status == "renamed" else None,
            "status": one.pair.status,
            "added": None if one.is_binary else one.added,
            "removed": None if one.is_binary else one.removed,
        }
        for one in found.files()
    ]
    left = [{"path": path, "why": why} for path, why in found.left_out]
    print_json({"files": files, "left_out": left})


def _print_patch(found: PatchOfSession) -> None:
    if not sys.stdout.isatty():
        sys.stdout.flush()
        for one in found.files():
            sys.stdout.buffer.write(one.text)
        sys.stdout.buffer.flush()
        return
    has_colours = not os.environ.get("NO_COLOR")
    n_files = 0
    for one in found.files():
        n_files += 1
        for line in one.text.decode("utf-8", "replace").removesuffix("\n").split("\n"):
            # A file may hold anything that a terminal would obey.
            shown = clean(line)
            colour = _COLOURS.get(line[:1], "") or ("1" if line.startswith("diff --git ") else "")
            print(f"\x1b[{colour}m{shown}\x1b[m" if colour and has_colours else shown)
    if not n_files:
        say("No changes.")


def print_stat(files: Sequence[FilePatch]) -> None:
    """Print each file with its number of changed lines, and their sum."""
    names = [_name(one) for one in files]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
    most = max([one.added + one.removed for one in files] + [1])
    bar = min(_BAR_CELLS, max(10, columns // 3))
    width = min(max(map(len, names), default=0), max(20, columns - bar - 12))
    for one, name in zip(files, names, strict=True):
        n = one.added + one.removed
        facts = f"Bin {one.old_bytes:,} -> {one.new_bytes:,} bytes" if one.is_binary else f"{n:,}"
        size = n if most <= bar else -(-n * bar // most)
        plus = round(size * one.added / n) if n else 0
        signs = "" if one.is_binary else "+" * plus + "-" * (size - plus)
        print(f" {cut_middle(name, width):<{width}} | {facts} {signs}".rstrip())
    added, removed = sum(one.added for one in files), sum(one.removed for one in files)
    sums = [counted(len(files), "file") + " changed"]
    sums += [f"{added:,} insertion{'s' * (added != 1)}(+)"] if added else []
    sums += [f"{removed:,} deletion{'s' * (removed != 1)}(-)"] if removed else []
    print(f" {', '.join(sums)}" if files else "No changes.")


def _name(one: FilePatch) -> str:
    name = quoted("", one.pair.path).decode()
    if one.pair.status == "renamed":
        return one_line(f"{quoted('', one.pair.old_path).decode()} => {name}")
    return one_line(name)
