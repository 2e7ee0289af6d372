"""Some folders are never followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_tui.workspace.tracker import refusal_reason


@pytest.mark.parametrize("folder", ["/", "/home", "/home/someone", "/root", "/Users/someone"])
def test_a_home_folder_and_what_is_above_it_are_refused(folder: str) -> None:
    said = refusal_reason(Path(folder))
    assert "no file snapshots" in said
    assert ("the root of the disk" in said) == (folder == "/")


def test_the_home_of_the_environment_and_its_parents_are_refused(tmp_path: Path) -> None:
    home = tmp_path / "people/me"
    (home / "work").mkdir(parents=True)
    assert "home folder" in refusal_reason(home, [str(home)])
    assert "contains a home folder" in refusal_reason(home.parent, [str(home)])
    assert refusal_reason(home / "work", [str(home)]) == ""
    (tmp_path / "link").symlink_to(home)
    assert "home folder" in refusal_reason(tmp_path / "link", [str(home)])
