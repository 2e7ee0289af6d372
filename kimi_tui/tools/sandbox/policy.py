"""What a sandboxed command may reach, from the settings and what stands in the work folder.

Writable are the work folder, the caches of package managers and what the settings name; in the work folder not what
decides what git runs, nor files at its top that run later. Readable is everything but secrets and this program's own
folders. A file below the top that runs later cannot be held still without getting in the way of renames; what becomes
of it is looked at afterwards (`Watch`). What in the output of a failed command says that the sandbox was in its way,
`refused` finds.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from kimi_tui import app_paths
from kimi_tui.filesystem import open_regular, read_regular
from kimi_tui.tools.guarded_links import PASSED_OVER, known_links, links_in, remember
from kimi_tui.tools.process import word_set
from kimi_tui.tools.sandbox.sockets import stray_sockets
from kimi_tui.workspace import protected_names
from kimi_tui.workspace.protected_names import folded

_DEEPEST = 4
_MOST_LOOKED_AT = 40_000
_MOST_REPOSITORIES = 500
_OF_BARE = frozenset({"HEAD", "objects", "refs"})
_GIT_FILE_BYTES = 4096
_SETTINGS_BYTES = 1 << 18
_MOST_SETTINGS_FILES = 20
_MOST_NAMED = 1000
_QUOTES = str.maketrans(dict.fromkeys("\"'\\!", " "))
_COMMENT = re.compile(r"""^((?:[^"#;\\]|\\.|"(?:[^"\\]|\\.)*")*+)[#;].*$""")
_GIT_ELSEWHERE = ("commondir", "objects/info/alternates")
_GIT_OWN = (
    "HEAD",
    "config",
    "index",
    "objects",
    "objects/pack",
    "refs",
    "refs/heads",
    "packed-refs",
)
_USER_SETTINGS = (".gitconfig", ".config/git/config")
_NO_PROGRAMS = frozenset({"branch", "remote", "url", "submodule", "user", "safe"})
"""Sections of git's settings whose values are addresses and names."""


SECRET_PLACES = frozenset(
    {
        "Library/Application Support/Google/Chrome",
        "Library/Application Support/Firefox",
        "Library/Application Support/BraveSoftware",
    }
) | word_set(""".ssh .gnupg .aws .azure .kube .docker .oci .fly .vercel .kaggle .age .password-store .huggingface
    .terraform.d .netrc .pypirc .npmrc .yarnrc.yml .git-credentials .pgpass .my.cnf .s3cfg .boto .curlrc .wgetrc
    .smbcredentials .vault-token .terraformrc .claude .claude.json .codex .gemini .cursor .Xauthority .ICEauthority
    .netlify .config/solana .config/age .config/opencode .local/share/opencode .electrum .ethereum .bitcoin .heroku
    .aliyun .databrickscfg .authinfo .msmtprc .mbsyncrc .openai .qwen .continue .composer/auth.json
    .config/containers/auth.json .config/pypoetry/auth.toml .config/hcloud .config/composer/auth.json
    .cargo/credentials .cargo/credentials.toml .gem/credentials .bundle/config .m2/settings.xml
    .m2/settings-security.xml .gradle/gradle.properties .nuget/NuGet .config/git/credentials .config/gh .config/hub
    .config/glab-cli .config/gcloud .config/doctl .config/rclone .config/sops .config/op .config/1Password
    .config/Bitwarden .config/github-copilot .config/anthropic .config/heroku .config/netlify .config/fly
    .config/configstore .config/pulse/cookie .config/google-chrome .config/chromium .config/BraveSoftware
    .config/microsoft-edge .config/vivaldi .config/Slack .config/discord .config/Signal .mozilla .thunderbird
    .cache/huggingface/token .local/share/keyrings .local/share/kwalletd .local/share/com.vercel.cli
    .local/share/atuin .local/share/fish/fish_history .local/share/containers .local/share/gopass
    .bash_history .zsh_history .zhistory .python_history .psql_history .mysql_history .sqlite_history
    .rediscli_history .mongosh .node_repl_history .irb_history .lesshst .viminfo
    Library/Keychains Library/Cookies Library/Messages Library/Mail""")
"""Below the home folder: keys, logins, browsers' profiles, histories of shells (people type passwords), other agents."""

SECRET_SYSTEM_PLACES = word_set("""/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d
    /etc/ssl/private /etc/NetworkManager/system-connections /etc/wireguard /run/secrets /run/credentials /run/user
    /var/run/secrets /var/lib/docker /var/lib/containers /run/docker /run/containerd /run/podman""")
"""Readable for root, which the user of a container often is."""

CACHES = word_set(""".cache/pip .cache/uv .cache/pypoetry .cache/pre-commit .cache/yarn .cache/pnpm .cache/node
    .cache/go-build .cache/ccache .cache/sccache .cache/mypy .cache/ruff .cache/matplotlib .cache/fontconfig .ccache
    .npm/_cacache .npm/_logs .npm/_update-notifier-last-checked .yarn/cache .local/share/pnpm/store
    .cargo/registry .cargo/git .cargo/.package-cache .cargo/.package-cache-mutate .cargo/.global-cache
    go/pkg/mod .gradle/caches .m2/repository Library/Caches/pip Library/Caches/uv Library/Caches/go-build""")
"""Below the home folder: what package managers and compilers write to even when they fetch nothing."""

IN_THE_WAY = "The sandbox was in the way of"
"""So begins what is said of it in a result."""
_MOST_REFUSALS = 3
_LONGEST_ERROR_LINE = 2000
_REFUSED = re.compile(
    r"Read-only file system|Permission denied|Operation not permitted|Device or resource busy|"
    r"Invalid cross-device link|\b(?:EROFS|EACCES|EPERM|EBUSY|EXDEV)\b",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"['\"‘`]([^'\"’`\n]+)['\"’`]")
_PATH = re.compile(r"(?:~|\.{1,2})?/?[\w.@+-]+(?:/[\w.@+-]+)*")
_NO_NETWORK = re.compile(
    r"Could not resolve|Temporary failure in name resolution|Name or service not known|Network is unreachable|"
    r"Couldn't connect|Failed to connect|Connection refused|No route to host|dns error|error sending request|"
    r"Failed to establish a new connection|getaddrinfo|Unknown host|Address family not supported|"
    r"\b(?:EAI_AGAIN|ENOTFOUND|ENETUNREACH|ECONNREFUSED)\b",
    re.IGNORECASE,
)


class SandboxSettings(NamedTuple):
    """`[sandbox]` of the configuration.

    `writable` are folders and files in the place of the caches, None for these; `readable` are exceptions from what is
    secret; `network` is whether commands may use it without being asked about.
    """

    enabled: bool = True
    writable: tuple[str, ...] | None = None
    readable: tuple[str, ...] = ()
    network: bool = False


class NoSandbox(Exception):
    """There can be none; the message says why, without a full stop."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Absolute paths without links, shallow ones first.

    Attributes:
        work: the work folder; the first of `writable`.
        writable: what may be written, whole.
        kept: what may not, below them.
        pinned: folders on the way to what is kept that may not be renamed.
        hidden: what cannot be read.
        network: whether the network of the machine is there.
        watch: what stood there of files that run later.
        held: what `kept` and `hidden` were, by device and number.
    """

    work: str
    writable: tuple[str, ...]
    kept: tuple[str, ...]
    pinned: tuple[str, ...]
    hidden: tuple[str, ...]
    network: bool
    watch: Watch
    held: Mapping[str, tuple[int, int]]

    def replaced(self) -> list[str]:
        """What of the kept and hidden is another file by now: a cover goes with the file that it lies over. For a thread."""
        if sys.platform == "darwin":
            # There it goes by the name.
            return []
        now = _identities(self.held)
        return [path for path, was in self.held.items() if now.get(path, was) != was]

    def may_write(self, path: str) -> bool:
        """Whether a command may change what is at this path."""
        real = os.path.realpath(os.path.join(self.work, path))
        if _under(real, (*self.kept, *self.hidden)):
            return False
        return _under(real, (*self.writable, "/tmp", "/var/tmp", "/dev/shm", "/dev/null"))

    def may_read(self, path: str) -> bool:
        """Whether a command may read what is at this path, as far as the sandbox is concerned."""
        return not _under(os.path.realpath(os.path.join(self.work, path)), self.hidden)


def policy_for(
    work_dir: Path, settings: SandboxSettings, environ: Mapping[str, str], *, network: bool = False
) -> Policy:
    """What a command in this folder may reach. Lists folders: for a thread.

    Args:
        work_dir: the session's folder.
        settings: of the user.
        environ: for the home folder and our own.
        network: let it use the network this once.

    Raises:
        NoSandbox: the folder holds too much of what has to be kept from commands.
    """
    work = os.path.realpath(work_dir)
    home = os.path.realpath(environ.get("HOME") or os.path.expanduser("~"))
    if _under(home, (work,)):
        raise NoSandbox("the work folder holds your home folder, with all that is secret in it")
    names = CACHES if settings.writable is None else settings.writable
    extra = {real for name in names if (real := _named(name, home, (work,)))}
    # Commands write to the caches too, and could have what is named there lead anywhere.
    shown = {real for path in settings.readable if (real := _named(path, home, (work, *extra)))}
    hidden = {
        real
        for place in _secret_places(home, environ)
        if (real := os.path.realpath(place)) not in shown and os.path.lexists(real)
    }
    if above := next((place for place in sorted(hidden) if _under(work, (place,))), None):
        raise NoSandbox(f"the work folder is in {above}, where secrets are kept")
    writable = {
        path
        for path in extra
        if os.path.exists(path) and not _under(path, hidden) and not _under(home, (path,))
    }
    hidden |= {
        real
        for place in _secret_in_home(home)
        if (real := os.path.realpath(place)) not in shown
        and not any(_under(one, (real,)) for one in (work, *writable))
    }
    top, watch, nested = _look(work)
    if not watch.is_whole:
        raise NoSandbox(
            f"the work folder holds more than {_MOST_LOOKED_AT} files in its upper part, too many to look for secrets in"
        )
    kept: set[str] = set(top)
    commons: list[str] = []
    hidden |= {path for path in watch.secrets if path not in shown}
    hidden |= {*stray_sockets(watch.sockets, home)} - shown
    # A command may have removed them since they were seen; and those of the home folder may lead in here.
    for names, real in (*known_links(work), *links_in(home, deepest=0)):
        if not real.startswith(f"{work}/") or not os.path.exists(real):
            continue
        if protected_names.secrets().rule_in(names):
            hidden |= {real} - shown
        elif len(names) == 1 and protected_names.runs_later().rule_in(names):
            kept.add(real)
    for repository in [work, *nested]:
        link = os.path.join(repository, ".git")
        if os.path.islink(link):
            raise NoSandbox(f"{link} is a link, which cannot be held still")
        common = _shared_repository(repository)
        if common and not _under(common, (work,)):
            writable.add(common)
            commons.append(common)
        for git in [common] if common else repositories_behind(link, work):
            kept |= set(_of_git(git))
            kept |= {
                path
                for path in named_by_settings(git, repository, home=home)
                if _under(path, (work,))
            }
        kept |= {path for path in [link] if os.path.isfile(path)}
    for bare in (git for git in watch.repositories if folded(os.path.basename(git)) != ".git"):
        kept |= {*_of_git(bare, makes_hooks=False)} | {
            path for path in named_by_settings(bare, bare, home=home) if _under(path, (work,))
        }
    roots = [work, *sorted(path for path in writable if not _under(path, (work,)))]
    kept_paths = sorted(kept - hidden)
    secret_paths = outermost(hidden)
    return Policy(
        work=work,
        writable=tuple(roots),
        kept=tuple(kept_paths),
        pinned=tuple(
            sorted(
                {one for path in kept_paths + secret_paths for one in folders_between(path, roots)}
            )
        ),
        hidden=tuple(sorted(hidden)),
        network=network or settings.network,
        watch=watch.with_commons(commons),
        held=_identities((*kept_paths, *secret_paths)),
    )


def _identities(paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            found[path] = (status.st_dev, status.st_ino)
    return found


def _under(path: str, folders: tuple[str, ...] | set[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _named(path: str, home: str, within: tuple[str, ...]) -> str:
    """The real path of one that the user names; empty for one that a link in these folders leads elsewhere: whoever
    writes there could have it lead anywhere."""
    names = os.path.normpath(os.path.join(home, path.removeprefix("~/"))).split("/")
    for at in range(1, len(names) + 1):
        real = os.path.realpath("/".join(names[:at]) or "/")
        if _under(real, within):
            inside = os.path.join(real, *names[at:])
            return inside if os.path.realpath(inside) == inside else ""
    return os.path.realpath("/".join(names))


def _secret_places(home: str, environ: Mapping[str, str]) -> Iterator[str]:
    for place in SECRET_PLACES:
        yield os.path.join(home, place)
    yield from SECRET_SYSTEM_PLACES
    yield from map(str, app_paths.own_places(environ))


def _secret_in_home(home: str) -> Iterator[str]:
    """What is secret by its name at the top of the home folder, and of the folders of configurations in it."""
    rules = protected_names.secrets()
    for above in ((), (".config",), (".local", "share")):
        with contextlib.suppress(OSError), os.scandir(os.path.join(home, *above)) as listing:
            for item in listing:
                if rules.rule_in((*above, item.name), is_folder=item.is_dir()):
                    yield item.path


def outermost(paths: set[str]) -> list[str]:
    """Those of the paths that are below no other of them, sorted."""
    found: list[str] = []
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        if not _under(path, tuple(found)):
            found.append(path)
    return sorted(found)


def folders_between(path: str, roots: Sequence[str]) -> Iterator[str]:
    """The folders above a path, up to the writable one that holds it."""
    root = next((one for one in roots if path.startswith(f"{one}/")), None)
    above = os.path.dirname(path)
    while root is not None and above != root:
        yield above
        above = os.path.dirname(above)


# -- what stands in the work folder -----------------------------------------------------------------------

_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Watch:
    """The files below a work folder that run later, as they were at one time, those that hold secrets, and repositories."""

    work: str
    stamps: Mapping[str, _Stamp]
    secrets: tuple[str, ...]
    repositories: tuple[str, ...] = ()
    is_whole: bool = True
    commons: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()

    def with_commons(self, commons: Sequence[str]) -> Watch:
        """The same, with the repositories elsewhere that working trees in the folder belong to."""
        stamps = dict(self.stamps)
        for git in commons:
            stamps |= _git_stamps(git)
        return replace(self, stamps=stamps, commons=tuple(commons))

    def changed(self) -> list[str]:
        """Which of them are new or another by now, relative to the work folder, shallow ones first. For a thread."""
        now = dict(_look(self.work)[1].stamps)
        for git in self.commons:
            now |= _git_stamps(git)
        # Where the folder was filled meanwhile, not all of it was looked at again: what is known is, in any case.
        for path in self.stamps.keys() - now.keys():
            now |= _stamped(path)
        for path in now.keys() - self.stamps.keys():
            if os.path.basename(os.path.dirname(path)) in _STEPS:
                _begun_by_commands.update(_identities([os.path.dirname(path)]).items())
        changed = [
            os.path.relpath(path, self.work)
            for path, stamp in now.items()
            if self.stamps.get(path) != stamp
        ]
        return sorted(changed, key=lambda path: (path.count("/"), path))

    def remove_moves(self) -> list[str]:
        """Remove what makes git look for the settings of a repository elsewhere, where that was not there before.

        Git itself makes no such file in these places, and there is no way to keep a file from being made. For a thread.

        Returns:
            what was removed, relative to the work folder.
        """
        removed: list[str] = []
        for git in self.repositories:
            path = os.path.join(git, "commondir")
            if path not in self.stamps and os.path.lexists(path):
                with contextlib.suppress(OSError):
                    os.unlink(path)
                    removed.append(os.path.relpath(path, self.work))
        return removed


def _look(work: str) -> tuple[list[str], Watch, list[str]]:
    """Look through the upper part of a work folder.

    Returns:
        what at its top runs later; the same below and what is secret; the folders that are repositories of their own.
    """
    top: list[str] = []
    stamps: dict[str, _Stamp] = {}
    secrets: list[str] = []
    secret, later = protected_names.secrets(), protected_names.runs_later()
    repositories: list[str] = []
    gits: list[str] = []
    sockets: list[str] = []
    waiting = deque([(work, 0)])
    n_looked_at = 0
    while waiting and n_looked_at <= _MOST_LOOKED_AT:
        folder, depth = waiting.popleft()
        parts: set[str] = set()
        with contextlib.suppress(OSError), os.scandir(folder) as listing:
            for item in listing:
                n_looked_at += 1
                name, path = item.name, item.path
                # The top is always looked at whole: what is held still there must not depend on what else is there.
                if depth and n_looked_at > _MOST_LOOKED_AT:
                    break
                if name == ".git" or _is_git_too(folder, name):
                    if depth:
                        repositories.append(folder)
                    stamps |= _git_stamps(path)
                    if item.is_dir(follow_symlinks=False):
                        gits.append(path)
                    continue
                if name in _OF_BARE:
                    parts.add(name)
                is_folder, is_link = item.is_dir(follow_symlinks=False), item.is_symlink()
                place = path[len(work) :].lstrip("/")
                is_secret = secret.ends_in(place, is_folder=is_folder)
                if is_secret:
                    secrets += _inside(path, work) if is_link else [path]
                if later.rule_in(place.split("/"), is_folder=is_folder):
                    if depth == 0:
                        top += _inside(path, work) if is_link else [path]
                    if not is_folder:
                        stamps |= _stamped(path)
                if not (is_folder or is_link or item.is_file(follow_symlinks=False)):
                    sockets.append(path)
                if is_folder and not is_secret and depth < _DEEPEST and name not in PASSED_OVER:
                    waiting.append((path, depth + 1))
        if len(parts) == len(_OF_BARE):
            stamps |= _git_stamps(folder)
            gits.append(folder)
    for deep in _deep_submodules([work, *repositories]):
        link = os.path.join(deep, ".git")
        if deep not in repositories and os.path.lexists(link):
            repositories.append(deep)
            stamps |= _git_stamps(link)
            gits += [link] if os.path.isdir(link) and not os.path.islink(link) else []
    is_whole = n_looked_at <= _MOST_LOOKED_AT
    watch = Watch(
        work, stamps, tuple(secrets), tuple(gits), is_whole=is_whole, sockets=tuple(sockets)
    )
    return top, watch, repositories


def _is_git_too(folder: str, name: str) -> bool:
    """Whether this is `.git` under another spelling, as file systems that ignore case allow."""
    if name.isascii() and not name.startswith("."):
        return False
    return folded(name) == ".git" and os.path.lexists(os.path.join(folder, ".git"))


def _deep_submodules(repositories: Sequence[str]) -> Iterator[str]:
    """The folders of submodules, which may lie deeper than is looked."""
    for folder in repositories:
        try:
            data = read_regular(Path(folder, ".gitmodules"), _SETTINGS_BYTES)
        except OSError:
            continue
        for line in data.decode(errors="surrogateescape").split("\n")[:_MOST_NAMED]:
            key, _, value = line.partition("=")
            path = os.path.normpath(value.strip().strip('"'))
            if key.strip().lower() == "path" and "\0" not in path:
                found = os.path.join(folder, path)
                # Nothing that a link leads to elsewhere.
                if os.path.realpath(found) == found and found.startswith(f"{folder}/"):
                    yield found


def _inside(link: str, work: str) -> list[str]:
    """What a link leads to, where that is in the work folder and not all of it."""
    real = remember(work, link)
    return [real] if real.startswith(f"{work.rstrip('/')}/") and os.path.exists(real) else []


def _stamped(path: str) -> dict[str, _Stamp]:
    try:
        found = os.lstat(path)
    except OSError:
        return {}
    return {path: (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)}


def _git_stamps(git: str) -> dict[str, _Stamp]:
    """Of what moves a repository's configuration elsewhere, or is it; a new repository's too."""
    if not os.path.isdir(git):
        return _stamped(git)
    stamps: dict[str, _Stamp] = {}
    for name in ("commondir", "config", "config.worktree"):
        # An empty one says nothing, and may be ours.
        stamps |= {
            path: stamp for path, stamp in _stamped(os.path.join(git, name)).items() if stamp[1]
        }
    stamps |= _hook_stamps(git) | _step_stamps(git)
    for tree in _listed(os.path.join(git, "worktrees"))[:_MOST_REPOSITORIES]:
        stamps |= _step_stamps(tree)
    with contextlib.suppress(NoSandbox):
        for module in _modules(git):
            stamps |= _stamped(os.path.join(module, "config"))
            stamps |= _hook_stamps(module) | _step_stamps(module)
    with contextlib.suppress(NoSandbox):
        for path in named_by_settings(git, os.path.dirname(git), there=False):
            if os.path.isfile(path):
                # What was not there could not be held still.
                stamps |= _stamped(path)
    return stamps


def _hook_stamps(git: str) -> dict[str, _Stamp]:
    stamps: dict[str, _Stamp] = {}
    with contextlib.suppress(OSError):
        for hook in os.listdir(os.path.join(git, "hooks")):
            if not hook.endswith(".sample"):
                stamps |= _stamped(os.path.join(git, "hooks", hook))
    return stamps


_STEPS = {"rebase-merge": "git-rebase-todo", "sequencer": "todo"}
"""Where the steps of a rebase are that stopped: `git rebase --continue` runs what an `exec` there says."""
_begun_by_commands: set[tuple[str, tuple[int, int]]] = set()
"""Those that a command began can be gone on with by the next one, and were named."""


def _step_stamps(git: str) -> dict[str, _Stamp]:
    stamps: dict[str, _Stamp] = {}
    for folder, name in _STEPS.items():
        stamps |= _stamped(os.path.join(git, folder, name))
    return stamps


def _of_git(git: str, *, makes_hooks: bool = True) -> Iterator[str]:
    """What in a repository decides which programs git runs."""
    if not os.path.isdir(git) or os.path.islink(git):
        return
    modules = [*_modules(git)]
    for path in (git, *modules) if makes_hooks else ():
        with contextlib.suppress(OSError):
            # An empty one, as git itself makes it: where it is missing, a command could make one and fill it.
            os.mkdir(os.path.join(path, "hooks"))
    trees = _listed(os.path.join(git, "worktrees"))
    if len(trees) > _MOST_REPOSITORIES:
        raise NoSandbox(f"{git} has more than {_MOST_REPOSITORIES} working trees")
    for path in (git, *modules, *trees):
        there = [one for one in (os.path.join(path, name) for name in _STEPS) if os.path.isdir(one)]
        steps = _identities(one for one in there if not os.path.islink(one))
        yield from (one for one, which in steps.items() if (one, which) not in _begun_by_commands)
        for name in ("hooks", "config", "config.worktree", "commondir", "gitdir"):
            inner = os.path.join(path, name)
            if os.path.lexists(inner) and not os.path.islink(inner):
                yield inner
            elif os.path.islink(inner):
                # A link itself cannot be held still; what holds it can.
                yield path
            elif name == "config.worktree" and path == git and _has_own_settings(git):
                # Where git would read it, an empty one: a missing one could be made.
                with contextlib.suppress(OSError):
                    os.close(open_regular(Path(inner), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                    yield inner


def _has_own_settings(git: str) -> bool:
    """Whether a repository has settings of its own for each working tree."""
    try:
        text = read_regular(Path(git, "config"), _SETTINGS_BYTES).decode(errors="replace")
    except OSError:
        return False
    return any(
        line.strip().lower().startswith("worktreeconfig") and "true" in line.lower()
        for line in text.split("\n")
    )


def named_by_settings(git: str, top: str, *, home: str = "", there: bool = True) -> set[str]:
    """The files and folders that a repository's settings name: included settings, hooks, programs such as filters.

    Args:
        git: the repository.
        top: the folder that its files are in, where relative names begin.
        home: whose user's settings count too; relative names in them lead into the repository as well.
        there: only what exists.

    Returns:
        real paths; none of them holds the repository or all of its files.

    Raises:
        NoSandbox: they name too much to look it all up, or are too many or too long.
    """
    found: set[str] = set()
    n_named = 0
    waiting = [os.path.join(git, "config"), os.path.join(git, "config.worktree")]
    waiting += [os.path.join(home, name) for name in _USER_SETTINGS if home]
    read: set[str] = set()
    while waiting:
        settings = waiting.pop()
        if settings in read:
            continue
        read.add(settings)
        if len(read) > _MOST_SETTINGS_FILES or _size(settings) > _SETTINGS_BYTES:
            raise NoSandbox(f"git's settings for {top} are too many or too long to look through")
        try:
            text = read_regular(Path(settings), _SETTINGS_BYTES).decode(errors="surrogateescape")
        except OSError:
            continue
        section = ""
        for line in map(str.strip, text.replace("\r\n", "\n").replace("\\\n", "").split("\n")):
            head, _, rest = line[1:].partition("]") if line.startswith("[") else ("", "", line)
            section = head.partition(" ")[0].lower() or section
            key, _, value = rest.partition("=")
            name, value = key.strip().lower(), value.strip()
            if not value or section in _NO_PROGRAMS:
                continue
            whole = _COMMENT.sub(r"\1", value).replace('"', "").strip()
            if whole.startswith("~/"):
                whole = os.path.join(home, whole[2:]) if home else os.path.expanduser(whole)
            if section in ("include", "includeif") and name == "path":
                n_named += 1
                waiting.append(os.path.realpath(os.path.join(os.path.dirname(settings), whole)))
                found.add(waiting[-1])
            elif name in ("hookspath", "attributesfile"):
                found.add(os.path.realpath(os.path.join(top, whole)))
            else:
                # A program, in front of its arguments or behind a shell.
                words = [word for word in value.translate(_QUOTES).split() if "/" in word]
                n_named += len(words)
                if n_named > _MOST_NAMED:
                    raise NoSandbox(f"git's settings for {top} name more than {_MOST_NAMED} files")
                paths = [os.path.realpath(os.path.join(top, word)) for word in words]
                found |= {path for path in paths if os.path.isfile(path)}
    above = {os.path.realpath(top), os.path.realpath(git)}
    return {
        path
        for path in found
        if (os.path.exists(path) or not there) and not any(_under(one, (path,)) for one in above)
    }


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _modules(git: str) -> Iterator[str]:
    """The repositories of submodules.

    Raises:
        NoSandbox: there are too many folders to find them in.
    """
    waiting = _listed(os.path.join(git, "modules"))
    n_seen = 0
    while waiting:
        n_seen += 1
        if n_seen + len(waiting) > _MOST_REPOSITORIES:
            raise NoSandbox(f"{git}/modules has more than {_MOST_REPOSITORIES} folders")
        folder = waiting.pop()
        if os.path.exists(os.path.join(folder, "HEAD")):
            yield folder
            waiting += _listed(os.path.join(folder, "modules"))
        else:
            waiting += _listed(folder)


def _listed(folder: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        return [item.path for item in listing if item.is_dir(follow_symlinks=False)]
    return []


def repositories_behind(link: str, work: str) -> list[str]:
    """The repository that `.git` is, or the ones in the work folder that the file of that name leads to."""
    if not os.path.isfile(link):
        return [link]
    named = _first_line(link).removeprefix("gitdir:").strip()
    own = os.path.realpath(os.path.join(os.path.dirname(link), named))
    common = _first_line(os.path.join(own, "commondir")).strip()
    found = {own, os.path.realpath(os.path.join(own, common)) if common else own}
    return sorted(path for path in found if path.startswith(f"{work}/"))


def _shared_repository(folder: str) -> str:
    """The repository that a linked working tree belongs to; empty where the folder is none.

    Only one that names this folder itself: the file `.git` is a repository's own word, and could name any folder.
    """
    link = os.path.join(folder, ".git")
    if not os.path.isfile(link):
        return ""
    own = _first_line(link).removeprefix("gitdir: ")
    own = os.path.realpath(os.path.join(folder, own))
    if os.path.realpath(_first_line(os.path.join(own, "gitdir"))) != os.path.realpath(link):
        return ""
    common = _first_line(os.path.join(own, "commondir"))
    found = os.path.realpath(os.path.join(own, common)) if common else ""
    is_one = found and own.startswith(f"{found}/worktrees/") and os.path.isdir(f"{found}/objects")
    return found if is_one else ""


def is_own_repository(folder: str) -> bool:
    """Whether what git would show for a folder is that folder's own, as far as its repository does not name another's.

    A file `.git` counts where the repository behind it lies in the folder, or names the folder itself.
    """
    link = os.path.join(folder, ".git")
    if os.path.islink(link):
        return False
    own = link
    if not os.path.isdir(link):
        if _shared_repository(folder):
            return True
        top = os.path.realpath(folder)
        own = os.path.realpath(os.path.join(top, _first_line(link).removeprefix("gitdir:").strip()))
        if not _under(own, (top,)) and top != _working_tree(own):
            return False
    return not has_parts_elsewhere(own)


def has_parts_elsewhere(git: str) -> bool:
    """Whether a repository takes commits, names or settings from somewhere else."""
    return any(os.path.lexists(os.path.join(git, name)) for name in _GIT_ELSEWHERE) or any(
        os.path.islink(os.path.join(git, name)) for name in _GIT_OWN
    )


def _working_tree(git: str) -> str:
    """The folder that a submodule's repository says its files are in; empty where it says none."""
    try:
        text = read_regular(Path(git, "config"), _SETTINGS_BYTES).decode(errors="surrogateescape")
    except OSError:
        return ""
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        if key.strip().lower() == "worktree":
            return os.path.realpath(os.path.join(git, value.strip().strip('"')))
    return ""


def _first_line(path: str) -> str:
    try:
        with open(open_regular(Path(path)), "rb", buffering=0) as file:
            data = file.read(_GIT_FILE_BYTES) or b""
    except OSError:
        return ""
    return data.decode(errors="surrogateescape").partition("\n")[0]


def refused(output: str, policy: Policy) -> list[str]:
    """What was refused, in words such as `writing /etc/hosts`, `reading ~/.ssh`, `the network`; each once.

    Args:
        output: of a command that failed.
        policy: that held for it.
    """
    found: list[str] = []
    for line in (line[:_LONGEST_ERROR_LINE] for line in output.splitlines()):
        if not policy.network and _NO_NETWORK.search(line):
            found.append("the network")
        if match := _REFUSED.search(line):
            found += _refused_by_line(line, match.start(), policy)
    return list(dict.fromkeys(found))[:_MOST_REFUSALS]


def _refused_by_line(line: str, at: int, policy: Policy) -> list[str]:
    """What a line with an error in it (at `at`) is about: what it quotes, else the path before the error, or after it."""
    paths = [*_QUOTED.findall(line), *reversed(_PATH.findall(line[:at])), *_PATH.findall(line[at:])]
    for path in paths:
        if "/" not in path and not path.startswith("."):
            continue
        if not policy.may_read(path):
            return [f"reading {path}"]
        if not policy.may_write(path):
            return [f"writing {path}"]
    return []
