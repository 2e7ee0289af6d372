"""Display names of the tools: a module of its own because the engine's labels and the screen's share it.

Models, stored sessions and machine-readable output have the tools' full names.
"""

from __future__ import annotations

from kimi_tui.foreign_text import one_line

_SHORT = {
    "Shell": "Shell",
    "TaskOutput": "Output",
    "TaskStop": "Stop",
    "ReadFile": "Read",
    "WriteFile": "Write",
    "StrReplaceFile": "Edit",
    "Glob": "Glob",
    "Grep": "Grep",
    "SetTodoList": "Todo",
    "SendDMail": "D-Mail",
    "AskUserQuestion": "Ask",
    "ExitPlanMode": "Plan",
}


def short_name(tool: str) -> str:
    """How a tool is called on the screen: `Read`, and `server/tool` for tools of a server."""
    known = _SHORT.get(tool)
    if known is not None:
        return known
    return one_line(tool.removeprefix("mcp__").replace("__", "/", 1)) or "tool"
