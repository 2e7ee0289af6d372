"""The process of a future: opens its session, runs its turn, runs the check, and tells all of it as lines of JSON.

Standard input has first the order (`orders.Order`), then the messages of `headless.messages`, and two more: `{"type": "go"}` lets the
request that was asked for leave, and `{"type": "limit", "text": WORDS}` stops the turn because a limit was reached. The end of
standard input stops everything in order. Lines on standard output are objects with one key:

    {"record": LINE}        an event of the session, as in `wire.jsonl`
    {"ready": FACTS}        the session is open: the model, the mode, and why there is no sandbox
    {"gate": "ask"}         a request waits for its turn; "first" when its answer begins, "left" when it has ended
    {"spent": [INPUT, CACHED, OUTPUT, COST]}   after each step; the cost is -1 without prices
    {"ended": FACTS}        the turn has ended: the reason, error, advice and kind of `TurnEnd`, the limit that was reached, the answer, and whether the
                            check follows
    {"checked": FACTS}      the check has ended: exit code (null if it was not run), seconds, and the last lines of its output

With `Order.agent` the process is one of a sub-agent (`futures.agent_child`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Mapping,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from kimi_tui import lenient_json, temporary_folders
from kimi_tui.app_paths import reason_of
from kimi_tui.config.settings import ConfigError
from kimi_tui.futures.orders import Order, choice_of
from kimi_tui.headless.messages import BadMessage, message_of
from kimi_tui.headless.output import Output, OutputGone, complain
from kimi_tui.headless.standard_input import StandardInput
from kimi_tui.launch import CannotOpen, Launch, Options, launch_of
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import encode_record

if TYPE_CHECKING:
    from kimi_tui.agent_parts import Mode
    from kimi_tui.llm.provider import ChatProvider, StreamItem
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.opening import GivenSession, Opened

CHECK_LINES = 20
_MOST_ANSWER = 20_000
_HEARD_S = 2.0
_LAST_SNAPSHOT_S = 5.0
_OUT_OF_TIME = 124
"""The exit code of a check that takes too long; the program `timeout` has the same."""
_HELD_S = 0.05
"""Seconds for which streamed text is held, so that three futures do not wake the program hundreds of times a second."""
_P = ParamSpec("_P")


@dataclass(slots=True)
class _Turns:
    """Lets the requests of this process leave one by one, when the program says so."""

    _tell: asyncio.Queue[dict[str, Any] | None]
    _waiting: list[asyncio.Event] = field(default_factory=list[asyncio.Event])

    def go(self) -> None:
        """Let the request that has waited longest leave."""
        if self._waiting:
            self._waiting.pop(0).set()

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncGenerator[Callable[[], None]]:
        """Wait until a request may leave; yield a function to be called when its answer begins."""
        turn = asyncio.Event()
        self._waiting.append(turn)
        self._tell.put_nowait({"gate": "ask"})
        is_begun: list[bool] = []

        def first() -> None:
            if not is_begun:
                is_begun.append(True)
                self._tell.put_nowait({"gate": "first"})

        try:
            await turn.wait()
            yield first
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)
            self._tell.put_nowait({"gate": "left"})


def _taking_turns(
    ask: Callable[_P, AsyncGenerator[StreamItem]], turns: _Turns
) -> Callable[_P, AsyncGenerator[StreamItem]]:
    """Return the `ChatProvider.generate` of a model with its requests waiting for their turns."""
    from kimi_tui.llm.provider import TextDelta, ThinkDelta, ToolCallDelta

    async def generate(*args: _P.args, **kwargs: _P.kwargs) -> AsyncGenerator[StreamItem]:
        async with turns.taken() as first:
            stream = ask(*args, **kwargs)
            async with contextlib.aclosing(stream):
                async for item in stream:
                    if isinstance(item, TextDelta | ThinkDelta | ToolCallDelta):
                        first()
                    yield item

    return generate


def _tell_facts(provider: ChatProvider, known: Mapping[str, Any]) -> None:
    """Give a model what the program has asked its server."""
    from kimi_tui.llm.dialects import dialect_named
    from kimi_tui.llm.models import ServerFacts

    can = known.get("capabilities")
    provider.facts = ServerFacts(  # pyright: ignore[reportAttributeAccessIssue]
        dialect=dialect_named(known["dialect"]) if known.get("dialect") else None,
        window=known.get("window"),
        capabilities=None if can is None else frozenset(can),
        base_url=known.get("base_url"),
        one_at_a_time=bool(known.get("one_at_a_time")),
    )


class FutureChild:
    """One process: carries out an order.

    Args:
        order: what is to be done.
        lines: the messages of the program.
        output: where everything is told.
    """

    def __init__(self, order: Order, lines: AsyncIterator[bytes], output: Output) -> None:
        self._order = order
        self._lines = lines
        self._output = output
        self._told: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._turns = _Turns(self._told)
        self._soul: KimiSoul | None = None
        self._end: ev.TurnEnd | None = None
        self._limit = ""
        self._is_stopped = False
        self._checking: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[Opened] | None = None
        self._turning: asyncio.Task[None] | None = None
        self._answer: list[str] = []
        self._turn_over = asyncio.Event()
        self._held: ev.EventRecord | None = None
        self._prices: Mapping[str, object] = {}
        self._began_at = time.time()

    async def run(self) -> int:
        """Run to the end; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._abandoned)
        writing = asyncio.create_task(self._write(), name="output")
        reading = asyncio.create_task(self._read(), name="messages")
        try:
            return await self._whole()
        finally:
            reading.cancel()
            self._tell_held()
            self._told.put_nowait(None)
            await writing

    def _abandoned(self) -> None:
        """End because the program has ended."""
        self._keep(self._left())

    async def _left(self) -> None:
        """Leave sub-agents that work as a kill does, so that they can go on; without any, stop in order."""
        soul = self._soul
        if soul is None or soul.agents is None or not any(o.is_running for o in soul.agents.states):
            self._stop()
            return
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LAST_SNAPSHOT_S):
                await soul.folder.take("agent")
                await soul.flush()
        temporary_folders.remove_all()
        os._exit(1)

    def _stop(self) -> None:
        self._is_stopped = True
        if self._checking is not None:
            self._checking.cancel()
        if self._soul is None:
            if self._opening is not None:
                self._opening.cancel()
        else:
            self._stop_turn(self._soul)

    def _stop_turn(self, soul: KimiSoul) -> None:
        if soul.running:
            self._keep(soul.interrupt())
        elif self._turning is not None:
            # A turn that is about to begin would wait at the server for ever.
            self._turning.cancel()

    def _keep(self, work: Any) -> None:
        self._working = asyncio.ensure_future(work)

    # -- the session -----------------------------------------------------------------------------

    def _launch(self) -> Launch:
        order = self._order
        mode = cast("Mode", order.options.get("mode", "sandboxed"))
        launch = launch_of(Options(work_dir=os.getcwd(), mode=mode))
        config = launch.config
        if order.max_steps:
            control = config.loop_control._replace(max_steps_per_turn=order.max_steps)
            config = config._replace(loop_control=control)
        return launch._replace(
            config=config,
            choice=choice_of(order.choice),
            resume=None,
            mode=mode,
            sandbox=bool(order.options.get("sandbox", True)),
            bare=bool(order.options.get("bare", False)),
            added=tuple(Path(one) for one in order.options.get("added", ())),
            max_tokens=order.max_tokens,
            max_cost=order.max_cost,
            prompt="",
        )

    async def _whole(self) -> int:
        from kimi_tui.own_process import harden
        from kimi_tui.session.session import Session
        from kimi_tui.soul.kimisoul import TURN_ERRORS
        from kimi_tui.soul.opening import GivenSession, open_session
        from kimi_tui.tools.base import SESSION_STANDS_FOR
        from kimi_tui.tools.process import ALSO_PASSED

        variables = self._order.variables
        os.environ.update(variables)
        if self._order.stands_for:
            os.environ[SESSION_STANDS_FOR] = f"{self._order.session}\n{self._order.stands_for}"
        os.environ[ALSO_PASSED] = " ".join(variables)
        launch = self._launch()
        self._prices = launch.config.prices
        harden()
        session = Session(Path(self._order.session), launch.work_dir)

        def provided(model: ChatProvider) -> None:
            # The method of this object alone, so that every other attribute is that of the model.
            model.generate = _taking_turns(model.generate, self._turns)
            if self._order.known:
                _tell_facts(model, self._order.known)

        given = self._given(GivenSession(session, provided))
        self._opening = asyncio.create_task(
            open_session(launch, waits_for_sandbox=False, given=given), name="opening"
        )
        opened = await self._opening
        gc.freeze()
        gc.enable()
        soul = self._soul = opened.soul
        subscription = soul.wire.subscribe()
        following = asyncio.create_task(self._follow(subscription), name="follow")
        try:
            unbegun = ev.TurnEnd("interrupted")
            self._tell({"ready": {"model": soul.model_name, "mode": soul.mode}})
            if not (self._is_stopped or self._limit):
                self._turning = asyncio.create_task(self._turn(soul), name="turn")
                try:
                    await self._turning
                except asyncio.CancelledError:
                    pass
                except TURN_ERRORS as error:
                    # A turn that did not even begin, as for a model that takes no images, has no end that tells why.
                    unbegun = ev.TurnEnd("error", str(error))
            await self._settle(soul)
            with contextlib.suppress(TimeoutError):
                # The end of a turn is on the wire when `run` returns, and is heard a moment later.
                await asyncio.wait_for(self._turn_over.wait(), 0 if self._is_stopped else _HEARD_S)
            if self._end is None:
                self._end = unbegun
            end = self._end
            in_order = end.reason in ("done", "rejected") or end.kind in ("steps", "budget")
            checks = bool(self._order.check) and not self._is_stopped
            checks = checks and (in_order or bool(self._limit))
            self._tell({"ended": {**self._ending(end), "checks": checks}})
            if checks:
                self._checking = asyncio.create_task(self._check(soul), name="check")
                with contextlib.suppress(asyncio.CancelledError):
                    await self._checking
        finally:
            await soul.aclose()
            await following
        return 0

    def _given(self, given: GivenSession) -> GivenSession:
        """Return how the session is opened."""
        return given

    async def _turn(self, soul: KimiSoul) -> None:
        """Run the turn. It raises what `KimiSoul.run` does."""
        from kimi_tui.tool_cards import ImageBlock

        soul.first_agent = self._order.first_agent
        if soul.agents is not None:
            await soul.agents.separate()
        images = [await soul.image(ImageBlock(**one)) for one in self._order.images]
        await soul.run(self._order.message, [one for one in images if one is not None])

    async def _settle(self, soul: KimiSoul) -> None:
        """Have the last changes of files in a snapshot, also those of commands that run in the background."""
        await soul.files_ready()
        await soul.folder.settled()
        with contextlib.suppress(OSError):
            if soul.folder.is_ready:
                await soul.folder.take("agent")
        await soul.flush()

    def _ending(self, end: ev.TurnEnd) -> dict[str, Any]:
        return {
            "reason": end.reason,
            "error": end.error,
            "advice": end.advice,
            "kind": end.kind,
            "limit": self._limit,
            "answer": "".join(self._answer)[-_MOST_ANSWER:],
        }

    async def _follow(self, subscription: AsyncIterable[ev.EventRecord]) -> None:
        soul = self._soul
        assert soul is not None
        async for record in subscription:
            event = record.event
            match event:
                case ev.StepBegin() | ev.StepRetry():
                    self._answer.clear()
                case ev.TextPart(text):
                    self._answer.append(text)
                case ev.TurnEnd():
                    self._end = event
                    self._turn_over.set()
                case _:
                    pass
            self._tell_record(record)
            if isinstance(event, ev.StatusUpdate | ev.TurnEnd):
                spent = soul.spent
                self._tell(
                    {"spent": [spent.input, spent.cached, spent.output, self._cost_of(soul)]}
                )

    def _cost_of(self, soul: KimiSoul) -> float:
        """Return the cost of this run; -1 without prices."""
        return soul.spent.cost if soul.model_name in self._prices else -1.0

    # -- the check -------------------------------------------------------------------------------

    async def _check(self, soul: KimiSoul) -> None:
        from kimi_tui.futures.own_checks import remove_new_caches
        from kimi_tui.tools.past_command import last_lines
        from kimi_tui.tools.process import RunningCommand, child_environment
        from kimi_tui.tools.sandbox.policy import NoSandbox
        from kimi_tui.tools.shell import bash_argv

        order, work = self._order, soul.session.work_dir
        argv = bash_argv(order.check, os.environ, work)
        environ, words = child_environment(os.environ), tuple[str, ...]()
        await soul.sandbox_ready()
        try:
            await asyncio.to_thread(remove_new_caches, work, self._began_at)
            if soul.sandbox is not None:
                confined = await asyncio.to_thread(
                    soul.sandbox.confined, argv, work, network=order.network
                )
                argv, environ, words = list(confined.argv), confined.environ, confined.words
            ran = await RunningCommand(
                argv,
                work_dir=work,
                environ=environ,
                timeout_s=order.check_s,
                on_output=lambda _: None,
                confined_to=words,
                ends_all=True,
            ).run()
        except (OSError, NoSandbox) as error:
            self._tell({"checked": {"exit": None, "seconds": 0.0, "output": reason_of(error)}})
            return
        code = 128 + signal.SIGKILL if ran.exit_code is None else ran.exit_code
        if code < 0:
            code = 128 - code
        output = "\n".join(last_lines(ran.output.text, CHECK_LINES))
        if ran.ending == "timeout":
            code = _OUT_OF_TIME
            output = f"{output}\nThe check was stopped after {order.check_s:g} s.".lstrip()
        facts: dict[str, Any] = {"exit": code, "seconds": ran.duration_s, "output": output}
        self._tell({"checked": facts})

    # -- lines -----------------------------------------------------------------------------------

    def _tell_record(self, record: ev.EventRecord) -> None:
        """Tell an event; what continues the text of the one before within a moment goes into the same line."""
        held, event = self._held, record.event
        if held is not None and ev.continues(held.event, event):
            text = ev.text_of(held.event) + ev.text_of(event)
            self._held = held._replace(event=ev.with_text(held.event, text))
            return
        if isinstance(event, ev.TextPart | ev.ThinkPart | ev.ToolCallPart | ev.ToolOutput):
            self._tell_held()
            self._held = record
            asyncio.get_running_loop().call_later(_HELD_S, self._tell_held)
        else:
            self._tell({"record": encode_record(record)})

    def _tell_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._told.put_nowait({"record": encode_record(held)})

    def _tell(self, line: dict[str, Any]) -> None:
        self._tell_held()
        self._told.put_nowait(line)

    async def _write(self) -> None:
        is_gone = is_last = False
        while not is_last:
            found = [await self._told.get()]
            while not self._told.empty():
                found.append(self._told.get_nowait())
            # The end may come together with lines.
            is_last = None in found
            lines = [one for one in found if one is not None]
            text = "".join(json.dumps(one, ensure_ascii=True) + "\n" for one in lines)
            try:
                if not is_gone:
                    await self._output.write(text)
            except OutputGone:
                is_gone = True
                self._stop()

    async def _read(self) -> None:
        async for line in self._lines:
            if line.strip():
                try:
                    await self._carry_out(line)
                except BadMessage as bad:
                    complain(str(bad))
        self._abandoned()

    async def _carry_out(self, line: bytes) -> None:
        try:
            found = lenient_json.mapping(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"The line is not JSON: {error}.") from error
        kind = found.get("type")
        if kind == "go":
            self._turns.go()
            return
        if kind == "limit":
            self._limit = str(found.get("text", ""))
            if self._soul is not None:
                self._stop_turn(self._soul)
            return
        if self._take(found):
            return
        message = message_of(line)
        soul = self._soul
        if message.kind in ("interrupt", "close"):
            self._stop()
        elif soul is None:
            raise BadMessage("The session is not open yet.")
        elif message.kind in ("user", "steer"):
            if self._end is None:
                soul.say(message.text)
        elif message.kind == "answer":
            soul.answer(message.request_id, message.answer, message.text)
        else:
            from kimi_tui.tools.sandbox.policy import NoSandbox

            with contextlib.suppress(NoSandbox):
                await soul.set_mode(message.mode)

    def _take(self, found: Mapping[str, Any]) -> bool:
        """Take a message that only a process of this kind knows; return whether it is one."""
        del found
        return False


async def _main(out: int, kind: type[FutureChild]) -> int:
    lines = aiter(StandardInput(complain).lines())
    try:
        first = await anext(lines)
    except StopAsyncIteration:
        return 0
    try:
        order = Order(**json.loads(first))
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"The instructions for this future cannot be read: {error}") from error
    return await kind(order, lines, Output(out)).run()


def main(kind: type[FutureChild] = FutureChild) -> int:
    """Run the future that standard input orders; return the exit code. An error is one line on standard error.

    Args:
        kind: carries out the order.
    """
    # Standard output has lines alone: nothing that a library prints may come among them.
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        return asyncio.run(_main(out, kind))
    except (ConfigError, CannotOpen) as error:
        complain(str(error))
        return 1
    except asyncio.CancelledError:
        return 0
    except OSError as error:
        complain(reason_of(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
