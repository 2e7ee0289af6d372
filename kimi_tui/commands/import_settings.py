"""`kimi-tui import-settings`: lists the settings of other agents, and takes single ones over after a look."""

from __future__ import annotations

from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kimi_tui.app_paths import short
from kimi_tui.commands.console import (
    CommandLineParser,
    complain,
    confirmed,
    print_json,
    print_table,
    say,
)
from kimi_tui.foreign_text import one_line
from kimi_tui.migration.settings import STATE_WORDS, FoundSetting, find_settings, settings_of
from kimi_tui.migration.settings_taking import NotTaken, take
from kimi_tui.program import DONE, FAILED, USAGE
from kimi_tui.tui.formatting import cut


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui import-settings ARGUMENTS`; return the exit code."""
    options = _parser().parse_args(arguments)
    work_dir = Path.cwd()
    found, remarks = find_settings(work_dir)
    if options.id:
        return _take(found, options.id, work_dir, is_sure=options.yes)
    if options.json:
        print_json([_facts(one) for one in found])
    elif not found:
        say("No settings of other agents were found.")
    else:
        _print(found)
    for remark in remarks:
        complain(remark)
    return DONE


def _parser() -> CommandLineParser:
    parser = CommandLineParser(
        prog="kimi-tui import-settings",
        description="List MCP servers, hooks, skills, commands, sub-agent types, notes for the agent (such as CLAUDE.md), permissions and status lines of Claude Code, Codex, Gemini CLI, kimi-cli and kimi-code.\n"
        "With an ID from the list, show one and import it if you confirm. Nothing is run, and the files of the other agents are not changed.",
        allow_abbrev=False,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("id", metavar="ID", nargs="?", default="", help="the setting to import")
    parser.add_argument("--yes", action="store_true", help="with ID: do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    return parser


def _facts(one: FoundSetting) -> dict[str, Any]:
    return {
        "id": one.id,
        "agent": one.agent,
        "kind": one.kind,
        "name": one.name,
        "path": str(one.path),
        "place": one.place,
        "state": one.state,
        "reason": one.why or None,
    }


def _print(found: list[FoundSetting]) -> None:
    rows: list[list[str]] = []
    for agent in dict.fromkeys(one.agent for one in found):
        rows += [
            [
                one.id if one.state == "new" else "",
                agent,
                one.kind,
                cut(one.name, 40),
                short(one.path),
                STATE_WORDS[one.state] + (f": {one.why}" if one.why else ""),
            ]
            for one in settings_of(agent, found)
        ]
    print_table(["id", "agent", "what", "name", "file", ""], rows)
    if any(one.state == "new" for one in found):
        say("kimi-tui import-settings ID shows one of them and imports it if you confirm.")


def _take(found: list[FoundSetting], wanted: str, work_dir: Path, *, is_sure: bool) -> int:
    named = [one for one in found if one.id == wanted]
    if not named:
        complain(
            f"There is no setting {one_line(wanted)[:40]!r}. kimi-tui import-settings lists them."
        )
        return USAGE
    one = named[0]
    for line in (
        f"{one.kind} {one.name} of {one.agent} ({short(one.path)})",
        *one.about.split("\n"),
    ):
        say(line)
    if one.state != "new":
        complain(f"{one.name}: {STATE_WORDS[one.state]}{f': {one.why}' if one.why else ''}.")
        return FAILED
    if not is_sure and not confirmed("Import this?"):
        return FAILED
    try:
        say(take(one, work_dir))
    except NotTaken as no:
        complain(str(no))
        return FAILED
    return DONE
