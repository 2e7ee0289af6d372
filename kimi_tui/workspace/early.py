"""What files were before a tool changed them, while the first look at the work folder was still under way.

Kept from the thread of the tool; taken by the first look when it ends, in the thread that looks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kimi_tui.workspace import restore
from kimi_tui.workspace.entries import Entry
from kimi_tui.workspace.store import BlobStore


@dataclass(slots=True)
class Early:
    """The entries by path, None where there was no file. Hold `lock` while reading them."""

    entries: dict[str, Entry | None] = field(default_factory=dict[str, Entry | None])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, root: Path, store: BlobStore, paths: Iterable[str]) -> None:
        """Keep what these files hold now; the first time counts.

        Raises:
            OSError: a file cannot be read, or the disk refused.
        """
        with self.lock:
            for path in paths:
                if path in self.entries:
                    continue
                full = root / path
                entry = restore.current(str(full))
                if entry is not None and entry.kept:
                    is_link = entry.kind == "link"
                    store.put(os.fsencode(os.readlink(full)) if is_link else full.read_bytes())
                self.entries[path] = entry
