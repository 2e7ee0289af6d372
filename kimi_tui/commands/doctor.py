"""`kimi-tui doctor`: checks this machine and the configuration; one line per check, with advice if it fails."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import platform
import re
import select
import shutil
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Literal, NamedTuple

from kimi_tui.app_paths import (
    bare_reason,
    config_file,
    data_dir,
    hints_file,
    no_home_notice,
    reason_of,
    short,
)
from kimi_tui.commands.console import CommandLineParser, print_json
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config, ConfigError
from kimi_tui.foreign_text import one_line
from kimi_tui.launch import Launch, Options, launch_of
from kimi_tui.program import DONE, FAILED
from kimi_tui.tools.programs import find_program
from kimi_tui.tui.desktop import (
    asks_tmux,
    clipboard_advice,
    clipboard_command,
    draws_progress,
    image_reader,
    notification_method,
    tmux_option,
)
from kimi_tui.tui.formatting import counted
from kimi_tui.tui.palette import FEW, MANY, colours_of

if TYPE_CHECKING:
    from kimi_tui.tools.sandbox.view import Tier

State = Literal["ok", "warn", "bad"]

MODELS_TIMEOUT_S = 20.0
ANSWER_S = 0.5
"""Seconds in which the terminal must answer about its features."""
_INDENT = 21
"""Cells before the text of a check."""
_WATCH_S = 5.0
_LEAST_FREE = 100 << 20
_LITTLE_FREE = 1 << 30
# These ask for the kitty keyboard protocol, kitty pictures and focus reports, and last for the attributes that every terminal
# reports.
_QUESTIONS = (
    b"\x1b[?u\x1b[>4;1m\x1b[?4m\x1b[>4m\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[?1004$p\x1b[c"
)
_LAST_ANSWER = re.compile(rb"\x1b\[\?([0-9;]*)c")


class CheckResult(NamedTuple):
    """A line of doctor's report: the checked thing, whether it works, the finding, and the advice. If the text in `seen` came
    from a server, `kind` is the kind of the error.
    """

    about: str
    state: State
    seen: str
    advice: str = ""
    kind: str = ""


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui doctor ARGUMENTS`; the exit code is 1 if a check failed."""
    parser = CommandLineParser(
        prog="kimi-tui doctor",
        description="Check this machine, the terminal and the configuration, and say how to fix what does not work.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--offline", action="store_true", help="do not connect to the server of the model"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument(
        "--report",
        action="store_true",
        help="print a Markdown report without secrets, to paste into an issue",
    )
    options = parser.parse_args(arguments)
    launch, found = _configuration()
    findings: list[CheckResult] = []
    for one in _findings(os.environ, launch, found, offline=options.offline):
        findings.append(one)
        if not (options.json or options.report):
            print(_wrapped(f"{one.state:<4}  {one.about:<13}  ", one.seen))
            if one.advice:
                print(_wrapped(" " * _INDENT, one.advice))
    if options.json:
        print_json([one._asdict() for one in findings])
    if options.report:
        from kimi_tui.commands.doctor_report import report

        print(*report(findings, launch, os.environ), sep="\n")
    return FAILED if any(one.state == "bad" for one in findings) else DONE


def _wrapped(head: str, words: str) -> str:
    """Wrap a text after the head of a line to the width of the terminal; unchanged if a program reads the output."""
    line = f"{head}{one_line(words)}".rstrip()
    columns = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or columns < 2 * _INDENT:
        return line
    # A path is never broken, so that it can be copied.
    return fill(
        line,
        columns,
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _findings(
    environ: Mapping[str, str],
    launch: Launch | None,
    found: Sequence[CheckResult],
    *,
    offline: bool,
) -> Iterator[CheckResult]:
    work = Path.cwd()
    config = launch.config if launch is not None else Config()
    yield _python()
    yield from _terminal(environ, work, config)
    yield from found
    if launch is not None:
        network = _network(launch.choice.base_url, environ)
        yield from network
        if not any(one.state == "bad" for one in network):
            yield _model(launch, offline=offline)
    yield from _folders(work)
    yield from _sandbox(config, environ)
    yield from _programs(environ, work)


def _python() -> CheckResult:
    return CheckResult(
        "python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}"
    )


# --- the terminal


def _terminal(environ: Mapping[str, str], work: Path, config: Config) -> Iterator[CheckResult]:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield CheckResult(
            "terminal",
            "warn",
            "input or output is redirected",
            "Run kimi-tui in a terminal, without redirecting its input or output.",
        )
        answer = b""
    else:
        columns, rows = shutil.get_terminal_size()
        small = columns < 60 or rows < 20
        yield CheckResult(
            "terminal",
            "warn" if small else "ok",
            f"{environ.get('TERM_PROGRAM') or environ.get('TERM') or 'unknown'}, {columns}x{rows}",
            "Enlarge the terminal to at least 60x20 characters." if small else "",
        )
        answer = ask_terminal()
        yield from _answered(answer)
    colours = colours_of(environ)
    words = {FEW: "16", MANY: "256"}.get(colours, "all")
    advice = (
        ""
        if colours > MANY
        else "If the terminal supports 24-bit colours, set COLORTERM=truecolor."
    )
    yield CheckResult("colours", "warn" if colours == FEW else "ok", words, advice)
    option = tmux_option(environ, [work]) if asks_tmux(environ) else ""
    command = clipboard_command(environ, [work])
    hinders = "" if command else clipboard_advice(environ, option)
    how = f"copied with {Path(command[0]).name} and OSC 52" if command else "copied with OSC 52"
    yield CheckResult("clipboard", "warn" if hinders else "ok", how, hinders)
    reader, advice = image_reader(environ, [work])
    way_in = (
        f"images can be pasted (read with {Path(reader).name}) or attached by path"
        if reader
        else "images cannot be pasted; attach them by path"
    )
    yield CheckResult("images", "ok", way_in, advice)
    way = notification_method(config.notify.how, environ)
    progress = (
        "; the terminal shows a progress bar while the agent works"
        if draws_progress(environ)
        else ""
    )
    yield CheckResult("notifications", "ok", f"sent with {way}{progress}")


def _answered(answer: bytes) -> Iterator[CheckResult]:
    last = _LAST_ANSWER.search(answer)
    if last is None:
        yield CheckResult(
            "keyboard",
            "warn",
            "the terminal does not report its features",
            "Use Ctrl+J for a new line, as Shift+Enter may send the message.",
        )
        return
    keys = re.search(rb"\x1b\[\?[0-9]+u|\x1b\[>4;[12]m", answer)
    yield CheckResult(
        "keyboard",
        "ok",
        "the terminal reports all key combinations"
        if keys
        else "the terminal does not report combinations such as Shift+Enter",
        "" if keys else "Use Ctrl+J for a new line, as Shift+Enter may send the message.",
    )
    graphics = "kitty" if b"\x1b_Gi=31;OK" in answer else ""
    graphics = graphics or ("sixel" if b"4" in last[1].split(b";")[1:] else "")
    yield CheckResult(
        "graphics",
        "ok",
        graphics or "the terminal has no image protocol, so images are drawn with characters",
    )
    focus = re.search(rb"\x1b\[\?1004;([0-9])\$y", answer)
    if focus is None or focus[1] in (b"0", b"4"):
        advice = (
            "Add 'set -g focus-events on' to the configuration of tmux."
            if os.environ.get("TMUX")
            else ""
        )
        yield CheckResult(
            "focus",
            "warn",
            "the terminal may not report when it loses the focus, and then no notification is sent",
            advice,
        )


def ask_terminal() -> bytes:
    """Return the terminal's answers about itself; nothing if it does not answer."""
    fd = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(fd)
    except termios.error:
        return b""
    answer = b""
    try:
        tty.setcbreak(fd)
        os.write(sys.stdout.fileno(), _QUESTIONS)
        until = time.monotonic() + ANSWER_S
        while _LAST_ANSWER.search(answer) is None and (left := until - time.monotonic()) > 0:
            if select.select([fd], [], [], left)[0]:
                answer += os.read(fd, 4_096)
        return answer
    except OSError:
        return answer
    finally:
        # An answer that comes too late must not be read by the shell.
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)


# --- configuration and model


def _configuration() -> tuple[Launch | None, list[CheckResult]]:
    try:
        launch = launch_of(Options())
    except ConfigError as error:
        return None, [CheckResult("configuration", "bad", str(error), "Fix that line in the file.")]
    source = launch.config.source
    seen = (
        short(source) if source is not None else f"no file yet; it will be {short(config_file())}"
    )
    found = [CheckResult("configuration", "ok", seen)]
    found += [CheckResult("configuration", "warn", words) for words in launch.notices]
    return launch, found


def _network(base_url: str, environ: Mapping[str, str]) -> list[CheckResult]:
    """Check the environment's settings for connections to the model's server; nothing if no variable applies."""
    if not base_url:
        return []
    from kimi_tui.llm.errors import LLMError
    from kimi_tui.llm.network_settings import proxy_to, trusted_certificates

    found: list[CheckResult] = []
    try:
        if proxy := proxy_to(base_url, environ):
            seen = f"through the proxy {proxy.shown}, set by {proxy.variable}"
            found.append(CheckResult("network", "ok", seen))
        if base_url.startswith("https:"):
            trusted_certificates(environ)
            found += [
                CheckResult(
                    "network",
                    "ok",
                    f"trusts the certificates in {short(Path(value))}, set by {name}",
                )
                for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")
                if (value := environ.get(name, "").strip())
            ]
    except LLMError as error:
        found.append(CheckResult("network", "bad", error.message, error.advice))
    return found


def _model(launch: Launch, *, offline: bool) -> CheckResult:
    choice = launch.choice
    if not isinstance(choice, ModelChoice) and choice.base_url:
        words = f"the API key for {choice.base_url} is missing"
        return CheckResult("model", "bad", words, "Start kimi-tui and paste the key.")
    if not isinstance(choice, ModelChoice):
        return CheckResult(
            "model", "warn", "no model is configured", "Start kimi-tui and choose a model."
        )
    from kimi_tui.base_url import shown_url

    at = shown_url(choice.base_url)
    name = (
        f"{choice.model} at {at}"
        if choice.model
        else f"no model configured; using the only model of {at}"
    )
    if offline:
        return CheckResult("model", "ok", f"{name}; the server was not contacted (--offline)")
    from kimi_tui.llm.errors import APIStatusError, LLMError
    from kimi_tui.llm.models import ChatModels, chat_models

    async def ask() -> ChatModels:
        async with asyncio.timeout(MODELS_TIMEOUT_S):
            return await chat_models(choice.base_url, choice.api_key, choice.headers)

    begun = time.monotonic()
    try:
        listed = asyncio.run(ask())
    except LLMError as error:
        status = f" {error.status}" if isinstance(error, APIStatusError) else ""
        kind = f"{type(error).__name__}{status}"
        return CheckResult("model", "bad", f"{name}: {error.message}", error.advice, kind)
    except TimeoutError:
        return CheckResult(
            "model",
            "bad",
            f"{name}: the server did not answer",
            "Check that the server runs and that the proxy is right.",
        )
    seen = f"{name}, answered in {time.monotonic() - begun:.1f} s"
    if choice.model and choice.model not in [model.id for model in listed.models]:
        return CheckResult(
            "model",
            "warn",
            f"{seen}, but the server does not list this model",
            "Type /model and choose a model that the server has.",
        )
    return CheckResult("model", "ok", seen)


# --- the machine


def _folders(work: Path) -> Iterator[CheckResult]:
    data = data_dir()
    advice = no_home_notice()
    for about, folder in (("configuration", config_file().parent), ("sessions", data)):
        # A missing folder will be created in the first existing one above it.
        there = next(one for one in (folder, *folder.parents) if one.exists())
        if trouble := _refusal(there):
            yield CheckResult("folders", "bad", f"{about}: {short(folder)}: {trouble}", advice)
        else:
            free = shutil.disk_usage(there).free
            state: State = "bad" if free < _LEAST_FREE else "warn" if free < _LITTLE_FREE else "ok"
            room = (
                ""
                if state == "ok"
                else "Free some disk space; `kimi-tui sessions list --all` shows the size of each session."
            )
            seen = f"{about}: {short(folder)}, {free / (1 << 30):.1f} GB free"
            yield CheckResult("folders", state, seen, room or advice)
    if trouble := _refusal(work):
        yield CheckResult(
            "work folder",
            "warn",
            f"{short(work)}: {trouble}",
            "The agent cannot change files here.",
        )
    else:
        yield CheckResult("work folder", "ok", short(work))
        yield _file_changes(data, work)
    yield from _small_files(data, work)
    yield _locks(data)


def _file_changes(data: Path, work: Path) -> CheckResult:
    """Check whether the kernel can tell which files of the work folder change."""
    from kimi_tui.workspace.scan import try_watch
    from kimi_tui.workspace.tracker import refusal_reason

    if reason := refusal_reason(work, [os.environ.get("HOME", "")]):
        return CheckResult("file changes", "ok", reason)
    try:
        count, trouble = try_watch(str(work), [str(data)], _WATCH_S)
        is_busy = False
    except OSError as error:
        count, trouble = 0, reason_of(error)
        is_busy = error.errno == errno.EMFILE
    if not trouble:
        seen = f"the system reports changed files ({counted(count, 'watched folder')})"
        return CheckResult("file changes", "ok", seen)
    advice = "Rewinds still work; in a large folder each step takes longer."
    if count:
        advice += " On Linux, a larger fs.inotify.max_user_watches allows more watched folders."
    elif is_busy:
        trouble = "too many programs watch files"
        advice += " On Linux, a larger fs.inotify.max_user_instances allows more of them."
    seen = f"all files are scanned after each step, because the system does not report changes: {trouble}"
    return CheckResult("file changes", "warn" if sys.platform == "linux" else "ok", seen, advice)


def _small_files(data: Path, work: Path) -> Iterator[CheckResult]:
    """Check files that the program silently does without if it cannot read them."""
    from kimi_tui.filesystem import open_regular
    from kimi_tui.session.prompt_history import history_file

    for about, path in (
        ("history of sent messages", history_file(data, work.resolve())),
        ("hints already shown", hints_file(data)),
    ):
        try:
            os.close(open_regular(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            seen = f"{about}: {short(path)}: {reason_of(error, named_in_text=path)}"
            yield CheckResult(
                "files",
                "warn",
                seen,
                "kimi-tui works without this file. Make it readable, or delete it.",
            )


def _refusal(folder: Path) -> str:
    """Say why no file can be written in a folder; empty if one can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return bare_reason(error)


def _locks(data: Path) -> CheckResult:
    from kimi_tui.session.lock import holder_of
    from kimi_tui.session.store import SessionStore

    there = next(one for one in (data, *data.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return CheckResult(
            "locks",
            "warn",
            f"the disk does not support file locks: {bare_reason(error)}",
            "Open each session in one program at a time, or set KIMI_TUI_HOME to a folder on another disk.",
        )
    folders = SessionStore(data).newest_first()
    held = sum(holder_of(folder) is not None for folder in folders[:1_000])
    return CheckResult("locks", "ok", f"{counted(len(folders), 'session')}, {held} of them open")


def _sandbox(config: Config, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    from kimi_tui.tools.sandbox.layers import layers_dir
    from kimi_tui.tools.sandbox.policy import NoSandbox, SandboxSettings
    from kimi_tui.tools.sandbox.sandbox import find_sandbox
    from kimi_tui.tools.sandbox.view import tier_of

    backend = ""
    try:
        sandbox = find_sandbox(SandboxSettings(*config.sandbox), environ, Path.cwd())
    except NoSandbox as no:
        advice = (
            'Each command of the agent needs your approval or a permission, except in mode "allow all". '
            "Searches run without a sandbox."
        )
        yield CheckResult("sandbox", "warn", f"not available: {no}", advice)
    else:
        backend, gaps = sandbox.backend, "; ".join(sandbox.gaps)
        yield CheckResult("sandbox", "warn" if gaps else "ok", f"works ({backend})", gaps)
    with _leaving_no_folder(Path(layers_dir(environ))):
        tier = tier_of(backend, environ)
    yield from _other_files(tier)


@contextlib.contextmanager
def _leaving_no_folder(folder: Path) -> Generator[None]:
    """Remove a folder and those above it that a check made, unless something is in them by then."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for one in missing:
                one.rmdir()


def _other_files(tier: Tier) -> Iterator[CheckResult]:
    """Check how commands see the files of an earlier checkpoint (bisect and run-at), and futures files of their own."""
    past, futures = "past files", "futures"
    match tier:
        case "overlay":
            seen = "bisect and run-at run commands on the files of a checkpoint, in a private mount (overlayfs); your files stay as they are"
            yield CheckResult(past, "ok", seen)
            seen = "each future has its own files at the path of the work folder (overlayfs)"
            yield CheckResult(futures, "ok", seen)
        case "copy":
            seen = "bisect and run-at run commands on a copy of the files of a checkpoint, in a private mount; folders that git ignores are read-only"
            yield CheckResult(past, "ok", seen)
            seen = "each future has a copy of the files at the path of the work folder"
            yield CheckResult(futures, "ok", f"{seen}; folders that git ignores are read-only")
        case "elsewhere":
            yield CheckResult(
                past,
                "warn",
                "bisect and run-at run commands on a copy of the files of a checkpoint, at another path",
                "Commands that depend on the path of the work folder may fail.",
            )
            yield CheckResult(
                futures,
                "warn",
                "each future has a copy of the files at another path",
                "A program with a hard-coded path to the work folder reads and changes the real files, not the copy.",
            )


def _programs(environ: Mapping[str, str], work: Path) -> Iterator[CheckResult]:
    from kimi_tui.tools.grep import bundled_rg

    if rg := bundled_rg() or find_program("rg", environ, work):
        yield CheckResult("rg", "ok", short(Path(rg)))
    else:
        yield CheckResult(
            "rg", "bad", "missing, so the agent cannot search files", "Install ripgrep (rg)."
        )
    if git := find_program("git", environ, work):
        yield CheckResult("git", "ok", short(Path(git)))
    else:
        yield CheckResult(
            "git",
            "warn",
            "missing",
            "Install git if the agent should use it; everything else works without it.",
        )
