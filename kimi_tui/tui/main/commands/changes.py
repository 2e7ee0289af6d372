"""Commands about what changed in the work folder: `/diff` shows it, `/review` has it reviewed, `/commit` commits it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from kimi_tui.foreign_text import clean, clean_source, one_line
from kimi_tui.tui.formatting import author_words

if TYPE_CHECKING:
    from pathlib import Path

    from kimi_tui.soul.blame import LineAuthor
    from kimi_tui.soul.changes import NamedChanges
    from kimi_tui.soul.git_changes import GitChanges
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.patches import PointRange
    from kimi_tui.tool_cards import DiffLine
    from kimi_tui.tui.main.commands import MainParts
    from kimi_tui.workspace.diff import FileDifference

_PLAIN = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./+-]*", re.ASCII)
_MOST_NAMED = 200
_LONGEST_COMMAND = 90_000
_LONGEST_PATCH = 1 << 20
"""The most bytes of a patch that go to the clipboard."""


async def diff(main: MainParts, argument: str) -> None:
    """Show the changes since the session began, since a checkpoint, or between two."""
    soul = await main.conversation.opened()
    await soul.files_ready()
    from kimi_tui.soul.patches import parse_range

    try:
        span = parse_range(argument)
    except ValueError as error:
        main.bench.tell(
            str(error),
            advice="Use numbers from the timeline, for example /diff 5 or /diff 5..9.",
            level="warning",
        )
        return
    try:
        if span.start is None:
            found = await soul.changes.of_session()
        else:
            found = await soul.changes.between(span.start, span.end)
    except KeyError as error:
        main.bench.tell(str(error.args[0]), level="warning")
        return
    await _show(main, "Changes", found, span=span)


_MOST_BLAMED = 20_000
"""The most lines that the list shows; of a longer file a part can be named."""


async def blame(main: MainParts, argument: str, *, of: str = "") -> None:
    """Show the lines of a file with who wrote them; the chosen one leads to its checkpoint.

    Args:
        main: the main screen.
        argument: the file, with the lines to show.
        of: the uid of a checkpoint; if lines of its step are left, only those from the first to the last of them are shown.
    """
    from kimi_tui.soul.blame import NoBlame, file_and_lines
    from kimi_tui.tui.dialogs.list_screen import ListedItem, ListScreen
    from kimi_tui.tui.pick_list import Entry

    try:
        name, first, last = file_and_lines(argument.strip())
    except ValueError as error:
        main.bench.tell(f"{error}.", level="warning")
        return
    if not name:
        main.bench.tell(
            "This command needs the path of a file.",
            advice="For example: /blame app.py:10-20",
            level="warning",
        )
        return
    soul = await main.conversation.opened()
    await soul.files_ready()
    await soul.flush()
    try:
        path = _below(soul.session.work_dir, name)
        lines = await soul.changes.blame(soul.session, path)
    except NoBlame as no:
        main.bench.tell(str(no), level="warning")
        return
    own = [number for number, line in enumerate(lines, 1) if of and line.author.uid == of]
    if own:
        first, last = own[0], own[-1]
    shown = list(enumerate(lines, 1))[max(0, first - 1) : last or None]
    if not shown:
        main.bench.tell(f'"{path}" has no such lines.', level="warning")
        return
    now = datetime.now(UTC)
    items = [
        ListedItem(
            Entry(f"{number:>5}  {clean(line.text.expandtabs(4))}", author_words(line.author, now)),
            verb="go to the checkpoint" if line.author.checkpoint_id >= 0 else "",
            result=f"{line.author.world_line}:{line.author.checkpoint_id}"
            if line.author.checkpoint_id >= 0
            else "",
        )
        for number, line in shown[:_MOST_BLAMED]
    ]

    async def same() -> list[ListedItem]:
        return items

    chosen = await main.bench.ask(ListScreen(f"Blame {path}", same, first=items, empty=""))
    if not chosen:
        return
    world_line, point = map(int, chosen.split(":"))
    _go_to(main, world_line, point)


def _go_to(main: MainParts, world_line: int, point: int, words: str = "") -> None:
    """Show a checkpoint in the chat; of one on another world line, say how."""
    if world_line:
        main.bench.tell(
            words or f"Checkpoint #{point} is on world line {world_line}.",
            advice=f"/worldline {world_line} shows it.",
        )
        return
    main.bench.read_chat(point)
    if words:
        main.bench.tell(words)


async def go_to_author(
    main: MainParts, path: str, line: DiffLine, step: str = "", span: PointRange | None = None
) -> None:
    """Show the checkpoint that wrote a line of a diff; of a line that no step wrote, say who did.

    Args:
        path: the file, as the diff names it.
        line: the line.
        step: the uid of the checkpoint of the step whose diff it is; empty for a diff between checkpoints.
        span: these checkpoints.
    """
    soul = await main.conversation.opened()
    author = await _author_of(main, soul, path, line, step=step, span=span)
    if author is None:
        return
    words = author_sentence(path, line, author)
    if author.checkpoint_id < 0:
        main.bench.tell(words)
    else:
        _go_to(main, author.world_line, author.checkpoint_id, words)


async def _author_of(
    main: MainParts,
    soul: KimiSoul,
    path: str,
    line: DiffLine,
    *,
    step: str = "",
    span: PointRange | None = None,
) -> LineAuthor | None:
    """Return who wrote a line; None if that is not known, which the user is told."""
    from kimi_tui.soul.blame import LineOfDiff, NoBlame

    await soul.files_ready()
    await soul.flush()
    try:
        shown = LineOfDiff(_below(soul.session.work_dir, path), line.sign, line.number, line.text)
        return await soul.changes.line_author(soul.session, shown, step, span)
    except NoBlame as no:
        main.bench.tell(str(no), level="warning")
    except KeyError as error:
        main.bench.tell(str(error.args[0]), level="warning")
    return None


async def writer_words(main: MainParts, start: int, path: str, line: DiffLine) -> str:
    """Return a sentence that says who wrote a line of the changes since a checkpoint, or why that is not known."""
    from kimi_tui.soul.blame import LineOfDiff, NoBlame
    from kimi_tui.soul.patches import PointRange

    soul = await main.conversation.opened()
    await soul.flush()
    shown = LineOfDiff(path, line.sign, line.number, line.text)
    try:
        author = await soul.changes.line_author(soul.session, shown, span=PointRange(start))
    except NoBlame as no:
        return str(no)
    except KeyError as error:
        return str(error.args[0])
    return author_sentence(path, line, author)


def author_sentence(path: str, line: DiffLine, author: LineAuthor) -> str:
    """Return a sentence that says who wrote a line of a file."""
    where = f"Line {line.number} of {one_line(path)}"
    _, tool, when = author_words(author, datetime.now(UTC))
    match author.who:
        case "before":
            return f"{where} is older than this session."
        case "task":
            return f"{where} changed while a background task ran ({when})."
        case "other":
            return f"{where} was changed outside kimi-tui ({when})."
        case "agent":
            point = f"checkpoint #{author.checkpoint_id}" if author.checkpoint_id >= 0 else "a step"
            on = f" on world line {author.world_line}" if author.world_line else ""
            facts = ", ".join(filter(None, (tool, when)))
            return f"{where} was written at {point}{on} ({facts})."


def _below(folder: Path, name: str) -> str:
    """Return the path of a file relative to the work folder.

    Raises:
        NoBlame: it is not below it.
    """
    from kimi_tui.app_paths import expanded
    from kimi_tui.soul.blame import NoBlame

    path = os.path.relpath(folder.absolute() / expanded(name), folder.absolute())
    if path == ".." or path.startswith("../"):
        raise NoBlame(f'"{name}" is outside the work folder.')
    return path


async def review(main: MainParts, argument: str) -> None:
    """Show changes, then have the agent review them in a turn that can change nothing."""
    from kimi_tui.soul.kimisoul import TURN_ERRORS

    if main.conversation.state.running:
        main.bench.tell_working()
        return
    soul = await main.conversation.opened()
    found = await _to_review(main, soul, argument.strip())
    if found is None or not await _show(main, "Review", found, verb="review these changes"):
        return
    with contextlib.suppress(*TURN_ERRORS):
        await soul.review(found)


async def _to_review(main: MainParts, soul: KimiSoul, argument: str) -> NamedChanges | None:
    from kimi_tui.soul.changes import NamedChanges
    from kimi_tui.soul.git_changes import NoGitChanges

    if argument in ("", "session", "turn"):
        await soul.files_ready()
        if argument == "turn":
            return await soul.changes.of_turn()
        return await soul.changes.of_session()
    try:
        git = await soul.changes.against(argument)
    except NoGitChanges as no:
        main.bench.tell(
            str(no),
            advice="Use /review turn, /review session, or /review BRANCH (changes since that git branch).",
            level="warning",
        )
        return None
    return NamedChanges(git.changes, f"since {git.base}")


async def _show(
    main: MainParts,
    name: str,
    found: NamedChanges,
    *,
    verb: str = "",
    span: PointRange | None = None,
) -> bool:
    """Show changes; return whether Enter was pressed for what `verb` says. With the compared checkpoints in `span` a line leads
    to the one that wrote it.
    """
    from kimi_tui.tui.dialogs.diff_screen import ChosenLine, DiffScreen, heading

    if not found.changes.files:
        main.bench.tell(
            heading(found.what, found.changes),
            advice=" ".join(filter(None, (found.changes.reason, *found.changes.remarks))),
        )
        return False
    patch = partial(_patch, main, span) if span is not None else None
    screen = DiffScreen(
        name, found.what, found.changes, verb=verb, chooses=span is not None, patch=patch
    )
    answer = await main.bench.ask(screen)
    if isinstance(answer, ChosenLine):
        await go_to_author(main, answer.path, answer.line, span=span)
    return answer is True


async def _patch(main: MainParts, span: PointRange) -> str:
    """Return the changes between checkpoints as a patch; empty if that is too long, or if its text may not be on a clipboard."""
    from kimi_tui.soul.patches import NoFiles, patch_of_session

    soul = await main.conversation.opened()
    session = soul.session

    def made() -> str:
        parts: list[bytes] = []
        for one in patch_of_session(session, session.dir, span, 0).files():
            parts.append(one.text)
            if sum(map(len, parts)) > _LONGEST_PATCH:
                return ""
        text = b"".join(parts).decode()
        # A text with signs that a terminal obeys is copied nowhere, and without them it would be another patch.
        return text if clean_source(text) == text else ""

    try:
        return await asyncio.to_thread(made)
    except (NoFiles, UnicodeDecodeError):
        return ""


async def commit(main: MainParts, argument: str) -> None:
    """Show what would be committed, have the message drafted, and commit after the user has read and confirmed it."""
    from kimi_tui.llm.errors import LLMError
    from kimi_tui.soul.errors import SoulBusy, SoulError
    from kimi_tui.soul.git_changes import NoGitChanges
    from kimi_tui.soul.kimisoul import TURN_ERRORS
    from kimi_tui.tui.dialogs.diff_screen import DiffScreen
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    if main.conversation.state.running:
        main.bench.tell_working()
        return
    soul = await main.conversation.opened()
    try:
        found = await soul.changes.to_commit()
    except NoGitChanges as no:
        main.bench.tell(str(no), level="warning")
        return
    n_files = len(found.changes.files)
    if n_files > _MOST_NAMED:
        main.bench.tell(
            f"There are more than {_MOST_NAMED} changed files.",
            advice="Stage the files of one commit with !git add, then use /commit.",
            level="warning",
        )
        return
    what = "that are staged" if found.staged else f"since {found.base}"
    shown = DiffScreen("Commit", what, found.changes, verb="write the message", authors=False)
    if await main.bench.ask(shown) is not True:
        return
    message = argument.strip()
    if not message:
        main.bench.tell("The model is writing the commit message.", advice="Esc stops it.")
        try:
            message = await soul.changes.draft_message(found)
        except (LLMError, SoulError, SoulBusy) as error:
            main.bench.tell(
                f"Could not draft the message: {getattr(error, 'message', error)}",
                level="warning",
            )
    files = "1 file" if n_files == 1 else f"{n_files:,} files"
    staged = "what is staged" if found.staged else "all of them"
    answer = await main.bench.ask(
        TextDialog(
            TextQuestion(
                title="Commit",
                question="Commit with this message?",
                consequence=f"{files} changed; git commits {staged}, and signs the commit if your git is set up to sign.",
                text=message,
                placeholder="Commit message",
                verb="commit",
            )
        )
    )
    if answer is None or not answer.strip():
        main.bench.tell("Nothing was committed.")
        return
    command = commit_command(found, answer.strip())
    if len(command) > _LONGEST_COMMAND:
        main.bench.tell(
            "The commit message is too long for a command. Shorten it.", level="warning"
        )
        return
    with contextlib.suppress(*TURN_ERRORS):
        await soul.run_command(command)


def commit_command(found: GitChanges, message: str) -> str:
    """Return the command that commits changes: the files that were shown, and no others.

    It runs as a command of the user: with their git, its hooks and its signature.
    """
    git = "git" if found.is_here else f"git -C {shlex.quote(str(found.root))}"
    paragraphs = [one for one in re.split(r"\n{2,}", message) if one.strip()]
    words = " ".join(f"-m {shlex.quote(one.strip(chr(10)))}" for one in paragraphs)
    if found.staged:
        return f"{git} commit {words}"
    paths = " ".join(map(_pathspec, found.changes.files))
    return f"{git} add -- {paths} && {git} commit {words}"


def _pathspec(one: FileDifference) -> str:
    """Return the word that names a file to git; signs in its name that have a meaning there are taken as they are."""
    if _PLAIN.fullmatch(one.path):
        return one.path
    return shlex.quote(f":(top,literal){one.path}")
