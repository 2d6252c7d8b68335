"""The block `leafnodes`: what it sets, and where it says that something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import load_text
from natsctl.server.options import LeafNodesOptions, LeafRemoteOptions, ServerOptions


def leafnodes(text: str) -> LeafNodesOptions:
    found = apply(load_text(text, {}), ServerOptions()).leafnodes
    assert found is not None
    return found


def remote(text: str) -> LeafRemoteOptions:
    return leafnodes(f"leafnodes {{ remotes: [ {{ {text} }} ] }}").remotes[0]


def test_what_clients_test_suites_write_into_every_file_is_a_listener() -> None:
    found = leafnodes("leafnodes { listen: 127.0.0.1:-1 }")
    assert (found.host, found.port, found.remotes, found.users) == ("127.0.0.1", -1, (), ())


def test_a_block_without_port_and_remotes_is_nothing() -> None:
    assert apply(load_text("leafnodes { no_advertise: true }", {}), ServerOptions()).leafnodes is None


def test_listener_keys() -> None:
    found = leafnodes(
        'leafnodes { host: "::1", port: 7422, advertise: "hub:7423", no_advertise: true, min_version: 2.8.0, '
        'compression: s2_best, isolate_leafnode_interest: true, write_deadline: "3s", reconnect: 2, '
        'authorization { user: u, password: p, account: "$G", timeout: 5 } }'
    )
    assert (found.host, found.port, found.advertise, found.no_advertise) == ("::1", 7422, "hub:7423", True)
    assert (found.min_version, found.isolate, found.write_deadline_s, found.reconnect_s) == ("2.8.0", True, 3.0, 2.0)
    assert [(user.name, user.password, user.account) for user in found.users] == [("u", "p", "$G")]
    assert (found.account, found.login_timeout_s) == ("$G", 5.0)


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port"),
    [
        ("nats-leaf://hub", "nats-leaf", "hub", 7422),
        ("tls://hub:4443", "tls", "hub", 4443),
        ("hub:7000", "nats-leaf", "hub", 7000),
        ("ws://hub", "ws", "hub", 80),
        ("wss://hub/path", "wss", "hub", 443),
        ("nats://[::1]:7422", "nats", "::1", 7422),
    ],
)
def test_urls(url: str, scheme: str, host: str, port: int) -> None:
    (found,) = remote(f'url: "{url}"').urls
    assert (found.scheme, found.host, found.port) == (scheme, host, port)


def test_a_urls_user_is_kept_out_of_sight() -> None:
    (found,) = remote('url: "nats://u:s%40cret@hub"').urls
    assert (found.user, found.password) == ("u", "s@cret")
    assert "cret" not in repr(found) and found.address == "hub:7422"


def test_remote_keys() -> None:
    found = remote(
        'urls: ["ws://a", "ws://b"], credentials: "/c.creds", hub: true, deny_imports: ["a.>", b], deny_export: c, '
        'no_randomize: true, ws_compression: true, first_info_timeout: "3s", disabled: true, isolate: true, '
        "ignore_discovered_servers: true, request_isolation: true, jetstream_cluster_migrate: true, compression: off"
    )
    assert [url.host for url in found.urls] == ["a", "b"]
    assert (found.creds, found.hub, found.deny_imports, found.deny_exports) == (
        Path("/c.creds"), True, ("a.>", "b"), ("c",),
    )  # fmt: skip
    assert found.no_randomize and found.ws_compression and found.disabled and found.isolate
    assert found.ignore_discovered_servers and found.request_isolation and found.first_info_timeout_s == 3.0
