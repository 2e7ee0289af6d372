"""Confines the calling process with Linux features that need no privileges; the process and its descendants cannot undo it.

Three mechanisms overlap, so that a mistake in one of them does not open the sandbox:

- namespaces for mounts, processes, System V IPC and, without network, the network: everything is mounted read-only except
writable paths, empty mounts hide secrets, `/tmp` and `/dev/shm` are private, processes outside have no process id inside, all
processes end with the first one, and the only network interface is a private loopback;
- Landlock: allows writing and creating files by folder and devices by name, denies tracing, signals to processes outside and
  abstract sockets of processes outside; without namespaces, also TCP;
- a seccomp filter for what both allow: system calls that undo them, key rings, simulated input to a terminal, and socket
families without network namespaces.

The prepared process imports this module, and where there is none the supervisor of each command, which is a new interpreter then;
with bubblewrap a second interpreter does too. Therefore it imports only the C module below `ctypes` (6 ms each time) and takes its arguments as words. A library
for the three system calls of Landlock would cost 30 ms of imports per command, one for the filter libseccomp and 24 ms. It
fails closed: any error is raised before the command starts.

The words come NUL-separated in a file of memory, so that no command line names what is hidden: `level:full`; `level:landlock`;
`level:filter` for bubblewrap, which makes the namespaces itself (it reads the filter from `FILTER_FD`, its arguments from
`ARGUMENTS_FD`, and each `open:PATH`, then each `is:CONTENT`, from the next descriptor after `FILTER_FD`; where it does not start the
command, it is started again); `network:on`; `tmp:FOLDER` (a private one that becomes `/tmp`); `write:PATH`; `layers:FOLDER` (the
private layers of the work folder), `home:FOLDER`, `plain:NAME/PATH` and `layer:NAME/PATH` (see `layers.py`), `private:FOLDER` (mounted on the folder
of temporary files, at `PRIVATE_AT`); `keep:PATH` (read-only, below a writable one); `pin:FOLDER` (a parent of one of these, which must
not be renamed); `hide:PATH`; `socket:PATH` (hidden too, if it still exists); `empty:PATH` (a folder that is empty but for what
follows, and what may be written); `show:PATH` (a file or folder in it that can be read); `link:PATH`, each with `to:TARGET`;
`text:PATH`, a file, each with `is:CONTENT`; `over:PLACE`, each with `lower:PATH` and `upper:FOLDER`, mounted before all others
(see `_lay_over`). With `level:view` these are all: the process is in a mount namespace of its own, and not confined. Paths are absolute and without links, parents before children. Each path is opened
once and without following links, because a command in the background can have put a link there since the policy was made.
"""

import errno
import os
import stat
import sys
import time
from _ctypes import (
    FUNCFLAG_CDECL,
    FUNCFLAG_USE_ERRNO,
    CFuncPtr,
    _SimpleCData,  # pyright: ignore[reportPrivateUsage]
    addressof,
    dlopen,
    dlsym,
    get_errno,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from _ctypes import Array
    from collections.abc import Callable, Iterable, Iterator, Sequence
else:
    import _signal as signal

# -- the C library --------------------------------------------------------------------------------------


class _Int(_SimpleCData):  # pyright: ignore[reportMissingTypeArgument]
    _type_ = "i"


class _Long(_SimpleCData):  # pyright: ignore[reportMissingTypeArgument]
    _type_ = "l"


class _Byte(_SimpleCData):  # pyright: ignore[reportMissingTypeArgument]
    _type_ = "B"


class _IntFunction(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = _Int


class _LongFunction(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = _Long


class _Library:
    """The functions of the C library, as attributes. They accept integers of 32 bits, read-only bytes, buffers and None;
    `get_errno` returns the number of the last error.
    """

    def __init__(self) -> None:
        # Without a name this opens the process itself, with the libraries that it has loaded.
        self._itself = dlopen(None, 0)  # pyright: ignore[reportArgumentType]

    def __getattr__(self, name: str) -> "Callable[..., int]":
        kind = _LongFunction if name == "syscall" else _IntFunction
        found: Callable[..., int] = kind(dlsym(self._itself, name))
        setattr(self, name, found)
        return found


_libc = _Library()


def _buffer(data: bytes) -> "Array[_Byte]":
    """Return a writable copy of these bytes."""
    return (_Byte * len(data)).from_buffer_copy(data)


def _packed(*values: int, size: int = 8) -> bytes:
    """Return unsigned integers in the machine's byte order, of `size` bytes each."""
    return b"".join(value.to_bytes(size, sys.byteorder) for value in values)


FILTER_FD, ARGUMENTS_FD = 99, 98
"""With `level:filter`: the descriptors of the filter and of bubblewrap's arguments (the words `argument`, and the arguments
that mount an empty file over each socket).
"""
STARTED = "started"
"""The line on standard error after which a command in bubblewrap runs; lines before it are bubblewrap's own."""
_HOME, _LEFT, _FILES = "home", "left", "files"
"""Names in the folders of a layer: for the parts over the home folder, removable remains of the kernel, and a work folder."""
PRIVATE_AT = "/tmp/.kimi-tui-caches"
"""The path of a command's private folder of caches, for tools that get it in a variable."""
_MOST_LAYERS = 64
"""The number of commands that can write to the caches of one work folder at once, each in a layer of its own; further ones only read."""
_TRIES = 10
_YOUNG_S = 2.0
"""Seconds. In a folder where sockets come and go, a younger one is likely to be gone before it is covered."""
_MOST_SAID = 4096
_OF_MOUNT_POINT = 0o444
"""The mode of an empty file that bubblewrap creates as a mount point if there is no file."""

# -- numbers of the kernel ------------------------------------------------------------------------------

_OPEN_TREE, _MOVE_MOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 437, 442
_FSOPEN, _FSCONFIG, _FSMOUNT, _CLOEXEC_MOUNT = 430, 431, 432, 1
_SET_FLAG, _SET_STRING, _CREATE = 0, 1, 6
_LOCK_SH, _LOCK_EX, _LOCK_NB = 1, 2, 4
_SET_LEASE, _READ_LEASE = 1024, 0
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x20000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_ANY_NAMESPACE = 0x7E020000
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_NO_OTHER_MOUNT, _NO_SYMLINKS = 0x1, 0x4
_CLONE_TREE, _CLOEXEC_TREE, _FROM_EMPTY, _TO_EMPTY, _MS_PRIVATE = (
    1,
    os.O_CLOEXEC,
    0x4,
    0x40,
    1 << 18,
)
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_PR_CAPBSET_DROP, _PR_NO_NEW_PRIVS, _PR_SECCOMP, _PR_CAP_AMBIENT = 24, 38, 22, 47
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _SIGKILL = 1, 4, 9
_CAP_VERSION = 0x20080522
_LAST_CAP = 63
_KEPT_CAPS = (0, 1, 3, 5, 6, 7, 10)
"""Capabilities that root keeps: for owners and modes of files, signals, users, low ports. The others administer the machine,
or keep set-user-id bits of a file that is written to.
"""
_SEARCH_CAPS = (1, 2)
"""Capabilities that root keeps for a search: to read files and folders with any modes."""
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_MOST_OF_SERVICES = 5000
_MOST_BESIDE = 5000
"""The largest number of entries that are allowed one by one, as each takes a Landlock rule of its own."""

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_BLOCK, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
_READS = _EXECUTE | _READ_FILE | _READ_DIR
_FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16, 8: 16}
"""The number of file system rights by ABI version of Landlock; from version 9 on there is one more, for sockets with a path."""
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", "/dev/pts")
"""Folders that are private to a command in namespaces."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_REFUSED_CALLS = {
    "x86_64": (
        *(321, 298, 323, 248, 249, 250, 246, 320, 175, 313, 176, 169, 167, 168, 163, 179, 443, 164),
        *(227, 159, 305, 170, 171, 172, 173, 304, 308, 165, 166, 155, 161, 428, 429, 430, 431, 432),
        *(433, 442, 467, 103, 212, 153, 300),
    ),
    "aarch64": (
        *(280, 241, 282, 217, 218, 219, 104, 294, 105, 273, 106, 142, 224, 225, 89, 60, 443, 170),
        *(
            112,
            171,
            266,
            161,
            162,
            265,
            268,
            40,
            39,
            41,
            51,
            428,
            429,
            430,
            431,
            432,
            433,
            442,
            467,
        ),
        *(116, 18, 58, 262),
    ),
}
"""The numbers of bpf, perf_event_open, userfaultfd, the key rings, loading kernels and modules, reboot, swap, accounting,
quotas, the clock, the host's name, ports, open_by_handle_at, setns, all mounting, chroot, the kernel's log, vhangup,
fanotify.
"""
_ABSENT_CALLS = (425, 426, 427, 435, 437)
"""io_uring bypasses seccomp, and the arguments of clone3 and openat2 are in memory, which a filter cannot read. Callers fall back
when these fail with ENOSYS."""
_SETS_MODE = {
    "x86_64": ((90, 1), (91, 1), (268, 2), (452, 2), (85, 1), (133, 1), (259, 2)),
    "aarch64": ((52, 1), (53, 2), (452, 2), (33, 2)),
}
"""chmod and its variants, creat and mknod, each with the index of the argument that is the mode."""
_OPENS = {"x86_64": ((2, 1), (257, 2)), "aarch64": ((56, 2),)}
"""open and openat, each with the index of the argument that is the flags; the mode follows it, and counts only where a file is
created."""
_MAKES_FILE = os.O_CREAT | 0o20000000
"""O_CREAT, or O_TMPFILE for a file without a name."""
_CLONE = {"x86_64": (56, 272), "aarch64": (220, 97)}
_FCNTL = {"x86_64": 72, "aarch64": 25}
_HOLDS_OPENS_UP = (1024, 1040)
"""F_SETLEASE, F_SETDELEG: any process that opens such a file, even outside, would wait for the command."""
_IOCTL = {"x86_64": 16, "aarch64": 29}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_SENDS = {"x86_64": ((44, 3), (46, 2), (307, 3)), "aarch64": ((206, 3), (211, 2), (269, 3))}
_LIMITS = {"x86_64": 302, "aarch64": 261}
"""prlimit64, whose first argument is 0 for the process itself."""
_OF_ALL = {"x86_64": ((141, 2), (251, 3)), "aarch64": ((140, 2), (30, 3))}
"""setpriority and ioprio_set, each with the value of the first argument that means all processes of a user; 0 as the second
argument means the caller."""
_TYPING = (0x5412, 0x541C, 0x5423)
"""TIOCSTI, TIOCLINUX, TIOCSETD."""
_SNAPSHOTS = (0x50009401, 0x50009417, 0x5000943F, 0x4020BC10)
"""BTRFS_IOC_SNAP_CREATE and its V2, BTRFS_IOC_SNAP_DESTROY_V2, BCH_IOCTL_SUBVOLUME_CREATE: a snapshot of another subvolume,
made in a writable folder, would show hidden files; and a snapshot can be destroyed by its id.
"""
_OF_CHANGES = {
    "x86_64": (
        *(57, 58, 85, 133, 259, 76, 77, 285, 82, 264, 316, 83, 258, 84, 87, 263, 86, 265, 88, 266),
        *(90, 91, 268, 452, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199),
        *(463, 466, 469, 73, 62, 200, 234, 129, 297, 424, 101, 310, 311, 438, 434, 141, 251, 142),
        *(144, 203, 314, 29, 30, 31, 64, 65, 66, 220, 68, 69, 70, 71, 240, 41, 53),
    ),
    "aarch64": (
        *(33, 45, 46, 47, 38, 276, 34, 35, 37, 36, 52, 53, 452, 54, 55, 88, 5, 6, 7, 14, 15, 16),
        *(463, 466, 469, 32, 129, 130, 131, 138, 240, 424, 117, 270, 271, 438, 434, 140, 30, 118),
        *(119, 122, 274, 194, 195, 196, 190, 191, 192, 193, 186, 187, 188, 189, 180, 198, 199),
    ),
}
"""System calls that a search does not need: new processes; creating, renaming, truncating and removing files; modes, owners,
times, attributes, locks, signals, tracing, settings of other processes, System V IPC, queues and sockets."""
_THREAD = 0x10000
_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | _MAKES_FILE
_SEARCH_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
_SEARCH_FCNTL = (*_HOLDS_OPENS_UP, 6, 7, 37, 38, 8, 10, 15, 1026)
"""The fcntl commands that a search is denied: leases, locks, and signals to other processes on input or changes."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_FASTOPEN = 0x20000000


_KINDS = ("write", "keep", "pin", "hide", "socket", "empty", "show", "link", "to", "text", "is")
_OVER_KINDS = ("over", "lower", "upper")
_READ_ONLY = "read-only"
_OF_HOME = "mode=755,size=16m"
_CONNECTIONS = ([b"0001", b"03"], [b"0005", b"03"])
"""Types and states in the kernel's list of sockets: those of a connection. A socket of datagrams may have a peer and still take those
of others.
"""
_LOCAL = frozenset(b"ext2 ext3 ext4 xfs btrfs f2fs bcachefs tmpfs devtmpfs devpts proc".split())
"""File systems in which no file changes but through this kernel."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_OF_KEYS = ("/proc/keys", "/proc/key-users")
"""Files with the names of key rings, which the refused system calls would reveal too."""

Step = tuple[int, int, int, int]
"""One instruction of a BPF program: code, jump offsets for true and for false, operand."""


def confine(words: list[str], stay: "Callable[[int, bool], None]") -> None:
    """Confine this process, which must have one thread. With `level:full` it returns in a grandchild of the caller.

    Args:
        words: the words described in the module's docstring.
        stay: called in the parent after each fork, with the child's process id and whether the child becomes the command; it
            waits until no descendant is left, and does not return.

    Raises:
        OSError: the process is not or not completely confined; do not start the command.
    """
    paths, said = _told(words)
    online = said["network"] == "on"
    if said["level"] == "filter":
        code = _written_filter(_filter(is_full=True, online=online, sockets=False))
        _begin_bubblewrap(code, paths, stay)
        return
    here = os.getcwd()
    if said["level"] == "view":
        _enter(_NEWNS)
        _lay_over(paths)
        os.chdir(here)
        return
    abi = _needed_abi()
    if said["level"] == "full":
        sockets = [*paths["socket"], *sockets_of_others(paths["write"])]
        own_user = not _unshare(online)
        end_with_parent(_SIGKILL)
        _go_on_below(stay, is_command=False)
        held = _set_up(paths, said, sockets, here, own_user=own_user, abi=abi)
        _go_on_below(stay, is_command=True)
        os.setsid()
        confine_command(held)
        return
    _drop_capabilities(_KEPT_CAPS if os.geteuid() == 0 else ())
    confine_command(_held(abi, paths, [*paths["write"], os.path.realpath(said["tmp"])], said))


class Held:
    """The values that a process needs to confine itself like a command.

    Attributes:
        rules: the descriptor of a Landlock ruleset.
        code: the filter in the kernel's format.
        covers: the mounts that confine it; None without namespaces.
    """

    __slots__ = ("code", "covers", "rules")

    def __init__(self, rules: int, code: bytes, covers: "Covers | None" = None) -> None:
        self.rules, self.code, self.covers = rules, code, covers


class Covers:
    """The mounts with which a process was confined, and what could not be mounted.

    Attributes:
        places: the real paths over which something was mounted, in the folders outside.
        shown: those of shown files and folders, which are mounted in an emptied folder.
        missing: paths of hidden files and of sockets that did not exist, so that nothing lies over them.
        links: hidden paths that are links, over which nothing lies, with their targets.
        n_gone: the number of what may be there for a later command: shown files and folders that did not exist, and layers over
            caches for which there was no room.
        lock: the descriptor of the lock of the layer that it writes to; -1 for none.
    """

    __slots__ = ("links", "lock", "missing", "n_gone", "places", "shown")

    def __init__(self) -> None:
        self.places: list[str] = []
        self.shown: list[str] = []
        self.missing: list[str] = []
        self.links: dict[str, str] = {}
        self.n_gone = 0
        self.lock = -1


def fork_first(online: bool) -> tuple[int, bool]:
    """Fork a child that is process 1 of new namespaces for a command. This process must have one thread.

    Returns:
        the child's process id, 0 in the child, negative where the kernel refuses; and whether it has a user namespace of its own.
    """
    flags = _NEWNS | _NEWIPC | _NEWPID | (0 if online else _NEWNET) | signal.SIGCHLD
    clone = _CLONE[os.uname().machine][0]
    child = _libc.syscall(clone, flags, None, None, None, None) if os.geteuid() == 0 else -1
    if child >= 0:
        return child, False
    return _libc.syscall(clone, flags | _NEWUSER, None, None, None, None), True


def set_up_first(words: list[str], seen: "Sockets", ids: "tuple[int, int] | None" = None) -> "Held":
    """Confine a process that `fork_first` made, up to `confine_command`, after which it can do no more than the command.

    Args:
        words: the words, with `level:full`.
        seen: the sockets outside.
        ids: the user and group outside, if it has a user namespace of its own.

    Raises:
        OSError: it is not completely confined; do not start the command.
    """
    paths, said = _told(words)
    abi = _needed_abi()
    here = os.getcwd()
    if ids is not None:
        _map_user(*ids)
    sockets = [*paths["socket"], *sockets_of_others(paths["write"], seen)]
    return _set_up(paths, said, sockets, here, own_user=ids is not None, abi=abi)


def _told(words: list[str]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the words by their kinds: those that may come several times, and the others."""
    paths: dict[str, list[str]] = {
        name: [] for name in (*_KINDS, *_OVER_KINDS, "open", "argument", "plain", "layer")
    }
    said = {"level": "full", "network": "off", "tmp": "", "layers": "", "home": "", "private": ""}
    for word in words:
        kind, _, value = word.partition(":")
        if kind in paths:
            paths[kind].append(value)
        elif kind in said:
            said[kind] = value
        else:
            raise OSError(errno.EINVAL, f"unknown argument: {kind}")
    return paths, said


def _needed_abi() -> int:
    abi = landlock_abi()
    if abi < 1:
        raise OSError(errno.ENOSYS, "Landlock is not available")
    return abi


def _set_up(
    paths: dict[str, list[str]],
    said: dict[str, str],
    sockets: list[str],
    here: str,
    *,
    own_user: bool,
    abi: int,
) -> "Held":
    """Set up the mounts of a command in process 1 of its namespaces, and give up what that needs."""
    _lay_over(paths)
    covers = Covers()
    kept = _kept_from_reset(said["layers"])
    laid = _layers(said["layers"], said["home"], paths["plain"], paths["layer"], covers)
    if said["private"]:
        _make_folder(said["private"], 0o700)
        laid.append((PRIVATE_AT, _tree(said["private"])))
    _cover(paths, said["tmp"], sockets, laid, covers)
    if kept >= 0:
        os.close(kept)
    if said["network"] != "on":
        _raise_loopback()
    _drop_capabilities(() if own_user else _KEPT_CAPS)
    # The current folder is still on the read-only mount, so it is entered again by its path.
    os.chdir(here)
    # The command cannot trace this process; exec makes the command itself traceable again.
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "turning off tracing")
    writable = [*paths["write"], *(place for place, _ in laid)]
    writable += [os.path.realpath(path) for path in _PRIVATE]
    held = _held(abi, paths, writable, said)
    held.covers = covers
    return held


def _held(
    abi: int, paths: dict[str, list[str]], writable: list[str], said: dict[str, str]
) -> "Held":
    is_full, online = said["level"] == "full", said["network"] == "on"
    hidden = [*paths["hide"], *paths["empty"]]
    rules = _rules_for(abi, writable, hidden, paths["show"], is_full=is_full, online=online)
    return Held(rules, _code_for(is_full=is_full, online=online, sockets=abi >= 9))


class Standing:
    """Tells whether everything that confines a process is as it was when it was set up: its mounts, and the sockets outside.

    Args:
        listed: a descriptor of the kernel's list of sockets outside.
        seen: the sockets that were found before it was set up.
        covers: what was mounted.
        lease: the descriptor of the lease on its layer (`_lease`); -1 for none.

    Attributes:
        table: a descriptor of the table of mounts, which tells when one is gone, as one is whose file is removed or replaced.

    Raises:
        OSError: the table of mounts cannot be read, or something changed since the mounts were made.
    """

    def __init__(self, listed: int, seen: "Sockets", covers: "Covers", lease: int = -1) -> None:
        self._listed, self._covers, self._lease = listed, covers, lease
        # One that was gone before it was covered, and comes back, is a new one.
        there = filter(os.path.lexists, seen.of_services)
        self._bound, self._of_services = seen.bound, frozenset(there)
        self.table = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._mounts = _whole(self.table)
        self._top = os.stat("/").st_mtime_ns
        points = _mount_points(self._mounts)
        if covers.n_gone or not points.keys() >= {*map(os.fsencode, covers.places + covers.shown)}:
            raise OSError(errno.ESTALE, "something was missing, or replaced while it was covered")
        far = [os.fsdecode(point).rstrip("/") for point, kinds in points.items() if kinds - _LOCAL]
        self._far = [path for path in covers.places if _below(path, far)]

    def has_same_sockets(self) -> bool:
        """Return whether no socket has appeared outside."""
        now = Sockets(self._listed)
        return now.bound <= self._bound and self._of_services.issuperset(now.of_services)

    def has_same_mounts(self) -> bool:
        """Return whether each mount still lies where it lay, over the same file, with the same file in it.

        The kernel's table names where a mount lies now: a file that is renamed takes its cover along, one that is removed or
        replaced loses it, and what was mounted from it is marked as deleted. Landlock has a rule for each entry of the top folder.
        """
        for path in self._far:
            # A file system of a network or another machine learns that a file was replaced there when its name is looked up, and
            # only then takes the cover away.
            os.path.lexists(path)
        if any(map(os.path.lexists, self._covers.missing)):
            return False
        if any(_target(path) != was for path, was in self._covers.links.items()):
            return False
        return _whole(self.table) == self._mounts and os.stat("/").st_mtime_ns == self._top

    def close(self) -> None:
        """Close the descriptors. From now on the process keeps its layer, even if another program wants it."""
        os.close(self._listed)
        os.close(self.table)
        if self._lease >= 0:
            # No signal comes any more once the lease is gone.
            os.close(self._lease)
            signal.signal(signal.SIGIO, signal.SIG_DFL)


def _target(link: str) -> str:
    """Return the target of a link; empty for anything else."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _mount_points(table: bytes) -> "dict[bytes, set[bytes]]":
    """Return the places in a table of mounts, without those whose file was removed after it was mounted there, and the kinds of
    file systems at each.
    """
    found: dict[bytes, set[bytes]] = {}
    for line in table.split(b"\n"):
        fields = line.split(b" ", 5)
        if len(fields) == 6 and not fields[3].endswith(b"//deleted"):
            first, *others = fields[4].split(b"\\")
            place = first + b"".join(bytes([int(one[:3], 8)]) + one[3:] for one in others)
            kind = fields[5].partition(b" - ")[2].partition(b" ")[0]
            found.setdefault(place, set()).add(kind)
    return found


def _whole(descriptor: int) -> bytes:
    """Return all of a file of the kernel, read anew."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    found = [b" "]
    while found[-1]:
        found.append(os.read(descriptor, 1 << 16))
    return b"".join(found)


def set_up_ahead(
    words: list[str], sockets_from: int, ids: "tuple[int, int] | None"
) -> "tuple[Held, Standing]":
    """Confine a process that `fork_first` made completely, for a command that is not known yet. It ends as soon as another program
    wants its layer of caches.

    Args:
        words, ids: as for `set_up_first`.
        sockets_from: a descriptor of the kernel's list of sockets (`/proc/net/unix`), opened outside the namespaces.

    Raises:
        OSError: it is not completely confined; end it.
    """
    seen = Sockets(sockets_from)
    held = set_up_first(words, seen, ids)
    covers = held.covers or Covers()
    # A confined process can take no lease.
    lease = _lease(covers.lock)
    confine_command(held)
    return held, Standing(sockets_from, seen, covers, lease)


def confine_command(held: "Held") -> None:
    """Confine this process, which then executes or starts the command; once, if it is called again.

    Raises:
        OSError: it is not completely confined; do not start the command.
    """
    if held.rules < 0:
        return
    _check(_libc.prctl(_PR_NO_NEW_PRIVS, 1, 0, 0, 0), "turning off new privileges")
    _check(_libc.syscall(_RESTRICT_SELF, held.rules, 0), "Landlock")
    os.close(held.rules)
    _install(held.code)
    held.rules = -1


def confine_reader(readable: "Sequence[str]") -> None:
    """Confine this process to reading what is below some paths and to the descriptors that it has: it changes nothing, opens no
    socket and starts no process. It goes on with what the kernel has of that, so it is for a process that has limits besides.
    """
    try:
        _check(_libc.prctl(_PR_NO_NEW_PRIVS, 1, 0, 0, 0), "turning off new privileges")
        if (abi := landlock_abi()) >= 1:
            rules, handled = _ruleset(abi, closes_net=True)
            for path in readable:
                try:
                    opened = _opened(path)
                except OSError:
                    continue
                _allow(rules, opened, (_READ_FILE | _READ_DIR) & handled, path)
                os.close(opened)
            _check(_libc.syscall(_RESTRICT_SELF, rules, 0), "Landlock")
            os.close(rules)
    except OSError:
        # The filter of calls does not need Landlock.
        pass
    try:
        _set_filter(_filter(is_full=False, online=False, sockets=False, searches=True))
    except OSError:
        return


def landlock_abi() -> int:
    """Return the kernel's ABI version of Landlock; less than 1 if it has none."""
    return _libc.syscall(_CREATE_RULESET, None, 0, 1)


def _check(result: int, step: str) -> int:
    if result < 0:
        number = get_errno()
        raise OSError(number, f"{step}: {os.strerror(number)}")
    return result


# -- namespaces -----------------------------------------------------------------------------------------


def _unshare(online: bool) -> bool:
    """Enter the namespaces of a command; return whether that was done as root, without a user namespace."""
    return _enter(_NEWNS | _NEWIPC | _NEWPID | (0 if online else _NEWNET))


def _enter(flags: int) -> bool:
    """Enter new namespaces; return whether that was done as root, without a user namespace."""
    if os.geteuid() == 0 and _libc.unshare(flags) == 0:
        return True
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(flags | _NEWUSER), "namespaces")
    _map_user(user, group)
    return False


def _map_user(user: int, group: int) -> None:
    """Let a user and a group outside be themselves in this process's new user namespace."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "wb", buffering=0) as file:
            file.write(text.encode())


def _go_on_below(stay: "Callable[[int, bool], None]", *, is_command: bool) -> None:
    """Continue in a child. The first child is process 1 of the new namespace: when it ends, all processes in the namespace end."""
    child = os.fork()
    if child:
        stay(child, is_command)
        os._exit(127)
    if not is_command:
        end_with_parent(_SIGKILL)


def end_with_parent(number: int) -> None:
    """Have this process get a signal when its parent ends. Entering a user namespace resets this.

    Raises:
        OSError: the system refused.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "ending with the parent process")


def _cover(
    paths: dict[str, list[str]],
    tmp: str,
    sockets: list[str],
    laid: "Sequence[tuple[str, int]]" = (),
    covers: "Covers | None" = None,
) -> None:
    """Mount everything read-only except writable paths, and mount empty files or folders over hidden ones.

    Args:
        paths: the words, by their kinds.
        tmp: the folder that becomes `/tmp`.
        sockets: sockets that are hidden too, if they exist.
        laid: private mounts and their places, shallow ones first; they are mounted before those of `paths`.
        covers: takes what was mounted.
    """
    covers = covers or Covers()
    paths = {**{kind: [] for kind in (*_KINDS, "plain")}, **paths}
    _set_mount(_AT_FDCWD, "/", 0, flags=_AT_RECURSIVE, propagation=_MS_PRIVATE)
    trees = [(path, _tree(path)) for path in paths["write"]]
    private = {"/tmp": _tree(tmp), "/var/tmp": _tree(tmp)} if tmp else {}
    devices = _tree("/dev")
    _set_mount(devices, "", _RDONLY | _NOSUID, flags=_AT_RECURSIVE | _AT_EMPTY_PATH)
    # Device files elsewhere, which archives unpacked by root can contain, would be the machine's devices.
    _set_mount(_AT_FDCWD, "/", _RDONLY | _NOSUID | _NODEV, flags=_AT_RECURSIVE)
    # Mounts over places below a private folder would be mounted inside it.
    private_folders = ["/" + word.partition("/")[2] for word in paths["plain"]]
    within = [path for path in paths["show"] if _below(path, private_folders)]
    shown = list(_shown_trees([path for path in paths["show"] if path not in within], covers))
    layers = [path for path, _ in laid if path not in private_folders]
    below = [path for path in within if not _below(path, layers)]
    shown_within = list(_shown_trees(below, covers))
    _attach(devices, "/dev")
    for place, tree in private.items():
        if os.path.isdir(place) and not os.path.islink(place):
            _attach(tree, place)
    _mount("tmpfs", "/dev/shm", _NOSUID | _NODEV, "mode=1777")
    _private_terminals()
    _own_processes()
    points = [(path, _is_folder(tree)) for path, tree in (*laid, *trees)]
    _empty(paths, shown, points)
    covers.shown += [path for path, _ in shown]
    covers.places += [*paths["write"], *paths["pin"], *paths["keep"]]
    for path, tree in laid:
        if not os.path.lexists(path):
            os.makedirs(path)
        _set_mount(tree, "", _NOSUID | _NODEV, flags=_AT_RECURSIVE | _AT_EMPTY_PATH)
        _attach(tree, path)
    for path, tree in shown_within:
        try:
            _make_point(path, _is_folder(tree))
            _attach(tree, path)
            covers.shown.append(path)
        except OSError:
            # A command replaced that place by something else, so it is not shown.
            continue
    for path, tree in trees:
        if not os.path.lexists(path):
            # The path is in one of the private folders, which are empty.
            os.makedirs(path)
        _set_mount(tree, "", _NODEV, flags=_AT_RECURSIVE | _AT_EMPTY_PATH)
        _attach(tree, path)
    for path in paths["pin"]:
        _hold(path)
    for path in paths["keep"]:
        _hold(path, _RDONLY)
    hidden: list[str] = []
    for path in (*paths["hide"], *sockets):
        if any(path.startswith(f"{above}/") for above in hidden):
            continue
        try:
            place = _opened(path)
        except OSError as error:
            is_covered = error.errno == errno.ENOENT and (
                (_under_private(path) and not _below(path, paths["write"]))
                or _below(path, [place for place, _ in laid])
            )
            if path in paths["hide"] and not is_covered:
                # If the file was renamed since the policy was made, the command could read it under the new name.
                raise
            covers.missing.append(path)
            continue
        mode = os.fstat(place).st_mode
        if stat.S_ISDIR(mode):
            flags = _RDONLY | _NOSUID | _NODEV | _NOEXEC
            _mount("tmpfs", f"/proc/self/fd/{place}", flags, "mode=000,size=4k")
            hidden.append(path)
            covers.places.append(path)
        elif not stat.S_ISLNK(mode):
            # Nobody, not even root, can open a device on a mount with `nodev`.
            tree = _tree("/dev/null")
            _set_mount(tree, "", _RDONLY | _NODEV, flags=_AT_EMPTY_PATH)
            try:
                _attach_at(tree, place, path)
                covers.places.append(path)
            except OSError as error:
                if path in paths["hide"] or error.errno != errno.ENOENT:
                    raise
                # The socket was removed since it was opened.
                os.close(tree)
                covers.missing.append(path)
        else:
            covers.links[path] = _target(path)
        os.close(place)


def _shown_trees(paths: list[str], covers: "Covers") -> "Iterator[tuple[str, int]]":
    """Yield each path that still exists, with a detached copy of its mounts; count the others."""
    for path in paths:
        try:
            yield path, _tree(path)
        except OSError as error:
            # The path was removed since it was listed, or replaced by a link, so it is not shown.
            covers.n_gone += error.errno == errno.ENOENT
            continue


def _is_folder(place: int) -> bool:
    return stat.S_ISDIR(os.fstat(place).st_mode)


def _empty(
    paths: dict[str, list[str]], shown: list[tuple[str, int]], points: list[tuple[str, bool]]
) -> None:
    """Mount an empty folder over each folder to be emptied, with the shown parts in it, read-only.

    Args:
        paths: the words, by their kinds.
        shown: files and folders that are shown, each with a detached copy of its mounts.
        points: the other mount points, and whether each is a folder.
    """
    for folder in paths["empty"]:
        if _under_private(folder):
            os.makedirs(folder, exist_ok=True)
        place = _opened(folder)
        _mount("tmpfs", f"/proc/self/fd/{place}", _NOSUID | _NODEV, _OF_HOME)
        os.close(place)
    for path, is_folder in [*((path, _is_folder(tree)) for path, tree in shown), *points]:
        if _below(path, paths["empty"]) and not os.path.lexists(path):
            _make_point(path, is_folder)
    for path, text in zip(paths["text"], paths["is"], strict=True):
        _make_point(path, False)
        with open(path, "wb", buffering=0) as file:
            file.write(os.fsencode(text))
    for path, target in zip(paths["link"], paths["to"], strict=True):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    for folder in paths["empty"]:
        _set_mount(_AT_FDCWD, folder, _RDONLY | _NOSUID | _NODEV, flags=0)
    for path, tree in shown:
        _attach(tree, path)


def _make_folder(path: str, mode: int = 0o777) -> None:
    """Create a folder, with those above it, if it is missing. This is `os.makedirs` with fewer calls where most of them exist."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        _make_folder(os.path.dirname(path))
        _make_folder(path, mode)


def _make_point(path: str, is_folder: bool) -> None:
    _make_folder(path if is_folder else os.path.dirname(path))
    if not is_folder:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def _under_private(path: str) -> bool:
    return path.startswith(("/tmp/", "/var/tmp/", "/dev/shm/"))


def _lay_over(paths: dict[str, list[str]]) -> None:
    """Mount other files over places: each `lower` at its `over`, with an overlay that keeps what is written in the folder `upper`.

    Where `upper` is empty, the file or folder itself is mounted, and `read-only` mounts it so. All of them are opened before
    the first is mounted, as a place may cover the next one's `lower`.

    Raises:
        OSError: one of them cannot be mounted.
    """
    if not paths["over"]:
        return
    _set_mount(_AT_FDCWD, "/", 0, flags=_AT_RECURSIVE, propagation=_MS_PRIVATE)
    trees: list[int] = []
    for lower, upper in zip(paths["lower"], paths["upper"], strict=True):
        if upper in ("", _READ_ONLY):
            tree = _tree(lower)
            to = _RDONLY if upper else 0
            _set_mount(tree, "", to | _NOSUID | _NODEV, flags=_AT_RECURSIVE | _AT_EMPTY_PATH)
        else:
            place = _opened(lower)
            tree = _overlay([f"{upper}/upper"], f"{upper}/work", _FILES, place)
            os.close(place)
        trees.append(tree)
    for place, tree in zip(paths["over"], trees, strict=True):
        _attach(tree, place)


def _layers(
    folder: str, base: str, plain: list[str], overlaid: list[str], covers: "Covers"
) -> "list[tuple[str, int]]":
    """Make the private layers over caches, detached: return each place with its mount, shallow ones first.

    One overlay over the home folder contains all caches in it, and is never mounted as a whole: each overlay costs the
    creation of a few folders on the disk. A cache on another file system has an overlay of its own; so has each cache if the
    kernel allows none over the home folder, because something is mounted inside. If no overlay is possible, the cache stays
    as it is, which is read-only.

    Args:
        folder: the folder of a work folder's layers; empty for none.
        base: the home folder.
        plain: places of folders that replace the user's; `overlaid` are places of folders that are laid over the user's. Each
            is a name and an absolute path.
        covers: takes the number of layers for which there was no room, and the lock of the layer that is written to.
    """
    if not folder:
        return []
    _set_mount(_AT_FDCWD, "/", 0, flags=_AT_RECURSIVE, propagation=_MS_PRIVATE)
    laid: list[tuple[str, int]] = []
    for word in plain:
        name, _, place = word.partition("/")
        _make_folder(f"{folder}/plain/{name}", 0o700)
        laid.append((f"/{place}", _tree(f"{folder}/plain/{name}")))
    own, covers.lock = _taken_layer(folder) if overlaid else ("", -1)
    covers.n_gone += bool(overlaid and not own)
    others = [name for name in os.listdir(folder) if name.isdecimal() and name != own]
    tops = [f"{folder}/{one}/upper" for one in (own, *sorted(others, key=int))]
    home, whole = -1, -1
    if own:
        try:
            home = _opened(base)
            whole = _overlay(tops, f"{folder}/{own}/work", _HOME, home)
        except OSError:
            whole = -1
    for word in overlaid if own else ():
        name, _, place = word.partition("/")
        below = place[len(base) :] if f"/{place}".startswith(f"{base}/") else ""
        try:
            tree = _within(whole, home, below) if below else -1
            if tree < 0:
                name = f"{_HOME}/{below}" if below else name
                tree = _overlay(tops, f"{folder}/{own}/work", name, _opened(f"/{place}"))
        except OSError as error:
            covers.n_gone += error.errno in _NO_ROOM
            continue
        laid.append((f"/{place}", tree))
    for one in (home, whole):
        if one >= 0:
            os.close(one)
    return laid


def _within(whole: int, home: int, below: str) -> int:
    """Return a detached mount of a folder in the overlay over the home folder; -1 if something else is mounted above it."""
    if whole < 0:
        return -1
    how = _packed(os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _NO_SYMLINKS | _NO_OTHER_MOUNT)
    same = _libc.syscall(_OPENAT2, home, os.fsencode(below), how, len(how))
    if same < 0:
        return -1
    os.close(same)
    place = _check(_libc.syscall(_OPENAT2, whole, os.fsencode(below), how, len(how)), below)
    tree = _tree_at(place, below)
    os.close(place)
    return tree


def _kept_from_reset(folder: str) -> int:
    """Wait until no other process resets the layers of a work folder, and return a descriptor until whose end none begins to.

    Args:
        folder: their folder, which is made if it is gone; empty for none, for which -1 is returned.
    """
    if not folder:
        return -1
    path, flags = f"{folder}/reset", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            lock = os.open(path, flags, 0o600)
        except FileNotFoundError:
            _make_folder(folder, 0o700)
            continue
        _libc.flock(lock, _LOCK_SH)
        # The folder may have been moved away meanwhile.
        try:
            is_there = os.path.samestat(os.fstat(lock), os.stat(path))
        except FileNotFoundError:
            is_there = False
        if is_there:
            return lock
        os.close(lock)


def _taken_layer(folder: str) -> tuple[str, int]:
    """Return the number of the first layer that no other command uses, empty if none is free, and the descriptor of its lock.

    It is locked as long as this process or a child of it without another program lives.
    """
    for number in range(_MOST_LAYERS):
        # The file is not opened for writing: a mount with a file open for writing cannot be made read-only.
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(f"{folder}/{number}.lock", flags, 0o600)
        if _libc.flock(lock, _LOCK_EX | _LOCK_NB) == 0:
            os.utime(lock)
            return str(number), lock
        os.close(lock)
    return "", -1


def _lease(lock: int) -> int:
    """Have this process give up its layer and end when somebody opens the layer's lock for writing (`layers.reset`).

    The kernel sends a signal, and lets the process that opens the file wait until the lease is gone. A watch of the file would
    tell the same, but the kernel takes 15 ms to end a watch.

    Returns:
        the descriptor of the lease, which is gone when that is closed; -1 where the file system has none.
    """

    def give_up(number: int, frame: object) -> None:
        # The layer has to be free before the lease is gone.
        os.close(lock)
        os._exit(127)

    if lock < 0:
        return -1
    try:
        lease = os.open(f"/proc/self/fd/{lock}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    # Process 1 of a namespace does not get a signal that it has no function for.
    signal.signal(signal.SIGIO, give_up)
    if _libc.fcntl(lease, _SET_LEASE, _READ_LEASE) < 0:
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        os.close(lease)
        return -1
    return lease


def _overlay(tops: list[str], works: str, name: str, lower: int) -> int:
    """Make a detached overlay mount.

    It never waits for the disk (`volatile`): otherwise the end of each command would sync the layer's file system.

    Args:
        tops: the folders with the written files of the layers, the writable one first; the others are only read.
        works: the folder for the kernel's own files.
        name: the path of this mount's part in each of `tops`.
        lower: a descriptor of the folder that is read below all of them.

    Raises:
        OSError: the kernel or the file system has no overlays.
    """
    upper, work = f"{tops[0]}/{name}", f"{works}/{name.replace('/', '%')}"
    for path in (upper, work):
        _make_folder(path, 0o700)
    try:
        # The last mount's `work` folder makes the kernel refuse the layer as not synced. A rename is faster than removing it.
        _make_folder(f"{works}/{_LEFT}")
        os.rename(f"{work}/work", f"{works}/{_LEFT}/{os.urandom(8).hex()}")
    except FileNotFoundError:
        pass
    below = [_opened(f"{top}/{name}") for top in tops[1:] if os.path.isdir(f"{top}/{name}")]
    held = [_opened(upper), _opened(work), *below, os.dup(lower)]
    # The folders are named by descriptors: a path could contain a character with a meaning in the list of options.
    upper_at, work_at, *below_at = (f"/proc/self/fd/{one}" for one in held)
    context = -1
    try:
        context = _check(_libc.syscall(_FSOPEN, b"overlay", _CLOEXEC_MOUNT), "overlay")
        for key, value in (
            ("lowerdir", ":".join(below_at)),
            ("upperdir", upper_at),
            ("workdir", work_at),
            ("index", "off"),
            ("xino", "off"),
        ):
            words = (key.encode(), value.encode(), 0)
            _check(_libc.syscall(_FSCONFIG, context, _SET_STRING, *words), f"overlay: {key}")
        for key in (b"userxattr", b"volatile"):
            _check(_libc.syscall(_FSCONFIG, context, _SET_FLAG, key, None, 0), "overlay")
        _check(_libc.syscall(_FSCONFIG, context, _CREATE, None, None, 0), "overlay")
        flags = _NOSUID | _NODEV
        return _check(_libc.syscall(_FSMOUNT, context, _CLOEXEC_MOUNT, flags), "overlay")
    finally:
        for one in held:
            os.close(one)
        if context >= 0:
            os.close(context)


def try_layers(folder: str) -> None:
    """Lay an overlay over a folder of three files and change them, to test whether this machine can; run it in a process of its own.

    Args:
        folder: an empty folder for the layers. It must be removed afterwards.

    Raises:
        OSError: the machine has no usable overlays.
    """
    below, place = f"{folder}/below", f"{folder}/place"
    for path in (f"{below}/folder", place):
        os.makedirs(path)
    for path in (f"{below}/file", f"{below}/folder/file"):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    _unshare(True)
    _set_mount(_AT_FDCWD, "/", 0, flags=_AT_RECURSIVE, propagation=_MS_PRIVATE)
    for number in range(2):
        tree = _overlay([f"{folder}/upper"], f"{folder}/work", "trial", _opened(below))
        _attach(tree, place)
        os.unlink(f"{place}/folder/file")
        os.rmdir(f"{place}/folder")
        os.mkdir(f"{place}/folder")
        with open(f"{place}/file", "a", encoding="utf-8") as file:
            file.write("changed")
        if os.listdir(f"{place}/folder") or os.stat(f"{below}/file").st_size:
            raise OSError(errno.EIO, "the overlay for package caches does not work")
        _check(_libc.umount2(os.fsencode(place), 0), "umount")
        os.rename(f"{folder}/upper", f"{folder}/used{number}")


def _private_terminals() -> None:
    """Mount a private `devpts`, without the user's terminals; if that is not possible, an empty folder."""
    try:
        _mount("devpts", "/dev/pts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=620")
        _attach(_tree("/dev/pts/ptmx"), "/dev/ptmx")
    except OSError:
        _mount("tmpfs", "/dev/pts", _RDONLY | _NOSUID | _NODEV | _NOEXEC, "mode=000,size=4k")


def _own_processes() -> None:
    """Mount a `/proc` that shows only the command's processes. If a container has mounts over parts of `/proc`, the kernel
    refuses that: the old `/proc` then still describes processes outside, but they have no process id in this namespace.
    """
    try:
        _mount("proc", "/proc", _RDONLY | _NOSUID | _NODEV | _NOEXEC, "")
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
    for path in _OF_KEYS:
        if os.path.exists(path):
            tree = _tree("/dev/null")
            _set_mount(tree, "", _RDONLY | _NODEV, flags=_AT_EMPTY_PATH)
            _attach(tree, path)


class Sockets:
    """The bound Unix sockets outside.

    Args:
        listed: a descriptor of the kernel's list of the sockets of a network namespace, which stays open; None for this process's own.

    Attributes:
        bound: the numbers and paths of those in the kernel's list. Each connection to a socket of streams has its path as
            well, but nothing connects to these, so they are left out.
        of_services: the paths of those in `/run`, as a service may have a network namespace of its own.
    """

    def __init__(self, listed: int | None = None) -> None:
        own = -1
        try:
            if listed is None:
                listed = own = os.open("/proc/net/unix", os.O_RDONLY | os.O_CLOEXEC)
            lines = _whole(listed).split(b"\n")
        except OSError:
            lines = []
        if own >= 0:
            os.close(own)
        self.bound: set[tuple[bytes, bytes]] = set()
        for line in lines:
            head, slash, path = line.partition(b" /")
            fields = head.split()
            if slash and fields[4:6] not in _CONNECTIONS:
                self.bound.add((fields[-1], b"/" + path))
        self.of_services = [*_sockets_of_services("/run")]


def sockets_of_others(writable: list[str], seen: "Sockets | None" = None) -> list[str]:
    """Return the paths of all bound Unix sockets: message bus, key agents, container engines. A program outside answers on each.

    Args:
        writable: paths that may be written; elsewhere in `/tmp` a command sees nothing.
        seen: the sockets; None for those of this process's network namespace.
    """
    seen = seen or Sockets()
    names = {path.decode(errors="surrogateescape") for _, path in seen.bound}
    real = {*_real_names(names), *seen.of_services}
    return sorted(name for name in real if not name.startswith("/tmp/") or _below(name, writable))


def _real_names(names: "Iterable[str]") -> "Iterator[str]":
    """Yield the real path of each; most are in a few folders, and few are links."""
    folders: dict[str, str] = {}
    for name in names:
        folder, _, last = name.rpartition("/")
        if folder not in folders:
            folders[folder] = os.path.realpath(folder or "/").rstrip("/")
        path = f"{folders[folder]}/{last}"
        yield os.path.realpath(path) if last in ("", ".", "..") or os.path.islink(path) else path


def _sockets_of_services(top: str) -> "Iterator[str]":
    # Folders of users and of removable media are mounts that may not answer; the sandbox hides those of users.
    passed_over = (f"{top}/user", f"{top}/media", f"{top}/mount")
    waiting = [top]
    n_seen = 0
    while waiting and n_seen < _MOST_OF_SERVICES:
        try:
            listing = os.scandir(waiting.pop())
        except OSError:
            continue
        with listing:
            for item in listing:
                n_seen += 1
                if item.is_symlink() or item.path in passed_over:
                    continue
                if item.is_dir(follow_symlinks=False):
                    waiting.append(item.path)
                elif not item.is_file(follow_symlinks=False):
                    yield item.path


def _below(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


_PATH_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_WITHOUT_LINKS = _packed(_PATH_FLAGS, 0, _NO_SYMLINKS)


def _opened(path: str) -> int:
    """Return a descriptor (`O_PATH`) of a path. No link is followed; the last name may be one.

    Raises:
        OSError: it does not exist, or a part before the last is a link.
    """
    opened = _libc.syscall(_OPENAT2, _AT_FDCWD, os.fsencode(path), _WITHOUT_LINKS, 24)
    if opened >= 0:
        return opened
    if get_errno() == errno.ENOSYS and os.path.realpath(path) == path:
        # The seccomp filter, once set, denies `openat2`; everything is mounted by then.
        return os.open(path, _PATH_FLAGS)
    return _check(opened, path)


def _tree(path: str) -> int:
    """Return a detached copy of the mounts at a path."""
    place = _opened(path)
    try:
        return _tree_at(place, path)
    finally:
        os.close(place)


def _tree_at(place: int, path: str) -> int:
    flags = _CLONE_TREE | _CLOEXEC_TREE | _AT_RECURSIVE | _AT_EMPTY_PATH
    return _check(_libc.syscall(_OPEN_TREE, place, b"", flags), path)


def _attach(tree: int, path: str) -> None:
    place = _opened(path)
    _attach_at(tree, place, path)
    os.close(place)


def _attach_at(tree: int, place: int, path: str) -> None:
    moved = _libc.syscall(_MOVE_MOUNT, tree, b"", place, b"", _FROM_EMPTY | _TO_EMPTY)
    _check(moved, path)
    os.close(tree)


def _hold(path: str, flags: int = 0) -> None:
    """Bind-mount a path onto itself, because a mount point can be neither renamed nor removed."""
    place = _opened(path)
    tree = _tree_at(place, path)
    if flags:
        _set_mount(tree, "", flags, flags=_AT_RECURSIVE | _AT_EMPTY_PATH)
    _attach_at(tree, place, path)
    os.close(place)


def _set_mount(folder: int, path: str, to: int, *, flags: int, propagation: int = 0) -> None:
    attr = _packed(to, 0, propagation, 0)
    done = _libc.syscall(_MOUNT_SETATTR, folder, os.fsencode(path), flags, attr, len(attr))
    _check(done, f"mount {path}")


def _mount(kind: str, path: str, flags: int, options: str) -> None:
    name = kind.encode()
    _check(
        _libc.mount(name, os.fsencode(path), name, flags, options.encode()),
        f"{kind} on {path}",
    )


def _raise_loopback() -> None:
    """Start the loopback of the new network namespace; tests that connect to a server of their own need it."""
    end = _check(_libc.socket(_INET, 1, 0), "loopback")
    request = b"lo".ljust(16, b"\0") + _IFF_UP.to_bytes(2, "little") + bytes(22)
    _check(_libc.ioctl(end, _SIOCSIFFLAGS, request), "loopback")
    os.close(end)


def _drop_capabilities(kept: tuple[int, ...]) -> None:
    _libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    for number in range(_LAST_CAP + 1):
        # The kernel has no higher number than the first that it refuses, or this process may drop none.
        if number not in kept and _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break
    header, now = _buffer(_packed(_CAP_VERSION, 0, size=4)), _buffer(bytes(24))
    _check(_libc.capget(header, now), "capabilities")
    mask = sum(1 << number for number in kept)
    # This is the second of six numbers: the permitted capabilities among the first 32.
    low = mask & int.from_bytes(bytes(now)[4:8], sys.byteorder)
    _check(_libc.capset(header, _packed(low, low, 0, 0, 0, 0, size=4)), "capabilities")


# -- Landlock -------------------------------------------------------------------------------------------


def _landlock(
    abi: int,
    writable: list[str],
    hidden: list[str],
    shown: list[str],
    *,
    is_full: bool,
    online: bool,
) -> None:
    rules = _rules_for(abi, writable, hidden, shown, is_full=is_full, online=online)
    _check(_libc.syscall(_RESTRICT_SELF, rules, 0), "Landlock")
    os.close(rules)


def _rules_for(
    abi: int,
    writable: list[str],
    hidden: list[str],
    shown: list[str],
    *,
    is_full: bool,
    online: bool,
) -> int:
    """Return the descriptor of the Landlock ruleset for a command."""
    # In a network namespace of its own, TCP reaches only the private loopback.
    rules, handled = _ruleset(abi, closes_net=not online and not is_full)

    def allow(path: str, rights: int) -> None:
        try:
            # At the top there is no folder above that could be a link.
            opened = os.open(path, _PATH_FLAGS) if path.rfind("/") == 0 else _opened(path)
        except OSError:
            return
        _allow(rules, opened, rights & handled, path)
        os.close(opened)

    allow("/", _READ_DIR | _EXECUTE)
    # There are no mounts over hidden paths, so everything else is allowed entry by entry.
    for path in _beside(["/dev"] if is_full else ["/dev", *hidden]):
        allow(path, _READS)
    for place in () if is_full else shown:
        for path in _beside(hidden, place):
            allow(path, _READS)
    for name in _DEVICES:
        allow(f"/dev/{name}", _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV)
    for path in writable:
        allow(
            path, handled & ~(_MAKE_CHAR | _MAKE_BLOCK | (0 if path == "/dev/pts" else _IOCTL_DEV))
        )
    return rules


def _ruleset(abi: int, *, closes_net: bool) -> tuple[int, int]:
    """Return the descriptor of a new ruleset without rules, and the file system rights that it handles."""
    handled = (1 << _FS_BITS.get(abi, 17)) - 1
    net = (15 if abi >= 10 else 3) if closes_net and abi >= 4 else 0
    attr = _packed(handled, net, 3 if abi >= 6 else 0)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    rules = _libc.syscall(_CREATE_RULESET, attr, len(attr), 0)
    return _check(rules, "Landlock"), handled


def _allow(rules: int, place: int, rights: int, name: str) -> None:
    """Allow these rights on the file or folder of a descriptor, and below it."""
    mode = os.fstat(place).st_mode
    if not stat.S_ISDIR(mode):
        # Links get no rights, as their targets have rules of their own.
        rights &= 0 if stat.S_ISLNK(mode) else _FILE_RIGHTS
    if rights:
        beneath = _packed(rights) + _packed(place, size=4)
        done = _libc.syscall(_ADD_RULE, rules, 1, beneath, 0)
        _check(done, f"Landlock: {name}")


def _beside(hidden: list[str], top: str = "/") -> list[str]:
    """Return the fewest folders and files below the top (or the top alone) that together hold everything except these paths."""
    if not any(one.startswith(f"{top.rstrip('/')}/") for one in hidden):
        return [top]
    found: list[str] = []
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            path = os.path.join(folder, name)
            if path in hidden:
                continue
            # Links are among them: they get no rights, as their targets have rules of their own.
            if any(one.startswith(f"{path}/") for one in hidden):
                waiting.append(path)
            else:
                found.append(path)
    return found


# -- seccomp --------------------------------------------------------------------------------------------

_STEP_BYTES = 8
_LD, _JEQ, _JGE, _JSET, _AND, _RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NO_NAMESPACE = [(_JSET, 0, 1, _ANY_NAMESPACE), (_RET, 0, 0, _ERRNO | errno.EPERM)]


def _filter(*, is_full: bool, online: bool, sockets: bool, searches: bool = False) -> list[Step]:
    machine = os.uname().machine
    if machine not in _ARCHES:
        raise OSError(errno.ENOSYS, f"there is no system call filter for {machine}")
    steps = [(_LD, 0, 0, 4), (_JEQ, 1, 0, _ARCHES[machine]), (_RET, 0, 0, _KILL), (_LD, 0, 0, 0)]
    if machine == "x86_64":
        # System calls of the x32 ABI have other numbers.
        steps += [(_JGE, 0, 1, 0x40000000), (_RET, 0, 0, _ERRNO | errno.ENOSYS)]

    def when(call: int, argument: int, rest: list[Step]) -> None:
        """Add the rule for a system call: load one of its arguments, run the instructions `rest`, then allow it."""
        body = [(_LD, 0, 0, 16 + 8 * argument), *rest, (_RET, 0, 0, _ALLOW)]
        steps.extend(((_JEQ, 0, len(body), call), *body))

    refuse = (_RET, 0, 0, _ERRNO | errno.EPERM)
    if searches:
        # The first block for a call decides; these are stricter than the ones below.
        for call, argument in _OPENS[machine]:
            when(call, argument, [(_JSET, 0, 1, _CHANGING), refuse])
        kept = [(_JEQ, len(_SEARCH_IOCTL) - at, 0, one) for at, one in enumerate(_SEARCH_IOCTL)]
        when(_IOCTL[machine], 1, [*kept, refuse])
        held = [step for one in _SEARCH_FCNTL for step in ((_JEQ, 0, 1, one), refuse)]
        when(_FCNTL[machine], 1, held)
        when(_CLONE[machine][0], 0, [(_JSET, 1, 0, _THREAD), refuse, *_NO_NAMESPACE])
    as_owner = [(_JSET, 0, 1, stat.S_ISUID), refuse]
    # Programs make these calls for each of thousands of files, and none is in the lists that follow: behind those lists, each of
    # these calls would be compared with all their entries.
    for call, argument in _OPENS[machine]:
        mode = (_LD, 0, 0, 16 + 8 * (argument + 1))
        when(call, argument, [(_JSET, 0, 3, _MAKES_FILE), mode, *as_owner])
    for call, requests in (
        (_IOCTL[machine], (*_TYPING, *_SNAPSHOTS)),
        (_FCNTL[machine], _HOLDS_OPENS_UP),
    ):
        when(call, 1, [step for one in requests for step in ((_JEQ, 0, 1, one), refuse)])
    for calls, number in (
        (_REFUSED_CALLS[machine], errno.EPERM),
        (_OF_CHANGES[machine] if searches else (), errno.EPERM),
        (_ABSENT_CALLS, errno.ENOSYS),
    ):
        for call in calls:
            steps += [(_JEQ, 0, 1, call), (_RET, 0, 0, _ERRNO | number)]
    for call in _CLONE[machine]:
        when(call, 0, _NO_NAMESPACE)
    for call, of_all in _OF_ALL[machine]:
        rest = [(_JEQ, 0, 1, of_all), refuse, (_LD, 0, 0, 24), (_JEQ, 1, 0, 0), refuse]
        when(call, 0, rest)
    when(_LIMITS[machine], 0, [(_JEQ, 1, 0, 0), refuse])
    for call, argument in _SETS_MODE[machine]:
        when(call, argument, as_owner)
    is_bare = not is_full and not online
    families = [_INET, _INET6, _NETLINK]
    if not is_bare or sockets:
        families.append(_UNIX)
    unknown = (_RET, 0, 0, _ERRNO | errno.EAFNOSUPPORT)
    kinds: list[Step] = []
    for at, family in enumerate(families):
        kinds.append((_JEQ, len(families) - at, 0, family))
    kinds.append(unknown)
    if is_bare:
        # Landlock controls only TCP: allow no other protocol of streams, and no other kind of socket.
        kinds += [
            (_JEQ, 9, 0, _UNIX),
            (_JEQ, 8, 0, _NETLINK),
            (_LD, 0, 0, 24),
            (_AND, 0, 0, 0xF),
            (_JEQ, 1, 0, 1),
            refuse,
            (_LD, 0, 0, 32),
        ]
        kinds += [(_JEQ, 2, 0, 0), (_JEQ, 1, 0, 6), refuse]
    when(_SOCKET[machine], 0, kinds)
    if is_bare:
        # TCP Fast Open connects in a send call, which Landlock does not check.
        for call, argument in _SENDS[machine]:
            when(call, argument, [(_JSET, 0, 1, _FASTOPEN), refuse])
    steps.append((_RET, 0, 0, _ALLOW))
    return steps


def _written_filter(steps: list[Step]) -> bytes:
    """Return a filter in the kernel's format (`struct sock_filter[]`)."""
    return b"".join(
        _packed(code, size=2) + _packed(yes, no, size=1) + _packed(value, size=4)
        for code, yes, no, value in steps
    )


def _set_filter(steps: list[Step]) -> None:
    _install(_written_filter(steps))


def _install(code: bytes) -> None:
    held = _buffer(code)
    program = _packed(len(code) // _STEP_BYTES, size=2) + bytes(6) + _packed(addressof(held))
    _check(_libc.prctl(_PR_SECCOMP, 2, program, 0, 0), "filter")


_codes: dict[tuple[bool, bool, bool, bool], bytes] = {}


def _code_for(
    *, is_full: bool, online: bool, sockets: bool = False, searches: bool = False
) -> bytes:
    """Return the filter of `_filter` in the kernel's format; each is made once in a process, and known to those forked from it."""
    key = is_full, online, sockets, searches
    if key not in _codes:
        steps = _filter(is_full=is_full, online=online, sockets=sockets, searches=searches)
        _codes[key] = _written_filter(steps)
    return _codes[key]


def prepare() -> None:
    """Make what does not depend on the words, in a process from which those of commands and searches will be forked."""
    try:
        for online in (False, True):
            _code_for(is_full=True, online=online, sockets=landlock_abi() >= 9)
        _code_for(is_full=False, online=False, searches=True)
    except OSError:
        # Each command will say why.
        return


# -- bubblewrap -----------------------------------------------------------------------------------------


def _begin_bubblewrap(
    code: bytes,
    paths: dict[str, list[str]],
    stay: "Callable[[int, bool], None]",
) -> None:
    """Continue in a child that becomes bubblewrap, with the descriptors that it reads; wait here until the command runs.

    Bubblewrap mounts by path, and fails if a socket was removed after it was listed. So it is started again with a new list,
    which omits the youngest sockets in folders where that happened, as these would be gone as well. Such a socket that stays
    is treated like one that is created while the command runs.

    Raises:
        OSError: bubblewrap did not start the command in `_TRIES` attempts.
    """
    end_with_parent(_SIGKILL)
    said = b""
    unsteady: set[str] = set()
    for _ in range(_TRIES):
        covered = _hand_over(code, paths, unsteady)
        heard, errors = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(errors, 2)
            os.close(heard)
            os.close(errors)
            return
        os.close(errors)
        said = _until_started(heard)
        _remove_mount_points(covered, paths["write"])
        if said.split(b"\n")[-2:] == [STARTED.encode(), b""]:
            stay(child, True)
            os._exit(127)
        os.close(heard)
        os.waitpid(child, 0)
        unsteady |= {os.path.dirname(path) for path in covered if not os.path.lexists(path)}
    why = said.decode(errors="replace").strip().rpartition("\n")[2]
    raise OSError(errno.EIO, why or "bubblewrap ended without a message")


def begin_behind(arguments: list[str]) -> None:
    """Execute a command in bubblewrap, confined by Landlock if the kernel has it; does not return.

    Landlock denies two things that mounts do not: writing to named pipes on read-only mounts, and abstract sockets.

    Args:
        arguments: the number of words, the words (as for `confine`: `network`, and `write` for each path), the command.
    """
    n_words = int(arguments[0])
    words, command = arguments[1 : n_words + 1], arguments[n_words + 1 :]
    try:
        if (abi := landlock_abi()) >= 1:
            writable = [word.removeprefix("write:") for word in words if word.startswith("write:")]
            writable += [os.path.realpath(path) for path in _PRIVATE]
            _landlock(abi, writable, [], [], is_full=True, online="network:on" in words)
        os.write(2, f"{STARTED}\n".encode())
    except OSError as error:
        os.write(2, f"{error.strerror}\n".encode())
        os._exit(1)
    os.dup2(1, 2)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(command[0], command)
    finally:
        os._exit(127)


def _until_started(heard: int) -> bytes:
    """Return the bytes from a pipe up to the line `STARTED`, or to its end."""
    said = b""
    while not said.endswith(f"{STARTED}\n".encode()) and len(said) < _MOST_SAID:
        data = os.read(heard, _MOST_SAID)
        if not data:
            break
        said += data
    return said


def _remove_mount_points(covered: list[str], writable: list[str]) -> None:
    """Remove the empty files that bubblewrap created as mount points for removed sockets, as they would keep a socket from
    being bound there.
    """
    for path in covered:
        if not _below(path, writable):
            continue
        try:
            found = os.lstat(path)
            if found.st_size or found.st_mode != stat.S_IFREG | _OF_MOUNT_POINT:
                continue
            folder = _opened(os.path.dirname(path))
            os.unlink(os.path.basename(path), dir_fd=folder)
            os.close(folder)
        except OSError:
            continue


def _is_within_reach(path: str) -> bool:
    """Return whether bubblewrap, and so a command in it, can reach a path.

    Root without the capabilities over other users' files cannot enter their closed folders, and bubblewrap fails if it must
    mount there.
    """
    folder = os.path.dirname(path) if os.geteuid() == 0 else "/"
    while folder != "/":
        try:
            found = os.stat(folder)
        except OSError:
            # The path was just removed; bubblewrap will be started again.
            return True
        try:
            has_more_rules = "system.posix_acl_access" in os.listxattr(folder)
        except OSError:
            has_more_rules = False
        needed = 0o100 if found.st_uid == 0 else 0o010 if found.st_gid == 0 else 0o001
        is_own = found.st_uid == found.st_gid == 0
        if not (is_own or has_more_rules or found.st_mode & needed):
            return False
        folder = os.path.dirname(folder)
    return True


def _is_young(path: str) -> bool:
    try:
        return time.time() - os.lstat(path).st_ctime < _YOUNG_S
    except OSError:
        return True


def _hand_over(code: bytes, paths: dict[str, list[str]], unsteady: "set[str]") -> list[str]:
    """Prepare the descriptors that bubblewrap reads; return the paths of the sockets over which it mounts.

    Args:
        code: the filter.
        paths: the words, by their kinds.
        unsteady: folders of sockets that were gone before they were covered.
    """
    sockets = (*paths["socket"], *sockets_of_others(paths["write"]))
    covered = [
        path
        for path in sockets
        if not _below(path, paths["hide"])
        and (not _below(path, paths["empty"]) or _below(path, [*paths["show"], *paths["write"]]))
        and os.path.lexists(path)
        and _is_within_reach(path)
        and not (os.path.dirname(path) in unsteady and _is_young(path))
    ]
    arguments = [*paths["argument"], *(word for path in covered for word in _cover_of(path))]
    _tell(FILTER_FD, code)
    _tell(ARGUMENTS_FD, b"".join(os.fsencode(word) + b"\0" for word in arguments))
    for at, path in enumerate(paths["open"], FILTER_FD + 1):
        place = _opened(path)
        os.dup2(place, at)
        os.close(place)
    for at, text in enumerate(paths["is"], FILTER_FD + 1 + len(paths["open"])):
        _tell(at, os.fsencode(text))
    for path in paths["hide"]:
        # If the file was renamed since the policy was made, the command could read it under the new name.
        if not _under_private(path):
            os.close(_opened(path))
    return covered


def _cover_of(path: str) -> list[str]:
    return ["--ro-bind", os.devnull, path]


def _tell(at: int, data: bytes) -> None:
    """Make these bytes readable at a descriptor that the next program inherits."""
    held = os.memfd_create("told")
    with open(held, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(held, 0, os.SEEK_SET)
    os.dup2(held, at)
    os.close(held)


# -- searches -------------------------------------------------------------------------------------------


def searched_fd(given: "Iterable[int]") -> int:
    """Return the descriptor from which bubblewrap reads the searched file or folder. The next one is that of the filter, and the
    files to be read have those behind it.

    Args:
        given: the descriptors that the program reads by their numbers; none of them may be replaced.
    """
    return max([ARGUMENTS_FD, *(number + 1 for number in given)])


def begin_search(arguments: list[str]) -> None:
    """Execute a search program that can only read the searched files; does not return.

    It cannot start processes, and is killed when its parent ends. If it cannot be confined, it is not executed; standard
    error says why, and the exit code is 126.

    Args:
        arguments: the number of words, the words, the command. Words: `level:landlock`; or `level:filter` where the command is
            bubblewrap (it reads what is searched from `searched_fd`, the filter from the next descriptor, and each file to be read
            from those behind it); `parent:NUMBER`, the process id of the caller; `search:PATH`, from the current
            folder, no part of it a link; `run:PATH`, the program and what it loads; `read:PATH`, files; `given:NUMBER`, the
            descriptor of an open file that it may read; `shut:PATH`, not read although below what is searched, relative to that.
    """
    n_words = int(arguments[0])
    words, command = arguments[1 : n_words + 1], arguments[n_words + 1 :]
    kinds = ("level", "parent", "search", "run", "read", "given", "shut")
    told: dict[str, list[str]] = {kind: [] for kind in kinds}
    try:
        for word in words:
            kind, _, value = word.partition(":")
            told[kind].append(value)
        end_with_parent(_SIGKILL)
        if told["parent"] != [str(os.getppid())]:
            raise OSError(errno.ESRCH, "the program has ended")
        for number in told["given"]:
            # The descriptor is reopened read-only, as the inherited one may be writable.
            place = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(place, int(number))
            os.close(place)
        code = _code_for(is_full=False, online=False, searches=True)
        if told["level"] == ["filter"]:
            searched = searched_fd(map(int, told["given"]))
            _tell(searched + 1, code)
            for path in told["search"]:
                os.dup2(_opened_no_link(path), searched)
            for at, path in enumerate(told["read"], searched + 2):
                os.dup2(_opened_or_nothing(path), at)
        else:
            _let_read(told)
            _install(code)
            _hold_or_raise(lambda: _check(_libc.socket(_INET, 1, 0), "socket"))
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execv(command[0], command)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        # The message may contain a path that is not valid text.
        os.write(2, f"{name}{error.strerror}\n".encode(errors="replace"))
    finally:
        os._exit(126)


def _let_read(told: dict[str, list[str]]) -> None:
    """Confine this process by Landlock so that it can only read the paths in the words of `begin_search`."""
    abi = landlock_abi()
    if abi < 1:
        raise OSError(errno.ENOSYS, "Landlock is not available")
    rules, handled = _ruleset(abi, closes_net=True)
    for path in told["run"]:
        try:
            # These are paths of the system; links in them are usual and followed.
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        _allow(rules, place, _READS & handled, path)
        os.close(place)
    for path in told["read"]:
        place = _opened_or_nothing(path)
        _allow(rules, place, _READ_FILE, path)
        os.close(place)
    for number in told["given"]:
        _allow(rules, int(number), _READ_FILE, number)
    for path in told["search"]:
        place = _opened_no_link(path)
        # The kernel looks at every open for the right to truncate what is opened, too, and without it goes on to the root of the
        # disk: a third of what Landlock costs. It is of no use here, since the filter refuses every call that truncates, and
        # nothing can be opened for writing.
        _allow_but(rules, place, [shut.split("/") for shut in told["shut"]], _TRUNCATE & handled)
        os.close(place)
    _drop_capabilities(_SEARCH_CAPS if os.geteuid() == 0 else ())
    _check(_libc.prctl(_PR_NO_NEW_PRIVS, 1, 0, 0, 0), "turning off new privileges")
    _check(_libc.syscall(_RESTRICT_SELF, rules, 0), "Landlock")
    os.close(rules)
    # Only Landlock denies this, which proves that the ruleset is in force.
    _hold_or_raise(lambda: os.close(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)))


def _opened_no_link(path: str) -> int:
    place = _opened(path)
    if stat.S_ISLNK(os.fstat(place).st_mode):
        raise OSError(errno.ELOOP, f"{path}: {os.strerror(errno.ELOOP)}")
    return place


def _opened_or_nothing(path: str) -> int:
    """Return a descriptor of the file at a path; of `/dev/null` if it is missing, or if a name in the path is a link."""
    try:
        return _opened(path)
    except OSError:
        return os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)


def _hold_or_raise(attempt: "Callable[[], object]") -> None:
    try:
        attempt()
    except OSError:
        return
    raise OSError(errno.EPERM, "the sandbox does not work")


def _allow_but(rules: int, place: int, shut: list[list[str]], more: int) -> None:
    """Allow reading a folder or file, except the paths in `shut` below it (lists of names); names can be listed everywhere.
    `more` are rights that go with that of reading a file.
    """
    if not shut:
        _allow(rules, place, _READ_FILE | _READ_DIR | more, "the searched folder")
        return
    _allow(rules, place, _READ_DIR, "the searched folder")
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    try:
        names_there = os.listdir(listed)
        if len(names_there) > _MOST_BESIDE:
            # This needs too many rules. The caller drops results from secrets in any case.
            _allow(rules, place, _READ_FILE | more, "the searched folder")
            return
        for name in names_there:
            below = [names[1:] for names in shut if names[0] == name]
            if [] in below:
                continue
            try:
                child = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=listed)
            except OSError:
                continue
            is_folder = stat.S_ISDIR(os.fstat(child).st_mode)
            _allow_but(rules, child, below if is_folder else [], more)
            os.close(child)
    finally:
        os.close(listed)
