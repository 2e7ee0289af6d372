"""Rules of the user that allow commands by their first words: `git push` allows `git push origin main`.

A rule covers one simple command (`simple_words`: our own reader and `shfmt` find the same literal words) that begins with
exactly the words of the rule. It never covers a wrapper, an interpreter, or another program whose arguments can be code or
commands (the list `never` of `command_groups.toml`), nor a program that commands in the sandbox could have put in its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kimi_tui.foreign_text import visible
from kimi_tui.tools.command_groups import (
    NotSimple,
    find_shfmt,
    never_because,
    program_of,
    simple_words,
)

Rule = tuple[str, ...]
_TOOL = re.compile(r"mcp__[A-Za-z0-9_-]+")
"""The rule for a tool of an MCP server, or for all of its tools."""


class BadRule(Exception):
    """A rule that can cover no command. The text says why, as the end of a sentence."""


def rule_of(text: str, work_dir: Path, environ: Mapping[str, str]) -> Rule:
    """Return the rule of a text such as `git push`. It runs `shfmt`, so call it in a thread.

    Raises:
        BadRule: the text is not one simple command, or its program is never covered.
    """
    words = _words(text, work_dir, environ)
    if words[0].startswith("mcp__") and not _TOOL.fullmatch(text.strip()):
        raise BadRule(
            "write mcp__SERVER__TOOL for one tool of an MCP server, and mcp__SERVER for all tools of a server"
        )
    if because := never_because(words[0]):
        raise BadRule(f"{words[0]} cannot be allowed, because {because}")
    return tuple(words)


def why_not_allowed(
    command: str, rules: Sequence[Rule], work_dir: Path, environ: Mapping[str, str]
) -> str:
    """Return why no rule covers a command; empty if one does. It runs `shfmt` and looks at files, so call it in a thread."""
    if not rules:
        return "no rule allows it"
    try:
        words = _words(command, work_dir, environ)
    except BadRule as bad:
        return str(bad)
    if not any(tuple(words[: len(rule)]) == rule for rule in rules):
        return "no --allow rule matches its first words"
    if because := never_because(words[0]):
        return because
    return program_of(words[0], work_dir, environ)


def _words(text: str, work_dir: Path, environ: Mapping[str, str]) -> list[str]:
    try:
        if visible(one := text.replace("\t", " ")) != one:
            raise NotSimple("it contains lookalike or invisible characters")
        return simple_words(text, find_shfmt(environ, work_dir))
    except NotSimple as no:
        raise BadRule(f"it is not one simple command: {no}") from no
