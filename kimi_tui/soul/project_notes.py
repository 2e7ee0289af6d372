"""The notes for agents (`AGENTS.md`) of a project and a user: finds, reads and quotes them.

The notes in the folders from the root of the repository down to the work folder, and the user's own, are part of the system
prompt of a session, as they were when it began. Notes of a folder further down come as a reminder, once per world line, when
the agent first reads or writes a file there. A repository's files with these names may be anything: they are read without
following links, and only up to a limit.
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
"""Names of files with notes; the first one with text is the one of its folder."""
MAX_BYTES = 32 * 1024
"""The largest size of one file, in bytes."""
MAX_CHARS = 96 * 1024
"""The largest number of characters of all notes that are quoted at once."""
_OWN = "AGENTS.md"
_CUT = "\n\n[cut here: there is more; read the rest when you need it]"
# Folders with these names hold files of other projects.
_FOREIGN = frozenset({"node_modules", "site-packages", "vendor"})
_OLD = re.compile(r"\n# Project notes\n\nThe project keeps notes for agents in `([^`\n]{1,40})`\.")
_FILE = re.compile(r"\n## `([^`\n]+)`, (\d{1,6}) characters\n\n")


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of one folder. `path` is their displayed path, `text` their content; it is empty if they are not quoted."""

    path: str
    text: str


def notes_for(work_dir: Path, environ: Mapping[str, str], *, no_keys: bool = False) -> list[Notes]:
    """Return the notes for a session in this folder: the project's, the outermost first, then the user's own. It reads files.

    Args:
        work_dir: the session's folder.
        environ: the environment variables, for finding the user's own notes.
        no_keys: whether to remove texts that look like keys.
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
        # The user's own notes may be links.
        if (text := _notes_text(file, links=True))
    ]
    # The nearest notes are the last to be left out.
    kept = _bounded([*project, *own], no_keys=no_keys)
    return [*reversed(kept[: len(project)]), *kept[len(project) :]]


def notes_below(
    work_dir: Path, files: Collection[str], known: Set[str], *, no_keys: bool = False
) -> list[Notes]:
    """Return the notes of the folders below the work folder that contain these files, the outermost first. It reads files.

    Args:
        work_dir: the session's folder.
        files: the absolute paths of files that the agent has read or written.
        known: the paths of the notes that it has already.
        no_keys: whether to remove texts that look like keys.
    """
    # Files that were read and written are named by their real paths.
    root = work_dir.resolve()
    inside = [path.relative_to(root) for path in map(Path, files) if path.is_relative_to(root)]
    folders = dict.fromkeys(
        file.parts[:depth]
        for file in inside
        if not _FOREIGN.intersection(file.parts[:-1])
        for depth in range(1, len(file.parts))
    )
    # An agent that reads the notes file itself needs no reminder of it.
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
    """Return the notice for the user about keys that were removed from these notes; empty if there were none."""
    named = [one for one in notes if LEFT_OUT in one.text]
    if not named:
        return ""
    n_keys = sum(one.text.count(LEFT_OUT) for one in named)
    are = "1 possible API key was" if n_keys == 1 else f"{n_keys:,} possible API keys were"
    return f"{are} left out of {', '.join(one.path for one in named)}."


def unreadable_words(notes: Collection[Notes]) -> str:
    """Return the notice for the user about notes in an unknown encoding; empty if there are none."""
    named = [one.path for one in notes if "\ufffd" in one.text]
    if not named:
        return ""
    are = "is" if len(named) == 1 else "are"
    return (
        f"{', '.join(named)} {are} not UTF-8, so the model reads \ufffd in place of some characters. "
        "To fix this, save as UTF-8."
    )


def quoted(notes: Collection[Notes]) -> str:
    """Return the part of the system prompt with these notes; empty if there are none."""
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
    """Return the notes in a system prompt; for one of an older version, everything after the name of the file."""
    _, start, rest = system_prompt.partition(f"\n{prompt('agents_md')}\n")
    if not start:
        old = _OLD.search(system_prompt)
        return [Notes(old[1], system_prompt[old.end() :])] if old else []
    found: list[Notes] = []
    place = 0
    # The length is used, because the content of a file may look like the heading of the next one.
    while file := _FILE.search(rest, place):
        place = file.end() + int(file[2])
        found.append(Notes(file[1], rest[file.end() : place]))
    return found


def reminder(notes: Notes, most_chars: int | None = None) -> Message:
    """Return the message with the notes of a folder, or with only their path if they have more than `most_chars` characters;
    the path identifies the notes later.
    """
    path = in_reminder(notes.path)
    if most_chars is not None and len(notes.text) > most_chars:
        text = prompt("lean/notes_below", PATH=path, CHARACTERS=f"{len(notes.text):,}")
    else:
        text = prompt("agents_md_below", PATH=path, TEXT=in_reminder(notes.text))
    return Message.model_validate({"role": "user", "content": text, "notes": notes.path})


def brought_by(message: Message) -> str:
    """Return the path of the notes in a message; empty if it has none."""
    path = (message.model_extra or {}).get("notes")
    return lenient_json.text(path)


def repository_root(folder: Path) -> Path | None:
    """Return the root of the repository around a folder; None if there is none that belongs to this user."""
    for place in (folder, *folder.parents):
        try:
            owner = os.lstat(place / ".git").st_uid
        except OSError:
            continue
        # A repository that somebody else made in a folder that all users can write to does not count.
        return place if owner == os.geteuid() else None
    return None


def _paths(place: str) -> set[str]:
    return {f"{place}/{name}" for name in NAMES}


def _of_folder(root: Path, parts: tuple[str, ...], place: str) -> Notes | None:
    """Return the notes of a folder, displayed as `place`: the first file with text; else one that is not quoted."""
    prefix = "" if place == "." else f"{place}/"
    try:
        folder = open_folder(root, parts)
    except OSError:
        return None
    elsewhere: Notes | None = None
    try:
        for name in NAMES:
            text = _notes_text(Path(name), folder)
            if text:
                return Notes(prefix + name, text)
            if text is None:
                elsewhere = elsewhere or Notes(prefix + name, "")
    finally:
        os.close(folder)
    return elsewhere


def _notes_text(file: Path, folder: int | None = None, *, links: bool = False) -> str | None:
    """Return the text of a file, shortened; empty if there is nothing to read, None if the file has another name elsewhere."""
    try:
        with open(open_regular(file, links=links, dir_fd=folder), "rb", buffering=0) as opened:
            # The file's other name may be outside the folder, like the target of a link.
            if os.fstat(opened.fileno()).st_nlink > 1 and not links:
                return None
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        return None if error.errno == errno.ELOOP else ""
    text = as_shown(data[:MAX_BYTES]).strip()
    return text + _CUT if len(data) > MAX_BYTES else text


def _bounded(notes: list[Notes], *, no_keys: bool) -> list[Notes]:
    """Return the notes within `MAX_CHARS` characters in total; further ones have no text and are only named. With `no_keys`
    keys are removed.
    """
    if no_keys:
        notes = [Notes(one.path, redact_keys(one.text, find_keys(one.text))) for one in notes]
    sizes = accumulate(len(one.text) for one in notes)
    return [
        one if size <= MAX_CHARS else Notes(one.path, "")
        for one, size in zip(notes, sizes, strict=True)
    ]
