"""Reads under lost connections, consumers taken away, servers that lag, and logins that may little."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from natsctl.spark.source.errors import ServerUnreachableError, SourceNotAuthorisedError, StreamRecreatedError
from natsctl.spark.source.fetch import read_range
from natsctl.spark.source.fetch_task import FetchLimits, ReadInterruptedError, ReadRange, Transport
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.link import Link
from natsctl.testing.process import ServerProcess
from tests.spark.source.reads import SEQS, TRANSPORTS, consumers, fill, seqs
from tests.spark.source.streams import make
from tests.support.relay import Relay

pytestmark = pytest.mark.both

A_HUNDRED = FetchLimits(messages=100)
"""So few are asked for at once that a stream takes many requests, however quickly they come."""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_connection_that_is_lost_changes_nothing(api: JetStreamApi, transport: Transport) -> None:
    fill(api, 2000)
    with Relay(api.link.settings.urls[0]) as proxy:
        beside = replace(api.link.settings, urls=(proxy.url,))
        found: list[int] = []
        for batch in read_range(beside, ReadRange("ORDERS", 1, 2000, (), transport), A_HUNDRED, SEQS):
            found += batch.column("seq").to_pylist()
            if proxy.visits < 4:
                proxy.cut()
        assert proxy.visits > 1
    assert found == list(range(1, 2001))
    assert consumers(api) == 0


def test_the_stream_is_looked_at_whenever_reading_begins(api: JetStreamApi) -> None:
    fill(api, 2000)
    found = list[int]()

    def look(answer: dict[str, Any]) -> None:
        found.append(answer["state"]["last_seq"])
        if len(found) > 1:
            raise StreamRecreatedError("another one")

    with Relay(api.link.settings.urls[0]) as proxy:
        beside = replace(api.link.settings, urls=(proxy.url,))
        batches = read_range(beside, ReadRange("ORDERS", 1, 2000, (), "consumer"), A_HUNDRED, SEQS, look)
        next(batches)
        proxy.cut()
        with pytest.raises(StreamRecreatedError):
            list(batches)
    assert found == [2000, 2000]


def test_a_server_that_stays_away_is_told(api: JetStreamApi) -> None:
    fill(api, 2000)
    with Relay(api.link.settings.urls[0]) as proxy:
        beside = replace(api.link.settings, urls=(proxy.url,), retries=1)
        batches = iter(read_range(beside, ReadRange("ORDERS", 1, 2000, (), "consumer"), A_HUNDRED, SEQS))
        next(batches)
        proxy.close()
        with pytest.raises(ServerUnreachableError):
            list(batches)


def test_silence_is_ended_by_asking_anew(api: JetStreamApi) -> None:
    make(api, number=50)
    with Relay(api.link.settings.urls[0]) as proxy:
        silenced = [b"MSG.NEXT"]

        def to_server(data: bytes) -> bytes:
            return b"" if silenced and silenced[0] in data and silenced.pop() else data

        proxy.to_server = to_server
        beside = replace(api.link.settings, urls=(proxy.url,))
        limits = FetchLimits(timeout_s=0.5)
        assert seqs(beside, ReadRange("ORDERS", 1, 50, (), "consumer"), limits) == list(range(1, 51))
    assert not silenced
    assert consumers(api) == 0


def test_a_consumer_that_is_taken_away_is_made_again(api: JetStreamApi) -> None:
    fill(api, 3000)
    batches = read_range(api.link.settings, ReadRange("ORDERS", 1, 3000, (), "consumer"), A_HUNDRED, SEQS)
    found: list[int] = []
    taken: list[bool] = []
    for batch in batches:
        found += batch.column("seq").to_pylist()
        if len(found) < 500:
            names = api.ask("CONSUMER.NAMES.ORDERS")["consumers"] or ()
            taken += [api.delete_consumer("ORDERS", name) for name in names]
    assert any(taken)
    assert found == list(range(1, 3001))
    assert consumers(api) == 0


def test_a_delivery_that_is_missing_is_fetched(api: JetStreamApi) -> None:
    make(api, number=50)
    with Relay(api.link.settings.urls[0]) as proxy:
        lost = [rb"MSG ORDERS\.3 [^\r]*\r\nx\r\n"]  # the first that is whole in what is read at once

        def to_client(data: bytes) -> bytes:
            found = re.search(lost[0], data) if lost else None
            if found is None:
                return data
            lost.pop()
            return data[: found.start()] + data[found.end() :]

        proxy.to_client = to_client
        found = seqs(replace(api.link.settings, urls=(proxy.url,)), ReadRange("ORDERS", 1, 50, (), "consumer"))
    assert not lost
    assert found == list(range(1, 51))
    assert consumers(api) == 0


# Servers that lag behind


def lagging(behind: bytes, times: int) -> Callable[[bytes], bytes]:
    """So many times, what is asked of ORDERS goes to a stream that has less."""
    left = [times]

    def to_server(data: bytes) -> bytes:
        asked = b"CONSUMER.CREATE.ORDERS" in data or b"DIRECT.GET.ORDERS" in data
        left[0] -= asked
        if asked and left[0] >= 0:
            return data.replace(b"ORDERS", behind)
        return data.replace(b"MSG.NEXT.ORDERS", b"MSG.NEXT." + behind) if left[0] >= 0 else data

    return to_server


def as_follower(data: bytes) -> bytes:
    """Answers in which the stream that has less has the name of the one that was asked."""
    return data.replace(b"Nats-Stream: BEHIND", b"Nats-Stream: ORDERS")


@pytest.mark.parametrize("transport", ["consumer", "direct"])
def test_a_server_that_lags_is_asked_again(api: JetStreamApi, transport: Transport) -> None:
    make(api, number=50, allow_direct=True)
    make(api, "BEHIND", 30, allow_direct=True)
    with Relay(api.link.settings.urls[0]) as proxy:
        proxy.to_server, proxy.to_client = lagging(b"BEHIND", 2), as_follower
        found = seqs(replace(api.link.settings, urls=(proxy.url,)), ReadRange("ORDERS", 1, 50, (), transport))
    assert found == list(range(1, 51))


def test_direct_gets_that_keep_lagging_give_way_to_a_consumer(api: JetStreamApi) -> None:
    make(api, number=50, allow_direct=True)
    make(api, "BEHIND", 30, allow_direct=True)
    with Relay(api.link.settings.urls[0]) as proxy:
        proxy.to_server = lambda data: data.replace(b"DIRECT.GET.ORDERS", b"DIRECT.GET.BEHIND")
        proxy.to_client = as_follower
        beside = replace(api.link.settings, urls=(proxy.url,), retries=1)
        assert seqs(beside, ReadRange("ORDERS", 1, 50)) == list(range(1, 51))
        with pytest.raises(ReadInterruptedError, match="lags behind"):
            seqs(beside, ReadRange("ORDERS", 1, 50, (), "direct"))


# Permissions and domains


CONF = """
jetstream { domain: hub }
authorization { users = [
  { user: all, password: x }
  { user: direct, password: x, permissions { publish: { deny: ["$JS.API.CONSUMER.>", "$JS.API.STREAM.INFO.>"] } } }
  { user: consumer, password: x, permissions { publish: { deny: ["$JS.API.DIRECT.>", "$JS.API.STREAM.MSG.>"] } } }
  { user: no_blocks, password: x, permissions { publish: { deny: ["$JS.API.STREAM.BLOCKS.>"] } } }
  { user: nothing, password: x, permissions { publish: "nothing" } }
] }
"""


def test_logins_read_by_what_they_may(server: ServerProcess, tmp_path: Path) -> None:
    conf = tmp_path / "nats.conf"
    conf.write_text(CONF)
    with ServerProcess(tmp_path / "server", server.kind, "-c", str(conf)) as process:
        everything = ServerSettings(urls=(process.url,), user="all", password="x", retries=0)
        with Link.open(everything) as link:
            make(JetStreamApi(link, everything), number=6000, allow_direct=True)
            for user in ("all", "direct", "consumer", "no_blocks"):
                assert len(seqs(replace(everything, user=user), ReadRange("ORDERS", 1, 6000))) == 6000
            hub = replace(everything, api_prefix="$JS.hub.API")
            assert len(seqs(hub, ReadRange("ORDERS", 1, 6000))) == 6000
            assert consumers(JetStreamApi(link, everything)) == 0
            with pytest.raises(SourceNotAuthorisedError, match="refuses it"):
                seqs(replace(everything, user="nothing"), ReadRange("ORDERS", 1, 6000))
