"""Information about an account and its connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import NatsctlError
from natsctl.client.requests import Answer, parse_object
from natsctl.client.system.system_account import (
    EVERYBODY,
    PAGES,
    ServerAnswer,
    ServerAnswers,
    gather,
    in_system_account,
)

if TYPE_CHECKING:
    from natsctl.api.answers import AccountInfoAnswer
    from natsctl.client.connection import Connection
    from natsctl.client.manager import Manager

USER_INFO_SUBJECT = "$SYS.REQ.USER.INFO"
USER_INFO_WAIT_S = 1.0
MAX_ROUNDS = 8
"""Maximum retries for servers after a lost answer."""


async def user_info(manager: Manager) -> dict[str, Any]:
    """Return the server's information about the logged-in user, empty if it gives none."""
    try:
        message = await manager.connection.request(USER_INFO_SUBJECT, timeout_s=USER_INFO_WAIT_S)
        data = parse_object(message.body, USER_INFO_SUBJECT).get("data")
    except NatsctlError:
        return {}
    return data if isinstance(data, dict) else {}


async def server_info(manager: Manager) -> dict[str, Any]:
    """Return the server's INFO, with `rtt_ns`, `url` and `address` of the connection without its login, and `tls`.

    Over TLS also `tls_version`, `tls_cipher`, `tls_server_name` and `tls_verified`.
    """
    connection = manager.connection
    rtt_s, system = await asyncio.gather(connection.rtt_s(), in_system_account(connection))
    found = {**connection.info, "rtt_ns": int(rtt_s * 1e9), "url": connection.url, "tls": connection.tls}
    peer = connection.transport_fact("peername")
    if peer:
        found["address"] = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
    if wrapped := connection.transport_fact("ssl_object"):
        found |= {
            "tls_version": wrapped.version(),
            "tls_cipher": (wrapped.cipher() or ("",))[0],
            "tls_server_name": wrapped.server_hostname or "",
            "tls_verified": bool(wrapped.getpeercert()),
        }
    found.setdefault("acc_is_sys", system)
    found.pop("nonce", None)
    return found


async def overview(
    manager: Manager,
) -> tuple[Answer[AccountInfoAnswer] | NatsctlError, dict[str, Any], dict[str, Any]]:
    """Return account information (or the reason why it is missing), server and user, requested together."""

    async def account() -> Answer[AccountInfoAnswer] | NatsctlError:
        try:
            return await manager.account_info()
        except NatsctlError as failure:
            return failure

    found, server, user = await asyncio.gather(account(), server_info(manager), user_info(manager))
    return found, server, user


async def own_answers(manager: Manager, what: str, body: dict[str, Any] | None = None) -> ServerAnswers:
    """Return the servers' answers about this account on `$SYS.REQ.ACCOUNT.PING.<what>`, with all pages.

    The number of servers is known only in the system account, so collecting ends after a pause without answers. In a
    cluster of nats-servers only the fastest answer reaches an account: the request is repeated until that was the one
    that is connected to, and answers of the others that came meanwhile count too.
    """
    connection = manager.connection
    name = EVERYBODY
    if await in_system_account(connection):  # there PING means every account
        name = str((await user_info(manager)).get("account") or EVERYBODY)
    subject, own = f"$SYS.REQ.ACCOUNT.{name}.{what}", connection.info.get("server_id")
    found: dict[str, ServerAnswer] = {}
    for _ in range(MAX_ROUNDS):
        found |= {one.id: one for one in await gather(connection, subject, body)}
        if own in found:
            break
    if key := PAGES.get(what, ""):
        await _add_pages(connection, subject, body or {}, found, key)
    return ServerAnswers(found.values(), len(found))


async def _add_pages(
    connection: Connection, subject: str, body: dict[str, Any], found: dict[str, ServerAnswer], key: str
) -> None:
    """Ask for the pages after the first until every server has sent all of them, or no further page comes."""
    offset = max(_page(one, key) for one in found.values())
    silent = 0
    while offset and silent < MAX_ROUNDS and any(offset < int(one.data.get("total") or 0) for one in found.values()):
        more = await gather(connection, subject, {**body, "offset": offset})
        grown = max((_page(one, key) for one in more if one.id in found), default=0)
        silent = 0 if grown else silent + 1
        for one in more:
            if one.id in found and _page(one, key):
                found[one.id].data[key] += one.data[key]
        offset += grown


def _page(answer: ServerAnswer, key: str) -> int:
    return len(answer.data.get(key) or ())
