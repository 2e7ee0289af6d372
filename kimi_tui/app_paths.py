"""The files of the app: one folder for the configuration, one for sessions and logs.

`KIMI_TUI_HOME` moves all of them below one folder. Files in the work folder have no influence on this.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

APP = "kimi-tui"
XDG_FOLDERS = {
    ".config": "XDG_CONFIG_HOME",
    ".cache": "XDG_CACHE_HOME",
    ".local/share": "XDG_DATA_HOME",
    ".local/state": "XDG_STATE_HOME",
}
"""Folders in the home folder, each with the variable that names another folder instead (XDG Base Directory)."""


def config_file() -> Path:
    """Return the path of `config.toml`, which need not exist."""
    return config_dir() / "config.toml"


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the configuration."""
    if home := environ.get("KIMI_TUI_HOME"):
        return expanded(home).absolute()
    if sys.platform == "linux":
        return _linux_dir(environ.get("XDG_CONFIG_HOME", ""), ".config")
    if home_dir() is None:
        return _makeshift()
    import platformdirs

    return platformdirs.user_config_path(APP, appauthor=False)


def data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of sessions and logs."""
    if home := environ.get("KIMI_TUI_HOME"):
        return expanded(home).absolute()
    if sys.platform == "linux":
        return _linux_dir(environ.get("XDG_DATA_HOME", ""), ".local/share")
    if home_dir() is None and not environ.get("XDG_DATA_HOME", "").strip():
        return _makeshift()
    import platformdirs

    return platformdirs.user_data_path(APP, appauthor=False)


def _linux_dir(base: str, usual: str) -> Path:
    """Return the same folder as platformdirs, whose import would take 18 ms before the first paint."""
    if base.strip():
        return Path(base.strip()) / APP
    own = home_dir()
    return own / usual / APP if own is not None else _makeshift()


def home_dir() -> Path | None:
    """Return the user's home folder; None if there is none, as for a user without an entry in a container.

    A home folder that neither exists nor can be created counts as missing, and so does a read-only root folder.
    """
    home = _home()
    if home is None:
        return None
    if home == Path(home.anchor):
        return home if os.access(home, os.W_OK) else None
    if home.exists():
        return home
    there = next(folder for folder in home.parents if folder.exists())
    return home if os.access(there, os.W_OK) else None


def home_of(environ: Mapping[str, str]) -> str:
    """Return the home folder of these variables, else that of the account; empty if neither is known.

    If it were missing, places of secrets below it would not be recognised.
    """
    if home := environ.get("HOME"):
        return home
    try:
        # The module does not exist on native Windows, where the program only says that it does not run there.
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ""


def home_places(environ: Mapping[str, str], *names: str) -> list[str]:
    """Return the places of files and folders of the home folder: each below the home folder, then where a variable of
    `XDG_FOLDERS` moves it.

    Programs that know the variables use the second place, others the first. Relative values are ignored, as the specification
    requires.

    Args:
        environ: the environment.
        names: paths relative to the home folder, such as `.config/git/config`; an empty one means the home folder itself.
    """
    home = os.path.realpath(home_of(environ) or "/")
    moved = tuple(environ.get(variable, "") for variable in XDG_FOLDERS.values())
    return list(_home_places(home, moved, names))


@lru_cache(maxsize=256)
def _home_places(home: str, moved: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    places: dict[str, None] = {}
    for name in names:
        places[os.path.normpath(os.path.join(home, name))] = None
        for usual, path in zip(XDG_FOLDERS, moved, strict=True):
            if os.path.isabs(path) and f"{name}/".startswith(f"{usual}/"):
                places[os.path.normpath(os.path.join(path, name[len(usual) + 1 :]))] = None
    return tuple(places)


def no_home_notice() -> str:
    """Return a sentence about the place of this program's files if there is no home folder; empty if they are in their usual place."""
    if os.environ.get("KIMI_TUI_HOME") or data_dir() != _makeshift():
        return ""
    return (
        f"There is no home folder, so sessions are kept in {_makeshift()}, which the system may clear. "
        "Set HOME or KIMI_TUI_HOME to keep them."
    )


def make_private(folder: Path) -> None:
    """Create a folder with its parents, all of them for their owner only.

    Raises:
        OSError: The folder cannot be created, or belongs to somebody else in a place that all users can write to.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(one, 0o700)
    makeshift = _makeshift_name()
    if makeshift in (folder, *folder.parents) and not _is_ours(makeshift):
        raise PermissionError(
            errno.EPERM, "it is not a folder that belongs to this user alone", str(makeshift)
        )


def log_file() -> Path:
    """Return the path of the log file."""
    return data_dir() / "logs" / "kimi-tui.log"


def log_words() -> str:
    """Return where a person finds the details of an error: `Details: ~/.local/share/kimi-tui/logs/kimi-tui.log`."""
    return f"Details: {short(log_file())}"


def hints_file(data_dir: Path) -> Path:
    """Return the path of the file that lists the hints that were shown."""
    return data_dir / "hints.json"


def kimi_cli_config_file() -> Path:
    """Return the path of kimi-cli's own configuration, which is read if ours is missing."""
    return kimi_cli_share_dir() / "config.toml"


def mcp_files(work_dir: Path) -> tuple[Path, Path, Path]:
    """Return the files in which MCP servers may be configured: the user's own, that of a project, and kimi-cli's."""
    return (config_dir() / "mcp.json", work_dir / ".mcp.json", kimi_cli_share_dir() / "mcp.json")


def own_places(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the folders of settings and sessions, kimi-cli's included, and the paths in them that may be links into a folder
    of dotfiles.
    """
    ours, theirs = config_dir(environ), kimi_cli_share_dir(environ)
    files = [folder / name for folder in (ours, theirs) for name in ("config.toml", "AGENTS.md")]
    return (ours, data_dir(environ), theirs, *files)


def kimi_cli_share_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which kimi-cli keeps its files."""
    share = environ.get("KIMI_SHARE_DIR")
    return expanded(share) if share else (home_dir() or _makeshift()) / ".kimi"


def short(path: Path) -> str:
    """Return the path as users write it, with `~` for their home folder."""
    home = _home()
    if home is None:
        return str(path)
    if path == home:
        return "~"
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def bare_reason(error: OSError) -> str:
    """Return the system's reason for an error without its number and without a file: `Permission denied`."""
    from kimi_tui.foreign_text import one_line

    return one_line(error.strerror or str(error)) or type(error).__name__


def reason_of(
    error: Exception, path: Path | None = None, *, named_in_text: str | Path | None = None
) -> str:
    """Return why something failed, for the user, without a full stop: the system's reason without its number, and the file or folder
    if it is known: `Permission denied (~/notes.md)`. For an error that is not the system's, return its own words.

    Args:
        error: the error.
        path: the file or folder, for errors that do not name it; some know it only within a folder.
        named_in_text: the file or folder that the sentence names before the reason, which is not named again.
    """
    if not isinstance(error, OSError):
        return str(error)
    from kimi_tui.foreign_text import one_line

    reason = bare_reason(error)
    named: object = error.filename
    if isinstance(named, bytes):
        named = os.fsdecode(named)
    if path is not None and not (isinstance(named, str) and os.path.isabs(named)):
        named = str(path)
    if not isinstance(named, str | Path):
        return reason
    if named_in_text is not None and Path(named) in (
        Path(named_in_text),
        Path(named_in_text).expanduser(),
    ):
        return reason
    return f"{reason} ({one_line(short(Path(named)))})"


def expanded(text: str) -> Path:
    """Return the path that a user wrote, with `~` replaced by the home folder; unchanged if there is no such home folder."""
    return Path(os.path.expanduser(text))


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        # Neither HOME nor the list of users tells the home folder.
        return None


def _makeshift() -> Path:
    """Return the folder of this program's files without a home folder; a place that cannot be used if somebody else created it."""
    name = _makeshift_name()
    return name if _is_ours(name) else Path(os.devnull) / APP


def _is_ours(folder: Path) -> bool:
    """Return whether a folder in a place that all users can write to belongs to this user alone, or does not exist yet."""
    try:
        status = os.lstat(folder)
    except OSError:
        return True
    mode = status.st_mode
    return stat.S_ISDIR(mode) and status.st_uid == os.getuid() and not mode & 0o077


def _makeshift_name() -> Path:
    """Return the path of that folder: in the system's temporary folder, with the user's number in its name."""
    return Path(os.environ.get("TMPDIR") or "/tmp").absolute() / f"{APP}-{os.getuid()}"
