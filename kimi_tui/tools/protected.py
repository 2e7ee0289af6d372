"""Files that run later or that steer agents, shells and editors: changing one always needs the person's own yes.

Existing or not, named by their real path or by the one the model wrote; compared without case. Also says which
places hold secrets, where even reading asks every time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from kimi_tui import places as our_places
from kimi_tui.tools.child_env import words
from kimi_tui.tools.place import Place, folded

_FOLDERS = words(""".git .hg .svn .jj .vscode .vscode-insiders .idea .fleet .zed .devcontainer .cursor .windsurf .clinerules .roo
    .claude .codex .gemini .kimi .kimi-code .kimi-tui .agents .aider .continue .opencode .mcp .husky .githooks .hooks
    .github .gitlab .gitea .forgejo .circleci .buildkite .woodpecker .teamcity .yarn .direnv .ssh .gnupg .aws
    .azure .kube .docker .cargo .mise cron.d cron.daily cron.hourly cron.weekly cron.monthly crontabs systemd autostart
    launchagents launchdaemons profile.d init.d sudoers.d site-packages dist-packages""")
"""Any folder of these names on the way protects what is below."""

_FILES = words(""".envrc agents.md agents.override.md claude.md claude.local.md gemini.md kimi.md copilot-instructions.md
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


def protected_reason(place: Place, environ: Mapping[str, str]) -> str:
    """Why changing this file always asks, in a few words; empty where it is an ordinary file."""
    for names in _names(place):
        for name in names[:-1]:
            if name in _FOLDERS:
                return f"what is in {name} can run later or steer tools"
        last = names[-1] if names else ""
        if last in _FILES or last in _FOLDERS or _PATTERNS.fullmatch(last):
            return "files like this run later or steer tools"
    if _is_ours(place, environ):
        return "it belongs to this program's own settings or sessions"
    return ""


def holds_secrets(place: Place, environ: Mapping[str, str]) -> bool:
    """Whether a place outside the work folder is one where keys are kept."""
    real = [folded(part) for part in place.real.parts]
    secret = bool(_SECRET_FOLDERS.intersection(real)) or real[-1] in _SECRET_FILES
    return secret or _is_ours(place, environ)


def package_scripts_changed(place: Place, before: str | None, after: str) -> bool:
    """Whether a change of a `package.json` touches what package managers run."""
    if folded(place.real.name) != "package.json":
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


def _names(place: Place) -> list[list[str]]:
    """The folded names to judge: of the real path, and of the path as written (a link may have a harmless target)."""
    real = place.real.relative_to(place.root) if place.inside else place.real
    asked = Path(place.asked)
    if asked.is_absolute() and asked.is_relative_to(place.root):
        asked = asked.relative_to(place.root)
    elif asked.is_absolute() and place.inside:
        asked = Path(asked.name)
    return [[folded(part) for part in path.parts] for path in (real, asked)]


def _is_ours(place: Place, environ: Mapping[str, str]) -> bool:
    folders = [
        our_places.config_dir(environ),
        our_places.data_dir(environ),
        our_places.kimi_cli_config_file(environ).parent,
    ]
    real = [folded(part) for part in place.real.parts]
    for folder in folders:
        parts = [folded(part) for part in folder.resolve().parts]
        if real[: len(parts)] == parts and not _within_work_folder(parts, place.root):
            return True
    return False


def _within_work_folder(parts: list[str], root: Path) -> bool:
    """A work folder that itself lies in one of our folders (a demo, a test) would otherwise be all protected."""
    work = [folded(part) for part in root.parts]
    return work[: len(parts)] == parts
