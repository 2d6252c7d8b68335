"""Rows become protocol lines: subjects, payloads, headers, ids."""

import json
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.spark.source.errors import OptionError, PublishError
from natsctl.spark.source.message_maker import MessageMaker, Roles, subjects_regex, write_roles
from natsctl.spark.source.messages import MessageIds, RowIds
from natsctl.spark.source.source_options import BATCH_WRITE, Options
from tests.spark.source.reads import parsed_schema
from tests.support import tiers

KEY = "q.1"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def roles(ddl: str, **options: str) -> Roles:
    schema = parsed_schema(ddl)
    return write_roles(schema, Options(options, BATCH_WRITE))


def frames(
    ddl: str,
    columns: list[Any],
    ids: MessageIds | None = None,
    stream: str = "",
    max_bytes: int = 0,
    **options: str,
) -> list[bytes]:
    schema = parsed_schema(ddl)
    batch = pa.RecordBatch.from_arrays([c if isinstance(c, pa.Array) else pa.array(c) for c in columns], schema.names)
    maker = MessageMaker(roles(ddl, **options), RowIds(KEY, ids) if ids else None, stream, max_bytes)
    return [frame for made in maker.messages(batch) for frame in made.frames("_I", 5, range(len(made))).to_pylist()]


def headers_of(frame: bytes) -> list[bytes]:
    """The header lines of an HPUB, whose sizes have to be right."""
    line, _, content = frame.partition(b"\r\n")
    _, _, _, header_bytes, whole_bytes = line.split()
    assert len(content) == int(whole_bytes) + 2
    block = content[: int(header_bytes)]
    assert block.startswith(b"NATS/1.0\r\n")
    assert block.endswith(b"\r\n\r\n")
    return block[10:-4].split(b"\r\n")


def test_a_row_without_headers_or_id_is_a_plain_publish() -> None:
    assert frames("subject string, value string", [["a.b", "c"], ["x", None]]) == [
        b"PUB a.b _I.5 1\r\nx\r\n",
        b"PUB c _I.6 0\r\n\r\n",
    ]


def test_headers_keep_their_order_and_repeats_and_rows_without_are_plain() -> None:
    column = pa.array([[{"key": "A", "value": b"1"}, {"key": "A", "value": b"2"}], None, []], HEADERS)
    sent = frames(
        "subject string, value binary, headers array<struct<key:string,value:binary>>",
        [["s"] * 3, [b"v"] * 3, column],
    )
    assert headers_of(sent[0]) == [b"A: 1", b"A: 2"]
    assert sent[1:] == [b"PUB s _I.6 1\r\nv\r\n", b"PUB s _I.7 1\r\nv\r\n"]
    column = pa.array([[("A", "1"), ("B", None)]], pa.map_(pa.string(), pa.string()))
    (sent_of_map,) = frames("subject string, value binary, headers map<string,string>", [["s"], [b"v"], column])
    assert headers_of(sent_of_map) == [b"A: 1", b"B: "]
    ddl = "subject string, value string, expectedLastSubjectSeq bigint, expectedLastSeq bigint"
    sent = frames(ddl, [["s", "s"], ["v", "v"], [0, None], [None, None]])
    assert headers_of(sent[0]) == [b"Nats-Expected-Last-Subject-Sequence: 0"]
    assert sent[1].startswith(b"PUB ")


def test_a_frame_as_it_is_read_is_written_with_its_own_id_and_without_what_was_expected_of_its_stream() -> None:
    column = pa.array(
        [
            [
                {"key": "nats-msg-id", "value": b"no server knows it so"},
                {"key": "Nats-Msg-Id", "value": b"own"},
                {"key": "X", "value": b"y"},
                {"key": "Nats-Expected-Stream", "value": b"OTHER"},
            ],
            None,
        ],
        HEADERS,
    )
    ddl = (
        "stream string, seq bigint, subject string, timestamp timestamp, "
        "headers array<struct<key:string,value:binary>>, value binary"
    )
    times = pa.array([1, 2], pa.timestamp("us", "UTC"))
    sent = frames(ddl, [["S"] * 2, [1, 2], ["s"] * 2, times, column, [b"v"] * 2], ids="row", stream="T")
    ordinary = [b"nats-msg-id: no server knows it so", b"X: y"]
    assert headers_of(sent[0]) == [b"Nats-Expected-Stream: T", *ordinary, b"Nats-Msg-Id: own"]
    assert headers_of(sent[1]) == [b"Nats-Expected-Stream: T", b"Nats-Msg-Id: " + made_ids("row", 2)[1]]


def test_a_column_of_ids_counts_first_and_may_have_numbers() -> None:
    sent = frames(
        "subject string, value string, id bigint", [["s", "s"], ["v", "v"], [7, None]], "row", msgIdColumn="id"
    )
    assert [headers_of(each) for each in sent] == [
        [b"Nats-Msg-Id: 7"],
        [b"Nats-Msg-Id: " + made_ids("row", 2)[1]],
    ]


@pytest.mark.parametrize(
    ("listens", "header"),
    [
        (["out.>"], []),
        (["x", "out.*.c"], []),
        (["out.*"], [b"Nats-Expected-Stream: T"]),
        ([], [b"Nats-Expected-Stream: T"]),
    ],
)
def test_a_part_names_the_expected_stream_unless_that_is_known_to_listen(
    listens: list[str], header: list[bytes]
) -> None:
    maker = MessageMaker(roles("subject string, value string"), RowIds(KEY, "row"), "T", 0)
    maker.taken(listens)
    batch = pa.RecordBatch.from_pydict({"subject": ["out.a.c", "out.b.c"], "value": ["v", "w"]})
    (made,) = maker.messages(batch)
    sent = made.frames_of_part("_I.p5").to_pylist()
    assert [frame.split(b" ")[:3] for frame in sent] == [
        [b"HPUB", subject, b"_I.p5"] for subject in (b"out.a.c", b"out.b.c")
    ]
    assert [headers_of(frame)[:-1] for frame in sent] == [header, header]
    alone = made.frames("_I", 5, [1]).to_pylist()
    assert alone[0].startswith(b"HPUB out.b.c _I.6 ")
    assert headers_of(alone[0])[0] == b"Nats-Expected-Stream: T"


@pytest.mark.parametrize(
    ("patterns", "taken", "not_taken"),
    [
        (["a.*.c"], "a.b.c", "a.b.c.d"),
        (["a.>"], "a.b.c", "a"),
        (["a+b.$x"], "a+b.$x", "aab.$x"),
        (["q", "a.*"], "a.b", "qa.b"),
        ([">"], "anything", ""),
    ],
)
def test_subjects_are_matched_as_a_server_matches_them(patterns: list[str], taken: str, not_taken: str) -> None:
    subjects = pa.array([taken, not_taken])
    assert pc.match_substring_regex(subjects, subjects_regex(patterns)).to_pylist() == [True, False]


def made_ids(made_from: MessageIds, rows: int, key: str = KEY, partition: int = 0) -> list[bytes]:
    """The ids that a task gives to its first rows, whose contents are their numbers."""
    contents = pa.array([b"%d" % row for row in range(rows)], pa.binary())
    found: list[bytes] = RowIds(key, made_from, partition).of(rows, lambda: contents).to_pylist()
    return found


@pytest.mark.parametrize("made_from", ["content", "row"])
def test_ids_are_short_the_same_in_each_attempt_and_others_in_each_batch(made_from: MessageIds) -> None:
    ids = made_ids(made_from, 100)
    assert ids == made_ids(made_from, 100)
    assert len(set(ids)) == 100
    assert max(map(len, ids)) <= 16
    assert not set(ids) & set(made_ids(made_from, 100, "q.2"))
    assert (ids == made_ids(made_from, 100, partition=1)) is (made_from == "content")


def test_ids_of_content_differ_by_all_that_tells_rows_apart() -> None:
    columns: list[Any] = [["s"] * 3, ["v"] * 3, ["A", "A", "B"], [1, 2, 1]]
    sent = frames("subject string, value string, stream string, seq bigint", columns, ids="content")
    assert len({headers_of(each)[-1] for each in sent}) == 3
    alike = frames("subject string, value string, seq bigint", [*columns[:2], columns[3]], ids="content")
    assert headers_of(alike[0])[-1] + b".1" == headers_of(alike[1])[-1]
    column = pa.array([[{"key": "A", "value": b"1"}], None, None], HEADERS)
    ddl = "subject string, value binary, headers array<struct<key:string,value:binary>>"
    ids = [headers_of(each)[-1] for each in frames(ddl, [["s", "s", "t"], [b"v"] * 3, column], ids="content")]
    assert len(set(ids)) == 3
    assert all(re.fullmatch(rb"Nats-Msg-Id: [A-Za-z0-9_-]{16}", each) for each in ids)


def ids_of(values: list[str], cut: int, order: list[int]) -> dict[int, bytes]:
    """The id of each row, when rows come in some order and in batches of `cut`."""
    made = RowIds("p", "content")
    found: dict[int, bytes] = {}
    for start in range(0, len(order), cut):
        rows = order[start : start + cut]
        contents = pa.array([values[row].encode() for row in rows], pa.binary())
        found |= dict(zip(rows, made.of(len(rows), lambda contents=contents: contents).to_pylist(), strict=True))
    return found


@tiers.examples(100)
@given(st.permutations(range(11)), st.integers(1, 11))
def test_ids_of_content_depend_neither_on_the_order_of_rows_nor_on_how_they_are_cut(order: list[int], cut: int) -> None:
    values = ["a"] * 5 + ["b", "c"] * 3
    first, again = ids_of(values, 11, [*range(11)]), ids_of(values, cut, order)
    assert len(set(first.values())) == 11
    for value in "abc":
        rows = [row for row in range(11) if values[row] == value]
        assert {first[row] for row in rows} == {again[row] for row in rows}


def test_columns_without_a_meaning_become_one_json_object() -> None:
    columns = [
        ["r"],
        [1],
        [Decimal("1.50")],
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
        [None],
        [float("nan")],
    ]
    sent = frames(
        "region string, total bigint, price decimal(4,2), parts map<string,int>, gone string, odd double",
        columns,
        subject="report",
        valueFormat="json",
    )
    payload = sent[0].split(b"\r\n")[1]
    assert json.loads(payload) == {"region": "r", "total": 1, "price": 1.5, "parts": {"k": 1}, "odd": "NaN"}


@pytest.mark.parametrize(
    "text", ["0.1", "16777216.0", "-1e-07", "3.4028235e+38", "1.4013e-45", "0.0", "1.1754944e-38", "0.33333334"]
)
def test_a_float_is_json_with_the_digits_that_tell_it_from_other_floats(text: str) -> None:
    value = pa.array(
        [{"a": float(text), "b": [float(text)]}], pa.struct([("a", pa.float32()), ("b", pa.list_(pa.float32()))])
    )
    sent = frames("subject string, value struct<a:float,b:array<float>>", [["x"], value])
    assert sent[0].split(b"\r\n")[1].decode() == f'{{"a":{text},"b":[{text}]}}'


def test_a_struct_is_json_and_an_option_gives_the_subject() -> None:
    value = pa.array([{"a": 1, "b": None, "c": [b"\x00"]}])
    sent = frames("subject string, value struct<a:bigint,b:string,c:array<binary>>", [["x"], value], subject="fixed")
    assert sent == [b'PUB fixed _I.5 20\r\n{"a":1,"c":["AA=="]}\r\n']
    odd = ["a.\x1b[31m\x07", "a.\x00\x7f'\"<b>\u2028ż"]  # servers store every letter
    sent = frames("subject string, value string", [odd, ["x", "y"]])
    assert [frame.split()[1].decode() for frame in sent] == odd


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        ("a b", "is no subject"),
        ("a\x0bb", "is no subject"),
        ("a\r\nPUB x 0", "is no subject"),
        ("", "is no subject"),
        ("a..b", "is no subject"),
        ("a.*", "is no subject"),
        (">", "is no subject"),
        ("$JS.API.STREAM.DELETE.ORDERS", "belongs to the server"),
        (None, "no subject"),
    ],
)
def test_what_is_no_subject_to_publish_to_is_refused_before_anything_is_sent(subject: str | None, told: str) -> None:
    with pytest.raises(PublishError, match=told):
        frames("subject string, value string", [pa.array(["fine", subject], pa.string()), ["x", "y"]])
    with pytest.raises(PublishError, match=r"big: a message of \d+ bytes; the server takes 64 at most"):
        frames("subject string, value binary", [["small", "big"], [b"x", b"x" * 100]], max_bytes=64)


@pytest.mark.parametrize(
    ("key", "value", "told"), [("a:b", b"", "name"), ("", b"", "name"), ("A", b"x\r\nB: y", "line end")]
)
def test_a_header_cannot_smuggle_in_another_line(key: str, value: bytes, told: str) -> None:
    column = pa.array([[{"key": key, "value": value}]], HEADERS)
    with pytest.raises(PublishError, match=told):
        frames("subject string, value binary, headers array<struct<key:string,value:binary>>", [["s"], [b"v"], column])


@pytest.mark.parametrize(
    ("ddl", "options", "told"),
    [
        ("value string", {}, "no column `subject`"),
        ("subject string", {}, "no column `value`"),
        ("subject string, value bigint", {}, "cast it"),
        ("subject string, value string, extra int", {}, "extra"),
        ("subject string, value string", {"msgIdColumn": "id"}, "no column id"),
        ("subject int, value string", {}, "column subject is int, and must be string"),
        ("subject string, value string, headers array<string>", {}, "array<struct<key:string,value:binary>>"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused_with_what_to_do(
    ddl: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(OptionError, match=told):
        roles(ddl, **options)
