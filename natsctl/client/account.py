"""What an account has and who is connected to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import NatsctlError
from natsctl.client.answer import Answer, parse_object
from natsctl.client.settings import without_login

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
    """The server's INFO, with `rtt_ns`, the `url` of the connection without its login, and `tls`."""
    connection = manager.connection
    rtt_s = await connection.rtt_s()
    found = {**connection.info, "rtt_ns": int(rtt_s * 1e9), "url": without_login(connection.url), "tls": connection.tls}
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
