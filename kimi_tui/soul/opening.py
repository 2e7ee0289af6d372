"""The one way to open a session with its engine: a new one, one that is continued, forked or imported, or a branch of one.

The options of a `Launch` determine the session, folder, lock, model, tools and limits. One caller is a screen, another a
program without a screen. This module is imported in a thread, as is the rest of the engine. At first it imports only what the
last page of a stored session needs, so that a screen draws this before the agent's modules are loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kimi_tui import temporary_folders
from kimi_tui.app_paths import config_dir, data_dir, log_file, mcp_files, short
from kimi_tui.config.keyring import real_key
from kimi_tui.config.learned_windows import window_before
from kimi_tui.config.model_choice import ModelChoice, NeedsChoice, Overrides, choose_model
from kimi_tui.config.permissions import FILE_NAME as PERMISSIONS_NAME
from kimi_tui.config.permissions import ProjectPermissions
from kimi_tui.config.settings import Config, ConfigError
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.display_names import sentences
from kimi_tui.futures import are_left
from kimi_tui.invocation import command_words
from kimi_tui.launch import (
    FORKED,
    NEWEST,
    CannotOpen,
    DiskRefuses,
    Launch,
    ModelRefused,
    NoModelNamed,
)
from kimi_tui.llm.errors import APIStatusError, LLMError
from kimi_tui.logging_setup import begin_logging, start_logging
from kimi_tui.program import FAILED, LOCKED, USAGE
from kimi_tui.session.aside import remove_unfinished_in_background
from kimi_tui.session.errors import SessionError, SessionLocked, SessionNotFound
from kimi_tui.session.listing import describe
from kimi_tui.session.lock import holder_of
from kimi_tui.session.metadata import read_state
from kimi_tui.session.prompt_history import history_file, read_history
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.errors import UnknownCompaction, lack_advice
from kimi_tui.soul.record import end_of_record
from kimi_tui.wire.events import EventRecord
from kimi_tui.workspace.git_branch import branch_of

if TYPE_CHECKING:
    from kimi_tui.demo import Demo
    from kimi_tui.llm.provider import ChatProvider
    from kimi_tui.mcp.config import ServerConfig
    from kimi_tui.soul.agent_copies import AgentCopies
    from kimi_tui.soul.approval import Approval
    from kimi_tui.soul.compaction import Compaction
    from kimi_tui.soul.inbox import Inbox
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.model_slot import Budget
    from kimi_tui.tools.agent_kind import AgentKind
    from kimi_tui.wire.queue import Wire

log = logging.getLogger(__name__)

_MAY_PASS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ESTALE,
    }
)
"""Errno values of disk errors that may pass while the program runs."""
OPEN_ELSEWHERE_S = 1.0
"""Seconds that another process has to close a session, before a fork of it is offered: it may just be ending."""
HOLDER_ASKED_S = 0.2
DRAWN_S = 0.03
"""Seconds that are left for drawing the last page before the agent's modules are imported."""


class Opened(NamedTuple):
    """An open session: its engine, the events its wire published so far, and notices for the user.

    `no_sandbox` says why commands ask although they were to run in a sandbox; empty if they need not. `past` are the messages
    that were sent in its folder, oldest first. `branch` is that of the folder, if it is a git repository. `demo` is the demo
    that the session belongs to, else None.
    """

    soul: KimiSoul
    history: Sequence[EventRecord]
    past: Sequence[str]
    provider: ChatProvider
    folder: Path
    branch: str
    demo: Demo | None = None
    notices: tuple[str, ...] = ()
    no_sandbox: str = ""


class GivenAgent(NamedTuple):
    """The sub-agent whose session is opened by itself, in a process of its own.

    Attributes:
        name: its name.
        owner: the session that it belongs to, not open.
        kind: its kind.
        steps: the most steps of its turn.
        budget: its further limits.
        approval: makes its approvals, for its wire.
    """

    name: str
    owner: Session
    kind: AgentKind
    steps: int
    budget: Budget
    approval: Callable[[Wire], Approval]


class GivenSession(NamedTuple):
    """A session that the caller has chosen itself; `provided` is called with its model before the engine has it."""

    session: Session
    provided: Callable[[ChatProvider], object]
    agent: GivenAgent | None = None


class EarlierSession(NamedTuple):
    """A stored session while it is still being read: the parts of a screen's first page.

    `n_messages` is None if only reading it through would tell. `end` has its last events, once they were read. `holder` is
    the process that has it open; empty for none.
    """

    session_id: str
    title: str
    n_messages: int | None
    folder: Path
    branch: str
    end: Sequence[EventRecord] = ()
    holder: str = ""


@dataclass(frozen=True, slots=True)
class _Stage:
    """The store of a session, its work folder and, in the demo, its scripted model."""

    data_dir: Path
    work_dir: Path
    provider: ChatProvider | None = None
    demo: Demo | None = None


def _ignore(_: object) -> None:
    """The callback of a caller that shows nothing before the session is open."""


async def _wants_none(_held: EarlierSession) -> bool:
    return False


async def open_session(
    launch: Launch,
    found: Callable[[EarlierSession], None] = _ignore,
    wants_fork: Callable[[EarlierSession], Coroutine[Any, Any, bool]] = _wants_none,
    warm_up: Callable[[Sequence[EventRecord]], None] = _ignore,
    inbox: Inbox | None = None,
    waits_for_sandbox: bool = True,
    given: GivenSession | None = None,
    servers: Sequence[ServerConfig] = (),
) -> Opened:
    """Open the session that the command line asked for.

    Args:
        launch: the options of the command line and the configuration.
        found: called with the known facts about a stored session while it is read: first its title, then its end.
        wants_fork: asks whether to continue in a fork of a session that another process has open; cancelled if that process closes it.
        warm_up: called in a thread with the events of a stored session's end, before `found` is: it imports what shows them.
        inbox: the queue of messages from before the session is open; None for a new one.
        waits_for_sandbox: whether to wait until the sandbox was tried. Otherwise `Opened.no_sandbox` is empty, and
            `no_sandbox_words` has it after `KimiSoul.sandbox_ready`.
        given: the session to open instead of the one that the command line asked for.
        servers: MCP servers of the person that no file configures.

    Raises:
        CannotOpen: there is no such session, or another process has it open and no fork of it is wanted. Without
            `waits_for_sandbox` also: a folder of the command line cannot be added; otherwise that is one of the notices.
        DiskRefuses: a disk error that may pass.
        ModelRefused: the model cannot be used as it is configured.
    """
    if not launch.demo:
        # The log is opened before anything may have to be logged; `provider_of` does so again with the key.
        await asyncio.to_thread(begin_logging, log_file())
    # It removes a fork that was not opened: the next attempt makes another one.
    undo = contextlib.AsyncExitStack()
    try:
        stage = await _stage(launch)
        if given is not None:
            session, notices, is_old = given.session, list[str](), True
        else:
            session, notices, is_old = await _session(launch, stage)
            if is_old and launch.fork:
                undo.push_async_callback(_remove_fork, stage, session)
        if is_old and given is None:
            known = await in_daemon_thread(_earlier_session, session)
            if await _is_to_be_forked(session, known, found, wants_fork):
                session = await session.fork()
                undo.push_async_callback(_remove_fork, stage, session)
                known = await in_daemon_thread(_earlier_session, session)
                notices = [*notices, FORKED]
            found(known)
            if end := await in_daemon_thread(_end, session, warm_up):
                found(known._replace(end=end))
                # Imports at this moment would keep the page from being drawn.
                await asyncio.sleep(DRAWN_S)
        await in_daemon_thread(import_module, "kimi_tui.soul.assembly")
        from kimi_tui.hooks.definitions import find_hooks
        from kimi_tui.soul.agent_engine import limits_of, tools_of
        from kimi_tui.soul.agent_kinds import SessionKinds
        from kimi_tui.soul.assembly import open_soul
        from kimi_tui.soul.configured_tools import configured_toolset
        from kimi_tui.soul.model_slot import Budget, LoopLimits
        from kimi_tui.soul.skills import SessionSkills
        from kimi_tui.tools.past_command import sweep_in_background
        from kimi_tui.tools.sandbox.layers import risk_of
        from kimi_tui.tools.sandbox.policy import SandboxSettings

        config = launch.config
        permissions = (
            None
            if stage.demo
            else ProjectPermissions(config_dir() / PERMISSIONS_NAME, session.work_dir)
        )
        hooks = (
            None
            if launch.bare or stage.demo
            else await in_daemon_thread(find_hooks, session.work_dir)
        )
        agent = await _external(launch, session)
        external = stage.provider is None and bool(agent)
        engine: Callable[..., KimiSoul] | None = None
        provider = stage.provider
        if provider is None and agent:
            engine, provider = await _external_engine(launch, session, agent)
        provider = provider or await _first_provider(launch, session.id)
        if given is not None:
            given.provided(provider)
        compaction, remark = await asyncio.to_thread(_compaction, config.loop_control.compaction)
        skills = None if launch.bare or stage.demo else SessionSkills(session.work_dir)
        kinds = None if launch.bare or stage.demo else SessionKinds(session.work_dir)
        toolset = await asyncio.to_thread(
            configured_toolset, Config() if stage.demo else config, skills, kinds
        )
        sub_agent = None if given is None else given.agent
        limits = LoopLimits()
        if not stage.demo:
            budget = Budget(launch.max_tokens, launch.max_cost)
            limits = LoopLimits(
                config.loop_control, config.dmail, budget=budget, compacts=not external
            )
        if sub_agent is not None:
            toolset = tools_of(sub_agent.kind, toolset)
            limits = limits_of(limits, sub_agent.steps, sub_agent.budget)
        if external:
            # An external agent has tools, skills and checks of its own.
            skills, kinds, servers = None, None, ()
            toolset = toolset.without(*toolset.names)
        soul = await open_soul(
            kind=engine,
            has_prompt=engine is None,
            session=session,
            toolset=toolset,
            compaction=compaction,
            provider=provider,
            limits=limits,
            mode=launch.mode,
            sandbox=SandboxSettings(*config.sandbox) if launch.sandbox else None,
            asks_for_keys=config.secrets.send == "ask",
            prices=config.prices,
            seeing=_seeing(config),
            inbox=inbox,
            reads_notes=not launch.bare,
            waits_for_sandbox=waits_for_sandbox,
            permissions=permissions,
            hooks=hooks,
            checks=() if stage.demo or external else config.checks,
            agent="" if sub_agent is None else sub_agent.name,
            owner=None if sub_agent is None else sub_agent.owner,
            approval=None if sub_agent is None else sub_agent.approval,
        )
        undo.pop_all()
        if external:
            with contextlib.suppress(SessionError):
                await asyncio.to_thread(session.give_to, agent[0])
        soul.skills, soul.kinds = skills, kinds
        soul.agents_config = config.agents
        if not stage.demo:
            soul.agent_models = partial(_agent_model, launch)
            if given is None:
                # A future has files of its own already.
                soul.agent_copies = partial(_agent_copies, launch, soul)
        if launch.once_only:
            soul.answer_once_only()
        not_added = await asyncio.to_thread(_add_folders, soul, launch.added)
        if not_added and not waits_for_sandbox:
            # A script would go on without the folder that it needs.
            soul.hooks = None
            await soul.aclose()
            raise CannotOpen(not_added[0], USAGE)
        hook_words: tuple[str, ...] = ()
        if sub_agent is None:
            hook_words = await soul.begin_hooks("resume" if is_old else "startup")
        elif soul.hooks is not None:
            await soul.hooks.begin()
    except SessionLocked as error:
        raise CannotOpen(f"{error} Add --fork to do so.", LOCKED) from error
    except SessionNotFound as error:
        raise CannotOpen(str(error), USAGE) from error
    except LLMError as error:
        raise CannotOpen(sentences(error.message, error.advice), FAILED) from error
    except OSError as error:
        where = f" Sessions are kept in {short(data_dir())}; set KIMI_TUI_HOME to change that."
        words = f"{error}{'' if launch.demo else where}"
        if advice := lack_advice(error):
            words = f"The session could not be opened, because too many files are open. {advice}"
        kind = DiskRefuses if error.errno in _MAY_PASS else CannotOpen
        raise kind(words, FAILED) from error
    except SessionError as error:
        raise CannotOpen(str(error), FAILED) from error
    finally:
        await undo.aclose()
    if not (launch.bare or stage.demo or external) and (
        servers or await in_daemon_thread(_has_servers, session.work_dir)
    ):
        await in_daemon_thread(import_module, "kimi_tui.soul.mcp_host")
        from kimi_tui.soul.mcp_host import start_servers

        kind = None if given is None or given.agent is None else given.agent.kind
        wanted = None if kind is None else kind.tools
        await start_servers(soul, is_attended=waits_for_sandbox, given=servers, wanted=wanted)
    past = await in_daemon_thread(read_history, history_file(stage.data_dir, stage.work_dir))
    risk = await asyncio.to_thread(risk_of, config.sandbox.writable, os.environ)
    sweep_in_background(os.environ)
    temporary_folders.sweep_in_background()
    remove_unfinished_in_background(session.dir.parent.parent)
    if given is None and is_old and await asyncio.to_thread(are_left, session):
        await in_daemon_thread(import_module, "kimi_tui.futures.leftovers")
        from kimi_tui.futures.leftovers import take_up

        soul.keep(take_up(soul))
    return Opened(
        soul=soul,
        history=soul.hand_over_history(),
        past=past,
        provider=provider,
        folder=session.work_dir,
        branch=await in_daemon_thread(branch_of, session.work_dir),
        demo=stage.demo,
        notices=(
            *notices,
            *remark,
            *((risk,) if risk else ()),
            *(one.waiting_words for one in (skills, kinds) if one and one.waiting_words),
            *hook_words,
            *not_added,
            *session.remarks,
        ),
        no_sandbox=no_sandbox_words(launch, soul) if waits_for_sandbox else "",
    )


async def _external(launch: Launch, session: Session) -> tuple[str, ...]:
    """Return the external agent that does the turns: the requested one, else that of the session; empty for our own."""
    if launch.demo or launch.external_agent:
        return launch.external_agent
    stored = (await asyncio.to_thread(read_state, session.dir)).external_agent
    return (stored,) if stored else ()


async def _external_engine(
    launch: Launch, session: Session, agent: tuple[str, ...]
) -> tuple[Callable[..., KimiSoul], ChatProvider]:
    """Return what makes the engine for an external agent, and what stands for its model. The agent is not started yet.

    Raises:
        CannotOpen: the package of the protocol is not installed.
    """
    from kimi_tui.external.agents import missing_package

    if words := await asyncio.to_thread(missing_package):
        raise CannotOpen(words, FAILED)
    await in_daemon_thread(import_module, "kimi_tui.external.soul")
    from kimi_tui.external.host import AgentHost
    from kimi_tui.external.model import AgentModel
    from kimi_tui.external.soul import maker

    name, *arguments = agent
    model = AgentModel(name)
    host = AgentHost(name, arguments, launch.config.external_agents, session, model)
    host.tells_servers = not launch.bare
    await asyncio.to_thread(host.places.read)
    return maker(host), model


def _has_servers(work_dir: Path) -> bool:
    """Return whether a file may configure MCP servers. Their modules are loaded only then."""
    return any(map(os.path.lexists, mcp_files(work_dir)))


def _add_folders(soul: KimiSoul, folders: Sequence[Path]) -> list[str]:
    """Add the folders of the command line; return sentences about those that cannot be added. It looks at files."""
    from kimi_tui.tools.added_folders import BadFolder

    words: list[str] = []
    for folder in folders:
        try:
            soul.added.add(str(folder))
        except BadFolder as bad:
            words.append(f"--add-dir: {bad}")
    return words


async def _is_to_be_forked(
    session: Session,
    known: EarlierSession,
    found: Callable[[EarlierSession], None],
    wants_fork: Callable[[EarlierSession], Coroutine[Any, Any, bool]],
) -> bool:
    """Wait for another process to close the session, show meanwhile that it has it open, and after a moment offer a fork.

    Returns:
        whether a fork is wanted; else the session is free.

    Raises:
        SessionLocked: it is open there, and no fork is wanted.
    """
    offered_at = time.monotonic() + OPEN_ELSEWHERE_S
    asking: asyncio.Task[bool] | None = None
    try:
        while (holder := await asyncio.to_thread(holder_of, session.dir)) is not None:
            if holder != known.holder:
                known = known._replace(holder=holder)
                found(known)
            if asking is None and time.monotonic() > offered_at:
                asking = asyncio.create_task(wants_fork(known), name="offer a fork")
            # No event tells that a lock of another process was released.
            if asking is None:
                await asyncio.sleep(HOLDER_ASKED_S)
            elif (await asyncio.wait({asking}, timeout=HOLDER_ASKED_S))[0]:
                if asking.result():
                    return True
                raise SessionLocked(holder)
    finally:
        if asking is not None:
            asking.cancel()
    return False


def _earlier_session(session: Session) -> EarlierSession:
    """Return the facts that the list of sessions has about this one. Reads files, so call it in a thread."""
    known = describe(session.dir)
    return EarlierSession(
        session_id=session.id,
        title=known.title if known is not None else "",
        n_messages=known.messages if known is not None else None,
        folder=session.work_dir,
        branch=branch_of(session.work_dir),
    )


def _end(
    session: Session, warm_up: Callable[[Sequence[EventRecord]], None]
) -> Sequence[EventRecord]:
    """Return the events of the session's last turns; none if they cannot be read alone."""
    try:
        end = end_of_record(session)
        if not end:
            from kimi_tui.soul.rebuilt_history import end_of_context

            end = end_of_context(session)
        warm_up(end)
    except Exception as error:
        log.warning("the end of the session cannot be shown before all of it", exc_info=error)
        return ()
    return end


async def _stage(launch: Launch) -> _Stage:
    if launch.demo:
        from kimi_tui.demo import prepare

        demo = launch.in_demo or await asyncio.to_thread(prepare, launch.speed)
        return _Stage(demo.data_dir, demo.work_dir, demo.provider, demo)
    return _Stage(launch.kept_in or data_dir(), launch.work_dir)


async def _remove_fork(stage: _Stage, fork: Session) -> None:
    with contextlib.suppress(SessionError):
        await asyncio.to_thread(SessionStore(stage.data_dir).delete, fork)


async def _first_provider(launch: Launch, session_id: str) -> ChatProvider:
    """Return the provider for the model with which a session begins.

    Raises:
        CannotOpen: it cannot be used, or there is none.
    """
    try:
        return await provider_of(launch, session_id)
    except LLMError as error:
        raise ModelRefused(sentences(error.message, error.advice), FAILED) from error


async def provider_of(launch: Launch, session_id: str) -> ChatProvider:
    """Return the provider for the chosen model.

    Raises:
        CannotOpen: no model was chosen, and the server does not list exactly one; or the keyring does not give its key, or there
            is no such dialect.
        LLMError: the model cannot be used with this configuration.
    """
    choice = launch.choice
    if not isinstance(choice, ModelChoice):
        raise CannotOpen("no model is configured", USAGE)
    if choice.dialect:
        _check_dialect(choice.dialect)
    try:
        choice = choice._replace(api_key=await asyncio.to_thread(real_key, choice.api_key))
    except ConfigError as error:
        raise ModelRefused(str(error), USAGE) from error
    await in_daemon_thread(import_module, "kimi_tui.llm.openai_compatible")
    from kimi_tui.llm.openai_compatible import OpenAICompatible

    # The log starts here, because from here on there is a key that it must never hold.
    search = launch.config.search
    secrets = (*choice.secrets, *(search.secrets if search is not None else ()))
    await asyncio.to_thread(start_logging, log_file(), secrets)
    model = choice.model or await _only_model(choice)
    before = await in_daemon_thread(window_before, data_dir(), choice.base_url, model)
    return OpenAICompatible(
        provider=choice.provider,
        base_url=choice.base_url,
        api_key=choice.api_key,
        model=model,
        window=choice.window,
        window_before=before,
        dialect=choice.dialect,
        capabilities=choice.capabilities,
        thinking=choice.thinking,
        headers=choice.headers,
        session_id=session_id,
        lean=choice.lean,
        stream_timeout_s=launch.config.stream_timeout_s,
        first_answer_timeout_s=launch.config.first_answer_timeout_s,
    )


async def _agent_model(launch: Launch, name: str, effort: str, session_id: str) -> ChatProvider:
    """Return the model of a sub-agent by its name in the configuration.

    Raises:
        LLMError: there is none of that name, or it cannot be used.
    """
    config = launch.config
    known = [*config.models, *(one.model for one in config.models.values())]
    if name not in known:
        raise LLMError("No model of that name is configured.")
    try:
        choice = choose_model(config, Overrides(model=name), os.environ)
        if isinstance(choice, NeedsChoice):
            raise LLMError("There is no API key for its server.")
        if effort:
            choice = choice._replace(thinking=effort)
        return await provider_of(launch._replace(choice=choice), session_id)
    except (ConfigError, CannotOpen) as error:
        raise LLMError(str(error)) from error


async def _agent_copies(launch: Launch, soul: KimiSoul, count: int) -> AgentCopies:
    """Return the copies for sub-agents that work at the same time. Their modules are imported with the first."""
    await in_daemon_thread(import_module, "kimi_tui.futures.agent_copies")
    from kimi_tui.futures.agent_copies import CopySet

    return CopySet(soul, launch, count)


def _check_dialect(name: str) -> None:
    from kimi_tui.llm.dialects import dialect_named

    try:
        dialect_named(name)
    except LLMError as error:
        raise ModelRefused(f"{error.message} {error.advice}", USAGE) from error


def _seeing(config: Config) -> tuple[str, ...]:
    """Return the names of configured models that take images, as far as anybody knows."""
    from kimi_tui.llm.models import known_to_see

    return tuple(
        model.name
        for model in config.models.values()
        if "image_in" in model.capabilities
        or (not model.capabilities and known_to_see(model.model))
    )


def no_sandbox_words(launch: Launch, soul: KimiSoul) -> str:
    """Return why commands ask where they would have run in a sandbox; empty if the user switched that off."""
    if launch.mode == soul.mode or not (launch.sandbox and launch.config.sandbox.enabled):
        return ""
    if gaps := soul.sandbox_gaps:
        return f"The sandbox is incomplete on this machine: {'; '.join(gaps)}."
    return soul.no_sandbox


def _compaction(name: str) -> tuple[Compaction, tuple[str, ...]]:
    """Return the configured compaction strategy; if there is none of that name, the default one and a notice."""
    from kimi_tui.soul.compaction import SimpleCompaction, compaction_named

    try:
        return compaction_named(name), ()
    except UnknownCompaction as error:
        return SimpleCompaction(), (error.message,)


async def _only_model(choice: ModelChoice) -> str:
    """Return the model of a server that was named without one, where only one of its models can be talked to."""
    from kimi_tui.base_url import shown_url
    from kimi_tui.llm.models import NO_LIST_STATUSES, chat_models

    try:
        found = await chat_models(choice.base_url, choice.api_key, choice.headers)
    except LLMError as error:
        listless = isinstance(error, APIStatusError) and error.status in NO_LIST_STATUSES
        words = f"{error.message.rstrip('.')}. {error.advice}".strip()
        raise NoModelNamed(words, FAILED, listed=listless) from error
    if len(found.models) == 1:
        return found.models[0].id
    if not found.models:
        kind = "chat models" if found.others else "models"
        words = f"{shown_url(choice.base_url)} lists no {kind}; name one with --model"
        raise NoModelNamed(words, USAGE, listed=True)
    some = ", ".join(model.id for model in found.models[:5])
    more = ", …" if len(found.models) > 5 else ""
    words = f"which model? {shown_url(choice.base_url)} has {some}{more}; use --model"
    raise NoModelNamed(words, USAGE, listed=True)


async def _session(launch: Launch, stage: _Stage) -> tuple[Session, list[str], bool]:
    """Return the session that the command line chose, not yet open, with notices about the choice, and whether it existed before."""
    store = SessionStore(stage.data_dir)
    if launch.resume is None:
        return store.create(stage.work_dir), [], False
    if launch.resume == NEWEST:
        found = await in_daemon_thread(store.newest, stage.work_dir)
        notices = list[str]()
        if found is None:
            found, notices = await asyncio.to_thread(_newest_of_moved, store, stage.work_dir)
        if found is None:
            return store.create(stage.work_dir), notices, False
    else:
        found, notices = await asyncio.to_thread(_named_session, store, launch, stage.work_dir)
    if launch.fork:
        return await found.fork(), notices, True
    return found, notices, True


def _newest_of_moved(store: SessionStore, work_dir: Path) -> tuple[Session | None, list[str]]:
    """Return the newest session of a folder that has had no session under this name, and what to say. Reads files.

    The sessions of the same folder under its former name come along; those of another that may be it are only named.
    """
    from kimi_tui.session.moved_folder import former_folders, take_along

    former = former_folders(store, work_dir)
    if former and former[0].is_same and (moved := take_along(store, former[0], work_dir)):
        return moved[0], [_moved_words(former[0].path, len(moved))]
    words = "This folder has no session yet; this is a new one."
    if former:
        newest = former[0].sessions[0].name[:8]
        words += (
            f" If you moved this folder here from {short(Path(former[0].path))}, run "
            f"{command_words('--session', newest)} to continue its newest session."
        )
    return None, [words]


def _named_session(
    store: SessionStore, launch: Launch, work_dir: Path
) -> tuple[Session, list[str]]:
    """Return the session of the requested id; if its folder has another name now, it continues in that one. Reads files.

    Raises:
        SessionNotFound: there is none, or its folder is gone and nothing says that it is this one.
    """
    from kimi_tui.session.moved_folder import FormerFolder, former_folders, take_along

    found = store.find(launch.resume or "", work_dir)
    if launch.demo or os.path.lexists(found.work_dir):
        return found, []
    path = str(found.work_dir)
    former = next((one for one in former_folders(store, work_dir) if one.path == path), None)
    if former is None and launch.work_dir_given:
        former = FormerFolder(path, (found.dir,), is_same=False)
    if former is None:
        command = command_words("--session", found.id[:8], "--work-dir", "FOLDER")
        raise SessionNotFound(
            f"{short(found.work_dir)}, the folder of session {found.id[:8]}, no longer exists. "
            f"If the folder was moved, name it: {command}."
        )
    moved = take_along(store, former, work_dir)
    chosen = next((one for one in moved if one.id == found.id), None)
    if chosen is None:
        raise SessionLocked(holder_of(found.dir) or "another process")
    return chosen, [_moved_words(path, len(moved))]


def _moved_words(path: str, n_sessions: int) -> str:
    count = "1 session came" if n_sessions == 1 else f"{n_sessions:,} sessions came"
    return f"This folder was moved here from {short(Path(path))}, and {count} with it."
