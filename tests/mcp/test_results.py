"""What a model is told of the contents that a server sends."""

from __future__ import annotations

import base64

import mcp_types
import pytest

from kimi_tui.mcp.results import resource_texts


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
