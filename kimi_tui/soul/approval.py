"""Approvals: decides by mode and permissions whether an action needs one (`_needs_approval`), and asks the user.

The program itself asks here, too, how a turn is to go on (`Approval.pause`).

Requests are published on the wire one after another: the next when the one before has been answered, and not at all where
that answer covers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, get_args
from uuid import uuid4

from kimi_tui.agent_parts import MODE_TITLES
from kimi_tui.app_paths import log_words, reason_of
from kimi_tui.config.permissions import ProjectPermissions
from kimi_tui.prompts import prompt
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.tool_results import change_more_than, diffs_of
from kimi_tui.tool_cards import DisplayBlock
from kimi_tui.tools.base import ApprovalQuestion, Asks, Mode
from kimi_tui.tools.outcome import ToolProblem, ToolRejected
from kimi_tui.tools.session_tools import MODE_AFTER
from kimi_tui.wire.events import (
    ApprovalAnswer,
    ApprovalRequest,
    ApprovalResolved,
    ModeChanged,
    Notice,
    PauseTopic,
)
from kimi_tui.wire.queue import Wire

log = logging.getLogger(__name__)

MOST_LINES = 100_000
"""Maximum lines of the diff in a request. Nobody reads more, and each takes memory until the request is answered."""
_TOO_LONG = f"The user cannot be asked about a change of more than {MOST_LINES:,} lines: make it in parts, or with a command."


class QuestionNotShown(SoulError):
    """A request could not be shown to the user, so that its action must not be carried out."""

    def __init__(self, tool: str, error: Exception) -> None:
        super().__init__(
            f"A question from {tool} could not be shown ({type(error).__name__}), so it was answered with no.",
            advice=log_words(),
        )


class Hears(Protocol):
    """Takes an event of an agent beside the session's own, which goes into its own record."""

    def publish(self, event: ApprovalRequest | ApprovalResolved) -> object:
        """Take an event."""
        ...


@dataclass(frozen=True, slots=True)
class _Decision:
    answer: ApprovalAnswer
    feedback: str = ""


@dataclass(slots=True)
class _PendingQuestion:
    ask: ApprovalQuestion
    key: str
    tool: str
    agent: str = ""
    """The agent beside the session's own that asks; empty for the session's own."""
    also: Hears | None = None
    """The function that takes the events of that agent: its wire."""
    id: str = field(default_factory=lambda: str(uuid4()))
    changed_first: str = ""
    """The answer that a yes to a plan which the user changed stands for, in the words shown; empty without a plan."""
    decision: asyncio.Future[_Decision] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Approval:
    """Approves actions by the mode and by permissions given before; else publishes a request and waits for the answer.

    Args:
        wire: where requests are published.
        mode: the first mode.
        project: the permissions for the work folder, which hold in every session; None for none.

    Attributes:
        once_only: whether no yes is offered that holds for the session or the project.
    """

    def __init__(
        self, wire: Wire, mode: Mode = "ask", project: ProjectPermissions | None = None
    ) -> None:
        self.once_only = False
        self._wire = wire
        self._project = project
        self._storing: asyncio.Task[None] | None = None
        """The task that stores the newest permission for the project."""
        self._mode: Mode = mode
        self._before_plan: Mode = "ask"
        self._allowed: dict[str, str] = {}
        """The permissions given for the session: their keys, with the words of the answers that gave them."""
        self._turns = asyncio.Lock()
        """The question on the screen holds this lock; the others wait for it in the order in which they came."""
        self._shown: _PendingQuestion | None = None
        self._closed = False

    @property
    def mode(self) -> Mode:
        """The approval mode.

        The modes ask for everything; for all but edits in the work folder; for all but these and sandboxed commands; or only
        for what is protected. In plan mode nothing may be changed.
        """
        return self._mode

    def set_mode(self, mode: Mode) -> None:
        """Set the approval mode and publish it. A request on the screen still waits for its answer: it may not have been read yet.

        Permissions for the session are revoked, unless the new mode asks for less than the one before.
        """
        modes = get_args(Mode)
        if modes.index(mode) <= modes.index(self._mode):
            self._allowed.clear()
        if mode == "plan" != self._mode:
            self._before_plan = self._mode
        if mode != self._mode:
            self._mode = mode
            self._wire.publish(ModeChanged(mode))

    @contextlib.contextmanager
    def reading_only(self) -> Generator[None]:
        """Let nothing be changed meanwhile, as in plan mode; the mode and the permissions of before come back at the end.

        A mode that the user chooses meanwhile stays.
        """
        before, allowed = self._mode, dict(self._allowed)
        self.set_mode("plan")
        try:
            yield
        finally:
            if self._mode == "plan" != before:
                self.set_mode(before)
                self._allowed = allowed

    @property
    def allowed(self) -> tuple[str, ...]:
        """The permissions given for the session, each in the words of the answer that gave it."""
        return tuple(self._allowed.values())

    def allows(self, key: str) -> bool:
        """Return whether the action of this key was allowed for the session."""
        return key in self._allowed

    def allow(self, key: str, words: str) -> None:
        """Allow the actions of this key for the session; `allowed` shows the permission as `words`."""
        self._allowed[key] = words

    def revoke(self, words: str) -> None:
        """Revoke a permission.

        Args:
            words: one of `allowed`.
        """
        self._allowed = {key: said for key, said in self._allowed.items() if said != words}

    async def ask(
        self,
        ask: ApprovalQuestion,
        *,
        key: str,
        tool: str,
        agent: str = "",
        also: Hears | None = None,
    ) -> str:
        """Wait for the user's approval.

        Args:
            ask: the question.
            key: the key of the tool call that asks.
            tool: the tool's name.
            agent: the agent beside the session's own that asks.
            also: the wire of that agent, on which question and answer are published too.

        Returns:
            the text that the user put in place of a D-Mail or a command; empty without a change.

        Raises:
            ToolRejected: the answer is no.
            ToolProblem: an edit in plan mode.
            QuestionNotShown: the request could not be shown.
        """
        if self._mode == "plan" and ask.asks.is_change:
            raise ToolProblem(prompt("plan_refused"), brief="plan mode")
        if not self._needs_approval(ask) or await self._is_allowed_in_project(ask):
            return ""
        if self.once_only:
            ask = replace(ask, session_key="", project_rule="")
        async with self._turns:
            decision = await self._put(_PendingQuestion(ask, key, ask.tool or tool, agent, also))
        if decision.answer == "no":
            raise ToolRejected(decision.feedback)
        if self._mode == "plan" and ask.asks.is_change:
            # The user changed the mode while the question was shown.
            raise ToolProblem(prompt("plan_refused"), brief="plan mode")
        return decision.feedback

    async def pause(
        self,
        question: str,
        options: Sequence[str],
        *,
        detail: str = "",
        where: str = "",
        words_offer: str = "",
        no_offer: str = "Stop the turn",
        topic: PauseTopic = "",
    ) -> str | None:
        """Pause the turn, in every mode, until the user has said how it goes on.

        To cancel this withdraws the question: it needs no answer any more.

        Args:
            question: what has happened and what is asked, in one sentence or two.
            options: the answers with which the turn goes on, the likeliest first.
            detail: what has to be read before the answer, whole: a command, a call.
            where: what is to be known beside it, in a few words.
            words_offer: the label of the answer in the user's own words; empty if these would not help.
            no_offer: the label of the no.
            topic: what it is about, for callers without a person.

        Returns:
            one of the options, or the user's own words; None for no.

        Raises:
            QuestionNotShown: the question could not be shown.
        """
        ask = ApprovalQuestion(
            asks=Asks("pause"),
            question=question,
            detail=detail,
            where=where,
            protected=True,
            options=tuple(options),
            words_offer=words_offer,
            no_offer=no_offer,
            topic=topic,
        )
        try:
            return await self.ask(ask, key="", tool="")
        except ToolRejected:
            return None

    def answer(self, request_id: str, answer: ApprovalAnswer, feedback: str = "") -> bool:
        """Take the user's answer to a request; False if that is not the one published now."""
        shown = self._shown
        if shown is None or shown.id != request_id or shown.decision.done():
            return False
        feedback = feedback.strip()
        is_offered = feedback in shown.ask.options or (feedback and shown.ask.words_offer)
        if shown.ask.asks.kind == "pause" and answer != "no" and not is_offered:
            feedback = shown.ask.options[0]
        if answer in ("session", "project"):
            if not shown.ask.session_key or shown.ask.protected:
                answer = "once"
            elif answer == "project" and self._offers_project(shown.ask):
                before, self._storing = self._storing, None
                self._storing = asyncio.create_task(self._store(shown.ask, before), name="store")
            else:
                answer = "session"
                self._allowed[shown.ask.session_key] = shown.ask.session_offer
        if shown.ask.asks.kind == "plan" and answer != "no":
            # The mode that the user was offered with the plan holds from the yes on, before the agent goes on.
            agreed = feedback
            if agreed not in shown.ask.options:
                agreed = shown.changed_first
            self.set_mode(MODE_AFTER[agreed])
        shown.decision.set_result(_Decision(answer, feedback))
        self._publish(shown, ApprovalResolved(shown.id, answer, feedback))
        return True

    def _publish(self, asked: _PendingQuestion, event: ApprovalRequest | ApprovalResolved) -> None:
        """Publish a question or its answer; one of another agent also on that one's wire, where its call is known."""
        if asked.also is not None:
            asked.also.publish(event)
            if isinstance(event, ApprovalRequest):
                event = replace(event, key="", agent=asked.agent, stops=False)
        self._wire.publish(event)

    async def project_rules(self) -> tuple[str, ...]:
        """Return the permissions for the work folder that hold in every session."""
        if self._project is None:
            return ()
        await self.stored()
        return await asyncio.to_thread(lambda: self._project.rules if self._project else ())

    async def revoke_for_project(self, rule: str) -> None:
        """Revoke one of `project_rules`.

        Raises:
            OSError: the disk refused; it still holds.
            ValueError: the file of permissions is damaged.
        """
        await self.stored()
        if self._project is not None:
            await asyncio.to_thread(self._project.remove, rule)

    async def stored(self) -> None:
        """Wait until the permissions that were given for the project are on the disk."""
        if self._storing is not None:
            await asyncio.shield(self._storing)

    def close(self) -> None:
        """Publish no further request, and cancel the calls that wait."""
        self._closed = True
        if self._shown is not None:
            self._shown.decision.cancel()

    def _needs_approval(self, ask: ApprovalQuestion) -> bool:
        """Return whether the user must be asked: neither the mode nor a permission for the session allows the action already."""
        if ask.protected:
            return True
        if ask.sandboxed and self._mode in ("sandboxed", "plan"):
            return False
        if ask.session_key and ask.session_key in self._allowed:
            return False
        return self._mode not in ask.asks.unasked

    def _offers_project(self, ask: ApprovalQuestion) -> bool:
        """Return whether a yes for the project is offered: where one for the session is, and the folder can have permissions."""
        return bool(
            self._project is not None
            and ask.session_key
            and ask.project_rule
            and ask.project_offer
            and not ask.protected
        )

    async def _is_allowed_in_project(self, ask: ApprovalQuestion) -> bool:
        """Return whether a permission for the project covers an action. The file is read each time: it may have been revoked
        in another process.
        """
        return self._offers_project(ask) and ask.project_rule in await self.project_rules()

    async def _store(self, ask: ApprovalQuestion, before: asyncio.Task[None] | None) -> None:
        """Store a permission for the project, after the one before; if that fails, it holds for the session."""
        if before is not None:
            await before
        assert self._project is not None
        try:
            await asyncio.to_thread(self._project.add, ask.project_rule)
        except (OSError, ValueError) as error:
            self._allowed[ask.session_key] = ask.session_offer
            self._wire.publish(
                Notice(
                    "warning",
                    f"The permission could not be saved: {reason_of(error)}.",
                    "It is valid for this session only.",
                )
            )

    def _changed_first(self, ask: ApprovalQuestion) -> str:
        """Return the answer that a yes to a plan which the user changed stands for.

        They have chosen none of the offered modes. So this is the mode of before, or the laxest offered one that asks more.
        """
        modes = get_args(Mode)
        laxest = modes.index(self._before_plan)
        allowed = [words for words in ask.options if modes.index(MODE_AFTER[words]) <= laxest]
        return max(allowed, key=lambda words: modes.index(MODE_AFTER[words]))

    async def _put(self, waiting: _PendingQuestion) -> _Decision:
        """Show one question until it is answered; show nothing if it needs no approval any more."""
        ask, where = waiting.ask, waiting.ask.where
        try:
            display: tuple[DisplayBlock, ...] = ()
            if await self._is_allowed_in_project(ask):
                # The question before this one gave the permission.
                return _Decision("project")
            if self._needs_approval(ask):
                if await change_more_than(ask.edits, MOST_LINES):
                    raise ToolProblem(_TOO_LONG, brief="too long")
                display = await diffs_of(ask.edits)
            if not self._needs_approval(ask):
                return _Decision("session")
            if self._closed:
                raise asyncio.CancelledError
            offers_project = self._offers_project(ask) and await asyncio.to_thread(
                lambda: self._project is not None and self._project.is_usable
            )
            self._shown = waiting
            if ask.asks.kind == "plan":
                # A change of mode while the question is shown does not change what the question offers.
                waiting.changed_first = self._changed_first(ask)
                where = f"If you edit the plan, the agent carries it out in {MODE_TITLES[MODE_AFTER[waiting.changed_first]]} mode"
            self._publish(
                waiting,
                ApprovalRequest(
                    id=waiting.id,
                    key=waiting.key,
                    tool=waiting.tool,
                    question=ask.question,
                    detail=ask.detail,
                    where=where,
                    display=display,
                    session_offer=ask.session_offer if ask.session_key else "",
                    project_offer=ask.project_offer if offers_project else "",
                    kind=ask.asks.kind,
                    options=ask.options,
                    multi_select=ask.multi_select,
                    words_offer=ask.words_offer,
                    no_offer=ask.no_offer,
                    checkpoint_id=ask.checkpoint_id,
                    # A no to a question that no tool call asks does not end the turn.
                    stops=bool(waiting.key) and ask.asks.stops,
                    changeable=ask.changeable,
                    topic=ask.topic,
                ),
            )
            return await waiting.decision
        except asyncio.CancelledError:
            if waiting.decision.cancelled():
                self._publish(waiting, ApprovalResolved(waiting.id, "no", "stopped"))
            raise
        except ToolProblem:
            raise
        except Exception as error:
            # The caller gets the error as a no, and the next question is shown all the same.
            log.exception("a question could not be put")
            raise QuestionNotShown(waiting.tool, error) from error
        finally:
            self._shown = None


class AgentApproval(Approval):
    """The approvals of an agent beside the session's own: mode, permissions and the one queue of questions are the session's.

    Args:
        session: the approvals of the session's agent.
        wire: the wire of this agent.
        agent: its name.
    """

    def __init__(self, session: Approval, wire: Wire, agent: str) -> None:
        super().__init__(wire)
        self._of_session = session
        self._agent = agent

    @property
    def mode(self) -> Mode:
        """The approval mode of the session."""
        return self._of_session.mode

    def set_mode(self, mode: Mode) -> None:
        """Set the approval mode of the session."""
        self._of_session.set_mode(mode)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The permissions given for the session."""
        return self._of_session.allowed

    def allows(self, key: str) -> bool:
        """Return whether the action of this key was allowed for the session."""
        return self._of_session.allows(key)

    def allow(self, key: str, words: str) -> None:
        """Allow the actions of this key for the session."""
        self._of_session.allow(key, words)

    async def ask(self, ask: ApprovalQuestion, *, key: str, tool: str, **_: object) -> str:
        """Wait for the user's approval; the question names this agent."""
        return await self._of_session.ask(
            ask, key=key, tool=tool, agent=self._agent, also=self._wire
        )
