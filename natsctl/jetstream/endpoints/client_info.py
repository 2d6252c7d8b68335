"""The client behind a request, as advisories describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from natsctl.api.advisories import ClientInfo
from natsctl.broker.imports.requester import requester_info

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker import Broker
    from natsctl.jetstream.endpoints.requests import ApiRequest


def client_info(broker: Broker, account: Account, request: ApiRequest) -> ClientInfo:
    """Return the client behind a request in `account`; without one, the server itself.

    Of who asks from another account it is what that account shares, and the account that was asked as the service.
    """
    hop = request.hop
    if hop is None or hop.info is None:
        return replace(requester_info(broker, account, request.origin, detailed=True), jwt="")
    return replace(hop.info, svc=account.name, jwt="", server=hop.info.server or broker.server_name)
