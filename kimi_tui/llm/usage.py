"""Token usage of one call: read from what a server sends, or estimated where it sends nothing.

Prices, and the usage of a session, are in `soul.usage`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kimi_tui import lenient_json
from kimi_tui.llm import tokens
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import ToolSpec, Usage


def read_usage(value: Any) -> Usage | None:
    """The usage in the `usage` object of an answer or of a chunk of its stream, in any dialect; None where it has no figures.

    The tokens that came from the server's cache stand in `prompt_tokens_details.cached_tokens` (OpenAI and most others),
    `prompt_cache_hit_tokens` (DeepSeek) or `cached_tokens` (Moonshot).
    """
    usage = lenient_json.mapping(value)
    prompt = lenient_json.count(usage.get("prompt_tokens"))
    completion = lenient_json.count(usage.get("completion_tokens"))
    if prompt is None and completion is None:
        return None
    details = lenient_json.mapping(usage.get("prompt_tokens_details"))
    cached = next(
        (
            found
            for found in (
                lenient_json.count(details.get("cached_tokens")),
                lenient_json.count(usage.get("prompt_cache_hit_tokens")),
                lenient_json.count(usage.get("cached_tokens")),
            )
            if found is not None
        ),
        0,
    )
    return Usage(prompt or 0, completion or 0, min(cached, prompt or 0))


async def usage_or_estimate(
    reported: Usage | None,
    system: str,
    tools: Sequence[ToolSpec],
    history: Sequence[Message],
    message: Message,
) -> Usage:
    """The usage of one call, with estimates in the place of figures that the server did not send or sent as zero.

    Args:
        reported: what the server sent, if it sent any.
        system: the system prompt of the request.
        tools: the tools of the request.
        history: the messages of the request.
        message: the answer.
    """
    if reported is not None and reported.input and reported.output:
        return reported

    def count() -> Usage:
        output = tokens.message_tokens(message)
        if reported is not None and reported.input:
            return Usage(reported.input, output, reported.cached, estimated=True)
        guess = tokens.estimate_request(system, tools, history)
        return Usage(guess, output, estimated=True, input_estimated=True)

    # Megabytes of history take tens of milliseconds to count.
    return await asyncio.to_thread(count)
