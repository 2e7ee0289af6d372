"""The prepared process: the program's own small interpreter, from which the supervisor of each command is forked (`supervisor.py`),
and each search program.

It is started once, with an empty environment and one socket, and ends with the program. Where it cannot be used (another system
than Linux, it was killed, it does not answer) an interpreter is started for the command or search, and the next one gets a new
prepared process. No command is ever started twice: a forked supervisor waits for a word that it is sent only once it is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from kimi_tui.pipes import pipes
from kimi_tui.tools.supervisor import (
    READY,
    SEARCH,
    kind_of,
    preparing,
    request_of,
    supervised,
    told,
)
from kimi_tui.workspace.tree_watch import holds_no_files

T = TypeVar("T")

log = logging.getLogger(__name__)

_ANSWER_S = 5.0
"""Seconds to wait for a supervisor; a prepared process that has just been started needs the time of an interpreter's start."""
_MOST_FAILURES = 3
"""After so many prepared processes in a row that gave no supervisor, none is started any more."""
_END_S = 1.0
_ANSWER_BYTES = 64


class SupervisorProcess(Protocol):
    """A supervisor as a process: a child of this program or of its prepared process."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def poll(self) -> int | None:
        """Return None while it runs."""
        ...

    def kill(self) -> None:
        """Kill it."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises `subprocess.TimeoutExpired` after so many seconds."""
        ...


class ForkedProcess:
    """A process that the prepared process has forked, and will wait for. Its exit code is not known here, so 0 stands for its end.

    Args:
        pid: its process id.
        descriptor: a descriptor of the process, which this object closes.
    """

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def poll(self) -> int | None:
        """Return None while it runs."""
        return 0 if self._is_over(0) else None

    def kill(self) -> None:
        """Kill it, if it runs."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: it has not ended in so many seconds.
        """
        if not self._is_over(timeout):
            raise subprocess.TimeoutExpired("supervisor", timeout or 0)
        return 0

    def _is_over(self, timeout_s: float | None) -> bool:
        waiter = select.poll()
        waiter.register(self._descriptor, select.POLLIN)
        return bool(waiter.poll(None if timeout_s is None else timeout_s * 1000))

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class SupervisedCommand:
    """A command as its supervisor starts it.

    Attributes:
        argv: the full path of the program, and its arguments.
        work_dir: the folder in which it runs.
        environ: its variables.
        words: the words with which it is confined (`sandbox/confine.py`); empty for no sandbox.
        mark: the value of `MARK_NAME` in the environment of everything that it starts.
    """

    argv: Sequence[str]
    work_dir: str
    environ: Mapping[str, str]
    words: Sequence[str] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """A supervisor that runs, with the descriptors to which orders are written and from which its reports are read."""

    process: SupervisorProcess
    orders: int
    reports: int


class _Ahead:
    """Process 1 of the namespaces of a command that is not known yet, set up and waiting.

    Args:
        words: the words with which it is confined.
        work_dir: the folder in which it is.
        stamps: the folders in which it keeps what the kernel's table of mounts does not tell of (`_stamps`).
        process: the process.
        orders: the socket to which orders are written.
        reports: the descriptor from which its reports are read.
    """

    def __init__(
        self,
        words: tuple[str, ...],
        work_dir: str,
        stamps: _Stamps,
        process: ForkedProcess,
        orders: socket.socket,
        reports: int,
    ) -> None:
        self._key = words, work_dir, stamps
        self._process, self._orders, self._reports = process, orders, reports
        self._said = b""

    def fits(self, command: SupervisedCommand) -> bool:
        """Return whether it is set up for this command."""
        words = tuple(command.words)
        return self._key == (words, command.work_dir, _stamps(words, command.work_dir))

    def look(self, at: bytes) -> None:
        """Have it look at something, as a command is about to come: `SOCKETS` outside, or its `MOUNTS`."""
        with contextlib.suppress(OSError):
            self._orders.send(at, socket.MSG_DONTWAIT)

    def begun(self, command: SupervisedCommand, output: int) -> Started | None:
        """Have it start a command; return None if something changed outside, or it has ended, in which case it starts nothing."""
        request = -1
        is_begun = False
        try:
            request = request_of(command.mark, command.work_dir, (), command.environ, command.argv)
            socket.send_fds(self._orders, [b"G"], [request, output])
            if not self._said_ready(_ANSWER_S):
                # Neither an ended process can begin the command, nor one that the kernel holds up: it is killed before it goes on.
                self._process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_END_S)
            if self._said_ready(0):
                is_begun = True
                return Started(self._process, self._orders.detach(), self._reports)
        except OSError:
            # It has ended.
            pass
        finally:
            if request >= 0:
                os.close(request)
            if not is_begun:
                self.end()
        return None

    def _said_ready(self, timeout_s: float) -> bool:
        """Wait until it says that it begins; return whether it does."""
        waiter = select.poll()
        waiter.register(self._reports, select.POLLIN)
        while len(self._said) < len(READY) and waiter.poll(timeout_s * 1000):
            if not (data := os.read(self._reports, len(READY) - len(self._said))):
                break
            self._said += data
        return self._said == READY

    def end(self) -> None:
        """End it, and wait until what it held is free."""
        self._orders.close()
        os.close(self._reports)
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)


_Stamps = tuple[tuple[int | str, int] | None, ...]


def _stamps(words: Sequence[str], work_dir: str) -> _Stamps:
    """Return the device and the number of the work folder and of each cache below a layer: an overlay goes on showing one that
    another has taken the place of. The names and numbers of the layers tell of those that other commands have begun; the time of
    their folder would tell of a lock, too, that the process itself makes.
    """
    found: list[tuple[int | str, int] | None] = []
    layered = (f"/{word.partition('/')[2]}" for word in words if word.startswith("layer:"))
    for path in (work_dir, *layered):
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino))
    for word in words:
        if word.startswith("layers:"):
            folder = word.partition(":")[2]
            with contextlib.suppress(OSError), os.scandir(folder) as listing:
                layers = [(item.name, item.inode()) for item in listing if item.name.isdecimal()]
                found += sorted(layers)
    return tuple(found)


def _has_layer(command: SupervisedCommand) -> bool:
    return any(word.startswith("layers:") for word in command.words)


def set_up_ahead(words: Sequence[str], work_dir: str) -> None:
    """Have process 1 of the next command's namespaces set up while nothing waits for it; does nothing if that is not possible.

    Args:
        words: the words of the last command in namespaces; the next one uses it only if it has the same.
        work_dir: the folder in which that ran.
    """
    _current().set_up_ahead(tuple(words), work_dir)


def layers_held() -> contextlib.AbstractContextManager[object]:
    """Return a context in which no other command in namespaces starts (`PreparedProcess.layers`)."""
    return _current().layers


def look_ahead(at: bytes) -> None:
    """Have what was set up ahead look at something, as a command is about to come.

    Args:
        at: `SOCKETS`, while its policy is made; `MOUNTS`, when it begins.
    """
    _current().look_ahead(at)


def end_ahead() -> None:
    """End what was set up ahead, if it waits."""
    _current().end_ahead()


def start_supervisor(command: SupervisedCommand, output: int) -> Started:
    """Start the supervisor of a command, which starts the command; the caller closes the descriptors of both.

    Args:
        command: the command.
        output: the descriptor for its output and errors, which stays open.

    Raises:
        OSError: it could not be started.
        ValueError: a text contains NUL.
    """
    if (started := _current().start(command, output)) is not None:
        return started
    return started_alone(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def started_alone(command: SupervisedCommand, *, stdin: int, stdout: int, stderr: int) -> Started:
    """Start the supervisor of a command as an interpreter of its own; the caller closes the descriptors of both.

    Args:
        command: the command.
        stdin, stdout, stderr: the descriptors for its standard streams, which stay open.

    Raises:
        OSError: it could not be started.
        ValueError: a text contains NUL.
    """
    (orders, order), (heard, reports) = pipes(2)
    words = -1
    try:
        words = told(command.words)
        process = subprocess.Popen(
            supervised(orders, reports, command.mark, words, [*command.argv]),
            cwd=command.work_dir,
            env=command.environ,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=(orders, reports, *([words] if words >= 0 else [])),
        )
    except BaseException:
        os.close(order)
        os.close(heard)
        raise
    finally:
        for descriptor in (orders, reports, words):
            if descriptor >= 0:
                os.close(descriptor)
    return Started(process, order, heard)


@dataclass(frozen=True, slots=True)
class ConfinedSearch:
    """A search program as it is started in the sandbox.

    Attributes:
        argv: the program and its arguments.
        words: the words with which it is confined (`sandbox/search.py`).
        folder: the descriptor of the folder in which it runs.
        environ: its variables.
        known: the descriptors that it knows by their numbers.
    """

    argv: Sequence[str]
    words: Sequence[str]
    folder: int
    environ: Mapping[str, str]
    known: Sequence[int] = ()


class ForkedSearch:
    """A search program that the prepared process has started.

    Attributes:
        pid: its process id.
        stdout: its output.
        stderr: its errors.
        returncode: its exit code, negative for a signal; None until `wait` has returned, and if the prepared process was killed.
    """

    def __init__(self, process: ForkedProcess, pipes: Sequence[asyncio.StreamReader]) -> None:
        self._process = process
        self.pid = process.pid
        self.stdout, self.stderr, self._code = pipes
        self.returncode: int | None = None

    def kill(self) -> None:
        """Kill it, if it runs."""
        self._process.kill()

    async def wait(self) -> int | None:
        """Wait for its end; return its exit code."""
        if told := (await self._code.read()).strip():
            self.returncode = int(told)
        return self.returncode


async def start_search(search: ConfinedSearch, limit: int) -> ForkedSearch | None:
    """Start a search program from the prepared process; return None if that is not possible.

    Args:
        search: the program.
        limit: the bytes of output that are buffered.

    Raises:
        ValueError: a text contains NUL.
    """
    made = pipes(3)
    readers: list[asyncio.StreamReader] = []
    try:
        try:
            process = await _to_its_end(
                asyncio.to_thread(_current().search, search, [one for _, one in made])
            )
        finally:
            for _, one in made:
                os.close(one)
        if process is None:
            return None
        loop = asyncio.get_running_loop()
        while made:
            readers.append(reader := asyncio.StreamReader(limit, loop))
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            file = os.fdopen(made.pop(0)[0], "rb", buffering=0)
            await loop.connect_read_pipe(partial(_itself, protocol), file)
        return ForkedSearch(process, readers)
    finally:
        for one, _ in made:
            os.close(one)


def _itself(protocol: asyncio.StreamReaderProtocol) -> asyncio.StreamReaderProtocol:
    return protocol


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that goes on if the caller is cancelled; then wait for it, as it uses the caller's descriptors."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the exception is read, so that asyncio does not report it
        raise


class PreparedProcess:
    """The prepared process of this program, started when it is needed. Commands may start in several threads at once.

    Attributes:
        owner: the id of this program's process.
        layers: held from the end of a command in namespaces until its layer of caches is free, and process 1 is set up for the
            next one: that has to find the same layer.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.layers = threading.RLock()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._ahead: _Ahead | None = None
        self._n_failures = 0

    @property
    def pid(self) -> int | None:
        """The id of the process; None if none runs."""
        return None if self._process is None else self._process.pid

    def start(self, command: SupervisedCommand, output: int) -> Started | None:
        """Have a supervisor forked that starts a command; return None if that is not possible."""
        if (started := self._begun_ahead(command, output)) is not None:
            return started
        with contextlib.suppress(OSError), self._lock:
            # A process that died since the last command is noticed when it is asked, and replaced by a new one.
            for _ in range(2):
                if (channel := self._opened()) is None:
                    return None
                if (started := self._asked(channel, command, output)) is not None:
                    self._n_failures = 0
                    return started
                self._close()
        return None

    def _begun_ahead(self, command: SupervisedCommand, output: int) -> Started | None:
        """Have what was set up ahead start a command; return None if nothing was, or not for this command."""
        if kind_of(command.words) == b"S":
            return None
        with self.layers:
            ahead = self._ahead
            if ahead is None or (not (fits := ahead.fits(command)) and not _has_layer(command)):
                return None
            # If it does not fit, the layer of caches that it has is for this command.
            self._ahead = None
            if fits:
                return ahead.begun(command, output)
            ahead.end()
        return None

    def set_up_ahead(self, words: tuple[str, ...], work_dir: str) -> None:
        """Have process 1 of a command's namespaces set up ahead, if none waits and the process runs."""
        with contextlib.suppress(OSError), self.layers, self._lock:
            if self._ahead is None and self._channel is not None:
                self._ahead = self._asked_ahead(self._channel, words, work_dir)

    def look_ahead(self, at: bytes) -> None:
        """Have what was set up ahead look at something (`look_ahead`)."""
        if not self.layers.acquire(blocking=False):
            # A sandbox that is being set up looks around for itself.
            return
        try:
            if self._ahead is not None:
                self._ahead.look(at)
        finally:
            self.layers.release()

    def end_ahead(self) -> None:
        """End what was set up ahead, if it waits."""
        with self.layers:
            ahead, self._ahead = self._ahead, None
            if ahead is not None:
                ahead.end()

    def _asked_ahead(
        self, channel: socket.socket, words: tuple[str, ...], work_dir: str
    ) -> _Ahead | None:
        """Ask for process 1 of a command that is not known yet; return None if none came.

        Raises:
            OSError: the system refused.
        """
        stamps = _stamps(words, work_dir)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        heard, reports = os.pipe()
        nowhere = request = -1
        process = None
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            request = request_of("", work_dir, words, {}, ())
            given = [request, theirs.fileno(), reports, nowhere]
            process = self._answer(channel, kind_of(words, is_ahead=True), given)
        finally:
            theirs.close()
            for descriptor in (reports, nowhere, request):
                if descriptor >= 0:
                    os.close(descriptor)
            if process is None:
                ours.close()
                os.close(heard)
        if process is None:
            return None
        return _Ahead(words, work_dir, stamps, process, ours, heard)

    def search(self, search: ConfinedSearch, pipes: Sequence[int]) -> ForkedProcess | None:
        """Have a search program forked; return None if that is not possible.

        Args:
            search: the program.
            pipes: the descriptors for its output, its errors and its exit code, which stay open.
        """
        with contextlib.suppress(OSError), self._lock:
            for _ in range(2):
                if (channel := self._opened()) is None:
                    return None
                numbers = " ".join(map(str, search.known))
                request = request_of(numbers, "", search.words, search.environ, search.argv)
                given = [request, *pipes, search.folder, *search.known]
                try:
                    process = self._answer(channel, SEARCH, given)
                finally:
                    os.close(request)
                if process is not None:
                    self._n_failures = 0
                    return process
                self._close()
        return None

    def _opened(self) -> socket.socket | None:
        """Return the end of the socket; start the process if none runs."""
        if self._channel is not None:
            return self._channel
        if sys.platform != "linux" or self._n_failures >= _MOST_FAILURES:
            return None
        self._n_failures += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                preparing(theirs.fileno()),
                cwd="/",
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        holds_no_files(self._process)
        self._channel = ours
        return ours

    def _asked(
        self, channel: socket.socket, command: SupervisedCommand, output: int
    ) -> Started | None:
        """Ask for a supervisor; return None if none came, in which case none will start anything."""
        (orders, order), (heard, reports) = pipes(2)
        request = -1
        is_started = False
        try:
            request = request_of(
                command.mark, command.work_dir, command.words, command.environ, command.argv
            )
            kind = kind_of(command.words)
            process = self._answer(channel, kind, [request, orders, reports, output])
            if process is None:
                return None
            os.write(order, b"G")
            is_started = True
            return Started(process, order, heard)
        except OSError:
            return None
        finally:
            for descriptor in (orders, reports, request):
                if descriptor >= 0:
                    os.close(descriptor)
            if not is_started:
                os.close(order)
                os.close(heard)

    def _answer(
        self, channel: socket.socket, kind: bytes, given: Sequence[int]
    ) -> ForkedProcess | None:
        """Send a request; return the process that was forked for it, None if there is none."""
        try:
            socket.send_fds(channel, [kind], given)
            channel.settimeout(_ANSWER_S)
            answer, descriptors, _, _ = socket.recv_fds(channel, _ANSWER_BYTES, 1)
        except OSError as error:
            log.warning("the prepared process does not answer: %s", error)
            # A late answer would count for the next request.
            self._close()
            return None
        if not descriptors or not answer.isdigit():
            return None
        process = ForkedProcess(int(answer), descriptors[0])
        if kind != SEARCH:
            # A supervisor opens no file for writing, whereas a search program replaces the program's code by its own.
            holds_no_files(process)
        return process

    def _close(self) -> None:
        channel, self._channel = self._channel, None
        process, self._process = self._process, None
        if channel is not None:
            channel.close()
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)


_processes: list[PreparedProcess] = [PreparedProcess()]


def _current() -> PreparedProcess:
    """Return the prepared process of this program; a forked copy of the program gets one of its own."""
    if _processes[0].owner != os.getpid():
        _processes[0] = PreparedProcess()
    return _processes[0]
