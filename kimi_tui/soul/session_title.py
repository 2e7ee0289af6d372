"""The title of a session: asks the model to name the session after the beginning of the conversation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from kimi_tui.display_names import titled, unmarked
from kimi_tui.foreign_text import one_line
from kimi_tui.llm.completion import first_line
from kimi_tui.llm.errors import LLMError
from kimi_tui.llm.message import Message
from kimi_tui.prompts import prompt
from kimi_tui.session.metadata import short_title
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.messages import is_user_words

log = logging.getLogger(__name__)

_TIMEOUT_S = 60.0
_MOST_TOKENS = 64
_MAX_CHARS = 2_000
"""The largest number of characters of each message in the request."""


async def propose_title(conversation: Conversation) -> str:
    """Ask the model for a title of the conversation; return an empty text if it gives none.

    A server that answers one request after another is not asked: the user's next message would wait for the title. The
    tokens of the call count in the session's totals.
    """
    info = conversation.model.info()
    if info is None or info.one_at_a_time:
        return ""
    # The conversation is read up to the second message of the user.
    user, agent = await asyncio.to_thread(_beginning, conversation.context.messages)
    if not user:
        return ""
    question = Message(role="user", content=prompt("title", USER=user, AGENT=agent))
    try:
        async with asyncio.timeout(_TIMEOUT_S), conversation.model.call() as provider:
            line, usage = await first_line(
                provider, prompt("title_system"), question, most_tokens=_MOST_TOKENS
            )
    except (LLMError, TimeoutError) as error:
        log.info("the session was not named: %s", type(error).__name__)
        return ""
    conversation.meter.add_usage(usage)
    return short_title(unmarked(one_line(line)).strip(" .\"'`*#“”«»"))


def _beginning(messages: Sequence[Message]) -> tuple[str, str]:
    """Return the user's first message, and the agent's last message about it."""
    user = agent = ""
    for message in messages:
        # Commands of the user do not count.
        if is_user_words(message) and not message.text.startswith("!"):
            if user:
                break
            user = titled(message.text[:_MAX_CHARS])
        elif message.role == "assistant" and message.text.strip():
            agent = message.text[:_MAX_CHARS]
    return user, agent
