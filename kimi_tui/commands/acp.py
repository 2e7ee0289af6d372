"""`kimi-tui acp`: serves an editor over the Agent Client Protocol."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast, get_args

from kimi_tui.agent_parts import Mode
from kimi_tui.app_paths import log_file
from kimi_tui.commands.console import CommandLineParser, complain
from kimi_tui.external.agents import missing_package
from kimi_tui.launch import Options
from kimi_tui.logging_setup import begin_logging
from kimi_tui.program import FAILED, USAGE


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui acp ARGUMENTS`; return the exit code."""
    parser = CommandLineParser(
        prog="kimi-tui acp",
        description="Serve an editor over the Agent Client Protocol (ACP). The editor starts this command and talks to it "
        "over standard input and output; docs/acp.md says how to set it up in Zed, JetBrains, Neovim and Toad.",
    )
    parser.add_argument("--model", metavar="NAME", help="the model for new sessions")
    parser.add_argument("--base-url", metavar="URL", help="the OpenAI-compatible server")
    parser.add_argument(
        "--mode", choices=get_args(Mode), help="what the agent may do without asking"
    )
    parser.add_argument(
        "--no-sandbox", action="store_true", help="run commands without the sandbox"
    )
    options = parser.parse_args(arguments)
    if sys.stdin.isatty():
        complain(
            "kimi-tui acp is started by an editor, which talks to it over standard input. "
            "In a terminal, run kimi-tui."
        )
        return USAGE
    if missing := missing_package("kimi-tui acp needs"):
        complain(missing)
        return FAILED
    from kimi_tui.own_process import check_address_space, harden, tune_malloc

    check_address_space()
    tune_malloc()
    begin_logging(log_file())
    from kimi_tui.acp.agent import serve

    harden()
    return serve(
        Options(
            model=options.model,
            base_url=options.base_url,
            mode=cast("Mode | None", options.mode),
            no_sandbox=options.no_sandbox,
        )
    )
