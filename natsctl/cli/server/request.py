"""`natsctl server request`: servers' own answers, one JSON document per line."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec

from natsctl.api.errors import NatsctlError, UsageError, file_errors
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import (
    DURATION,
    SUBJECT,
    SWITCH,
    TEXT,
    WHOLE,
    Config,
    Flag,
    Given,
    Json,
    choice,
    fields_of,
    flagged,
)
from natsctl.cli.framework.parameters import Argument
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.text import safe
from natsctl.cli.server.overview import (
    ARCHIVE,
    SCOPE,
    Expect,
    Server,
    require_all,
    scope_of,
    servers_of,
    suggesting_server,
)
from natsctl.cli.server.report import HEALTH, STATES, for_answers, place_state
from natsctl.client.system.system_account import ServerAnswer, System


class Profile(msgspec.Struct):
    """A profile of a server and the file that it was written to."""

    server: Server
    profile: str
    file: str


_ALL = ("accounts", "streams", "consumer", "config", "raft")


def _everything(body: Config, value: bool) -> None:
    body.update(dict.fromkeys(_ALL, value))


def _detailed(body: Config, value: bool) -> None:
    body.update(subscriptions=value, subscriptions_detail=value)


SUBSCRIPTIONS = Flag("--subscriptions", SWITCH, "subscriptions", "also subscriptions")
PAGE = (
    Flag("--limit", WHOLE, "limit", "at most N entries from each server, instead of every page"),
    Flag("--offset", WHOLE, "offset", "only the page that begins with this entry"),
)
KINDS: dict[str, tuple[Flag, ...]] = {
    "ACCOUNTZ": (Flag("--account", TEXT, "account", "details of this account"),),
    "CONNZ": (
        Flag("--sort", TEXT, "sort", "sort key of the server, such as cid, bytes_to or uptime"),
        SUBSCRIPTIONS,
        Flag("--filter-cid", WHOLE, "cid", "only this connection"),
        Flag("--filter-state", choice(*STATES), place_state, "which connections", default="open"),
        Flag("--filter-user", TEXT, "user", "only connections of this user"),
        Flag("--filter-account", TEXT, "acc", "only connections of this account"),
        Flag("--filter-subject", SUBJECT, "filter_subject", "only connections that subscribe to this subject"),
        Flag("--filter-empty", SWITCH, for_answers, "only servers that have connections"),
        *PAGE,
    ),
    "GATEWAYZ": (
        Flag("--filter-name", TEXT, "name", "only gateways to this cluster"),
        Flag("--filter-account", TEXT, "account_name", "only this account in the details of accounts"),
        Flag("--accounts", SWITCH, "accounts", "also details of accounts"),
        Flag("--subscriptions", SWITCH, _detailed, "also subscriptions"),
    ),
    "IPQUEUESZ": (
        Flag("--all", SWITCH, "all", "also show empty queues (given unless --no-all is)"),
        Flag("--filter", TEXT, "filter", "only queues with this in their name"),
    ),
    "HEALTHZ": (*HEALTH, Flag("--details", SWITCH, "details", "every failure with its stream or consumer")),
    "JSZ": (
        Flag("--account", TEXT, "account", "only this account"),
        *(Flag(f"--{name}", SWITCH, name, f"also details of {name}s" if name == "consumer" else f"also {name}")
          for name in _ALL),
        Flag("--leader", SWITCH, "leader_only", "only the leader of the cluster answers"),
        Flag("--stream-leader", SWITCH, "stream_leader_only", "only leaders report their streams"),
        Flag("--all", SWITCH, _everything, "all of the above"),
        *PAGE,
    ),
    "LEAFZ": (SUBSCRIPTIONS, Flag("--account", TEXT, "account", "only leaf nodes of this account")),
    "RAFTZ": (
        Flag("--account", TEXT, "account", "only groups of this account"),
        Flag("--group", TEXT, "group", "only this group"),
    ),
    "ROUTEZ": (SUBSCRIPTIONS,),
    "SUBSZ": (
        Flag("--detail", SWITCH, "subscriptions", "also every subscription"),
        Flag("--filter-account", TEXT, "account", "only subscriptions of this account"),
        Flag("--filter-subject", SUBJECT, "test", "only subscriptions that get this subject"),
        *PAGE,
    ),
    "VARZ": (),
}  # fmt: skip
"""Endpoints, and the flags that go into the request of each."""
FIXED: dict[str, dict[str, Any]] = {"CONNZ": {"auth": True}, "HEALTHZ": {"details": True}, "IPQUEUESZ": {"all": True}}
"""Fields of a request unless a flag says otherwise: without the first connections lack their account and user."""


def _asking(what: str, help: str) -> Callable[..., None]:
    @flagged((*KINDS[what], *SCOPE, ARCHIVE))
    def ask(session: Session, given: Given, expect: Expect = 0, json: Json = False) -> None:
        _ask(session, what, given, expect)

    ask.__doc__ = help
    return ask


def _ask(session: Session, what: str, given: Given, expect: int) -> None:
    body = fields_of(KINDS[what], given, **FIXED.get(what, {}))
    scope = scope_of(given, expect)
    answers = servers_of(session, given).run(lambda manager: System(manager).ask(what, body, scope))
    for answer in answers:
        if _wanted(answer, given, body):
            output.emit_json_line(answer.raw)
    require_all(answers, expect)
    _raise_refused(answers)


def _wanted(answer: ServerAnswer, given: Given, body: dict[str, Any]) -> bool:
    if given.get("--filter-empty") and not answer.data.get("connections"):
        return False
    return not (body.get("leader_only") and not answer.data and not answer.failure)


def _raise_refused(answers: list[ServerAnswer]) -> None:
    refused = [(answer.name, answer.failure) for answer in answers if answer.failure is not None]
    if refused:
        raise NatsctlError("; ".join(f"{name}: {failure}" for name, failure in refused))


accounts = _asking("ACCOUNTZ", "Show the accounts of each server, or details of one.")
connections = _asking("CONNZ", "Show the connections of each server.")
ipqueue = _asking("IPQUEUESZ", "Show the internal queues of each server.")
jetstream_health = _asking("HEALTHZ", "Show the health of each server, by its own account.")
jetstream = _asking("JSZ", "Show what JetStream holds on each server.")
leafnodes = _asking("LEAFZ", "Show the leaf nodes of each server.")
raft = _asking("RAFTZ", "Show the Raft groups of each server.")
routes = _asking("ROUTEZ", "Show the routes of each server.")
subscriptions = _asking("SUBSZ", "Show the subscriptions of each server.")
variables = _asking("VARZ", "Show configuration and statistics of each server.")


@flagged((*KINDS["GATEWAYZ"], *SCOPE, ARCHIVE))
def gateways(
    session: Session,
    given: Given,
    expect: Expect = 0,
    name: Annotated[str, Argument(metavar="NAME", help="as --filter-name")] = "",
    json: Json = False,
) -> None:
    """Show the gateways of each server."""
    _ask(session, "GATEWAYZ", {**given, "--filter-name": name} if name else given, expect)


def kick(
    session: Session,
    client: Annotated[int, Argument(metavar="CID", help="the connection's number")],
    server: Annotated[str, Argument(metavar="SERVER", help="its server, by name or id")],
    json: Json = False,
) -> None:
    """Disconnect a client or leaf node."""
    with suggesting_server():
        answer = session.run(lambda manager: System(manager).ask_one(server, "KICK", {"cid": client}, changes=True))
    output.emit_json(answer.raw) if json else output.emit_json_line(answer.raw)


PROFILES = ("allocs", "heap", "goroutine", "mutex", "threadcreate", "block", "cpu")
_PROFILE = (
    Flag("--level", WHOLE, "debug", "debug level of the profile"),
    Flag("--duration", DURATION, "duration", "duration of a cpu profile", default="5s"),
)


@flagged((*_PROFILE, *SCOPE, ARCHIVE))
def profile(
    session: Session,
    given: Given,
    profile: Annotated[str, Argument(metavar="PROFILE", help=", ".join(PROFILES))],
    folder: Annotated[str, Argument(metavar="DIR", help="folder to write it to")] = ".",
    json: Json = False,
) -> None:
    """Profile servers, and write one file for each; natsctl's own server has no profiles."""
    if profile not in PROFILES:
        raise UsageError(f"PROFILE: expected one of {', '.join(PROFILES)}, not {profile!r}")
    body = fields_of(_PROFILE, given, name=profile)
    if profile == "cpu":
        body.setdefault("duration", 5_000_000_000)
    answers = servers_of(session, given).run(lambda manager: System(manager).profiles(body, scope_of(given)))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    written: list[dict[str, Any]] = []
    refused: list[str] = []
    for answer in answers:
        said = answer.data.get("error") or (str(answer.failure) if answer.failure else "")
        if said or not answer.data.get("profile"):
            refused.append(f"{answer.name}: {said or 'no profile'}")
            continue
        path = _write(Path(folder), f"{profile}-{stamp}-{answer.name}", answer.data["profile"])
        written.append({"server": answer.server, "profile": profile, "file": path})
    if json:
        output.emit_json(written)
    else:
        for one in written:
            output.emit(f'Server "{safe(str(one["server"].get("name")))}" profile written: {safe(str(one["file"]))}')
    if refused:
        raise NatsctlError("; ".join(refused))


def _write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    with file_errors(path, UsageError):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(text))
    return str(path)


_LINES = "cli.server.overview:ServerAnswer*"


VERBS = (
    verb("accounts, accountz, acct", accounts, _LINES),
    verb("connections, conn, connz", connections, _LINES),
    verb("gateways, gateway, gwy, gatewayz", gateways, _LINES),
    verb("ipqueue, ipq, ipqueuesz", ipqueue, _LINES),
    verb("jetstream-health, healthz", jetstream_health, _LINES),
    verb(
        "jetstream, jsz, js",
        jetstream,
        _LINES,
        "natsctl server request jetstream --account ORDERS --streams --consumer",
    ),
    verb("kick", kick, "cli.server.overview:ServerAnswer", "natsctl server request kick 42 n1"),
    verb("leafnodes, leaf, leafz", leafnodes, _LINES),
    verb("profile", profile, "cli.server.request:Profile[]", "natsctl server request profile heap /tmp --host n1"),
    verb("raft, raftz", raft, _LINES),
    verb("routes, route, routez", routes, _LINES),
    verb("subscriptions, sub, subsz", subscriptions, _LINES),
    verb("variables, var, varz", variables, _LINES),
)
