"""What a sandboxed command sees of the home folder: what is allowed, and nothing of what is not, whatever it is called."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.covered import bubblewrap, command_of, whole_sandbox
from support.sandbox_targets import USERS, give, number_of, targets

from kimi_tui.app_paths import XDG_FOLDERS
from kimi_tui.tools.sandbox import confine
from kimi_tui.tools.sandbox.policy import SandboxSettings, policy_for
from kimi_tui.tools.sandbox.sandbox import Sandbox, macos_profile

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
    ".npmrc": "registry=https://registry.npmjs.org/\n//registry.npmjs.org/:_authToken={0}\n",
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
"""What settings say that have a credential beside what commands need; others are told a token."""
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
    "registry=https://registry.npmjs.org/",
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
        tmp = Path(sandbox._tmp)
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
    whole_sandbox(world.base)
    here = Sandbox("bwrap", SandboxSettings(), world.environ, bubblewrap().program)
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
        assert not policy.may_read(path) or CANARY.encode() not in texts[path], name
        assert not any(f'"{path}"' in line for line in shown), name


@pytest.mark.exhaustive
def test_with_landlock_alone_the_same_places_are_closed(world: World, user: int) -> None:
    if confine.landlock_abi() < 1:
        pytest.skip("there is no Landlock on this machine: nothing was tried")
    script = LOOK.partition('echo "==')[0] + 'cat "$GIT_CONFIG_GLOBAL"'
    said = world.run(Sandbox("landlock", SandboxSettings(), world.environ), script, user).stdout
    assert CANARY not in said
    for name in TOOLCHAINS:
        assert f"toolchain {name}\n" in said, name
    # What cannot be shown in part under its own name is read elsewhere.
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
        # As people have them: with tokens beside the rest.
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
    """What a script prints in the sandbox."""
    confined = sandbox.confined(["/bin/bash", "-c", script], work)
    try:
        return asyncio.run(command_of(confined, work).run()).output.text
    finally:
        sandbox.remove_temporary()
