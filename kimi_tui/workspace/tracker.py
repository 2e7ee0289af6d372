"""`Tracker` scans the working files of one session, takes snapshots of them, compares and restores them.

It combines scanner, store, snapshot log and restore; the engine decides when. Everything blocks and belongs in one thread,
unless a method says otherwise. Errors are `OSError`.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import pwd
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kimi_tui.display_names import some_of
from kimi_tui.filesystem import identity_of
from kimi_tui.workspace import restore
from kimi_tui.workspace.adoption import contents_of, detour, difference_plan, steps_onto
from kimi_tui.workspace.blame import FileBlame
from kimi_tui.workspace.diff import (
    Changes,
    Divergence,
    StoredTexts,
    find_changes,
    find_divergence,
)
from kimi_tui.workspace.file_table import (
    Layered,
    ManifestTable,
    edited,
    with_contents,
    without_stamps,
)
from kimi_tui.workspace.manifest import (
    Limits,
    Manifest,
    ManifestEntry,
    ScanExtent,
    ancestors,
    omitted,
    was_looked_for,
)
from kimi_tui.workspace.protected_names import runs_later, secrets
from kimi_tui.workspace.restore import (
    CHANGED_MEANWHILE,
    RUN_BY_OTHERS,
    SECRET,
    FileChange,
    Intent,
    PreparedRestore,
    Restored,
    RestorePlan,
    as_file,
    left_out,
    plan_back,
    plan_to,
    stands,
)
from kimi_tui.workspace.scan import Scanner
from kimi_tui.workspace.snapshots import FOREIGN, By, Snapshot, SnapshotLog, delta, new_id
from kimi_tui.workspace.store import BlobDamaged, BlobStore, ScratchStore, StoreFull, disk_usage
from kimi_tui.workspace.tree_watch import TreeWatch, held_files

_log = logging.getLogger(__name__)

# On the systems we know, the children of these folders are the users' home folders.
_HOMES = (Path("/home"), Path("/Users"))


STORE_NAME = "store"
LOG_NAME = "snapshots.jsonl"
INTENT_NAME = "restore.json"
"""The file in the folder of snapshots that names the changes of files that are being made."""
_COUNTED_FILES = 100
_LOOKED_AT = 100_000
"""The largest number of files that are all looked at before a restore is planned; it takes half a second."""
_NO_WATCH = "the system does not report file changes"
_RAN_EARLY = "A command ran before the first file snapshot was finished, so files that it changed cannot be restored to their original contents."

_MOST_NEW_BYTES = 256 << 20
"""The most bytes of files that no snapshot has yet and that are compared without one."""


@dataclass(frozen=True, slots=True)
class SnapshotScope:
    """The folders and limits beyond a session that its snapshots must respect.

    `neighbours` are the stores of sessions in the same folder, `others` all stores that share the disk budget, `own` the
    program's own folders, `homes` further home folders. Intents are signed with the key in the file `seal_key`; without one
    no intent counts as this program's. `is_moved` says that the work folder was renamed or moved: snapshots of a folder that
    is gone count as those of this one.
    """

    neighbours: Sequence[Path] = ()
    others: Sequence[Path] = ()
    own: Sequence[str] = ()
    homes: Sequence[str] = ()
    seal_key: Path | None = None
    is_moved: bool = False


def refusal_reason(root: Path, homes: Iterable[str] = ()) -> str:
    """Say in one sentence why no snapshots of this folder are taken; empty if they are.

    Args:
        root: the work folder.
        homes: further home folders (`HOME` of the environment).
    """
    real = Path(os.path.realpath(root))
    if len(real.parts) == 1:
        return "The work folder is the root of the disk, so there are no file snapshots."
    known = [Path(os.path.realpath(home)) for home in (*homes, *_own_homes()) if home]
    if real in known or real.parent in _HOMES or real == Path("/root"):
        return "The work folder is a home folder, so there are no file snapshots."
    if real in _HOMES or any(real in home.parents for home in known):
        return "The work folder contains a home folder, so there are no file snapshots."
    return ""


def _own_homes() -> list[str]:
    try:
        return [pwd.getpwuid(os.getuid()).pw_dir]
    except KeyError:
        return []


@dataclass(frozen=True, slots=True)
class Following:
    """How the changes of files are found.

    Attributes:
        is_told: whether the kernel tells of them; else each scan looks at every file.
        trouble: why it does not, as a part of a sentence; empty if it does.
        n_folders: the number of watched folders.
        n_scans: the number of scans of this session.
        n_walks: the number of those that looked at every file.
        n_lost: the number of those that were needed as the kernel had dropped events.
        n_untold: the number of changes that only a check found.
    """

    is_told: bool = False
    trouble: str = ""
    n_folders: int = 0
    n_scans: int = 0
    n_walks: int = 0
    n_lost: int = 0
    n_untold: int = 0


@dataclass(frozen=True, slots=True)
class Brought:
    """The outcome of applying the difference of a copy.

    Attributes:
        restored: the files that were written, by path; `deleted` are those that were deleted.
        failures: the files that could not be changed, with the reasons.
        conflicts: the files that stay as they are, because they had changed in the work folder too.
    """

    restored: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict[str, str])
    conflicts: tuple[FileChange, ...] = ()


class Suspects(NamedTuple):
    """Whose the changes are that a scan found, whoever asked for it.

    Attributes:
        paths: the files that tools can have changed; None if they are unknown, empty if no tool ran.
        agent: the agent that ran the tools; empty for the session's own.
        others: the author of what no tool can have changed.
    """

    paths: frozenset[str] | None = frozenset()
    agent: str = ""
    others: By = "other"


@dataclass(slots=True)
class PreScanBackups:
    """The states of files before a tool changed them, kept while the first scan of the work folder is still running.

    The tool's thread adds states; the first scan uses them when it ends. `entries` maps paths to entries, None if there was
    no file. Hold `lock` while reading them.
    """

    entries: dict[str, ManifestEntry | None] = field(
        default_factory=dict[str, ManifestEntry | None]
    )
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, root: Path, store: BlobStore, paths: Iterable[str]) -> None:
        """Keep the present contents of these files; the first call for each file counts.

        Raises:
            OSError: a file cannot be read, or the disk refused.
        """
        with self.lock:
            for path in paths:
                if path in self.entries:
                    continue
                if secrets().rule_in(path.split("/")):
                    self.entries[path] = ManifestEntry("secret") if (root / path).exists() else None
                    continue
                entry, content = restore.current_content(str(root / path))
                if entry is not None and entry.kept:
                    store.put(content)
                self.entries[path] = entry


class Tracker:
    """Scans one work folder for one session, keeps snapshots of it, compares and restores them.

    Args:
        root: the work folder.
        folder: the folder of the session's snapshots.
        limits: the limits of the snapshots.
        scope: the other sessions and folders to respect.
        cancelled: called during a scan; if it returns True, the scan ends early.
        suspects: called when a scan has ended, to tell whose the changes are that it found; None if all belong to the author that
            `take_snapshot` is given.

    Attributes:
        refusal: a sentence for the user that says why no snapshots are taken; empty if they are.
        full: the reason why not everything could be kept at the last scan; empty if it could.
        extent: the number of files in the first scan; None before it.
    """

    def __init__(
        self,
        root: Path,
        folder: Path,
        limits: Limits,
        scope: SnapshotScope,
        cancelled: Callable[[], bool] = lambda: False,
        suspects: Callable[[], Suspects] | None = None,
    ) -> None:
        self._suspects = suspects
        # By agent, the snapshots of what its running tools changed that scans for something else found.
        self._beside: dict[str, list[Snapshot]] = {}
        self._root = root
        self._folder = folder
        self._limits = limits
        self._scope = scope
        self._cancelled = cancelled
        self._backups = PreScanBackups()
        self._owed: set[str] = set()
        self._blames: dict[str, FileBlame] = {}
        self._note = ""
        self._scanner: Scanner | None = None
        self._watch: TreeWatch | None = None
        self._n_at_stamps = 0
        self._store = BlobStore(folder / STORE_NAME, limits.max_store_bytes, scope.neighbours)
        self.texts = StoredTexts(self._store)
        self.refusal = refusal_reason(root, scope.homes)
        if any(path.is_symlink() for path in (folder, folder / STORE_NAME)):
            self.refusal = "The snapshot folder is a link, so there are no file snapshots."
        self.full = ""
        self.extent: ScanExtent | None = None

    # -- scanning --------------------------------------------------------------------------------

    def first_scan(self) -> bool:
        """Scan everything; return False if it was cancelled. Changes since the last session are recorded as somebody else's.

        Raises:
            OSError: the work folder cannot be read, or the disk refused.
        """
        scope = self._scope
        root = os.path.realpath(self._root)
        is_moved = scope.is_moved and not os.path.lexists(self._log.root)
        if self._log.root not in ("", root) and not is_moved:
            self.refusal = f"This session has file snapshots of {self._log.root}, so it takes none of {root}. Start a new session to have them."
            return False
        self._log.begin(root, moved=is_moved)
        self._store.limit(max(0, self._limits.max_store_bytes - disk_usage(scope.others)))
        if self._watch is None:
            with contextlib.suppress(OSError):
                self._watch = TreeWatch()
        self._scanner = Scanner(
            str(self._root),
            self._store,
            self._limits,
            own=scope.own,
            watch=self._watch,
            cancelled=self._cancelled,
        )
        is_first = self._log.last is None
        identity = (0, 0)
        with contextlib.suppress(OSError):
            # A folder that is gone is an error of the scan, which says it in words.
            identity = identity_of(os.stat(root))
        if not is_first:
            self._scanner.adopt(with_contents(self._log.folders(identity), self._store.has_digest))
        self._scan()
        if self._cancelled():
            return False
        table = self._scanner.manifest
        self.extent = table.extent()
        with self._backups.lock:
            backups = self._backups.entries
            after = Layered(table, backups)
            brought = self._brought_back(after)
            self._store.flush()
            if is_first:
                folders = edited(table.folders, backups) if backups else dict(table.folders)
                self._log.add_first(folders, identity, at=time.time(), note=self._taken_note())
            else:
                paths = (self._owed | backups.keys()) - brought
                if changed := delta(self._log.latest, after, paths):
                    self._log.add(changed, by="other", at=time.time(), note=self._taken_note())
            self._owed = set(backups) | brought
        self._keep_stamps()
        return True

    def _keep_stamps(self) -> None:
        """Store the stamps of the files; without them the next process reads the files again."""
        scanner = self._scanner
        if scanner is None or self._folder.is_symlink():
            return
        folders = scanner.manifest.folders
        if self._owed:
            latest = self._log.latest
            folders = edited(folders, {path: latest.get(path) for path in self._owed})
        # A process that writes through a mapping may leave the stamp as it was.
        held = held_files(os.path.realpath(self._root))
        if held.is_unknown:
            return
        folders = without_stamps(folders, held.mapped | held.opened)
        with contextlib.suppress(OSError):
            self._log.keep_stamps(folders, identity_of(os.stat(self._root)))
            self._n_at_stamps = len(self._log)

    def back_up(self, paths: Iterable[str]) -> None:
        """Keep the present contents of these files while the first scan is running. It may be called from any thread.

        Raises:
            OSError: a file cannot be read, or the disk refused.
        """
        self._backups.keep(self._root, self._store, paths)

    def command_ran(self) -> None:
        """Note that a command ran before the first scan ended: the files that the scan finds may not be the original ones."""
        self._note = _RAN_EARLY

    @property
    def following(self) -> Following:
        """How the changes of files are found."""
        scanner, watch = self._scanner, self._watch
        if scanner is None:
            return Following()
        return Following(
            is_told=scanner.is_told,
            trouble=watch.trouble if watch is not None else _NO_WATCH,
            n_folders=0 if watch is None else len(watch),
            n_scans=scanner.n_scans,
            n_walks=scanner.n_walks,
            n_lost=scanner.n_lost,
            n_untold=scanner.n_untold,
        )

    def begin_check(self) -> None:
        """Begin to compare the folder with what is known of it, if changes are told."""
        if self._scanner is not None:
            self._scanner.begin_check()

    def check(self, seconds: float) -> bool:
        """Go on with the check for some time; return whether there is more to do.

        Raises:
            OSError: the work folder cannot be read.
        """
        return self._scanner is not None and self._scanner.check(seconds)

    @property
    def has_suspects(self) -> bool:
        """Whether a check found what no event had told; the next snapshot has it."""
        return self._scanner is not None and self._scanner.has_suspects

    def close(self) -> None:
        """Stop being told of changes, sync what is not synced, and store the stamps of the files."""
        with contextlib.suppress(OSError):
            # Without a first scan a pack of contents that were kept for it may be open.
            self._store.flush(later=True)
            self.sync()
        if self._scanner is not None and self.extent and len(self._log) != self._n_at_stamps:
            self._keep_stamps()
        if self._watch is not None:
            self._watch.close()

    def take_snapshot(
        self,
        by: By,
        *,
        author: str = "",
        surely: bool = False,
        later: bool = False,
    ) -> Snapshot | None:
        """Scan now; return the snapshot of the changes since the last scan, None if there are none.

        While tools run, what they can have changed is theirs, whoever is named as the author; see `Suspects`.

        Args:
            by: the author of the changes; "agent" for those of the tools that run or ran.
            author: the agent that made the changes, if there are several.
            surely: look at all files, unless they are very many, even if the kernel tells what changed.
            later: only write what is new: `sync`, or the next snapshot without this, syncs it.

        Raises:
            OSError: the work folder cannot be read, or the disk refused.
        """
        whole = surely and len(self._scanner_manifest()) <= _LOOKED_AT
        self._scan(whole=whole, later=later)
        if by in FOREIGN:
            added = self._add_foreign(by, self._owed, later=later)
        else:
            paths, _, others = Suspects(None) if self._suspects is None else self._suspects()
            added = self._add_all(by, self._owed, paths, others, author, later=later)
        if not later:
            self._log.sync()
        return added

    def _add_foreign(
        self, by: By, found: Collection[str], *, later: bool = False
    ) -> Snapshot | None:
        """Add what a scan found for nobody's tool: what tools that run can have changed is theirs."""
        paths, agent, others = Suspects() if self._suspects is None else self._suspects()
        by = others if by == "other" else by
        if paths is not None and not paths:
            return self._add(by, found, later=later)
        added = self._add_all("agent", found, paths, by, agent, later=later)
        if added is not None:
            self._beside.setdefault(agent, []).append(added)
        return added

    def taken_beside(self, agent: str) -> list[Snapshot]:
        """Return the snapshots of changes of an agent's running tools that were not asked for as such, since the last call."""
        return self._beside.pop(agent, [])

    def _add_all(
        self,
        by: By,
        found: Collection[str],
        paths: Collection[str] | None,
        others: By,
        author: str,
        *,
        later: bool,
    ) -> Snapshot | None:
        # Files that no earlier scan could see have no known author, so they count as found after the known changes.
        latest, now = self._log.latest, self._scanner_manifest()
        found = set(found)
        known = {one for one in found if was_looked_for(latest, one)}
        gone = {one for one in found if one not in now}
        theirs = known | gone if paths is None else found.intersection(paths)
        self._add(others, known - theirs, later=later)
        added = self._add(by, theirs, author=author, later=later)
        self._add(others, found - known - theirs, later=later)
        return added

    @property
    def is_synced(self) -> bool:
        """Whether there is nothing for `sync` to do. It may be called from any thread."""
        return self._store.is_synced and (self.extent is None or self._log.is_synced)

    def sync(self) -> None:
        """Make the snapshots durable that were taken to be synced later. It may be called from another thread than all else.

        Contents go first. A record that is on the disk without its contents after a power cut costs nothing: the next scan
        finds that the file is another one by now, or stores it.

        Raises:
            OSError: the disk refused.
        """
        if self.extent is not None:
            self._store.sync()
            self._log.sync()

    def is_as_seen(self, paths: Iterable[str]) -> bool:
        """Return whether these files are still as in the newest snapshot.

        Raises:
            OSError: a file cannot be read.
        """
        latest = self._log.latest
        return all(
            restore.current(str(self._root / path)) == as_file(latest.get(path)) for path in paths
        )

    def unread(self, paths: Iterable[str]) -> list[str]:
        """Return those of these files that the newest snapshot lacks because they, or a folder above, could not be read."""
        latest = self._log.latest
        return [
            path
            for path in paths
            if any(
                (entry := latest.get(one)) is not None and entry.kind == "unreadable"
                for one in (path, *ancestors(path))
            )
        ]

    def suspect(self, paths: Iterable[str]) -> None:
        """Have the next scan read these files, even if nothing tells of a change."""
        if self._scanner is not None:
            self._scanner.suspect(paths)

    def mark(self, uid: str, agent: str = "") -> None:
        """Note a checkpoint of an agent; empty for the session's own."""
        self._log.mark(uid, agent)

    def mark_again(self, uid: str, like: str) -> None:
        """Note a checkpoint that has the files of an earlier one."""
        self._log.mark_again(uid, like)

    def figures(self, *snapshots: Snapshot) -> tuple[list[str], int, int, list[str], list[str]]:
        """Return the files that snapshots changed, the lines that they added and removed, the files that cannot be restored to their
        former state, and the new ones that a rule ignores, of which nothing is lost and which are not among the first. The files
        are sorted.

        Lines are counted in the first hundred files, and there only in texts up to a size limit.

        Args:
            snapshots: one or more, oldest first.
        """
        changed = {path: now for one in snapshots for path, now in one.changed.items()}
        then = self._log.manifest_before(snapshots[0], changed)
        if len(snapshots) > 1:
            changed = {path: now for path, now in changed.items() if then[path] != now}
        found = omitted(then, changed)
        added = removed = 0
        for path, now in islice(changed.items(), _COUNTED_FILES):
            compared = self.texts.compared(then[path], now, max_rows=0)
            if compared is not None:
                added, removed = added + compared.added, removed + compared.removed
        paths = sorted(changed.keys() - {*found.ignored})
        return paths, added, removed, found.lost, found.ignored

    def adopt(self, folder: Path, since: str, by: By) -> bool:
        """Take the snapshots of a copy of this session into the log, with their contents; return whether it has new ones now.

        Args:
            folder: the folder of the snapshots of the copy.
            since: the snapshot with whose files the copy began.
            by: the author of the changes since the last scan.

        Raises:
            OSError: the disk refused; the log is as before.
        """
        self.take_snapshot(by)
        copied, texts = stored_snapshots(folder)
        records = detour(self._log, copied, since)
        if not records:
            return False
        for name, entry in contents_of(records).items():
            if not self._store.has(name):
                # A file whose contents are gone cannot be restored, as anywhere else in the log.
                with contextlib.suppress(BlobDamaged):
                    self._store.put(texts.content(entry), name)
        self._store.flush()
        self._log.add_all(records)
        return True

    def apply_difference(self, folder: Path, since: str, by: By, agent: str = "") -> Brought:
        """Bring what a copy of this session changed into the work folder, with its checkpoints into the log; return the outcome.

        A file that differs in the work folder from how the copy began stays as it is. It may be called again after it failed or
        was killed, and does nothing more once it has ended.

        Args:
            folder: the folder of the snapshots of the copy.
            since: the snapshot with whose files the copy began.
            by: the author of the changes since the last scan.
            agent: the agent that worked in the copy.

        Raises:
            OSError: the disk refused; each file has its planned or its former state.
        """
        self._scan()
        self._log.sync()
        copied, texts = stored_snapshots(folder)
        begun, known = copied.get(since), self._log.get(since)
        if begun is None or known is None:
            self._add_foreign(by, self._owed)
            return Brought()
        changes = difference_plan(copied, begun, self._scanner_manifest())
        # Another process was killed after it had brought these.
        already = self._brought_before(copied, begun, known)
        self._add_foreign(by, self._owed - already)
        wanted = [one for one in changes if one.change != "conflict"]
        conflicts = tuple(one for one in changes if one.change == "conflict")
        own = copied.snapshots[copied.place(begun) + 1 :]
        if any(self._log.get(one.id) is not None for one in own):
            return Brought(conflicts=conflicts)
        for name, entry in contents_of(own).items():
            if not self._store.has(name):
                # A file whose contents are gone cannot be restored, as anywhere else in the log.
                with contextlib.suppress(BlobDamaged):
                    self._store.put(texts.content(entry), name)
        self._keep_whole(wanted)
        intent = Intent(known.id, new_id(), tuple(wanted))
        if wanted:
            with contextlib.suppress(OSError):
                intent = replace(intent, seal=self._seal_of(intent, create=True))
            restore.write_intent(self._folder / INTENT_NAME, intent)
        outcome = restore.carry_out(self._root, self._store, wanted)
        self._scan(intent.paths)
        manifest = self._scanner_manifest()
        done = {one.path for one in wanted if stands(manifest.get(one.path), one.then)}
        taken = done | already
        self._log.add_all(steps_onto(self._log, copied, begun, taken, agent))
        self._add("agent", taken | self._folders_around(taken), author=agent)
        self._add_foreign("other", self._owed)
        (self._folder / INTENT_NAME).unlink(missing_ok=True)
        failed = {path: CHANGED_MEANWHILE for path in intent.paths if path not in done}
        failed |= {path: why for path, why in outcome.failures.items() if path not in done}
        return Brought(
            tuple(sorted(one.path for one in wanted if one.then is not None and one.path in done)),
            tuple(sorted(one.path for one in wanted if one.then is None and one.path in done)),
            failed,
            conflicts,
        )

    def _brought_before(self, copied: SnapshotLog, begun: Snapshot, known: Snapshot) -> set[str]:
        """Return the paths that are as a copy left them, although no agent is known to have changed them since it began."""
        before, end, now = copied.manifest_at(begun), copied.latest, self._scanner_manifest()
        authors = self._log.changed_since(known)
        unknown = FOREIGN | {"restore"}
        return {
            path
            for path in copied.changed_since(begun)
            if (entry := end.get(path)) != before.get(path)
            and stands(now.get(path), entry)
            and unknown.issuperset(authors.get(path, ()))
            and all(one is None or one.is_known for one in (entry, before.get(path)))
        }

    def _folders_around(self, paths: Collection[str]) -> set[str]:
        """Return what is owed of folders that became empty, or are no longer, with these files."""
        latest, now = self._log.latest, self._scanner_manifest()
        above = {folder for path in paths for folder in ancestors(path)}
        found = {path: (latest.get(path), now.get(path)) for path in self._owed & above}
        return {
            path
            for path, entries in found.items()
            if all(one is None or one.kind == "folder" for one in entries)
        }

    # -- planning --------------------------------------------------------------------------------

    def plan(
        self,
        uid: str,
        was: str = "",
        *,
        after: bool = False,
    ) -> RestorePlan:
        """Plan to restore the files to their state at a checkpoint, after a fresh scan.

        Args:
            uid: the uid of the checkpoint.
            was: its uid before a compaction, if it had another.
            after: restore the state at the end of the checkpoint's step instead.

        Raises:
            OSError: the work folder cannot be read, or the disk refused.
        """
        self.take_snapshot("other", surely=True)
        now = self._scanner_manifest()
        find = self._log.after_checkpoint if after else self._log.at_checkpoint
        target = (was and find(was)) or find(uid)
        if target is None:
            return RestorePlan(reason="There is no file snapshot of that time.")
        changed_by = self._log.changed_since(target)
        changes: list[FileChange] = []
        if changed_by:
            made_by_others = self._log.made_by_others(target)
            changes = plan_to(self._log.manifest_at(target), now, changed_by, made_by_others)
        remarks = self._log.notes_at(target)
        if self.full:
            remarks.append(self.full)
        not_covered = left_out(self._root, now, self._log.known_at(uid) or self._log.known_at(was))
        return RestorePlan(tuple(changes), not_covered, tuple(dict.fromkeys(remarks)))

    def plan_back(self, before: str, after: str, paths: Collection[str]) -> RestorePlan:
        """Plan the reversal of a restore.

        Args:
            before: the id of the snapshot before it.
            after: the id of the snapshot after it.
            paths: the paths that it changed.

        Raises:
            OSError: the work folder cannot be read, or the disk refused.
        """
        self.take_snapshot("other", surely=True)
        then, wrote = self._log.get(before), self._log.get(after)
        if then is None or wrote is None:
            return RestorePlan(reason="The file snapshots of that time were deleted.")
        changes = plan_back(
            self._log.manifest_at(then),
            self._log.manifest_at(wrote),
            self._scanner_manifest(),
            paths,
        )
        return RestorePlan(tuple(changes))

    def divergence(self, begins: Sequence[str], newest: Sequence[str]) -> Divergence:
        """Compare the files of two lines since the lines diverged, after a fresh scan; see `find_divergence`.

        Raises:
            OSError: the work folder cannot be read, or the disk refused.
        """
        self.take_snapshot("other", surely=True)
        return find_divergence(self._log, self.texts, self._scanner_manifest(), begins, newest)

    def blame(self, path: str) -> tuple[SnapshotLog, FileBlame]:
        """Return the snapshots and the lines of a file as they became; asked again, the latter is continued.

        Args:
            path: the file, relative to the work folder.
        """
        return self._log, self._blames.setdefault(path, FileBlame(self._log, self.texts, path))

    @property
    def log(self) -> SnapshotLog:
        """The snapshots, which are read when first needed: to be used in the thread of this object."""
        return self._log

    def places(self, start: tuple[str, str] | None, end: tuple[str, str] | None) -> range:
        """Return the places in the log of two moments and of all between them; see `changes`."""
        first = self._log.first if start is None else self._at(*start)
        last = self._log.last if end is None else self._at(*end)
        if first is None or last is None:
            return range(0)
        return range(self._log.place(first), max(self._log.place(first), self._log.place(last)) + 1)

    def changes(
        self,
        start: tuple[str, str] | None,
        end: tuple[str, str] | None = None,
    ) -> Changes:
        """Compare the files at two checkpoints, or at one and now, after a fresh scan.

        Args:
            start: the uid of the earlier one, and its uid before a compaction (empty for none); None for the session's start.
            end: those of the later one; None for now.

        Raises:
            OSError: the work folder cannot be read, or the disk refused.
        """
        self.take_snapshot("other")
        first = self._log.first if start is None else self._at(*start)
        last = None if end is None else self._at(*end)
        if end is not None and last is None:
            return Changes(reason="There is no file snapshot of that time.")
        if first is not None and last is not None and self._log.later(first, last) is first:
            last = first
        return find_changes(self._log, self.texts, self._scanner_manifest(), first, last)

    def _at(self, uid: str, was: str) -> Snapshot | None:
        return self._log.at_checkpoint(was, uid)

    # -- restoring -------------------------------------------------------------------------------

    def prepare(
        self, plan: RestorePlan, chosen: Collection[str] | None = None, *, session: str = ""
    ) -> PreparedRestore | None:
        """Take the rescue snapshot and write the intent to the disk; return None if there is nothing to do.

        Args:
            plan: the plan that was shown.
            chosen: the paths to restore, conflicts included; None for all that are no conflicts.
            session: see `Intent`.

        Raises:
            OSError: the disk refused; nothing was touched.
        """
        self.take_snapshot("rescue")
        now = self._scanner_manifest()
        wanted: list[FileChange] = []
        left: list[str] = []
        stale: list[str] = []
        for one in plan.changes:
            if one.change == "skip" or (chosen is not None and one.path not in chosen):
                continue
            if one.change == "conflict" and chosen is None:
                left.append(one.path)
            elif as_file(now.get(one.path)) != one.now:
                stale.append(one.path)
            else:
                change = one.would if one.change == "conflict" else one.change
                wanted.append(replace(one, change=change))
        last = self._log.last
        if last is None or not (wanted or left or stale):
            return None
        self._keep_whole(wanted)
        intent = Intent(last.id, new_id(), tuple(wanted), session)
        if wanted:
            # Without a seal this process carries out the restore all the same, but the next one does not finish it.
            with contextlib.suppress(OSError):
                intent = replace(intent, seal=self._seal_of(intent, create=True))
            restore.write_intent(self._folder / INTENT_NAME, intent)
        return PreparedRestore(intent, tuple(left), tuple(stale))

    def _keep_whole(self, changes: Iterable[FileChange]) -> None:
        """Store the present contents of files again where what is stored of them is damaged, as after a power cut in the middle of a
        write of several pages; then make all contents durable.

        Raises:
            OSError: a file cannot be read, or the disk refused.
        """
        with self._store.reading():
            for one in changes:
                now = one.now
                if now is None or not now.kept:
                    continue
                try:
                    self._store.get(now.blob, now.size)
                except BlobDamaged:
                    found, content = restore.current_content(str(self._root / one.path))
                    if found == now:
                        # The first scan has said that the store is full.
                        with contextlib.suppress(StoreFull):
                            self._store.put(content, now.blob, again=True)
        self._store.flush()

    def carry_out(self, prepared: PreparedRestore, *, unasked: bool = False) -> Restored:
        """Carry out the prepared restore, scan its result, and close the intent.

        Args:
            prepared: the prepared restore.
            unasked: the user has not approved it in this process, so files that are executed later, configure tools or hold
                secrets are left unchanged.

        Raises:
            OSError: the outcome could not be recorded; each file has its planned or its former state.
        """
        intent = prepared.intent
        held = {one: why for one in intent.paths if unasked and (why := _protected_reason(one))}
        changes = [one for one in intent.changes if one.path not in held]
        outcome = restore.carry_out(self._root, self._store, changes)
        self._scan(intent.paths)
        manifest = self._scanner_manifest()
        self._add_foreign("other", self._owed.difference(intent.paths))
        done = {one.path for one in intent.changes if stands(manifest.get(one.path), one.then)}
        self._add("restore", done, snapshot_id=intent.after)
        # Files that somebody else wrote in the place of planned ones are recorded as theirs, for an undo too.
        self._add_foreign("other", self._owed)
        failed = dict.fromkeys(prepared.stale, CHANGED_MEANWHILE)
        failed |= outcome.failures
        for path in intent.paths:
            if path not in done and path not in failed:
                failed[path] = held.get(path, CHANGED_MEANWHILE)
        (self._folder / INTENT_NAME).unlink(missing_ok=True)
        return Restored(
            tuple(path for path in outcome.restored if path not in failed),
            tuple(path for path in outcome.deleted if path not in failed),
            failed,
        )

    def is_ours_alone(self, intent: Intent) -> bool:
        """Return whether this program noted this intent for this session and work folder, and nobody else can have changed it.

        The owner of the file is no evidence: the account also owns files that it unpacked or copied.
        """
        try:
            found = [
                os.lstat(path)
                for path in (self._folder.parent, self._folder, self._folder / INTENT_NAME)
            ]
            seal = self._seal_of(intent, create=False)
        except OSError:
            return False
        if not all(one.st_uid == os.geteuid() and not one.st_mode & 0o022 for one in found):
            return False
        return hmac.compare_digest(intent.seal.encode("utf-8", "replace"), seal.encode())

    def _seal_of(self, intent: Intent, *, create: bool) -> str:
        path = self._scope.seal_key
        if path is None:
            raise FileNotFoundError("the file restore.key of kimi-tui's data folder is missing")
        key = restore.seal_key(path, create=create)
        places = [os.path.realpath(self._folder), os.path.realpath(self._root)]
        return restore.seal_of(intent, key, places)

    def give_up(self, intent: Intent) -> None:
        """Discard an interrupted change of files that no journal names, and note what it had changed as this program's.

        That of a copy (`apply_difference`) is finished when its agent goes on.
        """
        self._add("restore", self._owed.intersection(intent.paths))
        self.abandon()

    def abandon(self) -> None:
        """Discard the prepared restore."""
        with contextlib.suppress(OSError):
            (self._folder / INTENT_NAME).unlink(missing_ok=True)

    def unfinished_restore(self) -> PreparedRestore | None:
        """Return the interrupted restore of an earlier process, if there is one."""
        intent = restore.read_intent(self._folder / INTENT_NAME)
        if intent is None or self._log.get(intent.after) is not None:
            self.abandon()
            return None
        return PreparedRestore(intent)

    @cached_property
    def _log(self) -> SnapshotLog:
        # The log is read when first needed, in the scanning thread: a large one would delay the opening of the session.
        return SnapshotLog(self._folder / LOG_NAME)

    def _scan(
        self, also: Collection[str] = (), *, whole: bool = False, later: bool = False
    ) -> None:
        scanner = self._scanner
        if scanner is None:
            raise OSError("there is no file snapshot yet")
        scan = scanner.scan(also, whole=whole, later=later)
        if scanner.untold:
            _log.warning("%s changed, but no event reported it", some_of(scanner.untold, 3))
        if not scan.is_first:
            self._owed.update(scan.changed)
        self.full = scan.full

    def _brought_back(self, now: Manifest) -> set[str]:
        """Find the paths that an interrupted restore had already restored: its changes are part of its snapshot."""
        intent = restore.read_intent(self._folder / INTENT_NAME)
        if intent is None or self._log.get(intent.after) is not None:
            return set()
        return {one.path for one in intent.changes if stands(now.get(one.path), one.then)}

    def _scanner_manifest(self) -> ManifestTable:
        return self._scanner.manifest if self._scanner is not None else ManifestTable({})

    @property
    def known_part(self) -> float:
        """The part of the work folder that the running scan has been through, from 0 to 1. It may be called from any thread."""
        return 0.0 if self._scanner is None else self._scanner.done

    def _add(
        self,
        by: By,
        paths: Iterable[str],
        snapshot_id: str = "",
        author: str = "",
        *,
        later: bool = False,
    ) -> Snapshot | None:
        paths = set(paths)
        changed = delta(self._log.latest, self._scanner_manifest(), paths)
        added = None
        if changed or snapshot_id:
            added = self._log.add(
                changed,
                by=by,
                at=time.time(),
                note=self._taken_note(),
                snapshot_id=snapshot_id,
                author=author,
                later=later,
            )
        self._owed -= paths
        return added

    def _taken_note(self) -> str:
        note, self._note = self._note, ""
        return note


def stored_snapshots(folder: Path) -> tuple[SnapshotLog, StoredTexts]:
    """Return the snapshots in a session's folder of snapshots and their texts, only to be read; another program may write them."""
    return SnapshotLog(folder / LOG_NAME), StoredTexts(BlobStore(folder / STORE_NAME, 0))


def stored_and_present(
    root: Path, folder: Path, own: Iterable[str]
) -> tuple[SnapshotLog, StoredTexts, Manifest]:
    """Return the snapshots in a session's folder of snapshots, the work folder as it is now, and the texts of both. It
    changes nothing: new contents are kept in memory.

    Args:
        root: the work folder.
        folder: the folder of the snapshots.
        own: folders of the program itself, which are never listed.

    Raises:
        OSError: the work folder cannot be read.
    """
    store = ScratchStore(folder / STORE_NAME, _MOST_NEW_BYTES)
    scanner = Scanner(str(root), store, Limits(), own=own)
    log = SnapshotLog(folder / LOG_NAME)
    # Files that look as they did at the newest snapshot are not read.
    scanner.adopt(dict(log.folders(identity_of(os.stat(root)))))
    scanner.scan()
    return log, StoredTexts(store), scanner.manifest


def _protected_reason(path: str) -> str:
    """Return why a file is not restored without asking; empty if it is."""
    parts = path.split("/")
    if secrets().rule_in(parts):
        return SECRET
    return RUN_BY_OTHERS if runs_later().rule_in(parts) else ""
