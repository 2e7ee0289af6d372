"""`Answers`: what a run without a person answers to the questions of the agent and of the program."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kimi_tui.foreign_text import one_line
from kimi_tui.headless.report import TurnStop, in_circles, overdue
from kimi_tui.prompts import prompt
from kimi_tui.tool_cards import card_of, server_of
from kimi_tui.wire.events import ApprovalRequest

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.tools.allowed_commands import Rule

_WORDS = 200


class Answers:
    """Refuses every question but those about commands that a rule allows, and says so.

    Args:
        soul: the engine that asks.
        rules: the rules of the person.
        say: called with a sentence for the person.
        note: called before a no that stops the turn, with the reason.
    """

    def __init__(
        self,
        soul: KimiSoul,
        rules: Sequence[Rule],
        say: Callable[[str], None],
        note: Callable[[TurnStop], None],
    ) -> None:
        self._soul = soul
        self._rules = rules
        self._say = say
        self._note = note

    async def answer(self, request: ApprovalRequest) -> None:
        """Answer one request."""
        self.note_stop(request)
        if request.kind == "pause":
            if request.key:
                # An external agent asks about one of its calls; its own mode decides what it asks.
                named = one_line(request.detail)[:_WORDS]
                self._say(f"refused: {request.tool} {named} (it needs approval)")
            self._soul.answer(request.id, "no")
            return
        why = await self._why_refused(request)
        if not why:
            self._soul.answer(request.id, "once")
            return
        named = one_line(request.detail)[:_WORDS]
        self._say(f"refused: {request.tool}{f' {named}' if named else ''} ({why})")
        self._soul.answer(request.id, "no", prompt("nobody_here"))

    def note_stop(self, request: ApprovalRequest) -> None:
        """Note that a no to this request stops the turn, if it does, and why."""
        if request.agent:
            # It stops the sub-agent alone.
            return
        if request.topic == "circles":
            self._note(in_circles(request.question))
        elif request.topic == "overdue":
            self._note(overdue(request.question))

    async def _why_refused(self, request: ApprovalRequest) -> str:
        """Return why a request is refused; empty if it is not."""
        if request.kind == "question":
            return "this run is not interactive, so nobody can answer"
        if request.kind == "plan":
            return "this run is not interactive, so nobody can approve the plan"
        if server := server_of(request.tool):
            # The name of a tool, or of its server, is a rule of one word.
            if (request.tool,) in self._rules or (f"mcp__{server}",) in self._rules:
                return ""
            return f"it needs approval; allow it with --allow {request.tool}"
        if card_of(request.tool).does == "fetch":
            host = json.dumps(urlsplit(request.detail).netloc)
            return f"it needs approval; allow it with allow = [{host}] in [web] of config.toml"
        if not request.changeable:
            return "it needs approval"
        if not self._rules:
            return "it needs approval; allow it with --allow or another --mode"
        from kimi_tui.tools.allowed_commands import why_not_allowed

        why = await asyncio.to_thread(
            why_not_allowed,
            request.detail,
            self._rules,
            Path(self._soul.session.work_dir),
            os.environ,
        )
        return f"it needs approval; {why}" if why else ""
