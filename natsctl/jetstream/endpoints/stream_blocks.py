"""STREAM.BLOCKS: stored messages as they lie in the log, many in one answer. Natsctl's own; nats-server has none.

Theory of operation. A request names a range of sequences, and one message answers it: as many frames of the log
(`store.frame`) from the beginning of the range as `max_bytes` allow, copied without a look at any of them where this
process wrote them. Headers give the range that the answer covers; a sequence in it without a frame was removed, or is
on another subject than was asked for. The client goes on behind that range, so nothing is kept between two requests:
what is removed meanwhile is missing from later answers, and a stream of the same name made anew has another identity.
The payload is the number of frames, the accounted size of each (a frame is ten bytes longer), and the frames.

Every message acknowledged before a request is covered by its answer (ADR 0002), which is gathered in steps (ADR 0021)
one request a turn. Only streams on files have frames. A client learns from STREAM.INFO whether a stream has blocks, if
it asks with a header: an unknown verb is not answered, and a request in vain would cost it its timeout.
Source: docs/adr/0027.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.err_codes import ErrCode
from natsctl.api.requests import StreamBlocksRequest
from natsctl.api.subjects import is_valid_subject
from natsctl.jetstream.endpoints.requests import PENDING, ApiRequest, EndpointFunction, Outcome, settled
from natsctl.jetstream.endpoints.stream_api import block_headers, find_stream
from natsctl.store.file_log import FileLog, FrameRun
from natsctl.store.filters import Filters
from natsctl.store.steps import Steps

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.stream import Stream

DEFAULT_BYTES: Final = 1 << 20
MOST_BYTES: Final = 4 << 20
"""Of one answer, whose payload is never longer than the server's max_payload, unless one message is."""
HEADER_ROOM: Final = 1 << 10
"""Of the payload's limit, for the headers of the answer."""
MAX_FILTERS: Final = 1024
_COUNT: Final = struct.Struct("<I")


def blocks(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.BLOCKS."""
    stream = find_stream(js, request)
    if isinstance(stream, ApiError):
        return stream
    wanted = request.decoded(StreamBlocksRequest)
    if not wanted.seq or len(wanted.filters) > MAX_FILTERS or not all(map(is_valid_subject, wanted.filters)):
        return error(ErrCode.BAD_REQUEST)
    store = stream.store
    return _gathering(stream, store, request, wanted) if isinstance(store, FileLog) else error(ErrCode.BAD_REQUEST)


def _gathering(stream: Stream, store: FileLog, request: ApiRequest, wanted: StreamBlocksRequest) -> Steps[Outcome]:
    filters = Filters(each.encode() for each in wanted.filters)
    last_seq = min(wanted.last_seq or store.durable_seq, store.durable_seq)
    found = yield from store.reading_frames(wanted.seq, last_seq, filters, _room(stream, wanted.max_bytes))
    if request.reply:
        stream.account.publish(request.reply, b"", _headers(stream, wanted, found), _payload(found))
    return PENDING


def _room(stream: Stream, max_bytes: int) -> int:
    """Return how many bytes an answer may have."""
    limit = max(stream.engine.broker.options.limits.max_payload - HEADER_ROOM, 1)
    return min(max_bytes if max_bytes > 0 else DEFAULT_BYTES, MOST_BYTES, limit)


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


HANDLERS: Final[dict[str, EndpointFunction]] = {"STREAM.BLOCKS": settled(blocks)}
