"""Commands about the session: usage, model, mode and permissions, background tasks, undo and redo, export, other sessions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_tui.agent_parts import MODE_TITLES, unasked_words
from kimi_tui.app_paths import reason_of
from kimi_tui.tui.formatting import NAME_WIDTH, cut
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.screens import ModelChosen, app_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_tui.soul.approval import Mode
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.request_form import ToolsWish
    from kimi_tui.soul.rewind_values import FileOutcome, RewindPreview, Target
    from kimi_tui.tools.jobs import Job
    from kimi_tui.tui.main.commands import MainParts
    from kimi_tui.tui.preview.layout import PreviewAnswer


WAY_BACK = "To undo this, type /undo, or press u in the timeline."
MODES: dict[str, Mode] = {mode: mode for mode in MODE_TITLES}
TASKS_USE = "/tasks output N shows the output of task N, /tasks stop N stops the task."
_OUTPUT_ROWS = 500
_PAGES = ("html", "cast")
"""The forms of an export that show the session as it went, by their endings."""


def usage(main: MainParts, argument: str) -> None:
    """Show the tokens in the window and the cost of the session."""
    from kimi_tui.tui.formatting import percent, tokens

    used = main.conversation.state.usage
    if used is None:
        main.bench.tell("No tokens have been used yet.")
        return
    cost = main.conversation.cost_words()
    size = f" of {tokens(used.limit)} tokens, {percent(used.used, used.limit)}"
    trigger = f"; it is compacted at {tokens(used.trigger)}" if used.trigger else ""
    main.bench.tell(
        f"Context: {tokens(used.used, estimated=used.estimated)}{size if used.limit else ' tokens'}{trigger}",
        advice=(
            f"Session: {tokens(used.total_input)} input tokens ({tokens(used.total_cached)} cached), "
            f"{tokens(used.total_output)} output tokens"
            f"{f'; {cost}' if cost else ''}."
        ),
    )


async def stats(main: MainParts, argument: str) -> None:
    """Show the statistics and the cost of the session."""
    soul = await main.conversation.opened()
    figures = await soul.statistics()
    if not figures.turns and not figures.steps:
        main.bench.tell("The session has no turns yet.")
        return
    from kimi_tui.tui.dialogs.text_screen import figures_screen
    from kimi_tui.tui.formatting import statistics_pairs

    title = main.conversation.state.title
    await main.bench.ask(figures_screen("Statistics", title, statistics_pairs(figures)))


async def context(main: MainParts, argument: str) -> None:
    """Show the contents of the window, part by part."""
    soul = await main.conversation.opened()
    parts, status = await soul.window_parts(), soul.status
    from kimi_tui.tui.dialogs.text_screen import figures_screen
    from kimi_tui.tui.formatting import percent, tokens, window_pairs

    title = (
        f"{tokens(status.used, estimated=status.estimated)} of {tokens(status.limit)} tokens, "
        f"{percent(status.used, status.limit)}; compacted at {tokens(status.trigger)}"
    )
    await main.bench.ask(figures_screen("Context", title, window_pairs(parts)))


async def replay(main: MainParts, argument: str) -> None:
    """Play the session back; it can be continued from one of its steps, in a session of its own."""
    soul = await main.conversation.opened()
    await soul.flush()
    from kimi_tui.tui.replay.screen import ReplayScreen

    launch, size = main.conversation.launch, app_of(main.bench.screen).size
    page = ReplayScreen(launch, size, soul.session, write=main.keystrokes.write_to_prompt)
    forked = await main.bench.ask(page)
    if forked is not None:
        main.bench.leave_for(forked._replace(in_demo=main.conversation.demo, plays=False))


# --- its model


def model(main: MainParts, argument: str) -> None:
    """Use another model, by name or from a list."""
    app_of(main.bench.screen).post_message(ModelChosen(argument, *main.conversation.thinking))


async def thinking(main: MainParts, argument: str) -> None:
    """Set whether and how much the model thinks from the next call on; without a word, show the current setting."""
    await main.conversation.set_thinking(argument)


async def tools(main: MainParts, argument: str) -> None:
    """List the tools, or give the model all of them, few, additional ones, or none."""
    soul = await main.conversation.opened()
    word, *names = argument.split()[:20] or [""]
    if word == "add" and names:
        await _add_tools(main, soul, names)
        return
    if word not in _TOOLS_TOLD or names:
        main.bench.tell(
            f'"{argument[:40]}" is not a setting of /tools. Use on, lean, off or add NAME.',
            level="warning",
            advice=f"Tools: {', '.join(soul.tools)}.",
        )
        return
    if not word:
        told = {
            "on": "All tools are on",
            "lean": "A few tools are on, with short descriptions",
            "off": "Tools are off",
        }[soul.tools_form]
        sent = ", ".join(soul.sent_tools or soul.tools)
        advice = "/tools on, lean, off or add NAME changes them."
        main.bench.tell(f"{told}: {sent}.", advice=advice)
        return
    told, advice = _TOOLS_TOLD[word]
    main.bench.tell(told, advice=advice)
    await main.conversation.use_tools(word)


_TOOLS_TOLD: dict[ToolsWish, tuple[str, str]] = {
    "": ("", ""),
    "on": (
        "The model gets all tools from the next request on.",
        "The server cannot use its cache for that request, so it costs more.",
    ),
    "lean": (
        "The model gets a short system prompt and a few tools from the next request on.",
        "/tools add NAME adds a tool. The agent cannot send D-Mails then, but you can.",
    ),
    "off": (
        "The model gets no tools from the next request on.",
        "It can neither read files nor run commands. /tools on turns the tools on.",
    ),
}
"""The sentence about each choice, and the advice beside it."""


async def _add_tools(main: MainParts, soul: KimiSoul, names: Sequence[str]) -> None:
    """Add tools to the few of the lean form."""
    known = {name.lower(): name for name in soul.tools}
    unknown = [name for name in names if name.lower() not in known]
    if unknown:
        main.bench.tell(
            f'"{unknown[0][:40]}" is not a tool.',
            level="warning",
            advice=f"Tools: {', '.join(soul.tools)}.",
        )
        return
    if soul.tools_form == "on":
        main.bench.tell("All tools are already on.")
        return
    before = soul.sent_tools
    added = tuple(dict.fromkeys([*before, *(known[name.lower()] for name in names)]))
    await main.conversation.use_tools("lean", added)
    main.bench.tell(
        f"The model gets these tools from the next request on: {', '.join(soul.sent_tools)}.",
        advice="The server cannot use its cache for that request, so it costs more.",
    )


async def window(main: MainParts, argument: str) -> None:
    """Have Ollama make a copy of the model in use with a larger window, and use it; with another server say how to get one."""
    from kimi_tui.llm.errors import LLMError

    conversation = main.conversation
    soul = await conversation.opened()
    info = await soul.model_info()
    if info is None:
        main.bench.tell("No model is configured.", advice="Choose one with /model.")
        return
    if not info.enlarged:
        size = f"The context window of {info.model} is {info.window:,} tokens."
        main.bench.tell(
            size, advice=info.larger or "The server or your configuration sets its size."
        )
        return
    topic = "window"
    main.bench.tell(
        f"Ollama is making a copy of {info.model} with a context window of {info.enlarged:,} tokens.",
        advice="The copy needs more memory, and the first answer waits until it is loaded.",
        topic=topic,
    )
    try:
        name = await soul.enlarge_window()
    except LLMError as error:
        main.bench.tell(error.message, level="warning", advice=error.advice)
        return
    finally:
        main.bench.chat_pane.dismiss(topic)
    app_of(main.bench.screen).post_message(ModelChosen(name, *conversation.thinking))


async def mode(main: MainParts, argument: str) -> None:
    """Set the approval mode by name; without one, the next mode.

    The next mode cycles through asking, accepting edits and, with a sandbox, accepting sandboxed commands. The mode that
    allows everything is part of the cycle only if the program was started in it, or if it was set by name in this session.
    """
    from kimi_tui.tools.sandbox.policy import NoSandbox

    if argument and argument not in MODES:
        main.bench.tell(
            f'"{argument[:20]}" is not a mode. Use one of {", ".join(MODES)}.', level="warning"
        )
        return
    conversation = main.conversation
    soul = await conversation.opened()
    # If the next mode is requested twice before the session is open, the second time means the mode after the next.
    chosen = MODES.get(argument) or conversation.next_mode
    conversation.allows_all |= argument == "all"
    try:
        await soul.set_mode(chosen)
    except NoSandbox as no:
        main.bench.tell(str(no), level="warning")
        return
    advice = ""
    if conversation.state.approvals:
        advice = "The question on the screen still needs your answer."
    elif chosen == "all" and soul.sandbox_gaps is None:
        advice = "There is no sandbox, so commands run with all your permissions."
    elif chosen == "sandboxed" and soul.sandbox_gaps:
        advice = f"On this machine {'; '.join(soul.sandbox_gaps)}."
    elif (
        chosen == "plan"
        and "tasks" in conversation.state.parts
        and any(not job.ended for job in soul.tasks.all)
    ):
        advice = "Background tasks keep running and can change files; /tasks lists them."
    has_sandbox = soul.sandbox_gaps is not None
    main.bench.tell(unasked_words(chosen, sandbox=has_sandbox), advice=advice)


async def plan(main: MainParts, argument: str) -> None:
    """Turn plan mode on or off (which is the mode that asks); without an argument, toggle it."""
    if argument not in ("", "on", "off"):
        main.bench.tell(
            f'"{argument[:20]}" is not a setting of /plan. Use on or off.', level="warning"
        )
        return
    is_on = main.conversation.mode == "plan"
    wanted = argument == "on" if argument else not is_on
    if wanted != is_on:
        await mode(main, "plan" if wanted else "ask")


_BACKENDS = {
    "full": "namespaces and Landlock",
    "bwrap": "bubblewrap",
    "landlock": "Landlock only",
    "macos": "sandbox-exec",
}


async def sandbox(main: MainParts, argument: str) -> None:
    """Show the state of the sandbox for commands; with `reset`, delete their copies of package caches."""
    from kimi_tui.app_paths import short
    from kimi_tui.foreign_text import one_line
    from kimi_tui.tools.sandbox.policy import NoSandbox
    from kimi_tui.tools.text import format_size

    soul = await main.conversation.opened()
    if argument not in ("", "reset"):
        main.bench.tell(
            f'"{argument[:20]}" is not an argument of /sandbox.',
            advice="/sandbox shows the sandbox; /sandbox reset deletes the commands' copies of package caches.",
            level="warning",
        )
        return
    try:
        if argument:
            gone = await soul.reset_sandbox()
            text = f"Deleted the commands' copies of package caches ({format_size(gone.n_bytes)} freed)."
            if gone.is_used:
                text = f"Deleted {format_size(gone.n_bytes)} of the commands' copies of package caches. A running command still uses the rest."
            main.bench.tell(text)
            return
        state = await soul.sandbox_state()
    except NoSandbox as no:
        main.bench.tell(one_line(str(no)), level="warning")
        return
    except OSError as error:
        main.bench.tell(
            f"The commands' copies of package caches could not be deleted: {reason_of(error)}.",
            level="error",
        )
        return
    more = "".join(f", {one_line(short(Path(path)))}" for path in state.writable[1:])
    main.bench.tell(
        f"Commands can write to the work folder{more}, temporary files and private copies of package caches "
        f"({format_size(state.n_bytes)}); the network is {'on' if state.network else 'off'}.",
        advice=f"/sandbox reset deletes the private copies. The sandbox uses {_BACKENDS[state.backend]}.",
    )


# --- turns and operations


def stop(main: MainParts, argument: str) -> None:
    """Stop the running turn or operation."""
    main.conversation.stop()


async def resume(main: MainParts, argument: str) -> None:
    """Let the agent continue without a new message."""
    if main.conversation.state.running:
        main.bench.tell_working()
        return
    soul = await main.conversation.opened()
    from kimi_tui.soul.kimisoul import TURN_ERRORS

    with contextlib.suppress(*TURN_ERRORS):
        await soul.resume()


async def clear(main: MainParts, argument: str) -> None:
    """Start anew in this session."""
    soul = await main.conversation.opened("travel")
    main.bench.tell(await soul.travel.clear(), advice=WAY_BACK)


async def tasks(main: MainParts, argument: str) -> None:
    """List the jobs, stop one, or show its last output."""
    soul = await main.conversation.opened("tasks")
    verb, _, number = argument.partition(" ")
    if verb not in ("", "stop", "output") or bool(verb) != number.strip().isdecimal():
        main.bench.tell(
            f'"{argument[:20]}" is not an argument of /tasks. Use stop N or output N.',
            level="warning",
        )
        return
    if not soul.tasks.all:
        main.bench.tell("There are no background tasks in this session.")
        return
    from kimi_tui.tui.dialogs.text_screen import figures_screen

    if not verb:
        pairs = [(str(job.id), _job_words(job)) for job in soul.tasks.all]
        await main.bench.ask(figures_screen("Background tasks", TASKS_USE, pairs))
        return
    job = next((one for one in soul.tasks.all if one.id == int(number[:9])), None)
    if job is None:
        main.bench.tell(
            f"There is no background task {number[:9]}. /tasks lists them.", level="warning"
        )
    elif verb == "output":
        rows = job.tail.text.rstrip("\n").split("\n")[-_OUTPUT_ROWS:]
        await main.bench.ask(
            figures_screen(
                f"Background task {job.id}", _job_words(job), [("", row) for row in rows]
            )
        )
    elif job.ended:
        main.bench.tell(f"Background task {job.id} has already ended.")
    else:
        await soul.tasks.stop(job.id)


async def background(main: MainParts, argument: str) -> None:
    """Let the agent continue while the command for which it waits runs in the background."""
    soul = await main.conversation.opened("tasks")
    if not soul.tasks.move_to_background():
        main.bench.tell("There is no running command to move to the background.")


def _job_words(job: Job) -> str:
    from kimi_tui.foreign_text import one_line
    from kimi_tui.tui.formatting import duration

    outcome = job.outcome
    state = "running for" if outcome is None else f"{outcome.brief} after"
    return f"{state} {duration(job.ran_s)}: {one_line(job.command)}"


async def undo(main: MainParts, argument: str) -> None:
    """Undo the newest operation; if the conversation has continued since, ask first, showing the part that would be dropped."""
    soul = await main.conversation.opened("travel")
    # A running operation changes what is undone next.
    await soul.settled()
    found = None if soul.running else await soul.travel.preview_undo()
    name = main.bench.views.timeline.model.name_from(found.left_from) if found is not None else ""
    name = cut(name, NAME_WIDTH)
    if found is None or await _pays_toll(main, found, name):
        main.bench.tell_reversal(await soul.travel.undo(name))


async def _pays_toll(main: MainParts, found: RewindPreview, name: str) -> bool:
    """Ask whether to undo an operation although the conversation continued since.

    Args:
        main: the main screen.
        found: the preview of the undo.
        name: the name that the world line of the later part will have.

    Returns:
        whether to undo; True without asking if nothing happened since.
    """
    from dataclasses import replace

    from kimi_tui.foreign_text import shown_name
    from kimi_tui.wire.events import LeftBehind, toll_words

    stays = tuple(
        shown_name(one.path)
        for one in (found.files.files if found.files else ())
        if one.fate == "skip"
    )
    toll = toll_words(LeftBehind(found.steps, found.messages, stays, name), found.left_as)
    if not toll:
        return True
    from kimi_tui.tui.preview.layout import UNDO
    from kimi_tui.tui.preview.screen import RewindScreen

    title = f"Undo {found.label}"
    question = RewindScreen(
        replace(found, label=f"{toll}."),
        actions=(UNDO,),
        title=title,
        line_name=name,
        write=main.keystrokes.write_to_prompt,
        typed_at=main.keystrokes.written_at,
    )
    return await main.bench.ask_of_line(question) is not None


async def redo(main: MainParts, argument: str) -> None:
    """Redo the operation that was undone."""
    soul = await main.conversation.opened("travel")
    await soul.settled()
    main.bench.tell_reversal(await soul.travel.redo())


# --- this session and others


async def rename(main: MainParts, argument: str) -> None:
    """Set the session's title; without one, ask for it. An empty title means the beginning of the first message."""
    if not argument:
        from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

        question = TextQuestion(
            title="Rename the session",
            question="What should this session be called?",
            consequence="The list of sessions and the window title show it.",
            text=main.conversation.state.title,
            placeholder="If empty, your first message is the title",
            verb="rename",
            may_be_empty=True,
            low=True,
        )
        answer = await main.bench.ask(TextDialog(question))
        if answer is None:
            return
        argument = answer.strip()
    title = await main.conversation.rename(argument)
    main.bench.tell(
        f"This session is now called {title}." if title else "This session has no title yet."
    )


async def fork_at(main: MainParts, soul: KimiSoul, target: Target, answer: PreviewAnswer) -> None:
    """Fork the session before a checkpoint, or at the end of a line, and continue in the fork."""
    with main.bench.leaving():
        made = await soul.travel.fork(target, answer.files, answer.chosen)
        back = f" {files_said(made.files)}" if answer.files != "keep" else ""
        prompt = main.bench.images.with_chips(made.prompt, made.images)
        main.bench.leave_for(main.conversation.fork_launch(made.session_id, prompt, back))


async def export(main: MainParts, argument: str) -> None:
    """Write the conversation into a new file, by its ending as Markdown, as a page (html) or as a recording (cast).

    Without a name the file is in the work folder: with the session's id, or the title of a page.
    """
    from kimi_tui.app_paths import expanded, short
    from kimi_tui.soul.rewind_values import END, Target

    name = argument.strip()
    form = Path(f"x.{name}" if name in _PAGES else name).suffix.lower().removeprefix(".")
    if form in _PAGES:
        await _export_page(main, form, "" if name == form else str(expanded(name)))
        return
    soul = await main.conversation.opened("lines")
    text = await soul.lines.markdown(Target(END))
    # A stripped copy of a long conversation would take as long as a frame.
    if not text or text.isspace():
        main.bench.tell("There is nothing to export yet.")
        return
    folder = Path(main.bench.transcript.work_dir)
    path = folder / expanded(argument.strip())

    def named(file: Path) -> str:
        return str(file.relative_to(folder)) if file.is_relative_to(folder) else short(file)

    try:
        made = await asyncio.to_thread(
            _write_new, path, f"conversation-{soul.session.id[:8]}", text
        )
    except FileExistsError:
        advice = "Files are not overwritten. Use /export with another name."
        main.bench.tell(f"{named(path)} already exists.", level="warning", advice=advice)
    except OSError as error:
        why = reason_of(error, named_in_text=path)
        main.bench.tell(
            f"The conversation was not exported to {named(path)}: {why}.", level="warning"
        )
    else:
        main.bench.tell(f"Exported the conversation to {named(made)}.")


async def _export_page(main: MainParts, form: str, name: str) -> None:
    """Have `kimi-tui export` write the page: making it takes a second of computing, which would delay keys here.

    It runs in the work folder, whose modules must not be found before those of the program.
    """
    soul = await main.conversation.opened()
    await soul.flush()
    command = [sys.executable, "-P", "-m", "kimi_tui", "export", f"--{form}", soul.session.id]
    process = await asyncio.create_subprocess_exec(
        *command,
        *((f"--output={name}",) if name else ()),
        cwd=main.bench.transcript.work_dir,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    said = (out or err).decode("utf-8", "replace").strip().removeprefix("kimi-tui: ")
    level = "info" if process.returncode == 0 else "warning"
    main.bench.tell(said or "The conversation was not exported.", level=level)


def _write_new(path: Path, name: str, text: str) -> Path:
    """Write a text into a new file: the named one, or one with that name in the named folder; return its path.

    Raises:
        FileExistsError: the file exists.
        OSError: the disk refused; nothing is left behind.
    """
    from kimi_tui.filesystem import Storage
    from kimi_tui.foreign_text import clean_source

    if path.is_dir():
        numbers = itertools.chain(("",), (f"-{n}" for n in itertools.count(2)))
        files = (path / f"{name}{number}.md" for number in numbers)
        path = next(one for one in files if not os.path.lexists(one))
    Storage().write_new(path, clean_source(text).encode("utf-8", "replace"))
    return path


def init(main: MainParts, argument: str) -> None:
    """Have the agent write notes for agents about the folder."""
    from kimi_tui.prompts import prompt

    main.conversation.say(prompt("init"))


async def sessions(main: MainParts, argument: str) -> None:
    """Open the sessions screen, with an argument as its search."""
    soul = await main.conversation.opened()
    from kimi_tui.tui.sessions.screen import SessionsScreen

    launch = await main.bench.ask(
        SessionsScreen(
            main.conversation.new_launch()._replace(in_demo=main.conversation.demo, plays=False),
            soul.session.dir.parents[2],
            soul.session.id,
            main.conversation.rename,
            argument,
        )
    )
    if launch is not None:
        main.bench.leave_for(launch)


def new(main: MainParts, argument: str) -> None:
    """Leave this session and begin another."""
    main.bench.leave_for(main.conversation.new_launch())


def files_said(files: Sequence[FileOutcome]) -> str:
    """Return the outcome of restoring files, for a notice."""
    from kimi_tui.projection.transcript import files_words

    alone = [one.path for one in files if one.reason]
    deleted = [one.path for one in files if one.fate == "delete" and not one.reason]
    back = [one.path for one in files if one.fate != "delete" and not one.reason]
    return f"{files_words(back, deleted, alone)}."


def tell_no_checkpoint(main: MainParts, text: str, command: str) -> None:
    """Show a notice that a text names no checkpoint.

    Args:
        main: the main screen.
        text: the text instead of a number; empty for none.
        command: the form of the command, such as `/rewind 5`.
    """
    _tell_no_number(main, text, "checkpoint", command)


def tell_no_line(main: MainParts, text: str, command: str) -> None:
    """Show a notice that a text names no world line, or that there is none yet; the arguments are those of a checkpoint."""
    if not text and not main.bench.views.timeline.model.tree.lines:
        words = "There is no other world line (a branch of the conversation) yet."
        main.bench.tell(words, advice="A rewind or a D-Mail creates one.")
        return
    several = len(lines_named(main, text))
    said = f'"{text[:20]}" is the name of {several} world lines.' if several > 1 else ""
    _tell_no_number(main, text, "world line", command, said)


def lines_named(main: MainParts, name: str) -> list[int]:
    """Return the numbers of the world lines that the timeline shows with a name, in any case of letters."""
    model, folded = main.bench.views.timeline.model, name.strip().casefold()
    return [n for n in model.tree.lines if folded and model.line_name(n).casefold() == folded]


def _tell_no_number(main: MainParts, text: str, what: str, command: str, said: str = "") -> None:
    missing = f"The number of a {what} is missing."
    said = said or (f'"{text[:20]}" is not a {what}.' if text else missing)
    key = key_of("timeline", main.bench.keys)
    where = f"the timeline ({key})" if key else "the timeline"
    advice = f"Use a number from {where}, for example {command}."
    main.bench.tell(said, level="warning", advice=advice)
