"""Gathering of an audit's bundle: every server's reports about itself, its accounts and their streams.

Servers are asked concurrently, their endpoints in order; a server or account that refuses leaves a line in
the log of the bundle, and a gap in it. Servers that join meanwhile are left out, so that the bundle is of one set of
servers. Endpoints, options and tags are as in `nats audit gather` (jsm.go, audit/gather).
"""

from __future__ import annotations

import base64
import getpass
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from natsctl.api.errors import NatsctlError
from natsctl.api.units import plural
from natsctl.client.audit.bundle import (
    ACCOUNT_TYPES,
    LOG,
    METADATA,
    NO_CLUSTER,
    PROFILE_TYPE,
    SERVER_TYPES,
    STREAM_TYPE,
    BundleWriter,
    Metadata,
    write_bundle,
)
from natsctl.client.manager import Manager
from natsctl.client.requests import side_by_side
from natsctl.client.system.system_account import EVERYBODY, PAGES, ServerAnswer, ServerScope, System, exchange, gather

PAGE_ENTRIES: Final = 1024
"""Entries of one page of connections, subscriptions or accounts."""
MAX_PAGES: Final = 10_000
SERVERS_AT_ONCE: Final = 16
ACCOUNTS_AT_ONCE: Final = 8
MAX_CPU_PROFILE_NS: Final = 15_000_000_000
"""Longest CPU profile that nats-server takes."""
PROFILES: Final = (
    ("goroutine", 1),
    ("goroutine", 2),
    ("heap", 0),
    ("allocs", 0),
    ("mutex", 0),
    ("threadcreate", 0),
    ("block", 0),
    ("cpu", 0),
)
"""Profiles of a server with their debug levels."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Parts of a deployment that a bundle has."""

    cluster: str = ""
    server_endpoints: bool = True
    server_profiles: bool = True
    cpu_profile_ns: int = 5_000_000_000
    account_endpoints: bool = True
    streams: bool = True
    consumers: bool = True
    details: bool = True


@dataclass(slots=True)
class Gathered:
    """Numbers of a bundle's contents, and the faults that left gaps in it."""

    servers: int = 0
    accounts: int = 0
    streams: int = 0
    documents: int = 0
    profiles: int = 0
    faults: list[str] = field(default_factory=list)


async def gather_bundle(
    manager: Manager, path: Path, selection: Selection, version: str, say: Callable[[str], None]
) -> Gathered:
    """Write the bundle of all servers to a path and return its numbers; `say` gets every line of its log."""
    moment = datetime.now(UTC)
    with write_bundle(path, moment) as writer:
        work = _Gathering(manager, writer, selection, say)
        await work.run()
        writer.add(msgspec.to_builtins(_metadata(manager, version)), special=METADATA)
        writer.add_raw("".join(f"{line}\n" for line in work.log).encode(), "log", special=LOG)
    return work.found


def _metadata(manager: Manager, version: str) -> Metadata:
    info = manager.connection.info
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "?"
    return Metadata(
        capture_timestamp=datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        connected_server_name=str(info.get("server_name") or ""),
        connected_server_version=str(info.get("version") or ""),
        connect_url=manager.connection.url,
        user_name=user,
        version=version,
    )


class _Gathering:
    def __init__(
        self, manager: Manager, writer: BundleWriter, selection: Selection, say: Callable[[str], None]
    ) -> None:
        self.found = Gathered()
        self.log: list[str] = []
        self._system = System(manager)
        self._connection = manager.connection
        self._writer = writer
        self._selection = selection
        self._say = say
        self._servers: dict[str, ServerAnswer] = {}
        """Statistics of the servers of the bundle, by id."""
        self._without_jetstream: set[str] = set()
        """Accounts that say so."""

    async def run(self) -> None:
        chosen = self._selection
        servers = await self._system.ping(ServerScope(cluster=chosen.cluster))
        self._servers = {server.id: server for server in servers}
        self.found.servers = len(servers)
        self._note(f"Discovered {plural(len(servers), 'server')}: {', '.join(server.name for server in servers)}")
        if servers.missing:
            self._fault(f"{plural(servers.missing, 'server')} that the others know did not answer")
        accounts, system_account = await self._accounts()
        if chosen.server_endpoints:
            await side_by_side(self._server_documents, servers, SERVERS_AT_ONCE)
            self._note(f"Captured {plural(self.found.documents, 'document')} of servers")
        if chosen.server_profiles:
            await side_by_side(self._profiles, servers, SERVERS_AT_ONCE)
            self._note(f"Captured {plural(self.found.profiles, 'profile')} of servers")
        if chosen.account_endpoints:
            before = self.found.documents
            await side_by_side(lambda name: self._account_documents(name, accounts[name]), accounts, ACCOUNTS_AT_ONCE)
            self._note(f"Captured {plural(self.found.documents - before, 'document')} of accounts")
        if chosen.streams:
            own = [name for name in accounts if name != system_account and name not in self._without_jetstream]
            await side_by_side(self._streams, own, ACCOUNTS_AT_ONCE)
            self._note(f"Captured {plural(self.found.streams, 'stream')} of {plural(len(own), 'account')}")

    def _note(self, text: str) -> None:
        self.log.append(text)
        self._say(text)

    def _fault(self, text: str) -> None:
        self.found.faults.append(text)
        self._note(f"Warning: {text}")

    async def _accounts(self) -> tuple[dict[str, int], str]:
        known: dict[str, int] = {}
        system = ""
        for answer in await self._gather(f"$SYS.REQ.SERVER.{EVERYBODY}.ACCOUNTZ", None, 0, "accounts"):
            system = system or str(answer.data.get("system_account") or "")
            for name in answer.data.get("accounts") or ():
                known[str(name)] = known.get(str(name), 0) + 1
        self.found.accounts = len(known)
        self._note(f"Discovered {plural(len(known), 'account')}")
        return known, system

    async def _gather(self, subject: str, body: dict[str, Any] | None, expected: int, what: str) -> list[ServerAnswer]:
        """Return the answers of the bundle's servers to a broadcast, one of each; faults are noted.

        `expected` is how many will come, 0 for one of every server.
        """
        count = expected or len(self._servers)
        try:
            answers = await gather(self._connection, subject, body, expected=lambda _: count)
        except NatsctlError as failure:
            self._fault(f"{what}: {failure.text}")
            return []
        kept: dict[str, ServerAnswer] = {}
        for answer in answers:
            if answer.id not in self._servers:
                self._note(f"Ignored {what} of a server that joined later or is not selected: {answer.name}")
            elif answer.failure is not None:
                self._fault(f"{what}: {answer.name}: {answer.failure}")
            else:
                kept.setdefault(answer.id, answer)
        return list(kept.values())

    async def _ask(self, server: ServerAnswer, what: str, body: dict[str, Any] | None) -> ServerAnswer | None:
        """Return a server's answer, or None (recorded as a fault)."""
        try:
            answer = await exchange(self._connection, f"$SYS.REQ.SERVER.{server.id}.{what}", body)
        except NatsctlError as failure:
            self._fault(f"{server.name}: {what}: {failure.text}")
            return None
        if answer.failure is not None:
            self._fault(f"{server.name}: {what}: {answer.failure}")
            return None
        return answer

    def _add(self, answer: ServerAnswer, kind: str, **tags: str) -> None:
        self._writer.add(answer.raw, artifact_type=kind, **_place(answer), **tags)
        self.found.documents += 1

    async def _server_documents(self, server: ServerAnswer) -> None:
        for what, kind in SERVER_TYPES.items():
            if what == "JSZ" and not server.server.get("jetstream"):
                self._note(f"{server.name} has no JetStream")
                continue
            for page in range(MAX_PAGES):
                body = self._options(what, page * PAGE_ENTRIES)
                answer = await self._ask(server, what, body)
                if answer is None:
                    break
                self._add(ServerAnswer({**answer.raw, "server": answer.server or server.server}), kind)
                if body is None or len(answer.data.get(PAGES.get(what, "")) or ()) < PAGE_ENTRIES:
                    break

    def _options(self, what: str, offset: int) -> dict[str, Any] | None:
        """Return the body of a request to a server, None for its own defaults."""
        if not self._selection.details:
            return None
        page = {"offset": offset, "limit": PAGE_ENTRIES}
        bodies: dict[str, dict[str, Any]] = {
            "CONNZ": {"auth": True, "subscriptions": True, "subscriptions_detail": True, **page},
            "GATEWAYZ": {"accounts": True, "subscriptions": True, "subscriptions_detail": True},
            "HEALTHZ": {"details": True},
            "JSZ": {**_jetstream(self._selection.consumers), "accounts": True, **page},
            "LEAFZ": {"subscriptions": True},
            "ROUTEZ": {"subscriptions": True, "subscriptions_detail": True},
            "SUBSZ": {"subscriptions": True, **page},
        }
        return bodies.get(what)

    async def _profiles(self, server: ServerAnswer) -> None:
        for name, level in PROFILES:
            body: dict[str, Any] = {"name": name, **({"debug": level} if level else {})}
            if name == "cpu":
                body["duration"] = self._selection.cpu_profile_ns
            try:
                answers = await self._system.profile_of(server, body)
            except NatsctlError as failure:
                self._fault(f"{server.name}: profile {name}: {failure.text}")
                continue
            said = answers.data.get("error") or answers.failure
            content = _decoded(answers.data.get("profile"))
            if said or not content:
                self._fault(f"{server.name}: profile {name}: {said or 'the server has none'}")
                continue
            labelled = f"{name}_{level}" if level else name
            tags = {"artifact_type": PROFILE_TYPE, "profile_name": labelled, **_place(server)}
            self._writer.add_raw(content, "prof", **tags)
            self.found.profiles += 1

    async def _account_documents(self, account: str, servers: int) -> None:
        for what, kind in ACCOUNT_TYPES.items():
            if what == "JSZ" and account in self._without_jetstream:
                continue
            subject, body, expected = f"$SYS.REQ.ACCOUNT.{account}.{what}", None, servers
            if what in ("RAFTZ", "IPQUEUESZ"):  # every server answers these, those without the account too
                subject, expected = f"$SYS.REQ.SERVER.{EVERYBODY}.{what}", 0
                body = {"account" if what == "RAFTZ" else "filter": account}
            answers = await self._gather(subject, body, expected, f"account {account}: {what}")
            for answer in answers:
                self._add(answer, kind, account=account)
            if what == "INFO" and answers and not any(one.data.get("jetstream_enabled") for one in answers):
                self._without_jetstream.add(account)
                self._note(f"Account {account} has no JetStream")

    async def _streams(self, account: str) -> None:
        body = {"account": account, **_jetstream(self._selection.consumers), "direct_consumer": True}
        seen: set[str] = set()
        for answer in await self._gather(f"$SYS.REQ.SERVER.{EVERYBODY}.JSZ", body, 0, f"streams of {account}"):
            details = list(answer.data.get("account_details") or ())
            if len(details) != 1:  # a server without the account answers with all of them
                continue
            for stream in details[0].get("stream_detail") or ():
                name = str(stream.get("name") or "")
                cluster = str((stream.get("cluster") or {}).get("name") or NO_CLUSTER)
                tags = {"account": account, "server": answer.name, "cluster": cluster, "stream": name}
                self._writer.add(stream, artifact_type=STREAM_TYPE, **tags)
                seen.add(name)
        self.found.streams += len(seen)


def _decoded(profile: Any) -> bytes:
    """Return the bytes of a profile, none for a value that is not base 64."""
    try:
        return base64.b64decode(profile or "")
    except (ValueError, TypeError):
        return b""


def _jetstream(consumers: bool) -> dict[str, Any]:
    return {"streams": True, "consumer": consumers, "config": True, "raft": True}


def _place(answer: ServerAnswer) -> dict[str, str]:
    return {"cluster": answer.cluster or NO_CLUSTER, "server": answer.name}
