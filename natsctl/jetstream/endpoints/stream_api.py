"""The STREAM verbs for streams and for their messages, and INFO.

STREAM.BLOCKS answers with many stored messages in the format of the log. Only natsctl has it, not nats-server.

Theory of operation of blocks. A request names a range of sequences, and one message answers it: as many frames of the
log (`store.frame`) from the beginning of the range as `max_bytes` allow, copied without a look at any of them where
this process wrote them. Headers give the range that the answer covers; a sequence in it without a frame was removed, or
is on another subject than requested. The client continues after that range, so nothing is kept between two requests:
messages removed meanwhile are missing from later answers, and a recreated stream of the same name has another identity.
The payload is the number of frames, the accounted size of each (a frame is ten bytes longer), and the frames.

Every message acknowledged before a request is covered by its answer (ADR 0002); answers are collected in steps (ADR
0021) one request a turn. Only streams on files have frames. A client learns from STREAM.INFO whether a stream has
blocks, if it asks with a header: an unknown verb is not answered, and a request in vain would cost it its timeout.
Source: docs/adr/0027.
"""

from __future__ import annotations

import struct
import sys
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from natsctl.api import answers, headers
from natsctl.api import stream_config as rules
from natsctl.api.advisories import ActionType
from natsctl.api.answers import (
    LIST_PAGE,
    NAMES_PAGE,
    SUBJECTS_PAGE,
    Paged,
    StreamCreateAnswer,
    StreamDeleteAnswer,
    StreamListAnswer,
    StreamMsgDeleteAnswer,
    StreamMsgGetAnswer,
    StreamNamesAnswer,
    StreamPurgeAnswer,
    StreamUpdateAnswer,
)
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import HOLE, encoding_items, filling, recast
from natsctl.api.errors import ErrCode
from natsctl.api.requests import (
    StoredMsg,
    StreamBlocksRequest,
    StreamCreateRequest,
    StreamInfoRequest,
    StreamMsgDeleteRequest,
    StreamMsgGetRequest,
    StreamPurgeRequest,
    StreamsRequest,
    StreamUpdateRequest,
)
from natsctl.api.stream import ClusterInfo, StorageType, StreamConfig, StreamInfo
from natsctl.api.stream_config import check_filters, check_update, seal
from natsctl.api.stream_rules import invalid
from natsctl.api.subjects import is_valid_subject
from natsctl.api.times import format_time
from natsctl.jetstream import api_level
from natsctl.jetstream.endpoints import message_search as search
from natsctl.jetstream.endpoints.requests import (
    PENDING,
    ApiRequest,
    EncodedAnswer,
    EndpointFunction,
    Outcome,
    Uncounted,
    encoding_page,
    find_stream,
    require,
    settled,
)
from natsctl.jetstream.streams.origin import identity
from natsctl.jetstream.streams.pending_message import storage_fault
from natsctl.store.errors import StreamKeyTakenError
from natsctl.store.file_log import FrameRun
from natsctl.store.filters import Filters
from natsctl.store.steps import STEP, Steps

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.streams.stream import Stream


BLOCKS_FORMAT: Final = b"1"
"""Format of the answers of STREAM.BLOCKS."""


def account_info(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    return request.when_settled([stream.store for stream in js.streams.values()], lambda kept: js.info())


def create(js: JetStreamAccount, request: ApiRequest) -> Steps[Outcome]:
    wanted = request.decoded(StreamCreateRequest)
    config = recast(wanted, StreamConfig)
    api_level.stamp(config)
    require((yield from _checking_new(js, config, request, wanted.pedantic)))
    if config.template_owner:
        return error(ErrCode.STREAM_CREATE, err="stream not owned by template")
    existing = js.streams.get(config.name)
    if existing is not None:
        api_level.carry(config, existing.config)
        if existing.config != config:
            return error(ErrCode.STREAM_NAME_EXIST)
        return request.answer_when_durable(existing.store, (yield from _created(existing)))
    if config.name in js.offline.reasons():  # not served, and its name taken until it is deleted
        return js.no_stream(config.name)
    require(js.quota.refuse_reservation(config) or check_filters(config) or (yield from js.claiming(config)))
    try:
        stream = yield from js.creating(config)
    except StreamKeyTakenError:
        return error(ErrCode.STREAM_OFFLINE)
    finally:
        js.subjects.unclaim(config)
    answer = yield from _created(stream)
    advise = partial(stream.advise, ActionType.CREATE)
    return request.answer_when_durable(stream.store, answer, partial(js.forget, stream), advise)


def _checking_new(
    js: JetStreamAccount, config: StreamConfig, request: ApiRequest, pedantic: bool
) -> Steps[ApiError | None]:
    """Return why a configuration is refused for a new stream; it is normalised on the way."""
    name = request.tokens[0]
    if config.name != name:
        return error(ErrCode.STREAM_MISMATCH)
    if "/" in name or "\\" in name:
        return error(ErrCode.STREAM_NAME_CONTAINS_PATH_SEPARATORS)
    if config.sealed:
        return invalid("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        return invalid("stream has no mirror but does have mirror direct")
    require(js.quota.refuse_new(config, sized=b'"storage"' in request.body))
    require((yield from rules.settling(js.draft(config, pedantic))))
    return error(ErrCode.STREAM_REPLICAS_NOT_SUPPORTED) if config.num_replicas > 1 else None


def _created(stream: Stream) -> Steps[StreamCreateAnswer]:
    answer = recast((yield from _with_levels(stream)), StreamCreateAnswer)
    answer.did_create = True
    answer.domain = ""  # only here
    return answer


def _with_levels(stream: Stream) -> Steps[StreamInfo]:
    """Return the info for create, update and info, with the server's version and level."""
    info = yield from stream.describing()
    api_level.show(info, stream.engine.broker.options.version)
    return info


def update(js: JetStreamAccount, request: ApiRequest) -> Steps[Outcome]:
    wanted = request.decoded(StreamUpdateRequest)
    config = recast(wanted, StreamConfig)
    draft = js.draft(config, wanted.pedantic)
    require((yield from rules.settling(draft)))
    if config.name != request.tokens[0]:
        return error(ErrCode.STREAM_MISMATCH)
    stream = find_stream(js, config.name)
    api_level.stamp(config)
    require((yield from rules.settling(draft)))  # nats-server checks twice: the second time with its defaults filled in
    if config.num_replicas > 1:
        return error(ErrCode.STREAM_REPLICAS_NOT_SUPPORTED)
    if stream.config.template_owner or config.template_owner:
        return invalid("stream configuration update not allowed on template owned stream")
    require(check_update(stream.config, config))
    if config.sealed:
        seal(config)
    require(js.refuse_update(stream, config) or (yield from js.claiming(config)))
    before = stream.config
    fault = yield from stream.reconfiguring(config)
    if fault is not None:
        return storage_fault(fault)
    answer = recast((yield from _with_levels(stream)), StreamUpdateAnswer)
    advise = partial(stream.advise, ActionType.MODIFY)
    return request.answer_when_durable(stream.store, answer, partial(stream.revert, config, before), advise)


def delete(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    name = request.tokens[0]
    answer = StreamDeleteAnswer(success=True)
    stream = js.streams.get(name)
    if stream is not None:
        advise = partial(stream.advise, ActionType.DELETE)
        return request.answer_when_durable(js.remove(stream), answer, done=advise)
    if name in js.offline.reasons():
        return request.answer_when_durable(js.offline.remove(name), answer)
    return error(ErrCode.STREAM_NOT_FOUND)


# Looking


def info(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    stream = find_stream(js, request.tokens[0])
    wanted = request.decoded(StreamInfoRequest)
    if request.header and headers.get(request.header, headers.STREAM_BLOCKS) is not None:
        request.answer_header = headers.encode(block_headers(stream))
    if wanted.subjects_filter:
        return _info_with_subjects(js, stream, request, wanted)
    if wanted.deleted_details:
        return _info_with_deleted(js, stream, request)
    return _info_alone(js, stream, request)


def block_headers(stream: Stream) -> list[tuple[bytes, bytes]]:
    """Return the headers for the blocks and the identity of a stream; none if it has no blocks."""
    if stream.store.storage != "file":
        return []
    return [(headers.STREAM_BLOCKS, BLOCKS_FORMAT), (headers.STREAM_IDENTITY, identity(stream).encode())]


def _info(stream: Stream) -> Steps[StreamInfo]:
    found = yield from _with_levels(stream)
    found.cluster = ClusterInfo(leader=stream.engine.broker.server_name)
    return found


def _shown(js: JetStreamAccount, stream: Stream, request: ApiRequest, found: StreamInfo, page: Paged) -> Outcome:
    """Answer an info once everything that it counts can be read."""
    answer = answers.stream_info_answer(found, page)
    return request.when_settled([stream.store], lambda kept: answer if kept else info(js, request))


def _shown_in_steps(
    js: JetStreamAccount, stream: Stream, request: ApiRequest, found: StreamInfo, page: Paged
) -> Steps[Outcome]:
    """Answer an info with subjects and removed sequences: there may be millions."""
    state, texts = found.state, list[list[bytes]]()
    if state.subjects:
        texts.append((yield from encoding_items(state.subjects)))
        state.subjects = HOLE
    if state.deleted:
        texts.append((yield from encoding_items(state.deleted)))
        state.deleted = HOLE
    answer = EncodedAnswer((yield from filling(answers.stream_info_answer(found, page), *texts)))
    return request.when_settled([stream.store], lambda kept: answer if kept else info(js, request))


def _info_alone(js: JetStreamAccount, stream: Stream, request: ApiRequest) -> Steps[Outcome]:
    return _shown(js, stream, request, (yield from _info(stream)), Paged())


def _info_with_deleted(js: JetStreamAccount, stream: Stream, request: ApiRequest) -> Steps[Outcome]:
    stream.work.shut()
    found = yield from _info(stream)
    if found.state.num_deleted:
        found.state.deleted = yield from stream.store.gaps()
    return (yield from _shown_in_steps(js, stream, request, found, Paged()))


def _info_with_subjects(
    js: JetStreamAccount, stream: Stream, request: ApiRequest, wanted: StreamInfoRequest
) -> Steps[Outcome]:
    filters = Filters((wanted.subjects_filter.encode(),))
    yield from stream.store.preparing(filters)
    found, page = (yield from _info(stream)), Paged()
    if wanted.deleted_details and found.state.num_deleted:
        found.state.deleted = stream.store.deleted()
    total, counts = yield from stream.store.subjects_page(filters, max(wanted.offset, 0), SUBJECTS_PAGE)
    if total:
        page = Paged(total=total, offset=max(wanted.offset, 0), limit=SUBJECTS_PAGE)
    shown: dict[str, int] = {}
    items = iter(counts.items())
    while piece := {name.decode("utf-8", "replace"): count for name, count in islice(items, NAMES_PAGE)}:
        shown.update(piece)  # piece by piece, as the collector scans each tuple of a list of all items
        yield STEP
    found.state.subjects = shown
    return (yield from _shown_in_steps(js, stream, request, found, page))


def names(js: JetStreamAccount, request: ApiRequest) -> Steps[Outcome]:
    wanted = request.decoded(StreamsRequest)
    streams = yield from js.by_name(wanted.subject)
    found = sorted([*(stream.name for stream in streams), *_offline(js, wanted)])
    offset = _clamped(wanted.offset, len(found))
    page = found[offset : offset + NAMES_PAGE]
    return StreamNamesAnswer(total=len(found), offset=offset, limit=NAMES_PAGE, streams=page or None)


def list_streams(js: JetStreamAccount, request: ApiRequest) -> Steps[Outcome]:
    wanted = request.decoded(StreamsRequest)
    offline = _offline(js, wanted)
    served = {stream.name: stream for stream in (yield from js.by_name(wanted.subject))}
    names = sorted([*served, *offline])
    offset = _clamped(wanted.offset, len(names))
    page: list[Stream] = []
    missing: list[str] = []
    for name in names[offset:]:
        if name in offline:
            missing.append(name)
        else:
            page.append(served[name])
        if len(page) == LIST_PAGE:
            break
    listed = StreamListAnswer(total=len(names), offset=offset, limit=LIST_PAGE, missing=missing)
    listed.offline = {name: offline[name] for name in missing}
    answer = yield from encoding_page(listed, "streams", page)
    stores = [stream.store for stream in page]
    return request.when_settled(stores, lambda kept: answer if kept else list_streams(js, request))


def _offline(js: JetStreamAccount, wanted: StreamsRequest) -> dict[str, str]:
    """Return the streams that are not served, with the reasons; their subjects are not known."""
    return {} if wanted.subject else js.offline.reasons()


def _clamped(offset: int, total: int) -> int:
    return min(max(offset, 0), total)


def get_message(js: JetStreamAccount, request: ApiRequest) -> Outcome:
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


def delete_message(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    stream = find_stream(js, request.tokens[0])
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
    wanted = request.decoded(StreamPurgeRequest)
    if wanted.seq and wanted.keep:
        return error(ErrCode.BAD_REQUEST)
    stream = find_stream(js, request.tokens[0])
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


DEFAULT_BYTES: Final = 1 << 20
MAX_BYTES: Final = 4 << 20
"""Largest payload of one answer; the server's max_payload limits it too, unless one message is longer."""
HEADER_ROOM: Final = 1 << 10
"""Bytes kept free for the headers of the answer."""
MAX_FILTERS: Final = 1024
_COUNT: Final = struct.Struct("<I")


def blocks(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    stream = find_stream(js, request.tokens[0])
    wanted = request.decoded(StreamBlocksRequest)
    if not wanted.seq or len(wanted.filters) > MAX_FILTERS or not all(map(is_valid_subject, wanted.filters)):
        return error(ErrCode.BAD_REQUEST)
    return _gathering(stream, request, wanted) if stream.store.storage == "file" else error(ErrCode.BAD_REQUEST)


def _gathering(stream: Stream, request: ApiRequest, wanted: StreamBlocksRequest) -> Steps[Outcome]:
    filters, store = Filters(each.encode() for each in wanted.filters), stream.store
    last_seq = min(wanted.last_seq or store.durable_seq, store.durable_seq)
    found = yield from store.reading_frames(wanted.seq, last_seq, filters, _room(stream, wanted.max_bytes))
    if request.reply:
        stream.account.publish(request.reply, b"", _headers(stream, wanted, found), _payload(found))
    return PENDING


def _room(stream: Stream, max_bytes: int) -> int:
    """Return how many bytes an answer may have."""
    limit = max(stream.engine.broker.options.limits.max_payload - HEADER_ROOM, 1)
    return min(max_bytes if max_bytes > 0 else DEFAULT_BYTES, MAX_BYTES, limit)


def _headers(stream: Stream, wanted: StreamBlocksRequest, found: FrameRun) -> bytes:
    return headers.encode(
        [
            *block_headers(stream),
            (headers.STREAM, stream.name.encode()),
            (headers.SEQUENCE, b"%d" % wanted.seq),
            (headers.LAST_SEQUENCE, b"%d" % found.last_seq),
        ]
    )


def _payload(found: FrameRun) -> bytes:
    sizes = found.sizes
    if sys.byteorder == "big":
        sizes = sizes[:]
        sizes.byteswap()
    return b"".join((_COUNT.pack(len(sizes)), sizes.tobytes(), *found.pieces))


HANDLERS: Final[dict[str, EndpointFunction]] = {
    "INFO": account_info,
    "STREAM.CREATE": create,
    "STREAM.UPDATE": update,
    "STREAM.DELETE": delete,
    "STREAM.INFO": info,
    "STREAM.NAMES": names,
    "STREAM.LIST": list_streams,
    "STREAM.MSG.GET": get_message,
    "STREAM.MSG.DELETE": delete_message,
    "STREAM.PURGE": purge,
    "STREAM.BLOCKS": settled(blocks),
}
