"""What the tests of the engine share: a client of a server in memory."""

from __future__ import annotations

import pytest

from natsctl.testing.jet import Jet


@pytest.fixture
def jet() -> Jet:
    """Return a client of a new machine."""
    return Jet()
