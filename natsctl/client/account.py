"""What an account has and who is connected to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import NatsctlError
from natsctl.client.answer import Answer, parse_object
from natsctl.client.settings import without_login
from natsctl.client.system import EVERYBODY, PAGES, gather, in_system_account
from natsctl.client.system_answers import Answers, ServerAnswer

if TYPE_CHECKING:
    from natsctl.api.answers import AccountInfoAnswer
    from natsctl.client.manager import Manager

USER_INFO_SUBJECT = "$SYS.REQ.USER.INFO"
USER_INFO_WAIT_S = 1.0


async def user_info(manager: Manager) -> dict[str, Any]:
    """What the server says about the logged-in user, empty where it does not say."""
    try:
        message = await manager.connection.request(USER_INFO_SUBJECT, timeout_s=USER_INFO_WAIT_S)
        data = parse_object(message.body, USER_INFO_SUBJECT).get("data")
    except NatsctlError:
        return {}
    return data if isinstance(data, dict) else {}


async def server_info(manager: Manager) -> dict[str, Any]:
    """The server's INFO, with `rtt_ns`, `url` and `address` of the connection without its login, and `tls`.

    Over TLS also `tls_version`, `tls_cipher`, `tls_server_name` and `tls_verified`.
    """
    connection = manager.connection
    rtt_s, system = await asyncio.gather(connection.rtt_s(), in_system_account(connection))
    found = {**connection.info, "rtt_ns": int(rtt_s * 1e9), "url": without_login(connection.url), "tls": connection.tls}
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
    """JetStream's account information or why there is none, the server, and the user, asked for at once."""

    async def account() -> Answer[AccountInfoAnswer] | NatsctlError:
        try:
            return await manager.account_info()
        except NatsctlError as failure:
            return failure

    found, server, user = await asyncio.gather(account(), server_info(manager), user_info(manager))
    return found, server, user


async def own_answers(manager: Manager, what: str, body: dict[str, Any] | None = None) -> Answers:
    """What every server tells of this account on `$SYS.REQ.ACCOUNT.PING.<what>`, all pages of it.

    Nobody outside the system account knows how many servers there are, so it ends when it gets quiet after the answer
    of the server that is connected to.
    """
    connection = manager.connection
    name = EVERYBODY
    if await in_system_account(connection):  # there PING means every account
        name = str((await user_info(manager)).get("account") or EVERYBODY)
    subject, own = f"$SYS.REQ.ACCOUNT.{name}.{what}", str(connection.info.get("server_id") or "")
    found = await gather(connection, subject, body, certain=own)
    key = PAGES.get(what, "")
    by_id = {one.id: one for one in found}
    offset = max(_page(one, key) for one in found)
    while key and offset and any(offset < int(one.data.get("total") or 0) for one in found):
        more = await gather(connection, subject, {**(body or {}), "offset": offset}, certain=own)
        for one in more:
            if one.id in by_id:
                by_id[one.id].data[key] += one.data.get(key) or []
        grown = max(_page(one, key) for one in more)
        if not grown:
            break
        offset += grown
    return Answers(found, len(found))


def _page(answer: ServerAnswer, key: str) -> int:
    return len(answer.data.get(key) or ())
