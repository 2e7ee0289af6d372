"""A chip stands for the same image wherever its message goes, and says so when it stands for nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.made_images import flat, noise, saved

from kimi_tui.images import read_image
from kimi_tui.tool_cards import ImageBlock
from kimi_tui.tui.prompt.image_chips import HELD_BYTES, ImageChips, in_text

SHOT = read_image(saved(flat(1280, 800)), "shot.png")


@pytest.mark.exhaustive
def test_a_chip_is_found_again() -> None:
    chips = ImageChips()
    chip = chips.add(SHOT)
    assert chip == "[image shot.png 1280x800 ~1.3k]"
    assert chips.add(SHOT) == chip
    other = chips.add(read_image(saved(noise(1280, 800)), "shot.png"))
    assert other == "[image shot.png 1280x800 ~1.3k, 2]"
    text = f"{other} against {chip}, twice {chip}"
    assert in_text(text) == list(chips.of(text)) == [other, chip]
    assert chips.of(text)[chip].image is SHOT
    assert chips.around(text, 3) == (other, 0, len(other))
    assert chips.around(text, len(other) + 2) is None
    assert chips.lost("see [image gone.png 4x4 ~1]") == ["[image gone.png 4x4 ~1]"]
    assert chips.lost("a [image] of [image x]") == []


def test_names_cannot_break_a_chip() -> None:
    chips = ImageChips()
    for name in ("a]b[c.png", "two\nlines.png", "x" * 300 + ".png", "\x1b[31m.png", " "):
        chip = chips.add(read_image(saved(flat(9, 7)), name))
        assert in_text(f"see {chip} here") == [chip], chip
        assert len(chip) < 60


@pytest.mark.exhaustive
def test_what_a_message_of_the_session_shows_is_known_by_its_facts() -> None:
    before, chips = ImageChips(), ImageChips()
    second = read_image(saved(noise(1280, 800)), "shot.png")
    text = f"{before.add(SHOT)} {before.add(second)}"
    assert chips.with_chips(text, (ImageBlock.of(SHOT), ImageBlock.of(second))) == text
    assert [known.facts for known in chips.of(text).values()] == [
        ImageBlock.of(SHOT),
        ImageBlock.of(second),
    ]
    assert chips.lost(text) == []
    assert chips.by_hash(SHOT.sha256) is None
    assert chips.add(SHOT) in text
    assert chips.by_hash(SHOT.sha256) is SHOT
    # This is an image of another program's message, without facts.
    other = ImageBlock.of(read_image(saved(flat(3, 3)), "a.png"))
    assert chips.with_chips("look", (other,)) == "look\n[image a.png 3x3 ~1]"
    assert chips.with_chips("", (other,)) == "[image a.png 3x3 ~1]"
    # Nor has it a name; and what was no image that could be stored cannot be sent again.
    nameless = replace(other, name="", sha256="0" * 64)
    shown = chips.with_chips("look", (nameless, ImageBlock()))
    assert shown == "look\n[image 3x3 ~1]"
    assert chips.lost(shown) == []


@pytest.mark.exhaustive
def test_of_many_the_oldest_are_left_to_the_session() -> None:
    chips = ImageChips()
    large = b"0" * (HELD_BYTES // 2)
    names = [
        chips.add(type(SHOT)("image/png", large + bytes([n]), 10, 10, f"{n}.png")) for n in range(3)
    ]
    held = [chips[name].image is not None for name in names]
    assert held == [False, False, True] or held == [False, True, True]
