"""Runs the tests of one session in several processes, which are forks of the process that has collected them.

Each process of pytest-xdist imports and collects all tests for itself, which took seven processes longer than a tenth of all
tests. A fork has the collected tests already, shares their memory, and gets the numbers of the tests to run.
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
from collections import defaultdict, deque
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
    """A process that runs tests, as its parent sees it.

    Attributes:
        number: the index of the worker.
        pid: the process ID.
        channel: the connection to it.
        given: the tests that it was told to run and that have not ended, by their indexes in the session.
    """

    number: int
    pid: int
    channel: Connection
    given: deque[int] = field(default_factory=deque[int])


class Parallel:
    """A plugin of pytest that replaces its loop and runs the tests in forks of this process.

    Args:
        config: the configuration of pytest.
        n_workers: the number of workers.
        unit_of: returns the name of a test's unit for the test's id; all tests of a unit run in one process, in their order.
        kind_of: returns the kind of a unit for its name.
        kinds_of: returns all kinds for the index of a worker, in the order in which it takes them.
        warm_up: called before the first fork.
    """

    def __init__(
        self,
        config: pytest.Config,
        n_workers: int,
        *,
        unit_of: Callable[[str], str],
        kind_of: Callable[[str], str],
        kinds_of: Callable[[int], Sequence[str]],
        warm_up: Callable[[], object],
    ) -> None:
        self._config = config
        self._n_workers = n_workers
        self._unit_of = unit_of
        self._kind_of = kind_of
        self._kinds_of = kinds_of
        self._warm_up = warm_up
        self._units: defaultdict[str, deque[deque[int]]] = defaultdict(deque[deque[int]])
        """The units of each kind that no worker has taken."""
        self._workers: dict[Connection, _Worker] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests; return True as pytest's own loop does, or None to leave them to it."""
        if session.testsfailed or session.config.option.collectonly or len(session.items) < 2:
            return None
        units: defaultdict[str, deque[int]] = defaultdict(deque[int])
        for place, item in enumerate(session.items):
            units[self._unit_of(item.nodeid)].append(place)
        for name, places in units.items():
            self._units[self._kind_of(name)].append(places)
        self._warm_up()
        # A garbage collection in a fork would copy the pages of all objects that exist now.
        gc.freeze()
        forks.share(forks.meeting())
        try:
            for number in range(min(self._n_workers, len(units))):
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
        """Start a worker by a fork."""
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
                # At the end of an interpreter only the parent cleans up; the fork runs only the functions that it registered
                # itself.
                with contextlib.suppress(BaseException):
                    atexit._run_exitfuncs()
                os._exit(code)
        theirs.close()
        self._workers[ours] = _Worker(number, pid, ours)

    def _be_worker(self, session: pytest.Session, number: int, channel: Connection) -> None:
        """Run tests in a fork, as the parent requests."""
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
        """Answer a message of a worker."""
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
                # The end of a worker that has died meanwhile is handled above.
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
        """Return the tests that a worker runs next; none at the end."""
        for kind in self._kinds_of(number):
            if self._units[kind]:
                return self._units[kind].popleft()
        return deque()

    def _bury(self, session: pytest.Session, worker: _Worker) -> None:
        """Report the test in which a worker died, if it was running one, and start another worker in its place."""
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
            self._units[self._kinds_of(worker.number)[0]].appendleft(worker.given)
        if any(self._units.values()):
            self._start(session, worker.number)


def _places(channel: Connection) -> Iterator[tuple[int, int | None]]:
    """Yield the tests that this process is told to run, each with the one that follows it.

    Further tests are requested before the last one is run, so that fixtures which it shares with the next one are kept.
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
    """Capture output into files of this process, and leave the terminal to the parent."""
    captures = config.pluginmanager.getplugin("capturemanager")
    assert isinstance(captures, CaptureManager)
    captures.suspend_global_capture(in_=True)
    captures.stop_global_capturing()
    captures.start_global_capturing()
    reporter = config.pluginmanager.getplugin("terminalreporter")
    assert isinstance(reporter, TerminalReporter)
    vars(reporter._tw)["_file"] = io.StringIO()


class _Teller:
    """A plugin of pytest in a worker, which passes the parent the events for the parent's plugins."""

    def __init__(self, config: pytest.Config, channel: Connection) -> None:
        self._config = config
        self._channel = channel

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send the result of a test."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._channel.send(("report", data))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: Sequence[Any] | None,
    ) -> None:
        """Send a warning as text, since not every warning can be pickled."""
        words = Warning(f"{warning_message.category.__name__}: {warning_message.message}")
        told = warnings.WarningMessage(
            words, Warning, warning_message.filename, warning_message.lineno
        )
        named = {"warning_message": told, "when": when, "nodeid": nodeid, "location": location}
        self._channel.send(("warning", named))
