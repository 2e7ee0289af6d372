"""`kimi-tui export`: a session as one HTML page that plays it, as Markdown, JSON or a recording of a terminal."""

from __future__ import annotations

import asyncio
import os
import re
import time
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from kimi_tui.commands.console import CommandLineParser, checkpoint_number, complain, say
from kimi_tui.commands.session_details import print_conversation, print_markdown, written
from kimi_tui.commands.sessions import chosen_session
from kimi_tui.display_names import counted
from kimi_tui.export.cast import write_cast
from kimi_tui.export.markup import BlockWriter
from kimi_tui.export.page import write_page
from kimi_tui.export.redaction import Redactor
from kimi_tui.export.story import Story, tell
from kimi_tui.program import DONE, FAILED
from kimi_tui.projection.blocks import Block
from kimi_tui.projection.replay import Recording
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.session.errors import SessionError, UnknownCheckpoint
from kimi_tui.session.images import reference_of
from kimi_tui.session.session import Session
from kimi_tui.soul.record import final_checkpoints
from kimi_tui.soul.stored_agents import agent_session
from kimi_tui.tool_cards import ImageBlock
from kimi_tui.tui.replay.source import recorded
from kimi_tui.wire.events import CheckpointCreated, EventRecord

_IMAGES_BYTES = 4 << 20
"""The most bytes of images that a page holds; of further ones it has the names."""
_TITLE_CHARS = 60


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui export ARGUMENTS`; return the exit code."""
    options = _parser().parse_args(arguments)
    session = chosen_session(options.session)
    if options.form in ("md", "json"):
        write = print_markdown if options.form == "md" else print_conversation
        return asyncio.run(write(session, options.output))
    return _write(session, options)


def _parser() -> CommandLineParser:
    parser = CommandLineParser(
        prog="kimi-tui export",
        description="Export a session as Markdown to standard output, or as a file to share. With --html and --cast, keys, the path of your home folder, "
        "your user name and the host name are removed; Markdown and JSON are not redacted.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "session",
        metavar="ID",
        nargs="?",
        help="the id of the session (default: the newest session of this folder)",
    )
    form = parser.add_mutually_exclusive_group()
    forms = (
        (
            "html",
            "one HTML page that plays the session in a browser, offline; written to TITLE.html",
        ),
        ("md", "the conversation as Markdown (the default)"),
        ("json", "messages, checkpoints and world lines as JSON"),
        ("cast", "a recording of a terminal for asciinema; written to TITLE.cast"),
    )
    for name, about in forms:
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=about)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write to FILE, which must not exist yet"
    )
    parser.add_argument(
        "--until",
        metavar="N",
        type=checkpoint_number,
        help="with --html or --cast: only what came before checkpoint N",
    )
    parser.add_argument(
        "--no-tools",
        action="store_true",
        help="with --html or --cast: only the titles of tool calls, without output and diffs",
    )
    parser.add_argument(
        "--world-lines",
        choices=("all", "current"),
        default="all",
        help="with --html or --cast: which world lines (branches): all of them, or only the current one (default: all)",
    )
    parser.set_defaults(form="md")
    return parser


def _write(session: Session, options: Namespace) -> int:
    has_all = options.world_lines == "all"
    records, title = recorded(session, visits_futures=has_all)
    if options.until is not None:
        records = _before(records, options.until)
    story = tell(records, str(session.work_dir), all_lines=has_all, title=title)
    if not story.blocks:
        complain("The session has no messages yet, so there is nothing to export.")
        return FAILED
    redactor = Redactor.of_this_machine()
    if options.form == "cast":
        lines = write_cast(story, redactor, time.time(), tools=not options.no_tools)
        text = "".join(lines)
    else:
        writer = BlockWriter(
            redactor,
            _Pictures(session),
            tools=not options.no_tools,
            steps=partial(_steps_of, session),
        )
        text = write_page(story, writer, lambda: _taken_out(redactor), datetime.now().astimezone())
    path = options.output or Path(f"{_file_name(story)}.{options.form}")
    if code := written(text, path):
        return code
    size = os.stat(path).st_size
    say(
        f'Exported "{story.title}" to {path} ({max(1, size // 1000):,} kB). {_taken_out(redactor)}'.strip()
    )
    if story.faults:
        complain(f"{counted(story.faults, 'event')} of the session could not be exported.")
    return DONE


def _steps_of(session: Session, name: str) -> Sequence[Block]:
    """Return the messages of a sub-agent of a session; empty if they cannot be read."""
    try:
        records, _ = recorded(agent_session(session, name))
    except (OSError, SessionError):
        return ()
    model = SessionModel(str(session.work_dir))
    for record in records:
        model.apply(record, lambda _: None)
    return model.chat.blocks


def _taken_out(redactor: Redactor) -> str:
    return f"Removed from the export: {redactor.words}." if redactor.words else ""


def _before(records: Sequence[EventRecord], number: int) -> Sequence[EventRecord]:
    """Return the records before the newest checkpoint with a number, on the current world line if it has one.

    Raises:
        UnknownCheckpoint: there is none.
    """
    current = set(final_checkpoints(records) or ())
    found = [
        (one.event.uid in current, place)
        for place, one in enumerate(records)
        if isinstance(one.event, CheckpointCreated) and one.event.id == number
    ]
    if found:
        _, place = max(found)
        # The message of a turn is told just before its checkpoint.
        return records[: max(stop for stop in Recording(records).stops if stop <= place)]
    raise UnknownCheckpoint(
        f"The session has no checkpoint #{number}. kimi-tui checkpoints lists them."
    )


def _file_name(story: Story) -> str:
    words = re.sub(r"[^\w]+", "-", story.title[:_TITLE_CHARS]).strip("-").lower()
    return words or "session"


class _Pictures:
    """The images of a session as data URLs, up to a number of bytes in all."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left = _IMAGES_BYTES

    def __call__(self, facts: ImageBlock) -> str:
        from base64 import b64encode

        image = self._session.images.get(reference_of(facts.sha256, facts.media_type))
        if image is None or len(image.data) > self._left:
            return ""
        self._left -= len(image.data)
        return f"data:{image.media_type};base64,{b64encode(image.data).decode()}"
