"""Where our files live: one folder for the configuration, one for sessions and logs.

`KIMI_TUI_HOME` moves all of them under one folder. Nothing in the work folder has a say in this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

APP = "kimi-tui"


def config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Our `config.toml`, whether it exists or not."""
    return config_dir(environ) / "config.toml"


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the configuration."""
    if home := environ.get("KIMI_TUI_HOME"):
        return Path(home).expanduser().absolute()
    if sys.platform == "linux":
        return _xdg(environ, "XDG_CONFIG_HOME", ".config")
    import platformdirs

    return platformdirs.user_config_path(APP, appauthor=False)


def data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of sessions and logs."""
    if home := environ.get("KIMI_TUI_HOME"):
        return Path(home).expanduser().absolute()
    if sys.platform == "linux":
        return _xdg(environ, "XDG_DATA_HOME", ".local/share")
    import platformdirs

    return platformdirs.user_data_path(APP, appauthor=False)


def log_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where what went wrong is written down."""
    return data_dir(environ) / "logs" / "kimi-tui.log"


def kimi_cli_config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """kimi-cli's own configuration, read where ours is absent."""
    return kimi_cli_share_dir(environ) / "config.toml"


def kimi_cli_share_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where kimi-cli keeps its files."""
    share = environ.get("KIMI_SHARE_DIR")
    return Path(share).expanduser() if share else Path.home() / ".kimi"


def short(path: Path) -> str:
    """The path as people write it, with `~` for their home folder."""
    home = Path.home()
    if path == home:
        return "~"
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _xdg(environ: Mapping[str, str], variable: str, default: str) -> Path:
    # platformdirs says the same, but importing it costs 18 ms before the first paint.
    base = environ.get(variable, "").strip()
    return (Path(base) if base else Path.home() / default) / APP
