"""Settings of other agents, found and described: MCP servers, hooks, skills, commands, agents, notes, permissions, status lines.

Files are only read, and nothing in them is run or asked. Settings that this program reads by itself anyway are listed
as such, and so are those that have no counterpart here. `settings_taking` writes a single one to where this program has its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from kimi_tui import lenient_json
from kimi_tui.app_paths import config_dir, home_dir, reason_of, short
from kimi_tui.config.permissions import FILE_NAME, ProjectPermissions
from kimi_tui.filesystem import read_regular
from kimi_tui.foreign_text import clean_source, one_line, visible
from kimi_tui.hooks.definitions import Hook, hooks_in
from kimi_tui.mcp.config import BadEntry, read_entries, server_of
from kimi_tui.migration import claude_code, codex, foreign_files, gemini, kimi_code
from kimi_tui.migration.tool_names import our_name
from kimi_tui.tools.command_groups import never_because

Kind = Literal[
    "MCP server", "hook", "skill", "command", "agent", "note", "permission", "status line"
]
State = Literal["new", "present", "used", "unusable"]
KINDS: tuple[Kind, ...] = (
    "MCP server",
    "hook",
    "skill",
    "command",
    "agent",
    "note",
    "permission",
    "status line",
)
STATE_WORDS: Mapping[State, str] = {
    "new": "can be imported",
    "present": "kimi-tui already has it",
    "used": "used without an import",
    "unusable": "cannot be imported",
}

Json = dict[str, Any]
_MOST_BYTES = 8 << 20
_LONGEST_INTERVAL_S = 3_600
_MOST_TEXT = 64 << 10
_MOST_FOUND = 1_000
_MOST_NAMED = 30
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_ALLOWED = re.compile(r"(\w+)(?:\((.{0,500})\))?", re.DOTALL)
_PREFIX = re.compile(r"(?::\*|\s\*|\*)\Z")
_HOST = re.compile(r"domain:([A-Za-z0-9.-]{1,253})")
_READ_ANYWAY = "kimi-tui reads this file directly, so no import is needed"
_BECOMES_A_TYPE = "it becomes a sub-agent type"
_AGENT_FOLDERS = (".agents", ".claude", ".kimi-code", ".kimi")
"""The folders, of the user and of a work folder, below which kinds of sub-agents are read as they are."""
_HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True)
class FoundSetting:
    """A setting of another agent.

    Attributes:
        agent: The agent's name, for the user.
        kind: What it is.
        name: Its name, in one line.
        path: The file or folder that has it.
        place: Whether it is the user's or the work folder's.
        about: All that it says, for the look before it is taken; without the values of variables, headers and addresses
            that may be secret.
        state: What can be done with it.
        why: A sentence about the state; may be empty.
        content: What is written when it is taken, as `settings_taking` needs it.
    """

    agent: str
    kind: Kind
    name: str
    path: Path
    place: Literal["user", "folder"]
    about: str
    state: State = "new"
    why: str = ""
    content: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def id(self) -> str:
        """Eight digits that name the setting in a command."""
        said = "\0".join((self.agent, self.kind, self.name, str(self.path), self.about))
        return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:8]


def find_settings(
    work_dir: Path, environ: Mapping[str, str] = os.environ
) -> tuple[list[FoundSetting], list[str]]:
    """Return the settings of all agents for a work folder, and sentences about files that cannot be read. It reads files, so
    call it in a thread."""
    home = home_dir()
    if home is None:
        return [], []
    finder = _SettingsFinder(work_dir, home, environ)
    finder.find()
    found = {one.id: one for one in finder.found}
    return list(found.values())[:_MOST_FOUND], finder.remarks


class _SettingsFinder:
    """Goes through the files of all agents."""

    def __init__(self, work_dir: Path, home: Path, environ: Mapping[str, str]) -> None:
        self._work = work_dir
        self._home = home
        self._environ = environ
        self.found: list[FoundSetting] = []
        self.remarks: list[str] = []
        self._ours = config_dir(environ)
        try:
            self._servers = read_entries(self._ours / "mcp.json")
        except (OSError, BadEntry):
            self._servers = {}
        try:
            self._project_servers = read_entries(work_dir / ".mcp.json", "project")
        except (OSError, BadEntry):
            self._project_servers = {}
        self._rules = ProjectPermissions(self._ours / FILE_NAME, work_dir).rules
        self._config = self._text(self._ours / "config.toml") or ""
        self._notes = self._text(self._ours / "AGENTS.md") or ""

    def find(self) -> None:
        """Find everything, agent by agent."""
        self._claude()
        self._codex()
        self._gemini()
        self._kimi_cli()
        self._kimi_code()

    # -- agents ------------------------------------------------------------------------------------------

    def _claude(self) -> None:
        name, folder = "Claude Code", claude_code.home(self._environ, self._home)
        whole = self._object(self._home / ".claude.json")
        place = lenient_json.mapping(
            lenient_json.mapping(whole.get("projects")).get(str(self._work))
        )
        path = self._home / ".claude.json"
        self._mcp(name, path, "user", whole.get("mcpServers"))
        self._mcp(name, path, "user", place.get("mcpServers"))
        self._used(name, "MCP server", self._work / ".mcp.json", "folder")
        self._permissions(name, path, "user", place.get("allowedTools"), "allow")
        for root, owner in self._roots(folder, ".claude"):
            for file in ("settings.json", "settings.local.json"):
                settings = self._object(root / file)
                if settings.get("hooks"):
                    self._used(name, "hook", root / file, owner)
                if settings.get("disableAllHooks") is not True:
                    self._status_line(name, root / file, owner, settings.get("statusLine"))
                rules = lenient_json.mapping(settings.get("permissions"))
                for key in ("allow", "ask", "deny"):
                    self._permissions(name, root / file, owner, rules.get(key), key)
            self._used(name, "skill", root / "skills", owner)
            self._used(name, "command", root / "commands", owner)
            self._agents(name, root / "agents", owner)
        self._note(name, folder / "CLAUDE.md")
        self._used(name, "note", self._work / "CLAUDE.md", "folder")

    def _codex(self) -> None:
        name, folder = "Codex", codex.home(self._environ, self._home)
        for root, owner in self._roots(folder, ".codex"):
            settings = self._toml(root / "config.toml")
            servers = lenient_json.mapping(settings.get("mcp_servers"))
            entries = {key: _of_codex(one) for key, one in servers.items()}
            self._mcp(name, root / "config.toml", owner, entries)
            self._hooks(name, root / "hooks.json", owner)
            self._used(name, "skill", root / "skills", owner)
        self._commands(name, folder / "prompts")
        for file in ("AGENTS.override.md", "AGENTS.md"):
            self._note(name, folder / file)
        for path in foreign_files.files_of(folder / "rules", ".rules"):
            self._say(
                name,
                "permission",
                path.name,
                path,
                "user",
                "Codex rules are written as code, which kimi-tui cannot run",
            )

    def _gemini(self) -> None:
        name, folder = "Gemini CLI", gemini.home(self._environ, self._home)
        for root, owner in self._roots(folder, ".gemini"):
            path = root / "settings.json"
            settings = self._object(path)
            servers = lenient_json.mapping(settings.get("mcpServers"))
            self._mcp(name, path, owner, {key: _of_gemini(one) for key, one in servers.items()})
            if settings.get("hooks"):
                self._hooks(name, path, owner, milliseconds=True)
            tools = lenient_json.mapping(settings.get("tools"))
            self._permissions(name, path, owner, tools.get("allowed"), "allow")
            self._gemini_commands(name, root / "commands", owner)
            self._agents(name, root / "agents", owner)
            self._skills(name, root / "skills", owner)
        self._note(name, folder / "GEMINI.md")
        self._note(name, self._work / "GEMINI.md", "folder")

    def _kimi_cli(self) -> None:
        from kimi_tui.app_paths import kimi_cli_share_dir

        name, folder = "kimi-cli", kimi_cli_share_dir(self._environ)
        self._used(name, "MCP server", folder / "mcp.json", "user")
        if self._toml(folder / "config.toml").get("hooks"):
            self._used(name, "hook", folder / "config.toml", "user")
        self._used(name, "skill", folder / "skills", "user")
        self._used(name, "note", folder / "AGENTS.md", "user")

    def _kimi_code(self) -> None:
        name, folder = "kimi-code", kimi_code.home(self._environ, self._home)
        for root, owner in self._roots(folder, ".kimi-code"):
            path = root / "mcp.json"
            self._mcp(name, path, owner, self._object(path).get("mcpServers"))
            self._hooks(name, root / "config.toml", owner)
            self._used(name, "skill", root / "skills", owner)
            self._agents(name, root / "agents", owner)
        self._commands(name, folder / "commands")
        self._note(name, folder / "AGENTS.md")
        self._note("all agents", self._home / ".agents" / "AGENTS.md")

    def _roots(self, folder: Path, name: str) -> Iterator[tuple[Path, Literal["user", "folder"]]]:
        """Yield an agent's folder of the user, and the one of the work folder if that is another."""
        yield folder, "user"
        if self._work / name != folder:
            yield self._work / name, "folder"

    # -- kinds -------------------------------------------------------------------------------------------

    def _mcp(
        self, agent: str, path: Path, place: Literal["user", "folder"], entries: object
    ) -> None:
        for name, entry in lenient_json.mapping(entries).items():
            named = one_line(name)[:80] or "(no name)"
            record = lenient_json.mapping(entry)
            state: State = "new"
            why = ""
            known = self._servers if place == "user" else self._project_servers
            if name in known:
                file = "mcp.json" if place == "user" else ".mcp.json of this folder"
                state, why = "present", f"{file} already has a server with this name"
            else:
                try:
                    server_of(name, record, path, "user")
                except BadEntry as bad:
                    state, why = "unusable", str(bad)
            about = _server_words(record)
            self._add(
                agent,
                "MCP server",
                named,
                path,
                place,
                about,
                state,
                why,
                {"name": name, "entry": record},
            )

    def _hooks(
        self,
        agent: str,
        path: Path,
        place: Literal["user", "folder"],
        *,
        milliseconds: bool = False,
    ) -> None:
        data = self._bytes(path) or b""
        if path.suffix == ".json":
            groups = lenient_json.mapping(self._object(path).get("hooks"))
            data = json.dumps({"hooks": _in_seconds(groups) if milliseconds else groups}).encode()
        hooks, elsewhere = hooks_in(path, data, "user")
        for hook in hooks:
            state, why = self._hook_state(hook, place)
            seconds = hook.timeout_s
            matcher = _translated_matcher(hook.matcher)
            entry: Json = {"event": hook.event, "command": hook.command, "timeout": seconds}
            if matcher:
                entry["matcher"] = matcher
            about = f"event: {hook.event}\nmatcher: {matcher or '(all)'}\ntimeout: {seconds:g} seconds\ncommand:\n"
            about = visible_text(f"{about}{hook.command}")
            name = f"{hook.event}: {one_line(hook.command)[:60]}"
            self._add(agent, "hook", name, path, place, about, state, why, {"entry": entry})
        for event in elsewhere:
            self._say(agent, "hook", event, path, place, "kimi-tui has no such event")

    def _hook_state(self, hook: Hook, place: str) -> tuple[State, str]:
        if hook.trouble:
            return "unusable", hook.trouble
        if place == "folder":
            return (
                "unusable",
                "it belongs to this folder; copy it into .kimi-tui/hooks.toml in this folder",
            )
        if json.dumps(hook.command) in self._config or hook.command in self._config:
            return "present", "config.toml already has a hook with this command"
        return "new", ""

    def _status_line(
        self, agent: str, path: Path, place: Literal["user", "folder"], found: object
    ) -> None:
        """Note the command of Claude's status line, and the interval at which it runs."""
        entry = {"command": found} if isinstance(found, str) else lenient_json.mapping(found)
        command, interval = entry.get("command"), entry.get("refreshInterval")
        if not isinstance(command, str) or not command.strip():
            return
        seconds = 0
        if isinstance(interval, int | float) and not isinstance(interval, bool):
            # Claude's is a number of seconds from 1.
            seconds = round(min(max(interval, 0), _LONGEST_INTERVAL_S)) if interval >= 1 else 0
        state: State = "new"
        why = "its first line of output is shown below the prompt; it runs outside the sandbox"
        ours = lenient_json.mapping(_parsed_toml(self._config).get("statusline")).get("command")
        if place == "folder":
            state, why = (
                "unusable",
                "it belongs to this folder; if you trust it, set statusline.command in your config.toml",
            )
        elif ours:
            state = "present"
            why = "config.toml already has a status line command"
        about = f"interval: {seconds} seconds\n" if seconds else ""
        self._add(
            agent,
            "status line",
            one_line(command)[:60],
            path,
            place,
            visible_text(f"{about}command:\n{command}"),
            state,
            why,
            {"command": command, "interval": seconds},
        )

    def _permissions(
        self, agent: str, path: Path, place: Literal["user", "folder"], rules: object, key: str
    ) -> None:
        for rule in lenient_json.listing(rules):
            if not isinstance(rule, str):
                continue
            name = one_line(rule)[:120]
            state: State = "unusable"
            wanted = ""
            if key != "allow":
                why = f'kimi-tui has no "{key}" rules; use a hook instead'
            else:
                wanted, why = _rule_of(rule)
                state = "new" if wanted else "unusable"
            if wanted in self._rules:
                state, why = "present", "the permission already exists in this folder"
            about = f"{key}: {name}"
            if wanted.startswith("host:"):
                host = wanted.removeprefix("host:")
                about += (
                    f"\nIn this folder the agent may then fetch pages of {host} without asking."
                )
            elif wanted:
                about += f"\nIn this folder the agent may then run commands that begin with this without asking: {wanted}"
            self._add(agent, "permission", name, path, place, about, state, why, {"rule": wanted})

    def _agents(self, agent: str, folder: Path, place: Literal["user", "folder"]) -> None:
        roots = (self._home, self._work)
        for path in foreign_files.files_of(folder, ".md"):
            text = self._text(path)
            if text is None:
                continue
            if folder in (root / name / "agents" for root in roots for name in _AGENT_FOLDERS):
                # A file that this program reads by itself is listed with its text, but needs no copy.
                about = visible_text(text)
                self._add(agent, "agent", path.stem, path, place, about, "used", _READ_ANYWAY, {})
            else:
                self._markdown(agent, "agent", path, place, _with_our_tools(text), _BECOMES_A_TYPE)

    def _skills(self, agent: str, folder: Path, place: Literal["user", "folder"]) -> None:
        for inner in foreign_files.folders_of(folder):
            text = self._text(inner / "SKILL.md")
            if text is not None:
                self._markdown(agent, "skill", inner, place, text, "", copies=True)

    def _commands(self, agent: str, folder: Path) -> None:
        for path in foreign_files.files_of(folder, ".md"):
            text = self._text(path)
            if text is not None:
                self._markdown(agent, "command", path, "user", text, "")

    def _gemini_commands(self, agent: str, folder: Path, place: Literal["user", "folder"]) -> None:
        paths = [(path, path.stem) for path in foreign_files.files_of(folder, ".toml")]
        for inner in foreign_files.folders_of(folder):
            paths += [
                (path, f"{inner.name}-{path.stem}")
                for path in foreign_files.files_of(inner, ".toml")
            ]
        for path, name in paths:
            table = self._toml(path)
            prompt, about = table.get("prompt"), table.get("description")
            if not isinstance(prompt, str):
                continue
            text = prompt.replace("{{args}}", "$ARGUMENTS")
            if "!{" in text:
                self._say(
                    agent,
                    "command",
                    name,
                    path,
                    place,
                    "its text contains shell commands that run before the prompt is sent, which kimi-tui does not support",
                )
                continue
            if isinstance(about, str):
                text = f"---\ndescription: {one_line(about)}\n---\n{text}"
            self._markdown(agent, "command", path, place, text, "", name=name)

    def _markdown(
        self,
        agent: str,
        kind: Kind,
        path: Path,
        place: Literal["user", "folder"],
        text: str,
        why: str,
        *,
        name: str = "",
        copies: bool = False,
    ) -> None:
        name = re.sub(r"[^a-z0-9]+", "-", (name or path.stem).lower()).strip("-")
        target = self._ours / f"{kind}s" / (name if kind == "skill" else f"{name}.md")
        state: State = "new"
        if not _NAME.fullmatch(name):
            state, why = (
                "unusable",
                "its name contains no letter from a to z and no digit, so it cannot be a command here",
            )
        elif os.path.lexists(target):
            state, why = "present", f"{short(target)} already exists"
        elif copies and place == "folder":
            # A skill may have more files than the one that is shown.
            state = "unusable"
            why = "it belongs to this folder; move it to .agents/skills, where every agent finds it"
        content: Json = {"name": name, "text": text}
        if copies:
            content["folder"] = str(path)
        about = visible_text(text)
        if copies:
            others = [one for one in _files_in(path) if one != "SKILL.md"]
            about += f"\n\nOther files: {', '.join(others)}" if others else ""
        self._add(agent, kind, name or path.name, path, place, about, state, why, content)

    def _note(self, agent: str, path: Path, place: Literal["user", "folder"] = "user") -> None:
        text = self._text(path)
        if not text or not text.strip():
            return
        state: State = "new"
        why = "its text is added to your personal notes (instructions for the agent), which every session reads"
        if place == "folder":
            state, why = (
                "unusable",
                "it belongs to this folder; name it AGENTS.md, and every agent reads it",
            )
        elif text.strip() in self._notes:
            state, why = "present", "your personal notes already contain this text"
        self._add(
            agent,
            "note",
            path.name,
            path,
            place,
            visible_text(text),
            state,
            why,
            {"text": text.strip()},
        )

    def _used(self, agent: str, kind: Kind, path: Path, place: Literal["user", "folder"]) -> None:
        """Say that this program reads a file or folder by itself, if there is one."""
        try:
            is_there = any(path.iterdir()) if path.is_dir() else path.is_file()
        except OSError:
            return
        if is_there:
            self._add(agent, kind, path.name, path, place, "", "used", _READ_ANYWAY, {})

    def _say(
        self,
        agent: str,
        kind: Kind,
        name: str,
        path: Path,
        place: Literal["user", "folder"],
        why: str,
    ) -> None:
        self._add(agent, kind, one_line(name)[:80], path, place, "", "unusable", why, {})

    def _add(
        self,
        agent: str,
        kind: Kind,
        name: str,
        path: Path,
        place: Literal["user", "folder"],
        about: str,
        state: State,
        why: str,
        content: Mapping[str, Any],
    ) -> None:
        self.found.append(FoundSetting(agent, kind, name, path, place, about, state, why, content))

    # -- files -------------------------------------------------------------------------------------------

    def _bytes(self, path: Path) -> bytes | None:
        try:
            # The user's dotfiles are often links; those of a folder are not followed.
            return read_regular(path, _MOST_BYTES, links=not path.is_relative_to(self._work))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            reason = reason_of(error, named_in_text=path)
            self.remarks.append(f"{one_line(short(path))} cannot be read: {reason}.")
            return None

    def _text(self, path: Path) -> str | None:
        data = self._bytes(path)
        if data is None:
            return None
        return clean_source(data[:_MOST_TEXT].decode("utf-8-sig", "replace"))

    def _object(self, path: Path) -> Json:
        data = self._bytes(path)
        if not data or not data.strip():
            return {}
        try:
            found: object = lenient_json.parse(_without_comments(data))
        except ValueError:
            self.remarks.append(f"{one_line(short(path))} is not JSON.")
            return {}
        return lenient_json.mapping(found)

    def _toml(self, path: Path) -> Json:
        data = self._bytes(path)
        if not data:
            return {}
        try:
            return tomllib.loads(data.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            self.remarks.append(f"{one_line(short(path))} is not TOML.")
            return {}


def _parsed_toml(text: str) -> Json:
    """Return the tables of our own configuration; none if it cannot be read, which is said elsewhere."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}


def _without_comments(data: bytes) -> bytes:
    """Return JSON without lines that are comments: Gemini CLI takes those."""
    if b"//" not in data:
        return data
    lines = data.split(b"\n")
    return b"\n".join(line for line in lines if not line.lstrip().startswith(b"//"))


def visible_text(text: str) -> str:
    """Return a text for the look before it is taken: every character of it is visible."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _files_in(folder: Path) -> list[str]:
    """Return the names of the first files in a folder and those in it, in one line each."""
    found: list[str] = []
    for place, _, names in os.walk(folder):
        found += [one_line(os.path.relpath(os.path.join(place, name), folder)) for name in names]
        if len(found) > _MOST_NAMED:
            return [*found[:_MOST_NAMED], "…"]
    return sorted(found)


def _server_words(entry: Json) -> str:
    """Describe an MCP server without what may be secret: values of variables and headers, and what is in its address."""
    lines: list[str] = []
    command = entry.get("command")
    if isinstance(command, str):
        args = [one for one in lenient_json.listing(entry.get("args")) if isinstance(one, str)]
        lines.append(f"command: {visible(one_line(' '.join([command, *_safe(args)])))}")
    url = entry.get("url")
    if isinstance(url, str):
        lines.append(f"address: {visible(one_line(_safe_url(url)))}")
    for key, what in (("env", "variables"), ("headers", "headers")):
        names = [one_line(name)[:60] for name in lenient_json.mapping(entry.get(key))]
        if names:
            lines.append(f"{what}: {', '.join(names)}; their values are not shown")
    rest = sorted(set(entry) - {"command", "args", "url", "env", "headers", "type"})
    if rest:
        lines.append(f"imported without changes: {', '.join(one_line(name)[:40] for name in rest)}")
    return "\n".join(lines)


def _safe(args: list[str]) -> list[str]:
    """Return arguments without values that may be secret."""
    from kimi_tui.tools.credentials import find_keys, redact_keys

    shown: list[str] = []
    hides = False
    for one in args:
        is_secret = re.search(r"(?i)(key|token|secret|password|auth|bearer)", one) is not None
        if hides and not one.startswith("-"):
            shown.append(_HIDDEN)
        elif is_secret and "=" in one:
            shown.append(f"{one.partition('=')[0]}={_HIDDEN}")
        else:
            shown.append(_safe_url(redact_keys(one, find_keys(one))))
        hides = is_secret and one.startswith("-") and "=" not in one
    return shown


def _safe_url(url: str) -> str:
    """Return an address without user, password and the values of its query."""
    try:
        parts = urlsplit(url)
        if not parts.scheme or not parts.netloc:
            return url
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return _HIDDEN
    query = "&".join(f"{one.partition('=')[0]}={_HIDDEN}" for one in parts.query.split("&") if one)
    return urlunsplit((parts.scheme, host, parts.path, query, ""))


def _of_codex(entry: object) -> Json:
    """Return an MCP server of Codex in the form of `mcp.json`."""
    given = lenient_json.mapping(entry)
    made = {
        key: given[key]
        for key in ("command", "args", "env", "cwd", "url", "enabled")
        if key in given
    }
    names = {
        "bearer_token_env_var": "bearerTokenEnvVar",
        "http_headers": "headers",
        "enabled_tools": "enabledTools",
        "disabled_tools": "disabledTools",
    }
    made |= {ours: given[theirs] for theirs, ours in names.items() if given.get(theirs)}
    for theirs, ours in (
        ("startup_timeout_sec", "startupTimeoutMs"),
        ("tool_timeout_sec", "toolTimeoutMs"),
    ):
        if isinstance(given.get(theirs), int | float):
            made[ours] = int(min(max(given[theirs], 0), 86_400) * 1_000)
    passed = [one for one in lenient_json.listing(given.get("env_vars")) if isinstance(one, str)]
    if passed:
        made["env"] = {
            **{one: f"${{{one}}}" for one in passed},
            **lenient_json.mapping(made.get("env")),
        }
    return made


def _of_gemini(entry: object) -> Json:
    """Return an MCP server of Gemini CLI in the form of `mcp.json`."""
    given = lenient_json.mapping(entry)
    made = {key: given[key] for key in ("command", "args", "env", "cwd", "headers") if key in given}
    if isinstance(given.get("httpUrl"), str):
        made |= {"type": "http", "url": given["httpUrl"]}
    elif isinstance(given.get("url"), str):
        made |= {"type": str(given.get("type") or "sse"), "url": given["url"]}
    if isinstance(given.get("timeout"), int | float):
        made["toolTimeoutMs"] = given["timeout"]
    names = {"includeTools": "enabledTools", "excludeTools": "disabledTools"}
    return made | {ours: given[theirs] for theirs, ours in names.items() if given.get(theirs)}


def _in_seconds(groups: Json) -> Json:
    """Return the hooks of a file with their time limits, which are in milliseconds there, in seconds."""
    made: Json = {}
    for event, listed in groups.items():
        for group in map(lenient_json.mapping, lenient_json.listing(listed)):
            hooks = [lenient_json.mapping(one) for one in lenient_json.listing(group.get("hooks"))]
            for hook in hooks:
                limit = hook.get("timeout")
                if isinstance(limit, int | float) and not isinstance(limit, bool):
                    hook["timeout"] = limit / 1_000
            made.setdefault(event, []).append({**group, "hooks": hooks})
    return made


def _translated_matcher(matcher: str) -> str:
    """Return a matcher with our names of tools, if it is a list of names; an expression stays as it is."""
    if not re.fullmatch(r"[\w|, -]*", matcher, re.ASCII):
        return matcher
    return re.sub(r"\w+", lambda found: our_name(found[0]), matcher)


def _with_our_tools(text: str) -> str:
    """Return the text of an agent with our names in the list of its tools, which is in the front matter, on one line or several."""
    lines = text.split("\n")
    end = next((n for n, line in enumerate(lines) if n and line.rstrip() == "---"), 0)
    is_list = False
    for n, line in enumerate(lines[:end]):
        key, colon, words = line.partition(":")
        if colon and not line.startswith((" ", "-")):
            is_list = key.strip() in ("tools", "allowedTools", "disallowedTools")
            kept = f"{key}:"
        else:
            kept, words = "", line
        if is_list:
            lines[n] = kept + re.sub(r"\w+", lambda found: our_name(found[0]), words)
    return "\n".join(lines)


def _rule_of(rule: str) -> tuple[str, str]:
    """Return our rule for a permission of Claude Code or Gemini CLI, and why there is none."""
    found = _ALLOWED.fullmatch(rule.strip())
    if found is None:
        return "", "its format is not known"
    tool, what = found[1], (found[2] or "").strip()
    if our_name(tool) == "Shell":
        command = " ".join(_PREFIX.sub("", what).split())
        if not command or not re.fullmatch(r"[\w./ :=@+-]+", command, re.ASCII):
            why = "it contains special characters such as *, which kimi-tui's permissions do not support"
            return "", why if command else "it would allow every command"
        if because := never_because(command.split()[0]):
            return "", because
        return command, ""
    if our_name(tool) == "FetchURL" and (host := _HOST.fullmatch(what)):
        return f"host:{host[1].lower()}", ""
    if tool.startswith("mcp__"):
        return "", "kimi-tui asks you to allow a tool of an MCP server when the agent first uses it"
    return "", "kimi-tui has no permission of this kind"


def settings_of(agent: str, settings: list[FoundSetting]) -> Iterator[FoundSetting]:
    """Yield the settings of an agent, by kind and name."""
    order = {kind: number for number, kind in enumerate(KINDS)}
    found = [one for one in settings if one.agent == agent]
    yield from sorted(found, key=lambda one: (order[one.kind], one.name))
