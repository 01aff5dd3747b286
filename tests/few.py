"""Cases of a test of which `make test` runs a few, and `make chaos` all."""

from collections.abc import Iterable

import pytest


def few(cases: Iterable[object], *quick: object) -> list[object]:
    """Return the cases as parameters of a test; those that are not among the quick ones are chaos."""
    listed = list(cases)
    assert all(case in listed for case in quick), quick
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=() if case in quick else pytest.mark.chaos
        )
        for case in listed
    ]
