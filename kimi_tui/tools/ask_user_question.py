"""AskUserQuestion: what only the user can decide, put to them as questions with options."""

from __future__ import annotations

from typing import ClassVar, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from kimi_tui.foreign_text import one_line
from kimi_tui.tools.base import ApprovalQuestion, Tool, ToolEnv, ToolOutcome

_UNANSWERED = "(left to you)"


class QuestionOption(BaseModel):
    """An answer that is offered."""

    model_config = ConfigDict(extra="forbid")

    label: str = Field(description="The answer in a few words.", min_length=1, max_length=80)
    description: str = Field(default="", description="What follows from it.", max_length=500)


class UserQuestion(BaseModel):
    """One question. Other agents' tools of this name have a `header` besides, which is not shown."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    question: str = Field(
        description="The question, in one sentence.", min_length=1, max_length=1000
    )
    options: list[QuestionOption] = Field(min_length=2, max_length=6)
    multi_select: bool = Field(
        default=False,
        description="Whether several of the options may be chosen.",
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


class AskUserQuestion(Tool[AskUserQuestionParams]):
    """Asks the user; gives back each question with its answer."""

    name: ClassVar[str] = "AskUserQuestion"
    changes: ClassVar[bool] = True
    """Nothing; but of several questions of one step one has to come after another."""
    params = AskUserQuestionParams

    async def run(self, params: AskUserQuestionParams, env: ToolEnv) -> ToolOutcome:
        """Ask them."""
        answers: list[tuple[str, str]] = []
        for number, asked in enumerate(params.questions, 1):
            described = [(one_line(one.label), one_line(one.description)) for one in asked.options]
            where = [f"question {number} of {len(params.questions)}"] * (len(params.questions) > 1)
            where += ["several may be chosen"] * asked.multi_select
            answer = await env.approver.ask(
                ApprovalQuestion(
                    action="ask the user",
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
            else "Decide yourself.",
            brief=one_line(answers[0][1]) if len(answers) == 1 else f"{len(answers)} answers",
        )
