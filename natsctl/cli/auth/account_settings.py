"""Accounts in the store of operators, and on servers: `natsctl auth account`."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from natsctl.api.errors import NatsctlError, NotFoundError, UnreachableError, UsageError
from natsctl.api.jwt_claims import AccountClaims
from natsctl.api.units import plural
from natsctl.cli.auth.operators import write_private
from natsctl.cli.auth.selection import AccountFlags, MaybeOperator, OperatorFlag, picked_operator, save, store
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import can_ask, confirmed
from natsctl.cli.framework.flags import DURATION, LIMIT, SIZE, SWITCH, WORDS, Flag, Force, Given, Json, choice, flagged
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.prompts import Question, prompt
from natsctl.cli.framework.session import Session
from natsctl.cli.render.auth import add_account
from natsctl.cli.render.page import Page
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import count, safe, yes
from natsctl.client.auth.account_claims import disable_jetstream, enable_jetstream, has_jetstream, set_limits
from natsctl.client.auth.claims import Document, add_tags, put, read_claims, remove_tags, typed
from natsctl.client.auth.keys import kind_of
from natsctl.client.message import NO_RESPONDERS, DryRunError, Planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.client.auth.nsc_store import NscStore
    from natsctl.client.auth.operators import ManagedAccount, Operator
    from natsctl.client.manager import Manager
    from natsctl.client.system.system_account import ServerAnswer


_PLAIN: Final = (
    Flag("--connections", LIMIT, "conn", "max connections of clients"),
    Flag("--exports", LIMIT, "exports", "max exports"),
    Flag("--imports", LIMIT, "imports", "max imports"),
    Flag("--leafnodes", LIMIT, "leaf", "max connections of leaf nodes"),
    Flag("--payload", SIZE, "payload", "maximum size of a message"),
    Flag("--subscriptions", LIMIT, "subs", "max subscriptions"),
)
_JETSTREAM: Final = (
    Flag("--js-consumers", LIMIT, "consumer", "max consumers of each stream"),
    Flag("--js-disk", SIZE, "disk_storage", "storage on disk [1GB]"),
    Flag("--js-disk-stream", SIZE, "disk_max_stream_bytes", "maximum size of a stream on disk"),
    Flag("--js-max-pending", LIMIT, "max_ack_pending", "max messages that may wait for an ack"),
    Flag("--js-memory", SIZE, "mem_storage", "storage in memory [1GB]"),
    Flag("--js-memory-stream", SIZE, "mem_max_stream_bytes", "maximum size of a stream in memory"),
    Flag("--js-stream-size-required", SWITCH, "max_bytes_required", "streams must have a size limit"),
    Flag("--js-streams", LIMIT, "streams", "max streams"),
)
SETTINGS: Final = (
    Flag("--bearer", SWITCH, "bearer", "allow users with bearer tokens"),
    Flag("--expiry", DURATION, "expiry", "how long the account is valid"),
    *_PLAIN,
    Flag("--jetstream", SWITCH, "jetstream", "allow JetStream"),
    *_JETSTREAM,
    Flag(
        "--js-cluster-traffic",
        choice("owner", "system"),
        "cluster_traffic",
        "the account that replication traffic is counted in",
    ),
    Flag("--tags", WORDS, "tags", "tags to add"),
)


class ListedAccount(msgspec.Struct):
    """An account of an operator."""

    name: str
    subject: str
    users: int
    jetstream: bool
    system: bool


class PushedAccount(msgspec.Struct):
    """Result of a push: the servers that have taken the account, and servers that refused it with the reason."""

    account: str
    subject: str
    updated: list[str]
    failed: dict[str, str]
    expected: int


class Removed(msgspec.Struct):
    """The name or the subject that was removed."""

    removed: str


def store_account(session: Session, store: NscStore, account: ManagedAccount) -> None:
    account.sign()
    save(session, store, account.operator)


_NUMBERS: Final = ("Weight", "Token Position", "Revocations", "Max Subscriptions", "Pub Perms", "Sub Perms")


def show_list(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], entries: object, none: str, json: bool
) -> None:
    if json:
        output.emit_json(entries)
        return
    right = [column for column in columns if column in _NUMBERS]
    output.show_list(rows, partial(render_table, title, columns, rows, right), none, json=False)


def asked(session: Session, word: str, text: str, help: str) -> str:
    """Return a person's answer to the question for an argument; raises UsageError without a terminal."""
    if not can_ask(session):
        raise UsageError(f"{word} is missing")
    return str(prompt(Question(text, help, required=True)))


# -- pages


def render_account(claims: Document, *, operator: Operator | None = None, users: int | None = None) -> Page:
    """Return the page of an account's claims; `users` is the number of its users, where the store knows them."""
    facts = {}
    if operator is not None:
        facts["Operator"] = safe(operator.name)
        facts["System Account"] = yes(claims["sub"] == operator.nats.get("system_account"))
    page = Page(f"Account {safe(str(claims.get('name', '')))} ({safe(claims['sub'])})")
    add_account(page, typed(claims, AccountClaims), facts, users)
    return page


def show_account(account: ManagedAccount, json: bool) -> None:
    if json:
        output.emit_json({**account.claims, "token": account.token})
        return
    output.show_page(render_account(account.claims, operator=account.operator, users=len(account.users)))


# -- commands


@flagged(SETTINGS)
def add(
    session: Session,
    given: Given,
    account: Annotated[str | None, Argument(metavar="ACCOUNT", help="name of the account")] = None,
    operator: OperatorFlag = None,
    key: Annotated[
        str | None, Option("--key", metavar="KEY", help="the operator's public signing key to sign it with")
    ] = None,
    defaults: Annotated[bool, Option("--defaults", help="use defaults instead of asking")] = False,
    json: Json = False,
) -> None:
    """Add an account to an operator; servers know it once it is pushed.

    Limits that are not given do not apply, without --jetstream the account has no JetStream, and bearer tokens are not
    allowed. At a terminal the main limits are asked for, unless --defaults is given.
    """
    _check_jetstream(given, enabled=False)
    place = store()
    owner = picked_operator(session, place, operator)
    asks = can_ask(session)
    name = account or asked(session, "ACCOUNT", "Account Name", "A name that no other account has")
    wanted = _asked_limits(given) if asks and not defaults else given
    made = owner.add_account(name)
    if key is not None:
        if key not in (owner.subject, *owner.signing_key_names):
            raise UsageError(
                f"--key: {key} is no key of operator {owner.name}",
                hint=f"known are {', '.join((owner.subject, *owner.signing_key_names))}",
            )
        made.claims["iss"] = key
        if owner.issuing_key(key).public != key:
            raise UsageError(f"--key: the store has no seed of {key}, or the operator signs with signing keys only")
    configure(made, {"--bearer": False, **wanted})
    store_account(session, place, made)
    show_account(made, json)


def _asked_limits(given: Given) -> Given:
    asked_limits = dict(given)
    for name, text, default in (
        ("--connections", "Maximum Connections", "-1"),
        ("--subscriptions", "Maximum Subscriptions", "-1"),
        ("--payload", "Maximum Message Payload", "-1"),
        *((("--js-disk", "Maximum JetStream Disk Storage", "1GB"),) if given.get("--jetstream") else ()),
        *((("--js-memory", "Maximum JetStream Memory Storage", "1GB"),) if given.get("--jetstream") else ()),
    ):
        flag = next(one for one in SETTINGS if one.name == name)
        if name not in asked_limits:
            asked_limits[name] = prompt(
                Question(text, f"{flag.help}; given as {name}, -1 for no limit", default, flag.read)
            )
    return asked_limits


def _check_jetstream(given: Given, *, enabled: bool) -> None:
    about = [flag.name for flag in _JETSTREAM if flag.name in given]
    if about and not given.get("--jetstream", enabled):
        raise UsageError(f"{about[0]} needs --jetstream")


def configure(account: ManagedAccount, given: Given) -> None:
    set_limits(account, {str(flag.to): given[flag.name] for flag in _PLAIN if flag.name in given})
    if "--bearer" in given:
        set_limits(account, {"disallow_bearer": not given["--bearer"]})
    wanted = {str(flag.to): given[flag.name] for flag in _JETSTREAM if flag.name in given}
    if given.get("--jetstream", has_jetstream(account)):
        enable_jetstream(account, wanted) if wanted or not has_jetstream(account) else None
    elif "--jetstream" in given:
        disable_jetstream(account)
    if "--js-cluster-traffic" in given:
        put(account.nats, "cluster_traffic", given["--js-cluster-traffic"])
    if "--expiry" in given:
        if given["--expiry"] <= 0:
            raise UsageError("--expiry: expected a duration above zero")
        account.claims["exp"] = int(time.time()) + given["--expiry"] // 10**9
    add_tags(account.claims, given.get("--tags", ()))
    remove_tags(account.claims, given.get("--no-tags", ()))


@flagged((*SETTINGS, Flag("--no-tags", WORDS, "no_tags", "tags to remove")))
def edit(session: Session, given: Given, chosen: AccountFlags, json: Json = False) -> None:
    """Change the settings of an account that are given; servers know them once the account is pushed."""
    place, found = chosen.find(session)
    _check_jetstream(given, enabled=has_jetstream(found))
    if not given:
        raise UsageError("nothing to change was given", hint="give flags such as --connections; see -h")
    configure(found, given)
    store_account(session, place, found)
    show_account(found, json)


def info(session: Session, chosen: AccountFlags, json: Json = False) -> None:
    """Show an account; with -j the claims of its JWT."""
    _, found = chosen.find(session)
    show_account(found, json)


def ls(
    session: Session,
    operator: MaybeOperator = None,
    names: Annotated[bool, Option("--names", "-n", help="names only, one on a line")] = False,
    json: Json = False,
) -> None:
    """List the accounts of an operator."""
    owner = picked_operator(session, store(), operator)
    found = [
        ListedAccount(one.name, one.subject, len(one.users), has_jetstream(one), one.is_system)
        for one in sorted(owner.accounts, key=lambda account: account.name)
    ]
    rows = ((one.name, one.subject, count(one.users), "true" * one.jetstream, "true" * one.system) for one in found)
    table = partial(render_table, "Accounts", ("Name", "Subject", "Users", "JetStream", "System"), rows, ("Users",))
    known = [one.name for one in found] if names else None
    output.show_list(found, table, "No Accounts found", json=json, names=known)


def rm(session: Session, chosen: AccountFlags, force: Force = False, json: Json = False) -> None:
    """Remove an account with its users and keys from the store; servers keep the pushed JWT."""
    place, found = chosen.find(session)
    found.operator.remove_account(found.subject)
    users = f" with {plural(len(found.users), 'user')}" if found.users else ""
    if not confirmed(session, f"remove account {found.name}{users} and its keys", force, typed=found.name):
        return
    save(session, place, found.operator)
    output.emit_json(Removed(found.name)) if json else output.emit(f"Removed account {safe(found.name)}")


def push(
    session: Session,
    chosen: AccountFlags,
    show: Annotated[bool, Option("--show", help="show the account's JWT first")] = False,
    json: Json = False,
) -> None:
    """Send an account's JWT to the servers, logged in to the system account."""
    _, found = chosen.find(session)
    if show and not json:
        output.emit(f"Account JWT for {safe(found.name)}\n\n{found.token}\n")
    answers, expected = session.run(lambda manager: _pushed(manager, found))
    failed = {answer.name: refusal(answer) for answer in answers if refusal(answer)}
    updated = [answer.name for answer in answers if answer.name not in failed]
    if json:
        output.emit_json(PushedAccount(found.name, found.subject, updated, failed, expected))
    else:
        where = f"on {plural(expected, 'server')}" if expected else "on all servers"
        output.emit(f"Updating account {safe(found.name)} ({found.subject}) {where}\n")
        for one in updated:
            output.emit(f"✓ Update completed on {safe(one)}")
        for name, reason in failed.items():
            output.emit(f"X Update failed on {safe(name)}: {safe(reason)}")
        output.emit(f"\nSuccess {len(updated)} Failed {len(failed)} Expected {expected}")
    if failed:
        raise NatsctlError(f"update failed on {len(failed)} of {plural(expected, 'server')}")
    if len(updated) < expected:
        raise UnreachableError(f"only {len(updated)} of {plural(expected, 'server')} answered")


async def _pushed(manager: Manager, account: ManagedAccount) -> tuple[list[ServerAnswer], int]:
    from natsctl.client.system.system_account import System, gather

    subject = f"$SYS.REQ.ACCOUNT.{account.subject}.CLAIMS.UPDATE"
    servers = await System(manager).ping()
    expected = max(servers.expected, len(servers))
    if manager.connection.dry_run:
        raise DryRunError(Planned(subject, account.token.encode()), effect={"servers": expected})
    answers = await gather(
        manager.connection, subject, account.token.encode(), expected=lambda _: expected, patient=True
    )
    return answers, expected


def refusal(answer: ServerAnswer) -> str:
    if answer.failure is not None:
        return str(answer.failure)
    code = answer.data.get("code")
    return "" if code in (None, 200) else str(answer.data.get("message") or f"code {code}")


def query(
    session: Session,
    account: Annotated[str, Argument(metavar="ACCOUNT", help="the account, by name or public key")],
    file: Annotated[str | None, Argument(metavar="FILE", help="also save the JWT to this file")] = None,
    operator: OperatorFlag = None,
    json: Json = False,
) -> None:
    """Get an account's JWT from the servers, logged in to the system account, and show it."""
    known = kind_of(account) == "account"
    subject = account if known else AccountFlags(account, operator).find(session)[1].subject
    token = session.run(lambda manager: _looked_up(manager, subject))
    if not token:
        raise NotFoundError(f"the servers have no account {account}", hint="natsctl auth account push sends it")
    claims = read_claims(token, "account", "the server's answer")
    if file is not None:
        write_private(session, Path(file), token.encode(), "a JWT")
    if json:
        output.emit_json({**claims, "token": token})
        return
    output.show_page(render_account(claims))


async def _looked_up(manager: Manager, subject: str) -> str:
    from natsctl.client.system.system_account import SystemAccountRequiredError

    where = f"$SYS.REQ.ACCOUNT.{subject}.CLAIMS.LOOKUP"
    answer = await manager.connection.request(where)
    if answer.status == NO_RESPONDERS:
        raise SystemAccountRequiredError(where)
    return answer.body.decode("utf-8", "replace").strip()
