"""The options of `kimi-tui -p`: their declaration for the command line.

`cli` imports this to build its parser, so almost nothing is imported here.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser

Format = Literal["text", "json", "stream-json"]
NOT_GIVEN: Final = "\0"
"""The value of `-p` without a prompt; no argument of a command line can have it."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class HeadlessOptions(NamedTuple):
    """The options of a run without a screen; the defaults apply if input is piped in and none are given.

    Attributes:
        output: the format of standard output.
        lines: whether messages come as lines of JSON on standard input.
        deltas: whether pieces of texts are written as they come, in `stream-json`.
        quiet: whether progress is left out on standard error.
        strict: whether a refusal makes the exit code 3.
        allow: the beginnings of commands that run without a question, as given.
        schema: the file with the JSON schema of the answer; None for none.
        output_file: the file that gets the answer; None for none.
        ephemeral: whether the session is removed at the end.
        bare: whether notes of projects and of the user, and hooks, are left out.
        max_steps: the most steps of a turn; None for the configured number.
        max_tokens: the most tokens of the run; 0 for any number.
        max_cost: the most money that the run may cost, by the configured prices; 0 for any amount.
        max_time_s: the seconds after which the run is stopped; 0 for never.
        is_asked_for: whether `-p`, `--print` or `--quiet` was given; otherwise a terminal is used, if there is one.
    """

    output: Format = "text"
    lines: bool = False
    deltas: bool = False
    quiet: bool = False
    strict: bool = False
    allow: tuple[str, ...] = ()
    schema: str | None = None
    output_file: str | None = None
    ephemeral: bool = False
    bare: bool = False
    max_steps: int | None = None
    max_tokens: int = 0
    max_cost: float = 0.0
    max_time_s: float = 0.0
    is_asked_for: bool = False

    @property
    def first_given(self) -> str:
        """The first option that differs from its default, as it is written; empty for none."""
        written = {
            "output": "output-format",
            "lines": "input-format",
            "schema": "json-schema",
            "max_time_s": "max-time",
        }
        usual = HeadlessOptions()._asdict()
        given = (name for name, value in self._asdict().items() if value != usual[name])
        return next((f"--{written.get(name, name).replace('_', '-')}" for name in given), "")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument_group(
        "without a screen", "For scripts, pipes and CI; see docs/headless.md."
    ).add_argument
    add(
        "-p",
        "--prompt",
        nargs="?",
        const=NOT_GIVEN,
        metavar="PROMPT",
        help="run one turn, print the answer and exit; without PROMPT, read it from standard input",
    )
    add(
        "--print",
        dest="prints",
        action="store_true",
        help="run one turn as -p does, with MESSAGE as the prompt",
    )
    add("--quiet", action="store_true", help="run one turn as -p does, and print no progress")
    add(
        "--output-format",
        choices=("text", "json", "stream-json"),
        help="print the answer (default), one JSON object, or a line of JSON for each event",
    )
    add("--deltas", action="store_true", help="with stream-json: print text as it arrives")
    add(
        "--input-format",
        choices=("text", "stream-json"),
        help="stream-json: read messages as lines of JSON, for many turns in one process",
    )
    add("--json-schema", metavar="FILE", help="require an answer in JSON that fits this schema")
    add("-o", "--output-file", metavar="FILE", help="also write the answer to this file")
    add(
        "--allow",
        action="append",
        default=[],
        metavar="WORDS",
        help="allow commands that begin with these words, or a tool of an MCP server by its name; can be given several times",
    )
    add("--strict", action="store_true", help="exit with 3 if an action was refused")
    add("--ephemeral", action="store_true", help="delete the session at the end")
    add(
        "--bare",
        action="store_true",
        help="run without project notes (AGENTS.md, CLAUDE.md, …), skills, hooks and MCP servers",
    )
    add("--max-steps", type=whole_number, metavar="N", help="stop the turn after N steps")
    add(
        "--max-tokens",
        type=whole_number,
        metavar="N",
        help="stop when the run has used N tokens, input and output",
    )
    add(
        "--max-cost",
        type=amount,
        metavar="N",
        help="stop when the run has cost N, in the currency of the prices in config.toml",
    )
    add(
        "--max-time",
        type=seconds,
        metavar="TIME",
        help="stop after this time, for example 90 (seconds), 10m or 1h",
    )


def taken_from(given: dict[str, Any]) -> tuple[HeadlessOptions | None, list[str]]:
    """Remove the options of this module from the parsed arguments.

    Args:
        given: the values of all arguments, by name.

    Returns:
        the options, None if the run needs a screen; and the words of the prompt that came with them.

    Raises:
        ConfigError: the options contradict one another, or need `-p`.
    """
    # `kimi-tui --help` needs no settings.
    from kimi_tui.config.settings import ConfigError

    prompt: str | None = given.pop("prompt", None)
    is_quiet: bool = given.pop("quiet", False)
    is_wanted = bool(given.pop("prints", False)) | is_quiet | (prompt is not None)
    output: Format | None = given.pop("output_format", None)
    lines: str | None = given.pop("input_format", None)
    options = HeadlessOptions(
        output=output or "text",
        lines=lines == "stream-json",
        deltas=given.pop("deltas", False),
        quiet=is_quiet,
        strict=given.pop("strict", False),
        allow=tuple(given.pop("allow", ())),
        schema=given.pop("json_schema", None),
        output_file=given.pop("output_file", None),
        ephemeral=given.pop("ephemeral", False),
        bare=given.pop("bare", False),
        max_steps=given.pop("max_steps", None),
        max_tokens=given.pop("max_tokens", None) or 0,
        max_cost=given.pop("max_cost", None) or 0.0,
        max_time_s=given.pop("max_time", None) or 0.0,
    )
    if prompt is not None and not prompt.strip():
        # An unset variable in a script would otherwise silently make it wait for standard input.
        raise ConfigError("-p: the prompt is empty")
    if not is_wanted:
        return (options if options != HeadlessOptions() else None), []
    return options._replace(is_asked_for=True), [] if prompt in (None, NOT_GIVEN, "-") else [prompt]


def whole_number(text: str, most: int = 0) -> int:
    """Parse a whole number of at least 1.

    Args:
        text: the text.
        most: the largest number; 0 for any of twelve digits.

    Raises:
        ArgumentTypeError: the text is no such number.
    """
    if re.fullmatch(r"[0-9]{1,12}", text, re.ASCII) and 0 < int(text) <= (most or int(text)):
        return int(text)
    limits = f"from 1 to {most:,}" if most else "of at least 1"
    raise ArgumentTypeError(f'"{text}" is not a whole number {limits}')


def amount(text: str) -> float:
    """Parse an amount of money above 0."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9}", text) or not float(text):
        raise ArgumentTypeError(f'"{text}" is not an amount of money above 0')
    return float(text)


def seconds(text: str) -> float:
    """Parse a time such as 90, 10m or 1h; return its seconds."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smh]?)", text)
    if found is None or not float(found[1]):
        raise ArgumentTypeError(f'"{text}" is not a time such as 90, 10m or 1h')
    return float(found[1]) * _UNITS[found[2]]
