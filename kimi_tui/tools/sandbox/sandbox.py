"""`Sandbox`: finds the sandbox backend of this machine by trying it, and prepares each command for it.

- Linux with Landlock: the command's supervisor confines it (`confine.py`), with namespaces if these are allowed, else with
Landlock and the seccomp filter alone.
- `bwrap` on Linux without Landlock, with the same filter, and `sandbox-exec` on macOS: the command is an argument of these.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from kimi_tui.app_paths import home_of, reason_of
from kimi_tui.filesystem import all_is_read
from kimi_tui.temporary_folders import TemporaryFolder
from kimi_tui.tools.prepared import (
    SupervisedCommand,
    end_ahead,
    look_ahead,
    set_up_ahead,
    start_supervisor,
)
from kimi_tui.tools.process import child_environment
from kimi_tui.tools.programs import find_program
from kimi_tui.tools.sandbox import layers
from kimi_tui.tools.sandbox.git_watch import GitWatch
from kimi_tui.tools.sandbox.home import HomeView
from kimi_tui.tools.sandbox.layers import Caches
from kimi_tui.tools.sandbox.policy import (
    FolderMemory,
    NoSandbox,
    Policy,
    SandboxSettings,
    folders_between,
    policy_for,
)
from kimi_tui.tools.sandbox.view import PastView
from kimi_tui.tools.supervisor import MARK_NAME, SOCKETS

Backend = Literal["full", "landlock", "bwrap", "macos"]
_TRIAL_S = 10.0
_END_S = 3.0
_SAID = "held"
_MOST_BYTES = 4096
_COVERED = ("/tmp/", "/var/tmp/")
_MOST_BINDS = 800
"""The largest number of bind mounts: each takes a descriptor, of which a process usually has 1024."""
PRIVATE_AT = "/tmp/.kimi-tui-caches"
"""The path of the private caches for a command with a `/tmp` of its own; the same as in `confine`, which is not imported for this."""
_TRIM_EVERY_S = 60.0
_LANDLOCK_GAPS = (
    "commands can change git's hooks and settings in the work folder",
    "commands can read secret files in the work folder and list the names of all files",
    "commands can change the permissions and owners of your files outside the work folder",
)


@dataclass(frozen=True, slots=True)
class Confined:
    """A command as it is started in the sandbox.

    Attributes:
        argv: the program and its arguments.
        environ: the environment variables.
        words: the words for `confine` in its supervisor; empty if the program in `argv` confines it.
        policy: the paths that it may reach.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    words: tuple[str, ...]
    policy: Policy


class SandboxState(NamedTuple):
    """The facts about the sandbox of commands in a work folder.

    Attributes:
        backend: the mechanism.
        writable: real paths, the work folder first.
        n_bytes: the bytes on the disk that commands wrote to caches.
        is_layered: whether commands read the user's caches below a private layer; else variables name private caches.
        network: whether commands have the network without approval.
    """

    backend: Backend
    writable: tuple[str, ...]
    n_bytes: int
    is_layered: bool
    network: bool


class _Private(NamedTuple):
    """The means that keep writes to caches private: words for `confine`, variables, and the folder that the variables name."""

    words: tuple[str, ...] = ()
    environ: Mapping[str, str] = MappingProxyType({})
    folder: str = ""


class Sandbox:
    """A sandbox that was tried on this machine and works.

    Args:
        backend: the mechanism.
        settings: the user's settings.
        environ: the environment of the program.
        program: the path of `bwrap` or `sandbox-exec`; empty for the other backends.
        temporary: the folder in which that for temporary files is made; empty for the usual one.

    Attributes:
        git_watch: undoes the changes of its commands to git's levers while they run.
        added: returns the folders that the user added for this run.
    """

    def __init__(
        self,
        backend: Backend,
        settings: SandboxSettings,
        environ: Mapping[str, str],
        program: str = "",
        temporary: str = "",
    ) -> None:
        self.backend: Backend = backend
        self.settings = settings
        self.environ = environ
        self.program = program
        self._tmp_in = temporary
        self._tmp: TemporaryFolder | None = None
        self._memory = FolderMemory()
        self._can_layer: bool | None = None
        self._trimming = threading.Thread()
        self._trim_from = 0.0
        self.git_watch = GitWatch()
        self.added: Callable[[], tuple[str, ...]] = tuple

    @property
    def gaps(self) -> tuple[str, ...]:
        """The things that this sandbox cannot confine on this machine, each in a few words."""
        return _LANDLOCK_GAPS if self.backend == "landlock" else ()

    @property
    def is_whole(self) -> bool:
        """Whether the sandbox has no gaps, so that commands in it need no approval."""
        return not self.gaps

    def policy_for(self, work_dir: Path, *, network: bool = False, creates: bool = True) -> Policy:
        """Return the policy of a command in this folder. It lists folders that changed since the last call, so call it in a thread.

        Args:
            work_dir: the folder.
            network: whether the command may use the network.
            creates: see `policy.policy_for`.

        Raises:
            NoSandbox: a sandbox is not possible in this folder.
        """
        policy = policy_for(
            work_dir,
            self.settings,
            self.environ,
            network=network,
            memory=self._memory,
            added=self.added(),
            creates=creates,
        )
        if self.backend == "bwrap":
            if link := next(filter(os.path.islink, policy.kept), None):
                raise NoSandbox(f"{link} is a link, which bubblewrap cannot protect from changes")
            if len(_bwrap_binds(policy, "")) >= _MOST_BINDS:
                raise NoSandbox(f"bubblewrap would have to protect more than {_MOST_BINDS} files")
        return policy

    def confined(
        self,
        argv: list[str],
        work_dir: Path,
        *,
        network: bool = False,
        writes: bool = True,
        view: PastView | None = None,
    ) -> Confined:
        """Prepare a command for the sandbox. It reads folders, so call it in a thread.

        Args:
            argv: the program and its arguments.
            work_dir: the folder in which it runs.
            network: whether it may use the network this time.
            writes: whether it may write anything but temporary files.
            view: the files that it sees at the path of the work folder; None for those that are there.

        Raises:
            NoSandbox: a sandbox is not possible in this folder.
            OSError: there is no room for temporary files, or this program lacks descriptors or memory to look for what must be kept
                from the command.
        """
        if view is None and writes:
            look_ahead(SOCKETS)
        # The layers are made before the policy, which hides only existing paths.
        folder = self._layers_folder(work_dir) if writes else ""
        is_seen = view is None or view.tier == "elsewhere"
        with all_is_read():
            policy = self.policy_for(work_dir, network=network, creates=is_seen)
        if not writes:
            # The work folder counts as writable, so that it is mounted even below the temporary folder, and is then made
            # read-only.
            kept = (policy.work,)
            policy = replace(policy, writable=kept, kept=kept, pinned=(), caches=Caches())
        over: tuple[str, ...] = ()
        if view is not None:
            view, policy = view.narrowed(policy)
            over = view.words()
        private = self._private_caches(policy, folder)
        at = self._temporary()
        tmp = at if self.backend in ("landlock", "macos") else "/tmp"
        environ = {**child_environment(self.environ), **private.environ, "TMPDIR": tmp}
        words: tuple[str, ...] = ()
        if self.backend in ("full", "landlock"):
            words = (*over, *_words(policy, self.backend, at), *private.words)
        elif self.backend == "bwrap":
            opened = (f"open:{path}" for _, path, _ in _bwrap_binds(policy, private.folder))
            words = (
                "level:filter",
                f"network:{'on' if policy.network else 'off'}",
                *(f"write:{path}" for path in policy.writable),
                *opened,
                *(f"empty:{path}" for path in policy.home.emptied),
                *(f"show:{path}" for path in policy.home.shown),
                *(f"is:{os.fsdecode(text)}" for _, text in policy.home.texts),
                *(f"hide:{path}" for path in policy.hidden),
                *(f"socket:{path}" for path in policy.sockets),
                *(f"argument:{word}" for word in bwrap_arguments(policy, at, private.folder)),
            )
            from kimi_tui.tools.sandbox.confine import ARGUMENTS_FD

            # The arguments come by a descriptor, because a command could read them in its command line.
            own = ["--args", str(ARGUMENTS_FD)]
            argv = [self.program, *own, "--", *_behind_bubblewrap(argv, policy)]
        else:
            argv = [self.program, "-p", macos_profile(policy, at, private.folder), *argv]
        if self.backend in ("landlock", "macos"):
            environ |= self._with_copies(policy, at)
        return Confined(tuple(argv), environ, words, policy)

    def _temporary(self) -> str:
        """Return the folder for the temporary files of commands, which exists. Raises OSError: it cannot be made."""
        if self._tmp is None or not os.path.isdir(self._tmp.path):
            if self._tmp is not None:
                self._tmp.remove()
            self._tmp = TemporaryFolder("tmp", within=self._tmp_in)
        return self._tmp.path

    def _with_copies(self, policy: Policy, folder: str) -> dict[str, str]:
        """Write copies of the files that are shown in part into a folder, and return the variables that make programs read these.

        Raises:
            OSError: there is no room for the copies.
        """
        copies, variables = policy.home.copies(folder)
        for path, text in copies.items():
            # A command may have put anything in this place.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(text)
        return variables

    @property
    def is_layered(self) -> bool:
        """Whether commands see the user's caches below a private layer; else variables name private caches. Call it in a thread."""
        if self._can_layer is None:
            self._can_layer = self.backend == "full" and layers.can_layer(self.environ)
        return self._can_layer

    def _layers_folder(self, work_dir: Path) -> str:
        """Return the folder of the layers of a work folder; empty if the data folder is not writable, so that caches are only read."""
        work = os.path.realpath(work_dir)
        key = frozenset(self.environ.items()), work, os.environ.get("HOME")
        try:
            folder = self._memory.outside.look().at(
                "layers", key, lambda: layers.noted_folder(self.environ, work)
            )
            return layers.made_folder(self.environ, work, folder)
        except OSError:
            return ""

    def _private_caches(self, policy: Policy, folder: str) -> _Private:
        """Return the means that keep the writes to caches private."""
        if not folder:
            return _Private()
        own = layers.variables_folder(folder)
        has_tmp = self.backend in ("full", "bwrap")
        place = PRIVATE_AT if has_tmp else own
        environ = policy.caches.variables(place, is_layered=self.is_layered)
        if self.backend == "full":
            laid = policy.caches.words(folder) if self.is_layered else []
            return _Private((*laid, f"private:{own}"), environ, own)
        return _Private((f"write:{own}",) if self.backend == "landlock" else (), environ, own)

    def state(self, work_dir: Path) -> SandboxState:
        """Return the state for the next command in a work folder. It lists folders and may start a process, so call it in a thread.

        Raises:
            NoSandbox: a sandbox is not possible in this folder.
        """
        policy = self.policy_for(work_dir)
        return SandboxState(
            self.backend,
            policy.writable,
            layers.size_of(layers.folder_of(self.environ, policy.work)),
            is_layered=self.is_layered,
            network=policy.network,
        )

    def reset(self, work_dir: Path) -> layers.Reset:
        """Remove everything that commands in a work folder wrote to caches. Call it in a thread.

        Raises:
            OSError: not all of it could be removed.
        """
        end_ahead()
        return layers.reset(self.environ, os.path.realpath(work_dir))

    def set_up_ahead(self, confined: Confined, work_dir: Path) -> None:
        """Keep the private layers within their limits, and set up process 1 for a next command like this one, which has ended.

        Call it in a thread.
        """
        self.trim(confined.policy)
        # A layer that is being trimmed could not be taken.
        if self.backend == "full" and not self._trimming.is_alive():
            set_up_ahead(confined.words, str(work_dir))

    def trim(self, policy: Policy) -> None:
        """Keep the private layers within their limits, in the background and at most once in `_TRIM_EVERY_S` seconds."""
        now = time.monotonic()
        if self._trimming.is_alive() or now < self._trim_from or not policy.caches.covered:
            return
        self._trim_from = now + _TRIM_EVERY_S
        self._trimming = threading.Thread(
            target=layers.trim, args=(self.environ, policy.work), name="layers", daemon=True
        )
        self._trimming.start()

    def remove_temporary(self) -> None:
        """Remove the files that commands left in their temporary folder. Call it in a thread."""
        tmp, self._tmp = self._tmp, None
        if tmp is not None:
            end_ahead()
            tmp.remove()


def _words(policy: Policy, level: str, tmp: str) -> tuple[str, ...]:
    return (
        f"level:{level}",
        f"network:{'on' if policy.network else 'off'}",
        f"tmp:{tmp}",
        *(f"write:{path}" for path in policy.writable),
        *(f"pin:{path}" for path in policy.pinned),
        *(f"keep:{path}" for path in policy.kept),
        *(f"hide:{path}" for path in policy.hidden),
        *(f"socket:{path}" for path in policy.sockets),
        *_home_words(policy.home),
    )


def _home_words(home: HomeView) -> Iterator[str]:
    yield from (f"empty:{path}" for path in home.emptied)
    yield from (f"show:{path}" for path in home.shown)
    for path, target in home.links:
        yield from (f"link:{path}", f"to:{target}")
    for path, text in home.texts:
        yield from (f"text:{path}", f"is:{os.fsdecode(text)}")


def _bwrap_binds(policy: Policy, private: str) -> list[tuple[str, str, str]]:
    """Return the paths that bubblewrap bind-mounts, each with its option and its target, in the order of the words `open`."""
    return [
        *([("--bind-fd", private, PRIVATE_AT)] if private else []),
        *(("--bind-fd", path, path) for path in (*policy.writable, *policy.pinned)),
        *(("--ro-bind-fd", path, path) for path in policy.kept),
    ]


_BEHIND = (
    "import sys; sys.path.append(sys.argv[1]); import confine; confine.begin_behind(sys.argv[2:])"
)


def _behind_bubblewrap(argv: list[str], policy: Policy) -> list[str]:
    """Return the command with the program that starts it in bubblewrap: `confine.begin_behind`; or a shell, if the kernel has
    no Landlock or the interpreter is in a folder that is private in the sandbox.

    Either writes the line `STARTED` to standard error, and then redirects standard error to standard output. The second
    interpreter takes longer than the shell, and is used for Landlock alone.
    """
    from kimi_tui.tools.sandbox import confine

    folder = os.path.dirname(os.path.abspath(confine.__file__))
    is_covered = os.path.realpath(sys.executable).startswith(_COVERED) or folder.startswith(
        _COVERED
    )
    if is_covered or confine.landlock_abi() < 1:
        return ["/bin/sh", "-c", f'echo {confine.STARTED} >&2; exec "$@" 2>&1', "sh", *argv]
    words = [f"network:{'on' if policy.network else 'off'}"]
    words += [f"write:{path}" for path in policy.writable]
    how = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _BEHIND, folder, str(len(words))]
    return [*how, *words, *argv]


def bwrap_arguments(policy: Policy, tmp: str, private: str = "") -> list[str]:
    """Return the arguments of bubblewrap for a policy, without those that hide sockets, which the supervisor adds at the start.

    Args:
        policy: the policy of the command.
        tmp: the folder that becomes `/tmp`.
        private: the folder of its private caches; empty for none.
    """
    from kimi_tui.tools.sandbox.confine import FILTER_FD

    arguments = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for place in ("/proc/sys", "/proc/irq", "/proc/bus"):
        # Root may write there without capabilities, and so administer the machine.
        arguments += ["--ro-bind-try", place, place]
    for place in filter(os.path.exists, ("/proc/keys", "/proc/key-users")):
        arguments += ["--ro-bind", os.devnull, place]
    for place in ("/tmp", "/var/tmp"):
        if os.path.isdir(place) and not os.path.islink(place):
            arguments += ["--bind", tmp, place]
    binds = _bwrap_binds(policy, private)
    arguments += _bwrap_home(policy.home, FILTER_FD + 1 + len(binds))
    for at, (flag, _, place) in enumerate(binds, FILTER_FD + 1):
        # `confine` opens these paths and passes descriptors, as a folder in a path could have become a link.
        arguments += [flag, str(at), place]
    for path in policy.home.emptied:
        arguments += ["--remount-ro", path]
    covered: list[str] = []
    for path in policy.hidden:
        if any(path.startswith(f"{above}/") for above in covered) or not os.path.lexists(path):
            continue
        if os.path.isdir(path):
            covered.append(path)
            arguments += ["--perms", "000", "--tmpfs", path, "--remount-ro", path]
        else:
            arguments += ["--ro-bind", os.devnull, path]
    arguments += ["--unshare-ipc", "--unshare-pid", "--unshare-user-try", "--cap-drop", "ALL"]
    arguments += ["--new-session", "--die-with-parent", "--chdir", policy.work]
    arguments += ["--seccomp", str(FILTER_FD)]
    return arguments if policy.network else [*arguments, "--unshare-net"]


def _bwrap_home(home: HomeView, descriptor: int) -> list[str]:
    """Return the arguments that empty the home folder and show its readable parts; the texts come from this descriptor and
    the next ones.
    """
    arguments: list[str] = []
    for path in home.emptied:
        arguments += ["--perms", "755", "--tmpfs", path]
    for path in home.shown:
        # The path itself is used, as no folder in it is below anything that commands can write.
        arguments += ["--ro-bind-try", path, path]
    for at, (path, _) in enumerate(home.texts, descriptor):
        arguments += ["--perms", "644", "--ro-bind-data", str(at), path]
    for path, target in home.links:
        arguments += ["--symlink", target, path]
    return arguments


def macos_profile(policy: Policy, tmp: str, private: str = "") -> str:
    """Return the same policy as a profile for `sandbox-exec`; later rules win.

    macOS has no network namespaces: without the network a command cannot connect to a server of its own either, since other
    programs listen on the same loopback. Newer systems ignore the rules for `target others`: all targets are denied, and
    `same-sandbox` is allowed.
    """
    lines = [
        "(version 1)",
        "(allow default)",
        "(deny file-write*)",
        f'(allow file-write* {literals(_MACOS_DEVICES)} (subpath "/dev/fd"))',
        "(deny mach-lookup)",
        f"(allow mach-lookup {_services(_MACOS_SERVICES)})",
        "(deny mach-priv-task-port)",
        "(deny appleevent-send)",
        "(deny lsopen)",
        "(deny job-creation)",
        "(deny signal)",
        "(allow signal (target same-sandbox))",
        "(deny process-info*)",
        "(allow process-info* (target same-sandbox))",
    ]
    roots = [*policy.writable, tmp]
    lines += [f"(allow file-write* (subpath {quoted(path)}))" for path in roots]
    # Renaming a parent folder, or the root itself, would move a kept or hidden path to another one.
    out_of_reach = (*policy.hidden, *policy.sockets)
    ways = {one for path in (*policy.kept, *out_of_reach) for one in folders_between(path, roots)}
    lines += [
        f"(deny file-write-unlink (literal {quoted(path)}))" for path in sorted({*roots, *ways})
    ]
    lines += [f"(deny file-write* (subpath {quoted(path)}))" for path in policy.kept]
    for path in policy.home.emptied:
        lines.append(f"(deny file-read* (subpath {quoted(path)}))")
        lines.append(f"(allow file-read-metadata (subpath {quoted(path)}))")
    readable = (*policy.home.shown, *roots) if policy.home.emptied else ()
    lines += [f"(allow file-read* (subpath {quoted(path)}))" for path in readable]
    for path in out_of_reach:
        lines.append(f"(deny file-read* file-write* (subpath {quoted(path)}))")
        lines.append(f"(allow file-read-metadata (subpath {quoted(path)}))")
    if private:
        # The folder is inside this program's own folder, which is hidden.
        lines.append(f"(allow file-read* file-write* (subpath {quoted(private)}))")
        lines.append(f"(deny file-write-unlink (literal {quoted(private)}))")
    lines.append("(deny file-write-setugid)")
    if policy.network:
        lines.append(f"(allow mach-lookup {_services(_MACOS_NETWORK_SERVICES)})")
        lines.append("(deny network-outbound (remote unix-socket))")
        lines.append(f"(allow network-outbound {literals(_MACOS_RESOLVER)})")
    else:
        lines.append("(deny network*)")
    for side in ("network-bind (local", "network-outbound (remote"):
        lines.append(f"(allow {side} unix-socket (subpath {quoted(tmp)})))")
    return "\n".join(lines)


_MACOS_DEVICES = ("/dev/null", "/dev/zero", "/dev/dtracehelper", "/dev/stdout", "/dev/stderr")
_MACOS_SERVICES = (
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
    "com.apple.system.logger",
    "com.apple.system.notification_center",
)
"""Services for names of users and groups, the log, and notices of the system."""
_MACOS_NETWORK_SERVICES = (
    "com.apple.SystemConfiguration.configd",
    "com.apple.SystemConfiguration.DNSConfiguration",
    "com.apple.networkd",
    "com.apple.ocspd",
    "com.apple.trustd.agent",
)
_MACOS_RESOLVER = ("/private/var/run/mDNSResponder",)


def literals(paths: Sequence[str]) -> str:
    """Return the paths as a profile of `sandbox-exec` names them."""
    return " ".join(f"(literal {quoted(path)})" for path in paths)


def _services(names: Sequence[str]) -> str:
    return " ".join(f"(global-name {quoted(name)})" for name in names)


def quoted(path: str) -> str:
    """Return a path as a string of a profile."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# -- finding a backend ------------------------------------------------------------------------------------


def find_sandbox(
    settings: SandboxSettings, environ: Mapping[str, str], *work_dirs: Path
) -> Sandbox:
    """Return the first backend that passes the trial on this machine, the best ones first. It starts processes, so call it in a thread.

    Programs in the work folders are not run for that.

    Raises:
        NoSandbox: no backend passes.
    """
    if not settings.enabled:
        raise NoSandbox("the sandbox is turned off in config.toml")
    tried: list[str] = []
    for sandbox in _candidates(settings, environ, *work_dirs):
        trouble = trouble_with(sandbox)
        if not trouble:
            return sandbox
        tried.append(f"{sandbox.backend}: {trouble}")
    raise NoSandbox("; ".join(tried) or f"there is no sandbox for {sys.platform}")


def _candidates(
    settings: SandboxSettings, environ: Mapping[str, str], *work_dirs: Path
) -> list[Sandbox]:
    if sys.platform == "linux":
        found = [Sandbox("full", settings, environ)]
        if bwrap := find_program("bwrap", environ, *work_dirs):
            found.append(Sandbox("bwrap", settings, environ, bwrap))
        return [*found, Sandbox("landlock", settings, environ)]
    if sys.platform == "darwin" and os.access("/usr/bin/sandbox-exec", os.X_OK):
        return [Sandbox("macos", settings, environ, "/usr/bin/sandbox-exec")]
    return []


def trouble_with(sandbox: Sandbox) -> str:
    """Name the trial that a backend fails, or say why it cannot be used; empty if it passes all."""
    try:
        # The end of the program does not wait for this daemon thread, but for the files that it writes.
        with TemporaryFolder("trial", awaited=True) as place:
            return _trouble_in(sandbox, Path(place.path))
    except OSError as error:
        return f"the test could not write its files: {reason_of(error)}"


def _trouble_in(sandbox: Sandbox, top: Path) -> str:
    """Return the same after a trial in a new folder.

    Raises:
        OSError: the files for the trial cannot be written.
    """
    environ = sandbox.environ
    home = Path(os.path.realpath(home_of(environ) or "/"))
    work, secret = top / "work", top / "secret"
    hook = work / ".git" / "hooks" / "post-checkout"
    # Missing parents are not made: the end of the program may have removed them.
    for folder in (work, work / ".git", hook.parent, secret):
        folder.mkdir()
    (secret / "key").write_text("key\n")
    outside = (top / "outside", home / top.name)
    environ = {**environ, "KIMI_TUI_HOME": str(secret)}
    # Its temporary folder is in that of the trial, which is removed also if the program ends during the trial.
    tried = Sandbox(sandbox.backend, sandbox.settings, environ, sandbox.program, str(top))
    try:
        confined = tried.confined(["/bin/sh", "-c", _TRIAL, "sh", *map(str, outside)], work)
        if trouble := _trouble(confined, work):
            return trouble
    except (OSError, NoSandbox) as error:
        return str(error)
    finally:
        tried.remove_temporary()
    written = [path for path in outside if path.exists()]
    for path in written:
        path.unlink()
    if written:
        return "the test could write outside the work folder"
    return "the test could write git hooks" if sandbox.is_whole and hook.exists() else ""


_TRIAL = """
exec 2> /dev/null
( echo 1 > inside ) 2>/dev/null || { echo the test could not write in the work folder; exit; }
( echo 1 > "$TMPDIR/inside" ) 2>/dev/null || { echo the test had no temporary folder; exit; }
( read line < ../secret/key ) 2>/dev/null && { echo the test could read secrets; exit; }
( kill -0 $TRIED ) 2>/dev/null && { echo the test could signal other processes; exit; }
for name in "$@" .git/hooks/post-checkout; do ( echo 1 > "$name" ) 2>/dev/null; done
echo held
"""


def _trouble(confined: Confined, work: Path) -> str:
    """Run the trial script under a supervisor; return what went wrong, or an empty text."""
    environ = {**confined.environ, "TRIED": str(os.getpid()), MARK_NAME: ""}
    deadline = time.monotonic() + _TRIAL_S
    output, write_end = os.pipe()
    try:
        try:
            command = SupervisedCommand(confined.argv, str(work), environ, confined.words)
            started = start_supervisor(command, write_end)
        finally:
            os.close(write_end)
        process = started.process
        try:
            said = _read_pipe(output, deadline).strip()
            with contextlib.suppress(BrokenPipeError):
                os.write(started.orders, b"KQ")
            report = _read_pipe(started.reports, deadline)
            process.wait(max(deadline - time.monotonic(), 0))
        except (TimeoutError, subprocess.TimeoutExpired):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                # The command's processes are killed first: a killed supervisor would leave them running.
                os.write(started.orders, b"KQ")
                process.wait(_END_S)
            process.kill()
            return "the test did not end"
        finally:
            os.close(started.orders)
            os.close(started.reports)
    finally:
        os.close(output)
    if said == _SAID:
        return ""
    kind, _, number_and_why = report.partition("\n")[0].partition(" ")
    why = number_and_why.partition(" ")[2] if kind == "E" else ""
    return said or why or "the test could not be run"


def _read_pipe(descriptor: int, deadline: float) -> str:
    """Read a pipe until its other end is closed, at most `_MOST_BYTES`.

    Raises:
        TimeoutError: the pipe is still open at the deadline of the monotonic clock.
    """
    found = b""
    waiter = select.poll()
    waiter.register(descriptor, select.POLLIN)
    while len(found) < _MOST_BYTES:
        if not waiter.poll(max(deadline - time.monotonic(), 0) * 1000):
            raise TimeoutError
        data = os.read(descriptor, _MOST_BYTES - len(found))
        if not data:
            break
        found += data
    return found.decode(errors="replace")
