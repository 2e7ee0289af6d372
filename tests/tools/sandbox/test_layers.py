"""Each layer of the sandbox alone holds what it is there for, whoever runs it and whatever version of Landlock the kernel has.

All together say little of one: what Landlock holds, covers hold too. So each is tried without the others, and each attempt
first without any.
"""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, chdir
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.covered import is_covered, needs_landlock
from support.sandbox_targets import (
    USERS,
    give,
    number_of,
    port_at,
    shared_segment,
    sleeping,
    socket_at,
    targets,
)

from kimi_tui.tools.sandbox import confine
from kimi_tui.tools.sandbox.policy import SandboxSettings, policy_for

HERE = Path(__file__).parent

FILES = {
    *("write", "make", "truncate", "remove", "folder", "link to", "pipe", "take in", "put out"),
    *("hard link in", "hard link out", "exchange"),
}
META = {"mode", "times", "attribute"}
SECRET = {"secret", "secret by root"}
IN_WORK = {"secret in work", "hook", "hooks away"}
SHARED = {"other temporary", "shared memory", "segment", "terminal"}
TRACES = {"environment", "memory", "files of", "taken over", "trace"}
BY_NUMBER = {"signal", "processors", "class", "nice", "limits"}
OF_ALL = {"nice of all", "disk of all"}
TCP = {"tcp", "listen"}
UDP = {"udp", "udp lite", "fast open"}
SOCKETS = {"socket", "bound elsewhere"}
SPACES = {"user space", "mounts", "child space", "child space anew", "enter", "mount"}
KERNEL = {"keys", "key ring", "faults", "rings", "programs", "counters"}
OWNER = {"owner", "owner made"}
CALLS = {*SPACES, *KERNEL, *OWNER, *OF_ALL, "typing", "lease", "other network", "limits"}
WHOLE = {
    *(*FILES, *META, *SECRET, *IN_WORK, "secret names", *SHARED, *TRACES, *BY_NUMBER),
    *("seen", "rights of owners", "bounds", *CALLS),
}
NETWORK = {*TCP, *UDP, "abstract", *SOCKETS}

HELD: dict[str, set[str]] = {
    "namespaces": {
        *(*FILES, *META, *SECRET, *IN_WORK, "secret names", *SHARED, *TRACES),
        *(*BY_NUMBER, "seen", "rights of owners", *NETWORK),
    },
    "landlock": {*FILES, *SECRET, *TRACES, "terminal", *TCP, "signal", "abstract"},
    "landlock in the whole": {*FILES, *TRACES, "signal", "abstract"},
    "landlock 1": {*FILES - {"truncate"}, *SECRET, *TRACES},
    "landlock 3": {*FILES, *SECRET, *TRACES},
    "landlock 4": {*FILES, *SECRET, *TRACES, *TCP},
    "landlock 6": {*FILES, *SECRET, *TRACES, *TCP, "signal", "abstract"},
    "capabilities": set(),
    "filter": CALLS,
    "filter of landlock alone": {*CALLS, *UDP, "abstract", *SOCKETS},
    "whole": {*WHOLE, *NETWORK},
    # Without what the newer ones add nothing opens: what they hold, the namespaces do.
    **{f"whole with landlock {abi}": {*WHOLE, *NETWORK} for abi in (1, 4, 6)},
    "whole with the network": {*WHOLE, *SOCKETS, "abstract"},
    "landlock alone": {*FILES, *SECRET, *TRACES, "terminal", *CALLS, *NETWORK, "signal"},
}
NEWER = {"whole with landlock 4", "whole with landlock 6"}
"""Combinations that hold no less than the whole with the oldest Landlock; each alone is hindered only by what breaks it there."""
OF_ROOT = {"kernel settings", "disk"}
"""Attempts that only root can make."""
ROOT_HELD = {
    "capabilities": {*TRACES, "processors", "class", "bounds"},
    "namespaces": {"kernel settings"},
    "landlock": OF_ROOT,
    "landlock in the whole": OF_ROOT,
    "whole": OF_ROOT,
}
"""Further attempts that a layer holds if root runs it: other programs of root then have rights that it has given up."""


class World:
    """The targets of the attempts: files, a process and sockets of the user that makes them."""

    def __init__(self, base: Path, user: int, held: ExitStack) -> None:
        self.base, self.user = base, user
        name = f"canary-{uuid4().hex}"
        work, out, home = (base / part for part in ("work", "out", "home"))
        for path in (
            *(work / one for one in ("ok", "put", "swap", "owned", ".env", ".git/hooks/x.sample")),
            *(out / one for one in ("file", "remove", "take", "swap", "leased")),
            *(home / ".ssh/id", base / "tmp/x", base / "app/config.toml"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine\n")
        for place in ("HEAD", "objects/x", "refs/x"):
            (work / ".git" / place).parent.mkdir(exist_ok=True)
            (work / ".git" / place).touch()
        shm, tmp_file = Path("/dev/shm") / name, Path(tempfile.gettempdir()) / name
        for path in (shm, tmp_file):
            path.write_text("mine\n")
            held.callback(path.unlink, missing_ok=True)
        own, other = pty.openpty()
        held.callback(os.close, own)
        held.callback(os.close, other)
        os.chown(other, user, -1)
        with chdir(work):
            socket_at(held, socket.AF_UNIX, "first.sock")
        (work / "first.sock").rename(work / "moved.sock")
        socket_at(held, socket.AF_UNIX, str(out / "sock"))
        socket_at(held, socket.AF_UNIX, f"\0{name}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            unused = free.getsockname()[1]
        give((base, shm, tmp_file, *base.rglob("*")), user)
        environ = {"HOME": str(home), "KIMI_TUI_HOME": str(base / "app")}
        policy = policy_for(work, SandboxSettings(), environ)
        self.told: dict[str, Any] = {
            "confine": str(Path(confine.__file__).parent),
            "user": user,
            "is_made_up": user != os.geteuid(),
            "out": str(out),
            "home": str(home),
            "work": str(work),
            "shm": str(shm),
            "tmp_file": str(tmp_file),
            "segment": shared_segment(held, 0o666),
            "tty": os.ttyname(other),
            "victim": sleeping(held, user, name),
            "abstract": name,
            "port": port_at(held),
            "udp": port_at(held, socket.SOCK_DGRAM),
            "free": unused,
            "net": os.readlink("/proc/self/ns/net"),
            "write": policy.writable,
            "pin": policy.pinned,
            "keep": policy.kept,
            "hide": policy.hidden,
            "empty": policy.home.emptied,
            "show": policy.home.shown,
            "sockets": policy.sockets,
            "disk": next(
                (str(path) for path in Path("/dev").iterdir() if path.is_block_device()), ""
            ),
            "tmp": str(base / "tmp"),
        }

    def got_out(self, layer: str, tried: Collection[str] = ()) -> set[str]:
        """Return the attempts that get past this layer; all are tried if none are named."""
        told = json.dumps({**self.told, "layer": layer, "tried": sorted(tried)})
        ended = subprocess.run(
            [sys.executable, "-S", str(HERE / "layers.py"), told],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert ended.stdout, ended.stderr
        return set(json.loads(ended.stdout))


@pytest.fixture(params=USERS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    needs_landlock()
    with targets("layers") as (base, held):
        yield World(base, number_of(request.param), held)


@pytest.mark.exhaustive
def test_every_attempt_gets_out_where_nothing_holds_it(world: World) -> None:
    got_out = world.got_out("none")
    if world.user == 0:
        assert set().union(*ROOT_HELD.values()) - {"disk"} <= got_out
        assert "disk" in got_out or not world.told["disk"]
    missing = set().union(*HELD.values()) - got_out
    # Attempts that would reach more than this test are not made.
    assert missing == (set() if world.told["is_made_up"] else {"nice of all"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes mounts that are shared")
def test_what_is_covered_is_covered_for_the_command_alone(world: World) -> None:
    told = json.dumps({**world.told, "layer": "namespaces", "tried": ["seen"]})
    script = 'cat /proc/self/mountinfo; "$0" "$1" "$2" > /dev/null; echo behind; cat /proc/self/mountinfo'
    shared = ["unshare", "--mount", "--propagation", "shared", "sh", "-c", script]
    said = subprocess.run(
        [*shared, sys.executable, str(HERE / "layers.py"), told],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    before, _, behind = said.stdout.partition("behind\n")
    assert before == behind


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    "layer",
    [pytest.param(layer, marks=pytest.mark.exhaustive if layer in NEWER else ()) for layer in HELD],
)
def test_a_layer_alone_holds_what_it_is_for(layer: str, world: World) -> None:
    number = layer.rpartition(" ")[2]
    needs_landlock(int(number) if number.isdecimal() else 1)
    if layer == "landlock in the whole" and is_covered(world.base):
        pytest.skip(f"{world.base} lies below /tmp, which a command may write: nothing was tried")
    held = HELD[layer] | (ROOT_HELD.get(layer, set()) if world.user == 0 else set())
    # An attempt that the layer need not hold still shows that the layer can be put on.
    assert world.got_out(layer, held or {"seen"}) & held == set()


_NAMESPACES = """
import os
from kimi_tui.tools.sandbox import confine
kinds = ("user", "mnt", "ipc", "net")
before = [os.readlink(f"/proc/self/ns/{kind}") for kind in kinds]
as_root = confine._unshare({online})
after = [os.readlink(f"/proc/self/ns/{kind}") for kind in kinds]
print(as_root, *(old != new for old, new in zip(before, after)))
"""
_MAY_UNSHARE = 1 << 21
"""The capability CAP_SYS_ADMIN among those of a process."""


@pytest.mark.parametrize("online", [False, True])
def test_root_needs_no_user_namespace(*, online: bool) -> None:
    text = Path("/proc/self/status").read_text()
    (words,) = (line.split()[1] for line in text.splitlines() if line.startswith("CapEff:"))
    is_root = os.geteuid() == 0 and bool(int(words, 16) & _MAY_UNSHARE)
    code = _NAMESPACES.replace("{online}", str(online))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == [
        str(one) for one in (is_root, not is_root, True, True, not online)
    ]
