"""What a command is, which commands a text in the prompt may become, and how one is read from a line of it."""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, NamedTuple

LIKENESS = 0.7
"""How like a command a word must be to be taken for a slip of the keys."""
LONGEST_SLIP = 20
"""Longer words are none, and comparing costs the square of their length."""


SHORTEST_FUZZY = 2
"""Letters from which on commands are found that only hold them in their order."""

Value = str | tuple[str, str]
"""What may follow a command: a word, or a word and what it stands for."""


class Values(NamedTuple):
    """What may follow some of the commands depends on the session.

    Attributes:
        models: names of models, those of the configuration first.
        thinking: what can be set of the model's thinking; empty where nothing can.
        checkpoints: numbers of the live line with what was said there, the newest first.
        world_lines: numbers of the lines that were left with their names, the newest first.
    """

    models: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    checkpoints: tuple[Value, ...] = ()
    world_lines: tuple[Value, ...] = ()


Handler = Callable[[Any, str], Coroutine[Any, Any, None] | None]
"""Carries a command out: takes the main screen and what was typed behind the word. A coroutine is run as a task of the
session. The screen's type is left open: it is made of parts that know what a command is."""


class Command(NamedTuple):
    """Something that the user can ask the program to do.

    Attributes:
        name: the word after `/`, and its name in `[keys]`.
        title: what the palette calls it.
        help: one sentence.
        handler: carries it out.
        key: the default key, empty for none.
        argument: what may follow the word, as the help writes it.
        values: lists what may follow the word, as the session is now; None where it is no set.
        exact: only a value that was named whole, or chosen with the arrows, is run: not the first that begins so.
        opens: it opens a screen or a field, or goes to one: keys typed until that is there are meant for it.
        aliases: other words for it, as other programs call it; no list shows them.
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

    @property
    def needs_argument(self) -> bool:
        """Whether its word alone says nothing yet: what must follow is written without brackets."""
        return bool(self.argument) and not self.argument.startswith("[")

    @property
    def usage(self) -> str:
        """The word with what may follow it."""
        return f"/{self.name} {self.argument}".rstrip()

    def is_begun_by(self, text: str) -> bool:
        """Whether a text in the prompt begins its word, or another word for it."""
        word = text[1:].partition(" ")[0].lower()
        return any(one.startswith(word) for one in (self.name, *self.aliases))

    def is_named_by(self, text: str) -> bool:
        """Whether a text in the prompt names this entry of the menu whole, or leaves its end open where that is harmless."""
        typed = text.partition(" ")[2].strip().lower()
        return not self.exact or not typed or typed == self.name.partition(" ")[2].lower()


class ParsedLine(NamedTuple):
    """A parsed line of the prompt: a command with its argument where `command` is set, else a message.

    Else it is a message where `meant` and `unknown` are empty. `unknown` is a word that is no command, `meant` the
    command it is like.
    """

    command: Command | None = None
    argument: str = ""
    unknown: str = ""
    meant: Command | None = None


MESSAGE = ParsedLine()


SIGNS = ("/", "!", "#")
"""What begins with one of these is for the program: a command, one of the user's own for the shell, a note."""


def sent_text(written: str) -> str:
    """What was written, without blanks around it, but for the one that makes a message of what else were a command.

    It stays, so that the message is one again when it is sent again: from the history, or after a rewind.
    """
    text = written.strip()
    return f" {text}" if text.startswith(SIGNS) and written[:1].isspace() else text


class CommandTable:
    """All commands, in the order in which they are listed.

    Where several are meant, the one that was used last comes first, then those that are used most.
    """

    def __init__(self, *commands: Command) -> None:
        self._by_name: dict[str, Command] = {}
        self._by_alias: dict[str, Command] = {}
        self._uses: Counter[str] = Counter()
        self._last_used = ""
        self.add(commands)

    def add(self, commands: Iterable[Command]) -> None:
        """Have further ones, where no other has their names."""
        for command in commands:
            if command.name not in self._by_name and command.name not in self._by_alias:
                self._by_name[command.name] = command
                for alias in command.aliases:
                    self._by_alias.setdefault(alias, command)

    def learn_uses(self, sent: Iterable[str]) -> None:
        """Count the commands among what was sent, oldest first."""
        for text in sent:
            word = text[1:].partition(" ")[0] if text.startswith("/") else ""
            if (command := self._named(word)) is not None:
                self._uses[command.name] += 1
                self._last_used = command.name

    def by_use(self, commands: Iterable[Command]) -> list[Command]:
        """The one that was used last first, then those used most; the others in their order."""
        return sorted(commands, key=self._disuse)

    def _disuse(self, command: Command) -> tuple[bool, int]:
        return command.name != self._last_used, -self._uses[command.name]

    def _named(self, word: str) -> Command | None:
        return self._by_name.get(word) or self._by_alias.get(word)

    def __iter__(self) -> Iterator[Command]:
        return iter(self._by_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Command:
        return self._by_name[name]

    def matching(self, prefix: str) -> tuple[Command, ...]:
        """The commands that a word begins: the one that it names first, then by use, then in the table's order."""
        named = self._named(prefix)

        def rank(command: Command) -> tuple[bool, bool, tuple[bool, int]]:
            is_alias = not command.name.startswith(prefix)
            use = (True, 0) if is_alias else self._disuse(command)
            return command is not named, is_alias, use

        return tuple(sorted((one for one in self if one.is_begun_by(f"/{prefix}")), key=rank))

    def near(self, word: str) -> Command | None:
        """The command that was probably meant by a word that is no command; None where it is like none."""
        from difflib import get_close_matches

        if len(word) > 1 and (found := self.matching(word)):
            return found[0]
        if len(word) > LONGEST_SLIP:
            return None
        names = get_close_matches(word, self._by_name, cutoff=LIKENESS)
        # Of several, the one in which only letters have changed places.
        names.sort(key=lambda name: sorted(name) != sorted(word))
        return self._by_name[names[0]] if names else None

    def offered(self, text: str) -> tuple[Command, ...]:
        """The commands that a text in the prompt may become, while it is a word behind a slash.

        Those that begin so, then those that hold its letters in their order: these are never run for what was not chosen.
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
        """The command whose argument is being typed, once with each value that the text may become; the exact one first.

        Where nothing is typed yet the command without a value comes first. Empty where its values are no set, or
        what is typed is none of them. The name of each has its value behind a blank.
        """
        command = self.argument_of(text)
        if command is None or command.values is None:
            return ()
        typed = text.partition(" ")[2].strip().lower()
        values = [one if isinstance(one, tuple) else (one, "") for one in command.values(known)]
        found = [one for one in values if one[0].lower().startswith(typed)]
        found.sort(key=lambda one: one[0].lower() != typed)
        entries = tuple(
            command._replace(name=f"{command.name} {one}", argument="", help=what or command.help)
            for one, what in found
        )
        return entries if typed or not entries else (command, *entries)

    def argument_of(self, text: str) -> Command | None:
        """The command whose argument is being typed; None where the text is none, or its command takes nothing."""
        name, blank, _ = text[1:].partition(" ")
        command = self._named(name.lower()) if blank and text.startswith("/") else None
        return command if command is not None and command.argument else None

    def parse(self, text: str) -> ParsedLine:
        """A line of the prompt as a command or a message.

        A blank before the slash makes a message of anything. So does whatever cannot be a command's word (a path), and
        a word that is like no command where more words follow it: `/tmp is full, clean it`.
        """
        if not text.startswith("/"):
            return MESSAGE
        word, _, argument = text[1:].partition(" ")
        word, argument = word.strip().lower(), argument.strip()
        if (command := self._named(word)) is not None:
            return ParsedLine(command, argument)
        is_word = all(part.replace("-", "").isalpha() for part in word.split(":"))
        if not is_word or not word.isascii():
            return MESSAGE
        meant = self.near(word)
        return MESSAGE if argument and meant is None else ParsedLine(None, argument, word, meant)


def number(text: str) -> int | None:
    """The number of a checkpoint or world line as it is typed: `12` or `#12`; None where it is neither."""
    digits = text.strip().removeprefix("#")
    return int(digits[:9]) if digits.isascii() and digits.isdigit() else None


def line_and_number(text: str) -> tuple[int, int] | None:
    """A world line and a checkpoint of it: `K:N`, or `N` on the live line, which is 0; None where it is neither."""
    line, colon, checkpoint = text.rpartition(":")
    k, n = number(line) if colon else 0, number(checkpoint)
    return (k, n) if k is not None and n is not None else None
