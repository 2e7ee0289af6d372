"""The sandbox policy of a command: the paths that it may read and write, from the settings and the content of the work folder.

The work folder and the paths in the settings are writable, except files that decide what git runs, files at the top of the
work folder that run later, and the code of this program. A private layer lies over the caches of package managers
(`layers.py`): writing there changes nothing outside. Everything is readable except secrets and this program's own folders; in
the home folder only allowed paths are (`home.py`). Files below the top that run later cannot be write-protected without
blocking renames; they are compared afterwards (`WatchedFiles`). `refused` finds in the output of a failed command what the
sandbox denied.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kimi_tui import app_paths
from kimi_tui.filesystem import (
    SETTLED_NS,
    TRANSIENT_ERRORS,
    create_file,
    links_to,
    note_path,
    note_unread,
    read_regular,
    real_path,
    unread_is_empty,
)
from kimi_tui.filesystem import is_under as _under
from kimi_tui.tools.sandbox.git_levers import (
    ADDRESSES,
    BARE,
    folders_in,
    held_levers,
    inner_repositories,
    is_closed,
    levers,
    opened,
    path_in,
)
from kimi_tui.tools.sandbox.home import (
    HomeView,
    around_work,
    emptied_for,
    home_view,
    is_secret_place,
)
from kimi_tui.tools.sandbox.layers import Caches, caches_of, once_writable
from kimi_tui.tools.sandbox.quiet_folders import QuietFolders
from kimi_tui.tools.sandbox.remembered import OutsideLook, Remembered
from kimi_tui.tools.sandbox.sockets import stray_sockets
from kimi_tui.workspace import protected_names
from kimi_tui.workspace.protected_names import (
    PASSED_OVER,
    folded,
    known_links,
    links_in,
    remember_link,
)

_DEEPEST = 4
_MOST_LOOKED_AT = 2_000_000
_MOST_IN_FOLDER = 100_000
_MOST_UNSEEN = 100
"""The largest number of folders that are hidden because they are too large to be searched for secrets."""
_MOST_DEEP = 5000
"""The largest number of folders below these that are searched for repositories."""
_MOST_RESTLESS = 200
"""If more folders may have changed since the last scan, all are scanned."""
_MOST_GUARDED = 2000
_HOME_TOPS = ("", *app_paths.XDG_FOLDERS, "Library", "Library/Application Support")
"""Folders of the home folder that are searched for secrets by name."""
_MOST_REPOSITORIES = 500
_SETTINGS_BYTES = 1 << 18
_MOST_SETTINGS_FILES = 20
_MOST_NAMED = 1000
_QUOTES = str.maketrans(dict.fromkeys("\"'\\!", " "))  # pyrefly: ignore[bad-argument-type]
_COMMENT = re.compile(r"""^((?:[^"#;\\]|\\.|"(?:[^"\\]|\\.)*")*+)[#;].*$""")
_GIT_ELSEWHERE = ("commondir", "objects/info/alternates")
_GIT_OWN = (
    "HEAD",
    "config",
    "index",
    "objects",
    "objects/pack",
    "refs",
    "refs/heads",
    "packed-refs",
)
SYSTEM_GIT_SETTINGS = "/etc/gitconfig"
"""The file with git's settings of the system."""
_PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", "/dev/null")
"""Paths that a command has of its own."""
_NO_PROGRAMS = frozenset({"branch", "remote", "url", "submodule", "user", "safe"})
"""Sections of git's settings whose values are addresses and names."""


_MOST_REFUSALS = 3
_LONGEST_ERROR_LINE = 2000
_REFUSED = re.compile(
    r"Read-only file system|Permission denied|Operation not permitted|Device or resource busy|"
    r"Invalid cross-device link|\b(?:EROFS|EACCES|EPERM|EBUSY|EXDEV)\b",
    re.IGNORECASE,
)
_ABSENT = re.compile(r"No such file or directory|\bENOENT\b", re.IGNORECASE)
_READING = "reading"
_HELD = re.compile(r"Device or resource busy|Invalid cross-device link|EBUSY|EXDEV", re.IGNORECASE)
_IS_ONLY_READ = re.compile(r"Read-only file system|EROFS", re.IGNORECASE)
_SPECIAL = "cannot create special file"
_QUOTED = re.compile(r"['\"‘`]([^'\"’`\n]+)['\"’`]")
_PATH = re.compile(r"(?:~|\.{1,2})?/?[\w.@+-]+(?:/[\w.@+-]+)*")
_OF_SHELL = re.compile(
    r"\S{0,200}?\b(?:ba|da)?sh: (?:line )?\d{1,9}: (?:cannot (?:create|open) )?(?=(.{1,500}?): )?"
)
"""The beginning of a shell's message about a script, with the path that it is about."""
_NO_NETWORK = re.compile(
    r"Could not resolve|Temporary failure in name resolution|Name or service not known|Network is unreachable|"
    r"Couldn't connect|Failed to connect|Connection refused|No route to host|dns error|error sending request|"
    r"Failed to establish a new connection|getaddrinfo|Unknown host|Address family not supported|"
    r"\b(?:EAI_AGAIN|ENOTFOUND|ENETUNREACH|ECONNREFUSED)\b",
    re.IGNORECASE,
)

STANDS_FOR = "KIMI_TUI_STANDS_FOR"
"""The environment variable with the path of the folder for which the work folder stands, where that is a copy: what the model reads
names files by their paths in that folder.
"""


class SandboxSettings(NamedTuple):
    """`[sandbox]` of the configuration.

    `writable` are folders and files outside the work folder that commands may change; `readable` are paths of any kind that
    they may read, even in the home folder and in places of secrets; `network` is whether commands may use the network without
    approval.
    """

    enabled: bool = True
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    network: bool = False


class NoSandbox(Exception):
    """A sandbox is not possible; the message says why, without a full stop."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The paths that a sandboxed command may reach. They are absolute and without links, shallow ones first.

    Attributes:
        work: the work folder; the first of `writable`.
        writable: folders and files that may be written, with everything below them.
        kept: exceptions below `writable`, which may only be read.
        links: those of `kept` that are links and decide what is secret, or where this program's settings are.
        pinned: folders above the kept paths, which may not be renamed.
        hidden: paths that cannot be read.
        caches: the caches of package managers: they can be read, and writes go to a private layer.
        sockets: sockets of other programs, found under another name than the one to which they were bound.
        network: whether the command can use the machine's network.
        watch: the files that run later, as they were before the command.
        held: device and inode of the paths in `kept` and `hidden`.
        home: the view of the home folder.
    """

    work: str
    writable: tuple[str, ...]
    kept: tuple[str, ...]
    links: tuple[str, ...]
    pinned: tuple[str, ...]
    hidden: tuple[str, ...]
    caches: Caches
    sockets: tuple[str, ...]
    network: bool
    watch: WatchedFiles
    held: Mapping[str, tuple[int, int]]
    home: HomeView

    def replaced(self) -> list[str]:
        """Return the kept and hidden paths that have become other files, so that they are no longer protected. Call it in a thread."""
        if sys.platform == "darwin":
            # The rules of macOS go by the path.
            return []
        now = _identities(self.held)
        return [path for path, was in self.held.items() if now.get(path, was) != was]

    def may_write(self, path: str) -> bool:
        """Return whether a command may change the file or folder at this path."""
        real = os.path.realpath(os.path.join(self.work, path))
        if _under(real, (*self.kept, *self.hidden, *self.sockets)):
            return False
        places = (*self.writable, *self.caches.covered, *_PRIVATE)
        return _under(real, places)

    def may_rename(self, path: str) -> bool:
        """Return whether the file or folder at this path can be renamed to any other place: neither it nor a parent folder is pinned."""
        return not _under(os.path.realpath(os.path.join(self.work, path)), self.pinned)

    def refuses_read(self, path: str, *, is_for_writing: bool) -> bool:
        """Return whether the sandbox keeps a command from reading this path: it is hidden, and exists.

        Args:
            path: the path as the command names it.
            is_for_writing: whether the error is one of writing, which in the emptied home folder does not mean that a file is hidden.
        """
        real = self.real(path)
        if not self.hides(real):
            return False
        is_absent = self.home.hides(real) and not _under(real, (*self.hidden, *self.sockets))
        return not is_absent or (os.path.lexists(real) and not is_for_writing)

    def real(self, path: str) -> str:
        """Return the real path for a path that a command names."""
        if path.startswith("~/"):
            path = os.path.join(self.home.home, path[2:])
        return os.path.realpath(os.path.join(self.work, path))

    def hides(self, real: str) -> bool:
        """Return whether a real path is hidden from a command, or missing for it."""
        if _under(real, (*self.hidden, *self.sockets)):
            return True
        return self.home.hides(real) and not _under(real, self.writable)


def policy_for(
    work_dir: Path,
    settings: SandboxSettings,
    environ: Mapping[str, str],
    *,
    network: bool = False,
    memory: FolderMemory | None = None,
    added: Sequence[str] = (),
    creates: bool = True,
) -> Policy:
    """Return the policy for a command in a work folder. It lists folders, so call it in a thread.

    Args:
        work_dir: the work folder.
        settings: the user's settings.
        environ: the environment variables, for the home folder and this program's own folders.
        network: whether the command may use the network.
        memory: the results of earlier listings of the folder.
        added: real paths of folders that the user added for this run; they are writable, but for repositories and other files
            that are run later.
        creates: whether missing folders and settings of repositories are created, so that a command cannot create them; not
            needed if nothing of what it writes stays.

    Raises:
        NoSandbox: the folder holds too many paths that have to be kept from commands.
    """
    work = os.path.realpath(work_dir)
    home = os.path.realpath(app_paths.home_of(environ) or "/")
    if _under(home, (work,)):
        raise NoSandbox("the work folder contains your home folder and all secrets in it")
    extra = _writable(settings.writable, home, work) | {*added}
    memory = memory or FolderMemory()
    look = memory.outside.look()
    variables = frozenset(environ.items())
    # A command could redirect these links.
    places = once_writable(environ) if settings.readable else ()
    written = {work, *extra, *map(os.path.realpath, places)}
    shown: set[str] = set()
    for path in settings.readable:
        links, end = links_to(_absolute(path, home))
        if not any(_under(link, written) for link in links):
            shown.add(end)
    own = ways_to_own_places(environ, look)
    outside = look.at("secrets", variables, lambda: _secrets_outside(environ))
    guarded = [place for place, _ in (*own, *outside)]
    hidden: set[str] = set()
    ways = [way for _, way in (*own, *outside)]
    for place, (_, end) in zip(guarded, ways, strict=True):
        if end in shown or not os.path.lexists(end):
            continue
        parent, name = os.path.split(place)
        if (
            parent == home
            and name[:1] != "."
            and any(_under(one, (end,)) for one in (work, *extra))
        ):
            # The project has the name of a folder of secrets.
            continue
        if _under(work, (end,)):
            raise NoSandbox(f"the work folder is in {end}, where secrets are kept")
        hidden.add(end)
    writable = {
        path
        for path in extra
        if os.path.exists(path) and not _under(path, hidden) and not _under(home, (path,))
    }
    top, watch, nested = _look(work, memory, environ, look)
    if work in watch.closed:
        raise NoSandbox("the work folder cannot be read, so it cannot be checked for secrets")
    unseen = _gathered({path for path in watch.unseen if not _under(path, shown)}, work)
    if len(unseen) > _MOST_UNSEEN:
        raise NoSandbox(
            f"the upper levels of the work folder contain more than {_MOST_LOOKED_AT:,} files, too many to check for secrets"
        )
    kept: set[str] = set(top)
    for path in sorted(writable.intersection(added)):
        # No command is watched there, so a repository is not written at all.
        tops, seen, inner = _look(path, memory.beside(path), environ)
        gits = (os.path.join(one, ".git") for one in (path, *inner))
        kept |= {*tops, *filter(os.path.lexists, gits)}
        hidden |= {one for one in seen.secrets if one not in shown}
        hidden |= _gathered({one for one in seen.unseen if not _under(one, shown)}, path)
        hidden |= {one for one in seen.closed if not _under(one, shown)}
    commons: list[str] = []
    hidden |= {path for path in watch.secrets if path not in shown and _under(path, (work, home))}
    hidden |= unseen
    hidden |= {path for path in watch.closed if not _under(path, shown)}
    sockets = {*stray_sockets(watch.sockets, home)} - shown
    # A command may have removed these links since they were found; and links of the home folder may lead into the work folder.
    look.at("links", home, lambda: links_in(home, deepest=0))
    guarded_links = tuple(known_links(home))
    for names, real in (*known_links(work), *guarded_links):
        inside = {*_inside(real, work)}
        if protected_names.secrets().rule_in(names):
            hidden |= inside - shown
        elif len(names) == 1 and protected_names.runs_later().rule_in(names):
            kept |= inside

    def named_below(git: str, top: str) -> set[str]:
        named = look.at(
            f"settings {git}", (top, variables), lambda: named_by_settings(git, top, environ)
        )
        return {path for path in named if _under(path, (work,))}

    for repository in [work, *nested]:
        link = os.path.join(repository, ".git")
        if os.path.islink(link):
            raise NoSandbox(f"{link} is a link, which cannot be protected from changes")
        common = shared_repository(repository)
        if common and not _under(common, (work,)):
            writable.add(common)
            commons.append(common)
        for git in [common] if common else repositories_behind(link, work):
            kept |= set(_of_git(git, creates=creates))
            kept |= named_below(git, repository)
        kept |= {path for path in [link] if os.path.isfile(path)}
    for bare in (git for git in watch.repositories if folded(os.path.basename(git)) != ".git"):
        kept |= {*_of_git(bare, makes_hooks=False, creates=creates)} | named_below(bare, bare)
    roots = (work, *sorted(path for path in writable if not _under(path, (work,))))
    avoided = (*roots, *sorted(hidden))
    caches = look.at(
        "caches", (variables, avoided, work), lambda: caches_of(environ, avoided, work)
    )
    asked = tuple(sorted(shown))
    emptied = look.at("emptied", (variables, work, asked), lambda: _emptied(environ, work, asked))
    around = tuple(around_work(work, emptied, _repositories_of))
    view = look.at(
        "home",
        (variables, work, asked, settings.readable, roots, caches.overlaid, around),
        lambda: home_view(
            environ,
            work,
            asked=asked,
            readable=settings.readable,
            writable=roots,
            own=(*_code_places(), *caches.overlaid),
            around=around,
        ),
    )
    hidden = {path for path in {*hidden, *view.closed} if _is_there(path, view, roots)} - shown
    # A place of secrets that the user wants shown is shown completely.
    wanted = {path for path in shown if is_secret_place(path, environ)}
    hidden = {path for path in hidden if not _under(path, wanted)}
    sockets = {path for path in sockets if _is_there(path, view, roots)}
    # A link that a command can change would lead to another target for the next command.
    guarded_ways = look.at(
        "ways",
        (home, guarded_links),
        lambda: tuple(links_to(os.path.join(home, *names)) for names, _ in guarded_links),
    )
    followed = [
        link for links, _ in (links_to(str(work_dir)), *ways, *guarded_ways) for link in links
    ]
    links = {link for link in (*followed, *watch.links) if _under(link, roots)}
    links = {link for link in links if not _under(os.path.dirname(link), hidden | kept)} - hidden
    for _, end in ways[: len(own)]:
        if _under(end, roots) and not os.path.lexists(end) and not _under(end, hidden):
            raise NoSandbox(
                f"{end} does not exist, so a command could create it, and kimi-tui would read settings from it; create it yourself, or start kimi-tui in another folder"
            )
    if _under(work, (_package_folder(),)):
        raise NoSandbox("the work folder is inside kimi-tui's own program folder")
    kept |= links
    kept |= look.at("programs", (roots, work), lambda: _program_places(roots, work))
    kept_paths = sorted(kept - hidden)
    if len(kept_paths) + len(hidden) + len(sockets) > _MOST_GUARDED:
        raise NoSandbox(f"more than {_MOST_GUARDED:,} files would have to be protected")
    secret_paths = outermost(hidden)
    return Policy(
        work=work,
        writable=roots,
        kept=tuple(kept_paths),
        links=tuple(sorted(links)),
        pinned=tuple(
            sorted(
                {
                    one
                    for path in (*kept_paths, *secret_paths, *sockets)
                    for one in folders_between(path, roots)
                }
            )
        ),
        hidden=tuple(sorted(hidden)),
        caches=caches,
        sockets=tuple(sorted(sockets)),
        network=network or settings.network,
        watch=watch.with_commons(commons),
        held=_identities((*kept_paths, *secret_paths)),
        home=view,
    )


def _is_there(path: str, view: HomeView, roots: Sequence[str]) -> bool:
    """Return whether a hidden path has to be covered: it is not in an emptied folder, or is below a shown or writable path."""
    if not _under(path, view.emptied):
        return True
    return _under(os.path.dirname(path), view.shown) or _under(path, roots)


def _repositories_of(top: str) -> Iterator[str]:
    """Yield the repository of a folder's files: its own `.git`, or one elsewhere that names the folder."""
    link = os.path.join(top, ".git")
    if os.path.isdir(link) and not os.path.islink(link):
        yield link
    elif common := shared_repository(top):
        yield common
    elif os.path.isfile(link):
        own = _repository_named_in(link)
        if _working_tree(own) == real_path(top):
            yield own


def _identities(paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            found[path] = (status.st_dev, status.st_ino)
    return found


def _absolute(path: str, home: str) -> str:
    """Return the absolute path for a path that the user wrote in the settings."""
    return os.path.normpath(os.path.join(home, "" if path == "~" else path.removeprefix("~/")))


def _writable(names: Iterable[str], home: str, work: str) -> set[str]:
    """Return the real paths of the writable entries.

    Targets of links in an entry, or in the work folder, are left out: a command could redirect these links."""
    ways = [links_to(_absolute(name, home)) for name in names]
    plain = {end for links, end in ways if not links}
    linked = [
        (links, end)
        for links, end in ways
        if links and not any(_under(link, (work, *plain)) for link in links)
    ]
    return plain | {
        end
        for links, end in linked
        if not any(_under(link, [other for _, other in linked]) for link in links)
    }


def secrets_outside(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the known places of secrets that do not depend on the work folder: in the system and at the top of the home folder."""
    yield from filter(os.path.lexists, protected_names.secret_places(environ))
    yield from _secret_in_home(environ)


def _secrets_outside(
    environ: Mapping[str, str],
) -> tuple[tuple[str, tuple[list[str], str]], ...]:
    """Return these places, each with the links to it and its real path (`links_to`)."""
    # This notes the way to the home folder, in which a link may lead elsewhere later.
    links_to(app_paths.home_of(environ) or "/")
    for place in protected_names.secret_places(environ):
        note_path(place)
    return tuple((place, links_to(place)) for place in secrets_outside(environ))


def ways_to_own_places(
    environ: Mapping[str, str], look: OutsideLook
) -> tuple[tuple[str, tuple[list[str], str]], ...]:
    """Return the places of this program's own files, each with the links to it and its real path (`links_to`)."""

    def found() -> tuple[tuple[str, tuple[list[str], str]], ...]:
        # Without a home folder the places are elsewhere.
        links_to(app_paths.home_of(os.environ) or "/")
        return tuple((place, links_to(place)) for place in map(str, app_paths.own_places(environ)))

    # The places of the other agent and of a program without a home folder are those of this process.
    own = os.environ.get("HOME"), os.environ.get("TMPDIR")
    return look.at("own places", (frozenset(environ.items()), own), found)


def _emptied(environ: Mapping[str, str], work: str, asked: Collection[str]) -> tuple[str, ...]:
    """Return the folders that are empty for commands (`emptied_for`)."""
    return tuple(emptied_for(environ, work, asked))


def usual_folders(
    environ: Mapping[str, str], look: OutsideLook
) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Return the `XDG_FOLDERS`: for each the names of its usual path from the home folder, and the real path of a present place."""

    def found() -> tuple[tuple[tuple[str, ...], str], ...]:
        links_to(app_paths.home_of(environ) or "/")
        return tuple(
            (tuple(usual.split("/")), links_to(place)[1])
            for usual in app_paths.XDG_FOLDERS
            for place in app_paths.home_places(environ, usual)
        )

    return look.at("usual folders", frozenset(environ.items()), found)


def _secret_in_home(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets, recognised by name, in the home folder and in folders of configurations: at the top, and at the
    paths that rules of several names cover.
    """
    rules = protected_names.secrets()
    waiting: list[tuple[str, tuple[str, ...]]] = [
        (place, tuple(top.split("/")) if top else ())
        for top in _HOME_TOPS
        for place in app_paths.home_places(environ, top)
    ]
    while waiting:
        folder, above = waiting.pop()
        note_path(f"{folder}/")
        with unread_is_empty(), os.scandir(folder) as listing:
            for item in listing:
                seen = (*above, folded(item.name))
                is_folder = item.is_dir()
                if rules.covers(seen, is_folder=is_folder):
                    yield item.path
                elif is_folder and "/".join(seen) not in _HOME_TOPS and rules.leads_on(seen):
                    waiting.append((item.path, seen))


def outermost(paths: set[str]) -> list[str]:
    """Return those of the paths that are below no other of them, sorted."""
    return sorted(path for path in paths if not _under(os.path.dirname(path), paths))


def _gathered(folders: set[str], work: str) -> set[str]:
    """Return these folders, or folders above them in the work folder if they are too many to be covered one by one."""
    found = set(outermost(folders))
    deepest = max((path.count("/") for path in found), default=0) - work.count("/")
    for depth in range(deepest - 1, 0, -1):
        if len(found) <= _MOST_UNSEEN:
            break
        n_parts = work.count("/") + depth
        found = set(outermost({"/".join(path.split("/")[: n_parts + 1]) for path in found}))
    return found


def folders_between(path: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the folders above a path, up to the writable one that holds it."""
    root = next((one for one in roots if path.startswith(f"{one}/")), None)
    above = os.path.dirname(path)
    while root is not None and above != root:
        yield above
        above = os.path.dirname(above)


# -- contents of the work folder --------------------------------------------------------------------------

_Stamp = tuple[int, int, int, int]
_MOST_HELD_BYTES = 1 << 20


class _Held(NamedTuple):
    """A file at one time: its stamp (None if it did not exist), and its content (None if it cannot be read)."""

    stamp: _Stamp | None
    text: str | None

    def runs_other(self, path: str) -> bool:
        """Return whether the programs that the file names have changed since, or may have."""
        now = _held(path)
        if now.stamp == self.stamp:
            return False
        if now.text is None or self.text is None:
            return True
        name = os.path.basename(path)
        before, after = (protected_names.run_values(name, text) for text in (self.text, now.text))
        return after is None or before != after


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """The files below a work folder that run later, as they were at one time, and the repositories in it.

    Attributes:
        work: the folder.
        stamps: the stamps of the files that run later.
        secrets: the paths with secrets, and the targets of links with such names.
        links: links with such names.
        repositories: their `.git` folders.
        unseen: folders that are too large to be searched completely.
        closed: folders that this user cannot read. A command can open those of the user again.
        memory: the memory of the scan.
        sockets: paths that are neither a file, a folder nor a link.
        partly: files at the top in which only some keys run later, with their contents.
        environ: the environment, whose home folder has settings of git.
        commons: repositories elsewhere that working trees in the folder belong to.
    """

    work: str
    stamps: Mapping[str, _Stamp]
    secrets: tuple[str, ...]
    links: tuple[str, ...]
    repositories: tuple[str, ...]
    unseen: tuple[str, ...]
    closed: tuple[str, ...]
    memory: FolderMemory
    sockets: tuple[str, ...]
    partly: Mapping[str, _Held]
    environ: Mapping[str, str]
    commons: tuple[str, ...] = ()

    def with_commons(self, commons: Sequence[str]) -> WatchedFiles:
        """Return a copy with the repositories elsewhere to which working trees in the folder belong."""
        stamps = dict(self.stamps)
        for git in commons:
            stamps |= _git_stamps(git, self.work, self.environ)
        return replace(self, stamps=stamps, commons=tuple(commons))

    def changed(self) -> list[str]:
        """Return the files that are new or changed by now, relative to the work folder, shallow ones first. Call it in a thread."""
        now = dict(_look(self.work, self.memory, self.environ)[1].stamps)
        for git in self.commons:
            now |= _git_stamps(git, self.work, self.environ)
        # If the folder was filled meanwhile, the scan may be incomplete, but the known files are always checked.
        for path in self.stamps.keys() - now.keys():
            now |= _stamped(path)
        for path in now.keys() - self.stamps.keys():
            if os.path.basename(os.path.dirname(path)) in _STEPS:
                _begun_by_commands.update(_identities([os.path.dirname(path)]).items())
        changed = [
            os.path.relpath(path, self.work)
            for path, stamp in now.items()
            if self.stamps.get(path) != stamp
        ]
        changed += [
            os.path.basename(path) for path, held in self.partly.items() if held.runs_other(path)
        ]
        return sorted(changed, key=lambda path: (path.count("/"), path))

    def git_folders(self) -> list[str]:
        """Return the repositories in which a command may write, with those of their submodules. It lists folders, so call it
        in a thread.
        """
        found = [*self.repositories, *self.commons]
        with contextlib.suppress(NoSandbox):
            found += [
                module for git in (*self.repositories, *self.commons) for module in _modules(git)
            ]
        return list(dict.fromkeys(found))

    def since(self, before: WatchedFiles) -> list[str]:
        """Return the files that are new or changed compared with an earlier scan, relative to the work folder."""
        return sorted(
            os.path.relpath(path, self.work)
            for path, stamp in self.stamps.items()
            if before.stamps.get(path) != stamp
        )


class _GuardedName(NamedTuple):
    """A name in a folder that is secret, or of a file or folder that runs later."""

    name: str
    is_secret: bool
    runs_later: bool
    is_folder: bool


class _Listing(NamedTuple):
    """The facts about one folder that the policy needs.

    Attributes:
        stamp: the stamp of the folder; None if it was not read completely, or changed so recently that an equal stamp proves nothing.
        n_entries: the number of entries read.
        folders: the folders to search: path, folded names of the path (`_listing`), and whether everything in it runs later.
        guarded: the names that are secret or run later.
        gits: the names of its repository, in each spelling.
        is_bare: whether it is a repository without a working tree.
        sockets: names that are neither a file, a folder nor a link.
        named: names of files that run when the user starts the program that reads them.
        deeper: folders that are searched only for repositories.
        is_cut: whether the folder has more entries than are read.
        is_plain: whether it has nothing but folders to search, as nearly all have.
        is_closed: whether this user cannot list it, or look at what is in it.
    """

    stamp: _Stamp | None
    n_entries: int
    folders: list[tuple[str, tuple[str, ...], bool]]
    guarded: list[_GuardedName]
    gits: list[str]
    is_bare: bool
    sockets: list[str]
    named: list[str]
    deeper: list[str]
    is_cut: bool
    is_plain: bool
    is_closed: bool = False

    def has_same(self, other: _Listing) -> bool:
        """Return whether two listings are the same for the policy, whatever other files there are."""
        return self[2:] == other[2:]


_CLOSED = _Listing(
    *(None, 0, [], [], []),
    is_bare=False,
    sockets=[],
    named=[],
    deeper=[],
    is_cut=False,
    is_plain=True,
    is_closed=True,
)


class _UpperPart(NamedTuple):
    """The upper part of a work folder, as it was at one time.

    Attributes:
        work: the folder.
        in_home: the folded names of the path from the home folder, of each folder that is one of its usual ones.
        listings: each folder with its listing.
        found: those of the upper folders that have more than folders to search.
        deep: those that are searched only for repositories, if they have any.
        packages: folders of installed packages.
        unseen: folders that are too large to be searched completely.
        closed: folders that this user cannot read.
        ways: how each of the folders is listed.
        n_looked_at: the number of entries that were read.
    """

    work: str
    in_home: Mapping[str, tuple[str, ...]]
    listings: dict[str, _Listing]
    found: Sequence[str] = ()
    deep: Sequence[str] = ()
    packages: Sequence[str] = ()
    unseen: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    ways: Mapping[str, _Way] = {}
    n_looked_at: int = 0

    def inner(self, folder: str) -> list[str]:
        """Return the paths of the folders in a folder that are searched."""
        listing = self.listings.get(folder)
        if listing is None:
            return []
        deeper = (os.path.join(folder, name) for name in listing.deeper)
        return [*(path for path, _, _ in listing.folders), *deeper]


class _Way(NamedTuple):
    """How a folder is listed.

    Attributes:
        above: the folded names of its path from the work folder, or from the home folder.
        is_top: whether it is the work folder.
        is_later: whether everything in it runs later, whatever its name.
        is_deep: whether it is searched only for repositories.
    """

    above: tuple[str, ...]
    is_top: bool = False
    is_later: bool = False
    is_deep: bool = False


_DEEP = _Way((), is_deep=True)


class FolderMemory:
    """The results of the last scan of a work folder, so that only folders that changed since are listed again.

    A folder's modification and change times are updated with every name in it, and a command cannot set the change time.

    Attributes:
        outside: the results about folders outside the work folder.
        lock: held by a scan.
    """

    def __init__(self) -> None:
        self.outside = Remembered()
        self.lock = threading.Lock()
        self._walk = _UpperPart("", {}, {})
        self._top: tuple[int, int] | None = None
        self._quiet = QuietFolders()
        self._beside: dict[str, FolderMemory] = {}

    @property
    def unseen(self) -> tuple[str, ...]:
        """Folders of the last scan that are too large to be searched completely."""
        return self._walk.unseen

    @property
    def closed(self) -> tuple[str, ...]:
        """Folders of the last scan that this user cannot read."""
        return self._walk.closed

    def beside(self, folder: str) -> FolderMemory:
        """Return the memory of a folder beside the work folder."""
        return self._beside.setdefault(folder, FolderMemory())

    def of(self, work: str) -> Mapping[str, _Listing]:
        """Return the listings of a work folder."""
        return self._walk.listings if self._walk.work == work else {}

    def walk(self, work: str, in_home: Mapping[str, tuple[str, ...]]) -> _UpperPart:
        """Return the upper part of a work folder as it is now; the caller holds the lock.

        Args:
            work: the folder.
            in_home: the real paths of the folders that have names from the home folder, with these names (`usual_folders`).
        """
        last = self._walk
        if last.work != work or last.in_home != in_home:
            last = _UpperPart(work, in_home, {})
            self._quiet.clear()
        # The folder that holds the work folder is not watched, so another one may be in its place.
        top = _stamp_of_folder(work)
        if top is None or self._top != top[:2]:
            self._quiet.clear()
        self._top = top and top[:2]
        self._quiet.begin(work, len(last.listings), last.inner)
        if not self._is_as_before(last):
            self._walk = last = self._walked(work, last.listings, in_home)
        return last

    def _is_as_before(self, last: _UpperPart) -> bool:
        """Look again at the folders that may have changed; return whether all that was found in them is as it was."""
        if not self._quiet or last.unseen:
            return False
        restless = last.ways.keys() - self._quiet.folders
        if len(restless) > _MOST_RESTLESS:
            return False
        n_looked_at = last.n_looked_at
        now: dict[str, _Listing] = {}
        # A folder is watched after the one above it.
        for folder in sorted(restless):
            before, way = last.listings[folder], last.ways[folder]
            listing = self._listed(folder, before, way)
            if listing is None or not listing.has_same(before):
                return False
            n_looked_at += listing.n_entries - before.n_entries
            if listing.n_entries > _MOST_IN_FOLDER or n_looked_at > _MOST_LOOKED_AT:
                return False
            now[folder] = listing
        last.listings.update(now)
        return True

    def _walked(
        self, work: str, known: Mapping[str, _Listing], in_home: Mapping[str, tuple[str, ...]]
    ) -> _UpperPart:
        listings: dict[str, _Listing] = {}
        ways: dict[str, _Way] = {}
        found: list[str] = []
        deep: list[str] = []
        packages: list[str] = []
        unseen: list[str] = []
        closed: list[str] = []
        deeper: list[str] = []
        # Known folders come first, so that a command that fills the work folder hides no secret from this scan.
        waiting: deque[tuple[str, tuple[str, ...], bool]] = deque([(work, (), False)])
        newer: deque[tuple[str, tuple[str, ...], bool]] = deque()
        n_looked_at = 0
        while waiting or newer:
            folder, above, is_later = (waiting or newer).popleft()
            is_top, above = folder == work, in_home.get(folder, above)
            # The top is always read completely, because its protected paths must not depend on the number of other files.
            room = sys.maxsize if is_top else min(_MOST_LOOKED_AT - n_looked_at, _MOST_IN_FOLDER)
            if room <= 0:
                unseen.append(folder)
                continue
            before, way = known.get(folder), _Way(above, is_top=is_top, is_later=is_later)
            listing = self._listed(folder, before, way, room)
            if listing is None:
                continue
            listings[folder], ways[folder] = listing, way
            if listing.is_closed:
                closed.append(folder)
            if listing.n_entries > room:
                unseen.append(folder)
            if not is_top and not (listing.is_cut and listing is before):
                n_looked_at += listing.n_entries
            if above and (above[-1] in PASSED_OVER or above[-1] == _PROVIDERS):
                packages.append(folder)
            for inner, names, runs_later in listing.folders:
                (waiting if not known or inner in known else newer).append(
                    (inner, names, runs_later)
                )
            if not listing.is_plain:
                found.append(folder)
                deeper += [os.path.join(folder, name) for name in listing.deeper]
        for folder in deeper:
            # The list grows during the loop.
            listing = self._listed(folder, known.get(folder), _DEEP)
            if listing is None:
                continue
            listings[folder], ways[folder] = listing, _DEEP
            if listing.is_closed:
                closed.append(folder)
            if listing.gits or listing.is_bare:
                deep.append(folder)
            if len(deeper) < _MOST_DEEP:
                deeper += [os.path.join(folder, name) for name in listing.deeper]
        return _UpperPart(
            *(work, in_home, listings, found, deep, packages, tuple(unseen), tuple(closed)),
            ways,
            n_looked_at,
        )

    def _listed(
        self, folder: str, known: _Listing | None, way: _Way, room: int = sys.maxsize
    ) -> _Listing | None:
        """Return the listing of a folder as `_listing` does; a quiet one is not asked for its times."""
        quiet = self._quiet
        if known is not None and folder in quiet.folders and _fits(known, room):
            return known
        if known is not None:
            quiet.watch(folder)
        listing = _listing(folder, known, way, room)
        if listing is None:
            quiet.forget(folder)
        elif listing is known and not listing.is_closed:
            quiet.add(folder)
        else:
            quiet.unsettle(folder)
        return listing


def _fits(known: _Listing, room: int) -> bool:
    """Return whether a known listing holds as many entries as may be read."""
    return known.n_entries <= room or known.is_cut


def _look(
    work: str, memory: FolderMemory, environ: Mapping[str, str], look: OutsideLook | None = None
) -> tuple[list[str], WatchedFiles, list[str]]:
    """List the upper part of a work folder.

    Rules apply to names relative to the work folder; in a folder of configurations or the like (`XDG_FOLDERS`) relative to
    the home folder.

    Args:
        work: the folder.
        memory: the memory of the scan.
        environ: the environment.
        look: the look at the folders outside; None for one of its own.

    Returns:
        the paths at its top that run later; the same below the top, with the secrets; the folders that are repositories of their own.
    """
    look = look or memory.outside.look()
    in_home = {place: usual for usual, place in usual_folders(environ, look)}
    with memory.lock:
        walk = memory.walk(work, in_home)
    top: list[str] = []
    stamps: dict[str, _Stamp] = {}
    secrets: list[str] = []
    links: list[str] = []
    repositories: list[str] = []
    gits: list[str] = []
    sockets: list[str] = []
    for folder in walk.found:
        listing, is_top = walk.listings[folder], folder == work
        for name in listing.named:
            stamps |= _stamped(os.path.join(folder, name))
        sockets += [os.path.join(folder, name) for name in listing.sockets]
        repositories += [folder] if listing.gits and not is_top else []
        gits += [os.path.join(folder, name) for name in listing.gits]
        gits += [folder] if listing.is_bare else []
        for name, is_secret, runs_later, is_folder in listing.guarded:
            path = os.path.join(folder, name)
            followed, end = ([], path) if is_folder else links_to(path)
            if followed:
                remember_link(work, path)
            inside = [path] if end == path else _inside(end, work)
            if is_secret:
                links += followed
                secrets += inside or [one for one in [end] if os.path.isfile(one)]
            if runs_later and is_top:
                top += {*inside, *(link for link in followed if _under(link, (work,)))}
            if runs_later and not is_folder:
                stamps |= _stamped(path)
    stamps |= _package_stamps(walk.packages)
    for folder in walk.deep:
        listing = walk.listings[folder]
        repositories += [folder] if listing.gits else []
        gits += [os.path.join(folder, name) for name in listing.gits]
        gits += [folder] if listing.is_bare else []
    for deep in _deep_submodules([work, *repositories]):
        link = os.path.join(deep, ".git")
        if deep not in repositories and os.path.lexists(link):
            repositories.append(deep)
            gits.append(link)
    for git in gits:
        stamps |= _git_stamps(git, work, environ)
    watch = WatchedFiles(
        work,
        stamps,
        tuple(secrets),
        tuple(links),
        tuple(git for git in gits if os.path.isdir(git) and not os.path.islink(git)),
        walk.unseen,
        walk.closed,
        memory,
        tuple(sockets),
        _partly_run(work),
        environ,
    )
    return top, watch, repositories


def _is_git_too(folder: str, name: str) -> bool:
    """Return whether this is `.git` under another spelling, which file systems that ignore case accept."""
    if name.isascii() and not name.startswith("."):
        return False
    return folded(name) == ".git" and os.path.lexists(os.path.join(folder, ".git"))


def _deep_submodules(repositories: Sequence[str]) -> Iterator[str]:
    """Yield the folders of submodules, which may be deeper than `_DEEPEST`."""
    for folder in repositories:
        data = b""
        with unread_is_empty():
            data = read_regular(Path(folder, ".gitmodules"), _SETTINGS_BYTES)
        for line in data.decode(errors="surrogateescape").split("\n")[:_MOST_NAMED]:
            key, _, value = line.partition("=")
            path = os.path.normpath(value.strip().strip('"'))
            if key.strip().lower() == "path" and "\0" not in path:
                found = os.path.join(folder, path)
                # Targets of links to other places do not count.
                if real_path(found) == found and found.startswith(f"{folder}/"):
                    yield found


def _stamp_of_folder(path: str) -> _Stamp | None:
    """Return what changes with the names in a folder; None if it cannot be asked for, or is no folder."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        return None
    return found.st_ino, found.st_dev, found.st_mtime_ns, found.st_ctime_ns


def _listing(
    folder: str, known: _Listing | None, way: _Way, room: int = sys.maxsize
) -> _Listing | None:
    """Return the listing of a folder; None if it cannot be listed.

    Args:
        folder: the path of the folder.
        known: its listing from the last scan.
        way: how it is listed.
        room: the largest number of entries to read.
    """
    above, is_top, is_later, is_deep = way
    stamp = _stamp_of_folder(folder)
    if stamp is None:
        return None
    if known is not None and known.stamp == stamp and _fits(known, room):
        return known
    now = time.time_ns()
    if is_closed(folder):
        return _CLOSED
    try:
        listing = os.scandir(folder)
    except PermissionError:
        return _CLOSED
    except OSError as error:
        note_unread(error)
        return None
    secret, later = protected_names.secrets(), protected_names.runs_later()
    started = protected_names.runs_when_started()
    # In folders of packages and build results only the top is searched for secrets: packages contain keys for tests, and
    # certificates that programs need. `_package_stamps` finds the files that run later there by their places.
    is_package = bool(above) and above[-1] in PASSED_OVER
    is_deepest = is_package or len(above) >= _DEEPEST
    folders: list[tuple[str, tuple[str, ...], bool]] = []
    guarded: list[_GuardedName] = []
    gits: list[str] = []
    sockets: list[str] = []
    named: list[str] = []
    deeper: list[str] = []
    parts: set[str] = set()
    n_entries, is_whole = 0, False
    with unread_is_empty(), listing:
        for item in listing:
            n_entries += 1
            if n_entries > room:
                break
            name = item.name
            if name == ".git" or _is_git_too(folder, name):
                gits += [] if is_package else [name]
                continue
            if name in BARE and not is_package:
                parts.add(name)
            is_folder = item.is_dir(follow_symlinks=False)
            if is_folder and (is_deep or (is_deepest and not is_package)):
                deeper += [name] if name not in PASSED_OVER else []
            if is_deep:
                continue
            if not (is_folder or item.is_symlink() or item.is_file(follow_symlinks=False)):
                sockets.append(name)
            seen = (*above, folded(name))
            is_secret = secret.covers(seen, is_folder=is_folder)
            runs_later = is_later or later.covers(seen, is_folder=is_folder)
            runs_later = runs_later and not is_package
            if is_secret or (runs_later and (is_top or not is_folder)):
                guarded.append(_GuardedName(name, is_secret, runs_later, is_folder))
            elif not is_folder and not is_package and started.covers(seen, is_folder=False):
                named.append(name)
            if is_folder and not is_secret and not is_deepest and name != "__pycache__":
                folders.append((os.path.join(folder, name), seen, runs_later))
        else:
            is_whole = True
    is_cut = n_entries > _MOST_IN_FOLDER and not is_top
    is_settled = (is_whole or is_cut) and stamp[3] > 0 and max(stamp[2:]) < now - SETTLED_NS
    is_bare = len(parts) == len(BARE)
    return _Listing(
        stamp if is_settled else None,
        n_entries,
        folders,
        guarded,
        gits,
        is_bare=is_bare,
        sockets=sockets,
        named=named,
        deeper=deeper,
        is_cut=is_cut,
        is_plain=not (guarded or gits or is_bare or sockets or named or deeper),
    )


def _inside(end: str, work: str) -> list[str]:
    """Return the target of a link if it is inside the work folder and not the whole of it; if a closed folder keeps it from being
    seen, that folder, which a command could open again.
    """
    top = f"{work.rstrip('/')}/"
    is_inside = end.startswith(top)
    while end.startswith(top) and not os.path.exists(end):
        end = os.path.dirname(end)
        if is_closed(end):
            return [end] if end.startswith(top) else []
        if os.path.exists(end):
            return []
    return [end] if is_inside and end.startswith(top) else []


def _stamped(path: str) -> dict[str, _Stamp]:
    try:
        found = os.lstat(path)
    except OSError:
        return {}
    # The ctime is used, as a command cannot set it.
    return {path: (found.st_ino, found.st_size, found.st_ctime_ns, found.st_mode)}


_PROGRAMS = (".bin", ".hooks", "bin", "Scripts")
"""Folders of programs in packages: of node, and of a virtual environment of Python."""
_AT_START = (".pth", ".egg-link", "sitecustomize.py", "usercustomize.py")
"""Endings of names in `site-packages` that every Python of that environment reads when it starts."""
_MOST_IN_PACKAGES = 5000
_PROVIDERS = ".terraform"
"""The folder with the programs that terraform runs, which are deep below it."""


def _package_stamps(packages: Iterable[str]) -> dict[str, _Stamp]:
    """Return the stamps of the files that run later in folders of packages: programs, and files that Python reads when it starts."""
    stamps: dict[str, _Stamp] = {}
    for package in packages:
        if os.path.basename(package) == _PROVIDERS:
            for place, _, names in islice(os.walk(package), _MOST_DEEP):
                for name in names:
                    stamps |= _stamped(os.path.join(place, name))
            continue
        stamps |= _stamped(os.path.join(package, "pyvenv.cfg"))
        trees = [package]
        if os.path.basename(package) in (".tox", ".nox"):
            trees += folders_in(package)
        for tree in trees:
            libraries = [os.path.join(tree, "Lib")]
            libraries += folders_in(os.path.join(tree, "lib"))
            for library in libraries:
                stamps |= _program_stamps(os.path.join(library, "site-packages"), _AT_START)
            for name in _PROGRAMS:
                stamps |= _program_stamps(os.path.join(tree, name), ("",))
        if len(stamps) > _MOST_IN_PACKAGES:
            break
    return stamps


def _program_stamps(folder: str, endings: tuple[str, ...]) -> dict[str, _Stamp]:
    stamps: dict[str, _Stamp] = {}
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        for item in listing:
            if item.name.endswith(endings) and not item.is_dir(follow_symlinks=False):
                stamps |= _stamped(item.path)
                if item.is_symlink():
                    # The link's target runs, and can be written through the link.
                    with contextlib.suppress(OSError):
                        end = os.stat(item.path)
                        stamps[item.path] = (end.st_ino, end.st_size, end.st_ctime_ns, end.st_mode)
    return stamps


def _partly_run(work: str) -> dict[str, _Held]:
    """Return the files at the top of a folder in which only some keys run later."""
    found: dict[str, _Held] = {}
    seen: set[_Stamp] = set()
    for name in protected_names.partly_run_files():
        held = _held(path := os.path.join(work, name))
        # On a file system that ignores case, both spellings lead to one file.
        if held.stamp is None or held.stamp not in seen:
            found[path] = held
            seen |= {held.stamp} if held.stamp is not None else set()
    return found


def _held(path: str) -> _Held:
    stamp = _stamped(path).get(path)
    text: str | None = ""
    if stamp is not None:
        try:
            text = read_regular(Path(path), _MOST_HELD_BYTES).decode()
        except (OSError, ValueError):
            text = None
    return _Held(stamp, text)


def _git_stamps(git: str, work: str, environ: Mapping[str, str]) -> dict[str, _Stamp]:
    """Return the stamps of the files with, or for moving, a repository's configuration (new repositories included), and of
    the files in the work folder or repository that git's settings name.
    """
    if not os.path.isdir(git):
        return _stamped(git)
    stamps: dict[str, _Stamp] = {}
    stamps |= _filled(git, "commondir", "config", "config.worktree")
    stamps |= _hook_stamps(git) | _step_stamps(git) | _lever_stamps(git, is_module=False)
    for tree in folders_in(os.path.join(git, "worktrees"))[:_MOST_REPOSITORIES]:
        stamps |= _step_stamps(tree) | _filled(tree, "config.worktree")
    with contextlib.suppress(NoSandbox):
        for module in _modules(git):
            stamps |= _stamped(os.path.join(module, "config"))
            stamps |= _hook_stamps(module) | _step_stamps(module)
            stamps |= _lever_stamps(module, is_module=True)
    with contextlib.suppress(NoSandbox):
        for path in named_by_settings(git, os.path.dirname(git), environ, there=False):
            if os.path.isfile(path) and _under(path, (work, git)):
                # A file that did not exist before could not be made read-only.
                stamps |= _stamped(path)
    return stamps


def _lever_stamps(git: str, *, is_module: bool) -> dict[str, _Stamp]:
    """Return the stamps of possible levers in a repository that a command made; in other repositories `git_watch` undoes them."""
    stamps: dict[str, _Stamp] = {}
    for lever in levers(git, is_module=is_module):
        stamps |= _stamped(os.path.join(git, lever))
    return stamps


def _filled(folder: str, *names: str) -> dict[str, _Stamp]:
    """Return the stamps of files that are not empty. An empty one has no effect, and may be this program's."""
    stamps: dict[str, _Stamp] = {}
    for name in names:
        stamps |= _stamped(os.path.join(folder, name))
    return {path: stamp for path, stamp in stamps.items() if stamp[1]}


def _hook_stamps(git: str) -> dict[str, _Stamp]:
    stamps: dict[str, _Stamp] = {}
    with contextlib.suppress(OSError):
        for hook in os.listdir(os.path.join(git, "hooks")):
            if not hook.endswith(".sample"):
                stamps |= _stamped(os.path.join(git, "hooks", hook))
    return stamps


_STEPS = {"rebase-merge": "git-rebase-todo", "rebase-apply": "next", "sequencer": "todo"}
"""The files with the steps of a stopped rebase or `git am`: `git rebase --continue` runs the `exec` lines in them."""
_begun_by_commands: set[tuple[str, tuple[int, int]]] = set()
"""The stopped rebases that commands began. The next command may continue them, and they were reported."""


def _step_stamps(git: str) -> dict[str, _Stamp]:
    stamps: dict[str, _Stamp] = {}
    for folder, name in _STEPS.items():
        stamps |= _stamped(os.path.join(git, folder, name))
    return stamps


def _of_git(git: str, *, makes_hooks: bool = True, creates: bool = True) -> Iterator[str]:
    """Yield the paths in a repository that decide which programs git runs; with `creates`, missing ones are created."""
    if not os.path.isdir(git) or os.path.islink(git):
        return
    try:
        nested = [*inner_repositories(git, is_strict=True)]
    except PermissionError as error:
        raise NoSandbox(f"{error.filename} cannot be read, so it cannot be protected") from None
    modules = [*_modules(git)]
    for path in (git, *modules) if makes_hooks and creates else ():
        for name in ("hooks", *ADDRESSES) if path == git else ("hooks",):
            with contextlib.suppress(OSError), opened(path) as folder:
                # git itself creates an empty one; if it were missing, a command could create and fill it.
                os.mkdir(name, dir_fd=folder)
    trees = folders_in(os.path.join(git, "worktrees"))
    if len(trees) > _MOST_REPOSITORIES:
        raise NoSandbox(f"{git} has more than {_MOST_REPOSITORIES} working trees")
    own_settings = (git, *trees) if _has_own_settings(git) else ()
    for path in (git, *modules, *trees):
        there = [one for one in (os.path.join(path, name) for name in _STEPS) if os.path.isdir(one)]
        steps = _identities(one for one in there if not os.path.islink(one))
        yield from (one for one, which in steps.items() if (one, which) not in _begun_by_commands)
        if path not in trees:
            held = (os.path.join(path, name) for name in held_levers(path, is_module=path != git))
            yield from filter(os.path.exists, held)
        for name in ("hooks", "config", "config.worktree", "commondir", "gitdir"):
            inner = os.path.join(path, name)
            if os.path.lexists(inner) and not os.path.islink(inner):
                yield inner
            elif os.path.islink(inner):
                # A link itself cannot be made read-only; the folder that holds it can.
                yield path
            elif name == "config.worktree" and path in own_settings and creates:
                # An empty file is created where git would read it, as a command could create a missing one.
                with contextlib.suppress(OSError), opened(path) as folder:
                    create_file(name, folder, b"", mode=0o644)
                    yield inner
    if makes_hooks:
        for place in nested:
            inner_git = os.path.join(git, place)
            yield from _of_git(inner_git, makes_hooks=False, creates=creates)


def _has_own_settings(git: str) -> bool:
    """Return whether a repository has settings of its own for each working tree."""
    text = ""
    with unread_is_empty():
        text = read_regular(Path(git, "config"), _SETTINGS_BYTES).decode(errors="replace")
    return any(
        line.strip().lower().startswith("worktreeconfig") and "true" in line.lower()
        for line in text.split("\n")
    )


def git_settings(environ: Mapping[str, str]) -> list[str]:
    """Return the files with the settings of git that may count in every repository: the user's, then the system's.

    Files named by variables that the agent's commands do not get are included, because the user's own git has these variables.
    """
    own = app_paths.home_places(environ, ".gitconfig", ".config/git/config")
    named = (environ.get(name, "") for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"))
    return [*own, *filter(os.path.isabs, named), SYSTEM_GIT_SETTINGS]


def named_by_settings(
    git: str, top: str, environ: Mapping[str, str], *, there: bool = True
) -> set[str]:
    """Return the files and folders that a repository's settings name: included settings, hooks, programs such as filters.

    Args:
        git: the repository.
        top: the folder of its files, from which relative names start.
        environ: the environment variables, for the user's settings; relative names in these lead into the repository as well.
        there: whether to return only existing paths.

    Returns:
        real paths, and links that lead to them; none of them contains the repository or all of its files.

    Raises:
        NoSandbox: the settings name too many paths, or are too many or too long.
    """
    found: set[str] = set()
    n_named = 0
    waiting = [os.path.join(git, "config"), os.path.join(git, "config.worktree")]
    home = app_paths.home_of(environ)
    # This notes the way to it, in which a link may lead elsewhere later.
    links_to(home or "/")
    for links, end in map(links_to, git_settings(environ)):
        waiting.append(end)
        found |= {*links, end}
    read: set[str] = set()
    while waiting:
        settings = waiting.pop()
        if settings in read:
            continue
        read.add(settings)
        note_path(f"{settings}/")
        if len(read) > _MOST_SETTINGS_FILES or _size(settings) > _SETTINGS_BYTES:
            raise NoSandbox(f"git's settings for {top} are too many or too long to check")
        text = ""
        with unread_is_empty():
            text = read_regular(Path(settings), _SETTINGS_BYTES).decode(errors="surrogateescape")
        for section, name, value, bare in _values_in(text):
            whole = os.path.join(home, bare[2:]) if bare.startswith("~/") else bare
            if section in ("include", "includeif") and name == "path":
                n_named += 1
                links, end = links_to(os.path.join(os.path.dirname(settings), whole))
                waiting.append(end)
                found |= {*links, end}
            elif name in ("hookspath", "attributesfile"):
                links, end = links_to(os.path.join(top, whole))
                found |= {*links, end}
            else:
                words = [*_programs_in(value)]
                n_named += len(words)
                if n_named > _MOST_NAMED:
                    raise NoSandbox(f"git's settings for {top} name more than {_MOST_NAMED} files")
                ways = [links_to(os.path.join(top, word)) for word in words]
                found |= {
                    one for links, end in ways if os.path.isfile(end) for one in (*links, end)
                }
    above = {links_to(top)[1], links_to(git)[1]}
    return {
        path
        for path in found
        if (os.path.lexists(path) or not there) and not any(_under(one, (path,)) for one in above)
    }


@functools.lru_cache(maxsize=16)
def _values_in(text: str) -> list[tuple[str, str, str, str]]:
    """Return the settings in a file of git's that may name files or programs: section, name, value, and the value as a path.

    Nobody may change the result: the same files are read again for each change of a file.
    """
    found: list[tuple[str, str, str, str]] = []
    section = ""
    for line in map(str.strip, text.replace("\r\n", "\n").replace("\\\n", "").split("\n")):
        head, _, rest = line[1:].partition("]") if line.startswith("[") else ("", "", line)
        section = head.partition(" ")[0].lower() or section
        key, _, value = rest.partition("=")
        name, value = key.strip().lower(), value.strip()
        if not value or section in _NO_PROGRAMS:
            continue
        found.append((section, name, value, _COMMENT.sub(r"\1", value).replace('"', "").strip()))
    return found


def _programs_in(value: str) -> Iterator[str]:
    """Yield the words of a setting that may name a program: before its arguments, after a shell or an interpreter, or below a
    path that the shell computes (`$(git rev-parse --show-toplevel)/x`).
    """
    words = value.translate(_QUOTES).split()
    for word in words:
        if "/" in word:
            yield word
            if "$" in value:
                yield word.partition("/")[2]
        elif len(words) > 1 and "." in word:
            # A name without a slash, or without an ending, is searched in the path, like any other word.
            yield word


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _modules(git: str) -> Iterator[str]:
    """Return the repositories of submodules.

    Raises:
        NoSandbox: there are too many folders to search.
    """
    waiting = folders_in(os.path.join(git, "modules"))
    n_seen = 0
    while waiting:
        n_seen += 1
        if n_seen + len(waiting) > _MOST_REPOSITORIES:
            raise NoSandbox(f"{git}/modules has more than {_MOST_REPOSITORIES} folders")
        folder = waiting.pop()
        if os.path.exists(os.path.join(folder, "HEAD")):
            yield folder
            waiting += folders_in(os.path.join(folder, "modules"))
        else:
            waiting += folders_in(folder)


def _repository_named_in(link: str) -> str:
    """Return the real path of the repository that a file `.git` names."""
    named = path_in(link).removeprefix("gitdir:").strip()
    return real_path(os.path.join(os.path.dirname(link), named))


def repositories_behind(link: str, work: str) -> list[str]:
    """Return the repository `.git`, or the repositories in the work folder to which a file with that name leads."""
    if not os.path.isfile(link):
        return [link]
    own = _repository_named_in(link)
    common = path_in(os.path.join(own, "commondir")).strip()
    found = {own, real_path(os.path.join(own, common)) if common else own}
    return sorted(path for path in found if path.startswith(f"{work}/"))


def shared_repository(folder: str) -> str:
    """Return the repository of a linked working tree; empty if the folder is none.

    Only a repository that names this folder counts: the file `.git` comes from the folder itself and could name any repository.
    """
    link = os.path.join(folder, ".git")
    if not os.path.isfile(link):
        return ""
    own = path_in(link).removeprefix("gitdir: ")
    own = real_path(os.path.join(folder, own))
    if real_path(path_in(os.path.join(own, "gitdir"))) != real_path(link):
        return ""
    common = path_in(os.path.join(own, "commondir"))
    found = real_path(os.path.join(own, common)) if common else ""
    is_one = found and own.startswith(f"{found}/worktrees/") and os.path.isdir(f"{found}/objects")
    return found if is_one else ""


def is_own_repository(folder: str) -> bool:
    """Return whether the files that git would show for a folder are the folder's own, as far as its repository does not name another's.

    A file `.git` counts if the repository that it names lies in the folder, or names the folder.
    """
    link = os.path.join(folder, ".git")
    if os.path.islink(link):
        return False
    own = link
    if not os.path.isdir(link):
        if shared_repository(folder):
            return True
        top = real_path(folder)
        own = _repository_named_in(link)
        if not _under(own, (top,)) and top != _working_tree(own):
            return False
    return not has_parts_elsewhere(own)


def has_parts_elsewhere(git: str) -> bool:
    """Return whether a repository takes commits, refs or settings from somewhere else."""
    return any(os.path.lexists(os.path.join(git, name)) for name in _GIT_ELSEWHERE) or any(
        os.path.islink(os.path.join(git, name)) for name in _GIT_OWN
    )


def _working_tree(git: str) -> str:
    """Return the folder of files that a submodule's repository names; empty if it names none."""
    text = ""
    with unread_is_empty():
        text = read_regular(Path(git, "config"), _SETTINGS_BYTES).decode(errors="surrogateescape")
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        if key.strip().lower() == "worktree":
            return real_path(os.path.join(git, value.strip().strip('"')))
    return ""


def refused(output: str, policy: Policy) -> list[str]:
    """Return the refused actions in words such as `writing /etc/hosts`, `reading ~/.ssh`, `the network`; each once.

    Args:
        output: the output of a command that failed.
        policy: the policy of that command.
    """
    found: list[str] = []
    for line in (line[:_LONGEST_ERROR_LINE] for line in output.splitlines()):
        if not policy.network and _NO_NETWORK.search(line):
            found.append("the network")
        if match := _REFUSED.search(line):
            found += _refused_by_line(line, match, policy)
        elif match := _ABSENT.search(line):
            # For root, whom modes do not restrict, a hidden folder is an empty one.
            found += [
                one for one in _refused_by_line(line, match, policy) if one.startswith(_READING)
            ]
    return list(dict.fromkeys(found))[:_MOST_REFUSALS]


def paths_in_error(line: str) -> list[str]:
    """Return the paths that an error line about a missing or unreadable file may be about; empty for other lines."""
    error = _ABSENT.search(line) or _REFUSED.search(line)
    if error is None or _IS_ONLY_READ.match(error[0]):
        return []
    named, words = _words_of(line, error)
    return [*named, *filter(_is_path, words)]


def _is_path(word: str) -> bool:
    return "/" in word or word.startswith(".")


def _words_of(line: str, error: re.Match[str]) -> tuple[list[str], list[str]]:
    """Return the words that an error line may be about: those that a shell names and those in quotes, else the words before
    or after the error.
    """
    shell = _OF_SHELL.match(line)
    begin, named = (shell.end(), shell[1]) if shell else (0, None)
    before, after = line[begin : error.start()], line[error.start() :]
    paths = [*_QUOTED.findall(line), *reversed(_PATH.findall(before)), *_PATH.findall(after)]
    return [named] if named else [], paths


def _refused_by_line(line: str, error: re.Match[str], policy: Policy) -> list[str]:
    named, words = _words_of(line, error)
    paths = [*named, *words]
    for path in (*named, *filter(_is_path, words)):
        if policy.refuses_read(path, is_for_writing=_IS_ONLY_READ.match(error[0]) is not None):
            return [f"{_READING} {path}"]
        if not policy.may_write(path):
            return [f"writing {path}"]
    if _SPECIAL in line[: error.start()] and paths:
        # `mv` and `cp` of a folder find a device in the place of a hidden file.
        return [f"copying a file hidden by the sandbox to {paths[0]}"]
    if _HELD.match(error[0]):
        held = next((path for path in paths if not policy.may_rename(path)), "")
        if held:
            return [f"renaming {held} (files in that folder are protected; copying it works)"]
    return []


# -- this program's own code -------------------------------------------------------------------------

_PACKAGES = ("site-packages", "dist-packages")
_DESCRIPTION = ".dist-info"
_UNPACKED = "archive-v"
"""The beginning of the names of folders in which `uv` keeps the files that it links into environments."""


def _program_places(roots: Sequence[str], work: str) -> set[str]:
    """Return the parts of the program's code below these folders, and links that lead to them.

    Each command has a supervisor, which runs outside the sandbox: a command that changed its code would escape with the next
    command. So the package, the interpreter and everything that they import are read-only in places where a command may
    otherwise write: in a work folder in which the program is installed or developed, in a cache from which a package manager
    runs it, and in a cache whose files are hard links of the installed ones (`uv`).

    Args:
        roots: real paths that commands may write.
        work: the work folder; a path that contains all of it is left out, so that the program can be developed in it.
    """
    found: set[str] = set()
    for place in {*_code_places(), *_linked_places(roots)}:
        links, end = links_to(place)
        if not os.path.lexists(end):
            # A command could create the missing target.
            end = os.path.dirname(end)
        if not _under(work, (end,)):
            found |= {one for one in (*links, end) if _under(one, roots)}
    return {one for one in found if os.path.lexists(one)}


def _package_folder() -> str:
    """Return the real path of the folder of this program's package."""
    return real_path(os.path.dirname(app_paths.__file__))


@functools.cache
def _code_places() -> frozenset[str]:
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    # If the folder of an environment is the work folder, only the relevant parts of it are protected.
    settings = {os.path.join(prefix, "pyvenv.cfg") for prefix in prefixes}
    programs = {os.path.dirname(path) for path in (sys.executable, sys.argv[0])}
    return frozenset(
        path
        for path in {_package_folder(), *prefixes, *settings, *programs, *sys.path}
        if os.path.isabs(path)
    )


def _linked_places(roots: Sequence[str]) -> Iterator[str]:
    """Yield the folders of a cache that share files with the packages installed for this program."""
    own: frozenset[tuple[int, int]] = frozenset()
    with unread_is_empty():
        own = _linked_descriptions()
    for root in roots if own else ():
        note_path(f"{root}/")
        archives: list[str] = []
        with unread_is_empty():
            archives = [one for one in os.listdir(root) if one.startswith(_UNPACKED)]
        for archive in (os.path.join(root, one) for one in archives):
            note_path(f"{archive}/")
            shared: tuple[str, ...] = ()
            with unread_is_empty():
                now = os.stat(archive)
                shared = _sharing(archive, (now.st_ctime_ns, now.st_mtime_ns, now.st_ino))
            yield from shared


@functools.lru_cache(maxsize=8)
def _sharing(archive: str, _changed: tuple[int, ...]) -> tuple[str, ...]:
    """Return the folders of an archive that share files with the installed packages; cached while the archive's times and its inode
    are the same. A command can set one of the times back.
    """
    own = _linked_descriptions()
    entries = [os.path.join(archive, name) for name in os.listdir(archive)]
    return tuple(entry for entry in entries if not own.isdisjoint(_descriptions(entry)))


@functools.cache
def _linked_descriptions() -> frozenset[tuple[int, int]]:
    """Return the packages installed for this program whose files have a second name somewhere."""
    places = [path for path in sys.path if os.path.basename(path) in _PACKAGES]
    return frozenset(
        which for place in places for which, n_names in _descriptions(place).items() if n_names > 1
    )


def _descriptions(folder: str) -> dict[tuple[int, int], int]:
    """Return the files that describe the packages in a folder, by device and inode, and the number of names of each."""
    found: dict[tuple[int, int], int] = {}
    try:
        names = os.listdir(folder)
    except OSError as error:
        if error.errno in TRANSIENT_ERRORS:
            raise  # a caller that keeps results must not keep this one
        names = []
    for name in names:
        if name.endswith(_DESCRIPTION):
            with contextlib.suppress(OSError):
                status = os.stat(os.path.join(folder, name, "METADATA"))
                found[status.st_dev, status.st_ino] = status.st_nlink
    return found
