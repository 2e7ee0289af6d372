"""SendDMail: a message from the agent to itself at an earlier checkpoint."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.tools.base import Tool, ToolEnv, ToolOutcome, failure


class SendDMailParams(BaseModel):
    """The message and where it goes."""

    model_config = ConfigDict(extra="forbid")

    message: str = Field(
        description="What your past self should know: findings, decisions, what is done.",
        min_length=1,
    )
    checkpoint_id: int = Field(
        description="The checkpoint to go back to, as a CHECKPOINT marker names it.", ge=0
    )
    restore_files: bool = Field(
        default=False, description="Also bring the working files back to that checkpoint."
    )


class SendDMail(Tool[SendDMailParams]):
    """Queues D-Mails. Nothing happens until the step ends: then the soul takes them from the mailbox."""

    name: ClassVar[str] = "SendDMail"
    changes: ClassVar[bool] = False
    params = SendDMailParams

    async def run(self, params: SendDMailParams, env: ToolEnv) -> ToolOutcome:
        """Put the D-Mail into the mailbox."""
        if not params.message.strip():
            return failure(
                "The message is empty: say what your past self should know.", brief="empty"
            )
        try:
            env.send_dmail(params.message, params.checkpoint_id, params.restore_files)
        except ValueError as error:
            return failure(str(error), brief="not sent")
        # A revert cuts this result away with everything else. Who reads it was not reverted, or the user came back here.
        return ToolOutcome(
            message="The D-Mail was NOT sent, or the user took it back: you are reading this because the conversation "
            "goes on from here without it. If another call of the same step was refused or failed, it was not sent: "
            "go on, or send it again alone. Else the user took it back: do not send it again unasked.",
            brief=f"to #{params.checkpoint_id}",
        )
