"""What an agent wraps around a command that it has run here."""

from __future__ import annotations

import pytest

pytest.importorskip("acp", reason="the package agent-client-protocol is not installed")

from kimi_tui.external.commands import bare_command, shell_line

QUIET = [("NO_COLOR", "1"), ("TERM", "dumb"), ("SHELL", "/bin/bash"), ("PAGER", "cat")]


@pytest.mark.parametrize(
    ("command", "args", "env", "bare"),
    [
        ("make test", [], [], "make test"),
        ("make", ["test", "a b"], [], "make test 'a b'"),
        ("/bin/bash", ["-c", "cd '/home/me/it' && make; ls"], QUIET, "make; ls"),
        ("sh", ["-lc", "cd /home/me/it && make"], [], "make"),
        ("cd /home/me/it && make", [], [], "make"),
        # Another folder, a shell that is not the system's, and variables that change what runs are a part of the command.
        ("bash", ["-c", "cd /home/me && make"], [], "cd /home/me && make"),
        ("bash", ["-c", "cd /home/me/it; make"], [], "cd /home/me/it; make"),
        ("/home/me/it/bash", ["-c", "make"], [], "/home/me/it/bash -c make"),
        ("bash", ["-c", "make", "x"], [], "bash -c make x"),
        ("make", [], [("PATH", "/tmp")], ""),
        ("make", [], [("PAGER", "sh")], ""),
        ("make", [], [("SHELL", "/tmp/sh")], ""),
        ("make", [], [("TERM", "$(x)")], ""),
        ("make", [], [*QUIET, ("LD_PRELOAD", "x.so")], ""),
    ],
)
def test_the_command_without_its_wrapping(
    command: str, args: list[str], env: list[tuple[str, str]], bare: str
) -> None:
    assert bare_command(command, args, env, "/home/me/it") == bare


def test_the_line_sets_its_variables_first() -> None:
    assert (
        shell_line("a", ["b c"], [("X", "1 2"), ("Y", "3")])
        == "export X='1 2'; export Y=3; a 'b c'"
    )
