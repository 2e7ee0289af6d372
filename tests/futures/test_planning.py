"""What a plan of futures costs, begins with and shares, without a process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, say
from support.soul import launch_at, stage

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config, FuturesConfig, ModelConfig, ModelPrices
from kimi_tui.futures.planning import Planner, facts_record
from kimi_tui.futures.values import Caps, Estimate, FuturesPlan, Variant
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.soul.rewind_values import END, Target

PRICES = ModelPrices(2.0, 0.5, 8.0, "$")


def config(prices: ModelPrices, **more: Any) -> Config:
    """Return a configuration in which the model has these prices."""
    models = {
        "m": ModelConfig("m", provider="p", model="stand-in", max_context_size=9_000, prices=prices)
    }
    return Config(models=models, **more)


async def test_an_estimate_has_the_costs_files_and_folders_of_all_futures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        (on.work / ".gitignore").write_text(".venv\nmine.db\n")
        for name in (".venv", "data"):
            (on.work / name).mkdir()
            (on.work / name / "x").write_text("x\n")
        (on.work / "mine.db").write_text("x\n")
        choice = ModelChoice("server", on.server.base_url, "stand-in", window=9_000)
        launch = launch_at(on.work)._replace(choice=choice)
        copied = FuturesConfig(copy=(".venv",))

        async def estimate(
            prices: ModelPrices, target: Target, caps: Caps, **more: Any
        ) -> Estimate:
            planner = Planner(on.soul, launch._replace(config=config(prices, **more)), {})
            return await planner.estimate(
                FuturesPlan(target, (Variant("one"), Variant("other")), caps=caps)
            )

        # No server has cached anything of a session before its first answer.
        found = await estimate(PRICES, Target(END), Caps())
        assert [one.cached for one in found.futures] == [0, on.soul.used]
        # The model has just answered, so that its server still has the past.
        on.server.script(call("WriteFile", {"path": "a", "content": "a\n"}), say("done"))
        await on.soul.run("go")
        found = await estimate(PRICES, Target(0), Caps(tokens=1_000, cost=1.0))
        past = found.futures[0].past
        assert 0 < past < on.soul.used
        assert [one.cached for one in found.futures] == [past, past]
        assert found.cost == pytest.approx(2 * past * 0.5 / 1e6)
        assert found.most_cost == pytest.approx(2 * 1_000 * 8.0 / 1e6)
        assert (found.n_files, found.n_bytes) == (2, 16)
        assert (found.shared, found.copied) == ((".venv",), ("mine.db",))
        # Later the first one of a model pays for all of it, whatever was written to the session meanwhile.
        later = time.time() + 3_600
        with monkeypatch.context() as clock:
            clock.setattr("kimi_tui.futures.planning.time.time", lambda: later)
            found = await estimate(PRICES, Target(END), Caps(), futures=copied)
        assert [one.cached for one in found.futures] == [0, on.soul.used]
        assert found.cost == pytest.approx(on.soul.used * (2.0 + 0.5) / 1e6)
        assert found.most_cost == -1
        assert found.n_files == 3
        assert (found.shared, found.copied) == ((), (".venv", "mine.db"))
        free = await estimate(ModelPrices(0.0, 0.0, 0.0, "$"), Target(END), Caps(cost=1.0))
        assert (free.cost, free.most_cost) == (0.0, 2.0)


async def test_a_future_is_told_only_what_its_own_server_said_of_its_own_model(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        facts = {
            "provider": "p",
            "base_url": on.server.base_url,
            "api_key": "",
            "model": "stand-in",
        }
        on.soul.set_provider(OpenAICompatible(**facts))
        await on.soul.prepare_model()
        choice = ModelChoice("server", on.server.base_url, "stand-in")
        planner = Planner(on.soul, launch_at(on.work)._replace(choice=choice), {})
        assert planner.known(choice) == facts_record(on.soul.server_facts) != {}
        assert planner.known(choice._replace(model="other")) == {}
        assert planner.known(choice._replace(base_url="http://127.0.0.1:9/v1")) == {}
