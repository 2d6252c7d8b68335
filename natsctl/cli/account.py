"""JetStream use, limits, connections and TLS of the account: `natsctl account`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from natsctl.api.account import AccountInfo, Tier
from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError
from natsctl.api.units import format_size, parse_duration, plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Given, Json, flagged
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import Verb, verb
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.server_reports import STATISTICS, render_statistics
from natsctl.cli.render.text import count, duration, listed, safe, when, yes
from natsctl.cli.server.overview import Server, Top
from natsctl.cli.server.report import (
    FILTER,
    FILTERS,
    ServerReport,
    View,
    connection_report,
    request_of,
    show_report,
    top,
)
from natsctl.client.account import overview, own_answers
from natsctl.client.certificates import Certificate, chain
from natsctl.client.system.system_account import ServerAnswers

UNLIMITED = "unlimited"


def render_account(info: AccountInfo | None, server: Mapping[str, Any], user: Mapping[str, Any]) -> Page:
    """Return the page.

    `info` is None if JetStream does not answer, `user` is empty if the server does not name the user.
    """
    page = Page("Account Information")
    _connection(page.section(), server, user)
    permissions = user.get("permissions") or {}
    section = page.section("Connection Permissions")
    for act in ("publish", "subscribe"):
        rules = permissions.get(act) or {}
        for rule in ("allow", "deny"):
            section.many(f"{act.title()} {rule.title()}", [safe(str(subject)) for subject in rules.get(rule) or ()])
    if info is None:
        page.section("JetStream Account Information").row("JetStream", "not available")
    else:
        domain = f" for domain {safe(info.domain)}" if info.domain else ""
        _tier(page, f"JetStream Account Information{domain}", info)
        _api(page.section("JetStream API"), info)
        for name, tier in sorted(info.tiers.items()):
            _tier(page, f"Tier {safe(name)}", tier)
    return page


def _connection(section: Section, server: Mapping[str, Any], user: Mapping[str, Any]) -> None:
    name, key = str(user.get("user_name") or ""), str(user.get("user") or "")
    section.maybe("User", safe(f"{name} ({key})" if name and name != key else key))
    name, key = str(user.get("account_name") or ""), str(user.get("account") or "")
    section.maybe("Account", safe(f"{name} ({key})" if name else key))
    if "acc_is_sys" in server or user:
        section.row("System Account", yes(bool(server.get("acc_is_sys"))))
    if user:
        section.row("Expires", duration(int(user["expires"])) if user.get("expires") else "never")
    section.row("Client ID", str(server.get("client_id", "")))
    section.maybe("Client IP", safe(str(server.get("client_ip") or "")))
    section.row("RTT", duration(int(server.get("rtt_ns", 0))))
    section.row("Headers Supported", yes(bool(server.get("headers"))))
    section.row("Maximum Payload", format_size(int(server.get("max_payload", 0))))
    section.maybe("Connected Cluster", safe(str(server.get("cluster") or "")))
    section.row("Connected URL", safe(str(server.get("url", ""))))
    section.maybe("Connected Address", safe(str(server.get("address") or "")))
    section.row("Connected Server ID", safe(str(server.get("server_id", ""))))
    section.row("Connected Server Version", safe(str(server.get("version", ""))))
    section.maybe("Connected Server Name", _name(server))
    _tls(section, server)


def _tls(section: Section, server: Mapping[str, Any]) -> None:
    section.row("TLS Connection", "yes" if server.get("tls") else "no")
    for label, key in (
        ("TLS Version", "tls_version"),
        ("TLS Cipher", "tls_cipher"),
        ("TLS Server Name", "tls_server_name"),
    ):
        section.maybe(label, safe(str(server.get(key) or "")))
    if "tls_verified" in server:
        section.row("TLS Verified", yes(bool(server["tls_verified"])))


def _name(server: Mapping[str, Any]) -> str:
    name = str(server.get("server_name") or "")
    return "" if name == server.get("server_id") else safe(name)


def _tier(page: Page, title: str, tier: Tier) -> None:
    limits = tier.limits
    section = page.section(title)
    section.row("Memory", _used(tier.memory, limits.max_memory, tier.reserved_memory))
    section.row("Memory Per Stream", _most(limits.memory_max_stream_bytes))
    section.row("Storage", _used(tier.storage, limits.max_storage, tier.reserved_storage))
    section.row("Storage Per Stream", _most(limits.storage_max_stream_bytes))
    section.row("Streams", f"{count(tier.streams)} of {_number(limits.max_streams)}")
    section.row("Consumers", f"{count(tier.consumers)} of {_number(limits.max_consumers)}")
    section.row("Stream Requires Max Bytes Set", yes(limits.max_bytes_required))
    most = limits.max_ack_pending
    section.row("Consumer Maximum Ack Pending", count(most) if most > 0 else UNLIMITED)


def _api(section: Section, info: AccountInfo) -> None:
    section.row("API Level", count(info.api.level))
    section.row("API Requests", count(info.api.total))
    section.row("API Errors", count(info.api.errors))


def _used(used: int, most: int, reserved: int) -> str:
    text = f"{format_size(used)} of {_most(most)}"
    return f"{text} ({format_size(reserved)} reserved)" if reserved else text


def _most(limit: int) -> str:
    return UNLIMITED if limit < 0 else format_size(limit) if limit else UNLIMITED


def _number(limit: int) -> str:
    return UNLIMITED if limit < 0 else count(limit)


def render_chain(certificates: Sequence[Certificate], ocsp: bool) -> Page:
    page = Page(f"TLS chain of {plural(len(certificates), 'certificate')}")
    for number, certificate in enumerate(certificates, 1):
        section = page.section(f"Certificate {number}")
        section.row("Subject", safe(certificate.subject))
        section.row("Issuer", safe(certificate.issuer))
        section.maybe("Names", listed(certificate.names))
        section.row("Serial", safe(certificate.serial))
        section.row("Not Before", when(certificate.not_before))
        left = certificate.expires_in_ns
        ends = f"in {duration(left)}" if left > 0 else f"expired {duration(-left)} ago"
        section.row("Not After", f"{when(certificate.not_after)} ({ends})")
        section.row("Certificate Authority", yes(certificate.is_ca))
        section.row("Public Key", safe(certificate.key))
        section.maybe("Signature Hash", safe(certificate.signature))
        section.row("SHA-256", safe(certificate.sha256))
        if ocsp:
            section.row("OCSP Responders", listed(certificate.ocsp) or "none")
            section.row("Must Staple", yes(certificate.must_staple))
    return page


NOT_ENABLED = (ErrCode.NOT_ENABLED_FOR_ACCOUNT, ErrCode.NOT_ENABLED)
"""Error codes of an account, and of a server, without JetStream; not a failure of a command that shows both."""


def info(session: Session, json: Json = False) -> None:
    """Show the account's connection, and its use and limits of JetStream.

    The output of -j is the server's answer to $JS.API.INFO, with the fields `user` and `server` added.
    """
    found, server, user = session.run(overview)
    failure = found if isinstance(found, NatsctlError) else None
    answer = None if isinstance(found, NatsctlError) else found
    if json:
        raw = answer.raw if answer else {}
        beside = {key: value for key, value in (("user", user), ("server", server)) if key not in raw}
        output.emit_json({**raw, **beside})
    else:
        output.show_page(render_account(answer.value if answer else None, server, user))
    if failure and not (isinstance(failure, ApiResponseError) and failure.err_code in NOT_ENABLED):
        raise failure


def tls(
    session: Session,
    expire_warn: Annotated[
        int,
        Option(
            "--expire-warn", metavar="DURATION", help="warn when less time is left; 0 for never", read=parse_duration
        ),
    ] = parse_duration("1w"),
    ocsp: Annotated[bool, Option("--ocsp", help="also show the OCSP fields of the certificates")] = False,
    pem: Annotated[bool, Option("--pem/--no-pem", help="also show the certificates themselves")] = True,
    json: Json = False,
) -> None:
    """Show the certificates that the server presented, its own first, and warn if one expires soon."""
    found = session.run(chain)
    if json:
        output.emit_json([msgspec.to_builtins(one if pem else msgspec.structs.replace(one, pem="")) for one in found])
    else:
        output.show_page(render_chain(found, ocsp))
        if pem:
            output.emit("\n" + "\n".join(one.pem.rstrip() for one in found))
        if ocsp:
            output.note("stapled OCSP responses are not checked: Python's TLS does not expose them")
    for one in found:
        if expire_warn > 0 and one.expires_in_ns < expire_warn:
            left = one.expires_in_ns
            when = f"expires in {duration(left)}" if left > 0 else f"expired {duration(-left)} ago"
            output.note(f"warning: the certificate of {safe(one.subject)} {when}")


@flagged((*FILTERS, FILTER))
def connections(session: Session, given: Given, view: View, top_rows: Top = 1000) -> None:
    """Show the account's connections, those with most subscriptions first."""
    show_report(
        session,
        lambda manager: own_answers(manager, "CONNZ", request_of(given)),
        lambda answers: connection_report(answers, given, view, top_rows),
        view,
    )


def statistics(session: Session, view: View) -> None:
    """Show the statistics of each server for the account."""
    from natsctl.client.system.reports import listed

    def make(answers: ServerAnswers) -> ServerReport:
        versions = {answer.id: answer.server for answer in answers}
        rows = [{**row, "facts": versions[row["server"]["id"]]} for row in listed(answers, "account_statz")]
        shown, _ = top(rows, STATISTICS, view.sort, view.reverse, 0, "server")
        document = [{key: value for key, value in row.items() if key != "facts"} for row in shown]
        return ServerReport(document, lambda width: render_statistics(shown, width, view.columns, view.wide), answers)

    show_report(session, lambda manager: own_answers(manager, "STATZ"), make, view)


class AccountOverview(AccountInfo):
    """The server's answer to `$JS.API.INFO`, with the login (`user`) and the server (`server`).

    If JetStream does not answer, it has only those two.
    """

    type: str = ""
    user: dict[str, Any] = msgspec.field(default_factory=dict)
    server: dict[str, Any] = msgspec.field(default_factory=dict)


class Moved(msgspec.Struct):
    """Amounts that were moved."""

    msgs: int
    bytes: int


class AccountStatistics(msgspec.Struct):
    """Counters of the account on one server."""

    acc: str
    conns: int
    leafnodes: int
    num_subscriptions: int
    sent: Moved
    received: Moved
    slow_consumers: int
    server: Server


REPORT_VERBS = (
    verb(
        "connections, conn, connz, conns",
        connections,
        "cli.server.report:Connection[]",
        "natsctl account report connections --sort in-bytes --top 10",
    ),
    verb("statistics, stats, statsz, statz", statistics, "cli.account:AccountStatistics[]"),
)

VERBS = (
    verb("info, nfo, i", info, "cli.account:AccountOverview"),
    Verb("report, rep", REPORT_VERBS, "Show the account's connections and their traffic"),
    verb("tls", tls, "client.certificates:Certificate[]", "natsctl account tls --no-pem --expire-warn 30d"),
    verb(
        "backup, snapshot",
        "backup.accounts.backup_account",
        "client.backup.account_backup:AccountOutcome",
        "natsctl account backup /data/account --parallel 8",
    ),
    verb(
        "restore",
        "backup.accounts.restore_account",
        "client.backup.account_backup:AccountOutcome",
        "natsctl account restore /data/account --on-existing skip",
    ),
)
