"""Deep reports: what is counted, what is made of it, and a page that no subject can break."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from nats.js.api import StreamConfig

from natsctl.cli.render.spark_reports import deep_html
from natsctl.spark.stream_report import (
    BLOCK_MESSAGES,
    MAX_ROWS,
    MAX_SLOTS,
    Counted,
    Counts,
    DeepReport,
    Gaps,
    _keys,
    deep_report,
    gap,
    report_of,
    slot_length,
)
from natsctl.testing.process import ServerProcess
from tests.support import patient_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HOUR_NS = 3_600_000_000_000
NO_GAPS = Gaps(gaps=0, missing=0, longest=[])


def row(kind: str, key: str, messages: int, **more: int) -> Counted:
    numbers = dict.fromkeys(Counted._fields[3:], 0) | more
    return Counted(kind, key, messages, **numbers)


def report(*rows: Counted, slot_s: float = 60, gaps: Gaps = NO_GAPS) -> DeepReport:
    return report_of("ORDERS", Counts(rows), slot_s, gaps, payloads=False)


@pytest.mark.parametrize(
    ("span_ns", "length"), [(0, 0.001), (HOUR_NS, 60), (24 * HOUR_NS, 900), (365 * 24 * HOUR_NS, 7 * 86400)]
)
def test_slots_have_a_length_that_people_count_in(span_ns: int, length: float) -> None:
    assert slot_length(1_790_000_000 * 10**9, 1_790_000_000 * 10**9 + span_ns) == length
    assert span_ns / 1e9 / length < MAX_SLOTS


def test_quantiles_classes_and_slots_follow_from_the_counts() -> None:
    found = report(
        row("all", "", 100, bytes=5000, least=0, most=4097),
        *(row("size", key, messages) for key, messages in (("0", 1), ("10", 59), ("100", 39), ("4100", 1))),
        row("slot", "100", 60, bytes=7),
        row("slot", "103", 40),
    )
    assert found.sizes is not None
    assert (found.sizes.p50, found.sizes.p90, found.sizes.p99, found.sizes.max) == (10, 100, 100, 4097)
    classes = {(one.from_bytes, one.to_bytes): one.messages for one in found.size_classes}
    assert classes[0, 0] == 1
    assert classes[8, 15] == 59
    assert sum(classes.values()) == 100
    assert [one.messages for one in found.slots] == [60, 0, 0, 40]
    assert found.slots[0].start == "1970-01-01T01:40:00Z"


def test_gaps_are_looked_for_only_in_blocks_that_lack_a_message() -> None:
    counts = Counts(
        [
            row("block", "0", BLOCK_MESSAGES - 1, first_seq=1, last_seq=BLOCK_MESSAGES - 1),
            row("block", "1", 10, first_seq=BLOCK_MESSAGES + 5, last_seq=BLOCK_MESSAGES + 20),
        ]
    )
    assert counts.blocks_with_gaps() == [1]
    assert counts.gaps_between_blocks() == [gap(BLOCK_MESSAGES, BLOCK_MESSAGES + 4)]


class _Page(HTMLParser):
    """The tags of a page and what is told in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.told = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "onload", "onerror")]

    def handle_data(self, data: str) -> None:
        self.told += data


def test_a_page_needs_nothing_else_and_no_subject_breaks_out_of_it() -> None:
    hostile = ["</title><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a\u202eb\x1b[31m", "&lt;"]
    found = report(
        row("all", "", 4, first_seq=1, last_seq=9, most=1),
        *(row("subject", key, 1, keys=4) for key in hostile),
        *(row("header", key, 1) for key in hostile),
        *(row("id", key, 2, keys=4, total=8) for key in hostile),
        row("slot", "5", 4),
        row("size", "1", 4),
        gaps=Gaps(gaps=1, missing=5, longest=[gap(2, 6)]),
    )
    text = deep_html(found)
    page = _Page(text)
    assert page.tags.isdisjoint({"script", "img", "link", "iframe"})
    assert page.links == []
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert hostile[0] in page.told
    assert "http" not in text
    assert "Messages of Stream ORDERS" in deep_html(report())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("report") / "server") as process:
        asyncio.run(fill(process.url))
        yield process


async def fill(url: str) -> None:
    """R has gaps, and an id twice, between which its stream has forgotten it; H has more headers than are listed."""
    connection = await patient_client.connect(url)
    stream = connection.jetstream()
    await stream.add_stream(StreamConfig(name="R", subjects=["r.>"], duplicate_window=0.1))
    for number in range(9):
        await stream.publish(
            f"r.{number % 2}", b"x" * (number + 1), headers={"Nats-Msg-Id" if number == 1 else "N": ID[number]}
        )
    while (await stream.publish("r.1", b"x" * 10, headers={"Nats-Msg-Id": "twice"})).duplicate:
        pass
    for seq in (3, 4, 7):
        await stream.delete_msg("R", seq)
    await stream.add_stream(StreamConfig(name="H", subjects=["h"]))
    many = {f"H{number}": "1" for number in range(MAX_ROWS)}
    for ids in ({"nats-msg-id": "none"}, {"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "2", "nats-msg-id": "other"}):
        await stream.publish("h", b"", headers={**many, **ids})
    await connection.close()


ID = ["0", "twice", *"2345678"]


def test_messages_with_an_id_are_counted_beside_more_headers_than_are_listed(
    spark: SparkSession, running: ServerProcess
) -> None:
    found = deep_report(spark, {"servers": running.url, "stream": "H"}, "H", 0.1)
    assert found.with_id == 2
    assert (len(found.headers), {one.messages for one in found.headers}) == (MAX_ROWS, {3})


def test_a_message_that_has_a_header_twice_counts_once(spark: SparkSession) -> None:
    pairs = ", ".join(f"struct('{key}' as key, X'31' as value)" for key in "AAB")
    message = f"select 1L as seq, 'r' as subject, 5L as us, 1 as bytes, null as own_id, array({pairs}) as headers"
    found = spark.sql(f"select inline({_keys(1.0, payloads=False)}) from ({message})").collect()
    assert sorted(row["key"] for row in found if row["kind"] == "header") == ["A", "B"]


def test_a_stream_is_counted_to_the_byte(spark: SparkSession, running: ServerProcess) -> None:
    found = deep_report(spark, {"servers": running.url, "stream": "R"}, "R", 0.1, payloads=True)
    left = [1, 2, 5, 6, 8, 9, 10]
    assert (found.messages, found.bytes, found.first_seq, found.last_seq) == (7, sum(left), 1, 10)
    assert [(one.subject, one.messages, one.bytes) for one in found.subjects] == [("r.1", 4, 26), ("r.0", 3, 15)]
    assert (found.number_of_subjects, found.with_id) == (2, 2)
    assert {one.key: one.messages for one in found.headers} == {"N": 5, "Nats-Msg-Id": 2}
    assert found.header_bytes == 2 * len("Nats-Msg-Id: twice\r\n") + 5 * len("N: 0\r\n")
    assert [(one.key, one.messages, one.first_seq, one.last_seq) for one in found.ids.most] == [("twice", 2, 2, 10)]
    assert found.payloads is not None
    assert found.payloads.keys == 0
    assert (found.gaps.gaps, found.gaps.missing, found.gaps.longest) == (2, 3, [gap(3, 4), gap(7, 7)])
    assert sum(one.messages for one in found.slots) == 7
