"""Servers that answer from a bundle: a connection for the requests of the system account.

`RecordedConnection` takes the place of a connection, so that `--archive` needs nothing of the commands that ask
servers: the same requests get the documents that were gathered. Fields of a request that narrow an answer are applied
here; options that ask for more than was gathered change nothing, and options that a document cannot show are refused.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from natsctl.api.errors import ExitCode, NotFoundError, UnreachableError, UsageError
from natsctl.api.subjects import matches
from natsctl.client.audit.bundle import ACCOUNT_TYPES, PROFILE_TYPE, SERVER_TYPES, Bundle
from natsctl.client.message import HeaderLike, Message
from natsctl.client.received import Received, not_traced
from natsctl.client.system.system_account import PAGES

Document = dict[str, Any]
Entry = Mapping[str, Any]


class NotRecordedError(UnreachableError):
    """The bundle lacks the requested document of a server."""

    exit_code = ExitCode.NOT_FOUND


class _Server(NamedTuple):
    """A server of the bundle, as it described itself, with its tags."""

    info: Document
    tags: dict[str, str]

    @property
    def id(self) -> str:
        return str(self.info.get("id") or "")

    @property
    def name(self) -> str:
        return str(self.info.get("name") or "")


class RecordedAnswers:
    """Answers to one broadcast, instead of a subscription."""

    def __init__(self) -> None:
        self.watched = ""
        self.messages: deque[Message] = deque()

    async def next(self, timeout_s: float | None = None) -> Message | None:
        """Return the next answer, None after the last."""
        return self.messages.popleft() if self.messages else None

    async def stop(self) -> None:
        self.messages.clear()


class RecordedConnection:
    lost = reconnects = dry_run = False
    tracer = None
    trace = trace_answer = staticmethod(not_traced)
    timeout_s = 5.0

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.received = Received()
        self.url = str(bundle.path)
        self._servers = _servers(bundle)
        if not self._servers:
            raise NotFoundError(f"{bundle.path} has no documents of servers")
        self._listening: dict[str, RecordedAnswers] = {}
        connected = bundle.metadata.connected_server_name
        first = next((server for server in self._servers.values() if server.name == connected), None)
        first = first or next(iter(self._servers.values()))
        self.info: Document = {"server_id": first.id, "server_name": first.name, "version": first.info.get("ver", "")}

    async def request(
        self, subject: str, body: bytes = b"", *, headers: HeaderLike | None = None, timeout_s: float | None = None
    ) -> Message:
        """Return the answer of one server. Raises NotRecordedError, NotFoundError, UsageError."""
        server, what = _parsed(subject)
        if server not in self._servers:
            raise NotRecordedError(f"{self.bundle.path} has no server {server}")
        return self._message(self._answer(self._servers[server], what, _body(body)))

    def new_inbox(self) -> str:
        """Return the subject for the answers to a broadcast."""
        return f"_INBOX.{len(self._listening)}"

    async def subscribe(self, subject: str) -> RecordedAnswers:
        """Return the answers to a broadcast that will name the subject as its reply."""
        self._listening[subject] = RecordedAnswers()
        return self._listening[subject]

    async def publish(self, subject: str, body: bytes, *, reply: str = "") -> None:
        """Answer a broadcast on `reply`, for every server that has an answer."""
        _, what = _parsed(subject)
        answers = self._listening.pop(reply)
        for server in self._servers.values():
            try:
                answers.messages.append(self._message(self._answer(server, what, _body(body))))
            except NotRecordedError:
                continue

    async def close(self) -> None:
        self.bundle.close()

    def _message(self, document: Document) -> Message:
        return Message("", orjson.dumps(document))

    def _answer(self, server: _Server, what: str, body: Document) -> Document:
        try:
            if what in ("VARZ", "EXPVARZ", "ROUTEZ"):
                found = self.first(server, what)
            else:
                found = _ANSWERS[what](self, server, body) if what in _ANSWERS else None
        except (AttributeError, KeyError, TypeError, ValueError) as failure:
            raise UsageError(f"{self.bundle.path}: {what} of server {server.name} is damaged: {failure!r}") from failure
        if found is None:
            raise NotRecordedError(f"{self.bundle.path} has no {what} of server {server.name}")
        return found

    # -- documents

    def documents(self, server: _Server, kind: str, **tags: str) -> list[Document]:
        """Return the documents of a type that a server sent, page after page.

        Raises NotFoundError if no server has one.
        """
        found = [
            document
            for _, document in self.bundle.documents(artifact_type=kind, **server.tags, **tags)
            if _id(document) in (server.id, "")
        ]
        if not found and not self.bundle.find(artifact_type=kind):
            raise NotFoundError(f"{self.bundle.path} has no documents of the type {kind}")
        return found

    def first(self, server: _Server, what: str) -> Document | None:
        """Return the document of a server's endpoint with the entries of all its pages."""
        pages = self.documents(server, SERVER_TYPES[what])
        if not pages:
            return None
        first, key = pages[0], PAGES.get(what, "")
        for page in pages[1:] if key else ():
            first.setdefault("data", {}).setdefault(key, []).extend(_data(page).get(key) or ())
        return first

    def account_id(self, name: str) -> str:
        """Return the id of an account with that id or name.

        Raises NotFoundError for a server without data in the bundle.
        """
        known = self.bundle.values("account") or [
            str(account) for document in self._every("ACCOUNTZ") for account in _data(document).get("accounts") or ()
        ]
        if name in known:
            return name
        if found := self._named_accounts().get(name):
            return found
        hint = f"it has: {', '.join(known)}" if known else ""
        raise NotFoundError(f"{self.bundle.path} has no account {name}", hint=hint)

    def _named_accounts(self) -> dict[str, str]:
        held = self.bundle.documents(artifact_type=ACCOUNT_TYPES["INFO"])
        named = {str(_data(document).get("name_tag")): artifact.tags.get("account", "") for artifact, document in held}
        for document in self._every("JSZ"):
            for account_detail in _data(document).get("account_details") or ():
                named.setdefault(str(account_detail.get("name")), str(account_detail.get("id")))
        return named

    def _every(self, what: str) -> Iterable[Document]:
        return (document for _, document in self.bundle.documents(artifact_type=SERVER_TYPES[what]))

    @property
    def count(self) -> int:
        return len(self._servers)


def _servers(bundle: Bundle) -> dict[str, _Server]:
    """Return the servers of a bundle by id, from documents of the first type that names any, else of accounts."""
    servers: dict[str, _Server] = {}
    for kinds in (*((kind,) for kind in SERVER_TYPES.values()), tuple(ACCOUNT_TYPES.values())):
        for artifact, document in (pair for kind in kinds for pair in bundle.documents(artifact_type=kind)):
            info = document.get("server")
            if isinstance(info, dict) and info.get("id"):
                servers.setdefault(info["id"], _Server(info, {"cluster": artifact.cluster, "server": artifact.server}))
        if servers:
            break
    return servers


def _parsed(subject: str) -> tuple[str, str]:
    """Return the server and the endpoint of `$SYS.REQ.SERVER.<server>.<endpoint>`."""
    parts = subject.split(".")
    if len(parts) != 5 or parts[:3] != ["$SYS", "REQ", "SERVER"]:
        raise NotRecordedError(f"a bundle has no answer to {subject}")
    return parts[3], parts[4]


def _body(text: bytes) -> Document:
    found = orjson.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def _data(document: Entry) -> Document:
    data = document.get("data")
    return data if isinstance(data, dict) else {}


def _id(document: Entry) -> str:
    server = document.get("server")
    return str(server.get("id") or "") if isinstance(server, dict) else ""


def _refuse(what: str, body: Document, *fields: str) -> None:
    """Raise UsageError for a field of a request that documents of a bundle cannot answer."""
    if said := [name for name in fields if body.get(name)]:
        raise UsageError(f"--archive: {what} of a bundle cannot be chosen by {', '.join(said)}")


def _paged(data: Document, key: str, entries: list[Any], body: Document) -> None:
    """Put the entries of an answer in place: all of them, or the page that was requested."""
    offset, limit = int(body.get("offset") or 0), int(body.get("limit") or 0)
    data.update({"total": len(entries), "offset": offset, "limit": limit or max(len(entries), 1)})
    data[key] = entries[offset : offset + limit if limit else None]


# -- one function for each endpoint


def _healthz(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    _refuse("the health", body, "js-enabled-only", "js-server-only", "account", "stream", "consumer")
    return connection.first(server, "HEALTHZ")


def _leafz(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    document = connection.first(server, "LEAFZ")
    if document is not None and (account := body.get("account")):
        data = _data(document)
        data["leafs"] = [leaf for leaf in data.get("leafs") or () if leaf.get("account") == account]
        data["leafnodes"] = len(data["leafs"])
    return document


def _gatewayz(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    document = connection.first(server, "GATEWAYZ")
    name, account = body.get("name"), body.get("account_name")
    for side in ("outbound_gateways", "inbound_gateways") if document is not None else ():
        held = _data(document or {}).get(side)
        if not isinstance(held, dict):
            continue
        for remote in [one for one in held if name and one != name]:
            del held[remote]
        for links in held.values() if account else ():
            for link in links if isinstance(links, list) else [links]:
                link["accounts"] = [one for one in link.get("accounts") or () if one.get("name") == account]
    return document


_ORDERS: Final[Mapping[str, tuple[str, bool]]] = {
    "cid": ("cid", False),
    "start": ("start", False),
    "subs": ("subscriptions", True),
    "pending": ("pending_bytes", True),
    "msgs_to": ("out_msgs", True),
    "msgs_from": ("in_msgs", True),
    "bytes_to": ("out_bytes", True),
    "bytes_from": ("in_bytes", True),
    "last": ("last_activity", True),
    "uptime": ("start", False),
}
"""Fields of connections by the server's sort keys, and whether the largest comes first."""


def _connz(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    """Return the connections of the accounts (they name their account) and further ones of the server's own list."""
    _refuse("connections", body, "state")
    if account := body.get("acc"):
        connection.account_id(str(account))
    found: dict[Any, Document] = {}
    first: Document | None = None
    if connection.bundle.find(artifact_type=SERVER_TYPES["CONNZ"]):
        first = connection.first(server, "CONNZ")
        found = {one.get("cid"): one for one in _data(first or {}).get("connections") or ()}
    of_accounts = connection.bundle.find(artifact_type=ACCOUNT_TYPES["CONNZ"], **server.tags)
    for artifact in of_accounts:
        document = connection.bundle.load(artifact)
        if _id(document) not in (server.id, ""):
            continue
        first = first or document
        for one in _data(document).get("connections") or ():
            one.setdefault("account", artifact.tags.get("account", ""))
            found[one.get("cid")] = {**found.get(one.get("cid"), {}), **one}
    if first is None:
        if not connection.bundle.find(artifact_type=ACCOUNT_TYPES["CONNZ"]):
            connection.documents(server, SERVER_TYPES["CONNZ"])
        return None
    data = first.setdefault("data", {})
    key, most_first = _ORDERS.get(str(body.get("sort") or "cid"), ("cid", False))
    wanted = sorted(found.values(), key=lambda one: _ordered(one.get(key)), reverse=most_first)
    wanted = [one for one in wanted if _is_wanted(one, body)]
    _paged(data, "connections", wanted, body)
    data["num_connections"] = len(data["connections"])
    return first


def _ordered(value: Any) -> tuple[float, str]:
    return (float(value), "") if isinstance(value, int | float) else (0.0, str(value or ""))


def _is_wanted(one: Entry, body: Document) -> bool:
    for field, keys in (("acc", ("account", "name_tag")), ("user", ("authorized_user",)), ("cid", ("cid",))):
        if body.get(field) and body[field] not in [one.get(key) for key in keys]:
            return False
    subject = body.get("filter_subject")
    if not subject or subject == ">":
        return True
    if "subscriptions_list_detail" not in one and "subscriptions_list" not in one and one.get("subscriptions"):
        raise UsageError("--archive: the subscriptions of connections were not gathered (--no-details)")
    held = [str(sub.get("subject")) for sub in one.get("subscriptions_list_detail") or ()]
    return any(matches(held_one, str(subject)) for held_one in (*held, *(one.get("subscriptions_list") or ())))


def _subsz(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    document = connection.first(server, "SUBSZ")
    if document is None:
        return None
    data = document.setdefault("data", {})
    account, subject = body.get("account"), body.get("test")
    entries = list(data.get("subscriptions_list") or ())
    if (account or subject) and not entries and data.get("num_subscriptions"):
        raise UsageError("--archive: subscriptions were not gathered (--no-details)")
    entries = [entry for entry in entries if not account or entry.get("account") == account]
    entries = [entry for entry in entries if not subject or matches(str(entry.get("subject")), str(subject))]
    if entries or account or subject:
        _paged(data, "subscriptions_list", entries, body)
    return document


def _jsz(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    if account := str(body.get("account") or ""):
        connection.account_id(account)
    document = connection.first(server, "JSZ")
    if document is None:
        return None if server.info.get("jetstream") else {"server": server.info, "data": {"disabled": True}}
    data = document.setdefault("data", {})
    if body.get("leader_only") and (data.get("meta_cluster") or {}).get("leader") not in (None, server.name):
        return {"server": document.get("server"), "data": {}}
    details = list(data.get("account_details") or ())
    details = [detail for detail in details if not account or account in (detail.get("name"), detail.get("id"))]
    for detail in details if body.get("stream_leader_only") else ():
        streams = detail.get("stream_detail") or ()
        detail["stream_detail"] = [
            stream for stream in streams if (stream.get("cluster") or {}).get("leader", server.name) == server.name
        ]
    if "account_details" in data:
        _paged(data, "account_details", details, body)
    return document


def _accountz(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    account = str(body.get("account") or "")
    if not account:
        return connection.first(server, "ACCOUNTZ")
    account = connection.account_id(account)
    kind = ACCOUNT_TYPES["INFO"]
    found = connection.documents(server, kind, account=account)
    if not found and server.id == connection.info["server_id"]:  # any server that knows the account will do
        found = [document for _, document in connection.bundle.documents(artifact_type=kind, account=account)]
    return {"server": found[0].get("server"), "data": {"account_detail": _data(found[0])}} if found else None


def _raftz(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    account, group = body.get("account"), body.get("group")
    merged: Document = {}
    found = connection.documents(server, ACCOUNT_TYPES["RAFTZ"])
    for document in found:
        for name, groups in _data(document).items():
            if not account or name == account:
                merged.setdefault(name, {}).update({at: one for at, one in groups.items() if not group or at == group})
    data = {name: groups for name, groups in merged.items() if groups or not group}
    return {"server": server.info, "data": data} if found else None


def _ipqueuesz(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    text, every = str(body.get("filter") or ""), body.get("all", False)
    found = connection.documents(server, ACCOUNT_TYPES["IPQUEUESZ"])
    queues = {name: one for document in found for name, one in _data(document).items() if text in name}
    data = {name: queue for name, queue in queues.items() if every or queue.get("pending") or queue.get("in_progress")}
    return {"server": server.info, "data": data} if found else None


def _profilez(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    name, level = str(body.get("name") or ""), int(body.get("debug") or 0)
    labelled = f"{name}_{level}" if level else name
    tags = {"artifact_type": PROFILE_TYPE, **server.tags}
    found = connection.bundle.find(profile_name=labelled, **tags)
    if not found:
        known = ", ".join(connection.bundle.values("profile_name", **tags)) or "none"
        text = f"the bundle has no profile {labelled}; it has: {known}"
        return {"server": server.info, "data": {"error": text}}
    profile = base64.b64encode(connection.bundle.raw(found[0])).decode()
    return {"server": server.info, "data": {"profile": profile}}


_COUNTED: Final[tuple[str, ...]] = (
    "start", "mem", "cores", "cpu", "connections", "total_connections", "subscriptions", "slow_consumers",
    "slow_consumer_stats", "gomemlimit", "gomaxprocs",
)  # fmt: skip
"""Fields of statistics with the values of the variables of that name."""


def _statsz(connection: RecordedConnection, server: _Server, body: Document) -> Document | None:
    """Return statistics made of a server's variables, routes and gateways."""

    def data_of(what: str) -> Document:
        if not connection.bundle.find(artifact_type=SERVER_TYPES[what]):
            return {}
        return _data(connection.first(server, what) or {})

    varz = data_of("VARZ")
    statistics: Document = {name: varz[name] for name in _COUNTED if name in varz}
    statistics["sent"] = _moved(varz, "out")
    statistics["received"] = _moved(varz, "in")
    statistics["active_servers"] = connection.count
    if (varz.get("jetstream") or {}).get("config"):
        statistics["jetstream"] = varz["jetstream"]
    statistics["routes"] = [
        {
            "rid": route.get("rid", 0),
            "name": route.get("remote_name", ""),
            "sent": _moved(route, "out"),
            "received": _moved(route, "in"),
            "pending": route.get("pending_size", 0),
        }
        for route in data_of("ROUTEZ").get("routes") or ()
    ]
    statistics["gateways"] = _gateways(data_of("GATEWAYZ"))
    return {"server": server.info, "statsz": statistics}


def _moved(part: Entry, side: str) -> dict[str, int]:
    return {unit: int(part.get(f"{side}_{unit}") or 0) for unit in ("msgs", "bytes")}


def _gateways(data: Document) -> list[Document]:
    found: dict[str, Document] = {}

    def of(name: str) -> Document:
        zero = {"msgs": 0, "bytes": 0}
        empty = {"gwid": 0, "name": name, "sent": dict(zero), "received": dict(zero), "inbound_connections": 0}
        return found.setdefault(name, empty)

    for name, links in (data.get("inbound_gateways") or {}).items():
        for link in links:
            moved = _moved(link.get("connection") or {}, "in")
            of(name)["inbound_connections"] += 1
            of(name)["received"] = {unit: of(name)["received"][unit] + moved[unit] for unit in moved}
    for name, link in (data.get("outbound_gateways") or {}).items():
        of(name)["sent"] = _moved(link.get("connection") or {}, "out")
    return list(found.values())


_ANSWERS: Final[Mapping[str, Callable[[RecordedConnection, _Server, Document], Document | None]]] = {
    "STATSZ": _statsz,
    "CONNZ": _connz,
    "GATEWAYZ": _gatewayz,
    "LEAFZ": _leafz,
    "SUBSZ": _subsz,
    "JSZ": _jsz,
    "HEALTHZ": _healthz,
    "ACCOUNTZ": _accountz,
    "RAFTZ": _raftz,
    "IPQUEUESZ": _ipqueuesz,
    "PROFILEZ": _profilez,
}
