"""Services of the micro protocol: who is there, what they do, and where they are asked for it.

Every instance of a service answers on `$SRV.<verb>`, `$SRV.<verb>.<name>` and `$SRV.<verb>.<name>.<id>`; a question to
several ends when no further one has answered for a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from natsctl.api.errors import NatsctlError, ProtocolError, UnreachableError, UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.api.subjects import is_valid_subject
from natsctl.client.answer import parse_object
from natsctl.client.messaging.exchange import Awaited, ask
from natsctl.client.messaging.outgoing import Outgoing
from natsctl.client.services.documents import INFO, PING, STATS, Endpoint, ServiceInfo, ServicePing, ServiceStats

if TYPE_CHECKING:
    from natsctl.client.connection import Connection

T = TypeVar("T")

PREFIX = "$SRV"
_KINDS: dict[str, type[Any]] = {PING: ServicePing, INFO: ServiceInfo, STATS: ServiceStats}


class Said(Generic[T]):
    """An instance's answer: `raw` as it was sent, `value` typed, `rtt_ns` until it came."""

    __slots__ = ("raw", "rtt_ns", "value")

    def __init__(self, raw: dict[str, Any], value: T, rtt_ns: int) -> None:
        self.raw, self.value, self.rtt_ns = raw, value, rtt_ns


class EndpointNotFoundError(NatsctlError):
    """A service has no endpoint of that name; `known` are those that it has."""

    exit_code = ExitCode.NOT_FOUND

    def __init__(self, service: str, endpoint: str, known: list[str]) -> None:
        has = f"available: {', '.join(known)}" if known else "it has none"
        super().__init__(f'service {service} has no endpoint "{endpoint}"', hint=has)
        self.known = known


async def pings(connection: Connection, service: str = "", instance: str = "") -> list[Said[ServicePing]]:
    """Every instance that answers to a ping, in the order of the answers; raises as `_question`."""
    return await _question(connection, PING, service, instance)


async def infos(connection: Connection, service: str = "", instance: str = "") -> list[Said[ServiceInfo]]:
    """What every instance is and does, sorted by name and id; raises as `_question`."""
    return _sorted(await _question(connection, INFO, service, instance))


async def stats(connection: Connection, service: str = "", instance: str = "") -> list[Said[ServiceStats]]:
    """What every instance has done, sorted by name and id; raises as `_question`."""
    return _sorted(await _question(connection, STATS, service, instance))


async def endpoint(connection: Connection, service: str, name: str) -> Endpoint:
    """The endpoint of that name; raises EndpointNotFoundError, or as `_question`."""
    found = await infos(connection, service)
    endpoints = [one for said in found for one in said.value.endpoints]
    for one in endpoints:
        if one.name == name:
            return one
    raise EndpointNotFoundError(service, name, sorted({one.name for one in endpoints}))


def _sorted(found: list[Said[T]]) -> list[Said[T]]:
    return sorted(found, key=lambda said: (str(said.raw.get("name")), str(said.raw.get("id"))))


async def _question(connection: Connection, verb: str, service: str, instance: str) -> list[Said[Any]]:
    """The answers of the instances that are meant: all, those of a service, or one.

    Raises UnreachableError when there is none, ProtocolError for an answer that is none of the protocol's.
    """
    subject = ".".join(filter(None, (PREFIX, verb, service, instance)))
    if not is_valid_subject(subject) or "*" in subject or ">" in subject or subject.count(".") > 3:
        raise UsageError(f"{service!r} is not a service name")
    awaited = Awaited(limit=1 if instance else 0)
    found = []
    try:
        async for message, rtt_ns in ask(connection, Outgoing(subject, b""), awaited):
            raw = parse_object(message.body, subject)
            found.append(Said(raw, _typed(raw, verb, subject), rtt_ns))
    except UnreachableError as failure:
        raise _nobody(failure, service, instance) from failure
    return found


def _typed(raw: dict[str, Any], verb: str, subject: str) -> Any:
    """An answer as a model; JSON's null stands for what is absent, as some libraries write it."""
    told = {name: value for name, value in raw.items() if value is not None}
    try:
        return msgspec.convert(told, _KINDS[verb])
    except msgspec.ValidationError as failure:
        raise ProtocolError(f"the answer on {subject} is not understood: {failure}") from failure


def _nobody(failure: UnreachableError, service: str, instance: str) -> UnreachableError:
    if instance:
        text, hint = f"no instance {instance} of service {service} answered", f"natsctl service ls {service}"
    elif service:
        text, hint = f"no service {service} answered", "natsctl service ls shows those that do"
    else:
        text, hint = "no service answered", "services run in the account of this login, or there are none"
    told = UnreachableError(text, hint=hint)
    told.subject = failure.subject
    return told
