"""`/bisect`: find the step after which a command fails, with marks on the timeline; then rewind there, send a D-Mail, or blame."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.tui.formatting import counted

if TYPE_CHECKING:
    from kimi_tui.projection.timeline_tree import Trial
    from kimi_tui.soul.bisect import Candidate, Place, Tested
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.past_search import Begun, FoundChange, SearchOptions
    from kimi_tui.tools.past_command import PastRun
    from kimi_tui.tui.main.commands import MainParts

_TOPIC = "bisect"
_NUMBERED = re.compile(
    r"--(good|bad|times|world-line|timeout)[ =]#?([0-9]{1,9})(?:\s+|$)", re.ASCII
)
_USAGE = "For example: /bisect pytest -q, or /bisect --good 5 --times 3 make test"


class _Wrong(NamedTuple):
    """An option of `/bisect` that cannot be used."""

    text: str


async def bisect(main: MainParts, argument: str) -> None:
    """Search for the change that made a command fail, show it, and offer what can be done about it."""
    options = _parsed(argument)
    if isinstance(options, _Wrong):
        main.bench.tell(options.text, advice=_USAGE, level="warning")
        return
    soul = await main.conversation.opened("travel")
    if soul.past.is_searching:
        main.bench.tell("A bisect is already running.", advice="Esc stops it.")
        return
    if main.conversation.running:
        main.bench.tell_working()
        return
    await soul.files_ready()
    from kimi_tui.session.errors import UnknownWorldLine
    from kimi_tui.soul.bisect import NoBisect
    from kimi_tui.soul.errors import SoulBusy

    shown = _SearchNotice(main)
    try:
        found = await soul.past.bisect(options, began=shown.began, told=shown.told, asks=shown.asks)
        if found is None:
            main.bench.tell("The search was stopped. Nothing was changed.")
            return
        shown.ended()
        await _end(main, soul, options, found, shown)
    except (NoBisect, UnknownWorldLine, SoulBusy) as no:
        main.bench.tell(str(no), level="warning")
    finally:
        shown.close()


def _parsed(argument: str) -> SearchOptions | _Wrong:
    from kimi_tui.soul.bisect import LIMIT_S, MOST_LIMIT_S, MOST_TIMES
    from kimi_tui.soul.past_search import SearchOptions

    rest, numbers, network = argument.strip(), dict[str, int](), False
    while rest.startswith("--"):
        if rest.startswith("-- "):
            rest = rest[3:].lstrip()
            break
        word = rest.split(None, 1)[0]
        if word == "--network":
            network, rest = True, rest[len(word) :].lstrip()
            continue
        given = _NUMBERED.match(rest)
        if given is None:
            return _Wrong(f'"{word[:20]}" is not an option of /bisect, or it needs a number.')
        numbers[given[1]] = int(given[2])
        rest = rest[given.end() :]
    if not rest:
        return _Wrong("/bisect needs a command that fails now and passed earlier.")
    for name, most in (("times", MOST_TIMES), ("timeout", MOST_LIMIT_S)):
        if not 0 < numbers.get(name, 1) <= most:
            return _Wrong(f"--{name} takes a number from 1 to {most:,}, not {numbers[name]:,}.")
    if not numbers.get("world-line", 1):
        return _Wrong("--world-line takes the number of a world line (a branch): 1, 2, …")
    return SearchOptions(
        rest,
        numbers.get("good"),
        numbers.get("bad"),
        numbers.get("times", 1),
        network,
        numbers.get("world-line", 0),
        numbers.get("timeout", LIMIT_S),
    )


class _SearchNotice:
    """Shows a search while it goes on: a notice, and marks on the timeline."""

    def __init__(self, main: MainParts) -> None:
        self._main = main
        self._trials: dict[str, Trial] = {}
        self._has_begun = False
        self._most = 0
        self._n_tested = 0

    def began(self, begun: Begun) -> None:
        """Tell how much there is to do."""
        self._has_begun = True
        self._most = begun.n_left + 2
        for remark in begun.remarks:
            self._main.bench.tell(remark, level="warning")
        self._tell(f"Searching {counted(begun.n_candidates, 'file change')}.")

    def told(self, place: Place, tested: Tested | None) -> None:
        """Mark a state that is tested, or was."""
        if tested is None:
            self._mark(place, "running")
            self._tell(
                f"Test {self._n_tested + 1} of at most {self._most}: the command is running on {place.name}."
            )
            return
        self._n_tested += 1
        self._mark(place, tested.verdict)
        if tested.is_flaky:
            self._main.bench.tell(f"{place.name}: {tested.words}.", level="warning")

    async def asks(self, place: Place, ran: PastRun) -> bool:
        """Ask whether a command that was not found counts as a failure."""
        from kimi_tui.tui.dialogs.list_screen import ListedItem, ListScreen
        from kimi_tui.tui.pick_list import Entry

        items = [
            ListedItem(Entry("Stop the search"), verb="stop", result="no"),
            ListedItem(Entry("Count it as a failure"), verb="continue", result="yes"),
        ]

        async def same() -> list[ListedItem]:
            return items

        screen = ListScreen(
            f"Exit code {ran.exit_code} on {place.name}",
            same,
            first=items,
            empty="",
            about="It usually means that a program is missing or cannot be executed.",
        )
        return await self._main.bench.ask(screen) == "yes"

    def show(self, change: Candidate) -> None:
        """Show the row of the change."""
        if change.uid:
            self._main.bench.views.timeline.show_trials(self._trials, change.uid)

    def ended(self) -> None:
        """Take the notice away; the marks stay while the result is shown."""
        for pane in (self._main.bench.chat_pane, self._main.bench.timeline_pane):
            pane.dismiss(_TOPIC)

    def close(self) -> None:
        """Take its notice and its marks away."""
        if not self._has_begun:
            return
        self.ended()
        timeline = self._main.bench.views.timeline
        # A search that ends with its session finds no timeline on a screen.
        if timeline.is_attached:
            timeline.show_trials({})

    def _mark(self, place: Place, trial: Trial) -> None:
        if place.uid:
            self._trials[place.uid] = trial
            self._main.bench.views.timeline.show_trials(self._trials, place.uid)

    def _tell(self, text: str) -> None:
        self._main.bench.tell(text, advice="Esc stops the search.", topic=_TOPIC)


async def _end(
    main: MainParts,
    soul: KimiSoul,
    options: SearchOptions,
    found: FoundChange,
    shown: _SearchNotice,
) -> None:
    from kimi_tui.tui.dialogs.diff_screen import DiffScreen

    outcome = found.outcome
    if outcome.reason:
        reason, _, advice = outcome.reason.partition(". ")
        main.bench.tell(f"{reason.rstrip('.')}.", advice=advice, level="warning")
        return
    change = found.change
    if change is None:
        named = "; ".join(one.words for one in outcome.found)
        main.bench.tell(
            "One of several changes made the command fail, but the checkpoints between them could not be tested.",
            advice=f"The changes are: {named}.",
            level="warning",
        )
        return
    shown.show(change)
    where = f"in {change.where}" if change.cause == "step" else change.where
    what = (
        f"{where}{_line_words(options)}: the command passes before this change and fails after it"
    )
    screen = DiffScreen(
        "Bisect", what, found.changes, verb="rewind, D-Mail or blame", authors=False
    )
    if await main.bench.ask(screen) is True:
        await _offer(main, soul, options, found, change)


def _line_words(options: SearchOptions) -> str:
    return f" on world line {options.world_line}" if options.world_line else ""


async def _offer(
    main: MainParts,
    soul: KimiSoul,
    options: SearchOptions,
    found: FoundChange,
    change: Candidate,
) -> None:
    from kimi_tui.foreign_text import clean
    from kimi_tui.soul.past_search import drafted_dmail
    from kimi_tui.soul.rewind_values import Target
    from kimi_tui.tui.dialogs.list_screen import ListedItem, ListScreen
    from kimi_tui.tui.main.commands import changes, rewind
    from kimi_tui.tui.pick_list import Entry
    from kimi_tui.tui.preview.layout import DMAIL

    items: list[ListedItem] = []
    target = Target(change.id, options.world_line)
    if change.cause == "step":
        goes = f"Rewind to #{change.id}"
        if options.world_line:
            goes = f"Switch to #{change.id} of world line {options.world_line}"
        items.append(
            ListedItem(
                Entry(goes, "before that step, with files or without"),
                verb="see the preview",
                result="rewind",
            )
        )
        if soul.dmails.enabled and "dmails" in main.conversation.state.parts:
            items.append(
                ListedItem(
                    Entry(
                        f"Send a D-Mail to #{change.id}", "drafted from the change and the output"
                    ),
                    "A D-Mail is a note to the agent's past self: the agent continues from that checkpoint, with the note.",
                    verb="see the draft",
                    result="dmail",
                )
            )
    files = [one.path for one in found.changes.files if one.side.outcome != "gone"]
    items += [
        ListedItem(
            Entry(f"Blame {clean(path)}", "who wrote its lines"),
            verb="list the lines",
            result=f"blame {path}",
        )
        for path in files[:5]
    ]
    about = "\n".join(("The end of the output:", *map(clean, found.output[-4:])))

    async def same() -> list[ListedItem]:
        return items

    title = f"The command fails after {change.words}{_line_words(options)}"
    chosen = await main.bench.ask(
        ListScreen(title, same, first=items, empty="", about=about if found.output else "")
    )
    if chosen == "rewind":
        await rewind.preview(main, target)
    elif chosen == "dmail":
        picked = await rewind.choose(main, target, DMAIL)
        if picked is not None and picked[1].action == DMAIL.name:
            draft = drafted_dmail(found, options.command)
            await rewind.write_dmail(main, soul, picked[0], picked[1], draft)
    elif chosen:
        await changes.blame(main, chosen.removeprefix("blame "), of=change.uid)
