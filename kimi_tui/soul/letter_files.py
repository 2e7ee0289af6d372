"""The files that a D-Mail asks to have back: what that would change, the person's yes to it, and what the letter says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kimi_tui.session.records import Checkpoint
from kimi_tui.soul.approval import Approval
from kimi_tui.soul.restoring import Restoring
from kimi_tui.tools.base import Ask, ToolRejected
from kimi_tui.tools.place import locate
from kimi_tui.tools.problem import ToolProblem
from kimi_tui.tools.protected import protected_reason
from kimi_tui.workspace.plan import FileChange, RestorePlan
from kimi_tui.workspace.restore import Prepared

_MOST_NAMED = 40
_VERBS = {"restore": "bring back", "create": "create again", "delete": "delete"}


@dataclass(frozen=True, slots=True)
class FilesOfLetter:
    """What happens to the files with a D-Mail. `note` is the fact that its letter tells, `restored` what comes back."""

    note: str = ""
    prepared: Prepared | None = None

    @property
    def restored(self) -> frozenset[str]:
        """The paths that are brought back."""
        return frozenset(self.prepared.intent.paths) if self.prepared else frozenset()


class LetterFiles:
    """Asks for the files of a D-Mail.

    Args:
        restoring: plans and carries out.
        approval: asks the person.
        work_dir: where the files are.
        environ: names the person's home.
    """

    def __init__(
        self, restoring: Restoring, approval: Approval, work_dir: Path, environ: Mapping[str, str]
    ) -> None:
        self._restoring = restoring
        self._approval = approval
        self._work_dir = work_dir
        self._environ = environ

    async def ask(self, point: Checkpoint) -> FilesOfLetter:
        """Plan, ask and get ready. Whatever stands in the way is told in the letter; the D-Mail goes without files.

        Raises:
            asyncio.CancelledError: stopped while asking.
        """
        await self._restoring.history.settled()
        plan = await self._restoring.plan(point)
        if plan.reason:
            return FilesOfLetter(
                f"You asked for the files of that time. They were not brought back: {plan.reason}"
            )
        plan = _without_others(plan)
        wanted = [one for one in plan.changes if one.change in _VERBS]
        if not wanted:
            return FilesOfLetter(_words("Nothing had to be brought back.", plan))
        try:
            await self._approval.ask(
                await self._question(point, plan, wanted), key="", tool="SendDMail"
            )
        except ToolRejected as no:
            why = f": {no.feedback}" if no.feedback else "."
            return FilesOfLetter(
                f"You asked for the files of that time. The person said no{why} They were not brought back."
            )
        try:
            prepared = await self._restoring.prepare(plan)
        except OSError as error:
            return FilesOfLetter(
                f"You asked for the files of that time. The disk refused: {error.strerror or error}."
            )
        if prepared is None or not prepared.intent.changes:
            return FilesOfLetter(_words("Nothing was brought back.", plan))
        changes = prepared.intent.changes
        back = [one.path for one in changes if one.then is not None]
        gone = [one.path for one in changes if one.then is None]
        said = "The files are those of that time again."
        said += f" Brought back: {_named(back)}." if back else ""
        said += f" Deleted, because they were not there then: {_named(gone)}." if gone else ""
        return FilesOfLetter(_words(said, plan, prepared.stale), prepared)

    async def _question(
        self, point: Checkpoint, plan: RestorePlan, wanted: Sequence[FileChange]
    ) -> Ask:
        is_protected = await asyncio.to_thread(self._any_protected, wanted)
        lines = [f"{_VERBS[one.change]}  {one.path}" for one in wanted]
        left = [one.path for one in plan.changes if one.change == "conflict"]
        lines += [f"leave alone, also changed outside  {path}" for path in left]
        return Ask(
            action="restore files",
            question=f"Bring back the files of #{point.id}?",
            detail="\n".join(lines),
            where="a D-Mail of the agent asks for it; it can be undone",
            edits=await self._restoring.edits_of(plan),
            protected=is_protected,
        )

    def _any_protected(self, wanted: Sequence[FileChange]) -> bool:
        for one in wanted:
            try:
                place = locate(one.path, self._work_dir, self._environ)
            except ToolProblem:
                return True
            if protected_reason(place, self._environ):
                return True
        return False


def _words(said: str, plan: RestorePlan, stale: Sequence[str] = ()) -> str:
    left = [one.path for one in plan.changes if one.change == "conflict"] + list(stale)
    if left:
        said += f" Left alone, because someone else changed them too: {_named(left)}."
    return said


def _without_others(plan: RestorePlan) -> RestorePlan:
    """What someone else changed is not the agent's to take back, also where the agent changed it after them."""
    changes = tuple(
        replace(one, change="conflict", would=one.change)
        if one.reason and one.change in _VERBS
        else one
        for one in plan.changes
    )
    return replace(plan, changes=changes)


def _named(paths: Sequence[str]) -> str:
    shown = ", ".join(f"`{path}`" for path in paths[:_MOST_NAMED])
    return shown if len(paths) <= _MOST_NAMED else f"{shown} and {len(paths) - _MOST_NAMED} more"
