"""The notes for agents (`AGENTS.md`) that a project and a user keep: finding, reading and quoting them.

Those on the way from the root of the repository to the work folder, and the user's own, stand in the system prompt of a
session, as they were when it began. Those of a folder further down come as a reminder, once a world line, when the agent
first reads or writes a file there. What a repository calls so may be anything: it is read without following links, and
only so much of it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from kimi_tui import lenient_json
from kimi_tui.app_paths import config_dir, kimi_cli_share_dir, short
from kimi_tui.filesystem import open_folder, open_regular
from kimi_tui.foreign_text import one_line
from kimi_tui.llm.message import Message
from kimi_tui.prompts import prompt
from kimi_tui.soul.messages import quoted as in_reminder
from kimi_tui.text_encoding import as_shown
from kimi_tui.tools.credentials import LEFT_OUT, find_keys, redact_keys

NAMES = ("AGENTS.md", "agents.md", "CLAUDE.md")
"""The first that says anything is the one of its folder."""
MAX_BYTES = 32 * 1024
"""Of one file."""
MAX_CHARS = 96 * 1024
"""Of all that are quoted at once."""
_OWN = "AGENTS.md"
_CUT = "\n\n[cut here: there is more; read the rest when you need it]"
# What others wrote, and nobody took for a part of the project.
_FOREIGN = frozenset({"node_modules", "site-packages", "vendor"})
_OLD = re.compile(r"\n# Project notes\n\nThe project keeps notes for agents in `([^`\n]{1,40})`\.")
_FILE = re.compile(r"\n## `([^`\n]+)`, (\d{1,6}) characters\n\n")


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of one folder. `path` is how they are named, `text` what they say; empty where they are not quoted."""

    path: str
    text: str


def notes_for(work_dir: Path, environ: Mapping[str, str], *, no_keys: bool = False) -> list[Notes]:
    """The notes for a session in this folder: the project's, the outermost first, then the user's own. Reads files.

    Args:
        work_dir: the session's folder.
        environ: for the user's own.
        no_keys: what looks like a key stays out of them.
    """
    root = repository_root(work_dir)
    above = work_dir.parents[: len(work_dir.relative_to(root).parts)] if root is not None else ()
    project = [
        one
        for folder in (work_dir, *above)
        if (one := _of_folder(folder, (), one_line(os.path.relpath(folder, work_dir)))) is not None
    ]
    own = [
        Notes(short(file), text)
        for file in (config_dir(environ) / _OWN, kimi_cli_share_dir(environ) / _OWN)
        # Users link their own files as they like.
        if (text := _text_of(file, links=True))
    ]
    # The nearest are the last to be left out.
    kept = _bounded([*project, *own], no_keys=no_keys)
    return [*reversed(kept[: len(project)]), *kept[len(project) :]]


def notes_below(
    work_dir: Path, files: Collection[str], known: Set[str], *, no_keys: bool = False
) -> list[Notes]:
    """The notes of the folders below the work folder in which these files are, the outermost first. Reads files.

    Args:
        work_dir: the session's folder.
        files: absolute paths that the agent has read or written.
        known: the paths of the notes that it has.
        no_keys: what looks like a key stays out of them.
    """
    # What was read and written is named by its real path.
    root = work_dir.resolve()
    inside = [path.relative_to(root) for path in map(Path, files) if path.is_relative_to(root)]
    folders = dict.fromkeys(
        file.parts[:depth]
        for file in inside
        if not _FOREIGN.intersection(file.parts[:-1])
        for depth in range(1, len(file.parts))
    )
    # Who reads the notes themselves has them.
    known = {*known, *(one_line(str(file)) for file in inside)}
    found = [
        one
        for parts in folders
        if known.isdisjoint(_paths(place := one_line("/".join(parts))))
        and (one := _of_folder(root, parts, place)) is not None
        and one.text
    ]
    return _bounded(found, no_keys=no_keys)


def left_out_words(notes: Collection[Notes]) -> str:
    """The notice for the user about keys that were left out of these notes; empty where there were none."""
    named = [one for one in notes if LEFT_OUT in one.text]
    if not named:
        return ""
    n_keys = sum(one.text.count(LEFT_OUT) for one in named)
    are = "1 possible key was" if n_keys == 1 else f"{n_keys:,} possible keys were"
    return f"{are} left out of {', '.join(one.path for one in named)}."


def unreadable_words(notes: Collection[Notes]) -> str:
    """The notice for the user about notes in an encoding that was not recognised; empty where there are none."""
    named = [one.path for one in notes if "\ufffd" in one.text]
    if not named:
        return ""
    are = "is" if len(named) == 1 else "are"
    return (
        f"{', '.join(named)} {are} not UTF-8, so the model reads \ufffd in place of some characters. "
        "Save as UTF-8 to fix it."
    )


def quoted(notes: Collection[Notes]) -> str:
    """The part of the system prompt that holds them; empty where there are none."""
    if not notes:
        return ""
    parts = [
        f"## `{one.path}`, {len(one.text)} characters\n\n{one.text}"
        if one.text
        else prompt("agents_md_elsewhere", PATH=one.path)
        for one in notes
    ]
    return "\n" + "\n\n".join([prompt("agents_md"), *parts])


def notes_in(system_prompt: str) -> list[Notes]:
    """The notes that stand in a system prompt; of what older versions wrote, all behind the name of the file."""
    _, start, rest = system_prompt.partition(f"\n{prompt('agents_md')}\n")
    if not start:
        old = _OLD.search(system_prompt)
        return [Notes(old[1], system_prompt[old.end() :])] if old else []
    found: list[Notes] = []
    place = 0
    # By its length: what a file says may look like the next one.
    while file := _FILE.search(rest, place):
        place = file.end() + int(file[2])
        found.append(Notes(file[1], rest[file.end() : place]))
    return found


def reminder(notes: Notes) -> Message:
    """The message that brings the notes of a folder; it says for later which ones these are."""
    text = prompt("agents_md_below", PATH=in_reminder(notes.path), TEXT=in_reminder(notes.text))
    return Message.model_validate({"role": "user", "content": text, "notes": notes.path})


def brought_by(message: Message) -> str:
    """The path of the notes that a message brought; empty where it brought none."""
    path = (message.model_extra or {}).get("notes")
    return lenient_json.text(path)


def repository_root(folder: Path) -> Path | None:
    """The root of the repository that a folder is in; None where it is in none of this user's own."""
    for place in (folder, *folder.parents):
        try:
            owner = os.lstat(place / ".git").st_uid
        except OSError:
            continue
        # What somebody else put into a folder that all may write to is none of ours.
        return place if owner == os.geteuid() else None
    return None


def _paths(place: str) -> set[str]:
    return {f"{place}/{name}" for name in NAMES}


def _of_folder(root: Path, parts: tuple[str, ...], place: str) -> Notes | None:
    """The notes of a folder, called `place`: the first file that says anything; else one that is not quoted."""
    prefix = "" if place == "." else f"{place}/"
    try:
        folder = open_folder(root, parts)
    except OSError:
        return None
    elsewhere: Notes | None = None
    try:
        for name in NAMES:
            text = _text_of(Path(name), folder)
            if text:
                return Notes(prefix + name, text)
            if text is None:
                elsewhere = elsewhere or Notes(prefix + name, "")
    finally:
        os.close(folder)
    return elsewhere


def _text_of(file: Path, folder: int | None = None, *, links: bool = False) -> str | None:
    """What a file says, cut; empty where there is nothing to read, None where it has another name elsewhere."""
    try:
        with open(open_regular(file, links=links, dir_fd=folder), "rb", buffering=0) as opened:
            # Another name of it may be outside of the folder, as what a link leads to may.
            if os.fstat(opened.fileno()).st_nlink > 1 and not links:
                return None
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        return None if error.errno == errno.ELOOP else ""
    text = as_shown(data[:MAX_BYTES]).strip()
    return text + _CUT if len(data) > MAX_BYTES else text


def _bounded(notes: list[Notes], *, no_keys: bool) -> list[Notes]:
    """Notes within `MAX_CHARS` characters in all; those beyond have no text and are only named. With `no_keys` without keys."""
    if no_keys:
        notes = [Notes(one.path, redact_keys(one.text, find_keys(one.text))) for one in notes]
    sizes = accumulate(len(one.text) for one in notes)
    return [
        one if size <= MAX_CHARS else Notes(one.path, "")
        for one, size in zip(notes, sizes, strict=True)
    ]
