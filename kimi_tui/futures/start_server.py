"""The process from which those of a set of futures are forked: it has imported the engine, and has one thread.

So the engine is loaded once for a set, beside the writing of its files, and most of its memory is shared. A forked process enters a
mount namespace, where the files of its future lie over the work folder, and runs `futures.child`; a process with threads could not.

The program gives it pipes for each future by their descriptors. It reads orders on standard input, `{"key": KEY, "folder": FOLDER,
"words": WORDS, "agent": BOOL}` with the words for `confine` and whether it is a sub-agent, and writes on standard output `{"key": KEY,
"pid": PID}`, and `{"key": KEY, "exit": CODE}` at the end of that process, negative for a signal. It ends with standard input; the
processes that it forked stop in order then.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kimi_tui.app_paths import reason_of

ENGINE = (
    "kimi_tui.futures.child",
    "kimi_tui.futures.agent_child",
    "kimi_tui.soul.agent_engine",
    "kimi_tui.soul.assembly",
    "kimi_tui.soul.configured_tools",
    "kimi_tui.soul.opening",
    "kimi_tui.soul.skills",
    "kimi_tui.llm.openai_compatible",
    "kimi_tui.headless.messages",
    "kimi_tui.own_process",
    # The HTTP library imports these with its first connection, and `asyncio` the threads with the first call in one.
    "anyio._backends._asyncio",
    "concurrent.futures.thread",
    "ctypes",
    "httpcore2",
    "truststore",
)
"""The modules that a future needs for its first request; importing them starts no thread."""
_CANNOT = 125
_MOST_ORDER = 1 << 24
_NICE = 5


class Pipes(NamedTuple):
    """The descriptors of one future in the server: what its process reads, and what it writes to."""

    stdin: int
    stdout: int
    stderr: int


def main() -> int:
    """Serve until standard input ends; return the exit code. The pipes are named on the command line, `KEY=IN,OUT,ERR`."""
    if sys.platform == "linux":
        from kimi_tui.tools.sandbox import confine

        # The end of standard input tells the same, but is not seen before the engine is loaded.
        confine.end_with_parent(int(signal.SIGTERM))
    pipes: dict[str, Pipes] = {}
    for argument in sys.argv[1:]:
        key, _, numbers = argument.partition("=")
        pipes[key] = Pipes(*map(int, numbers.split(",")))
    for name in ENGINE:
        __import__(name)
    from kimi_tui.llm.transport import preload
    from kimi_tui.own_process import tune_malloc
    from kimi_tui.tools.sandbox import home
    from kimi_tui.tools.toolset import default_toolset

    tune_malloc()
    preload()
    home.preload(os.environ)
    # The models of the arguments are made with the tools.
    default_toolset()
    # Python's cache of lookups refers to thousands of names. A later lookup that replaces an entry would copy the page of its name.
    sys._clear_type_cache()  # pyright: ignore[reportPrivateUsage]
    # The collector would copy the pages that are shared with the processes to be forked.
    gc.collect()
    gc.freeze()
    return _Forks(pipes).serve()


class _Forks:
    def __init__(self, pipes: dict[str, Pipes]) -> None:
        self._pipes = pipes
        self._running: dict[int, str] = {}
        self._read, self._woken = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._woken, False)

    def serve(self) -> int:
        """Carry out orders until standard input ends."""
        signal.set_wakeup_fd(self._woken)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        rest = b""
        while True:
            ready, _, _ = select.select([0, self._read], [], [])
            if self._read in ready:
                os.read(self._read, 512)
                self._reap()
            if 0 in ready:
                data = os.read(0, 1 << 16)
                if not data or len(rest) > _MOST_ORDER:
                    return 0
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._carry_out(line)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            key = self._running.pop(pid, "")
            self._tell({"key": key, "exit": os.waitstatus_to_exitcode(status)})

    def _carry_out(self, line: bytes) -> None:
        try:
            order: dict[str, Any] = json.loads(line)
        except (ValueError, RecursionError):
            return
        key = str(order.get("key"))
        pipes = self._pipes.pop(key, None)
        if pipes is None:
            return
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            self._become(pipes, order, parent)
        for one in pipes:
            os.close(one)
        self._running[pid] = key
        self._tell({"key": key, "pid": pid})

    def _become(self, pipes: Pipes, order: Mapping[str, Any], parent: int) -> None:
        """Become the process of a future; does not return."""
        code = _CANNOT
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, one in enumerate(pipes):
                os.dup2(one, number)
            for one in {
                self._read,
                self._woken,
                *pipes,
                *(n for p in self._pipes.values() for n in p),
            }:
                os.close(one)
            os.setsid()
            _step_back()
            os.chdir(order["folder"])
            _enter([str(word) for word in order["words"]], parent)
            from kimi_tui.futures import agent_child, child

            code = agent_child.main() if order.get("agent") else child.main()
        except OSError as error:
            why = reason_of(error)
            sys.stderr.write(
                f"The files of the future cannot be mounted over the work folder: {why}.\n"
            )
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                sys.stderr.flush()
                # The trial of the sandbox may still be under way.
                from kimi_tui import temporary_folders

                temporary_folders.remove_all()
            finally:
                os._exit(code)

    @staticmethod
    def _tell(line: Mapping[str, object]) -> None:
        os.write(1, json.dumps(line).encode() + b"\n")


def _enter(words: Sequence[str], parent: int) -> None:
    """Enter the mounts of a future, and end in order with the server.

    Raises:
        OSError: they cannot be mounted, or the server has ended.
    """
    if sys.platform != "linux":
        return
    from kimi_tui.tools.sandbox import confine

    if words:
        confine.confine(list(words), _stay)
    confine.end_with_parent(int(signal.SIGTERM))
    if os.getppid() != parent:
        raise ProcessLookupError("the program has ended")


def _step_back() -> None:
    """Let the program and its current conversation come first, wherever the processors are scarce; commands inherit it."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
        if sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _stay(_child: int, _is_command: bool) -> None:
    """Never called: a view needs no process below this one."""


if __name__ == "__main__":
    sys.exit(main())
