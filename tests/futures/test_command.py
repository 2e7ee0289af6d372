"""The whole of `kimi-tui futures` as a process in a git repository: its exit codes, its output, signals, and what it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import Answer, ChatServerThread, Request, say, stall, status

from kimi_tui.filesystem import remove_tree

from .conftest import answer, contents, make_files, set_environment
from .test_kills import processes_of

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="Its processes are found in /proc."
    ),
]
ENTRY = "import sys\nfrom kimi_tui.cli import main\n{patch}\nsys.exit(main())"
LONG_S = 60.0


def act(request: Request) -> Answer:
    """The model of the other tests; some words have it fail, hang, or write much."""
    last = json.dumps([m["content"] for m in request.messages if m["role"] == "user"])
    if "do fail" in last:
        return status(400, {"error": {"message": "no such thing"}})
    if "do hang" in last:
        return stall(0, say("Never said."))
    return answer(request)


@dataclass(slots=True)
class Ended:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Run:
    """A run of the command; its standard error is read as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.err = ""

    def until(self, words: str) -> None:
        """Read standard error until a line has these words."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.err += line
            if words in line:
                return
        raise AssertionError(f"never {words!r} in {self.err}")

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Send a signal to all processes of its terminal's foreground, as Ctrl+C does; others to it alone."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def end(self) -> Ended:
        """Wait for its end."""
        out, err = self.process.communicate(timeout=LONG_S)
        return Ended(self.process.returncode, out, self.err + err)


@dataclass(slots=True)
class Place:
    """A repository with a session of one turn that no program has open."""

    top: Path
    work: Path
    server: ChatServerThread
    before: str
    live: bytes
    git: str

    def start(self, *words: str, patch: str = "", command: str = "futures", **how: Any) -> Run:
        return Run(
            subprocess.Popen(
                [sys.executable, "-c", ENTRY.format(patch=patch), command, *words],
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=how.pop("stdout", subprocess.PIPE),
                stderr=how.pop("stderr", subprocess.PIPE),
                text=True,
                start_new_session=True,
                **how,
            )
        )

    def run(self, *words: str, **how: Any) -> Ended:
        return self.start(*words, **how).end()

    @property
    def session(self) -> Path:
        (found,) = (self.top / "home").glob("sessions/*/[!.]*/context.jsonl")
        return found.parent

    def git_state(self) -> str:
        names = ["log --format=%H", "status --porcelain", "stash list", "branch -a"]
        return "".join(
            subprocess.run(
                ["git", *one.split()], cwd=self.work, capture_output=True, text=True, check=True
            ).stdout
            for one in names
        )

    def left(self) -> list[str]:
        """What runs, is mounted, or lies about."""
        home = self.top / "home"
        mounts = Path("/proc/self/mounts").read_text().split("\n")
        return [
            *(f"process {one}" for one in processes_of(self.work)),
            *(line for line in mounts if str(self.top) in line),
            *(str(one) for one in home.glob("sessions/*/.f*")),
            *(str(one) for one in home.glob("futures/*~*")),
            *(str(one) for one in (self.top / "tmp").iterdir()),
            *(str(one) for one in (self.top / "user").glob(".cache/kimi-tui/futures/*")),
        ]

    def assert_untouched(self) -> None:
        """The conversation, the folder and the repository are as they were, and nothing is left."""
        until = time.monotonic() + 20
        while (left := self.left()) and time.monotonic() < until:
            time.sleep(0.05)
        assert not left
        assert contents(self.work) == self.before
        assert self.git_state() == self.git
        assert (self.session / "context.jsonl").read_bytes() == self.live


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The place for all tests, as it is at the beginning of each."""
    top = tmp_path_factory.mktemp("command")
    work = top / "work"
    (top / "tmp").mkdir()
    with ChatServerThread(check=act) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(top / "tmp"))
        set_environment(patch, top, server.base_url)
        patch.setenv("TEST_WORK", str(work))
        make_files(work)
        (work / ".git").rmdir()
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
            subprocess.run([*git, *words], cwd=work, check=True)
        found = Place(top, work, server, "", b"", "")
        begun = found.run("Say hello.", "--mode", "sandboxed", command="-p")
        assert begun.code == 0, begun
        found.before, found.git = contents(work), found.git_state()
        found.live = (found.session / "context.jsonl").read_bytes()
        for name in ("home", "work"):
            shutil.copytree(top / name, top / f"{name} before", symlinks=True)
        yield found


@pytest.fixture
def place(made: Place) -> Iterator[Place]:
    for name in ("home", "work"):
        remove_tree(made.top / name)
        shutil.copytree(made.top / f"{name} before", made.top / name, symlinks=True)
    for one in (made.top / "tmp").iterdir():
        remove_tree(one)
    yield made
    for pid in processes_of(made.work):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def two(*more: str) -> Sequence[str]:
    return ("--message", "do alpha", "--message", "do gamma", "--json", *more)


def test_all_that_end(place: Place) -> None:
    ended = place.run(*two())
    assert ended.code == 0, ended
    facts = ended.json
    assert [one["state"] for one in facts["futures"]] == ["done", "done"]
    assert sorted(one["world_line"] for one in facts["futures"]) == [1, 2]
    place.assert_untouched()


@pytest.mark.parametrize(
    ("check", "code", "checks"),
    [
        ("test -e new/alpha", 0, ["passed", "failed"]),
        ("false", 1, ["failed", "failed"]),
        ("kill -9 $$", 1, ["failed", "failed"]),
        ("no-such-program", 1, ["failed", "failed"]),
        ("cat; head -c 3000000 /dev/zero | tr '\\0' x; exit 0", 0, ["passed", "passed"]),
        ("sleep 1000 & disown; exit 0", 0, ["passed", "passed"]),
        ("echo x > src/f1.py; git commit -qam x; exit 0", 0, ["passed", "passed"]),
    ],
)
def test_checks(place: Place, check: str, code: int, checks: list[str]) -> None:
    ended = place.run(*two("--check", check))
    assert ended.code == code
    assert [one["check"] for one in ended.json["futures"]] == checks
    place.assert_untouched()


def test_a_check_that_hangs(place: Place) -> None:
    patch = "import kimi_tui.futures.running as r; r.LONGEST_CHECK_S = 2.0"
    ended = place.run(*two("--check", "echo so far; sleep 1000"), patch=patch)
    assert ended.code == 1
    for one in ended.json["futures"]:
        assert (one["check"], one["check_exit"]) == ("failed", 124)
        assert one["check_output"] == "so far\nThe check was stopped after 2 s."
    place.assert_untouched()


@pytest.mark.parametrize("words", [["do fail"], ["do fail", "do alpha"]])
@pytest.mark.parametrize("more", [[], ["--check", "true"], ["--take", "best"]])
def test_those_that_fail(place: Place, words: list[str], more: list[str]) -> None:
    ended = place.run(*(x for one in words for x in ("--message", one)), "--json", *more)
    is_good = "--check" in more and "do alpha" in words
    assert ended.code == (0 if is_good else 1)
    assert ended.json["futures"][0]["state"] == "failed"
    assert "no such thing" in ended.json["futures"][0]["why"]
    if "--take" not in more or "do alpha" not in words:
        place.assert_untouched()


@pytest.mark.parametrize("more", [[], ["--check", "test -e alpha.txt"]])
def test_the_best_is_taken_with_conflicts(place: Place, more: list[str]) -> None:
    run = place.start(*two("--take", "best", *more))
    run.until("step 1")
    (place.work / "src" / "f1.py").write_text("mine\n")
    (place.work / "src" / "f3.py").write_text("mine\n")
    ended = run.end()
    facts = ended.json
    assert ended.code == 3
    assert facts["taken"] is True
    assert len(facts["conflicts"]) >= 1
    assert (place.work / "src" / "f1.py").read_text() == "mine\n"
    assert (place.work / "src" / "f3.py").read_text() == "mine\n"
    undone = place.run(command="undo")
    assert undone.code == 0
    (place.work / "src" / "f1.py").write_text("x = 1\n")
    (place.work / "src" / "f3.py").write_text("x = 3\n")
    assert contents(place.work) == place.before
    assert not place.left()


def test_the_best_is_taken_undone_and_redone(place: Place) -> None:
    ended = place.run(*two("--take", "best", "--check", "true"))
    assert ended.code == 0, ended
    taken = contents(place.work)
    assert taken != place.before
    assert place.run(command="undo").code == 0
    assert contents(place.work) == place.before
    assert place.run(command="redo").code == 0
    assert contents(place.work) == taken
    assert not place.left()


def test_the_session_is_open_elsewhere(place: Place) -> None:
    first = place.start("--message", "do wait", "--n", "1", "--json")
    first.until("step 2")
    second = place.run(*two())
    assert second.code == 4
    assert second.out == ""
    first.interrupt()
    assert first.end().code == 130
    place.assert_untouched()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Name a checkpoint"),
        (["--n", "5", "--message", "x"], ""),
        (["--n", "0", "--message", "x"], ""),
        (["--n", "x", "--message", "x"], ""),
        (["--message", ""], ""),
        (["--message", "x", "--check", " "], ""),
        (["--message", "x", "--check", "a\0b"], ""),
        (["--message", "x", "--model", "a", "--model", "b", "--model", "c", "--n", "2"], ""),
        (["99"], ""),
        (["-1"], ""),
        (["1e3"], ""),
        (["0", "--world-line", "7"], ""),
        (["--world-line", "7", "--message", "x"], ""),
        (["0", "--take", "worst"], ""),
        (["0", "--max-time", "soon"], ""),
        (["0", "--max-time", "inf"], ""),
        (["0", "--max-cost", "nan"], ""),
        (["0", "--max-steps", "0"], ""),
        (["0", "--session", "nobody"], ""),
        (["0", "--session", "../../x"], ""),
        (["0", "--mode", "yolo"], ""),
        (["0", "--jsom"], ""),
        (["0", "1"], ""),
        (["--message"] + ["x", "--message"] * 4 + ["y"], ""),
    ],
)
def test_wrong_usage(place: Place, words: list[str], says: str) -> None:
    try:
        ended = place.run(*words, "--json")
    except ValueError as e:  # a zero byte
        pytest.skip(str(e))
    assert ended.code == 2, ended
    assert ended.out == ""
    assert says in ended.err
    assert len(ended.err.strip().splitlines()) <= 3
    place.assert_untouched()


PHASES: dict[str, tuple[Sequence[str], str]] = {
    "estimate": (two(), "the first requests"),
    "first step": (two(), "step 1"),
    "model is silent": (("--message", "do hang", "--json"), "running, step 1"),
    "a command runs": (("--message", "do wait", "--json"), "step 2"),
    "checking": (two("--check", "sleep 50"), "checking"),
    "one done": (two("--take", "best"), ": done"),
    "all checked": (two("--take", "best", "--check", "true"), "do alpha: done"),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_in_each_phase(place: Place, phase: str, number: int) -> None:
    words, line = PHASES[phase]
    run = place.start(*words)
    run.until(line)
    run.interrupt(number)
    ended = run.end()
    assert "Traceback" not in ended.err
    code = 130 if number == signal.SIGINT else 143
    if phase == "estimate" and not ended.out:
        # No future has begun, and maybe it does not handle signals yet.
        assert ended.code in (code, -number)
        place.assert_untouched()
        return
    assert ended.code == code
    facts = ended.json
    assert len(facts["futures"]) == 2
    assert {one["state"] for one in facts["futures"]} <= {"stopped", "done", "failed"}
    if not facts["taken"]:
        place.assert_untouched()


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.3])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_opens(place: Place, delay_s: float, number: int) -> None:
    run = place.start(*two())
    time.sleep(delay_s)
    run.interrupt(number)
    ended = run.end()
    if "Fatal Python error: init_import_site" not in ended.err:
        # Python itself had begun.
        assert ended.code in ((130, -2) if number == signal.SIGINT else (143, -15))
    if ended.code < 0:
        # A program that a signal kills before it handles signals removes nothing; the next start does.
        sweep = "from kimi_tui import temporary_folders; temporary_folders.sweep()"
        subprocess.run([sys.executable, "-c", sweep], cwd=place.work, check=True)
    place.assert_untouched()


def test_a_second_ctrl_c_ends_it_at_once(place: Place) -> None:
    run = place.start("--message", "do wait", "--json")
    run.until("step 2")
    run.interrupt()
    time.sleep(0.02)
    run.interrupt()
    ended = run.end()
    assert ended.code == 130
    taken = place.run("--message", "do gamma", "--n", "1", "--json")
    assert taken.code == 0
    place.assert_untouched()


@pytest.mark.parametrize("more", [["--json"], []])
@pytest.mark.parametrize("what", ["stdout", "stderr", "both"])
def test_a_reader_that_has_gone(place: Place, what: str, more: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    how: dict[str, Any] = {}
    if what != "stderr":
        how["stdout"] = write
    if what != "stdout":
        how["stderr"] = write
    run = place.start(
        "--message", "do ask", "--message", "do alpha", *more, "--take", "best", **how
    )
    os.close(write)
    out, err = run.process.communicate(timeout=LONG_S)
    code = run.process.returncode
    assert "Traceback" not in (err or "")
    assert (place.work / "new" / "alpha").exists() or (place.work / "ask.txt").exists()
    assert code == (1 if what != "stderr" else 0)
    if what == "stderr" and more:
        assert json.loads(out)["taken"]


def test_a_full_device_for_the_output(place: Place) -> None:
    with open("/dev/full", "w") as full:
        run = place.start(*two(), stdout=full)
        _, err = run.process.communicate(timeout=LONG_S)
    assert run.process.returncode == 1
    assert "Traceback" not in err
    place.assert_untouched()
