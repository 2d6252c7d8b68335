"""Requests to the JetStream API and their answers, as sent and typed."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from natsctl.api.endpoints import Endpoint
from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, ProtocolError, UnreachableError
from natsctl.api.units import plural
from natsctl.client.message import NO_RESPONDERS, DryRunError, Planned

if TYPE_CHECKING:
    from natsctl.api.catalogue import ApiError
    from natsctl.client.connection import Connection


T = TypeVar("T")


class Answer(Generic[T]):
    """`raw` is the JSON object as the server sent it, with unknown fields.

    `value` is the same as a model, made on first use. `kind` is that model, its name in `natsctl.api.requests`, or the
    endpoint that knows it.
    """

    __slots__ = ("_body", "_kind", "_raw", "_value", "subject")

    def __init__(
        self, kind: type[T] | str | Endpoint, subject: str, body: bytes = b"", raw: dict[str, Any] | None = None
    ) -> None:
        self.subject = subject
        self._kind = kind
        self._body = body
        self._raw = raw
        self._value: T | None = None

    @property
    def raw(self) -> dict[str, Any]:
        """Return the JSON object; raises ProtocolError if the answer is not one."""
        if self._raw is None:
            self._raw = parse_object(self._body, self.subject)
        return self._raw

    @property
    def value(self) -> T:
        """Return the typed model; raises ProtocolError if a field has another type than the contract's."""
        if self._value is None:
            import msgspec

            kind: Any = self._kind
            if isinstance(kind, Endpoint):
                kind = kind.answer
            elif isinstance(kind, str):
                from natsctl.api import requests

                kind = getattr(requests, kind)
            try:
                self._value = msgspec.convert(self.raw, kind)
            except msgspec.ValidationError as failure:
                raise ProtocolError(f"the answer on {self.subject} is not understood: {failure}") from failure
        return self._value


class Listing(list[T]):
    """The entries of all pages; `raw` is the answer of the first page with the entries of all."""

    def __init__(self, entries: list[T], raw: dict[str, Any]) -> None:
        super().__init__(entries)
        self.raw = raw


def parse_object(body: bytes, subject: str) -> dict[str, Any]:
    """Return the JSON object of an answer; raises ProtocolError."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as failure:
        raise ProtocolError(f"the answer on {subject} is not JSON: {body[:64]!r}") from failure
    if not isinstance(raw, dict):
        raise ProtocolError(f"the answer on {subject} is not a JSON object: {body[:64]!r}")
    return raw


MAX_PAGES = 100_000
PAGES_AT_ONCE = 8
"""Pages of one list that are asked for at a time."""
NO_LEADER: Final = frozenset((ErrCode.CLUSTER_NOT_AVAIL, ErrCode.CLUSTER_NOT_LEADER))
"""Errors of a cluster that elects a leader: JetStream unavailable, no leader of a stream. Nothing was done."""
ELECTION_S: Final = 15.0
"""Time that a request may take in all while a cluster elects a leader, unless the user set a timeout.

Elections need 4 to 9 seconds if a server is lost.
"""
PAUSE_S: Final = 0.25
NOT_THERE: Final = frozenset((ErrCode.STREAM_NOT_FOUND, ErrCode.CONSUMER_NOT_FOUND))


class JetStreamNotEnabledError(UnreachableError):
    """The JetStream API has no responders."""


class Requests:
    """API requests on one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.answered: dict[tuple[str, bytes], dict[str, Any]] = {}
        """First pages of lists that another connection has received, by subject and body; each is used once."""

    async def ask(
        self,
        endpoint: Endpoint,
        *tokens: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer[Any]:
        """Return the answer of that endpoint for those names; `body` is a model, plain JSON values, or None for none.

        Raises ApiResponseError for an error answer, JetStreamNotEnabledError for no responders, UnreachableError for no
        answer, NotAuthorisedError; in a dry run DryRunError where the endpoint changes something.
        """
        subject = endpoint.subject(*tokens, prefix=self.connection.target.api_prefix)
        payload = encoded(body)
        if endpoint.changes and self.connection.dry_run:
            raise DryRunError(Planned(subject, json.loads(payload) if payload else None, headers))
        unheard = False

        async def send() -> dict[str, Any]:
            nonlocal unheard
            try:
                return await self._exchange(subject, payload, headers, timeout_s)
            except UnreachableError:
                unheard = True
                raise
            except ApiResponseError as failure:
                if unheard and failure.err_code in NOT_THERE and endpoint.name.endswith(".DELETE"):
                    return {"success": True}  # the request that was not answered has removed it
                raise

        raw = await patiently(self.connection, send, may_repeat=endpoint.may_repeat(*tokens), timeout_s=timeout_s)
        return Answer(endpoint, subject, raw=raw)

    async def exchange(
        self,
        subject: str,
        payload: bytes,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float | None = None,
        once: bool = False,
    ) -> dict[str, Any]:
        """Return the JSON object that answers a request, which may be repeated unless it is to be sent `once`.

        Raises as `ask`.
        """
        if once:
            return await self._exchange(subject, payload, headers, timeout_s)

        async def send() -> dict[str, Any]:
            return await self._exchange(subject, payload, headers, timeout_s)

        return await patiently(self.connection, send, timeout_s=timeout_s)

    async def _exchange(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, timeout_s: float | None
    ) -> dict[str, Any]:
        """Return the JSON object that answers one request, traced."""
        tracer = self.connection.tracer
        if tracer is not None:
            tracer.request(subject, payload)
        try:
            message = await self.connection.request(subject, payload, headers=headers, timeout_s=timeout_s)
        except UnreachableError as failure:
            if tracer is not None:
                tracer.failure(subject, failure.text)
            failure.subject = subject
            raise
        if tracer is not None:
            tracer.answer(subject, message.body or f"{message.status} {message.description}".encode())
        if message.status == NO_RESPONDERS:
            raise self._absent(subject)
        raw = parse_object(message.body, subject)
        if error := raw.get("error"):
            refusal = api_error(error)
            raise ApiResponseError(refusal, subject, hint=self._peers(refusal.err_code))
        return raw

    def _peers(self, err_code: int) -> str:
        """Return how many servers a cluster without suitable peers has; "" for other errors, and where it is not known.

        INFO has every address of every server: an IPv4 and an IPv6 address are one server, and so are two ports' hosts.
        """
        urls = (
            getattr(self.connection, "info", {}).get("connect_urls") if err_code == ErrCode.CLUSTER_NO_PEERS else None
        )
        if not urls:
            return ""
        addresses = [str(url).rpartition(":") for url in urls]
        hosts = {host for host, _, _ in addresses if not host.startswith("[")} or {host for host, _, _ in addresses}
        servers = max(len(hosts), len({port for _, _, port in addresses}))
        return f"the cluster has {plural(servers, 'server')}; each replica needs one of its own"

    def _absent(self, subject: str) -> JetStreamNotEnabledError:
        failure = JetStreamNotEnabledError(
            f"no responders on {subject}: JetStream is not enabled there",
            hint="start the server with -js, or check --js-domain and the account",
        )
        failure.subject = subject
        return failure

    async def each_page(
        self, endpoint: Endpoint, *tokens: str, body: dict[str, Any] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the raw answer of each page of a list as it comes, in order; raises as `ask`.

        Those after the first are asked for side by side.
        """

        subject = endpoint.subject(*tokens, prefix=self.connection.target.api_prefix)

        def asked(offset: int) -> bytes:
            return json.dumps({**(body or {}), "offset": offset}).encode()

        async def page(offset: int) -> dict[str, Any]:
            return await self.exchange(subject, asked(offset))

        first = self.answered.pop((subject, asked(0)), None) or await page(0)
        limit, total = int(first.get("limit") or 0), int(first.get("total") or 0)
        if not 0 < limit < total:
            yield first
            return
        if not self.connection.concurrent:
            from natsctl.client.one_shot import NeedsMoreError

            raise NeedsMoreError({(subject, asked(0)): first})
        import asyncio

        yield first
        offsets = iter(range(limit, total, limit)[:MAX_PAGES])
        running = deque(asyncio.create_task(page(offset)) for offset in islice(offsets, PAGES_AT_ONCE))
        try:
            while running:
                one = await running.popleft()
                running += (asyncio.create_task(page(offset)) for offset in islice(offsets, 1))
                yield one
        finally:
            for task in running:
                task.cancel()
            # Their failures are those of the awaited page; asyncio would log them as never retrieved.
            await asyncio.gather(*running, return_exceptions=True)

    async def pages(self, endpoint: Endpoint, *tokens: str, body: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the raw answers of every page of a list, in order."""
        return [page async for page in self.each_page(endpoint, *tokens, body=body)]

    async def name_pages(
        self, endpoint: Endpoint, key: str, *tokens: str, body: dict[str, Any] | None = None
    ) -> AsyncIterator[list[str]]:
        """Yield the names of each page of a list as it comes, each once, sorted as the server sorts."""
        seen: set[str] = set()
        async for page in self.each_page(endpoint, *tokens, body=body):
            found = [name for name in dict.fromkeys(page.get(key) or ()) if name not in seen]
            seen.update(found)
            yield found

    async def names(
        self, endpoint: Endpoint, key: str, *tokens: str, body: dict[str, Any] | None = None
    ) -> Listing[str]:
        """Return every name of a paged list, each once, sorted as the server sorts."""
        pages = await self.pages(endpoint, *tokens, body=body)
        found = list(dict.fromkeys(name for page in pages for name in page.get(key) or ()))
        return Listing(found, {**pages[0], key: found})

    async def entry_pages(
        self, endpoint: Endpoint, key: str, kind: type[Any], *tokens: str, body: dict[str, Any] | None = None
    ) -> AsyncIterator[Listing[Answer[Any]]]:
        """Yield the entries of each page of a list as it comes, each once.

        One that is made while the list is read moves others to a later page.
        """
        seen: set[str] = set()
        async for page in self.each_page(endpoint, *tokens, body=body):
            found = {name: entry for entry in page.get(key) or () if (name := _name(entry)) not in seen}
            seen.update(found)
            yield Listing([Answer(kind, endpoint.name, raw=entry) for entry in found.values()], page)

    async def entries(
        self, endpoint: Endpoint, key: str, kind: type[Any], *tokens: str, body: dict[str, Any] | None = None
    ) -> Listing[Answer[Any]]:
        """Return every entry of a paged list, each once."""
        pages = [page async for page in self.entry_pages(endpoint, key, kind, *tokens, body=body)]
        answers = [answer for page in pages for answer in page]
        merged = {**pages[0].raw, key: [answer.raw for answer in answers]}
        for name in ("missing", "offline"):
            _merge_unreachable(merged, [page.raw for page in pages], name)
        return Listing(answers, merged)


async def patiently(
    connection: Connection,
    send: Callable[[], Awaitable[T]],
    *,
    may_repeat: bool = True,
    timeout_s: float | None = None,
) -> T:
    """Return the result of `send`, a request; on a connection that reconnects it is sent again after a server has died.

    What may not be repeated (`may_repeat`) is sent again only where the answer says that nothing was done.
    """
    if not connection.reconnects:
        return await send()
    import asyncio

    until_s = time.monotonic() + election_s(connection, timeout_s)
    failure: NatsctlError | None = None
    while True:
        try:
            async with asyncio.timeout(until_s - time.monotonic() if failure else None):
                return await send()
        except TimeoutError:
            if failure is None:
                raise
            raise failure from None
        except (UnreachableError, ApiResponseError) as reason:
            said, failure = failure is not None, reason
        if not _may_help(failure, may_repeat):
            raise failure
        if connection.lost:
            await connection.reopen()
            failure, until_s = None, time.monotonic() + election_s(connection, timeout_s)
            continue
        if time.monotonic() + PAUSE_S >= until_s:
            raise failure
        if not said:
            connection.notify(
                f"{failure.text}: waiting for a leader, for at most {election_s(connection, timeout_s):g}s"
            )
        await asyncio.sleep(PAUSE_S)


def election_s(connection: Connection, timeout_s: float | None = None) -> float:
    """Return the seconds that a request may take in all while a leader is elected: --timeout if it was given."""
    return timeout_s or connection.target.settings.timeout_s or ELECTION_S


def _may_help(failure: NatsctlError, may_repeat: bool) -> bool:
    if isinstance(failure, ApiResponseError):
        return failure.err_code in NO_LEADER
    return may_repeat and not isinstance(failure, JetStreamNotEnabledError)


async def together(connection: Connection, *work: Coroutine[Any, Any, T]) -> list[T]:
    """Return the results of requests, which are made side by side where the connection can do that."""
    if connection.concurrent:
        import asyncio

        return await asyncio.gather(*work)
    try:
        return [await one for one in work]
    finally:
        for one in work:
            one.close()


def encoded(body: Any) -> bytes:
    """Return a request body: a model or plain JSON values; nothing for None."""
    if body is None:
        return b""
    from natsctl.api import codec

    return codec.encode(body)


def _name(entry: dict[str, Any]) -> str:
    """Return the name of a stream's or a consumer's information."""
    return str(entry.get("name") or (entry.get("config") or {}).get("name"))


def _merge_unreachable(merged: dict[str, Any], pages: list[dict[str, Any]], name: str) -> None:
    """Record the entries that a page reports as missing."""
    for page in pages[1:]:
        said = page.get(name)
        if isinstance(said, list):
            merged[name] = [*(merged.get(name) or ()), *said]
        elif isinstance(said, dict):
            merged[name] = {**(merged.get(name) or {}), **said}


def api_error(error: Any) -> ApiError:
    """Return the error object of an answer; absent members are 0 or empty."""
    from natsctl.api.catalogue import ApiError

    if not isinstance(error, dict):
        return ApiError(code=500, description=str(error))
    return ApiError(
        code=int(error.get("code") or 0),
        err_code=int(error.get("err_code") or 0),
        description=str(error.get("description") or "unspecified error"),
    )
