"""A command that the user runs themselves (`!make test`): its card on the wire, its output in the context.

It stands in the context as what the user said, behind a checkpoint of its own, and what came of it as a reminder behind
that. So a rewind to it brings the files back that it changed, and puts it into the prompt again.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Literal
from uuid import uuid4

from kimi_tui.llm.message import user_message
from kimi_tui.prompts import prompt
from kimi_tui.soul.internal_messages import quoted, user_words
from kimi_tui.soul.segments import label_of
from kimi_tui.soul.tool_calls import LiveOutput, ToolRuntime
from kimi_tui.soul.tool_results import INTERRUPTED, CallVersions, blocks_of, call_key
from kimi_tui.tools.base import ApprovalQuestion, ToolEnv, ToolProblem, failure
from kimi_tui.tools.key_text import find_keys, with_count, without_keys
from kimi_tui.tools.shell import run_as_user
from kimi_tui.wire.events import ToolResult, ToolStarted


async def run_user_command(command: str, runtime: ToolRuntime, *, told: bool) -> Literal["done"]:
    """Run it to its end.

    Args:
        command: as the user typed it.
        runtime: where it runs; its sandbox is not used.
        told: the model is told of it; else nothing of it comes into the context.

    Raises:
        asyncio.CancelledError: stopped; it is published and told as that.
        OSError: the disk refused.
    """
    conversation = runtime.conversation
    uid = ""
    if told:
        said = f"!{command}"
        point = await conversation.checkpoint("user", label_of(said))
        uid = point.uid
        await conversation.append([user_words(said)])
    elif conversation.context.checkpoints:
        uid = conversation.context.checkpoints[-1].uid
    key = call_key(uid if told else uuid4().hex, 0)
    output = LiveOutput(conversation.wire, key)
    env = ToolEnv(
        work_dir=runtime.work_dir,
        approver=_Yes(),
        mailbox=conversation.denwa,
        versions=CallVersions(conversation.memory),
        emit=output.emit,
        environ=runtime.environ,
        key=key,
    )
    change = await conversation.files.before_change(None)
    conversation.wire.publish(ToolStarted(key, "Shell", json.dumps({"command": command})))
    began = time.monotonic()
    stopped = False
    try:
        outcome = await run_as_user(command, env)
    except ToolProblem as problem:
        outcome = failure(str(problem), brief=problem.brief)
    except asyncio.CancelledError:
        stopped, outcome = True, failure(INTERRUPTED, brief="stopped")
    output.close()
    conversation.files.after_change(change, uid, key)
    sent, brief = outcome.output, outcome.brief
    if not told:
        # Its card stands among those of which the agent knows.
        brief = f"{brief}, agent not told"
    elif keys := await asyncio.to_thread(find_keys, sent):
        brief = with_count(brief, keys)
        if runtime.asks_for_keys:
            sent, brief = without_keys(sent, keys), f"{brief}, left out"
    conversation.wire.publish(
        ToolResult(
            key=key,
            is_error=outcome.is_error,
            output=outcome.output,
            message=outcome.message,
            display=await blocks_of(outcome.effects, brief),
            duration_s=time.monotonic() - began,
            interrupted=stopped,
        )
    )
    if told:
        told_words = prompt("user_command", FACTS=outcome.message, OUTPUT=quoted(sent))
        await conversation.append([user_message(told_words)])
        conversation.publish_status()
    await conversation.files.settled()
    if stopped:
        raise asyncio.CancelledError
    return "done"


class _Yes:
    """What the user typed themselves needs no question."""

    async def ask(self, ask: ApprovalQuestion) -> str:
        return ""
