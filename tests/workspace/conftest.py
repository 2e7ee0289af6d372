"""Snapshots are many small files: they are kept where making and removing one costs little."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.quick_disk import tmp_path as tmp_path

from kimi_tui.workspace.inotify import Inotify


@pytest.fixture(autouse=True)
def no_instance_is_left() -> Iterator[None]:
    """Close what a tracker that "was killed" would leave open: a user has few inotify instances."""
    made: list[Inotify] = []
    begin = Inotify.__init__

    def begun(self: Inotify) -> None:
        begin(self)
        made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Inotify, "__init__", begun)
        yield
    for one in made:
        one.close()
