"""What the pages link to is there: a page that walks through the files must not lose its way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "bench").glob("*.md")]
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)|(?:src|srcset)=\"([^\"]+)\"")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = [first or second for first, second in _LINK.findall(page.read_text("utf-8"))]
    missing = [
        target
        for target in targets
        if not target.startswith(("http://", "https://", "mailto:"))
        and not (page.parent / target).exists()
    ]
    assert missing == []


def test_the_architecture_page_walks_three_ways() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for heading in ("## One streamed token", "## One click on a checkpoint", "## One D-Mail"):
        assert heading in page
