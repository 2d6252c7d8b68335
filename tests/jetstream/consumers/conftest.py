"""What the tests of consumers share: a client of a server in memory with the stream S."""

import pytest

from tests.support.jet import Jet


@pytest.fixture
def jet() -> Jet:
    jet = Jet()
    jet.stream()
    return jet
