"""The user's first steps: the command line, the first-run screen and the demo."""

from __future__ import annotations

import re
import subprocess

import pytest
from support.cases import first_only
from support.chat_server import ChatServerThread, say
from support.program import PROGRAM, Program
from support.terminal import Terminal

from kimi_tui.tui.keyboard import QUIET_S


def _run(program: Program, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments],
        env={
            "KIMI_TUI_HOME": str(program.home),
            "PATH": "/usr/bin:/bin",
            "HOME": str(program.home),
        },
        cwd=program.work,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.sample
@pytest.mark.parametrize("arguments", [["--no-such-thing"], ["--work-dir", "/no/such/folder"]])
def test_a_bad_argument_is_one_line_and_exit_2(program: Program, arguments: list[str]) -> None:
    ended = _run(program, *arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.strip().split("\n")
    assert arguments[-1] in line


@pytest.mark.exhaustive
def test_a_config_that_is_not_toml_is_one_line_and_exit_2(program: Program) -> None:
    (program.home / "config.toml").write_text('theme = "dark"\nmodels = [unclosed\n')
    ended = _run(program)
    assert ended.returncode == 2
    (line,) = ended.stderr.strip().split("\n")
    assert "config.toml" in line
    assert "line" in line


def test_version_and_help(program: Program) -> None:
    assert _run(program, "--version").stdout.startswith("kimi-tui ")
    shown = _run(program, "--help").stdout
    for option in ("--demo", "--speed", "--continue", "--session", "--work-dir", "--yolo"):
        assert option in shown


@pytest.mark.exhaustive
def test_first_run_leads_to_the_demo(program: Program) -> None:
    terminal = program.start(fresh=True)
    terminal.wait_for("Which model should the agent use?")
    terminal.key("3")
    terminal.wait_for(re.compile(r" ask$", re.MULTILINE))
    # The demo's first message stands in the prompt; Enter is all it takes.
    terminal.wait_for("› Rows with")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert list(program.work.iterdir()) == []


def at_base_url(program: Program) -> Terminal:
    """Return the first run, where the address of another server is asked for."""
    terminal = program.start()
    terminal.wait_for("Which model should the agent use?")
    terminal.key("1")
    terminal.wait_for("Another server")
    terminal.key("down", "down", "down", "down")
    terminal.wait_for("Base URL")
    terminal.wait_quiet(0.3)  # it can be seen
    terminal.key("enter")
    terminal.wait_quiet(0.3)  # the focus has moved on
    return terminal


@pytest.mark.exhaustive
def test_first_run_with_a_server_of_ones_own(program: Program, server: ChatServerThread) -> None:
    server.script(say("Hello from the server."))
    terminal = at_base_url(program)
    terminal.type(server.base_url)
    terminal.wait_for(server.base_url)
    terminal.key("enter")
    terminal.wait_quiet(0.3)
    terminal.type("sk-secret-key")
    terminal.wait_for("•" * 13)
    terminal.key("enter")
    terminal.wait_for("stand-in")
    assert "/v1/models" in [request.path for request in server.other_requests]
    terminal.wait_quiet(2 * QUIET_S)  # the models came by themselves
    terminal.key("enter")
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("Hello")
    terminal.key("enter")
    terminal.wait_for("Hello from the server.")
    assert server.requests[0].headers["authorization"] == "Bearer sk-secret-key"
    assert b"sk-secret-key" not in terminal.raw
    config = program.home / "config.toml"
    assert "sk-secret-key" in config.read_text()
    assert config.stat().st_mode & 0o777 == 0o600
    files = (path for path in program.session_dir().rglob("*") if path.is_file())
    stored = b"".join(path.read_bytes() for path in files)
    assert b"sk-secret-key" not in stored
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    # The choice is made: no first-run screen any more.
    program.start().wait_for("What shall we work on?")


@pytest.mark.sample
@pytest.mark.parametrize("leaves", ["\t", "\r"])
def test_a_key_typed_in_one_go_with_the_address_is_not_shown(
    program: Program, server: ChatServerThread, leaves: str
) -> None:
    terminal = at_base_url(program)
    terminal.type(f"{server.base_url}{leaves}sk-secret-key")
    terminal.wait_for("•" * 13)
    assert b"secret" not in terminal.raw


@pytest.mark.sample
@pytest.mark.parametrize(
    ("key", "pasted"), [("sk-aB3dE5fG7hK9mN1p", True), ("9f8e7d6c5b4a39281706f5e4d3c2b1a0", False)]
)
def test_a_key_in_the_place_of_the_address_is_never_drawn(
    program: Program, *, key: str, pasted: bool
) -> None:
    terminal = at_base_url(program)
    put = terminal.paste if pasted else terminal.type
    put(key)
    terminal.wait_for("it was moved to the field")
    terminal.wait_for("•" * len(key))
    drawn = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", terminal.raw)
    pieces = [key[at : at + 6].encode() for at in range(len(key) - 5)]
    assert [piece for piece in pieces if piece in drawn] == []


@pytest.mark.exhaustive
def test_a_key_typed_behind_an_address_that_is_none_goes_nowhere(program: Program) -> None:
    terminal = at_base_url(program)
    terminal.type("no address\rsk-secret-key\tsk-secret-key")
    terminal.wait_for("must begin with")
    terminal.wait_quiet(0.4)
    terminal.type("!")
    terminal.wait_for("no address!")
    assert b"secret" not in terminal.raw
    terminal.key("tab")
    terminal.paste("sk-secret-key")
    terminal.wait_for("•" * 13)
    assert b"secret" not in terminal.raw


@pytest.mark.sample
@pytest.mark.parametrize("rows", ["x", *first_only(["9" * 5000, "99999999"])])
def test_an_odd_size_in_the_environment_is_not_believed(configured: Program, rows: str) -> None:
    terminal = configured.start(env={"COLUMNS": "-5", "LINES": rows})
    terminal.wait_for("Ctrl+T timeline")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", first_only(["2>&-", "2>errors"]))
def test_it_is_drawn_also_where_errors_go_elsewhere(program: Program, where: str) -> None:
    with Terminal(
        ["/bin/sh", "-c", f"{PROGRAM} --demo {where}"],
        cwd=program.work,
        env={"KIMI_TUI_HOME": str(program.home), "HOME": str(program.home)},
    ) as terminal:
        terminal.wait_for("› Rows with")
        terminal.key("ctrl+q")
        assert terminal.wait_exit() == 0
        assert b"\x1b[?1049l" in terminal.raw
