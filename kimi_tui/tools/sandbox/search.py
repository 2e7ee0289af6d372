"""A search in the sandbox: its program can read the searched files, the ignore files for them, and itself, and do nothing else.

It can write nothing, start no process, and use no sockets and no network, in every mode. The searched path is opened from the
folder in which the program starts, without following links, and the permission to read is bound to that descriptor: a path
that is renamed or replaced by a link during the search opens nothing else. With Landlock and bubblewrap a process of this
program confines itself and executes the search program (`confine.begin_search`); on macOS `sandbox-exec` does that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kimi_tui.app_paths import home_of, home_places, own_places
from kimi_tui.filesystem import read_regular
from kimi_tui.tools.sandbox.policy import SYSTEM_GIT_SETTINGS, outermost, secrets_outside
from kimi_tui.tools.sandbox.sandbox import Sandbox, literals, quoted

_BEGIN = """import os, sys
sys.path.append(sys.argv[1])
try:
    import confine
    confine.begin_search(sys.argv[2:])
finally:
    # Any other code may be one of the program that searches.
    os._exit(126)
"""
_LIBRARIES = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/gnu/store"),
    "/etc/ld.so.cache",
)
_MACOS_LIBRARIES = ("/usr/lib", "/System", "/private/var/db/dyld", "/opt/homebrew", "/usr/local")
_MACOS_DEVICES = ("/", "/dev/null", "/dev/random", "/dev/urandom")
_RULES = (".gitignore", ".ignore", ".rgignore", ".git/info/exclude")
_RULES_BYTES = 1 << 20
_SETTING = "excludesfile"


@dataclass(frozen=True, slots=True)
class Searched:
    """The paths that a search reads.

    Attributes:
        folder: the absolute path, without links, of the program's current folder.
        root: the searched file or folder, relative to `folder`; None if nothing is searched.
        rules: the descriptor of a file with ignore rules; negative for none.
        shut: secrets below `root`, relative to it, which are not read.
    """

    folder: str
    root: str | None = None
    rules: int = -1
    shut: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path of the searched file or folder."""
        return os.path.normpath(os.path.join(self.folder, self.root or "."))


def confined_search(sandbox: Sandbox, argv: Sequence[str], searched: Searched) -> list[str]:
    """Return the arguments that start a program in the sandbox, in the folder in which it starts. It reads folders, so call
    it in a thread.

    Args:
        sandbox: the sandbox of this machine.
        argv: the full path of the program, and its arguments.
        searched: the paths that it may read.
    """
    words, argv = search_words(sandbox, argv, searched)
    if sandbox.backend == "macos":
        return argv
    words = [f"parent:{os.getpid()}", *words]
    # This is the folder of `confine`, which is not imported here, as that would take as long as all the rest.
    folder = os.path.dirname(os.path.abspath(__file__))
    how = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BEGIN, folder, str(len(words))]
    return [*how, *words, *argv]


def search_words(
    sandbox: Sandbox, argv: Sequence[str], searched: Searched
) -> tuple[list[str], list[str]]:
    """Return the words with which `confine.begin_search` confines a search program, but for the process above it, and the
    arguments of the program; on macOS these confine it themselves. It reads folders, so call it in a thread.
    """
    program, *rest = argv
    run = list(_of_program(program))
    read = [] if searched.root is None else list(_rules_around(searched.path))
    if sandbox.backend == "macos":
        return [], [sandbox.program, "-p", macos_search_profile(searched, run, read), *argv]
    words = [f"read:{path}" for path in read]
    words += [] if searched.root is None else [f"search:{searched.root}"]
    words += [f"given:{searched.rules}"] if searched.rules >= 0 else []
    if sandbox.backend == "bwrap":
        words.append("level:filter")
        own = _bwrap_arguments(searched, program, run, read)
        return words, [sandbox.program, *own, "--", os.path.realpath(program), *rest]
    words += ["level:landlock", *(f"run:{path}" for path in run)]
    words += [f"shut:{path}" for path in searched.shut]
    return words, [*argv]


def shut_below(folder: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known places of secrets below a folder (a path without links), relative to it. It lists folders, so call it
    in a thread.
    """
    places = [*map(str, own_places(environ)), *secrets_outside(environ)]
    top = f"{str(folder).rstrip('/')}/"
    real = {path for place in places for path in (place, os.path.realpath(place))}
    return tuple(path[len(top) :] for path in outermost(real) if path.startswith(top))


def _of_program(program: str) -> Iterator[str]:
    """Yield the paths of a program and of the libraries that it may load."""
    real = os.path.realpath(program)
    yield real
    yield from _LIBRARIES
    # A package manager may have installed the program into a prefix of its own.
    yield os.path.join(os.path.dirname(os.path.dirname(real)), "lib")


def _rules_around(path: str) -> Iterator[str]:
    """Yield the ignore files in the folders above the searched path, and in the repositories there."""
    for folder in map(str, (Path(path), *Path(path).parents)):
        for name in _RULES:
            rules = os.path.join(folder, name)
            if os.path.isfile(rules) and not os.path.islink(rules):
                yield rules


def _bwrap_arguments(
    searched: Searched, program: str, run: Sequence[str], read: Sequence[str]
) -> list[str]:
    from kimi_tui.tools.sandbox.confine import searched_fd

    first = searched_fd([searched.rules] if searched.rules >= 0 else [])
    arguments: list[str] = []
    if searched.root is not None:
        arguments += ["--ro-bind-fd", str(first), searched.path]
    for path in searched.shut:
        place = os.path.join(searched.path, path)
        if os.path.islink(place):
            # The link's target is in `shut` by a path of its own.
            continue
        if os.path.isdir(place):
            arguments += ["--perms", "000", "--tmpfs", place, "--remount-ro", place]
        elif os.path.exists(place):
            arguments += ["--ro-bind", os.devnull, place]
    arguments += ["--dev", "/dev", "--proc", "/proc"]
    for path in run:
        arguments += ["--ro-bind-try", path, path]
    for at, path in enumerate(read, first + 2):
        if not path.startswith(f"{searched.path.rstrip('/')}/"):
            arguments += ["--ro-bind-fd", str(at), path]
    arguments += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    arguments += ["--cap-drop", "ALL"]
    if os.geteuid() == 0:
        # The program can read everything that root can, and write nothing.
        arguments += ["--cap-add", "CAP_DAC_READ_SEARCH"]
    else:
        arguments += ["--unshare-user-try"]
    arguments += ["--new-session", "--die-with-parent", "--seccomp", str(first + 1)]
    return [*arguments, "--chdir", searched.folder]


def macos_search_profile(searched: Searched, run: Sequence[str], read: Sequence[str]) -> str:
    """Return the profile of a search for `sandbox-exec`; later rules win."""
    found = [*_MACOS_LIBRARIES, *run, *([searched.path] if searched.root is not None else [])]
    lines = [
        "(version 1)",
        "(allow default)",
        "(deny file-write*)",
        "(deny network*)",
        "(deny process-fork)",
        "(deny mach-lookup)",
        "(deny mach-priv-task-port)",
        "(deny appleevent-send)",
        "(deny lsopen)",
        "(deny job-creation)",
        "(deny signal)",
        "(deny process-info*)",
        "(allow process-info* (target same-sandbox))",
        "(deny file-read*)",
        "(allow file-read-metadata)",
        f'(allow file-read* {literals([*_MACOS_DEVICES, *read])} (subpath "/dev/fd"))',
        *(f"(allow file-read* (subpath {quoted(path)}))" for path in found),
    ]
    for path in searched.shut:
        place = quoted(os.path.join(searched.path, path))
        lines += [
            f"(deny file-read* (subpath {place}))",
            f"(allow file-read-metadata (subpath {place}))",
        ]
    return "\n".join(lines)


# -- git's global ignore rules --------------------------------------------------------------------------


def rules_everywhere(environ: Mapping[str, str]) -> bytes:
    """Return the user's ignore rules of git for all repositories (`core.excludesFile`), which a confined program cannot read;
    empty for none.

    The first file of git's settings that names such a file counts; without one the usual file is read.
    """
    settings = (".gitconfig", ".config/git/config")
    own = [home_places(environ, name)[-1] for name in settings]
    for place in (*own, SYSTEM_GIT_SETTINGS):
        if named := _named_in(_text(place)):
            return _text(named.replace("~", home_of(environ)))
    return _text(home_places(environ, ".config/git/ignore")[-1])


def _named_in(text: bytes) -> str:
    for line in text.split(b"\n"):
        key, _, value = line.partition(b"=")
        if key.strip().lower() == _SETTING.encode():
            return os.fsdecode(value.strip().strip(b'"').strip())
    return ""


def _text(path: str) -> bytes:
    try:
        return read_regular(Path(path), _RULES_BYTES, links=True)
    except OSError:
        return b""
