"""Private layers over the caches of package managers: a sandboxed command reads the user's caches, and writes go to a layer of its own.

Installed programs of other projects lie in these caches (environments of Poetry and pre-commit, toolchains of Go, what `uv` links into
environments), so a command must not change them. Each work folder has one layer in this program's data folder, which outlives
commands and sessions:

    sandbox/ID/folder           the work folder
    sandbox/ID/N.lock           locked as long as a command uses the layer N
    sandbox/ID/N/upper/NAME     what commands wrote over one cache; `work/NAME` is the kernel's
    sandbox/ID/plain/NAME       in the place of the user's `~/.cache`, with the caches in it laid over it
    sandbox/ID/variables        for tools whose cache the user does not have, or where there can be no layer: variables name it

`confine.py` mounts overlays of them anew for each command. A second command at the same time takes the next layer, with the others
below it; the kernel does not define what happens where two mounts write to one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kimi_tui import app_paths
from kimi_tui.filesystem import links_to
from kimi_tui.tools.process import word_set

FOLDER = "sandbox"
"""In the data folder: the layers of all work folders."""
VARIABLES_AT = "/tmp/.kimi-tui-caches"
"""Where a command that has a private `/tmp` finds the folder that the variables name."""
MOST_BYTES = 2 << 30
"""The most that the layers of one work folder hold between commands."""
MOST_BYTES_IN_ALL = 8 << 30
_UNIT_DEPTH = 2
"""Tools find their way when whole folders at this depth of a cache are missing: a package, a bucket of downloads."""
_LONGEST_NAME = 60
_TRIAL_S = 10.0

_TOOLS = {
    ".npm": "npm_config_cache",
    ".cargo": "CARGO_HOME",
    "go/pkg": "GOPATH",
    ".gradle": "GRADLE_USER_HOME",
    ".m2": "MAVEN_OPTS",
    ".yarn": "YARN_GLOBAL_FOLDER",
    ".bun/install": "BUN_INSTALL_CACHE_DIR",
    ".nuget": "NUGET_PACKAGES",
    ".pub-cache": "PUB_CACHE",
    ".ccache": "",
    ".sbt": "",
    ".ivy2": "",
    ".hex": "",
    ".mix": "",
    ".cabal": "",
    ".stack": "",
    ".conan2": "",
    ".composer": "",
    ".bundle": "",
    ".local/share/pnpm": "",
}
"""Below the home folder: where package managers keep what they fetched, and the variable by which they keep it elsewhere."""
_NAMED = {"CARGO_HOME": "", "GOPATH": "pkg", "GOMODCACHE": "", "GOCACHE": ""}
"""Variables that commands get of the user, with the folder of the cache in what they name."""
_FOLDERS = {"GOPATH": "go"}
"""Names of private folders that are not those of the caches."""
_CACHE = ".cache"
_CACHES = word_set("""pip uv pypoetry pre-commit yarn pnpm node go-build ccache sccache mypy ruff black pylint flake8 pdm hatch
    virtualenv pipenv pip-tools tox rattler matplotlib fontconfig numba jedi parso huggingface torch ms-playwright puppeteer Cypress
    selenium bazel bazelisk deno composer electron electron-builder node-gyp typescript turbo prisma golangci-lint gopls staticcheck
    goimports vcpkg conan meson xmake zig coursier sbt bundler helm trivy buf clangd rust-analyzer ansible-compat""")
"""Below `~/.cache`: what commands may read. Of the rest of that folder they see nothing, and make their own."""
_BESIDES = {
    "PIP_CACHE_DIR": "pip",
    "UV_CACHE_DIR": "uv",
    "POETRY_CACHE_DIR": "pypoetry",
    "YARN_CACHE_FOLDER": "yarn",
    "GOCACHE": "go-build",
    "GOMODCACHE": "go/pkg/mod",
    "CCACHE_DIR": "ccache",
    "SCCACHE_DIR": "sccache",
    "DENO_DIR": "deno",
    "COMPOSER_CACHE_DIR": "composer",
    "pnpm_config_store_dir": "pnpm",
}
"""Variables of tools whose caches are below `~/.cache`, for where no layer can be laid over that."""
_ONLY_READ = {"PRE_COMMIT_HOME": "pre-commit", "COREPACK_HOME": "node/corepack"}
"""Tools that work with a cache which they can only read: the variable counts where the user has none."""


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches that a command may read, as real paths.

    Attributes:
        overlaid: folders that are read like the user's own.
        plain: folders of caches (`~/.cache`) of which a command sees nothing but those of `overlaid` that are in it.
        missing: variables of tools whose folder the user does not have, with the name of theirs in the private one.
        known: values of variables that let a tool read in the user's cache while it writes to a private one.
    """

    overlaid: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    known: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def covered(self) -> tuple[str, ...]:
        """What a private layer lies over, shallow ones first."""
        return (*self.plain, *self.overlaid)

    def words(self, folder: str) -> list[str]:
        """What `confine` is told, for the layers in a folder."""
        return [
            f"layers:{folder}",
            *(f"plain:{_name_of(path)}{path}" for path in self.plain),
            *(f"layer:{_name_of(path)}{path}" for path in self.overlaid),
        ]

    def variables(self, folder: str, *, is_layered: bool) -> dict[str, str]:
        """The variables by which tools keep their caches in a private folder.

        Args:
            folder: its path, as a command sees it.
            is_layered: there are layers, so that this is for what the user does not have alone.
        """
        names = dict(self.missing)
        if is_layered and self.plain:
            names = {variable: name for variable, name in names.items() if variable not in _ONLY_READ}
        elif not is_layered:
            names.pop("XDG_CACHE_HOME", None)
            tools = {variable: name for name, variable in _TOOLS.items() if variable}
            names |= {one: _FOLDERS.get(one, name.strip(".")) for one, name in tools.items()}
            names |= _BESIDES
        found = {variable: os.path.join(folder, name) for variable, name in names.items()}
        if own := found.pop("MAVEN_OPTS", ""):
            tail = self.known.get("MAVEN_OPTS", "")
            found["MAVEN_OPTS"] = f"-Dmaven.repo.local={own}" + (tail and f" {tail}")
        if not is_layered:
            found |= {name: one for name, one in self.known.items() if name != "MAVEN_OPTS"}
        # A link between a layer and the work folder is none: they are two file systems.
        return {**found, "UV_LINK_MODE": "copy"}


def cache_places(environ: Mapping[str, str]) -> Iterator[str]:
    """Where caches of package managers may be, whether they exist or not; as named, not as real paths."""
    yield from app_paths.home_places(environ, _CACHE, *_TOOLS)
    home = os.path.realpath(app_paths.home_of(environ) or "/")
    yield from (os.path.join(home, name) for name in (".local/share/virtualenvs", "Library/Caches"))
    yield from _named(environ).values()


def _named(environ: Mapping[str, str]) -> dict[str, str]:
    """The caches that variables of the user name."""
    return {
        variable: os.path.join(named, below) if below else named
        for variable, below in _NAMED.items()
        if os.path.isabs(named := environ.get(variable, ""))
    }


def caches_of(environ: Mapping[str, str], avoided: Collection[str], work: str) -> Caches:
    """The user's caches.

    Args:
        environ: the environment.
        avoided: real paths of what commands write anyway, or do not see: nothing in them.
        work: the work folder, which is in none of the caches that are laid over.
    """
    home = os.path.realpath(app_paths.home_of(environ) or "/")

    def usable(path: str) -> str:
        links, end = links_to(path)
        places = (end, *links)
        if any(_is_under(place, avoided) for place in places) or _is_under(home, (end,)):
            return ""
        return end if os.path.isdir(end) else ""

    plain = [
        (place, end)
        for place in app_paths.home_places(environ, _CACHE)
        if (end := usable(place)) and not _is_under(work, (end,))
    ]
    used = {top for place, _ in plain for top in _used_below(place, environ)}
    overlaid = [usable(os.path.join(place, name)) for place, _ in plain for name in (*_CACHES, *used)]
    missing: dict[str, str] = {}
    named = _named(environ)
    overlaid += [end for end in map(usable, named.values()) if end and not _is_under(work, (end,))]
    for name, variable in _TOOLS.items():
        places = [named[variable]] if variable in named else app_paths.home_places(environ, name)
        ends = [end for end in map(usable, places) if end]
        overlaid += [end for end in ends if not _is_under(work, (end,))]
        if not ends and variable:
            missing[variable] = _FOLDERS.get(variable, name.strip("."))
    known: dict[str, str] = {}
    cache = next((place for place, _ in plain), os.path.join(home, _CACHE))
    for variable, name in _ONLY_READ.items():
        if not os.path.isdir(os.path.join(cache, name)):
            missing[variable] = name
    if not plain:
        missing["XDG_CACHE_HOME"] = "cache"
    for variable, path, form in (
        ("POETRY_VIRTUALENVS_PATH", os.path.join(cache, "pypoetry/virtualenvs"), "{}"),
        ("GRADLE_RO_DEP_CACHE", os.path.join(home, ".gradle/caches"), "{}"),
        ("MAVEN_OPTS", os.path.join(home, ".m2/repository"), "-Dmaven.repo.local.tail={}"),
    ):
        if os.path.isdir(path) and " " not in path:
            known[variable] = form.format(path)
    ends = {end for end in overlaid if end}
    return Caches(
        tuple(sorted(end for end in ends if not _is_under(os.path.dirname(end), ends))),
        tuple(sorted({end for _, end in plain})),
        MappingProxyType(missing),
        MappingProxyType(known),
    )


def _used_below(cache: str, environ: Mapping[str, str]) -> Iterator[str]:
    """The folders at the top of `~/.cache` in which environments are that the user works in."""
    named = (environ.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX"))
    for path in (*environ.get("PATH", "").split(os.pathsep), *named):
        if path.startswith(f"{cache}/"):
            yield path[len(cache) + 1 :].partition("/")[0]


def _is_under(path: str, folders: Collection[str]) -> bool:
    while path not in folders:
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True


def _name_of(path: str) -> str:
    """The name of a cache's layer: readable, and one to one."""
    shown = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in path.strip("/"))
    return f"{shown[-_LONGEST_NAME:]}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
