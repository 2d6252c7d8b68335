"""The STREAM verbs about messages: MSG.GET, MSG.DELETE and PURGE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.answers import StreamMsgDeleteAnswer, StreamMsgGetAnswer, StreamPurgeAnswer
from natsctl.api.catalogue import ApiError, error
from natsctl.api.err_codes import ErrCode
from natsctl.api.messages import StoredMsg
from natsctl.api.requests import StreamMsgDeleteRequest, StreamMsgGetRequest, StreamPurgeRequest
from natsctl.api.stream import StorageType
from natsctl.api.times import format_time
from natsctl.jetstream.endpoints import message_search as search
from natsctl.jetstream.endpoints.requests import PENDING, ApiRequest, EndpointFunction, Outcome, Uncounted
from natsctl.jetstream.endpoints.stream_api import find_stream
from natsctl.store.filters import Filters
from natsctl.store.steps import Steps

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.stream import Stream


def get(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.MSG.GET; a stream that is offline is not answered for."""
    wanted = request.decoded(StreamMsgGetRequest)
    if wanted.batch > 0 or wanted.max_bytes > 0:
        return error(ErrCode.BAD_REQUEST)
    wanted.multi_last = []
    if search.selects_nothing(wanted) or search.contradicts(wanted):
        return error(ErrCode.BAD_REQUEST)
    stream = js.streams.get(request.tokens[0])
    if stream is None:
        return PENDING if request.tokens[0] in js.offline.reasons() else error(ErrCode.STREAM_NOT_FOUND)
    patterns = search.patterns_of(wanted)
    return _getting(stream, request, wanted, patterns) if patterns else _get_when_settled(stream, request, wanted)


def _getting(stream: Stream, request: ApiRequest, wanted: StreamMsgGetRequest, patterns: Filters) -> Steps[Outcome]:
    yield from stream.store.preparing(patterns)
    return _get_when_settled(stream, request, wanted)


def _get_when_settled(stream: Stream, request: ApiRequest, wanted: StreamMsgGetRequest) -> Outcome:
    newest = search.newest(stream.store, wanted) if wanted.last_by_subj else 0
    return request.when_settled([stream.store], lambda kept: _get(stream, wanted, newest))


def _get(stream: Stream, wanted: StreamMsgGetRequest, newest: int) -> Outcome:
    message = search.find(stream.store, wanted, newest)
    if message is None:
        return error(ErrCode.NO_MESSAGE_FOUND)
    shown = StoredMsg(
        subject=message.subject.decode("utf-8", "replace"),
        seq=message.seq,
        hdrs=message.header if message.header and not wanted.no_hdr else None,
        data=message.payload or None,
        time=format_time(message.ts_ns),
    )
    return StreamMsgGetAnswer(message=shown)


def delete(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.MSG.DELETE."""
    stream = find_stream(js, request)
    if isinstance(stream, ApiError):
        return stream
    wanted = request.decoded(StreamMsgDeleteRequest)
    if stream.config.sealed:
        return error(ErrCode.STREAM_SEALED)
    if stream.config.deny_delete:
        return error(ErrCode.STREAM_MSG_DELETE_FAILED, err="message delete not permitted")
    if stream.config.storage is StorageType.FILE and (fault := _outside(stream, wanted.seq)):
        return Uncounted(error(ErrCode.STREAM_MSG_DELETE_FAILED, err=fault))
    if not stream.remove(wanted.seq, erase=not wanted.no_erase):
        return Uncounted(error(ErrCode.SEQUENCE_NOT_FOUND, seq=wanted.seq))
    return request.answer_when_durable(stream.store, StreamMsgDeleteAnswer(success=True))


def _outside(stream: Stream, seq: int) -> str:
    """Return the error text of a stream on disk for a sequence outside its bounds, "" within them."""
    if not seq or seq < stream.store.first_seq:
        return "no message found"
    return "stream store EOF" if seq > stream.store.last_seq else ""


def purge(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.PURGE."""
    wanted = request.decoded(StreamPurgeRequest)
    if wanted.seq and wanted.keep:
        return error(ErrCode.BAD_REQUEST)
    stream = find_stream(js, request)
    if isinstance(stream, ApiError):
        return stream
    if stream.config.sealed:
        return error(ErrCode.STREAM_SEALED)
    if stream.config.deny_purge:
        return error(ErrCode.STREAM_PURGE_FAILED, err="stream purge not permitted")
    filters = Filters((wanted.filter.encode(),)) if wanted.filter else None
    return _purging(stream, request, filters, wanted)


def _purging(
    stream: Stream, request: ApiRequest, filters: Filters | None, wanted: StreamPurgeRequest
) -> Steps[Outcome]:
    count = yield from stream.purging(filters, wanted.seq, wanted.keep)
    return request.answer_when_durable(stream.store, StreamPurgeAnswer(success=True, purged=count))


HANDLERS: Final[dict[str, EndpointFunction]] = {
    "STREAM.MSG.GET": get,
    "STREAM.MSG.DELETE": delete,
    "STREAM.PURGE": purge,
}
