"""Everything that looks through foreign text is given 75 kB of its worst, in a process that may use little CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.worst_text import Attempts, check, try_each

from kimi_tui import lenient_json
from kimi_tui.base_url import clean_url, is_url
from kimi_tui.config.file import parse_config
from kimi_tui.llm import errors
from kimi_tui.llm.completion import Collector
from kimi_tui.llm.dialects import DIALECTS, LearnedQuirks, family, for_model
from kimi_tui.llm.errors import ResponseContext, overflow_of, retry_after
from kimi_tui.llm.message import user_message
from kimi_tui.llm.models import known_to_see, known_window, read_models
from kimi_tui.llm.provider import ThinkDelta
from kimi_tui.llm.request import Recipient, sent_messages
from kimi_tui.llm.stream import SSEDecoder, ThinkTags, ToolCallMerger
from kimi_tui.llm.tokens import estimate

SIZE = 75_000
CPU_S = 3

# Runs, and beginnings of what is looked for, again and again.
TEXTS = [
    " ",
    "\n",
    " \n",
    "9",
    ".",
    "9.",
    "m",
    "a",
    "-",
    "{",
    "(",
    "漢",
    "n_ctx ",
    'n_ctx":',
    "input token count ",
    "exceeded limit:",
    "context length ",
    "token limit: ",
    "requested 9 ",
    "<title ",
    "<system-reminder>",
    "</system-reminder> ",
    "<think>",
    "</think",
    "retryDelay.",
    "try again in 9m",
    "sk-",
    "key-key",
    "after the optional system message ",
    "role 'tool' ",
    "tool call id was ",
    "reasoning_effort ",
    "/",
    "kimi-",
    "moonshot-v1-",
    "http://",
]


PLAIN = [" ", "9.", "{", "<title "]
RUNS = {" ", ".", "9"}
DEAR = {
    "tokens",
    "answer",
    "arguments",
    "details",
    "think tags",
    "events",
    "config",
    "model",
    "url",
}
"""These take their time even where they go through a text once, so they get fewer."""


def _worst(piece: str) -> list[str]:
    run = piece * (SIZE // len(piece))
    return [run, f"x{run}!", f"n_ctx {run}", f"retryDelay {run}", f"https://{run} x"]


def _answer(text: str) -> None:
    answered = ResponseContext(
        "h", "m", 400, {"retry-after": text, "x-ratelimit-reset": text}, ("sk-x" * 5,)
    )
    errors.error_of_response(text.encode(), answered)
    body = {"error": {"message": text, "code": text, "n_ctx": text, "metadata": {"raw": text}}}
    errors.error_of_stream_event(body, answered)


def _pieces_of_arguments(text: str) -> None:
    calls = ToolCallMerger()
    calls.feed({"index": 0, "id": "a", "function": {"name": "Run", "arguments": '{"a": [{'}})
    for start in range(0, len(text) // 16, 2):
        calls.feed({"index": 0, "function": {"arguments": "{" + text[start : start + 1] + "}"}})
    calls.all_complete()


def _details(text: str) -> None:
    collector = Collector()
    entry = {"type": "reasoning.text", "text": text[:4]}
    for _ in range(len(text) // 20):
        collector.add(ThinkDelta("", "reasoning_details", (entry,)))
    collector.message()


def _thought_in_pieces(text: str) -> None:
    tags = ThinkTags()
    for start in range(0, len(text), 2):
        tags.feed(text[start : start + 2])
    tags.finish()


def _events(text: str) -> None:
    decoder = SSEDecoder()
    for line in ("data:", ": ", "event: x", text[:3]):
        for _ in range(20):
            decoder.feed(f"{line}\n".encode() * 2_000)


def _config(text: str) -> None:
    quoted = text.replace("\\", "").replace('"', "").replace("\n", " ")
    parse_config(f'[providers.p]\nbase_url = "{quoted}"\n'.encode(), Path("config.toml"))


def _model_name(text: str) -> None:
    for_model(DIALECTS["moonshot"], text)
    family(text)
    known_window(text)
    known_to_see(text)
    read_models({"data": [{"id": text, "type": text}]})


def _learn(text: str) -> None:
    LearnedQuirks().learn(
        text, frozenset({"reasoning_effort", "stream_options"}), DIALECTS["generic"]
    )


LOOKED_THROUGH: dict[str, Callable[[str], Any]] = {
    "tokens": estimate,
    "answer": _answer,
    "overflow": lambda text: overflow_of("", text, text),
    "wait": lambda text: retry_after({"retry-after": text}, text, 0.0),
    "quirk": _learn,
    "redaction": lambda text: errors.redact(text, ("sk-secret-secret",)),
    "sent": lambda text: sent_messages(
        text, [user_message(text)] * 2, DIALECTS["generic"], Recipient("p", "m")
    ),
    "think tags": _thought_in_pieces,
    "arguments": _pieces_of_arguments,
    "details": _details,
    "events": _events,
    "config": _config,
    "url": lambda text: is_url(clean_url(text)),
    "model": _model_name,
    "surrogates": lenient_json.without_surrogates,
}


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_the_worst_text_is_gone_through_once() -> None:
    check(__file__)


def _attempts(name: str, look: Callable[[str], Any]) -> Attempts:
    is_dear = name in DEAR
    for piece in PLAIN if is_dear else TEXTS:
        for text in _worst(piece)[: 1 if is_dear or piece not in RUNS else 5]:
            yield repr(text[:30]), partial(look, text)


if __name__ == "__main__":
    try_each({name: _attempts(name, look) for name, look in LOOKED_THROUGH.items()}, CPU_S)
