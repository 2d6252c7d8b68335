"""The `$JS.API.CONSUMER.…` endpoints but creation; pull requests go to the consumers themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import answers, headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import recast
from natsctl.api.config import consumer_config as rules
from natsctl.api.consumer import ConsumerInfo, DeliverPolicy
from natsctl.api.err_codes import ErrCode
from natsctl.api.model import Model
from natsctl.api.requests import (
    ConsumerPauseRequest,
    ConsumerResetRequest,
    ConsumerUnpinRequest,
    PagedRequest,
)
from natsctl.api.times import ZERO_TIME, format_time, is_zero, parse_time
from natsctl.jetstream import api_level
from natsctl.jetstream.api_level import is_refused
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.consumers.consumer_create import create, durable_create
from natsctl.jetstream.consumers.priority_groups import is_group_name
from natsctl.jetstream.consumers.pull import PullDelivery
from natsctl.jetstream.endpoints.requests import PENDING, ApiRequest, EndpointFunction, Outcome, settled, storage_error
from natsctl.jetstream.upstream.origin import identity
from natsctl.store.errors import StoreError

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount

# Finding


def _find(js: JetStreamAccount, request: ApiRequest) -> Consumer | ApiError:
    """Return the consumer that a request's subject names, or the error for its absence."""
    stream = js.streams.get(request.tokens[0])
    if stream is None:
        return js.no_stream(request.tokens[0])
    return stream.consumers.get(request.tokens[1]) or error(ErrCode.CONSUMER_NOT_FOUND)


def info(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.INFO."""
    consumer = _find(js, request)
    if isinstance(consumer, ApiError):
        return consumer
    answer = recast(consumer.info(), answers.ConsumerInfoAnswer)
    api_level.show(answer, js.engine.broker.options.version)
    return answer


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
        js.streams[request.tokens[0]].consumer_set.delete(consumer)
    except StoreError as fault:
        return storage_error(fault)
    return request.answer_when_durable(consumer.stream.store, answer) if consumer.number else answer


def pause(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.PAUSE: pause until the given time, or (absent or past) resume."""
    consumer = _find(js, request)
    if isinstance(consumer, ApiError):
        return consumer
    until = request.value.pause_until if isinstance(request.value, ConsumerPauseRequest) else None
    config = rules.copy(consumer.config)
    config.pause_until = None if is_zero(until) else format_time(parse_time(until or ""))
    api_level.stamp(config)
    try:
        js.streams[request.tokens[0]].consumer_set.update(consumer, config)
    except StoreError as fault:
        return storage_error(fault)
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
    if isinstance(consumer, ApiError):
        return consumer
    if group not in consumer.config.priority_groups:
        return error(ErrCode.CONSUMER_INVALID_PRIORITY_GROUP)
    delivery = consumer.delivery
    if isinstance(delivery, PullDelivery):
        delivery.unpin(group)
    return answers.ConsumerUnpinAnswer()


def reset(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """CONSUMER.RESET: start over at a sequence, or after the ack floor; a missing consumer is not answered."""
    consumer = _find(js, request)
    if isinstance(consumer, ApiError) or not request.reply:
        return PENDING
    if is_refused(request.header):
        return error(ErrCode.REQUIRED_API_LEVEL)
    wanted = request.read(ConsumerResetRequest, plain=True) if request.body else ConsumerResetRequest()
    if isinstance(wanted, ApiError):
        return wanted
    seq = wanted.seq
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
"""The handlers by verb."""
