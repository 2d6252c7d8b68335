"""What tests of a running server share."""

from collections.abc import Iterator

import pytest

from tests.support.operators import Visitor


@pytest.fixture(autouse=True)
def visitors_leave() -> Iterator[None]:
    """Close the visitors that a test has opened; those of fixtures for more than one test stay."""
    before = len(Visitor.opened)
    yield
    while len(Visitor.opened) > before:
        Visitor.opened.pop().close()
