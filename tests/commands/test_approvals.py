"""`kimi-tui approvals explain`, in words, in JSON and line by line."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
from support.commands import Place

from kimi_tui.tools.command_groups import find_shfmt


def test_what_would_be_asked_is_explained(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_shfmt({}, place.work) is None:
        pytest.skip("there is no shfmt")
    explain = ("approvals", "explain")
    assert place.run(*explain, "--", "ls -l").out == (
        "The agent asks you: it only reads in this folder; you can allow it for the session (reads).\n"
    )
    answer = place.run(
        *explain, "--json", "--approved", "id", "--approved", "ls", "--", "ls", "-l"
    ).json
    assert answer == {
        "ask": False,
        "reason": "it only reads in this folder, and your permission for ls covers this command",
        "class": "reads",
    }
    (place.work / "notes").write_text("x")
    quoted = place.run(*explain, "--approved", "grep x notes", "--", "grep", "a b; c", "notes")
    assert quoted.out.startswith("The agent does not ask you: ")
    chained = place.run(*explain, "--approved", "ls", "--", "ls; id")
    assert chained.out == "The agent asks you: ; may have a special meaning in a shell (unclear).\n"
    lines = [
        '"ls -a"',
        '{"command": "env ls"}',
        '{"command": "id -u", "approved": ["id"]}',
        "{",
        "[1]",
        # One line has one answer, however long it is, and whatever is at the place where it is cut.
        "x" * 65536 + '"ls -a"',
        "\udcff",
        '"ls -a',
    ]
    sent = "\n".join(lines).encode("utf-8", "surrogateescape")
    stdin = SimpleNamespace(buffer=io.BytesIO(sent))
    monkeypatch.setattr("sys.stdin", stdin)
    batch = place.run(*explain, "--approved", "ls", "--batch")
    answers = [json.loads(line) for line in batch.out.splitlines()]
    assert [(one["ask"], one["class"]) for one in answers] == [
        (False, "reads"),
        (True, "never"),
        (False, "reads"),
        (True, "unclear"),
        (True, "unclear"),
        (True, "unclear"),
        (True, "unclear"),
        (True, "unclear"),
    ]
    assert place.run(*explain).code == 2
    assert place.run(*explain, "--batch", "--", "ls").code == 2
