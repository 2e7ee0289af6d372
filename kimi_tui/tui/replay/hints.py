"""What the footer of a replay says, by what has the keys and how much room there is."""

from __future__ import annotations

from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.main.footer import Hint


def hints(glyphs: Glyphs, *, playing: bool, on_timeline: bool, is_narrow: bool) -> tuple[Hint, ...]:
    """The keys, most used first; in a narrow screen the last ones find no room."""
    turn = ("[ ]", "turn")
    if on_timeline:
        return (f"{glyphs.up}{glyphs.down}", "move"), ("Enter", "go there"), turn, ("Esc", "close")
    play = ("Space", "pause" if playing else "play")
    step = (f"{glyphs.back}{glyphs.to}", "step")
    speed = (f"+ {glyphs.minus}", "speed")
    go_on, leave = ("c", "continue from here"), ("Esc", "leave")
    if is_narrow:
        return play, step, go_on, leave, ("t", "timeline"), turn, speed
    return play, step, turn, speed, go_on, leave
