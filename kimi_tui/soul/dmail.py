"""D-Mail: a message to the agent's past self. The context is cut back to before a checkpoint and continues with the message.

`DMailDelivery.send` takes a D-Mail of the agent from the tool call to the new context, in this order:

1. review: the user is asked, if the configuration says so;
2. files: if the D-Mail asks for the working files of that time, the user is asked about every path;
3. compose: the message gets the facts that the past self cannot know (files changed, commands run, what the user has read),
   and messages that the user wrote or pinned since then are carried over, because an agent never undoes those;
4. deliver: one revert of the context writes all of it at once; then the files are restored, and the events published.

A D-Mail that the user writes (`UserDMails.send`) takes steps 3 and 4; the model may draft one. A message of another world
line (`UserDMails.carry`) is appended to the live one, which undoes nothing.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from kimi_tui.app_paths import reason_of
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.display_names import some_of
from kimi_tui.llm.completion import complete
from kimi_tui.llm.errors import ContextOverflowError
from kimi_tui.llm.message import ImagePart, Message, user_message
from kimi_tui.llm.provider import ChatProvider, Completion
from kimi_tui.llm.tokens import estimate, message_tokens
from kimi_tui.prompts import prompt
from kimi_tui.session.context import Context, Reverted
from kimi_tui.session.errors import AlreadyThere, StorageTrouble, UnknownCheckpoint
from kimi_tui.session.schema import Checkpoint, MessageKind, NewCheckpoint, marker_text, new_uid
from kimi_tui.session.undo import journaled_append
from kimi_tui.soul.approval import Approval
from kimi_tui.soul.bookmarks import UserMarks, whole_groups
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.conversation_text import conversation_text, shortened
from kimi_tui.soul.denwarenji import BackToTheFuture
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.messages import (
    Author,
    call_arguments,
    checkpoint_created,
    dmail_message,
    dmail_text,
    is_user_words,
    label_of,
    segments,
    server_called,
    summary_text,
    words_with_images,
)
from kimi_tui.soul.operations import Operations
from kimi_tui.soul.rewind_preview import preview_of
from kimi_tui.soul.rewind_values import (
    END,
    FileOutcome,
    FilesChoice,
    RewindOutcome,
    RewindPreview,
    Target,
)
from kimi_tui.soul.tasks import shielded
from kimi_tui.soul.tool_results import files_written, never_ran, outcome_of
from kimi_tui.tool_cards import CALL_TOOL, CardOf, card_of
from kimi_tui.tools.base import ApprovalQuestion, Asks
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem, ToolRejected
from kimi_tui.tools.paths import links_around, locate, protected_reason
from kimi_tui.tools.session_tools import SendDMail
from kimi_tui.tools.shell import command_that_ran
from kimi_tui.wire.events import ContextReverted, Notice, RuleApplied
from kimi_tui.workspace.protected_names import GuardedLink
from kimi_tui.workspace.restore import FileChange, PreparedRestore, RestorePlan

_MAX_FILES = 40
_MAX_COMMANDS = 12
_MAX_COMMAND_CHARS = 160
_MAX_SHOWN_CHARS = 1_200
_DRAFT_TRIES = 3
_SMALLER_DRAFT = 0.6
_MAX_CARRIED_TOKENS = 20_000
_VERBS = {"restore": "restore", "create": "create again", "delete": "delete"}
_TO_RESTORE = Asks(unasked=frozenset({"all"}), is_change=True, stops=False)
_ASKED_FOR = "You asked to restore the files of that time."


@dataclass(frozen=True, slots=True)
class DMailRestore:
    """The restore of working files with a D-Mail: prepared, with the sentences about it for the D-Mail's text."""

    note: str = ""
    prepared: PreparedRestore | None = None

    @property
    def restored(self) -> frozenset[str]:
        """The paths that are restored."""
        return frozenset(self.prepared.intent.paths) if self.prepared else frozenset()


NO_FILES = DMailRestore()


class Delivered(NamedTuple):
    """A delivered D-Mail: the revert, the number of dropped messages (without those carried over), and the files' outcome."""

    reverted: Reverted
    messages_dropped: int
    files: tuple[FileOutcome, ...]


class DMailDelivery:
    """Delivers the D-Mails of one session.

    Args:
        conversation: the live conversation; its limits say whether D-Mails are reviewed.
        marks: the pins, whose messages are carried over like the user's own.
        approval: asks the user.
        environ: the environment of the program; names the user's home.
    """

    def __init__(
        self,
        conversation: Conversation,
        marks: UserMarks,
        approval: Approval,
        environ: Mapping[str, str],
    ) -> None:
        self._conversation = conversation
        self._marks = marks
        self._approval = approval
        self._environ = environ

    async def send(self, back: BackToTheFuture) -> bool:
        """Review and deliver the D-Mails that the agent sent in a step.

        Returns:
            False if the user refused; the agent is told. True even if the disk refused: that is published, and the tool's
                result tells the agent that the D-Mail was not sent.

        Raises:
            asyncio.CancelledError: stopped while asking (nothing was sent), or while delivering (the D-Mail was sent).
        """
        point = self._conversation.context.index.checkpoint(back.checkpoint_id)
        messages = await self._reviewed(back, point)
        if messages is None:
            return False
        files = await self._files_of(point) if back.restore_files else NO_FILES
        await self._try_to_deliver(point, messages, files, back.rule)
        return True

    async def deliver(
        self,
        point: Checkpoint,
        messages: Sequence[str],
        files: DMailRestore = NO_FILES,
        author: Author = "agent",
        rule: str = "",
    ) -> Delivered:
        """Go back to before a checkpoint and put the D-Mail there, after the messages that are carried over.

        Args:
            point: the checkpoint of the live world line whose place the D-Mail takes.
            messages: the texts of the D-Mails, in the order in which they were sent.
            files: the restore of the working files.
            author: the author of the texts.
            rule: the name of the rule that led to the D-Mail.

        Raises:
            StorageTrouble: the disk refused; nothing changed.
        """
        conversation, marks = self._conversation, self._marks
        context = conversation.context
        figure = conversation.figure_before(point)
        dmail = await self._compose(point, messages, files, author)
        uid = new_uid()
        # The pins are written first: a pin on a uid that no checkpoint has is harmless, but a lost one is not.
        await marks.pin_all((uid, place) for place in dmail.pinned)
        pinned = tuple(_name(context, point.message_index + place) for place in dmail.stay)
        marker = conversation.marks_checkpoints
        async with conversation.files.journaled(files.prepared, "dmail") as entry:
            reverted = await context.revert_to(
                point.id,
                reason="dmail",
                text=dmail.text,
                then=[NewCheckpoint(marker=marker, uid=uid), *dmail.carried, dmail.message],
                files=entry,
                tokens=conversation.known_tokens(point),
            )
        await conversation.refresh(reverted.messages_kept, figure, reverted.messages_kept)
        conversation.publish_reverted(
            reverted,
            text=dmail.text,
            facts=dmail.facts,
            carried=tuple(map(words_with_images, filter(is_user_words, dmail.carried))),
            pinned=pinned,
            author=author,
            rule=rule,
        )
        outcome = await conversation.files.carry_out(files.prepared, reverted.entry.uid)
        failed = [one for one in outcome if one.reason]
        label = (
            "Your D-Mail"
            if author == "person"
            else f"D-Mail from #{reverted.entry.from_checkpoint}"
        )
        created = checkpoint_created(context.checkpoints[-1], "dmail", label, figure)
        conversation.publish_checkpoint(created)
        if files.prepared and len(failed) > len(files.prepared.left):
            names = ", ".join(f"`{one.path}` ({one.reason})" for one in failed)
            await conversation.append([user_message(prompt("files_left", NAMES=names))])
        conversation.publish_line_changed(
            "dmail", reverted.world_line, 0, context.checkpoints[-1].uid
        )
        gone = reverted.entry.messages_dropped - len(dmail.carried)
        return Delivered(reverted, gone, outcome)

    async def preview(
        self, checkpoint_id: int, text: str, author: Author = "agent"
    ) -> RewindPreview:
        """Compute what a D-Mail with this text would do, with estimated tokens; changes nothing.

        Raises:
            KeyError: there is no such checkpoint.
        """
        conversation = self._conversation
        point = conversation.context.index.checkpoint(checkpoint_id)
        kinds = conversation.context.index.kinds(point.message_index)
        stays = {n for n, kind in enumerate(kinds) if kind == MessageKind.SAID}
        stays.update(whole_groups(*self._undone(point.message_index)))
        # Both computations see the conversation as it is now.
        found, dmail = await asyncio.gather(
            preview_of(conversation, Target(checkpoint_id), stays),
            self._compose(point, [text], author=author),
        )
        marker = (
            [user_message(marker_text(checkpoint_id))] if conversation.marks_checkpoints else []
        )
        there = [*marker, *dmail.carried, dmail.message]
        tokens = await asyncio.to_thread(lambda: sum(map(message_tokens, there)))
        return replace(
            found,
            tokens_after=found.tokens_after + conversation.meter.scale.corrected(tokens),
            estimated=True,
            prompt="",
        )

    async def _compose(
        self,
        point: Checkpoint,
        messages: Sequence[str],
        files: DMailRestore = NO_FILES,
        author: Author = "agent",
    ) -> ComposedDMail:
        """Return the D-Mail that `deliver` would put there in the present conversation; changes nothing."""
        history = self._conversation.files
        undone, places = self._undone(point.message_index)
        return await asyncio.to_thread(
            compose_dmail,
            point.id,
            messages,
            undone,
            files_note=files.note,
            restored=files.restored,
            changed=await history.changed_since(point),
            work_dir=str(history.work_dir),
            pinned=places,
            author=author,
            card=self._conversation.card_of,
        )

    def _undone(self, first: int) -> tuple[Sequence[Message], list[int]]:
        """Return the messages from one on, and the places among them of those that the user pinned."""
        places = self._marks.pinned_places(first)
        return self._conversation.context.messages[first:], [place - first for place in places]

    @shielded
    async def _try_to_deliver(
        self, point: Checkpoint, messages: Sequence[str], files: DMailRestore, rule: str
    ) -> None:
        conversation = self._conversation
        try:
            await self.deliver(point, messages, files, rule=rule)
        except StorageTrouble as trouble:
            conversation.wire.publish(
                Notice(
                    "error", f"A D-Mail could not be delivered. {trouble.message}", trouble.advice
                )
            )
        else:
            conversation.denwa.delivered(point.id)

    # -- review ----------------------------------------------------------------------------------

    async def _reviewed(self, back: BackToTheFuture, point: Checkpoint) -> tuple[str, ...] | None:
        """Return the messages as the user approved them; None if they refused, which is then in the context."""
        conversation = self._conversation
        if not (back.asks or conversation.limits.dmail.review):
            return back.messages
        context = conversation.context
        newest = context.n_checkpoints - 1
        said = MessageKind.SAID in context.index.kinds(point.message_index)
        files = "your messages stay, files unchanged" if said else "files unchanged"
        if back.restore_files:
            files = "you are asked about the files next"
        ask = ApprovalQuestion(
            asks=Asks("dmail"),
            question=_question_of(back),
            detail="\n\n".join(message.strip() for message in back.messages),
            where=f"now at #{newest}; {files}; /undo reverses it",
            # A user who wants to review D-Mails wants it in every mode.
            protected=True,
            checkpoint_id=back.checkpoint_id,
        )
        try:
            instead = await self._approval.ask(ask, key="", tool=SendDMail.name)
        except ToolRejected as no:
            if back.rule:
                conversation.wire.publish(
                    RuleApplied(back.rule, "refused", checkpoint_id=back.checkpoint_id)
                )
            if not back.by_program:
                why = f" and says: {no.feedback}" if no.feedback else "."
                await conversation.append([user_message(prompt("dmail_refused", WHY=why))])
            elif no.feedback:
                # The agent knows nothing of the draft, so that only the user's words are for it.
                await conversation.append([user_message(no.feedback)])
            return None
        return (instead,) if instead else back.messages

    # -- files -----------------------------------------------------------------------------------

    async def _files_of(self, point: Checkpoint) -> DMailRestore:
        """Plan, ask for and prepare a restore. If that fails, the D-Mail says so, and is sent without files."""
        await self._conversation.files.settled()
        plan = await self._conversation.files.plan(point)
        if plan.reason:
            return DMailRestore(f"{_ASKED_FOR} They were not restored: {plan.reason}")
        plan = _without_foreign_changes(plan)
        wanted = [one for one in plan.changes if one.change in _VERBS]
        if not wanted:
            return DMailRestore(_with_conflicts("No files needed to be restored.", plan))
        ask = await self._question(point, plan, wanted)
        try:
            await self._approval.ask(ask, key="", tool=SendDMail.name)
        except ToolRejected as no:
            why = f": {no.feedback}" if no.feedback else "."
            return DMailRestore(f"{_ASKED_FOR} The user said no{why} They were not restored.")
        except ToolProblem as problem:
            # In plan mode the user is not asked.
            return DMailRestore(f"{_ASKED_FOR} They were not restored. {problem}")
        try:
            prepared = await self._conversation.files.prepare(plan)
        except OSError as error:
            return DMailRestore(f"{_ASKED_FOR} The disk refused: {reason_of(error)}.")
        return restore_with(plan, prepared)

    async def _question(
        self, point: Checkpoint, plan: RestorePlan, wanted: Sequence[FileChange]
    ) -> ApprovalQuestion:
        is_protected = await asyncio.to_thread(self._any_protected, wanted)
        lines = [f"{_VERBS[one.change]}  {one.path}" for one in wanted]
        lines += [f"keep  {path} (also changed outside kimi-tui)" for path in _conflicts(plan)]
        return ApprovalQuestion(
            asks=_TO_RESTORE,
            question=f"Restore the files of checkpoint #{point.id}?",
            detail="\n".join(lines),
            where="the agent's D-Mail asks for this; /undo reverses it",
            edits=await self._conversation.files.edits_of(plan),
            protected=is_protected,
        )

    def _any_protected(self, wanted: Sequence[FileChange]) -> bool:
        links: Sequence[GuardedLink] | None = None
        for one in wanted:
            try:
                place = locate(one.path, self._conversation.files.work_dir, self._environ)
            except ToolProblem:
                return True
            links = links_around(place) if links is None else links
            if protected_reason(place, self._environ, links):
                return True
        return False


def restore_with(plan: RestorePlan, prepared: PreparedRestore | None) -> DMailRestore:
    """Return the restore prepared by this plan, with the sentences about it for the D-Mail."""
    if prepared is None or not prepared.intent.changes:
        return DMailRestore(_with_conflicts("No file was restored.", plan))
    changes = prepared.intent.changes
    back = [f"`{one.path}`" for one in changes if one.then is not None]
    gone = [f"`{one.path}`" for one in changes if one.then is None]
    note = "The files are as they were at that time."
    note += f" Restored: {some_of(back, _MAX_FILES)}." if back else ""
    if gone:
        note += f" Deleted, because they did not exist then: {some_of(gone, _MAX_FILES)}."
    return DMailRestore(_with_conflicts(note, plan, prepared), prepared)


def _without_foreign_changes(plan: RestorePlan) -> RestorePlan:
    """Return the plan without files that somebody else changed: the agent may not revert these, even if it changed them later."""
    changes = tuple(
        replace(one, change="conflict", would=one.change)
        if one.reason and one.change in _VERBS
        else one
        for one in plan.changes
    )
    return replace(plan, changes=changes)


def _conflicts(plan: RestorePlan) -> list[str]:
    return [one.path for one in plan.changes if one.change == "conflict"]


def _with_conflicts(note: str, plan: RestorePlan, prepared: PreparedRestore | None = None) -> str:
    back = frozenset(prepared.intent.paths) if prepared else frozenset[str]()
    stale = prepared.stale if prepared else ()
    left = [f"`{path}`" for path in (*_conflicts(plan), *stale) if path not in back]
    if left:
        note += f" These files stay as they are, because they were also changed outside kimi-tui: {some_of(left, _MAX_FILES)}."
    return note


@dataclass(frozen=True, slots=True)
class ComposedDMail:
    """The messages that are put into the context at the checkpoint: `carried` first, then `message`.

    Attributes:
        carried: messages that were undone and stay: the user's messages, and pinned ones.
        message: the D-Mail.
        text: the text of the author; `facts` is the text that was added to it.
        pinned: the places in `carried` that the user pinned.
        stay: the places of the carried messages, and of those that belong to them, among the undone messages.
    """

    carried: tuple[Message, ...]
    message: Message
    text: str
    facts: str
    pinned: tuple[int, ...] = ()
    stay: tuple[int, ...] = ()


def _name(context: Context, place: int) -> str:
    """Return the name of a message, as pins have it: its checkpoint's uid and its number after that."""
    points = context.checkpoints
    point = points[bisect(points, place, key=attrgetter("message_index")) - 1]
    return f"{point.uid}:{context.index.counts(point.message_index, place)[0]}"


def compose_dmail(
    checkpoint_id: int,
    texts: Sequence[str],
    undone: Sequence[Message],
    *,
    files_note: str = "",
    restored: Collection[str] = (),
    changed: Mapping[str, str] | None = None,
    work_dir: str = "",
    pinned: Collection[int] = (),
    author: Author = "agent",
    card: CardOf = card_of,
) -> ComposedDMail:
    """Compose the D-Mail for a checkpoint. It reads all undone messages, so call it in a thread.

    Args:
        checkpoint_id: the id of the target checkpoint.
        texts: the texts of the D-Mails, in the order in which they were sent.
        undone: every message from that checkpoint on.
        files_note: a sentence about the restored files, if they were requested.
        restored: the files that are restored.
        changed: the files that differ from that time, each with a remark or nothing.
        work_dir: the folder to which the paths are relative.
        pinned: the places in `undone` of messages that the user pinned; they are carried over like the user's own messages.
        author: the author of the texts.
        card: returns the cards of tools.
    """
    undone = list(undone)
    stay = whole_groups(undone, pinned)
    kept = frozenset(stay)
    places = [place for place, m in enumerate(undone) if place in kept or is_user_words(m)]
    carried = tuple(undone[place] for place in places)
    text = "\n\n".join(part.strip() for part in texts)
    files = _still_changed(files_written(undone, card), changed or {}, restored, work_dir)
    facts = _facts(undone, carried, files_note, files, card)
    template = "dmail_by_agent" if author == "agent" else "dmail_by_hand"
    body = prompt(template, CHECKPOINT=str(checkpoint_id), FACTS=facts, TEXT=text)
    return ComposedDMail(
        carried,
        dmail_message(body, author),
        text,
        facts,
        tuple(order for order, place in enumerate(places) if place in pinned),
        tuple(stay),
    )


def _still_changed(
    written: Mapping[str, int],
    changed: Mapping[str, str],
    restored: Collection[str],
    work_dir: str,
) -> dict[str, str]:
    """Return the files that differ from that time, including those that commands changed, each with a remark."""
    found: dict[str, str] = {}
    for path, n in written.items():
        name = _relative(path, work_dir)
        said = [f"{n} {'edit' if n == 1 else 'edits'}", changed.get(name, "")]
        if name not in restored:
            found[name] = ", ".join(part for part in said if part)
    return found | {
        path: said for path, said in changed.items() if path not in found and path not in restored
    }


def _relative(path: str, work_dir: str) -> str:
    """Return a path that a tool was given in the form that snapshots use; one outside the work folder stays absolute."""
    full = os.path.normpath(os.path.join(work_dir, path))
    inside = work_dir.rstrip("/") + "/"
    return full.removeprefix(inside) if work_dir else os.path.normpath(path)


def _facts(
    undone: Sequence[Message],
    carried: Sequence[Message],
    files_note: str,
    files: Mapping[str, str],
    card: CardOf,
) -> str:
    commands: list[str] = []
    servers: dict[str, None] = {}
    shown: list[str] = []
    results = {each.tool_call_id: outcome_of(each) for each in undone if each.role == "tool"}
    for message in undone:
        if message.role != "assistant":
            continue
        if message.text.strip():
            shown.append(message.text.strip())
        for call in message.tool_calls or ():
            arguments = call_arguments(call.function.arguments)
            server = server_called(call)
            if server and not never_ran(results.get(call.id, ToolOutcome())):
                name = call.function.name
                servers[
                    f"`{str(arguments.get('tool')) if name == CALL_TOOL else name}` of {server}"
                ] = None
            look = card(call.function.name)
            command = next((arguments[key] for key in look.keys if key in arguments), None)
            if look.is_command and command is not None:
                result = results.get(call.id, ToolOutcome())
                if not never_ran(result):
                    commands.append(command_that_ran(str(command), result.message))
    lines: list[str] = []
    if files:
        names = [f"`{path}` ({said})" if said else f"`{path}`" for path, said in files.items()]
        lines.append(f"- Files changed since then, and not restored: {some_of(names, _MAX_FILES)}.")
    elif not files_written(undone, card):
        lines.append("- No file was changed with the file tools since then.")
    if commands:
        quoted = [f"`{shortened(c, _MAX_COMMAND_CHARS)}`" for c in dict.fromkeys(commands)]
        lines.append(f"- Commands that were run: {some_of(quoted, _MAX_COMMANDS)}.")
    if servers:
        named = some_of(list(servers), _MAX_COMMANDS)
        lines.append(f"- Not restored: what was done elsewhere through the MCP tools {named}.")
    if files_note:
        lines.append(f"- {files_note}")
    if any(is_user_words(message) for message in carried):
        lines.append("- What the user said since then comes before this message.")
    if not all(is_user_words(message) for message in carried):
        lines.append(
            "- The messages that the user pinned come before this one too, unchanged: they are done already."
        )
    if shown:
        text = shortened("\n".join(shown), _MAX_SHOWN_CHARS)
        quoted_text = "\n".join(f"  > {line}" for line in text.split("\n"))
        lines.append(f"- The user has already read this from you; do not repeat it:\n{quoted_text}")
    return "\n".join(lines)


class NoDraft(SoulError):
    """The model wrote nothing."""


class EmptyDMail(SoulError):
    """The D-Mail has no text."""

    def __init__(self) -> None:
        super().__init__(
            "The D-Mail is empty.", advice="Write what the agent should know at that checkpoint."
        )


class DMailOff(SoulError):
    """The user's configuration turns D-Mails off."""

    def __init__(self) -> None:
        super().__init__("D-Mails are off: [dmail] enabled is false in the configuration.")


@dataclass(frozen=True, slots=True)
class UserDMails:
    """The user's own D-Mails in one session. No method may be called while a turn or operation is running."""

    conversation: Conversation
    operations: Operations
    delivery: DMailDelivery

    async def send(
        self,
        target: Target,
        text: str,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Go back to before a checkpoint and put the user's D-Mail there, with the files of that time or without.

        Raises:
            KeyError: no such checkpoint or world line.
            DMailOff: the configuration turns D-Mails off.
            EmptyDMail: the text is empty.
            FilesUnknown: the files of that time cannot be restored; nothing changed.
            StorageTrouble: the disk refused; nothing changed (for a target on another world line: that line is live now).
        """
        conversation = self.conversation
        if not conversation.limits.dmail.enabled:
            raise DMailOff
        if not text.strip():
            raise EmptyDMail
        before = conversation.meter.used
        # The previewed plan is carried out, even if another line becomes live first.
        plan = await self.operations.plan(target) if files == "restore" else None
        await self._jump_to_world_line(target)
        point = conversation.reachable(target.id)
        restore = NO_FILES
        if plan is not None:
            restore = restore_with(plan, await conversation.files.prepare(plan, chosen))
        sent = await self.delivery.deliver(point, [text], restore, author="person")
        return RewindOutcome(
            checkpoint_id=point.id,
            messages_dropped=sent.messages_dropped,
            tokens_before=before,
            tokens_after=conversation.meter.used,
            prompt="",
            files=sent.files,
        )

    async def _jump_to_world_line(self, target: Target) -> None:
        if not target.world_line:
            return
        index = await asyncio.to_thread(
            self.operations.session.world_lines.index, target.world_line
        )
        try:
            index.checkpoint(target.id)
        except UnknownCheckpoint:
            raise UnknownCheckpoint(
                f"World line {target.world_line} has no checkpoint #{target.id}."
            ) from None
        try:
            await self.operations.rewind(Target(END, target.world_line))
        except AlreadyThere:
            return

    # -- messages of other world lines -----------------------------------------------------------

    async def carry(self, world_line: int, uid: str, number: int, note: str) -> RewindOutcome:
        """Append one message of another world line to the live one, as a D-Mail.

        Raises:
            KeyError: no such world line, checkpoint or message.
            StorageTrouble: the disk refused; nothing changed.
        """
        source, text, images = await in_daemon_thread(self._message, world_line, uid, number)
        whole = "\n\n".join(part for part in (note.strip(), text) if part)
        conversation, before = self.conversation, self.conversation.meter.used
        known = conversation.known_tokens()
        async with journaled_append(conversation.context, "dmail", whole, known):
            point = await self._append(source, whole, images)
        conversation.publish_line_changed("dmail", 0, 0, point.uid)
        return RewindOutcome(point.id, 0, before, conversation.meter.used, "")

    async def _append(self, source: str, whole: str, images: Sequence[ImagePart]) -> Checkpoint:
        """Append a message to the live world line, published as a D-Mail that undoes nothing."""
        conversation = self.conversation
        before, newest = conversation.meter.used, conversation.context.n_checkpoints
        conversation.publish(
            ContextReverted(
                reason="dmail",
                checkpoint_id=newest,
                uid="",
                from_checkpoint=newest - 1,
                world_line=0,
                messages_dropped=0,
                tool_calls_dropped=0,
                tokens_before=before,
                tokens_after=before,
                text=whole,
                facts=source,
                author="person",
            )
        )
        point = await conversation.checkpoint("dmail", label_of(f"From {source}"))
        body = prompt("dmail_carried", SOURCE=source, TEXT=whole)
        await conversation.append([dmail_message(body, "person", images)])
        return point

    def _message(
        self, world_line: int, uid: str, number: int
    ) -> tuple[str, str, tuple[ImagePart, ...]]:
        """Return a name for a message, its text, and its images."""
        line = self.operations.session.world_lines.read(world_line)
        points = line.checkpoints
        place = next((i for i, point in enumerate(points) if uid in (point.uid, point.was)), None)
        if place is None:
            raise UnknownCheckpoint(f"World line {world_line} has no such checkpoint.")
        part = segments(line, place, place + 1)[0]
        if not 0 <= number < len(part.messages):
            raise UnknownCheckpoint(
                f"There is no such message at checkpoint #{part.point.id} of world line {world_line}."
            )
        message = part.messages[number]
        return (
            f"{_speaker(message)}, at checkpoint #{part.point.id} of world line {world_line}",
            _text(message),
            message.images,
        )

    # -- drafts ----------------------------------------------------------------------------------

    async def draft(self, target: Target) -> str:
        """Have the model write a D-Mail to a checkpoint about the part after it. Nothing of that is stored.

        Returns:
            the draft; empty if the call was stopped.

        Raises:
            KeyError: no such checkpoint or world line.
            LLMError: the model could not be asked.
            NoDraft: the model wrote nothing.
        """
        undone = await in_daemon_thread(self._undone, target)
        try:
            completion = await drafted(self.conversation, undone)
        except asyncio.CancelledError:
            return ""
        return completion.message.text.strip()

    def _undone(self, target: Target) -> Sequence[Message]:
        if not target.world_line:
            self.conversation.reachable(target.id)
        line = self.operations.session.world_line(target.world_line)
        return line.messages[line.index.checkpoint(target.id).message_index :]


def _question_of(back: BackToTheFuture) -> str:
    """Return the question whether D-Mails are sent; it names the rule that led to them."""
    if back.by_program:
        return f'Send this D-Mail to #{back.checkpoint_id}? It was drafted because of the rule "{back.rule}".'
    by = f', after a reminder by the rule "{back.rule}"' if back.rule else ""
    return f"Let the agent rewind to #{back.checkpoint_id} with this note (a D-Mail{by})?"


async def drafted(conversation: Conversation, undone: Sequence[Message]) -> Completion:
    """Have the model write a D-Mail about a part of a conversation. Its tokens are counted; nothing of it is stored.

    Raises:
        LLMError: the model could not be asked.
        NoDraft: the model wrote nothing.
        asyncio.CancelledError: the call was stopped.
    """
    async with conversation.model.call() as provider:
        window = provider.info.window
        free = window - conversation.limits.reserve(window)
        budget = round(free / conversation.meter.scale.factor)
        completion = await _ask_for_draft(conversation, provider, undone, budget)
    conversation.meter.add_usage(completion.usage)
    conversation.publish_status()
    if not completion.message.text.strip():
        raise NoDraft("The model wrote no D-Mail.", advice="Try again, or write it yourself.")
    return completion


async def _ask_for_draft(
    conversation: Conversation, provider: ChatProvider, undone: Sequence[Message], budget: int
) -> Completion:
    system, task = prompt("dmail_draft_system"), prompt("dmail_draft")
    room = budget - estimate(system) - estimate(task)
    for attempt in range(_DRAFT_TRIES):
        text = await in_daemon_thread(conversation_text, undone, max(500, room))
        question = Message(role="user", content=f"{text}\n\n---\n\n{task}")
        try:
            return await complete(
                conversation.model.ask(provider, system, (), (question,), patient=False)
            )
        except ContextOverflowError:
            if attempt == _DRAFT_TRIES - 1:
                raise
            room = int(min(room, estimate(text)) * _SMALLER_DRAFT)
    raise AssertionError  # the loop returns or raises


def _speaker(message: Message) -> str:
    if message.role == "tool":
        return "the result of a tool call"
    if dmail_text(message) is not None:
        return "a D-Mail"
    if summary_text(message) is not None:
        return "a summary"
    return "what the user said" if is_user_words(message) else "what the agent said"


def _text(message: Message) -> str:
    if message.role == "tool":
        text = outcome_of(message).output
    else:
        text = dmail_text(message) or summary_text(message) or words_with_images(message)
    # Calls without text, results without output, and messages that would fill the window again cannot be carried.
    if not text.strip() or message.tool_calls or len(text) > 4 * _MAX_CARRIED_TOKENS:
        return conversation_text([message], _MAX_CARRIED_TOKENS)
    return text
