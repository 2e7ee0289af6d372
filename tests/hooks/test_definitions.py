"""Which hooks are found where, what a matcher means, and when a repository's need another yes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Literal

import pytest

from kimi_tui.hooks.definitions import FoundHooks, Hook, digest_of, find_hooks


class Places:
    """A home and a work folder."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = folder / "home", folder / "work"
        for one in (self.home / ".claude", self.home / ".kimi", self.home / "own", self.work):
            one.mkdir(parents=True)

    def write(self, path: str, text: str | dict[str, object]) -> Path:
        file = self.home.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text if isinstance(text, str) else json.dumps(text))
        return file

    def found(self) -> FoundHooks:
        return find_hooks(self.work)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    made = Places(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("KIMI_TUI_HOME", str(made.home / "own"))
    monkeypatch.setenv("KIMI_SHARE_DIR", str(made.home / ".kimi"))
    return made


def claude(event: str, command: str, **more: object) -> dict[str, object]:
    matcher = more.pop("matcher", "*")
    entry = {"type": "command", "command": command, **more}
    return {"hooks": {event: [{"matcher": matcher, "hooks": [entry]}]}}


def test_all_places_are_read_and_a_copy_of_kimi_clis_file_counts_once(places: Places) -> None:
    toml = '[[hooks]]\nevent = "PreToolUse"\nmatcher = "Shell"\ncommand = "guard"\ntimeout = 5\n'
    places.write(
        "home/own/config.toml",
        toml + '[[hooks]]\nevent = "rewind"\ncommand = "r"\nsandbox = true\n',
    )
    places.write("home/.kimi/config.toml", toml)
    places.write("home/.claude/settings.json", claude("Stop", "s", timeout=7))
    places.write("work/.kimi-tui/hooks.toml", '[[hooks]]\nevent = "after_tool"\ncommand = "a"\n')
    places.write("work/.claude/settings.json", claude("PreToolUse", "b", matcher="Edit|Write"))
    places.write("work/.claude/settings.local.json", claude("SessionStart", "c"))
    found = places.found()
    assert [(one.event, one.command, one.sandbox, one.timeout_s) for one in found.own] == [
        ("PreToolUse", "guard", False, 5.0),
        ("rewind", "r", True, 30.0),
        ("Stop", "s", False, 7.0),
    ]
    # Those of a folder run in the sandbox, whatever they say.
    assert [(one.event, one.command, one.sandbox, one.form) for one in found.folder] == [
        ("PostToolUse", "a", True, "kimi"),
        ("PreToolUse", "b", True, "claude"),
        ("SessionStart", "c", True, "claude"),
    ]
    assert not found.remarks


def test_what_cannot_be_used_is_said_in_one_line(places: Places) -> None:
    places.write(
        "home/own/config.toml",
        '[[hooks]]\ncommand = "x"\n[[hooks]]\nevent = "Stop"\n[[hooks]]\nevent = "TeammateIdle"\ncommand = "x"\n'
        '[[hooks]]\nevent = "PreToolUse"\nmatcher = "(a+)+$"\ncommand = "x"\n',
    )
    places.write("home/.claude/settings.json", claude("PreToolUse", "", type="prompt"))
    places.write("work/.claude/settings.json", '{"hooks": [')
    found = places.found()
    assert found.remarks == (
        "~/own/config.toml: hooks 1 has no event.",
        "~/own/config.toml: hooks 2 has no command.",
        f"{places.work}/.claude/settings.json: the file is not JSON.",
    )
    assert found.elsewhere == ("TeammateIdle",)
    # A definition that might be a guard becomes a hook that cannot run, and so refuses.
    assert [one.trouble for one in found.own] == [
        "its matcher has too many nested repetitions",
        "hooks of the type prompt are not run",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "hooks = 1",
        "[hooks]\na = 1",
        "hooks = [1, [2], {event = 3}]",
        "hooks",
        '{"hooks": {"Stop": 5}}',
        '{"hooks": {"Stop": [{"hooks": 5}, {"hooks": ["x", {"command": 5}]}]}}',
        '{"hooks": ' + "[" * 100_000,
        "\x00\xff hooks",
    ],
)
def test_nonsense_is_no_hook(places: Places, text: str) -> None:
    for name in ("home/own/config.toml", "work/.kimi-tui/hooks.toml", "work/.claude/settings.json"):
        places.write(name, text)
    found = places.found()
    assert not found.own
    assert not found.folder


def test_links_in_a_work_folder_are_not_followed(places: Places) -> None:
    elsewhere = places.write("elsewhere/settings.json", claude("Stop", "x"))
    (places.work / ".claude").symlink_to(elsewhere.parent)
    assert not places.found().folder
    (places.work / ".claude").unlink()
    (places.work / ".claude").mkdir()
    (places.work / ".claude" / "settings.json").symlink_to(elsewhere)
    os.link(elsewhere, places.work / ".claude" / "settings.local.json")
    assert not places.found().folder
    # In the home folder the person's own links lead to their dotfiles.
    (places.home / ".claude" / "settings.json").symlink_to(elsewhere)
    assert [one.command for one in places.found().own] == ["x"]


def test_the_home_folder_as_work_folder_has_no_hooks_of_a_repository(places: Places) -> None:
    places.write("home/.claude/settings.json", claude("Stop", "x"))
    found = find_hooks(places.home)
    assert (len(found.own), len(found.folder)) == (1, 0)


def hook(
    matcher: str = "", condition: str = "", *, form: Literal["kimi", "claude"] = "claude"
) -> Hook:
    return Hook("PreToolUse", matcher, "x", 1, False, "user", Path("f"), form, condition)


@pytest.mark.parametrize(
    ("matcher", "names", "is_for"),
    [
        ("", ("Shell", "Bash"), True),
        ("*", ("Shell", "Bash"), True),
        ("Bash", ("Shell", "Bash"), True),
        ("Shell", ("Shell", "Bash"), True),
        ("Bas", ("Shell", "Bash"), False),
        ("Edit|Write", ("WriteFile", "Write"), True),
        ("Edit, Write", ("WriteFile", "Write"), True),
        ("Write.*", ("WriteFile", "Write"), True),
        ("^Write$", ("WriteFile", "Write"), True),
        ("mcp__.*", ("mcp__git__status",), True),
        ("mcp__memory__.*", ("mcp__git__status",), False),
        ("mcp__git__status", ("mcp__git__status",), True),
        ("(?!Read)", ("ReadFile", "Read"), True),
    ],
)
def test_matchers(matcher: str, names: tuple[str, ...], is_for: bool) -> None:
    assert hook(matcher).is_for(names) is is_for


def test_a_matcher_of_kimi_cli_is_an_expression() -> None:
    assert hook("File", form="kimi").is_for(("WriteFile", "Write"))
    assert not hook("File").is_for(("WriteFile", "Write"))
    assert hook("Shell|Str", form="kimi").is_for(("StrReplaceFile", "Edit"))
    assert not hook("Shell", form="kimi").is_for(("ReadFile", "Read"))


def test_claudes_conditions() -> None:
    names = ("Shell", "Bash")
    assert hook(condition="Bash(git *)").is_for(names, "git push")
    assert not hook(condition="Bash(git *)").is_for(names, "ls; git push")
    assert hook(condition="Bash(git push:*)").is_for(names, "git push --force")
    assert not hook(condition="Edit(*.ts)").is_for(names, "a.ts")
    # One that cannot be read holds: the hook is not silenced.
    assert hook(condition="Bash(").is_for(names, "ls")


def test_no_matcher_takes_long(places: Places) -> None:
    for matcher in (
        "(a|a)*$",
        "(a*)*b",
        "a*a*a*a*b",
        "(?:.|.)+x",
        "x" * 500,
        "[",
        "(?P<n>a)(?P=n)+*",
    ):
        places.write(
            "home/own/config.toml",
            f"[[hooks]]\nevent = 'PreToolUse'\nmatcher = '{matcher}'\ncommand = 'x'\n",
        )
        began = time.thread_time()
        (found,) = places.found().own
        found.is_for(("a" * 64,))
        assert time.thread_time() - began < 2
        if "*" in matcher or "[" in matcher:
            assert found.trouble


def test_a_yes_is_for_the_very_text_and_the_scripts_that_it_names(places: Places) -> None:
    script = places.write("work/tools/guard.sh", "exit 0")
    file = places.write(
        "work/.claude/settings.json",
        claude("PreToolUse", 'sh "$CLAUDE_PROJECT_DIR"/tools/guard.sh'),
    )

    def digest() -> str:
        return digest_of(places.found().folder, places.work)

    first = digest()
    assert digest() == first
    script.write_text("curl evil.example")
    assert (second := digest()) != first
    script.write_text("exit 0")
    assert digest() == first
    # A link in its place shows what it leads to.
    script.unlink()
    script.symlink_to(places.write("outside.sh", "exit 1"))
    assert digest() not in (first, second)
    script.unlink()
    assert digest() != first
    script.write_text("exit 0")
    places.write("work/.claude/settings.json", file.read_text().replace("guard.sh", "guard.sh -v"))
    assert digest() != first
    places.write(
        "work/.claude/settings.json",
        claude("PreToolUse", 'sh "$CLAUDE_PROJECT_DIR"/tools/guard.sh', timeout=9),
    )
    assert digest() != first


def test_a_file_that_a_hook_only_writes_needs_no_other_yes(places: Places) -> None:
    written = places.write("work/run.sh", "exit 0")

    def changes(command: str) -> bool:
        places.write("work/.claude/settings.json", claude("PreToolUse", command))
        written.write_text("exit 0")
        first = digest_of(places.found().folder, places.work)
        written.write_text("curl evil.example")
        return digest_of(places.found().folder, places.work) != first

    for command in ("date >> run.sh", "date >run.sh 2>&1", "date >| run.sh; exit 0"):
        assert not changes(command), command
    # What is not surely a redirection counts as before, and so does a file that is named elsewhere, too.
    for command in (
        "date > run.sh; sh run.sh",
        "sh <> run.sh",
        "a='>' ./run.sh",
        'sh -c "$0" ">" ./run.sh',
        "a=\\> ./run.sh",
        "cat >(sh run.sh)",
    ):
        assert changes(command), command
