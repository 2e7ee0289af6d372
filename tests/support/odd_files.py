"""What may stand under a file's name that is no readable file."""

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
    """Put something odd in the place of a file, which need not be there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "socket":
            # Bound by a short name: the address of a socket has room for about a hundred bytes.
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
    """Let the reader of lines give up sooner: a hole is read until then, which takes a good part of a second."""
    patch.setattr(jsonl, "MAX_LINE_BYTES", 8 << 20)
