"""Messages that tests append together."""

from collections.abc import Sequence
from typing import Any

from natsctl.store.stream import StreamStore
from natsctl.wire.client import encode_pub
from natsctl.wire.parser import Parser
from natsctl.wire.publish_run import RUN_MIN


def append_together(stream: StreamStore, messages: Sequence[tuple[bytes, bytes, bytes, bool]], ts_ns: int) -> int:
    """Append (subject, header, payload, timed) as one batch, and return the first sequence."""
    first_seq = stream.last_seq + 1
    copies = [(seq, ts_ns, *message[:3]) for seq, message in enumerate(messages, first_seq)]
    stream.append_copies(copies, {seq for seq, message in enumerate(messages, first_seq) if message[3]}, together=True)
    return first_seq


def run_of(messages: Sequence[tuple[bytes, bytes]]) -> Any:
    """Return a run, as the reader of the protocol makes it, of (subject, payload) without headers."""
    padded = [*messages, *[(b"pad", b"")] * RUN_MIN]
    chunk = b"".join([encode_pub(subject, b"", b"", payload) for subject, payload in padded])
    return Parser(runs=True).feed(chunk)[0][1].part(0, len(messages))
