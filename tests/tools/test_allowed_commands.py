"""Rules that allow commands by their first words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.cases import each

from kimi_tui.tools.allowed_commands import BadRule, rule_of, why_not_allowed

WORK = Path("/nonexistent/work")
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@each(
    "rule, command",
    [
        ("touch", "touch"),
        ("touch", "touch a b"),
        ("git push", "git push origin main"),
        ("git  push", "git   push"),
        ("git push", "'git' \"push\""),
        ("git commit -m", "git commit -m 'it works; mostly'"),
    ],
)
def test_it_covers_what_begins_with_its_words(rule: str, command: str) -> None:
    assert why_not_allowed(command, [rule_of(rule, WORK, ENVIRON)], WORK, ENVIRON) == ""


@each(
    "command, words",
    [
        ("git", "no --allow rule matches its first words"),
        ("git pushy", "no --allow rule matches its first words"),
        ("git -c core.pager=x push", "no --allow rule matches its first words"),
        ("/usr/bin/git push", "not one simple command"),
        ("./git push", "not one simple command"),
        ("git push; rm -r x", "not one simple command"),
        ("git push && rm x", "not one simple command"),
        ("git push | sh", "not one simple command"),
        ("git push > x", "not one simple command"),
        ("git push $(rm x)", "not one simple command"),
        ("git push `rm x`", "not one simple command"),
        ("git push <(rm x)", "not one simple command"),
        ("git push \nrm x", "not one simple command"),
        ("git push \u202ex", "not one simple command"),
        ("git push &", "not one simple command"),
        ("A=1 git push", "not one simple command"),
        ("! git push", "not one simple command"),
        ("git pu\\sh", "not one simple command"),
        ("git push *", "not one simple command"),
        ("gіt push", ""),
        ("env git push", "no --allow rule matches its first words"),
        ("sudo git push", "no --allow rule matches its first words"),
        ("", "not one simple command"),
    ],
)
def test_it_covers_nothing_else(command: str, words: str) -> None:
    why = why_not_allowed(command, [("git", "push")], WORK, ENVIRON)
    assert why
    assert words in why


@each(
    "rule",
    [
        "env",
        "python3 -m pytest",
        "python3.12",
        "bash -c",
        "make test",
        "xargs",
        "find",
        "sudo git",
        "npx x",
        "node20 x",
        "a | b",
        "a; b",
        "",
        "$(x)",
        "./run",
        "/bin/true",
        "A=1 b",
    ],
)
def test_what_no_rule_may_be(rule: str) -> None:
    with pytest.raises(BadRule):
        rule_of(rule, WORK, ENVIRON)


def test_a_program_that_is_not_there_or_was_planted_is_not_covered(tmp_path: Path) -> None:
    assert (
        why_not_allowed("nothere x", [("nothere",)], WORK, ENVIRON)
        == "the program nothere is not installed"
    )
    planted = tmp_path / "bin"
    planted.mkdir()
    (planted / "mytool").write_text("#!/bin/sh\n")
    (planted / "mytool").chmod(0o755)
    environ = {**ENVIRON, "PATH": f"{planted}:{ENVIRON['PATH']}"}
    why = why_not_allowed("mytool x", [("mytool",)], tmp_path, environ)
    assert "sandboxed commands can change" in why


def test_without_a_rule_nothing_is_covered() -> None:
    assert why_not_allowed("touch x", [], WORK, ENVIRON) == "no rule allows it"
