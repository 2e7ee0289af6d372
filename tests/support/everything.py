"""A session that uses every feature of the engine, so that its files hold everything that the engine writes."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from kimi_tui.config.settings import DMailConfig, DMailRule
from kimi_tui.images import read_image
from kimi_tui.llm.errors import LLMError
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire import events as ev
from support.chat_server import call, calls, gate, say, status
from support.made_images import flat, saved
from support.made_tool import Deploy
from support.soul import Stage, next_event, until_end

SHOT = read_image(saved(flat(56, 28)), "shot.png")
SOURCE = "def run(rows):\n    return rows\n"
BODY = {"error": {"message": "overloaded"}}
CAPABILITIES = ["image_in", "thinking"]
"""The capabilities that the stage must report for its model."""
LIMITS = LoopLimits(dmail=DMailConfig(rules=(DMailRule("large file", "send", result_tokens=500),)))
"""The limits that the stage must have."""


async def do_everything(on: Stage) -> None:
    """Run turns with thoughts, text, calls and images, questions and answers, all kinds of time travel, and changes of settings."""
    soul, server, work = on.soul, on.server, on.work
    for name in ("logo.png", "shot.png"):
        (work / name).write_bytes(SHOT.data)
    await soul.files_ready()

    # This turn uses files, commands, a list, a read image, pasted and named images, and a call that fails.
    server.script(
        calls(
            [
                ("WriteFile", {"path": "run.py", "content": SOURCE}),
                ("Shell", {"command": "echo one; exit 3"}),
                ("SetTodoList", {"todos": [{"title": "Look", "status": "in_progress"}]}),
                ("ReadFile", {"path": "logo.png"}),
                ("ReadFile", {"path": "nowhere.py"}),
            ],
            text="First I write it — «здесь».",
            think="What is there?",
        ),
        calls([("StrReplaceFile", {"path": "run.py", "edit": {"old": "rows\n", "new": "[]\n"}})]),
        say("Done.", think="All of it."),
    )
    await soul.run("Write it, as @shot.png shows.", [SHOT])
    await soul.rename("Everything at once")
    first = soul.session.context.checkpoints[0]
    await soul.marks.bookmark(first.uid, "the beginning")
    await soul.marks.pin(first.uid)

    # Here the server fails at first, a message and an image come meanwhile, and a message is taken back.
    server.script(status(503, BODY), gate(1, calls([("Glob", {"pattern": "*"})])), say("I saw it."))
    turn = asyncio.create_task(soul.run("And now?"))
    await asyncio.wait_for(server.at_gate.wait(), 50)
    soul.inbox.take_back(soul.say("not this"))
    soul.say("Look at this too.", [SHOT])
    soul.say("And this after it.", when="after the turn")
    server.release()
    await turn
    soul.inbox.take_back_all()

    # Each question is answered in another way; then everything is allowed again.
    await soul.set_mode("ask")
    for answer in ("once", "session", "no"):
        server.script(call("Shell", {"command": f"touch {answer}"}), say("ok"))
        heard = soul.wire.subscribe()
        turn = asyncio.create_task(until_end(soul.run(f"Touch {answer}")))
        request = await next_event(heard, ev.ApprovalRequest)
        soul.answer(request.id, answer, "Not that." if answer == "no" else "")
        await turn
        soul.wire.unsubscribe(heard)
    await soul.set_mode("all")
    question = {
        "question": "Which?",
        "options": [{"label": "a", "description": "A"}, {"label": "b", "description": "B"}],
    }
    server.script(call("AskUserQuestion", {"questions": [question]}), say("a, then"))
    heard = soul.wire.subscribe()
    turn = asyncio.create_task(soul.run("Ask me."))
    request = await next_event(heard, ev.ApprovalRequest)
    soul.answer(request.id, "once", "a")
    await turn
    soul.wire.unsubscribe(heard)

    # One turn fails, and one is stopped in the middle.
    server.script(status(400, BODY))
    await until_end(soul.run("This fails."))
    server.script(gate(2, say("I would say more if I were let.")))
    heard = soul.wire.subscribe()
    turn = asyncio.create_task(until_end(soul.run("This is stopped.")))
    await next_event(heard, ev.TextPart)
    await soul.interrupt()
    await turn
    soul.wire.unsubscribe(heard)
    server.script(say("Resumed."))
    await soul.resume()

    # The user runs a command, the agent runs one in the background, then tools and model change.
    await soul.run_command("echo mine")
    server.script(call("Shell", {"command": "sleep 99", "background": True}), say("It runs."))
    await soul.run("In the background, please.")
    await soul.tasks.stop(1)
    soul.change_tools([Deploy()])
    server.script(call("mcp__ship__deploy", {"site": "docs.example"}), say("Deployed."))
    await soul.run("Deploy it.")
    soul.change_tools(removed=["mcp__ship__deploy"])
    soul.use_tools("lean")
    soul.use_tools("on")
    soul.set_provider(
        OpenAICompatible(
            provider="other",
            base_url=server.base_url,
            api_key="key",
            model="another",
            window=150_000,
            dialect="generic",
            capabilities=CAPABILITIES,
        )
    )
    await soul.rename("")
    await soul.rename("Everything at once")

    # The agent and the user send D-Mails, back and forth, with files.
    to = soul.session.context.n_checkpoints + 1
    server.script(
        call("ReadFile", {"path": "run.py"}),
        call("SendDMail", {"message": "It is short: no need to read it.", "checkpoint_id": to}),
        say("Thanks, past me."),
    )
    await soul.run("Is it long?")
    await soul.travel.rewind(Target(to), files="restore")
    await soul.travel.undo()
    await soul.travel.redo()
    await soul.travel.undo()
    await soul.dmails.send(Target(to), "Say what it does.")
    server.script(say("It gives nothing back."))
    await soul.resume()
    (work / "large.txt").write_text("some words of a line\n" * 400)
    server.script(call("ReadFile", {"path": "large.txt"}), say("Line 7 matters."), say("I know."))
    await soul.run("Read the large one.")
    left = await soul.lines.all()
    first = soul.session.world_line(left[-1].n).checkpoints[0]
    await soul.dmails.carry(left[-1].n, first.uid, 0, note="For you.")
    await soul.travel.rewind(Target(0, left[-1].n))
    await soul.travel.undo()

    # A part becomes a summary, then the whole conversation; the summary is edited, and a fork is made.
    server.script(say("## Middle\nSome of it."))
    await soul.compact(start=Target(to), until=None)
    server.script(say("## All\nMost of it."))
    await soul.compact("Keep the names.")
    await soul.edit_summary("## All\nAll that matters.")
    await soul.travel.fork()
    server.script(status(400, BODY))
    with contextlib.suppress(LLMError):
        await soul.dmails.draft(Target(1))
    server.script(
        calls([("Shell", {"command": "cat run.py"})], text="Once more."), say("The end. 日本")
    )
    await soul.run("Where are we?")
    await soul.flush()
    await soul.save()


def stored(folder: Path) -> list[str]:
    """Return the names of the files in a session's folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
