"""Runs the tests of one session in several processes: forks of the one that has collected them.

Each process of pytest-xdist imports and collects all tests for itself, which for seven of them took longer than a tenth of all
tests. A fork has it done, shares the memory of it, and is told what to run by numbers.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import signal
import socket
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
from _pytest.capture import CaptureManager
from _pytest.terminal import TerminalReporter
from _pytest.tmpdir import TempPathFactory

from support import forks


@dataclass(eq=False)
class _Worker:
    """A process that runs tests, as seen by the one that it is a fork of.

    Attributes:
        number: its place among the workers.
        pid: its number as a process.
        channel: to it.
        given: the tests that it was told to run and has not ended, by their places in the session.
    """

    number: int
    pid: int
    channel: Connection
    given: deque[int] = field(default_factory=deque[int])


class Parallel:
    """Plugin of pytest: in the place of its loop, runs the tests in forks of this process.

    Args:
        config: pytest's.
        n_workers: how many.
        unit_of: for a test's id, what its unit is called: all tests of a unit run in one process, in their order.
        comes_first: for the place of a worker and the name of a unit, whether it takes that one before others.
        warm_up: called before the first fork.
    """

    def __init__(
        self,
        config: pytest.Config,
        n_workers: int,
        *,
        unit_of: Callable[[str], str],
        comes_first: Callable[[int, str], bool],
        warm_up: Callable[[], object],
    ) -> None:
        self._config = config
        self._n_workers = n_workers
        self._unit_of = unit_of
        self._comes_first = comes_first
        self._warm_up = warm_up
        self._units: dict[str, deque[int]] = {}
        self._workers: dict[Connection, _Worker] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests; the result is as that of pytest's own loop."""
        if session.testsfailed or session.config.option.collectonly or len(session.items) < 2:
            return None
        for place, item in enumerate(session.items):
            self._units.setdefault(self._unit_of(item.nodeid), deque()).append(place)
        self._warm_up()
        # A fork whose collector goes through what is here already would copy it, page by page.
        gc.freeze()
        forks.share(forks.meeting())
        try:
            for number in range(min(self._n_workers, len(self._units))):
                self._start(session, number)
            while self._workers:
                for channel in wait([*self._workers]):
                    assert isinstance(channel, Connection)
                    self._hear(session, self._workers[channel])
                    if session.shouldfail:
                        raise session.Failed(session.shouldfail)
                    if session.shouldstop:
                        raise session.Interrupted(session.shouldstop)
        finally:
            for worker in self._workers.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
        return True

    def _start(self, session: pytest.Session, number: int) -> None:
        """Fork."""
        factory: TempPathFactory = vars(self._config)["_tmp_path_factory"]
        factory.getbasetemp()
        captures = self._config.pluginmanager.getplugin("capturemanager")
        assert isinstance(captures, CaptureManager)
        captures.read_global_capture()
        sys.stdout.flush()
        sys.stderr.flush()
        ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
        pid = os.fork()
        if not pid:
            code = 1
            try:
                ours.close()
                for other in self._workers:
                    other.close()
                self._be_worker(session, number, theirs)
                code = 0
            except KeyboardInterrupt:
                pass
            except BaseException:
                traceback.print_exc()
            finally:
                # What is left to do at the end of an interpreter is its parent's, but for what it promised itself.
                with contextlib.suppress(BaseException):
                    atexit._run_exitfuncs()
                os._exit(code)
        theirs.close()
        self._workers[ours] = _Worker(number, pid, ours)

    def _be_worker(self, session: pytest.Session, number: int, channel: Connection) -> None:
        """Run what one is told to, in a fork."""
        atexit._clear()
        _take_own_streams(self._config)
        factory: TempPathFactory = vars(self._config)["_tmp_path_factory"]
        own = factory.getbasetemp() / f"w{os.getpid()}"
        own.mkdir(mode=0o700)
        vars(factory)["_basetemp"] = own
        self._config.pluginmanager.register(_Teller(self._config, channel))
        for place, following in _places(channel):
            channel.send(("begins", place))
            item, after = (
                session.items[place],
                None if following is None else session.items[following],
            )
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            channel.send(("ended", place))

    def _hear(self, session: pytest.Session, worker: _Worker) -> None:
        """Do what a worker asks for."""
        hook = self._config.hook
        try:
            kind, what = worker.channel.recv()
        except (EOFError, ConnectionResetError):
            self._bury(session, worker)
            return
        match kind:
            case "more":
                places = self._next_unit(worker.number)
                worker.given += places
                # One that is gone meanwhile is heard of above.
                with contextlib.suppress(BrokenPipeError):
                    worker.channel.send([*places])
            case "begins":
                item = session.items[what]
                hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            case "ended":
                worker.given.remove(what)
                item = session.items[what]
                hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            case "report":
                report = hook.pytest_report_from_serializable(config=self._config, data=what)
                hook.pytest_runtest_logreport(report=report)
            case _:
                hook.pytest_warning_recorded.call_historic(kwargs=what)

    def _next_unit(self, number: int) -> deque[int]:
        """The tests that a worker runs next; none at the end."""
        for name in self._units:
            if self._comes_first(number, name):
                return self._units.pop(name)
        return self._units.pop(next(iter(self._units))) if self._units else deque()

    def _bury(self, session: pytest.Session, worker: _Worker) -> None:
        """Tell of the test in which a worker ended, if it was in one, and let another one go on."""
        del self._workers[worker.channel]
        worker.channel.close()
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if worker.given:
            item = session.items[worker.given.popleft()]
            report = pytest.TestReport(
                item.nodeid,
                item.location,
                {},
                "failed",
                f"The process that ran it ended with {code}.",
                "call",
            )
            self._config.hook.pytest_runtest_logreport(report=report)
        if worker.given:
            self._units[f"what {worker.pid} has left"] = worker.given
        if self._units:
            self._start(session, worker.number)


def _places(channel: Connection) -> Iterator[tuple[int, int | None]]:
    """The tests that this process is told to run, and for each the one that follows it.

    More is asked for before the last one is run: what the two have in common is not taken down between them.
    """
    given: deque[int] = deque()
    place: int | None = None
    while True:
        if not given:
            channel.send(("more", None))
            given += channel.recv()
        following = given.popleft() if given else None
        if place is not None:
            yield place, following
        if following is None:
            return
        place = following


def _take_own_streams(config: pytest.Config) -> None:
    """Capture into files of one's own, and leave the terminal to the parent."""
    captures = config.pluginmanager.getplugin("capturemanager")
    assert isinstance(captures, CaptureManager)
    captures.suspend_global_capture(in_=True)
    captures.stop_global_capturing()
    captures.start_global_capturing()
    reporter = config.pluginmanager.getplugin("terminalreporter")
    assert isinstance(reporter, TerminalReporter)
    vars(reporter._tw)["_file"] = io.StringIO()


class _Teller:
    """Plugin of pytest in a worker: tells the parent what its own plugins are to hear."""

    def __init__(self, config: pytest.Config, channel: Connection) -> None:
        self._config = config
        self._channel = channel

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell how a test went."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._channel.send(("report", data))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: Sequence[Any] | None,
    ) -> None:
        """Tell of a warning, in words: not all of them can be sent as they are."""
        words = Warning(f"{warning_message.category.__name__}: {warning_message.message}")
        told = warnings.WarningMessage(
            words, Warning, warning_message.filename, warning_message.lineno
        )
        named = {"warning_message": told, "when": when, "nodeid": nodeid, "location": location}
        self._channel.send(("warning", named))
