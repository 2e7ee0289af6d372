"""SetTodoList: the agent's plan, shown to the user."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.tools.base import (
    TodoChange,
    TodoEntry,
    Tool,
    ToolEnv,
    ToolOutcome,
)

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


class Todo(BaseModel):
    """One item."""

    model_config = ConfigDict(extra="forbid")

    title: str = Field(description="What is to be done, in a few words.", min_length=1)
    status: Literal["pending", "in_progress", "done"] = Field(description="How far it is.")


class SetTodoListParams(BaseModel):
    """The whole list."""

    model_config = ConfigDict(extra="forbid")

    todos: list[Todo] | None = Field(
        default=None,
        description="The whole list, replacing the old one. Leave it out to be told the list.",
        max_length=100,
    )


class SetTodoList(Tool[SetTodoListParams]):
    """Sets or reads the list. Stateless: the list is what the calls of the live world line say."""

    name: ClassVar[str] = "SetTodoList"
    changes: ClassVar[bool] = False
    params = SetTodoListParams

    async def run(self, params: SetTodoListParams, env: ToolEnv) -> ToolOutcome:
        """Replace the list, or return it."""
        if params.todos is None:
            if env.todos is None:
                return ToolOutcome(message="No list was set yet.", brief="no list")
            return ToolOutcome(output=_listed(env.todos), message=_count(env.todos))
        items = tuple(TodoEntry(todo.title.strip(), todo.status) for todo in params.todos)
        return ToolOutcome(
            output=_listed(items),
            message="The list is set. " + _count(items),
            brief=_count(items).rstrip("."),
            effects=(TodoChange(items),),
        )


def _listed(items: tuple[TodoEntry, ...]) -> str:
    return "\n".join(f"{_MARKS[item.status]} {item.title}" for item in items)


def _count(items: tuple[TodoEntry, ...]) -> str:
    if not items:
        return "It is empty."
    done = sum(item.status == "done" for item in items)
    return f"{done} of {len(items)} done."
