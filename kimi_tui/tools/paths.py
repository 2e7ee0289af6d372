"""Paths that a model wrote: resolves them, finds out which are protected or hold secrets, and asks the user before they are used.

`locate` resolves links and says whether a path is inside the work folder; `files` opens paths. Files that run later or that
configure agents, shells and editors are protected: changing one always needs the user's own approval. They are recognised by
the names in their real path and in the path that the model wrote (`workspace.protected_names`), whether they exist or not,
and by the names of links that lead to them (`links_in`). Reading a file with secrets needs approval every time, inside the
work folder too.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
import unicodedata
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

from kimi_tui import app_paths
from kimi_tui.app_paths import bare_reason
from kimi_tui.filesystem import is_under, links_to, note_path
from kimi_tui.tools.base import (
    RESULTS_NAME,
    TO_EDIT,
    TO_EDIT_ELSEWHERE,
    TO_GO_OUTSIDE,
    ApprovalQuestion,
    ToolEnv,
)
from kimi_tui.tools.outcome import FileEdit, ToolProblem
from kimi_tui.tools.sandbox.policy import (
    STANDS_FOR,
    NoSandbox,
    named_by_settings,
    repositories_behind,
    usual_folders,
    ways_to_own_places,
)
from kimi_tui.tools.sandbox.remembered import OutsideLook, Remembered
from kimi_tui.workspace.protected_names import (
    GuardedLink,
    NameList,
    folded,
    known_links,
    links_in,
    run_values,
    runs_later,
    secret_places,
    secrets,
)

_REFUSED = ("proc", "sys", "dev")
_LONGEST_PATH = 4096
_RESULT = re.compile(r"[0-9a-f]{12}\.txt")
_AGENT = re.compile(r"[a-z][a-z0-9-]{0,39}-[0-9]{1,6}")
"""The name of a sub-agent, and of the folder with its versions of files."""
_remembered = Remembered()
"""The places in the home folder and in the system, which are the same for nearly every path."""
_NAMES_LIMIT = 5000
"""The number of names of a folder that are compared with a missing one."""


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """The place to which a path leads. Nothing needs to exist there.

    Attributes:
        written: the path as the model wrote it.
        real: the absolute path, with all links resolved.
        root: the work folder, with all links resolved.
        inside: whether `real` is in the work folder.
        linked: whether the path contained links.
        home: the user's home folder, empty if it is unknown.
    """

    written: str
    real: Path
    root: Path
    inside: bool
    linked: bool
    home: str = ""

    @property
    def shown(self) -> str:
        """The real path for display: relative to the work folder, or absolute with `~`."""
        if self.inside:
            return self.real.relative_to(self.root).as_posix()
        return with_tilde(self.real, self.home)


def with_tilde(path: Path, home: str) -> str:
    """Return the path with `~` for the home folder."""
    if home and path.is_relative_to(home):
        return "/".join(("~", *path.relative_to(home).parts))
    return str(path)


def locate(path: str, work_dir: Path, environ: Mapping[str, str]) -> ResolvedPath:
    """Resolve a path. It blocks, so call it in a thread.

    Args:
        path: the path as the model wrote it: relative to the work folder, absolute, or with `~/`.
        work_dir: the session's folder.
        environ: the environment variables, for the home folder, and for a folder for which the work folder stands.

    Raises:
        ToolProblem: the text is no valid path, or it leads to devices or the kernel's own files.
    """
    _check(path)
    home = app_paths.home_of(environ)
    written = path
    if home and (path == "~" or path.startswith("~/")):
        written = home + path[1:]
    meant = environ.get(STANDS_FOR, "")
    if meant and f"{written}/".startswith(f"{meant}/"):
        written = f"{work_dir}{written[len(meant) :]}"
    top = str(work_dir)
    written = _as_on_disk(os.path.join(top, written))
    root = _real(top, path)
    lexical = os.path.normpath(written)
    _refuse_kernel_files(path, lexical)
    real = _real(written, path)
    _refuse_kernel_files(path, real)
    if is_under(lexical, (top,)):
        lexical = os.path.join(root, lexical[len(top) :].lstrip("/")) if lexical != top else root
    place, folder = Path(real), Path(root)
    inside = is_under(real, (root,))
    if not inside and (ancestor := _same_folder(place, folder)) is not None:
        # This is another spelling of the work folder, which a file system that ignores case accepts.
        place = folder / place.relative_to(ancestor)
        inside = True
    return ResolvedPath(path, place, folder, inside, lexical != str(place), home)


def _real(absolute: str, asked: str) -> str:
    """Return an absolute path with all links resolved; `asked` is the path as the model wrote it.

    Raises:
        ToolProblem: a part of it is a link of the kernel, or a name that changes its meaning from one moment to the next.
    """
    at = ""
    for name in absolute.split("/"):
        if name in ("", "."):
            continue
        at = f"{at}/{name}"
        try:
            # A path without links, as nearly all are, takes half the time of `os.path.realpath`.
            is_link = name == ".." or stat.S_ISLNK(os.lstat(at).st_mode)
        except OSError:
            is_link = False
        if is_link:
            break
    else:
        return at or "/"
    try:
        return os.path.realpath(absolute)
    except OSError as error:
        raise ToolProblem(
            f"The target of {asked:.200} cannot be found: {bare_reason(error)}.", brief="bad path"
        ) from error


def _as_on_disk(path: str) -> str:
    """Return an absolute path in which missing names are replaced by existing ones that are equal in Unicode.

    A typed name is composed (NFC); one that macOS wrote may be decomposed (NFD).
    """
    if path.isascii() or os.path.lexists(path):
        return path
    there = "/"
    for name in path.split("/"):
        below = os.path.join(there, name)
        if not name.isascii() and not os.path.lexists(below):
            below = os.path.join(there, _equal_name(there, name) or name)
        there = below
    return there


def _equal_name(folder: str, name: str) -> str | None:
    """Return the name in a folder that equals `name` in another form of Unicode."""
    composed = unicodedata.normalize("NFC", name)
    try:
        with os.scandir(folder) as entries:
            names = (entry.name for entry in islice(entries, _NAMES_LIMIT))
            return next(
                (one for one in names if unicodedata.normalize("NFC", one) == composed), None
            )
    except OSError:
        return None


def _refuse_kernel_files(path: str, candidate: str) -> None:
    top = candidate.lstrip("/").partition("/")[0]
    if top in _REFUSED:
        raise ToolProblem(
            f"{path} leads to /{top}: devices and kernel files cannot be read or written.",
            brief="not a file",
        )


def _check(path: str) -> None:
    if not path.strip():
        raise ToolProblem("The path is empty.", brief="no path")
    if "\0" in path or any("\ud800" <= char <= "\udfff" for char in path):
        raise ToolProblem("The path has characters that no file name can have.", brief="bad path")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ToolProblem(f"The path is longer than {_LONGEST_PATH} bytes.", brief="bad path")


def _same_folder(path: Path, root: Path) -> Path | None:
    """Return the parent of `path` that is the folder `root` itself under another spelling."""
    try:
        wanted = root.stat()
    except OSError:
        return None
    for folder in (path, *path.parents):
        if len(folder.parts) < len(root.parts):
            return None
        if len(folder.parts) > len(root.parts):
            continue
        try:
            found = folder.stat()
        except OSError:
            return None
        same = (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)
        return folder if same and _casefolded(folder) == _casefolded(root) else None
    return None


def _casefolded(path: Path) -> tuple[str, ...]:
    return tuple(folded(part) for part in path.parts)


def protected_reason(
    target: ResolvedPath,
    environ: Mapping[str, str],
    links: Sequence[GuardedLink] | None = None,
    look: OutsideLook | None = None,
) -> str:
    """Say in a few words why changing this file always needs approval; empty for an ordinary file. It lists folders, so call
    it in a thread.

    Args:
        target: the file.
        environ: the environment variables, for this program's own files.
        links: the result of `links_around`, if it is known already.
        look: the result of `look_outside`, if there are several checks at one moment.
    """
    look = look or look_outside()
    for names in _names(target, environ, look):
        if rule := runs_later().rule_in(names):
            if rule == folded(names[-1]):
                return "other programs run such files, or read settings from them"
            return f"other programs run files in {rule}, or read settings from them"
    links = links_around(target, look) if links is None else links
    if link := _guarded_link(target, runs_later(), links):
        return (
            f"{link} is a link to it, and other programs run such files, or read settings from them"
        )
    if link := _guarded_link(target, secrets(), links):
        return f"{link} is a link to it, and such files contain secrets"
    if _is_named_by_git(target, environ, look):
        return "git's settings refer to it, so git may run it"
    if _is_in(target.real, target.root, _own_places(environ, look)):
        return "it is part of kimi-tui's own settings or sessions"
    return ""


def holds_secrets(
    target: ResolvedPath,
    environ: Mapping[str, str],
    links: Sequence[GuardedLink] | None = None,
    *,
    is_folder: bool = False,
) -> bool:
    """Return whether this file or folder holds keys or other secrets. It lists folders, so call it in a thread.

    Args:
        target: the file or folder.
        environ: the environment variables, for this program's own files and places of secrets.
        links: the result of `links_around`, if it is known already.
        is_folder: whether the path is a folder.
    """
    look = look_outside()
    if is_secret_by_name(target, environ, is_folder=is_folder, look=look):
        return True
    links = links_around(target, look) if links is None else links
    return _guarded_link(target, secrets(), links) != ""


def is_secret_by_name(
    target: ResolvedPath,
    environ: Mapping[str, str],
    *,
    is_folder: bool = False,
    look: OutsideLook | None = None,
) -> bool:
    """Return whether its own name or place says so; such a file is in no snapshot. `look` is as for `protected_reason`."""
    rules, look = secrets(), look or look_outside()
    if any(rules.rule_in(names, is_folder=is_folder) for names in _names(target, environ, look)):
        return True
    places = [*_own_places(environ, look), *_secret_places(environ, look)]
    return _is_in(target.real, target.root, places)


def look_outside() -> OutsideLook:
    """Begin a look at the places in the home folder and in the system: in one look each is looked at once."""
    return _remembered.look()


def links_around(target: ResolvedPath, look: OutsideLook | None = None) -> list[GuardedLink]:
    """Return the guarded links of the work folder and the home folder. It lists folders, so call it in a thread. `look` is as for
    `protected_reason`.
    """
    links = links_in(str(target.root))
    if not target.home:
        return links

    def found() -> str:
        home = links_to(target.home)[1]
        links_in(home, deepest=0)
        return home

    # A link that the sandbox found meanwhile counts too.
    home = (look or look_outside()).at("links", target.home, found)
    return [*links, *known_links(home)]


def _guarded_link(target: ResolvedPath, rules: NameList, links: Sequence[GuardedLink]) -> str:
    """Return the name of a link that leads to this path, or to a folder above it, and that the rules cover; else an empty text."""
    real = str(target.real)
    for link in links:
        if real == link.real or real.startswith(f"{link.real}/"):
            rest = real[len(link.real) + 1 :].split("/")
            if rules.rule_in(link.names) or rules.rule_in((*link.names, *filter(None, rest))):
                return "/".join(link.names)
    return ""


def _is_named_by_git(target: ResolvedPath, environ: Mapping[str, str], look: OutsideLook) -> bool:
    """Return whether the settings of the repository around the file name it, or a folder above it, as a file that git runs or reads."""
    if not target.inside:
        return False
    root, real = str(target.root), str(target.real)
    variables = frozenset(environ.items())
    folder: str = real
    try:
        while folder not in (root, "/"):
            folder = os.path.dirname(folder)
            for git in repositories_behind(os.path.join(folder, ".git"), root):
                named = look.at(
                    f"settings {git}",
                    (folder, variables),
                    partial(named_by_settings, git, folder, environ, there=False),
                )
                if named and is_under(real, named):
                    return True
    except NoSandbox:
        # The settings name too much to look it all up.
        return True
    return False


def secrets_below(
    target: ResolvedPath, environ: Mapping[str, str]
) -> Callable[[bytes], bool] | None:
    """Return a function that says which files of a folder hold secrets; None if the folder itself does, and so was approved as such.

    Paths are relative to the work folder where the folder is inside, else to the folder itself.
    """
    links = links_around(target)
    if holds_secrets(target, environ, links, is_folder=True):
        return None
    above = () if target.inside else target.real.parts
    base = target.root if target.inside else target.real
    look = look_outside()
    places = [*_own_places(environ, look), *_secret_places(environ, look)]
    ours = [place for place in places if is_under(place, (str(base),))]
    links = [link for link in links if Path(link.real).is_relative_to(base)]
    rules = secrets()
    in_home = _folders_of_home(str(target.root), environ, look)

    def is_secret(path: bytes) -> bool:
        name = os.fsdecode(path)
        found = base / name
        real = str(found)
        return (
            bool(rules.rule_in((*above, *name.split("/"))))
            or any(map(rules.rule_in, _names_from_home(real, in_home)))
            or any(is_under(real, (place,)) for place in ours)
            or (bool(links) and _guarded_link(replace(target, real=found), rules, links) != "")
        )

    return is_secret


def _runs_other(target: ResolvedPath, before: str | None, after: str) -> bool:
    """Return whether a change of a file such as `package.json` affects the commands that package managers run."""
    name = target.real.name
    old, new = run_values(name, before or ""), run_values(name, after)
    return old is None or new is None or old != new


def _names(
    target: ResolvedPath, environ: Mapping[str, str], look: OutsideLook
) -> list[tuple[str, ...]]:
    """Return the names to check: those of the real path, and of the path as written (a link may have a harmless target). In a
    folder of configurations or the like they include the names from the home folder.
    """
    real, root = target.real.parts, target.root.parts
    asked = Path(target.written).parts
    if asked and asked[0].startswith("/"):
        if asked[: len(root)] == root:
            asked = asked[len(root) :]
        elif target.inside:
            asked = asked[-1:]
    in_home = _names_from_home(str(target.real), _folders_of_home(str(target.root), environ, look))
    return [*filter(None, (real[len(root) :] if target.inside else real, asked)), *in_home]


def _folders_of_home(
    root: str, environ: Mapping[str, str], look: OutsideLook
) -> list[tuple[tuple[str, ...], str]]:
    """Return the `XDG_FOLDERS` with their usual names and present paths; but none that contains the work folder, which would
    then be protected as a whole.
    """
    return [one for one in usual_folders(environ, look) if not _is_below(root, one[1])]


def _names_from_home(
    path: str, folders: Iterable[tuple[tuple[str, ...], str]]
) -> list[tuple[str, ...]]:
    """Return the names of a path from the home folder, for each of these folders that contains it."""
    return [
        (*usual, *path[len(place) :].strip("/").split("/"))
        for usual, place in folders
        if _is_below(path, place)
    ]


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder if folder == "/" else f"{folder}/") and path != folder


def _own_places(environ: Mapping[str, str], look: OutsideLook) -> list[str]:
    """Return the real places of this program's own files, and every link that leads there: a changed link would lead to other
    settings.
    """
    ways = ways_to_own_places(environ, look)
    return [place for _, (links, end) in ways for place in (*links, end)]


def _secret_places(environ: Mapping[str, str], look: OutsideLook) -> list[str]:
    def found() -> list[str]:
        links_to(app_paths.home_of(environ) or "/")
        places = secret_places(environ)
        for place in places:
            note_path(place)
        return [links_to(place)[1] for place in places if os.path.lexists(place)]

    return look.at("secrets", frozenset(environ.items()), found)


def _is_in(path: Path, root: Path, places: Iterable[str]) -> bool:
    """Return whether a path is one of these places or below one; but for places that contain the work folder (in a demo or a
    test), which would otherwise be protected as a whole.
    """
    real, work = _folded_path(str(path)), _folded_path(str(root))
    return any(
        real.startswith(place) and not work.startswith(place) for place in map(_folded_path, places)
    )


@lru_cache(maxsize=1024)
def _folded_path(path: str) -> str:
    """Return a path with its names as they are compared, each with a slash at its end."""
    return "".join(f"{folded(name)}/" for name in path.split("/") if name)


_EDITS_KEY = "edits"
_EDITS_OFFER = "Yes, and allow edits in this folder for this session"


def is_added(target: ResolvedPath, env: ToolEnv) -> bool:
    """Return whether a path is in a folder that the user added beside the work folder."""
    real = str(target.real)
    return any(real == one or real.startswith(f"{one}/") for one in env.added)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search in a folder, described for the user: lines about its purpose, and how deep it goes."""

    lines: tuple[str, ...]
    reach: str


def own_result(target: ResolvedPath, env: ToolEnv) -> Path | None:
    """Return the session's own file for a long result, or a sub-agent's version of a file, that a path in the folder of another
    session names; None for any other path.

    The conversation of a copy, and of a future, has the results of the session with which it began, and their files came along.
    It reads the disk, so call it in a thread.
    """
    real = target.real
    if env.results is None or target.inside:
        return None
    is_long = real.parent.name == RESULTS_NAME and _RESULT.fullmatch(real.name)
    name = real.name if is_long else _version(real, env.results)
    own = env.results / name
    if not name or own == real or not own.is_file():
        return None
    is_link = os.path.realpath(own) != os.path.join(os.path.realpath(env.results), name)
    return None if is_link else own


def _version(real: Path, results: Path) -> str:
    """Return the name below `results` of the sub-agent's version that a path in any session's folder names; empty for other paths."""
    parts, sessions = real.parts, results.parts[-4:-3]
    for place in range(3, len(parts) - 2):
        if parts[place] == RESULTS_NAME and parts[place - 3 : place - 2] == sessions:
            return "/".join(parts[place + 1 :]) if _AGENT.fullmatch(parts[place + 1]) else ""
    return ""


def _is_version(target: ResolvedPath, env: ToolEnv) -> bool:
    """Return whether a path is a sub-agent's version of a file that was not applied to the work folder."""
    return env.results is not None and target.real.is_relative_to(os.path.realpath(env.results))


def _is_result(target: ResolvedPath, env: ToolEnv) -> bool:
    """Return whether this program wrote a file for the agent, because a result was too long."""
    return env.results is not None and target.real.parent == Path(os.path.realpath(env.results))


async def ask_to_read(
    target: ResolvedPath, env: ToolEnv, *, search: SearchRequest | None = None, n_links: int = 1
) -> None:
    """Ask before a file is read that is outside the work folder, holds secrets, or may be a file elsewhere.

    A yes for the session covers the ordinary files of a folder, or searches in it, which skip secrets.

    Args:
        target: the path to be read.
        env: the environment of the call, whose approver answers.
        search: the search, if `target` is a folder to be searched.
        n_links: the number of names of the file on disk.

    Raises:
        ToolRejected: the user said no.
    """
    if search is None and not target.inside and await asyncio.to_thread(_is_result, target, env):
        return
    secret = await asyncio.to_thread(
        holds_secrets, target, env.environ, is_folder=search is not None
    )
    if (target.inside or is_added(target, env)) and not secret and n_links <= 1:
        return
    if search is None and not secret and await asyncio.to_thread(_is_version, target, env):
        return
    facts = ["in the work folder" if target.inside else "outside the work folder"]
    facts[0] += _link_note(target)
    if search is not None:
        facts.append(search.reach)
    if n_links > 1:
        facts.append(f"the file has {n_links} hard links, so it may also be a file elsewhere")
    if secret:
        facts.append("such places contain keys, and what is read is sent to the model")
    holder = target.real if search else target.real.parent
    holder_shown = with_tilde(holder, target.home)
    key, offer = f"read outside:{holder}", f"allow reading files without secrets in {holder_shown}"
    if search is not None:
        key, offer = f"search outside:{holder}", f"allow searches in {holder_shown}"
    # A folder that contains the user's whole home is never offered as a whole.
    is_offered = not secret and not (search and Path(target.home or "/").is_relative_to(holder))
    if n_links > 1 and not target.inside:
        # The file's other names may be anywhere, so a yes for the ordinary files of this folder does not cover it.
        is_offered = False
    await env.approver.ask(
        ApprovalQuestion(
            asks=TO_GO_OUTSIDE,
            question="Search this folder?" if search else "Read this file?",
            detail="\n".join([target.shown, *(search.lines if search else ())]),
            where="; ".join(facts),
            session_key=key if is_offered else "",
            session_offer=f"Yes, and {offer} for this session" if is_offered else "",
            protected=secret,
        )
    )


def shown_on_a_line(text: str) -> str:
    """Return a model's search text with its line ends escaped, so that each fact stays on one line."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


async def ask_to_show(target: ResolvedPath, linked: Sequence[str], env: ToolEnv) -> None:
    """Ask before the results of a search are shown if some come from files that may be files elsewhere.

    Args:
        target: the searched folder.
        linked: these files, as they are shown.
        env: the environment of the call, whose approver answers.

    Raises:
        ToolRejected: the user said no.
    """
    place = "this folder" if target.shown == "." else target.shown
    await env.approver.ask(
        ApprovalQuestion(
            asks=TO_GO_OUTSIDE,
            question="Show the matches in these files to the model?",
            detail="\n".join(linked),
            where="each has several hard links, so it may also be a file elsewhere",
            session_key=f"show linked:{target.real}" if target.inside else "",
            session_offer=f"Yes, and show such files in {place} for this session"
            if target.inside
            else "",
        )
    )


@asynccontextmanager
async def read_approval_on_error(target: ResolvedPath, env: ToolEnv) -> AsyncGenerator[None]:
    """If a `ToolProblem` is raised inside, ask for approval as before a read: its text would reveal what exists at the path.

    Raises:
        ToolRejected: the user said no.
    """
    try:
        yield
    except ToolProblem:
        await ask_to_read(target, env)
        raise


async def ask_to_change(
    target: ResolvedPath,
    edit: FileEdit,
    env: ToolEnv,
    *,
    why_protected: str,
    n_links: int,
    lost: str = "",
) -> None:
    """Ask before a file is created or changed.

    Args:
        target: the file.
        edit: the change, shown as a diff.
        env: the environment of the call, whose approver answers.
        why_protected: the `protected_reason` of the file.
        n_links: the number of names of the file on disk; more than one may mean a file elsewhere.
        lost: the reason why no snapshot has the file's present contents, so that they cannot be restored; empty if one has.

    Raises:
        ToolRejected: the user said no.
    """
    question = "Create this file?" if edit.before is None else "Make this edit?"
    here = target.inside or is_added(target, env)
    where = "in the work folder" if target.inside else "outside the work folder"
    if here and not target.inside:
        where = "in an added folder; rewinds do not restore its files"
    where += _link_note(target)
    reason = why_protected
    if not reason and _runs_other(target, edit.before, edit.after):
        reason = "the edit changes what the package manager runs"
    if n_links > 1:
        other = "the other keeps" if n_links == 2 else "the others keep"
        where += (
            f"; the file has {n_links} hard links: this path gets the new text, {other} the old"
        )
    if reason:
        where += f"; {reason}"
    if lost:
        where += f"; its current text cannot be restored: {lost}"
    if edit.unseen:
        where += f"; {edit.unseen}"
    ordinary = here and not reason and n_links <= 1 and not lost and not edit.unseen
    await env.approver.ask(
        ApprovalQuestion(
            asks=TO_EDIT if here and not reason else TO_EDIT_ELSEWHERE,
            question=question,
            detail=target.shown,
            where=where,
            edits=(edit,),
            session_key=_EDITS_KEY if ordinary and target.inside else "",
            session_offer=_EDITS_OFFER if ordinary and target.inside else "",
            protected=not ordinary,
        )
    )


def _link_note(target: ResolvedPath) -> str:
    return f"; {target.written} is a link to it" if target.linked else ""
