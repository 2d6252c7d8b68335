"""Servers in memory, joined by cables."""

import pytest

from tests.support.leaf_servers import Server, Servers


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def hub(servers: Servers) -> Server:
    return servers.start("HUB", "hub")


@pytest.fixture
def spoke(servers: Servers) -> Server:
    return servers.start("SPOKE", "leaf")
