"""What a model is told of the contents that a server sends."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp_types
import pytest

from kimi_tui.mcp.results import outcome_of, resource_texts


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (None, "binary"),
        ("", "binary"),
        ("application/pdf", "application/pdf"),
        ("a\x1b]0;b", "a"),
    ],
)
async def test_bytes_are_named_by_their_kind_and_size(kind: str | None, said: str) -> None:
    blob = base64.b64encode(b"x" * 30).decode()
    found = mcp_types.BlobResourceContents(uri="made://one", blob=blob, mime_type=kind)
    texts, images = await resource_texts([found], sees=True)
    assert images == []
    (text,) = texts
    assert text.startswith(f"[resource made://one, {said}")
    assert text.endswith(", not shown]")
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("texts", "structured", "output"),
    [
        (["words"], {"a": 1}, "words"),
        ([], {"a": 1}, '{\n "a": 1\n}'),
        (["words"], None, "words"),
        ([], None, ""),
    ],
)
async def test_fields_are_told_only_where_there_are_no_words(
    texts: list[str], structured: dict[str, Any] | None, output: str, tmp_path: Path
) -> None:
    content: list[mcp_types.ContentBlock] = [
        mcp_types.TextContent(type="text", text=text) for text in texts
    ]
    result = mcp_types.CallToolResult(content=content, structured_content=structured)
    env: Any = SimpleNamespace(sees=False, room_chars=10_000, environ={})
    outcome = await outcome_of(result, "made", env, tmp_path)
    assert outcome.output == output
    assert ("sent no text" in outcome.message) == (not output)
