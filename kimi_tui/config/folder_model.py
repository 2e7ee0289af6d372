"""The model that was chosen for one work folder alone, and how much it thinks there: a small file for each, in the app's data folder.

It names a model of the configuration, or none, so it holds no key, and nothing in the work folder has a say in it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from kimi_tui.app_paths import data_dir, make_private
from kimi_tui.config.settings import Config
from kimi_tui.filesystem import Storage, read_regular

_MAX_BYTES = 4_096
_LONGEST_THINKING = 16


class FolderModel(NamedTuple):
    """A model by its name in the configuration, and what was set of thinking; each empty for the default."""

    model: str
    thinking: str = ""


def in_folder(config: Config, here: FolderModel | None) -> Config:
    """The configuration as it holds in a folder for which `here` was chosen."""
    if here is None or (here.model and here.model not in config.models):
        return config
    return config._replace(
        default_model=here.model or config.default_model, thinking=here.thinking or config.thinking
    )


def read_folder_model(work_dir: Path) -> FolderModel | None:
    """What was chosen for the folder; None for nothing, or nothing that can be read. Fast enough for before the first paint."""
    folder = data_dir() / "models"
    try:
        if not folder.is_dir():
            return None  # what follows takes imports, and few have chosen a model for a folder
        import json

        found = json.loads(read_regular(_file(folder, work_dir), _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    table = cast("dict[str, Any]", found)
    model, thinking = table.get("model"), table.get("thinking", "")
    if not isinstance(model, str) or not isinstance(thinking, str):
        return None
    is_word = thinking.isalpha() and len(thinking) <= _LONGEST_THINKING
    return FolderModel(model, thinking if is_word else "")


def keep_folder_model(work_dir: Path, chosen: FolderModel | None) -> None:
    """Keep what was chosen for the folder, or forget it. Blocks on the disk: for a thread.

    Raises:
        OSError: the disk refused; what was kept before is as it was.
    """
    import json

    path = _file(data_dir() / "models", work_dir)
    if chosen is None:
        with suppress(FileNotFoundError):
            path.unlink()
        return
    make_private(path.parent)
    # The folder is there for whoever looks into the file.
    table = {"folder": str(work_dir), **chosen._asdict()}
    Storage().replace_file(path, json.dumps(table).encode(), shared=True)


def keep_folder_thinking(work_dir: Path, thinking: str) -> None:
    """Keep how much the model thinks in the folder, whichever that is there. Blocks on the disk: for a thread.

    Raises:
        OSError: the disk refused; what was kept before is as it was.
    """
    here = (read_folder_model(work_dir) or FolderModel(""))._replace(thinking=thinking)
    keep_folder_model(work_dir, here if any(here) else None)


def _file(folder: Path, work_dir: Path) -> Path:
    import hashlib

    name = hashlib.md5(str(work_dir).encode("utf-8", "surrogateescape"), usedforsecurity=False)
    return folder / f"{name.hexdigest()}.json"
