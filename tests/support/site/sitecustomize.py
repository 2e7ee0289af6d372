"""Imported by Python itself if this folder is on its path: watches the program's event loop, for tests in a terminal."""

import os
import sys
from pathlib import Path

if path := os.environ.pop("KIMI_TUI_TEST_LAG_FILE", ""):
    # Not for the programs that this one starts.
    os.environ.pop("PYTHONPATH", None)
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
    from support.watchdog import Watchdog

    def tell(words: str) -> None:
        """Add to the file."""
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{words}\n")

    Watchdog(tell, with_garbage=True).install()
    sys.path.pop(0)
