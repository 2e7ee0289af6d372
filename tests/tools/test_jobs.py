"""Commands that run on beside the conversation: started, read, waited for, stopped, and sent there while they run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.tool_env import Bench
from support.watching import peak_bytes, reset_peak_bytes, until

from kimi_tui.tools import jobs


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# Waits for files of the test, so that nothing depends on time.
STEPS = (
    "wait_for() { until [ -e $1 ]; do sleep 0.02; done; }; "
    "echo one; wait_for first; echo two; wait_for second; echo three; exit 4"
)


def go_on(bench: Bench, which: str) -> None:
    (bench.work_dir / which).touch()


async def test_a_command_is_read_piece_by_piece_to_its_end(bench: Bench) -> None:
    started = await bench.run("Shell", command=STEPS, background=True)
    assert "id 1" in started.message
    assert (started.is_error, started.brief, started.output) == (
        False,
        "background task 1",
        "one\n",
    )
    assert "in the background" in bench.approver.asks[0].where
    nothing = await bench.run("TaskOutput", id=1)
    assert (nothing.output, nothing.brief) == ("", "still runs")
    assert "No new output" in nothing.message
    go_on(bench, "first")
    (job,) = bench.jobs.running
    assert await until(lambda: "two" in job.tail.text)
    assert (await bench.run("TaskOutput", id=1)).output == "two\n"
    waiting = asyncio.create_task(bench.run("TaskOutput", id=1, wait=60))
    go_on(bench, "second")
    ended = await waiting
    assert (ended.output, ended.is_error, ended.brief) == ("three\n", True, "exit 4")
    assert ended.message.startswith("It has ended. Exit code 4 after ")
    # A model that has read the end needs no report about it.
    assert bench.jobs.take_ended() == []
    assert (await bench.run("TaskOutput", id=1)).output == ""
    assert not bench.jobs.running
    assert job.tail.text == "one\ntwo\nthree\n"
    missing = await bench.run("TaskOutput", id=7)
    assert missing.is_error
    assert "No background task is running" in missing.message


async def test_what_ends_at_once_is_told_at_once(bench: Bench) -> None:
    outcome = await bench.run("Shell", command="no-such-command", background=True)
    assert outcome.brief == "exit 127"
    assert "not found" in outcome.output
    assert not bench.jobs.all


async def test_a_job_is_stopped_with_everything_it_started(bench: Bench) -> None:
    command = "sleep 600 & echo $! >pid; trap '' TERM; wait"
    await bench.run("Shell", command=command, background=True)
    pid = int((bench.work_dir / "pid").read_text())
    assert is_alive(pid)
    stopped = await bench.run("TaskStop", id=1)
    assert not stopped.is_error
    assert stopped.brief == "stopped"
    assert await until(lambda: not is_alive(pid))
    assert "It was stopped" in (await bench.run("TaskStop", id=1)).message


async def test_all_end_with_the_session_and_there_is_room_for_so_many(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MOST_RUNNING", 2)
    for number in (1, 2):
        await bench.run("Shell", command=f"echo $$ >pid{number}; sleep 600", background=True)
    one_more = await bench.run("Shell", command="touch made", background=True)
    assert one_more.brief == "too many"
    assert not (bench.work_dir / "made").exists()
    pids = [int((bench.work_dir / f"pid{number}").read_text()) for number in (1, 2)]
    await bench.jobs.aclose()
    assert await until(lambda: not any(map(is_alive, pids)))
    # A few of the ended jobs are kept that nobody was told of.
    assert [job.id for job in bench.jobs.take_ended()] == [1, 2]
    assert bench.jobs.take_ended() == []


@pytest.mark.exhaustive
async def test_a_command_that_is_waited_for_is_sent_to_the_background(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not bench.jobs.move_to_background()
    call = asyncio.create_task(bench.run("Shell", command=STEPS, timeout=3))
    assert await until(lambda: "one" in "".join(bench.live))
    assert bench.jobs.move_to_background()
    moved = await call
    assert moved.message.startswith("The user moved it to the background, id 1.")
    assert moved.output == "one\n"
    # Its limit of time holds no more.
    (job,) = bench.jobs.running
    assert await until(lambda: job.ran_s > 3.2)
    go_on(bench, "first")
    assert await until(lambda: "two" in job.tail.text)
    go_on(bench, "second")
    assert (await bench.run("TaskOutput", id=1, wait=60)).output == "two\nthree\n"


async def test_a_call_that_is_stopped_stops_its_command(bench: Bench) -> None:
    call = asyncio.create_task(bench.run("Shell", command="echo $$ >pid; sleep 600"))
    assert await until(lambda: (pid := bench.work_dir / "pid").exists() and pid.read_text() != "")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    pid = int((bench.work_dir / "pid").read_text())
    assert await until(lambda: not is_alive(pid))
    assert not bench.jobs.all


@pytest.mark.exhaustive
async def test_a_hundred_megabytes_take_little_memory(bench: Bench) -> None:
    flood = "head -c 100000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo end; sleep 600"
    before = reset_peak_bytes()
    started = await bench.run("Shell", command=flood, background=True)
    (job,) = bench.jobs.running
    assert await until(lambda: "end" in job.tail.text[-20:])
    assert peak_bytes() - before < 30_000_000
    read = await bench.run("TaskOutput", id=1)
    # Output that comes at once is returned at once.
    assert len(read.output) < 50_000
    assert (started.output + read.output).endswith("end\n")
    assert "shortened" in started.message + read.message
    assert len(job.tail.text) <= 40_000
    await bench.jobs.aclose()
