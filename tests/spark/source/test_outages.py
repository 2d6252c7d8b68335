"""Outages: servers that are killed and started again while the source reads and writes; the clock is turned."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from natsctl.spark.source import outages
from natsctl.spark.source.driver_settings import server_settings
from natsctl.spark.source.errors import (
    ApiRefusedError,
    JetStreamSourceError,
    NoResponseError,
    ServerUnreachableError,
    SourceNotAuthorisedError,
)
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi, refuse
from natsctl.spark.source.link import Link
from natsctl.spark.source.outages import Outage
from natsctl.spark.source.source_options import BATCH_READ, BATCH_WRITE, STREAM_READ, STREAM_WRITE, Options
from natsctl.spark.source.writers import JetStreamBatchWriter
from natsctl.testing.process import Kind, ServerProcess
from tests.spark.source.queries import ReaderQuery, closed
from tests.spark.source.reads import parsed_schema
from tests.spark.source.streams import add, make, messages
from tests.support.servers import quiet_ports

__all__ = ["closed"]
KINDS = ["natsctl", pytest.param("reference", marks=pytest.mark.reference)]


class TurnedClock:
    """A clock that pauses turn; at `due` something happens, once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.turned_s = 0.0
        self.pauses: list[float] = []
        self.due: tuple[float, Callable[[], object]] | None = None
        patch.setattr(outages, "time", SimpleNamespace(monotonic=self.monotonic, sleep=self.sleep))

    def monotonic(self) -> float:
        return time.monotonic() + self.turned_s

    def sleep(self, pause_s: float) -> None:
        self.turned_s += pause_s
        self.pauses.append(pause_s)
        if self.due is not None and self.turned_s >= self.due[0]:
            _, step = self.due
            self.due = None
            step()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    return TurnedClock(monkeypatch)


@pytest.fixture(params=KINDS)
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    kind: Kind = request.param
    process = ServerProcess(tmp_path / "server", kind, "-p", str(quiet_ports(1)[0]))
    with process:
        yield process


@pytest.fixture
def api(process: ServerProcess) -> Iterator[JetStreamApi]:
    settings = ServerSettings(urls=(process.url,))
    with Link.open(settings) as link:
        yield JetStreamApi(link, settings)


def query_of(process: ServerProcess, **options: str) -> ReaderQuery:
    return ReaderQuery(process.url, **{"startingOffsets": "earliest", **options})


def kill_for(process: ServerProcess, clock: TurnedClock, outage_s: float, *, gently: bool = False) -> None:
    process.stop() if gently else process.kill()
    clock.due = (clock.turned_s + outage_s, process.start)


@pytest.mark.parametrize("options", [{}, {"ackMode": "explicit", "consumer": "SPARK", "createConsumer": "true"}])
def test_a_streaming_read_outlives_two_minutes_without_a_server(
    api: JetStreamApi, process: ServerProcess, clock: TurnedClock, options: dict[str, str]
) -> None:
    make(api, number=20)
    query = query_of(process, **({"startingOffsets": ""} if options else {}), **options)
    start = query.begin()
    kill_for(process, clock, 110)
    end = query.next(start)
    if not options:  # with ackMode the driver has the messages
        kill_for(process, clock, 110)
    assert sorted(query.seqs(start, end)) == list(range(1, 21))
    if options:  # a killed server may forget deliveries of the last moment, and then they come again: at least once
        kill_for(process, clock, 110, gently=True)
    query.reader.commit(end)
    if options:
        assert api.ask("CONSUMER.INFO.ORDERS.SPARK")["num_ack_pending"] == 0
    api.link.reopen()
    add(api, "ORDERS", 5)
    assert sorted(query.seqs(end, query.next(end))) == list(range(21, 26))


@pytest.mark.parametrize("idempotence", ["ids", "ledger"])
def test_a_write_outlives_two_minutes_without_a_server_and_stores_each_message_once(
    api: JetStreamApi, process: ServerProcess, clock: TurnedClock, idempotence: str
) -> None:
    make(api, "OUT", number=0)

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(300):
            if number in (0, 100, 200):
                kill_for(process, clock, 110)
            columns = [pa.array(["OUT.a"] * 10), pa.array([str(number * 10 + at) for at in range(10)])]
            yield pa.RecordBatch.from_arrays(columns, names=["subject", "value"])

    options = {"servers": process.url, "stream": "OUT", "idempotence": idempotence, "window": "50"}
    writer = JetStreamBatchWriter(options, parsed_schema("subject string, value string"), False)
    writer.commit([writer.write(rows())])
    api.link.reopen()
    assert clock.turned_s >= 330
    assert [int(payload) for _, _, payload in messages(api, "OUT")] == list(range(3000))


def test_an_outage_is_logged_with_the_time_that_is_left_and_its_end(
    api: JetStreamApi, process: ServerProcess, clock: TurnedClock, caplog: pytest.LogCaptureFixture
) -> None:
    make(api)
    query = query_of(process)
    start = query.begin()
    kill_for(process, clock, 60)
    with caplog.at_level(logging.WARNING, "natsctl.spark.jetstream"):
        query.next(start)
    texts = [record.getMessage() for record in caplog.records]
    assert "trying again, for 120 s more" in texts[0]
    assert 5 <= len(texts) <= 10
    assert "the server answers again, after 6" in texts[-1]


def test_a_refused_login_is_not_tried_again(process: ServerProcess, clock: TurnedClock, tmp_path: Path) -> None:
    flags = process.flags
    process.kill()
    process.flags = (*flags, "--user", "ann", "--pass", "secret")
    process.start()
    query = query_of(process, user="ann", password="wrong")
    with pytest.raises(SourceNotAuthorisedError):
        query.begin()
    assert clock.pauses == []


def test_a_server_that_never_answered_is_warned_of_with_the_option_to_look_at(
    clock: TurnedClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "natsctl.spark.jetstream"), pytest.raises(ServerUnreachableError):
        Link.open(limits(STREAM_READ))
    first = caplog.records[0].getMessage()
    assert "no server answers at 127.0.0.1:1" in first
    assert "trying again, for 120 s more (no server has answered yet: is option servers right?" in first


def limits(place: str, **options: str) -> ServerSettings:
    return server_settings(Options({"servers": "nats://127.0.0.1:1", **options}, place), {})


@pytest.mark.parametrize("place", [STREAM_READ, BATCH_WRITE, STREAM_WRITE, BATCH_READ])
def test_queries_and_writes_give_up_after_two_minutes_and_batch_reads_earlier(clock: TurnedClock, place: str) -> None:
    with pytest.raises(ServerUnreachableError, match=r"no server answers at .* \(given up after \d+ attempts in"):
        Link.open(limits(place))
    limit_s = 30 if place == BATCH_READ else 120
    assert limit_s <= clock.turned_s + 1 <= limit_s + 2
    assert 5 < len(clock.pauses) < limit_s


def test_pauses_grow_to_five_seconds_and_are_shortened_at_random(clock: TurnedClock) -> None:
    for _ in range(3):
        with pytest.raises(ServerUnreachableError):
            Link.open(limits(STREAM_READ))
    first = clock.pauses[:4]
    for pause, longest in zip(first, (0.5, 1, 2, 4), strict=True):
        assert longest / 2 <= pause <= longest
    assert max(clock.pauses) <= 5
    assert len(set(clock.pauses)) == len(clock.pauses)


@pytest.mark.parametrize(("options", "pauses"), [({"numRetries": "0"}, 0), ({"numRetries": "3"}, 3)])
def test_attempts_can_be_limited_by_number(clock: TurnedClock, options: dict[str, str], pauses: int) -> None:
    with pytest.raises(ServerUnreachableError):
        Link.open(limits(STREAM_READ, **options))
    assert len(clock.pauses) == pauses


def test_a_success_begins_the_limit_again(clock: TurnedClock) -> None:
    outage = Outage(ServerSettings(retry_timeout_s=10))
    failure = NoResponseError("no answer")
    for _ in range(5):
        while clock.turned_s % 10 < 6:
            outage.pause(failure)
        outage.end()
        clock.turned_s = round(clock.turned_s, -1) + 10
    with pytest.raises(NoResponseError, match="given up after"):
        for _ in range(100):
            outage.pause(failure)


@pytest.mark.parametrize(
    ("code", "kind"), [(10008, NoResponseError), (10118, NoResponseError), (10039, ApiRefusedError)]
)
def test_an_offline_stream_is_an_outage_and_a_refusal_is_none(code: int, kind: type[JetStreamSourceError]) -> None:
    with pytest.raises(kind):
        refuse("STREAM.INFO.ORDERS", {"err_code": code, "description": "not now"})
