"""`kimi-tui replay`: opens the app on a session that is played back, also one that another process has open.

Leads to a first paint, so nothing of the session is imported here: whether there is such a session, the screen finds out.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence

from kimi_tui.cli import USAGE, Options, launch_of, start
from kimi_tui.commands.arguments import Parser
from kimi_tui.config.model import ConfigError


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui replay ARGUMENTS`; returns the exit code."""
    parser = Parser(
        prog="kimi-tui replay",
        description="Play a session back. Nothing of it is changed.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "session",
        metavar="SESSION",
        nargs="?",
        help="its id or how that begins (default: the newest of this folder)",
    )
    parser.add_argument("-w", "--work-dir", metavar="DIR", help="the folder it worked in")
    chosen = parser.parse_args(arguments)
    gc.disable()
    try:
        launch = launch_of(Options(session=chosen.session, work_dir=chosen.work_dir))
    except ConfigError as error:
        parser.exit(USAGE, f"kimi-tui: {error}\n")
    return start(launch._replace(replay=True))
