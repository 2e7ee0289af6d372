"""AskUserQuestion: what only the user can decide, put to them as questions with options."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.foreign_text import one_line
from kimi_tui.tools.base import ApprovalQuestion, Tool, ToolEnv, ToolOutcome

_UNANSWERED = "(left to you)"


class QuestionOption(BaseModel):
    """An answer that is offered."""

    model_config = ConfigDict(extra="forbid")

    label: str = Field(description="The answer in a few words.", min_length=1, max_length=80)
    description: str = Field(default="", description="What follows from it.", max_length=500)


class UserQuestion(BaseModel):
    """One question."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(
        description="The question, in one sentence.", min_length=1, max_length=1000
    )
    options: list[QuestionOption] = Field(min_length=2, max_length=6)


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
            many = (
                f"question {number} of {len(params.questions)}" if len(params.questions) > 1 else ""
            )
            answer = await env.approver.ask(
                ApprovalQuestion(
                    action="ask the user",
                    question=one_line(asked.question),
                    detail="\n".join(f"{label}: {words}" for label, words in described if words),
                    where=many,
                    options=tuple(dict.fromkeys(label for label, _ in described if label)),
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
