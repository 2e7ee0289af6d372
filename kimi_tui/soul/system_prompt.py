"""Fills in the system prompt at the start of a session; from then on it is the session's first record and never changes."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from kimi_tui.prompts.load import prompt

AGENTS_FILES = ("AGENTS.md", "agents.md")
MAX_AGENTS_BYTES = 32 * 1024
_MAX_ENTRIES = 80


def build_system_prompt(work_dir: Path, environ: Mapping[str, str], today: date) -> str:
    """The system prompt for a session in this folder. Reads a little of the disk: call it in a thread.

    Args:
        work_dir: where the agent works.
        environ: the environment of the program.
        today: the date to name.
    """
    return prompt(
        "system",
        WORK_DIR=str(work_dir),
        OS=_system_name(),
        SHELL=environ.get("SHELL", "/bin/sh"),
        DATE=today.isoformat(),
        LISTING=_listing(work_dir),
        AGENTS_MD=_agents_md(work_dir),
    )


def notes_in(system_prompt: str) -> str:
    """The name of the file whose notes for agents stand in a system prompt; empty where there are none."""
    for name in AGENTS_FILES:
        if prompt("agents_md", PATH=name, TEXT="") in system_prompt:
            return name
    return ""


def _system_name() -> str:
    name = {"Darwin": "macOS"}.get(platform.system(), platform.system())
    return f"{name} ({platform.release()}, {platform.machine()})"


def _listing(work_dir: Path) -> str:
    try:
        with os.scandir(work_dir) as entries:
            names = sorted(
                entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
                for entry in entries
            )
    except OSError as error:
        return f"(cannot be listed: {error.strerror or error})"
    # A name may hold line ends: one entry is one line here.
    shown = [name.encode("utf-8", "replace").decode().replace("\n", "?") for name in names]
    if len(shown) > _MAX_ENTRIES:
        left = len(shown) - _MAX_ENTRIES
        return "\n".join([*shown[:_MAX_ENTRIES], f"… and {left:,} more"])
    return "\n".join(shown) or "(empty)"


def _agents_md(work_dir: Path) -> str:
    for name in AGENTS_FILES:
        path = work_dir / name
        try:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                data = file.read(MAX_AGENTS_BYTES + 1)
        except OSError:
            continue
        text = data[:MAX_AGENTS_BYTES].decode("utf-8", "replace").strip()
        if len(data) > MAX_AGENTS_BYTES:
            text += "\n\n[cut here: the file is longer than 32 KiB; read the rest when you need it]"
        if text:
            return "\n" + prompt("agents_md", PATH=name, TEXT=text)
    return ""
