"""`kimi-tui futures`: several continuations of a session from one checkpoint, side by side, judged by a command."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import textwrap
from argparse import Namespace
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from kimi_tui.commands.console import (
    CommandLineParser,
    checkpoint_number,
    command,
    complain,
    print_json,
    print_table,
    say,
    with_world_line,
)
from kimi_tui.commands.sessions import chosen_session, lacking_words
from kimi_tui.foreign_text import one_line
from kimi_tui.program import CONFLICTS, DONE, FAILED, INTERRUPTED, LOCKED, TERMINATED, USAGE
from kimi_tui.tui.formatting import counted, cut, tokens

if TYPE_CHECKING:
    from kimi_tui.futures.running import Futures
    from kimi_tui.futures.values import Estimate, FuturesPlan
    from kimi_tui.launch import Launch
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.wire.events import FutureChanged

_MODES = ("plan", "ask", "edits", "sandboxed", "all")
_MOST = 4
_NOTHING = "–"
_TABLE_COLUMNS = 110
"""The width of a terminal for a row for each future; a narrower one would cut most of it."""


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui futures ARGUMENTS`; return the exit code."""
    options = _parser().parse_args(arguments)
    if words := _fault(options):
        complain(f"{words} See kimi-tui futures --help.")
        return USAGE
    from kimi_tui.config.settings import ConfigError
    from kimi_tui.futures.values import NoFutures
    from kimi_tui.launch import CannotOpen, Options, launch_of

    session = chosen_session(options.session)
    if words := lacking_words(session, "kimi-tui futures"):
        complain(
            f"{words} To try another way and keep this one, copy the session with kimi-tui sessions fork."
        )
        return FAILED
    try:
        launch = launch_of(
            Options(work_dir=str(session.work_dir), session=session.id, mode=options.mode)
        )
        return asyncio.run(_FuturesRun(options, launch).main())
    except NoFutures as no:
        complain(str(no))
        return USAGE if no.field else FAILED
    except ConfigError as error:
        complain(str(error))
        return USAGE
    except CannotOpen as error:
        complain(str(error))
        return error.code


def _parser() -> CommandLineParser:
    from kimi_tui.headless.options import amount, seconds, whole_number

    parser = command(
        "futures",
        "Continue a session several times from one checkpoint, side by side. Each future is a process with its own files; the "
        "work folder and the current conversation stay as they are. At the end each future becomes a world line (a branch) of the "
        "session. Exit code: 0 if a "
        "future passed the check, 1 if none did; without a check: 0 if all ended without an error, else 1.",
    )
    parser.add_argument(
        "n",
        metavar="N",
        nargs="?",
        type=checkpoint_number,
        help="start just before checkpoint N (the number of futures is --n); without --message, the message of that checkpoint is sent again (default: start at the end of the conversation)",
    )
    add = with_world_line(
        parser, "use the checkpoints of world line (branch) K (default: the current one)"
    ).add_argument
    add(
        "--n",
        dest="count",
        metavar="COUNT",
        type=partial(whole_number, most=_MOST),
        help="the number of futures, from 1 to 4 (default: one for each --message or --model, else 2)",
    )
    add(
        "--message",
        action="append",
        default=[],
        metavar="TEXT",
        help="the first message; give it once for all futures, or once for each of them",
    )
    add(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="the model; give it once for all futures, or once for each of them (default: the configured one)",
    )
    add(
        "--check",
        metavar="COMMAND",
        help="a shell command that checks the files of each future when the future ends; exit code 0 means that the check passed; it is stopped after 10 minutes",
    )
    add("--network", action="store_true", help="let the check use the network")
    add(
        "--take",
        choices=("best",),
        help="at the end, switch the session to the best future (by check, unchanged tests, diff size, cost)",
    )
    add(
        "--mode",
        choices=_MODES,
        help="what the agents may do without asking; everything else is refused",
    )
    add("--max-steps", type=whole_number, metavar="N", help="stop each future after N steps")
    add(
        "--max-tokens",
        type=whole_number,
        metavar="N",
        help="stop each future when it has used N tokens",
    )
    add(
        "--max-cost",
        type=amount,
        metavar="N",
        help="stop each future when it has cost N, in the currency of the prices in config.toml",
    )
    add(
        "--max-time",
        type=seconds,
        metavar="TIME",
        help="stop each future after this time, for example 90 (seconds), 10m or 1h",
    )
    add("--quiet", action="store_true", help="print no progress")
    return parser


def _fault(options: Namespace) -> str:
    """Return what is wrong with the options together; empty if nothing is."""
    if options.count is None:
        options.count = max(len(options.message), len(options.model), 2)
    if options.count > _MOST:
        return f"There can be at most {_MOST} futures."
    for name, given in (("--message", options.message), ("--model", options.model)):
        if len(given) not in (0, 1, options.count):
            return (
                f"{name} was given {len(given)} times for {counted(options.count, 'future')}: "
                "give it once for all of them, or once for each."
            )
    if options.check is not None and not options.check.strip():
        return "The check is empty."
    if options.n is None and not any(one.strip() for one in options.message):
        return "Name a checkpoint, or write a message with --message."
    return ""


def _plan(options: Namespace) -> FuturesPlan:
    from kimi_tui.futures.values import Caps, FuturesPlan, Variant
    from kimi_tui.soul.rewind_values import END, Target

    def one_each(given: Sequence[str]) -> list[str]:
        return list(given) if len(given) > 1 else [*given, ""][:1] * options.count

    variants = tuple(
        Variant(message, model)
        for message, model in zip(one_each(options.message), one_each(options.model), strict=True)
    )
    return FuturesPlan(
        target=Target(END if options.n is None else options.n, options.world_line),
        variants=variants,
        check=options.check or "",
        caps=Caps(
            options.max_tokens or 0,
            options.max_cost or 0.0,
            options.max_time or 0.0,
            options.max_steps or 0,
        ),
        network=options.network,
    )


class _FuturesRun:
    """One run of the command.

    Args:
        options: the options of the command line.
        launch: the session, model and mode.
    """

    def __init__(self, options: Namespace, launch: Launch) -> None:
        self._options = options
        self._launch = launch
        self._signal = 0
        self._shown: dict[str, tuple[str, int, str]] = {}
        self._whys: set[str] = set()
        self._refusing: set[str] = set()
        self._stopping: asyncio.Task[None] | None = None

    async def main(self) -> int:
        """Run to the end; return the exit code."""
        from kimi_tui.futures.running import Futures
        from kimi_tui.launch import CannotOpen
        from kimi_tui.session.errors import SessionLocked
        from kimi_tui.soul.opening import open_session

        try:
            opened = await open_session(self._launch)
        except CannotOpen as no:
            if isinstance(no.__cause__, SessionLocked):
                # The general advice names an option that this command has not.
                raise CannotOpen(str(no.__cause__), LOCKED) from no
            raise
        async with aclosing(opened.soul) as soul:
            for notice in opened.notices:
                complain(notice)
            if opened.no_sandbox:
                complain(
                    f"{opened.no_sandbox} Everything that needs approval is refused. --mode edits lets the futures edit files. --mode all lets "
                    "them run commands as well; use it only in a container or VM that you can throw away"
                )
            futures = Futures(soul, self._launch)
            plan = _plan(self._options)
            estimate = await futures.estimate(plan)
            self._tell(_estimate_words(estimate))
            for words in estimate.remarks:
                complain(words)
            self._handle_signals(futures)
            futures.subscribe(lambda key: self._changed(futures, key))
            keys = await futures.start(plan)
            await futures.ended()
            return await self._end(soul, futures, keys)

    def _handle_signals(self, futures: Futures) -> None:
        loop = asyncio.get_running_loop()

        def stop(code: int) -> None:
            if self._signal:
                os._exit(code)
            self._signal = code
            self._tell("The futures are being stopped. Their finished steps are kept.")
            self._stopping = asyncio.ensure_future(futures.stop_all())

        for number, code in (
            (signal.SIGINT, INTERRUPTED),
            (signal.SIGTERM, TERMINATED),
            (signal.SIGHUP, TERMINATED),
        ):
            loop.add_signal_handler(number, stop, code)

    # -- while they run --------------------------------------------------------------------------

    def _tell(self, words: str) -> None:
        if not self._options.quiet:
            from kimi_tui.headless.output import progress

            lines = [words]
            if sys.stderr.isatty():
                width = os.get_terminal_size(sys.stderr.fileno()).columns or _TABLE_COLUMNS
                lines = textwrap.wrap(one_line(words), width, subsequent_indent="  ")
            for line in lines:
                progress(line)

    def _changed(self, futures: Futures, key: str) -> None:
        state = futures.state(key)
        for asked_key, request in futures.asked:
            if asked_key == key and request.id not in self._refusing:
                self._refuse(futures, key, request.id)
        if state.state == "preparing":
            return
        # At each request a future waits for its turn and gets it; a reason to wait is told once.
        waits = state.state == "waiting"
        news = "" if waits and state.why in self._whys else state.why
        told = ("running" if waits else state.state, state.step, "" if waits else news)
        if self._shown.get(key) != told or (waits and news):
            self._shown[key] = told
            does = state.state if news else told[0]
            if waits:
                self._whys.add(news)
            step = f", step {state.step}" if state.step else ""
            used = f", {tokens(state.tokens)} tokens" if state.tokens else ""
            why = f" ({news})" if news else ""
            self._tell(f"· {state.name}: {does}{step}{used}{why}")

    def _refuse(self, futures: Futures, key: str, request_id: str) -> None:
        """Refuse a request: nobody is there to answer."""
        from kimi_tui.prompts import prompt

        self._refusing.add(request_id)
        request = next(one for _, one in futures.asked if one.id == request_id)
        if request.kind == "pause":
            futures.answer(key, request_id, "no")
            return
        complain(
            f"{futures.state(key).name}: refused {request.tool} {request.detail[:200]} (kimi-tui futures cannot ask for approval)"
        )
        futures.answer(key, request_id, "no", prompt("nobody_here"))

    # -- the end ---------------------------------------------------------------------------------

    async def _end(self, soul: KimiSoul, futures: Futures, keys: Sequence[str]) -> int:
        from kimi_tui.futures.values import ranked

        states = [futures.state(key) for key in keys]
        order = ranked(states)
        passed = [one for one in order if one.check == "passed" and one.world_line]
        in_order = [one for one in order if one.state == "done"]
        is_good = bool(passed) if self._options.check else len(in_order) == len(states)
        code = DONE if is_good else FAILED
        best = next(iter(passed if self._options.check else in_order), None)
        taken, conflicts = False, ()
        if self._options.take and best is not None and best.world_line and not self._signal:
            outcome = await futures.make_current(best.key)
            taken, conflicts = True, outcome.conflicts
        if self._options.json:
            print_json(
                {
                    "session_id": soul.session.id,
                    "check": self._options.check,
                    "best": None if best is None else best.number,
                    "taken": taken,
                    "conflicts": list(conflicts),
                    "futures": [_facts(one) for one in states],
                }
            )
        else:
            _print(states)
            if taken and best is not None:
                say(
                    f"Switched to {best.name}, world line {best.world_line}. To undo this: kimi-tui undo"
                )
        for one in states:
            if one.state == "failed":
                complain(f"{one.name}: {one.why}")
            if one.check == "not run" and one.check_output:
                complain(f"{one.name}: The check was not run: {one.check_output}")
        if self._options.take and not taken and not self._signal:
            complain(
                "The session was not switched: no future passed the check."
                if self._options.check
                else "The session was not switched: no future ended without an error."
            )
        if conflicts:
            complain(
                f"Not restored, because also changed outside kimi-tui: {', '.join(conflicts)}."
            )
        return self._signal or (CONFLICTS if conflicts and not code else code)


def _estimate_words(estimate: Estimate) -> str:
    """Return the cost of the first requests in a sentence."""
    words = f"{counted(len(estimate.futures), 'future')}: the first requests together send {tokens(estimate.tokens)} tokens"
    if estimate.cached:
        words += f", {tokens(estimate.cached)} of them probably cached"
    if estimate.cost >= 0:
        words += f", for about {estimate.cost:.2f} in the currency of your prices"
    most = (
        f" At most {tokens(estimate.most_tokens)} tokens are used." if estimate.most_tokens else ""
    )
    return f"{words}.{most} {estimate.tier_words}"


def _print(states: Sequence[FutureChanged]) -> None:
    """Print the futures as a table, or on a narrow terminal one after another."""
    rows: list[list[str]] = []
    for one in states:
        check = one.check if one.check != "failed" else f"failed (exit {one.check_exit})"
        rows.append(
            [
                str(one.number),
                one.name,
                one.state,
                check or _NOTHING,
                counted(len(one.own_check), "file") if one.own_check else _NOTHING,
                f"{counted(one.files, 'file')}, lines +{one.added} -{one.removed}",
                str(one.step),
                tokens(one.tokens),
                f"{one.cost:.4f}" if one.cost >= 0 else _NOTHING,
                f"{max(0.0, one.ended_at - one.began_at):.0f} s",
                str(one.world_line or _NOTHING),
            ]
        )
    head = [
        "",
        "future",
        "state",
        "check",
        "changed tests",
        "changes",
        "steps",
        "tokens",
        "cost",
        "time",
        "world line",
    ]
    columns = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or columns >= _TABLE_COLUMNS:
        print_table(head, rows, right=(6, 7, 8, 9, 10))
        return
    for number, name, state, *more in rows:
        say(f"{number} {cut(one_line(name), columns - 2)}")
        named = zip(head[3:], more, strict=True)
        facts = [state, *(f"{of} {text}" for of, text in named if text != _NOTHING)]
        print(textwrap.fill(", ".join(facts), columns, initial_indent="  ", subsequent_indent="  "))


def _facts(state: FutureChanged) -> dict[str, object]:
    """Return the state of a future as a JSON object, for scripts."""
    facts = asdict(state)
    for name in ("group", "asks", "removed_at"):
        del facts[name]
    facts["cost"] = state.cost if state.cost >= 0 else None
    facts["check"] = state.check or None
    facts["check_exit"] = state.check_exit if state.check_exit >= 0 else None
    facts["checkpoint_id"] = state.checkpoint_id if state.checkpoint_id >= 0 else None
    facts["world_line"] = state.world_line or None
    return facts
