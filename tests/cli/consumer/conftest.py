"""Consumers of the stream ORDERS."""

import pytest

from tests.support.commands import Run


@pytest.fixture
def orders(natsctl: Run) -> Run:
    assert natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*", "--storage", "memory").code == 0
    return natsctl


@pytest.fixture
def fed(orders: Run) -> Run:
    """A server whose stream ORDERS holds `1` to `5`."""
    assert orders("pub", "ORDERS.a", "{{Count}}", "--count", "5", "-q", "-J").code == 0
    return orders
