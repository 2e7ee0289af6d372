"""Opens a session with everything that belongs to it. Imports the whole engine, so it is imported in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kimi_tui.config.choosing import Choice
from kimi_tui.config.model import Config
from kimi_tui.demo.suggestions import Suggestions
from kimi_tui.launch import NEWEST, Launch
from kimi_tui.llm.dialects import dialect_named
from kimi_tui.llm.errors import APIStatusError, LLMError
from kimi_tui.llm.openai_compat import OpenAICompatible
from kimi_tui.llm.provider import ChatProvider
from kimi_tui.logging_setup import start_logging
from kimi_tui.places import data_dir, log_file, short
from kimi_tui.prices import prices_of
from kimi_tui.session.errors import SessionError, SessionHeld, SessionNotFound
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.history import end_of_record
from kimi_tui.soul.limits import LoopLimits
from kimi_tui.soul.runtime import open_soul
from kimi_tui.tui.main.branch import branch_of
from kimi_tui.tui.main.engine import CannotOpen, NoModelNamed, Opened
from kimi_tui.tui.main.model import title_from
from kimi_tui.tui.prompt.history import History, history_file, read_history
from kimi_tui.wire.events import Record, TurnBegin

USAGE = 2
FAILED = 1
HELD = 4


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where a session is kept, what it works on, and (in the demo) who answers in it."""

    data_dir: Path
    work_dir: Path
    provider: ChatProvider | None
    limits: LoopLimits
    suggestions: Suggestions | None = None
    leave: Callable[[bool], str] | None = None


async def open_session(
    launch: Launch, glance: Callable[[Sequence[Record]], None] = lambda _end: None
) -> Opened:
    """Open the session that the command line asked for.

    Args:
        launch: that.
        glance: given how a long session ended, before all of it is read.

    Raises:
        CannotOpen: there is none, someone else has it open, or the disk refuses.
    """
    try:
        stage = await _stage(launch)
        session, notices = await _session(launch, stage)
        if launch.resume is not None and (end := await asyncio.to_thread(end_of_record, session)):
            glance(end)
        provider = stage.provider or await provider_of(launch, session.id)
        soul = await open_soul(
            session=session,
            provider=provider,
            limits=stage.limits,
            mode=launch.mode,
            prices=prices_of(launch.config),
        )
    except SessionHeld as error:
        raise CannotOpen(f"{error} Add --fork to do so.", HELD) from error
    except SessionNotFound as error:
        raise CannotOpen(str(error), USAGE) from error
    except LLMError as error:
        raise CannotOpen(f"{error.message} {error.advice}".strip(), FAILED) from error
    except OSError as error:
        where = f" Sessions are kept in {short(data_dir())}; KIMI_TUI_HOME moves them."
        raise CannotOpen(f"{error}{'' if launch.demo else where}", FAILED) from error
    except SessionError as error:
        raise CannotOpen(str(error), FAILED) from error
    past = await asyncio.to_thread(read_history, history_file(stage.data_dir, stage.work_dir))
    return Opened(
        soul=soul,
        title=_title(session, soul.opened_with),
        history=soul.hand_over_history(),
        past=History(past),
        provider=provider,
        folder=stage.work_dir,
        branch=await asyncio.to_thread(branch_of, stage.work_dir),
        suggestions=stage.suggestions,
        leave=stage.leave,
        notices=(*notices, *session.remarks),
    )


async def _stage(launch: Launch) -> _Stage:
    if launch.demo:
        from kimi_tui.demo.play import prepare

        demo = await asyncio.to_thread(prepare, launch.speed)
        return _Stage(
            demo.data_dir, demo.work_dir, demo.provider, demo.limits, demo.suggestions, demo.leave
        )
    return _Stage(data_dir(), launch.work_dir, None, _limits(launch.config))


async def provider_of(launch: Launch, session_id: str) -> OpenAICompatible:
    """The model that was chosen.

    Raises:
        CannotOpen: none was, or the server must be asked which and does not say.
        LLMError: it cannot be used so.
    """
    choice = launch.choice
    if not isinstance(choice, Choice):
        raise CannotOpen("no model is configured", USAGE)
    if choice.dialect:
        _check_dialect(choice.dialect)
    # Here, because from here on there is a key that the log must never hold.
    await asyncio.to_thread(start_logging, log_file(), (choice.api_key,))
    return OpenAICompatible(
        provider=choice.provider,
        base_url=choice.base_url,
        api_key=choice.api_key,
        model=choice.model or await _only_model(choice),
        window=choice.window,
        dialect=choice.dialect,
        capabilities=choice.capabilities,
        thinking=choice.thinking,
        session_id=session_id,
        stream_timeout_s=launch.config.stream_timeout_s,
    )


def _check_dialect(name: str) -> None:
    try:
        dialect_named(name)
    except LLMError as error:
        raise CannotOpen(f"{error.message} {error.advice}", USAGE) from error


def _title(session: Session, history: Sequence[Record]) -> str:
    """What the person called it, else what they said first; after a compaction only the record knows that."""
    if session.state.title:
        return session.state.title
    first = next((r.event.text for r in history if isinstance(r.event, TurnBegin)), "")
    return title_from(first) or session.title


def _limits(config: Config) -> LoopLimits:
    loop = config.loop
    return LoopLimits(
        max_steps_per_turn=loop.max_steps_per_turn,
        max_retries_per_step=loop.max_retries_per_step,
        reserved_context_size=loop.reserved_context_size,
        compaction_trigger_ratio=loop.compaction_trigger_ratio,
        dmail_nudge_tokens=config.dmail.nudge_tokens,
        dmail_review=config.dmail.review,
    )


async def _only_model(choice: Choice) -> str:
    """The model of a server that was named without one, where there is only one to name."""
    from kimi_tui.llm.discovery import LISTLESS, list_models

    try:
        found = await list_models(choice.base_url, choice.api_key)
    except LLMError as error:
        listless = isinstance(error, APIStatusError) and error.status in LISTLESS
        words = f"{error.message.rstrip('.')}. {error.advice}".strip()
        raise NoModelNamed(words, FAILED, listed=listless) from error
    if len(found) == 1:
        return found[0].id
    if not found:
        words = f"{choice.base_url} lists no models; name one with --model"
        raise NoModelNamed(words, USAGE, listed=True)
    some = ", ".join(model.id for model in found[:5])
    more = ", …" if len(found) > 5 else ""
    words = f"which model? {choice.base_url} has {some}{more}; use --model"
    raise NoModelNamed(words, USAGE, listed=True)


async def _session(launch: Launch, stage: _Stage) -> tuple[Session, list[str]]:
    """The session, not yet open, and what the person should know about the choice."""
    store = SessionStore(stage.data_dir)
    if launch.resume is None:
        return store.create(stage.work_dir), []
    if launch.resume == NEWEST:
        found = await asyncio.to_thread(store.newest, stage.work_dir)
        if found is None:
            return store.create(stage.work_dir), [
                "This folder has no session yet; this is a new one."
            ]
    else:
        found = await asyncio.to_thread(store.find, launch.resume, stage.work_dir)
    if launch.fork:
        return await found.fork(), []
    return found, []
