"""The tools of a session as they are sent to the model now, and the parts of the system prompt that go with them."""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.llm.provider import ToolSpec
from kimi_tui.soul.system_prompt import adapted
from kimi_tui.tools.toolset import Toolset

DMAIL_TOOL = "SendDMail"
_NO_TOOLS = Toolset(())


class Toolbox:
    """What may be called, and what is said of it.

    System prompt and tool list are the same in every request of a session, because the providers' prompt caches hold
    only what begins alike. They change when the user changes them: `[dmail] enabled` is read when a session is opened
    and holds for it until it is left, also where it began otherwise; `/tools` holds from the next call on, until it
    is changed again, another model is chosen or the session is left. The first call after such a change is read anew
    by the provider, and paid for so. Nothing that is stored changes: the prompt is adapted when it is sent, and
    markers of checkpoints stay in the file but are left out of what is sent while the model has no tool that names
    them.

    Args:
        toolset: all tools.
        dmail: whether the agent may send D-Mails; else the tool for that is none of them.
    """

    def __init__(self, toolset: Toolset, *, dmail: bool = True) -> None:
        self._toolset = toolset if dmail else toolset.without(DMAIL_TOOL)
        self._is_on = True

    @property
    def is_on(self) -> bool:
        """Whether the model is told of tools at all."""
        return self._is_on

    def use(self, on: bool) -> None:
        """Tell the model of tools, or of none, from the next call on."""
        self._is_on = on

    @property
    def toolset(self) -> Toolset:
        """What runs when the model calls it."""
        return self._toolset if self._is_on else _NO_TOOLS

    @property
    def names(self) -> tuple[str, ...]:
        """All tools of the session, also while they are off."""
        return tuple(spec.name for spec in self._toolset.specs())

    def specs(self) -> Sequence[ToolSpec]:
        """What is sent of them."""
        return self.toolset.specs()

    @property
    def marks(self) -> bool:
        """Whether checkpoints are named to the model: it has the tool that sends D-Mails to them."""
        return self.toolset.get(DMAIL_TOOL) is not None

    def prompt(self, stored: str) -> str:
        """The system prompt as it is sent, from the one that is stored."""
        return adapted(stored, tools=self._is_on, dmail=self.marks)
