"""Puts the engine together for one session."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from datetime import date
from functools import partial

from kimi_tui.llm.provider import ChatProvider, RetryPolicy
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.session import Session
from kimi_tui.soul.accounting import Accounting
from kimi_tui.soul.approval import Approval, Mode
from kimi_tui.soul.by_hand import ByHand
from kimi_tui.soul.compacting import Compactor
from kimi_tui.soul.compaction import Compaction, SimpleCompaction
from kimi_tui.soul.denwa_renji import DenwaRenji
from kimi_tui.soul.drafting import Drafting
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.history import history_from, read_records
from kimi_tui.soul.kimi_soul import KimiSoul, Parts
from kimi_tui.soul.letter_files import LetterFiles
from kimi_tui.soul.letter_review import LetterReview
from kimi_tui.soul.limits import LoopLimits
from kimi_tui.soul.line_reading import LineReading
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.loop import AgentLoop
from kimi_tui.soul.marks import PersonMarks
from kimi_tui.soul.memory import LineMemory
from kimi_tui.soul.money import Price
from kimi_tui.soul.operations import Operations
from kimi_tui.soul.provider_slot import ProviderSlot
from kimi_tui.soul.recorder import Recorder
from kimi_tui.soul.restoring import Restoring, is_journaled
from kimi_tui.soul.spending import Ledger
from kimi_tui.soul.steering import Steering
from kimi_tui.soul.step import Stepper
from kimi_tui.soul.surroundings import FILES_NAME, surroundings
from kimi_tui.soul.system_prompt import build_system_prompt
from kimi_tui.soul.tool_batch import ToolWorld
from kimi_tui.soul.travelling import TravelParts
from kimi_tui.soul.turns import Turns
from kimi_tui.soul.unended import endings
from kimi_tui.soul.work_folder import WorkFolder
from kimi_tui.tools.toolset import Toolset, default_toolset
from kimi_tui.wire.codec import encode_record
from kimi_tui.wire.events import Notice, Record, StatusUpdate
from kimi_tui.wire.queue import Wire
from kimi_tui.workspace.entries import Limits
from kimi_tui.workspace.tracker import Tracker

DISK_TOPIC = "disk"


async def open_soul(
    *,
    session: Session,
    provider: ChatProvider | None,
    limits: LoopLimits | None = None,
    mode: Mode = "ask",
    toolset: Toolset | None = None,
    compaction: Compaction | None = None,
    environ: Mapping[str, str] | None = None,
    policy: RetryPolicy | None = None,
    today: date | None = None,
    file_limits: Limits | None = None,
    follow_files: bool = True,
    prices: Mapping[str, Price] | None = None,
) -> KimiSoul:
    """Open a session and the engine on it.

    Args:
        session: opened here if it is not open yet.
        provider: the model; None where none is set (then turns end with an error that says so).
        limits: of the loop.
        mode: what is asked before it is done.
        toolset: what the model may call.
        compaction: how contexts are made shorter.
        environ: the environment of the program.
        policy: how often and how patiently failed calls are repeated.
        today: the date that a new session's prompt names.
        file_limits: how much of the working files is kept.
        follow_files: look at them at once; else only when they are asked for.
        prices: what models cost, by model.

    Raises:
        SessionHeld: another process has the session open.
        StorageTrouble: it cannot be opened at all.
    """
    if not session.lock.held:
        await session.open()
    try:
        return await _assemble(
            session,
            ProviderSlot(provider),
            limits or LoopLimits(),
            mode,
            toolset or default_toolset(),
            compaction or SimpleCompaction(),
            os.environ if environ is None else environ,
            policy,
            today or date.today(),  # noqa: DTZ011 - the person's own day is meant
            file_limits or Limits(),
            Ledger(prices),
            follow_files=follow_files,
        )
    except BaseException:
        await session.aclose()
        raise


async def _assemble(
    session: Session,
    slot: ProviderSlot,
    limits: LoopLimits,
    mode: Mode,
    tools: Toolset,
    compaction: Compaction,
    environ: Mapping[str, str],
    policy: RetryPolicy | None,
    today: date,
    file_limits: Limits,
    ledger: Ledger,
    *,
    follow_files: bool,
) -> KimiSoul:
    context = session.context
    if context.system_prompt is None and not context.checkpoints and not context.messages:
        text = await asyncio.to_thread(build_system_prompt, session.work_dir, environ, today)
        await context.write_system_prompt(text)
    stored = await asyncio.to_thread(_told, session)
    records = await asyncio.to_thread(history_from, stored, session)
    # A history made anew has numbers of its own; what is added to the record must still rise.
    wire = Wire(first_seq=1 + max((last.seq for last in (*stored[-1:], *records[-1:])), default=0))
    _tell_about_the_disk(session, wire)
    retry = policy or RetryPolicy(max_attempts=limits.max_retries_per_step)
    retry_now = asyncio.Event()
    denwa = DenwaRenji(limits.dmails_to_one_checkpoint, lambda target: _told_enough(wire, target))
    memory = LineMemory()
    accounting = Accounting(context.system_prompt or "", tools.specs())
    context.whole_request = accounting.whole_request
    marks = tools.get("SendDMail") is not None
    cancelled = threading.Event()
    tracker = Tracker(
        session.work_dir,
        session.dir / FILES_NAME,
        file_limits,
        await asyncio.to_thread(surroundings, session, environ),
        cancelled.is_set,
    )
    files = FileHistory(tracker, wire, partial(is_journaled, context), cancelled)
    restoring = Restoring(files, context, session.work_dir)
    line = LiveLine(
        context, wire, accounting, memory, denwa, limits, slot.info, files.mark, ledger, marks=marks
    )
    recorder = Recorder(session.record, wire)
    await line.follow()
    # What is told may leave out the totals that a foreign or damaged record has.
    last, totals = (
        next((r.event for r in reversed(told) if isinstance(r.event, StatusUpdate)), None)
        for told in (records, stored)
    )
    accounting.restore(last, line.used, totals)
    person = PersonMarks(session)
    approval = Approval(wire, mode)
    steering = Steering(wire)
    world = ToolWorld(
        tools, approval, denwa, memory, wire, session.work_dir, environ, limits, files
    )
    stragglers: set[asyncio.Task[None]] = set()
    stepper = Stepper(line, world, retry, retry_now, stragglers.update)
    compactor = Compactor(line, person, compaction, retry, retry_now)
    letter_files = LetterFiles(restoring, approval, session.work_dir, environ)
    loop = AgentLoop(
        line,
        person,
        stepper,
        compactor,
        steering,
        limits,
        restoring,
        letter_files,
        LetterReview(line, approval),
    )
    status = accounting.status(slot.info(), limits, line.used, estimated=line.estimated)
    for record in stored:
        ledger.follow(record.event)
    ledger.begin(status)
    # The gauge must show the state before anything happens: told to the first listener, and not stored.
    at = records[-1].at if records else 0.0
    if follow_files:
        files.start()
    opened_with = (*records, Record(wire.next_seq - 1, at, status))
    operations = Operations(session, line, restoring)
    travel = TravelParts(
        line=line,
        marks=person,
        by_hand=ByHand(line, person, operations, restoring),
        drafting=Drafting(line, operations.world_lines, slot, retry, retry_now),
        reading=LineReading(session, restoring),
        recorder=recorder,
    )
    return KimiSoul(
        Parts(
            session=session,
            wire=wire,
            line=line,
            approval=approval,
            steering=steering,
            turns=Turns(session, line, loop, steering, compactor, slot, recorder),
            operations=operations,
            files=files,
            folder=WorkFolder(tracker, files, context.system_prompt or ""),
            recorder=recorder,
            provider=slot,
            retry_now=retry_now,
            stragglers=stragglers,
        ),
        travel,
        opened_with,
    )


def _told(session: Session) -> list[Record]:
    """The session's record; what a killed program left running in it is ended there."""
    records = read_records(session)
    for ending in endings(records):
        session.record.append(encode_record(ending))
        records.append(ending)
    return records


def _tell_about_the_disk(session: Session, wire: Wire) -> None:
    def trouble(what: StorageTrouble | None) -> None:
        if what is None:
            wire.publish(
                Notice("info", "The conversation is saved again.", topic=DISK_TOPIC, solved=True)
            )
        else:
            wire.publish(Notice("error", what.message, what.advice, topic=DISK_TOPIC))

    def remark(text: str) -> None:
        wire.publish(Notice("warning", text))

    session.context.listen(trouble, remark)


def _told_enough(wire: Wire, target: int) -> None:
    wire.publish(
        Notice(
            "warning",
            f"The agent keeps sending D-Mails to #{target}; it was told to stop.",
            "Stop it with Esc if it does not get on.",
        )
    )
