"""`Command` and `CommandTable`: matches typed text with commands, and parses a line into a command and its argument.

Matches are ranked by use, recently used commands first; fuzzy matches follow.
"""

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from typing import Any, NamedTuple

from kimi_tui.agent_parts import PartName

LIKENESS = 0.7
"""The least similarity (0 to 1, by difflib) between a mistyped word and the command that is suggested for it."""
MOST_NEAR = 3
"""The most commands that are suggested for a mistyped word."""
LONGEST_SLIP = 20
"""The longest mistyped word that is compared, as the time grows with the square of its length."""


SHORTEST_FUZZY = 2
"""The least number of letters for fuzzy matching: commands that contain the letters in order."""

Value = str | tuple[str, str]
"""A value for the argument of a command: a word, or a word and its description."""


class Values(NamedTuple):
    """The values for arguments of commands that depend on the session.

    Attributes:
        models: names of models, those of the configuration first.
        thinking: the thinking settings that the model supports; empty for none.
        checkpoints: ids of the live line's checkpoints with the user's messages there, newest first.
        world_lines: numbers of the lines that were left, with their names, newest first.
        agents: names of the sub-agents, with their tasks, newest first.
        modes: the modes of an agent that has its own; None for ours.
    """

    models: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    checkpoints: tuple[Value, ...] = ()
    world_lines: tuple[Value, ...] = ()
    agents: tuple[Value, ...] = ()
    modes: tuple[Value, ...] | None = None


Handler = Callable[[Any, str], Coroutine[Any, Any, None] | None]
"""The function of a command: takes the `MainParts` and the argument as text. A coroutine is run as a task of the session.
Its first parameter has the type `Any`, since the parts import this module.
"""


class Command(NamedTuple):
    """Something that the user can ask the program to do.

    Attributes:
        name: the word after `/`, and the name of the action in `[keys]`.
        title: two to five words, for lists.
        help: one sentence in the imperative, which is shown for the chosen entry and needs no title.
        handler: the function that runs it.
        key: the default key, empty for none.
        argument: the argument as the help writes it; in brackets if it may be left out.
        values: returns the possible values of the argument; None if they are no fixed set.
        exact: whether a value must be typed completely or chosen with the arrows; if not, Enter takes the first match.
        opens: whether it opens or focuses a screen or a field; keys that are typed meanwhile are then kept for it.
        aliases: other words for it, known from other programs or former versions; no list shows them.
        needs: the part of the agent that it uses; without that part the command is not offered. None for none.
    """

    name: str
    title: str
    help: str
    handler: Handler
    key: str = ""
    argument: str = ""
    values: Callable[[Values], tuple[Value, ...]] | None = None
    exact: bool = False
    opens: bool = False
    aliases: tuple[str, ...] = ()
    needs: PartName | None = None

    @property
    def needs_argument(self) -> bool:
        """Whether the command needs an argument: one that `argument` writes without brackets."""
        return bool(self.argument) and not self.argument.startswith("[")

    @property
    def usage(self) -> str:
        """The word with its argument, for the help."""
        return f"/{self.name} {self.argument}".rstrip()

    def is_begun_by(self, text: str) -> bool:
        """Return whether a text in the prompt begins its word, or another word for it."""
        word = text[1:].partition(" ")[0].lower()
        return any(one.startswith(word) for one in (self.name, *self.aliases))

    def is_named_by(self, text: str) -> bool:
        """Return whether a text in the prompt names this entry of the menu completely, or leaves its end open if that is harmless."""
        typed = text.partition(" ")[2].strip().lower()
        return not self.exact or not typed or typed == self.name.partition(" ")[2].lower()


class ParsedLine(NamedTuple):
    """A parsed line of the prompt: a command with its argument if `command` is set, else a message.

    Without a command it is a message if `unknown` is empty. `unknown` is a word that is no command, `meant` are the commands
    with similar names, the most similar first.
    """

    command: Command | None = None
    argument: str = ""
    unknown: str = ""
    meant: tuple[Command, ...] = ()


MESSAGE = ParsedLine()


SIGNS = ("/", "!", "#")
"""The signs that begin a command, a shell command of the user's own, and a note for AGENTS.md."""


def sent_text(written: str) -> str:
    """Return the text to send: without spaces around it, except for one space before a sign of `SIGNS`.

    That space makes it a message, even when it is sent again from the history or after a rewind.
    """
    text = written.strip()
    return f" {text}" if text.startswith(SIGNS) and written[:1].isspace() else text


class CommandTable:
    """All commands, in the order of the help.

    If a text matches several, the one used last comes first, then those used most often.
    """

    def __init__(self, *commands: Command) -> None:
        self._by_name: dict[str, Command] = {}
        self._by_alias: dict[str, Command] = {}
        self._uses: Counter[str] = Counter()
        self._last_used = ""
        self.add(commands)

    def add(self, commands: Iterable[Command]) -> None:
        """Add commands whose names are not taken yet; a name goes before an alias of another command."""
        for command in commands:
            if command.name not in self._by_name:
                self._by_name[command.name] = command
                self._by_alias.pop(command.name, None)
                for alias in command.aliases:
                    if alias not in self._by_name:
                        self._by_alias.setdefault(alias, command)

    def keep(self, parts: Collection[PartName]) -> None:
        """Remove the commands that need a part of the agent which is not among these."""
        for command in [one for one in self if one.needs and one.needs not in parts]:
            del self._by_name[command.name]
            for alias in command.aliases:
                self._by_alias.pop(alias, None)

    def learn_uses(self, sent: Iterable[str]) -> None:
        """Count the uses of commands in the history of sent texts, oldest first."""
        for text in sent:
            word = text[1:].partition(" ")[0] if text.startswith("/") else ""
            if (command := self._command_named(word)) is not None:
                self._uses[command.name] += 1
                self._last_used = command.name

    def by_use(self, commands: Iterable[Command]) -> list[Command]:
        """Return the commands in the order of use: the one used last, those used most often, the others in table order."""
        return sorted(commands, key=self._disuse)

    def _disuse(self, command: Command) -> tuple[bool, int]:
        return command.name != self._last_used, -self._uses[command.name]

    def _command_named(self, word: str) -> Command | None:
        return self._by_name.get(word) or self._by_alias.get(word)

    def __iter__(self) -> Iterator[Command]:
        return iter(self._by_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Command:
        return self._by_name[name]

    def matching(self, prefix: str) -> tuple[Command, ...]:
        """Return the commands whose word begins with a prefix: the one that is the prefix first, then in the order of use."""
        named = self._command_named(prefix)

        def rank(command: Command) -> tuple[bool, bool, tuple[bool, int], int]:
            if command.name.startswith(prefix):
                return command is not named, False, self._disuse(command), 0
            rest = min(len(one) for one in command.aliases if one.startswith(prefix))
            return command is not named, True, self._disuse(command), rest

        return tuple(sorted((one for one in self if one.is_begun_by(f"/{prefix}")), key=rank))

    def near(self, word: str) -> tuple[Command, ...]:
        """Return the commands with names similar to a mistyped word, at most `MOST_NEAR`; the most similar first."""
        from difflib import get_close_matches

        found = list(self.matching(word)) if len(word) > 1 else []
        if len(word) <= LONGEST_SLIP:
            names = {**self._by_alias, **self._by_name}
            close = get_close_matches(word, names, n=MOST_NEAR, cutoff=LIKENESS)
            # Names that differ only in the order of letters come first.
            close.sort(key=lambda name: sorted(name) != sorted(word))
            found += [names[name] for name in close]
        # Several names can be those of one command.
        return tuple(dict.fromkeys(found))[:MOST_NEAR]

    def offered(self, text: str) -> tuple[Command, ...]:
        """Return the commands that match a text of the prompt, while it is one word after a slash.

        First those that begin with it, then fuzzy matches, which Enter runs only after they were chosen with the arrows.
        """
        word = text[1:].lower()
        letters = word.replace("-", "x").replace(":", "x")
        if not text.startswith("/") or (word and not letters.isalnum()):
            return ()
        found = self.matching(word)
        if len(word) < SHORTEST_FUZZY:
            return found
        from textual.fuzzy import Matcher

        score = Matcher(word).match
        others = [(score(one.name), one) for one in self if one not in found]
        others.sort(key=lambda scored: -scored[0])
        return (*found, *(one for points, one in others if points > 0))

    def with_values(self, text: str, known: Values) -> tuple[Command, ...]:
        """Return the command whose argument is being typed, once for each value that matches; the exact match first.

        Args:
            text: the text of the prompt.
            known: the values of the session.

        Returns:
            commands whose names are the word, a space and the value. Before the argument is begun, the command without a
                value comes first. The result is empty if the values are no fixed set, or if none matches.
        """
        command = self.argument_of(text)
        if command is None or command.values is None:
            return ()
        typed = text.partition(" ")[2].strip().lower()
        values = [one if isinstance(one, tuple) else (one, "") for one in command.values(known)]
        found = [one for one in values if one[0].lower().startswith(typed)]
        found.sort(key=lambda one: one[0].lower() != typed)
        entries = tuple(
            command._replace(
                name=f"{command.name} {one}",
                argument="",
                title=what or command.title,
                help="" if what else command.help,
            )
            for one, what in found
        )
        return entries if typed or not entries else (command, *entries)

    def argument_of(self, text: str) -> Command | None:
        """Return the command whose argument is being typed; None if the text has none, or if its command takes no argument."""
        name, blank, _ = text[1:].partition(" ")
        command = self._command_named(name.lower()) if blank and text.startswith("/") else None
        return command if command is not None and command.argument else None

    def parse(self, text: str) -> ParsedLine:
        """Parse a line of the prompt into a command with its argument, or a message.

        It is a message if a space is before the slash, if the word cannot be a command's (a path), or if another slash follows
        and the word is similar to no command: `/tmp and /var are full`.
        """
        if not text.startswith("/"):
            return MESSAGE
        word, _, argument = text[1:].partition(" ")
        word, argument = word.strip().lower(), argument.strip()
        if (command := self._command_named(word)) is not None:
            return ParsedLine(command, argument)
        parts = [part.replace("-", "").replace("_", "") for part in word.split(":")]
        if not (word[:1].isalpha() and word.isascii() and all(map(str.isalnum, parts))):
            return MESSAGE
        meant = self.near(word)
        return MESSAGE if "/" in argument and not meant else ParsedLine(None, argument, word, meant)


_MOST_DIGITS = 9


def number(text: str) -> int | None:
    """Return the number of a checkpoint or world line as it is typed: `12` or `#12`; None for any other text."""
    digits = text.strip().removeprefix("#")
    if not digits.isascii() or not digits.isdigit():
        return None
    # No checkpoint or world line has a longer number, and the first digits of one would be another number.
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MOST_DIGITS else None


def line_and_number(text: str) -> tuple[int, int] | None:
    """Return a world line and a checkpoint of it: `K:N`, or `N` on the live line, which is 0; None for any other text."""
    line, colon, checkpoint = text.rpartition(":")
    k, n = number(line) if colon else 0, number(checkpoint)
    return (k, n) if k is not None and n is not None else None
