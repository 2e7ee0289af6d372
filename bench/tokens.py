"""Microseconds a token from the socket to the blocks of the chat: `python -m bench.tokens`, some seconds.

The program's own provider asks the model server of the measurements, which has 40,000 tokens ready to send; what comes is collected,
published and taken by the chat's reducer, as in a session, but nothing is drawn. CPU of this process alone, imports and the first answer
not counted; beside it what a bare reading of the same socket with `json.loads` takes.
"""

from __future__ import annotations

import asyncio
import time

from bench.bare_textual import deltas
from bench.programs import model_server
from kimi_tui.llm.completion import AnswerItem, complete, stream_answer
from kimi_tui.llm.message import user_message
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.llm.provider import TextDelta
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.wire.events import Event, TextPart
from kimi_tui.wire.queue import Wire

N_TOKENS = 40_000


async def through_the_program(base_url: str, n_tokens: int) -> float:
    """Return the CPU microseconds a token of the program."""
    provider = OpenAICompatible(provider="bench", base_url=base_url, api_key="", model="bench")
    wire, model = Wire(), TranscriptModel()

    def take() -> None:
        for record in shown.drain():
            model.apply(record)

    def take_soon(_: Event) -> None:
        asyncio.get_running_loop().call_later(1 / 60, take)

    shown = wire.subscribe(wake=take_soon)

    def publish(item: AnswerItem) -> None:
        if isinstance(item, TextDelta):
            wire.publish(TextPart(item.text))

    began = time.process_time()
    await complete(stream_answer(provider, "", [], [user_message(f"burst {n_tokens}")]), publish)
    took = time.process_time() - began
    await provider.aclose()
    return took / n_tokens * 1e6


async def bare(base_url: str, n_tokens: int) -> float:
    """Return the CPU microseconds a token of a reader of lines and JSON."""
    began = time.process_time()
    async for _ in deltas(base_url, f"burst {n_tokens}"):
        pass
    return (time.process_time() - began) / n_tokens * 1e6


async def main() -> None:
    """Measure both and print one line."""
    with model_server() as base_url:
        await through_the_program(base_url, 100)
        ours: list[float] = []
        floor: list[float] = []
        for _ in range(3):
            ours.append(await through_the_program(base_url, N_TOKENS))
            floor.append(await bare(base_url, N_TOKENS))
    print(f"a token: {min(ours):.1f} µs, bare {min(floor):.1f} µs (goal ≤ 25 µs)")


if __name__ == "__main__":
    asyncio.run(main())
