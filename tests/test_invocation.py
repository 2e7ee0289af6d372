"""The command that a hint names is one that works where the program was started."""

from __future__ import annotations

import sys
from pathlib import Path

from kimi_tui.invocation import command_words


def installed(folder: Path) -> Path:
    """Return a program of this name in a folder."""
    folder.mkdir(parents=True)
    program = folder / "kimi-tui"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_a_hint_names_the_program_as_it_was_started(tmp_path: Path) -> None:
    made = installed(tmp_path / "a checkout" / ".venv" / "bin")
    linked = tmp_path / "bin" / "kimi-tui"
    linked.parent.mkdir()
    linked.symlink_to(made)
    other = installed(tmp_path / "other")

    def words(started: object, path: Path, **environ: str) -> str:
        return command_words(
            "--session", "3f", started=str(started), environ={"PATH": str(path), **environ}
        )

    assert words(made, made.parent) == "kimi-tui --session 3f"
    assert words(made, linked.parent) == "kimi-tui --session 3f"
    # Another installation is on PATH, or none.
    for path in (other.parent, tmp_path):
        assert words(made, path) == f"'{made}' --session 3f"
    assert words(".venv/bin/kimi-tui", tmp_path) == ".venv/bin/kimi-tui --session 3f"
    assert words("/kimi-tui", tmp_path, MAKELEVEL="1") == "/kimi-tui --session 3f"
    module = words("/lib/kimi_tui/__main__.py", tmp_path)
    assert module == f"{sys.executable} -m kimi_tui --session 3f"
    # `make run`
    assert words(made, tmp_path, MAKELEVEL="1") == f"'{made}' --session 3f"
    (tmp_path / "a checkout" / "Makefile").touch()
    assert words(made, tmp_path, MAKELEVEL="1") == 'make run ARGS="--session 3f"'
    assert words(made, tmp_path, MAKELEVEL="0") == f"'{made}' --session 3f"
    assert command_words(started=str(made), environ={"MAKELEVEL": "1"}) == "make run"
    # Not started by a script of ours, as a library.
    assert words("-c", tmp_path) == "kimi-tui --session 3f"
