"""What an external agent sends, line by line: only messages that the package can take get through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("acp", reason="the package agent-client-protocol is not installed")

from kimi_tui.external.pipe import message_in

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
UPDATES = st.fixed_dictionaries(
    {"method": st.just("session/update") | VALUES},
    optional={"id": VALUES, "params": VALUES, "result": VALUES, "error": VALUES},
)


@settings(max_examples=40)
@given(UPDATES | VALUES)
def test_no_line_breaks_the_reader(value: Any) -> None:
    found = message_in(json.dumps(value).encode())
    if found is None:
        return
    if "method" in found:
        assert isinstance(found["method"], str)
        assert isinstance(found.get("params"), dict | None)
        assert isinstance(found.get("id", 0), int | str)
    else:
        assert isinstance(found["id"], int)
        error = found.get("error")
        assert error is None or isinstance(error["code"], int)


def update(which: str, **fields: Any) -> bytes:
    """Return the line of an update."""
    params = {"sessionId": "s", "update": {"sessionUpdate": which, **fields}}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()


@pytest.mark.parametrize(
    ("line", "is_taken"),
    [
        (update("agent_message_chunk", content={"type": "text", "text": "hi"}), True),
        (update("agent_message_chunk", content={"type": "text"}), False),
        (update("tool_call", toolCallId="1", title="t", kind="no such kind"), True),
        (update("of_the_future", x=1), False),
        (b'{"jsonrpc": "2.0", "method": "window/logMessage", "params": {}}', False),
        (b'{"jsonrpc": "2.0", "method": "_of_the_agent/told", "params": {}}', True),
        (b'{"jsonrpc": "2.0", "id": "a", "method": "fs/read_text_file"}', True),
        (b'{"jsonrpc": "2.0", "id": [1], "method": "fs/read_text_file", "params": {}}', False),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "fs/read_text_file", "params": [1]}', False),
        (b"\xff\xfe", False),
        (b"[" * 100_000, False),
    ],
    ids=str,
)
def test_what_is_taken(line: bytes, is_taken: bool) -> None:
    assert (message_in(line) is not None) is is_taken


@pytest.mark.parametrize(("code", "told"), [(-32000, -32000), ("odd", -32603), (None, -32603)])
def test_an_error_always_has_a_code_and_words(code: Any, told: int) -> None:
    line = json.dumps({"id": 1, "error": {"code": code, "message": "", "data": [1]}}).encode()
    assert message_in(line) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": told, "message": "an error without a message", "data": [1]},
    }
