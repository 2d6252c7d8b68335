"""One subscription as connz, subsz and leafz show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natsctl.server.monitor.document import text

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.subscription import Subscription


def subscription_detail(sub: Subscription, account: Account | None = None) -> dict[str, Any]:
    """Return a subscription, with its account where that is given; those inside the server have neither sid nor cid."""
    detail: dict[str, Any] = {}
    if account is not None:
        detail = {"account": account.name, "account_tag": name_tag(account)}
    detail["subject"] = text(sub.subject)
    if sub.queue:
        detail["qgroup"] = text(sub.queue)
    detail |= {"sid": text(sub.sid), "msgs": sub.delivered}
    if sub.max:
        detail["max"] = sub.max
    detail["cid"] = sub.session.cid if sub.session is not None else 0
    return detail


def name_tag(account: Account) -> str:
    """Return what people call an account."""
    return account.config.display_name or account.name
