"""`kimi-tui bisect`, `run-at` and `worktree`: the files of a session as they were at a checkpoint, for a command or in a folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimi_tui.app_paths import config_file, short
from kimi_tui.commands.console import (
    CommandLineParser,
    checkpoint_number,
    command,
    complain,
    confirmed,
    print_json,
    say,
    with_world_line,
)
from kimi_tui.commands.session_details import readable
from kimi_tui.commands.sessions import chosen_session
from kimi_tui.headless.options import whole_number
from kimi_tui.program import DONE, FAILED, INTERRUPTED, USAGE
from kimi_tui.tui.formatting import counted

if TYPE_CHECKING:
    from kimi_tui.session.schema import Checkpoint
    from kimi_tui.session.session import Session
    from kimi_tui.soul.bisect import Bisection, Candidate, Outcome, Place, Tested
    from kimi_tui.tools.past_command import PastCommands, PastRun
    from kimi_tui.workspace.base import FileState, Past, Progress

_PATCH_CHARS = 20_000
_OUTPUT_LINES = 20
_TOLD_FROM = 2000
"""A base of this many files takes long enough that its progress is told."""


def run(name: str, arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui NAME ARGUMENTS`; return the exit code."""
    options = _parsed(name, arguments)
    if name != "worktree" and not " ".join(options.command).strip():
        complain(f"Write the command after --, for example: {_EXAMPLES[name]}")
        return _wrong(name)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from kimi_tui.soul.bisect import NoBisect
    from kimi_tui.workspace.base import NoBase

    try:
        return asyncio.run(_ACTIONS[name](options))
    except (NoBase, NoBisect) as no:
        complain(str(no))
        return _wrong(name, FAILED)
    except KeyboardInterrupt:
        complain(f"{name} was stopped. Its temporary files were removed.")
        return INTERRUPTED


def _parsed(name: str, arguments: Sequence[str]) -> Namespace:
    """Return the options of the command line, wherever they stand before the first `--`; the command is what comes behind it."""
    parser = _PARSERS[name]()
    if name == "worktree":
        return parser.parse_args(arguments)
    if "--" in arguments:
        at = arguments.index("--")
        options, others = parser.parse_known_args(arguments[:at])
        if not others:
            options.command = [*arguments[at + 1 :]]
            return options
    # Without a `--` of ours, the command begins at the first word that is not an option; it may have a `--` of its own.
    parser.add_argument(
        "command",
        metavar="COMMAND",
        nargs="...",
        help="the command to run; quote it as one string to use shell syntax such as pipes",
    )
    options = parser.parse_args(arguments)
    if options.command and options.command[0].startswith("-"):
        parser.error(
            f"{options.command[0]!r} is not an option; write the command after --, for example: {_EXAMPLES[name]}"
        )
    return options


def _wrong(name: str, code: int = USAGE) -> int:
    """Return the exit code of a failure of this program: `run-at` has all others for the command."""
    from kimi_tui.tools.past_command import NOT_RUN

    return NOT_RUN if name == "run-at" else code


_EXAMPLES = {
    "bisect": "kimi-tui bisect -- pytest -q",
    "run-at": "kimi-tui run-at 5 -- pytest -q",
}


def _bisect_parser() -> CommandLineParser:
    parser = command(
        "bisect",
        "Find the step after which a command fails, by running it on the files of past checkpoints; nothing in the work folder is changed. "
        "The exit code of COMMAND means: 0 good, 125 skip these files, "
        "126 and 127 (it cannot be run) ask you whether that is bad, 128 or more end the search, any other code bad. "
        "kimi-tui bisect itself exits with 0 if it found the change, and with 1 if not.",
    )
    parser.usage = "kimi-tui bisect [OPTIONS] -- COMMAND"
    _with_line(parser)
    parser.add_argument(
        "--good",
        metavar="N",
        type=checkpoint_number,
        help="the files at checkpoint N, before its step, are good (default: the first file snapshot)",
    )
    parser.add_argument(
        "--bad",
        metavar="N",
        type=checkpoint_number,
        help="the files at checkpoint N, before its step, are bad (default: the files as they are now)",
    )
    parser.add_argument(
        "--times",
        metavar="N",
        type=_times,
        default=1,
        help="run the command N times on the files of each checkpoint; the checkpoint is bad if one of the runs fails (default: 1)",
    )
    return _with_command(parser)


def _run_at_parser() -> CommandLineParser:
    parser = command(
        "run-at",
        "Run a command on the files as they were at checkpoint N, before its step. The command finds them at the path of the work folder "
        "(on some systems at another path: see kimi-tui doctor), and nothing in the work folder is changed. The exit code is that of the "
        "command, or 125 if it could not be run.",
    )
    parser.usage = "kimi-tui run-at [OPTIONS] N -- COMMAND"
    parser.add_argument(
        "n", metavar="N", type=checkpoint_number, help="the number of the checkpoint"
    )
    return _with_command(_with_line(parser))


def _worktree_parser() -> CommandLineParser:
    parser = command(
        "worktree",
        "Write the files as they were at checkpoint N, before its step, into a new folder. Not included: ignored files, "
        "secrets such as .env, and .git.",
    )
    parser.add_argument(
        "n", metavar="N", type=checkpoint_number, help="the number of the checkpoint"
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=_absolute,
        help="the folder to write the files into; it must be new or empty",
    )
    return _with_line(parser)


def _with_line(parser: CommandLineParser) -> CommandLineParser:
    return with_world_line(
        parser, "use the checkpoints of world line (branch) K (default: the current one)"
    )


def _with_command(parser: CommandLineParser) -> CommandLineParser:
    from kimi_tui.soul.bisect import LIMIT_S

    parser.add_argument("--network", action="store_true", help="let the command use the network")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=LIMIT_S,
        help=f"stop each run after this many seconds (default: {LIMIT_S})",
    )
    return parser


def _absolute(text: str) -> Path:
    return Path(text).absolute()


def _times(text: str) -> int:
    from kimi_tui.soul.bisect import MOST_TIMES

    return whole_number(text, MOST_TIMES)


def _seconds(text: str) -> int:
    from kimi_tui.soul.bisect import MOST_LIMIT_S

    return whole_number(text, MOST_LIMIT_S)


_PARSERS = {"bisect": _bisect_parser, "run-at": _run_at_parser, "worktree": _worktree_parser}


# -- the past of a session ------------------------------------------------------------------------------


def _past(session: Session) -> Past:
    from kimi_tui.soul.folder_snapshots import FILES_NAME
    from kimi_tui.workspace.base import NoBase, Past

    if not session.work_dir.is_dir():
        raise NoBase(f"The session's work folder {short(session.work_dir)} no longer exists.")
    return Past(session.dir / FILES_NAME, session.work_dir)


async def _points(session: Session, world_line: int) -> Sequence[Checkpoint]:
    async with readable(session) as read:
        return [*(await asyncio.to_thread(read.world_line, world_line)).checkpoints]


async def _past_at(session: Session, options: Namespace) -> tuple[Past, FileState]:
    """Return the past of a session, and its state at the checkpoint of the command line.

    Raises:
        NoBisect: there is no such checkpoint, or no snapshot of its files.
    """
    from kimi_tui.soul.bisect import NoBisect, point_of, state_at

    past = await asyncio.to_thread(_past, session)
    point = point_of(await _points(session, options.world_line), options.n)
    state = None if point is None else await asyncio.to_thread(state_at, past, point)
    if state is None:
        raise NoBisect(f"There is no file snapshot of checkpoint #{options.n}.")
    return past, state


async def _opened(session: Session, past: Past, *, scans: bool) -> PastCommands:
    from kimi_tui.config.file import read_config
    from kimi_tui.config.settings import ConfigError
    from kimi_tui.tools.past_command import PastCommands
    from kimi_tui.tools.sandbox.policy import SandboxSettings

    settings = SandboxSettings()
    with suppress(ConfigError):
        settings = SandboxSettings(*read_config(config_file()).sandbox)
    commands = PastCommands(session.dir, past, settings, os.environ)
    try:
        await commands.open(scans=scans)
    except BaseException:
        await commands.close()
        raise
    if commands.unconfined:
        complain(f"The command runs without a sandbox: {commands.unconfined}.")
    if commands.tier == "elsewhere":
        complain(
            "The files are copied to another path, because this system cannot show them at the path of the work folder."
        )
    return commands


def _progress() -> Callable[[Progress], None]:
    if not sys.stderr.isatty():
        return lambda _: None

    def told(progress: Progress) -> None:
        if progress.of >= _TOLD_FROM:
            end = "\r\033[K" if progress.done == progress.of else ""
            sys.stderr.write(f"\rWriting the files: {progress.done:,} of {progress.of:,}{end}")
            sys.stderr.flush()

    return told


# -- run-at and worktree --------------------------------------------------------------------------------


async def _run_at(options: Namespace) -> int:
    from kimi_tui.tools.past_command import NOT_RUN, command_text

    session = chosen_session(options.session)
    past, state = await _past_at(session, options)
    commands = await _opened(session, past, scans=False)
    is_terminal = sys.stdout.isatty()

    def on_bytes(data: bytes) -> None:
        if not options.json:
            _write(data, is_terminal=is_terminal)

    try:
        if gaps := await asyncio.to_thread(past.gaps, state):
            complain(gaps)
        ran = await commands.run(
            command_text(options.command),
            state,
            network=options.network,
            timeout_s=options.timeout,
            on_bytes=on_bytes,
            told=_progress(),
        )
    finally:
        await commands.close()
    if options.json:
        print_json(_run_facts(ran))
    if ran.exit_code is None:
        complain(f"The command did not end within {options.timeout} s and was stopped.")
        return NOT_RUN
    return ran.exit_code


def _write(data: bytes, *, is_terminal: bool) -> None:
    """Write output of the command to standard output; it may be closed by its reader."""
    from kimi_tui.foreign_text import clean

    if is_terminal:
        # The code of the project writes this, and could write anything to the terminal.
        data = clean(data.decode("utf-8", "replace")).encode("utf-8", "replace")
    with suppress(OSError, ValueError):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


async def _worktree(options: Namespace) -> int:
    from kimi_tui.tools.past_command import swept
    from kimi_tui.workspace.worktree import write_worktree

    session = chosen_session(options.session)
    past, state = await _past_at(session, options)
    folder: Path = options.folder
    notes = await asyncio.to_thread(swept, os.environ)
    n_files = await asyncio.to_thread(write_worktree, past, state, folder, notes, _progress())
    if options.json:
        print_json({"checkpoint_id": options.n, "folder": str(folder), "files": n_files})
    else:
        say(f"Wrote {counted(n_files, 'file')} of checkpoint #{options.n} to {folder}.")
    if gaps := await asyncio.to_thread(past.gaps, state):
        complain(gaps)
    return DONE


# -- bisect ---------------------------------------------------------------------------------------------


async def _bisect(options: Namespace) -> int:
    from kimi_tui.soul.bisect import Bisection, build_remark, candidates_of, point_of
    from kimi_tui.tools.past_command import command_text

    session = chosen_session(options.session)
    past = await asyncio.to_thread(_past, session)
    points = await _points(session, options.world_line)
    good, bad = point_of(points, options.good), point_of(points, options.bad)
    needs_now = not options.world_line and bad is None
    commands = await _opened(session, past, scans=needs_now)
    text = command_text(options.command)
    shown = _Shown(options)
    try:
        candidates = await asyncio.to_thread(
            candidates_of, past, points, good=good, bad=bad, is_current=not options.world_line
        )

        async def run_over(place: Place) -> PastRun:
            return await commands.run(
                text,
                place.state,
                network=options.network,
                timeout_s=options.timeout,
                told=_progress(),
            )

        search = Bisection(
            candidates, run_over, times=options.times, asks=_asked(options), told=shown.told
        )
        shown.begins(candidates, search, await asyncio.to_thread(build_remark, past, candidates))
        for end in (candidates[0].before, candidates[-1].after):
            if gaps := await asyncio.to_thread(past.gaps, end.state):
                complain(gaps)
                break
        outcome = await search.search()
        return await asyncio.to_thread(shown.ends, past, outcome)
    finally:
        await commands.close()


def _asked(options: Namespace) -> Any:
    from kimi_tui.soul.bisect import never

    if options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return never

    async def asks(place: Place, ran: PastRun) -> bool:
        return await asyncio.to_thread(
            confirmed,
            f"The command exited with code {ran.exit_code} on {place.name}, so a program is probably missing. If you answer no, the search ends. Count this as a failure?",
        )

    return asks


class _Shown:
    """Prints a search while it goes on, and its end."""

    def __init__(self, options: Namespace) -> None:
        self._is_json: bool = options.json
        self._times: int = options.times

    def begins(self, candidates: Sequence[Candidate], search: Bisection, build: str) -> None:
        """Print how much there is to do."""
        if not self._is_json:
            changes, most = counted(len(candidates), "file change"), counted(search.n_left, "state")
            say(
                f"Searching {changes}. The command runs on the newest and the oldest state of the files first, then on at most {most} between them."
                if search.n_left
                else f"Searching {changes}. The command runs on the newest and the oldest state of the files."
            )
        if build:
            complain(build)

    def told(self, place: Place, tested: Tested | None) -> None:
        """Print a test."""
        if tested is not None and not self._is_json:
            print(f"{place.name:<34} {tested.words}, {tested.seconds:.1f} s", flush=True)

    def ends(self, past: Past, outcome: Outcome) -> int:
        """Print the end; return the exit code."""
        if self._is_json:
            print_json(_facts(past, outcome))
        elif outcome.found:
            _print_found(past, outcome)
        if outcome.reason:
            complain(outcome.reason)
        if len(outcome.found) > 1 and not self._is_json:
            complain("The files between these changes could not be tested.")
        return DONE if len(outcome.found) == 1 else FAILED


def _print_found(past: Past, outcome: Outcome) -> None:
    from kimi_tui.foreign_text import clean
    from kimi_tui.tools.past_command import last_lines

    print()
    if len(outcome.found) > 1:
        print("One of these changes made the command fail:")
        for one in outcome.found:
            print(f"  {one.words}")
        return
    found = outcome.found[0]
    print(f"The first change after which the command fails: {found.words}.")
    tested = outcome.of(found.after)
    if tested is not None and tested.runs:
        failing = next((one for one in tested.runs if one.exit_code), tested.runs[-1])
        lines = last_lines(failing.output, _OUTPUT_LINES)
        if lines:
            print("\nOutput of the command after this change:")
            print("\n".join(f"  {line}" for line in lines))
    print("\nWhat changed:")
    print(clean(change_patch(past, found, _PATCH_CHARS)).rstrip())
    if found.cause == "step":
        print(f"\nkimi-tui rewind {found.id} --files restore goes back to before that step.")


def change_patch(past: Past, candidate: Candidate, most_chars: int) -> str:
    """Return the differences of a change as text."""
    from kimi_tui.workspace.diff import patch_of

    return patch_of(past.differences(candidate.before.state, candidate.after.state), most_chars)


def _facts(past: Past, outcome: Outcome) -> dict[str, Any]:
    return {
        "found": len(outcome.found) == 1,
        "reason": outcome.reason or None,
        "changes": [
            {
                "cause": one.cause,
                "checkpoint_id": one.id if one.id >= 0 else None,
                "checkpoint_uid": one.uid or None,
                "before_checkpoint_id": one.next_id
                if one.cause != "step" and one.next_id >= 0
                else None,
                "files": sorted(past.differing(one.before.state, one.after.state)),
            }
            for one in outcome.found
        ],
        "tests": [
            {
                "state": one.place.name,
                "verdict": one.verdict,
                "flaky": one.is_flaky,
                "why": one.why or None,
                "runs": [_run_facts(ran) for ran in one.runs],
            }
            for one in outcome.tested
        ],
        "runs": outcome.n_runs,
    }


def _run_facts(ran: PastRun) -> dict[str, Any]:
    return {"exit_code": ran.exit_code, "seconds": round(ran.seconds, 3), "output": ran.output}


_ACTIONS = {"bisect": _bisect, "run-at": _run_at, "worktree": _worktree}
