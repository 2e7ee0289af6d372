"""The links of the pages have targets: a page that walks through the files must not lose its way."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from support.sources import parsed

ROOT = Path(__file__).resolve().parent.parent
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "bench").glob("*.md"), *GUIDE]
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


def _script(name: str) -> ModuleType:
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.slow  # it reads the whole program
def test_the_list_of_texts_is_that_of_the_program() -> None:
    page = _script("make_strings").page(lambda path: parsed(path)[1])
    stored = (ROOT / "docs" / "strings.md").read_text("utf-8")
    assert stored == page, "make it anew: python docs/make_strings.py"


def test_the_guide_has_the_keys_and_commands_of_the_program() -> None:
    made = _script("make_guide")
    pages = [page.read_text("utf-8") for page in GUIDE]
    assert [made.filled(page) for page in pages] == pages, "make it anew: python docs/make_guide.py"
    # Every place that the help knows has its keys on some page, and every picture is used.
    whole = "\n".join([*pages, (ROOT / "docs" / "guide.md").read_text("utf-8")])
    for title in made.keys_of_places():
        assert f"<!-- keys: {title} -->" in whole, title
    others = (ROOT / "README.md", ROOT / "docs" / "futures.md")
    readme = "\n".join(page.read_text("utf-8") for page in others)
    for picture in (ROOT / "docs" / "pictures").iterdir():
        assert f"pictures/{picture.name})" in whole + readme, picture.name


def test_no_text_of_a_picture_has_spaces_that_a_browser_drops() -> None:
    for picture in (ROOT / "docs" / "pictures").glob("*.svg"):
        assert not re.search(r">( [^<]*|[^<]* |[^<]*  [^<]*)</text>", picture.read_text("utf-8")), (
            picture.name
        )


def test_the_architecture_page_names_every_package_and_walks_in_few_steps() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    code = ROOT / "kimi_tui"
    packages = [made.parent.relative_to(code) for made in code.glob("**/__init__.py")]
    assert [one for one in packages if f"(../kimi_tui/{one})" not in page and one.name] == []
    journeys = {
        title: re.findall(r"^\d+\. ", rest, re.MULTILINE)
        for title, _, rest in (part.partition("\n") for part in page.split("\n## ")[1:])
    }
    n_steps = {title: len(steps) for title, steps in journeys.items() if steps}
    assert len(n_steps) == 5
    assert max(n_steps.values()) <= 12, n_steps
