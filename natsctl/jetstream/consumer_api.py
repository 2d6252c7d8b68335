"""The `$JS.API.CONSUMER.…` endpoints; pull requests go to the consumers themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import answers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import recast
from natsctl.api.consumer import ConsumerConfig, ConsumerInfo, DeliverPolicy
from natsctl.api.model import ZERO_TIME, Model
from natsctl.api.requests import (
    ConsumerCreateRequest,
    ConsumerPauseRequest,
    ConsumerResetRequest,
    ConsumerUnpinRequest,
    PagedRequest,
)
from natsctl.api.stream import RetentionPolicy
from natsctl.api.times import format_time, is_zero, parse_time
from natsctl.jetstream import consumer_config as rules
from natsctl.jetstream.consumer import Consumer
from natsctl.jetstream.consumer_update import check_update
from natsctl.jetstream.requests import PENDING, ApiRequest, EndpointFunction, Outcome, storage_error
from natsctl.store.errors import StoreError

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.stream import Stream

ACTION_CREATE: Final = "create"
ACTION_UPDATE: Final = "update"


def create(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.CREATE in its three forms."""
    wish = request.decoded(ConsumerCreateRequest)
    config, tokens = wish.config, request.tokens
    if len(tokens) == 1:
        if config.durable_name:
            return error(10020)
        return _create(js, request, wish, config.name)
    name = tokens[1]
    if "/" in name or "\\" in name:
        return error(10127)
    if config.durable_name and config.durable_name != name:
        return error(10017)
    if len(tokens) > 2:
        if len(config.filter_subjects) > 1:
            return error(10137)
        if rules.filters_of(config) != [".".join(tokens[2:])]:
            return error(10131)
    config.name = name
    return _create(js, request, wish, name)


def durable_create(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.DURABLE.CREATE."""
    wish = request.decoded(ConsumerCreateRequest)
    if len(request.tokens) < 2:
        return error(10016)
    name = request.tokens[1]
    if not wish.config.durable_name:
        return error(10018)
    if wish.config.durable_name != name:
        return error(10017)
    if "/" in name or "\\" in name:
        return error(10127)
    wish.config.name = name
    return _create(js, request, wish, name)


def _create(js: JetStreamAccount, request: ApiRequest, wish: ConsumerCreateRequest, name: str) -> Outcome:
    """Create or update the consumer `name` ("" = the server names it)."""
    if wish.stream_name != request.tokens[0]:
        return error(10056)
    stream = js.streams.get(wish.stream_name)
    if stream is None:
        return js.no_stream(request.tokens[0])
    existing = stream.consumers.get(name) if name else None
    if wish.action == ACTION_UPDATE and existing is None:
        return error(10149)
    bounds = bounds_of(js)
    refusal = rules.normalise(wish.config, stream.config, bounds, wish.pedantic)
    refusal = refusal or rules.check(wish.config, stream.config, bounds)
    if refusal is None and stream.config.retention is RetentionPolicy.WORKQUEUE:
        refusal = _check_work_queue(stream, wish.config, name)
    if refusal is not None:
        return refusal
    try:
        if existing is None:
            return _new(js, stream, request, wish.config, name)
        return _update(stream, request, existing, wish)
    except StoreError as fault:
        return storage_error(fault)


def _new(js: JetStreamAccount, stream: Stream, request: ApiRequest, config: ConsumerConfig, name: str) -> Outcome:
    if 0 < stream.config.max_consumers <= stream.consumer_count:
        return error(10026)
    if 0 < js.limits.max_consumers <= sum(each.consumer_count for each in js.streams.values()):
        return error(10026)
    consumer = stream.consumer_set.create(name or stream.consumer_set.new_name(), config)

    def failed() -> None:
        if stream.consumers.get(consumer.name) is consumer:
            del stream.consumers[consumer.name]
            consumer.stop(deleted=True)

    answer = _answer(consumer)
    if not consumer.number:
        return answer
    consumer.hold()
    return request.answer_when_durable(stream.store, answer, failed, done=consumer.release)


def _update(stream: Stream, request: ApiRequest, consumer: Consumer, wish: ConsumerCreateRequest) -> Outcome:
    config = wish.config
    config.pause_until = consumer.config.pause_until
    if config != consumer.config:
        if wish.action == ACTION_CREATE:
            return error(10148)
        refusal = check_update(consumer.config, config, consumer.delivery.bound())
        if refusal is not None:
            return refusal
        stream.consumer_set.update(consumer, config)
    answer = _answer(consumer)
    return request.answer_when_durable(stream.store, answer) if consumer.number else answer


def _check_work_queue(stream: Stream, config: ConsumerConfig, name: str) -> ApiError | None:
    """Return why a work queue refuses one more consumer with these filters, or None."""
    others = [consumer for consumer in stream.consumers.values() if consumer.name != name]
    if others and (not rules.filters_of(config) or any(not rules.filters_of(o.config) for o in others)):
        return error(10099)
    return error(10100) if stream.consumer_set.overlapping(config, name) else None


def bounds_of(js: JetStreamAccount) -> rules.ConsumerBounds:
    """Return what the account allows its consumers."""
    return rules.ConsumerBounds(max_ack_pending=max(js.limits.max_ack_pending, 0))


def _answer(consumer: Consumer) -> answers.ConsumerCreateAnswer:
    return recast(consumer.info(), answers.ConsumerCreateAnswer)


# Finding


def _find(js: JetStreamAccount, request: ApiRequest) -> Consumer | ApiError:
    """Return the consumer that a request's subject names, or the error for its absence."""
    stream = js.streams.get(request.tokens[0])
    if stream is None:
        return js.no_stream(request.tokens[0])
    return stream.consumers.get(request.tokens[1]) or error(10014)


def info(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.INFO."""
    consumer = _find(js, request)
    return consumer if isinstance(consumer, ApiError) else recast(consumer.info(), answers.ConsumerInfoAnswer)


def names(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.NAMES."""
    stream = js.streams.get(request.tokens[0])
    if stream is None:
        return js.no_stream(request.tokens[0])
    found = stream.consumer_set.visible()
    offset = _offset(request, len(found))
    page = [consumer.name for consumer in found[offset : offset + answers.NAMES_PAGE]]
    return answers.ConsumerNamesAnswer(total=len(found), offset=offset, limit=answers.NAMES_PAGE, consumers=page)


def listing(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.LIST."""
    stream = js.streams.get(request.tokens[0])
    if stream is None:
        return js.no_stream(request.tokens[0])
    found = stream.consumer_set.visible()
    offset = _offset(request, len(found))
    page: list[ConsumerInfo] = [consumer.info() for consumer in found[offset : offset + answers.LIST_PAGE]]
    return answers.ConsumerListAnswer(total=len(found), offset=offset, limit=answers.LIST_PAGE, consumers=page)


def _offset(request: ApiRequest, total: int) -> int:
    offset = request.value.offset if isinstance(request.value, PagedRequest) else 0
    return max(0, min(offset, total))


# Changing


def delete(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.DELETE."""
    consumer = _find(js, request)
    if isinstance(consumer, ApiError):
        return consumer
    answer: Model = answers.ConsumerDeleteAnswer(success=True)
    try:
        consumer.stream.consumer_set.delete(consumer)
    except StoreError as fault:
        return storage_error(fault)
    return request.answer_when_durable(consumer.stream.store, answer) if consumer.number else answer


def pause(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.PAUSE: until the time given, or (absent or past) go on."""
    consumer = _find(js, request)
    if isinstance(consumer, ApiError):
        return consumer
    until = request.value.pause_until if isinstance(request.value, ConsumerPauseRequest) else None
    config = rules.copy(consumer.config)
    future = not is_zero(until) and parse_time(until or "") > consumer.engine.clock.now_ns()
    config.pause_until = until if future else None
    try:
        consumer.stream.consumer_set.update(consumer, config)
    except StoreError as fault:
        return storage_error(fault)
    answer = answers.ConsumerPauseAnswer(paused=consumer.lifetime.paused, pause_until=ZERO_TIME)
    if consumer.lifetime.paused:
        answer.pause_until = format_time(rules.pause_until_ns(config))
        answer.pause_remaining = consumer.lifetime.pause_remaining_ns()
    return request.answer_when_durable(consumer.stream.store, answer) if consumer.number else answer


def unpin(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.UNPIN: no consumer here has priority groups."""
    consumer = _find(js, request)
    if isinstance(consumer, ApiError):
        return consumer
    if not request.body.strip():
        return error(10025, err="unexpected end of JSON input")
    group = request.value.group if isinstance(request.value, ConsumerUnpinRequest) else ""
    return error(10160) if group else error(10025, err="consumer group not specified")


_RESETTABLE: Final = (DeliverPolicy.ALL, DeliverPolicy.BY_START_SEQUENCE, DeliverPolicy.BY_START_TIME)


def reset(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.RESET: start over at a sequence, or behind the ack floor; a missing consumer is not answered."""
    consumer = _find(js, request)
    if isinstance(consumer, ApiError) or not request.reply:
        return PENDING
    config = consumer.config
    seq = request.value.seq if isinstance(request.value, ConsumerResetRequest) else 0
    if seq and config.deliver_policy not in _RESETTABLE:
        return error(10204, err="not allowed")
    if seq and seq < config.opt_start_seq:
        return error(10204, err=f"sequence {seq} is below the start sequence {config.opt_start_seq}")
    seq = seq or consumer.state.floor().stream_seq + 1
    consumer.reset(seq)
    consumer.flush()
    answer = recast(consumer.info(), answers.ConsumerResetAnswer)
    answer.reset_seq = seq
    return request.answer_when_durable(consumer.stream.store, answer) if consumer.number else answer


HANDLERS: Final[dict[str, EndpointFunction]] = {
    "CONSUMER.CREATE": create,
    "CONSUMER.DURABLE.CREATE": durable_create,
    "CONSUMER.NAMES": names,
    "CONSUMER.LIST": listing,
    "CONSUMER.INFO": info,
    "CONSUMER.DELETE": delete,
    "CONSUMER.PAUSE": pause,
    "CONSUMER.UNPIN": unpin,
    "CONSUMER.RESET": reset,
}
"""What the engine's dispatcher calls, by verb."""
