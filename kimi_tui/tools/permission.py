"""The questions that file tools put to the person, worded in one place."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from kimi_tui.tools.base import Ask, FileEdit, ToolEnv
from kimi_tui.tools.place import Place, with_tilde
from kimi_tui.tools.problem import ToolProblem
from kimi_tui.tools.protected import holds_secrets, package_scripts_changed, protected_reason

EDITS_KEY = "edits"
EDITS_OFFER = "Yes, and every edit in this folder in this session"


async def ask_to_read(place: Place, env: ToolEnv, *, folder: bool = False) -> None:
    """Ask before something outside the work folder is read; inside nothing is asked.

    Args:
        place: what is to be read.
        env: who answers.
        folder: true where `place` is itself the folder that is searched.

    Raises:
        ToolRejected: the person said no.
    """
    if place.inside:
        return
    secret = holds_secrets(place, env.environ)
    holder = place.real if folder else place.real.parent
    holder_shown = with_tilde(holder, place.home)
    where = "outside the work folder" + _link_note(place)
    if secret:
        where += "; keys are kept in such places, and what is read goes to the model"
    await env.asker.ask(
        Ask(
            action="read outside",
            question="Search this folder?" if folder else "Read this file?",
            detail=place.shown,
            where=where,
            session_key="" if secret else f"read outside:{holder}",
            session_offer=""
            if secret
            else f"Yes, and everything in {holder_shown} in this session",
            protected=secret,
        )
    )


@asynccontextmanager
async def told_like_reading(place: Place, env: ToolEnv) -> AsyncGenerator[None]:
    """Ask as before a reading where what is done within cannot be done: why not tells what is there.

    Raises:
        ToolRejected: the person said no.
    """
    try:
        yield
    except ToolProblem:
        await ask_to_read(place, env)
        raise


async def ask_to_change(place: Place, edit: FileEdit, env: ToolEnv, *, n_links: int) -> None:
    """Ask before a file is created or changed.

    Args:
        place: the file.
        edit: what would change, shown as a diff.
        env: who answers.
        n_links: how many names the file has on disk; more than one may mean a file elsewhere.

    Raises:
        ToolRejected: the person said no.
    """
    question = "Create this file?" if edit.before is None else "Make this edit?"
    where = "in the work folder" if place.inside else "outside the work folder"
    where += _link_note(place)
    reason = protected_reason(place, env.environ)
    if not reason and package_scripts_changed(place, edit.before, edit.after):
        reason = "it changes what the package manager runs"
    if n_links > 1:
        where += f"; the file has {n_links} names, and the others may be elsewhere"
    if reason:
        where += f"; {reason}"
    ordinary = place.inside and not reason and n_links <= 1
    await env.asker.ask(
        Ask(
            action="edit protected"
            if reason
            else ("edit file" if place.inside else "edit outside"),
            question=question,
            detail=place.shown,
            where=where,
            edits=(edit,),
            session_key=EDITS_KEY if ordinary else "",
            session_offer=EDITS_OFFER if ordinary else "",
            protected=not ordinary,
        )
    )


def _link_note(place: Place) -> str:
    return f"; {place.asked} is a link that leads there" if place.linked else ""
