"""What a rollup leaves to do when a crash came between its message and the removal of what it stands for.

The messages of a commit are on the disk before what it takes out. A rollup that is there alone would be taken for done
by whoever tries again with its id.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.jetstream.publish.dedupe import ONE_COMMIT
from natsctl.store.errors import StoreDamagedError
from natsctl.store.filters import Filters

if TYPE_CHECKING:
    from natsctl.jetstream.stream_context import StreamContext
    from natsctl.store.message import StoredMessage

COMMIT_NS: Final = 60 * 1_000_000_000
"""How much older than its last message the first one of a commit can be."""


def finish(stream: StreamContext) -> None:
    """Take out what the rollups of an interrupted commit stand for."""
    config, store = stream.config, stream.store
    foreign = config.mirror is not None or config.sources  # there the header may be somebody else's
    if not config.allow_rollup_hdrs or config.deny_purge or foreign or not store.healthy:
        return
    with suppress(StoreDamagedError):  # the store has reported it
        newest = store.remnants(max(store.last_seq - ONE_COMMIT, 1), store.last_ts_ns - COMMIT_NS)
        for message in [message for message in newest if b"\r\nNats-Rollup:" in message.header]:
            _finish_one(stream, message)


def _finish_one(stream: StreamContext, message: StoredMessage) -> None:
    store, seq = stream.store, message.seq
    if not store.holds(seq):
        return
    value = (headers.get(message.header, headers.ROLLUP) or b"").lower()
    if value == b"all" and store.first_seq < seq:
        stream.purge(below_seq=seq)
    elif value == b"sub" and store.first_seq_of(message.subject) < seq:
        stream.purge(Filters((message.subject,)), below_seq=seq)
