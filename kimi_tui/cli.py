"""The command `kimi-tui`: reads the arguments and the configuration, then runs the app.

Whatever is wrong with them is said in one line on stderr with exit code 2, before the screen is taken over. What is
imported here is paid for before the first paint, so almost nothing is.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence
    from pathlib import Path

    from kimi_tui.config.model import Config
    from kimi_tui.launch import Launch

USAGE = 2
FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.platform == "win32":
        return _say("native Windows is not supported; run it inside WSL", FAILED)
    if arguments and not arguments[0].startswith("-"):
        from kimi_tui.commands.dispatch import COMMANDS, run

        if arguments[0] in COMMANDS:
            return run(arguments[0], arguments[1:])
    options = parse(arguments)
    if isinstance(options, int):
        return options
    # Nearly everything that is imported from here on lives as long as the program: collecting in between is wasted.
    gc.disable()
    from kimi_tui.config.model import ConfigError

    try:
        launch = launch_of(options)
    except ConfigError as error:
        return _say(str(error), USAGE)
    return start(launch)


def start(launch: Launch) -> int:
    """Run the app; returns its exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _say("needs a terminal; input and output must not be redirected", FAILED)
    from kimi_tui.freed_memory import keep_large_apart
    from kimi_tui.process import harden

    harden()
    keep_large_apart()
    # Read by Textual when it is imported. A frame is drawn only when something changed; at 60 a key could wait 34 ms.
    os.environ.setdefault("TEXTUAL_FPS", "240")
    from kimi_tui.tui.app import KimiApp
    from kimi_tui.tui.theme import colours_of

    app = KimiApp(launch, colours=colours_of(os.environ))
    app.run()
    if app.parting_words:
        print(f"kimi-tui: {app.parting_words}", file=sys.stderr)
    if app.kept_words:
        print(f"kimi-tui: {app.kept_words}", file=sys.stderr)
    return app.return_code or 0


class Options(NamedTuple):
    """The arguments, as they are without any."""

    newest: bool = False
    session: str | None = None
    work_dir: str | None = None
    model: str | None = None
    base_url: str | None = None
    yolo: bool = False
    thinking: bool | None = None
    fork: bool = False
    demo: bool = False
    speed: float = 1.0
    version: bool = False


def parse(arguments: Sequence[str]) -> Options | int:
    """The options, or the exit code where the parser has already answered."""
    if not arguments:
        return Options()  # the usual start is spared the import of the parser
    try:
        options = Options(**vars(_parser().parse_args(arguments)))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    if options.version:
        from kimi_tui import __version__

        print(f"kimi-tui {__version__}")
        return 0
    return options


def _parser() -> ArgumentParser:
    from argparse import ArgumentTypeError, RawDescriptionHelpFormatter

    from kimi_tui.commands.arguments import Parser
    from kimi_tui.commands.dispatch import COMMANDS

    def speed(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0.1 <= value <= 1000:
            raise ArgumentTypeError(f"a number from 0.1 to 1000 is needed, not {text!r}")
        return value

    def given(text: str) -> str:
        # An unset variable in a script would else silently mean another server, model or session.
        if not text.strip():
            raise ArgumentTypeError("it is empty")
        return text

    parser = Parser(
        prog="kimi-tui",
        description="A coding agent in the terminal whose time travel you can see and steer.",
        epilog=f"Commands: {', '.join(COMMANDS)}; each has its own --help.\n\n{_EPILOG}",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-C", "--continue", dest="newest", action="store_true", help="go on with the newest session"
    )
    which.add_argument("-S", "--session", type=given, metavar="ID", help="go on with this session")
    add(
        "-w",
        "--work-dir",
        type=given,
        metavar="DIR",
        help="the folder to work in (default: this one)",
    )
    add(
        "--model",
        type=given,
        metavar="NAME",
        help="a model of the configuration, or a name the server knows",
    )
    add("--base-url", type=given, metavar="URL", help="an OpenAI-compatible server to ask")
    add("-y", "--yolo", action="store_true", help="allow all changes without asking")
    thinking = parser.add_mutually_exclusive_group()
    thinking.add_argument(
        "--thinking",
        dest="thinking",
        action="store_true",
        default=None,
        help="let the model think first, where it can",
    )
    thinking.add_argument(
        "--no-thinking", dest="thinking", action="store_false", help="let it answer at once"
    )
    add("--fork", action="store_true", help="work on a copy of the session")
    add("--demo", action="store_true", help="watch a two-minute story; no key, no network")
    add("--speed", type=speed, default=1.0, metavar="N", help="how fast the demo plays")
    add("--version", action="store_true", help="print the version")
    return parser


_EPILOG = """\
Configuration: config.toml in the platform's configuration folder, or in $KIMI_TUI_HOME.
Environment: KIMI_API_KEY, KIMI_BASE_URL, KIMI_MODEL_NAME, KIMI_MODEL_MAX_CONTEXT_SIZE,
KIMI_DIALECT, OPENAI_API_KEY, OPENAI_BASE_URL."""


def launch_of(options: Options) -> Launch:
    """Everything the app needs to know.

    Raises:
        ConfigError: one line for the person.
    """
    from kimi_tui.config.choosing import Overrides, choose
    from kimi_tui.config.model import ConfigError
    from kimi_tui.launch import NEWEST, Launch
    from kimi_tui.places import config_file

    if options.fork and not (options.newest or options.session):
        raise ConfigError("--fork needs --continue or --session ID")
    path = config_file()
    config = _config(path)
    return Launch(
        work_dir=_work_dir(options.work_dir),
        config_path=path,
        config=config,
        choice=choose(
            config, Overrides(options.model, options.base_url, options.thinking), os.environ
        ),
        resume=NEWEST if options.newest else options.session,
        fork=options.fork,
        mode="all" if options.yolo else "ask",
        demo=options.demo,
        speed=options.speed,
        notices=config.notices,
    )


def _config(path: Path) -> Config:
    """Our configuration, or kimi-cli's where we have none."""
    from kimi_tui.config.reading import read_config

    if path.exists():
        return read_config(path)
    from kimi_tui.places import kimi_cli_config_file

    return read_config(kimi_cli_config_file())


def _work_dir(given: str | None) -> Path:
    from pathlib import Path

    from kimi_tui.config.model import ConfigError

    try:
        path = Path(given).expanduser() if given else Path.cwd()
        resolved = path.resolve(strict=True)
    except FileNotFoundError as error:
        raise ConfigError(f"--work-dir: there is no folder {given or '.'}") from error
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"--work-dir: {given or '.'} cannot be opened: {error}") from error
    if not resolved.is_dir():
        raise ConfigError(f"--work-dir: {given} is not a folder")
    return resolved


def _say(message: str, code: int) -> int:
    print(f"kimi-tui: {message}", file=sys.stderr)
    return code
