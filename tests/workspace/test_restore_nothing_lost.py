"""Whatever tools, commands, people and power cuts do: what is tracked comes back, and nothing of anyone else's is ever lost."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.followed_folder import CoarseClock, Place, PowerCut, power_cut

from kimi_tui.workspace.restore import RestorePlan
from kimi_tui.workspace.tracker import Suspects

Files = dict[str, str]

RULES = ".gitignore"
# Few of them, so that the same file is changed by one after another.
NAMES = ["a", "b", "dir/a", "dir/sub/c", "skip.log", "cache/x"]
CONTENT = st.sampled_from(["x", "y", "long\n"])
EDIT = st.one_of(
    st.tuples(st.sampled_from(NAMES), CONTENT | st.none()),
    st.tuples(st.sampled_from(NAMES), CONTENT | st.none()),
    st.tuples(st.just(RULES), st.sampled_from(["*.log\ncache/\n", "*.log\n"]) | st.none()),
)
EDITS = st.lists(EDIT, max_size=2)
WORK = st.lists(EDIT, min_size=2, max_size=4)
BACK = st.sampled_from([0, 0, 1, 2, 3])
CHOSEN = st.sampled_from([None, None, None]) | st.sets(st.sampled_from(NAMES), min_size=1)
ROUND = st.one_of(
    st.tuples(st.just("shell"), WORK),
    st.tuples(st.just("tool"), EDIT, EDITS),
    st.tuples(st.just("other"), st.lists(EDIT, min_size=1, max_size=2)),
    st.tuples(st.just("went_on"), st.sampled_from(NAMES), CONTENT, CONTENT, st.booleans()),
    st.tuples(st.just("rest")),
    st.tuples(st.just("restart"), EDITS),
    st.tuples(st.just("restore"), WORK, BACK, CHOSEN, EDITS, EDITS),
    st.tuples(st.just("there_and_back"), WORK, BACK, EDIT),
    st.tuples(st.just("undo"), EDITS, EDITS, EDITS),
    st.tuples(st.just("crash"), WORK, BACK, st.booleans(), st.integers(0, 12), EDITS),
)


@pytest.mark.exhaustive
@given(st.lists(ROUND, min_size=3, max_size=8))
@example([("went_on", "b", "x", "y", True)])
def test_nothing_foreign_is_ever_lost_and_what_is_tracked_comes_back(rounds: list) -> None:
    clock = CoarseClock()
    with tempfile.TemporaryDirectory() as top, clock.ticking():
        _Story(Place(Path(top), clock=clock)).play(rounds)


def hidden(name: str, files: Files) -> bool:
    """Return whether the rules of that time leave a file out."""
    rules = files.get(RULES, "").split()
    return (name.endswith(".log") and "*.log" in rules) or (
        name.startswith("cache/") and "cache/" in rules
    )


def differing(before: Files, after: Files) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


class _Since:
    """The facts about one checkpoint: its files, and the changes of each since."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.changed_by: dict[str, list[str]] = {}
        # Others made these files at places without one.
        self.made: set[str] = set()
        # Before the agent's next change it cannot be told what precedes the checkpoint.
        self.is_parted = False
        self.veiled = {name for name in (*NAMES, RULES) if hidden(name, files)}

    def see(self, who: str, before: Files, after: Files) -> None:
        self.veiled |= {name for name in (*NAMES, RULES) if hidden(name, after)}
        names = differing(before, after)
        if not self.is_parted:
            # This includes files that the agent made while nobody looked.
            for name in names:
                _put(self.files, name, after.get(name))
            return
        for name in names:
            self.changed_by.setdefault(name, []).append(who)
            if who == "other" and name not in before:
                self.made.add(name)

    def must_stay(self, name: str, now: Files) -> bool:
        if name in self.veiled and name not in now:
            # Nobody saw who took it away, and nothing stands in its place.
            return False
        by = self.changed_by.get(name, ["nobody"])
        made = name in self.made and name not in self.files
        return by[-1] in ("other", "nobody") or made

    def is_left_out(self, name: str, now: Files) -> bool:
        was = name in self.files and hidden(name, self.files)
        return name in now and (was or hidden(name, now))


class _Story:
    """Plays random rounds and holds, after each, what must be true."""

    def __init__(self, place: Place) -> None:
        self.place = place
        place.other((RULES, "*.log\ncache/\n"))
        place.other(*((name, "x") for name in ("a", "dir/a", "skip.log", "cache/x")))
        start = place.begin()
        self.files = place.files()
        self.points = {start: _Since(dict(self.files))}
        # These are the changes of the last restore by file, and the files among them that were hidden since.
        self.did: dict[str, tuple[str | None, str | None]] = {}
        self.veiled: set[str] = set()

    def play(self, rounds: list) -> None:
        for kind, *values in rounds:
            getattr(self, f"do_{kind}")(*values)
            if kind not in ("other", "rest"):
                uid = self.place.mark()
                self.points[uid] = _Since(dict(self.files))

    # -- who changes what

    def seen(self, who: str, after: Files | None = None) -> None:
        """Everything that changed until now was this one's doing."""
        after = self.place.files() if after is None else after
        for since in self.points.values():
            since.see(who, self.files, after)
        self.veiled |= {name for name in NAMES if hidden(name, after)}
        self.files = after

    def check_divergence(self, n_before: int) -> None:
        """A recorded change by the agent or a restore parts the states before it from those after it."""
        added = self.place.tracker._log._snapshots[n_before:]
        if any(one.by in ("agent", "restore") for one in added):
            for since in self.points.values():
                since.is_parted = True

    @property
    def n_snapshots(self) -> int:
        return len(self.place.tracker._log)

    def others(self, edits: Collection) -> None:
        self.place.other(*edits)
        self.seen("other")

    def do_other(self, edits: Collection) -> None:
        self.others(edits)
        # A file that comes and goes between two scans was never there.
        self.place.tracker.take_snapshot("other")

    def do_shell(self, edits: Collection) -> None:
        self.place.tracker.take_snapshot("other")
        n = self.n_snapshots
        self.place.other(*edits)
        self.place.tracker.take_snapshot("agent")
        self.check_divergence(n)
        self.seen("agent")

    def do_tool(self, edit: tuple[str, str | None], meanwhile: Collection) -> None:
        """A file tool changes one file; someone else changes others at the same time."""
        path = edit[0]
        if not self.place.tracker.is_as_seen([path]):
            self.place.tracker.take_snapshot("other")
        n = self.n_snapshots
        self.others([one for one in meanwhile if one[0] != path])
        self.place.other(edit)
        told = Suspects(frozenset({path}))
        with mock.patch.object(self.place.tracker, "_suspects", return_value=told):
            self.place.tracker.take_snapshot("agent")
        self.check_divergence(n)
        self.seen("agent")

    def do_went_on(self, name: str, theirs: str, its: str, is_back: bool) -> None:
        """The agent goes on with what someone else has just made or changed, after work of its own."""
        self.do_shell([("a", its), (name, None)])
        self.others([(name, theirs)])
        self.do_tool((name, its), ())
        if is_back:
            self.back_to(0, None, (), ())

    def do_rest(self) -> None:
        self.place.tracker.take_snapshot("other")
        assert self.place.clock is not None
        self.place.clock.rest()
        self.place.tracker.take_snapshot("other")

    def do_restart(self, edits: Collection) -> None:
        self.others(edits)
        self.place.tracker = self.place.started()
        assert self.place.tracker.first_scan()

    # -- bringing back

    def do_restore(
        self,
        work: Collection,
        back: int,
        chosen: set[str] | None,
        early: Collection,
        late: Collection,
    ) -> None:
        self.do_shell(work)
        self.back_to(back, chosen, early, late)

    def do_there_and_back(self, work: Collection, back: int, edit: tuple[str, str | None]) -> None:
        """The agent's changes are taken back, someone else goes on, and the taking back is undone."""
        self.do_shell(work)
        self.back_to(back, None, (), ())
        self.do_undo([edit], (), ())

    def back_to(
        self, back: int, chosen: set[str] | None, early: Collection, late: Collection
    ) -> None:
        uid = self.target(back)
        plan = self.place.tracker.plan(uid)
        since, shown = self.points[uid], dict(self.files)
        assert not [one.path for one in plan.changes if one.path.endswith(".restore")]
        wanted = {
            name: since.files.get(name)
            for name in differing(shown, since.files)
            if name in (chosen if chosen is not None else (*NAMES, RULES))
        }
        sure = {
            name
            for name in wanted
            if (chosen is not None or not since.must_stay(name, shown)) and name not in since.veiled
        }
        never = {
            name
            for name in wanted
            if (chosen is None and since.must_stay(name, shown)) or since.is_left_out(name, shown)
        }
        self.carry_out(plan, chosen, wanted, sure, never, early, late)

    def do_undo(self, before: Collection, early: Collection, late: Collection) -> None:
        """Someone else goes on working, and then the last restore is undone."""
        self.others(before)
        if self.place.last is None:
            return
        intent = self.place.last.intent
        plan = self.place.tracker.plan_back(intent.before, intent.after, intent.paths)
        wanted = {
            name: was for name, (was, became) in self.did.items() if self.files.get(name) == became
        }
        never = {name for name in wanted if name in self.files and hidden(name, self.files)}
        self.carry_out(plan, None, wanted, wanted.keys() - self.veiled, never, early, late)

    def carry_out(
        self,
        plan: RestorePlan,
        chosen: set[str] | None,
        wanted: dict[str, str | None],
        sure: Collection[str],
        never: Collection[str],
        early: Collection,
        late: Collection,
    ) -> None:
        """Someone else writes between the plan and the restore, and again at the last moment.

        Args:
            plan: what was shown.
            chosen: what of it is wanted, None for all that nobody else changed.
            wanted: what the files hold afterwards if they are brought back; no others may change.
            sure: which of them must come back, if nobody writes meanwhile.
            never: which of them must not.
            early: what is written between plan and rescue.
            late: what is written after it.
        """
        shown = dict(self.files)
        self.others(early)
        touched = differing(shown, self.files)
        n = self.n_snapshots
        prepared = self.place.tracker.prepare(plan, chosen)
        if prepared is None:
            assert not (set(sure) - set(never))
            return
        planned = {
            one.path
            for one in plan.changes
            if one.change not in ("skip", "conflict" if chosen is None else "")
            and (chosen is None or one.path in chosen)
        }
        veiled = {name for name in planned if hidden(name, self.files)}
        assert planned & touched - veiled <= set(prepared.stale) <= planned & (touched | veiled)
        self.place.last = prepared
        ready = dict(self.files)
        self.place.other(*late)
        now = self.place.files()
        touched |= differing(ready, now)
        outcome = self.place.tracker.carry_out(prepared)
        after = self.place.files()
        unsure = touched | {name for name in sure if hidden(name, ready) or hidden(name, now)}
        self.check(now, after, wanted, set(sure) - unsure, {*never, *touched})
        veiled |= {name for name in planned if hidden(name, after)}
        assert outcome.failures.keys() <= touched | veiled
        # A change that was made late at the place of a planned one is reported after the restore, the others before it.
        first = dict(ready)
        for name in differing(ready, now) - set(prepared.intent.paths):
            _put(first, name, now.get(name))
        self.seen("other", first)
        self.check_divergence(n)
        # This includes files that others wrote exactly as planned.
        same = {
            name
            for name in set(prepared.intent.paths) & differing(ready, after)
            if after.get(name) == wanted[name]
        }
        restored = differing(now, after) | same
        second = dict(first)
        for name in restored:
            _put(second, name, after.get(name))
        self.seen("restore", second)
        self.seen("other", after)
        self.did = {name: (ready.get(name), after.get(name)) for name in restored}
        self.veiled = {name for name in NAMES if hidden(name, now) or hidden(name, after)}

    def do_crash(
        self, work: Collection, back: int, in_time: bool, cut: int, meanwhile: Collection
    ) -> None:
        """The power fails while files are brought back; someone writes before the next start, which finishes it."""
        self.do_shell(work)
        uid = self.target(back)
        plan = self.place.tracker.plan(uid)
        since, shown = self.points[uid], dict(self.files)
        prepared = None
        with contextlib.suppress(PowerCut), contextlib.ExitStack() as stack:
            if in_time:
                stack.enter_context(power_cut(cut))
            prepared = self.place.tracker.prepare(plan)
            if prepared:
                stack.enter_context(power_cut(cut))
                self.place.tracker.carry_out(prepared)
        half = self.place.files()
        self.place.other(*meanwhile)
        now = self.place.files()
        self.place.tracker = self.place.started()
        was_over = prepared is not None and self.place.tracker._log.get(prepared.intent.after)
        assert self.place.tracker.first_scan()
        left = self.place.tracker.unfinished_restore()
        if left is not None:
            self.place.tracker.carry_out(left)
        assert not list(self.place.root.rglob("*.restore"))
        assert not (self.place.top / "files/restore.json").exists()
        after = self.place.files()
        touched = differing(half, now)
        wanted = {name: since.files.get(name) for name in differing(shown, since.files)}
        never = {n for n in wanted if since.must_stay(n, shown) or since.is_left_out(n, shown)}
        sure = {
            n for n in wanted if not since.must_stay(n, shown) and n not in since.veiled
        } - never
        # All of it, or nothing.
        began = bool(differing(shown, half)) or left is not None
        foreign = {
            name for name in touched if now.get(name) not in (shown.get(name), wanted.get(name, ""))
        }
        assert not (differing(now, after) & foreign), "written after the power had failed"
        for name in differing(shown, after) | (sure if began else set()):
            if name in touched:
                continue
            assert name in wanted.keys() - never, name
            assert after.get(name) == wanted[name], name
        restored = {
            name
            for name in differing(shown, after)
            if name in wanted and after.get(name) == wanted[name] and (left or name not in touched)
        }
        first = dict(after)
        for name in restored:
            _put(first, name, shown.get(name))
        if not was_over:
            self.seen("other", first)
        if was_over or left is not None:
            for one in self.points.values():
                one.is_parted = True
        self.seen("restore", half if was_over else after)
        self.seen("other", after)
        self.did = {}
        self.place.last = None

    def check(
        self,
        before: Files,
        after: Files,
        wanted: dict[str, str | None],
        sure: Collection[str],
        never: Collection[str],
    ) -> None:
        changed = differing(before, after)
        assert changed <= wanted.keys(), "nothing else is touched"
        assert not changed & set(never), "what is somebody else's stays"
        for name in changed | (set(sure) - set(never)):
            assert after.get(name) == wanted[name], name

    def target(self, back: int) -> str:
        uids = list(self.points)
        return uids[max(0, len(uids) - 1 - back)]


def _put(files: Files, name: str, content: str | None) -> None:
    if content is None:
        files.pop(name, None)
    else:
        files[name] = content
