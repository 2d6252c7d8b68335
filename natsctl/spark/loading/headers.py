"""What of a message's headers is sent again, and by which id a message is known when it comes again."""

from __future__ import annotations

from typing import Final

DROPPED: Final = "(?i)Nats-(Expected-.*|Batch-.*|Rollup)"
"""Headers that a server obeys: conditions of then, parts of a batch of then, and orders to remove what is there."""
MSG_ID: Final = "nats-msg-id"
IDS: Final = ("auto", "seq", "own")
"""Which ids messages get: their own unless one occurs twice, else by where they were; that always; their own only."""

KEPT = f"filter(headers, pair -> not rlike(pair.key, '^{DROPPED}$'))"
HEADERS = f"if(size({KEPT}) > 0, {KEPT}, null)"
OWN_ID = f"cast(try_element_at(filter(headers, pair -> lower(pair.key) = '{MSG_ID}'), 1).value as string)"
"""The id that a message has of its own, null where it has none."""
PLACE = "concat(stream, ':', seq)"
"""The id by where a message was before; null where that is not known."""
