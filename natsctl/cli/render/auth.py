"""Pages of operators, accounts and users of JWT logins, and of any JWT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.jwt_claims import AccountClaims, JetStreamLimits, OperatorClaims, Permission, UserClaims, UserLimits
from natsctl.api.units import SECOND, format_duration, format_size
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.tables import Table, render_table
from natsctl.cli.render.text import count, listed, safe, stamp, yes

if TYPE_CHECKING:
    from natsctl.cli.auth.operators import ListedOperator
    from natsctl.cli.auth.users import ListedUser
    from natsctl.client.auth.operators import ManagedUser, Operator

NO_LIMIT: Final = -1
RESPONSES: Final = 1
"""Replies that a permission without a number allows. Source: nats-server, DEFAULT_ALLOW_RESPONSE_MAX_MSGS."""
RESPONSE_TTL_NS: Final = 2 * 60 * SECOND
"""Time for replies if a permission does not set one. Source: nats-server, DEFAULT_ALLOW_RESPONSE_EXPIRATION."""


def limit(number: int) -> str:
    """Return a limit of a JWT (only -1 means no limit)."""
    return "unlimited" if number == NO_LIMIT else count(number)


def size(number: int) -> str:
    """Return a limit in bytes of a JWT (only -1 means no limit)."""
    return "unlimited" if number == NO_LIMIT else format_size(number)


# -- operators


def render_operator(operator: Operator) -> Page:
    page = Page(f"Operator {safe(operator.name)} ({operator.subject})")
    rows = _operator_rows(page, operator.name, operator.typed)
    rows.row("Accounts", count(len(operator.accounts)))
    system = operator.system_account
    rows.row("System Account", f"{safe(system.name)} ({system.subject})" if system else "not set")
    rows.many("Signing Keys", [safe(key) for key in operator.signing_key_names])
    return page


def _operator_rows(page: Page, name: str, claims: OperatorClaims) -> Section:
    rows = page.section("Configuration")
    rows.row("Name", safe(name))
    rows.row("Subject", safe(claims.sub))
    rows.many("Tags", [safe(tag) for tag in claims.nats.tags])
    rows.maybe("Service URL(s)", listed(claims.nats.operator_service_urls))
    rows.maybe("Account Server", safe(claims.nats.account_server_url))
    return rows


def render_operators(operators: Sequence[ListedOperator]) -> Table:
    rows = (
        (
            each.name + "*" * each.selected,
            each.subject,
            count(each.accounts),
            each.account_server,
            count(each.signing_keys),
        )
        for each in operators
    )
    columns = ("Name", "Subject", "Accounts", "Account Server", "Signing Keys")
    return render_table("Operators", columns, rows, right=("Accounts", "Signing Keys"), least=("Account Server",))


# -- users


def render_user(user: ManagedUser) -> Page:
    page = Page(f"User {safe(user.name)} ({user.subject})")
    rows = page.section("Configuration")
    rows.row("Account", f"{safe(user.account.name)} ({user.account.subject})")
    rows.row("Issuer", user.issuer)
    scope = user.scope
    rows.row("Scoped", yes(scope is not None))
    if scope is not None:
        rows.maybe("Role", safe(str(scope.get("role", ""))))
    rows.many("Tags", [safe(tag) for tag in user.tags])
    add_user_limits(page, user.effective_limits, rows)
    return page


def add_user_limits(page: Page, limits: UserLimits, rows: Section) -> None:
    """Add limits and permissions of a user or a scope; the settings among them go to `rows`."""
    rows.maybe("Locale", safe(limits.times_location))
    rows.row("Bearer Token", yes(limits.bearer_token))
    found = page.section("Limits")
    found.row("Max Payload", limit(limits.payload))
    found.row("Max Data", limit(limits.data))
    found.row("Max Subscriptions", limit(limits.subs))
    found.maybe("Connection Types", listed(limits.allowed_connection_types))
    found.maybe("Connection Sources", listed(limits.networks) if limits.src else "")
    found.many("Connection Times", [safe(f"{one.start} to {one.end}") for one in limits.times or ()])
    add_permissions(page, limits.pub, limits.sub)


def add_permissions(page: Page, pub: Permission, sub: Permission) -> None:
    for title, rules in (("Publish", pub), ("Subscribe", sub)):
        section = page.section(title)
        if not rules.allow and not rules.deny:
            section.line("No permissions defined")
        section.many("Allow", [safe(subject) for subject in rules.allow or ()])
        section.many("Deny", [safe(subject) for subject in rules.deny or ()])


def render_users(account: str, users: Sequence[ListedUser]) -> Table:
    rows = (
        (
            user.name, user.subject, yes(user.scoped), "yes" * user.pub_permissions, "yes" * user.sub_permissions,
            limit(user.subs),
        )
        for user in users
    )  # fmt: skip
    columns = ("Name", "Subject", "Scoped", "Pub Perms", "Sub Perms", "Max Subscriptions")
    return render_table(f"Users in account {safe(account)}", columns, rows, right=("Max Subscriptions",))


# -- accounts


def add_account(page: Page, claims: AccountClaims, facts: Mapping[str, str], users: int | None = None) -> None:
    """Add configuration and limits of an account's claims; `facts` are further rows, `users` is known of a store."""
    body, limits = claims.nats, claims.nats.limits
    rows = page.section("Configuration")
    rows.row("Name", safe(claims.name))
    rows.row("Issuer", safe(claims.iss))
    for label, value in facts.items():
        rows.row(label, value)
    rows.many("Tags", [safe(tag) for tag in body.tags])
    rows.row("JetStream", yes(_has_jetstream(claims)))
    rows.maybe("Expiry", stamp(claims.exp * SECOND) if claims.exp > 0 else "")
    if users is not None:
        rows.row("Users", count(users))
    rows.row("Revocations", count(len(body.revocations)))
    for label, held in (("Exports", body.exports), ("Imports", body.imports)):
        for kind in ("service", "stream"):
            rows.row(f"{kind.title()} {label}", count(sum(one.type == kind for one in held)))
    found = page.section("Limits")
    found.row("Bearer Tokens Allowed", yes(not limits.disallow_bearer))
    found.row("Subscriptions", limit(limits.subs))
    found.row("Connections", limit(limits.conn))
    found.row("Maximum Payload", "unlimited" if limits.payload <= 0 else format_size(limits.payload))
    found.maybe("Data", count(limits.data) if limits.data > 0 else "")
    found.row("Leafnodes", limit(limits.leaf))
    found.row("Imports", limit(limits.imports))
    found.row("Exports", limit(limits.exports))
    if _has_jetstream(claims):
        _add_jetstream(page, claims)


def _tiers(claims: AccountClaims) -> dict[str, JetStreamLimits]:
    """Return JetStream's limits by tier, under "" for an account without tiers."""
    return claims.nats.limits.tiered_limits or {"": claims.nats.limits}


def _has_jetstream(claims: AccountClaims) -> bool:
    return any(tier.mem_storage or tier.disk_storage for tier in _tiers(claims).values())


def _add_jetstream(page: Page, claims: AccountClaims) -> None:
    page.section("JetStream Settings").row("Cluster Traffic", safe(claims.nats.cluster_traffic or "system"))
    for tier, limits in _tiers(claims).items():
        section = page.section(f"Tier {safe(tier.removeprefix('R'))}" if tier else "Account Default Limits")
        first = (limits.mem_storage, limits.disk_storage, limits.streams, limits.consumer)
        rest = (limits.mem_max_stream_bytes, limits.disk_max_stream_bytes, limits.max_ack_pending)
        if set(first) == {NO_LIMIT} and max(rest) <= 0 and not limits.max_bytes_required:
            section.line("Unlimited")
            continue
        section.row("Max Ack Pending", count(limits.max_ack_pending) if limits.max_ack_pending > 0 else "unlimited")
        section.row("Maximum Streams", limit(limits.streams))
        section.row("Max Consumers Per Stream", limit(limits.consumer))
        section.row("Max Stream Size Required", yes(limits.max_bytes_required))
        for label, most, most_of_one in (
            ("File", limits.disk_storage, limits.disk_max_stream_bytes),
            ("Memory", limits.mem_storage, limits.mem_max_stream_bytes),
        ):
            section.row(f"Max {label} Storage", "unlimited" if most < 0 else format_size(most))
            section.maybe(f"Max {label} Storage Stream Size", format_size(most_of_one) if most_of_one > 0 else "")


# -- any JWT


def render_jwt(kind: str, document: Mapping[str, Any], typed: Any, issues: Sequence[str]) -> Page:
    """Return the page of a JWT: of its claims as they stand and, for the known kinds, as a value."""
    page = Page(f"{kind.replace('_', ' ').title()} {_said(document, 'name')} ({_said(document, 'sub')})")
    rows = page.section("Token")
    rows.row("Id", _said(document, "jti"))
    rows.maybe("Audience", _said(document, "aud"))
    rows.row("Issued At", _time(document, "iat"))
    rows.row("Expires", _time(document, "exp") or "never")
    rows.maybe("Not Before", _time(document, "nbf"))
    if isinstance(typed, OperatorClaims):
        _add_operator_jwt(page, typed)
    elif isinstance(typed, AccountClaims):
        _add_account_jwt(page, typed)
    elif isinstance(typed, UserClaims):
        _add_user_jwt(page, typed)
    else:
        _add_other_jwt(page, kind, document)
    found = page.section("Validation Issues")
    for issue in issues:
        found.line(safe(issue))
    return page


def _said(document: Mapping[str, Any], *keys: str) -> str:
    """Return the text of a value that may be absent or of any type."""
    found: Any = document
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return "" if found is None else safe(str(found))


def _time(document: Mapping[str, Any], key: str) -> str:
    found = document.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or found <= 0:
        return ""
    try:
        return stamp(found * SECOND)
    except (OverflowError, ValueError, OSError):
        return str(found)


def _add_operator_jwt(page: Page, claims: OperatorClaims) -> None:
    rows = _operator_rows(page, claims.name, claims)
    rows.row("System Account", safe(claims.nats.system_account) or "not set")
    rows.many("Signing Keys", [safe(key) for key in claims.nats.signing_keys])
    more = page.section("Additional Settings")
    more.maybe("Issuer", "" if claims.iss == claims.sub else safe(claims.iss))
    more.maybe("Assert Server Version", safe(claims.nats.assert_server_version))
    more.maybe("Strict Signing Key Usage", "true" if claims.nats.strict_signing_key_usage else "")


def _add_account_jwt(page: Page, claims: AccountClaims) -> None:
    body = claims.nats
    add_account(page, claims, {})
    more = page.section("Additional Settings")
    more.maybe("Description", safe(body.description))
    more.maybe("Info URL", safe(body.info_url))
    more.maybe("Wildcard Exports", "" if body.limits.wildcards else "false")
    more.many("Signing Keys", [safe(text) for text in _signing_keys(claims)])
    more.many("Mappings", [safe(text) for text in _mappings(claims)])
    rules = body.default_permissions
    if rules.pub.allow or rules.pub.deny or rules.sub.allow or rules.sub.deny:
        page.section("Default Permissions").line("Of users without their own")
        add_permissions(page, rules.pub, rules.sub)
    shared = page.section("Exports and Imports")
    shared.many(
        "Exported Subjects",
        [
            safe(f"{export.subject} ({export.type}{', token required' if export.token_req else ''})")
            for export in body.exports
        ],
    )
    shared.many("Imported Subjects", [safe(f"{one.subject} from {one.account} ({one.type})") for one in body.imports])
    external = page.section("External Authorization")
    if body.authorization.auth_users:
        external.many("Auth Users", [safe(user) for user in body.authorization.auth_users])
        external.many("Allowed Accounts", [safe(account) for account in body.authorization.allowed_accounts])
        external.maybe("XKey", safe(body.authorization.xkey))


def _signing_keys(claims: AccountClaims) -> Iterator[str]:
    for key, scope in claims.signers().items():
        role = f": {scope.role}" if scope and scope.role else ""
        yield f"{key} (scoped{role})" if scope else key


def _mappings(claims: AccountClaims) -> Iterator[str]:
    for source, targets in claims.nats.mappings.items():
        for target in targets:
            weight = "" if target.weight in (0, 100) else f" ({target.weight}%)"
            yield f"{source} -> {target.subject}{weight}{f' in cluster {target.cluster}' if target.cluster else ''}"


def _add_user_jwt(page: Page, claims: UserClaims) -> None:
    body = claims.nats
    bare = UserLimits()
    limits = {name: getattr(body, name) for name in UserLimits.__struct_fields__}
    scoped = claims.iss != claims.account and all(limits[name] == getattr(bare, name) for name in limits)
    rows = page.section("Configuration")
    rows.row("Account", safe(claims.account))
    rows.row("Issuer", safe(claims.iss))
    rows.row("Scoped", yes(scoped))
    rows.many("Tags", [safe(tag) for tag in body.tags])
    if scoped:
        page.section("Limits").line("Set by the signing key scope in the account JWT")
    else:
        add_user_limits(page, body, rows)
    more = page.section("Additional Settings")
    more.maybe("Proxy Required", "true" if body.proxy_required else "")
    if body.resp is not None:
        number = "unlimited" if body.resp.max < 0 else str(body.resp.max or RESPONSES)
        time = "never" if body.resp.ttl < 0 else format_duration(body.resp.ttl or RESPONSE_TTL_NS)
        more.row("Allow Responses", f"{number} messages, expires {time}")


_ROWS: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "activation": {
        "Configuration": {
            "Issuer": "iss",
            "Issuer Account": "nats.issuer_account",
            "Subject": "sub",
            "Import Subject": "nats.subject",
            "Import Type": "nats.kind",
        }
    },
    "authorization_request": {
        "Configuration": {
            "Issuer": "iss",
            "Subject": "sub",
            "User NKey": "nats.user_nkey",
            "Request Nonce": "nats.request_nonce",
        },
        "Server": {key: f"nats.server_id.{key.lower()}" for key in ("Name", "Id", "Host", "Cluster", "Version")},
        "Client": {key: f"nats.client_info.{key.lower()}" for key in ("Id", "Name", "Host", "User", "Kind", "Type")},
        "Connect Options": {
            "Username": "nats.connect_opts.user",
            "Language": "nats.connect_opts.lang",
            "Client Version": "nats.connect_opts.version",
            "Protocol": "nats.connect_opts.protocol",
        },
        "TLS": {"Version": "nats.client_tls.version", "Cipher": "nats.client_tls.cipher"},
    },
    "authorization_response": {
        "Configuration": {
            "Issuer": "iss",
            "Issuer Account": "nats.issuer_account",
            "Subject": "sub",
            "Error": "nats.error",
        }
    },
}
"""Rows of JWTs that are shown as they stand: by kind and section, the labels with the path of each value."""


def _add_other_jwt(page: Page, kind: str, document: Mapping[str, Any]) -> None:
    for title, rows in _ROWS.get(kind, {"Configuration": {"Issuer": "iss", "Subject": "sub"}}).items():
        section = page.section(title)
        for label, path in rows.items():
            section.maybe(label, _said(document, *path.split(".")))
    if kind == "authorization_response":
        section.row("User JWT Issued", yes(bool(_said(document, "nats", "jwt"))))
    tags = document.get("nats", {}).get("tags")
    section.many("Tags", [safe(str(tag)) for tag in tags] if isinstance(tags, list) else [])
