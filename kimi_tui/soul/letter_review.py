"""Shows the agent's D-Mails to the person before they are sent, where the person wants that."""

from __future__ import annotations

from kimi_tui.llm.message import user_message
from kimi_tui.prompts.load import prompt
from kimi_tui.soul.approval import Approval
from kimi_tui.soul.errors import BackToTheFuture
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.tools.base import Ask, ToolRejected


class LetterReview:
    """Asks for a yes to each D-Mail.

    Args:
        line: the conversation; its limits say whether to ask.
        approval: asks the person.
    """

    def __init__(self, line: LiveLine, approval: Approval) -> None:
        self._line = line
        self._approval = approval

    async def reviewed(self, back: BackToTheFuture) -> BackToTheFuture | None:
        """The D-Mail as it may be sent; None where the person turned it down, which the agent then reads.

        Raises:
            asyncio.CancelledError: stopped while asking; it is not sent.
        """
        if not self._line.limits.dmail_review:
            return back
        line = self._line
        ask = Ask(
            action="send D-Mail",
            question=f"Send this D-Mail to #{back.checkpoint_id}?",
            detail="\n\n".join(letter.strip() for letter in back.letters),
            where=f"the conversation goes back from #{line.context.n_checkpoints - 1}; it can be undone",
            # Who wants to see them wants to see them in every mode.
            protected=True,
        )
        try:
            instead = await self._approval.ask(ask, key="", tool="SendDMail")
        except ToolRejected as no:
            why = f" and says: {no.feedback}" if no.feedback else "."
            await line.append([user_message(prompt("dmail_refused", WHY=why))])
            return None
        letters = (instead,) if instead else back.letters
        return BackToTheFuture(back.checkpoint_id, letters, back.restore_files)
