"""Puts the engine of a session together: its context, files, model, tools and sandbox, with everything that is stored of it.

`opening` finds the session and the model that the user asked for, and calls `open_soul`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_tui.app_paths import reason_of
from kimi_tui.config.permissions import ProjectPermissions
from kimi_tui.config.settings import EditCheck, ModelPrices
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.hooks.definitions import FoundHooks
from kimi_tui.llm.completion import RetryPolicy
from kimi_tui.llm.provider import ChatProvider
from kimi_tui.session.context import Context
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.schema import SystemPrompt
from kimi_tui.session.session import AGENTS_NAME, Session
from kimi_tui.soul.approval import Approval, Mode
from kimi_tui.soul.bookmarks import UserMarks
from kimi_tui.soul.compaction import Compaction, SimpleCompaction
from kimi_tui.soul.conversation import DMAIL_TOOL, Conversation
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.folder_snapshots import FolderSnapshots, snapshot_scope
from kimi_tui.soul.history import take_up_history
from kimi_tui.soul.inbox import Inbox
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.model_slot import LoopLimits, ModelSlot
from kimi_tui.soul.project_notes import left_out_words, notes_in, unreadable_words
from kimi_tui.soul.system_prompt import build_system_prompt
from kimi_tui.tools.sandbox.policy import NoSandbox, SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Sandbox, find_sandbox
from kimi_tui.tools.toolset import Toolset, default_toolset
from kimi_tui.wire.events import DISK_TOPIC, Event, Notice
from kimi_tui.wire.queue import Wire
from kimi_tui.workspace.manifest import Limits

if TYPE_CHECKING:
    from kimi_tui.soul.agents_part import AgentsPart
    from kimi_tui.soul.tool_calls import ToolRuntime


async def open_soul(
    *,
    session: Session,
    provider: ChatProvider | None,
    limits: LoopLimits | None = None,
    mode: Mode = "ask",
    sandbox: SandboxSettings | None = None,
    asks_for_keys: bool = False,
    toolset: Toolset | None = None,
    compaction: Compaction | None = None,
    environ: Mapping[str, str] | None = None,
    policy: RetryPolicy | None = None,
    file_limits: Limits | None = None,
    follow_files: bool = True,
    prices: Mapping[str, ModelPrices] | None = None,
    seeing: Sequence[str] = (),
    inbox: Inbox | None = None,
    folder: FolderSnapshots | None = None,
    agent: str = "",
    main: KimiSoul | None = None,
    tell: Callable[[Event], object] | None = None,
    reads_notes: bool = True,
    waits_for_sandbox: bool = True,
    permissions: ProjectPermissions | None = None,
    hooks: FoundHooks | None = None,
    checks: Sequence[EditCheck] = (),
    kind: Callable[..., KimiSoul] | None = None,
    owner: Session | None = None,
    approval: Callable[[Wire], Approval] | None = None,
    has_prompt: bool = True,
) -> KimiSoul:
    """Open a session and the engine on it.

    Args:
        session: the session; it is opened here if it is not open yet.
        provider: the model; None if none is set, so that turns end with an error that says so.
        limits: the limits of the loop.
        mode: the approval mode; `ask` replaces `sandboxed` if there is no sandbox without gaps.
        sandbox: the user's settings of the sandbox; None for no sandbox.
        asks_for_keys: whether the user is asked before a result with API keys goes to the model. Keys are left out of what is
            sent without a question.
        toolset: the tools that the model may call; None for all.
        compaction: the compaction strategy; None for the default.
        environ: the environment of the program.
        policy: how failed calls are retried.
        file_limits: how much of the working files is stored.
        follow_files: whether the files are scanned at once; else only when first needed.
        prices: prices by model.
        seeing: the names of configured models that take images.
        inbox: the messages from before the session was open; None for none.
        folder: for an agent beside another one, in whose work folder it works too: the snapshots of that one (`KimiSoul.folder`).
        agent: the name of such an agent; empty for one that works alone.
        main: for a sub-agent: the agent of the session, whose snapshots, sandbox, approvals, hooks and added folders it shares.
        tell: called with each event of a sub-agent.
        reads_notes: whether the agent is given the notes of the project, the user and the folders that it works in.
        waits_for_sandbox: whether to wait until the sandbox was tried; otherwise the first call of a tool does.
        permissions: the permissions for the work folder that hold in every session; None for none.
        hooks: the hooks that run; None for no hooks at all.
        checks: the programs that run after edits.
        kind: makes the engine; None for our own.
        owner: for a sub-agent in a process of its own: the session that it belongs to, not open.
        approval: makes its approvals, for its wire.
        has_prompt: whether the agent has a system prompt of this program.

    Raises:
        SessionLocked: another process has the session open.
        StorageTrouble: it cannot be opened at all.
    """
    limits = limits or LoopLimits()
    # The variables are copied: tools read them in threads, and must not see later changes.
    environ = dict(os.environ if environ is None else environ)
    tools = default_toolset() if toolset is None else toolset
    if not limits.dmail.enabled:
        tools = tools.without(DMAIL_TOOL)
    policy = policy or RetryPolicy(
        max_attempts=limits.control.max_retries_per_step, patience_s=limits.control.patience
    )
    model = ModelSlot(provider, policy, session.images)
    if not session.lock.held:
        await session.open()
    confining: asyncio.Task[tuple[Sandbox | None, str]] | None = None
    if main is None:
        confining = asyncio.create_task(
            _sandbox(sandbox, session.work_dir, environ), name="sandbox"
        )
    try:
        context = session.context
        is_empty = not context.checkpoints and not context.messages
        if has_prompt and context.system_prompt is None and is_empty:
            text = await asyncio.to_thread(
                build_system_prompt,
                session.work_dir,
                environ,
                date.today(),  # noqa: DTZ011 - the user's own day is meant
                dmail=tools.get(DMAIL_TOOL) is not None,
                no_keys=asks_for_keys,
                notes=reads_notes,
            )
            if asks_for_keys and (words := left_out_words(notes_in(text))):
                session.notes.append(words)
            if words := unreadable_words(notes_in(text)):
                session.notes.append(words)
            await context.append([SystemPrompt(text)])
        history = await take_up_history(session)
        stored, shown = history.stored, history.shown
        session.notes.extend(history.remarks)
        if history.half is not None:
            # The user sees it, so the model has to know it, as after Esc.
            await context.append([history.half])
        await context.append(history.results)
        # A rebuilt history has numbers of its own; the numbers of later records must still rise.
        ends = (*stored[-1:], *shown[-1:], *history.beside[-1:])
        newest = max((record.seq for record in ends), default=0)
        newest = max(newest, history.newest)
        wire = Wire(newest + 1, tell)
        _publish_disk_troubles(context, wire)
        if main is not None:
            folder = main.folder
        if folder is None:
            around = await asyncio.to_thread(snapshot_scope, owner or session, environ)
            folder = FolderSnapshots(session, file_limits or Limits(), around)
        files = FileHistory(session, wire, folder, agent)
        conversation = Conversation(
            context,
            wire,
            model,
            tools,
            files,
            session.images,
            UserMarks(session, wire),
            limits,
            prices,
            session.work_dir,
            environ,
        )
        await conversation.resume(stored, shown)
        search_sandbox, no_sandbox = None, "kimi-tui is still testing the sandbox."
        if main is not None:
            search_sandbox, no_sandbox = main.search_sandbox, main.no_sandbox
        elif confining is not None and waits_for_sandbox:
            search_sandbox, no_sandbox = await confining
        commands_sandbox = None if no_sandbox else search_sandbox
        if (
            main is None
            and waits_for_sandbox
            and mode == "sandboxed"
            and not (commands_sandbox and commands_sandbox.is_whole)
        ):
            mode = "ask"
        soul = (kind or KimiSoul)(
            session,
            conversation,
            mode=mode,
            sandbox=commands_sandbox,
            no_sandbox=no_sandbox,
            search_sandbox=search_sandbox,
            asks_for_keys=asks_for_keys,
            compaction=compaction or SimpleCompaction(),
            environ=environ,
            history=history,
            seeing=seeing,
            inbox=inbox,
            reads_notes=reads_notes,
            permissions=permissions,
            hooks=hooks,
            checks=checks,
            main=main,
            agent=agent,
            owner=owner,
            approval=None if approval is None else approval(wire),
            makes_agents=None if main is not None or agent else _agents_of,
        )
        if confining is not None and not waits_for_sandbox:
            soul.use_sandbox_of(confining)
        if follow_files and main is None:
            soul.follow_files()
        if main is None and not agent and (session.dir / AGENTS_NAME).is_dir():
            await in_daemon_thread(import_module, "kimi_tui.soul.subagents")
            await soul.use_agents().load()
        return soul
    except BaseException:
        if confining is not None:
            confining.cancel()
        await session.aclose()
        raise


def _agents_of(main: KimiSoul, conversation: Conversation, tools: ToolRuntime) -> AgentsPart:
    """Return the sub-agents of a session; their module is imported only here."""
    from kimi_tui.soul.subagents import Subagents

    return Subagents(main, conversation, tools, open_soul)


async def _sandbox(
    settings: SandboxSettings | None, work_dir: Path, environ: Mapping[str, str]
) -> tuple[Sandbox | None, str]:
    """Return the sandbox of this machine, and why commands have none (empty if they have it)."""
    if settings is None:
        return None, "This session has no sandbox."
    found = None
    try:
        found = await in_daemon_thread(lambda: find_sandbox(settings, environ, work_dir))
        # In a folder where no sandbox is possible the mode would promise protection that does not exist.
        await in_daemon_thread(lambda: found.policy_for(work_dir))
    except NoSandbox as no:
        return found, f"There is no sandbox: {no}."
    except OSError as error:
        # Every turn waits for this.
        return found, f"There is no sandbox: {reason_of(error)}."
    return found, ""


def _publish_disk_troubles(context: Context, wire: Wire) -> None:
    """Publish a notice when the disk begins to refuse writes, and another when everything is saved again."""

    def on_trouble(trouble: StorageTrouble | None) -> None:
        if trouble is None:
            wire.publish(
                Notice(
                    "info", "The conversation can be saved again.", topic=DISK_TOPIC, solved=True
                )
            )
        else:
            wire.publish(Notice("error", trouble.message, trouble.advice, topic=DISK_TOPIC))

    def on_remark(text: str) -> None:
        wire.publish(Notice("warning", text))

    context.listen(on_trouble, on_remark)
