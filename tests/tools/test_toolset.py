from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from support.tool_env import Bench

from kimi_tui.tool_cards import TodoBlock, TodoItem
from kimi_tui.tools import toolset
from kimi_tui.tools.base import Changes, ToolEnv, TypedTool
from kimi_tui.tools.outcome import ToolOutcome, ToolRejected
from kimi_tui.tools.toolset import Toolset, default_toolset


def test_the_specs_are_plain_schemas() -> None:
    specs = default_toolset().specs
    assert [spec.name for spec in specs] == [
        "ReadFile",
        "Glob",
        "Grep",
        "WriteFile",
        "StrReplaceFile",
        "Shell",
        "TaskOutput",
        "TaskStop",
        "FetchURL",
        "SetTodoList",
        "AskUserQuestion",
        "ExitPlanMode",
        "SendDMail",
        "Agent",
    ]
    for spec in specs:
        assert len(spec.description) > 100
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{2,63}", spec.name)
        _check_plain(spec.parameters, spec.name)
        assert spec.parameters["type"] == "object"
        assert set(spec.parameters.get("required", ())) <= set(spec.parameters["properties"])
    assert default_toolset().specs == specs


def _check_plain(node: Any, where: str) -> None:
    """Check that a schema has nothing that strict servers refuse: references, unions, titles, properties without a type."""
    assert not {"$ref", "$defs", "anyOf", "title"} & (set(node) - {"properties"}), where
    for name, child in node.get("properties", {}).items():
        assert isinstance(child["type"], str), f"{where}.{name}"
        _check_plain(child, f"{where}.{name}")
    if "items" in node:
        assert isinstance(node["items"]["type"], str)
        _check_plain(node["items"], f"{where}[]")


@pytest.mark.parametrize(
    "arguments", ["{", '{"path": "a"', '{"path": "a', "nonsense", '{"path": }', "[" * 100_000]
)
async def test_arguments_that_are_not_json(bench: Bench, arguments: str) -> None:
    outcome = await bench.tools.run("ReadFile", arguments, bench.env)
    assert (outcome.is_error, outcome.brief) == (True, "bad JSON")
    assert "not valid JSON" in outcome.message
    assert " at at " not in outcome.message
    assert "send the call again" in outcome.message


@pytest.mark.parametrize("arguments", ["[]", '"a"', "1", '"[]"', "true"])
async def test_arguments_that_are_no_object(bench: Bench, arguments: str) -> None:
    outcome = await bench.tools.run("ReadFile", arguments, bench.env)
    assert "must be one JSON object" in outcome.message


@pytest.mark.parametrize("arguments", [None, "", "  ", "{}", "null", '"{}"', '"null"'])
async def test_no_arguments_name_what_is_required(bench: Bench, arguments: str | None) -> None:
    outcome = await bench.tools.run("ReadFile", arguments, bench.env)
    assert (
        outcome.message
        == "The arguments of ReadFile are not valid; nothing was run. `path` is required."
    )


async def test_wrong_values_name_the_field_and_what_is_expected(bench: Bench) -> None:
    outcome = await bench.run("ReadFile", path="a", n_lines=5000)
    assert "`n_lines` should be less than or equal to 1000, not 5000." in outcome.message
    outcome = await bench.run("ReadFile", path=["a"])
    assert '`path` should be a valid string, not ["a"].' in outcome.message
    outcome = await bench.run("WriteFile", path="a", content="x", mode="add")
    assert "`mode` should be 'overwrite' or 'append', not \"add\"." in outcome.message
    outcome = await bench.run("ReadFile", paht="a")
    assert "`paht` is not a parameter; did you mean `path`?" in outcome.message
    outcome = await bench.run("WriteFile", path="a", content=["x" * 10_000])
    assert len(outcome.message) < 300
    assert bench.approver.asks == []


async def test_null_means_left_out_and_numbers_may_be_text(bench: Bench) -> None:
    bench.write("a", "1\n2\n3\n")
    outcome = await bench.run("ReadFile", path="a", line_offset=None, n_lines="2")
    assert outcome.output == "     1\t1\n     2\t2"


async def test_raw_line_ends_inside_strings_are_taken(bench: Bench) -> None:
    arguments = '{"path": "a", "content": "one\ntwo\n"}'
    outcome = await bench.tools.run("WriteFile", arguments, bench.env)
    assert not outcome.is_error
    assert (bench.work_dir / "a").read_text() == "one\ntwo\n"


async def test_an_unknown_tool_names_the_nearest(bench: Bench) -> None:
    outcome = await bench.run("read_file", path="a")
    assert outcome.message.startswith("There is no tool 'read_file'. Did you mean ReadFile")
    outcome = await bench.run("\ud800" * 500)
    assert outcome.is_error
    outcome.message.encode()


class Nothing(BaseModel):
    pass


class Broken(TypedTool[Nothing]):
    name = "Broken"
    changes: Changes = "nothing"
    params = Nothing
    error: BaseException = RuntimeError("wires crossed \ud800")

    @property
    def description(self) -> str:
        return "breaks"

    async def run(self, params: Nothing, env: ToolEnv) -> ToolOutcome:
        raise self.error


async def test_a_tool_that_breaks_is_an_error_outcome(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its traceback goes to the log, whose lone surrogate no test report could carry.
    monkeypatch.setattr(logging.getLogger("kimi_tui.tools.toolset"), "disabled", True)
    outcome = await Toolset([Broken()]).run("Broken", "{}", bench.env)
    assert (outcome.is_error, outcome.message) == (True, "Broken failed: wires crossed \\ud800")


@pytest.mark.parametrize("error", [ToolRejected("why"), asyncio.CancelledError()])
async def test_a_no_and_a_cancel_pass(bench: Bench, error: BaseException) -> None:
    tool = Broken()
    tool.error = error
    with pytest.raises(type(error)):
        await Toolset([tool]).run("Broken", "{}", bench.env)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
fields = st.sampled_from(
    [
        "path",
        "content",
        "mode",
        "edit",
        "pattern",
        "command",
        "timeout",
        "todos",
        "message",
        "checkpoint_id",
        "line_offset",
    ]
)


@given(
    name=st.sampled_from(
        ["ReadFile", "WriteFile", "StrReplaceFile", "Glob", "SetTodoList", "SendDMail"]
    ),
    arguments=st.dictionaries(fields | st.text(max_size=5), json_values, max_size=4),
)
def test_whatever_the_model_writes_is_answered(
    name: str, arguments: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench = Bench(tmp_path_factory.getbasetemp())
    bench.approver.refuse = ""

    async def call() -> None:
        try:
            outcome = await bench.tools.run(name, json.dumps(arguments), bench.env)
        except ToolRejected:
            return
        (outcome.message + outcome.output).encode()
        assert "failed:" not in outcome.message

    asyncio.run(call())


async def test_the_todo_list(bench: Bench) -> None:
    outcome = await bench.run(
        "SetTodoList",
        todos=[
            {"title": " A test ", "status": "done"},
            {"title": "A fix", "status": "in_progress"},
            {"title": "More", "status": "pending"},
        ],
    )
    items = (
        TodoItem("A test", "done"),
        TodoItem("A fix", "in_progress"),
        TodoItem("More", "pending"),
    )
    assert outcome.effects == (TodoBlock(items),)
    assert outcome.brief == "1 of 3 done"
    assert outcome.output == "[x] A test\n[>] A fix\n[ ] More"
    assert (await bench.run("SetTodoList")).message == "There is no to-do list yet."
    bench.todos = items
    assert (await bench.run("SetTodoList")).output == outcome.output
    outcome = await bench.run("SetTodoList", todos=[{"title": "x", "status": "maybe"}])
    assert "`todos.0.status` should be 'pending', 'in_progress' or 'done'" in outcome.message
    assert (await bench.run("SetTodoList", todos=[])).effects == (TodoBlock(()),)


async def test_a_dmail(bench: Bench) -> None:
    outcome = await bench.run("SendDMail", message="look at a.py", checkpoint_id=2)
    assert bench.mailbox.sent == [("look at a.py", 2, False)]
    assert not outcome.is_error
    assert "NOT sent" in outcome.message
    await bench.run("SendDMail", message="again", checkpoint_id=0, restore_files=True)
    assert bench.mailbox.sent[1] == ("again", 0, True)
    outcome = await bench.run("SendDMail", message="x", checkpoint_id=9)
    assert (outcome.is_error, outcome.message) == (
        True,
        "There is no checkpoint 9; the newest is 3.",
    )
    outcome = await bench.run("SendDMail", message="x", checkpoint_id=-1)
    assert "`checkpoint_id` should be greater than or equal to 0" in outcome.message
    outcome = await bench.run("SendDMail", message="  ", checkpoint_id=1)
    assert outcome.is_error
    assert len(bench.mailbox.sent) == 2


def test_which_tools_run_one_after_another() -> None:
    tools = default_toolset()
    changing = {
        spec.name
        for spec in tools.specs
        if (tool := tools.get(spec.name)) and tool.changes != "nothing"
    }
    assert changing == {
        "WriteFile",
        "StrReplaceFile",
        "Shell",
        "TaskStop",
        "AskUserQuestion",
        "ExitPlanMode",
        "Agent",
    }


async def test_long_arguments_are_read_beside_the_event_loop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in: list[bool] = []
    real = toolset._parameters_of

    def params(tool: Any, arguments: str | None) -> Any:
        read_in.append(threading.current_thread() is threading.main_thread())
        return real(tool, arguments)

    monkeypatch.setattr(toolset, "_parameters_of", params)
    bench.write("a", "x\n")
    await bench.run("ReadFile", path="a")
    edits = [{"old": f"{n}", "new": ""} for n in range(10_000)]
    outcome = await bench.run("StrReplaceFile", path="a", edit=edits)
    assert outcome.is_error
    assert read_in == [True, False]


EDITS = [{"old": "one", "new": "two"}]


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a.txt", "edit": EDITS},
        {"path": "a.txt", "edit": json.dumps(EDITS)},
        {"path": "a.txt", "edit": json.dumps(json.dumps(EDITS))},
        {"path": "a.txt", "edit": json.dumps(EDITS[0])},
        {"path": "a.txt", "edit": [json.dumps(EDITS[0])]},
        {"path": "a.txt", "edit": json.dumps([json.dumps(EDITS[0])])},
        json.dumps({"path": "a.txt", "edit": json.dumps(EDITS)}),
    ],
)
async def test_lists_and_objects_that_are_strings_are_parsed_once_more(
    bench: Bench, arguments: object
) -> None:
    (bench.work_dir / "a.txt").write_text("one")
    await bench.tools.run("ReadFile", json.dumps({"path": "a.txt"}), bench.env)
    outcome = await bench.tools.run("StrReplaceFile", json.dumps(arguments), bench.env)
    assert not outcome.is_error, outcome.message
    assert (bench.work_dir / "a.txt").read_text() == "two"


@pytest.mark.parametrize("text", ["[1, 2]", '{"a": 1}', "null", '"text"'])
async def test_a_string_stays_one_where_a_string_is_wanted(bench: Bench, text: str) -> None:
    values = json.dumps({"path": "a.json", "content": text})
    assert not (await bench.tools.run("WriteFile", values, bench.env)).is_error
    assert (bench.work_dir / "a.json").read_text() == text
    # The same holds if another part of the call is parsed.
    values = json.dumps({"path": "a.json", "edit": json.dumps([{"old": text, "new": "[]"}])})
    outcome = await bench.tools.run("StrReplaceFile", values, bench.env)
    assert not outcome.is_error, outcome.message
    assert (bench.work_dir / "a.json").read_text() == "[]"


async def test_what_is_wrong_is_said_of_what_the_model_wrote(bench: Bench) -> None:
    values = json.dumps({"path": "a.txt", "edit": "[1"})
    outcome = await bench.tools.run("StrReplaceFile", values, bench.env)
    assert "`edit` should be a valid list" in outcome.message
