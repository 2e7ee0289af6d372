"""Delays the import of modules that libraries import at their top and use late or never.

A library imports what it may need when it is imported itself. In these contexts such an import costs next to nothing: a module
is executed when an attribute is first read from it (`deferred`), imported when one of its functions is called (`called_later`),
or replaced for good (`left_out`). Names that were imported before stay as they are, and after a context all imports are as usual.

`importlib.util.LazyLoader` cannot do this: it executes a module as soon as it is imported a second time, or one of its modules is.
"""

import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

COMMAND_MODULES = (
    *("bisect", "changes", "external_agents", "futures", "import_settings", "mcp", "rewind"),
    *("rules", "session", "subagents", "view", "world_lines"),
)
"""The modules of the main screen's commands, of which `table` and `screen` name only functions."""
_executing = threading.RLock()


class DeferredModule(ModuleType):
    """A module that is executed when a missing attribute is read. If that raises an error, the next missing attribute executes it again."""

    def __getattr__(self, name: str) -> object:
        spec = self.__spec__
        if not name.startswith("__") and spec is not None and spec.loader is not None:
            with _executing:
                if isinstance(later := spec.loader, _LaterLoader):
                    before = dict(vars(self))
                    spec.loader = self.__loader__ = SourceFileLoader(spec.name, later.path)
                    try:
                        spec.loader.exec_module(self)
                    except BaseException:
                        spec.loader = later
                        self._forget_all_but(before)
                        raise
        return super().__getattribute__(name)

    def _forget_all_but(self, before: Mapping[str, object]) -> None:
        """Restore the names that the module had before it was executed. Its submodules that are loaded by now stay, because
        another import does not set them again.
        """
        names = vars(self)
        for name in [name for name in names if name not in before]:
            if sys.modules.get(f"{self.__name__}.{name}") is not names[name]:
                del names[name]
        names.update(before)


class _LaterLoader(SourceFileLoader):
    """Makes a module without executing it."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return DeferredModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Finder:
    """Finds the modules that are to be executed later, before Python's own finders do."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        spec.loader = _LaterLoader(name, spec.loader.path)
        return spec


@contextmanager
def deferred(*names: str) -> Generator[None]:
    """Have modules that are imported in this context executed only when an attribute is first read from them.

    A package can be among them: its modules can be imported before it is executed. Modules that are not written in Python are
    imported as usual.
    """
    finder = _Finder(frozenset(names))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _CalledLater(ModuleType):
    """A module that has a function of every name, which calls the real one as it is at that time."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Any, **options: Any) -> Any:
            module = sys.modules.get(self.__name__)
            if module is None or module is self:
                if module is self:
                    del sys.modules[self.__name__]
                module = import_module(self.__name__)
            return getattr(module, name)(*arguments, **options)

        return call


class _LeftOut(ModuleType):
    """A module that has an empty class of every name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextmanager
def called_later(*names: str) -> Generator[None]:
    """Let imports in this context get functions that import these modules when they are called. Loaded modules are imported as usual."""
    with _replaced([_CalledLater(name) for name in names]):
        yield


@contextmanager
def left_out(*names: str) -> Generator[None]:
    """Let imports in this context get empty stand-ins for these modules, except for modules that are loaded already."""
    with _replaced([_LeftOut(name) for name in names]):
        yield


@contextmanager
def sparing() -> Generator[None]:
    """Import the modules of the first screen in this context: their import takes a seventh less."""
    with (
        # The command palette, which is replaced here, imports fields, lists and trees; the others are not shown.
        left_out("textual.command", "textual.widgets._toast"),
        # Unknown names in style sheets, saved screenshots, tables for developers, lines between widgets,
        # notifications.
        called_later("difflib", "platformdirs", "rich.table", "textual.canvas", "uuid"),
        # The commands of the main screen, each until it is used.
        called_later(*(f"kimi_tui.tui.main.commands.{name}" for name in COMMAND_MODULES)),
        # TLS in asyncio, the encoding of a child's output, the source in a traceback, types of files.
        deferred("asyncio.sslproto", "locale", "mimetypes", "ssl", "tokenize"),
    ):
        yield


@contextmanager
def _replaced(modules: Sequence[ModuleType]) -> Generator[None]:
    """Have these modules in place of the real ones of their names, where those are not loaded."""
    absent = {one.__name__: one for one in modules if one.__name__ not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name, module in absent.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
