"""Where a path that a model wrote really leads: links resolved, inside or outside the work folder.

Only looks; opening is `files.py`, asking is `permission.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kimi_tui.tools.problem import ToolProblem

_REFUSED = ("proc", "sys", "dev")
_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder by its real path. `linked` is true where links led there; nothing needs to exist."""

    asked: str
    real: Path
    root: Path
    inside: bool
    linked: bool
    home: str = ""

    @property
    def shown(self) -> str:
        """The real path as people write it: from the work folder, or whole with `~`."""
        if self.inside:
            return self.real.relative_to(self.root).as_posix()
        return with_tilde(self.real, self.home)


def with_tilde(path: Path, home: str) -> str:
    """The path with `~` for the home folder."""
    if home and path.is_relative_to(home):
        return "/".join(("~", *path.relative_to(home).parts))
    return str(path)


def locate(path: str, work_dir: Path, environ: Mapping[str, str]) -> Place:
    """Find out where `path` leads. Touches the disk, so it belongs in a thread.

    Args:
        path: as the model wrote it: from the work folder, absolute, or with `~/`.
        work_dir: the session's folder.
        environ: for `HOME`.

    Raises:
        ToolProblem: the path cannot be one, or it leads to devices or the kernel's own files.
    """
    _check(path)
    home = environ.get("HOME", "")
    written = path
    if home and (path == "~" or path.startswith("~/")):
        written = home + path[1:]
    root = Path(os.path.realpath(work_dir))
    lexical = os.path.normpath(work_dir / written)
    real = Path(os.path.realpath(work_dir / written))
    for candidate in (Path(lexical), real):
        if len(candidate.parts) > 1 and candidate.parts[1] in _REFUSED:
            raise ToolProblem(
                f"{path} leads to /{candidate.parts[1]}: devices and kernel files cannot be read or written.",
                brief="not a file",
            )
    if _within(Path(lexical), work_dir):
        lexical = os.path.normpath(root / Path(lexical).relative_to(work_dir))
    inside = _within(real, root)
    if not inside and (ancestor := _same_folder(real, root)) is not None:
        # Another spelling of the work folder, as a file system that ignores case allows.
        real = root / real.relative_to(ancestor)
        inside = True
    return Place(path, real, root, inside, lexical != str(real), home)


def _check(path: str) -> None:
    if not path.strip():
        raise ToolProblem("The path is empty.", brief="no path")
    if "\0" in path or any("\ud800" <= char <= "\udfff" for char in path):
        raise ToolProblem("The path has characters that no file name can have.", brief="bad path")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ToolProblem(f"The path is longer than {_LONGEST_PATH} bytes.", brief="bad path")


def _within(path: Path, folder: Path) -> bool:
    return path.parts[: len(folder.parts)] == folder.parts


def _same_folder(path: Path, root: Path) -> Path | None:
    """The parent of `path` that is the very folder `root` under another spelling."""
    try:
        wanted = root.stat()
    except OSError:
        return None
    for folder in (path, *path.parents):
        if len(folder.parts) < len(root.parts):
            return None
        if len(folder.parts) > len(root.parts):
            continue
        try:
            found = folder.stat()
        except OSError:
            return None
        same = (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)
        return folder if same and _casefolded(folder) == _casefolded(root) else None
    return None


def _casefolded(path: Path) -> tuple[str, ...]:
    return tuple(folded(part) for part in path.parts)


def folded(name: str) -> str:
    """A name as file systems that ignore case and composition compare it."""
    from unicodedata import normalize

    return normalize("NFC", name).casefold()
