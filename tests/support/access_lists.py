"""Access lists of files, for tests: one in which the group has nothing though the bits of the mode say otherwise."""

from __future__ import annotations

import os
import struct
from pathlib import Path

NAME = "system.posix_acl_access"
_NOBODY = 0xFFFFFFFF


def access_list() -> bytes:
    """Return an access list: owner and user 1234 read and write, the group and all others nothing; the mode shows it as 0660."""
    entries = ((1, 6, _NOBODY), (2, 6, 1234), (4, 0, _NOBODY), (16, 6, _NOBODY), (32, 0, _NOBODY))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def can_have_attributes(folder: Path) -> bool:
    """Return whether the file system of a folder keeps access lists and users' own attributes."""
    trial = folder / "attributes"
    trial.touch()
    try:
        os.setxattr(trial, NAME, access_list())
        os.setxattr(trial, "user.trial", b"x")
    except (AttributeError, OSError):
        return False
    finally:
        trial.unlink()
    return True
