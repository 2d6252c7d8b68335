"""Requests to the JetStream API and their answers, as sent and typed."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from itertools import islice
from types import SimpleNamespace

from natsctl.api.endpoints import ApiEndpoint
from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, ProtocolError, UnreachableError
from natsctl.api.units import plural
from natsctl.client.message import NO_RESPONDERS, DryRunError, Planned
from natsctl.hints import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeAlias, TypeVar

if TYPE_CHECKING:
    import asyncio

    from natsctl.api.catalogue import ApiError
    from natsctl.client.connection import Connection


S = TypeVar("S")
T = TypeVar("T")
ListedFields: TypeAlias = Mapping[str, Any]
"""Fields of the entries of a list, each with the value of an absent one; the fields of an object are in a dictionary.

They are read without the models: to import these takes longer than the rest of a short command.
"""


class Answer(Generic[T]):
    """`raw` is the JSON object as the server sent it, with unknown fields.

    `value` is the same as a model, made on first use. `kind` is that model, its path below `natsctl.api`, or the
    endpoint that knows it. `fields` are enough for an entry of a list: `value` has only them, unless they are unusual.
    """

    __slots__ = ("_body", "_kind", "_raw", "_value", "subject")

    def __init__(
        self,
        kind: type[T] | str | ApiEndpoint,
        subject: str,
        body: bytes = b"",
        raw: dict[str, Any] | None = None,
        fields: ListedFields | None = None,
    ) -> None:
        self.subject = subject
        self._kind = kind
        self._body = body
        self._raw = raw
        self._value: T | None = _listed(raw, fields) if fields else None

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
            self._value = self.checked()
        return self._value

    def checked(self) -> T:
        """Return a new model of `raw`; raises ProtocolError as `value`."""
        import msgspec

        kind: Any = self._kind
        if isinstance(kind, ApiEndpoint):
            kind = kind.answer
        elif isinstance(kind, str):
            module, _, name = kind.partition(".")
            kind = getattr(__import__(f"natsctl.api.{module}", fromlist=[name]), name)
        try:
            return msgspec.convert(self.raw, kind)  # type: ignore[no-any-return]  # the model of this kind
        except (msgspec.ValidationError, RecursionError) as failure:
            raise not_understood(self.subject, failure) from failure


def _listed(entry: Any, fields: ListedFields) -> Any:
    """Return these fields of an entry as attributes, as its model has them; None if one has another type."""
    if not isinstance(entry, dict):
        return None
    values: dict[str, Any] = {}
    for name, absent in fields.items():
        value = entry.get(name, absent)
        values[name] = _listed(value, absent) if isinstance(absent, dict) else value
        if values[name] is None or (value is not absent and type(value) is not type(absent)):
            return None
    return SimpleNamespace(**values)


class Listing(list[T]):
    """The entries of all pages; `raw` is the answer of the first page with the entries of all."""

    def __init__(self, entries: list[T], raw: dict[str, Any]) -> None:
        super().__init__(entries)
        self.raw = raw


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if abs(number) != float("inf") else _refuse(text)


_decoder = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
"""Decoder of standard JSON, without NaN and infinite numbers: other programs could not read these."""


_HALF: Final = b"\\ud"


def not_understood(subject: str, reason: object) -> ProtocolError:
    """Return the error for an answer of another form than the contract's."""
    failure = ProtocolError(f"the answer on {subject} is not understood: {reason}")
    failure.subject = subject
    return failure


def number_in(raw: dict[str, Any], key: str, subject: str) -> int:
    """Return a count of an answer, 0 without one; raises ProtocolError for anything else."""
    value = raw.get(key)
    if value is None:
        return 0
    if not isinstance(value, int) or value < 0:
        raise not_understood(subject, f"{key} is {value!r:.40}")
    return int(value)


def list_in(raw: dict[str, Any], key: str, subject: str) -> list[Any]:
    """Return a list of an answer, empty without one; raises ProtocolError for anything else."""
    value = raw.get(key)
    if not isinstance(value, list | None):
        raise not_understood(subject, f"{key} is {value!r:.40}")
    return value or []


def parse_object(body: bytes, subject: str) -> dict[str, Any]:
    """Return the JSON object of an answer; raises ProtocolError."""
    try:
        raw = _decoder.decode(body.decode())
        if _HALF in body.lower():  # half a surrogate pair cannot be written again
            json.dumps(raw, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as failure:
        raise ProtocolError(f"the answer on {subject} is not JSON: {body[:64]!r}") from failure
    if not isinstance(raw, dict):
        raise ProtocolError(f"the answer on {subject} is not a JSON object: {body[:64]!r}")
    return raw


MAX_PAGES = 100_000
IDLE_PAGES = 32
"""Pages in a row without a new entry after which a list ends: entries made meanwhile move others by less."""
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

    async def ask(
        self,
        endpoint: ApiEndpoint,
        *tokens: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer[Any]:
        """Return the answer of that endpoint for those names; `body` is a model, plain JSON values, or None for none.

        Raises ApiResponseError for an error answer, JetStreamNotEnabledError for no responders, UnreachableError for no
        answer, NotAuthorisedError; in a dry run DryRunError if the endpoint changes something.
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
        answer: Answer[Any] = Answer(endpoint, subject, raw=raw)
        self.connection.received.note(answer)
        return answer

    async def exchange(
        self,
        subject: str,
        payload: bytes,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float | None = None,
        once: bool = False,
    ) -> dict[str, Any]:
        """Return the JSON object that answers a request; it may be repeated unless `once`.

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
        self.connection.trace(subject, payload)
        try:
            message = await self.connection.request(subject, payload, headers=headers, timeout_s=timeout_s)
        except UnreachableError as failure:
            if (tracer := self.connection.tracer) is not None:
                tracer.failure(subject, failure.text)
            failure.subject = subject
            raise
        self.connection.trace_answer(subject, message)
        if message.status == NO_RESPONDERS:
            raise self._absent(subject)
        raw = parse_object(message.body, subject)
        if error := raw.get("error"):
            refusal = api_error(error)
            raise ApiResponseError(refusal, subject, hint=self._peers(refusal.err_code))
        return raw

    def _peers(self, err_code: int) -> str:
        """Return how many servers a cluster without suitable peers has; "" for other errors, and if it is not known.

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
        self, endpoint: ApiEndpoint, key: str, *tokens: str, body: dict[str, Any] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the raw answer of each page of a list as it comes, in order, with new entries only; raises as `ask`.

        An entry that is made while the list is read moves others to a later page. Pages after the first are asked for
        side by side, until all have come or `IDLE_PAGES` in a row have nothing new, whatever total the server names.
        """
        seen: set[str] = set()
        idle = 0

        def fresh(page: dict[str, Any]) -> dict[str, Any]:
            entries = {_name(entry): entry for entry in list_in(page, key, subject)}
            found = [entry for name, entry in entries.items() if name not in seen]
            seen.update(entries)
            return {**page, key: found} if key in page else page

        subject = endpoint.subject(*tokens, prefix=self.connection.target.api_prefix)

        async def page(offset: int) -> dict[str, Any]:
            return await self.exchange(subject, json.dumps({**(body or {}), "offset": offset}).encode())

        first = await page(0)
        limit, total = number_in(first, "limit", subject), number_in(first, "total", subject)
        offsets = iter(range(limit, total, limit)[:MAX_PAGES] if limit else ())
        start = self.connection.start
        running = deque(start(page(offset)) for offset in islice(offsets, PAGES_AT_ONCE))
        try:
            yield fresh(first)
            while running:
                one = fresh(await running.popleft())
                idle = 0 if one.get(key) else idle + 1
                if idle > IDLE_PAGES:
                    return
                running += (start(page(offset)) for offset in islice(offsets, 1))
                yield one
        finally:
            await self.connection.end(running)

    async def pages(
        self, endpoint: ApiEndpoint, key: str, *tokens: str, body: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return the raw answers of every page of a list, in order."""
        return [page async for page in self.each_page(endpoint, key, *tokens, body=body)]

    async def name_pages(
        self, endpoint: ApiEndpoint, key: str, *tokens: str, body: dict[str, Any] | None = None
    ) -> AsyncIterator[list[str]]:
        """Yield the names of each page of a list as it comes, each once, sorted as the server sorts."""
        async for page in self.each_page(endpoint, key, *tokens, body=body):
            yield self._texts(endpoint, page.get(key) or ())

    def _texts(self, endpoint: ApiEndpoint, names: Iterable[Any]) -> list[str]:
        for name in names:
            if not isinstance(name, str):
                self.connection.received.leave_out(f"a name on {endpoint.name} is not understood: {name!r:.40}")
        return [name for name in names if isinstance(name, str)]

    async def names(
        self, endpoint: ApiEndpoint, key: str, *tokens: str, body: dict[str, Any] | None = None
    ) -> Listing[str]:
        """Return every name of a paged list, each once, sorted as the server sorts."""
        pages = await self.pages(endpoint, key, *tokens, body=body)
        found = [name for page in pages for name in self._texts(endpoint, page.get(key) or ())]
        return Listing(found, {**pages[0], key: found})

    async def entry_pages(
        self,
        endpoint: ApiEndpoint,
        key: str,
        kind: str,
        *tokens: str,
        body: dict[str, Any] | None = None,
        fields: ListedFields | None = None,
    ) -> AsyncIterator[Listing[Answer[Any]]]:
        """Yield the entries of each page of a list as it comes, each once, without those not of `kind`.

        With `fields` only these are looked at, and the `value` of an entry may have only these.
        """

        def read(entry: Any) -> Answer[Any]:
            answer: Answer[Any] = Answer(kind, endpoint.name, raw=entry, fields=fields)
            _ = answer.value
            return answer

        async for page in self.each_page(endpoint, key, *tokens, body=body):
            found = self.connection.received.readable(
                page.get(key) or (),
                read,
                lambda entry: f"{endpoint.name.partition('.')[0].capitalize()} {_name(entry)}",
            )
            yield Listing(found, page)

    async def entries(
        self,
        endpoint: ApiEndpoint,
        key: str,
        kind: str,
        *tokens: str,
        body: dict[str, Any] | None = None,
        fields: ListedFields | None = None,
    ) -> Listing[Answer[Any]]:
        """Return every entry of a paged list, each once; `fields` as in `entry_pages`."""
        pages = [page async for page in self.entry_pages(endpoint, key, kind, *tokens, body=body, fields=fields)]
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


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended; asyncio logs no failure of them as never retrieved."""
    import asyncio

    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def side_by_side(work: Callable[[S], Awaitable[T]], items: Iterable[S], at_once: int) -> list[T]:
    """Return the results of `work` of each item, of at most so many at a time.

    Raises the first failure, once the work that was under way has been cancelled.
    """
    import asyncio

    gate = asyncio.Semaphore(max(at_once, 1))

    async def admitted(item: S) -> T:
        async with gate:
            return await work(item)

    tasks = [asyncio.ensure_future(admitted(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await end_tasks(tasks)


async def together(connection: Connection, *work: Coroutine[Any, Any, T]) -> list[T]:
    """Return the results of requests that are sent before the first answer is awaited."""
    tasks = [connection.start(one) for one in work]
    try:
        return [await task for task in tasks]
    finally:
        await connection.end(tasks)


def encoded(body: Any) -> bytes:
    """Return a request body: a model or plain JSON values; nothing for None."""
    if body is None:
        return b""
    from natsctl.api import codec

    return codec.encode(body)


def _name(entry: Any) -> str:
    """Return the name of an entry: a name itself, or a stream's or a consumer's information."""
    if not isinstance(entry, dict):
        return str(entry)
    config = entry.get("config")
    return str(entry.get("name") or (config.get("name") if isinstance(config, dict) else None))


def _merge_unreachable(merged: dict[str, Any], pages: list[dict[str, Any]], name: str) -> None:
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
    code, err_code = (value if isinstance(value := error.get(key), int) else 0 for key in ("code", "err_code"))
    return ApiError(
        code=code,
        err_code=err_code,
        description=str(error.get("description") or "unspecified error"),
    )
