"""The bytes that terminals send for keys, by Textual's names of the keys."""

from __future__ import annotations

from collections.abc import Mapping

KEYS: Mapping[str, bytes] = {
    "enter": b"\r",
    "tab": b"\t",
    "shift+tab": b"\x1b[Z",
    "escape": b"\x1b",
    "space": b" ",
    "backspace": b"\x7f",
    "delete": b"\x1b[3~",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "home": b"\x1b[H",
    "end": b"\x1b[F",
    "pageup": b"\x1b[5~",
    "pagedown": b"\x1b[6~",
    "shift+enter": b"\x1b[13;2u",
    "alt+enter": b"\x1b\r",
    "f1": b"\x1bOP",
    "f2": b"\x1bOQ",
    "f3": b"\x1bOR",
    "f4": b"\x1bOS",
    "f5": b"\x1b[15~",
    "f6": b"\x1b[17~",
    "f7": b"\x1b[18~",
}


def key_bytes(name: str) -> bytes:
    """Return the bytes of `enter`, `ctrl+t`, `alt+x`, `up` or a single character."""
    if name in KEYS:
        return KEYS[name]
    if name.startswith("ctrl+") and len(name) == 6:
        return bytes([ord(name[-1].upper()) & 0x1F])
    if name.startswith("alt+") and len(name) == 5:
        return b"\x1b" + name[-1].encode()
    if len(name) == 1:
        return name.encode()
    raise ValueError(f"no such key: {name}")
