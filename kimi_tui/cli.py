"""The command `kimi-tui`: reads the arguments and the configuration, then runs the app.

An error in them is one line on stderr with exit code 2, before the screen is taken over. Almost nothing is imported here, because
each import would delay the first paint.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import TYPE_CHECKING, Any

from kimi_tui.program import FAILED, INTERRUPTED, USAGE

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

    from kimi_tui.instant.prompt import InstantPrompt
    from kimi_tui.launch import Launch, Options

REPLAY = "replay"
"""The command that leads to a first paint, like a start without any command."""
_ENDS_AT_ONCE = frozenset({"kimi_tui.headless.run", "kimi_tui.tui.app"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        code = INTERRUPTED
    if argv is None and not _ENDS_AT_ONCE.isdisjoint(sys.modules):
        _end_at_once(code)
    return code


def _end_at_once(code: int) -> None:
    """End the process without taking the interpreter apart, which would take a tenth of a short run, and a second after a long session."""
    import atexit

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    # One of these functions removes the temporary folders of threads that still work.
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    os._exit(code)


def _run(arguments: list[str]) -> int:
    if sys.platform == "win32":
        return _say("native Windows is not supported; run kimi-tui inside WSL", FAILED)
    _open_streams()
    if arguments and not arguments[0].startswith("-") and arguments[0] != REPLAY:
        from kimi_tui.commands.dispatch import COMMANDS, run

        if arguments[0] in COMMANDS:
            return run(arguments[0], arguments[1:])
    options = parse(arguments)
    if isinstance(options, int):
        return options
    headless = options.headless
    if headless is None and not _is_terminal(options):
        from kimi_tui.headless.options import HeadlessOptions

        options = options._replace(headless=HeadlessOptions())
    elif headless is not None and not headless.is_asked_for and sys.stdin.isatty():
        return _say(
            f"{headless.first_given} works only together with -p; see kimi-tui --help", USAGE
        )
    if options.headless is not None:
        return _run_headless(options)
    # Nearly all objects made from here on live as long as the program, so collecting in between would find little.
    gc.disable()
    from kimi_tui.config.settings import ConfigError
    from kimi_tui.launch import launch_of

    launch: Launch | None = None
    try:
        launch = launch_of(options)
        return start(launch)
    except ConfigError as error:
        return _say(str(error), USAGE)
    except Exception as error:
        return _crashed(error, launch)


def _run_headless(options: Options) -> int:
    # Nearly all objects made until the session is open live as long as the program.
    gc.disable()
    try:
        from kimi_tui.own_process import check_address_space, tune_malloc

        check_address_space()
        tune_malloc()
        from kimi_tui.headless.run import run

        return run(options)
    except Exception as error:
        return _crashed(error, None)
    finally:
        gc.enable()


def _is_terminal(options: Options) -> bool:
    """Return whether the run takes its input from a terminal, or has to: these kinds say so where there is none."""
    return sys.stdin.isatty() or options.demo or options.replay or options.picks


def _open_streams() -> None:
    """Open closed standard streams (`>&-`) to /dev/null; otherwise a session's file would get the number of the output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # `open` takes the lowest free number, and the lower ones are in use by now.
            os.open(os.devnull, os.O_RDWR)
            stream = io.TextIOWrapper(io.FileIO(number, "r+", closefd=False))
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _crashed(error: Exception, launch: Launch | None) -> int:
    """Log the traceback of an error before the screen was drawn or while it was closed, and print one line; return the exit code."""
    from kimi_tui.own_process import lack_of_memory

    if words := lack_of_memory(error):
        return _say(words, FAILED)
    from kimi_tui.config.model_choice import ModelChoice
    from kimi_tui.logging_setup import log_crash

    choice = launch.choice if launch is not None else None
    keys = choice.secrets if isinstance(choice, ModelChoice) else ()
    try:
        from kimi_tui.app_paths import log_file, log_words

        path = log_file()
        log_crash(path, error, keys)
        where = log_words()
    except Exception:
        from kimi_tui.logging_setup import redacted

        where = redacted(f"{type(error).__name__}: {error}", keys)
    return _say(f"an internal error occurred while starting or exiting. {where}", FAILED)


def start(launch: Launch) -> int:
    """Run the app; return its exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        words = "kimi-tui needs a terminal, and its input or output is redirected. Without a terminal: kimi-tui -p PROMPT"
        return _say(words, FAILED)
    kind = os.environ.get("TERM", "")
    if kind.lower() in NO_TERMINALS:
        words = (
            f'TERM is "{kind}", a terminal without full-screen support. Use another terminal, or set TERM to the right '
            "name, for example TERM=xterm-256color"
        )
        return _say(words, USAGE)
    if not sys.stderr.isatty():
        # Textual draws on the standard error of the program's start.
        name = "__stderr__"
        setattr(sys, name, sys.__stdout__)
    from kimi_tui.instant.prompt import begin
    from kimi_tui.own_process import share_interpreter

    share_interpreter()
    _write_utf8()
    _forget_odd_sizes()
    instant = begin(launch)
    try:
        return _run_app(launch, instant)
    finally:
        if instant is not None:
            instant.restore()


def _run_app(launch: Launch, instant: InstantPrompt | None) -> int:
    from kimi_tui.own_process import check_address_space, harden, tune_malloc

    check_address_space()
    harden()
    tune_malloc()
    # Textual reads this at its import. A frame is drawn only when something changed; after another frame a key could wait 34
    # ms for its own at 60 frames a second, and 9 ms at 240.
    os.environ.setdefault("TEXTUAL_FPS", "1000")
    from kimi_tui.late_imports import sparing

    with sparing():
        from kimi_tui.tui.app import KimiApp
    from kimi_tui.tui.palette import colours_of

    # Imported modules stay for good, so the collector need never visit them again. A screen does not stay, so this comes
    # before the first one is made.
    gc.freeze()
    app = KimiApp(launch, colours=colours_of(os.environ), instant=instant)
    try:
        app.run(mouse=launch.config.mouse.capture)
    except (KeyboardInterrupt, SystemExit) as error:
        # A handler's callee raised this: the terminal is restored, and the messages must be printed here.
        if not app.log_interrupt(error):
            raise
        app.print_exit_messages()
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
    app.print_exit_messages()
    return app.return_code or 0


def _write_utf8() -> None:
    """Draw the screen in UTF-8, the encoding in which its input is read, whatever the locale or `PYTHONIOENCODING` says: a terminal
    cannot be asked for its encoding, and escapes such as `\\u2502` would break every row.
    """
    for stream in (sys.__stdout__, sys.__stderr__):
        is_text = isinstance(stream, io.TextIOWrapper)
        if is_text and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


NO_TERMINALS = ("dumb", "unknown")
"""Values of TERM for terminals that cannot draw, such as those of Emacs and CI."""
_MOST_CELLS = 2000


def _forget_odd_sizes() -> None:
    """Remove a size of the terminal from the environment, unless no terminal reports its size and the value is a size.

    Textual believes the environment first, and would lay out a screen of any number of rows.
    """
    try:
        columns, rows = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)
    except (OSError, ValueError):
        columns = rows = 0
    for name, said in (("COLUMNS", columns), ("LINES", rows)):
        given = os.environ.get(name, "")
        is_size = given.isascii() and given.isdigit() and 0 < int(given[:9]) <= _MOST_CELLS
        if said or not is_size:
            os.environ.pop(name, None)


def parse(arguments: Sequence[str]) -> Options | int:
    """Return the options, or the exit code if the parser has already answered."""
    given: dict[str, Any] = {}
    try:
        if arguments[:1] == [REPLAY]:
            given = {**vars(_replay_parser().parse_args(arguments[1:])), "replay": True}
        elif arguments:  # the usual start is spared the import of the parser
            own, theirs = _split(arguments)
            given = {**vars(_parser().parse_args(own)), "agent_arguments": theirs}
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    if given.pop("version", False):
        return _say_version()
    words: list[str] = given.pop("message", [])
    if "added" in given:
        given["added"] = tuple(given["added"])
    if given and "prompt" in given:
        from kimi_tui.config.settings import ConfigError
        from kimi_tui.headless.options import taken_from

        try:
            given["headless"], prompt = taken_from(given)
        except ConfigError as error:
            return _say(str(error), USAGE)
        words = [*prompt, *words]
    if given.get("headless") is None and len(words) == 1 and (meant := _command_like(words[0])):
        # The word is a misspelt command, or one after an option. Any other word is a message, which is not sent yet.
        return _say(f"unrecognized arguments: {words[0]}; did you mean kimi-tui {meant}?", USAGE)
    from kimi_tui.foreign_text import clean_pasted
    from kimi_tui.launch import Options

    return Options(**given, message=clean_pasted(" ".join(words)).strip())


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """Return the arguments for this program, and those for the program of an external agent, which stand after `--`."""
    if "--" not in arguments or not any(one.startswith("--external-agent") for one in arguments):
        return arguments, ()
    place = list(arguments).index("--")
    return arguments[:place], tuple(arguments[place + 1 :])


def _command_like(word: str) -> str:
    """Return the command that a word of the command line is, or is with a typing error; empty for none.

    Commands are of ASCII letters: many languages write a whole sentence without a space.
    """
    if not word.isascii():
        return ""
    from difflib import get_close_matches

    from kimi_tui.commands.dispatch import COMMANDS

    return next(iter(get_close_matches(word[:40], [*COMMANDS, REPLAY], 1, 0.75)), "")


def _say_version() -> int:
    from kimi_tui.program import VERSION

    try:
        print(f"kimi-tui {VERSION}", flush=True)
    except OSError as error:
        # The remaining output must not fail again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return FAILED
        from kimi_tui.app_paths import bare_reason

        return _say(f"The version could not be printed: {bare_reason(error)}.", FAILED)
    return 0


def _replay_parser() -> ArgumentParser:
    from kimi_tui.commands.console import CommandLineParser

    parser = CommandLineParser(
        prog=f"kimi-tui {REPLAY}",
        description="Replay a session. The session is not changed.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "session",
        metavar="SESSION",
        nargs="?",
        help="the id of the session, or the start of the id (default: the newest session of this folder)",
    )
    parser.add_argument(
        "-w",
        "--work-dir",
        metavar="DIR",
        help="the work folder of the session (default: this folder)",
    )
    return parser


def _parser() -> ArgumentParser:
    from argparse import ArgumentTypeError

    from kimi_tui.commands.console import CommandLineParser, ListingFormatter
    from kimi_tui.commands.dispatch import COMMANDS

    def speed(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0.1 <= value <= 1000:
            raise ArgumentTypeError(f"{text!r} is not a number from 0.1 to 1000")
        return value

    def given(text: str) -> str:
        # Without this check an unset variable in a script would silently choose another server, model or session.
        if not text.strip():
            raise ArgumentTypeError("the value is empty")
        return text

    widest = max(map(len, COMMANDS)) + 1
    parser = CommandLineParser(
        prog="kimi-tui",
        description="A coding agent in the terminal, with checkpoints and time travel that you can see and control.",
        epilog="\n".join(
            (
                "commands (kimi-tui COMMAND --help has the options of each):",
                *(f"  {name:<{widest}} {words}" for name, words in COMMANDS.items()),
                "",
                _EPILOG,
            )
        ),
        formatter_class=ListingFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "message",
        nargs="*",
        metavar="MESSAGE",
        help="text to put into the prompt; nothing is sent until you press Enter",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-C",
        "--continue",
        dest="newest",
        action="store_true",
        help="resume the newest session of this folder",
    )
    which.add_argument(
        "-r", "--resume", dest="picks", action="store_true", help="choose a session to resume"
    )
    which.add_argument(
        "-S", "--session", type=given, metavar="ID", help="resume the session with this id"
    )
    add(
        "-w",
        "--work-dir",
        type=given,
        metavar="DIR",
        help="the work folder (default: this folder)",
    )
    add(
        "--add-dir",
        dest="added",
        action="append",
        default=[],
        type=given,
        metavar="DIR",
        help="another folder that the agent may read and work in; can be given several times",
    )
    add(
        "--model",
        type=given,
        metavar="NAME",
        help="the model: a name from config.toml, or one that the server knows",
    )
    add("--base-url", type=given, metavar="URL", help="the base URL of an OpenAI-compatible server")
    add(
        "--external-agent",
        type=given,
        metavar="NAME",
        help="let another agent do the work: claude, codex, gemini, kimi-code, goose, vibe, opencode, or one from config.toml; "
        "arguments after -- go to its program",
    )
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument(
        "-y",
        "--yolo",
        action="store_true",
        help='start in the mode "allow all": the agent works without asking, except for secret or protected files, files outside this folder, and anything that the sandbox does not allow',
    )
    asked.add_argument(
        "--plan",
        action="store_true",
        help="start in plan mode: the agent changes nothing until you approve its plan",
    )
    asked.add_argument(
        "--mode",
        choices=("plan", "ask", "edits", "sandboxed", "all"),
        help="the mode to start in: what the agent may do without asking",
    )
    add(
        "--no-sandbox",
        action="store_true",
        help='run commands without the sandbox; mode "sandboxed" becomes "ask", and "allow all" runs them without asking',
    )
    thinking = parser.add_mutually_exclusive_group()
    thinking.add_argument(
        "--thinking",
        dest="thinking",
        action="store_true",
        default=None,
        help="let the model reason before it answers, if it can",
    )
    thinking.add_argument(
        "--no-thinking",
        dest="thinking",
        action="store_false",
        help="let the model answer without reasoning",
    )
    add(
        "--fork",
        action="store_true",
        help="with --continue or --session: work in a copy; the original stays as it is",
    )
    add(
        "--demo",
        action="store_true",
        help="try a two-minute demo; it needs no API key and no network",
    )
    add("--play", action="store_true", help="with --demo: play the demo without waiting for keys")
    add(
        "--speed",
        type=speed,
        default=1.0,
        metavar="N",
        help="with --demo: the playback speed (default: 1)",
    )
    add("--version", action="store_true", help="print the version")
    from kimi_tui.headless.options import add_arguments

    add_arguments(parser)
    return parser


_EPILOG = """\
Configuration: config.toml in the platform's configuration folder, or in $KIMI_TUI_HOME.
Environment: KIMI_API_KEY, KIMI_BASE_URL, KIMI_MODEL_NAME, KIMI_MODEL_MAX_CONTEXT_SIZE, \
KIMI_DIALECT, OPENAI_API_KEY, OPENAI_BASE_URL."""


def _say(message: str, code: int) -> int:
    # The message may contain names of folders and options, and any text that a script passed on.
    from kimi_tui.foreign_text import one_line

    print(f"kimi-tui: {one_line(message)}", file=sys.stderr)
    return code
