"""Images for tests: flat ones, which are small files, and noise, which is as large as a file can be."""

from __future__ import annotations

import random
from io import BytesIO

from PIL import Image


def flat(width: int, height: int) -> Image.Image:
    """One colour."""
    return Image.new("RGB", (width, height), (200, 120, 40))


def noise(width: int, height: int) -> Image.Image:
    """Every pixel another one, the same each time."""
    return Image.frombytes("RGB", (width, height), random.Random(7).randbytes(width * height * 3))


def saved(picture: Image.Image, kind: str = "PNG") -> bytes:
    """The file."""
    file = BytesIO()
    picture.save(file, kind)
    return file.getvalue()
