"""Images become cells, kitty's graphics or sixels of the size that was asked for."""

from __future__ import annotations

import base64
import re
from io import BytesIO

import pytest
from PIL import Image
from support.made_images import flat, noise, saved, sixels

from kimi_tui.tui.pictures import (
    USUAL_CELL,
    CellSize,
    cell_rows,
    fitted,
    kitty_picture,
    sixel_picture,
)


@pytest.mark.parametrize(
    ("size", "room", "cells"),
    [
        ((1280, 800), (60, 12), (38, 12)),
        ((600, 800), (60, 12), (18, 12)),
        ((16, 16), (60, 12), (16, 8)),
        ((3000, 20), (60, 12), (60, 1)),
        ((10, 2000), (60, 12), (1, 12)),
        ((0, 0), (60, 12), (2, 1)),
    ],
)
def test_a_picture_keeps_its_shape_in_its_room(
    size: tuple[int, int], room: tuple[int, int], cells: tuple[int, int]
) -> None:
    assert fitted(*size, *room) == cells
    # Square characters take half as many columns, as long as the rows are what is short.
    assert fitted(1000, 1000, 60, 10, CellSize(10, 10)) == (10, 10)


def test_cells_have_the_colours_of_two_pixels_above_each_other() -> None:
    picture = flat(40, 40)
    picture.paste((0, 0, 255), (20, 0, 40, 20))
    rows = cell_rows(saved(picture), 4, 2)
    assert ["".join(span.text for span in row) for row in rows] == ["▀▀▀▀"] * 2
    assert [len(row) for row in rows] == [2, 1]
    assert [span.style for span in rows[1]] == ["#c87828@#c87828"]
    assert [span.style for span in rows[0]] == ["#c87828@#c87828", "#0000ff@#0000ff"]
    # Transparent pixels become white, and a size that does not fit the shape cuts a little off.
    clear = Image.new("RGBA", (30, 10), (0, 0, 0, 0))
    assert cell_rows(saved(clear), 3, 3)[0][0].style == "#ffffff@#ffffff"
    assert len(cell_rows(saved(noise(64, 64)), 30, 12)) == 12


def test_kitty_gets_the_picture_in_pieces() -> None:
    sent = kitty_picture(saved(noise(400, 300)), 7, 20, 6, USUAL_CELL)
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", sent)
    assert "".join(f"\x1b_G{keys};{data}\x1b\\" for keys, data in pieces) == sent
    assert pieces[0][0] == "a=T,f=100,i=7,p=1,c=20,r=6,C=1,q=2,m=1"
    assert [keys for keys, _ in pieces[1:]] == ["m=1"] * (len(pieces) - 2) + ["m=0"]
    assert all(len(data) <= 4_096 for _, data in pieces)
    with Image.open(BytesIO(base64.b64decode("".join(data for _, data in pieces)))) as shown:
        assert (shown.format, shown.size) == ("PNG", (160, 96))


def test_sixels_are_the_picture() -> None:
    picture = flat(16, 32)
    picture.paste((0, 0, 255), (8, 16, 16, 32))
    sent = sixel_picture(saved(picture), 2, 2, USUAL_CELL)
    head, _, body = sent.partition('"1;1;16;32')
    assert head == "\x1bP0;1q"
    assert body.endswith("\x1b\\")
    shown = [[_near(pixel) for pixel in row] for row in sixels(body[:-2], 16, 32)]
    assert shown == [
        [(200, 120, 40) if x < 8 or y < 16 else (0, 0, 255) for x in range(16)] for y in range(32)
    ]


def _near(pixel: tuple[int, int, int]) -> tuple[int, int, int]:
    found = [one for one in ((200, 120, 40), (0, 0, 255)) if _distance(one, pixel) < 8]
    return found[0] if found else pixel


def _distance(one: tuple[int, int, int], other: tuple[int, int, int]) -> int:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\nno", saved(noise(80, 80))[:900]])
def test_what_is_no_image_is_said(data: bytes) -> None:
    with pytest.raises(ValueError):
        cell_rows(data, 4, 2)
