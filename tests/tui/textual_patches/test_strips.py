# pyright: reportPrivateUsage=false
from __future__ import annotations

import inspect
import re

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kimi_tui.tui.textual_patches import strips
from kimi_tui.tui.textual_patches.strips import SIZES, make_caches_late


def test_a_strip_has_a_cache_once_it_is_used() -> None:
    make_caches_late()
    make_caches_late()
    strip = Strip([Segment("words", Style(bold=True))], 5)
    slots = {name: vars(Strip)[name] for name in SIZES}

    def made() -> set[str]:
        found: set[str] = set()
        for name, late in slots.items():
            try:
                late._slot.__get__(strip, Strip)
            except AttributeError:
                continue
            found.add(name)
        return found

    assert not made()
    part = strip.crop(1, 3)
    assert strip.crop(1, 3) is part
    assert made() == {"_crop_cache"}
    assert strip.divide([2, 5])[0].text == "wo"
    assert strip.apply_offsets(1, 2) is strip.apply_offsets(1, 2)
    assert made() == {"_crop_cache", "_divide_cache", "_offsets_cache"}
    assert strip._crop_cache._maxsize == SIZES["_crop_cache"]
    assert strip == Strip([Segment("words", Style(bold=True))])


def test_the_patch_knows_all_that_textual_sets() -> None:
    source = inspect.getsource(inspect.getmodule(Strip) or strips)
    begin = source.partition("def __init__(\n        self, segments")[2].partition("    def ")[0]
    caches = re.findall(r"self\.(\w+)\b[^=]*= FIFOCache\((\d+)\)", begin)
    assert {name: int(size) for name, size in caches} == SIZES
    assert {*re.findall(r"self\.(\w+)\b[^=\n]*=", begin)} | {*SIZES} == {*Strip.__slots__}
