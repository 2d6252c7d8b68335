"""What the tests of the engine share: a client of a server in memory, and a nats-server with many accounts."""

from collections.abc import Iterator

import pytest

from tests.support.differential import AccountServer
from tests.support.jet import Jet


@pytest.fixture
def jet() -> Jet:
    return Jet()


@pytest.fixture(scope="session")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccountServer]:
    """A nats-server that runs as long as the tests, with accounts to use one by one."""
    with AccountServer(tmp_path_factory.mktemp("accounts") / "server") as server:
        yield server
