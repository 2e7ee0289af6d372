"""What a test's sandbox does not show: it has a `/tmp` of its own, so that neither this checkout nor a home may lie there."""

from __future__ import annotations

from pathlib import Path


def is_covered(path: Path) -> bool:
    """Whether a place lies below `/tmp`."""
    return path.resolve().is_relative_to("/tmp")
