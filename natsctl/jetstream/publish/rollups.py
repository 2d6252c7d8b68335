"""Completion of a rollup after a crash between its message and the removal of the messages that it replaces.

The messages of a commit are on disk before its removals. A rollup without its removals would be taken for complete by a
publisher that tries again with its id.
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
"""Largest difference in time between the first and the last message of a commit."""


def finish(stream: StreamContext) -> None:
    """Remove the messages that the rollups of an interrupted commit replace."""
    config, store = stream.config, stream.store
    foreign = config.mirror is not None or config.sources  # there the header may come from another stream
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
