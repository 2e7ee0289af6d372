"""The commands that a yes for the session allows, and that no others get past by it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from support.cases import first_only
from support.tool_env import Bench

from kimi_tui.tools import command_groups
from kimi_tui.tools.command_groups import (
    Verdict,
    _recognised,  # pyright: ignore[reportPrivateUsage]
    find_shfmt,
    judge,
)

ALLOWED = [
    *("git status", "git log", "git diff", "git show", "git branch", "git ls-files", "ls", "cat readme", "head readme"),
    *("grep x readme", "diff readme readme", "wc readme", "pytest", "npm run build", "cargo test", "go test"),
    *("ruff check", "mypy", "git shortlog", "git whatchanged", "go list", "go vet"),
]  # fmt: skip
ALSO_THEN = [
    *("git status -sb", "git  log\t-n 5 --format='%h %s' --stat", "git log -5 --oneline main..HEAD~2 -- readme"),
    *("git diff --stat HEAD^ @", 'git show "HEAD:readme"', "git branch -avv", "git ls-files -- sub", "ls -la sub"),
    *("cat -n readme sub/one", "head -n 5 readme", "head -n5 -q readme", "head -3 readme", "wc -l readme"),
    *("grep -in 'def \\w+(x)*$' readme", "grep -A3 -- x readme", "pytest -q -k 'a or b' tests/test_x.py::test_y"),
    *("pytest -xvs --tb=short -n2", "npm run build --silent", "cargo test --release -p core parser", "ruff check ."),
    *("go test -race -count=1 --run TestX ./...", "mypy --strict sub", "diff -u readme sub/one"),
]  # fmt: skip
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

pytestmark = [
    pytest.mark.skipif(not shutil.which("git"), reason="there is no git"),
    pytest.mark.skipif(find_shfmt(os.environ, Path("/x")) is None, reason="there is no shfmt"),
]


def bypasses() -> list[str]:
    text = Path(__file__).with_name("bypasses.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("# ")]
    return [line.encode("latin-1", "backslashreplace").decode("unicode_escape") for line in lines]


def git(work: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=work,
        env={**os.environ, **GIT},
        check=True,
        capture_output=True,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A work folder with a repository and traps in it, and the programs that may not be on this machine."""
    top = tmp_path_factory.mktemp("standing")
    work, programs = top / "work", top / "bin"
    for folder in (work / "sub", work / ".ssh", programs):
        folder.mkdir(parents=True)
    for name in ("readme", "sub/one", "x", "y"):
        (work / name).write_text("text\n")
    git(work, "init", "-q")
    git(work, "add", ".")
    git(work, "commit", "-qm", "one")
    for name in (".env", "sub/.env", ".ssh/id_rsa", "args"):
        (work / name).write_text("KEY=1\n")
    (top / "x").write_text("outside\n")
    (work / "outward").symlink_to(top / "x")
    (work / "inward").symlink_to(work / ".ssh")
    (work / "hard").hardlink_to(top / "x")
    os.mkfifo(work / "pipe")
    for name in ("pytest", "npm", "cargo", "go", "ruff", "mypy"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    return work, {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(top)}


@pytest.fixture(scope="module")
def groups(place: tuple[Path, dict[str, str]]) -> dict[str, str]:
    found = {command: judge(command, *place) for command in ALLOWED}
    assert [command for command, verdict in found.items() if not verdict.group] == []
    return {verdict.group: command for command, verdict in found.items()}


@pytest.mark.parametrize("every", first_only([3, 1]))
def test_no_bypass_is_in_a_group_that_was_allowed(
    place: tuple[Path, dict[str, str]],
    groups: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    every: int,
) -> None:
    corpus = bypasses()
    assert len(set(corpus)) > 1_000
    corpus = corpus[::every]
    with monkeypatch.context() as patch:
        # The second reader can only refuse what the first one takes: it is asked about what gets through without it.
        patch.setattr(command_groups, "_parsed", lambda command, _: _recognised(command))
        left = [command for command in corpus if judge(command, *place).group in groups]
    through = [command for command in left if judge(command, *place).group in groups]
    assert through == []


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("git log --grep 'a\nb'", "several lines"),
        ('git log --grep "a\rb"', "several lines"),
        ("git log --grep 'a\u200bb'", "an invisible character, U+200B"),
        ("cat 'a\u0301\u0301'", "an invisible character, U+0301"),
    ],
)
def test_quotes_make_nothing_readable_that_is_not(
    place: tuple[Path, dict[str, str]], command: str, why: str
) -> None:
    verdict = judge(command, *place)
    assert (verdict.kind, verdict.group) == ("unclear", "")
    assert why in verdict.reason


@pytest.mark.exhaustive
def test_what_is_harmless_is_in_the_group(
    place: tuple[Path, dict[str, str]], groups: dict[str, str]
) -> None:
    verdicts = {command: judge(command, *place) for command in ALSO_THEN}
    assert {c: v.reason for c, v in verdicts.items() if v.group not in groups} == {}
    for command, verdict in verdicts.items():
        assert command.split()[0] == groups[verdict.group].split()[0]
        assert os.path.basename(verdict.argv[0]) == command.split()[0]


def fresh(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "readme").write_text("text\n")
    git(work, "init", "-q")
    git(work, "add", ".")
    return work


@pytest.mark.exhaustive
def test_a_repository_that_names_programs_or_lies_elsewhere_asks(tmp_path: Path) -> None:
    work = fresh(tmp_path)
    ran = tmp_path / "ran"

    def verdict(command: str = "git status") -> Verdict:
        return judge(command, work, {"PATH": "/usr/bin:/bin"})

    own = work / ".git"
    settings = (own / "config").read_bytes()
    for key in (
        *("core.fsmonitor", "core.hooksPath", "core.pager", "core.sshCommand", "core.worktree", "diff.external"),
        *("diff.x.textconv", "diff.x.command", "filter.x.clean", "filter.x.process", "alias.status", "include.path"),
        *("includeIf.gitdir:/.path", "gpg.program", "pager.log", "credential.helper", "remote.x.promisor"),
        *("extensions.partialClone", "remote.x.vcs", "core.gitProxy", "blame.ignoreRevsFile", "log.showSignature"),
    ):  # fmt: skip
        assert verdict().group
        git(work, "config", key, f"touch {ran}")
        assert not verdict().group, key
        (own / "config").write_bytes(settings)
    for trap in ("commondir", "objects/info/alternates"):
        (own / trap).write_text(f"{tmp_path}\n")
        assert not verdict().group, trap
        (own / trap).unlink()
    (tmp_path / "outside").write_text("elsewhere\n")
    (work / "readme").unlink()
    (work / "readme").hardlink_to(tmp_path / "outside")
    diff = ["git", "diff"]
    assert "elsewhere" in subprocess.run(diff, cwd=work, capture_output=True, text=True).stdout
    assert verdict().group
    assert "readme has hard links" in verdict("git diff").reason
    (tmp_path / "outside").unlink()
    assert verdict("git diff").group
    (work / ".env").write_text("KEY=1\n")
    git(work, "add", "-f", ".env")
    assert verdict().group
    assert ".env" in verdict("git diff").reason
    git(work, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    assert not verdict().group
    own.rename(tmp_path / "elsewhere")
    own.write_text(f"gitdir: {tmp_path / 'elsewhere'}\n")
    assert not verdict().group
    own.unlink()
    own.symlink_to(tmp_path / "elsewhere")
    assert not verdict().group
    assert not ran.exists()


def test_a_group_is_of_one_program_in_one_folder(tmp_path: Path) -> None:
    work = fresh(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "pytest"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    environ = {"PATH": f"{programs}:/usr/bin:/bin"}
    first = judge("pytest", work, environ)
    assert (first.kind, first.argv) == ("project", (str(program),))
    assert first.offer.endswith("it runs code of this folder")
    other = tmp_path / "other"
    other.mkdir()
    assert judge("pytest", other, environ).group not in ("", first.group)
    program.write_text("#!/bin/sh\nid\n")
    assert judge("pytest", work, environ).group not in ("", first.group)
    # A shell would find the program in the work folder, or wherever one is.
    shutil.copy(program, work / "pytest")
    for path in (f"{work}:/usr/bin", f".:{programs}", f":{programs}", "/usr/bin"):
        assert not judge("pytest", work, {"PATH": path}).group
    link = tmp_path / "linked"
    link.mkdir()
    (link / "pytest").symlink_to(work / "pytest")
    assert not judge("pytest", work, {"PATH": str(link)}).group


@pytest.mark.parametrize(
    "body",
    [
        None,
        "exit 0",
        "echo '{}'",
        "echo '['",
        "exec sleep 60",
        "kill -9 $$",
        """echo '{"Type":"File","Stmts":[{"Cmd":{"Type":"CallExpr","Args":[{"Parts":[{"Type":"Lit","Value":"id"}]}]}}]}' """,
        # A kind of part that a later version may have between quotes, with the same members as a literal.
        """echo '{"Type":"File","Stmts":[{"Cmd":{"Type":"CallExpr","Args":[{"Parts":[{"Type":"DblQuoted","Parts":[{"Type":"Run","Value":"ls"}]}]},{"Parts":[{"Type":"Lit","Value":"-l"}]}]}}]}' """,
    ],
)
def test_without_a_second_reader_who_agrees_every_command_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str | None
) -> None:
    monkeypatch.setattr(command_groups, "_LIMIT_S", 0.2)
    program = tmp_path / "shfmt"
    if body is not None:
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    with pytest.raises(command_groups.NotSimple):
        command_groups.simple_words("ls -l", str(program) if body is not None else None)


@pytest.mark.exhaustive
async def test_it_runs_without_a_shell_and_without_what_the_repository_brings(bench: Bench) -> None:
    ran = bench.work_dir.parent / "ran"
    bench.write("readme", "text\n")
    git(bench.work_dir, "init", "-q")
    git(bench.work_dir, "add", ".")
    hook = bench.write(".git/hooks/post-index-change", f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    os.utime(bench.work_dir / "readme", (1, 1))
    outcome = await bench.run("Shell", command="git status --short 'readme'")
    assert outcome.output == "A  readme\n"
    assert not ran.exists()
    assert bench.approver.asks[0].session_offer.startswith("Yes, and allow git status in")
    # Settings that are moved elsewhere when it has been judged are not gone by.
    git(bench.work_dir.parent, "init", "-q", "evil")
    git(bench.work_dir.parent / "evil", "config", "filter.x.clean", f"touch {ran}; cat")
    bench.write(".gitattributes", "* filter=x\n")
    bench.write("readme", "tent\n")
    judged = judge("git status --short", bench.work_dir, {"PATH": "/usr/bin:/bin"})
    bench.write(".git/commondir", f"{bench.work_dir.parent}/evil/.git\n")
    await asyncio.to_thread(
        subprocess.run,
        judged.argv,
        cwd=bench.work_dir,
        env={"PATH": "/usr/bin:/bin", **judged.environ},
        check=True,
    )
    assert not ran.exists()
    (bench.work_dir / ".git/commondir").unlink()
    await bench.run("Shell", command="git status; true")
    assert not bench.approver.asks[1].session_key
    # The command that the user put in its place is not the one that was judged.
    bench.approver.instead = "echo $((1 + 1))"
    assert (await bench.run("Shell", command="git status")).output == "2\n"


def test_what_is_recognised_are_the_words_that_bash_makes_of_it(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    pieces = [*"ab-=~/:.,@%^+!#$`\\'\"  \t{}[]*?<>|&;()0é", "''", "' '", '""', "a~", "=~", "@("]
    chance = random.Random(14)
    lines: dict[str, list[str]] = {}
    for _ in range(12_000):
        line = "p " + "".join(chance.choices(pieces, k=chance.randint(1, 9)))
        with contextlib.suppress(command_groups.NotSimple):
            lines[line] = command_groups._recognised(line)  # pyright: ignore[reportPrivateUsage]
    assert len(lines) > 400
    shown = "p() { printf '%s\\0' p \"$@\"; printf '\\1'; }\n" + "\n".join(lines)
    environ = {"HOME": "/home/a", "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(
        [bash, "--norc", "-c", shown], cwd=tmp_path, env=environ, capture_output=True
    )
    found = [words.split("\0")[:-1] for words in ran.stdout.decode().split("\1")[:-1]]
    assert dict(zip(lines, found, strict=True)) == lines


def test_what_the_system_refuses_is_said_in_words(
    place: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    _, environ = place
    assert (
        judge("cat nothing\u00e4", tmp_path, environ).reason
        == "nothing\u00e4: no such file or directory"
    )
    assert judge("git status", tmp_path, environ).reason == ".git: no such file or directory"


def test_what_a_repository_keeps_for_itself_is_in_no_group(
    place: tuple[Path, dict[str, str]],
) -> None:
    work, environ = place
    for name in ("objects", "refs"):
        (work / "store.git" / name).mkdir(parents=True)
    for name in ("store.git/HEAD", "store.git/config", ".hg/hgrc", ".git/logs/HEAD"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x\n")
    (work / "plain").symlink_to(".git/config")
    for command in (
        *("cat .git/config", "head -n 3 .git/logs/HEAD", "grep url .git/config", "cat readme .git/HEAD"),
        *("diff readme .git/config", "wc .hg/hgrc", "tail store.git/config", "cat plain"),
    ):  # fmt: skip
        verdict = judge(command, work, environ)
        assert verdict.group == "", command
        assert "which may contain a token" in verdict.reason, command
    assert judge("ls .git", work, environ).group
