"""The time zone of a schedule, by the names that nats-server accepts."""

import itertools

import pytest

from natsctl.api.times import parse_time
from natsctl.client.dial import connect
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.jetstream.streams.schedule_pattern import TimeZoneError, first_firing
from natsctl.testing.process import ServerProcess
from tests.support.servers import PATIENCE_S, server, started

__all__ = ["server", "started"]

STREAM = b'{"name":"ZONES","subjects":["zones.>"],"storage":"memory","allow_msg_schedules":true,"allow_msg_ttl":true}'
KNOWN = ("Local", "UTC", "GMT", "Europe/Berlin")
UNKNOWN = ("local", "LOCAL", "utc", "../UTC", "/etc/localtime", "Europe", "Nowhere/None")
TIME_ZONE_INVALID = b'"err_code":10223'


@pytest.mark.both
async def test_names(server: ServerProcess) -> None:
    async with await connect(
        resolve(Settings(url=server.url, timeout_s=PATIENCE_S), {"HOME": "/nowhere"}), name="test"
    ) as connection:
        await connection.request("$JS.API.STREAM.CREATE.ZONES", STREAM)
        for number, name in zip(itertools.count(), (*KNOWN, *UNKNOWN), strict=False):
            headers = {
                "Nats-Schedule": "0 0 3 * * *",
                "Nats-Schedule-Target": "zones.target",
                "Nats-Schedule-Time-Zone": name,
            }
            ack = await connection.request(f"zones.{number}", b"", headers=headers)
            assert (TIME_ZONE_INVALID in ack.body) is (name in UNKNOWN), name


def test_a_schedule_in_the_zone_of_the_machine_fires_once_a_day() -> None:
    header = b"NATS/1.0\r\nNats-Schedule: @daily\r\nNats-Schedule-Time-Zone: Local\r\n\r\n"
    now_ns = parse_time("2026-01-15T12:00:00Z")
    first = first_firing(header, now_ns)
    assert first is not None
    assert "T00:00:00" in first.text
    assert parse_time(first.text) == first.due_ns
    with pytest.raises(TimeZoneError):
        first_firing(header.replace(b"Local", b"local"), now_ns)
