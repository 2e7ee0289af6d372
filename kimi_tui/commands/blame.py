"""`kimi-tui blame FILE`: each line of a file with the checkpoint, tool, time and world line that wrote it."""

from __future__ import annotations

import asyncio
import shutil
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kimi_tui.commands.console import command, complain, print_json
from kimi_tui.commands.session_details import readable
from kimi_tui.commands.sessions import chosen_session
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.foreign_text import clean
from kimi_tui.program import DONE, FAILED, USAGE
from kimi_tui.session.session import Session
from kimi_tui.soul.blame import (
    BlamedLine,
    NoBlame,
    SessionAuthors,
    blame_lines,
    file_and_lines,
)
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.tui.formatting import author_words, cut
from kimi_tui.workspace.blame import FileBlame
from kimi_tui.workspace.tracker import stored_snapshots

_TAB_CELLS = 4


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui blame ARGUMENTS`; return the exit code."""
    parser = command(
        "blame",
        "Show who wrote each line of a file: the checkpoint of the agent's step, its tool, its world line (branch) and the time; "
        '"before": the line is older than the session; "task": it was written while a background task ran; "others": someone else '
        "wrote it, such as you or another program.",
    )
    parser.add_argument(
        "file",
        metavar="FILE[:LINES]",
        type=_file_and_lines,
        help="the file, and the lines to show, for example app.py:10-20",
    )
    options = parser.parse_args(arguments)
    name, first, last = options.file
    session = chosen_session(options.session)
    try:
        path = Path(name).absolute().relative_to(session.work_dir.absolute()).as_posix()
    except ValueError:
        complain(f'"{name}" is outside the session\'s work folder {session.work_dir}.')
        return USAGE
    return asyncio.run(_blame(session, path, first, last, as_json=options.json))


def _file_and_lines(text: str) -> tuple[str, int, int]:
    try:
        return file_and_lines(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


async def _blame(session: Session, path: str, first: int, last: int, *, as_json: bool) -> int:
    folder = session.dir / FILES_NAME
    async with readable(session) as read:
        try:
            lines = await in_daemon_thread(_blamed, read, folder, path)
        except NoBlame as error:
            complain(str(error))
            return FAILED
    shown = range(max(first, 1), min(last or len(lines), len(lines)) + 1)
    if first > len(lines):
        complain(f'"{path}" has {len(lines)} lines, so there is no line {first}.')
        return USAGE
    if as_json:
        print_json({"path": path, "lines": [_facts(n, lines[n - 1]) for n in shown]})
    else:
        _print(shown, lines)
    return DONE


def _blamed(session: Session, folder: Path, path: str) -> list[BlamedLine]:
    log, texts = stored_snapshots(folder)
    authors = SessionAuthors(session).read()
    blame = FileBlame(log, texts, path)
    return blame_lines(path, log, blame, authors, root=session.work_dir)


def _facts(number: int, line: BlamedLine) -> dict[str, Any]:
    author = line.author
    is_known = author.checkpoint_id >= 0
    return {
        "line": number,
        "text": line.text,
        "who": author.who,
        "checkpoint_id": author.checkpoint_id if is_known else None,
        "world_line": author.world_line if is_known else None,
        "tool": author.tool or None,
        "agent": author.agent or None,
        "at": datetime.fromtimestamp(author.at, UTC).isoformat() if author.at else None,
    }


def _print(shown: range, lines: Sequence[BlamedLine]) -> None:
    from rich.cells import cell_len

    now = datetime.now(UTC)
    heads = {n: author_words(lines[n - 1].author, now) for n in shown}
    widths = [max((cell_len(head[k]) for head in heads.values()), default=0) for k in range(3)]
    most = len(str(shown.stop - 1))
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for number in shown:
        parts = [part + " " * (widths[k] - cell_len(part)) for k, part in enumerate(heads[number])]
        text = clean(lines[number - 1].text.expandtabs(_TAB_CELLS))
        row = f"{'  '.join(part for part in parts if part)}  {number:>{most}}  {text}".rstrip()
        print(cut(row, columns) if columns else row)
