"""The home folder as a sandboxed command sees it: allowed files, and no others, whatever they are called."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cases import each
from support.covered import bubblewrap, command_of, is_hidden, needs_landlock, whole_sandbox
from support.sandbox_targets import USERS, give, number_of, targets

from kimi_tui.app_paths import XDG_FOLDERS
from kimi_tui.tools.sandbox import confine
from kimi_tui.tools.sandbox import home as home_module
from kimi_tui.tools.sandbox.home import HomeView, home_view
from kimi_tui.tools.sandbox.policy import Policy, SandboxSettings, policy_for
from kimi_tui.tools.sandbox.redacted import without_credentials
from kimi_tui.tools.sandbox.refusals import hidden_reads
from kimi_tui.tools.sandbox.sandbox import Sandbox, macos_profile
from kimi_tui.workspace import protected_names

HERE = Path(__file__).parent
PLACES = [line for line in (HERE / "secret_places.txt").read_text().splitlines() if line[:1] != "#"]
FEWEST_PLACES = 900
LOOK = r"""
find ~ -type f -exec cat {} + 2> /dev/null
while IFS= read -r place; do mapfile -t text < "$HOME/$place" && echo "${text[@]}"; done < places 2> /dev/null
echo "== names"
find ~ | sed "s|^$HOME/||"
cat /proc/self/mountinfo /proc/1/mountinfo /proc/[0-9]*/cmdline /proc/keys 2> /dev/null | tr '\0' ' '
"""
CANARY = "not-for-commands"
OF_SETTINGS = {
    ".npmrc": "registry=https://npm.example.org/\n//npm.example.org/:_authToken={0}\n",
    ".yarnrc.yml": "nodeLinker: node-modules\nnpmAuthToken: {0}\n",
    ".curlrc": 'silent\nuser = "me:{0}"\n',
    ".wgetrc": "timeout = 10\nhttp_password = {0}\n",
    ".terraformrc": 'credentials "app.terraform.io" {{\n  token = "{0}"\n}}\n',
    ".bundle/config": '---\nBUNDLE_PATH: "vendor"\nBUNDLE_GEMS__EXAMPLE__COM: "https://me:{0}@gems.example.com/"\n',
    ".m2/settings.xml": "<settings><server><password>{0}</password></server></settings>\n",
    ".nuget/NuGet/NuGet.Config": '<add key="ClearTextPassword" value="{0}" />\n',
    ".pip/pip.conf": "[global]\nindex-url = https://me:{0}@pypi.example.com/simple\n",
    ".config/pip/pip.conf": "[global]\nextra-index-url =\n    https://{0}@pypi.example.com/simple\ntimeout = 5\n",
    ".config/uv/uv.toml": '[[index]]\nurl = "https://me:{0}@pypi.example.com/simple"\n',
    ".condarc": "channels:\n  - https://conda.example.com/t/{0}/channel\n  - defaults\n",
    ".config/hatch/config.toml": '[publish.index]\nuser = "me"\nauth = "x"\npassword = "{0}"\n',
    ".cabal/config": "remote-repo: hackage\npassword: {0}\n",
    ".Rprofile": 'Sys.setenv(GITHUB_TOKEN = "{0}")\n',
    ".lein/profiles.clj": '{{:user {{:repositories {{"x" {{:password "{0}"}}}}}}}}\n',
    ".gradle/init.d/artifactory.gradle": 'credentials {{ username "me"; password "{0}" }}\n',
}
"""Settings with a credential beside the values that commands need; other settings get a token."""
MORE_SETTINGS = {
    ".gitconfig": '[user]\n\tname = Me\n[url "https://me:{0}@github.com/"]\n\tinsteadOf = gh:\n[http]\n\textraHeader = Authorization: Basic {0}\n[alias]\n\tst = status\n',
    ".cargo/config.toml": '[build]\njobs = 2\n[registries.own]\nindex = "sparse+https://x.example"\ntoken = "{0}"\n',
    ".config/go/env": "GOFLAGS=-mod=mod\nGOPROXY=https://me:{0}@proxy.example.com\n",
    ".gradle/gradle.properties": "org.gradle.jvmargs=-Xmx2g\nsigning.password={0}\n",
    ".config/nix/nix.conf": "max-jobs = 4\naccess-tokens = github.com={0}\n",
}
NAMES_SHOWN = {
    *(*OF_SETTINGS, ".gradle/gradle.properties", ".bunfig.toml", ".config/pdm/config.toml"),
    ".opam/github-token",
}
SHOWN = [
    "registry=https://npm.example.org/",
    "nodeLinker: node-modules",
    "name = Me",
    "st = status",
]
SHOWN += [
    "jobs = 2",
    "GOFLAGS=-mod=mod",
    "org.gradle.jvmargs=-Xmx2g",
    "max-jobs = 4",
    "timeout = 5",
]
TOOLCHAINS = [
    *(".cargo/bin/tool", ".rustup/toolchains/stable/bin/rustc", ".nvm/versions/node/v22/bin/node"),
    *(".pyenv/versions/3.13/bin/python", ".local/bin/tool", ".local/share/uv/tools/x/bin/x"),
    *(
        ".volta/bin/x",
        "go/bin/x",
        "go/pkg/mod/x/y.go",
        ".sdkman/candidates/java/x",
        ".rbenv/shims/ruby",
    ),
    *(".cache/pip/x", ".cache/pre-commit/x", ".m2/repository/x.jar", ".config/ruff/ruff.toml"),
    *(".editorconfig", ".vimrc", ".prettierrc", ".clang-format", ".config/git/ignore"),
]


class World:
    """A home with all places, and a work folder in it; where no command has a private folder over it."""

    def __init__(self, base: Path) -> None:
        self.base, self.home, self.work = base, base / "home", base / "home/projects/mine"
        for name in (*PLACES, *MORE_SETTINGS):
            text = {**OF_SETTINGS, **MORE_SETTINGS}.get(name, "token = {0}\n")
            write(self.home / name, text.format(CANARY))
        for name in TOOLCHAINS:
            write(self.home / name, f"toolchain {name}\n")
        write(self.work / "places", "".join(f"{name}\n" for name in PLACES))
        self.environ = {**os.environ, "HOME": str(self.home), "KIMI_TUI_HOME": str(base / "app")}
        for name in XDG_FOLDERS.values():
            self.environ.pop(name, None)

    def run(self, sandbox: Sandbox, script: str, user: int) -> subprocess.CompletedProcess[str]:
        """Run a script in the sandbox as a user."""
        confined = sandbox.confined(["/bin/bash", "-c", script], self.work)
        words = self.base / "words"
        words.write_bytes(b"\0".join(map(os.fsencode, confined.words)))
        assert sandbox._tmp is not None
        tmp = Path(sandbox._tmp.path)
        give((tmp, *tmp.iterdir(), self.base, *self.base.rglob("*")), user)
        told = [Path(confine.__file__).parent, user, self.work, words, *confined.argv]
        try:
            return subprocess.run(
                [sys.executable, "-S", str(HERE / "confined.py"), *map(str, told)],
                env=dict(confined.environ),
                capture_output=True,
                text=True,
                timeout=50,
                check=False,
            )
        finally:
            give((self.base, *self.base.rglob("*")), os.geteuid())
            sandbox.remove_temporary()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with targets("home") as (base, _held):
        yield World(base)


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> int:
    return number_of(request.param)


def write(path: Path, text: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def check(said: str, work: Path) -> None:
    text, _, names = said.partition("== names\n")
    assert CANARY not in text, [line for line in text.splitlines() if CANARY in line]
    for name in TOOLCHAINS:
        assert f"toolchain {name}\n" in text, name
    for line in SHOWN:
        assert line in text, line
    # Nor is it told which there are.
    told = {line for line in names.splitlines() if "/" not in line or line in PLACES}
    assert told & {*PLACES} <= NAMES_SHOWN, told & {*PLACES} - NAMES_SHOWN
    for name in (".ssh", ".aws", ".gnupg", "tdata", "login.keyring", "session.jsonl"):
        assert name not in names, name
    assert str(work) in names


def test_of_a_thousand_places_none_is_read_and_toolchains_are(world: World, user: int) -> None:
    whole_sandbox(world.base)
    assert len(PLACES) >= FEWEST_PLACES
    if user == os.geteuid():
        # Outside it reads all of them.
        plain = subprocess.run(
            ["/bin/bash", "-c", LOOK],
            cwd=world.work,
            env=world.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert plain.stdout.count(CANARY) >= 2 * len(PLACES)
    said = world.run(Sandbox("full", SandboxSettings(), world.environ), LOOK, user)
    check(said.stdout, world.work)
    assert said.stderr == ""


async def test_of_a_thousand_places_none_is_read_in_bubblewrap(world: World) -> None:
    program = bubblewrap(world.base).program
    here = Sandbox("bwrap", SandboxSettings(), world.environ, program)
    script = f"{{ {LOOK} }} > said"
    confined = here.confined(["/bin/bash", "-c", script], world.work)
    try:
        ended = await command_of(confined, world.work).run()
    finally:
        here.remove_temporary()
    assert ended.exit_code == 0, ended.output.text
    check((world.work / "said").read_text(), world.work)


def test_on_macos_the_same_places_are_closed(world: World) -> None:
    policy = policy_for(world.work, SandboxSettings(), world.environ)
    profile = macos_profile(policy, "/private/tmp/x").splitlines()
    emptied = profile.index(f'(deny file-read* (subpath "{world.home}"))')
    shown = [line for line in profile[emptied:] if line.startswith("(allow file-read* (subpath")]
    assert f'(allow file-read* (subpath "{world.home}/.pyenv"))' in shown
    texts = dict(policy.home.texts)
    for name in PLACES:
        path = str(world.home / name)
        assert policy.hides(policy.real(path)) or CANARY.encode() not in texts[path], name
        assert not any(f'"{path}"' in line for line in shown), name


@pytest.mark.exhaustive
def test_with_landlock_alone_the_same_places_are_closed(world: World, user: int) -> None:
    needs_landlock()
    script = LOOK.partition('echo "==')[0] + 'cat "$GIT_CONFIG_GLOBAL"'
    said = world.run(Sandbox("landlock", SandboxSettings(), world.environ), script, user).stdout
    assert CANARY not in said
    for name in TOOLCHAINS:
        assert f"toolchain {name}\n" in said, name
    # A file that cannot be shown in part under its own name is read elsewhere.
    assert "name = Me" in said


COMMANDS = [
    (command, places.split())
    for command, _, places in (
        line.partition(" :: ")
        for line in (HERE / "home_commands.txt").read_text().splitlines()
        if line[:1] != "#"
    )
]
MOST_FAILING = 5
READ = r"""
while IFS= read -r line; do
    for place in ${line#* :: }; do
        mapfile -t text < "$HOME/$place" && [ -n "${text[0]}" ] || echo "${line%% :: *}: $place"
    done
done < commands 2> /dev/null
"""


def test_what_everyday_commands_read_of_the_home_folder_is_there(tmp_path: Path) -> None:
    """Programs that are not installed here are played by what reads the same."""
    with targets("commands") as (base, _held):
        whole_sandbox(base)
        home, work = base / "home", base / "home/code/p"
        for name in {place for _, places in COMMANDS for place in places}:
            write(home / name, "# settings\n")
        # Users have such settings, with tokens beside the other values.
        for name, text in MORE_SETTINGS.items():
            write(home / name, text.format(CANARY))
        write(home / ".npmrc", OF_SETTINGS[".npmrc"].format(CANARY))
        shutil.copy(HERE / "home_commands.txt", write(work / "commands"))
        environ = {
            "HOME": str(home),
            "KIMI_TUI_HOME": str(base / "app"),
            "PATH": os.environ["PATH"],
        }
        here = Sandbox("full", SandboxSettings(), environ)
        said = run_once(here, READ, work)
        failing = {line.partition(": ")[0] for line in said.splitlines() if line[:1] != "#"}
        assert len(COMMANDS) >= 100
        assert len(failing) <= MOST_FAILING, said


def run_once(sandbox: Sandbox, script: str, work: Path) -> str:
    """Return the output of a script in the sandbox."""
    confined = sandbox.confined(["/bin/bash", "-c", script], work)
    try:
        return asyncio.run(command_of(confined, work).run()).output.text
    finally:
        sandbox.remove_temporary()


# -- the view ------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/code/work").mkdir(parents=True)
    return tmp_path / "home"


def policy_in(
    home: Path, work: str = "code/work", readable: tuple[str, ...] = (), **environ: str
) -> Policy:
    own = {
        "HOME": str(home),
        "KIMI_TUI_HOME": str(home.parent / "app"),
        "PATH": "/usr/bin",
        **environ,
    }
    return policy_for(home / work, SandboxSettings(readable=readable), own)


def git(*words: str, within: Path) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *settings, *words], cwd=within, check=True, capture_output=True)


def test_links_on_the_way_to_what_is_shown_are_there_and_lead_nowhere_else(home: Path) -> None:
    write(home / "dotfiles/gitconfig", "[user]\n\tname = Me\n")
    write(home / "dotfiles/.ssh/id", "key")
    (home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    (home / ".vimrc").symlink_to("dotfiles/.ssh/id")
    (home / ".editorconfig").symlink_to("code/work/x")
    write(home / "code/work/x")
    (home / "code/work/link").symlink_to(home / "other")
    write(home / "other/x")
    policy = policy_in(home)
    assert (str(home / ".gitconfig"), "dotfiles/gitconfig") in policy.home.links
    assert not policy.hides(policy.real(str(home / ".gitconfig")))
    for name in (".vimrc", "dotfiles/.ssh/id", "dotfiles/.ssh", "code/work/link/x", "other"):
        assert policy.hides(policy.real(str(home / name))), name


def test_programs_on_the_search_path_are_shown_with_their_installation(home: Path) -> None:
    for name in (
        "opt/tool/bin/tool",
        "opt/tool/lib/x.so",
        "opt/other",
        "scripts/run",
        ".docker/bin/x",
    ):
        write(home / name)
    write(home / "scripts/deploy_key")
    write(home / ".docker/lib/x")
    (home / ".local/bin").mkdir(parents=True)
    (home / ".local/bin/tool").symlink_to(home / "opt/tool/bin/tool")
    path = [home / ".local/bin", home / "scripts", home / ".docker/bin", home, Path("relative")]
    policy = policy_in(home, PATH=":".join(map(str, path)))
    for name in ("opt/tool/bin/tool", "opt/tool/lib/x.so", "scripts/run", ".local/bin/tool"):
        assert not policy.hides(policy.real(str(home / name))), name
    for name in ("opt/other", "scripts/deploy_key", ".docker/bin/x", ".docker/lib/x", "notes"):
        assert policy.hides(policy.real(str(home / name))), name


def test_what_the_settings_of_git_name_is_shown_but_not_where_its_credentials_are(
    home: Path,
) -> None:
    write(
        home / ".gitconfig",
        '[include]\n\tpath = ~/work.inc\n[includeIf "gitdir:~/x/"]\n\tpath = own/y.inc\n'
        "[core]\n\texcludesFile = ~/ignored\n\thooksPath = ~/hooks\n"
        '[credential]\n\thelper = "store --file ~/creds"\n[maintenance]\n\trepo = ~/code/other\n'
        '[alias]\n\tup = "!~/tools/up.sh now"\n[safe]\n\tdirectory = ~/code/other\n'
        "[gpg]\n\tprogram = ~/tools/sign\n[remote.core]\n\thooksPath = ~/tools/x\n",
    )
    # A program is shown as it is, since it would not run without a line; a file of settings without its credentials.
    program = f"#!/bin/sh\npassword={CANARY}\n"
    write(home / "tools/sign", program)
    write(home / "work.inc", f"[user]\n\temail = me@example.com\n[github]\n\ttoken = {CANARY}\n")
    write(home / "own/y.inc", "[include]\n\tpath = z.inc\n\tpath = y.inc\n")
    write(home / "ignored", f"build\ntoken = {CANARY}\n")
    for name in ("own/z.inc", "hooks/pre-commit", "tools/up.sh", "tools/x", "creds"):
        write(home / name)
    write(home / "code/other/x")
    policy = policy_in(home)
    for name in (
        *("work.inc", "own/y.inc", "own/z.inc", "ignored"),
        *("hooks/pre-commit", "tools/up.sh", "tools/sign"),
    ):
        assert not policy.hides(policy.real(str(home / name))), name
    for name in ("creds", "tools/x", "code/other/x"):
        assert policy.hides(policy.real(str(home / name))), name
    assert dict(policy.home.texts) == {
        str(home / "work.inc"): b"[user]\n\temail = me@example.com\n[github]\n",
        str(home / "ignored"): b"build\n",
    }


def test_the_code_of_this_program_is_shown_but_not_what_is_beside_it(home: Path) -> None:
    for name in ("tools/kimi/kimi_tui/cli.py", "tools/kimi/notes"):
        write(home / name)
    own = [str(home / "tools/kimi/kimi_tui"), str(home / "absent")]
    view = home_view({"HOME": str(home)}, str(home / "code/work"), own=own)
    assert not view.hides(str(home / "tools/kimi/kimi_tui/cli.py"))
    assert view.hides(str(home / "tools/kimi/notes"))


def test_what_may_be_written_is_shown_and_settings_of_the_folders_above_the_work_folder(
    home: Path, tmp_path: Path
) -> None:
    for name in (
        *("code/.editorconfig", "code/notes", "code/other/.editorconfig", "code/.python-version"),
        "own/x",
    ):
        write(home / name)
    environ, work = {"HOME": str(home)}, home / "code/work"
    view = home_view(environ, str(work), writable=[str(work), str(home / "own"), str(tmp_path)])
    for name in ("code/work", "own/x", "code/.editorconfig", "code/.python-version"):
        assert not view.hides(str(home / name)), name
    for name in ("code/notes", "code/other/.editorconfig"):
        assert view.hides(str(home / name)), name
    assert str(tmp_path) not in view.shown


def test_the_repository_of_the_work_folder_is_shown_and_no_other(home: Path) -> None:
    top = home / "code/repo"
    for name in ("packages/a/x", "packages/b/x", "package.json", ".env", "packages/b/server.key"):
        write(top / name)
    git("init", "-q", within=top)
    policy = policy_in(home, "code/repo/packages/a")
    for name in ("packages/b/x", "package.json", ".git/HEAD"):
        assert not policy.hides(policy.real(str(top / name))), name
        assert str(top / name) not in policy.writable
    for name in (".env", "packages/b/server.key"):
        assert policy.hides(policy.real(str(top / name))), name
    # A working tree elsewhere, and a clone that borrows its commits.
    git("commit", "-q", "--allow-empty", "-m", "x", within=top)
    git("worktree", "add", "-q", str(home / "code/tree"), within=top)
    git("clone", "-q", "--shared", str(top), str(home / "code/clone"), within=home)
    (home / "code/tree/sub").mkdir()
    for work in ("code/tree", "code/tree/sub", "code/clone"):
        policy = policy_in(home, work)
        assert not policy.hides(policy.real(str(top / ".git/objects/info"))), work
        assert policy.hides(policy.real(str(top / "package.json"))), work
    # A file of the folder itself that points at another one is ignored.
    write(home / "code/liar/.git", f"gitdir: {top}/.git\n")
    write(home / "code/work/.git/objects/info/alternates", f"{home}/code/secret\n")
    write(home / "code/secret/x")
    for work in ("code/liar", "code/work"):
        assert is_hidden(policy_in(home, work), str(top / ".git/HEAD")), work
    assert is_hidden(policy_in(home), str(home / "code/secret/x"))


def test_what_was_looked_at_before_is_not_made_again(home: Path) -> None:
    home_module.preload({"HOME": str(home), "PATH": os.environ["PATH"]})
    caches = home_module._data, home_module._by_folder, protected_names.runs_later
    before = [one.cache_info() for one in caches]
    policy_in(home)
    after = [one.cache_info() for one in caches]
    assert all(one.hits > other.hits for one, other in zip(after, before, strict=True))
    assert [one.misses for one in after] == [one.misses for one in before]


def test_a_secret_that_appears_within_one_tick_of_the_clock_is_closed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, stat = home / "data/tool", os.stat
    folder.mkdir(parents=True)
    times = stat(folder)

    def of_a_coarse_clock(path: str, **options: bool) -> os.stat_result:
        return times if path == str(folder) else stat(path, **options)

    monkeypatch.setattr(home_module.os, "stat", of_a_coarse_clock)
    policy_in(home, readable=("~/data",))
    write(folder / ".env")
    policy = policy_in(home, readable=("~/data",))
    assert policy.hides(str(folder / ".env"))


def test_the_setting_shows_more_and_not_what_is_secret_in_it_unless_it_is_named(home: Path) -> None:
    for name in (
        "data/x",
        "data/.env",
        ".aws/config",
        ".config/app/x",
        ".config/gh/hosts.yml",
        ".cache/huggingface/token",
        ".cache/huggingface/hub/x",
        "y",
    ):
        write(home / name)
    readable = ("~/data", ".aws", str(home / ".config"), ".cache/huggingface")
    policy = policy_in(home, readable=readable)
    for name in ("data/x", ".aws/config", ".config/app/x", ".cache/huggingface/hub/x"):
        assert not policy.hides(policy.real(str(home / name))), name
    # A name that is secret only in its folder is so too where that folder is shown.
    for name in ("data/.env", ".config/gh/hosts.yml", ".cache/huggingface/token", "y"):
        assert policy.hides(policy.real(str(home / name))), name
        # In a shown folder it is closed one by one; all else is not there at all.
        assert (str(home / name) in policy.home.closed) == (name != "y")
    # All of it is as it was before there was this list: secrets are closed by name.
    policy = policy_in(home, readable=("~",))
    assert str(home) not in policy.home.emptied
    assert not policy.hides(policy.real(str(home / "y")))
    assert policy.hides(policy.real(str(home / ".aws/config")))


def test_what_variables_name_is_shown_by_the_rules_of_its_usual_place(home: Path) -> None:
    for name in ("rust/bin/tool", "rust/registry/x", "rust/notes", "sdk/bin/x", "sdk/.env"):
        write(home / name)
    write(home / "rust/credentials.toml", f"token = {CANARY}\n")
    write(home / "rust/config.toml", f"[build]\njobs = 2\n[registry]\ntoken = {CANARY}\n")
    write(home / "certificates.pem", "x\n")
    policy = policy_in(
        home,
        CARGO_HOME=f"{home}/rust",
        JAVA_HOME=f"{home}/sdk:relative",
        SSL_CERT_FILE=f"{home}/certificates.pem",
    )
    for name in ("rust/bin/tool", "rust/registry/x", "sdk/bin/x", "certificates.pem"):
        assert not policy.hides(policy.real(str(home / name))), name
    for name in ("rust/notes", "rust/credentials.toml", "sdk/.env"):
        assert policy.hides(policy.real(str(home / name))), name
    assert dict(policy.home.texts)[str(home / "rust/config.toml")] == (
        b"[build]\njobs = 2\n[registry]\n"
    )
    assert policy_in(home).hides(str(home / "sdk/bin/x"))


def test_files_that_can_be_shown_in_part_only_elsewhere_are_named_by_variables(home: Path) -> None:
    texts = ((f"{home}/.gitconfig", b"a"), (f"{home}/x/.gitconfig", b"b"), (f"{home}/.other", b"c"))
    view = HomeView(str(home), (str(home),), texts=texts)
    assert view.copies("/tmp/t") == (
        {"/tmp/t/shown-.gitconfig": b"a"},
        {"GIT_CONFIG_GLOBAL": "/tmp/t/shown-.gitconfig"},
    )


def test_folders_of_configurations_elsewhere_are_emptied_too_but_none_of_the_system(
    home: Path, tmp_path: Path
) -> None:
    for name in ("xdg/git/config", "xdg/gh/hosts.yml", "xdg/other"):
        write(tmp_path / name, "[user]\n\tname = x\n")
    policy = policy_in(home, XDG_CONFIG_HOME=str(tmp_path / "xdg"), XDG_DATA_HOME="/usr/share")
    assert str(tmp_path / "xdg") in policy.home.emptied
    assert not policy.hides(policy.real(str(tmp_path / "xdg/git/config")))
    assert policy.hides(policy.real(str(tmp_path / "xdg/other")))
    assert not policy.hides(policy.real("/usr/share/x"))
    for place in ("/", "/usr", "/etc", "/usr/share/games", "/proc"):
        assert (
            place
            not in policy_for(
                home / "code/work",
                SandboxSettings(),
                {"HOME": place, "KIMI_TUI_HOME": str(tmp_path / "a")},
            ).home.emptied
        )


# -- settings without their credentials -----------------------------------------------------------------------


@each(
    "name, text, shown",
    [
        (".gitconfig", "[user]\n\tname = x\n\temail = a@b.c\n", None),
        (".gitconfig", '[a]\n\tx = 1\n[url "https://t@github.com/"]\n\tinsteadOf = x\n[b]\n\ty = 1\n', "[a]\n\tx = 1\n[b]\n\ty = 1\n"),
        (".gitconfig", '[url "ssh://git@github.com/"]\n\tinsteadOf = https://github.com/\n', None),
        (".npmrc", "//r.example/:_authToken=${TOKEN}\nfund=false\n", "fund=false\n"),
        (".npmrc", "# old: _auth=abc\nregistry=https://r.example/\n", "registry=https://r.example/\n"),
        ("pip.conf", "[global]\nextra-index-url =\n    https://u:p@x.example/\n    https://y.example/\n", "[global]\nextra-index-url =\n    https://y.example/\n"),
        ("x.yml", "a: 1\ntoken: |\n  one\n  two\nb: 2\n", "a: 1\nb: 2\n"),
        ("x.toml", 'a = 1\npassword = """\nxyz\n"""\n', ""),
        ("x.json", '{"password": "x"}', ""),
        ("x.json", '{"a": 1}', None),
        (".curlrc", "silent\n--header X-Api: y\n-u me:x\n", "silent\n"),
        ("x", "key = 9fJ2kLm3Pq8Rs7Tu1Vw4Xy6Za0Bc5De\nb = 1\n", "b = 1\n"),
        ("x", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\ndef\n-----END OPENSSH PRIVATE KEY-----\nb = 1\n", "b = 1\n"),
        ("x", "a = 1\n\0", ""),
        ("x", "a = \udcff\n", ""),
        ("x.toml", 'password = """x"""\na = 1\n', "a = 1\n"),
        ("x.yml", "  a: 1\n  b: 2\n", None),
        ("x.yml", "  token:\n\n    one\n  b: 2\n", "  b: 2\n"),
        ("pip.conf", "[global]\npassword =\n    one\ntimeout = 5\n", "[global]\ntimeout = 5\n"),
        ("x.yml", "token:\nb: 2\n  c: 3\n", None),
        ("x", "me@example.com = 1\nssh://hg@example.com/ = https://r.example/@x/\n", None),
    ],
)  # fmt: skip
def test_settings_are_shown_without_the_lines_that_hold_credentials(
    name: str, text: str, shown: str | None
) -> None:
    """None: all of it; empty: nothing."""
    left = without_credentials(name, text.encode(errors="surrogateescape"))
    assert (left or b"").decode() == (text if shown is None else shown)


# -- what was refused -------------------------------------------------------------------------------------------


def test_a_read_that_was_refused_is_named_with_the_setting_that_allows_it(home: Path) -> None:
    for name in (
        "notes.txt",
        ".ssh/config",
        "code/other/.git/HEAD",
        "code/other/src/a.py",
        "odd \\x",
    ):
        write(home / name)
    write(home / "code/lib/mine/__init__.py")
    write(home / "code/work/.venv/lib/python3.13/site-packages/_lib.pth", f"{home}/code/lib\n")
    packages = home / "code/work/.venv/lib/python3.13/site-packages"
    finder = f"MAPPING = {{'theirs': '{home}/code/no', 'found': '{home}/code/found/found'}}\n"
    write(packages / "__editable___x_finder.py", finder)
    write(packages / "odd_finder.py").unlink()
    (packages / "odd_finder.py").mkdir()
    write(home / "code/found/found/__init__.py")
    write(home / "code/no/x")
    # An interpreter without packages is passed over.
    write(home / "code/work/.venv/lib/python3.12/x")
    (home / "code/work/node_modules").mkdir()
    (home / "code/work/node_modules/sib").symlink_to(home / "code/sib")
    write(home / "code/sib/index.js")
    write(home / "code/work/here")
    policy = policy_in(home, readable=("~/data",))
    environ = {"HOME": str(home)}
    for output, names, setting in (
        (
            f"cat: {home}/notes.txt: No such file or directory",
            ["notes.txt"],
            '"~/data", "~/notes.txt"',
        ),
        ("cat: ~/notes.txt: No such file or directory", ["notes.txt"], '"~/data", "~/notes.txt"'),
        (
            f"open '{home}/code/other/src/a.py': ENOENT",
            ["code/other/src/a.py"],
            '"~/data", "~/code/other"',
        ),
        (f"{home}/.ssh/config: Permission denied", [".ssh/config"], ""),
        (
            f"x: '{home}/odd \\x': No such file or directory",
            ["odd \\x"],
            '"~/data", "~/odd \\u005cx"',
        ),
        ("ModuleNotFoundError: No module named 'mine'", ["code/lib"], '"~/data", "~/code/lib"'),
        # Of a line that names several the first counts.
        (
            f"mv: '{home}/notes.txt' to '{home}/code/sib': No such file or directory",
            ["notes.txt"],
            '"~/data", "~/notes.txt"',
        ),
        (
            "ModuleNotFoundError: No module named found",
            ["code/found/found"],
            '"~/data", "~/code/found/found"',
        ),
        ("Error: Cannot find module './sib'", [], ""),
        ("Error: Cannot find module 'sib'", ["code/sib"], '"~/data", "~/code/sib"'),
        (f"bash: {home}/notes.txt: Read-only file system", [], ""),
        (f"cat: {home}/never: No such file or directory", [], ""),
        ("cat: here/x: No such file or directory", [], ""),
        ("ModuleNotFoundError: No module named 'absent'", [], ""),
    ):
        found = hidden_reads(output, policy, environ)
        assert [os.path.relpath(path, home) for path in found.paths] == names, output
        assert found.setting == (f"readable = [{setting}]" if setting else ""), output
        assert bool(found.secret) == (names == [".ssh/config"])
        if found.setting:
            added = tomllib.loads(found.setting)["readable"]
            allowed = policy_in(home, readable=tuple(added))
            assert not any(is_hidden(allowed, path) for path in found.paths), output
    assert policy.refuses_read(str(home / "notes.txt"), is_for_writing=False)
    for name in ("notes.txt", "new"):
        assert not policy.refuses_read(str(home / name), is_for_writing=True), name
