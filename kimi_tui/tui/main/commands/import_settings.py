"""`/import-settings`: the settings of other agents, taken over one by one after a look at each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimi_tui.migration.settings import FoundSetting
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.main.commands import MainParts

_NONE = "No settings of other agents were found."


async def import_settings(main: MainParts, argument: str) -> None:
    """List the settings of other agents; the chosen one is shown, and imported after a yes."""
    del argument
    from kimi_tui.tui.dialogs.list_screen import ListScreen

    work_dir = Path(main.bench.transcript.work_dir)
    while True:
        found, remarks = await asyncio.to_thread(_found, work_dir)
        items = _items(found)

        async def same(items: Sequence[ListedItem] = items) -> Sequence[ListedItem]:
            return items

        empty = "\n".join([_NONE, *remarks])
        chosen = await main.bench.ask(
            ListScreen("Settings of other agents", same, first=items, empty=empty)
        )
        one = next((one for one in found if one.id == chosen), None)
        if one is None:
            return
        await _look(main, one, work_dir)


def _found(work_dir: Path) -> tuple[list[FoundSetting], list[str]]:
    from kimi_tui.migration.settings import find_settings

    return find_settings(work_dir)


def _items(found: Sequence[FoundSetting]) -> Sequence[ListedItem]:
    from kimi_tui.app_paths import short
    from kimi_tui.migration.settings import STATE_WORDS, settings_of
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    items: list[ListedItem] = []
    for agent in dict.fromkeys(one.agent for one in found):
        for one in settings_of(agent, list(found)):
            state = STATE_WORDS[one.state]
            why = f"{one.why[:1].upper()}{one.why[1:]}." if one.why else ""
            is_new = one.state == "new"
            items.append(
                ListedItem(
                    Entry(
                        one.name,
                        (state, one.kind),
                        holds=one.state in ("used", "present"),
                        shortly=state,
                        group=agent,
                        words=one.kind,
                    ),
                    f"{one.kind} in {short(one.path)}\n{why}".rstrip(),
                    "show it" if is_new else "",
                    result=one.id if is_new else "",
                )
            )
    return items


async def _look(main: MainParts, one: FoundSetting, work_dir: Path) -> None:
    from kimi_tui.app_paths import short
    from kimi_tui.migration.settings_taking import NotTaken, take
    from kimi_tui.tui.main.commands.custom import CustomCommandScreen

    why = f" {one.why[:1].upper()}{one.why[1:]}." if one.why else ""
    question = CustomCommandScreen(
        one.name,
        short(one.path),
        one.about,
        intro=f"This {one.kind} comes from {one.agent}.{why} Nothing in it has been run.",
        yes="y import it",
        title=f"{one.kind} {one.name}",
    )
    if not await main.bench.ask(question):
        return
    try:
        main.bench.tell(await asyncio.to_thread(take, one, work_dir))
    except NotTaken as no:
        main.bench.tell(str(no), level="warning")
