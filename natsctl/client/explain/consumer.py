"""Why a consumer delivers nothing, too little, or the same again.

No server reports the state of each message: CONSUMER.INFO has counts, two positions and times. A cause follows from
them; the rest is listed as `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from natsctl.api.consumer import AckPolicy, DeliverPolicy, PriorityPolicy, ReplayPolicy
from natsctl.api.consumer_config import filters_of
from natsctl.api.errors import ApiResponseError, UnreachableError, closest
from natsctl.api.subjects import overlaps
from natsctl.api.units import SECOND, format_duration, format_size, plural
from natsctl.client.explain.evidence import (
    ALL,
    ConsumerFacts,
    absent_replicas,
    ago,
    lagging,
    leaderless,
    messages_from,
    moment,
    newest_messages,
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
    from natsctl.api.requests import StoredMsg
    from natsctl.client.explain.evidence import ConsumerReport, StreamReport
    from natsctl.client.manager import Manager

RECENT_NS: Final = 5 * SECOND
"""A consumer that delivered within this time is moving."""
NEAR_END: Final = 0.8
"""Part of the inactive threshold after which a consumer without activity is about to be removed."""
_WAIT: Final = ("waits", "wait")
_WERE: Final = ("was", "were")
_UNSEEN: Final = (
    "how often each message was delivered, and until when a client works on it: servers report only their number",
    "the thresholds and sizes that waiting pull requests ask for, and requests that were refused",
)


async def explain_consumer(manager: Manager, stream: str, consumer: str) -> Explanation:
    """Explain why a consumer delivers nothing, too little, or the same message again.

    Raises ApiResponseError if the stream does not exist, UnreachableError if its leader does not answer either.
    """
    info = (await manager.stream_info(stream)).value
    about = f"Consumer {stream} > {consumer}"
    try:
        answer = await manager.find_consumer(stream, consumer)
    except (ApiResponseError, UnreachableError) as failure:
        text = "the consumer does not answer: its servers are offline, or no leader is elected"
        evidence = [str(failure), *(absent_replicas(info.cluster) if info.cluster else ())]
        cause = Cause(text, evidence, "natsctl server report jetstream")
        return Explanation(about, text, [cause], [])
    if answer is None:
        hidden: list[str] = []
        names = await permitted(manager.consumer_names(stream), [], hidden, "the names of other consumers")
        evidence = hidden or [f"Stream {stream} has {plural(len(names), 'consumer')}: {listed(names) or 'none'}"]
        if near := closest(consumer, names):
            evidence.insert(0, f"similar names: {listed(near)}")
        evidence.append("a consumer without a durable name is removed when no client used it for a while")
        text = f"consumer {consumer} does not exist"
        return Explanation(about, text, [Cause(text, evidence, f"natsctl consumer ls {stream}")], [])
    facts = await _facts(manager, info, answer.value)
    return explain_facts(facts)


def explain_facts(facts: ConsumerFacts) -> Explanation:
    """Return the explanation of a consumer from its facts."""
    info = facts.consumer
    healthy = "the consumer has delivered everything that it selects"
    if info.num_pending:
        healthy = f"messages are being delivered: {plural(info.num_pending, 'message')} left"
    about = f"Consumer {info.stream_name} > {info.name}"
    explanation = apply_rules(about, RULES, facts, healthy, unknown=[*_UNSEEN, *facts.unknown], state=_state(facts))
    losses = [cause.text for cause in causes_of(LOSSES, facts) if cause.text != explanation.verdict]
    explanation.verdict = "; ".join([explanation.verdict, *losses])
    return explanation


async def urgent_causes(manager: Manager, stream: StreamReport, consumer: ConsumerReport) -> list[Cause]:
    """Return the causes of a consumer that call for action. Raises as `explain_consumer`."""
    return causes_of(URGENT, await _facts(manager, stream, consumer))


async def _facts(manager: Manager, stream: StreamReport, consumer: ConsumerReport) -> ConsumerFacts:
    name, filters = stream.config.name, filters_of(consumer.config)
    last_messages: dict[str, StoredMsg | None] = {}
    unknown: list[str] = []
    if stream.state.messages:
        last_messages = await permitted(newest_messages(manager, name, filters), {}, unknown, "the messages")
    stored = [message for message in last_messages.values() if message is not None]
    newest = max(stored, key=lambda message: message.seq, default=None)
    waiting: list[StoredMsg] = []
    floor, last = consumer.ack_floor.stream_seq, consumer.delivered.stream_seq
    if floor < last and consumer.config.ack_policy != AckPolicy.NONE and newest is not None:
        waiting = await messages_from(manager, name, filters, floor + 1, last, MAX_SHOWN)
    subjects: dict[str, int] = {}
    if len(stored) < len(last_messages):
        subjects = await subjects_of(manager, name)
    lag = max((origin.lag for origin in (stream.mirror, *(stream.sources or ())) if origin is not None), default=0)
    unmatched = [pattern for pattern, message in last_messages.items() if message is None]
    return ConsumerFacts(stream, consumer, moment(consumer.ts), newest, waiting, unmatched, [*subjects], lag, unknown)


def _state(facts: ConsumerFacts) -> list[str]:
    info, state = facts.consumer, facts.stream.state
    return [
        f"stream: messages {state.first_seq:,} to {state.last_seq:,}, {state.messages:,} stored",
        f"delivered up to {info.delivered.stream_seq:,} ({ago(info.delivered.last_active, facts.now_ns)})",
        f"ack floor {info.ack_floor.stream_seq:,} ({ago(info.ack_floor.last_active, facts.now_ns)})",
        f"not delivered {info.num_pending:,}, waiting for acks {info.num_ack_pending:,}, "
        f"redelivered {info.num_redelivered:,}, waiting pull requests {info.num_waiting:,}",
    ]


# -- rules, from the strongest cause to the weakest


def _leader(facts: ConsumerFacts) -> Outcome:
    return leaderless(facts.consumer.cluster, "consumer")


def _replicas(facts: ConsumerFacts) -> Outcome:
    return lagging(facts.consumer.cluster, "consumer")


def _paused(facts: ConsumerFacts) -> Outcome:
    info = facts.consumer
    if not info.paused:
        return "not paused"
    evidence = [f"pause_until {info.config.pause_until}, {span(info.pause_remaining)} from now"]
    return Cause("the consumer is paused", evidence, f"natsctl consumer resume {info.stream_name} {info.name}")


def _unmatched(facts: ConsumerFacts) -> Outcome:
    filters = filters_of(facts.consumer.config)
    if not filters:
        return "no filter: every message of the stream is selected"
    if facts.newest is not None:
        return f"the filter selects messages, the last one is {facts.newest.seq:,} on {facts.newest.subject}"
    if not facts.stream.state.messages or facts.unknown:
        return None
    evidence = [f"filter: {listed(filters)}"]
    rule = facts.stream.config.subject_transform
    if rule is not None and any(overlaps(rule.src or ALL, pattern) for pattern in filters):
        evidence.append(f"subject_transform {rule.src or ALL} to {rule.dest}: a filter selects subjects as stored")
    for pattern in filters[:MAX_SHOWN]:
        evidence += [f"near miss: {text}" for text in near_misses(pattern, facts.subjects)]
    evidence.append(f"stored subjects: {listed(facts.subjects)}")
    step = f"natsctl stream subjects {facts.stream.config.name}"
    return Cause("the filter selects no message of the stream", evidence, step)


def _partly_unmatched(facts: ConsumerFacts) -> Outcome:
    """Explain a filter of several that selects nothing, if a subject comes close that no filter selects."""
    if facts.newest is None:
        return None
    filters = filters_of(facts.consumer.config)
    unread = [subject for subject in facts.subjects if not is_selected(filters, subject)]
    for pattern in facts.unmatched[:MAX_SHOWN]:
        if near := near_misses(pattern, unread):
            text = f"the filter {pattern} selects no message of the stream, the other filters do"
            step = f"natsctl stream subjects {facts.stream.config.name}"
            return Cause(text, [f"near miss: {miss}" for miss in near], step)
    return None


def _empty(facts: ConsumerFacts) -> Outcome:
    state, info = facts.stream.state, facts.consumer
    if state.messages:
        return f"the stream has {plural(state.messages, 'message')}"
    name = facts.stream.config.name
    if facts.mirror_lag:
        text = "the stream is empty: it has not received the messages of its origin yet"
        return Cause(text, [f"a lag of {plural(facts.mirror_lag, 'message')}"], f"natsctl explain stream {name}")
    origins = [origin for origin in (facts.stream.mirror, *(facts.stream.sources or ())) if origin is not None]
    if not state.last_seq or (origins and not moment(state.last_ts)):
        if not origins:
            return Cause("the stream has never stored a message", [], f"natsctl explain stream {name}")
        evidence = [f"{origin.name}: {origin.error.description if origin.error else 'no error'}" for origin in origins]
        text = f"the stream is empty: nothing has arrived from {listed([origin.name for origin in origins])}"
        return Cause(text, evidence, f"natsctl explain stream {name}")
    if not info.delivered.consumer_seq:
        evidence = [f"the last message of the stream was {state.last_seq:,}, stored {ago(state.last_ts, facts.now_ns)}"]
        text = "the stream is empty: its messages were removed, and none of them was delivered to this consumer"
        return Cause(text, evidence, f"natsctl explain stream {name}")
    if info.delivered.stream_seq >= state.last_seq:
        return None
    missed = state.last_seq - info.delivered.stream_seq
    evidence = [f"delivered up to {info.delivered.stream_seq:,}, the stream ended with message {state.last_seq:,}"]
    text = f"the stream is empty: {plural(missed, 'message', _WERE)} removed before delivery"
    return Cause(text, evidence, f"natsctl explain stream {name}")


def _skipped(facts: ConsumerFacts) -> Outcome:
    """Explain a deliver policy that starts after the stored messages."""
    info, config, newest = facts.consumer, facts.consumer.config, facts.newest
    if newest is None or info.num_pending or info.delivered.consumer_seq:
        return None
    policy = config.deliver_policy
    evidence = [f"deliver_policy {policy}", f"the last selected message is {newest.seq:,}, stored at {newest.time}"]
    match policy:
        case DeliverPolicy.NEW:
            evidence.append(f"the consumer was created at {info.created}")
        case DeliverPolicy.BY_START_SEQUENCE:
            evidence.append(f"opt_start_seq {config.opt_start_seq:,}")
        case DeliverPolicy.BY_START_TIME:
            evidence.append(f"opt_start_time {config.opt_start_time}")
        case _:
            return None
    step = f"natsctl consumer copy {info.stream_name} {info.name} NEW --deliver all"
    return Cause("the deliver policy skips all messages that are stored", evidence, step)


def _removed(facts: ConsumerFacts) -> Outcome:
    """Explain messages that limits removed between the last delivered message and the first stored one."""
    state, info = facts.stream.state, facts.consumer
    if not state.messages or info.config.deliver_policy in (DeliverPolicy.LAST, DeliverPolicy.LAST_PER_SUBJECT):
        return None
    missed = state.first_seq - 1 - max(info.delivered.stream_seq, info.config.opt_start_seq - 1, _began(facts))
    if missed <= 0:
        return "no message was removed from the start of the stream before its delivery"
    config = facts.stream.config
    limits = [
        f"{key} {text}"
        for key, limit, text in (
            ("max_msgs", config.max_msgs, f"{config.max_msgs:,}"),
            ("max_bytes", config.max_bytes, format_size(max(config.max_bytes, 0))),
            ("max_age", config.max_age, format_duration(max(config.max_age, 0))),
            ("max_msgs_per_subject", config.max_msgs_per_subject, f"{config.max_msgs_per_subject:,}"),
        )
        if limit > 0
    ]
    evidence = [
        f"delivered up to {info.delivered.stream_seq:,}, the first stored message is {state.first_seq:,}",
        f"limits of the stream: {listed(limits) or 'none, so they were purged or deleted'}",
    ]
    most = "up to " if filters_of(info.config) else ""
    text = f"{most}{plural(missed, 'message', _WERE)} removed before delivery"
    return Cause(text, evidence, f"natsctl explain stream {config.name}")


def _began(facts: ConsumerFacts) -> int:
    """Return the last sequence that was removed before the stream could have shown it to anybody."""
    return facts.stream.config.first_seq - 1


def _outstanding(facts: ConsumerFacts) -> Outcome:
    info, limit = facts.consumer, facts.consumer.config.max_ack_pending
    if info.config.ack_policy == AckPolicy.NONE or limit <= 0:
        return "no limit of outstanding acks"
    if info.num_ack_pending < limit:
        return f"{info.num_ack_pending:,} of at most {limit:,} messages wait for acks"
    if not info.num_pending:
        return None
    evidence = [
        f"num_ack_pending {info.num_ack_pending:,}, max_ack_pending {limit:,}",
        *_oldest(facts),
        f"ack_wait {format_duration(info.config.ack_wait)}, {info.num_redelivered:,} delivered more than once",
    ]
    text = f"max_ack_pending is reached: {plural(info.num_ack_pending, 'message', _WAIT)} for an ack"
    step = f"acknowledge messages, or natsctl consumer edit {info.stream_name} {info.name} --max-pending {limit * 10}"
    return Cause(text, evidence, step)


def _oldest(facts: ConsumerFacts) -> list[str]:
    return [
        f"message {message.seq:,} on {message.subject}, stored {ago(message.time, facts.now_ns)}"
        for message in facts.waiting_messages
    ]


def _pinned(facts: ConsumerFacts) -> Outcome:
    info, config = facts.consumer, facts.consumer.config
    if config.priority_policy in (None, PriorityPolicy.NONE):
        return None
    groups = listed(config.priority_groups)
    if config.priority_policy == PriorityPolicy.PINNED_CLIENT:
        pinned = [group for group in info.priority_groups or () if group.pinned_client_id]
        if not pinned:
            return f"no client is pinned in {groups}"
        evidence = [
            f"group {group.group}: client {group.pinned_client_id}, pinned {ago(group.pinned_ts, facts.now_ns)}"
            for group in pinned
        ]
        evidence.append(f"priority_timeout {format_duration(config.priority_timeout)}")
        if not info.num_pending:
            return listed(evidence)
        step = f"natsctl consumer unpin {info.stream_name} {info.name} {pinned[0].group}"
        return Cause("another client is pinned: only it receives messages", evidence, step)
    if config.priority_policy == PriorityPolicy.OVERFLOW and info.num_pending and info.num_waiting:
        evidence = [
            f"{plural(info.num_waiting, 'pull request', _WAIT)}, {_undelivered(info)}",
            f"num_ack_pending {info.num_ack_pending:,}",
            "a pull request of an overflow group is served once min_pending or min_ack_pending is reached",
        ]
        return Cause("the overflow thresholds of the waiting pull requests are not reached", evidence, "lower them")
    return f"priority groups: {groups}"


def _unbound(facts: ConsumerFacts) -> Outcome:
    info = facts.consumer
    if facts.is_pull:
        return None
    target = info.config.deliver_subject
    if info.push_bound:
        return f"a client is subscribed to {target}"
    group = f" in queue group {info.config.deliver_group}" if info.config.deliver_group else ""
    evidence = [f"deliver_subject {target}{group}", _undelivered(info)]
    step = f"natsctl consumer sub {info.stream_name} {info.name}"
    return Cause(f"nobody is subscribed to the deliver subject {target}{group}", evidence, step)


def _unasked(facts: ConsumerFacts) -> Outcome:
    info = facts.consumer
    if not facts.is_pull:
        return None
    if info.num_waiting:
        limit = info.config.max_waiting
        if limit > 0 and info.num_waiting >= limit:
            text = f"the maximum of {plural(limit, 'waiting pull request')} is reached: others are refused"
            return Cause(text, [f"max_waiting {limit:,}"], "use fewer clients, or a higher max_waiting")
        return f"{plural(info.num_waiting, 'pull request')} waiting"
    if not info.num_pending or facts.now_ns - moment(info.delivered.last_active) < RECENT_NS:
        return None
    evidence = [
        f"{_undelivered(info)}, num_waiting 0",
        f"last delivery: {ago(info.delivered.last_active, facts.now_ns)}",
    ]
    return Cause(
        "no pull request is waiting: no client asks for messages",
        evidence,
        f"natsctl consumer next {info.stream_name} {info.name}",
    )


def _undelivered(info: ConsumerReport) -> str:
    return f"{plural(info.num_pending, 'message', ('is', 'are'))} not delivered"


def _unacked(facts: ConsumerFacts) -> Outcome:
    """Explain a consumer that has delivered everything but waits for acks."""
    info, config = facts.consumer, facts.consumer.config
    if info.num_pending or not info.num_ack_pending:
        return None
    waits = [format_duration(wait) for wait in config.backoff or ()] or [format_duration(config.ack_wait)]
    evidence = [
        f"num_pending 0, num_ack_pending {info.num_ack_pending:,}",
        f"redelivered after {'backoff' if config.backoff else 'ack_wait'} {listed(waits)}"
        + (f", at most {config.max_deliver:,} times" if config.max_deliver > 0 else ""),
        f"last delivery: {ago(info.delivered.last_active, facts.now_ns)}",
        *_oldest(facts),
    ]
    text = f"everything is delivered: {plural(info.num_ack_pending, 'message', _WAIT)} for an ack or a redelivery"
    if repeated := min(info.num_redelivered, info.num_ack_pending):
        text += f", {repeated:,} of them delivered more than once"
    return Cause(text, evidence, "acknowledge them, or wait for the redelivery")


def _exhausted(facts: ConsumerFacts) -> Outcome:
    """Explain messages past max_deliver: a server counts them as redelivered, but no longer as pending."""
    info, limit = facts.consumer, facts.consumer.config.max_deliver
    if limit <= 0:
        return "max_deliver is unlimited"
    beyond = info.num_redelivered - info.num_ack_pending
    if not info.num_ack_pending:  # nothing waits for an ack, so these are not delivered again
        beyond = max(beyond, len(facts.waiting_messages))
    if beyond <= 0:
        return f"no message is known to have reached max_deliver {limit:,}"
    evidence = [
        f"max_deliver {limit:,}, num_redelivered {info.num_redelivered:,}, num_ack_pending {info.num_ack_pending:,}",
        "they stay in the stream, and are not delivered again",
    ]
    name = facts.stream.config.name
    text = f"at least {plural(beyond, 'message')} reached max_deliver and will not be delivered again"
    return Cause(text, evidence, f"natsctl deadletter ls {name}")


def _repeated(facts: ConsumerFacts) -> Outcome:
    info, config = facts.consumer, facts.consumer.config
    if not info.num_redelivered:
        return "no message was delivered more than once"
    pending = min(info.num_redelivered, info.num_ack_pending)
    if not pending:
        return None
    evidence = [
        f"num_redelivered {info.num_redelivered:,}",
        f"ack_wait {format_duration(config.ack_wait)}: a message that is not acknowledged in time comes again",
        *_oldest(facts),
    ]
    text = f"{plural(pending, 'message', _WERE)} delivered more than once and still not acknowledged"
    return Cause(text, evidence, "find out why they fail, or work on them for longer with +WPI or a longer ack_wait")


def _floor(facts: ConsumerFacts) -> Outcome:
    """Explain an ack floor that one message holds back: later ones are acknowledged, so more follow than wait."""
    info, floor = facts.consumer, facts.consumer.ack_floor.stream_seq
    if not 0 < info.num_ack_pending < len(facts.waiting_messages):
        return None
    oldest = facts.waiting_messages[0]
    evidence = [
        f"ack floor {floor:,}, delivered up to {info.delivered.stream_seq:,}, {info.num_ack_pending:,} wait for acks",
        f"the first message after the floor: {oldest.seq:,} on {oldest.subject}, stored at {oldest.time}",
    ]
    step = f"natsctl stream get {info.stream_name} {oldest.seq}"
    return Cause(f"message {oldest.seq:,} holds the ack floor back", evidence, step)


def _slow(facts: ConsumerFacts) -> Outcome:
    info, config = facts.consumer, facts.consumer.config
    if config.rate_limit_bps and info.num_pending:
        evidence = [f"rate_limit_bps {config.rate_limit_bps:,}", _undelivered(info)]
        return Cause(
            f"the rate limit of {config.rate_limit_bps:,} bits per second slows the deliveries",
            evidence,
            "edit the consumer",
        )
    if config.replay_policy == ReplayPolicy.ORIGINAL and info.num_pending:
        evidence = ["replay_policy original", _undelivered(info)]
        return Cause(
            "messages are replayed at the pace of their arrival", evidence, "copy the consumer with --replay instant"
        )
    return "no rate limit, and no replay at the original pace" if not config.rate_limit_bps else None


def _bodiless(facts: ConsumerFacts) -> Outcome:
    if not facts.consumer.config.headers_only:
        return None
    evidence = ["headers_only true: the size of a body is in the header Nats-Msg-Size"]
    return Cause("bodies are left out: the consumer delivers headers only", evidence, "edit it with --no-headers-only")


def _expiring(facts: ConsumerFacts) -> Outcome:
    info, limit = facts.consumer, facts.consumer.config.inactive_threshold
    if limit <= 0 or info.num_waiting or info.push_bound:
        return None
    used_ns = max(map(moment, (info.delivered.last_active, info.ack_floor.last_active, info.created)))
    if facts.now_ns - used_ns < limit * NEAR_END:
        return f"inactive_threshold {format_duration(limit)} is not near"
    evidence = [f"inactive_threshold {format_duration(limit)}, last used {span(facts.now_ns - used_ns)} ago"]
    text = "the consumer is about to be removed as inactive: no client uses it"
    return Cause(text, evidence, "use it, or edit --inactive-threshold")


def _behind(facts: ConsumerFacts) -> Outcome:
    if not facts.mirror_lag:
        return None
    evidence = [f"not copied from its origins yet: {plural(facts.mirror_lag, 'message')}"]
    step = f"natsctl explain stream {facts.stream.config.name}"
    return Cause("the stream lags its mirror or sources", evidence, step)


RULES: tuple[Callable[[ConsumerFacts], Outcome], ...] = (
    _paused,
    _leader,
    _expiring,
    _empty,
    _unmatched,
    _skipped,
    _unbound,
    _outstanding,
    _pinned,
    _unasked,
    _slow,
    _exhausted,
    _floor,
    _unacked,
    _repeated,
    _removed,
    _behind,
    _partly_unmatched,
    _bodiless,
    _replicas,
)
"""The rules of a consumer, in the order of their causes."""
LOSSES: tuple[Callable[[ConsumerFacts], Outcome], ...] = (_exhausted, _removed)
"""The rules about messages that will not be delivered: their causes are part of every verdict."""
URGENT: tuple[Callable[[ConsumerFacts], Outcome], ...] = (
    _leader,
    _unmatched,
    _unbound,
    _outstanding,
    _exhausted,
    _floor,
    _repeated,
    _removed,
    _replicas,
)
"""The rules that call for action; the others explain the effects of a configuration."""
