"""Images for tests: flat ones, which are small files, and noise, which is as large as a file can be."""

from __future__ import annotations

import random
import re
from io import BytesIO

from PIL import Image


def flat(width: int, height: int) -> Image.Image:
    """Return an image of one colour."""
    return Image.new("RGB", (width, height), (200, 120, 40))


def noise(width: int, height: int) -> Image.Image:
    """Return an image in which every pixel has another colour, the same each time."""
    return Image.frombytes("RGB", (width, height), random.Random(7).randbytes(width * height * 3))


def saved(picture: Image.Image, kind: str = "PNG") -> bytes:
    """Return the image as the bytes of a file."""
    file = BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def sixels(body: str, width: int, height: int) -> list[list[tuple[int, int, int]]]:
    """Return the pixels that a terminal draws for these sixels, row by row, with the colours that they name to a hundredth."""
    known: dict[int, tuple[int, int, int]] = {}
    rows = [[(-1, -1, -1)] * width for _ in range(height + 6)]
    top = left = colour = 0
    for found in re.finditer(r"#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)(.)|([$-])|(.)", body):
        number, red, green, blue, chosen, count, repeated, control, single = found.groups()
        if number:
            known[int(number)] = tuple(round(int(part) * 2.55) for part in (red, green, blue))  # type: ignore[assignment]
        elif chosen:
            colour = int(chosen)
        elif control:
            left, top = 0, top + 6 * (control == "-")
        else:
            right = left + int(count or 1)
            for row in range(6):
                if (ord(repeated or single) - 63) >> row & 1:
                    rows[top + row][left:right] = [known[colour]] * (right - left)
            left = right
    return rows[:height]
