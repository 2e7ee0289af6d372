"""What `make bench` says of its ratios: which are worse than before, and which were compared with nothing."""

from __future__ import annotations

import pytest

from bench import stream


def test_each_ratio_is_compared_or_said_why_not(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setattr(stream, "_STORED", tmp_path_factory.mktemp("ratios") / "ratios.json")
    before = {
        "ours": {"start": 10.0, "gone": 1.0, "as it was": 5.0, "memory": 7.0},
        "pi": {"start": 20.0, "gone": 1.0, "as it was": 5.0},
    }
    assert stream.compared(before, store=True) == 0
    assert capsys.readouterr().out == "not compared: nothing was measured beside memory\n"
    now = {
        "ours": {"start": 20.0, "as it was": 5.0, "memory": 9.0, "new": 3.0},
        "pi": {"start": 20.0, "as it was": 5.0, "new": 3.0},
    }
    assert stream.compared(now, store=False) == 1
    assert capsys.readouterr().out.splitlines() == [
        "worse: start is 1.00 of pi, was 0.50",
        "not compared: nothing was measured beside memory",
        "not compared: no ratio to pi is stored (--store does that) for new",
        "not compared: no ratio to pi was measured for gone",
    ]
