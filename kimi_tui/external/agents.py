"""The external agents by name: those that are built in, and those of the configuration; and the program of each on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kimi_tui.config.settings import ExternalAgentConfig
from kimi_tui.mcp.package import install_line
from kimi_tui.tools.process import child_environment
from kimi_tui.tools.programs import find_program, is_planted

REQUIREMENT = "agent-client-protocol>=0.12,<0.13"
_OLDEST = (0, 12)
OURSELVES = "kimi-tui"
"""The name under which this program drives itself."""


class KnownAgent(NamedTuple):
    """An external agent.

    Attributes:
        name: its name on the command line.
        title: its name in sentences.
        commands: the commands that start it, the first installed one of which is taken.
        env: the environment variables that it gets in addition to the usual ones; one that ends with `_` is a beginning.
        install: how to get it, as the end of a sentence that begins with a verb.
        login: the command with which the user logs in, in a terminal; empty if it is not known.
        mcp: whether it is told of the user's MCP servers.
        reads_files: whether it is to read files itself: Gemini CLI 0.61 does not understand that a file does not exist, when a
            client says so, and cannot make a new one then.
    """

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    env: tuple[str, ...] = ()
    install: str = ""
    login: str = ""
    reads_files: bool = False
    mcp: bool = True


KNOWN: Mapping[str, KnownAgent] = {
    one.name: one
    for one in (
        KnownAgent(
            "claude",
            "Claude Code",
            (("claude-agent-acp",), ("claude-code-acp",)),
            ("ANTHROPIC_", "CLAUDE_", "AWS_", "GOOGLE_APPLICATION_CREDENTIALS", "CLOUD_ML_REGION"),
            "install it with npm install -g @agentclientprotocol/claude-agent-acp",
            "claude /login",
        ),
        KnownAgent(
            "codex",
            "Codex",
            (("codex-acp",),),
            ("OPENAI_", "CODEX_"),
            "install it with npm install -g @agentclientprotocol/codex-acp",
            "codex login",
        ),
        KnownAgent(
            "gemini",
            "Gemini CLI",
            (("gemini", "--acp"),),
            ("GEMINI_", "GOOGLE_"),
            "install it with npm install -g @google/gemini-cli",
            "gemini",
            reads_files=True,
        ),
        KnownAgent(
            "kimi-code",
            "Kimi Code",
            (("kimi", "acp"),),
            ("KIMI_", "MOONSHOT_"),
            "install it with npm install -g @moonshot-ai/kimi-code",
            "kimi login",
        ),
        KnownAgent(
            "goose",
            "Goose",
            (("goose", "acp"),),
            ("GOOSE_", "ANTHROPIC_", "OPENAI_", "GOOGLE_"),
            "to install it, see https://block.github.io/goose",
            "goose configure",
        ),
        KnownAgent(
            "vibe",
            "Mistral Vibe",
            (("vibe-acp",),),
            ("MISTRAL_", "VIBE_"),
            "install it with uv tool install mistral-vibe",
            "vibe --setup",
        ),
        KnownAgent(
            "opencode",
            "opencode",
            (("opencode", "acp"),),
            ("OPENCODE_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_"),
            "install it with npm install -g opencode-ai",
            "opencode auth login",
        ),
        KnownAgent(
            OURSELVES,
            OURSELVES,
            ((sys.executable, "-P", "-m", "kimi_tui", "acp"),),
            ("KIMI_", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
            login="kimi-tui",
            # Another kimi-tui reads the same file of servers itself.
            mcp=False,
        ),
    )
}
"""The agents that need no configuration, by name."""


def title_of(name: str) -> str:
    """Return the name of an agent in sentences; of one that only a configuration knows, its name there."""
    known = KNOWN.get(name)
    return known.title if known is not None else name


class AgentMissing(Exception):
    """An external agent cannot be started; the text says why and what to do, in at most two sentences."""


class AgentProgram(NamedTuple):
    """The program of an external agent.

    Attributes:
        name: the name of the agent; `title` is its name in sentences.
        argv: the full path of the program, and its arguments.
        environ: its environment.
        login: the command with which the user logs in; empty if it is not known.
        reads_files: whether it is to read files itself.
        mcp: whether it is told of the user's MCP servers.
    """

    name: str
    title: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    login: str = ""
    reads_files: bool = False
    mcp: bool = True


def missing_package(who_needs: str = "External agents need") -> str:
    """Return why the package of the protocol cannot be used, with the line that installs it; empty if it can.

    Args:
        who_needs: the beginning of the sentence.
    """
    why = ""
    if find_spec("acp") is None:
        why = f"{who_needs} the Python package agent-client-protocol, which is not installed."
    else:
        try:
            found = version("agent-client-protocol")
        except PackageNotFoundError:
            return ""
        parts = tuple(int(part) if part.isdecimal() else 0 for part in found.split(".")[:2])
        if parts != _OLDEST:
            why = f"{who_needs} version 0.12 of the Python package agent-client-protocol, not {found}."
    return f"{why} Install it with: {install_line(requirement=REQUIREMENT)}" if why else ""


def known_agents(configured: Mapping[str, ExternalAgentConfig]) -> dict[str, KnownAgent]:
    """Return all agents by name; one of the configuration replaces a built-in one of its name."""
    found = dict(KNOWN)
    for name, config in configured.items():
        built_in = KNOWN.get(name)
        found[name] = KnownAgent(
            name,
            built_in.title if built_in else name,
            (config.command,) if config.command else built_in.commands if built_in else (),
            (*(built_in.env if built_in else ()), *config.env),
            f"[external_agents.{name}] in config.toml names it"
            if config.command or built_in is None
            else built_in.install,
            built_in.login if built_in else "",
            reads_files=built_in is not None and built_in.reads_files,
            mcp=config.mcp and (built_in is None or built_in.mcp),
        )
    return found


def agent_program(
    name: str,
    arguments: Sequence[str],
    configured: Mapping[str, ExternalAgentConfig],
    environ: Mapping[str, str],
    work_dir: Path,
) -> AgentProgram:
    """Find the program of an agent. It looks at files, so call it in a thread.

    Args:
        name: the name of the agent.
        arguments: further arguments for its program.
        configured: the agents of the configuration.
        environ: the environment of this program.
        work_dir: the work folder; a program in it is not taken.

    Raises:
        AgentMissing: there is no such agent, or its program is not installed.
    """
    every = known_agents(configured)
    agent = every.get(name)
    if agent is None:
        known = ", ".join(every)
        raise AgentMissing(
            f'There is no external agent "{name[:40]}": kimi-tui knows {known}. '
            f"To add one, name it in config.toml under [external_agents.NAME]."
        )
    if not agent.commands:
        raise AgentMissing(
            f"[external_agents.{name[:40]}] in config.toml has no command, and kimi-tui knows no agent of this name. "
            'Add its program, for example command = ["codex-acp"].'
        )
    for command in agent.commands:
        if found := _found(command[0], environ, work_dir):
            return AgentProgram(
                name,
                agent.title,
                (found, *command[1:], *arguments),
                _environment(agent, environ),
                agent.login,
                agent.reads_files,
                agent.mcp,
            )
    program = agent.commands[0][0]
    planted = os.path.isabs(program) and os.path.lexists(program)
    if planted and is_planted(program, environ, work_dir):
        raise AgentMissing(
            f"{program} was not started, because sandboxed commands can change it. "
            "Install it outside the work folder and temporary folders."
        )
    raise AgentMissing(
        f'The program "{program}" of the external agent {name} is not installed, or not on PATH'
        f"{f': {agent.install}' if agent.install else ''}."
    )


def _found(program: str, environ: Mapping[str, str], work_dir: Path) -> str:
    if program == sys.executable:
        return program
    return find_program(os.path.expanduser(program), environ, work_dir) or ""


def _environment(agent: KnownAgent, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the agent gets: those of every child process, and its own."""
    passed = {
        variable: value
        for variable, value in environ.items()
        if any(
            variable.startswith(one) if one.endswith("_") else variable == one for one in agent.env
        )
    }
    return {**child_environment(environ), **passed}
