"""The supervisor, a parent process for each command: all descendants of the command stay below it and are ended with the program.

It is the subreaper (Linux) of processes that lose their parent, so none escapes by clearing its environment or leaving its
process group. It reads a pipe whose other end the program holds open, so it notices every end of the program.
(PR_SET_PDEATHSIG would reach the command alone, not its descendants, and depends on the thread that forked.)

With namespaces a supervisor that was forked from the prepared process is process 1 of the command's own process namespace, whose
end ends all processes in it: it confines itself, then starts the command below itself (`_begin_first`). If it was started as an
interpreter of its own, there are two more processes between it and the command: the one that entered the namespaces, and their
process 1. Both end with the supervisor.

It is forked from a prepared process (`prepare`, started with the arguments of `preparing`), a small interpreter that has
loaded everything, so that no command waits for that. Where this is not possible, `supervised` makes the arguments that start
it as an interpreter of its own: isolated, with two descriptors and one for the words that confine the command
(`sandbox/confine.py`; none: it is not confined). If the words were arguments, the command could read from them what is
hidden. Orders are single characters: T (send SIGTERM to all), K (kill all), Q (exit, and leave the processes running), and
before all others, if it was forked, G (go: start the command).
Reports are lines: `E errno [why]` (not started), `X code` (the command ended), `L count` (processes left after a K, or none without
one: process 1 of namespaces ends when it is the last).

A command may still wait for the start of an interpreter. So this module imports only `confine` from the package, and from the
standard library the C modules below `signal` and `ctypes`, as importing these two would take as long as everything else.
"""

import gc
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping, Sequence
else:
    import _signal as signal

MARK_NAME = "KIMI_TUI_COMMAND"
_HAS_PROC = os.path.exists("/proc/self/stat")
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_GRACE_S = 2.0
_ROUNDS = 50
_ROUND_S = 0.02
_ENDING_MS = 5
"""Milliseconds in which processes that are about to end may do so by themselves before all are listed, which takes as long."""
_MOST_BYTES = 64
_N_DESCRIPTORS = 4
_MOST_DESCRIPTORS = 16
_ONLINE = b"O"
_OF_NAMESPACES = (b"N", _ONLINE)
"""Requests for a supervisor that is process 1 of its command's namespaces."""
_AHEAD_ONLINE = b"o"
_AHEAD = (b"n", _AHEAD_ONLINE)
"""Requests for one that is set up before its command is known."""
SEARCH = b"P"
"""The request for a search program."""
READY = b"R\n"
"""The report of one that was set up ahead when its command has come."""
SOCKETS, MOUNTS = b"V", b"M"
"""Orders to one that waits: to look at the sockets outside, and at its mounts."""
_MOST_IDLE_MS = 60_000
"""Milliseconds for which one waits for its command: its mounts keep disks busy, and a layer of caches taken."""
_FRESH_S = 0.02
"""Seconds for which a look at the sockets outside counts; setting up a command takes about as long after its look."""
_JUST_S = 0.003
"""The same for a look at the mounts, in which the program gets ready what it sends after asking for it."""


_BEGIN = (
    "import sys; sys.path.append(sys.argv[1]); import supervisor; supervisor.begin(sys.argv[2:])"
)


_PREPARE = (
    "import sys; sys.path.append(sys.argv[1]); import supervisor; "
    "supervisor.prepare(int(sys.argv[2]))"
)


def preparing(requests: int) -> list[str]:
    """Return the arguments that start a prepared process, which reads its requests from a socket with this descriptor."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PREPARE, folder, str(requests)]


def supervised(orders: int, reports: int, mark: str, words: int, command: list[str]) -> list[str]:
    """Return the arguments that start a supervisor.

    The supervisor is imported as a module, since a script is compiled at each start; its folder is last on the path, because
    some modules in it have names of modules of the standard library.

    Args:
        orders: the descriptor from which it reads orders.
        reports: the descriptor to which it writes reports.
        mark: the value of `MARK_NAME` in the environment of the command and its descendants.
        words: the descriptor of a file with the words that confine the command (`told`); negative for no sandbox.
        command: the full path of the program, and its arguments.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    how = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BEGIN, folder]
    return [*how, str(orders), str(reports), mark, str(words), *command]


def told(words: "Sequence[str]") -> int:
    """Return a descriptor of a file in memory from which a supervisor reads the words that confine its command; negative if
    there are no words.

    Raises:
        OSError: the file cannot be made.
    """
    if not words:
        return -1
    return _in_memory("words", b"\0".join(map(os.fsencode, words)))


def kind_of(words: "Sequence[str]", *, is_ahead: bool = False) -> bytes:
    """Return the kind of the request for a supervisor whose command is confined by these words."""
    if "level:full" not in words:
        return b"S"
    offline, online = _AHEAD if is_ahead else _OF_NAMESPACES
    return online if "network:on" in words else offline


def request_of(
    mark: str,
    work_dir: str,
    words: "Sequence[str]",
    environ: "Mapping[str, str]",
    command: "Sequence[str]",
) -> int:
    """Return a descriptor of a file in memory with all that a forked supervisor is told; the prepared process never reads it.

    Raises:
        OSError: the file cannot be made.
        ValueError: a text contains NUL.
    """
    variables = [f"{name}={value}" for name, value in environ.items()]
    head = f"{len(words)} {len(variables)} {len(command)}"
    texts = [head, mark, work_dir, *words, *variables, *command]
    whole = "\0".join(texts)
    if whole.count("\0") != len(texts) - 1:
        raise ValueError("embedded null byte")
    return _in_memory("request", os.fsencode(whole))


def _in_memory(name: str, data: bytes) -> int:
    """Return a descriptor of a file in memory with this content.

    Raises:
        OSError: the file cannot be made.
    """
    held = os.memfd_create(name)
    try:
        with open(held, "wb", closefd=False, buffering=0) as file:
            left = memoryview(data)
            while left:
                left = left[file.write(left) or 0 :]
        os.lseek(held, 0, os.SEEK_SET)
    except BaseException:
        os.close(held)
        raise
    return held


def prepare(requests: int) -> None:
    """Fork a process for each request until the program ends; does not return.

    A request is a byte with descriptors: `S` for a supervisor, with the file of `request_of`, orders, reports, and the command's
    output; `N` for one in namespaces, `O` for one in namespaces with the network outside, both with the same; `n` and `o` for one
    of these whose command is not known yet (`_begin_ahead`), with no command in the file and no output; `P` for a search program, with the file, its output, its errors, the pipe for its exit code, its folder, and those that
    it knows by their numbers, which are the mark of the request. The answer is the process id, with a descriptor of that process;
    without one, nothing was started. This process reads nothing of a request, and keeps only the pipes for exit codes, so it
    holds nothing of a session.
    """
    try:
        _prepare(requests)
    finally:
        os._exit(0)


def _prepare(requests: int) -> None:
    import _socket

    _set(_PR_SET_DUMPABLE, 0)
    _import_confine()
    sys.modules["confine"].prepare()
    # The program may end before anything notices that its end of the socket is closed: a process that it forked may hold it.
    program = os.pidfd_open(os.getppid())
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _wake)
    channel = _socket.socket(fileno=requests)
    os.set_inheritable(requests, False)
    poll = select.poll()
    for descriptor in (requests, wake_read, program):
        poll.register(descriptor, select.POLLIN)
    gc.collect()
    gc.freeze()
    # A collection in a forked process would touch, and so copy, pages that it shares with this one.
    gc.disable()
    room = _socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS)
    codes: dict[int, int] = {}
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if wake_read in ready:
            os.read(wake_read, 4096)
            _tell_codes(codes)
        if program in ready:
            return
        if requests not in ready:
            continue
        data, extra, _, _ = channel.recvmsg(_MOST_BYTES, room, _socket.MSG_CMSG_CLOEXEC)
        if not data:
            return
        given = _numbers_in(extra)
        if len(given) < _N_DESCRIPTORS:
            return
        itself = os.getpid()
        child, has_user, sockets, mounts = -1, False, -1, -1
        ids, is_ahead = (os.geteuid(), os.getegid()), data in _AHEAD
        try:
            if is_ahead or data in _OF_NAMESPACES:
                sockets = os.open("/proc/net/unix", os.O_RDONLY | os.O_CLOEXEC)
                if is_ahead:
                    mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
                is_online = data in (_ONLINE, _AHEAD_ONLINE)
                child, has_user = sys.modules["confine"].fork_first(is_online)
            is_first = child >= 0
            if not is_first and not is_ahead:
                # A supervisor outside of the namespaces says why they are refused.
                child = os.fork()
        except OSError:
            is_first = False
        if child == 0:
            for descriptor in (requests, wake_read, wake_write, program, *codes.values()):
                os.close(descriptor)
            if data == SEARCH:
                _begin_search(itself, *given)
            elif is_ahead:
                _begin_ahead(ids if has_user else None, sockets, mounts, *given)
            elif is_first:
                _begin_first(ids if has_user else None, sockets, *given)
            else:
                _begin_forked(*given)
        for descriptor in (sockets, mounts):
            if descriptor >= 0:
                os.close(descriptor)
        kept = given[3] if data == SEARCH and child > 0 else -1
        if kept >= 0:
            codes[child] = kept
        for descriptor in given:
            if descriptor != kept:
                os.close(descriptor)
        if child < 0:
            channel.sendmsg([b"-1"])
            continue
        # The child was not waited for yet, so the number is still its own.
        held = os.pidfd_open(child)
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, held.to_bytes(4, sys.byteorder))
        channel.sendmsg([str(child).encode()], [rights])
        os.close(held)


def _tell_codes(codes: dict[int, int]) -> None:
    """Wait for the processes that have ended, and tell the exit codes of those with a pipe for it."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        pipe = codes.pop(pid, -1)
        if pipe >= 0:
            _report(pipe, str(os.waitstatus_to_exitcode(status)))
            os.close(pipe)


def _begin_search(
    parent: int, request: int, output: int, errors: int, code: int, folder: int, *known: int
) -> None:
    """Become a confined search program in a process that was forked from the prepared one (`parent`); does not return."""
    try:
        os.close(code)
        # Until it has confined itself, it opens files in its `/proc/self`.
        _set(_PR_SET_DUMPABLE, 1)
        os.setsid()
        with open(request, "rb") as file:
            head, mark, _, *texts = file.read().split(b"\0")
        n_words, n_variables, _ = map(int, head.split())
        numbers = [*map(int, mark.split())]
        # A descriptor may have the number that another one gets.
        free = max(2, *numbers, output, errors, folder, *known) + 1
        moved = [*enumerate((output, errors, folder, *known), free)]
        for at, descriptor in moved:
            os.dup2(descriptor, at, inheritable=False)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.fchdir(free + 2)
        for at, number in enumerate((1, 2, -1, *numbers), free):
            if number >= 0:
                os.dup2(at, number)
        os.environb.update(
            dict(text.split(b"=", 1) for text in texts[n_words : n_words + n_variables])
        )
        words = [f"parent:{parent}", *map(os.fsdecode, texts[:n_words])]
        argv = [*map(os.fsdecode, texts[n_words + n_variables :])]
        arguments = [str(len(words)), *words, *argv]
        sys.modules["confine"].begin_search(arguments)
    except OSError as error:
        os.write(2, f"{error.strerror}\n".encode(errors="replace"))
    finally:
        os._exit(126)


def _taken_over(
    request: int, output: int
) -> "tuple[bytes, bytes, list[str], list[bytes], dict[bytes, bytes]]":
    """Lead a session, take over the command's streams and read its request: the mark, the folder, the words, the command with its
    arguments, and the variables.
    """
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    return _told_by(request, output)


def _told_by(
    request: int, output: int
) -> "tuple[bytes, bytes, list[str], list[bytes], dict[bytes, bytes]]":
    """Take over the command's output, and read its request."""
    for at in (1, 2):
        os.dup2(output, at)
    os.close(output)
    with open(request, "rb") as file:
        head, mark, work_dir, *texts = file.read().split(b"\0")
    n_words, n_variables, _ = map(int, head.split())
    at = n_words + n_variables
    environ = dict(text.split(b"=", 1) for text in texts[n_words:at])
    return mark, work_dir, [*map(os.fsdecode, texts[:n_words])], texts[at:], environ


def _begin_forked(request: int, orders: int, reports: int, output: int) -> None:
    """Run a supervisor in a process that was forked from the prepared one; does not return."""
    try:
        mark, work_dir, words, command, environ = _taken_over(request, output)
        # Nothing is started for a program that has given up waiting, as it starts the command in another way.
        if os.read(orders, 1) == b"G":
            try:
                os.chdir(work_dir)
            except OSError as error:
                _report(reports, f"E {error.errno}")
                return
            os._exit(main(orders, reports, os.fsdecode(mark), words, command, environ))
    finally:
        os._exit(127)


def _begin_first(
    ids: "tuple[int, int] | None",
    sockets: int,
    request: int,
    orders: int,
    reports: int,
    output: int,
) -> None:
    """Run a supervisor as process 1 of the command's namespaces; does not return.

    Args:
        ids: the user and group outside, if it has a user namespace of its own.
        sockets: a descriptor of the kernel's list of sockets outside.
        request, orders, reports, output: the descriptors of the request.
    """
    try:
        mark, work_dir, words, command, environ = _taken_over(request, output)
        # This process writes to files in its `/proc/self` until it has set everything up.
        _set(_PR_SET_DUMPABLE, 1)
        held: object = None
        try:
            os.chdir(work_dir)
            confine = sys.modules["confine"]
            held = confine.set_up_first(words, confine.Sockets(sockets), ids)
            os.close(sockets)
        except OSError as error:
            _set(_PR_SET_DUMPABLE, 0)
            _report_error(reports, error)
        # Nothing is started for a program that has given up waiting, as it starts the command in another way.
        if os.read(orders, 1) == b"G":
            environ[MARK_NAME.encode()] = mark
            woken, returned = _woken_by_children(), _signals_for_command()
            os._exit(_main_of_first(orders, reports, held, command, environ, woken, returned))
    finally:
        os._exit(127)


def _begin_ahead(
    ids: "tuple[int, int] | None",
    sockets: int,
    mounts: int,
    request: int,
    orders: int,
    reports: int,
    output: int,
) -> None:
    """Be process 1 of the namespaces of a command that is not known yet: set up, wait for it, and run its supervisor; does not return.

    It ends without a word if it cannot be set up, if no command comes, as soon as something is mounted or unmounted outside or one of
    its own mounts is gone, and when another program wants its layer of caches.
    V has it look whether a socket has appeared outside, and M whether its mounts lie as they did. G comes with the file of
    `request_of` and the command's output: if all that was set up is as it was, it says so (`READY`) and is a supervisor as any other;
    else it ends, and has started nothing.

    Args:
        ids, sockets: as for `_begin_first`.
        mounts: a descriptor of the table of mounts outside, which tells of changes.
        request: a descriptor of a file as that of `request_of`, with the folder and the words.
        orders: the descriptor of a socket.
        reports: the descriptor to which it writes reports.
        output: the descriptor of a file that takes what nobody reads.
    """
    import _socket

    try:
        _, work_dir, words, _, _ = _taken_over(request, output)
        # This process writes to files in its `/proc/self` until it has set everything up.
        _set(_PR_SET_DUMPABLE, 1)
        os.chdir(work_dir)
        channel = _socket.socket(fileno=orders)
        held, standing = sys.modules["confine"].set_up_ahead(words, sockets, ids)
        woken = _woken_by_children()
        returned = _signals_for_command()
        poll = select.poll()
        poll.register(orders, select.POLLIN)
        poll.register(mounts, select.POLLPRI)
        poll.register(standing.table, select.POLLPRI)
        room = _socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS)
        sockets_at = mounts_at = 0.0
        given: list[int] = []
        while not given:
            ready = [descriptor for descriptor, _ in poll.poll(_MOST_IDLE_MS)]
            if ready != [orders]:
                return
            data, extra, _, _ = channel.recvmsg(1, room, _socket.MSG_CMSG_CLOEXEC)
            if data not in (SOCKETS, MOUNTS, b"G"):
                return
            now = time.monotonic()
            if data == SOCKETS or (data == b"G" and now - sockets_at > _FRESH_S):
                sockets_at = now
                if not standing.has_same_sockets():
                    return
            if data == MOUNTS or (data == b"G" and now - mounts_at > _JUST_S):
                mounts_at = now
                if not standing.has_same_mounts():
                    return
            given = _numbers_in(extra)
        if len(given) != 2 or poll.poll(0):
            return
        standing.close()
        os.close(mounts)
        # The program that has given up waiting looks for this before it starts the command in another way.
        os.write(reports, READY)
        mark, _, _, command, environ = _told_by(*given)
        environ[MARK_NAME.encode()] = mark
        os._exit(_main_of_first(channel.detach(), reports, held, command, environ, woken, returned))
    finally:
        os._exit(127)


def _numbers_in(extra: "Sequence[tuple[int, int, bytes]]") -> list[int]:
    """Return the descriptors that came with a message."""
    return [
        int.from_bytes(numbers[at : at + 4], sys.byteorder)
        for _, _, numbers in extra
        for at in range(0, len(numbers), 4)
    ]


def _main_of_first(
    orders: int,
    reports: int,
    held: object,
    command: list[bytes],
    environ: "Mapping[bytes, bytes]",
    woken: int,
    returned: list[int],
) -> int:
    """Start the command below process 1, and report and carry out orders as `main` does; return the exit code.

    All processes in the namespace are below this one, so a signal reaches all of them at once, and none is left if it has no child.
    It is confined as the command is, which it starts without a copy of itself.

    Args:
        held: what it needs to confine itself; None to start nothing.
        orders, reports, command, environ: as for `main`.
        woken: the pipe of `_woken_by_children`.
        returned: the signals of `_signals_for_command`.
    """
    child = -1
    try:
        if held is not None:
            sys.modules["confine"].confine_command(held)
            child = os.posix_spawn(command[0], command, environ, setsid=True, setsigdef=returned)
    except OSError as error:
        _report_error(reports, error)
    _leave_streams()
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    poll.register(woken, select.POLLIN)
    # The command may have ended before the first wait.
    while _reap(child, reports, is_first=True):
        ready = [descriptor for descriptor, _ in poll.poll()]
        if woken in ready:
            os.read(woken, 4096)
        if orders not in ready:
            continue
        for order in os.read(orders, 16) or b"\0":
            if order == ord("T"):
                _signal_others(signal.SIGTERM)
            elif order == ord("K"):
                left = _end_others(child, reports, woken, signal.SIGKILL, _ROUNDS * _ROUND_S)
                _report(reports, f"L {int(left)}")
            elif order == ord("Q"):
                return 0
            else:
                # The program is gone; the kernel kills what is left when this process ends.
                _end_others(child, reports, woken, signal.SIGTERM, _GRACE_S)
                return 0
    # Nothing can come into this namespace any more, so there is nothing to be ordered.
    return 0


def _signals_for_command() -> list[int]:
    """Ignore the signals that are for the command, and return those that it gets with their usual effect."""
    found: list[int] = [signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # The command ignores those that the program ignores.
        if signal.signal(number, signal.SIG_IGN) != signal.SIG_IGN:
            found.append(number)
    return found


def _end_others(child: int, reports: int, wake: int, number: int, most_s: float) -> bool:
    """Signal all other processes of the namespace, and wait for their end for so many seconds; return whether one is left."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    deadline = time.monotonic() + most_s
    _signal_others(number)
    while _reap(child, reports):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return True
        if poll.poll(left_s * 1000):
            os.read(wake, 4096)
        if number == signal.SIGKILL:
            # One that was started meanwhile has not got it.
            _signal_others(number)
    return False


def _signal_others(number: int) -> None:
    try:
        os.kill(-1, number)
    except OSError:
        return


def _words_from(descriptor: int) -> list[str]:
    if descriptor < 0:
        return []
    with open(descriptor, "rb") as file:
        return os.fsdecode(file.read()).split("\0")


def begin(arguments: list[str]) -> None:
    """Run the supervisor with the arguments that `supervised` made; does not return."""
    orders, reports, mark, words, *command = arguments
    texts = [*map(os.fsencode, command)]
    # The process exits at once: there is nothing to clean up, and the program waits for the end.
    os._exit(
        main(int(orders), int(reports), mark, _words_from(int(words)), texts, dict(os.environb))
    )


def main(
    orders: int,
    reports: int,
    mark: str,
    words: list[str],
    command: list[bytes],
    environ: "Mapping[bytes, bytes]",
) -> int:
    """Start the command, and report and carry out orders until Q or the end of the program; return the exit code."""
    _set(_PR_SET_CHILD_SUBREAPER, 1)
    # A command that does not run as root can neither open this process's pipes in `/proc` nor trace it.
    _set(_PR_SET_DUMPABLE, 0)
    for descriptor in (orders, reports):
        os.set_inheritable(descriptor, False)
    wake_read = _woken_by_children()
    child = os.fork()
    if child == 0:
        _exec_command(command, words, {**environ, MARK_NAME.encode(): mark.encode()}, reports)
    _leave_streams()
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    # The command may have ended before the first wait.
    _reap(child, reports)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if wake_read in ready:
            os.read(wake_read, 4096)
        _reap(child, reports)
        if orders not in ready:
            continue
        for order in os.read(orders, 16) or b"\0":
            if order == ord("T"):
                _signal_all(child, signal.SIGTERM)
            elif order == ord("K"):
                _report(reports, f"L {_kill_all(child, reports, wake_read)}")
            elif order == ord("Q"):
                return 0
            else:
                # The program is gone.
                _signal_all(child, signal.SIGTERM)
                deadline = time.monotonic() + _GRACE_S
                while _below() and time.monotonic() < deadline:
                    time.sleep(_ROUND_S)
                    _reap(child, reports)
                _kill_all(child, reports, wake_read)
                return 0


def _woken_by_children() -> int:
    """Return the descriptor of a pipe that is readable after the end of a child."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _wake)
    return wake_read


def _leave_streams() -> None:
    """Close the standard streams: the output must end when the command and its processes have closed it, not when this process ends."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _wake(number: int, frame: object) -> None:
    """Do nothing: the signal's number in the wakeup pipe is enough."""


def _set(option: int, value: int) -> None:
    """Call `prctl` with an option and its value; does nothing on systems other than Linux."""
    if sys.platform != "linux":
        return
    from _ctypes import call_function, dlopen, dlsym

    # Without a name this is the process itself, as with `ctypes.CDLL(None)`; the type stubs do not know that.
    itself = dlopen(None, 0)  # pyright: ignore[reportArgumentType]
    call_function(dlsym(itself, "prctl"), (option, value, 0, 0, 0))


def _exec_command(
    command: list[bytes], words: list[str], environ: "Mapping[bytes, bytes]", reports: int
) -> None:
    try:
        os.setsid()
        if words:
            # The child writes to files in its `/proc/self` until it has confined itself.
            _set(_PR_SET_DUMPABLE, 1)
            _confine(
                words,
                lambda below, is_command: _wait_for_descendants(
                    below, reports if is_command else -1
                ),
            )
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execve(command[0], command, environ)
    except OSError as error:
        _report_error(reports, error, has_reason=bool(words))
    finally:
        os._exit(127)


def _wait_for_descendants(child: int, reports: int) -> None:
    """Wait in the parent after a fork in `confine`, until no descendant is left; does not return.

    Args:
        child: the process id of the child.
        reports: the descriptor for the report of its end; negative for none, if a process below reports it.
    """
    _set(_PR_SET_DUMPABLE, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # These signals are for the command.
        signal.signal(number, signal.SIG_IGN)
    _leave_streams()
    code = 127
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(code)
        if pid == child and not os.WIFSTOPPED(status):
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else 128 - ended
            if reports >= 0:
                _report(reports, f"X {ended}")


def _confine(words: list[str], stay: "Callable[[int, bool], None]") -> None:
    _import_confine()
    sys.modules["confine"].confine(words, stay)


def _import_confine() -> None:
    if "confine" not in sys.modules:
        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox"))
        # The module is imported by name, as no package is known here.
        __import__("confine")


def _report_error(reports: int, error: OSError, *, has_reason: bool = True) -> None:
    why = str(error.strerror).replace("\n", " ") if has_reason else ""
    _report(reports, f"E {error.errno} {why}".rstrip())


def _report(reports: int, line: str) -> None:
    try:
        # The line may contain a path that is not valid text.
        os.write(reports, f"{line}\n".encode(errors="replace"))
    except OSError:
        # The program has ended, which the pipe of orders also shows.
        return


def _reap(child: int, reports: int, *, is_first: bool = False) -> bool:
    """Wait for the processes that have ended, and report the end of the command; return whether there are more children.

    Process 1 (`is_first`) without children is the last of its namespace, which is reported in the same breath: whoever reads the
    reports is woken once.
    """
    lines: list[str] = []
    has_more = True
    while has_more:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            has_more = False
            lines += ["L 0"] if is_first else []
            break
        if pid == 0:
            break
        # A child that asked to be traced is also reported when it stops.
        if pid == child and not os.WIFSTOPPED(status):
            lines.append(f"X {os.waitstatus_to_exitcode(status)}")
    if lines:
        _report(reports, "\n".join(lines))
    return has_more


def _kill_all(child: int, reports: int, wake: int) -> int:
    """Kill all descendants, in rounds until none is left; return how many survive `_ROUNDS` of them.

    Processes without a parent become children of this one, so there are no descendants where it has no children. The processes
    above a command in namespaces end right after it, and listing all processes of the machine would take longer.
    """
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    deadline = time.monotonic() + _ENDING_MS / 1000
    while _HAS_PROC:
        if not _reap(child, reports):
            return 0
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0 or not poll.poll(left_ms):
            break
        os.read(wake, 4096)
    for _ in range(_ROUNDS):
        _signal_all(child, signal.SIGKILL)
        _reap(child, reports)
        if not _below():
            return 0
        time.sleep(_ROUND_S)
    return len(_below())


def _signal_all(child: int, number: int) -> None:
    targets = _below()
    if not _HAS_PROC:
        targets.append(-child)
    for pid in targets:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def _below() -> list[int]:
    return alive_below(os.getpid())


def alive_below(pid: int) -> list[int]:
    """Return the ids of all descendants of a process that have not ended, from `/proc`; none if there is no `/proc`."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if _HAS_PROC else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                # The name, which may contain anything, is followed by the state and the parent.
                fields = file.read(4096).rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 1 and fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append(int(name))
    return all_below(pid, children)


def all_below(pid: int, children: dict[int, list[int]]) -> list[int]:
    """Return all descendants of a process, given the children of each."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
