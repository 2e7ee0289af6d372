"""Looks up every program that this program runs itself: git, rg, bwrap, tmux, clipboards, browsers, editors.

A program is taken only from a place that commands in the sandbox cannot change, now or in an earlier session: such a program
would run outside the sandbox. The settings are read here, so that this holds before there is a policy, and for work folders
that are not open.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sysconfig
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from kimi_tui import app_paths
from kimi_tui.filesystem import is_under, links_to, read_regular
from kimi_tui.tools.process import DEFAULT_PATH, repository_around
from kimi_tui.tools.sandbox.layers import layers_dir, once_writable, work_folders
from kimi_tui.tools.sandbox.policy import shared_repository
from kimi_tui.tools.sandbox.remembered import Remembered

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
"""Folders in which every user may write, whatever the environment says."""
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_MOST_WORDS = 100
_remembered = Remembered()
"""The places where commands write, which are the same for every command while nothing about the home folder changes."""
_MOST_CONFIG_BYTES = 1 << 20


def find_program(name: str, environ: Mapping[str, str], *work_dirs: Path) -> str | None:
    """Return a program on the path, as a full path. Relative entries and folders in `written_roots` are ignored.

    Args:
        name: the name of the program; a name with a slash must be an absolute path, which is used as it is.
        environ: the environment, for the path and the home folder.
        work_dirs: the work folders.
    """
    roots = written_roots(environ, *work_dirs)
    if "/" in name:
        return name if os.path.isabs(name) and _is_kept(name, roots) and _runs(name) else None
    for folder in _kept_folders(environ, roots):
        found = program_in(folder, name)
        # A link in such a folder to a shell elsewhere would run the code in its arguments.
        if found and _is_kept(found, roots):
            return found
    return None


def program_in(folder: str, name: str) -> str:
    """Return the program with this name in a folder; empty if there is none. It says what a shell would run, not what may run."""
    return shutil.which(name, path=folder) or ""


def trusted_path(environ: Mapping[str, str], *work_dirs: Path) -> str:
    """Return the value of `PATH` for programs that run others by name, such as openers of addresses, without folders that
    commands can write.
    """
    return os.pathsep.join(_kept_folders(environ, written_roots(environ, *work_dirs)))


def is_planted(program: str, environ: Mapping[str, str], *work_dirs: Path) -> bool:
    """Return whether commands in the sandbox can change a program, or a link that leads to it, or could once."""
    return not _is_kept(program, written_roots(environ, *work_dirs))


def planted_in(command: str, environ: Mapping[str, str], *work_dirs: Path) -> list[str]:
    """Return the paths of programs that a shell would run for words of a command although commands in the sandbox can change
    them, while a program with the same name exists in a safe place. It looks at files, so call it in a thread.

    Args:
        command: the text of the command; every word in it may be a name.
        environ: the environment of the command.
        work_dirs: the work folders.
    """
    roots = written_roots(environ, *work_dirs)
    folders = [one for one in (environ.get("PATH") or DEFAULT_PATH).split(os.pathsep) if one]
    planted = [one for one in folders if not os.path.isabs(one) or not _is_kept(one, roots)]
    found: dict[str, None] = {}
    for name in list(dict.fromkeys(_WORD.findall(command)))[:_MOST_WORDS] if planted else ():
        first = next(filter(None, (program_in(folder, name) for folder in folders)), "")
        if first and not _is_kept(first, roots) and find_program(name, environ, *work_dirs):
            found[first] = None
    return list(found)


def bundled_program(name: str) -> str | None:
    """Return a program that was installed with this one into the same environment, which no command can change."""
    beside = os.path.join(sysconfig.get_path("scripts"), name)
    return beside if _runs(beside) else None


def written_roots(environ: Mapping[str, str], *work_dirs: Path) -> frozenset[str]:
    """Return the folders, as real paths, in which commands in the sandbox can write, or could in the past.

    They are the work folders, with the repositories around them and those whose working trees they are; all folders in which
    commands ran; the folders in `[sandbox] writable`; folders of temporary files; private layers, and the caches below them.
    """
    writable = _writable(environ)

    def writable_ones() -> set[str]:
        home = app_paths.home_of(environ) or "/"
        links_to(home)
        home = os.path.realpath(home)
        named = [*once_writable(environ), *temporary_folders(environ)]
        named += [os.path.join(home, one.removeprefix("~/")) for one in writable]
        ways = [links_to(os.path.normpath(path)) for path in named]
        # The sandbox never writes to a folder that contains the home folder, whatever the settings say.
        return {one for links, end in ways for one in (*links, end) if not is_under(home, (one,))}

    key = frozenset(environ.items()), writable
    found = {*_remembered.look().at("writable", key, writable_ones)}
    for folder in work_dirs:
        for place in {str(repository_around(folder, environ)), os.path.realpath(folder)}:
            common = shared_repository(place)
            found |= {place, common} if common else {place}
    return frozenset({*found, *work_folders(environ), layers_dir(environ)})


def temporary_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders of temporary files, in which every user may write."""
    own = (environ.get(name, "") for name in ("TMPDIR", "TMP", "TEMP"))
    return (*TEMPORARY, *filter(os.path.isabs, own))


def _kept_folders(environ: Mapping[str, str], roots: Collection[str]) -> Iterator[str]:
    for folder in (environ.get("PATH") or DEFAULT_PATH).split(os.pathsep):
        if os.path.isabs(folder) and _is_kept(folder, roots):
            yield folder


def _is_kept(path: str, roots: Collection[str]) -> bool:
    links, end = links_to(path)
    return not any(is_under(one, roots) for one in (end, *links))


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _writable(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return `[sandbox] writable` of the configuration; nothing if it cannot be read, which the start of the program reports."""
    file = app_paths.config_dir(environ) / "config.toml"
    try:
        found = os.stat(file)
        stamp = found.st_ctime_ns, found.st_mtime_ns, found.st_ino, found.st_size
        return _writable_in(str(file), stamp)
    except OSError:
        return ()


@functools.lru_cache(maxsize=4)
def _writable_in(file: str, _stamp: tuple[int, ...]) -> tuple[str, ...]:
    try:
        data = read_regular(Path(file), _MOST_CONFIG_BYTES, links=True)
        table = tomllib.loads(data.decode()).get("sandbox", {})
        return tuple(one for one in table.get("writable", ()) if isinstance(one, str))
    except (ValueError, RecursionError, AttributeError, TypeError):
        return ()
