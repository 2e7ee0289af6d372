"""How many requests of copies of sub-agents a server gets at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kimi_tui.config.settings import AgentsConfig
from kimi_tui.futures.agent_copies import CopySet
from kimi_tui.launch import Options, launch_of
from kimi_tui.session.session import Session
from kimi_tui.soul.agent_copies import CopyOrder
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.tools.agent_kind import AgentKind

from .conftest import set_environment

FAR, NEAR = "https://models.example.com/v1", "http://127.0.0.1:8080/v1"
SETTING = (
    f'[providers.far]\ntype = "openai"\nbase_url = "{FAR}"\napi_key = "key"\nmax_parallel = 2\n'
)


class Owner:
    """Notes whether the request of its sub-agent has left."""

    has_left = False

    def waits(self, words: str) -> None:
        self.has_left = not words


@pytest.mark.parametrize(
    ("url", "config", "one_at_a_time", "n_left"),
    [
        (FAR, "", False, 3),
        (FAR, SETTING, False, 2),
        (FAR, "", True, 1),
        (NEAR, "", False, 1),
    ],
)
async def test_only_so_many_requests_leave_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    config: str,
    one_at_a_time: bool,
    n_left: int,
) -> None:
    set_environment(monkeypatch, tmp_path, url)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(config)

    async def run(*_: object) -> None:
        return None

    work = tmp_path / "work"
    work.mkdir()
    soul = SimpleNamespace(
        session=Session(tmp_path / "session", work),
        agents_config=AgentsConfig(parallel=3),
        folder=SimpleNamespace(run=run),
        file_history=None,
    )
    copies = CopySet(cast("KimiSoul", soul), launch_of(Options(work_dir=str(work))), 4)
    owners: list[Owner] = []
    running: list[Any] = []
    for place in range(4):
        # Those with one model wait for the first token of the first.
        made = {"provider": "far", "base_url": url, "model": f"model-{place}", "thinking": ""}
        made |= {"capabilities": ("tools",), "headers": {}, "window": None}
        facts = SimpleNamespace(
            dialect=None,
            window=None,
            capabilities=None,
            base_url=url,
            one_at_a_time=one_at_a_time,
        )
        provider: Any = SimpleNamespace(made_with=made, facts=facts)
        kind = AgentKind("general", "", "", None)
        name = f"general-{place + 1}"
        order = CopyOrder(name, tmp_path / name, kind, "do it", (), provider, "sandboxed", 9)
        owners.append(Owner())
        running.append(await copies.copy(place, order, cast("Any", owners[-1])))
    for one in running:
        one._heard({"gate": "ask"})
    assert [one.has_left for one in owners] == [place < n_left for place in range(4)]
    running[0]._heard({"gate": "left"})
    assert sum(one.has_left for one in owners) == n_left + 1
    await copies.close()
