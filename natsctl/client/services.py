"""Services of the micro protocol: discovery, statistics, and a demo service. Source: ADR-32.

Every instance of a service answers on `$SRV.<verb>`, `$SRV.<verb>.<name>` and `$SRV.<verb>.<name>.<id>`; a request to
several ends when no further one has answered for a while.

The demo service has one endpoint `echo` that returns the request. nats-py's own implementation is not used: it reads
subscriptions through callbacks in tasks of nats-py (this client has none), and gives times in milliseconds without a
zone that Python knows.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from natsctl import __version__
from natsctl.api.errors import ExitCode, NatsctlError, ProtocolError, UnreachableError, UsageError
from natsctl.api.subjects import is_valid_subject
from natsctl.api.times import format_time
from natsctl.client.message import HeaderLike, Message
from natsctl.client.messaging.messages import Outgoing
from natsctl.client.messaging.request_reply import ReplyLimits, ask
from natsctl.client.received import Received
from natsctl.client.requests import end_tasks, parse_object

if TYPE_CHECKING:
    from natsctl.client.connection import Connection, Subscription


PING, INFO, STATS = "PING", "INFO", "STATS"


class _Identity(msgspec.Struct, kw_only=True):
    """Common beginning of every answer."""

    name: str
    id: str
    version: str
    metadata: dict[str, str] | None = None


class ServicePing(_Identity, kw_only=True):
    type: str = "io.nats.micro.v1.ping_response"


class Endpoint(msgspec.Struct, kw_only=True):
    name: str
    subject: str
    queue_group: str = ""
    metadata: dict[str, str] | None = None


class ServiceInfo(_Identity, kw_only=True):
    """Description of a service."""

    type: str = "io.nats.micro.v1.info_response"
    description: str = ""
    endpoints: list[Endpoint] = []


class EndpointStats(msgspec.Struct, kw_only=True):
    """Statistics of an endpoint since its service started; times in nanoseconds."""

    name: str
    subject: str
    queue_group: str = ""
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time: int = 0
    average_processing_time: int = 0
    data: Any | msgspec.UnsetType = msgspec.UNSET
    """Further data of the service."""


class ServiceStats(_Identity, kw_only=True):
    """Statistics of a service."""

    type: str = "io.nats.micro.v1.stats_response"
    started: str = ""
    endpoints: list[EndpointStats] = []


class Instance(msgspec.Struct):
    info: ServiceInfo
    stats: ServiceStats


class Pinged(ServicePing, kw_only=True):
    """The answer to a ping, and the nanoseconds until it came."""

    rtt: int


T = TypeVar("T")

PREFIX = "$SRV"
_KINDS: dict[str, type[Any]] = {PING: ServicePing, INFO: ServiceInfo, STATS: ServiceStats}


class ServiceAnswer(Generic[T]):
    """An instance's answer: `raw` as it was sent, `value` typed, `rtt_ns` until it came."""

    __slots__ = ("raw", "rtt_ns", "value")

    def __init__(self, raw: dict[str, Any], value: T, rtt_ns: int) -> None:
        self.raw, self.value, self.rtt_ns = raw, value, rtt_ns


class EndpointNotFoundError(NatsctlError):
    """A service has no endpoint of that name; `known` are the others."""

    exit_code = ExitCode.NOT_FOUND

    def __init__(self, service: str, endpoint: str, known: list[str]) -> None:
        has = f"available: {', '.join(known)}" if known else "it has no endpoints"
        super().__init__(f'service {service} has no endpoint "{endpoint}"', hint=has)
        self.known = known


async def pings(connection: Connection, service: str = "", instance: str = "") -> list[ServiceAnswer[ServicePing]]:
    """Return every instance that answers to a ping, in the order of the answers; raises as `_question`."""
    return await _question(connection, PING, service, instance)


async def infos(connection: Connection, service: str = "", instance: str = "") -> list[ServiceAnswer[ServiceInfo]]:
    """Return the description of every instance, sorted by name and id; raises as `_question`."""
    return _sorted(await _question(connection, INFO, service, instance))


async def stats(connection: Connection, service: str = "", instance: str = "") -> list[ServiceAnswer[ServiceStats]]:
    """Return the statistics of every instance, sorted by name and id; raises as `_question`."""
    return _sorted(await _question(connection, STATS, service, instance))


async def endpoint(connection: Connection, service: str, name: str) -> Endpoint:
    """Return the endpoint of that name; raises EndpointNotFoundError, or as `_question`."""
    found = await _question(connection, INFO, service, "", report=False)
    endpoints: list[Endpoint] = [one for said in found for one in said.value.endpoints]
    for one in endpoints:
        if one.name == name:
            return one
    raise EndpointNotFoundError(service, name, sorted({one.name for one in endpoints}))


def _sorted(found: list[ServiceAnswer[T]]) -> list[ServiceAnswer[T]]:
    return sorted(found, key=lambda said: (str(said.raw.get("name")), str(said.raw.get("id"))))


async def _question(
    connection: Connection, verb: str, service: str, instance: str, *, report: bool = True
) -> list[ServiceAnswer[Any]]:
    """Return the answers of the chosen instances: all, a service's, or one.

    Raises UnreachableError without answers. Invalid answers are left out, and reported if `report`.
    """
    subject = ".".join(filter(None, (PREFIX, verb, service, instance)))
    if not is_valid_subject(subject) or "*" in subject or ">" in subject or subject.count(".") > 3:
        raise UsageError(f"{service!r} is not a service name")
    limits = ReplyLimits(limit=1 if instance else 0)
    heard: list[tuple[Message, int]] = []
    try:
        async for message, rtt_ns in ask(connection, Outgoing(subject, b""), limits):
            heard.append((message, rtt_ns))
    except UnreachableError as failure:
        raise _unanswered(failure, service, instance) from failure

    def read(answer: tuple[Message, int]) -> ServiceAnswer[Any]:
        raw = parse_object(answer[0].body, subject)
        return ServiceAnswer(raw, _typed(raw, verb, subject), answer[1])

    received = connection.received if report else Received()
    return received.readable(heard, read, lambda answer: f"an answer on {subject}: {answer[0].body[:64]!r}")


def _typed(raw: dict[str, Any], verb: str, subject: str) -> Any:
    """Return an answer as a model; JSON's null counts as missing, because some libraries write it."""
    fields = {name: value for name, value in raw.items() if value is not None}
    try:
        return msgspec.convert(fields, _KINDS[verb])
    except msgspec.ValidationError as failure:
        raise ProtocolError(f"the answer on {subject} is not understood: {failure}") from failure


def _unanswered(failure: UnreachableError, service: str, instance: str) -> UnreachableError:
    if instance:
        text, hint = f"no instance {instance} of service {service} answered", f"natsctl service ls {service}"
    elif service:
        text, hint = f"no service {service} answered", "natsctl service ls shows the services that answer"
    else:
        text, hint = "no service answered", "there may be no services in the account of this login"
    unreachable = UnreachableError(text, hint=hint)
    unreachable.subject = failure.subject
    return unreachable


_NAME = re.compile(r"[A-Za-z0-9_-]+")
QUEUE = "q"
"""The queue group that services share requests in unless they say otherwise."""

Handle = Callable[["Message"], tuple[bytes, HeaderLike]]


class EchoService:
    """One instance; `run` serves until it is cancelled or the connection ends."""

    def __init__(self, name: str, headers: HeaderLike = ()) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a service name: letters, digits, _ and - only")
        self._headers = headers
        self._started = format_time(time.time_ns())
        self.info = ServiceInfo(
            name=name,
            id=uuid.uuid4().hex[:22],
            version="1.0.0",
            metadata={"natsctl": __version__},
            description="Echoes requests",
            endpoints=[Endpoint(name="echo", subject=f"{name}.echo", queue_group=QUEUE)],
        )
        self._done = EndpointStats(name="echo", subject=f"{name}.echo", queue_group=QUEUE)

    async def run(
        self, connection: Connection, listening: Callable[[], None], handled: Callable[[Message], None]
    ) -> None:
        """Answer requests; `listening` is called once it is subscribed, `handled` for each request to `echo`."""

        def echo(message: Message) -> tuple[bytes, HeaderLike]:
            handled(message)
            return message.body, self._headers

        heard = [(await connection.subscribe(subject, lasting=True), handle) for subject, handle in self._verbs()]
        heard.append((await connection.subscribe(self._done.subject, queue=QUEUE, lasting=True), self._counted(echo)))
        await connection.flush()
        listening()
        tasks = [asyncio.create_task(_serve(connection, subscription, handle)) for subscription, handle in heard]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end_tasks(tasks)

    def _verbs(self) -> list[tuple[str, Handle]]:
        identity = {name: getattr(self.info, name) for name in ("name", "id", "version", "metadata")}
        answers: dict[str, Callable[[], msgspec.Struct]] = {
            PING: lambda: ServicePing(**identity),
            INFO: lambda: self.info,
            STATS: lambda: ServiceStats(**identity, started=self._started, endpoints=[self._done]),
        }

        def handle(verb: str) -> Handle:
            return lambda message: (msgspec.json.encode(answers[verb]()), ())

        name, id = self.info.name, self.info.id
        return [
            (f"{PREFIX}.{verb}{tail}", handle(verb)) for verb in answers for tail in ("", f".{name}", f".{name}.{id}")
        ]

    def _counted(self, handle: Handle) -> Handle:
        def counted(message: Message) -> tuple[bytes, HeaderLike]:
            before = time.perf_counter_ns()
            answer = handle(message)
            done = self._done
            done.num_requests += 1
            done.processing_time += time.perf_counter_ns() - before
            done.average_processing_time = done.processing_time // done.num_requests
            return answer

        return counted


async def _serve(connection: Connection, subscription: Subscription, handle: Handle) -> None:
    async for message in subscription:
        body, headers = handle(message)
        if message.reply:
            await connection.publish(message.reply, body, headers=headers or None)
