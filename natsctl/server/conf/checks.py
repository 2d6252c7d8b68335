"""Rules between server options, whether the configuration file or a flag set them.

Every start checks them, so this module imports the file's readers only if an option needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from natsctl.api.subjects import domain_prefix, is_valid_subject
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, ServiceExport
from natsctl.server import options as defaults
from natsctl.server.options import ServerOptions

DEFAULT_DOMAIN_KEY: Final = "default_js_domain"
_DEFAULTS: Final[dict[str, Any]] = {
    "port": defaults.DEFAULT_PORT,
    "max_payload": defaults.MAX_PAYLOAD_BYTES,
    "max_pending": defaults.MAX_PENDING_BYTES,
    "max_control_line": defaults.MAX_CONTROL_LINE_BYTES,
    "ping_interval_s": defaults.PING_INTERVAL_S,
    "ping_max": defaults.PING_MAX,
    "write_deadline_s": defaults.WRITE_DEADLINE_S,
    "lame_duck_grace_s": defaults.LAME_DUCK_GRACE_S,
    "connect_error_reports": defaults.ERROR_REPORTS,
    "reconnect_error_reports": defaults.RECONNECT_ERROR_REPORTS,
}
"""Options with 0 as the default."""


_REMOTE_WITHOUT_KEY: Final = (
    "operator mode requires account nkeys in remotes. Please add an `account` key to each remote in your `leafnodes` "
    "section, to assign it to an account. Each account value should be a 56 character public key, starting with the "
    "letter 'A'"
)


def with_defaults(options: ServerOptions) -> ServerOptions:
    """Return `options` with 0 replaced by the default where 0 means that."""
    return replace(options, **{name: value for name, value in _DEFAULTS.items() if not getattr(options, name)})


def option_faults(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """Yield the faults between options: the configuration key that each is reported for, and its text."""
    if options.default_js_domain:
        yield from domain_faults(options)
    if options.lame_duck_grace_s >= options.lame_duck_duration_s:
        from natsctl.server.conf.values import format_seconds

        yield (
            "lame_duck_grace_period",
            f"lame duck grace period ({format_seconds(options.lame_duck_grace_s)}) should be strictly lower than "
            f"lame duck duration ({format_seconds(options.lame_duck_duration_s)})",
        )
    if options.max_payload > options.max_pending:
        yield (
            "max_payload",
            f"max_payload ({options.max_payload}) cannot be higher than max_pending ({options.max_pending})",
        )
    if " " in options.server_name:
        yield "server_name", "server name cannot contain spaces"
    if options.http_port and options.https_port:
        yield "https_port", "can't specify both HTTP and HTTPs ports"
    if options.operator is not None:
        from natsctl.server.conf.operator import operator_faults

        yield from operator_faults(options)
    if options.auth_callout is not None:
        known = {account.name for account in options.accounts}
        for name in options.auth_callout.allowed_accounts:
            if name not in known:
                yield "authorization", f'auth_callout allowed account "{name}" not found in configured accounts'
    yield from _no_auth_user_faults(options, "no_auth_user", options.no_auth_user)
    if options.websocket is not None:
        from natsctl.server.conf.websocket import websocket_faults

        yield from _no_auth_user_faults(options, "websocket", options.websocket.no_auth_user)
        yield from (("websocket", text) for text in websocket_faults(options))
    yield from _leafnode_faults(options)
    yield from _ocsp_faults(options)
    if options.no_system_account:
        yield from _latency_faults(options)


def _latency_faults(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """Yield exports with latency that nobody would publish: the system account measures it."""
    for account in options.accounts:
        for export in account.exports:
            if isinstance(export, ServiceExport) and export.latency is not None:
                subject = f'"{export.subject}"'
                yield "accounts", f"Error adding service latency sampling for {subject}: system account not setup"


_OCSP_WITHOUT_VERIFY: Final = "OCSP peer verification for client connections requires TLS verify (mTLS) to be enabled"


def _ocsp_faults(options: ServerOptions) -> Iterator[tuple[str, str]]:
    for kind, tls in options.tls_blocks.items():
        if tls.checks_peers and not tls.verify:
            yield ("tls" if kind == "clients" else kind), _OCSP_WITHOUT_VERIFY


def _leafnode_faults(options: ServerOptions) -> Iterator[tuple[str, str]]:
    leafnodes = options.leafnodes
    if leafnodes is None:
        return
    if options.operator is not None:
        from natsctl.api.jwt_token import is_public

        if leafnodes.users:
            yield "leafnodes", "operator mode does not allow specifying users in leafnode config"
        if any(not is_public(remote.account, "account") for remote in leafnodes.remotes):
            yield "leafnodes", _REMOTE_WITHOUT_KEY
        return
    known = {account.name for account in options.accounts}
    known |= {"", GLOBAL_ACCOUNT, options.system_account or ("" if options.no_system_account else SYSTEM_ACCOUNT)}
    bound = [("authorization", leafnodes.account), *(("authorization", user.account) for user in leafnodes.users)]
    for where, account in (*bound, *(("remote", remote.account) for remote in leafnodes.remotes)):
        if account not in known:
            yield "leafnodes", f'cannot find local account "{account}" specified in leafnode {where}'


def _no_auth_user_faults(options: ServerOptions, key: str, name: str) -> Iterator[tuple[str, str]]:
    if name and not options.users:
        yield key, f'no_auth_user: "{name}" present, but users/nkeys are not defined'
    elif name and all(name not in (user.name, user.nkey) for user in options.users):
        yield (
            key,
            f'no_auth_user: "{name}" not present as user or nkey in authorization block or account configuration',
        )


def domain_faults(options: ServerOptions) -> Iterator[tuple[str, str]]:
    accounts = {config.name: config for config in options.accounts}
    for name, domain in options.default_js_domain:
        config = accounts.get(name)
        if options.operator is not None:
            yield DEFAULT_DOMAIN_KEY, f"{DEFAULT_DOMAIN_KEY}: not available with operators in natsctl server"
        elif config is not None and config.jetstream is not None and domain:
            yield DEFAULT_DOMAIN_KEY, f'{DEFAULT_DOMAIN_KEY} contains account name "{name}" with enabled JetStream'
        elif config is None and name not in (GLOBAL_ACCOUNT, SYSTEM_ACCOUNT):
            yield (
                DEFAULT_DOMAIN_KEY,
                f'in non operator mode, `{DEFAULT_DOMAIN_KEY}` references non existing account "{name}"',
            )
        if name == (options.system_account or SYSTEM_ACCOUNT):
            yield DEFAULT_DOMAIN_KEY, f'system account "{name}" can not be in {DEFAULT_DOMAIN_KEY}'
        if domain and not is_valid_subject(f"{domain_prefix(domain)}.>"):
            yield (
                DEFAULT_DOMAIN_KEY,
                f'{DEFAULT_DOMAIN_KEY} contains account "{name}" with invalid domain name "{domain}"',
            )
