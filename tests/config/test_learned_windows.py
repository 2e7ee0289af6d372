"""Windows that servers told, from one start to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_tui.config import learned_windows
from kimi_tui.config.learned_windows import note_window, window_before

URL = "https://me:not-for-files@example.test/v1"


def test_a_window_is_known_at_the_next_start_and_its_server_is_not_named(tmp_path: Path) -> None:
    assert window_before(tmp_path, URL, "kimi") is None
    note_window(tmp_path, URL, "kimi", 131_072)
    note_window(tmp_path, URL, "other", 32_000)
    note_window(tmp_path, URL, "kimi", 65_536)
    assert window_before(tmp_path, URL, "kimi") == 65_536
    assert window_before(tmp_path, URL, "other") == 32_000
    assert window_before(tmp_path, "https://example.test/v1", "kimi") is None
    (kept,) = tmp_path.iterdir()
    assert b"not-for-files" not in kept.read_bytes()


def test_the_first_is_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_windows, "_MOST", 2)
    for name in ("a", "b", "a", "c"):
        note_window(tmp_path, URL, name, 10_000 + ord(name) + len(name))
    known = [name for name in ("a", "b", "c") if window_before(tmp_path, URL, name)]
    # A window that did not change is not noted again.
    assert known == ["b", "c"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": "b"}', "[" * 100_000, "\ud800"])
def test_a_damaged_file_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "windows.json").write_bytes(text.encode(errors="surrogatepass"))
    assert window_before(tmp_path, URL, "kimi") is None
    note_window(tmp_path, URL, "kimi", 131_072)
    assert window_before(tmp_path, URL, "kimi") == 131_072


def test_a_disk_that_refuses_is_no_trouble(tmp_path: Path) -> None:
    note_window(tmp_path / "not" / "there", URL, "kimi", 131_072)
    assert window_before(tmp_path / "not" / "there", URL, "kimi") is None
