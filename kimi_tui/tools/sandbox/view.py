"""`PastView`: other files at the work folder's own path, for one command, which leaves no trace.

The files come from a frozen folder (`workspace.base`). How they get to the path depends on the machine (`Tier`):

- `overlay`: an overlay over the frozen folder, in a mount namespace of the command. Ignored folders and `.git` are overlays over
  the user's, so that nothing of them is copied and nothing that is written reaches them.
- `copy`: where the kernel has no overlays there, a copy of the frozen folder is mounted; ignored folders can only be read.
- `elsewhere`: without namespaces, a copy at another path, with links to ignored folders if the sandbox keeps those from being written.

What a command writes lies in a folder of its own and is removed at its end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from kimi_tui.filesystem import copy_tree, is_under, remove_tree
from kimi_tui.tools.sandbox.layers import can_layer
from kimi_tui.tools.sandbox.policy import STANDS_FOR, Policy
from kimi_tui.workspace.file_table import ManifestTable, table_of
from kimi_tui.workspace.ignore import is_of_version_control
from kimi_tui.workspace.manifest import REST, Manifest

Tier = Literal["overlay", "copy", "elsewhere"]
RUN_PREFIX = "run-"
READ_ONLY = "read-only"
"""The word of `confine` for a mount without a layer that may not be written."""
_LAYER = "layer-"
_MOST_SHARED = 100
"""The largest number of ignored folders that a view shows; each is an overlay of its own."""
_CACHES = frozenset({"__pycache__"})
"""Folders that are shown last: there may be one in each folder, and they are made anew."""
_COPIED_BYTES = 8 << 20
_COPIED_IN_ALL = 64 << 20
_SHARED_KINDS = frozenset({"ignored", "large", "secret"})


class Share(NamedTuple):
    """A file or folder of the work folder that no snapshot has, and that a command may see as it is now; relative to the work folder.

    With `is_copied` it is copied when the view is made.
    """

    path: str
    is_folder: bool
    is_secret: bool
    is_copied: bool = False


class Mount(NamedTuple):
    """A file or folder that stands at a place: `lower` with the layer `upper` over it; see `confine._lay_over`."""

    place: str
    lower: str
    upper: str


@dataclass(frozen=True, slots=True)
class PastView:
    """Other files at a path, as one command sees them.

    Attributes:
        folder: the folder in which the command runs.
        tier: how they get there.
        base: the frozen folder.
        run: the folder of everything that the command writes.
        mounts: the mounts, in order.
        shared: the real paths of the ignored folders that are shown.
        hidden: what stays hidden below these, for a folder at another path.
        variables: environment variables for a folder at another path.
    """

    folder: Path
    tier: Tier
    base: str
    run: str
    mounts: tuple[Mount, ...] = ()
    shared: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def words(self) -> tuple[str, ...]:
        """Return the words for `confine`."""
        return tuple(
            word
            for place, lower, upper in self.mounts
            for word in (f"over:{place}", f"lower:{lower}", f"upper:{upper}")
        )

    def narrowed(self, policy: Policy) -> tuple[PastView, Policy]:
        """Return the policy of a command that sees these files, and the view with layers over all that it may write.

        What it writes is thrown away, so nothing below these folders has to be kept from it; files that are hidden stay hidden.
        """
        if self.tier == "elsewhere":
            home = replace(policy.home, shown=(*policy.home.shown, *self.shared))
            return self, replace(policy, home=home, hidden=(*policy.hidden, *self.hidden))
        mounts = list(self.mounts)
        for root in policy.writable[1:]:
            if os.path.isdir(root):
                upper = os.path.join(self.run, f"{_LAYER}{len(mounts)}")
                is_laid = self.tier == "overlay"
                mounts.append(Mount(root, root, upper if is_laid else READ_ONLY))
        work = policy.work
        hidden = [path for path in policy.hidden if self._has(path, work)]
        narrowed = replace(
            policy,
            kept=tuple(path for path in policy.kept if not is_under(path, policy.writable)),
            links=(),
            pinned=tuple(path for path in policy.pinned if not is_under(path, policy.writable)),
            hidden=tuple(hidden),
            held={},
        )
        return replace(self, mounts=tuple(mounts)), narrowed

    def _has(self, path: str, work: str) -> bool:
        if not path.startswith(f"{work}/") or is_under(path, self.shared):
            return True
        return os.path.lexists(self.base + path[len(work) :])


def tier_of(backend: str, environ: Mapping[str, str]) -> Tier:
    """Return the way in which commands see other files on this machine. It starts a process, so call it in a thread.

    Args:
        backend: the mechanism of the sandbox; empty if there is none.
        environ: the environment.
    """
    if sys.platform != "linux" or backend not in ("full", ""):
        return "elsewhere"
    if can_layer(environ):
        return "overlay"
    return "copy" if backend else "elsewhere"


def shares_of(
    files: Manifest, work: Path, hidden: Iterable[str], copied: Collection[str] = ()
) -> list[Share]:
    """Return what no snapshot has and a command may see: ignored files and folders, version control, large files. Call it in a thread.

    Args:
        files: the files as they are now.
        work: the real path of the work folder.
        hidden: real paths that commands cannot read.
        copied: the paths of folders that are copied when a view is made.
    """
    out_of_reach = frozenset(hidden)
    found: list[Share] = []
    for path, entry in ManifestTable(table_of(files)).omitted():
        if entry.kind not in _SHARED_KINDS or path.rpartition("/")[2] == REST:
            continue
        place = os.path.join(work, path)
        with contextlib.suppress(OSError):
            mode = os.lstat(place).st_mode
            is_folder = stat.S_ISDIR(mode)
            if (is_folder or stat.S_ISREG(mode)) and not is_under(place, out_of_reach):
                is_copied = is_folder and path in copied
                found.append(Share(path, is_folder, entry.kind == "secret", is_copied))
    folders = sorted((one for one in found if one.is_folder), key=_order)
    return [*folders[:_MOST_SHARED], *(one for one in found if not one.is_folder)]


def _order(share: Share) -> tuple[bool, int, str]:
    name = share.path.rpartition("/")[2]
    return name in _CACHES, share.path.count("/"), share.path


@contextlib.contextmanager
def opened_view(
    tier: Tier,
    base: Path,
    place: Path,
    work: Path,
    shares: Sequence[Share],
    *,
    is_confined: bool,
    hidden: Collection[str] = (),
) -> Generator[PastView]:
    """Make a view, and remove it with all that was written. Call it in a thread.

    Args:
        tier: the way.
        base: the frozen folder.
        place: the folder for what a command writes; it must not be on an overlay for the tier `overlay`.
        work: the real path of the work folder.
        shares: what else is shown.
        is_confined: whether the sandbox keeps the command from writing to the user's folders.
        hidden: real paths that commands cannot read.

    Raises:
        OSError: the disk refused.
    """
    run = tempfile.mkdtemp(prefix=RUN_PREFIX, dir=place)
    try:
        fitting = [share for share in shares if _fits(share.path, str(base))]
        if tier == "overlay":
            yield _overlay(base, run, work, fitting)
        elif tier == "copy":
            yield _copy(base, run, work, fitting)
        else:
            yield _elsewhere(base, run, work, fitting if is_confined else (), hidden)
    finally:
        with contextlib.suppress(OSError):
            remove_tree(run)


def _overlay(base: Path, run: str, work: Path, shares: Sequence[Share]) -> PastView:
    upper = os.path.join(run, f"{_LAYER}0")
    top = os.path.join(upper, "upper", "files")
    os.makedirs(top)
    os.chmod(top, stat.S_IMODE(os.stat(work).st_mode) | 0o700)
    mounts = [Mount(str(work), str(base), upper)]
    shared: list[str] = []
    for share in _placed(shares, work, top):
        place = os.path.join(work, share.path)
        shared.append(place)
        layer = os.path.join(run, f"{_LAYER}{len(mounts)}") if share.is_folder else READ_ONLY
        mounts.append(Mount(place, place, layer))
    return PastView(work, "overlay", str(base), run, tuple(mounts), tuple(shared))


def _copy(base: Path, run: str, work: Path, shares: Sequence[Share]) -> PastView:
    top = os.path.join(run, "files")
    copy_tree(base, top)
    mounts = [Mount(str(work), top, "")]
    shared: list[str] = []
    for share in _placed(shares, work, top):
        place = os.path.join(work, share.path)
        shared.append(place)
        mounts.append(Mount(place, place, READ_ONLY))
    return PastView(work, "copy", str(base), run, tuple(mounts), tuple(shared))


def _elsewhere(
    base: Path, run: str, work: Path, shares: Sequence[Share], hidden: Collection[str]
) -> PastView:
    top = Path(os.path.realpath(run), work.name)
    copy_tree(base, top)
    shared: list[str] = []
    for share in shares:
        if share.is_folder and not is_of_version_control(share.path.rpartition("/")[2]):
            target = top / share.path
            target.parent.mkdir(parents=True, exist_ok=True)
            if share.is_copied:
                copy_tree(work / share.path, target)
                continue
            target.symlink_to(work / share.path)
            shared.append(str(work / share.path))
    # An environment with links to the work folder would import that folder's modules.
    places = [str(one) for one in (top, top / "src") if one.is_dir()]
    variables = {"PYTHONPATH": os.pathsep.join(places), STANDS_FOR: str(work)}
    closed = tuple(path for path in hidden if is_under(path, shared))
    return PastView(
        top, "elsewhere", str(base), run, shared=tuple(shared), hidden=closed, variables=variables
    )


def _placed(shares: Sequence[Share], work: Path, top: str) -> Iterator[Share]:
    """Make the places at which shares are mounted; small files are copied, so that a command can write to them."""
    room = _COPIED_IN_ALL
    for share in shares:
        source, target = os.path.join(work, share.path), os.path.join(top, share.path)
        try:
            if share.is_copied:
                copy_tree(source, target)
                continue
            if share.is_folder:
                os.makedirs(target, exist_ok=True)
                yield share
                continue
            size = os.lstat(source).st_size
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not share.is_secret and size <= min(_COPIED_BYTES, room):
                shutil.copy2(source, target, follow_symlinks=False)
                room -= size
                continue
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            # It went, or cannot be read; the command does without it.
            continue
        yield share


def _fits(path: str, base: str) -> bool:
    """Return whether something can be mounted at a path: it is free in the frozen folder, and no name above it is a file or link."""
    *folders, name = path.split("/")
    at = base
    for folder in folders:
        at = f"{at}/{folder}"
        try:
            if not stat.S_ISDIR(os.lstat(at).st_mode):
                return False
        except FileNotFoundError:
            return True
    return not os.path.lexists(f"{at}/{name}")
