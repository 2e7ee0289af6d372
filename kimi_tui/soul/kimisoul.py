"""KimiSoul, the agent engine of one session: a `Soul` with all parts. Runs turns and operations, one at a time.

`assembly.open_soul` puts it together. Everything that happens is published on its wire. The steps of a turn are in `loop`,
those of an operation in `operations`; this module starts, stops and ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from kimi_tui.agent_parts import PartName
from kimi_tui.app_paths import log_words
from kimi_tui.config.permissions import ProjectPermissions
from kimi_tui.config.settings import AgentsConfig, EditCheck
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.display_names import some_of
from kimi_tui.foreign_text import one_line
from kimi_tui.hooks.definitions import FoundHooks
from kimi_tui.hooks.runner import Hooks, Level, SessionFacts
from kimi_tui.images import Image
from kimi_tui.llm.dialects import OFF, ON
from kimi_tui.llm.errors import LLMError, LLMNotSet, ModelCannotSee, ToolsNotSupported
from kimi_tui.llm.provider import ChatProvider, ModelInfo, Overdue
from kimi_tui.projection.session_model import title_from, title_of
from kimi_tui.prompts import prompt
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.images import IMAGES_NAME, reference_of
from kimi_tui.session.rotation import live_path, stored_world_lines
from kimi_tui.session.schema import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.soul.approval import AgentApproval, Approval, Mode
from kimi_tui.soul.attachments import Attachments
from kimi_tui.soul.changes import FileChanges, NamedChanges
from kimi_tui.soul.compaction import Compaction, CompactionSpan, Compactor
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.dmail import DMailDelivery, UserDMails
from kimi_tui.soul.edit_checks import EditChecks
from kimi_tui.soul.errors import (
    BudgetSpent,
    EmptySummary,
    MaxStepsReached,
    NothingToCompact,
    RefusedByHook,
    RunCancelled,
    SoulError,
    TurnFailed,
)
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.folder_snapshots import FILES_NAME, FolderSnapshots
from kimi_tui.soul.history import History, history_until
from kimi_tui.soul.hook_events import follow
from kimi_tui.soul.inbox import Inbox, Said
from kimi_tui.soul.loop import AgentLoop, TurnOutcome
from kimi_tui.soul.model_slot import Spent
from kimi_tui.soul.operations import Operations
from kimi_tui.soul.parts import DMails, Lines, Tasks, Travel, UserPermissions
from kimi_tui.soul.past_search import PastSearch
from kimi_tui.soul.project_notes import notes_in
from kimi_tui.soul.record import Recorder
from kimi_tui.soul.request_form import ToolsWish
from kimi_tui.soul.rewind_values import RewindOutcome, Target
from kimi_tui.soul.session_title import propose_title
from kimi_tui.soul.skills import SessionSkills
from kimi_tui.soul.system_prompt import FolderFacts
from kimi_tui.soul.tasks import OneAtATime, OrphanedTasks, run_to_completion, shielded
from kimi_tui.soul.token_meter import WindowPart, window_parts
from kimi_tui.soul.tool_calls import ToolRuntime, run_user_command
from kimi_tui.soul.usage import Cost, Statistics, session_statistics
from kimi_tui.tool_cards import ImageBlock
from kimi_tui.tools.added_folders import AddedFolders
from kimi_tui.tools.agent import AgentTool
from kimi_tui.tools.jobs import Job, Jobs
from kimi_tui.tools.process import call_soon
from kimi_tui.tools.sandbox.git_levers import ASIDE
from kimi_tui.tools.sandbox.git_watch import GitNews
from kimi_tui.tools.sandbox.layers import Reset
from kimi_tui.tools.sandbox.policy import NoSandbox
from kimi_tui.tools.sandbox.sandbox import Sandbox, SandboxState
from kimi_tui.tools.skill import Skill
from kimi_tui.wire.codec import decode_event
from kimi_tui.wire.events import (
    ApprovalAnswer,
    Event,
    EventRecord,
    FailureKind,
    FutureChanged,
    JobsChanged,
    ModeChanged,
    ModelChanged,
    Notice,
    StatusUpdate,
    TitleChanged,
    TurnBegin,
    TurnEnd,
    When,
)
from kimi_tui.wire.queue import Subscription

if TYPE_CHECKING:
    from kimi_tui.llm.models import ServerFacts
    from kimi_tui.mcp.servers import McpServers
    from kimi_tui.soul.agent_copies import MakesCopies
    from kimi_tui.soul.agent_kinds import SessionKinds
    from kimi_tui.soul.agents_part import AgentsPart
    from kimi_tui.tools.agent_kind import AgentTask
    from kimi_tui.tools.base import Tool
    from kimi_tui.tools.outcome import ToolOutcome

log = logging.getLogger(__name__)
T = TypeVar("T")

TurnResult = Literal["done", "rejected"]
"""The end of a turn without an error: the agent was done, or the user refused what it asked for."""
TURN_ERRORS = (LLMError, SoulError, StorageTrouble)
"""The other errors that a turn ends with. Its end event tells each of them, so a caller that listens has nothing to do."""
WAIT_QUESTION = "Keep waiting for the answer?"
"""The end of the question about an overdue answer of the model; the sentence before it says which."""
WAIT_ON = "Keep waiting"
ASK_AGAIN = "Send the request again"
"""The answers to the question about an overdue answer of the model."""
# Seconds in which stopped tools may end the processes that they started.
_ORPHANS_S = 10.0
# Seconds for which the end waits for work that was begun beside turns (`KimiSoul.keep`).
_BESIDE_S = 3.0
_MOST_NAMED = 5
_LONGEST_NAME = 120


class KimiSoul:
    """The engine as a screen sees it; `assembly.open_soul` opens it. Methods run on the event loop and never block it.

    Turns and operations run one at a time: a method that changes the context, or reads all of it, raises `SoulBusy` while
    another one runs. The end of a turn is both an event on the wire and, after an error, an exception for the caller of
    `run`. Every operation that changes the context can be undone. If the disk refuses an operation, the operation raises
    `StorageTrouble` (an `OSError`) and changes nothing.

    Args:
        session: the open session.
        conversation: its live conversation.
        mode: the approval mode.
        compaction: the compaction strategy.
        environ: the environment of the program; tools read it in threads.
        history: the stored history of the session, for the first listener.
        sandbox: the sandbox of commands; without one, or with one that has gaps, there is no sandboxed mode.
        no_sandbox: why there is none; empty if there is one.
        search_sandbox: the sandbox of search programs, also in a folder where commands have none.
        asks_for_keys: whether the user is asked before a result with API keys goes to the model.
        seeing: the names of configured models that take images.
        inbox: the messages from before the session was open; None for none.
        reads_notes: whether the agent is given the notes of the folders that it works in.
        permissions: the permissions for the work folder that hold in every session; None for none.
        hooks: the hooks that run; None for no hooks at all.
        checks: the programs that run after edits.
        main: for an agent beside that of a session: that one; None for that of a session.
        agent: the name of such an agent.
        owner: for a sub-agent in a process of its own: the session that it belongs to, not open.
        approval: its approvals; None to make them.
        makes_agents: makes the part that has the sub-agents; None for one that can have none.

    Attributes:
        wire: the event queue on which everything is published.
        session: the open session.
        no_sandbox: why there is no sandbox; empty if there is one.
        search_sandbox: the sandbox of search programs; None if there is none.
        inbox: the user's messages that are not in the context yet.
        hooks: the hooks of the session; None without hooks.
        changes: what changed in the work folder, and messages of commits.
        added: the folders that the user added beside the work folder.
        travel, lines, marks, tasks, dmails, model: its parts (see `Soul`).
        permissions: the permissions that the user has given.
        lacks: the parts that it has not, although it has their attributes.
        servers: the MCP servers (`mcp_host.start_servers`); None if none is configured.
        futures: returns what is known of the futures of the session.
        environ: the environment of the program.
        kinds: the kinds of sub-agents of the folder; None without files of kinds.
        agent_models: makes the models of sub-agents; None for the session's own model alone.
        agent_copies: makes the copies of sub-agents that work at the same time; None where there can be none.
        agents_config: the limits of sub-agents.
        first_agent: the number from which the names of sub-agents count that begin now.
        before_close: called and awaited before the engine is closed.
    """

    name = "kimi-tui"
    lacks: frozenset[PartName] = frozenset()

    def __init__(
        self,
        session: Session,
        conversation: Conversation,
        *,
        mode: Mode,
        compaction: Compaction,
        environ: Mapping[str, str],
        history: History,
        sandbox: Sandbox | None,
        no_sandbox: str,
        search_sandbox: Sandbox | None,
        asks_for_keys: bool,
        seeing: Sequence[str],
        inbox: Inbox | None = None,
        reads_notes: bool = True,
        permissions: ProjectPermissions | None = None,
        hooks: FoundHooks | None = None,
        checks: Sequence[EditCheck] = (),
        main: KimiSoul | None = None,
        agent: str = "",
        owner: Session | None = None,
        approval: Approval | None = None,
        makes_agents: Callable[[KimiSoul, Conversation, ToolRuntime], AgentsPart] | None = None,
    ) -> None:
        wire = conversation.wire
        self.wire = wire
        self.session = session
        self._main = main
        self.environ = environ
        self._conversation = conversation
        self.marks = conversation.marks
        self._owner = owner
        if approval is None:
            approval = (
                Approval(wire, mode, permissions)
                if main is None
                else AgentApproval(main.approval, wire, agent)
            )
        self._approval = approval
        self._jobs = Jobs(self._publish_jobs)
        self._thinking = ""
        """The setting of thinking that was made in this run of the program."""
        self._beginning = title_of(history.shown) or session.title
        """The name of the session as long as nobody has named it."""
        self._is_recorded = history.is_recorded
        """Whether the record alone led to the state of the session when that was opened, and so does from then on."""
        self._recorder = Recorder(session.record, wire, is_behind=history.is_behind)
        self._sandbox = sandbox
        self.no_sandbox = no_sandbox
        self.search_sandbox = search_sandbox
        self.inbox = inbox if inbox is not None else Inbox()
        self.inbox.join(wire, session.dir)
        self._is_attended = False
        """Whether messages begin turns by themselves."""
        self._is_carrying_out = False
        """Whether a command that had waited is being carried out."""
        self._orphans = OrphanedTasks()
        self._compactor = Compactor(conversation, self.marks, compaction)
        dmails = DMailDelivery(conversation, self.marks, self._approval, environ)
        self._tools = ToolRuntime(
            conversation,
            self._approval,
            session.work_dir,
            environ,
            sandbox,
            search_sandbox,
            asks_for_keys,
            self._jobs,
            session.state.moved_from,
            reads_notes,
        )
        self._finding: asyncio.Task[tuple[Sandbox | None, str]] | None = None
        self.hooks = self._hooks_of(hooks, environ, permissions)
        is_beside = main is not None or owner is not None
        self._tools.hooks = self._compactor.hooks = self.hooks if main is None else main.hooks
        self.checks = EditChecks(checks, session.work_dir, environ, self._warn)
        if checks:
            self._tools.checks = self.checks
        self._hearing: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[str] | None = None
        """The task of the hooks at the start of the session."""
        self.added = AddedFolders(session.work_dir, environ) if main is None else main.added
        self._tools.added = self.added
        conversation.files.added = lambda: [*map(self.added.shown, self.added.paths)]
        if main is None:
            self._watch_git()
        self._seeing = seeing
        self._attachments = Attachments(self._tools, seeing)
        self._loop = self._made_loop(dmails)
        # Hooks about the user's messages and the ends of turns are for the agent of a session alone.
        self._loop.hooks = None if is_beside else self.hooks
        if is_beside:
            # The words about a mode are for the agent of a session: they name tools that this one does not have.
            self._loop.reminders.begins_in(self.mode)
        self._operations = Operations(session, conversation, self._recorder.flush)
        self._alone = OneAtATime(self._stop_naming)
        self.travel = Travel(self._operations, self._jobs, self._alone)
        self.lines = Lines(session, conversation, self.marks, self._recorder.flush, self._alone)
        self.dmails = DMails(UserDMails(conversation, self._operations, dmails), self._alone)
        self.tasks = Tasks(self._jobs)
        self.permissions = UserPermissions(
            self._approval, session.work_dir, lambda: self.servers, self.hooks
        )
        self.model = conversation.model
        self.changes = FileChanges(
            conversation, session.work_dir, environ, asks_for_keys, self._alone
        )
        self.past = PastSearch(
            session,
            conversation,
            environ,
            lambda: self._sandbox,
            lambda: self.no_sandbox,
            self._alone,
        )
        self.servers: McpServers | None = None
        self.futures: Callable[[], Sequence[FutureChanged]] = self._ended_futures
        self.before_close: list[Callable[[], Coroutine[Any, Any, object]]] = []
        self.skills: SessionSkills | None = None
        self.kinds: SessionKinds | None = None
        self.agent_models: AgentModels | None = None
        self.agent_copies: MakesCopies | None = None
        self.agents_config = AgentsConfig()
        self.first_agent = 1
        self._agents: AgentsPart | None = None
        self._makes_agents = makes_agents
        if makes_agents is not None:
            self._tools.run_agent = self._run_agent
            self._tools.together = lambda keys: self.use_agents().together(keys)
        self._naming: asyncio.Task[str] | None = None
        """The task in which the model names the session; None if there is none."""
        conversation.model.on_overdue = self._waits_on
        self._history: Sequence[EventRecord] = _with_facts(history.told, (*self.facts, self.status))

    def _made_loop(self, dmails: DMailDelivery) -> AgentLoop:
        """Return the loop that runs the turns."""
        return AgentLoop(
            self._tools,
            self._orphans,
            self._compactor,
            dmails,
            self.inbox,
            self._attachments,
        )

    def _ended_futures(self) -> list[FutureChanged]:
        """Return the last states of the futures that are world lines."""
        notes = self.session.context.journal.futures
        if not notes:
            return []
        there = stored_world_lines(self.session.dir)
        found = (decode_event("FutureChanged", note) for n, note in notes.items() if n in there)
        return [one for one in found if isinstance(one, FutureChanged)]

    def _warn(self, text: str, advice: str) -> None:
        self.wire.publish(Notice("warning", text, advice))

    def _hooks_of(
        self,
        found: FoundHooks | None,
        environ: Mapping[str, str],
        permissions: ProjectPermissions | None,
    ) -> Hooks | None:
        if found is None:
            return None

        async def sandbox() -> Sandbox | None:
            await self.sandbox_ready()
            return self._sandbox

        session = self._owner or self.session
        facts = SessionFacts(
            session.id, live_path(session.dir), session.work_dir, lambda: self.mode, sandbox
        )

        def tell(level: Level, text: str, advice: str) -> None:
            self.wire.publish(Notice(level, text, advice))

        return Hooks(found, facts, environ, permissions, tell)

    async def begin_hooks(self, source: Literal["startup", "resume"]) -> tuple[str, ...]:
        """Begin to tell hooks of the session; return sentences about them for the user. Call it once."""
        hooks = self.hooks
        if hooks is None or not (hooks.found.own or hooks.found.folder or hooks.found.remarks):
            return ()
        words = await hooks.begin()
        self._have_hooks_follow(hooks)
        if hooks.has("SessionStart"):
            self._starting = asyncio.create_task(self._hooks_at_start(source), name="hooks")
            self._loop.opening = self._opening_words
        return words

    async def reload_hooks(self) -> None:
        """Read the files of hooks anew, also those that were written since the session was opened."""
        if self.hooks is not None:
            await self.hooks.reload()
            self._have_hooks_follow(self.hooks)

    def _have_hooks_follow(self, hooks: Hooks) -> None:
        if self._hearing is None and (hooks.found.own or hooks.found.folder):
            subscription = self.wire.subscribe(records=True)
            self._hearing = asyncio.create_task(follow(subscription, hooks), name="hook events")

    async def _hooks_at_start(self, source: Literal["startup", "resume"]) -> str:
        assert self.hooks is not None
        return (await self.hooks.session_start(source)).context

    async def _opening_words(self) -> str:
        return "" if self._starting is None else await asyncio.shield(self._starting)

    # -- what there is ---------------------------------------------------------------------------

    @property
    def model_name(self) -> str:
        """The model in use, as its server calls it; empty while none is set."""
        return self._conversation.model.name

    @property
    def agent_words(self) -> str:
        """The name of the agent and its own mode, for the header; empty for our own agent."""
        return ""

    @property
    def agent_values(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The modes, models and reasoning efforts of an agent that has its own, by name; empty for our own agent."""
        return (), (), ()

    @property
    def model_facts(self) -> ModelChanged:
        """The facts about the model in use and the settings that it is called with, as they are published."""
        return self._conversation.model_facts

    @property
    def model_capabilities(self) -> frozenset[str] | None:
        """The capabilities of the model in use; None while none is set."""
        info = self._conversation.model.info()
        return None if info is None else info.capabilities

    @property
    def status(self) -> StatusUpdate:
        """The present token figures of the context and of the whole session."""
        return self._conversation.status

    @property
    def used(self) -> int:
        """The tokens of the context now, as the gauge shows them."""
        return self._conversation.meter.used

    @property
    def message_count(self) -> int:
        """How many messages the context holds, checkpoint markers not counted."""
        return self._conversation.context.index.counts(0)[0]

    @property
    def mode(self) -> Mode:
        """The approval mode."""
        return self._approval.mode

    @property
    def sandbox_gaps(self) -> tuple[str, ...] | None:
        """The things that the sandbox of this machine cannot confine; None if there is no sandbox."""
        return self._sandbox.gaps if self._sandbox is not None else None

    def _watch_git(self) -> None:
        for one in (self._sandbox, self.search_sandbox):
            if one is not None:
                one.added = lambda: self.added.paths
        if (sandbox := self._sandbox) is not None:
            loop = asyncio.get_running_loop()
            sandbox.git_watch.listen(lambda news: call_soon(loop, self._publish_git_news, news))

    def use_sandbox_of(self, finding: asyncio.Task[tuple[Sandbox | None, str]]) -> None:
        """Use the sandbox that a task finds, for an engine that was made without one; calls of tools wait for it.

        Args:
            finding: returns the sandbox of search programs, and why commands have none (empty if it is theirs, too).
        """
        self._finding = finding
        self._tools.ready = self.sandbox_ready

    async def sandbox_ready(self) -> None:
        """Wait until it is known whether there is a sandbox. Without one that holds the mode `sandboxed` becomes `ask`."""
        if (finding := self._finding) is None:
            return
        found, no_sandbox = await asyncio.shield(finding)
        if self._finding is not finding:
            return  # Another caller waited, too.
        self._finding = None
        self.search_sandbox, self.no_sandbox = found, no_sandbox
        self._sandbox = None if no_sandbox else found
        self._tools.sandbox, self._tools.search_sandbox = self._sandbox, found
        self._watch_git()
        if self.mode == "sandboxed" and not (self._sandbox and self._sandbox.is_whole):
            self._loop.reminders.begins_in("ask")
            self._approval.set_mode("ask")

    def use_unsaved(self, text_of: Callable[[str], Awaitable[str | None]]) -> None:
        """Have the agent read files as they are in the user's editor.

        Args:
            text_of: returns the text of a file by its absolute path; None if the editor does not say.
        """
        self._tools.unsaved = text_of

    def answer_once_only(self) -> None:
        """Offer no yes from now on that holds for the session or the project: another person may be at the keyboard."""
        self._approval.once_only = True

    def use_servers(self, servers: McpServers) -> None:
        """Use the MCP servers, which begin to start, until the session is closed."""
        self.servers = servers
        self._attachments.resource = servers.resource_text
        servers.start()

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox of commands; None if there is none, or if it is not known yet (`sandbox_ready`)."""
        return self._sandbox

    async def sandbox_state(self) -> SandboxState:
        """Return what holds for the next command in the sandbox.

        Raises:
            NoSandbox: there is no sandbox; the text says why.
        """
        if self._sandbox is None:
            raise NoSandbox(self.no_sandbox)
        return await asyncio.to_thread(self._sandbox.state, self.session.work_dir)

    async def reset_sandbox(self) -> Reset:
        """Remove what commands in the work folder wrote to caches of package managers.

        Raises:
            NoSandbox: there is no sandbox; the text says why.
            OSError: not all of it could be removed.
        """
        if self._sandbox is None:
            raise NoSandbox(self.no_sandbox)
        return await asyncio.to_thread(self._sandbox.reset, self.session.work_dir)

    @property
    def cost(self) -> Cost | None:
        """The cost of the session's calls so far; None if no prices are set."""
        return self._conversation.ledger.total_cost()

    @property
    def spent(self) -> Spent:
        """The tokens and the money that this run of the program has used."""
        return self._conversation.spent

    @property
    def running(self) -> bool:
        """Whether a turn or an operation is under way."""
        return self._alone.running

    async def settled(self) -> None:
        """Wait until no operation is under way; a turn may be."""
        await self._alone.settled()

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the session's tools, also while they are off."""
        return self._conversation.all_tools.names

    @property
    def tools_form(self) -> Literal["on", "lean", "off"]:
        """Whether requests carry all tools, few in a short form, or none."""
        return self._conversation.form.name

    @property
    def sent_tools(self) -> tuple[str, ...]:
        """The names of the tools that requests carry."""
        return self._conversation.toolset.names

    @property
    def folder(self) -> FolderSnapshots:
        """The snapshots of the work folder, which an agent beside this one shares."""
        return self._conversation.files.folder

    # -- sub-agents ------------------------------------------------------------------------------

    @property
    def approval(self) -> Approval:
        """The approvals, which agents beside this one share."""
        return self._approval

    @property
    def agents(self) -> AgentsPart | None:
        """The sub-agents of the session; None if there were none yet, or for a sub-agent, which has none."""
        return self._agents

    @property
    def alone(self) -> OneAtATime:
        """Runs turns and operations, one at a time."""
        return self._alone

    async def back_into_call(
        self,
        key: str,
        files_of: Checkpoint | None,
        chosen: Collection[str] | None,
        shown: Callable[[str], tuple[str, float]],
    ) -> tuple[RewindOutcome, str]:
        """Go back to where a call had no result; see `Operations.back_into_call`. Call it within `alone`."""
        return await self._operations.back_into_call(key, files_of, chosen, shown)

    async def bring_files(
        self, files_of: Checkpoint, chosen: Collection[str] | None
    ) -> RewindOutcome:
        """Bring back the files of a checkpoint of any agent of the session. Call it within `alone`."""
        return await self._operations.bring_files(files_of, chosen)

    def use_agents(self) -> AgentsPart:
        """Return the sub-agents of the session. Their module is imported with the first call."""
        if self._agents is None:
            assert self._makes_agents is not None
            self._agents = agents = self._makes_agents(self, self._conversation, self._tools)
            self._tools.paused = lambda: agents.paused_keys
            self.travel.after = agents.follow_line
        return self._agents

    def return_unread(self, who: str, text: str) -> None:
        """Give a message back to the user that a future or a sub-agent did not read before it ended.

        Args:
            who: names it at the beginning of a sentence.
            text: the message.
        """
        self.wire.publish(
            Notice("info", f"{who} ended before it read your message: {one_line(text)}")
        )
        self.inbox.return_text(text)

    async def take_in_agents(self) -> None:
        """Publish the sub-agents that came into the session's folder since it was opened. Call it within `when_idle`."""
        if self._agents is None:
            await in_daemon_thread(import_module, "kimi_tui.soul.subagents")
        await self.use_agents().take_in()

    async def _run_agent(self, task: AgentTask, key: str) -> ToolOutcome:
        return await self.use_agents().run(task, key)

    def follow_files(self) -> None:
        """Begin to scan the working files, if they are not scanned yet."""
        self._conversation.files.start(lambda: self.mode == "plan")

    async def files_ready(self) -> FolderFacts:
        """Wait until the working files have been scanned for the first time; return the facts about the folder."""
        self.follow_files()
        extent = await self._conversation.files.extent()
        sent = self._conversation.context.system_prompt or ""
        notes = tuple(one.path for one in notes_in(sent))
        if extent is None:
            return FolderFacts(notes=notes)
        return FolderFacts(extent.n_files, extent.is_more, notes)

    async def statistics(self) -> Statistics:
        """Return the session's work and cost so far."""
        await self._recorder.flush()
        prices = self._conversation.ledger.prices
        return await in_daemon_thread(session_statistics, self.session, prices)

    async def window_parts(self) -> list[WindowPart]:
        """Return the parts of the context window with their tokens. May be called at any time."""
        conversation = self._conversation
        return await asyncio.to_thread(
            window_parts,
            conversation.system,
            conversation.toolset.specs,
            conversation.sent,
            conversation.meter.used,
        )

    # -- history ---------------------------------------------------------------------------------

    @property
    def opened_with(self) -> Sequence[EventRecord]:
        """The history that was there when the session was opened; nothing once it was handed over."""
        return self._history

    def hand_over_history(self) -> Sequence[EventRecord]:
        """Return the history for the first listener, and drop it here: a long one takes much memory."""
        history, self._history = self._history, ()
        # The sub-agents of earlier runs are read when the session is open already.
        return _with_facts(history, self.agents.states if self.agents is not None else ())

    async def history(self) -> list[EventRecord]:
        """Return the events that bring a new subscriber to the present state of the session: up to the newest one at the call."""
        facts, status, newest = self.facts, self.status, self.wire.newest_seq
        n_begun, running = self._alone.n_begun, self.running
        await self._recorder.flush()
        is_followed = running and self._is_recorded
        told = await in_daemon_thread(history_until, self.session, newest, is_followed)
        if self._is_recorded and not is_followed and self._alone.n_begun != n_begun:
            # A turn or operation that began meanwhile may be in the context already; its events follow this history.
            told = await in_daemon_thread(history_until, self.session, newest, True)
        own = (record.event for record in reversed(told) if not record.source)
        said = next((event for event in own if isinstance(event, StatusUpdate)), None)
        if said is None or said.used != status.used:
            # A history that is made anew from the messages does not say how full the window is now.
            facts = [*facts, status]
        return _with_facts(told, facts, newest)

    async def listen(
        self, wake: Callable[[Event], None] | None = None
    ) -> tuple[list[EventRecord], Subscription]:
        """Begin to listen at any time: the history, and a subscription to all that follows it, without a gap.

        Args:
            wake: see `Wire.subscribe`.
        """
        subscription = self.wire.subscribe(wake)
        try:
            return await self.history(), subscription
        except BaseException:
            self.wire.unsubscribe(subscription)
            raise

    @property
    def facts(self) -> Sequence[Event]:
        """The facts about the session that a history lacks, or has from another run of the program only."""
        title = self.session.state.title
        return [
            TitleChanged(title or self._beginning, named=bool(title)),
            ModeChanged(self.mode),
            self._conversation.model_facts,
            self._conversation.tools_facts,
            self.marks.all,
            JobsChanged(len(self._jobs.running)),
            *self.futures(),
            *(self.agents.states if self.agents is not None else ()),
        ]

    def keep(self, work: Coroutine[Any, Any, object]) -> None:
        """Carry out work beside everything else; the end of the session waits a moment for it, then cancels it."""
        task = asyncio.create_task(work, name="beside")

        async def ended() -> None:
            await asyncio.wait([task], timeout=_BESIDE_S)
            task.cancel()

        self.before_close.append(ended)

    async def when_idle(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Carry out an operation when no turn or other operation runs; return its result.

        Raises:
            SoulBusy: the session is being closed.
        """
        while True:
            await self._alone.idle()
            if not self._alone.running or self._alone.closed:
                return await self._alone.run(work())

    @property
    def one_at_a_time(self) -> bool:
        """Whether the server of the model in use answers one request after another."""
        info = self._conversation.model.info()
        return info is not None and info.one_at_a_time

    @property
    def server_facts(self) -> ServerFacts | None:
        """The facts that the server of the model in use told of itself and the model; None if it was not asked."""
        return getattr(self._conversation.model.current, "facts", None)

    @property
    def file_history(self) -> FileHistory:
        """The changes of files of this agent."""
        return self._conversation.files

    async def flush(self) -> None:
        """Write everything that was published into the record."""
        await self._recorder.flush()

    # -- turns -----------------------------------------------------------------------------------

    async def run(
        self,
        user_input: str,
        images: Sequence[Image] = (),
        *,
        begins: Callable[[], object] = bool,
        piped: str = "",
        piped_as: str = "standard input",
    ) -> TurnResult:
        """Run one turn: from the user's message until the agent stops. Without text it resumes from the present state.

        An error that ends the turn (one of `TURN_ERRORS`) is also published, in its `TurnEnd`.

        Args:
            user_input: the user's message; files and images that it names with `@` are read and attached.
            images: the images that were pasted into it, in order.
            begins: called when the images are stored; messages sent after that come after this one.
            piped: a text that came with the message; a part of its own, not searched for names of files.
            piped_as: what that text is, in words.

        Returns:
            `done`, or `rejected` if the user refused what the agent asked for.

        Raises:
            SoulBusy: something runs (use `say`).
            ModelCannotSee: there are images, pasted or named, and the model accepts none; nothing was sent or stored.
            StorageTrouble: the disk refused an image, so that nothing was sent, or a record of the turn.
            LLMNotSet: no model is set.
            LLMNotSupported: the model cannot take something; `missing` names the capabilities.
            LLMError: the model could not be asked.
            MaxStepsReached: the turn used up its steps.
            BudgetSpent: the tokens or the money of this run of the program are used up.
            RunCancelled: the turn was stopped.
            SoulError: anything else that ended it.
        """
        try:
            await self._attachments.check_and_store(user_input, images)
        except ModelCannotSee as error:
            raise self._told(error) from None
        begins()
        # Messages that the user sends from now on come after this one.
        return await self._alone.run(
            self._turn(user_input, images, self.inbox.steers, (piped, piped_as)), stoppable=True
        )

    async def review(self, found: NamedChanges) -> TurnResult:
        """Run a turn in which the agent reviews changes and can change nothing.

        Returns and raises as `run`.
        """
        patch = await asyncio.to_thread(self.changes.patch, found.changes)
        return await self._alone.run(self._review(found.what, patch), stoppable=True)

    async def _review(self, what: str, patch: str) -> TurnResult:
        text = prompt("review", WHAT=what)
        with self._approval.reading_only():
            self._publish_begin(TurnBegin(text))
            end = await self._run_and_save(self._loop.run(text, piped=patch, piped_as="changes"))
        return self._ended(end)

    async def resume(self) -> TurnResult:
        """Continue from the present context without a new message (after an error, a stop or a rewind).

        Returns and raises as `run`.
        """
        return await self._alone.run(self._turn(""), stoppable=True)

    async def run_command(self, command: str, *, told: bool = True) -> TurnResult:
        """Run a shell command of the user, as a turn without the agent; with `told` its output goes into the context.

        Returns and raises what `run` does.
        """
        return await self._alone.run(self._user_command(command, told=told), stoppable=True)

    def say(
        self,
        text: str,
        images: Sequence[Image] = (),
        when: When = "now",
        carry_out: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> str:
        """Send a message to the agent, whatever runs; return the id for `inbox.take_back`.

        If the session is attended (`attend`), the message begins a turn as soon as nothing runs; otherwise it waits for the next `run`.

        Args:
            text: the message; with `carry_out` the command, as the user wrote it.
            images: the images that were pasted into the message, in order.
            when: whether a message may go into a running turn, before its next step (a steer).
            carry_out: carries out a command of the caller in the place of a turn; during a turn it waits for its end.

        Raises:
            ModelCannotSee: images were pasted and the model takes none. Images that the text only names are left out of a steer,
                which is published.
        """
        model = self._conversation.model
        if images and not model.sees:
            raise self._told(ModelCannotSee(model.name, self._seeing))
        if carry_out is not None and self._alone.stoppable:
            when = "after the turn"
        is_idle = self._is_attended and not (self.running or self._is_carrying_out)
        said_id = self.inbox.say(text, images, when, carry_out)
        due = self.inbox.due
        if not is_idle or due is None or due.id != said_id:
            self.inbox.publish_waiting()
        return said_id

    async def attend(self) -> None:
        """Carry out the inbox in order, whenever nothing else runs, until the session is closed. Run it once, as a task.

        Messages that wait when a turn is stopped, or ended by the user's no, are handed back, as are those that cannot be
        sent. After an error, messages for after the turn keep waiting. Messages that waited when the program was killed are
        handed back at first, unless `inbox.left_over` was called.
        """
        self._is_attended = True
        try:
            await self.inbox.hand_over_left()
            while not self._alone.closed:
                await self._alone.idle()
                due = self.inbox.due
                if due is None:
                    await self.inbox.stirred()
                elif self._alone.n_ahead:
                    await asyncio.sleep(0)
                else:
                    await self._begin(due)
        finally:
            self._is_attended = False

    async def _begin(self, said: Said) -> None:
        """Run a turn that begins with a message, or carry out a command. Errors are published."""
        if said.carry_out is not None:
            self.inbox.begin(said)
            self.inbox.arrived()
            await self._carry_out(said.text, said.carry_out)
            return
        try:
            await self._attachments.check_and_store(said.text, said.images)
        except (ModelCannotSee, StorageTrouble) as error:
            self.wire.publish(Notice("info", error.message, error.advice))
            self.inbox.hand_back([said])
            return
        # Another turn may have begun meanwhile, or the message was taken back.
        if self.running or self._alone.closed or self.inbox.due is not said:
            self.inbox.publish_waiting()
            return
        self.inbox.begin(said)
        with contextlib.suppress(*TURN_ERRORS):
            await self._alone.run(self._turn(said.text, said.images), stoppable=True)

    async def _carry_out(
        self, written: str, command: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        self._is_carrying_out = True
        try:
            await command()
        except TURN_ERRORS:
            pass
        except Exception:
            log.exception("a command that had waited failed")
            self.wire.publish(
                Notice(
                    "warning",
                    f"The queued command {one_line(written)[:_LONGEST_NAME]} failed.",
                    log_words(),
                )
            )
        finally:
            self._is_carrying_out = False

    async def image(self, facts: ImageBlock) -> Image | None:
        """Return the image of an `ImageBlock`; None if it is not stored in this session. May be called at any time."""
        reference = reference_of(facts.sha256, facts.media_type)
        found = await in_daemon_thread(self.session.images.get, reference)
        if found is None:
            return None
        return replace(found, width=facts.width, height=facts.height, name=facts.name)

    async def interrupt(self) -> None:
        """Stop the running turn or operation within a second; complete parts are kept. Waiting messages are handed back if attended."""
        if self._alone.stoppable and self._is_attended:
            self.inbox.hand_back(self.inbox.waiting)
        await self._alone.interrupt()

    def answer(self, request_id: str, answer: ApprovalAnswer, feedback: str = "") -> None:
        """Answer an approval request; unknown or answered ids are ignored.

        Args:
            request_id: `ApprovalRequest.id`.
            answer: the answer: yes, yes for the session, or no.
            feedback: with a no why; with a yes the option chosen, or what is to be sent or run instead. A yes without it to
                a request of the kind `pause` is its first option.
        """
        self._approval.answer(request_id, answer, feedback)

    async def set_mode(self, mode: Mode) -> None:
        """Ask before changes, accept edits in the work folder and commands in the sandbox, or allow everything but what
        is protected.

        Raises:
            NoSandbox: there is no sandbox that holds; the text says why.
        """
        if mode == "sandboxed":
            await self.sandbox_ready()
        if mode == "sandboxed" and self._sandbox is None:
            raise NoSandbox(self.no_sandbox)
        self._approval.set_mode(mode)

    # -- commands in the background --------------------------------------------------------------

    def _publish_jobs(self, job: Job) -> None:
        running = len(self._jobs.running)
        self.wire.publish(JobsChanged(running))
        self._conversation.files.follow_jobs(running)
        if job.ended and not self._alone.closed:
            command = one_line(job.command)
            brief = job.outcome.brief if job.outcome is not None else ""
            self.wire.publish(
                Notice("info", f"Background task {job.id} has ended, {brief}: {command}")
            )

    def _publish_git_news(self, news: GitNews) -> None:
        """Publish at once what running commands changed in files that the user's own git and other programs run."""
        if news.undone:
            named = _first_of(news.undone)
            text = f"A sandboxed command created {named}, which could make your own git run other programs."
            advice = f"This was undone at once: what was created is now in {ASIDE}, inside the repository, where git does not use it."
            if news.is_ended:
                advice = "It did this repeatedly, so all sandboxed commands were stopped."
            self.wire.publish(Notice("warning", text, advice))
        if news.made and self._jobs.running:
            # The card of a command that the agent waits for shows the same news.
            self.wire.publish(
                Notice(
                    "warning",
                    f"A background task changed files that git, a shell or an editor may run: {_first_of(news.made)}.",
                    "Read them before you use git or an editor there: they could run programs that you did not start.",
                )
            )

    # -- the model -------------------------------------------------------------------------------

    def retry_now(self) -> None:
        """End the wait before a retry at once."""
        self._conversation.model.retry_now()

    def set_provider(self, provider: ChatProvider | None, thinking: str | None = None) -> None:
        """Use another model from the next call on, with the tools that suit it; published as `ModelChanged`.

        A call that is under way is answered by the model that was asked, which is closed afterwards.

        Args:
            provider: the model.
            thinking: the setting of thinking that the user chose with it; None for none.
        """
        if thinking is not None:
            self._thinking = thinking
        self._conversation.model.exchange(provider)
        self._conversation.wish_for("")
        self._conversation.tell_model()

    async def prepare_model(self) -> tuple[str, ...]:
        """Import the modules that requests need, and learn the server's facts about the model in use, which are published.

        Returns:
            sentences for the user.
        """
        provider = self._conversation.model.current
        if provider is None:
            return ()
        words = await provider.prepare()
        if self._conversation.model.current is not provider:
            return words
        if self._thinking in (ON, OFF):
            try:
                provider.set_thinking(self._thinking)
            except LLMError as error:
                words = (*words, f"Reasoning effort: {error.message}")
        if not self._conversation.choose_form():
            self._conversation.publish_status()
        self._conversation.tell_form()
        return words

    async def model_info(self) -> ModelInfo | None:
        """Return the facts about the model in use, once its server has been asked; None while none is set."""
        provider = self._conversation.model.current
        if provider is not None:
            await provider.prepare()
        return self._conversation.model.info()

    async def window_size(self) -> int:
        """Return the tokens of the model's window, as well as the first request would know them; 0 if unknown."""
        provider = self._conversation.model.current
        if provider is not None and provider.prepares_first:
            await provider.prepare()
        info = self._conversation.model.info()
        return info.window if info is not None else 0

    async def enlarge_window(self) -> str:
        """Have the model's server make a similar model with a larger window; return its name, for `set_provider`.

        Raises:
            LLMError: the server has no way, or refused.
        """
        return await self._conversation.model.require().enlarge()

    def use_tools(self, wish: ToolsWish, added: tuple[str, ...] = ()) -> None:
        """Set which tools requests carry from the next call on; a change is published as `ToolsChanged`.

        Args:
            wish: all, few (`lean`), none, or (empty) those that suit the model.
            added: names of further tools to add to the few.
        """
        self._conversation.wish_for(wish, added)

    async def reload_skills(self) -> None:
        """Tell the model of the skills as they are on the disk now, from its next call on."""
        if self.skills is not None:
            tool = await asyncio.to_thread(self.skills.tool)
            self.change_tools([] if tool is None else [tool], [Skill.name])

    async def reload_kinds(self) -> None:
        """Tell the model of the kinds of sub-agents as they are on the disk now, from its next call on."""
        if self.kinds is not None:
            kinds = await asyncio.to_thread(self.kinds.usable)
            self.change_tools([AgentTool(kinds)], [AgentTool.name])

    def change_tools(self, added: Iterable[Tool[Any]] = (), removed: Collection[str] = ()) -> None:
        """Have other tools in the session from the next call of the model on; see `Conversation.change_tools`."""
        self._conversation.change_tools(added, removed)

    def set_thinking(self, word: str) -> None:
        """Set whether and how much the model thinks from the next call on; see `ChatProvider.set_thinking`.

        Published as `ModelChanged`.

        Raises:
            LLMError: the model does not accept that; the text names the accepted settings.
        """
        if (provider := self._conversation.model.current) is not None:
            provider.set_thinking(word)
            self._thinking = provider.thinking_setting
            self.publish_status()

    def publish_status(self) -> None:
        """Publish the token figures again."""
        self._conversation.publish_status()

    # -- compaction ------------------------------------------------------------------------------

    async def compact(
        self,
        instructions: str = "",
        *,
        start: Target | None = None,
        until: Target | None = None,
        waits: bool = False,
    ) -> bool:
        """Summarise the context now, or exactly the part from before `start` to before `until`.

        The whole is published as `CompactionBegin`, `CheckpointCreated` #0, `CompactionEnd`, `LineChanged`. A part from
        `start` on is cut first: `ContextReverted` with the reason `compaction` stands before the summary's checkpoint, which
        has the id of `start` and the kind "summary"; what is before it stays as it is. With `until` what follows from there
        stays: a `CheckpointCreated` with `was` for each of its checkpoints, renumbered behind the summary, stands before
        `CompactionEnd`. Errors are published.

        Args:
            instructions: what the summary must keep.
            start: the first checkpoint that the summary replaces ("compact from here"); None for the beginning.
            until: the first one after it that stays ("compact up to here"); None for the end.
            waits: whether to wait until nothing else runs.

        Returns:
            whether there is a summary now.

        Raises:
            KeyError: no such checkpoint on the live world line.
            SoulBusy: something runs.
        """
        if waits:
            await self._alone.idle_first()
        span = self._operations.span(start, until)
        return await self._alone.run(self._compact(instructions, span), stoppable=True)

    def can_compact(self, *, start: Target | None = None, until: Target | None = None) -> bool:
        """Return whether `compact` would find anything to summarise in that part of the live world line."""
        try:
            return self._compactor.has_work(self._operations.span(start, until))
        except KeyError:
            return False

    async def edit_summary(self, text: str) -> None:
        """Replace the text of the newest summary on the live world line.

        Published as a compaction is, without `CompactionBegin`: `CheckpointCreated` of the summary and of what
        follows it, each with `was`, then `CompactionEnd` and `LineChanged`.

        Raises:
            SoulError: the text is empty, or there is no summary.
            SoulBusy: something runs.
            OSError: the disk refused.
        """
        if not text.strip():
            raise EmptySummary
        await self._alone.run(self._compactor.edit_summary(text.strip()))

    # -- the session itself ----------------------------------------------------------------------

    async def save(self) -> str:
        """Write everything that is complete to the disk.

        Returns:
            a sentence on the records that could not be written; empty if everything was.
        """
        context = self.session.context
        if self.session.lock.held:
            await context.sync()
        return context.unsaved_words

    @property
    def unsynced_words(self) -> str:
        """Sentences on what the last sync could not make durable besides the messages; empty if it could. After `aclose` no event
        tells of it.
        """
        session, files = self.session, self._conversation.files
        logs = (session.context.journal.file, session.record)
        words = [files.unsynced_words, *(log.trouble.message for log in logs if log.trouble)]
        return " ".join(dict.fromkeys(filter(None, words)))

    async def rename(self, title: str) -> str:
        """Set the session's title; an empty one resets it to the beginning of the first message. Returns the new title.

        Published as `TitleChanged`.

        Raises:
            StorageTrouble: it could not be written; the old title stays.
        """
        await asyncio.to_thread(self.session.rename, title)
        named = self.session.state.title
        self.wire.publish(TitleChanged(named or self._beginning, named=bool(named)))
        return named or self._beginning

    async def name_session(self) -> str | None:
        """Have the model name the session. A turn, or a compaction, that begins before the name has come stops this.

        Returns:
            the title, empty if there is none or the user has set one; None if it was stopped.
        """
        self._naming = naming = asyncio.create_task(propose_title(self._conversation), name="title")
        try:
            # The naming runs in a task of its own, so that it can be stopped apart from its caller.
            await asyncio.wait([naming])
        finally:
            naming.cancel()
        if naming.cancelled():
            return None
        title = naming.result()
        if not title or self._alone.closed or self.session.state.title:
            return ""
        with contextlib.suppress(StorageTrouble):
            return await self.rename(title)
        return ""

    def _stop_naming(self) -> None:
        # A server may have one slot for both requests, and the user waits for the other one.
        if self._naming is not None:
            self._naming.cancel()

    async def aclose(self) -> None:
        """Stop, sync and release the session. May be called again."""
        if self._alone.closed:
            return
        closing, self.before_close = self.before_close, []
        for one in closing:
            await self.interrupt()
            await one()
        self._alone.closed = True
        await self.interrupt()
        if self._starting is not None:
            self._starting.cancel()
        if self.hooks is not None and self._owner is None:
            await self.hooks.session_end()
        await self.inbox.aclose()
        conversation, session = self._conversation, self.session
        await self._jobs.aclose()
        if self._agents is not None:
            await self._agents.aclose()
        if self._main is None:
            self._approval.close()
        await self._approval.stored()
        if self.servers is not None:
            await self.servers.aclose()
        if self._finding is not None:
            self._finding.cancel()
        await self._orphans.wait(_ORPHANS_S)
        await conversation.files.aclose()
        if self._owner is not None:
            await self.folder.aclose()
        if not conversation.context.messages and not conversation.context.journal.entries:
            # A session in which nothing was said leaves no files.
            for name in (FILES_NAME, IMAGES_NAME):
                await asyncio.to_thread(shutil.rmtree, session.dir / name, True)
        await self._recorder.aclose()
        try:
            await session.aclose(conversation.meter.used)
            if self._sandbox is not None and self._main is None:
                await asyncio.to_thread(self._sandbox.remove_temporary)
        finally:
            await conversation.model.aclose()
            self.wire.close()

    # -- a turn, from the first word to the last save --------------------------------------------

    async def _turn(
        self,
        text: str,
        images: Sequence[Image] = (),
        older: Sequence[Said] = (),
        piped: tuple[str, str] = ("", ""),
    ) -> TurnResult:
        resumed = not (text.strip() or images)
        self._publish_begin(TurnBegin(text, resumed, tuple(map(ImageBlock.of, images))))
        end = await self._run_and_save(self._first_run(text, images, older, piped))
        # A message typed while the turn is being saved would wait for the user's next one, so it is taken up at once.
        while end.is_done and self.inbox.steers and not self._alone.stopping:
            end = await self._run_and_save(self._loop.run())
        return self._ended(end)

    async def _first_run(
        self, text: str, images: Sequence[Image], older: Sequence[Said], piped: tuple[str, str]
    ) -> TurnOutcome:
        if self._agents is not None:
            await self._agents.settle()
        # Tools that come with the second request would make the server of the model read the first one again.
        if self.servers is not None:
            await self.servers.settled()
        return await self._loop.run(text, images, older, *piped)

    def _publish_begin(self, begin: TurnBegin) -> None:
        self._beginning = title_from(begin, self._beginning)
        self.wire.publish(begin)

    def _ended(self, end: _TurnEnded) -> TurnResult:
        """Publish the end of a turn; return its result, or raise its error."""
        # A listener that hears of the turn's end may begin the next turn at once.
        self._alone.free()
        self.wire.publish(end.event)
        self.inbox.ended(end.event, hands_back=self._is_attended)
        if end.error is not None:
            raise end.error
        return "done" if end.is_done else "rejected"

    def _told(self, error: ModelCannotSee) -> ModelCannotSee:
        """Publish the error and return it: no turn begins whose end would tell it.

        A neutral notice is enough, since nothing was added to the context.
        """
        self.wire.publish(Notice("info", error.message, error.advice))
        return error

    async def _waits_on(self, overdue: Overdue) -> bool:
        """Ask the user whether to keep waiting for an overdue answer. A no stops the running work, as Esc does.

        Returns:
            True to keep waiting; False to make the request again.
        """
        options = [WAIT_ON] if overdue.near else [WAIT_ON, ASK_AGAIN]
        said = await self._approval.pause(
            f"{overdue.text} {WAIT_QUESTION}",
            options,
            no_offer="Stop the turn",
            topic="overdue",
        )
        if said is None:
            await self.interrupt()
        return said != ASK_AGAIN

    async def _user_command(self, command: str, *, told: bool) -> TurnResult:
        self._publish_begin(TurnBegin(f"!{command}") if told else TurnBegin("", resumed=True))
        return self._ended(
            await self._run_and_save(run_user_command(command, self._tools, told=told))
        )

    async def _run_and_save(self, work: Coroutine[Any, Any, TurnOutcome]) -> _TurnEnded:
        """Run the steps of a turn and save.

        An error is returned as the turn's end, so that the caller raises it after everything is saved.
        """
        try:
            outcome = await work
            end = _TurnEnded(TurnEnd(outcome), RunCancelled() if outcome == "interrupted" else None)
        except asyncio.CancelledError:
            end = _TurnEnded(TurnEnd("interrupted"), RunCancelled())
        except (LLMError, SoulError, StorageTrouble) as error:
            log.warning("a turn ended: %s", error.message)
            kind = _failure_kind(error)
            end = _TurnEnded(TurnEnd("error", error.message, error.advice, kind), error)
        except Exception as error:
            log.exception("a turn failed")
            failed = TurnFailed(error)
            failed.__cause__ = error
            end = _TurnEnded(TurnEnd("error", failed.message, failed.advice), failed)
        with contextlib.suppress(asyncio.CancelledError):
            await self._save_turn()
        return end

    @shielded
    async def _save_turn(self) -> None:
        self._conversation.publish_status()
        await self._recorder.flush()
        await self.session.sync()

    async def _compact(self, instructions: str, span: CompactionSpan) -> bool:
        """Compact at the user's request. Errors are published: here, or by the compaction itself."""
        try:
            async with self._conversation.model.call() as provider:
                await self._compactor.compact(
                    provider, automatic=False, instructions=instructions, span=span
                )
        except asyncio.CancelledError:
            return False
        except (NothingToCompact, RefusedByHook) as nothing:
            self.wire.publish(Notice("info", nothing.message, nothing.advice))
            return False
        except LLMNotSet as error:
            self.wire.publish(Notice("error", error.message, error.advice))
            return False
        except SoulError:
            return False
        with contextlib.suppress(asyncio.CancelledError):
            await run_to_completion(self.session.sync())
        return True


AgentModels = Callable[[str, str, str], Coroutine[Any, Any, ChatProvider]]
"""Makes the model of a sub-agent: called with its name in the configuration (empty for the session's), the effort (empty for the
session's), and an id for the server's cache.
"""


class _TurnEnded(NamedTuple):
    """The end of a turn: its last event, and the error raised to its caller (None if it ended in order)."""

    event: TurnEnd
    error: Exception | None

    @property
    def is_done(self) -> bool:
        return self.event.reason == "done"


def _with_facts(
    told: Sequence[EventRecord], facts: Sequence[Event], newest: int = 0
) -> list[EventRecord]:
    """Append the facts to a history, numbered as its end; they are not stored."""
    newest = max(newest, told[-1].seq if told else 0)
    at = told[-1].at if told else 0.0
    return [*told, *(EventRecord(newest, at, fact) for fact in facts)]


def _failure_kind(error: Exception) -> FailureKind:
    if isinstance(error, ToolsNotSupported):
        return "tools"
    if isinstance(error, MaxStepsReached | BudgetSpent):
        return "steps" if isinstance(error, MaxStepsReached) else "budget"
    return "model" if isinstance(error, LLMError) and not isinstance(error, LLMNotSet) else ""


def _first_of(paths: Sequence[str]) -> str:
    """Join some of these paths for a notice. A command chose their names, so they are made safe to show."""
    shown = [one_line(path)[:_LONGEST_NAME] for path in paths[:_MOST_NAMED]]
    return some_of(shown, _MOST_NAMED, len(paths))
