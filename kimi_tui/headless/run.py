"""`kimi-tui -p`: opens a session without a screen, runs its turns, and ends with an exit code (`kimi_tui.program.EXIT_CODES`).

One task follows the wire: it writes what the format of the output has, answers questions, and has the result of each turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimi_tui.app_paths import reason_of
from kimi_tui.base_url import shown_url
from kimi_tui.config.model_choice import NeedsChoice
from kimi_tui.config.settings import ConfigError
from kimi_tui.display_names import sentences
from kimi_tui.foreign_text import one_line
from kimi_tui.headless.checks import check, check_prices, ephemeral, with_options
from kimi_tui.headless.options import HeadlessOptions
from kimi_tui.headless.output import Output, OutputGone, complain, progress
from kimi_tui.headless.standard_input import StandardInput
from kimi_tui.headless.wire_lines import EventLines, json_line
from kimi_tui.invocation import command_words
from kimi_tui.launch import CannotOpen, Launch, launch_of
from kimi_tui.program import CONFLICTS, DONE, FAILED, INTERRUPTED, TERMINATED, USAGE, VERSION
from kimi_tui.wire import events as ev

if TYPE_CHECKING:
    from kimi_tui.headless.answers import Answers
    from kimi_tui.headless.messages import InputLine
    from kimi_tui.headless.report import Result, TurnReport, TurnStop
    from kimi_tui.headless.schema import Schema
    from kimi_tui.launch import Options
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.tools.allowed_commands import Rule
    from kimi_tui.wire.events import Event

_SIGNALS = {
    signal.SIGINT: INTERRUPTED,
    signal.SIGTERM: TERMINATED,
    signal.SIGHUP: TERMINATED,
}
_SUBJECT_CHARS = 100


def run(options: Options) -> int:
    """Run without a screen; return the exit code. An error is one line on standard error."""
    headless = options.headless or HeadlessOptions()
    try:
        check(options, headless)
        launch = with_options(launch_of(options), headless)
        return asyncio.run(_Run(launch, headless).main())
    except ConfigError as error:
        complain(str(error))
        return USAGE
    except CannotOpen as error:
        complain(str(error))
        return error.code


class _Run:
    """One run of the program without a screen.

    Args:
        launch: the session, model and mode.
        options: the options.
    """

    def __init__(self, launch: Launch, options: HeadlessOptions) -> None:
        self._launch = launch
        self._options = options
        self._input = StandardInput(complain)
        self._output = Output()
        self._rules: list[Rule] = []
        self._schema: Schema | None = None
        self._code = DONE
        self._is_output_gone = False
        self._is_answered = options.lines
        self._asked: dict[str, ev.ApprovalRequest] = {}
        self._answers: Answers
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()
        self._results: asyncio.Queue[Result] = asyncio.Queue()
        self._tasks: set[asyncio.Task[object]] = set()
        self._work: asyncio.Task[int] | None = None
        self._signal = 0
        self._soul: KimiSoul | None = None
        self._report: TurnReport

    async def main(self) -> int:
        """Run to the end; return the exit code."""
        loop = asyncio.get_running_loop()
        for number, code in _SIGNALS.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number, code)
        self._work = asyncio.create_task(self._whole(), name="run")
        try:
            return await self._work
        except asyncio.CancelledError:
            if not self._signal:
                raise
            return self._signal

    def _on_signal(self, number: signal.Signals, code: int) -> None:
        if self._signal:
            # The second one: whoever sends it does not want to wait for anything.
            os._exit(code)
        self._signal = code
        soul = self._soul
        if soul is None or not soul.running:
            if self._work is not None:
                self._work.cancel()
            return
        from kimi_tui.headless.report import BY_SIGHUP, BY_SIGINT, BY_SIGTERM

        endings = {signal.SIGINT: BY_SIGINT, signal.SIGHUP: BY_SIGHUP}
        self._stop(endings.get(number, BY_SIGTERM))
        self._texts.put_nowait(None)

    def _stop(self, ending: TurnStop) -> None:
        """Stop the turn under way."""
        self._note(ending)
        if self._soul is not None:
            self._begin(self._soul.interrupt())

    def _note(self, ending: TurnStop) -> None:
        """Note why the turn under way ends; the first reason counts."""
        if self._report.ending is None:
            self._report.ending = ending

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the session -----------------------------------------------------------------------------

    async def _whole(self) -> int:
        options, launch = self._options, self._launch
        for notice in launch.notices:
            complain(notice)
        if isinstance(launch.choice, NeedsChoice) and not launch.external_agent:
            raise ConfigError(_no_model(launch.choice))
        if options.schema is not None:
            from kimi_tui.headless.schema import Schema

            self._schema = await asyncio.to_thread(Schema.read, options.schema)
        if options.allow:
            self._rules = await asyncio.to_thread(_rules, options.allow, launch.work_dir)
        if launch.choice.model:
            check_prices(launch, launch.config.prices, launch.choice.model)
        text, piped = launch.prompt, ""
        if text:
            piped = await self._input.beside()
        elif not options.lines:
            text = await self._input.prompt()
        from kimi_tui.own_process import harden

        harden()
        async with ephemeral(launch, wanted=options.ephemeral) as launch:
            return await self._in_session(launch, text, piped)

    async def _in_session(self, launch: Launch, text: str, piped: str) -> int:
        from kimi_tui.soul.opening import open_session

        opened = await open_session(launch, waits_for_sandbox=False)
        gc.freeze()
        gc.enable()
        from kimi_tui.headless.answers import Answers
        from kimi_tui.headless.report import TurnReport, out_of_time

        options, soul = self._options, opened.soul
        self._report = TurnReport(strict=options.strict)
        self._soul = soul
        following = asyncio.create_task(
            self._follow(soul, Answers(soul, self._rules, complain, self._note)), name="follow"
        )
        timer: asyncio.TimerHandle | None = None
        try:
            check_prices(launch, launch.config.prices, soul.model_name)
            # No call of a tool runs before this is known; a turn without any does not wait for it.
            self._begin(self._tell_sandbox(launch, soul))
            for notice in opened.notices:
                complain(notice)
            if options.output == "stream-json":
                await self._write(_first_line(soul))
            if options.max_time_s:
                timer = asyncio.get_running_loop().call_later(
                    options.max_time_s, self._stop, out_of_time(options.max_time_s)
                )
            if options.lines:
                await self._conversation(soul)
            else:
                await self._one_turn(soul, text, piped)
        finally:
            if timer is not None:
                timer.cancel()
            await soul.aclose()
            for lost in filter(None, (await soul.save(), soul.unsynced_words)):
                complain(lost)
                self._code = self._code or FAILED
            # The wire ends with the engine, and what is written with the wire.
            await following
        if self._code not in (DONE, USAGE) and not options.ephemeral:
            command = command_words("--session", soul.session.id[:8])
            complain(f"the session is kept. To resume it: {command}")
        return self._signal or (FAILED if self._is_output_gone else self._code)

    async def _tell_sandbox(self, launch: Launch, soul: KimiSoul) -> None:
        from kimi_tui.soul.opening import no_sandbox_words

        with contextlib.suppress(asyncio.CancelledError):
            await soul.sandbox_ready()
            if words := no_sandbox_words(launch, soul):
                complain(
                    f"{words} Commands that need approval are refused. "
                    "--mode all runs them; use it only in a container or VM that you can throw away"
                )

    # -- turns -----------------------------------------------------------------------------------

    async def _one_turn(self, soul: KimiSoul, text: str, piped: str) -> None:
        """Run the turn of a prompt, and a second one if its answer does not fit the schema."""
        schema = self._schema
        if schema is None:
            result = await self._turn(soul, text, piped)
        else:
            from kimi_tui.prompts import prompt

            # A name after an @ in the schema is no file that the message names.
            asked = prompt("answer_schema", SCHEMA=_without_at(schema.text))
            result = await self._turn(soul, f"{text}\n\n{asked}", piped)
            if not result.errors:
                result = await self._fitting(soul, schema, result)
        self._code = result.code
        answer = json.dumps(result.structured[0]) if result.structured else result.answer
        if result.code in (DONE, CONFLICTS):
            if self._options.output == "text" and answer:
                await self._write(f"{answer}\n")
            if self._options.output_file is not None:
                await self._write_file(self._options.output_file, f"{answer}\n")
        await self._report_end(soul, result)

    async def _fitting(self, soul: KimiSoul, schema: Schema, first: Result) -> Result:
        """Return the result with its answer as JSON that fits the schema, after one repair at most; else a failed result."""
        from kimi_tui.prompts import prompt

        fitted, faults = schema.fitted(first.answer)
        if not faults:
            return first._replace(structured=fitted)
        words = prompt("answer_repair", FAULTS=_without_at("\n".join(f"- {one}" for one in faults)))
        result = (await self._turn(soul, words, "")).after(first)
        if result.errors:
            return result
        fitted, faults = schema.fitted(result.answer)
        if not faults:
            return result._replace(structured=fitted)
        return result._replace(
            code=FAILED,
            subtype="error_max_structured_output_retries",
            errors=(f"The answer does not match the schema: {'; '.join(faults)}.",),
        )

    async def _turn(self, soul: KimiSoul, text: str, piped: str) -> Result:
        """Run one turn; return its result, whatever ended it."""
        from kimi_tui.soul.kimisoul import TURN_ERRORS

        begun: list[bool] = []
        self._report.begin(soul.spent)
        try:
            await soul.run(text, piped=piped, begins=lambda: begun.append(True))
        except TURN_ERRORS as error:
            if not begun:
                return self._report.failed(sentences(error.message, error.advice))
        return await self._results.get()

    async def _report_end(self, soul: KimiSoul, result: Result) -> None:
        """Say how a turn ended: on standard error, and in the formats for scripts as the `result`."""
        for words in result.errors:
            complain(words)
        if self._options.output == "text":
            if result.code not in (DONE, CONFLICTS) and result.answer and not self._options.quiet:
                progress("The answer so far, which is incomplete:")
                for line in result.answer.splitlines():
                    progress(line)
        else:
            has_prices = soul.model_name in self._launch.config.prices
            await self._write(json_line(result.as_json(soul.session.id, has_prices=has_prices)))

    # -- a conversation by lines -----------------------------------------------------------------

    async def _conversation(self, soul: KimiSoul) -> None:
        """Carry out the messages of standard input, until one closes it or it ends, and nothing is left to do."""
        reading = asyncio.create_task(self._read_messages(soul), name="messages")
        try:
            while (text := await self._texts.get()) is not None:
                result = await self._turn(soul, text, "")
                if not self._code and result.code not in (DONE, INTERRUPTED):
                    self._code = result.code
                await self._report_end(soul, result)
                if self._signal:
                    break
        finally:
            reading.cancel()

    async def _read_messages(self, soul: KimiSoul) -> None:
        from kimi_tui.headless.messages import BadMessage, message_of

        async for line in self._input.lines():
            if not line.strip():
                continue
            try:
                message = message_of(line)
                if message.kind == "close":
                    break
                await self._carry_out(soul, message)
            except BadMessage as bad:
                self._code = self._code or USAGE
                complain(str(bad))
                await self._write(json_line({"type": "error", "message": str(bad)}))
        self._texts.put_nowait(None)
        # From now on nobody can answer.
        self._is_answered = False
        for request in list(self._asked.values()):
            await self._answers.answer(request)

    async def _carry_out(self, soul: KimiSoul, message: InputLine) -> None:
        from kimi_tui.headless.messages import BadMessage
        from kimi_tui.tools.sandbox.policy import NoSandbox

        match message.kind:
            case "steer" if soul.running:
                soul.say(message.text)
            case "user" | "steer":
                self._texts.put_nowait(message.text)
            case "interrupt":
                await soul.interrupt()
            case "answer":
                request = self._asked.get(message.request_id)
                if request is None:
                    raise BadMessage(
                        f'No request with the id "{message.request_id}" waits for an answer.'
                    )
                if message.answer == "no":
                    self._answers.note_stop(request)
                soul.answer(request.id, message.answer, message.text)
            case _:
                try:
                    await soul.set_mode(message.mode)
                except NoSandbox as no:
                    raise BadMessage(f"The mode was not changed. {no}") from no

    # -- following -------------------------------------------------------------------------------

    async def _follow(self, soul: KimiSoul, answers: Answers) -> None:
        """Take in every event until the wire ends: write it, answer what it asks, and note how turns end."""
        self._answers = answers
        is_stream = self._options.output == "stream-json"
        lines = EventLines(deltas=self._options.deltas)
        async for record in soul.wire.subscribe():
            is_own = not record.source
            if is_own:
                self._report.follow(record.event)
            if isinstance(record.event, ev.ApprovalRequest) and is_own:
                # Its answer may come as soon as it is written.
                self._asked[record.event.id] = record.event
            if is_stream:
                for line in lines.of(record):
                    await self._write(line)
            if not is_own:
                # A sub-agent's questions are asked by the session, too, and its turns are no turns of the session.
                self._say(record.event, f"{record.source}: ")
                continue
            match record.event:
                case ev.ApprovalRequest() as request:
                    if not self._is_answered:
                        self._begin(answers.answer(request))
                case ev.ApprovalResolved(id=request_id):
                    self._asked.pop(request_id, None)
                case ev.TurnEnd() as end:
                    self._results.put_nowait(self._report.result(end, soul.spent))
                case event:
                    self._say(event)

    def _say(self, event: Event, who: str = "") -> None:
        """Say on standard error what a person wants to know while a turn runs; `who` is the sub-agent whose event it is."""
        is_loud = not self._options.quiet
        match event:
            case ev.Notice(level="warning" | "error", solved=False) as notice:
                complain(sentences(notice.text, notice.advice))
            case ev.Notice(solved=False) as notice if is_loud:
                progress(notice.text)
            case ev.ToolStarted(name=name, arguments=arguments) if is_loud:
                progress(f"· {who}{name} {_subject(arguments)}")
            case ev.StepRetry(wait_s=wait_s, reason=reason) if wait_s and is_loud:
                progress(f"retrying in {wait_s:.0f} s: {reason}")
            case ev.CompactionBegin() if is_loud:
                progress("compacting the context")
            case _:
                pass

    async def _write(self, text: str) -> None:
        """Write to standard output. Once that cannot be written any more, the turn is stopped."""
        if self._is_output_gone:
            return
        try:
            await self._output.write(text)
        except OutputGone as gone:
            self._is_output_gone = True
            if str(gone):
                complain(f"standard output cannot be written: {gone}")
            from kimi_tui.headless.report import READER_GONE

            if self._soul is not None and self._soul.running:
                self._stop(READER_GONE)

    async def _write_file(self, path: str, text: str) -> None:
        def write() -> None:
            Path(path).expanduser().write_text(text, encoding="utf-8", errors="replace")

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            self._code = FAILED
            complain(f'"{path}" could not be written: {reason_of(error, named_in_text=path)}')


def _first_line(soul: KimiSoul) -> str:
    return json_line(
        {
            "type": "init",
            "version": VERSION,
            "session_id": soul.session.id,
            "work_dir": str(soul.session.work_dir),
            "model": soul.model_name,
            "mode": soul.mode,
            "tools": list(soul.tools),
        }
    )


def _subject(arguments: str) -> str:
    """Return the first text among the arguments of a call, shortened: the command, the path, the pattern."""
    # The engine is loaded by the time that a call comes.
    from kimi_tui.soul.messages import call_arguments

    values = call_arguments(arguments).values()
    return one_line(next((one for one in values if isinstance(one, str)), ""))[:_SUBJECT_CHARS]


def _rules(texts: Sequence[str], work_dir: Path) -> list[Rule]:
    from kimi_tui.tools.allowed_commands import BadRule, rule_of

    rules: list[Rule] = []
    for text in texts:
        try:
            rules.append(rule_of(text, work_dir, os.environ))
        except BadRule as bad:
            raise ConfigError(f'--allow "{text}": {bad}') from bad
    return rules


def _no_model(needed: NeedsChoice) -> str:
    if needed.base_url:
        if needed.base_url.lower().startswith("http:"):
            # Only the address of a known provider comes here: a key would be refused.
            return (
                f"{shown_url(needed.base_url)} is not encrypted. Begin the base URL with https://"
            )
        return (
            f"there is no API key for {shown_url(needed.base_url)}. "
            "Set KIMI_API_KEY, or run kimi-tui in a terminal to enter it"
        )
    return (
        "no model is configured. Set KIMI_API_KEY and KIMI_MODEL_NAME, "
        "or run kimi-tui in a terminal to choose one"
    )


def _without_at(text: str) -> str:
    return text.replace("@", "\\u0040")
