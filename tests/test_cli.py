"""The command line: the launch that its arguments give, and one line with exit code 2 for a wrong one."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib import import_module
from inspect import isfunction
from pathlib import Path

import pytest
from support.cases import each, first_only

from kimi_tui.cli import main, parse
from kimi_tui.config.model_choice import FolderModel, ModelChoice, keep_folder_model
from kimi_tui.config.settings import ConfigError
from kimi_tui.late_imports import COMMAND_MODULES
from kimi_tui.launch import NEWEST, Options, launch_of
from kimi_tui.tui.main import screen
from kimi_tui.tui.main.commands import table


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KIMI_SHARE_DIR", str(tmp_path / "kimi"))
    for name in list(os.environ):
        if name.startswith(("KIMI_A", "KIMI_B", "KIMI_M", "KIMI_D", "OPENAI_")):
            monkeypatch.delenv(name)


def test_every_option() -> None:
    assert parse([]) == Options()
    assert parse(["-C", "-y", "-w", "/x", "--thinking"]) == Options(
        newest=True, yolo=True, work_dir="/x", thinking=True
    )
    assert parse(["--session", "abc", "--fork", "--no-thinking"]) == Options(
        session="abc", fork=True, thinking=False
    )
    assert parse(["--demo", "--speed", "10"]) == Options(demo=True, speed=10.0)
    assert parse(["--model", "m", "--base-url", "http://h/v1"]) == Options(
        model="m", base_url="http://h/v1"
    )
    assert parse(["-C", "fix the\ntests\x1b[2J"]) == Options(newest=True, message="fix the\ntests")
    assert parse(["fix", "the", "tests"]) == Options(message="fix the tests")
    assert parse(["replay"]) == Options(replay=True)
    assert parse(["replay", "abc", "-w", "/x"]) == Options(
        session="abc", work_dir="/x", replay=True
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such"],
        ["--continue", "--session", "a"],
        ["--thinking", "--no-thinking"],
        ["--speed", "0"],
        ["--speed", "fast"],
        ["--speed", "nan"],
        ["--session"],
        ["--fork"],
        ["--base-url", "nonsense"],
        ["--work-dir", "/no/such"],
        ["--work-dir", "/dev/null"],
        ["--cont"],
        ["--base-url", ""],
        ["--model", " "],
        ["--session", ""],
        ["--work-dir", ""],
        ["--\x1b[31mred\nline"],
        ["replay", "a", "b"],
        ["replay", "--yolo"],
        ["replay", "-w", "/no/such"],
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("kimi-tui: ")
    assert "\x1b" not in said.err


@each(
    "message",
    [
        "修复失败的测试，然后提交",
        "テストを直して",
        "hello",
        "!ls",
        "/init",
        "#note",
        "é",
        "会sessions话",
        "it's",
    ],
)
def test_one_word_is_a_message_that_is_not_sent_yet(message: str) -> None:
    assert parse([message]) == Options(message=message)
    assert parse(["-C", message]) == Options(newest=True, message=message)


@pytest.mark.parametrize("arguments", [["sesions"], ["--yolo", "sessions"], ["-C", "session"]])
def test_a_command_that_is_misspelt_or_misplaced_is_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.endswith("; did you mean kimi-tui sessions?\n")


def test_without_a_terminal_it_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in (([], 2), (["replay"], 1), (["--demo"], 1)):
        assert main(arguments) == code
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("kind", ["dumb", "unknown", "Dumb"])
@pytest.mark.parametrize("arguments", [[], ["replay"], ["--demo"]])
def test_a_terminal_that_draws_nothing_is_said_before_anything_is_drawn(
    kind: str,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TERM", kind)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f'TERM is "{kind}"' in err


def test_our_file_comes_before_kimi_clis(tmp_path: Path) -> None:
    theirs = tmp_path / "kimi" / "config.toml"
    theirs.parent.mkdir()
    text = (
        "[models.m]\nprovider='p'\nmodel='theirs'\n[providers.p]\nbase_url='http://localhost/v1'\n"
    )
    theirs.write_text(text)
    launch = launch_of(Options())
    assert isinstance(launch.choice, ModelChoice)
    assert launch.choice.model == "theirs"
    # Saved settings still go into our own file.
    assert launch.config_path == tmp_path / "home" / "config.toml"
    launch.config_path.parent.mkdir()
    launch.config_path.write_text(text.replace("theirs", "ours"))
    launch = launch_of(Options())
    assert isinstance(launch.choice, ModelChoice)
    assert launch.choice.model == "ours"
    # If a model that was chosen for the folder is missing, a notice says so; one named on the command line is not checked.
    keep_folder_model(launch.work_dir, FolderModel("old"))
    assert "old, which this folder uses" in launch_of(Options()).notices[0]
    assert launch_of(Options(model="m")).notices == ()
    (kept,) = (tmp_path / "home" / "models").iterdir()
    for text in ("{", '{"model": 1}'):
        kept.write_text(text)
        (words,) = launch_of(Options()).notices
        assert words.startswith("The model that was chosen for this folder cannot be read (")
        assert "the file is damaged). Choose it again with /model." in words
    kept.unlink()
    os.mkfifo(kept)
    assert "not a regular file" in launch_of(Options()).notices[0]
    kept.unlink()
    assert launch_of(Options()).notices == ()


def test_what_it_makes_of_the_options(tmp_path: Path) -> None:
    launch = launch_of(Options(newest=True, yolo=True, work_dir=str(tmp_path), fork=True))
    assert (launch.resume, launch.mode, launch.work_dir, launch.fork) == (
        NEWEST,
        "all",
        tmp_path.resolve(),
        True,
    )
    assert launch_of(Options(session="abc")).resume == "abc"
    assert (launch_of(Options()).mode, launch_of(Options()).sandbox) == ("sandboxed", True)
    assert not launch_of(Options(no_sandbox=True)).sandbox
    demo = launch_of(Options(demo=True))
    assert (demo.mode, demo.sandbox) == ("ask", False)
    demo.config_path.parent.mkdir(exist_ok=True)
    demo.config_path.write_text("mode = 'edits'")
    assert launch_of(Options()).mode == "edits"
    assert launch_of(Options(session="abc", replay=True)).replay


def test_nothing_in_the_work_folder_can_set_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    evil = "[models.m]\nprovider='p'\nmodel='evil'\n[providers.p]\nbase_url='http://evil/v1'\n"
    for place in ("config.toml", ".kimi/config.toml", ".kimi-tui/config.toml"):
        (work / place).parent.mkdir(parents=True, exist_ok=True)
        (work / place).write_text(evil)
    (work / ".env").write_text("KIMI_BASE_URL=http://evil/v1\nKIMI_API_KEY=k\n")
    monkeypatch.chdir(work)
    assert not isinstance(launch_of(Options()).choice, ModelChoice)


def test_a_config_that_is_not_toml(tmp_path: Path) -> None:
    path = tmp_path / "home" / "config.toml"
    path.parent.mkdir()
    path.write_text("a = [")
    with pytest.raises(ConfigError, match=r"config\.toml, line 1"):
        launch_of(Options())


FIRST_PAINT = """
import json, os, sys
os.environ["TEXTUAL_FPS"] = "1000"
from kimi_tui.cli import parse
from kimi_tui.launch import launch_of
from kimi_tui.late_imports import sparing
with sparing():
    from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.main import screen
# The imports that follow a moment after the first paint must not come before it on a slow machine.
screen.OPEN_DELAY_S = 3600
seen = []
class Probe(KimiApp):
    def on_mount(self):
        self.call_after_refresh(self.note)
    def note(self):
        seen.extend(sys.modules)
        self.exit()
app = Probe(launch_of(parse(sys.argv[1:])))
app.run(headless=True, size=(120, 40))
from textual.command import CommandPalette
assert CommandPalette.BINDINGS  # whoever wants it has it as it is
print(json.dumps(seen))
"""
HEAVY = (
    "pydantic",
    "openai",
    "PIL",
    "markdown_it",
    "pygments",
    "tomlkit",
    "rich.markdown",
    "rich.syntax",
    "textual.widgets._option_list",
    "textual.widgets._input",
    *("_ssl", "platformdirs", "rich.table", "tempfile", "textual.canvas", "uuid"),
    *(f"kimi_tui.tui.main.commands.{name}" for name in COMMAND_MODULES),
)
ENGINE = tuple(f"kimi_tui.{part}" for part in ("soul", "session", "wire", "llm", "tools"))


def test_of_commands_that_are_imported_late_only_functions_are_named() -> None:
    for user in (screen, table):
        tree = ast.parse(Path(user.__file__ or "").read_text())
        imported = {
            one.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module == "kimi_tui.tui.main.commands"
            for one in node.names
        }
        assert imported <= {*COMMAND_MODULES, "MainParts"}
        named = {
            (node.value.id, node.attr)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in imported
        }
        assert named
        for module, name in named:
            found = import_module(f"kimi_tui.tui.main.commands.{module}")
            assert isfunction(getattr(found, name)), (module, name)


@pytest.mark.slow  # it starts the program
@pytest.mark.parametrize("configured", first_only([True, False]))
def test_nothing_heavy_is_imported_before_the_first_paint(configured: bool) -> None:
    keys = {"KIMI_API_KEY": "k", "KIMI_BASE_URL": "http://127.0.0.1:9/v1"} if configured else {}
    run = subprocess.run(
        [sys.executable, "-c", FIRST_PAINT],
        env={**os.environ, **keys},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    modules: list[str] = json.loads(run.stdout.strip().splitlines()[-1])
    assert "kimi_tui.tui.app" in modules
    heavy = {m for m in modules if m.split(".")[0] in HEAVY or m in HEAVY or m.startswith(ENGINE)}
    assert heavy == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--work-dir", "/no/\x1b]0;x\x07such\x1b[31m"],
        ["--no-\x1b]0;x\x07such"],
        ["\x9b31m\x1b[2J"],
        ["--base-url", "http://\x1b[31m"],
        ["--speed", "\x1b[31m\n\n"],
        ["--model", "\u202e\x1b[5n"],
        ["rewind", "\x1b[31m"],
        ["sessions", "show", "\x1b]52;c;x\x07"],
        ["\udc9b"],
    ],
)
def test_no_error_line_hands_an_argument_to_the_terminal(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) != 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert not [char for char in err if (char < " " and char != "\n") or "\x7f" <= char <= "\x9f"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("closed", ["<&-", ">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_end_in_one_line(closed: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m kimi_tui {closed}"],
        env={"KIMI_TUI_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert "Traceback" not in ended.stderr
    assert "went wrong" not in ended.stderr
    assert ended.stderr.count("\n") <= 1
    # Without a terminal it is a run without a screen, for which there is no model.
    assert ended.returncode == 2
    if "2>&-" not in closed:
        assert "no model is configured" in ended.stderr


def test_as_a_module_it_imports_nothing_from_the_folder_it_starts_in(tmp_path: Path) -> None:
    for name in ("argparse.py", "openai.py"):
        (tmp_path / name).write_text("print('EVIL')\n")
    ended = subprocess.run(
        [sys.executable, "-m", "kimi_tui", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ended.stdout.startswith("kimi-tui ")
    assert "EVIL" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions"],
        ["sessions", "list"],
        ["doctor", "--offline"],
        ["checkpoints"],
        ["worldlines"],
        [],
        ["hello"],
    ],
)
def test_a_folder_that_is_gone_is_said_in_a_line(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("kimi-tui: The current folder no longer exists. ")
    assert "cd" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--allow", "ls"], "--allow"), (["--max-time", "3m"], "--max-time"), (["--bare"], "--bare")],
)
def test_the_option_that_needs_a_run_without_a_screen_is_named(
    arguments: list[str], named: str
) -> None:
    options = parse(arguments)
    assert not isinstance(options, int)
    assert options.headless is not None
    assert options.headless.first_given == named
