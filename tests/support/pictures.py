"""Pictures of screens, compared with those in `snapshots/`: SVG as Textual exports it, without its random names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

FOLDER = Path(__file__).parents[2] / "snapshots"


class PictureExtension(SingleFileSnapshotExtension):
    """One SVG per picture, at `snapshots/<part>/<test file>/<test>[<case>].svg`."""

    file_extension = "svg"
    _write_mode = WriteMode.TEXT

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        test_file = Path(test_location.filepath)
        return str(FOLDER / test_file.parent.name / test_location.basename)

    def serialize(self, data: Any, **_: Any) -> str:
        return re.sub(r"terminal-\d+", "terminal", str(data))
