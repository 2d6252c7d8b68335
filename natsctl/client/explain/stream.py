"""Why a stream refuses messages, misses them, or loses them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from natsctl.api.consumer_config import filters_of
from natsctl.api.errors import UNAVAILABLE_CODES, ApiResponseError, NatsctlError, closest
from natsctl.api.stream import DiscardPolicy, RetentionPolicy, StorageType
from natsctl.api.subjects import is_subset
from natsctl.api.units import SECOND, format_duration, format_size, plural
from natsctl.client.explain.evidence import (
    ALL,
    StreamFacts,
    absent_replicas,
    ago,
    lagging,
    leaderless,
    moment,
    other_stream,
    permitted,
    span,
    subjects_of,
)
from natsctl.client.explain.explanation import (
    MAX_SHOWN,
    Cause,
    Explanation,
    Outcome,
    apply_rules,
    causes_of,
    is_selected,
    listed,
    near_misses,
)

if TYPE_CHECKING:
    from natsctl.api.consumer import ConsumerInfo
    from natsctl.api.stream import StreamConfig, StreamSourceInfo, StreamState
    from natsctl.client.explain.evidence import StreamReport
    from natsctl.client.manager import Manager

SILENT_NS: Final = 10 * SECOND
"""Time without contact after which an origin counts as not connected; the heartbeats of sources come more often."""
NEAR_LIMIT: Final = 0.95
"""Part of a limit that counts as reached: messages are removed all the time."""
_UNSEEN: Final = (
    "publishes that were refused: a wrong expected sequence (10071), a message above max_msg_size (10054)",
    "duplicates that were dropped, and messages that were deleted or purged by hand: no server keeps a record",
)


async def explain_stream(manager: Manager, stream: str) -> Explanation:
    """Explain why a stream refuses, misses or loses messages.

    Raises UnreachableError if no server answers, ApiResponseError if the account has no JetStream.
    """
    about = f"Stream {stream}"
    try:
        answer = await manager.find_stream(stream)
    except ApiResponseError as failure:
        if failure.err_code in UNAVAILABLE_CODES:
            raise
        return _unanswered(about, [str(failure)])
    if answer is None:
        hidden: list[str] = []
        names = await permitted(manager.stream_names(), [], hidden, "the names of other streams")
        near = closest(stream, names)
        evidence = [f"similar names: {listed(near)}"] if near else [f"streams: {listed(names) or 'none'}"]
        text = f"stream {stream} does not exist"
        return Explanation(about, text, [Cause(text, hidden or evidence, "natsctl stream ls -a")], [])
    info = answer.value
    try:
        facts = await _facts(manager, info)
    except ApiResponseError as failure:  # without a quorum nothing but this stream's info is answered
        return _unanswered(about, [str(failure), *(absent_replicas(info.cluster) if info.cluster else ())])
    return explain_facts(facts)


async def urgent_causes(manager: Manager, info: StreamReport) -> list[Cause]:
    """Return the causes of a stream that call for action. Raises as `explain_stream`."""
    return causes_of(URGENT, await _facts(manager, info))


def _unanswered(about: str, evidence: list[str]) -> Explanation:
    text = "JetStream does not answer for the stream: its servers are offline, or no leader is elected"
    return Explanation(about, text, [Cause(text, evidence, "natsctl server report jetstream")], [])


def explain_facts(facts: StreamFacts) -> Explanation:
    """Return the explanation of a stream from its facts."""
    about, state = f"Stream {facts.stream.config.name}", facts.stream.state
    mirror = facts.stream.config.mirror
    healthy = (
        f"the stream has the messages of {mirror.name}" if mirror else "the stream accepts messages and keeps them"
    )
    counts = (
        f"messages {state.first_seq:,} to {state.last_seq:,}, {state.messages:,} stored, {state.num_deleted:,} gaps"
    )
    shown = [counts, f"{format_size(state.bytes)}, the last message {ago(state.last_ts, facts.now_ns)}"]
    return apply_rules(about, RULES, facts, healthy, unknown=[*_UNSEEN, *facts.unknown], state=shown)


async def _facts(manager: Manager, info: StreamReport) -> StreamFacts:
    config = info.config
    consumers: list[ConsumerInfo] = []
    unknown: list[str] = []
    if config.retention != RetentionPolicy.LIMITS:
        answers = await permitted(manager.consumer_list(config.name), [], unknown, "the consumers")
        consumers = [answer.value for answer in answers]
    subjects: dict[str, int] = {}
    if config.max_msgs_per_subject > 0 and info.state.messages:
        subjects = await subjects_of(manager, config.name)
    overlapping: set[str] = set()
    for subject in list(config.subjects or ())[:MAX_SHOWN]:
        names = await permitted(manager.stream_names(subject=subject), [], unknown, f"other streams on {subject}")
        overlapping.update(names)
    storage, max_storage = await _account_storage(manager, info)
    local = [
        origin for origin in (config.mirror, *(config.sources or ())) if origin is not None and not origin.external
    ]
    others = await asyncio.gather(
        *(permitted(other_stream(manager, origin.name), info, unknown, f"origin {origin.name}") for origin in local)
    )
    missing = [origin.name for origin, stream in zip(local, others, strict=True) if stream is None]
    origin_subjects: dict[str, list[str]] = {}
    if not info.state.messages:
        for origin in local:
            if origin.name not in missing:
                what = f"subjects of {origin.name}"
                origin_subjects[origin.name] = [*await permitted(subjects_of(manager, origin.name), {}, unknown, what)]
    return StreamFacts(
        info,
        moment(info.ts),
        consumers,
        subjects,
        sorted(overlapping - {config.name}),
        storage,
        max_storage,
        missing,
        origin_subjects,
        unknown,
    )


async def _account_storage(manager: Manager, info: StreamReport) -> tuple[int, int]:
    """Return use and limit of the account for the stream's kind of storage: -1 is unlimited, 0 unknown."""
    try:
        account = (await manager.account_info()).value
    except NatsctlError:  # a user may ask for streams only
        return 0, 0
    place = account.tiers.get(f"R{max(1, info.config.num_replicas)}") or account
    if info.config.storage == StorageType.MEMORY:
        return place.memory, place.limits.max_memory
    return place.storage, place.limits.max_storage


# -- rules, from the strongest cause to the weakest


def _leader(facts: StreamFacts) -> Outcome:
    return leaderless(facts.stream.cluster, "stream")


def _replicas(facts: StreamFacts) -> Outcome:
    return lagging(facts.stream.cluster, "stream")


def _sealed(facts: StreamFacts) -> Outcome:
    if facts.stream.config.sealed:
        return Cause(
            "the stream is sealed: it refuses all changes for good",
            ["sealed true"],
            "store new messages in another stream",
        )
    return "not sealed"


def _failing(facts: StreamFacts) -> Outcome:
    if error := facts.stream.write_error:
        return Cause("the stream refuses writes after a storage error", [error], "check the disk, restart the server")
    return None


def _full(facts: StreamFacts) -> Outcome:
    """Explain `discard: new` at a limit: publishes are refused."""
    config, state = facts.stream.config, facts.stream.state
    step = f"natsctl stream purge {config.name} --keep N, or stream edit with higher limits or --discard old"
    if config.discard != DiscardPolicy.NEW:
        return "discard old: a limit removes old messages and refuses none"
    if 0 < config.max_msgs <= state.messages:
        evidence = [f"messages {state.messages:,}, max_msgs {config.max_msgs:,}, discard new"]
        return Cause("max_msgs is reached: publishes are refused (10077)", evidence, step)
    if _at_max_bytes(config, state):
        evidence = [f"{state.bytes:,} bytes, max_bytes {config.max_bytes:,}, discard new"]
        return Cause("max_bytes is reached: publishes are refused (10077)", evidence, step)
    if config.discard_new_per_subject and config.max_msgs_per_subject > 0:
        full = [subject for subject, number in facts.subjects.items() if number >= config.max_msgs_per_subject]
        if full:
            evidence = [
                f"max_msgs_per_subject {config.max_msgs_per_subject:,}, discard_new_per_subject",
                f"{plural(len(full), 'subject')} at the limit: {listed(full)}",
            ]
            text = "max_msgs_per_subject is reached: publishes to these subjects are refused (10077)"
            return Cause(text, evidence, f"natsctl stream purge {config.name} --subject SUBJECT")
    return "discard new, and no limit is reached"


def _account(facts: StreamFacts) -> Outcome:
    if facts.max_storage <= 0:
        return "the account's storage is not limited" if facts.max_storage < 0 else None
    used, limit = facts.storage, facts.max_storage
    evidence = [f"the account uses {used:,} of {limit:,} bytes"]
    kind = facts.stream.config.storage
    state = facts.stream.state
    if used >= limit * NEAR_LIMIT or used + state.bytes // max(1, state.messages) > limit:
        text = f"the account's limit of {kind} storage is reached: publishes are refused"
        return Cause(text, evidence, "natsctl account info, then raise the account's limit or purge streams")
    return f"{evidence[0]} of {kind} storage"


def _origins(facts: StreamFacts) -> Outcome:
    info = facts.stream
    origins = [("mirror", info.mirror)] if info.mirror else [("source", origin) for origin in info.sources or ()]
    if not origins:
        return None
    for noun, origin in origins:
        cause = _failing_origin(facts, noun, origin)
        if cause is not None:
            return cause
    return f"{plural(len(origins), origins[0][0])} connected, without lag"


def _failing_origin(facts: StreamFacts, noun: str, origin: StreamSourceInfo | None) -> Cause | None:
    if origin is None:
        return None
    evidence = [f"{noun} {origin.name}: a lag of {plural(origin.lag, 'message')}, active {_active(origin)}"]
    step = f"natsctl explain stream {origin.name}"
    if origin.error is not None:
        evidence.append(f"error: {origin.error.description or origin.error.code}")
    if origin.name in facts.missing_origins:
        evidence.append(f"no stream {origin.name} answers in this account")
        return Cause(f"the {noun} {origin.name} does not exist or does not answer", evidence, "natsctl stream ls -a")
    if origin.error is not None:
        return Cause(f"the {noun} {origin.name} fails: {origin.error.description}", evidence, step)
    if origin.active < 0 or origin.active > SILENT_NS:
        evidence.append("the origin has not answered for this long")
        return Cause(f"the {noun} {origin.name} is not connected", evidence, step)
    if origin.lag:
        return Cause(f"the {noun} {origin.name} lags by {plural(origin.lag, 'message')}", evidence, step)
    return None


def _active(origin: StreamSourceInfo) -> str:
    return f"{span(origin.active)} ago" if origin.active >= 0 else "never"


def _mirror(facts: StreamFacts) -> Outcome:
    mirror = facts.stream.config.mirror
    if mirror is None:
        return None
    return f"a mirror of {mirror.name}: it takes no publishes of its own"


def _uncopied(facts: StreamFacts) -> Outcome:
    config, never = facts.stream.config, not moment(facts.stream.state.last_ts)
    for noun, origin in (("mirror", config.mirror), *(("source", source) for source in config.sources or ())):
        subjects = facts.origin_subjects.get(origin.name) if origin is not None else None
        if origin is None or not subjects:
            continue
        patterns = [rule.src or ALL for rule in origin.subject_transforms or ()] or [origin.filter_subject or ALL]
        step = f"natsctl stream subjects {origin.name}"
        if not any(is_selected(patterns, subject) for subject in subjects):
            evidence = [f"near miss: {text}" for pattern in patterns for text in near_misses(pattern, subjects)]
            evidence.append(f"subjects of {origin.name}: {listed(subjects)}")
            return Cause(
                f"the {noun} {origin.name} has no message that the filter {listed(patterns)} selects", evidence, step
            )
        start = f"opt_start_seq {origin.opt_start_seq:,}" if origin.opt_start_seq else ""
        start = f"opt_start_time {origin.opt_start_time}" if origin.opt_start_time else start
        if start and never:
            return Cause(f"the {noun} {origin.name} has no message after {start}", [start], step)
    return None


def _unlistened(facts: StreamFacts) -> Outcome:
    config, sources = facts.stream.config, facts.stream.config.sources
    if config.subjects or config.mirror is not None or sources:
        return f"it stores {listed(config.subjects)}" if config.subjects else None
    return Cause(
        "the stream has no subjects: nothing reaches it", ["subjects []"], f"natsctl stream edit {config.name}"
    )


def _overlap(facts: StreamFacts) -> Outcome:
    if not facts.overlapping:
        return None if facts.unknown else "no other stream stores its subjects"
    evidence = [f"these streams store some of its subjects too: {listed(facts.overlapping)}"]
    text = "a subject is stored by several streams: a publisher gets the ack of the fastest"
    return Cause(text, evidence, "natsctl explain subject SUBJECT")


def _no_interest(facts: StreamFacts) -> Outcome:
    config = facts.stream.config
    if config.retention == RetentionPolicy.LIMITS:
        return "limits retention: acknowledged messages stay"
    if config.retention == RetentionPolicy.WORKQUEUE:
        return f"work-queue retention: an acknowledged message is removed, {plural(len(facts.consumers), 'consumer')}"
    if facts.stream.state.consumer_count != len(facts.consumers):
        return None  # this user may not see them
    if not facts.consumers:
        text = "interest retention without a consumer: every message is removed at once"
        return Cause(text, ["retention interest, consumers 0"], f"natsctl consumer add {config.name}")
    selections = [filters_of(consumer.config) for consumer in facts.consumers]
    chosen = list(dict.fromkeys(itertools.chain.from_iterable(selections)))
    unheard = [
        subject
        for subject in config.subjects or ()
        if all(selections) and not any(is_subset(subject, pattern) for pattern in chosen)
    ]
    if unheard and config.subject_transform is None:
        evidence = [
            "retention interest",
            f"the stream stores {listed(unheard)}",
            f"its {plural(len(facts.consumers), 'consumer', ('selects', 'select'))} only {listed(chosen)}",
        ]
        text = "interest retention: messages that no consumer selects are removed at once"
        return Cause(text, evidence, f"natsctl consumer report {config.name}")
    return f"interest retention: a message stays until {plural(len(facts.consumers), 'consumer')} acknowledged it"


def _aged(facts: StreamFacts) -> Outcome:
    config, state = facts.stream.config, facts.stream.state
    if config.max_age <= 0:
        return "max_age is unlimited"
    removed = max(0, state.first_seq - max(1, config.first_seq))
    if not removed:
        return f"max_age {format_duration(config.max_age)}, no message has reached it yet"
    if not state.messages:
        evidence = [
            f"max_age {format_duration(config.max_age)}, the last message was number {state.last_seq:,}",
            f"it was stored {ago(state.last_ts, facts.now_ns)}",
        ]
        text = "the stream is empty: max_age removed its messages, unless they were purged"
        return Cause(text, evidence, f"natsctl stream edit {config.name} --max-age DURATION")
    oldest = (
        f"max_age {format_duration(config.max_age)}, the first message was stored {ago(state.first_ts, facts.now_ns)}"
    )
    if config.retention != RetentionPolicy.LIMITS or not _explains_front(facts, "max_age"):
        return oldest
    evidence = [oldest, f"removed from the start of the stream: {plural(removed, 'message')}"]
    text = f"max_age removes old messages, about {_per_second(facts)} a second"
    return Cause(text, evidence, f"natsctl stream edit {config.name} --max-age DURATION")


def _per_second(facts: StreamFacts) -> str:
    state = facts.stream.state
    span_s = max((moment(state.last_ts) - moment(state.first_ts)) / SECOND, 1.0)
    return f"{state.messages / span_s:,.1f} messages"


def _at_max_bytes(config: StreamConfig, state: StreamState) -> bool:
    """Return whether a message of the average size exceeds max_bytes."""
    return config.max_bytes > 0 and state.bytes + state.bytes // max(1, state.messages) > config.max_bytes


def _explains_front(facts: StreamFacts, name: str) -> bool:
    """Return whether this limit removes messages from the start of the stream now."""
    config, state = facts.stream.config, facts.stream.state
    at_msgs = 0 < config.max_msgs <= state.messages
    at_bytes = _at_max_bytes(config, state)
    return {"max_msgs": at_msgs, "max_bytes": at_bytes and not at_msgs, "max_age": not at_msgs and not at_bytes}[name]


def _counted(facts: StreamFacts) -> Outcome:
    config, state = facts.stream.config, facts.stream.state
    if config.discard == DiscardPolicy.NEW or (config.max_msgs <= 0 and config.max_bytes <= 0):
        return None
    removed = state.first_seq > max(1, config.first_seq)
    for name, limit, used in (
        ("max_msgs", config.max_msgs, state.messages),
        ("max_bytes", config.max_bytes, state.bytes),
    ):
        if limit > 0 and removed and _explains_front(facts, name):
            evidence = [f"{name} {limit:,}, used {used:,}", f"the first message is number {state.first_seq:,}"]
            text = f"{name} is reached: each new message removes the oldest, about {_per_second(facts)} a second"
            return Cause(text, evidence, f"natsctl stream edit {config.name} --{name.replace('_', '-')} N")
    return f"max_msgs {config.max_msgs:,} and max_bytes {config.max_bytes:,} are not reached"


def _per_subject(facts: StreamFacts) -> Outcome:
    config, state = facts.stream.config, facts.stream.state
    limit = config.max_msgs_per_subject
    if limit <= 0 or config.discard_new_per_subject:
        return None
    full = [subject for subject, number in facts.subjects.items() if number >= limit]
    missing = state.last_seq - max(0, config.first_seq - 1) - state.messages
    if not full or missing <= 0:
        return f"max_msgs_per_subject {limit:,} has removed nothing"
    evidence = [
        f"max_msgs_per_subject {limit:,}: {plural(len(full), 'subject')} at the limit, such as {listed(full)}",
        f"no longer stored: {missing:,} of {plural(state.last_seq, 'message')}",
    ]
    text = "max_msgs_per_subject removes the oldest message of a subject for each new one"
    return Cause(text, evidence, f"natsctl stream edit {config.name} --max-msgs-per-subject N")


def _lost(facts: StreamFacts) -> Outcome:
    lost = facts.stream.state.lost
    if lost is None or not lost.msgs:
        return None
    evidence = [f"{format_size(lost.bytes)}: {listed(lost.msgs)}"]
    return Cause(f"{plural(len(lost.msgs), 'message')} were lost in the store", evidence, "natsctl restore")


def _expiring(facts: StreamFacts) -> Outcome:
    config, state = facts.stream.config, facts.stream.state
    if not config.allow_msg_ttl:
        return "messages have no TTL of their own"
    evidence = ["allow_msg_ttl true: a publisher may limit the life of a message with Nats-TTL"]
    if config.subject_delete_marker_ttl:
        evidence.append(f"a marker stays for {format_duration(config.subject_delete_marker_ttl)}")
    if not state.num_deleted and state.first_seq <= max(1, config.first_seq):
        return f"{evidence[0]}; none has expired"
    if config.max_msgs_per_subject > 0 or config.retention != RetentionPolicy.LIMITS:
        return evidence[0]
    evidence.append(f"{state.num_deleted:,} gaps between the first and the last message")
    return Cause("messages expire by their own TTL", evidence, f"natsctl explain message {config.name} SEQ")


def _emptied(facts: StreamFacts) -> Outcome:
    config, state = facts.stream.config, facts.stream.state
    if state.messages or not state.last_seq or state.last_seq < config.first_seq:
        return None
    if causes_of((_no_interest, _aged, _expiring, _uncopied), facts):
        return None
    text = "the stream is empty: all its messages were removed"
    evidence = [f"the last message was number {state.last_seq:,}, stored {ago(state.last_ts, facts.now_ns)}"]
    if config.retention != RetentionPolicy.LIMITS:
        evidence.append(f"retention {config.retention}: an acknowledged message is removed")
        text = "the stream is empty: its consumers have acknowledged all messages"
    return Cause(text, evidence, f"natsctl stream info {config.name}")


def _limits(facts: StreamFacts) -> Outcome:
    config = facts.stream.config
    parts = [f"duplicates within {format_duration(config.duplicate_window)} are dropped"]
    if config.max_msg_size > 0:
        parts.append(f"messages above {config.max_msg_size:,} bytes are refused")
    return listed(parts)


def _counter(facts: StreamFacts) -> Outcome:
    if not facts.stream.config.allow_msg_counter:
        return None
    text = "the stream is a counter: messages without the header Nats-Incr are refused (10169)"
    return Cause(text, ["allow_msg_counter true"], "natsctl counter incr SUBJECT")


def _unacknowledged(facts: StreamFacts) -> Outcome:
    if not facts.stream.config.no_ack:
        return "publishers get an ack"
    text = "publishers get no ack: a request times out, though the message is stored"
    return Cause(text, ["no_ack true"], f"natsctl stream edit {facts.stream.config.name} --ack")


def _consumers(facts: StreamFacts) -> Outcome:
    config, state = facts.stream.config, facts.stream.state
    if config.max_consumers <= 0 or state.consumer_count < config.max_consumers:
        return None
    evidence = [f"consumers {state.consumer_count:,}, max_consumers {config.max_consumers:,}"]
    text = "max_consumers is reached: new consumers are refused (10026)"
    return Cause(text, evidence, f"natsctl consumer ls {config.name}")


RULES: tuple[Callable[[StreamFacts], Outcome], ...] = (
    _leader,
    _failing,
    _sealed,
    _full,
    _account,
    _unlistened,
    _origins,
    _uncopied,
    _mirror,
    _counter,
    _no_interest,
    _lost,
    _aged,
    _counted,
    _per_subject,
    _expiring,
    _emptied,
    _unacknowledged,
    _overlap,
    _consumers,
    _replicas,
    _limits,
)
"""The rules of a stream, in the order of their causes."""
URGENT: tuple[Callable[[StreamFacts], Outcome], ...] = (
    _leader,
    _failing,
    _full,
    _account,
    _origins,
    _lost,
    _consumers,
    _replicas,
)
"""The rules that call for action; the others explain the effects of a configuration."""
