"""`server account info`: an account as a server's operator sees it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
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
    section.maybe("Tag", safe(tag))
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


def _shared(page: Page, title: str, entries: Any, rows: Callable[[Section, Detail], None]) -> None:
    for number, entry in enumerate(entries):
        # One block for each: those after the first follow without a title of their own.
        rows(page.section("" if number else title), entry)


def _import(section: Section, entry: Detail) -> None:
    local = str(entry.get("local_subject") or entry.get("to") or entry.get("subject"))
    subject, account = str(entry.get("subject")), safe(str(entry.get("account")))
    origin = f" from subject {safe(subject)} in account {account}" if subject != local else f" from account {account}"
    section.maybe("Invalid", yes(True) if entry.get("invalid") else "")
    section.row("Subject", f"{safe(local)}{origin}")
    section.row("Type", safe(str(entry.get("type") or "")))
    section.maybe("Name", safe(str(entry.get("name") or "")))
    section.row("Sharing", yes(bool(entry.get("share"))))
    section.row("Tracking", yes(bool(entry.get("tracking"))))


def _export(section: Section, entry: Detail) -> None:
    section.row("Subject", safe(str(entry.get("subject"))))
    section.row("Type", safe(str(entry.get("type") or "")))
    section.row("Tokens Required", yes(bool(entry.get("token_req"))))
    section.maybe("Response Type", safe(str(entry.get("response_type") or "")))
    section.maybe("Description", safe(str(entry.get("description") or "")))
    section.maybe("Name", safe(str(entry.get("name") or "")))
    section.many("Accounts", [safe(str(one)) for one in entry.get("approved_accounts") or ()])


def _mappings(section: Section, mappings: Detail) -> None:
    for source, targets in mappings.items():
        section.row(safe(str(source)), safe(json.dumps(targets, ensure_ascii=False)))
