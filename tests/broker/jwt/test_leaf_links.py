"""Leaf nodes of accounts with JWTs: what ends a client's connection ends theirs."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from natsctl.broker.leaf.handshake import LeafOptions
from natsctl.broker.leaf.leaf_nodes import LeafLinks
from natsctl.broker.leaf.link import LeafLink
from tests.support.leaf_servers import Lines
from tests.support.operators import Operator, UserLogin

Operate = Callable[..., Any]
START_S = 1_700_000_000


def link_of(town: Any, user: UserLogin) -> LeafLink:
    leafs = LeafLinks(town.broker, LeafOptions(host="127.0.0.1", port=7422), Lines())
    link = leafs.accept("127.0.0.1", 1)
    info = msgspec.json.decode(b"".join(link.take_output()).removeprefix(b"INFO "))
    shown = {"name": "SPOKE", **user.connect_options(info["nonce"])}
    link.receive(b"CONNECT " + msgspec.json.encode(shown) + b"\r\n")
    link.take_output()
    assert link.registered
    return link


def last_words(link: LeafLink) -> tuple[str, str]:
    """Return what a closed link was told at the end, and why it was closed."""
    assert link.close_reason is not None
    _, _, told = b"".join(link.take_output()).decode().partition("-ERR '")
    return told.removesuffix("'\r\n"), link.close_reason.value


@pytest.mark.parametrize("whose", ["User", "Account"])
def test_link_ends_at_once_when_its_user_or_account_expires(operator: Operator, operate: Operate, whose: str) -> None:
    end = {"exp": START_S + 60}
    account = operator.account("A", end if whose == "Account" else {})
    town = operate(operator)
    link = link_of(town, operator.user(account, end if whose == "User" else {}))
    town.wait(59)
    assert link.close_reason is None
    town.wait(1)
    assert last_words(link) == (f"{whose} Authentication Expired", "Authentication Expired")


def test_link_ends_at_once_when_its_user_is_revoked(operator: Operator, operate: Operate) -> None:
    account = operator.account("A")
    town = operate(operator)
    gone, stays = operator.user(account), operator.user(account)
    links = [link_of(town, gone), link_of(town, stays)]
    account.nats["revocations"] = {gone.key.public: 1 << 40}
    town.push(account)
    assert last_words(links[0]) == ("User Authentication Revoked", "Credentials Revoked")
    town.wait(11)
    assert links[1].close_reason is None


def test_youngest_beyond_the_connections_of_an_account_go_leaf_nodes_among_them(
    operator: Operator, operate: Operate
) -> None:
    account = operator.account("A")
    town = operate(operator)
    first, link = town.guest(operator.user(account)), link_of(town, operator.user(account))
    account.nats["limits"] = {**account.nats["limits"], "conn": 1}
    town.push(account)
    assert first.reason == ""
    assert last_words(link)[1] == "Maximum Account Connections Exceeded"
