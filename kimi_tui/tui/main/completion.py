"""Completion in the prompt: what the menu over it offers for what stands there, and what the keys do meanwhile.

| key | commands, and values behind one | files behind an `@` | what was sent before (Ctrl+R) |
|---|---|---|---|
| Enter | runs the chosen one | puts it into the text | puts it into the field |
| Tab | writes out the chosen one, else the first | as Enter | as Enter |
| Up, Down | choose | choose | choose, as Ctrl+R |
| Esc | closes the menu, until other words stand there | as with commands | brings back what stood there |

Where nothing is offered these keys are those of the field, `PromptArea`, and of the screen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kimi_tui.foreign_text import one_line, shown_name
from kimi_tui.tui.prompt.area import may_be_path
from kimi_tui.tui.prompt.command import Command

if TYPE_CHECKING:
    from textual.widgets.text_area import Selection

    from kimi_tui.tui.main.screen import MainScreen
    from kimi_tui.tui.prompt.area import Draft
    from kimi_tui.tui.prompt.menu import CommandMenu, MenuOffer

MOST_OFFERED = 50
_TYPED_PATH = re.compile(r'(?:^|(?<=[\s(\[{]))@(?:"([^"]*)|([^\s"#]*))$')
_LONGEST_LINE = 1000
"""Letters of the line before the cursor that are looked at: a pasted one has no end."""
_PLAIN_PATH = re.compile(r"[^\s\"\\#]+")


def typed_mention(before: str) -> tuple[int, str] | None:
    """What is being typed of a path: where its `@` stands in the line, and the path so far; None where it is none.

    Args:
        before: the line up to the cursor.
    """
    found = _TYPED_PATH.search(before, max(0, len(before) - _LONGEST_LINE))
    if found is None:
        return None
    return found.start(), found[1] if found[1] is not None else found[2]


def mention(path: str) -> str:
    """A path as it is written in the prompt; quoted where a blank or a sign in it would end it."""
    if _PLAIN_PATH.fullmatch(path):
        return f"@{path}"
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'@"{escaped}"'


def _is_meant(first: Command | MenuOffer, text: str) -> bool:
    """Whether Enter is about the first row before the arrows have chosen.

    Not where a slash stands alone: first is what was used last then, which may have ended or undone something.
    """
    if not isinstance(first, Command) or not text:
        return True
    return text != "/" and first.is_begun_by(text) and first.is_named_by(text)


class Completion:
    """Follows what is written in the prompt of a screen, with a menu that is made when something is offered first.

    Attributes:
        menu: what is offered; None before the first offer.
        draft: what stood in the prompt before what was sent was searched; None while it is not.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self.menu: CommandMenu | None = None
        self.draft: Draft | None = None
        self._finds = False
        """Whether anything that was sent has what is looked for."""
        self._others: Sequence[str] = ()
        """What was sent in other folders."""
        self._mention_at: int | None = None
        """Where the path begins that is being typed; None while none is."""
        self._begun: Command | None = None
        """The command whose argument is being typed."""
        self._closed_for: str | None = None
        self._listed_for = ""
        """The text for which the menu lists what it does."""
        self._followed: tuple[str, Selection] | None = None
        """The newest text that was followed, and the cursor in it."""

    # --- what is offered

    @property
    def is_choosing(self) -> bool:
        """Whether something can be chosen: it has the arrows, and Enter, Tab and Esc are about it."""
        return self.menu is not None and self.menu.active

    @property
    def is_searching(self) -> bool:
        """Whether what is typed looks for what was sent before."""
        return self.draft is not None

    @property
    def command(self) -> Command | None:
        """The command that is chosen in the menu; None where there is none."""
        return self.menu.chosen if self.menu is not None else None

    def follow(self) -> None:
        """Offer what fits what stands in the prompt now."""
        screen, area = self._screen, self._screen.prompt.area
        text = area.text
        self._followed = text, area.selection
        if area.is_recalled and not self.is_searching:
            # The arrows go on through what was sent.
            self._close(text)
        if text == self._closed_for:
            return
        self._closed_for = None
        found, is_hint = self.offers(), False
        if found is None and text.startswith("/"):
            found, is_hint = self._commands(text)
        elif found is None:
            self._begun, found = None, ()
        if self.menu is None:
            if not found:
                return
            from kimi_tui.tui.prompt.menu import CommandMenu

            self.menu = CommandMenu(screen.keys)
            screen.chat_pane.put_menu(self.menu)
        is_same_text, self._listed_for = text == self._listed_for, text
        self.menu.show(
            found,
            is_first_chosen=bool(found) and _is_meant(found[0], text),
            is_hint=is_hint,
            is_same_text=is_same_text,
        )

    def _commands(self, text: str) -> tuple[Sequence[Command], bool]:
        """The commands that a text may become, or while an argument is typed the command with its values.

        Returns:
            them, and whether it is only a hint of what the argument may be.
        """
        screen = self._screen
        begun, self._begun = self._begun, screen.commands.argument_of(text)
        if self._begun is None:
            return screen.commands.offered(text), False
        if self._begun is not begun and self._begun.name == "model":
            screen.conversation.learn_models()
        entries = screen.commands.with_values(text, screen.values())
        return entries or (self._begun,), not entries

    @property
    def is_behind(self) -> bool:
        """Whether what was typed last was not followed yet."""
        area = self._screen.prompt.area
        return self._followed != (area.text, area.selection)

    def _keep_up(self) -> None:
        """Follow what was typed or put into the prompt a moment ago, which the screen has not heard of yet."""
        if self.is_behind:
            self._screen.follow_prompt()

    def offers(self) -> Sequence[MenuOffer] | None:
        """What the menu offers in the place of commands; None for commands."""
        area, conversation = self._screen.prompt.area, self._screen.conversation
        if self.is_searching:
            found = self._found(area.text)
            self._finds = bool(found)
            return found
        is_message = "@" in area.text and not area.text.startswith("!")
        mentioned = typed_mention(area.typed) if is_message else None
        if mentioned is None:
            self._mention_at = None
            return None
        from kimi_tui.tui.prompt.menu import MenuOffer

        if self._mention_at != mentioned[0]:
            # What others have done to the files meanwhile is seen with the next path that is named.
            self._mention_at = mentioned[0]
            conversation.mark_files_stale()
        return [
            MenuOffer(
                mention(path) + ("" if path.endswith("/") else " "), shown_name(path), is_path=True
            )
            for path in conversation.files_like(mentioned[1], MOST_OFFERED)
        ]

    # --- keys

    def choose(self, step: int) -> bool:
        """Choose what is so many rows further down; False where nothing is offered."""
        self._keep_up()
        if self.menu is None or not self.menu.active:
            return False
        self.menu.move(step)
        return True

    def take(self) -> bool:
        """Put the chosen file, or what was sent before, into the prompt; False where it stands there, or none is chosen.

        What is only looked for with is never sent: found as it is written, it is taken as any other.
        """
        area = self._screen.prompt.area
        self._keep_up()
        offer = self.menu.offer if self.menu is not None else None
        if offer is None:
            return False
        written = area.typed if offer.is_path else area.text
        if written.endswith(offer.text.rstrip()) and not self.is_searching:
            return False
        self._put(offer)
        return True

    def complete(self) -> bool:
        """Write out what is offered; False where nothing is."""
        if self.take():
            return True
        area = self._screen.prompt.area
        command = self.menu.completion if area.text and self.menu is not None else None
        if command is None:
            return False
        area.put(f"/{command.name}" if " " in command.name else f"/{command.name} ")
        return True

    def pick(self) -> str:
        """The name of the command that Enter runs; empty where what stands there is sent as it is."""
        self._keep_up()
        return self.command.name if self.command is not None else ""

    def click(self) -> str:
        """The row under the pointer was chosen: the name of the command to run, which the prompt holds no more, or empty."""
        if self.menu is not None and self.menu.offer is not None:
            self._put(self.menu.offer)
        elif self.command is not None:
            name = self.command.name
            self._screen.prompt.area.take()
            return name
        return ""

    def escape(self) -> bool:
        """End the search of what was sent, or close the menu; False where there is neither."""
        area = self._screen.prompt.area
        if self.draft is not None:
            draft, self.draft = self.draft, None
            area.put_draft(draft)
            self._screen.follow_prompt()
            return True
        if self.is_choosing and area.has_focus:
            self._close(area.text)
            return True
        return False

    def _close(self, text: str) -> None:
        self._closed_for = text
        if self.menu is not None:
            self.menu.show(())

    def _put(self, offer: MenuOffer) -> None:
        """Put an offer into the prompt: in the place of the path that is being typed, else of all of it."""
        area = self._screen.prompt.area
        row, column = area.selection.end
        found = typed_mention(area.typed)
        if offer.is_path and found is not None:
            area.replace(offer.text, (row, found[0]), (row, column))
            area.move_cursor((row, found[0] + len(offer.text)))
            if may_be_path(offer.shown):
                self._screen.image_input.read_path(offer.text.rstrip(), offer.shown)
        elif self.is_searching:
            self.draft = None
            area.put_sent(offer.text)
            self._screen.follow_prompt()
        else:
            area.put(offer.text)

    # --- the search of what was sent

    def search(self) -> bool:
        """Begin to search what was sent in this folder; False while that is done: then the one before is chosen."""
        area = self._screen.prompt.area
        if self.is_searching:
            self.choose(1)
            return False
        self.draft = area.draft
        area.put("")
        area.write("")
        self._closed_for = None
        self._screen.follow_prompt()
        return True

    def search_also(self, others: Sequence[str]) -> None:
        """Search what was sent in other folders, too; the newest is last."""
        self._others = others
        if self.is_searching:
            self._screen.follow_prompt()

    @property
    def search_words(self) -> str:
        """What is said over the field while what was sent is searched; else empty."""
        if not self.is_searching:
            return ""
        if self._finds:
            return "Search: Enter takes it, Ctrl+R goes on, Esc goes back"
        if self._screen.prompt.area.text.strip():
            return "Nothing that was sent has these words; Esc goes back"
        return "Nothing was sent yet; Esc goes back"

    def _found(self, query: str) -> list[MenuOffer]:
        from kimi_tui.tui.prompt.menu import MenuOffer

        past = self._screen.prompt.area.past
        words = query.lower().strip()
        found: dict[str, MenuOffer] = {}
        for texts, note in ((past.entries if past else (), ""), (self._others, "other folder")):
            for text in reversed(texts):
                if len(found) == MOST_OFFERED:
                    break
                if words in text.lower() and text not in found:
                    found[text] = MenuOffer(text, one_line(text[:500]), note)
        return list(found.values())
