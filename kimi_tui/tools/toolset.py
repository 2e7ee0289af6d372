"""`Toolset`: the tools a model may call, their specs, and parsing the arguments of a call and running it.

A call with any arguments results in a text for the model; it never ends the program.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

from kimi_tui.llm.provider import ToolSpec
from kimi_tui.tool_cards import KNOWN, PLAIN, Card
from kimi_tui.tools.agent import AgentTool
from kimi_tui.tools.agent_kind import SHIPPED, AgentKind
from kimi_tui.tools.arguments import encodable, parsed
from kimi_tui.tools.base import Tool, ToolEnv
from kimi_tui.tools.file_edit import StrReplaceFile, WriteFile
from kimi_tui.tools.glob import Glob
from kimi_tui.tools.grep import Grep
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem, ToolRejected, failure
from kimi_tui.tools.read_file import ReadFile
from kimi_tui.tools.session_tools import AskUserQuestion, ExitPlanMode, SendDMail, SetTodoList
from kimi_tui.tools.shell import Shell, TaskOutput, TaskStop
from kimi_tui.tools.text import nearest_words
from kimi_tui.tools.web.fetch_url import FetchURL

AnyTool = Tool[Any]

_log = logging.getLogger(__name__)
_VALUE_CHARS = 80
_LONG_CHARS = 32_768
_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")


class Toolset:
    """Some tools by name, in a fixed order.

    Args:
        tools: the tools.
        lean: whether they are described in few words, for a model with a small window.

    Attributes:
        specs: the tools as they are sent to the model, in order. They are part of every request, so they must not change.
    """

    def __init__(self, tools: Iterable[AnyTool], *, lean: bool = False) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._others = {
            other: tool
            for tool in self._tools.values()
            for other in tool.other_names
            if other not in self._tools
        }
        self.specs: tuple[ToolSpec, ...] = tuple(
            tool.lean_spec() if lean else tool.spec() for tool in self._tools.values()
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools, in order."""
        return tuple(self._tools)

    @property
    def of_any_effect(self) -> frozenset[str]:
        """The names of the tools that may change any file."""
        return frozenset(one.name for one in self._tools.values() if one.changes == "anything")

    def get(self, name: str) -> AnyTool | None:
        """Return the tool with this name, or with this other name."""
        return self._tools.get(name) or self._others.get(name)

    def without(self, *names: str) -> Toolset:
        """Return a toolset without the tools with these names."""
        return Toolset(tool for tool in self._tools.values() if tool.name not in names)

    def with_added(self, tools: Iterable[AnyTool]) -> Toolset:
        """Return a toolset with these tools after its own.

        Raises:
            ValueError: a name is taken, or servers would refuse it.
        """
        added = list(tools)
        names = [*self._tools, *(tool.name for tool in added)]
        for place, tool in enumerate(added, len(self._tools)):
            if tool.name in names[:place]:
                raise ValueError(f"There is already a tool {tool.name!r}.")
            if not _NAME.fullmatch(tool.name):
                raise ValueError(
                    f"{tool.name[:_VALUE_CHARS]!r} is not a name for a tool: use letters, digits, _ and -, at most 64 characters."
                )
        return Toolset([*self._tools.values(), *added])

    def card(self, name: str) -> Card | None:
        """Return the card to be stored with a call of this tool; None if its name is enough."""
        tool = self.get(name)
        return None if tool is None or name in KNOWN or tool.card == PLAIN else tool.card

    def lean(self, added: Iterable[str] = ()) -> Toolset:
        """Return the few tools for a model with a small window, described in few words, and those in `added`.

        If none of the tools has such a form (`Tool.lean_params`), all of them stay.
        """
        wanted = set(added)
        few = [t for t in self._tools.values() if t.lean_params or t.name in wanted]
        return Toolset(few or self._tools.values(), lean=True)

    def accepts(self, name: str, arguments: str) -> bool:
        """Return whether there is a tool with this name, and the arguments (JSON text) fit its parameters."""
        tool = self.get(name)
        if tool is None:
            return False
        try:
            tool.parse(parsed(arguments))
        except ToolProblem:
            return False
        return True

    async def run(self, name: str, arguments: str | None, env: ToolEnv) -> ToolOutcome:
        """Run one call.

        Args:
            name: the tool's name, as the model wrote it.
            arguments: the JSON text of the arguments, as the model wrote it.
            env: what the tool may use.

        Returns:
            The result; an error outcome for any error of the call or inside the tool.

        Raises:
            ToolRejected: the user said no.
            asyncio.CancelledError: the call was stopped.
        """
        tool = self.get(name)
        if tool is None:
            return self._unknown(name)
        try:
            # Parsing thousands of edits in one call takes tens of milliseconds.
            is_long = len(arguments or "") > _LONG_CHARS
            values = (
                await asyncio.to_thread(_parameters_of, tool, arguments)
                if is_long
                else _parameters_of(tool, arguments)
            )
            ask = tool.question(values, env)
            if ask is not None:
                await env.approver.ask(ask)
            return await tool.run(values, env)
        except ToolProblem as problem:
            return failure(encodable(str(problem)), brief=problem.brief)
        except ToolRejected:
            raise
        except Exception as error:
            _log.exception("%s failed", name)
            reason = str(error) or type(error).__name__
            return failure(encodable(f"{name} failed: {reason}"), brief="failed")

    def _unknown(self, name: str) -> ToolOutcome:
        if not self._tools:
            return failure(
                f"There is no tool {name[:_VALUE_CHARS]!r}: in this session you have no tools.",
                brief="no tools",
            )
        near = nearest_words(name, self._tools)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return failure(
            f"There is no tool {name[:_VALUE_CHARS]!r}.{hint} The tools are {', '.join(self._tools)}.",
            brief="no such tool",
        )


def _parameters_of(tool: AnyTool, arguments: str | None) -> Any:
    return tool.parse(parsed(arguments))


def default_toolset(
    allowed_hosts: Sequence[str] = (), kinds: Sequence[AgentKind] = SHIPPED
) -> Toolset:
    """Return all built-in tools that need no configuration.

    Args:
        allowed_hosts: the hosts whose pages need no approval.
        kinds: the kinds of sub-agents.
    """
    return Toolset(
        [
            ReadFile(),
            Glob(),
            Grep(),
            WriteFile(),
            StrReplaceFile(),
            Shell(),
            TaskOutput(),
            TaskStop(),
            FetchURL(allowed_hosts),
            SetTodoList(),
            AskUserQuestion(),
            ExitPlanMode(),
            SendDMail(),
            AgentTool(kinds),
        ]
    )
