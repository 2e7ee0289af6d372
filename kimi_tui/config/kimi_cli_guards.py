"""Names the parts of kimi-cli's configuration that this program does not run: hooks, MCP servers and services.

A hook may be a guard (one of `PreToolUse` can refuse a command). A user who relies on it must be told at each start that it
guards nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from kimi_tui.app_paths import kimi_cli_config_file, kimi_cli_share_dir, short
from kimi_tui.filesystem import read_regular

_MAX_BYTES = 4 << 20
_MOST_EVENTS = 4
_LONGEST_EVENT = 30


def not_run_notice(config_file: Path) -> str:
    """Return one notice about everything that is not run; empty if there is nothing. It reads files.

    Args:
        config_file: this program's own configuration, which may have come from kimi-cli.
    """
    places: dict[str, list[str]] = {}
    for path in dict.fromkeys((config_file, kimi_cli_config_file())):
        if parts := [*_in_config(path)]:
            # This program's own file may be a copy of the other one.
            places.setdefault(_listed(parts), []).append(short(path))
    servers = kimi_cli_share_dir() / "mcp.json"
    if words := _in_servers(servers):
        places[words] = [short(servers)]
    if not places:
        return ""
    named = "; ".join(f"{words} in {_listed(paths)}" for words, paths in places.items())
    return f"kimi-tui does not run {named}. A hook that protects something in kimi-cli does not protect it in kimi-tui."


def _in_config(path: Path) -> Iterator[str]:
    try:
        text = read_regular(path, _MAX_BYTES, links=True).decode()
        import tomllib

        table: Mapping[str, Any] = tomllib.loads(text)
    except (OSError, ValueError, RecursionError):
        # The reader of the configuration says what is wrong with the file.
        return
    if hooks := table.get("hooks"):
        yield _hooks(hooks)
    for name in ("mcp", "services"):
        if table.get(name):
            yield f"[{name}]"


def _hooks(hooks: object) -> str:
    entries = cast("list[object]", hooks) if isinstance(hooks, list) else [hooks]
    events = dict.fromkeys(
        event[:_LONGEST_EVENT]
        for entry in entries
        if isinstance(entry, dict)
        and isinstance(event := cast("dict[str, object]", entry).get("event"), str)
    )
    more = "" if len(events) <= _MOST_EVENTS else ", …"
    named = f" ({', '.join([*events][:_MOST_EVENTS])}{more})" if events else ""
    return f"{len(entries)} {'hook' if len(entries) == 1 else 'hooks'}{named}"


def _in_servers(path: Path) -> str:
    try:
        data = read_regular(path, _MAX_BYTES, links=True)
    except FileNotFoundError:
        return ""
    except OSError:
        return "the MCP servers"
    try:
        import json

        servers: object = json.loads(data).get("mcpServers")
    except (ValueError, RecursionError, AttributeError):
        return "the MCP servers"
    n_servers = len(cast("dict[str, object]", servers)) if isinstance(servers, dict) else 0
    if not n_servers:
        return ""
    return f"{n_servers} MCP {'server' if n_servers == 1 else 'servers'}"


def _listed(parts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
