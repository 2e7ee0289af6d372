"""Custom commands: Markdown files whose text is sent to the model when their name is typed after a slash.

They are in `commands/` beside config.toml and in `.kimi-tui/commands/` of the work folder; the name of a file in a subfolder
contains the folder (`git/commit.md` is `/git:commit`). Claude's commands are read too, and skills (agentskills.io) of this
program, of Claude, Codex, kimi-cli and similar ones: folders with a SKILL.md, and single files. A command that comes from the
work folder is shown to the user before its first use. Nothing in a file is run; its text is only sent.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from kimi_tui import lenient_json
from kimi_tui.app_paths import make_private
from kimi_tui.filesystem import Storage, open_folder, open_regular, read_regular
from kimi_tui.foreign_text import clean_source, one_line
from kimi_tui.text_encoding import as_shown

Origin = Literal["user", "folder"]

_Place = tuple[Path, tuple[str, ...], Origin]

MAX_FILES = 200
"""The largest number of files in all folders together."""
MAX_BYTES = 1 << 16
_MAX_ENTRIES = 1_000
"""The largest number of entries that are read of a folder and its subfolders."""
_MAX_DEPTH = 3
"""The deepest nesting of folders, as the user's own links may form a circle."""
_MOST_FILLED = 1 << 20
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_PLACE = re.compile(r"\$(ARGUMENTS|[1-9])")
_SKILL = "SKILL.md"
_COMMANDS = ((".claude", "commands"),)
_OWN_SKILLS = ("skills",)
_SKILLS = (
    *((".agents", "skills"), (".claude", "skills"), (".kimi-code", "skills"), (".kimi", "skills")),
    *((".codex", "skills"), (".config", "agents", "skills")),
)
_SKILL_PLACES = frozenset({_OWN_SKILLS, (".kimi-tui", "skills"), *_SKILLS})
_SKILL_TYPES = frozenset({"", "prompt", "inline", "standard"})
_FOLDER_PLACES = re.compile(r"\$\{(?:CLAUDE_SKILL_DIR|KIMI_SKILL_DIR)\}")
MAX_DESCRIPTION = 1_024
"""The largest number of characters of a description, as agentskills.io has it."""
# This is how a value of several lines begins in YAML.
_BLOCK = re.compile(r"[|>][-+1-9]{0,2}")


class CustomCommand(NamedTuple):
    """A slash command that a Markdown file of the user defines.

    Attributes:
        name: the word after the slash; folders in it end with a colon.
        help: one line that says what the command does.
        argument: the arguments that it takes, as its file describes them.
        text: the text to send, with placeholders for the arguments.
        path: the file.
        origin: the owner: the user, or the work folder.
        is_skill: whether it is a skill, which the agent may use by itself.
        description: what a skill says about itself and when it is to be used, one line; empty if it says nothing.
        for_agent: whether the agent may be told of it.
        for_user: whether it is a command of the user.
    """

    name: str
    help: str
    argument: str
    text: str
    path: Path
    origin: Origin
    is_skill: bool = False
    description: str = ""
    for_agent: bool = False
    for_user: bool = True

    @property
    def short_name(self) -> str:
        """The word without its folders."""
        return self.name.rpartition(":")[2]

    @property
    def is_inner(self) -> bool:
        """Whether the file is in a folder of commands, which the name contains."""
        return ":" in self.name

    @property
    def digest(self) -> str:
        """A digest of the file's contents."""
        # A longer description than the help is read by the agent alone.
        longer = (self.description,) if self.description != self.help else ()
        said = "\0".join((self.name, self.help, self.argument, self.text, *longer))
        return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()

    def with_arguments(self, arguments: str) -> str:
        """Return the text to send, with `$ARGUMENTS` and `$1` to `$9` filled in; without such placeholders, or with far too
        many, the arguments are appended.
        """
        try:
            words: Sequence[str] = shlex.split(arguments)
        except ValueError:
            words = arguments.split()

        def filled(place: re.Match[str]) -> str:
            if place[1] == "ARGUMENTS":
                return arguments
            at = int(place[1]) - 1
            return words[at] if at < len(words) else ""

        if len(arguments) * len(_PLACE.findall(self.text)) > _MOST_FILLED:
            return f"{self.text}\n\n{arguments}"
        text, n_filled = _PLACE.subn(filled, self.text)
        return text if n_filled or not arguments else f"{text}\n\n{arguments}"


def custom_commands(
    work_dir: Path, config_dir: Path, home: Path | None, above: Sequence[Path] = ()
) -> list[CustomCommand]:
    """Return all custom commands, the user's own first, so that a repository cannot take one of their names. It reads files,
    so call it in a thread.

    Args:
        work_dir: the work folder.
        config_dir: the folder of config.toml.
        home: the user's home folder; None if there is none.
        above: the folders above the work folder, up to the root of its repository, the nearest first: they may have skills too.
    """
    theirs = (*_COMMANDS, *_SKILLS)
    places: list[_Place] = _below(config_dir, (("commands",), _OWN_SKILLS), "user")
    if home is not None:
        places += _below(home, theirs, "user")
    own = ((".kimi-tui", "commands"), (".kimi-tui", "skills"))
    if work_dir != home:
        places += _below(work_dir, (*own, *theirs), "folder")
    for folder in above:
        if folder != home:
            places += _below(folder, ((".kimi-tui", "skills"), *_SKILLS), "folder")
    found: dict[str, CustomCommand] = {}
    for root, parts, origin in places:
        for name, path in markdown_files(root, parts, origin):
            if len(found) >= MAX_FILES:
                return list(found.values())
            if name in found:
                continue
            is_skill = parts in _SKILL_PLACES
            if (made := _command_in(root, name, path, origin, is_skill=is_skill)) is not None:
                found[name] = made
    return list(found.values())


def _below(root: Path, folders: Sequence[tuple[str, ...]], origin: Origin) -> list[_Place]:
    return [(root, parts, origin) for parts in folders]


def markdown_files(
    root: Path, parts: tuple[str, ...], origin: Origin
) -> Iterator[tuple[str, Path]]:
    """Yield the names and files of a folder below a root, ordered by name; links of a repository are not followed.

    Commands in subfolders come after those beside them, with the folders in their names: `git:commit`.
    """
    n_left = _MAX_ENTRIES
    level: list[tuple[str, ...]] = [()]
    while level:
        deeper: list[tuple[str, ...]] = []
        for inner in level:
            if n_left <= 0:
                return
            files, folders, n_seen = _listed(root, (*parts, *inner), origin, n_left)
            n_left -= n_seen
            space = [_word(name) for name in inner]
            for name in files:
                word = ":".join((*space, _word(name.removesuffix(".md"))))
                path = root.joinpath(*parts, *inner, name)
                yield word, path if name.endswith(".md") else path / _SKILL
            deeper += [(*inner, name) for name in folders if len(inner) < _MAX_DEPTH]
        level = deeper


def _word(name: str) -> str:
    return name.lower().replace("_", "-")


def _listed(
    root: Path, parts: tuple[str, ...], origin: Origin, most: int
) -> tuple[list[str], list[str], int]:
    """Return the commands in a folder, its folders of commands, and the number of entries read (no more than `most`)."""
    links, are_skills = origin == "user", parts in _SKILL_PLACES
    files: list[str] = []
    folders: list[str] = []
    n_seen = 0
    try:
        if not links:
            os.close(open_folder(root, parts))
        with os.scandir(root.joinpath(*parts)) as entries:
            for entry in islice(entries, most):
                n_seen += 1
                if not _NAME.fullmatch(_word(entry.name.removesuffix(".md"))):
                    continue
                if entry.is_dir(follow_symlinks=links):
                    if not entry.name.endswith(".md"):
                        (files if are_skills else folders).append(entry.name)
                elif entry.name.endswith(".md") and entry.is_file(follow_symlinks=links):
                    files.append(entry.name)
    except OSError:
        pass
    return sorted(files), sorted(folders), n_seen


def _command_in(
    root: Path, name: str, path: Path, origin: Origin, *, is_skill: bool
) -> CustomCommand | None:
    try:
        if origin == "user":
            data = read_regular(path, MAX_BYTES, links=True)
        else:
            data = read_of_repository(root, path)
    except OSError:
        return None
    text = clean_source(as_shown(data)).strip()
    facts, body = parted(text)
    if not body:
        return None
    first = body.partition("\n")[0].lstrip("# ")
    if is_skill:
        body = _FOLDER_PLACES.sub(lambda _: str(path.parent), body)
    if path.name == _SKILL:
        body = f"{body}\n\nThe files that belong to this skill are in {path.parent}."
    command = CustomCommand(
        name,
        one_line(facts.get("description") or first)[:200],
        one_line(facts.get("argumenthint", "[arguments]"))[:40],
        body,
        path,
        origin,
    )
    if not is_skill:
        return command
    said = [facts.get("description", ""), facts.get("whentouse", "")]
    description = one_line(" ".join(filter(None, said))[: 4 * MAX_DESCRIPTION])[:MAX_DESCRIPTION]
    may_call = facts.get("disablemodelinvocation", "").lower() != "true"
    is_text = facts.get("type", "").lower() in _SKILL_TYPES
    return command._replace(
        is_skill=True,
        description=description,
        for_agent=bool(facts.get("description")) and may_call and is_text,
        for_user=facts.get("userinvocable", "").lower() != "false",
    )


def read_of_repository(root: Path, path: Path) -> bytes:
    """Read a file below a root, opened folder by folder, as any of them may be a link by now.

    Raises:
        OSError: the file cannot be read, is too long, or has another name, which may be outside.
    """
    folder = open_folder(root, path.parent.relative_to(root).parts)
    try:
        with open(open_regular(Path(path.name), dir_fd=folder), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if status.st_nlink > 1 or status.st_size > MAX_BYTES:
                raise OSError(errno.EINVAL, "the file has hard links or is too large", str(path))
            return file.read(MAX_BYTES)
    finally:
        os.close(folder)


def parted(text: str) -> tuple[dict[str, str], str]:
    """Split a file into its front matter (lines `key: value`, each value joined to one line) and the rest.

    Keys are written in lower case without hyphens and underscores here, as programs spell them in three ways.
    """
    if not text.startswith("---\n"):
        return {}, text
    head, end, body = text[4:].partition("\n---")
    if not end:
        return {}, text
    found: dict[str, list[str]] = {}
    pieces: list[str] = []
    for line in head.split("\n"):
        # An indented line, or one of a list, continues the value before it.
        if line.startswith((" ", "\t", "- ")):
            pieces.append(line.strip())
            continue
        key, _, value = line.partition(":")
        pieces = found.setdefault(key.strip().lower().replace("-", "").replace("_", ""), [])
        pieces[:] = () if _BLOCK.fullmatch(value.strip()) else (value.strip(),)
    facts = {key: " ".join(filter(None, parts)).strip("\"'") for key, parts in found.items()}
    return {key: value for key, value in facts.items() if value}, body.partition("\n")[2].strip()


SHOWN_NAME = "shown_commands.json"
_MOST_SHOWN = 1_000


def were_shown(data_dir: Path) -> list[str]:
    """Read the digests of the commands that the user was shown and ran, oldest first."""
    try:
        found: object = json.loads(read_regular(data_dir / SHOWN_NAME, 1 << 20))
    except (OSError, ValueError, RecursionError):
        return []
    return [one for one in lenient_json.listing(found) if isinstance(one, str)]


def note_shown(data_dir: Path, digest: str) -> None:
    """Note that the user was shown a command, in a file. If the disk refuses, the command will be shown again."""
    shown = [*were_shown(data_dir), digest][-_MOST_SHOWN:]
    with contextlib.suppress(OSError):
        make_private(data_dir)
        Storage().replace_file(data_dir / SHOWN_NAME, json.dumps(shown).encode())
