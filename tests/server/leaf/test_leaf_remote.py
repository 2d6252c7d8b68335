"""Which url a remote takes next, and how long it waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from natsctl.server.leaf_remote import MAX_OFFERED_URLS, REFUSED_MAX_S, LeafRemote
from natsctl.server.options import LeafRemoteOptions, LeafUrl

A, B = LeafUrl("nats-leaf", "a", 1), LeafUrl("nats-leaf", "b", 2)


def remote(**options: Any) -> LeafRemote:
    shell = SimpleNamespace(log=None, loop=None, leafs=None)
    given = LeafRemoteOptions(urls=(A, B), no_randomize=True, **options)
    return LeafRemote(cast(Any, shell), given, 1.0, 1.0, lambda first, attempt: True)


def link(**seen: Any) -> Any:
    given = {"reconnect_delay_ns": 0, "was_registered": True, "leafnode_urls": [], "ws_urls": [], **seen}
    return SimpleNamespace(**given)


def test_urls_take_turns() -> None:
    one = remote()
    assert [one._next_url() for _ in range(3)] == [A, B, A]


def test_what_a_hub_offers_comes_first_and_what_is_configured_stays() -> None:
    one = remote()
    one._take_offers(link(leafnode_urls=["c:3", "a:1", "[::1]:4", "nonsense", "x:y"]))
    assert [url.address for url in one._urls] == ["c:3", "[::1]:4", "a:1", "b:2"]
    one._take_offers(link(leafnode_urls=["d:5"]))
    assert [url.address for url in one._urls] == ["d:5", "a:1", "b:2"]


def test_offers_are_bounded_and_can_be_ignored() -> None:
    one, deaf = remote(), remote(ignore_discovered_servers=True)
    many = [f"h{number}:1" for number in range(1000)]
    for each in (one, deaf):
        each._take_offers(link(leafnode_urls=many))
    assert (len(one._urls), len(deaf._urls)) == (MAX_OFFERED_URLS + 2, 2)


def test_a_lost_link_is_made_again_soon_and_a_refused_one_later_and_later() -> None:
    one = remote()
    assert [one._pause_s(link()) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert [one._pause_s(link(was_registered=False)) for _ in range(7)] == [1, 2, 4, 8, 16, 30, REFUSED_MAX_S]
    assert one._pause_s(link()) == 1.0
    assert one._pause_s(link(reconnect_delay_ns=30_000_000_000)) == 30.0


async def test_a_disabled_remote_never_connects() -> None:
    one = remote(disabled=True)
    one.start()
    assert one._task is None
    await asyncio.sleep(0)
    one.stop()
