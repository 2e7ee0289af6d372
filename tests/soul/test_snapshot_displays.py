"""Tests for `kimi_tui.soul.snapshot_displays`: what calls of a world line changed is read from snapshots."""

from __future__ import annotations

from pathlib import Path

from support.followed_folder import Place

from kimi_tui.soul.snapshot_displays import with_displays
from kimi_tui.wire import events as ev


def test_new_files_that_a_rule_ignores_do_not_count_as_lost(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(".gitignore", "__pycache__/\n")
    place.write("kept.txt", "one\n")
    begin = place.begin()
    place.agent(("new.py", "print()\n"), ("__pycache__/new.pyc", "compiled"), ("kept.txt", "two\n"))
    end = place.mark()
    place.tracker.close()
    step = (
        ev.CheckpointCreated(0, begin, "step"),
        ev.ToolCall("k", "Shell", '{"command": "make"}', "call"),
        ev.ToolResult("k", False, "made", id="call"),
        ev.CheckpointCreated(1, end, "step"),
    )
    told = with_displays(tmp_path / "files", str(place.root), step)
    (found,) = (one for one in told if isinstance(one, ev.FilesChanged))
    assert found.paths == ("kept.txt", "new.py")
    assert (found.added, found.removed, found.lost) == (2, 1, 0)
    assert (found.ignored, found.ignored_paths) == (1, ("__pycache__",))
