"""ExitPlanMode: the plan that the agent made in plan mode, for the user to agree to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.tools.base import ApprovalQuestion, Tool, ToolEnv, ToolOutcome, failure

YES_AND = "Yes, and "
MODE_AFTER: Mapping[str, str] = {
    f"{YES_AND}run commands in the sandbox unasked": "sandboxed",
    f"{YES_AND}edit files unasked": "edits",
    f"{YES_AND}ask before each change": "ask",
}
"""The answers that end plan mode, with the mode that holds then; the first needs a sandbox."""


class ExitPlanModeParams(BaseModel):
    """The plan."""

    model_config = ConfigDict(extra="forbid")

    plan: str = Field(description="The plan, as Markdown.", min_length=1, max_length=100_000)


class ExitPlanMode(Tool[ExitPlanModeParams]):
    """Presents a plan. Which mode holds afterwards is decided with the answer, where approvals are kept."""

    name: ClassVar[str] = "ExitPlanMode"
    changes: ClassVar[bool] = True
    """Nothing; but what stands behind it in a step was not agreed to before."""
    params = ExitPlanModeParams

    async def run(self, params: ExitPlanModeParams, env: ToolEnv) -> ToolOutcome:
        """Ask for a yes."""
        if not env.reads_only:
            return failure("Plan mode is off: carry the plan out.", brief="not planning")
        offered = [words for words in MODE_AFTER if env.sandbox or MODE_AFTER[words] != "sandboxed"]
        answer = await env.approver.ask(
            ApprovalQuestion(
                action="present plan",
                question="Carry out this plan?",
                detail=params.plan.strip(),
                options=tuple(offered),
                protected=True,
            )
        )
        if not answer or answer in MODE_AFTER:
            return ToolOutcome(message="The user agreed to the plan: carry it out.", brief="agreed")
        return ToolOutcome(
            output=answer,
            message="The user agreed, but changed the plan: carry it out as it stands here.",
            brief="agreed, with changes",
        )
