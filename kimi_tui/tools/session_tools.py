"""Tools that affect nothing but the session: SendDMail, SetTodoList, AskUserQuestion and ExitPlanMode.

A D-Mail waits in the soul's mailbox (`soul.denwarenji`) for the end of the step; the todo list is computed from the calls of
the live world line (`soul.tool_results`); and questions are shown like approvals (`soul.approval`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from kimi_tui.foreign_text import one_line
from kimi_tui.tool_cards import TodoBlock, TodoItem
from kimi_tui.tools.base import ApprovalQuestion, Asks, Changes, Mode, ToolEnv, TypedTool
from kimi_tui.tools.outcome import ToolOutcome, failure


class SendDMailParams(BaseModel):
    """The message and where it goes."""

    model_config = ConfigDict(extra="forbid")

    message: str = Field(
        description="What your past self should know.",
        min_length=1,
    )
    checkpoint_id: int = Field(description="The checkpoint to go back to.", ge=0)
    restore_files: bool = False


class SendDMail(TypedTool[SendDMailParams]):
    """Queues D-Mails. They are sent when the step ends and the soul takes them from the mailbox."""

    name = "SendDMail"
    changes: Changes = "nothing"
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
        # A revert removes this result with everything else. If the model reads it, there was no revert, or the user came back
        # here.
        return ToolOutcome(
            message="The conversation continues here without the D-Mail. If another call of the same step was refused or "
            "failed, the D-Mail was NOT sent: continue, or send it again alone. Otherwise the user undid it: do not send "
            "it again unless asked.",
            brief=f"to #{params.checkpoint_id}",
        )


_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


class Todo(BaseModel):
    """One item."""

    model_config = ConfigDict(extra="forbid")

    title: str = Field(min_length=1)
    status: Literal["pending", "in_progress", "done"]


class SetTodoListParams(BaseModel):
    """The whole list."""

    model_config = ConfigDict(extra="forbid")

    todos: list[Todo] | None = Field(default=None, max_length=100)


class SetTodoList(TypedTool[SetTodoListParams]):
    """Sets or reads the todo list. It is stateless: the calls of the live world line define the list."""

    name = "SetTodoList"
    changes: Changes = "nothing"
    params = SetTodoListParams

    async def run(self, params: SetTodoListParams, env: ToolEnv) -> ToolOutcome:
        """Replace the list, or return it."""
        if params.todos is None:
            if env.todos is None:
                return ToolOutcome(message="There is no to-do list yet.", brief="no list")
            return ToolOutcome(output=_listed(env.todos), message=_count(env.todos))
        items = tuple(TodoItem(todo.title.strip(), todo.status) for todo in params.todos)
        return ToolOutcome(
            output=_listed(items),
            message="The to-do list is set. " + _count(items),
            brief=_count(items).rstrip("."),
            effects=(TodoBlock(items),),
        )


def _listed(items: tuple[TodoItem, ...]) -> str:
    return "\n".join(f"{_MARKS[item.status]} {item.title}" for item in items)


def _count(items: tuple[TodoItem, ...]) -> str:
    if not items:
        return "It is empty."
    done = sum(item.status == "done" for item in items)
    return f"{done} of {len(items)} done."


_UNANSWERED = "(the user leaves this to you)"


class QuestionOption(BaseModel):
    """An answer that is offered."""

    model_config = ConfigDict(extra="forbid")

    label: str = Field(description="A few words.", min_length=1, max_length=80)
    description: str = Field(default="", max_length=500)


class UserQuestion(BaseModel):
    """One question. Other agents' tools of this name have a `header` besides, which is not shown."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    question: str = Field(description="One sentence.", min_length=1, max_length=1000)
    options: list[QuestionOption] = Field(min_length=2, max_length=6)
    multi_select: bool = Field(
        default=False,
        validation_alias=AliasChoices("multi_select", "multiSelect", "multiple"),
    )

    @model_validator(mode="before")
    @classmethod
    def _without_header(cls, data: object) -> object:
        if isinstance(data, dict):
            given = cast("dict[object, object]", data)
            return {key: value for key, value in given.items() if key != "header"}
        return data


class AskUserQuestionParams(BaseModel):
    """The questions, asked one after another."""

    model_config = ConfigDict(extra="forbid")

    questions: list[UserQuestion] = Field(min_length=1, max_length=4)


class AskUserQuestion(TypedTool[AskUserQuestionParams]):
    """Asks the user questions; returns each question with its answer."""

    name = "AskUserQuestion"
    changes: Changes = "order"
    """Calls change nothing, but the questions of one step must come one after another."""
    params = AskUserQuestionParams

    async def run(self, params: AskUserQuestionParams, env: ToolEnv) -> ToolOutcome:
        """Ask the questions one after another; the result has the answers."""
        answers: list[tuple[str, str]] = []
        for number, asked in enumerate(params.questions, 1):
            described = [(one_line(one.label), one_line(one.description)) for one in asked.options]
            where = [f"question {number} of {len(params.questions)}"] * (len(params.questions) > 1)
            where += ["you can choose several"] * asked.multi_select
            answer = await env.approver.ask(
                ApprovalQuestion(
                    asks=Asks("question"),
                    question=one_line(asked.question),
                    detail="\n".join(f"{label}: {words}" for label, words in described if words),
                    where=", ".join(where),
                    options=tuple(dict.fromkeys(label for label, _ in described if label)),
                    multi_select=asked.multi_select,
                    protected=True,
                )
            )
            answers.append((one_line(asked.question), answer or _UNANSWERED))
        return ToolOutcome(
            output="\n".join(f"{question} {answer}" for question, answer in answers),
            message="The user answered."
            if any(a != _UNANSWERED for _, a in answers)
            else "The user leaves the decision to you.",
            brief=one_line(answers[0][1]) if len(answers) == 1 else f"{len(answers)} answers",
        )


YES_AND = "Yes, and "
MODE_AFTER: Mapping[str, Mode] = {
    f"{YES_AND}run sandboxed commands without asking": "sandboxed",
    f"{YES_AND}accept edits": "edits",
    f"{YES_AND}ask before every change": "ask",
}
"""The answers that end plan mode, with the mode that follows; the first needs a sandbox."""


class ExitPlanModeParams(BaseModel):
    """The plan."""

    model_config = ConfigDict(extra="forbid")

    plan: str = Field(min_length=1, max_length=100_000)


class ExitPlanMode(TypedTool[ExitPlanModeParams]):
    """Presents a plan. The answer sets the mode that follows, in the module that stores approvals."""

    name = "ExitPlanMode"
    changes: Changes = "order"
    """Calls change nothing, but later calls of the same step were not approved with the plan."""
    params = ExitPlanModeParams

    async def run(self, params: ExitPlanModeParams, env: ToolEnv) -> ToolOutcome:
        """Ask the user to approve the plan."""
        if not env.reads_only:
            return failure("Plan mode is off: carry the plan out.", brief="plan mode is off")
        offered = [words for words in MODE_AFTER if env.sandbox or MODE_AFTER[words] != "sandboxed"]
        answer = await env.approver.ask(
            ApprovalQuestion(
                asks=Asks("plan"),
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
            message="The user agreed, but changed the plan: carry out this version.",
            brief="agreed, with changes",
        )
