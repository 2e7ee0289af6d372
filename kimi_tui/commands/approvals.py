"""`kimi-tui approvals explain`: says whether a command would need approval outside the sandbox, and why."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from kimi_tui.commands.console import CommandLineParser, complain, print_json, say
from kimi_tui.program import DONE, USAGE
from kimi_tui.tools.command_groups import judge

_LONGEST_LINE = 64 * 1024


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui approvals ARGUMENTS`; return the exit code."""
    parser = CommandLineParser(
        prog="kimi-tui approvals",
        usage="%(prog)s explain [--approved COMMAND]... [--json] (--batch | -- COMMAND)",
        description="Say whether a command that runs outside the sandbox would need your approval in this folder, and why. "
        "The command is not run.",
    )
    parser.add_argument("what", choices=["explain"], metavar="explain")
    parser.add_argument(
        "--approved",
        metavar="COMMAND",
        action="append",
        default=[],
        help="treat this command as allowed for the session; can be given several times",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help='print JSON: "ask" (true or false), "reason" and "class" (what the command does, such as "reads")',
    )
    parser.add_argument(
        "--batch",
        action="store_true",
        help='read commands from standard input, each line a JSON string or an object with "command" and "approved"; print JSON lines',
    )
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:at])
    # One word is a whole command line, as the agent writes it; several words are a command line that a shell has split.
    words = arguments[at + 1 :]
    command = words[0] if len(words) == 1 else shlex.join(words)
    if options.batch == bool(command):
        complain(
            'A command is missing. Write it after "--", or use --batch to read commands from standard input.'
        )
        return USAGE
    if options.batch:
        return _batch(options.approved)
    answer = explained(command, options.approved)
    if options.json:
        print_json(answer)
    else:
        say(
            f"{'The agent asks you' if answer['ask'] else 'The agent does not ask you'}: {answer['reason']} ({answer['class']})."
        )
    return DONE


def explained(command: str, approved: Sequence[str]) -> dict[str, Any]:
    """Return what would happen to a command in this folder.

    Args:
        command: the command line.
        approved: commands that were allowed for the session.

    Returns:
        `ask`, `reason`, and `class` (the kind of the command).
    """
    verdict = judge(command, Path.cwd(), os.environ)
    if not verdict.group:
        return {"ask": True, "reason": verdict.reason, "class": verdict.kind}
    for other in approved:
        if judge(other, Path.cwd(), os.environ).group == verdict.group:
            reason = f"{verdict.reason}, and your permission for {other} covers this command"
            return {"ask": False, "reason": reason, "class": verdict.kind}
    reason = f"{verdict.reason}; you can allow it for the session"
    return {"ask": True, "reason": reason, "class": verdict.kind}


def _batch(approved: Sequence[str]) -> int:
    read = partial(sys.stdin.buffer.readline, _LONGEST_LINE)
    while line := read():
        rest = line
        while rest and not rest.endswith(b"\n"):
            # Each line gets exactly one answer; otherwise later answers would be taken for those to other lines.
            if rest := read():
                line = b""
        print(json.dumps(_answer(line, approved)), flush=True)
    return DONE


def _answer(line: bytes, approved: Sequence[str]) -> dict[str, Any]:
    try:
        asked: object = json.loads(line)
    except (ValueError, RecursionError):
        asked = None
    if isinstance(asked, dict):
        facts = cast("dict[str, object]", asked)
        given = facts.get("approved", [])
        if isinstance(given, list):
            approved = [*approved, *map(str, cast("list[object]", given))]
        asked = facts.get("command")
    if not isinstance(asked, str):
        return {"ask": True, "reason": "the line is not JSON with a command", "class": "unclear"}
    return explained(asked, approved)
