"""The files that the agent had changed by the moment that is shown, as a list at the foot of the timeline."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from kimi_tui.projection.replay import ChangedFile
from kimi_tui.tui import formatting
from kimi_tui.tui.frame.frame import SHORT_BELOW
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.screens import app_of

MOST = 5
MOST_IF_SHORT = 2
"""In a low screen the checkpoints need the room."""


class ReplayFiles(Widget):
    """The files at this moment, at most five of them, in a low screen two; hidden where there are none."""

    files: reactive[tuple[ChangedFile, ...]] = reactive((), layout=True)

    def watch_files(self, files: tuple[ChangedFile, ...]) -> None:
        """An empty list takes no room."""
        self.display = bool(files)

    def render(self) -> Content:
        """A title, and a row a file."""
        width = self.content_size.width
        glyphs = glyphs_of(self)
        rows: list[tuple[str, str] | str] = [("Files at this moment", "$ink-quiet")]
        is_short = app_of(self).size.height < SHORT_BELOW
        most = MOST_IF_SHORT if is_short else MOST
        shown = self.files[: most if len(self.files) <= most else most - 1]
        since = [_since(file, glyphs) for file in shown]
        room = max(1, width - max((cell_len(words) for words in since), default=0) - 2)
        names = [formatting.path(file.path, room, glyphs.cut) for file in shown]
        widest = max((cell_len(name) for name in names), default=0)
        for name, words in zip(names, since, strict=True):
            gap = " " * (widest - cell_len(name) + 2)
            rows += ["\n", (name, "$ink"), (gap + words, "$ink-quiet")]
        if len(self.files) > len(shown):
            rows.append(
                (f"\n+{formatting.counted(len(self.files) - len(shown), 'file')}", "$ink-quiet")
            )
        return Content.assemble(*rows)


def _since(file: ChangedFile, glyphs: Glyphs) -> str:
    if file.id < 0:
        return "as before"
    # Numbers begin anew after a compaction, and those of a line that was left are given again.
    sign = glyphs.compaction if file.is_compacted else glyphs.lost if file.is_left else ""
    return f"as at #{file.id} {sign}".rstrip()
