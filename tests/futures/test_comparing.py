"""What a future is told to have changed: what it did, and not what it could not see."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_tui.futures.comparing import differences
from kimi_tui.workspace.base import NoBase
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.tracker import SnapshotScope, Tracker


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A work folder, and a folder for its snapshots."""
    work, files = tmp_path / "work", tmp_path / "files"
    (work / "build").mkdir(parents=True)
    for name in ("a", "b", ".env", "build/made"):
        (work / name).write_text(f"{name}\n")
    (work / ".gitignore").write_text("build\n")
    return work, files


def test_what_it_could_not_see_did_not_go(places: tuple[Path, Path]) -> None:
    work, files = places
    tracker = Tracker(work, files, Limits(), SnapshotScope())
    assert tracker.first_scan()
    assert tracker.log.last is not None
    since = tracker.log.last.id
    tracker.mark("begun")
    # In a future, secrets and ignored folders may be missing.
    (work / ".env").unlink()
    (work / "build" / "made").unlink()
    (work / "build").rmdir()
    (work / "a").write_text("changed\n")
    (work / "b").unlink()
    tracker.take_snapshot("agent")
    tracker.mark("ended")
    (work / "c").write_text("c\n")
    tracker.take_snapshot("agent")
    tracker.close()
    assert [one.path for one in differences(files, work, since, "begun")] == ["a", "b"]
    assert [one.path for one in differences(files, work, since)] == ["a", "b", "c"]
    for ends in (("none", ""), (since, "none")):
        with pytest.raises(NoBase):
            differences(files, work, *ends)
