"""Packages of libraries that are imported when a name is first asked of them: `importlib.util.LazyLoader` would run
them already where one of their modules is imported."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


@contextmanager
def put_off(*names: str) -> Generator[None]:
    """Packages of these names that are found in this context run when a name is first asked of them. What they hold is theirs
    all along, and their modules are imported one by one, by who wants one."""
    finder = _PutOffFinder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _PutOffFinder(MetaPathFinder):
    """Finds packages as the path finder does, for `_PutOffLoader`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package, if it is one of those that wait."""
        found = PathFinder.find_spec(fullname, path) if fullname in self._names else None
        if found is not None and found.loader is not None:
            found.loader = _PutOffLoader(found.loader)
        return found


class _PutOffLoader(Loader):
    """Makes a module whose own loader runs later."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """One in which there is nothing yet."""
        return _PutOff(spec.name, self._loader)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing, until something is asked of it."""


class _PutOff(ModuleType):
    """Runs when it is asked for a name that it does not have."""

    def __init__(self, name: str, loader: Loader) -> None:
        super().__init__(name)
        self._loader: Loader | None = loader
        self._running = threading.RLock()

    def __getattr__(self, name: str) -> object:
        if not name.startswith("__"):
            with self._running:
                loader, self._loader = self._loader, None
                if loader is not None:
                    loader.exec_module(self)
        return super().__getattribute__(name)
