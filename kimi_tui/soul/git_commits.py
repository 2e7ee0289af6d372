"""Commits from the steps of a session, on a new branch of the user's repository.

`plan_commits` only looks; `make_commits` hands all of it to one `git fast-import`, which writes objects and the one new branch:
index, working files and the current branch stay as they are. No hook, filter or other program of the repository is run.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, NamedTuple, cast

from kimi_tui.app_paths import reason_of
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.session.session import Session
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.soul.messages import Segment, segments
from kimi_tui.soul.patches import (
    DAMAGED,
    NoFiles,
    PointRange,
    joined,
    no_snapshots,
    snapshot_after,
    snapshot_at,
)
from kimi_tui.soul.system_prompt import SafeGit, safe_git
from kimi_tui.tools.credentials import find_keys, redact_keys
from kimi_tui.tools.programs import find_program
from kimi_tui.workspace.diff import StoredTexts
from kimi_tui.workspace.manifest import Manifest, ManifestEntry, ancestors
from kimi_tui.workspace.patch import (
    FilePair,
    LeftOut,
    blob_name,
    find_pairs,
    git_mode,
    patch_file,
    quoted,
)
from kimi_tui.workspace.snapshots import SnapshotLog
from kimi_tui.workspace.store import BlobDamaged
from kimi_tui.workspace.tracker import stored_snapshots

Per = Literal["turn", "step"]

_LIMIT_S = 60.0
_IMPORT_LIMIT_S = 600.0
_SUBJECT_CHARS = 72
_BODY_CHARS = 2_000
_BRANCH_CHARS = 40
_SUBMODULE = "160000"
_REVISION = re.compile(r"[A-Za-z0-9_][\w./@{}~^+-]{0,199}", re.ASCII)
_BRANCH = re.compile(r"[A-Za-z0-9_][\w./+@=-]{0,199}", re.ASCII)


class NoCommits(Exception):
    """There can be no commits. The text is a sentence for the user."""


@dataclass(slots=True)
class PlannedCommit:
    """A commit to be made.

    Attributes:
        message: the message; its first line is the subject.
        at: when its changes were made, in seconds since the epoch.
        pairs: the files, relative to the work folder.
        added: the number of added lines.
        removed: the number of removed lines.
    """

    message: str
    at: float
    pairs: list[FilePair]
    added: int = 0
    removed: int = 0

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.split("\n", 1)[0]


@dataclass(slots=True)
class CommitPlan:
    """The content of a commit that is not made yet.

    Attributes:
        git: how git is run in the repository.
        branch: the name of the branch.
        base: the commit that it begins with; empty for none.
        base_words: that commit in words.
        commits: the commits, oldest first.
        left_out: the files that are in no commit, with the reasons.
        remarks: sentences for the user.
    """

    git: SafeGit
    branch: str
    base: str
    base_words: str
    prefix: str
    texts: StoredTexts
    commits: list[PlannedCommit] = field(default_factory=list[PlannedCommit])
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    remarks: list[str] = field(default_factory=list[str])


def plan_commits(
    session: Session,
    stored: Path,
    span: PointRange,
    world_line: int,
    environ: Mapping[str, str],
    *,
    per: Per = "turn",
    branch: str = "",
    onto: str = "",
) -> CommitPlan:
    """Return the commits that the steps of a session make. It changes nothing; it reads files and runs git: call it in a thread.

    Args:
        session: the session, or a copy of it, open.
        stored: the folder of the session, which has its snapshots.
        span: the checkpoints: the steps from the first one up to the last one, which is not included.
        world_line: the number of their world line; 0 is the current one.
        environ: the environment of the program.
        per: whether a commit is a turn or a step.
        branch: the name of the branch; empty to make one of the session's title.
        onto: the commit that the branch begins with; empty for the last one before the first checkpoint.

    Raises:
        NoCommits: there is no repository, the branch exists, or nothing was changed.
        NoFiles: there is no snapshot of a checkpoint.
    """
    repository = _Repository(session.work_dir, environ)
    line = session.world_line(world_line)
    points = line.checkpoints
    first = 0 if span.start is None else points.index(line.index.checkpoint(span.start))
    end = len(points) if span.end is None else points.index(line.index.checkpoint(span.end))
    log, texts = stored_snapshots(stored / FILES_NAME)
    if log.first is None or not points:
        raise NoFiles(no_snapshots(session))
    name = branch or _branch_name(session.title)
    repository.check_branch(name)
    start = log.first if span.start is None else snapshot_at(log, points[first])
    base, base_words, remarks = repository.base(onto, start.at)
    plan = CommitPlan(
        repository.git, name, base, base_words, repository.prefix(session.work_dir), texts
    )
    plan.remarks = [*remarks, *log.notes_at(start)]
    parts = segments(line, first, end)
    steps = _Steps(log, log.manifest_at(start), log.place(start))
    about = f"Session: {one_line(session.title or 'Untitled session')} ({session.id})"
    for group in _groups(parts, per):
        ids = [one.point.id for one in group]
        with contextlib.suppress(NoFiles):
            outside = steps.up_to(log.place(snapshot_at(log, group[0].point)))
            if outside.pairs:
                words = f"Changes from outside these steps, before #{ids[0]}"
                plan.commits.append(PlannedCommit(f"{words}\n\n{about}", outside.at, outside.pairs))
            place = log.place(snapshot_after(log, [one.point for one in group]))
            found = steps.up_to(place)
            if found.pairs:
                numbers = f"Checkpoint: #{ids[0]}" + (f" to #{ids[-1]}" if len(ids) > 1 else "")
                message = _message(group, per, f"{about}\n{numbers}")
                plan.commits.append(PlannedCommit(message, found.at, found.pairs))
            plan.left_out += found.left_out
    _leave_out(plan, repository)
    if not plan.commits:
        raise NoCommits(
            "No file changed in these steps that git could commit."
            + (f" {len(plan.left_out):,} files are left out." if plan.left_out else "")
        )
    _add_beginning(plan, repository, log.manifest_at(start), start.at, about)
    for one in plan.commits:
        one.pairs = joined(one.pairs, texts)
        _count(one, texts)
    return plan


class _CommitChange(NamedTuple):
    pairs: list[FilePair]
    left_out: list[LeftOut]
    at: float


class _Steps:
    """Goes forward through the snapshots and says what changed."""

    def __init__(self, log: SnapshotLog, base: Manifest, place: int) -> None:
        self._log = log
        self._base = base
        self._place = place
        self._now: dict[str, ManifestEntry | None] = {}

    def up_to(self, place: int) -> _CommitChange:
        """Return what changed up to the snapshot at a place of the log."""
        changed: dict[str, ManifestEntry | None] = {}
        at = 0.0
        for one in self._log.snapshots[self._place + 1 : place + 1]:
            changed |= one.changed
            at = one.at
        self._place = max(self._place, place)
        # An entry None means that there is no file, which is what a manifest says by having none.
        before = cast("Manifest", ChainMap(self._now, self._base))  # pyright: ignore[reportArgumentType]
        after = cast("Manifest", ChainMap(changed, self._now, self._base))  # pyright: ignore[reportArgumentType]
        pairs, left_out = find_pairs(before, after, changed)
        self._now |= changed
        return _CommitChange(pairs, left_out, at)


def _groups(parts: Sequence[Segment], per: Per) -> Iterator[list[Segment]]:
    group: list[Segment] = []
    for one in parts:
        if group and (per == "step" or one.kind == "user"):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


# -- messages ------------------------------------------------------------------------------------


def _message(group: Sequence[Segment], per: Per, about: str) -> str:
    """Return the message of a commit, of the words of its steps."""
    said = [
        text
        for part in group
        for one in part.messages
        if one.role == "assistant" and (text := one.text.strip())
    ]
    asked = next((part.user_words for part in group if part.user_words), "")
    if per == "turn" and asked:
        subject, body = asked, said[-1] if said else ""
    else:
        subject = said[0] if said else next((p.label for p in group if p.label), "")
        body = said[0] if said else ""
    first = one_line(subject.strip().split("\n", 1)[0]).strip("#*` ")
    title = first if len(first) <= _SUBJECT_CHARS else f"{first[: _SUBJECT_CHARS - 1].rstrip()}…"
    body = body.strip()[:_BODY_CHARS]
    text = "\n\n".join(filter(None, (title or "Changes", body if body != title else "", about)))
    lines = [line.rstrip() for line in clean(redact_keys(text, find_keys(text))).split("\n")]
    return "\n".join(lines)


def _branch_name(title: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if len(words) > _BRANCH_CHARS:
        words = words[: _BRANCH_CHARS + 1].rpartition("-")[0] or words[:_BRANCH_CHARS]
    return f"kimi-tui/{words or 'session'}"


# -- the repository ------------------------------------------------------------------------------


class _Repository:
    """Asks git about a repository."""

    def __init__(self, work_dir: Path, environ: Mapping[str, str]) -> None:
        if find_program("git", environ, work_dir) is None:
            raise NoCommits(
                "git was not found. Install it in a system folder such as /usr/bin; kimi-tui runs no git from a folder that the agent can write to."
            )
        git = safe_git(work_dir, environ)
        if git is None and (work_dir / "HEAD").is_file() and (work_dir / "objects").is_dir():
            raise NoCommits(f'"{work_dir}" is a bare repository, which has no working files.')
        if git is None:
            if any(os.path.lexists(place / ".git") for place in (work_dir, *work_dir.parents)):
                raise NoCommits(
                    f'The git repository of "{work_dir}" cannot be used, because it belongs to another user or uses git data of another folder. '
                    "Run kimi-tui diff to print the changes as a patch for git apply."
                )
            raise NoCommits(f'"{work_dir}" is not in a git repository. Run git init there first.')
        self.git = git

    def prefix(self, work_dir: Path) -> str:
        """Return the path of the work folder in the repository, with a slash at its end; empty for its top."""
        path = os.path.relpath(os.path.realpath(work_dir), os.path.realpath(self.git.root))
        return "" if path == "." else f"{path}/"

    def check_branch(self, name: str) -> None:
        """Raise NoCommits if there can be no new branch of that name."""
        if (
            not _BRANCH.fullmatch(name)
            or run_git(self.git, ("check-ref-format", "--branch", name)).code
        ):
            raise NoCommits(f'"{one_line(name)[:60]}" cannot be the name of a branch.')
        if not run_git(self.git, ("rev-parse", "--verify", "--quiet", f"refs/heads/{name}")).code:
            raise NoCommits(
                f'The branch "{name}" already exists. Choose another name with --branch NAME.'
            )

    def base(self, onto: str, at: float) -> tuple[str, str, list[str]]:
        """Return the commit that a branch begins with, that commit in words, and remarks.

        Args:
            onto: the commit that was asked for; empty for the last one before the time `at`.
        """
        if onto:
            base = self._commit(onto) if _REVISION.fullmatch(onto) else ""
            if not base:
                raise NoCommits(f'"{one_line(onto)[:60]}" is not a commit of this repository.')
            return base, self._named(base), []
        head = self._commit("HEAD")
        if not head:
            return "", "an empty repository", []
        listed = run_git(
            self.git, ("rev-list", "-1", "--first-parent", f"--before={int(at)}", head)
        ).out.decode()
        base = listed.strip()
        remarks: list[str] = []
        if not base:
            base = head
        elif base != head:
            n = run_git(self.git, ("rev-list", "--count", f"{base}..{head}")).out.decode().strip()
            remarks.append(
                "HEAD is 1 commit ahead of where these steps began, and the new branch does not include it. "
                "To start from HEAD instead, use --onto HEAD."
                if n == "1"
                else f"HEAD is {n} commits ahead of where these steps began, and the new branch does not include them. "
                "To start from HEAD instead, use --onto HEAD."
            )
        if run_git(self.git, ("symbolic-ref", "--quiet", "HEAD")).code:
            remarks.append("HEAD is detached; it stays where it is.")
        return base, self._named(base), remarks

    def _commit(self, revision: str) -> str:
        found = run_git(self.git, ("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"))
        return "" if found.code else found.out.decode().strip()

    def _named(self, commit: str) -> str:
        found = run_git(
            self.git, ("log", "-1", "--no-show-signature", "--no-color", "--format=%h %s", commit)
        )
        return one_line(found.out.decode("utf-8", "replace").strip())

    def tree(self, commit: str) -> dict[str, tuple[str, str]]:
        """Return mode and blob of each file of a commit, by its path from the top."""
        if not commit:
            return {}
        found = run_git(self.git, ("ls-tree", "-r", "-z", "--full-tree", commit))
        if found.code:
            raise NoCommits(f"git cannot list the files of {commit[:12]}: {found.words}")
        files: dict[str, tuple[str, str]] = {}
        for row in filter(None, found.out.split(b"\0")):
            facts, _, path = row.partition(b"\t")
            mode, _, blob = facts.decode().split(" ")
            files[os.fsdecode(path)] = (mode, blob)
        return files

    def ignored(self, paths: Iterable[str]) -> set[str]:
        """Return those of some paths from the top that git ignores."""
        root = self.git.root
        asked = [
            path
            for path in paths
            if not any(os.path.islink(root / above) for above in ancestors(path))
        ]
        data = b"".join(os.fsencode(path) + b"\0" for path in asked)
        found = run_git(self.git, ("check-ignore", "-z", "--stdin"), data)
        if found.code > 1:
            raise NoCommits(f"git cannot tell which files it ignores: {found.words}")
        return set(map(os.fsdecode, filter(None, found.out.split(b"\0"))))

    def filtered(self, paths: Iterable[str]) -> set[str]:
        """Return those of some paths whose contents git would store through a filter, such as LFS."""
        data = b"".join(os.fsencode(path) + b"\0" for path in paths)
        fields = run_git(self.git, ("check-attr", "-z", "--stdin", "filter"), data).out.split(b"\0")
        rows = zip(fields[::3], fields[2::3], strict=False)
        return {
            os.fsdecode(path) for path, value in rows if value not in (b"unspecified", b"unset")
        }


class GitOutput(NamedTuple):
    """The output and the exit code of git, and what it complained of in one line."""

    out: bytes
    code: int
    words: str


def run_git(
    git: SafeGit,
    arguments: Sequence[str],
    stdin: bytes | IO[bytes] = b"",
    limit_s: float = _LIMIT_S,
) -> GitOutput:
    """Run git and return what it says.

    Raises:
        NoCommits: it cannot be run, or takes too long.
    """
    try:
        with contextlib.ExitStack() as stack:
            # Input in a file cannot block while output is read.
            if isinstance(stdin, bytes):
                file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
                file.write(stdin)
            else:
                file = stdin
            file.seek(0)
            done = subprocess.run(
                (*git.argv, *arguments),
                cwd=git.root,
                env=git.env,
                stdin=file,
                capture_output=True,
                timeout=limit_s,
                check=False,
                start_new_session=True,
            )
    except subprocess.TimeoutExpired as error:
        raise NoCommits("git took too long and was stopped; there is no new branch.") from error
    except OSError as error:
        raise NoCommits(f"git could not be run: {reason_of(error)}.") from error
    words = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
    return GitOutput(done.stdout, done.returncode, one_line(words))


# -- the files of the commits --------------------------------------------------------------------


def _leave_out(plan: CommitPlan, repository: _Repository) -> None:
    """Take out of the commits what git does not commit, and note it with its reason."""
    prefix, root = plan.prefix, plan.git.root
    paths = sorted({pair.path for one in plan.commits for pair in one.pairs})
    tree = repository.tree(plan.base)
    whole = {path: f"{prefix}{path}" for path in paths}
    submodules = {path for path, (mode, _) in tree.items() if mode == _SUBMODULE}
    why: dict[str, str] = {}
    for path, name in whole.items():
        above = [one for one in ancestors(name) if one]
        if not submodules.isdisjoint((name, *above)):
            why[path] = "it is in a submodule"
        elif any(os.path.lexists(root / one / ".git") for one in above):
            why[path] = "it is in another repository"
    ignored = repository.ignored(
        name for path, name in whole.items() if path not in why and name not in tree
    )
    why |= {path: "git ignores it" for path, name in whole.items() if name in ignored}
    filtered = repository.filtered(name for path, name in whole.items() if path not in why)
    why |= {
        path: "git stores it through a filter, which is not run"
        for path, name in whole.items()
        if name in filtered
    }
    for one in plan.commits:
        damaged = [
            pair for pair in one.pairs if pair.path not in why and _is_damaged(pair, plan.texts)
        ]
        why |= {pair.path: DAMAGED for pair in damaged}
        one.pairs = [pair for pair in one.pairs if pair.path not in why]
    plan.commits = [one for one in plan.commits if one.pairs]
    seen: dict[str, LeftOut] = {one.path: one for one in plan.left_out}
    seen |= {path: LeftOut(path, words) for path, words in why.items()}
    plan.left_out = sorted(seen.values())


def _is_damaged(pair: FilePair, texts: StoredTexts) -> bool:
    try:
        for entry in filter(None, (pair.old, pair.new)):
            texts.content(entry)
    except BlobDamaged:
        return True
    return False


def _add_beginning(
    plan: CommitPlan, repository: _Repository, start: Manifest, at: float, about: str
) -> None:
    """Put a commit before the others that makes their files of the base what these were at the first checkpoint.

    Without it the first commits would contain what had been changed and not committed before.
    """
    tree = repository.tree(plan.base)
    algorithm = "sha256" if len(plan.base) == 64 else "sha1"
    pairs: list[FilePair] = []
    for path in sorted({pair.path for one in plan.commits for pair in one.pairs}):
        entry = start.get(path)
        entry = entry if entry is not None and entry.kept else None
        there = tree.get(f"{plan.prefix}{path}")
        if entry is None:
            if there is not None:
                gone = ManifestEntry("file")
                pairs.append(FilePair(path, gone, path, None))
            continue
        blob = blob_name(plan.texts.content(entry), algorithm)
        if there != (git_mode(entry), blob):
            pairs.append(FilePair(path, None, path, entry))
    if pairs:
        words = "Files as they were before these steps\n\nChanges that no commit had yet."
        plan.commits.insert(0, PlannedCommit(f"{words}\n\n{about}", at, pairs))


def _count(commit: PlannedCommit, texts: StoredTexts) -> None:
    for pair in commit.pairs:
        with contextlib.suppress(BlobDamaged):
            found = patch_file(pair, texts.content)
            commit.added += found.added
            commit.removed += found.removed


# -- making them ---------------------------------------------------------------------------------


def make_commits(plan: CommitPlan) -> str:
    """Make the commits and the branch; return the name of its last commit. It runs git: call it in a thread.

    Raises:
        NoCommits: git refused; there is no new branch.
    """
    git = plan.git
    author = _identity(git, "GIT_AUTHOR_IDENT")
    committer = _identity(git, "GIT_COMMITTER_IDENT")
    with tempfile.TemporaryFile() as stream:
        stream.write(b"feature done\n")
        for n, one in enumerate(plan.commits):
            message = one.message.encode("utf-8", "replace") + b"\n"
            stream.write(b"commit refs/heads/%s\n" % plan.branch.encode())
            stream.write(b"author %s %d +0000\n" % (author, int(one.at) or int(time.time())))
            stream.write(b"committer %s %d +0000\n" % (committer, int(time.time())))
            stream.write(b"data %d\n%s\n" % (len(message), message))
            if not n and plan.base:
                stream.write(b"from %s\n" % plan.base.encode())
            for part in _files(plan, one):
                stream.write(part)
        stream.write(b"done\n")
        done = run_git(git, ("fast-import", "--quiet", "--done"), stream, _IMPORT_LIMIT_S)
    if done.code:
        _remove_reports(git)
        raise NoCommits(f"git did not accept the commits, so there is no new branch: {done.words}")
    made = run_git(git, ("rev-parse", "--verify", "--quiet", f"refs/heads/{plan.branch}"))
    if made.code:
        raise NoCommits(f'git did not create the branch "{plan.branch}".')
    return made.out.decode().strip()


def _identity(git: SafeGit, variable: str) -> bytes:
    found = run_git(git, ("var", variable))
    name = re.match(rb"[^\n]*<[^\n>]*>", found.out)
    if found.code or name is None:
        raise NoCommits(
            "git does not know your name. Set it with git config user.name and git config user.email."
        )
    return name[0]


def _files(plan: CommitPlan, commit: PlannedCommit) -> Iterator[bytes]:
    # A file that takes the place of a folder comes after the files of that folder went.
    for pair in commit.pairs:
        if pair.new is None or pair.old_path != pair.path:
            yield b"D %s\n" % _quoted(plan.prefix + pair.old_path)
    for pair in commit.pairs:
        if pair.new is not None:
            content = plan.texts.content(pair.new)
            path = _quoted(plan.prefix + pair.path)
            yield b"M %s inline %s\ndata %d\n" % (git_mode(pair.new).encode(), path, len(content))
            yield content
            yield b"\n"


def _quoted(path: str) -> bytes:
    name = quoted("", path)
    return name if name.startswith(b'"') else b'"%s"' % name


def _remove_reports(git: SafeGit) -> None:
    """Remove the report that a failed import leaves in the repository."""
    found = run_git(git, ("rev-parse", "--git-path", "x"))
    folder = (git.root / os.fsdecode(found.out.strip())).parent
    with contextlib.suppress(OSError):
        for one in folder.glob("fast_import_crash_*"):
            if one.stat().st_mtime > time.time() - _IMPORT_LIMIT_S:
                one.unlink()
