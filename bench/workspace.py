"""How long the agent waits for a snapshot in a large tree: 50,000 files, 10 of them changed.

    python -m bench.workspace

Prints one row per case with milliseconds and the ratio to a bare walk that only asks for every file's status.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.scan import Scanner
from kimi_tui.workspace.store import BlobStore

N_FOLDERS = 1_000
N_FILES = 50
N_CHANGED = 10


def _grow(root: Path) -> None:
    for number in range(N_FOLDERS):
        folder = root / f"part{number // 50}" / f"folder{number}"
        folder.mkdir(parents=True)
        for file in range(N_FILES):
            (folder / f"file{file}.py").write_text(f"value = {number * N_FILES + file}\n")
    (root / ".gitignore").write_text("*.pyc\nbuild/\nnode_modules/\n/dist\n*.log\n")


def _settle(root: Path) -> None:
    # Files that were just written are not trusted and read again; users usually have older files.
    time.sleep(2.1)
    os.utime(root)
    time.sleep(2.1)


def _bare_walk(root: str) -> None:
    for folder, _, files in os.walk(root):
        for file in files:
            os.lstat(os.path.join(folder, file))


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1_000


def main() -> int:
    """Print the table."""
    with tempfile.TemporaryDirectory() as top:
        root = Path(top) / "work"
        _grow(root)
        _settle(root)
        scanner = Scanner(str(root), BlobStore(Path(top) / "store", 4 << 30), Limits())
        rows = [
            ("bare walk with lstat", min(_timed(lambda: _bare_walk(str(root))) for _ in range(3)))
        ]
        rows.append(("first scan, everything stored", _timed(scanner.scan)))
        rows.append(("scan again, nothing changed", min(_timed(scanner.scan) for _ in range(3))))
        for number in range(N_CHANGED):
            path = root / f"part{number}" / f"folder{number * 50}" / "file1.py"
            path.write_text("x = 1\n" * 1_000 + str(number))
        rows.append((f"scan again, {N_CHANGED} files changed", _timed(scanner.scan)))
    bare = rows[0][1]
    print(f"{'50,000 files':34}{'ms':>8}{'x bare':>9}")
    for name, ms in rows:
        print(f"{name:34}{ms:8.0f}{ms / bare:9.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
