"""What a forked process of the start server runs: the order on its standard input says whether it is a future or a sub-agent's copy."""

from __future__ import annotations

import asyncio
import json
import os

from kimi_tui.config.settings import ConfigError
from kimi_tui.futures.agent_child import AgentChild
from kimi_tui.futures.child import FutureChild, Order
from kimi_tui.headless.output import Output, complain
from kimi_tui.headless.standard_input import StandardInput
from kimi_tui.launch import CannotOpen


async def _main(out: int) -> int:
    lines = aiter(StandardInput(complain).lines())
    try:
        first = await anext(lines)
    except StopAsyncIteration:
        return 0
    try:
        order = Order(**json.loads(first))
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"The instructions for this future cannot be read: {error}") from error
    kind = AgentChild if order.agent else FutureChild
    return await kind(order, lines, Output(out)).run()


def main() -> int:
    """Run what standard input orders; return the exit code. What goes wrong is one line on standard error."""
    # Standard output has lines alone: nothing that a library prints may come among them.
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        return asyncio.run(_main(out))
    except (ConfigError, CannotOpen) as error:
        complain(str(error))
        return 1
    except asyncio.CancelledError:
        return 0
    except OSError as error:
        complain(error.strerror or str(error))
        return 1
