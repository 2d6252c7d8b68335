"""Requests of the system account to the servers on `$SYS.REQ`, and their answers.

A ping comes first: every server answers one broadcast with its statistics. They include the number of servers it knows,
so the ping ends as soon as all of those have answered, before the wait is over. Other requests then go to each chosen
server by its id, concurrently, page by page if an answer has pages.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from natsctl.api.catalogue import ApiError
from natsctl.api.errors import ApiResponseError, NatsctlError, NotAuthorisedError, ProtocolError, UnreachableError
from natsctl.client.connection import Connection
from natsctl.client.manager import Manager
from natsctl.client.message import NO_RESPONDERS, DryRunError, Message, Planned
from natsctl.client.requests import list_in, number_in, parse_object, side_by_side


@dataclass(frozen=True, slots=True)
class ServerScope:
    """Choice of servers: by name, id or host; by cluster; by tags (servers must have all of them).

    `expect` is the number of answers, 0 for as many as the servers know of each other.
    """

    name: str = ""
    cluster: str = ""
    tags: tuple[str, ...] = ()
    expect: int = 0

    def admits(self, server: dict[str, Any]) -> bool:
        if self.name and self.name not in (server.get("name"), server.get("id"), server.get("host")):
            return False
        if self.cluster and self.cluster != server.get("cluster"):
            return False
        tags = {str(tag).lower() for tag in server.get("tags") or ()}
        return all(tag.lower() in tags for tag in self.tags)

    @property
    def shown(self) -> str:
        said = [self.name, f"in cluster {self.cluster}" if self.cluster else ""]
        return " ".join(word for word in (*said, f"tagged {', '.join(self.tags)}" if self.tags else "") if word)


ALL = ServerScope()


class ServerAnswer:
    """Answer of one server: `raw` as it was sent, and how long it took."""

    __slots__ = ("raw", "rtt_ns")

    def __init__(self, raw: dict[str, Any], rtt_ns: int = 0) -> None:
        self.raw = raw
        self.rtt_ns = rtt_ns

    @property
    def server(self) -> dict[str, Any]:
        """Return the answering server: `name`, `id`, `host`, `ver`, perhaps `cluster`, `tags`, `jetstream`."""
        return _object(self.raw.get("server"))

    @property
    def name(self) -> str:
        return str(self.server.get("name") or "")

    @property
    def id(self) -> str:
        return str(self.server.get("id") or "")

    @property
    def cluster(self) -> str:
        return str(self.server.get("cluster") or "")

    @property
    def data(self) -> dict[str, Any]:
        """Return the answer's data; empty where the server refused."""
        return _object(self.raw.get("data") or self.raw.get("statsz"))

    @property
    def failure(self) -> ApiResponseError | None:
        """Return the refusal of the server, None without one."""
        error = self.raw.get("error")
        if not error:
            return None
        said = _object(error)
        text = str(said.get("description") or error)
        code = said.get("code")
        return ApiResponseError(ApiError(code=code if isinstance(code, int) else 500, description=text))


class ServerAnswers(list[ServerAnswer]):
    """Answers of servers, by name; `expected` is how many there should be."""

    def __init__(self, answers: Iterable[ServerAnswer], expected: int) -> None:
        super().__init__(sorted(answers, key=lambda answer: (answer.cluster, answer.name, answer.id)))
        self.expected = max(expected, 0)

    @property
    def missing(self) -> int:
        return max(0, self.expected - len(self))

    @property
    def raw(self) -> list[dict[str, Any]]:
        return [one.raw for one in self]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


EVERYBODY = "PING"
QUIET_S = 0.3
"""Seconds after the last answer where the number of answers is unknown."""
KNOWN_QUIET_S = 1.0
"""Seconds after the last answer when a server that the others know has not answered."""
PAGES = {"CONNZ": "connections", "SUBSZ": "subscriptions_list", "JSZ": "account_details"}
"""Fields of paged answers that have the entries."""
MAX_PAGES = 10_000
MAX_SIDE_BY_SIDE = 64
"""Requests to servers that are under way at once."""


class SystemAccountRequiredError(NotAuthorisedError):
    def __init__(self, subject: str) -> None:
        super().__init__(
            "only the system account may ask servers for this",
            hint="log in as a user of the system account ($SYS, or the system_account of the server's configuration): "
            "--user and --password, --creds, or a --context that has them",
        )
        self.subject = subject


class System:
    def __init__(self, manager: Manager) -> None:
        self.connection: Connection = manager.connection

    async def ping(self, scope: ServerScope = ALL) -> ServerAnswers:
        """Return the statistics of every chosen server.

        Raises SystemAccountRequiredError, UnreachableError when none answers.
        """

        def expected(answers: list[ServerAnswer]) -> int:
            known = (answer.data.get("active_servers") for answer in answers)
            return scope.expect or max((number for number in known if isinstance(number, int)), default=0)

        found = await gather(
            self.connection, _subject(EVERYBODY, "STATSZ"), expected=expected, patient=scope.expect > 0
        )
        meant = [one for one in found if scope.admits(one.server)]
        if not meant:
            raise _no_server(scope, found)
        known = expected(found) if found else 0
        return ServerAnswers(meant, scope.expect or known - (len(found) - len(meant)))

    async def ask(self, what: str, body: dict[str, Any] | None = None, scope: ServerScope = ALL) -> ServerAnswers:
        """Return the answer of each chosen server to `what`, such as `CONNZ`, with all pages."""
        servers = await self.ping(scope)
        return ServerAnswers(await self.ask_each(servers, what, body), servers.expected)

    async def ask_each(
        self, servers: Iterable[ServerAnswer], what: str, body: dict[str, Any] | None = None
    ) -> list[ServerAnswer]:
        """Return the answers of these servers; one that does not answer any more is left out."""

        async def ask(server: ServerAnswer) -> ServerAnswer | None:
            try:
                return await self._all_pages(server.id, what, body or {})
            except ProtocolError as failure:
                self.connection.received.leave_out(f"Server {server.name}: {failure.text}")
                return None
            except UnreachableError:
                return None

        answers = await side_by_side(ask, servers, MAX_SIDE_BY_SIDE)
        return [answer for answer in answers if answer is not None]

    async def ask_one(
        self, server: str, what: str, body: dict[str, Any] | None = None, *, changes: bool = False
    ) -> ServerAnswer:
        """Return the answer of the server with that name or id; raises ApiResponseError if it refuses.

        With `changes` nothing is sent in a dry run: DryRunError is raised.
        """
        found = await self.find(server)
        if changes and self.connection.dry_run:
            raise DryRunError(Planned(_subject(found.id, what), body))
        answer = await self._all_pages(found.id, what, body or {})
        if failure := answer.failure:
            failure.subject = _subject(found.id, what)
            raise failure
        return answer

    async def find(self, server: str) -> ServerAnswer:
        """Return the statistics of the one server of that name or id.

        Raises ServerNotFoundError with the known names.

        Without a name the server of this connection.
        """
        wanted = server or str(self.connection.info.get("server_id") or "")
        servers = await self.ping()
        named = [one for one in servers if wanted in (one.id, one.name)]
        if not named:
            raise ServerNotFoundError(wanted, [one.name for one in servers])
        if len(named) > 1:
            raise NatsctlError(
                f"{len(named)} servers are named {wanted}", hint="choose one by its id: natsctl server list shows them"
            )
        return named[0]

    async def of_accounts(
        self, what: str, body: dict[str, Any] | None = None, scope: ServerScope = ALL, account: str = EVERYBODY
    ) -> ServerAnswers:
        """Return the chosen servers' answers on `$SYS.REQ.ACCOUNT.<account>.<what>`, by default of all accounts."""
        servers = await self.ping()
        subject = f"$SYS.REQ.ACCOUNT.{account}.{what}"
        found = await gather(self.connection, subject, body, expected=lambda _: len(servers))
        meant = [one for one in found if scope.admits(one.server)]
        if not meant:
            raise _no_server(scope, found)
        return ServerAnswers(meant, scope.expect or len(meant))

    async def profiles(self, body: dict[str, Any], scope: ServerScope = ALL) -> ServerAnswers:
        """Return the profile of each server; it takes the `duration` (ns) in `body`."""
        before_s = self.connection.timeout_s
        self.connection.timeout_s += body.get("duration", 0) / 1e9
        try:
            return await self.ask("PROFILEZ", body, scope)
        finally:
            self.connection.timeout_s = before_s

    async def profile_of(self, server: ServerAnswer, body: dict[str, Any]) -> ServerAnswer:
        """Return the profile of one server; it takes the `duration` (ns) in `body`."""
        wait_s = self.connection.timeout_s + body.get("duration", 0) / 1e9
        return await exchange(self.connection, _subject(server.id, "PROFILEZ"), body, wait_s)

    async def _all_pages(self, server_id: str, what: str, body: dict[str, Any]) -> ServerAnswer:
        subject = _subject(server_id, what)
        return await every_page(PAGES.get(what, ""), body, lambda asked: exchange(self.connection, subject, asked))


class ServerNotFoundError(NatsctlError):
    """No server answers to a name; `known` are the answering ones."""

    exit_code = 3

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no server is named {name}", hint=f"known are: {', '.join(known)}" if known else "")
        self.name = name
        self.known = known


async def in_system_account(connection: Connection) -> bool:
    """Return whether the logged-in user belongs to the system account: only there servers answer."""
    try:
        answer = await connection.request(_subject(str(connection.info.get("server_id")), "STATSZ"))
    except NatsctlError:
        return False
    return answer.status != NO_RESPONDERS


async def exchange(
    connection: Connection, subject: str, body: dict[str, Any] | None = None, timeout_s: float | None = None
) -> ServerAnswer:
    """Return the one answer to a request, traced; it may take `timeout_s` instead of the connection's time.

    Raises SystemAccountRequiredError without responders, UnreachableError without an answer.
    """
    payload = json.dumps(body).encode() if body else b""
    connection.trace(subject, payload)
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    message = await connection.request(subject, payload, timeout_s=timeout_s)
    return _read(connection, subject, message, loop.time() - begin_s)


async def gather(
    connection: Connection,
    subject: str,
    body: dict[str, Any] | bytes | None = None,
    *,
    expected: Callable[[list[ServerAnswer]], int] = lambda answers: 0,
    patient: bool = False,
) -> list[ServerAnswer]:
    """Return the answers of all servers to one broadcast.

    Ends when as many have come as `expected` computes from them, else after a pause; if `patient`, only the
    connection's timeout ends the wait for the expected ones. Raises SystemAccountRequiredError, UnreachableError when
    none comes.
    """
    payload = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
    connection.trace(subject, payload)
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox)
    subscription.watched = subject
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    end_s = begin_s + connection.timeout_s
    found: list[ServerAnswer] = []
    wait_s = connection.timeout_s
    try:
        await connection.publish(subject, payload, reply=inbox)
        while (message := await subscription.next(min(wait_s, end_s - loop.time()))) is not None:
            read = functools.partial(_read, connection, subject, elapsed_s=loop.time() - begin_s)
            found += connection.received.readable([message], read, lambda _: f"an answer on {subject}")
            count = expected(found) if found else 0
            if count and len(found) >= count:
                break
            wait_s = connection.timeout_s if patient and count else KNOWN_QUIET_S if count else QUIET_S
    finally:
        await subscription.stop()
    if not found:
        failure = UnreachableError(f"no server answered on {subject} within {connection.timeout_s:g}s")
        failure.subject = subject
        raise failure
    return found


def _read(connection: Connection, subject: str, message: Message, elapsed_s: float) -> ServerAnswer:
    connection.trace_answer(subject, message)
    if message.status == NO_RESPONDERS:
        raise SystemAccountRequiredError(subject)
    return ServerAnswer(parse_object(message.body, subject), int(elapsed_s * 1e9))


async def every_page(
    key: str, body: dict[str, Any], ask: Callable[[dict[str, Any]], Awaitable[ServerAnswer]]
) -> ServerAnswer:
    """Return the first page's answer with the entries of all pages under `key`; without a key there is one page."""
    first = await ask(body)
    data = first.data
    if not key or body.get("limit") or body.get("offset"):
        return first
    entries, page = list_in(data, key, key), None
    for _ in range(MAX_PAGES):
        limit, total = number_in(data, "limit", key) or len(entries), number_in(data, "total", key)
        if not limit or len(entries) >= total:
            break
        last, page = page, list_in((await ask({**body, "offset": len(entries), "limit": limit})).data, key, key)
        if not page or page == last:
            break
        entries += page
    else:
        raise ProtocolError(f"more than {MAX_PAGES} pages")
    if key in data:
        data[key] = entries
    return first


def _subject(server: str, what: str) -> str:
    return f"$SYS.REQ.SERVER.{server}.{what}"


def _no_server(scope: ServerScope, found: list[ServerAnswer]) -> NatsctlError:
    return ServerNotFoundError(scope.shown, sorted(one.name for one in found))
