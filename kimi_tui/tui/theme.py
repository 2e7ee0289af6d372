"""The themes: a dark and a light palette and one of sixteen colours, as Textual themes.

The names are used in `css/*.tcss` with a `$` before them and by line-API widgets through `COMPONENT_CLASSES`; no other module
holds a colour. Textual filters all colours if `NO_COLOR` is set (`App.no_color`); `terminal_input` finds out whether the
terminal is light or dark. Every text colour has a contrast of at least 4.5 on every background on which it may occur.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from kimi_tui.tui.desktop import MANY

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
        dark = _theme("kimi-dark", DARK | _DARK_256, dark=True)
        light = _theme("kimi-light", LIGHT | _LIGHT_256, dark=False)
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
