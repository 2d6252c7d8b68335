"""Accounts and certificates as pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from natsctl.api.account import AccountInfo, AccountLimits, Tier
from natsctl.api.units import format_size, plural
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.text import count, duration, listed, safe, when, yes
from natsctl.client.certificates import Certificate

UNLIMITED = "unlimited"


def render_account(info: AccountInfo | None, server: Mapping[str, Any], user: Mapping[str, Any]) -> Page:
    """Return the page.

    `info` is None where JetStream does not answer, `user` empty where the server does not say who it is.
    """
    page = Page("Account Information")
    _connection(page.section(), server, user)
    _permissions(page, user.get("permissions") or {})
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


def _permissions(page: Page, permissions: Mapping[str, Any]) -> None:
    section = page.section("Connection Permissions")
    for act in ("publish", "subscribe"):
        rules = permissions.get(act) or {}
        for verb in ("allow", "deny"):
            section.many(f"{act.title()} {verb.title()}", [safe(str(subject)) for subject in rules.get(verb) or ()])


def _tier(page: Page, title: str, tier: Tier) -> None:
    limits = tier.limits
    section = page.section(title)
    section.row("Memory", _used(tier.memory, limits.max_memory, tier.reserved_memory))
    section.row("Memory Per Stream", _most(limits.memory_max_stream_bytes))
    section.row("Storage", _used(tier.storage, limits.max_storage, tier.reserved_storage))
    section.row("Storage Per Stream", _most(limits.storage_max_stream_bytes))
    section.row("Streams", f"{count(tier.streams)} of {_number(limits.max_streams)}")
    section.row("Consumers", f"{count(tier.consumers)} of {_number(limits.max_consumers)}")
    _requirements(section, limits)


def _api(section: Section, info: AccountInfo) -> None:
    section.row("API Level", count(info.api.level))
    section.row("API Requests", count(info.api.total))
    section.row("API Errors", count(info.api.errors))


def _requirements(section: Section, limits: AccountLimits) -> None:
    section.row("Stream Requires Max Bytes Set", yes(limits.max_bytes_required))
    most = limits.max_ack_pending
    section.row("Consumer Maximum Ack Pending", count(most) if most > 0 else UNLIMITED)


def _used(used: int, most: int, reserved: int) -> str:
    text = f"{format_size(used)} of {_most(most)}"
    return f"{text} ({format_size(reserved)} reserved)" if reserved else text


def _most(limit: int) -> str:
    return UNLIMITED if limit < 0 else format_size(limit) if limit else UNLIMITED


def _number(limit: int) -> str:
    return UNLIMITED if limit < 0 else count(limit)


def render_chain(certificates: Sequence[Certificate], ocsp: bool) -> Page:
    """Return the page: a section for each certificate."""
    page = Page(f"TLS chain of {plural(len(certificates), 'certificate')}")
    for number, one in enumerate(certificates, 1):
        section = page.section(f"Certificate {number}")
        section.row("Subject", safe(one.subject))
        section.row("Issuer", safe(one.issuer))
        section.maybe("Names", listed(one.names))
        section.row("Serial", safe(one.serial))
        section.row("Not Before", when(one.not_before))
        left = one.expires_in_ns
        ends = f"in {duration(left)}" if left > 0 else f"expired {duration(-left)} ago"
        section.row("Not After", f"{when(one.not_after)} ({ends})")
        section.row("Certificate Authority", yes(one.is_ca))
        section.row("Public Key", safe(one.key))
        section.maybe("Signature Hash", safe(one.signature))
        section.row("SHA-256", safe(one.sha256))
        if ocsp:
            section.row("OCSP Responders", listed(one.ocsp) or "none")
            section.row("Must Staple", yes(one.must_staple))
    return page
