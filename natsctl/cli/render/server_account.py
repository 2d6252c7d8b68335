"""`server account info`: an account as a server's operator sees it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from natsctl.api.units import format_size
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.values import ago, count, safe, when, yes

Detail = Mapping[str, Any]


def render_account_detail(detail: Detail, server: str) -> Page:
    """The page of an account's details, as that server has them."""
    name, tag = str(detail.get("account_name") or ""), str(detail.get("name_tag") or "")
    page = Page(f"Account information for account {safe(name)} on {safe(server)}")
    section = page.section("Details")
    if tag and tag != name:
        section.row("Name", safe(tag))
    for label, key in (
        ("Complete", "complete"),
        ("Expired", "expired"),
        ("System Account", "is_system"),
        ("JetStream", "jetstream_enabled"),
    ):
        section.row(label, yes(bool(detail.get(key))))
    if updated := detail.get("update_time"):
        section.row("Updated", f"{when(str(updated))} ({ago(str(updated), time.time_ns())} ago)")
    section.maybe("Issuer", safe(str(detail.get("issuer_key") or "")))
    section.row("Client Connections", count(int(detail.get("client_connections") or 0)))
    section.row("Leafnode Connections", count(int(detail.get("leafnode_connections") or 0)))
    section.row("Subscriptions", count(int(detail.get("subscriptions") or 0)))
    _limits(page.section("Limits"), detail)
    _shared(page, "Imports", detail.get("imports") or (), _import)
    _shared(page, "Exports", detail.get("exports") or (), _export)
    _mappings(page.section("Mappings"), detail.get("mappings") or {})
    return page


def _limits(section: Section, detail: Detail) -> None:
    limits = (detail.get("decoded_jwt") or {}).get("nats", {}).get("limits") or {}
    for key, value in limits.items():
        if isinstance(value, bool):
            section.row(safe(str(key)), yes(value))
        elif isinstance(value, int):
            size = key in ("data", "payload", "mem_storage", "disk_storage")
            section.row(safe(str(key)), "unlimited" if value < 0 else format_size(value) if size else count(value))


def _shared(page: Page, title: str, entries: Any, row: Any) -> None:
    section = page.section(title)
    for entry in entries:
        section.row(safe(str(entry.get("type") or "")).title() or title[:-1], row(entry))


def _import(entry: Detail) -> str:
    local = str(entry.get("local_subject") or entry.get("to") or entry.get("subject"))
    subject = str(entry.get("subject"))
    from_subject = f" from subject {safe(subject)}" if subject != local else ""
    return f"{safe(local)}{from_subject} of account {safe(str(entry.get('account')))}{_marks(entry)}"


def _export(entry: Detail) -> str:
    who = entry.get("approved_accounts") or ()
    to = f" to {', '.join(safe(str(one)) for one in who)}" if who else " to every account"
    response = entry.get("response_type")
    answers = f", {safe(str(response)).lower()} response" if response and entry.get("type") == "service" else ""
    return f"{safe(str(entry.get('subject')))}{to}{answers}{_marks(entry)}"


def _marks(entry: Detail) -> str:
    said = [
        word for word, key in (("shared", "share"), ("tracked", "tracking"), ("INVALID", "invalid")) if entry.get(key)
    ]
    return f" ({', '.join(said)})" if said else ""


def _mappings(section: Section, mappings: Detail) -> None:
    for source, targets in mappings.items():
        section.row(safe(str(source)), safe(json.dumps(targets, ensure_ascii=False)))
