"""The monitoring endpoints as requests: which there are, how their bodies read, and what answers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.model import Duration
from natsctl.server.monitor.accountz import AccountzOptions, account_info, accountz
from natsctl.server.monitor.accstatz import AccstatzOptions, accstatz
from natsctl.server.monitor.connz import ConnzOptions, connz
from natsctl.server.monitor.expvarz import expvarz
from natsctl.server.monitor.gatewayz import GatewayzOptions, gatewayz
from natsctl.server.monitor.healthz import HealthzOptions, healthz
from natsctl.server.monitor.ipqueuesz import IpqueueszOptions, ipqueuesz
from natsctl.server.monitor.jsz import JszOptions, jsz, jsz_account
from natsctl.server.monitor.leafz import LeafzOptions, leafz
from natsctl.server.monitor.raftz import RaftzOptions, raftz
from natsctl.server.monitor.routez import RoutezOptions, routez
from natsctl.server.monitor.subsz import SubszOptions, subsz
from natsctl.server.monitor.varz import varz
from natsctl.server.system.forms import Form
from natsctl.server.system.names import EVERYBODY
from natsctl.server.system.replies import NoResponseError

if TYPE_CHECKING:
    from natsctl.server.view import ServerView


class ProfilezOptions(msgspec.Struct, kw_only=True):
    """What is asked of `profilez`."""

    name: str = ""
    debug: int = 0
    duration: Duration = 0


class Endpoint(msgspec.Struct, frozen=True):
    """One endpoint: how its request reads, and what answers it."""

    form: Form
    answer: Callable[[ServerView, Any], Any]


def profilez(server: ServerView, options: ProfilezOptions) -> dict[str, Any]:
    """Return why there is no profile: those are of Go programs, and this is none."""
    text = f'Profile "{options.name}" not found' if options.name else "Profile name not specified"
    return {"profile": None, "error": text}


_CONNZ: Final = Form("ConnzEventOptions", "ConnzOptions", ConnzOptions)
_SUBSZ: Final = Form("SubszEventOptions", "SubszOptions", SubszOptions)
_LEAFZ: Final = Form("LeafzEventOptions", "LeafzOptions", LeafzOptions)
_JSZ: Final = Form("JszEventOptions", "JSzOptions", JszOptions)
_STATZ: Final = Form("AccountStatzEventOptions", "AccountStatzOptions", AccstatzOptions)

SERVER_ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    "VARZ": Endpoint(Form("VarzEventOptions"), lambda server, _: varz(server)),
    "SUBSZ": Endpoint(_SUBSZ, subsz),
    "CONNZ": Endpoint(_CONNZ, connz),
    "ROUTEZ": Endpoint(Form("RoutezEventOptions", "RoutezOptions", RoutezOptions), routez),
    "GATEWAYZ": Endpoint(Form("GatewayzEventOptions", "GatewayzOptions", GatewayzOptions), gatewayz),
    "LEAFZ": Endpoint(_LEAFZ, leafz),
    "ACCOUNTZ": Endpoint(Form("AccountzEventOptions", "AccountzOptions", AccountzOptions), accountz),
    "JSZ": Endpoint(_JSZ, jsz),
    "HEALTHZ": Endpoint(Form("HealthzEventOptions", "HealthzOptions", HealthzOptions), healthz),
    "PROFILEZ": Endpoint(Form("ProfilezEventOptions", "ProfilezOptions", ProfilezOptions), profilez),
    "EXPVARZ": Endpoint(Form("ExpvarzEventOptions"), lambda server, _: expvarz(server)),
    "IPQUEUESZ": Endpoint(Form("IpqueueszEventOptions", "IpqueueszOptions", IpqueueszOptions), ipqueuesz),
    "RAFTZ": Endpoint(Form("RaftzEventOptions", "RaftzOptions", RaftzOptions), raftz),
}
"""Asked on `$SYS.REQ.SERVER.PING.<name>` and `$SYS.REQ.SERVER.<id>.<name>`."""


def _account_subsz(server: ServerView, options: SubszOptions, account: str) -> dict[str, Any]:
    options.subscriptions, options.account = True, account
    return subsz(server, options)


def _account_connz(server: ServerView, options: ConnzOptions, account: str) -> dict[str, Any]:
    options.acc = account
    return connz(server, options)


def _account_leafz(server: ServerView, options: LeafzOptions, account: str) -> dict[str, Any]:
    options.account = account
    return leafz(server, options)


def _account_jsz(server: ServerView, options: JszOptions, account: str) -> dict[str, Any]:
    options.account = account
    return jsz_account(server, options)


def _account_statz(server: ServerView, options: AccstatzOptions, account: str) -> dict[str, Any]:
    if account != EVERYBODY:
        options.accounts = [account]
    found = accstatz(server, options)
    if not found["account_statz"] and not options.include_unused:
        raise NoResponseError
    return found


class AccountEndpoint(msgspec.Struct, frozen=True):
    """One endpoint that is asked about an account."""

    form: Form
    answer: Callable[[ServerView, Any, str], Any]


ACCOUNT_ENDPOINTS: Final[Mapping[str, AccountEndpoint]] = {
    "SUBSZ": AccountEndpoint(_SUBSZ, _account_subsz),
    "CONNZ": AccountEndpoint(_CONNZ, _account_connz),
    "LEAFZ": AccountEndpoint(_LEAFZ, _account_leafz),
    "JSZ": AccountEndpoint(_JSZ, _account_jsz),
    "INFO": AccountEndpoint(Form("AccInfoEventOptions"), lambda server, _, account: account_info(server, account)),
    "STATZ": AccountEndpoint(_STATZ, _account_statz),
}
"""Asked on `$SYS.REQ.ACCOUNT.<account>.<name>`."""
