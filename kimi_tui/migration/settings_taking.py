"""Takes a setting of another agent over: writes it to where this program's own settings of the kind are.

Nothing that exists is replaced. Everything here writes files, so call it in a thread, and only after the user's yes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from kimi_tui.app_paths import config_dir, config_file, make_private, reason_of, short
from kimi_tui.config.file import add_hook, read_config, save_setting
from kimi_tui.config.permissions import FILE_NAME, ProjectPermissions
from kimi_tui.config.settings import ConfigError
from kimi_tui.filesystem import Storage, open_regular, read_regular
from kimi_tui.mcp.config import PROJECT_FILE, BadEntry, read_entries, write_entry
from kimi_tui.migration.settings import FoundSetting

_MOST_FILES = 200
_MOST_COPIED_BYTES = 16 << 20
_MOST_NOTES_BYTES = 32 << 10


class NotTaken(Exception):
    """A setting was not taken over; the text is a sentence for the user."""


def take(setting: FoundSetting, work_dir: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Write a setting; return a sentence on where it is.

    Raises:
        NotTaken: It cannot be written, or something is there already.
    """
    if setting.state != "new":
        raise NotTaken(f"{setting.name} was not imported: {setting.why}.")
    try:
        match setting.kind:
            case "MCP server":
                return _take_server(setting, work_dir, environ)
            case "hook":
                add_hook(config_file(), setting.content["entry"])
                return f"The hook was added to {short(config_file())}. /hooks lists it from the next session on."
            case "skill":
                return _take_skill(setting, environ)
            case "agent":
                path = config_dir(environ) / "agents" / f"{setting.content['name']}.md"
                _write_new(path, setting.content["text"])
                return f"The sub-agent type {setting.content['name']} was added ({short(path)}). The agent can use it in new sessions."
            case "command":
                path = config_dir(environ) / "commands" / f"{setting.content['name']}.md"
                _write_new(path, setting.content["text"])
                return f"The command /{setting.content['name']} was added ({short(path)}). You can use it in new sessions."
            case "note":
                return _take_note(setting, environ)
            case "status line":
                return _take_status_line(setting)
            case "permission":
                return _take_permission(setting, work_dir, environ)
    except (OSError, ValueError, BadEntry, ConfigError) as error:
        raise NotTaken(f"{setting.name} was not imported: {reason_of(error)}.") from error


def _take_server(setting: FoundSetting, work_dir: Path, environ: Mapping[str, str]) -> str:
    # A server that a folder brings stays one of the folder, whose program runs only after a yes.
    is_own = setting.place == "user"
    path = config_dir(environ) / "mcp.json" if is_own else work_dir / PROJECT_FILE
    name = setting.content["name"]
    try:
        if name in read_entries(path, "user" if is_own else "project"):
            raise NotTaken(f'{short(path)} already has an MCP server "{name}".')
    except FileNotFoundError:
        pass
    write_entry(path, name, setting.content["entry"])
    when = "starts with" if is_own else "asks to be allowed in"
    return f"The MCP server {name} was added to {short(path)}. It {when} the next session. To test it now, run kimi-tui mcp test {name}."


def _take_skill(setting: FoundSetting, environ: Mapping[str, str]) -> str:
    name = setting.content["name"]
    target = config_dir(environ) / "skills" / name
    if os.path.lexists(target):
        raise NotTaken(f"{short(target)} already exists.")
    make_private(target.parent)
    temporary = target.with_name(f".{name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        _copy(Path(setting.content["folder"]), temporary)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return f"The skill {name} was added ({short(target)}). The agent can use it in new sessions."


def _copy(source: Path, target: Path) -> None:
    """Copy a folder of regular files; links, and anything else, are left out.

    Raises:
        OSError, ValueError: It cannot be read, or is too large.
    """
    n_files = n_bytes = 0
    for folder, names, files in os.walk(source):
        names[:] = [name for name in names if not os.path.islink(os.path.join(folder, name))]
        inner = target / Path(folder).relative_to(source)
        inner.mkdir(parents=True, exist_ok=True)
        for name in files:
            path = Path(folder) / name
            if path.is_symlink() or not path.is_file():
                continue
            n_files += 1
            n_bytes += path.stat().st_size
            if n_files > _MOST_FILES or n_bytes > _MOST_COPIED_BYTES:
                raise ValueError("the skill has too many files")
            with open(open_regular(path), "rb") as read, open(inner / name, "xb") as write:
                shutil.copyfileobj(read, write)
            if os.access(path, os.X_OK):
                (inner / name).chmod(0o700)


def _write_new(path: Path, text: str) -> None:
    if os.path.lexists(path):
        raise NotTaken(f"{short(path)} already exists.")
    make_private(path.parent)
    Storage().replace_file(path, text.encode("utf-8", "replace"))


def _take_note(setting: FoundSetting, environ: Mapping[str, str]) -> str:
    path = config_dir(environ) / "AGENTS.md"
    real = path.resolve() if path.is_symlink() else path
    try:
        before = read_regular(real, 1 << 20).decode("utf-8", "replace")
    except FileNotFoundError:
        before = ""
    text = setting.content["text"]
    if text in before:
        raise NotTaken(f"{short(path)} already has this text.")
    after = f"{before.rstrip()}\n\n{text}\n".lstrip("\n")
    if len(after.encode()) > _MOST_NOTES_BYTES:
        raise NotTaken(
            f"With this text, {short(path)} would be longer than 32 kB, and a session reads at most 32 kB of it."
        )
    make_private(real.parent)
    Storage().replace_file(real, after.encode("utf-8", "replace"))
    return (
        f"The imported instructions were added to the end of {short(path)}. New sessions read them."
    )


def _take_status_line(setting: FoundSetting) -> str:
    path = config_file()
    if path.exists() and read_config(path).statusline.command:
        raise NotTaken(f"{short(path)} already has a status line command.")
    save_setting(path, "statusline.command", setting.content["command"])
    if seconds := setting.content["interval"]:
        save_setting(path, "statusline.refresh_interval", seconds)
    return f"The status line command was added to {short(path)}. /statusline changes it; the next session shows it."


def _take_permission(setting: FoundSetting, work_dir: Path, environ: Mapping[str, str]) -> str:
    from kimi_tui.tools.command_groups import judge

    rule = setting.content["rule"]
    if not rule.startswith("host:"):
        verdict = judge(rule, work_dir, environ)
        if not verdict.rule:
            raise NotTaken(f"A permission cannot cover {rule}: {verdict.reason}.")
        rule = verdict.rule
    permissions = ProjectPermissions(config_dir(environ) / FILE_NAME, work_dir)
    if rule in permissions.rules:
        raise NotTaken("This folder already has this permission.")
    permissions.add(rule)
    return f"{rule.removeprefix('host:')} is allowed in this folder. /permissions revokes it."
