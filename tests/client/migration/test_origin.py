"""Consumers and sources as a migration takes them along, where servers do not say everything."""

from pathlib import Path
from typing import Any

import pytest

from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, Progress
from natsctl.api.consumer import ConsumerConfig, ConsumerInfo, SequenceInfo
from natsctl.client.migration.origin import continued, continued_in, with_pending
from natsctl.client.migration.spool import Kept, Spool

LAST = "2026-11-24T02:00:00Z"


def consumer(**config: Any) -> ArchivedConsumer:
    """A consumer as a cluster saves it: put back to its ack floor."""
    given = ConsumerConfig(durable_name="C", ack_policy=config.pop("ack_policy", "explicit"), **config)
    return ArchivedConsumer("C", given, Progress(2, 2, 2, 2))


def info(delivered: int, pending: int) -> ConsumerInfo:
    """A consumer whose ack floor is 2, with so many pending messages."""
    return ConsumerInfo(
        name="C",
        delivered=SequenceInfo(consumer_seq=delivered, stream_seq=delivered, last_active=LAST),
        ack_floor=SequenceInfo(consumer_seq=2, stream_seq=2),
        num_ack_pending=pending,
    )


MESSAGES = [(seq, f"s.{seq % 2}") for seq in range(1, 10)]


@pytest.mark.parametrize(
    ("config", "delivered", "count", "pending"),
    [
        ({}, 5, 3, [3, 4, 5]),
        ({}, 5, 2, []),
        ({"filter_subject": "s.1"}, 7, 3, [3, 5, 7]),
        ({"filter_subjects": ["s.0", "s.2"]}, 7, 2, [4, 6]),
        ({"filter_subject": "s.1"}, 7, 2, []),
        ({"ack_policy": "none"}, 5, 3, []),
    ],
)
def test_what_is_pending_is_known_if_it_is_everything_behind_the_ack_floor(
    config: dict[str, Any], delivered: int, count: int, pending: list[int]
) -> None:
    found = with_pending(consumer(**config), info(delivered, count), MESSAGES).progress
    assert list(found.pending) == pending
    assert found.delivered_sseq == (delivered if pending else 2)
    assert [seq for seq, _ in found.pending.values()] == list(range(3, 3 + len(pending)))


def test_sources_start_behind_what_the_stream_has_of_them() -> None:
    sources = [{"name": "A", "opt_start_time": LAST}, {"name": "B"}, {"name": "C", "opt_start_seq": 90}]
    far = {"name": "D", "external": {"api": "$JS.far.API"}}
    assert continued({"sources": [*sources, far]}, [7, 0, 5, 3])["sources"] == [
        {"name": "A", "opt_start_seq": 8},
        *sources[1:],
        far,
    ]
    assert continued({"sources": sources}, []) == {"sources": sources}
    assert continued({"name": "S"}, []) == {"name": "S"}


def test_the_headers_of_messages_say_where_sources_are(tmp_path: Path) -> None:
    values = (b"A 5 > > a.x ID", b"B 3 b.1 > b.1 ID", b"A 9 > > a.x ID", b"B 8 b.2\fb.3 t.2\f> b.2 ID", b"$JS.ACK.odd")
    spool = Spool(tmp_path)
    spool.add(
        [
            ArchivedMessage(seq, seq, b"s", b"NATS/1.0\r\nNats-Stream-Source: %b\r\n\r\n" % value, b"")
            for seq, value in enumerate(values, 1)
        ]
    )
    spool.commit(5)
    two = {"name": "B", "subject_transforms": [{"src": "b.2", "dest": "t.2"}, {"src": "b.3"}]}
    config = {"sources": [{"name": "A"}, {"name": "B", "filter_subject": "b.1"}, two, {"name": "Z"}]}
    starts = [one.get("opt_start_seq") for one in continued_in(config, spool, Kept(1, 5))["sources"]]
    spool.close()
    assert starts == [10, 4, 9, None]
