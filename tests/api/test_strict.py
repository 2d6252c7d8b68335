"""Strict reading of requests. reference_faults.json is what nats-server 2.15.2 answered to malformed bodies (10025)."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.codec import MAX_QUOTED, InvalidJSONError, decode, encode, go_quote
from natsctl.api.endpoints import ENDPOINTS
from natsctl.api.requests import ConsumerAction, ConsumerCreateRequest, StreamCreateRequest, StreamPurgeRequest
from natsctl.api.stream import (
    DiscardPolicy,
    ExternalStream,
    PersistMode,
    Placement,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from natsctl.api.strict import DecodeError, decode_values, read_plain, read_strict

FAULTS: list[tuple[str, str, str]] = msgspec.json.decode(
    Path(__file__).with_name("reference_faults.json").read_bytes(), type=list[tuple[str, str, str]]
)

REWORDED = re.compile("invalid character|unexpected EOF|parsing time")
"""Syntax errors, which natsctl refuses too, with other words."""


@pytest.fixture
def as_if_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read every text as a long one, with a step for each of its values."""
    for name, value in (("strict.SMALL_TEXT", 0), ("strict.ITEMS", 1), ("json_steps.ITEMS", 1)):
        monkeypatch.setattr(f"natsctl.api.{name}", value)


def check_fault(verb: str, body: str, text: str) -> None:
    request = ENDPOINTS[verb].request
    assert request is not None
    with pytest.raises(InvalidJSONError) as caught:
        decode(body.encode(), request, strict=True)
    assert str(caught.value) == text or REWORDED.match(text)


@pytest.mark.parametrize(("verb", "body", "text"), FAULTS)
def test_a_fault_is_told_in_the_words_of_the_reference(verb: str, body: str, text: str) -> None:
    check_fault(verb, body, text)


@pytest.mark.usefixtures("as_if_long")
def test_the_faults_of_long_requests_are_the_same() -> None:
    for fault in FAULTS:
        check_fault(*fault)


def test_long_requests_are_read_as_short_ones(request: pytest.FixtureRequest) -> None:
    transforms = [SubjectTransform(src=f"s.{number}.*", dest="d.$1") for number in range(5)]
    config = StreamConfig(
        name="A", subjects=["a", "b"], metadata={"k": "v"}, subject_transform=SubjectTransform(src="a", dest="b"),
        sources=[StreamSource(name="O", subject_transforms=transforms), StreamSource(name="P", opt_start_seq=7)],
        mirror=StreamSource(name="M", external=ExternalStream(api="x", deliver="y")), placement=Placement(tags=["t"]),
    )  # fmt: skip
    body = encode(config)
    short = decode(body, StreamConfig, strict=True)
    request.getfixturevalue("as_if_long")
    assert decode(body, StreamConfig, strict=True) == short and encode(short) == body


def test_keys_match_without_regard_to_case_and_null_is_absent() -> None:
    body = b'{"NAME":"A","Max_Msgs":5,"subjects":null,"discard":"NEW","metadata":{"a":null},"sources":[null]}'
    expected = StreamCreateRequest(
        name="A", max_msgs=5, discard=DiscardPolicy.NEW, metadata={"a": ""}, sources=[StreamSource()]
    )
    assert decode(body, StreamCreateRequest, strict=True) == expected


def test_null_in_a_list_is_the_zero_value() -> None:
    assert decode(b'{"subjects":["x",null]}', StreamCreateRequest, strict=True).subjects == ["x", ""]


def test_times_are_kept_as_go_writes_them() -> None:
    for text, kept in (
        ("2026-01-01T00:00:00.500Z", "2026-01-01T00:00:00.5Z"),
        ("2026-01-01T02:00:00.0+02:00", "2026-01-01T02:00:00+02:00"),
        ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.1234567899Z", "2026-01-01T00:00:00.123456789Z"),
    ):
        body = b'{"sources":[{"opt_start_time":"%b"}]}' % text.encode()
        assert decode(body, StreamCreateRequest, strict=True).sources[0].opt_start_time == kept


def test_an_empty_persist_mode_is_the_default_and_compression_is_told_as_a_string() -> None:
    assert decode(b'{"persist_mode":""}', StreamCreateRequest, strict=True).persist_mode is PersistMode.DEFAULT
    with pytest.raises(InvalidJSONError, match=r"StreamConfigRequest\.StreamConfig\.compression of type string"):
        decode(b'{"compression":1}', StreamCreateRequest, strict=True)


def test_an_empty_body_is_the_zero_value_and_values_in_a_row_lie_over_each_other() -> None:
    assert decode(b"", StreamPurgeRequest, strict=True) == StreamPurgeRequest()
    assert decode(b" \r\n", StreamPurgeRequest, strict=True) == StreamPurgeRequest()
    assert decode(b'{"seq":1} {"keep":2}null', StreamPurgeRequest, strict=True) == StreamPurgeRequest(seq=1, keep=2)


def test_broken_text_is_repaired_as_go_repairs_it() -> None:
    body = b'{"name":"\xff\\ud800x\\\\ud800\\ud83d\\ude00","description":"\\udc00"}'
    request = decode(body, StreamCreateRequest, strict=True)
    assert (request.name, request.description) == ("\ufffd\ufffdx\\ud800\U0001f600", "\ufffd")


def test_the_action_of_a_create_request_is_read() -> None:
    request = decode(b'{"stream_name":"S","action":"update"}', ConsumerCreateRequest, strict=True)
    assert request.action is ConsumerAction.UPDATE


def test_lenient_reading_ignores_unknown_keys_and_refuses_wrong_types() -> None:
    assert decode(b'{"seq":1,"new":2}', StreamPurgeRequest) == StreamPurgeRequest(seq=1)
    with pytest.raises(InvalidJSONError):
        decode(b'{"seq":"x"}', StreamPurgeRequest)
    with pytest.raises(InvalidJSONError):
        decode(b"[" * 20_000, StreamPurgeRequest)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(JSON, min_size=1, max_size=3))
def test_values_in_a_row_are_all_read(values: list[object]) -> None:
    parts = [msgspec.json.format(msgspec.json.encode(value)) for value in values]
    assert [plain(each) for each in decode_values(b" \n".join(parts))] == [plain(each) for each in values]


def plain(value: Any) -> Any:
    """Return a value with its floats as text: decoding keeps them as they were written."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return float(value.text) if hasattr(value, "text") else value


@given(JSON, st.data())
def test_a_cut_text_is_never_read_as_a_whole_one(value: object, data: st.DataObject) -> None:
    raw = msgspec.json.encode([value])
    cut = raw[: data.draw(st.integers(1, len(raw) - 1))]
    with pytest.raises(DecodeError, match=r"^syntax error"):
        decode_values(cut)


@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", '{"a":Infinity}', "01x", "'a'", "[1,]", '{"a":1,}', "1" * 5000 + "x"]
)
def test_only_json_is_read(text: str) -> None:
    with pytest.raises(DecodeError, match=r"^syntax error"):
        decode_values(text.encode())


@given(st.binary(max_size=30))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        decode(raw, StreamCreateRequest, strict=True)
    except InvalidJSONError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("a", '"a"'), ('"', '"\\""'), ("\n\x01\x7f", '"\\n\\x01\\x7f"'), ("é\u200b\U000e0001", '"é\\u200b\\U000e0001"')],
)
def test_quoting_is_gos(text: str, quoted: str) -> None:
    assert go_quote(text) == quoted
    assert go_quote("a" * MAX_QUOTED + text) == go_quote("a" * MAX_QUOTED)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":', b'{"limit":[', b'{"sort":{"a":[1,'])
@pytest.mark.parametrize("depth", [100, 450, 900, 5000, 20_000])
def test_depth_is_a_fault_and_never_more(opening: bytes, depth: int) -> None:
    for raw in (opening * depth, opening * depth + b"1"):
        for read in (read_strict, read_plain):
            with pytest.raises(DecodeError):
                read(raw, StreamConfig)
    closing = opening.translate(bytes.maketrans(b"[{", b"]}"), b'"a:limitsor1,')[::-1]
    for read in (read_strict, read_plain):
        with suppress(DecodeError):
            read(opening * depth + b"1" + closing * depth, StreamConfig)
