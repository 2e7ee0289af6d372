"""Private layers over the caches of package managers: a sandboxed command reads the user's caches, and writes go to a layer of its own.

Installed programs of other projects lie in these caches (environments of Poetry and pre-commit, toolchains of Go, files that
`uv` links into environments), so a command must not change them. Each work folder has one layer in this program's data
folder, which outlives commands and sessions:

    sandbox/ID/folder           the work folder
    sandbox/ID/reset            locked by a reset alone, and shared by commands that are set up and by what trims the layers
    sandbox/ID/gone-*           what a reset is deleting
    sandbox/ID/N.lock           locked as long as a command uses the layer N
    sandbox/ID/N/upper/home     what commands wrote over caches in the home folder; NAME in its place: over one elsewhere
    sandbox/ID/N/work           the kernel's own files
    sandbox/ID/plain/NAME       in the place of the user's `~/.cache`, with the caches in it laid over it
    sandbox/ID/variables        for tools whose cache the user does not have, or where there can be no layer: variables name it

`confine.py` mounts overlays of them anew for each command. A second command at the same time takes the next layer, with the
others below it; the kernel does not define the result of two mounts that write to one layer.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from kimi_tui import app_paths
from kimi_tui.filesystem import (
    is_under,
    links_to,
    note_path,
    read_regular,
    remove_tree,
    unread_is_empty,
)
from kimi_tui.tools.process import word_set
from kimi_tui.tools.sandbox.remembered import Remembered

FOLDER = "sandbox"
"""The folder in the data folder that holds the layers of all work folders."""
MOST_BYTES = 2 << 30
"""Bytes that the layers of one work folder may hold between commands."""
MOST_BYTES_IN_ALL = 8 << 30
_LONGEST_NAME = 60
_TRIAL_S = 10.0
_DAY_S = 86_400
_GIVEN_UP_S = 1.0
"""Seconds within which another program gives up a layer that it holds for its next command."""

_TOOLS = {
    ".npm/_cacache": "npm_config_cache",
    ".npm/_npx": "",
    ".cargo/registry": "CARGO_HOME",
    ".cargo/git": "",
    "go/pkg": "GOPATH",
    ".gradle/caches": "GRADLE_USER_HOME",
    **dict.fromkeys((".gradle/wrapper", ".gradle/native", ".gradle/notifications"), ""),
    ".m2/repository": "MAVEN_OPTS",
    ".m2/wrapper": "",
    ".yarn/berry": "YARN_GLOBAL_FOLDER",
    ".yarn/cache": "",
    ".bun/install/cache": "BUN_INSTALL_CACHE_DIR",
    ".nuget/packages": "NUGET_PACKAGES",
    ".pub-cache/hosted": "PUB_CACHE",
    ".pub-cache/git": "",
    ".local/share/pnpm/store": "",
    **dict.fromkeys(
        (".ccache", ".sbt/boot", ".ivy2/cache", ".ivy2/local", ".hex/packages", ".cabal/packages"),
        "",
    ),
    **dict.fromkeys(
        (".cabal/store", ".stack/pantry", ".stack/snapshots", ".conan2/p", ".composer/cache"), ""
    ),
    ".bundle/cache": "",
}
"""Folders below the home folder in which package managers keep downloads; the first one of a manager has the variable that
moves all of them.
"""
_PRIVATE = (".npm/_logs", ".gradle/.tmp", ".gradle/workers", ".gradle/daemon")
"""Folders beside these that managers write to; commands see nothing of the user's."""
_FOLDERS = {
    "npm_config_cache": "npm",
    "CARGO_HOME": "cargo",
    "GOPATH": "go",
    "GRADLE_USER_HOME": "gradle",
    "MAVEN_OPTS": "m2",
    "YARN_GLOBAL_FOLDER": "yarn-berry",
    "BUN_INSTALL_CACHE_DIR": "bun",
    "NUGET_PACKAGES": "nuget",
    "PUB_CACHE": "pub",
}
"""The names of these variables' folders in the private folder."""
_NAMED = {"CARGO_HOME": "registry", "GOPATH": "pkg", "GOMODCACHE": "", "GOCACHE": ""}
"""Variables that commands get from the user, with the folder of the cache inside the variable's folder."""
_CACHE = ".cache"
_DEPTHS = {
    ".cache/pip": 2,
    ".cache/uv": 2,
    ".cache/yarn": 2,
    ".cache/pypoetry": 2,
    ".cache/pre-commit": 1,
    ".cache/go-build": 1,
    ".cache/ccache": 2,
    ".ccache": 2,
    ".cargo/registry": 3,
    "go/pkg": 3,
    ".npm/_cacache": 3,
    ".m2/repository": 3,
    ".gradle/caches": 3,
    ".local/share/pnpm/store": 2,
    ".local/share/pnpm": 1,
}
"""The depth below a cache of the folders that its tool can recreate one by one: a package, an environment, a bucket of downloads."""
_CACHES = word_set("""pip uv pypoetry pre-commit yarn pnpm node go-build ccache sccache mypy ruff black pylint flake8 pdm hatch
    virtualenv pipenv pip-tools tox rattler matplotlib fontconfig numba jedi parso huggingface/hub torch ms-playwright puppeteer Cypress
    selenium bazel bazelisk deno composer electron electron-builder node-gyp typescript turbo prisma golangci-lint gopls staticcheck
    goimports vcpkg conan meson xmake zig coursier sbt bundler helm/repository trivy/db buf clangd rust-analyzer ansible-compat""")
"""Folders below `~/.cache` that commands may read. They see nothing else of that folder, and write into a private one."""
_BESIDES = {
    "PIP_CACHE_DIR": "pip",
    "UV_CACHE_DIR": "uv",
    "POETRY_CACHE_DIR": "pypoetry",
    "YARN_CACHE_FOLDER": "yarn",
    "GOCACHE": "go-build",
    "GOMODCACHE": "go/pkg/mod",
    "CCACHE_DIR": "ccache",
    "SCCACHE_DIR": "sccache",
    "DENO_DIR": "deno",
    "COMPOSER_CACHE_DIR": "composer",
    "pnpm_config_store_dir": "pnpm",
}
"""Variables of tools whose caches are below `~/.cache`, used if no layer can be laid over it."""
_ONLY_READ = {"PRE_COMMIT_HOME": "pre-commit", "COREPACK_HOME": "node/corepack"}
"""Tools that work with a read-only cache: the variable is set if the user has none."""


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches that a command may read, as real paths.

    Attributes:
        home: the home folder.
        overlaid: folders that commands can read as the user can.
        plain: folders (`~/.cache`) in which a command sees only those of `overlaid`.
        missing: variables of tools whose folder the user does not have, with the name of the tool's folder in the private one.
        known: values of variables that let a tool read in the user's cache while it writes to a private one.
    """

    home: str = ""
    overlaid: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    known: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def covered(self) -> tuple[str, ...]:
        """The folders over which a private layer lies, shallow ones first."""
        return (*self.plain, *self.overlaid)

    def words(self, folder: str) -> list[str]:
        """Return the words for `confine`, for the layers in a folder."""
        return [
            f"layers:{folder}",
            f"home:{self.home}",
            *(f"plain:{_name_of(path)}{path}" for path in self.plain),
            *(f"layer:{_name_of(path)}{path}" for path in self.overlaid),
        ]

    def variables(self, folder: str, *, is_layered: bool) -> dict[str, str]:
        """Return the variables with which tools keep their caches in a private folder.

        Args:
            folder: the path of the folder, as a command sees it.
            is_layered: whether there are layers, so that only caches that the user does not have need variables.
        """
        names = dict(self.missing)
        if is_layered and self.plain:
            names = {
                variable: name for variable, name in names.items() if variable not in _ONLY_READ
            }
        elif not is_layered:
            names.pop("XDG_CACHE_HOME", None)
            names |= _FOLDERS
            names |= _BESIDES
        found = {variable: os.path.join(folder, name) for variable, name in names.items()}
        if own := found.pop("MAVEN_OPTS", ""):
            tail = self.known.get("MAVEN_OPTS", "")
            found["MAVEN_OPTS"] = f"-Dmaven.repo.local={own}" + (tail and f" {tail}")
        if not is_layered:
            found |= {name: one for name, one in self.known.items() if name != "MAVEN_OPTS"}
        # A hard link between a layer and the work folder is impossible, as they are two file systems.
        return {**found, "UV_LINK_MODE": "copy"}


def once_writable(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield caches and other places in the home folder that version 0.x let commands write: a command may have made their contents.

    Paths are as named, not real ones, and need not exist.
    """
    yield from app_paths.home_places(environ, _CACHE, "Library/Caches", ".npm", *_TOOLS, *_PRIVATE)
    yield from _caches_of_variables(environ).values()


def _caches_of_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caches that the user's variables name."""
    return {
        variable: os.path.join(named, below) if below else named
        for variable, below in _NAMED.items()
        if os.path.isabs(named := environ.get(variable, ""))
    }


def caches_of(environ: Mapping[str, str], avoided: Collection[str], work: str) -> Caches:
    """Return the user's caches. The paths that it looks at are noted (`filesystem.note_path`).

    Args:
        environ: the environment.
        avoided: real paths that commands can write anyway, or cannot see: caches in them are omitted.
        work: the work folder; a cache that contains it is omitted.
    """
    home = links_to(app_paths.home_of(environ) or "/")[1]

    moved = {usual: environ.get(name, "") for usual, name in app_paths.XDG_FOLDERS.items()}

    def places_of(name: str) -> list[str]:
        # This is `app_paths.home_places` without finding the home folder again for each name.
        found = [os.path.join(home, name)]
        for usual, place in moved.items():
            if os.path.isabs(place) and f"{name}/".startswith(f"{usual}/"):
                found.append(os.path.normpath(os.path.join(place, name[len(usual) + 1 :])))
        return found

    def usable(path: str) -> str:
        note_path(path)
        if not os.path.isdir(path):
            return ""
        links, end = links_to(path)
        places = (end, *links)
        if any(is_under(place, avoided) for place in places) or is_under(home, (end,)):
            return ""
        return end

    caches = [
        (place, end)
        for place in places_of(_CACHE)
        if (end := usable(place)) and not is_under(work, (end,))
    ]
    others = [end for name in _PRIVATE for end in map(usable, places_of(name)) if end]
    used = {top for place, _ in caches for top in _used_below(place, environ)}
    overlaid = [
        usable(os.path.join(place, name)) for place, _ in caches for name in (*_CACHES, *used)
    ]
    missing: dict[str, str] = {}
    named = _caches_of_variables(environ)
    overlaid += [end for end in map(usable, named.values()) if end and not is_under(work, (end,))]
    for name, variable in _TOOLS.items():
        places = [named[variable]] if variable in named else places_of(name)
        ends = [end for end in map(usable, places) if end]
        overlaid += [end for end in ends if not is_under(work, (end,))]
        if not ends and variable:
            missing[variable] = _FOLDERS[variable]
    known: dict[str, str] = {}
    cache = next((place for place, _ in caches), os.path.join(home, _CACHE))
    for variable, name in _ONLY_READ.items():
        note_path(os.path.join(cache, name))
        if not os.path.isdir(os.path.join(cache, name)):
            missing[variable] = name
    if not caches:
        missing["XDG_CACHE_HOME"] = "cache"
    for variable, path, form in (
        ("POETRY_VIRTUALENVS_PATH", os.path.join(cache, "pypoetry/virtualenvs"), "{}"),
        ("GRADLE_RO_DEP_CACHE", os.path.join(home, ".gradle/caches"), "{}"),
        ("MAVEN_OPTS", os.path.join(home, ".m2/repository"), "-Dmaven.repo.local.tail={}"),
    ):
        note_path(path)
        if os.path.isdir(path) and " " not in path:
            known[variable] = form.format(path)
    ends = {end for end in overlaid if end}
    return Caches(
        home,
        tuple(sorted(end for end in ends if not is_under(os.path.dirname(end), ends))),
        tuple(sorted({*others, *(end for _, end in caches)})),
        MappingProxyType(missing),
        MappingProxyType(known),
    )


def _used_below(cache: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the folders at the top of `~/.cache` that contain environments in which the user works."""
    named = (environ.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX"))
    for path in (*environ.get("PATH", "").split(os.pathsep), *named):
        if path.startswith(f"{cache}/"):
            yield path[len(cache) + 1 :].partition("/")[0]


def _name_of(path: str) -> str:
    """Return the name of a cache's layer, which is readable and unique."""
    shown = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in path.strip("/"))
    return f"{shown[-_LONGEST_NAME:]}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


# -- folders of the layers --------------------------------------------------------------------------------

_VARIABLES, _NAMES, _GONE = "variables", "folder", "gone-"
RESET_NAME = "reset"
"""The name of the file that a reset locks, in the folder of the layers of a work folder (see `confine.py`)."""
_OTHERS_S = 10.0
"""The most seconds that a reset waits for another one, for commands that are set up and for what trims the layers."""
_MOST_PATH_BYTES = 4096
_MOST_FOLDERS = 2000
_TRY = "import sys; sys.path.append(sys.argv[1]); import confine; confine.try_layers(sys.argv[2])"


def layers_dir(environ: Mapping[str, str]) -> str:
    """Return the real path of the folder of all layers."""
    return os.path.realpath(app_paths.data_dir(environ) / FOLDER)


def folder_of(environ: Mapping[str, str], work: str) -> str:
    """Return the path of the layers of a work folder, which need not exist.

    Args:
        environ: the environment.
        work: the real path of the work folder.
    """
    return os.path.join(layers_dir(environ), hashlib.sha256(os.fsencode(work)).hexdigest()[:20])


def noted_folder(environ: Mapping[str, str], work: str) -> str:
    """Return the same path, and note the names on which it depends (`filesystem.note_path`)."""
    links_to(app_paths.home_of(os.environ) or "/")
    links_to(str(app_paths.data_dir(environ) / FOLDER))
    return folder_of(environ, work)


def made_folder(environ: Mapping[str, str], work: str, folder: str = "") -> str:
    """Create the folder of the layers of a work folder if it is missing, with the private one for variables in it; return its path.

    Args:
        environ: the environment.
        work: the real path of the work folder.
        folder: the path, if it is known (`folder_of`).

    Raises:
        OSError: the folder cannot be created.
    """
    folder = folder or folder_of(environ, work)
    variables, name = os.path.join(folder, _VARIABLES), os.path.join(folder, _NAMES)
    if not (os.path.isdir(variables) and os.path.isfile(name)):
        app_paths.make_private(Path(folder))
        os.makedirs(variables, mode=0o700, exist_ok=True)
        _link_settings(environ, variables)
        Path(name).write_bytes(os.fsencode(work))
    return folder


def _link_settings(environ: Mapping[str, str], variables: str) -> None:
    """Link the user's settings, such as mirrors of registries, into a private `CARGO_HOME` and `GRADLE_USER_HOME`."""
    home = os.path.realpath(app_paths.home_of(environ) or "/")
    for name, *files in (
        ("cargo", "config.toml", "config"),
        ("gradle", "gradle.properties", "init.d"),
    ):
        for file in files:
            place = os.path.join(home, f".{name}", file)
            if os.path.exists(place):
                os.makedirs(os.path.join(variables, name), mode=0o700, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.symlink(place, os.path.join(variables, name, file))


def variables_folder(folder: str) -> str:
    """Return the private folder that variables name, in the folder of the layers of a work folder."""
    return os.path.join(folder, _VARIABLES)


_remembered = Remembered()
"""The work folders, of which there may be thousands, while the folder of all layers is the same."""


def work_folders(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the real paths of the work folders in which commands ran in the sandbox, as far as they are known."""
    top = layers_dir(environ)

    def found() -> frozenset[str]:
        paths: set[str] = set()
        note_path(f"{top}/")
        names: list[str] = []
        with unread_is_empty():
            names = os.listdir(top)[:_MOST_FOLDERS]
        for name in names:
            path = os.path.join(top, name, _NAMES)
            data = b""
            with unread_is_empty():
                data = read_regular(Path(path), _MOST_PATH_BYTES)
            if data:
                paths.add(os.fsdecode(data))
            else:
                # The layer is being made and will have its file in a moment. The contents of such a file never change.
                note_path(path)
        return frozenset(filter(os.path.isabs, paths))

    return _remembered.look().at("work folders", top, found)


def can_layer(environ: Mapping[str, str]) -> bool:
    """Return whether the kernel can lay overlays over folders here, tried in the data folder. It starts a process, so call it
    in a thread.
    """
    try:
        app_paths.make_private(Path(top := layers_dir(environ)))
        place = tempfile.mkdtemp(prefix=".trial-", dir=top)
    except OSError:
        return False
    try:
        folder = os.path.dirname(os.path.abspath(__file__))
        how = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _TRY, folder, place]
        tried = subprocess.run(
            how,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TRIAL_S,
            check=False,
        )
        return tried.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        with contextlib.suppress(OSError):
            remove_tree(place)


class Reset(NamedTuple):
    """The result of removing the layers of a work folder: the bytes freed, and whether a command still uses some."""

    n_bytes: int
    is_used: bool


def reset(environ: Mapping[str, str], work: str) -> Reset:
    """Remove everything that commands of a work folder wrote to caches, except files that a running command uses. Call it in a thread.

    Raises:
        OSError: not all of it could be removed.
    """
    folder = folder_of(environ, work)
    if not os.path.isdir(folder):
        return Reset(0, is_used=False)
    own = -1
    try:
        with _without_others(folder, fcntl.LOCK_EX, wait_s=_OTHERS_S) as is_alone:
            if not is_alone:
                return Reset(0, is_used=True)
            # Commands that begin wait for the lock, so what takes long is done without it.
            gone = tempfile.mkdtemp(prefix=_GONE, dir=folder)
            own = _opened_alone(gone)
            with _unused(folder, wants=True) as (free, is_used):
                _move_away(folder, free, gone)
                if _VARIABLES in free:
                    _link_settings(environ, variables_folder(folder))
        n_bytes = sum(map(size_of, _inner_or_none(gone)))
        remove_tree(gone)
    finally:
        if own >= 0:
            os.close(own)
    with contextlib.suppress(OSError), _without_others(folder, fcntl.LOCK_SH) as is_free:
        if is_free:
            _remove_left(folder)
    return Reset(n_bytes, is_used=is_used)


def _move_away(folder: str, names: Iterable[str], to: str) -> None:
    """Move the contents of parts of the layers of a work folder into another folder.

    The folders that a command may have found already, and opens next, stay where they are, empty.
    """
    found: list[str] = []
    for name in names:
        place = os.path.join(folder, name)
        if name == "plain":
            found += [inner for one in _inner_or_none(place) for inner in _names_in_reopened(one)]
        elif name == _VARIABLES:
            found += _names_in_reopened(place)
        elif os.path.isdir(place):
            found.append(place)
    for number, place in enumerate(found):
        target = os.path.join(to, str(number))
        try:
            os.rename(place, target)
        except PermissionError:
            # A folder that moves has to be writable itself.
            _reopen(place)
            os.rename(place, target)


def _names_in_reopened(folder: str) -> list[str]:
    """Return the paths of everything in a folder, which a command may have closed; nothing if there is none.

    Raises:
        OSError: it cannot be opened again.
    """
    try:
        _reopen(folder)
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except FileNotFoundError:
        return []


def _reopen(path: str) -> None:
    """Let the user read and change a folder again. A link that a command made may lead anywhere, so it is not followed."""
    if stat.S_ISDIR(os.lstat(path).st_mode):
        os.chmod(path, 0o700)


def _remove_left(folder: str) -> None:
    """Remove what resets that were killed left behind. No reset may begin meanwhile."""
    for path in _inner_or_none(folder):
        if not os.path.basename(path).startswith(_GONE):
            continue
        with contextlib.suppress(OSError):
            lock = _opened_alone(path)
            try:
                remove_tree(path)
            finally:
                os.close(lock)


def _opened_alone(path: str) -> int:
    """Open a folder that is deleted, so that nobody else deletes it, and return its descriptor.

    Raises:
        BlockingIOError: somebody deletes it.
        OSError: it cannot be opened.
    """
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if isinstance(error, BlockingIOError):
            os.close(lock)
            raise
        # The file system has no locks.
    return lock


@contextlib.contextmanager
def _without_others(folder: str, how: int, *, wait_s: float = 0.0) -> Generator[bool]:
    """Lock the layers of a work folder, and yield whether that was possible in time.

    Args:
        folder: their folder, which exists.
        how: `fcntl.LOCK_EX` for a reset, `fcntl.LOCK_SH` for anything else that must not be in its way.
        wait_s: the most seconds to wait for others.

    Raises:
        OSError: the lock cannot be opened.
    """
    flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(os.path.join(folder, RESET_NAME), flags, 0o600)
    try:
        yield _locked(lock, how) or (wait_s > 0 and _locked_in_time(lock, how, wait_s))
    finally:
        os.close(lock)


def _locked_in_time(lock: int, how: int, wait_s: float) -> bool:
    """Lock a file as soon as others let go; return False if they do not in time."""
    own = os.dup(lock)

    def wait() -> None:
        # Both descriptors have one lock. If nobody wants it any more, it is gone with the last of them.
        with contextlib.suppress(OSError):
            fcntl.flock(own, how)
        os.close(own)

    waiting = threading.Thread(target=wait, name="reset", daemon=True)
    waiting.start()
    waiting.join(wait_s)
    return not waiting.is_alive()


@contextlib.contextmanager
def _unused(folder: str, *, wants: bool = False) -> Generator[tuple[list[str], bool]]:
    """Yield the names in the folder of the layers of a work folder that no command uses, locked meanwhile, and whether a
    command uses others.

    Args:
        folder: the folder.
        wants: whether to have another program give up those that it holds for its next command.
    """
    held: list[int] = []
    free: list[str] = []
    is_used = False
    try:
        for name in sorted(os.listdir(folder)):
            number, _, ending = name.partition(".")
            if ending != "lock":
                continue
            place = os.path.join(folder, name)
            lock = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            if not _locked(lock) and not (wants and _given_up(place) and _locked(lock)):
                os.close(lock)
                is_used = True
                continue
            held.append(lock)
            free.append(number)
        if not is_used:
            free += ["plain", _VARIABLES]
        yield free, is_used
    finally:
        for lock in held:
            os.close(lock)


def _locked(lock: int, how: int = fcntl.LOCK_EX) -> bool:
    """Lock the file of a descriptor, such as that of a layer; return False if a process holds it."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _given_up(place: str) -> bool:
    """Ask for a layer by its lock, and wait until a process that holds it for its next command has ended; return False if a process
    keeps it. A process with a command takes no notice.
    """

    def ask() -> None:
        with contextlib.suppress(OSError):
            # The kernel tells the process that has a lease on the file (`confine.set_up_ahead`), and waits for its end here.
            os.close(os.open(place, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW))

    # If that process is stopped, opening the file takes 45 seconds.
    asking = threading.Thread(target=ask, name="layer", daemon=True)
    asking.start()
    asking.join(_GIVEN_UP_S)
    return not asking.is_alive()


def size_of(folder: str) -> int:
    """Return the bytes that a folder with everything below it takes on the disk."""
    return _unit(folder).n_bytes


class _Unit(NamedTuple):
    """A folder or file that is kept or removed as a whole: the last change of a file in it, its size, its path."""

    changed_at: float
    n_bytes: int
    path: str


def _unit(path: str) -> _Unit:
    """Examine a folder or file. Links are not followed; unreadable parts count for nothing."""
    changed_at, n_bytes = 0.0, 0
    waiting = [path]
    while waiting:
        at = waiting.pop()
        with contextlib.suppress(OSError):
            status = os.lstat(at)
            n_bytes += status.st_blocks * 512
            if stat.S_ISDIR(status.st_mode):
                waiting += [os.path.join(at, name) for name in os.listdir(at)]
            else:
                changed_at = max(changed_at, status.st_mtime)
    return _Unit(changed_at, n_bytes, path)


def _parts(top: str, below: str = "") -> Iterator[str]:
    """Yield the parts of a layer over the home folder that are removed as a whole: each is something that a tool recreates completely."""
    place = os.path.join(top, below)
    depth = _DEPTHS.get(below, -1)
    if depth < 0 and not any(one.startswith(f"{below}/" if below else "") for one in _DEPTHS):
        depth = 0
    if depth < 0:
        for inner in _inner(place):
            yield from _parts(top, os.path.relpath(inner, top)) if inner != place else ()
        return
    found = [place]
    for _ in range(depth):
        found = [inner for path in found for inner in _inner(path)]
    yield from found


def _inner(path: str) -> list[str]:
    """Return what is in a folder; the path itself if it is not one. A command may have put a link to any folder into a layer, so links
    are not followed.
    """
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            return [os.path.join(path, name) for name in os.listdir(path)]
    return [path]


def _inner_or_none(path: str) -> list[str]:
    """Return what is in a folder; nothing if it is not one."""
    return [inner for inner in _inner(path) if inner != path]


def trim(environ: Mapping[str, str], work: str) -> int:
    """Remove the oldest files that commands wrote to caches, until the layers are within their limits. Call it in a thread.

    Nothing that a running command uses is removed.

    Args:
        environ: the environment.
        work: the real path of the present work folder.

    Returns:
        the number of bytes freed.
    """
    top, own = layers_dir(environ), folder_of(environ, work)
    freed = 0
    with contextlib.suppress(OSError):
        with _without_others(own, fcntl.LOCK_SH) as is_mine:
            freed += _trim_folder(own, MOST_BYTES) if is_mine else 0
        others = [os.path.join(top, name) for name in os.listdir(top)]
        others = [path for path in others if path != own and os.path.isdir(path)]
        sizes = {path: size_of(path) for path in others}
        too_many = sum(sizes.values()) + size_of(own) - MOST_BYTES_IN_ALL
        for path in sorted(others, key=_used_at):
            if too_many <= 0:
                break
            with contextlib.suppress(OSError):
                if gone := _moved_away_whole(path, top):
                    remove_tree(gone)
                    too_many -= sizes[path]
                    freed += sizes[path]
    return freed


def _moved_away_whole(folder: str, top: str) -> str:
    """Move the layers of a work folder to another name if no command used them for a day, and return the path; empty if one did.

    Raises:
        OSError: they cannot be moved.
    """
    with _without_others(folder, fcntl.LOCK_EX) as is_alone:
        if not is_alone:
            return ""
        with _unused(folder) as (_, is_used):
            if is_used or _used_at(folder) >= time.time() - _DAY_S:
                return ""
            gone = tempfile.mkdtemp(prefix=f".{_GONE}", dir=top)
            os.rename(folder, gone)
            return gone


def _used_at(folder: str) -> float:
    """Return when a command last used the layers of a work folder."""
    with contextlib.suppress(OSError):
        return os.stat(os.path.join(folder, "0.lock")).st_mtime
    return 0.0


def _trim_folder(folder: str, most: int) -> int:
    freed = 0
    _remove_left(folder)
    with _unused(folder) as (free, _):
        for name in free:
            with contextlib.suppress(OSError):
                remove_tree(os.path.join(folder, name, "work", "left"))
        left = size_of(folder) - most
        if left <= 0:
            return 0
        found: list[str] = []
        for name in free:
            uppers = _inner(os.path.join(folder, name, "upper")) if name.isdecimal() else []
            found += [part for path in uppers if path.endswith("/home") for part in _parts(path)]
            found += [path for path in uppers if not path.endswith("/home")]
        if _VARIABLES in free:
            found += _inner(os.path.join(folder, _VARIABLES))
            plain = _inner(os.path.join(folder, "plain"))
            found += [inner for path in plain for inner in _inner(path)]
        for unit in sorted(map(_unit, found)):
            if left <= 0:
                break
            with contextlib.suppress(OSError):
                if os.path.isdir(unit.path) and not os.path.islink(unit.path):
                    remove_tree(unit.path)
                else:
                    os.unlink(unit.path)
                left -= unit.n_bytes
                freed += unit.n_bytes
    return freed


_TOLD = "writable-told"


def risk_of(writable: Iterable[str], environ: Mapping[str, str]) -> str:
    """Return a sentence about the caches that `[sandbox] writable` opens; empty if it names none, or once the sentence was shown.

    Until version 0.1 such a list replaced that of the caches that commands could write. It writes a file, so call it in a thread.
    """
    home = os.path.realpath(app_paths.home_of(environ) or "/")
    caches = {os.path.realpath(path) for path in once_writable(environ)}
    places = {one: os.path.realpath(os.path.join(home, one.removeprefix("~/"))) for one in writable}
    named = sorted(
        one
        for one, place in places.items()
        if is_under(place, caches) or any(is_under(cache, (place,)) for cache in caches)
    )
    told = Path(layers_dir(environ), _TOLD)
    with contextlib.suppress(OSError):
        if not named or read_regular(told, _MOST_PATH_BYTES).decode("utf-8", "replace") == str(
            named
        ):
            return ""
    with contextlib.suppress(OSError):
        app_paths.make_private(told.parent)
        told.write_text(str(named))
    which = ", ".join(named)
    return (
        f"`writable` in the section [sandbox] of config.toml has {which}: commands can change programs there that "
        "other projects run. Remove the entry: commands now write to private copies of package caches."
    )
