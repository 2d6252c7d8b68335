"""nats-py's client for tests, with time limits that a busy machine keeps.

nats-py gives a request half a second, an ack one and a JetStream request five: limits that measure what else the
machine does. `connect` returns a client of `nats.connect`'s interface whose defaults are `PATIENCE_S`; subscriptions
and watchers of nats-py take theirs as an argument: `subscription.next_msg(PATIENCE_S)`.

`keys_of` and `history_of` ask again: nats-py (2.15) takes a bucket for empty if every message came before its
CONSUMER.INFO was answered, and none has been handled yet (at a load of 7 one read in some thousands).
"""

from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import NoKeysError

from natsctl.client.nats_client import ShortClient

PATIENCE_S: Final = 20.0
"""Time limit for answers that come at once on an idle machine."""
READS_OF_A_BUCKET: Final = 20


class PatientMsg(Msg):
    async def ack_sync(self, timeout: float = PATIENCE_S) -> Msg:
        return await super().ack_sync(timeout)


class PatientClient(Client):
    """A client that waits longer, and whose PING of a flush follows everything that was subscribed and published."""

    msg_class = PatientMsg
    # nats-py's own sends the PING of a flush before what is still in its buffer, so that a flush ends no race.
    _send_ping = ShortClient._send_ping  # uses nothing but what a Client has

    async def connect(self, *servers: Any, **options: Any) -> None:
        await super().connect(*servers, **{"connect_timeout": PATIENCE_S, **options})

    async def request(
        self, subject: str, payload: bytes = b"", timeout: float = PATIENCE_S, old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:  # fmt: skip
        return await super().request(subject, payload, timeout, old_style, headers)

    async def flush(self, timeout: float = PATIENCE_S) -> None:
        """Wait until the server has taken everything that was sent."""
        await super().flush(timeout)  # type: ignore[arg-type]  # whole seconds only in its annotation

    def jetstream(self, **options: Any) -> JetStreamContext:
        return super().jetstream(**{"timeout": PATIENCE_S, **options})


async def connect(servers: str | list[str], **options: Any) -> Client:
    """Return a client that is connected to one of `servers`, as `nats.connect` does."""
    client = PatientClient()
    await client.connect(servers, **options)
    return client


async def keys_of(bucket: Any) -> list[str]:
    return [str(key) for key in await _read(bucket.keys)]


async def history_of(bucket: Any, key: str) -> list[Any]:
    return list(await _read(bucket.history, key))


async def _read(read: Any, *arguments: str) -> Any:
    for _ in range(READS_OF_A_BUCKET):
        try:
            return await read(*arguments)
        except NoKeysError:
            continue
    return await read(*arguments)
