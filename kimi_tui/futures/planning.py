"""`Planner` turns a plan into what each future is to do, and estimates what it costs, shares and leaves open."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.app_paths import reason_of
from kimi_tui.base_url import host_of, is_near
from kimi_tui.config.model_choice import (
    ModelChoice,
    NeedsChoice,
    Overrides,
    choose_model,
    in_folder,
    read_folder_model,
)
from kimi_tui.config.settings import ConfigError
from kimi_tui.foreign_text import one_line
from kimi_tui.futures.values import (
    FEWEST,
    MOST,
    Estimate,
    FutureCost,
    FuturesPlan,
    NoFutures,
    Variant,
)
from kimi_tui.session.errors import SessionError
from kimi_tui.session.schema import Checkpoint
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tools.sandbox.policy import NoSandbox
from kimi_tui.tools.sandbox.view import Share, Tier, shares_of, tier_of
from kimi_tui.wire.events import iso_seconds
from kimi_tui.workspace.base import FileState, Past

if TYPE_CHECKING:
    from kimi_tui.launch import Launch
    from kimi_tui.llm.models import ServerFacts
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.tool_cards import ImageBlock

AT_ONCE = 2
"""How many requests of futures a server gets at once, unless the configuration says another number."""
_WARM_S = 300.0
"""Seconds for which most providers keep the beginning of a request."""
_PER_TOKENS = 1_000_000
_NAME = 40
_MOST_NAMED = 40
_LONGEST_MESSAGE = 1_000_000
_TIERS: dict[Tier, str] = {
    "overlay": "Each future has its own copy-on-write view of the files, at the path of the work folder; only its changes take disk space.",
    "copy": "Each future has its own copy of the files, at the path of the work folder, because this system cannot use overlayfs there; folders that git ignores are read-only.",
    "elsewhere": "Each future has its own copy of the files, at another path, because this system has no user namespaces; a program with a hard-coded path to the work folder reads and changes the real files.",
}
_NOT_ISOLATED = (
    "All futures share databases, containers and other running programs.",
    "The network is shared: two futures cannot listen on the same port.",
    "Files outside the work folder are not isolated, and commits of a future stay in its own copy of .git.",
)


class Planned(NamedTuple):
    """The plan of one future.

    Attributes:
        name: its name.
        message: its message.
        choice: its model.
        uid: the uid of the checkpoint before which it begins; empty for the end of the line.
        images: the images of its message.
    """

    name: str
    message: str
    choice: ModelChoice
    uid: str
    images: tuple[ImageBlock, ...] = ()

    @property
    def sameness(self) -> str:
        """The facts that the requests of two futures must share for a server to use the cache of one for the other."""
        return f"{self.choice.model} {self.choice.thinking}"


@dataclass(frozen=True, slots=True)
class Ground:
    """How futures get files of their own on this machine.

    Attributes:
        tier: the way.
        shares: what no snapshot has and they see as it is now.
        is_confined: whether commands run in a sandbox.
    """

    tier: Tier
    shares: Sequence[Share]
    is_confined: bool


def n_at_once(launch: Launch, one_at_a_time: bool, url: str, usual: int = AT_ONCE) -> int:
    """Return how many requests of futures, or of copies of sub-agents, a server gets at once.

    Args:
        launch: the options, with the configuration.
        one_at_a_time: whether the server of the model in use is known to answer one after another.
        url: the URL of the server.
        usual: how many it gets if it is elsewhere and nothing is configured.
    """
    for provider in launch.config.providers.values():
        if provider.base_url == url and provider.max_parallel:
            return provider.max_parallel
    return 1 if one_at_a_time or is_near(host_of(url)) else usual


def facts_record(facts: ServerFacts | None) -> dict[str, object]:
    """Return what a server told of itself as values of JSON, for `orders.Order.known`; empty if it was not asked."""
    if facts is None:
        return {}
    return {
        "dialect": None if facts.dialect is None else facts.dialect.name,
        "window": facts.window,
        "capabilities": None if facts.capabilities is None else sorted(facts.capabilities),
        "base_url": facts.base_url,
        "one_at_a_time": facts.one_at_a_time,
    }


class Planner:
    """Plans futures of one session.

    Args:
        soul: the engine of the session.
        launch: the options with which it was opened.
        environ: the environment of the program.
    """

    def __init__(self, soul: KimiSoul, launch: Launch, environ: Mapping[str, str]) -> None:
        self._soul = soul
        self._session = soul.session
        self._launch = launch
        self._environ = environ
        self._tiers: dict[str, Tier] = {}
        """By backend of the sandbox; to find one takes a process, and nothing of the machine changes while the program runs."""

    async def planned(self, plan: FuturesPlan) -> list[Planned]:
        """Check a plan; return what each future is to do.

        Raises:
            NoFutures: it cannot be carried out.
        """
        if not FEWEST <= len(plan.variants) <= MOST:
            raise NoFutures(f"There can be {FEWEST} to {MOST} futures.", "variants")
        if self._launch.demo:
            raise NoFutures("Futures do not work in the demo, because it has no model.")
        if reason := self._soul.folder.refusal:
            raise NoFutures(f"{reason} Futures need a file snapshot to begin from.", "target")
        uid, said, images = await self._beginning(plan.target)
        choices = [self._choice(one) for one in plan.variants]
        messages = [one.message.strip() or said for one in plan.variants]
        pictures = [one.images if one.message.strip() else images for one in plan.variants]
        if not all(one or shown for one, shown in zip(messages, pictures, strict=True)):
            at = "the end of the conversation" if plan.target.is_end else f"#{plan.target.id}"
            raise NoFutures(
                f"You wrote no message at {at} that could be sent again. Write one for the futures.",
                "message",
            )
        if any(len(one) > _LONGEST_MESSAGE for one in messages):
            raise NoFutures("The message is longer than 1,000,000 characters.", "message")
        for choice in choices:
            if plan.caps.cost and choice.model not in self._launch.config.prices:
                raise NoFutures(
                    f'The prices of "{choice.model}" are not configured, so its cost cannot be limited. Limit the tokens, or add '
                    "[models.NAME.prices] to config.toml.",
                    "caps",
                )
        for choice, shown in zip(choices, pictures, strict=True):
            if shown and not self._sees(choice):
                raise NoFutures(
                    f"{choice.model} does not accept images. Choose another model, or write a message without images.",
                    "model",
                )
        names = _names(plan.variants, messages, choices)
        return [
            Planned(name, message, choice, uid, shown)
            for name, message, choice, shown in zip(names, messages, choices, pictures, strict=True)
        ]

    async def _beginning(self, target: Target) -> tuple[str, str, tuple[ImageBlock, ...]]:
        """Return the uid of the checkpoint with which futures begin, and the message that follows it, with its images.

        Raises:
            NoFutures: there is no such checkpoint.
        """
        if target.is_end and not target.world_line:
            # A turn may take long, so it is not waited for; a future becomes a world line in a moment.
            await self._soul.settled()
            if self._soul.running:
                raise NoFutures(
                    "The agent is working, so futures cannot begin at the end of the conversation. Choose a checkpoint, or wait until the agent finishes.",
                    "target",
                )
            return "", "", ()
        try:
            if target.is_end:
                await asyncio.to_thread(self._session.world_lines.read, target.world_line)
                return "", "", ()
            preview = await self._soul.travel.preview(target)
            _, images = await self._soul.travel.message_at(target)
            return (await self._point(target)).uid, preview.prompt, images
        except (KeyError, SessionError) as error:
            raise NoFutures(str(error.args[0] if error.args else error), "target") from error

    async def _point(self, target: Target) -> Checkpoint:
        if not target.world_line:
            index = self._session.context.index
        else:
            line = await asyncio.to_thread(self._session.world_lines.read, target.world_line)
            index = line.index
        if target.is_end:
            return index.checkpoints[-1]
        return index.checkpoint(target.id)

    async def newest(self, world_line: int) -> str:
        """Return the uid of the newest checkpoint of a line; empty if it has none. 0 is the current line."""
        try:
            return (await self._point(Target(END, world_line))).uid
        except IndexError:
            return ""

    def _choice(self, variant: Variant) -> ModelChoice:
        launch, name = self._launch, variant.model
        if not name:
            name = self._soul.model_name
            same = launch.choice
            if isinstance(same, ModelChoice) and same.model in ("", name):
                chosen: ModelChoice | NeedsChoice = same._replace(model=name)
            else:
                chosen = self._named(name)
        else:
            chosen = self._named(name)
        if not isinstance(chosen, ModelChoice) or not chosen.model:
            raise NoFutures(
                f'The model "{name}" cannot be used: it is not configured, or its server has no API key.'
                if name
                else "No model is configured. Use /model to choose one.",
                "model",
            )
        return chosen._replace(thinking=variant.thinking) if variant.thinking else chosen

    def known(self, choice: ModelChoice) -> dict[str, object]:
        """Return what the session has asked the server of a model, so that each future need not; empty for another model."""
        facts, now = self._soul.server_facts, self._launch.choice
        is_same = isinstance(now, ModelChoice) and now.base_url == choice.base_url
        if not is_same or choice.model != self._soul.model_name:
            return {}
        return facts_record(facts)

    def _sees(self, choice: ModelChoice) -> bool:
        """Return whether a model accepts images; true if that is not known yet."""
        if choice.model == self._soul.model_name:
            return self._soul.model.sees
        return choice.capabilities is None or "image_in" in choice.capabilities

    def _named(self, name: str) -> ModelChoice | NeedsChoice:
        config = in_folder(self._launch.config, read_folder_model(self._session.work_dir))
        try:
            return choose_model(config, Overrides(model=name), self._environ)
        except ConfigError as error:
            raise NoFutures(str(error), "model") from error

    async def files(self, target: Target) -> str:
        """Return the snapshot of the files with which futures begin.

        Raises:
            NoFutures: there is none.
            OSError: the work folder cannot be read.
        """
        soul = self._soul
        await soul.files_ready()
        folder = soul.folder
        if folder.reason:
            raise NoFutures(folder.reason, "target")
        log = folder.tracker.log
        if target.is_end and not target.world_line:
            await folder.take("other")
            found = await folder.run(lambda: log.last)
        else:
            point = await self._point(target)
            find = log.after_checkpoint if target.is_end else log.at_checkpoint
            found = await folder.run(find, point.was or "", point.uid)
        if found is None:
            raise NoFutures("There is no file snapshot of that checkpoint.", "target")
        return found.id

    async def ground(self, past: Past) -> Ground:
        """Return how futures get files of their own on this machine.

        Args:
            past: the files of the session.
        """
        soul = self._soul
        await soul.sandbox_ready()
        sandbox = soul.sandbox

        def found() -> Ground:
            work = Path(os.path.realpath(self._session.work_dir))
            hidden: Sequence[str] = ()
            own = sandbox
            if own is not None:
                try:
                    hidden = own.policy_for(work, creates=False).hidden
                except NoSandbox:
                    own = None
            backend = "" if own is None else own.backend
            tier = self._tiers.get(backend) or tier_of(backend, self._environ)
            self._tiers[backend] = tier
            copied = {one.strip("/") for one in self._launch.config.futures.copy}
            shares = shares_of(past.files(past.newest), work, hidden, copied)
            return Ground(tier, shares, own is not None)

        return await asyncio.to_thread(found)

    async def estimate(self, plan: FuturesPlan) -> Estimate:
        """Return what a plan costs, shares and leaves open; nothing is made.

        Raises:
            NoFutures: the plan cannot be carried out.
        """
        planned = await self.planned(plan)
        try:
            since = await self.files(plan.target)
            past = await asyncio.to_thread(
                Past, self._session.dir / FILES_NAME, self._session.work_dir
            )
            snapshot = past.log.get(since)
            if snapshot is None:
                raise NoFutures("There is no file snapshot of that checkpoint.", "target")
            files = await asyncio.to_thread(past.files, FileState(snapshot))
            ground = await self.ground(past)
        except OSError as error:
            raise NoFutures(f"The files cannot be read: {reason_of(error)}.") from error
        sizes = [one.size for one in files.values() if one.kept]
        tokens = await self._past_tokens(plan.target)
        warm_s = self._quiet_s()
        costs = self._costs(plan, planned, tokens, is_warm=0 <= warm_s < _WARM_S)
        known = all(one.cost >= 0 for one in costs)
        limited = all(one.most_cost >= 0 for one in costs)
        urls = {one.choice.base_url for one in planned}
        folders = [one.path for one in ground.shares if one.is_folder and not one.is_copied]
        singles = [one.path for one in ground.shares if one.is_copied or not one.is_folder]
        gaps = past.gaps(FileState(snapshot))
        return Estimate(
            futures=tuple(costs),
            tokens=sum(one.past for one in costs),
            cached=sum(one.cached for one in costs),
            cost=sum(one.cost for one in costs) if known else -1.0,
            most_tokens=plan.caps.tokens * len(costs),
            most_cost=sum(one.most_cost for one in costs) if limited else -1.0,
            warm_s=warm_s,
            at_once=min(n_at_once(self._launch, self._soul.one_at_a_time, url) for url in urls),
            tier=ground.tier,
            tier_words=_TIERS[ground.tier],
            n_files=len(sizes),
            n_bytes=sum(sizes),
            shared=tuple(folders[:_MOST_NAMED]),
            copied=tuple(singles[:_MOST_NAMED]),
            not_isolated=(*_NOT_ISOLATED, *self._server_words()),
            remarks=tuple(filter(None, (gaps, *self._confinement(ground)))),
        )

    def _server_words(self) -> tuple[str, ...]:
        servers = self._soul.servers
        if servers is None:
            return ()
        return (
            "Each future starts its own MCP servers; what these servers change is not isolated.",
        )

    def _confinement(self, ground: Ground) -> tuple[str, ...]:
        if ground.is_confined:
            return ()
        return (f"Commands run without a sandbox: {self._soul.no_sandbox.rstrip('.')}.",)

    async def _past_tokens(self, target: Target) -> int:
        if target.is_end and not target.world_line:
            return self._soul.used
        try:
            preview = await self._soul.travel.preview(target)
        except (KeyError, SessionError) as error:
            raise NoFutures(str(error.args[0] if error.args else error), "target") from error
        return preview.tokens_after

    def _quiet_s(self) -> float:
        """Return the seconds since the newest step that a server has answered; -1 if there is none.

        The time of the session's file says less: actions of the user change it too, and it is new before the first request.
        """
        points = self._session.context.world_line.checkpoints
        newest = next((one for one in reversed(points) if one.tokens is not None), None)
        at = 0.0 if newest is None else iso_seconds(newest.at)
        return max(0.0, time.time() - at) if at else -1.0

    def _costs(
        self, plan: FuturesPlan, planned: Sequence[Planned], tokens: int, *, is_warm: bool
    ) -> list[FutureCost]:
        """Return the cost of the first request of each future: the first one of a model pays for the past, unless it is warm."""
        prices, caps = self._launch.config.prices, plan.caps
        paid: set[tuple[str, str]] = set()
        if is_warm:
            now = next((one for one in planned if one.choice.model == self._soul.model_name), None)
            if now is not None:
                paid.add((now.choice.base_url, now.sameness))
        found: list[FutureCost] = []
        for one in planned:
            kind = (one.choice.base_url, one.sameness)
            cached = tokens if kind in paid else 0
            paid.add(kind)
            price = prices.get(one.choice.model)
            cost = most = -1.0
            if price is not None:
                fresh = price.input * (tokens - cached) + price.cached_input * cached
                cost = fresh / _PER_TOKENS
                dearest = max(price.input, price.output)
                limits = [caps.cost] if caps.cost else []
                limits += [caps.tokens * dearest / _PER_TOKENS] if caps.tokens else []
                most = min(limits, default=-1.0)
            found.append(FutureCost(one.name, one.choice.model, tokens, cached, cost, most))
        return found


def _names(
    variants: Sequence[Variant], messages: Sequence[str], choices: Sequence[ModelChoice]
) -> list[str]:
    """Return the names of futures: those given, else what tells them apart, the model or the message, else their numbers."""
    models = [one.model for one in choices]
    found: list[str] = []
    for place, variant in enumerate(variants):
        name = one_line(variant.name)[:_NAME]
        if not name and len(set(models)) == len(models) > 1:
            name = models[place][:_NAME]
        if not name and len(set(messages)) == len(messages) > 1:
            name = one_line(messages[place])[:_NAME]
        found.append(name or f"future {place + 1}")
    return found
