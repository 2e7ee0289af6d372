"""Makes things other than readable files under the name of a file."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from kimi_tui.session import jsonl

KINDS = ("fifo", "socket", "folder", "zero", "dangling", "hole", "nuls")
HOLE_BYTES = 10 << 30


def put(path: Path, kind: str) -> None:
    """Replace a file, which need not exist, by a thing of this kind."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "socket":
            # The socket is bound by a short name: its address has room for about a hundred bytes.
            held = os.open(path.parent, os.O_RDONLY)
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(f"/proc/self/fd/{held}/{path.name}")
            os.close(held)
        case "folder":
            path.mkdir()
        case "zero":
            path.symlink_to("/dev/zero")
        case "dangling":
            path.symlink_to("nowhere")
        case "hole":
            with path.open("wb") as file:
                file.truncate(HOLE_BYTES)
        case _:
            path.write_bytes(bytes(1 << 20))


def short_lines(patch: pytest.MonkeyPatch) -> None:
    """Let the reader of lines stop sooner: it reads a hole until then, which takes a good part of a second."""
    patch.setattr(jsonl, "MAX_LINE_BYTES", 8 << 20)
