"""`PastCommands`: runs a command over the files as they were at some time, at the work folder's own path, without a trace.

The frozen files are a `Base`; `sandbox.view` brings them to the path. The command is confined as those of the agent are, and what
it writes is removed at its end. `sweep` removes what a killed program has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from kimi_tui.app_paths import XDG_FOLDERS, data_dir, home_of, make_private, reason_of
from kimi_tui.filesystem import remove_tree
from kimi_tui.foreign_text import clean, expand_tabs
from kimi_tui.tools.process import ProcessEnd, RunningCommand, child_environment
from kimi_tui.tools.sandbox.policy import NoSandbox, SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Sandbox, find_sandbox
from kimi_tui.tools.sandbox.view import (
    RUN_PREFIX,
    PastView,
    Share,
    Tier,
    opened_view,
    shares_of,
    tier_of,
)
from kimi_tui.tools.shell import bash_argv
from kimi_tui.workspace.base import (
    FACTS,
    Base,
    FileState,
    NoBase,
    Past,
    Progress,
    locked,
)
from kimi_tui.workspace.worktree import remove_unfinished

P = ParamSpec("P")
T = TypeVar("T")

FOLDER = "futures"
"""The folder in the data folder that has a folder for each session whose past files are used."""
_SCRATCH = f"{RUN_PREFIX}now"
_KEPT_S = 86_400.0
"""Seconds for which a base that nothing uses stays for the next command."""
_SET = "~"
"""The sign between the session and the set in the name of the folder of a set of futures."""
_MOST_FOLDERS = 1000
NOT_RUN = 125
"""The exit code for a command that could not be run, as in `git bisect run`, where it means that nothing can be said."""
_NOT_FOUND = frozenset({126, 127})


@dataclass(frozen=True, slots=True)
class PastRun:
    """A command that ran over past files.

    Attributes:
        exit_code: its exit code, 128 and more for a signal; None if it was stopped after its time.
        output: its output, cut in the middle if it is long.
        seconds: how long it ran.
    """

    exit_code: int | None
    output: str
    seconds: float

    @property
    def is_not_found(self) -> bool:
        """Whether a shell says by this exit code that there is no such command, or that it cannot be executed."""
        return self.exit_code in _NOT_FOUND


class PastCommands:
    """Runs commands over the states of a session's files, one after another.

    Args:
        session_dir: the folder of the session.
        past: the states of its files.
        settings: the user's settings of the sandbox.
        environ: the environment of the program.

    Attributes:
        past: the states of the files.
        tier: how commands see past files on this machine; known once it is open.
        unconfined: why commands are not confined; empty if they are.
    """

    def __init__(
        self,
        session_dir: Path,
        past: Past,
        settings: SandboxSettings,
        environ: Mapping[str, str],
    ) -> None:
        self.past = past
        self.tier: Tier = "elsewhere"
        self.unconfined = ""
        self._session_dir = session_dir
        self._settings = settings
        self._environ = environ
        self._stopped = threading.Event()
        self._stack = ExitStack()
        self._base: Base | None = None
        self._sandbox: Sandbox | None = None
        self._shares: Sequence[Share] = ()
        self._hidden: Sequence[str] = ()
        self._work = Path(os.path.realpath(past.root))
        self._place = place_of(session_dir, environ)

    async def open(self, *, scans: bool, sandbox: Sandbox | None = None) -> None:
        """Find out how commands run here, and lock the past files of the session.

        Args:
            scans: whether the files are scanned as they are now, so that `past.now` is known.
            sandbox: the sandbox, if it was found already.

        Raises:
            NoBase: another process uses them, or there are no snapshots.
            OSError: the disk refused.
        """
        await self._run(self._open, scans, sandbox)

    def _open(self, scans: bool, sandbox: Sandbox | None) -> None:
        _ = self.past.last
        sweep(self._environ, but=self._place)
        self._base = Base(self._place, self.past)
        self._stack.callback(self._base.close)
        _remove_runs(self._place)
        if sandbox is None:
            try:
                sandbox = find_sandbox(self._settings, self._environ, self._work)
                self._stack.callback(sandbox.remove_temporary)
            except NoSandbox as no:
                self.unconfined = str(no)
        hidden: Sequence[str] = ()
        if sandbox is not None:
            try:
                hidden = sandbox.policy_for(self._work, creates=False).hidden
            except NoSandbox as no:
                self.unconfined, sandbox = str(no), None
        self._sandbox = sandbox
        self.tier = tier_of("" if sandbox is None else sandbox.backend, self._environ)
        if scans:
            scratch = self._place / _SCRATCH
            self._stack.callback(_removed, scratch)
            own = (str(data_dir(self._environ)),)
            self.past.scan(scratch, own, self._stopped.is_set)
        self._hidden = hidden
        self._shares = shares_of(self.past.files(self.past.newest), self._work, hidden)

    async def close(self) -> None:
        """Remove what is not needed any more; the base stays for the next time."""
        await asyncio.to_thread(self._stack.close)

    async def run(
        self,
        command: str,
        state: FileState,
        *,
        network: bool = False,
        timeout_s: float,
        on_output: Callable[[str], None] = lambda _: None,
        on_bytes: Callable[[bytes], None] | None = None,
        told: Callable[[Progress], None] = lambda _: None,
    ) -> PastRun:
        """Run a command over a state of the files.

        Args:
            command: the command, for a shell.
            state: the state.
            network: whether it may use the network.
            timeout_s: the seconds after which it is ended.
            on_output: called on the event loop with its output.
            on_bytes: called in another thread with all of its output.
            told: called in another thread while the files are made.

        Raises:
            NoBase: the files cannot be made, or the command cannot be started.
            asyncio.CancelledError: cancelled; every process of it has ended, and nothing is left.
        """
        assert self._base is not None
        begun = time.monotonic()
        await self._run(self._base.move, state, told, self._stopped.is_set)
        stack = ExitStack()
        try:
            view, confined = await self._run(self._prepared, stack, command, network)
            running = RunningCommand(
                confined.argv,
                work_dir=view.folder,
                environ=confined.environ,
                timeout_s=timeout_s,
                on_output=on_output,
                confined_to=confined.words,
                ends_all=True,
                on_bytes=on_bytes,
            )
            begun = time.monotonic()
            ended = await running.run()
        except OSError as error:
            raise NoBase(f"The command cannot be started: {reason_of(error)}.") from error
        finally:
            await self._run(stack.close)
        return _of(ended, time.monotonic() - begun)

    def _prepared(
        self, stack: ExitStack, command: str, network: bool
    ) -> tuple[PastView, _PastStart]:
        assert self._base is not None
        place = self._place
        if self.tier == "elsewhere":
            # The sandbox hides the data folder from commands.
            place = cache_of(self._session_dir, self._environ)
            make_private(place)
            stack.callback(_removed, place)
        view = stack.enter_context(
            opened_view(
                self.tier,
                self._base.folder,
                place,
                self._work,
                self._shares,
                is_confined=self._sandbox is not None,
                hidden=self._hidden,
            )
        )
        argv = bash_argv(command, self._environ, self._work)
        if self._sandbox is None:
            words = ("level:view", *view.words()) if self.tier != "elsewhere" else ()
            environ = {**child_environment(self._environ), **view.variables}
            return view, _PastStart(argv, environ, words)
        try:
            confined = self._sandbox.confined(argv, view.folder, network=network, view=view)
        except NoSandbox as no:
            raise NoBase(f"The command cannot run in the sandbox: {no}.") from no
        return view, _PastStart(
            confined.argv, {**confined.environ, **view.variables}, confined.words
        )

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of work in a thread; if this is cancelled, the work is told and its end awaited."""
        task = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._stopped.set()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # the exception is read, so that asyncio does not report it
            raise


@dataclass(frozen=True, slots=True)
class _PastStart:
    argv: Sequence[str]
    environ: Mapping[str, str]
    words: Sequence[str]


def _of(ended: ProcessEnd, seconds: float) -> PastRun:
    code = ended.exit_code
    if code is not None and code < 0:
        code = 128 - code
    if code is None and ended.ending == "exited":
        code = 128 + signal.SIGKILL
    return PastRun(code, ended.output.text, seconds)


def command_text(words: Sequence[str]) -> str:
    """Return the command of a command line: one word is a text for the shell, several are a program and its arguments."""
    return words[0] if len(words) == 1 else shlex.join(words)


def last_lines(output: str, n: int) -> list[str]:
    """Return the last lines of an output that have any text."""
    lines = [expand_tabs(line).rstrip() for line in clean(output).split("\n")]
    return [line for line in lines if line][-n:]


# -- places, and what a killed program has left ---------------------------------------------------------


def place_of(session_dir: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder for the past files of a session."""
    return _top(environ) / session_dir.name


def set_place(session_dir: Path, group: str, environ: Mapping[str, str]) -> Path:
    """Return the folder for the files of a set of futures; nothing of it is used again."""
    return _top(environ) / f"{session_dir.name}{_SET}{group}"


def _top(environ: Mapping[str, str]) -> Path:
    return Path(os.path.realpath(data_dir(environ))) / FOLDER


def cache_of(session_dir: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder for copies that commands may read, outside of this program's own folders."""
    return _caches(environ) / session_dir.name


def _caches(environ: Mapping[str, str]) -> Path:
    base = environ.get(XDG_FOLDERS[".cache"], "")
    home = home_of(environ) or "/tmp"
    return Path(base if os.path.isabs(base) else f"{home}/.cache") / "kimi-tui" / FOLDER


def sweep(environ: Mapping[str, str], but: Path | None = None) -> int:
    """Remove what killed programs have left of past files, and bases that nothing has used for a day; return how many.

    It removes folders, so call it in a thread.

    Args:
        environ: the environment.
        but: the place of a session that is used now.
    """
    top = _top(environ)
    n_removed = remove_unfinished(top)
    for place in _folders(top):
        if place == but:
            continue
        with contextlib.suppress(OSError, NoBase):
            lock = locked(place)
            try:
                n_removed += _remove_runs(place)
                n_removed += _removed(_caches(environ) / place.name)
                if _SET in place.name or not _is_wanted(place):
                    remove_tree(place)
                    n_removed += 1
            finally:
                os.close(lock)
    for place in _folders(_caches(environ)):
        if not (top / place.name).exists():
            n_removed += _removed(place)
    return n_removed


def sweep_in_background(environ: Mapping[str, str]) -> None:
    """Remove the same, without waiting for it; the end of the program does not wait for it either."""
    if os.path.isdir(_top(environ)):
        threading.Thread(target=sweep, args=(environ,), name="sweep", daemon=True).start()


def swept(environ: Mapping[str, str]) -> Path:
    """Remove the same; return the folder in which notes about unfinished work are kept. Call it in a thread."""
    sweep(environ)
    return _top(environ)


def _is_wanted(place: Path) -> bool:
    """Return whether the base in a place is whole, and was used in the last day."""
    facts = place / FACTS
    with contextlib.suppress(OSError):
        return time.time() - facts.stat().st_mtime < _KEPT_S
    return False


def _remove_runs(place: Path) -> int:
    return sum(_removed(one) for one in _folders(place) if one.name.startswith(RUN_PREFIX))


def _removed(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        remove_tree(folder)
        return True
    return False


def _folders(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        found = [Path(item.path) for item in listing if item.is_dir(follow_symlinks=False)]
        return sorted(found)[:_MOST_FOLDERS]
    return []
