"""`Hooks`: runs the hooks of a session, and says what they decided.

Before a tool a hook that cannot be started, is killed, exceeds its time limit or answers with something unreadable refuses
the call: it may be a guard. Hooks of other events that fail let the event pass, and a notice names them. The user's own
hooks run as commands of theirs do; those of the work folder run in the sandbox, after a yes to their very contents.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kimi_tui import lenient_json
from kimi_tui.agent_parts import Mode
from kimi_tui.app_paths import config_dir, make_private
from kimi_tui.config.permissions import ProjectPermissions
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.foreign_text import one_line
from kimi_tui.hooks.definitions import Event, FoundHooks, Hook, digest_of, find_hooks
from kimi_tui.hooks.payload import (
    Answer,
    answer_of,
    arguments_from,
    claude_mode,
    claude_name,
    inner_call,
    input_of,
    names_of,
    outer_arguments,
    subject_of,
)
from kimi_tui.hooks.process import HookEnd, run_hook
from kimi_tui.tools.process import user_environment
from kimi_tui.tools.sandbox.git_watch import WatchedCommand
from kimi_tui.tools.sandbox.policy import NoSandbox
from kimi_tui.tools.sandbox.sandbox import Sandbox

OFF_NAME = "hooks_off.json"
"""The file, beside config.toml, that lists the hooks that the user turned off."""
MOST_STOPS = 5
"""The number of times in a row that hooks may keep a turn from ending."""
_MOST_AT_ONCE = 16
_END_S = 5.0
"""Seconds for all hooks at the end of a session, for which the user waits."""
_RESULT_CHARS = 100_000
_STOP_S = 1.0
_CHANGED = "the hooks of this folder, or scripts that they run, have changed since you allowed them"

Level = Literal["info", "warning"]
FolderState = Literal["none", "not allowed", "allowed", "changed"]


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The facts about the session that hooks are told.

    Attributes:
        id: its id.
        transcript: the file of its context.
        work_dir: its work folder.
        mode: returns the approval mode.
        sandbox: waits until it is known whether there is a sandbox, and returns it.
    """

    id: str
    transcript: Path
    work_dir: Path
    mode: Callable[[], Mode]
    sandbox: Callable[[], Coroutine[Any, Any, Sandbox | None]]


class BeforeTool(NamedTuple):
    """The decision of hooks before a call.

    Attributes:
        by: the hook that refused it; empty for none.
        reason: why; also why the user is to be asked.
        asks: the hook that wants the user to be asked; empty for none.
        arguments: the arguments in place of the call's; None for the same.
        context: a text for the model.
    """

    by: str = ""
    reason: str = ""
    asks: str = ""
    arguments: str | None = None
    context: str = ""


class HooksSaid(NamedTuple):
    """The answers of hooks to another event.

    Attributes:
        by: the hook that refused it; empty for none.
        reason: why.
        context: a text for the model.
        stops: whether a hook wants the turn to end.
    """

    by: str = ""
    reason: str = ""
    context: str = ""
    stops: bool = False


class Hooks:
    """The hooks of one session.

    Args:
        found: the hooks.
        facts: what they are told of the session.
        environ: the environment of the program.
        permissions: the permissions of the work folder, where a yes to its hooks is stored; None if there can be none.
        tell: publishes a notice.
    """

    def __init__(
        self,
        found: FoundHooks,
        facts: SessionFacts,
        environ: Mapping[str, str],
        permissions: ProjectPermissions | None,
        tell: Callable[[Level, str, str], None],
    ) -> None:
        self.found = found
        self._facts = facts
        self._environ = environ
        self._permissions = permissions
        self._tell = tell
        self.why_not: Callable[[Hook], str] = _runs
        """Returns why a hook does not run with the agent of the session, as a clause; empty if it does."""
        self._off: frozenset[str] = frozenset()
        self._is_folder_on = False
        """Whether the work folder's hooks were allowed in this run, as they were then."""
        self._told: set[tuple[str, str]] = set()
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)
        self._queue: asyncio.Queue[tuple[Event, str, dict[str, Any]]] = asyncio.Queue(200)
        self._observing: asyncio.Task[None] | None = None
        self._running: set[threading.Event] = set()

    # -- which hooks there are -------------------------------------------------------------------

    async def begin(self) -> tuple[str, ...]:
        """Read what is turned off and allowed; return sentences for the user, once at the start of a session."""
        self._off = await asyncio.to_thread(_read_off)
        state = await self.folder_state()
        self._is_folder_on = state == "allowed"
        words = list(self.found.remarks)
        if state == "not allowed":
            n_hooks = len(self.found.folder)
            named = (
                "a hook, which does not run until you allow it"
                if n_hooks == 1
                else f"{n_hooks} hooks, which do not run until you allow them"
            )
            words.append(f"This folder has {named}: use /hooks.")
        words += [
            f"The hook {one.name} blocks every call that it guards: {one.trouble}. You can turn the hook off in /hooks."
            for one in self._active("PreToolUse")
            if one.trouble
        ]
        return tuple(words)

    async def reload(self) -> None:
        """Read the files of hooks anew."""
        self.found = await asyncio.to_thread(find_hooks, self._facts.work_dir)
        await self.begin()

    async def folder_state(self) -> FolderState:
        """Return whether the hooks of the work folder may run now. It compares the scripts that they name."""
        if not self.found.folder:
            return "none"
        if self._permissions is None:
            return "not allowed"
        permissions, work_dir, hooks = self._permissions, self._facts.work_dir, self.found.folder
        is_allowed = await asyncio.to_thread(
            lambda: f"hooks:#{digest_of(hooks, work_dir)}" in permissions.rules
        )
        if is_allowed:
            return "allowed"
        return "changed" if self._is_folder_on else "not allowed"

    async def folder_digest(self) -> str:
        """Return the digest of the hooks of the work folder, with the scripts that they name, as they are now."""
        return await asyncio.to_thread(digest_of, self.found.folder, self._facts.work_dir)

    async def allow_folder(self, digest: str) -> None:
        """Allow the hooks of the work folder as they were when they had this digest.

        Raises:
            OSError, ValueError: the permission could not be stored.
        """
        if self._permissions is None:
            raise ValueError("the file for saved permissions is not available")
        permissions = self._permissions

        def store() -> None:
            for rule in permissions.rules:
                if rule.startswith("hooks:"):
                    permissions.remove(rule)
            permissions.add(f"hooks:#{digest}")

        await asyncio.to_thread(store)
        self._is_folder_on = True

    def folder_was_revoked(self) -> None:
        """Note that the user does not want the hooks of the work folder any more."""
        self._is_folder_on = False

    def is_off(self, hook: Hook) -> bool:
        """Return whether the user turned a hook off."""
        return hook.key in self._off

    async def turn(self, hook: Hook, *, on: bool) -> None:
        """Turn a hook on or off, in every session.

        Raises:
            OSError: it could not be stored.
        """
        off = self._off - {hook.key} if on else self._off | {hook.key}
        await asyncio.to_thread(_write_off, off)
        self._off = off

    @property
    def unheard(self) -> Sequence[Hook]:
        """The hooks that are on and would run with our own agent, and do not with that of the session."""
        folder = self.found.folder if self._is_folder_on else ()
        on = (hook for hook in (*self.found.own, *folder) if hook.key not in self._off)
        return [hook for hook in on if self.why_not(hook)]

    def has(self, *events: Event) -> bool:
        """Return whether any hook may run for one of these events."""
        return any(self._active(event) for event in events)

    def _active(self, event: Event) -> list[Hook]:
        folder = self.found.folder if self._is_folder_on else ()
        return [
            hook
            for hook in (*self.found.own, *folder)
            if hook.event == event and hook.key not in self._off and not self.why_not(hook)
        ]

    # -- events that may be refused ----------------------------------------------------------------

    async def before_tool(self, called: str, arguments: str, key: str) -> BeforeTool:
        """Run the hooks before a call.

        If one changes the input, those that did not are asked again with the changed one: a guard must see what will run.
        """
        tool, arguments = inner_call(called, arguments)
        first = await self._before(tool, arguments, key, set())
        if first.by or first.arguments is None:
            return BeforeTool(*first[:5])
        again = await self._before(tool, first.arguments, key, first.changers)
        if again.by:
            return BeforeTool(again.by, again.reason)
        if again.arguments is not None:
            return BeforeTool(
                "several hooks", "the hooks keep changing the input of this tool call"
            )
        context = "\n".join(dict.fromkeys(filter(None, (first.context, again.context))))
        asks, reason = (again.asks, again.reason) if again.asks else (first.asks, first.reason)
        return BeforeTool("", reason, asks, outer_arguments(called, tool, first.arguments), context)

    async def _before(self, tool: str, arguments: str, key: str, but: Collection[str]) -> _Round:
        names, given = names_of(tool), input_of(tool, arguments)
        subject = subject_of(tool, given)
        hooks = [
            one
            for one in self._active("PreToolUse")
            if one.is_for(names, subject) and one.key not in but
        ]
        if not hooks:
            return _Round()
        payload = _of_tool(tool, given, key)
        changed: dict[str, object] = dict(given)
        changers: set[str] = set()
        contexts: list[str] = []
        asks = reason = ""
        for hook, answer in await self._run("PreToolUse", hooks, payload):
            if answer.verdict in ("refused", "failed"):
                return _Round(hook.name, answer.reason)
            if answer.verdict == "asks":
                asks, reason = hook.name, answer.reason
            if answer.changed is not None and dict(answer.changed) != given:
                changers.add(hook.key)
                changed = {**answer.changed}
            contexts += [answer.context] if answer.context else []
        new = arguments_from(tool, given, changed) if changers else None
        return _Round("", reason, asks, new, "\n".join(contexts), frozenset(changers))

    async def after_tool(
        self, tool: str, arguments: str, key: str, output: str, message: str, *, is_error: bool
    ) -> HooksSaid:
        """Run the hooks after a call; a refusal is a reason for the model, as the call has run."""
        event: Event = "PostToolUseFailure" if is_error else "PostToolUse"
        tool, arguments = inner_call(tool, arguments)
        names, given = names_of(tool), input_of(tool, arguments)
        subject = subject_of(tool, given)
        hooks = [one for one in self._active(event) if one.is_for(names, subject)]
        if not hooks:
            return HooksSaid()
        response = {"output": output[:_RESULT_CHARS], "message": message, "is_error": is_error}
        more = {"tool_response": response, "tool_output": output[:_RESULT_CHARS]}
        if is_error:
            more["error"] = message or output[:_RESULT_CHARS]
        return _joined(await self._run(event, hooks, {**_of_tool(tool, given, key), **more}))

    async def prompt(self, text: str) -> HooksSaid:
        """Run the hooks before a message of the user."""
        return await self._ask("UserPromptSubmit", "", {"prompt": text})

    async def stop(self, n_before: int, answer: str) -> HooksSaid:
        """Run the hooks at the end of a turn; a refusal has the agent go on with the reason.

        Args:
            n_before: how many times hooks have kept this turn from ending.
            answer: the agent's last text.
        """
        facts = {"stop_hook_active": n_before > 0, "last_assistant_message": answer[:_RESULT_CHARS]}
        return await self._ask("Stop", "", facts)

    async def before_compaction(self, trigger: Literal["manual", "auto"], words: str) -> HooksSaid:
        """Run the hooks before a compaction; their context is for the summary."""
        facts = {"trigger": trigger, "custom_instructions": words}
        return await self._ask("PreCompact", trigger, facts)

    async def session_start(self, source: Literal["startup", "resume"]) -> HooksSaid:
        """Run the hooks at the start of a session."""
        return await self._ask("SessionStart", source, {"source": source})

    async def session_end(self, reason: str = "other") -> None:
        """Run the hooks at the end of a session, for a few seconds at most, and end all that still run."""
        if self._observing is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._queue.join(), _STOP_S)
            self._observing.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ask("SessionEnd", reason, {"reason": reason}), _END_S)
        for one in self._running:
            one.set()

    def tell(self, event: Event, kind: str = "", /, **facts: object) -> None:
        """Tell the hooks of an event that has happened, in the background, in order. Their answers count for nothing."""
        if not any(hook.is_for((kind,)) for hook in self._active(event)):
            return
        if self._observing is None:
            self._observing = asyncio.create_task(self._observe(), name="hooks")
        try:
            self._queue.put_nowait((event, kind, facts))
        except asyncio.QueueFull:
            self._complain(
                "",
                "Some events did not reach the hooks, because there were more than the hooks could handle.",
            )

    async def _observe(self) -> None:
        while True:
            event, kind, facts = await self._queue.get()
            try:
                await self._ask(event, kind, facts)
            finally:
                self._queue.task_done()

    async def _ask(self, event: Event, kind: str, facts: Mapping[str, object]) -> HooksSaid:
        hooks = [one for one in self._active(event) if one.is_for((kind,))]
        return _joined(await self._run(event, hooks, facts)) if hooks else HooksSaid()

    # -- running them ------------------------------------------------------------------------------

    async def _run(
        self, event: Event, hooks: Sequence[Hook], facts: Mapping[str, object]
    ) -> list[tuple[Hook, Answer]]:
        """Run hooks side by side, those with the same command once; return their answers in order."""
        alone = {(one.command, one.sandbox, one.form): one for one in reversed(hooks)}
        chosen = [one for one in hooks if alone[one.command, one.sandbox, one.form] is one]
        if any(one.origin == "folder" for one in chosen) and await self.folder_state() != "allowed":
            if event != "PreToolUse":
                self._complain("changed", f"Hooks of this folder did not run: {_CHANGED}.")
                chosen = [one for one in chosen if one.origin != "folder"]
            else:
                refused = Answer(
                    "failed", f"{_CHANGED}; you can read and allow them with /hooks allow"
                )
                return [(one, refused) for one in chosen if one.origin == "folder"]
        common = {
            "session_id": self._facts.id,
            "transcript_path": str(self._facts.transcript),
            "cwd": str(self._facts.work_dir),
            "permission_mode": claude_mode(self._facts.mode()),
            "mode": self._facts.mode(),
            "hook_event_name": event,
        }
        answers = await asyncio.gather(
            *(self._answer(event, one, {**common, **facts}) for one in chosen)
        )
        for hook, answer in zip(chosen, answers, strict=True):
            if answer.verdict == "failed" and event != "PreToolUse":
                self._complain(hook.key, f"The {event} hook {hook.name} failed: {answer.reason}.")
            if answer.told:
                self._complain(
                    hook.key, f"The {event} hook {hook.name} says: {one_line(answer.told)}"
                )
        return list(zip(chosen, answers, strict=True))

    async def _answer(self, event: Event, hook: Hook, payload: dict[str, object]) -> Answer:
        if hook.trouble:
            return Answer("failed", hook.trouble)
        if hook.form == "claude" and isinstance(name := payload.get("tool_name"), str):
            payload["tool_name"] = claude_name(name)
        folder = str(self._facts.work_dir)
        places = {"CLAUDE_PROJECT_DIR": folder, "KIMI_PROJECT_DIR": folder}
        argv: Sequence[str] = ["/bin/sh", "-c", hook.command]
        environ: Mapping[str, str] = user_environment(self._environ)
        words: Sequence[str] = ()
        around: AbstractContextManager[object] | None = None
        stop = threading.Event()
        limit_s = min(hook.timeout_s, _END_S) if event == "SessionEnd" else hook.timeout_s
        if hook.sandbox:
            sandbox = await self._facts.sandbox()
            if sandbox is None or not sandbox.is_whole:
                return Answer("failed", "it runs only in the sandbox, and there is no sandbox here")
            reads_only = self._facts.mode() == "plan"
            try:
                confined = await asyncio.to_thread(
                    sandbox.confined, [*argv], self._facts.work_dir, writes=not reads_only
                )
            except (NoSandbox, OSError) as error:
                return Answer("failed", f"the sandbox cannot be set up: {error}")
            argv, environ, words = confined.argv, confined.environ, confined.words
            # Its changes to git's levers are undone, as those of the agent's commands are.
            watched = WatchedCommand(confined.policy.watch, stop.set)
            around = sandbox.git_watch.around(watched)
        given = json.dumps(payload, ensure_ascii=False, default=str).encode("utf-8", "replace")
        async with self._room:
            end = await self._in_thread(
                stop,
                lambda: run_hook(
                    argv,
                    given,
                    work_dir=self._facts.work_dir,
                    environ={**environ, **places},
                    timeout_s=limit_s,
                    words=words,
                    stop=stop,
                    around=around,
                ),
            )
        return answer_of(end, event)

    async def _in_thread(self, stop: threading.Event, work: Callable[[], HookEnd]) -> HookEnd:
        """Run a hook in a thread of its own, as it may take minutes; cancelling this ends it with all that it started."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[HookEnd] = loop.create_future()

        def settle(end: HookEnd) -> None:
            if not done.done():
                done.set_result(end)

        def run() -> None:
            try:
                end = work()
            except Exception as error:
                end = HookEnd("not started", errors=f"{type(error).__name__}: {error}".encode())
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, end)

        self._running.add(stop)
        # It is no daemon: no process of a hook outlives the program.
        threading.Thread(target=run, name="hook").start()
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([done], timeout=_STOP_S)
            raise
        finally:
            self._running.discard(stop)

    def _complain(self, about: str, words: str) -> None:
        """Publish a notice, once for each hook and sentence."""
        if (about, words) not in self._told:
            self._told.add((about, words))
            self._tell("warning", words[:500], "You can turn the hook off in /hooks.")


class _Round(NamedTuple):
    by: str = ""
    reason: str = ""
    asks: str = ""
    arguments: str | None = None
    context: str = ""
    changers: frozenset[str] = frozenset()


def _joined(answers: Sequence[tuple[Hook, Answer]]) -> HooksSaid:
    context = "\n".join(answer.context for _, answer in answers if answer.context)
    for hook, answer in answers:
        if answer.verdict == "refused":
            return HooksSaid(hook.name, answer.reason, context, answer.stops)
    return HooksSaid(context=context)


def _of_tool(tool: str, given: Mapping[str, object], key: str) -> dict[str, object]:
    return {
        "tool_name": tool,
        "kimi_tool_name": tool,
        "claude_tool_name": claude_name(tool),
        "tool_input": given,
        "tool_use_id": key,
        "tool_call_id": key,
    }


def _read_off() -> frozenset[str]:
    try:
        found: object = json.loads(read_regular(config_dir() / OFF_NAME, 1 << 20))
    except (OSError, ValueError, RecursionError):
        return frozenset()
    return frozenset(one for one in lenient_json.listing(found) if isinstance(one, str))


def _write_off(keys: frozenset[str]) -> None:
    folder = config_dir()
    make_private(folder)
    Storage().replace_file(folder / OFF_NAME, json.dumps(sorted(keys)).encode(), shared=True)
    os.chmod(folder / OFF_NAME, 0o600)


def _runs(hook: Hook) -> str:
    """Return why a hook does not run with our own agent: every one does."""
    return ""
