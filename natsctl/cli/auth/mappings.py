"""Subject mappings of accounts: `natsctl auth account mappings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from natsctl.api.errors import UsageError
from natsctl.api.subject_transform import TransformError, check_mapping
from natsctl.cli.auth.account_settings import Removed, asked, show_list, store_account
from natsctl.cli.auth.selection import AccountFlags, picked
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import confirmed_at_terminal
from natsctl.cli.framework.flags import Force, Json
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.page import Page
from natsctl.cli.render.text import count, safe
from natsctl.client.auth.account_claims import add_mapping, mappings_of, read_mappings, remove_mapping, set_mapping
from natsctl.client.auth.claims import Document
from natsctl.client.auth.operators import EntityNotFoundError, ManagedAccount


class MappingDestination(msgspec.Struct):
    """A destination of a mapping, as the nats tool prints it; `Weight` in percent, `Cluster` "" for all."""

    Subject: str
    Weight: int
    Cluster: str


ShownMappings = dict[str, list[MappingDestination]]
"""Subject mappings by source."""


def render_mappings(mappings: Mapping[str, Sequence[Document]]) -> Page:
    page = Page("Subject mappings")
    for source, destinations in mappings.items():
        rows = page.section("Configuration")
        for destination in destinations:
            rows.row("Source", safe(source))
            rows.row("Target", safe(destination.get("subject", "")))
            rows.row("Weight", count(destination.get("weight") or 100))
            rows.maybe("Cluster", safe(destination.get("cluster", "")))
        rows.row("Total weight", count(sum(destination.get("weight") or 100 for destination in destinations)))
    return page


def _show_mappings(mappings: Mapping[str, Sequence[Document]], json: bool) -> None:
    output.emit_json(_as_tool(mappings)) if json else output.show_page(render_mappings(mappings))


def _as_tool(mappings: Mapping[str, Sequence[Document]]) -> ShownMappings:
    return {
        source: [
            MappingDestination(one.get("subject", ""), one.get("weight") or 100, one.get("cluster", ""))
            for one in destinations
        ]
        for source, destinations in mappings.items()
    }


DEFAULT_WEIGHT: Final = 100
MaybeSource = Annotated[str | None, Argument(metavar="SOURCE", help="the subject that is mapped")]


def mapping_add(
    session: Session,
    chosen: AccountFlags,
    source: MaybeSource = None,
    target: Annotated[str | None, Argument(metavar="TARGET", help="the subject that it becomes")] = None,
    weight: Annotated[int, Argument(metavar="WEIGHT", help="percentage of the messages", min=1, max=100)] = (
        DEFAULT_WEIGHT
    ),
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="in this cluster only")] = "",
    config: Annotated[
        str | None, Option("--config", metavar="FILE", help="mappings from a file, JSON or YAML; - for stdin")
    ] = None,
    json: Json = False,
) -> None:
    """Add a destination to a subject mapping of an account, or replace the mappings with a file's."""
    store, found = chosen.find(session)
    if config is not None:
        from natsctl.cli.assets import parse_document, read_text

        wanted = read_mappings(parse_document(config, read_text(config)), config)
        for one, destinations in wanted.items():
            for destination in destinations:
                _check_mapping(one, str(destination["subject"]))
            set_mapping(found, one, destinations)
    else:
        subject = source or asked(session, "SOURCE", "Source subject", "The subject that is mapped")
        to = target or asked(session, "TARGET", "Target subject", "The subject that it becomes")
        _check_mapping(subject, to)
        add_mapping(found, subject, to, weight, cluster)
        wanted = {subject: mappings_of(found)[subject]}
    store_account(session, store, found)
    _show_mappings(wanted, json)


def _check_mapping(source: str, target: str) -> None:
    try:
        check_mapping(source, target)
    except TransformError as failure:
        place = "SOURCE" if failure.kind == "source" else "TARGET"
        raise UsageError(f"{place}: {failure}") from failure


def _picked_mapping(session: Session, account: ManagedAccount, source: str | None) -> str:
    known = list(mappings_of(account))
    source = picked(session, source, "SOURCE", "Select a mapping", known)
    if source not in known:
        raise EntityNotFoundError("mapping", source, known, f"account {account.name}")
    return source


def mapping_ls(session: Session, chosen: AccountFlags, json: Json = False) -> None:
    """List the subject mappings of an account."""
    _, found = chosen.find(session)
    mappings = mappings_of(found)
    rows = [
        (
            source,
            str(destination.get("subject", "")),
            count(destination.get("weight") or 100),
            str(destination.get("cluster", "")),
        )
        for source, destinations in mappings.items()
        for destination in destinations
    ]
    columns = ("Source Subject", "Target Subject", "Weight", "Cluster")
    title = f"Subject mappings for account {safe(found.name)}"
    show_list(title, columns, rows, _as_tool(mappings), "No mappings defined", json)


def mapping_info(session: Session, chosen: AccountFlags, source: MaybeSource = None, json: Json = False) -> None:
    """Show the mapping of a subject."""
    _, found = chosen.find(session)
    if not mappings_of(found) and source is None:
        output.emit_json({}) if json else output.emit("No mappings defined")
        return
    subject = _picked_mapping(session, found, source)
    _show_mappings({subject: mappings_of(found)[subject]}, json)


def mapping_rm(
    session: Session, chosen: AccountFlags, source: MaybeSource = None, force: Force = False, json: Json = False
) -> None:
    """Remove the mapping of a subject, with all of its destinations."""
    store, found = chosen.find(session)
    if not mappings_of(found) and source is None:
        output.emit_json({}) if json else output.emit("No mappings defined")
        return
    subject = _picked_mapping(session, found, source)
    if not force and not confirmed_at_terminal(session, f"remove the mapping of {subject}"):
        return
    remove_mapping(found, subject)
    store_account(session, store, found)
    output.emit_json(Removed(subject)) if json else output.emit(f"Deleted mapping {{{safe(subject)}}}")


VERBS = (
    verb(
        "add, new, a",
        mapping_add,
        "cli.auth.mappings:ShownMappings",
        "natsctl auth account mappings add APP orders.new orders.v2.new 20",
    ),
    verb("ls, list", mapping_ls, "cli.auth.mappings:ShownMappings"),
    verb("info, i, show, view", mapping_info, "cli.auth.mappings:ShownMappings"),
    verb("rm", mapping_rm, "cli.auth.account_settings:Removed", "natsctl auth account mappings rm APP orders.new"),
)
