"""Contexts: one as a page, several as a table, and what a check of them found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from natsctl.cli.render.page import Page
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import duration, safe
from natsctl.client.servers import DEFAULT_URL
from natsctl.client.settings import expand_path

if TYPE_CHECKING:
    from natsctl.cli.render.tables import Table
    from natsctl.client.servers import Checked

_ROWS = (
    ("Username", "user"),
    ("Password", "password"),
    ("Token", "token"),
    ("Credentials", "creds"),
    ("NKey", "nkey"),
    ("JWT", "user_jwt"),
    ("User Seed", "user_seed"),
    ("Certificate", "cert"),
    ("Key", "key"),
    ("CA", "ca"),
    ("NSC Lookup", "nsc"),
    ("JS API Prefix", "jetstream_api_prefix"),
    ("JS Event Prefix", "jetstream_event_prefix"),
    ("JS Domain", "jetstream_domain"),
    ("Inbox Prefix", "inbox_prefix"),
    ("SOCKS5 Proxy", "socks_proxy"),
    ("Color Scheme", "color_scheme"),
    ("Windows Cert Store", "windows_cert_store"),
    ("Windows Cert Match", "windows_cert_match"),
)
_FILES = ("creds", "nkey", "cert", "key", "ca")


def render_context(document: Mapping[str, Any]) -> Page:
    """Return the page of a context, as `-j` shows it, with a note on files that do not exist."""
    chosen = " (selected)" if document["selected"] else ""
    page = Page(f"Context {safe(document['name'])}{chosen}")
    rows = page.section()
    rows.maybe("Description", safe(str(document.get("description") or "")))
    rows.many("Server URLs", [safe(url.strip()) for url in str(document.get("url") or DEFAULT_URL).split(",")])
    for label, key in _ROWS:
        rows.maybe(label, _value(key, str(document.get(key) or "")))
    if document.get("tls_first"):
        rows.row("TLS First", "true")
    rows.row("Path", safe(str(document["path"])))
    if "connection" in document:
        rows.row("Connection", reached(document["connection"], str(document.get("fault", ""))))
    return page


def _value(key: str, value: str) -> str:
    plain = key in _FILES and value and "://" not in value and not value.startswith("*")
    absent = plain and not Path(expand_path(value)).is_file()
    return safe(value) + (" (no such file)" if absent else "")


def reached(server: Mapping[str, Any] | None, fault: str) -> str:
    """Return what a connection showed, or why there was none."""
    if server is None:
        return safe(fault)
    return safe(f"{server['server_name']} {server['version']} at {server['url']}, {duration(server['rtt'])}")


def render_contexts(documents: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of all contexts; `*` marks the selected one."""
    rows = [
        (
            one["name"] + ("*" if one["selected"] else ""),
            str(one.get("fault") or one.get("description") or ""),
            ", ".join(url.strip() for url in str(one.get("url") or "").split(",")),
        )
        for one in documents
    ]
    # A fault of a context stands where its description would.
    least = () if any(one.get("fault") for one in documents) else ("Description",)
    return render_table("Known Contexts", ("Name", "Description", "Server URLs"), rows, least=least)


def render_checks(found: Sequence[Checked]) -> Table:
    """Return the table of what a check found."""
    rows = [(one.name, one.fault or "OK", reached(one.server, "") if one.server else "") for one in found]
    connected = any(one.server for one in found)
    columns = ("Name", "Result", "Connection") if connected else ("Name", "Result")
    return render_table("Contexts", columns, [row[: len(columns)] for row in rows])
