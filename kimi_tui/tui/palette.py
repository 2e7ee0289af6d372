"""The colours: a dark and a light palette and one of sixteen colours, by name, and which of them a terminal gets.

No other module holds a colour. Every text colour has a contrast of at least 4.5 on every background on which it may occur. Without Textual, as the first frame
is painted before it is imported; `theme` makes its themes of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

FEW = 16
MANY = 256
TRUE_COLOUR = 1 << 24
"""The number of colours of a true-colour terminal."""

LIGHT_FROM = 0.18
"""The luminance from which on black is easier to read on a background than white."""
_COLOUR = r"(?:rgba?:([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})(?:/.*)?|#(.*))\Z"

DARK: dict[str, str] = {
    "page": "#101318",
    "raised": "#171b22",
    "band": "#1f252e",
    "select": "#1f3044",
    "selection": "#2f5d8f",
    "lost-bg": "#212327",
    "dmail-bg": "#221b13",
    "diff-add-bg": "#13281c",
    "diff-del-bg": "#32191a",
    "line": "#32373f",
    "line-strong": "#555b66",
    "ink-strong": "#f4f7fb",
    "ink": "#dadee5",
    "ink-quiet": "#989faa",
    "accent": "#73bbf9",
    "on-accent": "#101318",
    "on-selection": "#f4f7fb",
    "kind-user": "#73bbf9",
    "kind-tool": "#96aeb8",
    "kind-dmail": "#f8b65d",
    "kind-compaction": "#c79feb",
    "kind-lost": "#9899a4",
    "kind-error": "#f97f7a",
    "ok": "#7ad19a",
    "warn": "#e7d26c",
    "diff-add-fg": "#a4e2b9",
    "diff-del-fg": "#f8a4a3",
    "code-keyword": "#96bfe9",
    "code-string": "#acd3b3",
    "code-comment": "#969da8",
    "gauge-system": "#7f8794",
    "gauge-talk": "#73bbf9",
    "gauge-tools": "#6cabb2",
    "gauge-free": "#32373f",
    "gauge-mark": "#c79feb",
    "gauge-mark-dim": "#5c496c",
    "curve-past": "#495766",
    "curve": "#5d7e9c",
}

LIGHT: dict[str, str] = {
    "page": "#fbfaf7",
    "raised": "#f4f2ee",
    "band": "#e4ebf4",
    "select": "#c9dff7",
    "selection": "#0b60b2",
    "lost-bg": "#e6e8eb",
    "dmail-bg": "#fceeda",
    "diff-add-bg": "#dcf4e2",
    "diff-del-bg": "#fde5e3",
    "line": "#dbd9d3",
    "line-strong": "#9a9fa6",
    "ink-strong": "#11161f",
    "ink": "#292e37",
    "ink-quiet": "#595f6a",
    "accent": "#0b60b2",
    "on-accent": "#fdfcf9",
    "on-selection": "#fdfcf9",
    "kind-user": "#0b60b2",
    "kind-tool": "#416371",
    "kind-dmail": "#905100",
    "kind-compaction": "#7544a3",
    "kind-lost": "#5d5e68",
    "kind-error": "#b12725",
    "ok": "#166e3a",
    "warn": "#7c5b00",
    "diff-add-fg": "#124c28",
    "diff-del-fg": "#892124",
    "code-keyword": "#205693",
    "code-string": "#2c5f3c",
    "code-comment": "#5b616b",
    "gauge-system": "#7b808a",
    "gauge-talk": "#0b60b2",
    "gauge-tools": "#438d99",
    "gauge-free": "#dbd9d3",
    "gauge-mark": "#7544a3",
    "gauge-mark-dim": "#c0aed7",
    "curve-past": "#b0c0d1",
    "curve": "#6292c3",
}

SIXTEEN: dict[str, str] = {
    "page": "ansi_default",
    "raised": "ansi_default",
    "band": "ansi_default",
    "select": "ansi_default",
    "selection": "ansi_bright_blue",
    "lost-bg": "ansi_default",
    "dmail-bg": "ansi_default",
    "diff-add-bg": "ansi_default",
    "diff-del-bg": "ansi_default",
    "line": "ansi_bright_black",
    "line-strong": "ansi_bright_black",
    "ink-strong": "ansi_default",
    "ink": "ansi_default",
    "ink-quiet": "ansi_default",
    "accent": "ansi_bright_blue",
    "on-accent": "ansi_black",
    "on-selection": "ansi_black",
    "kind-user": "ansi_bright_blue",
    "kind-tool": "ansi_default",
    "kind-dmail": "ansi_yellow",
    "kind-compaction": "ansi_magenta",
    "kind-lost": "ansi_default",
    "kind-error": "ansi_bright_red",
    "ok": "ansi_green",
    "warn": "ansi_bright_yellow",
    "diff-add-fg": "ansi_green",
    "diff-del-fg": "ansi_bright_red",
    "code-keyword": "ansi_bright_blue",
    "code-string": "ansi_green",
    "code-comment": "ansi_default",
    "gauge-system": "ansi_default",
    "gauge-talk": "ansi_bright_blue",
    "gauge-tools": "ansi_cyan",
    "gauge-free": "ansi_bright_black",
    "gauge-mark": "ansi_magenta",
    "gauge-mark-dim": "ansi_bright_black",
    "curve-past": "ansi_bright_black",
    "curve": "ansi_blue",
}

_DARK_256 = {
    "page": "#121212",
    "raised": "#1c1c1c",
    "band": "#262626",
    "select": "#303030",
    "selection": "#005f87",
    "on-selection": "#ffffff",
    "lost-bg": "#262626",
    "dmail-bg": "#1c1c1c",
    "diff-add-bg": "#121212",
    "diff-del-bg": "#121212",
}
_LIGHT_256 = {
    "page": "#ffffff",
    "raised": "#eeeeee",
    "band": "#e4e4e4",
    "select": "#afd7ff",
    "selection": "#005faf",
    "on-selection": "#ffffff",
    "lost-bg": "#e4e4e4",
    "dmail-bg": "#eeeeee",
    "diff-add-bg": "#ffffff",
    "diff-del-bg": "#ffffff",
}


def colours_of(environ: Mapping[str, str]) -> int:
    """Return the number of colours of the terminal, from the environment variables that Rich reads (COLORTERM and TERM)."""
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return TRUE_COLOUR
    depth = environ.get("TERM", "").strip().lower().rpartition("-")[2]
    return MANY if depth in ("256color", "kitty") else FEW


def palettes_for(colours: int) -> dict[str, dict[str, str]]:
    """Return the palettes by the names of their themes in the configuration, for a terminal with this number of colours.

    With 256 colours the tints of the page are those that such terminals have, as all others would become black.
    """
    if colours > MANY:
        return {"dark": DARK, "light": LIGHT, "16": SIXTEEN}
    return {"dark": DARK | _DARK_256, "light": LIGHT | _LIGHT_256, "16": SIXTEEN}


def is_light(colour: str) -> bool | None:
    """Return whether the terminal's background colour, as it reports it, is light (theme `auto`); None if it cannot be read."""
    found = re.match(_COLOUR, colour)
    if found is None:
        return None
    parts = found.groups()[:3]
    if (digits := found[4]) is not None:
        size = len(digits) // 3
        if not digits or len(digits) % 3 or size > 4 or re.search("[^0-9A-Fa-f]", digits):
            return None
        parts = (digits[:size], digits[size : 2 * size], digits[2 * size :])
    red, green, blue = (_linear(int(part, 16) / (16 ** len(part) - 1)) for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > LIGHT_FROM


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4


def guess_light(environ: Mapping[str, str]) -> bool | None:
    """Return whether the terminal is light according to variables, before it is asked; None if they do not say it."""
    ground = environ.get("COLORFGBG", "").rpartition(";")[2]
    return ground in ("7", "15") if ground.isdigit() else None
