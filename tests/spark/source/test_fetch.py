"""Ranges are read whole, in order, once, whatever way and whatever happens, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from natsctl.spark.source.api import ONE_SHOT, JetStreamApi, StoredMessage
from natsctl.spark.source.columns import RowShape, ValueDoesNotFit, default_schema, row_shape
from natsctl.spark.source.ddl import parsed_schema
from natsctl.spark.source.errors import ApiRefused, ConnectionLost, NotAuthorised, ServerUnreachable, StreamNotFound
from natsctl.spark.source.fetch import read_range
from natsctl.spark.source.fetch.task import Interrupted
from natsctl.spark.source.link import Link
from natsctl.spark.source.ranges import FetchLimits, ReadRange, Transport
from natsctl.spark.source.settings import ServerSettings
from natsctl.testing.process import ServerProcess
from tests.shared_servers import server, started  # noqa: F401  # fixtures
from tests.spark.source.fakes import proxied
from tests.spark.source.streams import delete, make, purge, until

pytestmark = pytest.mark.both

TRANSPORTS: tuple[Transport, ...] = ("consumer", "direct", "get")
FEW = FetchLimits(messages=7)
SOME_KIB = b"x" * 2000


@pytest.fixture
def settings(server: ServerProcess) -> ServerSettings:  # noqa: F811  # the fixture
    return ServerSettings(urls=(server.url,), retries=3, retry_interval_s=0.05, timeout_s=30.0)


@pytest.fixture
def api(settings: ServerSettings) -> Iterator[JetStreamApi]:
    with Link.open(settings) as link:
        yield JetStreamApi(link, settings)


def shape(ddl: str = "", **options: Any) -> RowShape:
    said = {"valueFormat": "binary", "valueSchema": None, "valueMode": "permissive", "includeHeaders": True, **options}
    return row_shape(parsed_schema(ddl) if ddl else default_schema(said), said)


SEQS = shape("seq bigint, value binary")


def seqs(
    settings: ServerSettings, todo: ReadRange, limits: FetchLimits | None = None, wanted: RowShape = SEQS
) -> list[int]:
    """The sequences that a read gives."""
    batches = list(read_range(settings, todo, limits or FetchLimits(), wanted))
    return [seq for batch in batches for seq in batch.column("seq").to_pylist()]


def fill(api: JetStreamApi, number: int, body: bytes = SOME_KIB) -> None:
    """A stream ORDERS of larger messages, for reads that last."""
    make(api, "ORDERS", 0, allow_direct=True)
    for first in range(0, number, 500):
        frames = [b"PUB ORDERS.%d %d\r\n%b\r\n" % (at % 4, len(body), body) for at in range(first, first + 500)]
        api.link.send(b"".join(frames))
    until(lambda: bool(api.stream_info("ORDERS")["state"]["last_seq"] == number))


def consumers(api: JetStreamApi) -> int:
    return int(api.stream_info("ORDERS")["state"]["consumer_count"])


# What is read


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("limits", [FetchLimits(), FEW])
def test_a_range_is_read_and_nothing_beside_it(
    api: JetStreamApi, settings: ServerSettings, transport: Transport, limits: FetchLimits
) -> None:
    make(api, number=100, allow_direct=True)
    assert seqs(settings, ReadRange("ORDERS", 11, 90, (), transport), limits) == list(range(11, 91))
    assert seqs(settings, ReadRange("ORDERS", 100, 100, (), transport), limits) == [100]
    assert seqs(settings, ReadRange("ORDERS", 91, 90, (), transport), limits) == []
    assert seqs(settings, ReadRange("ORDERS", 1, 500, (), transport), limits) == list(range(1, 101))
    assert seqs(settings, ReadRange("ORDERS", 101, 500, (), transport), limits) == []
    assert consumers(api) == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_gaps_are_stepped_over(api: JetStreamApi, settings: ServerSettings, transport: Transport) -> None:
    make(api, number=100, allow_direct=True)
    purge(api, 20)
    delete(api, 21, 40, 41, 42, 99, 100)
    expected = [seq for seq in range(20, 99) if seq not in (21, 40, 41, 42)]
    assert seqs(settings, ReadRange("ORDERS", 1, 100, (), transport), FEW) == expected
    assert seqs(settings, ReadRange("ORDERS", 40, 42, (), transport)) == []
    assert consumers(api) == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("filters", [("ORDERS.1",), ("ORDERS.1", "ORDERS.2"), ("ORDERS.*",), ("ORDERS.9",)])
def test_subjects_are_chosen(
    api: JetStreamApi, settings: ServerSettings, transport: Transport, filters: tuple[str, ...]
) -> None:
    make(api, number=40, allow_direct=True)
    wanted = {"ORDERS.1": [1], "ORDERS.2": [2], "ORDERS.*": [0, 1, 2, 3], "ORDERS.9": []}
    kinds = [kind for each in filters for kind in wanted[each]]
    expected = [seq for seq in range(3, 39) if (seq - 1) % 4 in kinds]
    assert seqs(settings, ReadRange("ORDERS", 3, 38, filters, transport), FEW) == expected
    assert consumers(api) == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_row_is_the_message(api: JetStreamApi, settings: ServerSettings, transport: Transport) -> None:
    make(api, number=0, allow_direct=True)
    block = b"NATS/1.0\r\nA: b\r\nA: c\r\n\r\n"
    api.link.request("ORDERS.a", b"\r\nMSG x 1 0\r\n\r\n", headers=block)
    api.link.request("ORDERS.b", b"")
    api.link.request("ORDERS.c", b"", headers=b"NATS/1.0\r\nNats-Stream: other\r\n\r\n")
    (batch,) = read_range(settings, ReadRange("ORDERS", 1, 3, (), transport), FetchLimits(), shape())
    batch.validate(full=True)
    pairs = [{"key": "A", "value": b"b"}, {"key": "A", "value": b"c"}]
    assert batch.column("headers").to_pylist() == [pairs, None, [{"key": "Nats-Stream", "value": b"other"}]]
    assert batch.column("subject").to_pylist() == ["ORDERS.a", "ORDERS.b", "ORDERS.c"]
    assert batch.column("value").to_pylist() == [b"\r\nMSG x 1 0\r\n\r\n", b"", b""]
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert [found.time_ns // 1000 for seq in (1, 2, 3) if (found := api.message("ORDERS", {"seq": seq}))] == times


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_payloads_that_are_not_wanted_change_nothing_else(
    api: JetStreamApi, settings: ServerSettings, transport: Transport
) -> None:
    make(api, number=0, allow_direct=True)
    api.link.request("ORDERS.a", b"x", headers=b"NATS/1.0\r\nA: b\r\n\r\n")
    api.link.request("ORDERS.b", b"y")
    wanted = shape("headers array<struct<key: string, value: binary>>, seq bigint")
    (batch,) = read_range(settings, ReadRange("ORDERS", 1, 2, (), transport), FetchLimits(), wanted)
    assert batch.to_pylist() == [{"headers": [{"key": "A", "value": b"b"}], "seq": 1}, {"headers": None, "seq": 2}]


@pytest.mark.parametrize("transport", ["consumer", "direct"])
def test_large_windows_are_read(api: JetStreamApi, settings: ServerSettings, transport: Transport) -> None:
    fill(api, 3000)
    limits = FetchLimits(messages=1000, bytes=1 << 19)
    assert seqs(settings, ReadRange("ORDERS", 1, 3000, (), transport), limits) == list(range(1, 3001))
    assert seqs(settings, ReadRange("ORDERS", 1, 3000, (), transport), wanted=shape("seq bigint")) == list(
        range(1, 3001)
    )


@pytest.mark.parametrize("transport", ["consumer", "direct"])
def test_messages_larger_than_a_request_are_read(
    api: JetStreamApi, settings: ServerSettings, transport: Transport
) -> None:
    make(api, number=10, allow_direct=True)
    for _ in range(3):
        api.link.request("ORDERS.large", SOME_KIB)
    api.link.request("ORDERS.small", b"x")
    found = seqs(settings, ReadRange("ORDERS", 1, 14, (), transport), FetchLimits(messages=5, bytes=500))
    assert found == list(range(1, 15))


# Which way


def test_a_work_queue_is_read_without_a_consumer(api: JetStreamApi, settings: ServerSettings) -> None:
    for direct in (True, False):
        make(api, number=100, retention="workqueue", allow_direct=direct)
        assert seqs(settings, ReadRange("ORDERS", 1, 100)) == list(range(1, 101))
        assert api.stream_info("ORDERS")["state"]["messages"] == 100
        with pytest.raises(ApiRefused):
            seqs(settings, ReadRange("ORDERS", 1, 100, (), "consumer"))
        api.ask("STREAM.DELETE.ORDERS")


def test_a_stream_that_lives_by_interest_stays_as_it_is(api: JetStreamApi, settings: ServerSettings) -> None:
    make(api, number=0, retention="interest", allow_direct=True)
    api.create_consumer("ORDERS", "other", {"durable_name": "other", "ack_policy": "explicit"})
    for _ in range(20):
        api.link.request("ORDERS.1", b"x")
    assert seqs(settings, ReadRange("ORDERS", 1, 20)) == list(range(1, 21))
    assert api.stream_info("ORDERS")["state"]["messages"] == 20


def test_a_stream_with_all_its_consumers_is_read_directly(api: JetStreamApi, settings: ServerSettings) -> None:
    make(api, number=6000, allow_direct=True, max_consumers=1)
    api.create_consumer("ORDERS", "other", {"durable_name": "other", "ack_policy": "explicit"})
    assert seqs(settings, ReadRange("ORDERS", 1, 6000)) == list(range(1, 6001))
    with pytest.raises(ApiRefused, match="maximum consumers"):
        seqs(settings, ReadRange("ORDERS", 1, 6000, (), "consumer"))


def test_direct_gets_that_are_not_allowed_are_told(api: JetStreamApi, settings: ServerSettings) -> None:
    make(api, number=5)
    with pytest.raises(ApiRefused, match="set allow_direct"):
        seqs(settings, ReadRange("ORDERS", 1, 5, (), "direct"))
    assert seqs(settings, ReadRange("ORDERS", 1, 5)) == [1, 2, 3, 4, 5]


def test_a_stream_that_is_not_there_is_told(api: JetStreamApi, settings: ServerSettings) -> None:
    for transport in (*TRANSPORTS[::2], "auto"):
        with pytest.raises(StreamNotFound):
            seqs(settings, ReadRange("NOTHING", 1, 5, (), transport))  # type: ignore[arg-type]  # one of them


# No trace


def test_a_read_that_is_given_up_leaves_no_consumer(api: JetStreamApi, settings: ServerSettings) -> None:
    fill(api, 3000)
    batches = read_range(settings, ReadRange("ORDERS", 1, 3000, (), "consumer"), FetchLimits(), SEQS)
    assert next(iter(batches)).num_rows < 3000
    assert consumers(api) == 1
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert consumers(api) == 0


def test_a_read_that_fails_leaves_no_consumer(api: JetStreamApi, settings: ServerSettings) -> None:
    make(api, number=10)
    wanted = shape(valueFormat="json", valueSchema="id int", valueMode="failfast")
    with pytest.raises(ValueDoesNotFit, match="message ORDERS 1 "):
        list(read_range(settings, ReadRange("ORDERS", 1, 10), FetchLimits(), wanted))
    assert consumers(api) == 0


# What happens meanwhile


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_connection_that_is_lost_changes_nothing(
    api: JetStreamApi, settings: ServerSettings, transport: Transport
) -> None:
    fill(api, 2000)
    with proxied(settings.urls[0]) as proxy:
        beside = replace(settings, urls=(proxy.url,))
        found: list[int] = []
        for batch in read_range(beside, ReadRange("ORDERS", 1, 2000, (), transport), FetchLimits(), SEQS):
            found += batch.column("seq").to_pylist()
            if proxy.visits < 4:
                proxy.cut()
        assert proxy.visits > 1
    assert found == list(range(1, 2001))
    assert consumers(api) == 0


def test_a_server_that_stays_away_is_told(api: JetStreamApi, settings: ServerSettings) -> None:
    fill(api, 2000)
    with proxied(settings.urls[0]) as proxy:
        beside = replace(settings, urls=(proxy.url,), retries=1)
        batches = iter(read_range(beside, ReadRange("ORDERS", 1, 2000, (), "consumer"), FetchLimits(), SEQS))
        next(batches)
        proxy.close()
        with pytest.raises(ServerUnreachable):
            list(batches)


def test_silence_is_ended_by_asking_anew(api: JetStreamApi, settings: ServerSettings) -> None:
    make(api, number=50)
    with proxied(settings.urls[0]) as proxy:
        silenced = [b"MSG.NEXT"]

        def to_server(data: bytes) -> bytes:
            return b"" if silenced and silenced[0] in data and silenced.pop() else data

        proxy.to_server = to_server
        beside = replace(settings, urls=(proxy.url,))
        limits = FetchLimits(timeout_s=2.0)
        assert seqs(beside, ReadRange("ORDERS", 1, 50, (), "consumer"), limits) == list(range(1, 51))
    assert not silenced
    assert consumers(api) == 0


def test_a_consumer_that_is_taken_away_is_made_again(api: JetStreamApi, settings: ServerSettings) -> None:
    fill(api, 3000)
    batches = read_range(settings, ReadRange("ORDERS", 1, 3000, (), "consumer"), FetchLimits(messages=100), SEQS)
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


def test_a_delivery_that_is_missing_is_fetched(api: JetStreamApi, settings: ServerSettings) -> None:
    make(api, number=50)
    with proxied(settings.urls[0]) as proxy:
        lost = [b"MSG ORDERS.3 "]

        def to_client(data: bytes) -> bytes:
            at = data.find(lost[0]) if lost else -1
            if at < 0:
                return data
            lost.pop()
            end = data.index(b"\r\n", data.index(b"\r\n", at) + 2) + 2
            return data[:at] + data[end:]

        proxy.to_client = to_client
        found = seqs(replace(settings, urls=(proxy.url,)), ReadRange("ORDERS", 1, 50, (), "consumer"))
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


@pytest.mark.parametrize("transport", ["consumer", "direct"])
def test_a_server_that_lags_is_asked_again(api: JetStreamApi, settings: ServerSettings, transport: Transport) -> None:
    make(api, number=50, allow_direct=True)
    make(api, "BEHIND", 30, allow_direct=True)
    with proxied(settings.urls[0]) as proxy:
        proxy.to_server = lagging(b"BEHIND", 2)
        found = seqs(replace(settings, urls=(proxy.url,)), ReadRange("ORDERS", 1, 50, (), transport))
    assert found == list(range(1, 51))


def test_direct_gets_that_keep_lagging_give_way_to_a_consumer(api: JetStreamApi, settings: ServerSettings) -> None:
    make(api, number=50, allow_direct=True)
    make(api, "BEHIND", 30, allow_direct=True)
    with proxied(settings.urls[0]) as proxy:
        proxy.to_server = lambda data: data.replace(b"DIRECT.GET.ORDERS", b"DIRECT.GET.BEHIND")
        beside = replace(settings, urls=(proxy.url,), retries=1)
        assert seqs(beside, ReadRange("ORDERS", 1, 50)) == list(range(1, 51))
        with pytest.raises(Interrupted, match="lags behind"):
            seqs(beside, ReadRange("ORDERS", 1, 50, (), "direct"))


# Permissions and domains


CONF = """
jetstream { domain: hub }
authorization { users = [
  { user: all, password: x }
  { user: direct, password: x, permissions { publish: { deny: ["$JS.API.CONSUMER.>", "$JS.API.STREAM.INFO.>"] } } }
  { user: consumer, password: x, permissions { publish: { deny: ["$JS.API.DIRECT.>", "$JS.API.STREAM.MSG.>"] } } }
  { user: nothing, password: x, permissions { publish: "nothing" } }
] }
"""


def test_logins_read_by_what_they_may(server: ServerProcess, tmp_path: Any) -> None:  # noqa: F811  # the fixture
    conf = tmp_path / "nats.conf"
    conf.write_text(CONF)
    with ServerProcess(tmp_path / "server", server.kind, "-c", str(conf)) as process:
        everything = ServerSettings(urls=(process.url,), user="all", password="x", retries=0)
        with Link.open(everything) as link:
            make(JetStreamApi(link, everything), number=6000, allow_direct=True)
            for user in ("all", "direct", "consumer"):
                assert len(seqs(replace(everything, user=user), ReadRange("ORDERS", 1, 6000))) == 6000
            hub = replace(everything, api_prefix="$JS.hub.API")
            assert len(seqs(hub, ReadRange("ORDERS", 1, 6000))) == 6000
            assert consumers(JetStreamApi(link, everything)) == 0
            with pytest.raises(NotAuthorised, match="refuses it"):
                seqs(replace(everything, user="nothing"), ReadRange("ORDERS", 1, 6000))


# The API


def test_moments_and_counts_are_found_without_a_trace(api: JetStreamApi) -> None:
    for direct in (True, False):
        make(api, number=20, allow_direct=direct)
        middle = api.message("ORDERS", {"seq": 20})
        make_later = api.link.request("ORDERS.1", b"x")
        assert make_later.status == 0
        last = api.message("ORDERS", {"seq": 21})
        assert middle is not None
        assert last is not None
        assert api.sequence_at("ORDERS", last.time_ns) == 21
        assert api.sequence_at("ORDERS", middle.time_ns + 1) == 21
        assert api.sequence_at("ORDERS", middle.time_ns + 1, ("ORDERS.1", "ORDERS.3")) == 21
        assert api.sequence_at("ORDERS", last.time_ns + 1) == 22
        assert api.sequence_at("ORDERS", 0, ("ORDERS.3", "ORDERS.2")) == 3
        assert [api.pending("ORDERS", first) for first in (0, 1, 12, 22)] == [21, 21, 10, 0]
        assert api.pending("ORDERS", 12, ("ORDERS.1", "ORDERS.2")) == 2 + 3 - 0
        assert consumers(api) == 0
        api.ask("STREAM.DELETE.ORDERS")


def test_old_servers_find_moments_by_halves(api: JetStreamApi, monkeypatch: pytest.MonkeyPatch) -> None:
    make(api, number=50)
    delete(api, 30, 31)
    wanted = {seq: found.time_ns for seq in (1, 2, 29, 32, 50) if (found := api.message("ORDERS", {"seq": seq}))}
    ask = api.message

    def old(stream: str, wanted: dict[str, Any]) -> StoredMessage | None:
        return ask(stream, {"seq": 1, **{name: value for name, value in wanted.items() if name != "start_time"}})

    monkeypatch.setattr(api, "message", old)
    for time_ns in wanted.values():
        exact = min(seq for seq, at in wanted.items() if at >= time_ns)
        found = old("ORDERS", {"seq": api.sequence_at("ORDERS", time_ns)})
        assert found is not None
        assert found.time_ns >= time_ns
        assert found.seq <= exact
    assert api.sequence_at("ORDERS", wanted[50] + 1) == 51


def test_subjects_and_names_come_in_pages_and_whole(api: JetStreamApi) -> None:
    make(api, number=8)
    make(api, "OTHER", 0)
    assert api.stream_names() == ["ORDERS", "OTHER"]
    assert api.stream_names("OTHER.x") == ["OTHER"]
    subjects = api.stream_info("ORDERS", subjects_filter="ORDERS.*")["state"]["subjects"]
    assert subjects == {f"ORDERS.{at}": 2 for at in range(4)}


def test_consumers_are_made_and_deleted(api: JetStreamApi) -> None:
    make(api, number=8)
    filters = {"filter_subjects": ["ORDERS.1", "ORDERS.2"]}
    assert api.create_consumer("ORDERS", "c", {**ONE_SHOT, **filters})["num_pending"] == 4
    assert api.delete_consumer("ORDERS", "c")
    assert not api.delete_consumer("ORDERS", "c")
    assert not api.delete_consumer("NOTHING", "c")


def test_questions_outlive_a_connection(api: JetStreamApi, settings: ServerSettings) -> None:
    make(api, number=8)
    with proxied(settings.urls[0]) as proxy:
        beside = replace(settings, urls=(proxy.url,))
        with Link.open(beside) as link:
            asked = JetStreamApi(link, beside)
            proxy.cut()
            assert asked.stream_info("ORDERS")["state"]["messages"] == 8
            proxy.close()
            with pytest.raises((ConnectionLost, ServerUnreachable)):
                asked.stream_info("ORDERS")
