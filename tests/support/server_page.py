"""The parts of docs/server.md that are made from the server's own tables; a test holds the page to them."""

import re
from collections.abc import Callable, Iterable
from typing import Final

from natsctl.api.units import format_size
from natsctl.server import options
from natsctl.server.conf import accounts, authorization, config, jetstream, leafnodes, tls
from natsctl.server.conf import websocket as websocket_conf
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.conf.values import format_seconds
from natsctl.server.options import ServerOptions
from natsctl.server.process.reload import FIXED, LOG_LINES

_HERE: Final = "This server has nothing that they would change."
REFUSING: Final = {
    "mqtt": "mqtt { port: 1883 }",
    "gateway": "gateway { name: A }",
    "cluster": "cluster { listen: 127.0.0.1:6222 }",
    "tpm": "jetstream { tpm {} }",
    "prof_port": "prof_port: 1234",
}
"""Keys that are refused, each in a line that asks for it."""
_NOT_SERVED: Final = frozenset(REFUSING) - {"cluster", "resolver"} | {
    "prof_block_rate",
}
"""Of those, the ones that cannot be used otherwise either."""
_FOR_ROUTES: Final = frozenset({"verify_cert_and_check_known_urls"})
_UNHEEDED: Final = frozenset({"disable_sublist_cache", "no_sublist_cache", "no_fast_producer_stall", "feature_flags"})

RESOLVER_KEYS: Final = ["type", "dir", "allow_delete", "hard_delete", "interval", "timeout", "limit", "ttl"]
"""Keys of a block that is read without a table; tests/server/conf/test_every_key.py tries each."""


def _blocks() -> Iterable[tuple[str, Iterable[str]]]:
    yield "top level", (key for key in config.TOP_KEYS if key not in _NOT_SERVED | _UNHEEDED)
    yield "jetstream", (key for key in jetstream.JETSTREAM_KEYS if key != "tpm")
    yield "jetstream: limits", (key for key in jetstream.LIMIT_KEYS if key != "max_ha_assets")
    yield "jetstream: limits: batch", jetstream.BATCH_KEYS
    yield "an account", accounts.ACCOUNT_KEYS
    yield "an account: limits", accounts.ACCOUNT_LIMIT_KEYS
    yield "an account: jetstream", jetstream.ACCOUNT_LIMIT_KEYS
    yield "an account: msg_trace", accounts.TRACE_KEYS
    yield "an export", accounts.EXPORT_KEYS
    yield "an import", accounts.IMPORT_KEYS
    yield "tls", (key for key in tls.TLS_KEYS if key not in _FOR_ROUTES | tls.STORE_KEYS)
    yield "tls: ocsp_peer", tls.PEER_KEYS
    yield "ocsp", ("mode", "url", "urls")
    yield "ocsp_cache", tls.CACHE_KEYS
    yield "websocket", websocket_conf.WEBSOCKET_KEYS
    yield "leafnodes", leafnodes.LEAFNODE_KEYS
    yield "a remote of leafnodes", leafnodes.REMOTE_KEYS
    yield "a proxy of a remote", leafnodes.PROXY_KEYS
    yield "authorization", authorization.AUTHORIZATION_KEYS
    yield "auth_callout", authorization.CALLOUT_KEYS
    yield "proxies", authorization.PROXIES_KEYS
    yield "a proxy that is trusted", authorization.PROXY_KEYS
    yield "a user", authorization.USER_KEYS
    yield "permissions", authorization.PERMISSION_KEYS
    yield "publish, subscribe", authorization.RULE_KEYS
    yield "allow_responses", authorization.RESPONSE_KEYS
    yield "a destination of mappings", accounts.DESTINATION_KEYS
    yield "leafnodes: authorization", leafnodes.AUTHORIZATION_KEYS
    yield "websocket: authorization", websocket_conf.AUTHORIZATION_KEYS
    yield "resolver", RESOLVER_KEYS


def _code(keys: Iterable[str]) -> str:
    return " ".join(f"`{key}`" for key in keys)


def keys_part() -> str:
    """Return the table of keys that are served, and those that are taken and change nothing."""
    lines = ["| block | keys |", "| --- | --- |", *(f"| {name} | {_code(keys)} |" for name, keys in _blocks())]
    unheeded = _code(sorted(_UNHEEDED)), _code(jetstream.UNHEEDED_KEYS)
    return "\n".join([*lines, "", f"Taken without effect: {unheeded[0]}; in `jetstream` {unheeded[1]}. {_HERE}"])


def refusal(key: str) -> str:
    """Return the error for a key that is refused, without file and line."""
    try:
        config.apply(load_text(REFUSING[key].replace("{key}", key), {}), ServerOptions())
    except ConfError as fault:
        return str(fault).split(": ", 1)[1]
    raise ValueError(f"{key} is not refused")


def refused_part() -> str:
    """Return the table of keys that are refused by name, with the error."""
    lines = (f"| `{line.replace('{key}', key)}` | {refusal(key)} |" for key, line in REFUSING.items())
    return "\n".join(["| configuration | error |", "| --- | --- |", *lines])


def _amount(number: int) -> str:
    return "none" if number == 0 else f"{number:,}"


_LIMITS: Final[tuple[tuple[str, str, Callable[[ServerOptions], str]], ...]] = (
    ("max_connections", "clients at the same time", lambda o: "65,536, or what file descriptors allow"),
    ("max_payload", "bytes of header and payload", lambda o: format_size(o.max_payload)),
    ("max_control_line", "bytes of one line of the protocol", lambda o: format_size(o.max_control_line)),
    ("max_pending", "bytes waiting for one client", lambda o: format_size(o.max_pending)),
    ("write_deadline", "how long they may wait for it", lambda o: format_seconds(o.write_deadline_s)),
    ("max_subscriptions", "subscriptions of one connection", lambda o: _amount(o.max_subscriptions)),
    ("max_subscription_tokens", "tokens of a subscription's subject", lambda o: _amount(o.max_subscription_tokens)),
    ("ping_interval", "time until a silent client gets a PING", lambda o: format_seconds(o.ping_interval_s)),
    ("ping_max", "PINGs that it may leave unanswered", lambda o: _amount(o.ping_max)),
    ("authorization: timeout", "time from connecting to CONNECT", lambda o: format_seconds(o.login_timeout_s)),
    ("tls: timeout", "time of a handshake", lambda o: format_seconds(options.TLS_TIMEOUT_S)),
    ("websocket: handshake_timeout", "time of an upgrade", lambda o: format_seconds(options.WS_HANDSHAKE_TIMEOUT_S)),
    (
        "lame_duck_duration",
        "time over which clients are disconnected",
        lambda o: format_seconds(o.lame_duck_duration_s),
    ),
    (
        "lame_duck_grace_period",
        "time before the first one is disconnected",
        lambda o: format_seconds(o.lame_duck_grace_s),
    ),
    ("max_closed_clients", "ended connections that monitoring remembers", lambda o: _amount(o.max_closed_clients)),
)


def limits_part() -> str:
    lines = (f"| `{key}` | {about} | {default(ServerOptions())} |" for key, about, default in _LIMITS)
    return "\n".join(["| key | limit of | default |", "| --- | --- | --- |", *lines])


def reload_part() -> str:
    lines = (re.split(r" = | (?=\{)", say(_sample(name)))[0] for name, say in LOG_LINES.items())
    said = sorted({re.sub(r"^Reload(ed)?:? ", "", line) for line in lines})
    fixed = sorted(FIXED.values())
    reloaded = f"Changed by a reload, with a line in the log: {', '.join(said)}."
    return f"{reloaded}\n\nChanged only by a restart, under the log's names: {', '.join(fixed)}."


def _sample(name: str) -> object:
    value = getattr(ServerOptions(), name)
    return 1 if value is None else value


PARTS: Final[dict[str, Callable[[], str]]] = {
    "keys": keys_part, "refused": refused_part, "limits": limits_part, "reload": reload_part,
}  # fmt: skip


def renewed(page: str) -> str:
    """Return a page with what stands between its marks made anew; raises ValueError where marks are missing."""
    for name, part in PARTS.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        made = part().replace("\\", r"\\")  # a template's only mark
        page, found = pattern.subn(rf"\g<1>{made}\n\g<2>", page)
        if found != 1:
            raise ValueError(f"the page has {found} places for {name}")
    return page
