"""Which hooks there are: those of the user, from kimi-tui's, kimi-cli's and Claude's configuration, and those of a work folder.

Two forms are read: `[[hooks]]` of TOML files, which is kimi-cli's, and the `hooks` of Claude's `settings.json`. Hooks that a
work folder brings run only after a yes to exactly their text and the scripts that they name (`digest_of`).
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from kimi_tui import lenient_json
from kimi_tui.app_paths import config_file, home_dir, kimi_cli_config_file, short
from kimi_tui.filesystem import open_folder, open_regular, read_regular
from kimi_tui.foreign_text import one_line

Event = Literal[
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "Stop",
    "StopFailure",
    "PreCompact",
    "PostCompact",
    "Notification",
    "checkpoint",
    "rewind",
    "dmail",
]
Origin = Literal["user", "folder"]
EVENTS: tuple[Event, ...] = get_args(Event)
OF_TOOLS: frozenset[Event] = frozenset({"PreToolUse", "PostToolUse", "PostToolUseFailure"})
"""The events whose matcher is about the name of a tool."""
_SAME = {
    "beforetool": "PreToolUse",
    "aftertool": "PostToolUse",
    "prompt": "UserPromptSubmit",
    "beforecompaction": "PreCompact",
    "aftercompaction": "PostCompact",
}
_NAMES: Mapping[str, Event] = {
    **{name.lower(): name for name in EVENTS},
    **{name: cast("Event", event) for name, event in _SAME.items()},
}
_FOLDER_FILES = (
    (".kimi-tui", "hooks.toml"),
    (".claude", "settings.json"),
    (".claude", "settings.local.json"),
)
_MOST_BYTES = 1 << 20
_MOST_HOOKS = 200
_LONGEST_COMMAND = 16_384
_LONGEST_MATCHER = 200
_MOST_REPEATS = 3
_DEFAULT_S, _CLAUDE_S, _PROMPT_S, _MOST_S = 30.0, 600.0, 30.0, 600.0
_MOST_SCRIPT_BYTES = 4 << 20
_EXACT = re.compile(r"[\w ,|-]*", re.ASCII)
_CONDITION = re.compile(r"([A-Za-z_][\w-]{0,63})(?:\((.{0,500})\))?", re.DOTALL)
_WORDS = re.compile(r"[^\s\"'`;|&<>()]+")
_FOLDER_VARIABLES = re.compile(r"\$\{?(?:CLAUDE_PROJECT_DIR|KIMI_PROJECT_DIR|PWD)\}?")


class Hook(NamedTuple):
    """One hook.

    Attributes:
        event: the event that it is told of.
        matcher: which tools, or which kinds of the event, it is for; empty for all.
        command: the command line for the shell.
        timeout_s: the seconds after which it is ended.
        sandbox: whether it runs in the sandbox; those of a work folder always do.
        origin: whether it is the user's or the work folder's.
        path: the file that defines it.
        form: whether it was written for Claude, whose names of tools it gets then.
        condition: Claude's `if`, such as `Bash(git *)`; empty for none.
        trouble: why it cannot run; empty if it can.
    """

    event: Event
    matcher: str
    command: str
    timeout_s: float
    sandbox: bool
    origin: Origin
    path: Path
    form: Literal["kimi", "claude"] = "kimi"
    condition: str = ""
    trouble: str = ""

    @property
    def name(self) -> str:
        """Its name in sentences: the beginning of its command, and the file."""
        # It stands in messages to the model, whose tags it must not end.
        words = one_line(self.command).replace("</", "<\\/")
        words = words if len(words) <= 60 else f"{words[:59]}…"
        return f'"{words}" of {one_line(short(self.path))}'

    @property
    def key(self) -> str:
        """A digest of all that decides what it does, for the list of those that are turned off."""
        said = (self.event, self.matcher, self.command, self.condition, str(self.path))
        return hashlib.sha256("\0".join(said).encode("utf-8", "replace")).hexdigest()

    def is_for(self, names: Sequence[str], subject: str = "") -> bool:
        """Return whether the hook is for a tool or kind with one of these names.

        Args:
            names: the names of the tool in all spellings, or the kind of the event.
            subject: the command, path or address of the call, for a condition.
        """
        is_meant = _matches(self.matcher, names)
        if not is_meant and self.form == "kimi" and not _why_no_matcher(self.matcher):
            # In kimi-cli's form every matcher is an expression: `File` is for all tools with that in their names.
            is_meant = any(re.search(self.matcher, name[:128]) for name in names)
        return is_meant and self._holds(names, subject)

    def _holds(self, names: Sequence[str], subject: str) -> bool:
        found = _CONDITION.fullmatch(self.condition) if self.condition else None
        if found is None:
            return True
        if found[1] not in names:
            return False
        pattern = found[2]
        return pattern is None or fnmatch.fnmatchcase(subject[:10_000], pattern.replace(":*", "*"))


class FoundHooks(NamedTuple):
    """The hooks of a session.

    Attributes:
        own: those of the user.
        folder: those of the work folder.
        remarks: sentences about entries that cannot be used.
        elsewhere: events of entries that this program does not have.
    """

    own: tuple[Hook, ...] = ()
    folder: tuple[Hook, ...] = ()
    remarks: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def find_hooks(work_dir: Path) -> FoundHooks:
    """Return the hooks for a work folder. It reads files, so call it in a thread."""
    reader = _HookReader()
    home = home_dir()
    own: list[Hook] = []
    seen: set[str] = set()
    # kimi-tui's own file may be a copy of kimi-cli's.
    for path in dict.fromkeys((config_file(), kimi_cli_config_file())):
        for hook in reader.toml(path, _read_own(path), "user"):
            said = hook._replace(path=Path()).key
            if said not in seen:
                seen.add(said)
                own.append(hook)
    if home is not None:
        path = home / ".claude" / "settings.json"
        own += reader.claude(path, _read_own(path), "user")
    folder: list[Hook] = []
    if home is None or os.path.realpath(work_dir) != os.path.realpath(home):
        for parts in _FOLDER_FILES:
            path = work_dir.joinpath(*parts)
            read = reader.toml if path.suffix == ".toml" else reader.claude
            folder += read(path, _read_below(work_dir, parts), "folder")
    return FoundHooks(
        tuple(own[:_MOST_HOOKS]),
        tuple(folder[:_MOST_HOOKS]),
        tuple(reader.remarks),
        tuple(dict.fromkeys(reader.elsewhere)),
    )


def hooks_in(path: Path, data: bytes, origin: Origin) -> tuple[list[Hook], tuple[str, ...]]:
    """Return the hooks in the text of a file (TOML or Claude's JSON, by its name), and events that this program does not have."""
    reader = _HookReader()
    read = reader.toml if path.suffix == ".toml" else reader.claude
    return read(path, data, origin), tuple(dict.fromkeys(reader.elsewhere))


def digest_of(hooks: Iterable[Hook], work_dir: Path) -> str:
    """Return a digest of hooks of a work folder: of their definitions, and of the scripts in the folder that they name.
    It reads files, so call it in a thread.
    """
    whole = hashlib.sha256()
    for hook in hooks:
        said = [
            *(hook.event, hook.matcher, hook.command, hook.condition, hook.form),
            *(repr(hook.timeout_s), os.path.relpath(hook.path, work_dir)),
        ]
        bare = _FOLDER_VARIABLES.sub(".", hook.command).replace('"', "").replace("'", "")
        is_plain = not any(sign in hook.command for sign in "\"'\\")
        for found in _WORDS.finditer(bare):
            # A file that a hook writes is no script, and would be another one after each run. Only where nothing is quoted is a > surely
            # a redirection.
            before = bare[: found.start()].rstrip(" \t")
            is_output = is_plain and before.endswith((">", ">|")) and not before.endswith("<>")
            word = found[0]
            said += [word, "" if is_output else _digest_of_file(work_dir, word)]
        whole.update(json.dumps(said).encode())
    return whole.hexdigest()


def _digest_of_file(work_dir: Path, word: str) -> str:
    """Return a digest of the file of the work folder that a word of a command names; empty if it names none."""
    path = os.path.normpath(os.path.join(work_dir, word))
    if not path.startswith(f"{work_dir}{os.sep}"):
        return ""
    real = os.path.realpath(path)
    try:
        with open(open_regular(Path(real)), "rb", buffering=0) as file:
            data = file.read(_MOST_SCRIPT_BYTES + 1)
    except OSError:
        return ""
    # A script that is too long to be compared is never the same.
    return (
        hashlib.sha256(data).hexdigest() if len(data) <= _MOST_SCRIPT_BYTES else os.urandom(8).hex()
    )


def _read_own(path: Path) -> bytes:
    try:
        return read_regular(path, _MOST_BYTES << 2, links=True)
    except OSError:
        return b""


def _read_below(root: Path, parts: tuple[str, ...]) -> bytes:
    """Return a file of the work folder, opened folder by folder: nothing that a link leads to."""
    try:
        folder = open_folder(root, parts[:-1])
    except OSError:
        return b""
    try:
        with open(open_regular(Path(parts[-1]), dir_fd=folder), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if status.st_nlink > 1 or not stat.S_ISREG(status.st_mode):
                return b""
            data = file.read(_MOST_BYTES + 1)
            return data if len(data) <= _MOST_BYTES else b""
    except OSError:
        return b""
    finally:
        os.close(folder)


class _HookReader:
    """Reads hooks, and remembers what it could not use."""

    def __init__(self) -> None:
        self.remarks: list[str] = []
        self.elsewhere: list[str] = []

    def toml(self, path: Path, data: bytes, origin: Origin) -> list[Hook]:
        """Return the `[[hooks]]` of a TOML file."""
        if b"hooks" not in data:
            return []
        import tomllib

        try:
            table: dict[str, Any] = tomllib.loads(data.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            if origin == "folder":
                self._say(path, "the file", "is not TOML")
            return []
        entries = table.get("hooks")
        if isinstance(entries, dict):
            # kimi-cli once wrote a single table under that name, which runs nothing.
            self._say(path, "hooks", "must be a list of tables: [[hooks]]")
            return []
        made: list[Hook] = []
        for number, entry in enumerate(lenient_json.listing(entries), 1):
            made += self._hook(path, origin, f"hooks {number}", lenient_json.mapping(entry), "kimi")
        return made

    def claude(self, path: Path, data: bytes, origin: Origin) -> list[Hook]:
        """Return the hooks of a file in the form of Claude's `settings.json`."""
        if b"hooks" not in data:
            return []
        try:
            found: object = json.loads(data.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            self._say(path, "the file", "is not JSON")
            return []
        settings = lenient_json.mapping(found)
        if settings.get("disableAllHooks") is True:
            return []
        made: list[Hook] = []
        for event, groups in lenient_json.mapping(settings.get("hooks")).items():
            for group in lenient_json.listing(groups):
                facts = lenient_json.mapping(group)
                for entry in lenient_json.listing(facts.get("hooks")):
                    one = {"event": event, "matcher": facts.get("matcher", "")}
                    one |= lenient_json.mapping(entry)
                    made += self._hook(
                        path, origin, f"a hook of {one_line(event)[:40]}", one, "claude"
                    )
        return made

    def _hook(
        self,
        path: Path,
        origin: Origin,
        place: str,
        entry: Mapping[str, object],
        form: Literal["kimi", "claude"],
    ) -> Iterator[Hook]:
        name, command = entry.get("event"), entry.get("command")
        if not isinstance(name, str):
            self._say(path, place, "has no event")
            return
        event = _NAMES.get(name.replace("_", "").replace("-", "").lower())
        if event is None:
            self.elsewhere.append(one_line(name)[:40])
            return
        trouble = ""
        if entry.get("type", "command") != "command":
            kind = one_line(str(entry.get("type")))[:40]
            if event != "PreToolUse":
                self.elsewhere.append(f"{event} of the type {kind}")
                return
            command, trouble = command or f"type {kind}", f"hooks of the type {kind} are not run"
        if not isinstance(command, str) or not command.strip():
            self._say(path, place, "has no command")
            return
        if len(command) > _LONGEST_COMMAND or "\0" in command:
            trouble = "its command is too long"
        matcher = entry.get("matcher") or ""
        if not isinstance(matcher, str):
            matcher, trouble = "", "its matcher is not a string"
        timeout = entry.get("timeout")
        usual = (
            _DEFAULT_S
            if form == "kimi"
            else _PROMPT_S
            if event == "UserPromptSubmit"
            else _CLAUDE_S
        )
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        limit_s = min(_MOST_S, max(0.1, float(cast("float", timeout)))) if is_number else usual
        condition = entry.get("if")
        yield Hook(
            event,
            matcher,
            command[:_LONGEST_COMMAND],
            limit_s,
            origin == "folder" or entry.get("sandbox") is True,
            origin,
            path,
            form,
            condition if isinstance(condition, str) else "",
            trouble or _why_no_matcher(matcher),
        )

    def _say(self, path: Path, what: str, why: str) -> None:
        self.remarks.append(f"{one_line(short(path))}: {what} {why}.")


# -- matchers


def _why_no_matcher(matcher: str) -> str:
    """Return why a matcher cannot be used; empty if it can.

    Expressions that could take a name apart in many ways are refused: a search with one would never end.
    """
    if _is_plain(matcher):
        return ""
    if len(matcher) > _LONGEST_MATCHER:
        return "its matcher is too long"
    bare = re.sub(r"\\.|\[[^\]]*\]", "x", matcher, flags=re.DOTALL)
    if re.search(r"\)[*+{]", bare) or len(re.findall(r"[*+{]", bare)) > _MOST_REPEATS:
        return "its matcher has too many nested repetitions"
    try:
        re.compile(matcher)
    except (re.error, RecursionError, OverflowError):
        return "its matcher is not a valid regular expression"
    return ""


def _is_plain(matcher: str) -> bool:
    return matcher in ("", "*") or _EXACT.fullmatch(matcher) is not None


def _matches(matcher: str, names: Sequence[str]) -> bool:
    if matcher.strip() in ("", "*"):
        return True
    if _is_plain(matcher):
        wanted = {one.strip() for one in re.split(r"[|,]", matcher)}
        return not wanted.isdisjoint(names)
    if _why_no_matcher(matcher):
        return True
    return any(re.search(matcher, name[:128]) for name in names)
