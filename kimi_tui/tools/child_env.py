"""The environment of every child process: a short list of harmless names, nothing that holds a key or runs code."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def words(text: str) -> frozenset[str]:
    """The words of a text, for lists too long for one name a line."""
    return frozenset(text.split())


_PASSED = words("""HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR TMP TEMP VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV JAVA_HOME
    ANDROID_HOME GOPATH GOROOT GOCACHE GOMODCACHE CARGO_HOME RUSTUP_HOME NVM_DIR PYENV_ROOT RBENV_ROOT GEM_HOME
    XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME SSL_CERT_FILE SSL_CERT_DIR NIX_PATH
    NIX_SSL_CERT_FILE HOMEBREW_PREFIX SDKROOT DEVELOPER_DIR""")
_PROXIES = words(
    "http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY"
)
_FIXED = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "EDITOR": "false",
    "VISUAL": "false",
    "DEBIAN_FRONTEND": "noninteractive",
}
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a child gets of `environ`, with pagers, editors and prompts switched off."""
    passed = {
        name: value
        for name, value in environ.items()
        if name in _PASSED
        or name.startswith("LC_")
        # A proxy's address may carry a password.
        or (name in _PROXIES and "@" not in value)
    }
    return {"PATH": environ.get("PATH") or _DEFAULT_PATH, **passed, **_FIXED}


def find_program(name: str, environ: Mapping[str, str], work_dir: Path) -> str | None:
    """A program on the path, passing over relative entries and any within the work folder: a file that the agent or
    a cloned repository put there must not stand in for a system tool."""
    work = Path(os.path.realpath(work_dir))
    for folder in (environ.get("PATH") or _DEFAULT_PATH).split(os.pathsep):
        if not os.path.isabs(folder):
            continue
        found = shutil.which(name, path=folder)
        if found and not Path(os.path.realpath(found)).is_relative_to(work):
            return found
    return None
