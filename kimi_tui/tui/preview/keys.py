"""What the keys do among the files of a preview, in words that leave room for all of them.

Pure, like the rest of the layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.tui.main.footer import Hint, roomiest
from kimi_tui.tui.preview.files import FilesState


def file_keys(files: FilesState, arrows: str, width: int) -> Sequence[Hint]:
    """What the keys do there.

    Args:
        files: what is chosen, and which one is looked at.
        arrows: the signs of the arrow keys.
        width: cells for all of them.
    """
    if files.whole:
        return [(arrows, "scroll"), ("Enter", "back"), ("Esc", "cancel")]
    one = files.current
    is_chosen = one is not None and one.path in files.chosen
    space = [("Space", "leave alone" if is_chosen else "bring back")]
    if one is None or one.fate == "skip":
        space = []
    what = "list" if files.at_rest else "diff"
    first, last = (arrows, "choose"), (("Tab", "on"), ("Esc", "cancel"))
    # Where there is little room, what Space and Enter do says more than that arrows move.
    short = [("Space", "leave")] if is_chosen and space else space
    return roomiest(
        (
            (first, *space, ("Enter", f"whole {what}"), *last),
            (first, *space, ("Enter", what), *last),
            (*short, ("Enter", what), *last),
        ),
        width,
    )
