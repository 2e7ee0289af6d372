"""Many small cases of one test, gone through in one item.

Each item is collected by every worker and reported by one, which takes longer than most cases of a table: those that need nothing
made for them share an item.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with all cases, and tell with the error which one it was that failed.

    Args:
        names: the arguments that a case gives, separated by commas.
        cases: for one name its values, for several a sequence of values each; as for `pytest.mark.parametrize`.
    """
    given = [name.strip() for name in names.split(",")]
    tried = list(cases)
    assert tried

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        wanted = list(inspect.signature(test).parameters)
        assert sorted(wanted) == sorted(given), wanted

        def run() -> None:
            for case in tried:
                values = [case] if len(given) == 1 else [*case]
                try:
                    test(**dict(zip(given, values, strict=True)))
                except Exception as error:
                    error.add_note(f"with {names}: {', '.join(map(repr, values))}")
                    raise

        functools.update_wrapper(run, test)
        # Or pytest would look for fixtures of these names.
        del run.__wrapped__
        return run

    return decorate
