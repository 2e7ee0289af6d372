"""Commands about futures: start several from a checkpoint, read one, set them side by side, and take over what one of them did."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kimi_tui.display_names import counted
from kimi_tui.tui.formatting import cut
from kimi_tui.tui.main.commands import rewind, subagents, world_lines
from kimi_tui.tui.main.commands.session import WAY_BACK, files_said
from kimi_tui.tui.prompt.command import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_tui.futures.values import FuturesPlan, Variant
    from kimi_tui.projection.blocks import Block
    from kimi_tui.projection.futures import FutureGroup
    from kimi_tui.projection.timeline_tree import CheckpointNode
    from kimi_tui.soul.rewind_values import Target
    from kimi_tui.tui.beside_view import BesideAction
    from kimi_tui.tui.futures.page import PageAnswer
    from kimi_tui.tui.main.commands import MainParts
    from kimi_tui.wire.events import FutureChanged

_USAGE = "For example: /futures, /futures 3, or with a message to the agent: /futures 3 Use a set instead of the list"
_NOT_YET = "It becomes a world line when the current turn ends."


async def futures(main: MainParts, argument: str) -> None:
    """Start futures from the end of the conversation (`N WORDS`); without an argument, show those there are side by side.

    After a turn that failed, and where no futures run, it offers to try the turn three ways.
    """
    head, _, rest = argument.strip().partition(" ")
    from kimi_tui.tui.futures.form import COUNTS

    count = number(head) if head else None
    if count is not None and count not in COUNTS:
        said = f"The number of futures must be from {COUNTS[0]} to {COUNTS[-1]}, not {count}."
        main.bench.tell(said, advice=_USAGE, level="warning")
        if rest.strip():
            main.bench.keep(f"/futures {argument.strip()}")
        return
    words = rest.strip() if count is not None else argument.strip()
    if argument.strip():
        await start(main, None, count or 3, words)
        return
    # A session that is still opening has not told its futures yet.
    await main.conversation.opened("travel")
    failed = _failed_turn(main)
    group = main.futures.group()
    if group is not None and (failed is None or _is_news(group, failed)):
        await show_page(main, group)
    else:
        await _start_others(main)


async def _start_others(main: MainParts) -> None:
    """Ask how futures are to begin: with the newest turn again if that failed, else at the end of the conversation."""
    failed = _failed_turn(main)
    if failed is None:
        await start(main, None, 3)
        return
    from kimi_tui.soul.rewind_values import Target

    title = f"Try it three ways, from #{failed.id}"
    await start(main, Target(failed.id), 3, title=title)


def _is_news(group: FutureGroup, failed: CheckpointNode) -> bool:
    """Return whether futures run, or have ended since a turn that failed began."""
    return not group.is_over or max(one.ended_at for one in group.futures) > failed.at


def _failed_turn(main: MainParts) -> CheckpointNode | None:
    """Return the message of the newest turn, if that failed and can be tried again; else None."""
    state, model = main.conversation.state, main.bench.views.timeline.model
    head = model.tree.head
    if state.running or head is None or head.state != "failed" or not state.can_resume:
        return None
    heading = model.rows.heading_of(head.index)
    if heading is None or not heading.is_heading or heading.uid.startswith("~"):
        return None
    return heading


async def start(
    main: MainParts,
    target: Target | None,
    count: int = 3,
    words: str = "",
    *,
    title: str = "",
) -> None:
    """Ask how futures are to begin at a checkpoint (None: at the end), and start them.

    Raises:
        KeyError: there is no such checkpoint; the text is for the user.
    """
    from kimi_tui.foreign_text import clean
    from kimi_tui.futures.values import NoFutures
    from kimi_tui.session.errors import StorageTrouble
    from kimi_tui.soul.rewind_values import END, Target
    from kimi_tui.tui.frame_rows import model_name
    from kimi_tui.tui.futures.dialog import FuturesDialog
    from kimi_tui.tui.futures.form import FuturesForm
    from kimi_tui.tui.main.image_input import ImageInput

    conversation = main.conversation
    await conversation.opened("travel")
    target = target or Target(END)
    where = "here" if target.is_end else rewind.name_of(main, target)
    model = conversation.state.model
    known = conversation.launch.config.models
    others = [
        name
        for name in conversation.values.models
        if model is None or name not in known or known[name].model != model.name
    ]
    form = FuturesForm(target, ("", *others), main.futures.currency, count=count)
    form.messages[0] = words
    point = main.bench.views.live_point(target.id) if not target.world_line else None
    dialog = FuturesDialog(
        form,
        main.futures.estimate,
        title=title or f"Futures from {where}",
        model=model_name(model.name) if model is not None else "",
        has_message=not target.is_end and (point is None or point.is_heading),
        images=main.bench.images,
        reads=partial(ImageInput, main.bench),
    )
    main.futures.dialog = dialog if target.is_end and not target.world_line else None
    try:
        plan = await main.bench.ask(dialog)
    finally:
        main.futures.dialog = None
    if plan is None:
        if words:
            main.bench.keep(f"/futures {count} {words}")
        return
    engine = await main.futures.engine()
    try:
        whole = await _with_images(main, plan)
        if whole is None:
            main.bench.keep(f"/futures {len(plan.variants)} {plan.variants[0].message}")
            return
        await engine.start(whole)
    except (NoFutures, StorageTrouble) as no:
        main.bench.tell(clean(str(no)), level="warning")
        if words := plan.variants[0].message:
            main.bench.keep(f"/futures {len(plan.variants)} {words}")
        return
    main.bench.tell(
        f"{counted(len(plan.variants), 'future')} started; the timeline shows them.",
        advice="/futures shows them side by side.",
    )


async def _with_images(main: MainParts, plan: FuturesPlan) -> FuturesPlan | None:
    """Return a plan with the images of the chips in its messages; None if one is missing, after a notice about it.

    Raises:
        StorageTrouble: the disk refused.
    """
    variants: list[Variant] = []
    for one in plan.variants:
        images = await main.conversation.store_images(one.message)
        if images is None:
            return None
        variants.append(one._replace(images=images))
    return replace(plan, variants=tuple(variants))


async def open_future(main: MainParts, key: str) -> None:
    """Show a future in place of the chat, or its world line once it is one."""
    state = main.futures.state(key)
    if state is not None and state.world_line:
        await world_lines.open_line(main, state.world_line)
        return
    from kimi_tui.futures.values import NoFutures

    main.viewer.leave()
    try:
        await main.futures.open(key)
    except NoFutures as no:
        main.bench.tell(str(no), level="warning")


async def open_agent(main: MainParts, name: str) -> None:
    """Show a sub-agent of the future on view in place of the chat; one of the session, as in the past of the future, as usual."""
    if not await main.futures.open_agent(name):
        await subagents.open_agent(main, name)


async def act(main: MainParts, action: BesideAction) -> None:
    """Carry out a key of the future on view, or of its sub-agent."""
    if action == "answer":
        main.bench.focus_question()
        return
    if (agent := main.futures.agent_view) is not None:
        if action == "message":
            await steer(main, agent.future)
        else:
            await open_future(main, agent.future)
        return
    view = main.futures.view
    state = main.futures.state(view.key) if view is not None else None
    if view is None or state is None:
        return
    match action:
        case "message":
            await steer(main, view.key)
        case "stop":
            await stop(main, view.key)
        case "page":
            group = main.futures.group(view.key)
            if group is not None:
                await show_page(main, group, view.key)
        case _:
            main.beside.leave(back=True)


async def stop(main: MainParts, key: str) -> None:
    """Stop a future; its finished steps are kept."""
    state = main.futures.state(key)
    if state is None or state.is_over:
        main.bench.tell("This future has ended already.")
        return
    engine = await main.futures.engine()
    main.bench.tell(f"Stopping future {state.number}. Its finished steps are kept.")
    await engine.stop(key)


async def steer(main: MainParts, key: str, words: str = "") -> None:
    """Write a message to a future, which it reads before its next step."""
    from kimi_tui.projection.futures import future_name
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    state = main.futures.state(key)
    if state is None or state.is_over:
        main.bench.tell("This future has ended, so it cannot get messages.")
        if words:
            main.bench.keep(words)
        return
    question = TextQuestion(
        title=f"Message to future {state.number}",
        question=future_name(state),
        consequence="Only this future gets your message, before its next step.",
        text=words,
        placeholder="Type to steer this future",
        verb="send",
    )
    text = await main.bench.ask(TextDialog(question))
    if not text:
        return
    state = main.futures.state(key)
    if state is None or state.is_over:
        main.bench.tell(
            "This future ended before you sent the message. Your message was not sent; it is in the prompt."
        )
        main.bench.keep(text)
        return
    engine = await main.futures.engine()
    engine.steer(key, text)
    main.bench.tell(f"Future {state.number} will read your message before its next step.")


# --- the page


async def show_page(main: MainParts, group: FutureGroup, chosen: str = "") -> None:
    """Set futures side by side, then carry out what is chosen there."""
    from kimi_tui.tui.frame_rows import READ_ONLY
    from kimi_tui.tui.futures.page import FuturesPage

    engine = await main.futures.engine()
    first = group.futures[0]
    where = "" if first.checkpoint_id < 0 else f" from #{first.checkpoint_id}"
    page = FuturesPage(
        await main.futures.shown(group),
        main.bench.header.heading._replace(words=READ_ONLY),
        title=f"{counted(len(group.futures), 'future')}{where}",
        currency=main.futures.currency,
        stop=engine.stop,
        opinion=partial(engine.opinion, [one.key for one in group.futures]),
        load_image=main.conversation.load_image,
        write=main.keystrokes.write_to_prompt,
        chosen=chosen,
    )
    main.futures.begin_page(page, group)
    try:
        answer = await main.bench.ask(page)
    finally:
        main.futures.end_page()
    state = main.futures.state(answer.key) if answer is not None else None
    if answer is not None and state is not None:
        await _carry_out(main, answer, state)


async def _carry_out(main: MainParts, answer: PageAnswer, one: FutureChanged) -> None:
    if answer.action == "read":
        await open_future(main, one.key)
        return
    if answer.action == "new":
        await _start_others(main)
        return
    if answer.action == "prune":
        await _prune(main, one)
        return
    from kimi_tui.foreign_text import one_line

    if not one.world_line:
        words = one_line(one.why) or (_NOT_YET if one.step else "It has no steps.")
        main.bench.tell(f"Future {one.number} is not a world line (a branch) yet.", advice=words)
        return
    if answer.action == "current":
        main.beside.leave()
        await make_current(main, one)
    elif answer.action == "file":
        await _take_file(main, one, answer.path)
    else:
        soul = await main.conversation.opened("dmails")
        main.beside.leave()
        await world_lines.send_to_now(
            main, soul, one.world_line, await _messages(main, one), answer.block
        )


async def _messages(main: MainParts, one: FutureChanged) -> Sequence[Block]:
    group = main.futures.group(one.key)
    return (await main.futures.shown(group)).blocks[one.key] if group is not None else ()


async def make_current(main: MainParts, one: FutureChanged) -> None:
    """Preview the switch to a future with its files, and carry it out."""
    from kimi_tui.soul.rewind_values import END, Target
    from kimi_tui.tui.preview.layout import BOTH

    await rewind.preview(main, Target(END, one.world_line), first=BOTH.name)


async def _take_file(main: MainParts, one: FutureChanged, path: str) -> None:
    """Bring one file as a future left it, after the preview of what that changes."""
    from dataclasses import replace

    from kimi_tui.foreign_text import shown_name
    from kimi_tui.soul.rewind_values import END, Target
    from kimi_tui.tui.preview.layout import BRING, PreviewAction
    from kimi_tui.tui.preview.screen import RewindScreen

    soul = await main.conversation.opened("travel")
    target = Target(END, one.world_line)
    found = await soul.travel.preview(target)
    files = found.files
    mine = [each for each in files.files if each.path == path] if files is not None else []
    if files is None or not mine:
        words = files.reason if files is not None else ""
        where = "is already the same in your work folder and in"
        main.bench.tell(
            f"{shown_name(path)} {'cannot be copied from' if words else where} future {one.number}.",
            advice=words,
        )
        return
    leave = PreviewAction("r", "leave", "Leave the file as it is", verb="leave")
    bring = replace(BRING, title=f"Take {shown_name(path)} over", verb="take over")
    question = RewindScreen(
        replace(
            found,
            files=replace(files, files=tuple(mine), not_covered=(), remarks=()),
            # The conversation stays as it is.
            steps=0,
            turns=0,
            messages=0,
            dropped=(),
            is_there=True,
            tokens_after=found.tokens_before,
            label=f"{shown_name(path)} as future {one.number} left it.",
        ),
        actions=(leave, bring),
        title=f"A file of future {one.number}",
        write=main.keystrokes.write_to_prompt,
        typed_at=main.keystrokes.written_at,
        first=BRING.name,
    )
    answer = await main.bench.ask_of_line(question)
    if answer is None or answer.files != "only":
        return
    outcome = await soul.travel.rewind(target, "only", frozenset({path}))
    main.bench.tell(files_said(outcome.files), advice=WAY_BACK)


async def _prune(main: MainParts, one: FutureChanged) -> None:
    """Delete a future with its world line, after a question."""
    if one.step and not one.world_line and main.conversation.state.running:
        # The end of the turn would bring it back as a world line.
        main.bench.tell(
            f"Future {one.number} cannot be deleted while the agent works.",
            advice="Try again when the turn has ended.",
        )
        return
    from kimi_tui.projection.futures import future_name
    from kimi_tui.tui.dialogs.list_screen import ListedItem, ListScreen
    from kimi_tui.tui.pick_list import Entry

    items = [
        ListedItem(Entry("Keep it"), verb="keep it", result="no"),
        ListedItem(
            Entry(f"Delete future {one.number}"),
            "Its messages and sub-agents are deleted, and you can then no longer switch to it. This cannot be undone.",
            verb="delete it",
            result="yes",
        ),
    ]

    async def same() -> list[ListedItem]:
        return items

    title = f"Delete future {one.number}: {cut(future_name(one), 40)}"
    if await main.bench.ask(ListScreen(title, same, first=items, empty="")) != "yes":
        # The question was asked on the page, so the next keys are meant for the page.
        if (group := main.futures.group(one.key)) is not None:
            await show_page(main, group, one.key)
        return
    engine = await main.futures.engine()
    await engine.prune([one.key])
    main.bench.tell(f"Future {one.number} was deleted.")
