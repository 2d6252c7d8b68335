"""`/accountz`: the accounts, and everything about one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time
from natsctl.server.monitor.query import Query
from natsctl.server.monitor.refused import Refused

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


class AccountzOptions(msgspec.Struct, kw_only=True):
    """What is asked of `accountz`."""

    account: str = ""


def read(query: Query) -> AccountzOptions:
    """Return the options of a query. Raises Refused."""
    return AccountzOptions(account=query.text("acc"))


def accountz(server: ServerInstance, options: AccountzOptions) -> dict[str, Any]:
    """Return the names of the accounts, or one account. Raises Refused."""
    broker = server.broker
    head = {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "system_account": broker.system_account.name,
    }
    if options.account:
        return {**head, "account_detail": account_info(server, options.account)}
    return {**head, "accounts": list(broker.accounts)}


def account_info(server: ServerInstance, name: str) -> dict[str, Any]:
    """Return what is known of one account: also the answer to `$SYS.REQ.ACCOUNT.<name>.INFO`. Raises Refused."""
    account = server.broker.accounts.get(name)
    if account is None:
        raise Refused(f"Account {name} does not exist")
    return {"account_name": name}
