"""`pipes`: makes several pipes at once, or none: where descriptors are short, one after another would leak those that were made."""

from __future__ import annotations

import os

Pipe = tuple[int, int]
"""The descriptors of a pipe: the end that is read, and the one that is written. Children do not inherit them."""


def pipes(count: int) -> list[Pipe]:
    """Return new pipes, whose descriptors the caller closes.

    Args:
        count: the number of pipes.

    Raises:
        OSError: they could not all be made; none is left open.
    """
    made: list[Pipe] = []
    try:
        while len(made) < count:
            made.append(os.pipe())
    except OSError:
        for pipe in made:
            for end in pipe:
                os.close(end)
        raise
    return made
