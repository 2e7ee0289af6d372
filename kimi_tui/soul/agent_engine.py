"""The parts of a sub-agent's engine that come from its session: the tools of its kind, its limits, and its system prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from kimi_tui.config.settings import DMailConfig
from kimi_tui.session.schema import SystemPrompt
from kimi_tui.session.session import Session
from kimi_tui.soul.model_slot import Budget, LoopLimits
from kimi_tui.soul.system_prompt import agent_prompt
from kimi_tui.tools.agent_kind import NEVER, AgentKind
from kimi_tui.tools.toolset import Toolset


def tools_of(kind: AgentKind, tools: Toolset) -> Toolset:
    """Return the tools of a kind, as far as the session has them."""
    wanted = tools.names if kind.tools is None else kind.tools
    found = (tools.get(name) for name in tools.names if name in wanted and name not in NEVER)
    return Toolset(tool for tool in found if tool is not None)


def limits_of(limits: LoopLimits, steps: int, budget: Budget) -> LoopLimits:
    """Return the limits of a sub-agent.

    Args:
        limits: those of the session.
        steps: the most steps of its turn.
        budget: its tokens and its money.
    """
    control = limits.control._replace(max_steps_per_turn=steps)
    return limits._replace(control=control, dmail=DMailConfig(enabled=False), budget=budget)


async def give_prompt(
    session: Session,
    kind: AgentKind,
    work_dir: Path,
    environ: Mapping[str, str],
    *,
    no_keys: bool,
    notes: bool,
) -> None:
    """Begin the conversation of a sub-agent with its system prompt, unless it has begun.

    Args:
        session: its session, open.
        kind: its kind.
        work_dir: the work folder.
        environ: the environment of the program.
        no_keys: whether keys are left out of what is sent without a question.
        notes: whether it is given the notes of the project and the user.

    Raises:
        StorageTrouble: the disk refused.
    """
    if session.context.system_prompt is not None or session.context.messages:
        return
    text = await asyncio.to_thread(
        agent_prompt,
        kind.text,
        work_dir,
        environ,
        date.today(),  # noqa: DTZ011 - the user's own day is meant
        no_keys=no_keys,
        notes=notes,
    )
    await session.context.append([SystemPrompt(text)])
