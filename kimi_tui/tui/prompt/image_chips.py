"""Chips: the text that stands for an image in the prompt, `[image shot.png 1280x800 ~1.4k]`, and the images behind them.

A message keeps the chips in its text everywhere: in the queue, the history, an editor, another session's prompt. `ImageChips`
looks their images up when the message is sent, so that nothing in between has to handle images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.display_names import CHIP, CHIP_START
from kimi_tui.foreign_text import one_line
from kimi_tui.tui.formatting import cut, tokens
from kimi_tui.tui.glyphs import ASCII, UNICODE

if TYPE_CHECKING:
    from kimi_tui.images import Image
    from kimi_tui.tool_cards import ImageBlock

HELD_BYTES = 64 << 20
"""The largest number of bytes of pasted images kept in memory; older images are read from the session again."""
_NAME_CELLS = 32


class Chip(NamedTuple):
    """The image of a chip; `image` is None if only the session's folder has it."""

    facts: ImageBlock
    image: Image | None = None


class ImageChips:
    """The images that are named in prompts of this run or in messages of the shown sessions.

    Args:
        mark: ends a name that is cut.
    """

    def __init__(self, mark: str = UNICODE.cut) -> None:
        self._mark = mark
        self._known: dict[str, Chip] = {}

    def add(self, image: Image) -> str:
        """Return the chip of an image; a known image gets the same chip again."""
        from kimi_tui.tool_cards import ImageBlock

        facts = ImageBlock.of(image)
        chip = self._chip_of(facts)
        # The entry is inserted anew, so that the newest are last and the oldest are dropped.
        self._known.pop(chip, None)
        self._known[chip] = Chip(facts, image)
        held = 0
        for name, one in reversed(self._known.items()):
            held += len(one.image.data) if one.image is not None else 0
            if held > HELD_BYTES and name != chip:
                self._known[name] = one._replace(image=None)
        return chip

    def restore(self, text: str, images: Mapping[str, Image]) -> str:
        """Add the images of a stored text, by chip; return the text, with chips renamed if they stand for other images by now.

        A chip whose words do not fit its image is dropped, because the user sees only the words before the message is sent.
        """
        from kimi_tui.tool_cards import ImageBlock

        renamed: dict[str, str] = {}
        for chip, image in images.items():
            facts = ImageBlock.of(image)
            known = self._known.get(chip)
            if not _is_of(chip, facts):
                continue
            if known is None or known.facts.sha256 == facts.sha256:
                self._known[chip] = Chip(facts, image)
            else:
                renamed[chip] = self.add(image)
        return CHIP.sub(lambda found: renamed.get(found[0], found[0]), text) if renamed else text

    def _chip_of(self, facts: ImageBlock) -> str:
        from kimi_tui.images import image_tokens

        size = tokens(image_tokens(facts.width, facts.height), estimated=True)
        label = f"{_begins(facts, self._mark)}{size}"
        chip, number = f"{label}]", 1
        while chip in self._known and self._known[chip].facts.sha256 != facts.sha256:
            number += 1
            chip = f"{label}, {number}]"
        return chip

    def with_chips(self, text: str, images: Sequence[ImageBlock]) -> str:
        """Return a message of the session with a chip for each image that was pasted into it: chips of its text, or new ones.

        Images that another program wrote and that could not be stored have no chip, as they cannot be sent.
        """
        chips, more = in_text(text) if images else [], list[str]()
        for facts in images:
            if not facts.sha256:
                continue
            chip = next((one for one in chips if _is_of(one, facts)), "")
            if chip:
                chips.remove(chip)
            else:
                chip = self._chip_of(facts)
                more.append(chip)
            self._known.setdefault(chip, Chip(facts))
        return "\n".join([text, *more] if text else more)

    def __getitem__(self, chip: str) -> Chip:
        """Return the known chip with this text."""
        return self._known[chip]

    def by_hash(self, sha256: str) -> Image | None:
        """Return an image that is held here; None if only the session has it."""
        held = (one.image for one in self._known.values() if one.facts.sha256 == sha256)
        return next((image for image in held if image is not None), None)

    def of(self, text: str) -> dict[str, Chip]:
        """Return the known chips in a text, in their order."""
        found = in_text(text)
        return {chip: self._known[chip] for chip in found if chip in self._known}

    def tokens_in(self, text: str) -> int:
        """Return the estimated tokens of the images in a text."""
        chips = self.of(text)
        if not chips:
            return 0
        from kimi_tui.images import image_tokens

        return sum(image_tokens(one.facts.width, one.facts.height) for one in chips.values())

    def lost(self, text: str) -> list[str]:
        """Return the chips in a text whose image is unknown: they were written in another run, and never sent."""
        return [chip for chip in in_text(text) if chip not in self._known]

    def around(self, line: str, column: int) -> tuple[str, int, int] | None:
        """Return the chip that contains a column of a line or ends before it, with its begin and end in the line; None for none."""
        if CHIP_START not in line:
            return None
        for found in CHIP.finditer(line):
            if found.start() < column <= found.end() and found[0] in self._known:
                return found[0], found.start(), found.end()
        return None


def in_text(text: str) -> list[str]:
    """Return the texts that have the form of a chip in a text, each once."""
    return (
        list(dict.fromkeys(found[0] for found in CHIP.finditer(text))) if CHIP_START in text else []
    )


def _is_of(chip: str, facts: ImageBlock) -> bool:
    """Return whether a chip may stand for an image; its name may have been cut with other signs in use."""
    return any(chip.startswith(_begins(facts, mark)) for mark in (UNICODE.cut, ASCII.cut))


def _begins(facts: ImageBlock, mark: str) -> str:
    """Return the beginning of the chip of an image."""
    shown = one_line(facts.name).replace("[", "(").replace("]", ")").strip()
    name = f"{cut(shown, _NAME_CELLS, mark)} " if shown else ""
    return f"{CHIP_START}{name}{facts.width}x{facts.height} "
