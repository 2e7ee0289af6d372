"""Paths that a model wrote: where they really lead, which are protected, and what the user is asked about them.

`locate` resolves links and says whether a path is inside the work folder; opening is done by `files`. Protected are
files that run later or that steer agents, shells and editors: changing one always needs the user's own yes. They are
known by the names of their real path and of the one the model wrote, compared without case, whether they exist or not.
In places that hold secrets even reading asks every time.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kimi_tui import app_paths
from kimi_tui.tools.base import ApprovalQuestion, FileEdit, ToolEnv, ToolProblem
from kimi_tui.tools.process import word_set

_REFUSED = ("proc", "sys", "dev")
_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """Where a path leads. Nothing needs to exist there.

    Attributes:
        written: the path as the model wrote it.
        real: absolute, with all links resolved.
        root: the work folder, resolved likewise.
        inside: whether `real` is in the work folder.
        linked: whether links led there.
        home: the user's home folder, empty where it is not known.
    """

    written: str
    real: Path
    root: Path
    inside: bool
    linked: bool
    home: str = ""

    @property
    def shown(self) -> str:
        """The real path for display: relative to the work folder, or absolute with `~`."""
        if self.inside:
            return self.real.relative_to(self.root).as_posix()
        return with_tilde(self.real, self.home)


def with_tilde(path: Path, home: str) -> str:
    """The path with `~` for the home folder."""
    if home and path.is_relative_to(home):
        return "/".join(("~", *path.relative_to(home).parts))
    return str(path)


def locate(path: str, work_dir: Path, environ: Mapping[str, str]) -> ResolvedPath:
    """Where `path` leads. Blocks: for a thread.

    Args:
        path: as the model wrote it: from the work folder, absolute, or with `~/`.
        work_dir: the session's folder.
        environ: for `HOME`.

    Raises:
        ToolProblem: the path cannot be one, or it leads to devices or the kernel's own files.
    """
    _check(path)
    home = environ.get("HOME", "")
    written = path
    if home and (path == "~" or path.startswith("~/")):
        written = home + path[1:]
    root = Path(os.path.realpath(work_dir))
    lexical = os.path.normpath(work_dir / written)
    real = Path(os.path.realpath(work_dir / written))
    for candidate in (Path(lexical), real):
        if len(candidate.parts) > 1 and candidate.parts[1] in _REFUSED:
            raise ToolProblem(
                f"{path} leads to /{candidate.parts[1]}: devices and kernel files cannot be read or written.",
                brief="not a file",
            )
    if _within(Path(lexical), work_dir):
        lexical = os.path.normpath(root / Path(lexical).relative_to(work_dir))
    inside = _within(real, root)
    if not inside and (ancestor := _same_folder(real, root)) is not None:
        # Another spelling of the work folder, as a file system that ignores case allows.
        real = root / real.relative_to(ancestor)
        inside = True
    return ResolvedPath(path, real, root, inside, lexical != str(real), home)


def _check(path: str) -> None:
    if not path.strip():
        raise ToolProblem("The path is empty.", brief="no path")
    if "\0" in path or any("\ud800" <= char <= "\udfff" for char in path):
        raise ToolProblem("The path has characters that no file name can have.", brief="bad path")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ToolProblem(f"The path is longer than {_LONGEST_PATH} bytes.", brief="bad path")


def _within(path: Path, folder: Path) -> bool:
    return path.parts[: len(folder.parts)] == folder.parts


def _same_folder(path: Path, root: Path) -> Path | None:
    """The parent of `path` that is the very folder `root` under another spelling."""
    try:
        wanted = root.stat()
    except OSError:
        return None
    for folder in (path, *path.parents):
        if len(folder.parts) < len(root.parts):
            return None
        if len(folder.parts) > len(root.parts):
            continue
        try:
            found = folder.stat()
        except OSError:
            return None
        same = (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)
        return folder if same and _casefolded(folder) == _casefolded(root) else None
    return None


def _casefolded(path: Path) -> tuple[str, ...]:
    return tuple(folded(part) for part in path.parts)


def folded(name: str) -> str:
    """A name in the form in which file systems that ignore case and Unicode composition compare it."""
    from unicodedata import normalize

    return normalize("NFC", name).casefold()


_FOLDERS = word_set(""".git .hg .svn .jj .vscode .vscode-insiders .idea .fleet .zed .devcontainer .cursor .windsurf .clinerules .roo
    .claude .codex .gemini .kimi .kimi-code .kimi-tui .agents .aider .continue .opencode .mcp .husky .githooks .hooks
    .github .gitlab .gitea .forgejo .circleci .buildkite .woodpecker .teamcity .yarn .direnv .ssh .gnupg .aws
    .azure .kube .docker .cargo .mise cron.d cron.daily cron.hourly cron.weekly cron.monthly crontabs systemd autostart
    launchagents launchdaemons profile.d init.d sudoers.d site-packages dist-packages""")
"""Any folder of these names on the way protects what is below."""

_FILES = word_set(""".envrc agents.md agents.override.md claude.md claude.local.md gemini.md kimi.md copilot-instructions.md
    .cursorrules .windsurfrules .clinerules .roorules .aider.conf.yml mcp.json .mcp.json opencode.json crush.json
    .gitlab-ci.yml .travis.yml jenkinsfile azure-pipelines.yml bitbucket-pipelines.yml .drone.yml appveyor.yml
    .appveyor.yml .woodpecker.yml cloudbuild.yaml .cirrus.yml .pre-commit-config.yaml .pre-commit-hooks.yaml
    lefthook.yml lefthook.yaml .lefthook.yml .huskyrc .lintstagedrc conftest.py sitecustomize.py usercustomize.py
    makefile gnumakefile bsdmakefile .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc
    .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .inputrc config.fish .vimrc .gvimrc .exrc
    .nvimrc .nvim.lua .lvimrc .emacs .dir-locals.el .tmux.conf .screenrc .gitconfig .gitmodules .gitattributes .npmrc
    .yarnrc .yarnrc.yml .pnpmfile.cjs .pypirc .netrc .pdbrc .gdbinit .lldbinit .bazelrc .mise.toml mise.toml
    .tool-versions crontab authorized_keys known_hosts sudoers pip.conf""")
_PATTERNS = re.compile(r"\.env(\..*)?|.*\.pth|.*\.mk|.*\.code-workspace|.*\.mdc")
_SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", "keyrings"})
_SECRET_FILES = frozenset({".netrc", ".pypirc", ".npmrc", ".git-credentials", "shadow"})
_PACKAGE_KEYS = ("scripts", "husky", "simple-git-hooks", "lint-staged", "pre-commit", "gypfile")


def runs_later(name: str) -> bool:
    """Whether a file of this name, or what is in a folder of it, runs later or steers agents, shells and editors."""
    low = folded(name)
    return low in _FOLDERS or low in _FILES or _PATTERNS.fullmatch(low) is not None


def protected_reason(target: ResolvedPath, environ: Mapping[str, str]) -> str:
    """Why changing this file always asks, in a few words; empty where it is an ordinary file."""
    for names in _names(target):
        for name in names[:-1]:
            if name in _FOLDERS:
                return f"what is in {name} can run later or steer tools"
        if names and runs_later(names[-1]):
            return "files like this run later or steer tools"
    if _is_ours(target, environ):
        return "it belongs to this program's own settings or sessions"
    return ""


def _holds_secrets(target: ResolvedPath, environ: Mapping[str, str]) -> bool:
    """Whether a path outside the work folder is one where keys are kept."""
    real = [folded(part) for part in target.real.parts]
    secret = bool(_SECRET_FOLDERS.intersection(real)) or real[-1] in _SECRET_FILES
    return secret or _is_ours(target, environ)


def _package_scripts_changed(target: ResolvedPath, before: str | None, after: str) -> bool:
    """Whether a change of a `package.json` touches what package managers run."""
    if folded(target.real.name) != "package.json":
        return False
    old, new = _run_by_package_manager(before or "{}"), _run_by_package_manager(after)
    return old is None or new is None or old != new


def _run_by_package_manager(text: str) -> list[object] | None:
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    package = cast("dict[str, object]", parsed)
    return [package.get(key) for key in _PACKAGE_KEYS]


def _names(target: ResolvedPath) -> list[list[str]]:
    """The folded names to judge: of the real path, and of the path as written (a link may have a harmless target)."""
    real = target.real.relative_to(target.root) if target.inside else target.real
    asked = Path(target.written)
    if asked.is_absolute() and asked.is_relative_to(target.root):
        asked = asked.relative_to(target.root)
    elif asked.is_absolute() and target.inside:
        asked = Path(asked.name)
    return [[folded(part) for part in path.parts] for path in (real, asked)]


def _is_ours(target: ResolvedPath, environ: Mapping[str, str]) -> bool:
    folders = [
        app_paths.config_dir(environ),
        app_paths.data_dir(environ),
        app_paths.kimi_cli_config_file(environ).parent,
    ]
    real = [folded(part) for part in target.real.parts]
    for folder in folders:
        parts = [folded(part) for part in folder.resolve().parts]
        if real[: len(parts)] == parts and not _within_work_folder(parts, target.root):
            return True
    return False


def _within_work_folder(parts: list[str], root: Path) -> bool:
    """A work folder that itself lies in one of our folders (a demo, a test) would otherwise be all protected."""
    work = [folded(part) for part in root.parts]
    return work[: len(parts)] == parts


_EDITS_KEY = "edits"
_EDITS_OFFER = "Yes, and every edit in this folder in this session"


async def ask_to_read(target: ResolvedPath, env: ToolEnv, *, folder: bool = False) -> None:
    """Ask before something outside the work folder is read; inside nothing is asked.

    Args:
        target: what is to be read.
        env: who answers.
        folder: true where `target` is itself the folder that is searched.

    Raises:
        ToolRejected: the user said no.
    """
    if target.inside:
        return
    secret = _holds_secrets(target, env.environ)
    holder = target.real if folder else target.real.parent
    holder_shown = with_tilde(holder, target.home)
    where = "outside the work folder" + _link_note(target)
    if secret:
        where += "; keys are kept in such places, and what is read goes to the model"
    await env.approver.ask(
        ApprovalQuestion(
            action="read outside",
            question="Search this folder?" if folder else "Read this file?",
            detail=target.shown,
            where=where,
            session_key="" if secret else f"read outside:{holder}",
            session_offer=""
            if secret
            else f"Yes, and everything in {holder_shown} in this session",
            protected=secret,
        )
    )


@asynccontextmanager
async def read_approval_on_error(target: ResolvedPath, env: ToolEnv) -> AsyncGenerator[None]:
    """Ask as before a reading if a `ToolProblem` is raised within: its text would say what there is at this path.

    Raises:
        ToolRejected: the user said no.
    """
    try:
        yield
    except ToolProblem:
        await ask_to_read(target, env)
        raise


async def ask_to_change(
    target: ResolvedPath, edit: FileEdit, env: ToolEnv, *, n_links: int, is_lost: bool = False
) -> None:
    """Ask before a file is created or changed.

    Args:
        target: the file.
        edit: what would change, shown as a diff.
        env: who answers.
        n_links: how many names the file has on disk; more than one may mean a file elsewhere.
        is_lost: whether what the file holds now is in no snapshot, so that nothing brings it back.

    Raises:
        ToolRejected: the user said no.
    """
    question = "Create this file?" if edit.before is None else "Make this edit?"
    where = "in the work folder" if target.inside else "outside the work folder"
    where += _link_note(target)
    reason = protected_reason(target, env.environ)
    if not reason and _package_scripts_changed(target, edit.before, edit.after):
        reason = "it changes what the package manager runs"
    if n_links > 1:
        where += f"; the file has {n_links} names, and the others may be elsewhere"
    if reason:
        where += f"; {reason}"
    if is_lost:
        where += "; what it holds now is too large to be brought back"
    ordinary = target.inside and not reason and n_links <= 1 and not is_lost
    await env.approver.ask(
        ApprovalQuestion(
            action="edit protected"
            if reason
            else ("edit file" if target.inside else "edit outside"),
            question=question,
            detail=target.shown,
            where=where,
            edits=(edit,),
            session_key=_EDITS_KEY if ordinary else "",
            session_offer=_EDITS_OFFER if ordinary else "",
            protected=not ordinary,
        )
    )


def _link_note(target: ResolvedPath) -> str:
    return f"; {target.written} is a link that leads there" if target.linked else ""
