"""What is around the followed folder, and which folders are never followed: a home folder, the root of the disk, or anything
that contains a home folder.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# Whose children are people's home folders, on the systems we know.
_HOMES = (Path("/home"), Path("/Users"))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is around a session's snapshots.

    `neighbours` are the stores of sessions in the same folder, `others` all stores that share the disk budget, `own` the
    program's own folders, `homes` further home folders.
    """

    neighbours: Sequence[Path] = ()
    others: Sequence[Path] = ()
    own: Sequence[str] = ()
    homes: Sequence[str] = ()


def refusal(root: Path, homes: Iterable[str] = ()) -> str:
    """Why snapshots of this folder are not taken, in a sentence for the person; empty where they are.

    Args:
        root: the work folder.
        homes: further home folders (`HOME` of the environment).
    """
    real = Path(os.path.realpath(root))
    if len(real.parts) == 1:
        return "The work folder is the root of the disk, so its files are not followed."
    known = [Path(os.path.realpath(home)) for home in (*homes, *_own_homes()) if home]
    if real in known or real.parent in _HOMES or real == Path("/root"):
        return "The work folder is a home folder, so its files are not followed."
    if real in _HOMES or any(real in home.parents for home in known):
        return "The work folder contains a home folder, so its files are not followed."
    return ""


def _own_homes() -> list[str]:
    try:
        return [pwd.getpwuid(os.getuid()).pw_dir]
    except KeyError:
        return []
