"""Tests readers of foreign text in processes with little CPU time.

What goes through a text once takes a fraction of a second for all of it; what goes through it once for each of its
letters takes many minutes, and holds the interpreter meanwhile: only the system can end it.
"""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NoReturn

Attempts = Iterable[tuple[str, Callable[[], object]]]
"""The attempts, each with its name, made one after another."""


def check(file: str, *arguments: str) -> None:
    """Run a test file as a program that ends in `try_each`, and check that all attempts came to an end."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, file, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout} {done.stderr[-2000:]}"
    assert done.stdout.split()[-1] == "done"


def try_each(readers: Mapping[str, Attempts], cpu_s: int) -> NoReturn:
    """Try each reader in a process of its own, forked from this one, which has imported what they share; ends the program.

    Args:
        readers: the attempts of each reader.
        cpu_s: seconds of processor time that one attempt may take.
    """
    failed = 0
    for name, attempts in readers.items():
        sys.stdout.flush()
        child = os.fork()
        if not child:
            for label, attempt in attempts:
                # The name is printed before the attempt: the last name is that of the attempt that did not return.
                print(f"{name}: {label}", flush=True)
                # The limit counts from the start of the process, and each attempt has all of it, on a slow machine too.
                used_s = math.ceil(time.process_time())
                resource.setrlimit(resource.RLIMIT_CPU, (used_s + cpu_s, resource.RLIM_INFINITY))
                attempt()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            failed += 1
            print(f"{name} did not come to an end", flush=True)
    print("done")
    sys.exit(failed)
