"""The place of a message: its way through every consumer, when it expires, or why it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api import headers as blocks
from natsctl.api.consumer import AckPolicy, DeliverPolicy
from natsctl.api.consumer_config import filters_of
from natsctl.api.errors import ApiResponseError, ErrCode
from natsctl.api.stream import DiscardPolicy, RetentionPolicy
from natsctl.api.times import format_time, parse_time
from natsctl.api.units import format_duration, parse_ttl, plural
from natsctl.client.explain.evidence import ago, messages_from, moment, permitted
from natsctl.client.explain.explanation import Cause, Explanation, is_selected, listed

if TYPE_CHECKING:
    from natsctl.api.consumer import ConsumerInfo
    from natsctl.api.requests import StoredMsg
    from natsctl.client.explain.evidence import StreamReport
    from natsctl.client.manager import Manager

MAX_COUNTED: Final = 200
"""Max messages between an ack floor and the delivered position that are read to count them."""
MAX_CONSUMERS_COUNTED: Final = 20
"""Max consumers with messages that are counted."""
_LATEST: Final = (DeliverPolicy.LAST, DeliverPolicy.LAST_PER_SUBJECT)
_NO_RECORD: Final = "deletions and purges by hand leave no record on a server"


class ConsumerView(msgspec.Struct):
    """The state of a message for a consumer."""

    consumer: str
    state: str
    evidence: str


class MessageExplanation(Explanation, kw_only=True):
    """The explanation of a message, with the view of each consumer."""

    consumers: list[ConsumerView]
    expires: str = ""
    """When the stream removes it, RFC 3339; "": no limit of time applies."""


async def explain_message(manager: Manager, stream: str, seq: int) -> MessageExplanation:
    """Explain the state of a message, or why it is missing. Raises ApiResponseError if the stream does not exist."""
    info = (await manager.stream_info(stream, deleted_details=True)).value
    about = f"Message {seq:,} of Stream {stream}"
    try:
        message = (await manager.message_get(stream, seq=seq)).value.message
    except ApiResponseError as failure:
        if failure.err_code != ErrCode.NO_MESSAGE_FOUND:
            raise
        return await _missing(manager, about, info, seq)
    unknown: list[str] = []
    answers = await permitted(manager.consumer_list(stream), [], unknown, "the consumers")
    consumers = [answer.value for answer in answers]
    counted = MAX_CONSUMERS_COUNTED
    views = []
    for consumer in consumers:
        counted -= (view := _view(consumer, message)) is None
        if view is None:
            view = await _counted_view(manager, consumer, message) if counted >= 0 else _unknown_view(consumer)
        views.append(view)
    views.sort(key=lambda view: _ORDER.index(view.state))
    expires = _expiry(info, message)
    facts = [
        f"subject {message.subject}, {plural(len(message.data or b''), 'byte')}, stored {message.time}"
        f" ({ago(message.time, moment(info.ts))})",
        f"expires {expires}" if expires else "no limit of time removes it",
        *_fronts(info, seq),
    ]
    causes = [
        Cause(
            f"the message reached max_deliver of consumer {view.consumer}: it is not delivered to it again",
            [view.evidence],
            f"natsctl deadletter show {stream} {seq}",
        )
        for view in views
        if view.state == "past the limit"
    ]
    unknown += _unseen(views)
    verdict = causes[0].text if causes else _summary(views) if answers or not unknown else "the message is stored"
    return MessageExplanation(
        about, verdict, causes, [], consumers=views, expires=expires, state=facts, unknown=unknown
    )


_ORDER: Final = ("past the limit", "pending", "delivered", "not reached", "settled", "skipped", "filtered out")
"""The states of a message, from the most urgent."""


def _view(consumer: ConsumerInfo, message: StoredMsg) -> ConsumerView | None:
    """Return the state of a message for a consumer, None if its pending messages must be counted for that."""
    name, seq = consumer.name, message.seq
    filters = filters_of(consumer.config)
    if not is_selected(filters, message.subject):
        return ConsumerView(name, "filtered out", f"filter {listed(filters)}")
    if evidence := _skip(consumer, message):
        return ConsumerView(name, "skipped", evidence)
    delivered, floor = consumer.delivered.stream_seq, consumer.ack_floor.stream_seq
    if seq > delivered:
        return ConsumerView(name, "not reached", f"delivered up to {delivered:,}, {consumer.num_pending:,} left")
    if consumer.config.ack_policy == AckPolicy.NONE:
        return ConsumerView(name, "settled", "delivered once; this consumer asks for no acks")
    if seq <= floor:
        policy = consumer.config.deliver_policy
        is_older = policy in _LATEST and moment(message.time) < moment(consumer.created)
        passed = f", or passed over by deliver_policy {policy}" if is_older else ""
        return ConsumerView(name, "settled", f"at or below the ack floor {floor:,}{passed}")
    if not consumer.num_ack_pending:
        if limit := max(0, consumer.config.max_deliver):
            evidence = f"above the ack floor {floor:,}, and nothing waits for an ack: it reached max_deliver {limit:,}"
            return ConsumerView(name, "past the limit", evidence)
        return ConsumerView(name, "settled", "delivered, and no message waits for an ack")
    if consumer.config.ack_policy == AckPolicy.ALL:
        return ConsumerView(name, "pending", f"above the ack floor {floor:,}{_next_delivery(consumer)}")
    return None


def _skip(consumer: ConsumerInfo, message: StoredMsg) -> str:
    """Return what makes a consumer start after a message, "" if it starts before."""
    config = consumer.config
    match config.deliver_policy:
        case DeliverPolicy.NEW if moment(message.time) < moment(consumer.created):
            return f"deliver_policy new, and the consumer was created later, at {consumer.created}"
        case DeliverPolicy.BY_START_SEQUENCE if message.seq < config.opt_start_seq:
            return f"opt_start_seq {config.opt_start_seq:,}"
        case DeliverPolicy.BY_START_TIME if moment(message.time) < min(
            moment(config.opt_start_time), moment(consumer.created)
        ):
            return f"opt_start_time {config.opt_start_time}"
    return ""


async def _counted_view(manager: Manager, consumer: ConsumerInfo, message: StoredMsg) -> ConsumerView:
    """Compare the messages above the ack floor with the number that waits: if equal, all of them wait."""
    floor, last = consumer.ack_floor.stream_seq, consumer.delivered.stream_seq
    filters = filters_of(consumer.config)
    if consumer.num_ack_pending > MAX_COUNTED:
        return _unknown_view(consumer)
    above = await messages_from(manager, consumer.stream_name, filters, floor + 1, last, consumer.num_ack_pending + 1)
    waiting = consumer.num_ack_pending
    if len(above) == waiting:
        evidence = (
            f"all above the ack floor {floor:,} wait for acks: {plural(waiting, 'message')}{_next_delivery(consumer)}"
        )
        return ConsumerView(consumer.name, "pending", evidence)
    return _unknown_view(consumer)


def _unknown_view(consumer: ConsumerInfo) -> ConsumerView:
    floor, last = consumer.ack_floor.stream_seq, consumer.delivered.stream_seq
    evidence = (
        f"{plural(consumer.num_ack_pending, 'message', ('waits', 'wait'))} for acks from {floor + 1:,} to {last:,};"
        " it may be one of them"
    )
    if consumer.config.max_deliver > 0 and consumer.num_redelivered > consumer.num_ack_pending:
        evidence += f", or have reached max_deliver {consumer.config.max_deliver:,}"
    return ConsumerView(consumer.name, "delivered", evidence)


def _next_delivery(consumer: ConsumerInfo) -> str:
    config, last_ns = consumer.config, moment(consumer.delivered.last_active)
    wait_ns = max([*(config.backoff or ()), config.ack_wait])
    times = f", delivered again by {format_time(last_ns + wait_ns)}" if last_ns and wait_ns else ""
    return times + (f", at most {config.max_deliver:,} times" if config.max_deliver > 0 else "")


def _unseen(views: list[ConsumerView]) -> list[str]:
    if any(view.state in ("pending", "delivered") for view in views):
        return ["how often it was delivered: servers report only how many messages were delivered more than once"]
    return []


def _summary(views: list[ConsumerView]) -> str:
    if not views:
        return "the message is stored, and the stream has no consumers"
    counts = {state: sum(view.state == state for view in views) for state in _ORDER}
    parts = [f"{state} {number}" for state, number in counts.items() if number]
    return f"the message is stored; consumers: {', '.join(parts)}"


def _expiry(info: StreamReport, message: StoredMsg) -> str:
    stored_ns = parse_time(message.time)
    limits = [info.config.max_age] if info.config.max_age > 0 else []
    for name, value in blocks.parse(message.hdrs or b""):
        if name.lower() == b"nats-ttl" and info.config.allow_msg_ttl and (ttl_ns := parse_ttl(value)):
            if ttl_ns < 0:
                return ""
            limits.append(ttl_ns)
    return format_time(stored_ns + min(limits)) if limits else ""


def _fronts(info: StreamReport, seq: int) -> Iterator[str]:
    config, state = info.config, info.state
    if config.max_msgs > 0 and config.discard == DiscardPolicy.OLD:
        room = config.max_msgs - state.messages
        yield f"max_msgs {config.max_msgs:,}: removed after {max(0, room) + seq - state.first_seq + 1:,} more messages"
    if config.max_msgs_per_subject > 0:
        yield f"max_msgs_per_subject {config.max_msgs_per_subject:,}"
    if config.retention != RetentionPolicy.LIMITS:
        yield f"retention {config.retention}: removed once it is acknowledged"


async def _missing(manager: Manager, about: str, info: StreamReport, seq: int) -> MessageExplanation:
    """Explain a message that is not stored from the limits that the stream has."""
    config, state = info.config, info.state
    step = f"natsctl stream info {config.name}"
    shown = [f"messages {state.first_seq:,} to {state.last_seq:,}, {state.messages:,} stored"]
    unknown = [_NO_RECORD]
    if seq > state.last_seq:
        text = f"the message does not exist yet: the last one is {state.last_seq:,}"
        return MessageExplanation(about, text, [Cause(text, shown, step)], [], consumers=[], state=shown)
    if seq < config.first_seq:
        text = f"the message never existed: the stream began at {config.first_seq:,}"
        return MessageExplanation(about, text, [Cause(text, shown, step)], [], consumers=[], state=shown)
    evidence = [*shown, *await _neighbours(manager, info, seq)]
    lost = state.lost.msgs if state.lost is not None else ()
    if seq in (lost or ()):
        text = "the message was lost in the store"
        return MessageExplanation(about, text, [Cause(text, evidence, step)], [], consumers=[], state=shown)
    front = seq < state.first_seq
    reasons = list(_removers(info, front))
    place = "from the start of the stream" if front else "from the middle of the stream"
    if not reasons:
        text = f"the message was removed {place} by a deletion or a purge: the stream has no limit that does this"
        unknown = []
    elif len(reasons) == 1:
        text = f"the message was removed {place} by {reasons[0]}, unless it was deleted or purged by hand"
    else:
        text = f"the message was removed {place} by {' or '.join(reasons)}, unless it was deleted or purged by hand"
    cause = Cause(text, evidence, f"natsctl explain stream {config.name}")
    return MessageExplanation(about, text, [cause], [], consumers=[], state=shown, unknown=unknown)


def _removers(info: StreamReport, front: bool) -> Iterator[str]:
    config = info.config
    if config.retention == RetentionPolicy.WORKQUEUE:
        yield "the ack of a consumer (work-queue retention)"
    elif config.retention == RetentionPolicy.INTEREST:
        yield "the acks of all consumers, or because none selected it (interest retention)"
    if front and config.max_msgs > 0 and config.discard == DiscardPolicy.OLD:
        yield f"max_msgs {config.max_msgs:,}"
    if front and config.max_bytes > 0 and config.discard == DiscardPolicy.OLD:
        yield f"max_bytes {config.max_bytes:,}"
    if front and config.max_age > 0:
        yield f"max_age {format_duration(config.max_age)}"
    if config.max_msgs_per_subject > 0 and not config.discard_new_per_subject:
        yield f"max_msgs_per_subject {config.max_msgs_per_subject:,} (newer messages on its subject)"
    if config.allow_msg_ttl:
        yield "its own TTL"
    if config.allow_rollup_hdrs:
        yield "a rollup"


async def _neighbours(manager: Manager, info: StreamReport, seq: int) -> list[str]:
    """Return the extent of the gap around a missing message."""
    state = info.state
    if seq < state.first_seq:
        return [f"the first stored message is {state.first_seq:,}, stored at {state.first_ts}"]
    deleted = sorted(state.deleted or ())
    if seq not in deleted:
        return []
    first = last = seq
    known = set(deleted)
    while first - 1 in known:
        first -= 1
    while last + 1 in known:
        last += 1
    size = last - first + 1
    rows = [f"it is in a gap of {plural(size, 'message')}, {first:,} to {last:,}"] if size > 1 else []
    following = await messages_from(manager, info.config.name, (), last + 1, state.last_seq, 1)
    return [*rows, *(f"the next message {message.seq:,} was stored at {message.time}" for message in following)]
