"""The `$JS.API.CONSUMER.…` endpoints; pull requests go to the consumers themselves.

Consumers are created and changed by CONSUMER.CREATE in its three forms and by CONSUMER.DURABLE.CREATE. Consumers that
feed other streams (`direct`, `sourcing`) learn which stream they read from its identity in a header, as in nats-server.
Source: docs/compatibility.md#creating-consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import answers, headers
from natsctl.api import consumer_config as rules
from natsctl.api.answers import ConsumerCreateAnswer
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import recast
from natsctl.api.consumer import AckPolicy, ConsumerConfig, DeliverPolicy
from natsctl.api.consumer_config import check_update, checking
from natsctl.api.errors import ErrCode
from natsctl.api.model import Model
from natsctl.api.requests import (
    ConsumerAction,
    ConsumerCreateRequest,
    ConsumerPauseRequest,
    ConsumerResetRequest,
    ConsumerUnpinRequest,
    PagedRequest,
)
from natsctl.api.stream import RetentionPolicy
from natsctl.api.subject_index import WALK_STEP
from natsctl.api.subjects import MAX_NAME_BYTES, is_too_long
from natsctl.api.times import ZERO_TIME, format_time, is_zero, parse_time
from natsctl.jetstream import api_level
from natsctl.jetstream.api_level import is_refused
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.consumers.consumer_position import finding_first_state, preparing
from natsctl.jetstream.consumers.priority_groups import is_group_name
from natsctl.jetstream.consumers.pull import PullDelivery
from natsctl.jetstream.endpoints.requests import (
    PENDING,
    ApiRequest,
    EndpointFunction,
    Outcome,
    RefusedRequestError,
    encoding_page,
    find_stream,
    reading_plain,
    require,
    settled,
)
from natsctl.jetstream.streams.origin import identity
from natsctl.store.steps import Steps

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.consumers.consumer_state import ConsumerState
    from natsctl.jetstream.consumers.retention import FilterClaim
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.filters import Filters


_WORK_QUEUE_ACKS: Final = (AckPolicy.EXPLICIT, AckPolicy.FLOW_CONTROL)


def create(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.CREATE: named by the subject, or (the legacy form, without a name there) ephemeral."""
    wanted = request.decoded(ConsumerCreateRequest)
    config, tokens = wanted.config, request.tokens
    _check_addressed(wanted, tokens[0], tokens[1] if len(tokens) > 1 else config.name)
    if len(tokens) == 1:
        return (
            error(ErrCode.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME)
            if config.durable_name
            else _serving(js, request, wanted)
        )
    if config.durable_name and config.durable_name != tokens[1]:
        return error(ErrCode.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT)
    config.name = tokens[1]
    filter_subject = ".".join(tokens[2:])
    if filter_subject and config.filter_subjects:
        return error(ErrCode.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED)
    if filter_subject and config.filter_subject != filter_subject:
        return error(ErrCode.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH)
    return _serving(js, request, wanted)


def durable_create(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    wanted = request.decoded(ConsumerCreateRequest)
    if len(request.tokens) != 2:
        return error(ErrCode.CONSUMER_DURABLE_NAME_NOT_IN_SUBJECT)
    _check_addressed(wanted, *request.tokens)
    if not wanted.config.durable_name:
        return error(ErrCode.CONSUMER_DURABLE_NAME_NOT_SET)
    if wanted.config.durable_name != request.tokens[1]:
        return error(ErrCode.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT)
    wanted.config.name = request.tokens[1]
    return _serving(js, request, wanted)


def _check_addressed(wanted: ConsumerCreateRequest, stream: str, name: str) -> None:
    if wanted.stream_name != stream:
        require(error(ErrCode.STREAM_MISMATCH))
    if "/" in name or "\\" in name:
        require(error(ErrCode.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS))


def _serving(js: JetStreamAccount, request: ApiRequest, wanted: ConsumerCreateRequest) -> Steps[Outcome]:
    """Create or change the consumer that the request names; without a name the server chooses one."""
    config = wanted.config
    if config.num_replicas > 1:
        return error(ErrCode.STREAM_REPLICAS_NOT_SUPPORTED)
    stream = find_stream(js, wanted.stream_name)
    _settle_sourcing(stream, request, config)
    existing = stream.consumers.get(config.name) if config.name else None
    if existing is not None:
        _keep(existing.config, config)
    api_level.stamp(config)
    bounds = bounds_of(js)
    require(rules.normalise(config, stream.config, bounds, wanted.pedantic))
    require((yield from checking(config, stream.config, bounds)))
    interest = stream.retention.interest
    claim = yield from interest.claiming(config)
    try:
        yield from preparing(stream.store, config, claim.filters)
        while existing is not None and not stream.account.routes.walked(existing.deliver_subject, lambda: False):
            yield WALK_STEP
        name = config.durable_name or config.name
        existing = stream.consumers.get(name) if name else None
        if existing is not None:
            return (yield from _changing(stream, request, existing, wanted, claim))
        state = yield from finding_first_state(stream, config, claim.filters)
        if wanted.action is ConsumerAction.UPDATE:
            return error(ErrCode.CONSUMER_DOES_NOT_EXIST)
        return (yield from _making(js, stream, request, config, name, state, claim))
    finally:
        interest.unclaim(claim)


def _settle_sourcing(stream: Stream, request: ApiRequest, config: ConsumerConfig) -> None:
    """Adapt a request for a consumer that feeds another stream to this stream's retention.

    Unless retention is by limits, the consumer must outlive its connection; else each one gets a name of its own.
    """
    if not (config.direct or config.sourcing):
        return
    if config.direct and config.sourcing and config.name:
        if stream.config.retention is RetentionPolicy.LIMITS:
            config.name += f"-{stream.consumer_set.new_name()}"
        else:
            config.direct, config.durable_name, config.ack_policy = False, config.name, AckPolicy.FLOW_CONTROL
            config.ack_wait = config.max_deliver = config.inactive_threshold = 0
    known = headers.get(request.header, headers.STREAM_IDENTITY) if request.header else None
    own = identity(stream)
    if known and known != own.encode():
        require(error(ErrCode.CONSUMER_STREAM_IDENTITY_MISMATCH, msg=own))
    request.answer_header = headers.encode([(headers.STREAM_IDENTITY, own.encode())])


def _keep(old: ConsumerConfig, config: ConsumerConfig) -> None:
    """Keep the settings that a create request cannot change."""
    config.pause_until = old.pause_until
    if config.sourcing and config.durable_name:
        config.deliver_policy = old.deliver_policy
        config.opt_start_seq, config.opt_start_time = old.opt_start_seq, old.opt_start_time


def _making(
    js: JetStreamAccount,
    stream: Stream,
    request: ApiRequest,
    config: ConsumerConfig,
    name: str,
    state: ConsumerState | None,
    claim: FilterClaim,
) -> Steps[Outcome]:
    internal = config.direct or config.sourcing
    if not internal:
        require(js.quota.refuse_consumer(stream))
        require((yield from _checking_work_queue(stream, config, name, claim.filters)))
    if "\0" in name:  # nats-server finds no file name for it
        return error(ErrCode.CONSUMER_CREATE, err="error creating store for consumer")
    if is_too_long(name):
        return (
            error(ErrCode.CONSUMER_NAME_TOO_LONG, max=MAX_NAME_BYTES)
            if config.durable_name
            else error(ErrCode.CONSUMER_STORE_FAILED, err="file name too long")
        )
    rules.default_threshold(config, rules.is_durable(config))
    if not is_zero(config.pause_until):
        config.pause_until = format_time(parse_time(config.pause_until or ""))
    consumer = stream.consumer_set.create(name or stream.consumer_set.new_name(), config, state, claim=claim)
    consumer.lifetime.advise_pause()

    def failed() -> None:
        stream.consumer_set.undo(consumer)

    answer = _answer(consumer)
    # A consumer for another stream begins after removed messages: no power failure may bring them back afterwards.
    if not consumer.number and (not internal or stream.store.all_durable):
        return answer
    consumer.hold()
    return request.answer_when_durable(stream.store, answer, failed, done=consumer.release)


def _changing(
    stream: Stream, request: ApiRequest, consumer: Consumer, wanted: ConsumerCreateRequest, claim: FilterClaim
) -> Steps[Outcome]:
    config = wanted.config
    if wanted.action is ConsumerAction.CREATE:
        api_level.carry(config, consumer.config)
        if config != consumer.config:
            return error(ErrCode.CONSUMER_ALREADY_EXISTS)
    if stream.config.retention is RetentionPolicy.WORKQUEUE and not (
        yield from _finding_unique(stream, claim.filters, consumer.name)
    ):
        return error(ErrCode.CONSUMER_WQ_CONSUMER_NOT_UNIQUE)
    require(check_update(consumer.config, config, consumer.in_use()))
    rules.default_threshold(config, rules.is_durable(consumer.config))
    if config != consumer.config:
        stream.consumer_set.update(consumer, config, claim)
    consumer.lifetime.advise_pause()
    if config.sourcing:
        consumer.reset(consumer.floor_seq() + 1)
        consumer.flush()
    answer = _answer(consumer)
    return request.answer_when_durable(stream.store, answer) if consumer.number else answer


def _checking_work_queue(stream: Stream, config: ConsumerConfig, name: str, filters: Filters) -> Steps[ApiError | None]:
    if stream.config.retention is not RetentionPolicy.WORKQUEUE:
        return None
    if config.ack_policy not in _WORK_QUEUE_ACKS:
        return error(ErrCode.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK)
    if config.deliver_policy is not DeliverPolicy.ALL:
        return error(ErrCode.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL)
    if not any(not _is_internal(other) for other in stream.consumers.values()):
        return None
    if not rules.filters_of(config):
        return error(ErrCode.CONSUMER_WQ_MULTIPLE_UNFILTERED)
    unique = yield from _finding_unique(stream, filters, name)
    return None if unique else error(ErrCode.CONSUMER_WQ_CONSUMER_NOT_UNIQUE)


def _finding_unique(stream: Stream, filters: Filters, name: str) -> Steps[bool]:
    others = yield from stream.retention.interest.overlapping(filters.subjects)
    return all(other.name == name or _is_internal(other) for other in others)


def _is_internal(consumer: Consumer) -> bool:
    return consumer.config.direct or consumer.config.sourcing


def bounds_of(js: JetStreamAccount) -> rules.ConsumerBounds:
    options = js.engine.options
    return rules.ConsumerBounds(js.quota.limits.max_ack_pending, options.max_request_batch, options.max_ack_pending)


def _answer(consumer: Consumer) -> ConsumerCreateAnswer:
    answer = recast(consumer.info(), ConsumerCreateAnswer)
    api_level.show(answer, consumer.engine.broker.options.version)
    return answer


# Finding


def _find(js: JetStreamAccount, request: ApiRequest) -> Consumer:
    """Return the consumer that a request's subject names; raises RefusedRequestError."""
    consumer = find_stream(js, request.tokens[0]).consumers.get(request.tokens[1])
    if consumer is None:
        raise RefusedRequestError(error(ErrCode.CONSUMER_NOT_FOUND))
    return consumer


def info(js: JetStreamAccount, request: ApiRequest) -> Steps[Outcome]:
    consumer = _find(js, request)
    answer = recast((yield from consumer.describing()), answers.ConsumerInfoAnswer)
    api_level.show(answer, js.engine.broker.options.version)
    return answer


def names(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    stream = find_stream(js, request.tokens[0])
    found = stream.consumer_set.visible()
    offset = _offset(request, len(found))
    page = [consumer.name for consumer in found[offset : offset + answers.NAMES_PAGE]]
    return answers.ConsumerNamesAnswer(total=len(found), offset=offset, limit=answers.NAMES_PAGE, consumers=page)


def listing(js: JetStreamAccount, request: ApiRequest) -> Steps[Outcome]:
    stream = find_stream(js, request.tokens[0])
    found = stream.consumer_set.visible()
    offset = _offset(request, len(found))
    answer = answers.ConsumerListAnswer(total=len(found), offset=offset, limit=answers.LIST_PAGE)
    return (yield from encoding_page(answer, "consumers", found[offset : offset + answers.LIST_PAGE]))


def _offset(request: ApiRequest, total: int) -> int:
    offset = request.value.offset if isinstance(request.value, PagedRequest) else 0
    return max(0, min(offset, total))


# Changing


def delete(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    consumer = _find(js, request)
    answer: Model = answers.ConsumerDeleteAnswer(success=True)
    js.streams[request.tokens[0]].consumer_set.delete(consumer)
    return request.answer_when_durable(consumer.stream.store, answer) if consumer.number else answer


def pause(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.PAUSE: pause until the given time, or (absent or past) resume."""
    consumer = _find(js, request)
    until = request.value.pause_until if isinstance(request.value, ConsumerPauseRequest) else None
    config = rules.copy(consumer.config)
    config.pause_until = None if is_zero(until) else format_time(parse_time(until or ""))
    api_level.stamp(config)
    js.streams[request.tokens[0]].consumer_set.update(consumer, config)
    answer = answers.ConsumerPauseAnswer(paused=consumer.lifetime.paused, pause_until=ZERO_TIME)
    if config.pause_until is not None:
        answer.pause_until = config.pause_until
    if consumer.lifetime.paused:
        answer.pause_remaining = consumer.lifetime.pause_remaining_ns()
    return request.answer_when_durable(consumer.stream.store, answer) if consumer.number else answer


def unpin(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.UNPIN: release the pin of a priority group."""
    group = request.value.group if isinstance(request.value, ConsumerUnpinRequest) else ""
    if not group:
        return error(ErrCode.INVALID_JSON, err="consumer group not specified")
    if not is_group_name(group):
        return error(ErrCode.CONSUMER_INVALID_GROUP_NAME)
    consumer = _find(js, request)
    if group not in consumer.config.priority_groups:
        return error(ErrCode.CONSUMER_INVALID_PRIORITY_GROUP)
    delivery = consumer.delivery
    if isinstance(delivery, PullDelivery):
        delivery.unpin(group)
    return answers.ConsumerUnpinAnswer()


def reset(js: JetStreamAccount, request: ApiRequest) -> Steps[Outcome]:
    """CONSUMER.RESET: start over at a sequence, or after the ack floor; a missing consumer is not answered."""
    stream = js.streams.get(request.tokens[0])
    consumer = stream.consumers.get(request.tokens[1]) if stream is not None else None
    if consumer is None or not request.reply:
        return PENDING
    if is_refused(request.header):
        return error(ErrCode.REQUIRED_API_LEVEL)
    seq = (yield from reading_plain(request.body, ConsumerResetRequest)).seq if request.body else 0
    refusal = _refuse_reset(consumer, seq) if seq else ""
    if refusal:
        return error(ErrCode.CONSUMER_INVALID_RESET, err=refusal)
    seq = max(seq or consumer.floor_seq() + 1, 1)
    consumer.reset(seq)
    consumer.flush()
    answer = recast(consumer.info(), answers.ConsumerResetAnswer)
    answer.reset_seq = seq
    api_level.show(answer, js.engine.broker.options.version)
    if request.header and headers.get(request.header, headers.STREAM_IDENTITY) is not None:
        request.answer_header = headers.encode([(headers.STREAM_IDENTITY, identity(consumer.stream).encode())])
    return request.answer_when_durable(consumer.stream.store, answer) if consumer.number else answer


def _refuse_reset(consumer: Consumer, seq: int) -> str:
    """Return why a consumer cannot start over at a sequence, "" when it can. Source: nats-server, resetStartingSeq."""
    config = consumer.config
    if config.deliver_policy is DeliverPolicy.ALL:
        return ""
    if config.deliver_policy is DeliverPolicy.BY_START_SEQUENCE:
        return "below start seq" if seq < config.opt_start_seq else ""
    if config.deliver_policy is DeliverPolicy.BY_START_TIME:
        first = consumer.stream.store.first_seq_at(parse_time(config.opt_start_time or ""))
        return "below start time" if seq < first else ""
    return "not allowed"


HANDLERS: Final[dict[str, EndpointFunction]] = {
    "CONSUMER.CREATE": settled(create),
    "CONSUMER.DURABLE.CREATE": settled(durable_create),
    "CONSUMER.NAMES": names,
    "CONSUMER.LIST": settled(listing),
    "CONSUMER.INFO": settled(info),
    "CONSUMER.DELETE": delete,
    "CONSUMER.PAUSE": pause,
    "CONSUMER.UNPIN": unpin,
    "CONSUMER.RESET": settled(reset),
}
