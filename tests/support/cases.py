"""Runs many small cases of one test in one item.

Each item is collected by every worker and reported by one, which takes longer than most cases of a table: those that need nothing
made for them share an item.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that runs a test, coroutine function or not, with all cases; an error names the case that failed.

    Its other arguments are fixtures, which are the same for all cases.

    Args:
        names: the arguments that a case gives, separated by commas.
        cases: for one name its values, for several a sequence of values each; as for `pytest.mark.parametrize`.
    """
    given = [name.strip() for name in names.split(",")]
    tried = [
        dict(zip(given, [case] if len(given) == 1 else case, strict=True)) for case in [*cases]
    ]
    assert tried

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(test):

            async def run_async(**fixtures: Any) -> None:
                for case in tried:
                    with _named(case):
                        await test(**fixtures, **case)

            return _as(test, run_async, given)

        def run(**fixtures: Any) -> None:
            for case in tried:
                with _named(case):
                    test(**fixtures, **case)

        return _as(test, run, given)

    return decorate


def first_only(cases: Iterable[Any], n_names: int = 1) -> list[Any]:
    """Of the cases for `pytest.mark.parametrize`, the first in every run and the others in `make test-all`.

    For cases that show one behaviour again, as on other sizes of the screen; the one that shows it best comes first.

    Args:
        cases: their values.
        n_names: how many names each of them gives values for.
    """
    first, *others = cases
    marked = ([other] if n_names == 1 else other for other in others)
    return [first, *(pytest.param(*values, marks=pytest.mark.exhaustive) for values in marked)]


@contextmanager
def _named(case: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"with {', '.join(f'{name}={value!r}' for name, value in case.items())}")
        raise


def _as(test: Callable[..., Any], run: Callable[..., Any], given: list[str]) -> Callable[..., Any]:
    """Give the function that runs a test the test's name, and its fixtures alone."""
    wanted = inspect.signature(test).parameters
    assert wanted.keys() >= {*given}, given
    functools.update_wrapper(run, test)
    vars(run).pop("__wrapped__")
    fixtures = [one for name, one in wanted.items() if name not in given]
    vars(run)["__signature__"] = inspect.Signature(fixtures)
    return run
