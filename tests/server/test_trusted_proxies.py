"""Trusted proxies, which sign the nonce for the clients that they pass on: who is let in, on both servers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions
from natsctl.testing.process import Kind
from tests.support.conf_server import ConfServer, Wire
from tests.support.operators import Key, Operator, base64url
from tests.support.servers import quiet_ports

both = pytest.mark.parametrize("kind", ["natsctl", "reference"])
VIOLATION = b"-ERR 'Authorization Violation'"
FIRST, SECOND, OTHER = Key("user"), Key("operator"), Key("account")


def proxies(*keys: Key) -> str:
    return f"proxies {{ trusted: [{', '.join(f'{{ key: {key.public} }}' for key in keys)}] }}\ndebug: true\n"


USERS = """
authorization {
  users: [
    { user: free, password: p }
    { user: bound, password: p, proxy_required: true }
  ]
}
"""


def shown(wire: Wire, key: Key | None, **options: Any) -> tuple[dict[str, Any], bytes]:
    """Return INFO, and the answer to a CONNECT that a proxy has signed."""
    info = wire.info()
    if key is not None:
        options["proxy_sig"] = base64url(key.sign(info["nonce"].encode()))
    return info, wire.connect(**options)


def entry(server: ConfServer, cid: int) -> dict[str, Any]:
    return server.monitor(f"connz?cid={cid}&state=any")["connections"][0]


@both
def test_who_is_let_in(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, proxies(FIRST, SECOND) + USERS, monitoring=True) as server:
        assert server.monitor("varz")["proxies"] == {"trusted": [{"key": FIRST.public}, {"key": SECOND.public}]}
        for user, key, password, reason in [
            ("free", None, "p", ""),
            ("free", FIRST, "p", ""),
            ("bound", FIRST, "p", ""),
            ("bound", SECOND, "p", ""),
            ("bound", None, "p", "Proxy Required"),
            ("bound", OTHER, "p", "Proxy Not Trusted"),
            ("free", OTHER, "p", "Proxy Not Trusted"),
            ("bound", FIRST, "wrong", "Authentication Failure"),
        ]:
            with Wire(server.port) as wire:
                info, answer = shown(wire, key, user=user, **{"pass": password})
                assert answer == (VIOLATION if reason else b"PONG"), (user, key and key.public, reason)
                if reason:
                    assert server.reason(info["client_id"]) == reason
                else:
                    assert entry(server, info["client_id"]).get("proxy") == ({"key": key.public} if key else None)


@both
@pytest.mark.parametrize("signature", ["!!!", "AAAA", base64.b64encode(b"\xff" * 64).decode()])
def test_a_signature_that_is_none_is_refused(tmp_path: Path, kind: Kind, signature: str) -> None:
    with ConfServer(tmp_path, kind, proxies(FIRST), monitoring=True) as server, Wire(server.port) as wire:
        info = wire.info()
        assert wire.connect(proxy_sig=signature) == VIOLATION
        assert server.reason(info["client_id"]) == "Proxy Not Trusted"


@both
def test_without_trusted_proxies_a_signature_means_nothing(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, USERS) as server:
        with Wire(server.port) as wire:
            assert "nonce" not in wire.info()
            assert wire.connect(proxy_sig="!!!", user="free", **{"pass": "p"}) == b"PONG"
        with Wire(server.port) as wire:
            assert wire.connect(user="bound", **{"pass": "p"}) == VIOLATION


USER, OPERATOR = Key("user"), Operator()
WITH_JWT = OPERATOR.user(OPERATOR.account("A"), proxy_required=True)
LOGINS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "a single user": (
        "authorization { user: a, password: p, proxy_required: true }",
        lambda _: {"user": "a", "pass": "p"},
    ),
    "a token": ("authorization { token: t, proxy_required: true }", lambda _: {"auth_token": "t"}),
    "an nkey": (
        f"authorization {{ users: [{{ nkey: {USER.public}, proxy_required: true }}] }}",
        lambda nonce: {"nkey": USER.public, "sig": base64url(USER.sign(nonce.encode()))},
    ),
    "a silent client": (
        "no_auth_user: a\nauthorization { users: [{ user: a, password: p, proxy_required: on }] }",
        lambda _: {},
    ),
    "a user with a JWT": (OPERATOR.conf(), WITH_JWT.connect_options),
}


@both
@pytest.mark.parametrize("login", LOGINS)
def test_every_login_may_need_a_proxy(tmp_path: Path, kind: Kind, login: str) -> None:
    text, options = LOGINS[login]
    with ConfServer(tmp_path, kind, f"{proxies(FIRST)}{text}\n", monitoring=True) as server:
        for key, reason in ((FIRST, ""), (None, "Proxy Required"), (OTHER, "Proxy Not Trusted")):
            with Wire(server.port) as wire:
                info = wire.info()
                signed = {"proxy_sig": base64url(key.sign(info["nonce"].encode()))} if key else {}
                assert wire.connect(**options(info["nonce"]), **signed) == (VIOLATION if reason else b"PONG")
                assert not reason or server.reason(info["client_id"]) == reason
        if login == "a silent client":
            with Wire(server.port, b"PING\r\n") as wire:
                wire.info()
                assert wire.line() == VIOLATION


@both
def test_a_reload_closes_the_connections_of_a_removed_proxy(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, proxies(FIRST, SECOND) + USERS, monitoring=True) as server:
        with Wire(server.port) as first, Wire(server.port) as second, Wire(server.port) as direct:
            gone, answer = shown(first, FIRST, user="bound", **{"pass": "p"})
            assert answer == b"PONG"
            assert shown(second, SECOND, user="bound", **{"pass": "p"})[1] == b"PONG"
            assert shown(direct, None, user="free", **{"pass": "p"})[1] == b"PONG"
            server.reload(proxies(OTHER, SECOND) + USERS)
            server.await_line(rf'\[INF\] Reloaded: proxies trusted keys \["{FIRST.public}"\] were removed')
            server.await_line(rf'\[INF\] Reloaded: proxies trusted keys \["{OTHER.public}"\] were added')
            assert VIOLATION in first.rest()
            assert server.reason(gone["client_id"]) == "Proxy Not Trusted"
            for wire in (second, direct):
                wire.send(b"PING\r\n")
                while (line := wire.line()).startswith(b"INFO "):
                    pass
                assert line == b"PONG"
        with Wire(server.port) as wire:
            assert shown(wire, OTHER, user="bound", **{"pass": "p"})[1] == b"PONG"


LEAF_USERS = {
    "every user": "user: l, password: p, proxy_required: true",
    "one of them": "users: [{ user: l, password: p, proxy_required: true }, { user: m, password: p }]",
}


@both
@pytest.mark.parametrize("users", LEAF_USERS)
def test_a_leaf_node_may_need_a_proxy(tmp_path: Path, kind: Kind, users: str) -> None:
    (port,) = quiet_ports(1)
    text = f"{proxies(FIRST)}leafnodes {{ port: {port}, authorization {{ {LEAF_USERS[users]} }} }}\n"
    with ConfServer(tmp_path, kind, text, monitoring=True) as server:
        for key in (FIRST, None, OTHER):
            with Wire(port) as wire:
                info = wire.info()
                options = {"user": "l", "pass": "p", "name": "leaf", "server_id": "N1"}
                options |= {"proxy_sig": base64url(key.sign(info["nonce"].encode()))} if key else {}
                wire.send(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
                if key is not FIRST:
                    assert VIOLATION in wire.rest()
                    continue
                while wire.line() != b"PONG":
                    pass
                (leaf,) = server.monitor("leafz")["leafs"]
                assert leaf["proxy"] == {"key": FIRST.public}


def test_a_proxy_without_a_key_is_refused() -> None:
    """nats-server refuses it when it starts."""
    with pytest.raises(ConfError, match='proxy trusted key "" is invalid'):
        apply(load_text("proxies { trusted: [{}] }", {}), ServerOptions())
