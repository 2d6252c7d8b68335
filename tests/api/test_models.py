"""Models on the wire: key order and omission are those of the reference (docs/compatibility.md#api-requests)."""

import re
from typing import Any

import msgspec
import pytest

from natsctl.api import account, answers, consumer, requests, stream
from natsctl.api.catalogue import error
from natsctl.api.codec import decode, encode, recast
from natsctl.api.endpoints import ENDPOINTS, STREAM_NAMES
from natsctl.api.model import Model

STREAM_CONFIG = """name, description?, subjects?, retention, max_consumers, max_msgs, max_bytes, max_age,
max_msgs_per_subject, max_msg_size?, discard, storage, num_replicas, no_ack?, duplicate_window?, template_owner?,
placement?, mirror?, sources?, compression, first_seq?, subject_transform?, republish?, allow_direct, mirror_direct,
discard_new_per_subject?, sealed, deny_delete, deny_purge, allow_rollup_hdrs, consumer_limits, allow_msg_ttl,
subject_delete_marker_ttl?, allow_msg_counter?, allow_atomic?, allow_msg_schedules?, persist_mode?, allow_batched?,
metadata?"""
CONSUMER_CONFIG = """durable_name?, name?, description?, deliver_policy, opt_start_seq?, opt_start_time?, ack_policy,
ack_wait?, max_deliver?, backoff?, filter_subject?, filter_subjects?, replay_policy, rate_limit_bps?, sample_freq?,
max_waiting?, max_ack_pending?, flow_control?, headers_only?, max_batch?, max_expires?, max_bytes?, deliver_subject?,
deliver_group?, idle_heartbeat?, inactive_threshold?, num_replicas, mem_storage?, direct?, sourcing?, metadata?,
pause_until?, priority_groups?, priority_policy?, priority_timeout?"""
KEYS = [
    (stream.StreamConfig, STREAM_CONFIG),
    (consumer.ConsumerConfig, CONSUMER_CONFIG),
    (
        stream.StreamState,
        "messages, bytes, first_seq, first_ts, last_seq, last_ts, num_subjects?, subjects?, num_deleted?, deleted?, "
        "lost?, consumer_count",
    ),
    (
        stream.StreamInfo,
        "config, created, state, domain?, cluster?, mirror?, sources?, alternates?, ts, write_error?",
    ),
    (
        answers.StreamInfoAnswer,
        "total, offset, limit, config, created, state, domain?, cluster?, mirror?, sources?, alternates?, ts, "
        "write_error?",
    ),
    (
        consumer.ConsumerInfo,
        "stream_name, name, created, config, delivered, ack_floor, num_ack_pending, num_redelivered, num_waiting, "
        "num_pending, cluster?, push_bound?, paused?, pause_remaining?, ts, priority_groups?",
    ),
    (
        account.AccountInfo,
        "memory, storage, reserved_memory, reserved_storage, streams, consumers, limits, domain?, api, tiers?",
    ),
]


@pytest.mark.parametrize(("model", "keys"), KEYS)
def test_keys_stand_in_the_order_of_the_reference(model: type[Model], keys: str) -> None:
    assert list(model.__struct_fields__) == [key.rstrip("?") for key in re.split(r",\s+", keys)]


@pytest.mark.parametrize(("model", "keys"), KEYS)
def test_what_the_reference_always_writes_is_written_and_nothing_else(model: type[Model], keys: str) -> None:
    always = [key for key in re.split(r",\s+", keys) if not key.endswith("?")]
    written = msgspec.json.decode(encode(model()))
    assert [key for key in written if key != "type"] == always


@pytest.mark.parametrize("endpoint", ENDPOINTS.values(), ids=str)
def test_every_answer_starts_with_its_type_and_reads_back(endpoint: Any) -> None:
    if endpoint.answer is None:
        return
    raw = encode(endpoint.answer())
    assert raw.startswith(b'{"type":"io.nats.jetstream.api.v1.')
    assert raw.split(b'"')[3].decode() == answers.type_of(endpoint.answer)
    assert decode(raw, endpoint.answer) == endpoint.answer()


def test_a_stream_info_answer_has_the_fields_of_the_info_after_the_page() -> None:
    info = stream.StreamInfo(config=stream.StreamConfig(name="S"), domain="hub", ts="2026-01-01T00:00:00Z")
    answer = answers.stream_info_answer(info, answers.Paged(total=2, limit=9))
    assert answers.StreamInfoAnswer.__struct_fields__[3:] == stream.StreamInfo.__struct_fields__
    assert decode(encode(answer), stream.StreamInfo) == info
    assert (answer.total, answer.limit) == (2, 9)


def test_an_error_answer_keeps_the_zeros_the_reference_writes() -> None:
    assert encode(answers.as_error(answers.StreamNamesAnswer, error(10059), STREAM_NAMES.error_body)) == (
        b'{"type":"io.nats.jetstream.api.v1.stream_names_response",'
        b'"error":{"code":404,"err_code":10059,"description":"stream not found"},'
        b'"total":0,"offset":0,"limit":0,"streams":null}'
    )


def test_a_full_configuration_reads_back_as_itself() -> None:
    config = stream.StreamConfig(
        name="S",
        subjects=["a.>"],
        retention=stream.RetentionPolicy.WORKQUEUE,
        sources=[stream.StreamSource(name="A", external=stream.ExternalStream(api="$JS.x.API"))],
        placement=stream.Placement(tags=["ssd"]),
        metadata={"k": "<v>"},
        first_seq=2**64 - 1,
    )
    assert decode(encode(config), stream.StreamConfig) == config
    assert decode(encode(config), stream.StreamConfig, strict=True) == config
    assert b"\\u003cv\\u003e" in encode(config)


def test_a_create_request_is_recast_to_its_configuration() -> None:
    request = requests.StreamCreateRequest(name="S", subjects=["s"], pedantic=True)
    assert recast(request, stream.StreamConfig) == stream.StreamConfig(name="S", subjects=["s"])


def test_no_two_models_share_a_mutable_default() -> None:
    one, other = stream.StreamInfo(), stream.StreamInfo()
    one.config.consumer_limits.max_ack_pending = 5
    one.config.subjects.append("a")
    assert other == stream.StreamInfo()


def test_line_separators_are_escaped_as_go_does() -> None:
    assert encode("a\u2028b\u2029&") == b'"a\\u2028b\\u2029\\u0026"'
