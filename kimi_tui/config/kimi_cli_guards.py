"""Names the parts of kimi-cli's configuration that this program does not use: services, and settings of MCP servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kimi_tui.app_paths import kimi_cli_config_file, short
from kimi_tui.filesystem import read_regular

_MAX_BYTES = 4 << 20


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
    if not places:
        return ""
    named = "; ".join(f"{words} in {_listed(paths)}" for words, paths in places.items())
    return f"kimi-tui ignores {named}: only kimi-cli uses such settings."


def _in_config(path: Path) -> Iterator[str]:
    try:
        text = read_regular(path, _MAX_BYTES, links=True).decode()
        import tomllib

        table: Mapping[str, Any] = tomllib.loads(text)
    except (OSError, ValueError, RecursionError):
        # The reader of the configuration says what is wrong with the file.
        return
    for name in ("mcp", "services"):
        if table.get(name):
            yield f"[{name}]"


def _listed(parts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
