"""The process that reads a page: it finds this program and its parsers wherever they are installed."""

from __future__ import annotations

import os
import sys

import pytest

from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.web import page_reader
from kimi_tui.tools.web.page_reader import PageReader

PAGE = b"<title>T</title><p>Some <b>words</b>.</p><ul><li>one</ul>"
BASE = str(getattr(sys, "_base_executable", sys.executable))
"""An interpreter that has none of the packages, as `-I` leaves out those of `pip install --user`."""


@pytest.mark.skipif(
    os.path.realpath(sys.prefix) == os.path.realpath(sys.base_prefix), reason="no venv"
)
async def test_packages_that_an_isolated_interpreter_does_not_find_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", BASE)
    found = await PageReader().read(PAGE, "html", "", "http://a.example/", os.environ)
    assert (found.title, found.text) == ("T", "Some **words**.\n\n- one")
    # Without the folders of the parsers the page is not called too large.
    folders = page_reader._folders()
    monkeypatch.setattr(page_reader, "_folders", lambda: folders[:1])
    with pytest.raises(ToolProblem, match="lxml, markdownify or pypdf"):
        await PageReader().read(PAGE, "html", "", "http://a.example/", os.environ)
