"""The themes: the palettes as Textual themes, and themes of Textual with a colour for each of our names.

The names are used in `css/*.tcss` with a `$` before them and by line-API widgets through `COMPONENT_CLASSES`. Textual filters
all colours if `NO_COLOR` is set (`App.no_color`); `terminal_input` finds out whether the terminal is light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from kimi_tui.tui.palette import DARK, LIGHT, MANY, SIXTEEN, palettes_for


def _standard(palette: dict[str, str]) -> dict[str, str]:
    """Return the variables of Textual's own widgets, computed from the palette."""
    return {
        "block-cursor-background": palette["select"],
        "block-cursor-foreground": palette["ink-strong"],
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": palette["band"],
        "block-cursor-blurred-foreground": palette["ink"],
        "block-cursor-blurred-text-style": "none",
        "block-hover-background": palette["band"],
        "border": palette["line-strong"],
        "border-blurred": palette["line"],
        "footer-background": palette["page"],
        "footer-foreground": palette["ink-quiet"],
        "footer-key-foreground": palette["ink"],
        "footer-key-background": palette["page"],
        "footer-description-background": palette["page"],
        "input-cursor-background": palette["accent"],
        "input-cursor-foreground": palette["on-accent"],
        "input-cursor-text-style": "none",
        "input-selection-background": palette["select"],
        "link-background": palette["page"],
        "link-background-hover": palette["band"],
        "link-color": palette["accent"],
        "link-color-hover": palette["accent"],
        "link-style": "underline",
        "link-style-hover": "underline",
        "screen-selection-background": palette["selection"],
        "screen-selection-foreground": palette["on-selection"],
        "scrollbar": palette["line-strong"],
        "scrollbar-hover": palette["ink-quiet"],
        "scrollbar-active": palette["accent"],
        "scrollbar-background": palette["page"],
        "scrollbar-background-hover": palette["page"],
        "scrollbar-background-active": palette["page"],
        "scrollbar-corner-color": palette["page"],
    }


_ANSI = {
    "ansi-background": "ansi_default",
    "ansi-foreground": "ansi_default",
}
"""The variables that Textual's own style sheets need in a theme of the terminal's colours."""


def _theme(name: str, palette: dict[str, str], *, dark: bool, ansi: bool = False) -> Theme:
    return Theme(
        name=name,
        primary=palette["accent"],
        accent=palette["accent"],
        secondary=palette["kind-tool"],
        warning=palette["warn"],
        error=palette["kind-error"],
        success=palette["ok"],
        foreground=palette["ink"],
        background=palette["page"],
        surface=palette["raised"],
        panel=palette["band"],
        dark=dark,
        ansi=ansi,
        variables={**palette, **_standard(palette), **(_ANSI if ansi else {})},
    )


OURS = ("dark", "light", "16")
KIMI_DARK = _theme("kimi-dark", DARK, dark=True)
KIMI_LIGHT = _theme("kimi-light", LIGHT, dark=False)
KIMI_SIXTEEN = _theme("kimi-16", SIXTEEN, dark=True, ansi=True)


def themes_for(colours: int) -> dict[str, Theme]:
    """Return the themes by their names in the configuration, for a terminal with this number of colours.

    With 256 colours the tints of the page are those that such terminals have, as all others would become black.
    """
    if colours > MANY:
        dark, light = KIMI_DARK, KIMI_LIGHT
    else:
        palettes = palettes_for(colours)
        dark = _theme("kimi-dark", palettes["dark"], dark=True)
        light = _theme("kimi-light", palettes["light"], dark=False)
    return {"dark": dark, "light": light, "16": KIMI_SIXTEEN}


def theme_of(name: str, themes: dict[str, Theme]) -> Theme:
    """Return the theme with a name of the configuration: one of ours, or one of Textual's with our colours, which is then added.

    Raises:
        KeyError: no theme has that name.
    """
    if name not in themes:
        themes[name] = borrowed(BUILTIN_THEMES[name])
    return themes[name]


def borrowed(theme: Theme) -> Theme:
    """Return one of Textual's themes with a colour for each of our names, so that our styles parse and are legible.

    The colours come from the theme; a colour that would be hard to read on one of the backgrounds is moved towards white, or
    towards black on a light page.
    """
    dark = theme.dark
    palette = dict(DARK if dark else LIGHT)
    page = Color.parse(theme.background or palette["page"])
    ink = Color.parse(theme.foreground or palette["ink"])
    primary = Color.parse(theme.primary)
    warning, error, success = (
        Color.parse(given or palette[ours])
        for given, ours in (
            (theme.warning, "warn"),
            (theme.error, "kind-error"),
            (theme.success, "ok"),
        )
    )
    tool = Color.parse(theme.secondary or theme.primary)
    compaction = Color.parse(theme.accent or theme.primary)
    grounds = {
        "page": page,
        "raised": page.blend(ink, 0.04),
        "band": page.blend(ink, 0.09),
        "select": page.blend(primary, 0.18),
        "lost-bg": page.blend(ink, 0.07),
        "dmail-bg": page.blend(warning, 0.08),
        "diff-add-bg": page.blend(success, 0.12),
        "diff-del-bg": page.blend(error, 0.12),
    }
    inks = {
        "ink": ink,
        "ink-strong": ink.blend(WHITE if dark else BLACK, 0.5),
        "ink-quiet": ink.blend(page, 0.35),
        "accent": primary,
        "kind-user": primary,
        "kind-tool": tool,
        "kind-dmail": warning,
        "kind-compaction": compaction,
        "kind-lost": ink.blend(page, 0.35),
        "kind-error": error,
        "ok": success,
        "warn": warning,
        "diff-add-fg": success,
        "diff-del-fg": error,
        "code-keyword": tool,
        "code-string": success,
        "code-comment": ink.blend(page, 0.35),
    }
    others = {
        "line": page.blend(ink, 0.16),
        "line-strong": page.blend(ink, 0.38),
        "gauge-system": ink.blend(page, 0.4),
        "gauge-talk": primary,
        "gauge-tools": tool,
        "gauge-free": page.blend(ink, 0.16),
        "gauge-mark": compaction,
        "gauge-mark-dim": compaction.blend(page, 0.6),
        "curve": primary.blend(page, 0.35),
        "curve-past": primary.blend(page, 0.65),
    }
    palette |= {name: colour.hex for name, colour in (grounds | others).items()}
    palette |= {name: _legible(one, grounds.values(), dark=dark).hex for name, one in inks.items()}
    palette["on-accent"] = page.hex
    return _theme(f"kimi-{theme.name}", palette, dark=dark)


WHITE, BLACK = Color(255, 255, 255), Color(0, 0, 0)
CONTRAST = 4.5


def _legible(ink: Color, grounds: Iterable[Color], *, dark: bool) -> Color:
    """Return a colour, moved as little as necessary to be legible on all of these backgrounds."""
    shades = [_luminance(ground) for ground in grounds]
    hardest = max(shades) if dark else min(shades)
    for step in range(21):
        moved = ink.blend(WHITE if dark else BLACK, step / 20)
        pair = (_luminance(moved) + 0.05, hardest + 0.05)
        if max(pair) / min(pair) >= CONTRAST and (pair[0] > pair[1]) == dark:
            return moved
    return WHITE if dark else BLACK


def _luminance(colour: Color) -> float:
    """Relative luminance, from 0 to 1, as WCAG 2 defines it."""
    parts = (part / 255 for part in colour.rgb)
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
