"""`kimi-tui to-git [A..B]`: commits on a new branch of the user's repository from the turns or steps of a session."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kimi_tui.commands.console import (
    command,
    complain,
    confirmed,
    print_json,
    print_pairs,
    print_table,
    say,
    with_world_line,
)
from kimi_tui.commands.diff import complain_of, with_range
from kimi_tui.commands.session_details import readable
from kimi_tui.commands.sessions import chosen_session
from kimi_tui.display_names import counted
from kimi_tui.program import DONE, FAILED
from kimi_tui.session.session import Session
from kimi_tui.soul.git_commits import CommitPlan, NoCommits, make_commits, plan_commits
from kimi_tui.soul.patches import NoFiles


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui to-git ARGUMENTS`; return the exit code."""
    parser = command(
        "to-git",
        "Make commits on a new branch of your git repository from the turns or steps of a session. The commits are shown first and "
        "made if you confirm. Your index, your files and your current branch stay as they are, and no hook runs.",
    )
    with_range(
        parser,
        "the steps from checkpoint A up to checkpoint B, which is not included (default: all steps)",
    )
    with_world_line(parser, "use the steps of world line (branch) K (default: the current one)")
    parser.add_argument(
        "--per",
        choices=("turn", "step"),
        default="turn",
        help="one commit for each turn, or for each step (default: turn)",
    )
    parser.add_argument(
        "--branch",
        metavar="NAME",
        default="",
        help="the name of the new branch (default: kimi-tui/TITLE)",
    )
    parser.add_argument(
        "--onto",
        metavar="COMMIT",
        default="",
        help="begin the branch at this commit (default: the last commit before checkpoint A)",
    )
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    answer.add_argument("--dry-run", action="store_true", help="show the commits and make none")
    options = parser.parse_args(arguments)
    return asyncio.run(_to_git(chosen_session(options.session), options))


async def _to_git(session: Session, options: Namespace) -> int:
    async with readable(session) as read:
        try:
            plan = await asyncio.to_thread(
                plan_commits,
                read,
                session.dir,
                options.range,
                options.world_line,
                os.environ,
                per=options.per,
                branch=options.branch,
                onto=options.onto,
            )
            if not options.json:
                _print_plan(plan)
            complain_of(plan.left_out, [])
            head = ""
            if not options.dry_run:
                n = counted(len(plan.commits), "commit")
                if not options.yes and not confirmed(f'Make the branch "{plan.branch}" with {n}?'):
                    return FAILED
                head = await asyncio.to_thread(make_commits, plan)
        except (NoFiles, NoCommits) as error:
            complain(str(error))
            return FAILED
    if options.json:
        print_json({**_facts(plan), "head": head or None})
    elif head:
        say(
            f'Made the branch "{plan.branch}" with {counted(len(plan.commits), "commit")}. '
            f"git log {plan.branch} shows them; git switch {plan.branch} goes there."
        )
    return DONE


def _print_plan(plan: CommitPlan) -> None:
    print_pairs(
        [
            ("repository", str(plan.git.root)),
            ("new branch", plan.branch),
            ("begins at", plan.base_words),
        ]
    )
    for remark in plan.remarks:
        say(remark)
    print()
    print_table(
        ["commit", "files", "added", "removed"],
        [
            [one.subject, f"{len(one.pairs):,}", f"+{one.added:,}", f"-{one.removed:,}"]
            for one in plan.commits
        ],
        right=(1, 2, 3),
    )
    print()


def _facts(plan: CommitPlan) -> dict[str, Any]:
    return {
        "repository": str(plan.git.root),
        "branch": plan.branch,
        "base": plan.base or None,
        "commits": [
            {
                "message": one.message,
                "at": datetime.fromtimestamp(one.at, UTC).isoformat(),
                "files": [pair.path for pair in one.pairs],
                "added": one.added,
                "removed": one.removed,
            }
            for one in plan.commits
        ],
        "left_out": [{"path": path, "why": why} for path, why in plan.left_out],
        "remarks": plan.remarks,
    }
