"""The draft in the prompt, stored in the session's folder so that it survives a crash.

The images of its chips are stored with it, as are those of messages in the inbox, which stores the texts itself. `Drafts`
stores both when they change; the functions that read and write the files block, so call them in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, cast

from kimi_tui.app_paths import reason_of
from kimi_tui.display_names import CHIP
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.foreign_text import clean, clean_pasted
from kimi_tui.session.unsent import (
    DRAFT,
    WAITING,
    finish_writing,
    read_json,
    write_draft_text,
    write_json,
)
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.prompt.area import Draft, chip_of

if TYPE_CHECKING:
    from textual.timer import Timer

    from kimi_tui.images import Image
    from kimi_tui.session.session import Session
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.tui.prompt.image_chips import ImageChips

log = logging.getLogger(__name__)

NOT_KEPT = "draft"
"""Topic of the notice that the draft cannot be stored."""
_MOST_PRINTED = 10_000
"""Maximum characters of unsent text that are printed on the terminal at the end."""
DRAFT_S = 1.0
"""Seconds from the first key of a change until the draft is stored."""

IMAGES = "unsent_images"
"""A folder: each image under the hash of its content, and `index.json`, which maps chips to images."""
MOST_IMAGES = 50
MOST_IMAGE_BYTES = 64 << 20
"""Maximum bytes of all images of a draft. Further ones are not kept, and the user is told so when the draft comes back."""
_INDEX = "index.json"
_HASH = re.compile(r"[0-9a-f]{64}")
_MOST = 100
"""The largest number of chips of a draft."""
_CHIP = re.compile(r"\[Pasted [\d,]{1,15} lines?(?:, (\d{1,6}))?\]", re.ASCII)


class Drafts:
    """Stores the draft of one session, and puts it and the texts left in the inbox back into the prompt when the session is reopened.

    Args:
        bench: the workbench whose prompt has the draft.
        soul: the engine of the session.
        keeps_draft: whether drafts and images are stored; false for the demo.

    Attributes:
        is_given_back: whether the stored draft has been put into the prompt.
        kept_draft: the draft that is on the disk.
        trouble: why unsent text cannot be stored; empty if it can.
    """

    def __init__(self, bench: Workbench, soul: KimiSoul, *, keeps_draft: bool) -> None:
        self._bench = bench
        self._soul = soul
        self._keeps_draft = keeps_draft
        self._is_closed = False
        self._returned: list[str] = []
        """The texts that were taken back from the inbox, which keeps them until the draft is stored."""
        self.is_given_back = False
        self._keeping = asyncio.Lock()
        self._due: Timer | None = None
        """The timer until the changed draft is stored; None without a change."""
        self.kept_draft = Draft()
        self._images: set[str] = set()
        """The chips whose images the session's folder has."""
        self.trouble = ""
        self._is_told = False

    async def give_back(self, has_gone_on: Callable[[], bool] = lambda: False) -> None:
        """Put the text that was unsent when the program ended back into the prompt.

        Args:
            has_gone_on: whether a message was sent since the start. Then the draft goes into the history: in the prompt it
                would look like what was written just now.
        """
        session, bench, chips = self._soul.session, self._bench, self._bench.images
        if self._keeps_draft and not session.context.index.n_messages:
            await asyncio.to_thread(_take_over, session)
        await asyncio.to_thread(finish_writing, session.dir / DRAFT, session.dir / IMAGES / _INDEX)
        texts = await self._soul.inbox.left_over()
        if self._keeps_draft:
            draft = await asyncio.to_thread(read_draft, session.dir)
            images = await asyncio.to_thread(read_images, session.dir)
            self.kept_draft, self._images = draft, set(images)
            draft = draft._replace(text=chips.restore(draft.text, images))
            texts = [chips.restore(text, images) for text in texts]
            self.is_given_back = True
            is_late = has_gone_on()
            bench.give_draft(draft, to_history=is_late)
            if is_late and draft.text:
                words = "Text that you did not send last time is in the prompt's history."
                bench.tell(words, advice="Press Up in the empty prompt to get it.")
            self.draft_changed()
        if texts:
            bench.give_back(texts)
            self._returned += texts
        await self._keep_draft()
        if lost := chips.lost(bench.prompt.area.text):
            # A draft that was too large, or that another program stored, has only its text.
            bench.tell(
                f"These images could not be kept with the draft: {', '.join(lost)}.",
                level="warning",
                advice="Paste them again, or delete them from the message.",
            )

    def returned(self, texts: Sequence[str]) -> None:
        """Note that these texts, which had waited in the inbox, were put into the prompt."""
        self._returned += texts
        self.draft_changed()

    def draft_changed(self) -> None:
        """Store the draft after `DRAFT_S`; at once if the prompt was emptied."""
        if not self._keeps_draft:
            return
        if not self._bench.prompt.area.draft.text:
            self._draft_is_due()
        elif self._due is None:
            self._due = self._bench.screen.set_timer(DRAFT_S, self._draft_is_due)

    def _draft_is_due(self) -> None:
        if self._due is not None:
            self._due.stop()
            self._due = None
        self._bench.start(self._keep_draft())

    async def _keep_draft(self) -> None:
        """Store the draft, in case the program is killed; texts that were taken back are in it."""
        async with self._keeping:
            if self._is_closed or (self._keeps_draft and not self.is_given_back):
                return
            draft, returned = self._bench.prompt.area.draft, [*self._returned]
            if self._keeps_draft:
                # This is done without a change, too: a text that could not be stored may have been sent or deleted.
                with self._refusing():
                    await self._keep_images()
                    if draft != self.kept_draft:
                        await asyncio.to_thread(write_draft, self._soul.session.dir, draft)
                        self.kept_draft = draft
                if self.trouble:
                    return
            del self._returned[: len(returned)]
            self._soul.inbox.let_go(returned)

    async def keep_images(self) -> None:
        """Store the images of waiting messages, in case the program is killed."""
        async with self._keeping:
            if not self._is_closed:
                with self._refusing():
                    await self._keep_images()

    async def _keep_images(self) -> None:
        """Store the images whose chips are in the draft and in waiting messages."""
        if not self.is_given_back:
            return
        chips = self._bench.images
        waiting = (said.text for said in self._soul.inbox.waiting)
        texts = (self._bench.prompt.area.draft.text, *waiting)
        named = {chip: known for text in texts for chip, known in chips.of(text).items()}
        if named.keys() == self._images:
            return
        found = {
            chip: known.image or await self._soul.image(known.facts)
            for chip, known in named.items()
        }
        kept = {chip: image for chip, image in found.items() if image is not None}
        await asyncio.to_thread(write_images, self._soul.session.dir, kept)
        self._images = set(named)

    @contextlib.contextmanager
    def _refusing(self) -> Generator[None]:
        """Return a context that shows a notice while writing to the disk fails in it, and removes the notice when it works again."""
        try:
            yield
        except OSError as error:
            reason = reason_of(error, self._soul.session.dir)
            # The watchdog may have met the error first, but shows no notice.
            if not self._is_told:
                self._is_told = True
                log.warning("what is not sent yet cannot be kept", exc_info=error)
                self._bench.tell(
                    f"The text in the prompt cannot be saved as a draft: {reason}.",
                    level="warning",
                    advice="It would be lost if kimi-tui were killed.",
                    topic=NOT_KEPT,
                )
            self.trouble = reason
        else:
            self.trouble = ""
            if self._is_told:
                self._is_told = False
                self._bench.chat_pane.dismiss(NOT_KEPT)

    def keep_at_once(self) -> None:
        """Store the text of the present draft. The watchdog's thread calls this when the event loop hangs."""
        draft = self._bench.prompt.area.draft
        if not (self._keeps_draft and self.is_given_back) or self._is_closed:
            return
        if draft != self.kept_draft:
            try:
                write_draft(self._soul.session.dir, draft)
                self.kept_draft = draft
            except OSError as error:
                self.trouble = reason_of(error, self._soul.session.dir)

    async def close(self) -> None:
        """Store the present draft, and nothing afterwards, because the session is released."""
        if self._due is not None:
            self._due.stop()
        if self._keeps_draft:
            await self._keep_draft()
        self._is_closed = True


class Unsent(NamedTuple):
    """The unsent text at the end of the program that is not on the disk.

    Attributes:
        draft: the draft in the prompt, if it is not stored.
        waiting: the waiting messages that are not stored.
        images: the images behind the chips of both, by chip, as far as they are in memory.
    """

    draft: Draft = Draft()
    waiting: tuple[str, ...] = ()
    images: Mapping[str, Image] = MappingProxyType({})

    @classmethod
    def of(
        cls, waiting: Sequence[str], draft: Draft, drafts: Drafts | None, chips: ImageChips
    ) -> Unsent:
        """Return what is unsent and not stored.

        Args:
            waiting: the waiting messages that are not on the disk.
            draft: the draft in the prompt.
            drafts: the stored draft; None if the session was never open.
            chips: the images behind the chips.
        """
        if draft == (drafts.kept_draft if drafts is not None else Draft()):
            draft = Draft()
        named = {c: one for text in (draft.text, *waiting) for c, one in chips.of(text).items()}
        images = {chip: one.image for chip, one in named.items() if one.image is not None}
        return cls(draft, tuple(waiting), images)

    def words(self, trouble: str) -> str:
        """Return the text for the user to copy from the terminal, with the reason why it could not be stored; empty for none."""
        from kimi_tui.tools.credentials import command_without_keys

        text = command_without_keys(self.draft.text)
        for chip, pasted in self.draft.pastes.items():
            text = text.replace(chip, pasted, 1)
        texts = (*self.waiting, text)
        words = clean("\n\n".join(text for text in texts if text.strip()))[:_MOST_PRINTED]
        why = f": {trouble}" if trouble else ""
        return f"your unsent text could not be saved{why}. The text was:\n{words}" if words else ""

    def keep(self, root: Path, work_dir: Path, session_id: str | None) -> str:
        """Store it without an open session; return the text to print if that is not possible, else an empty one. It blocks.

        Args:
            root, work_dir, session_id: as for `keep_for_next_start`.
        """
        if not self.words(""):
            return ""
        from kimi_tui.session.kept_text import keep_for_next_start
        from kimi_tui.tools.credentials import command_without_keys

        text = command_without_keys(self.draft.text)
        try:
            folder = keep_for_next_start(
                root, work_dir, session_id, text, self.draft.pastes, self.waiting
            )
        except OSError as error:
            return self.words(reason_of(error))
        with contextlib.suppress(OSError):
            # A chip whose image is missing is named when the text comes back.
            if self.images:
                write_images(folder, {**read_images(folder), **self.images})
        return ""


def _take_over(session: Session) -> None:
    """Move the draft of the last session of the same folder into a new one, if that session has no messages."""
    from kimi_tui.app_paths import data_dir
    from kimi_tui.session.store import SessionStore

    store = SessionStore(data_dir())
    if not store.take_over(session, DRAFT, IMAGES, WAITING):
        store.take_over(session, WAITING, IMAGES)


def write_draft(folder: Path, draft: Draft) -> None:
    """Store the text of the prompt; delete the stored one if it is empty.

    Raises:
        OSError: the draft could not be stored.
    """
    from kimi_tui.tools.credentials import command_without_keys

    write_draft_text(folder, command_without_keys(draft.text), draft.pastes)


def read_draft(folder: Path) -> Draft:
    """Return the stored draft; an empty one if there is none, or it cannot be read."""
    found = read_json(folder / DRAFT)
    record = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    text, kept = record.get("text"), record.get("pastes")
    pastes = cast("dict[str, object]", kept) if isinstance(kept, dict) else {}
    read: dict[str, str] = {}
    for chip, pasted in islice(pastes.items(), _MOST):
        if isinstance(pasted, str) and (named := _CHIP.fullmatch(chip)):
            shown = clean_pasted(pasted)
            # Before it is sent, the chip is all that the user sees of a pasted text.
            if chip == chip_of(shown, int(named[1] or 1)):
                read[chip] = shown
    return Draft(clean(text) if isinstance(text, str) else "", read)


def write_images(folder: Path, images: Mapping[str, Image]) -> None:
    """Store the images of unsent text, by their chips, and delete others.

    Raises:
        OSError: some images could not be stored.
    """
    place, storage = folder / IMAGES, Storage()
    if place.is_symlink():
        return  # another program made this folder
    index: dict[str, dict[str, str]] = {}
    left = MOST_IMAGE_BYTES
    trouble: OSError | None = None
    try:
        if images:
            storage.make_folder(place)
        for chip, image in [*images.items()][:MOST_IMAGES]:
            left -= len(image.data)
            if left < 0:
                break
            if _read_image(place, image.sha256) != image.data:
                storage.replace_file(place / image.sha256, image.data)
            index[chip] = {"sha256": image.sha256, "name": image.name}
    except OSError as error:
        trouble = error
    if index or place.exists():
        write_json(place / _INDEX, index)
    named = {one["sha256"] for one in index.values()}
    with contextlib.suppress(OSError):
        for entry in os.listdir(place):
            if _HASH.match(entry.removeprefix(".")) and entry not in named:
                (place / entry).unlink()
        if not named:
            place.rmdir()
    if trouble is not None:
        raise trouble


def read_images(folder: Path) -> dict[str, Image]:
    """Return the stored images, by their chips, except changed ones. Each is decoded, like a newly pasted one."""
    from kimi_tui.images import ImageRefused, read_image

    place = folder / IMAGES
    found = read_json(place / _INDEX)
    index = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    images: dict[str, Image] = {}
    left = MOST_IMAGE_BYTES
    for chip, value in [*index.items()][:MOST_IMAGES]:
        facts = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        sha256, name = facts.get("sha256"), facts.get("name")
        if not (CHIP.fullmatch(chip) and isinstance(sha256, str) and isinstance(name, str)):
            continue
        data = _read_image(place, sha256)
        left -= len(data)
        if left < 0:
            break
        with contextlib.suppress(ImageRefused):
            images[chip] = read_image(data, name)
    return images


def _read_image(place: Path, sha256: str) -> bytes:
    """Return the content of a stored file; empty if its hash is not that in its name."""
    from kimi_tui.images import MAX_BYTES

    try:
        data = read_regular(place / sha256, MAX_BYTES) if _HASH.fullmatch(sha256) else b""
    except OSError:
        return b""
    return data if hashlib.sha256(data).hexdigest() == sha256 else b""
