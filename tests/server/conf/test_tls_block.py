from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from natsctl.server.conf.config import read_config
from natsctl.server.conf.syntax import ConfError
from natsctl.server.options import ServerOptions, TlsOptions
from natsctl.testing.certificates import Authority, Issued


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Authority(tmp_path_factory.mktemp("tls")).issue("server", dns=["localhost"])


def read(folder: Path, text: str) -> ServerOptions:
    conf = folder / "nats.conf"
    conf.write_text(text)
    return read_config(conf, ServerOptions(), {})


def tls(folder: Path, text: str) -> TlsOptions:
    found = read(folder, f"tls {{ {text} }}").tls
    assert found is not None
    return found


def test_every_key_is_read(tmp_path: Path, issued: Issued) -> None:
    digest = "AB" * 32
    found = tls(
        tmp_path,
        f'cert_file: "{issued.cert}", key_file: "{issued.key}", ca_file: "{issued.cert.parent / "authority.pem"}", '
        f'verify_and_map: true, timeout: 5, min_version: "1.3", pinned_certs: [{digest}], insecure: true, '
        "curve_preferences: [CurveP256], cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256], "
        "connection_rate_limit: 100, handshake_first: true",
    )
    assert found == TlsOptions(
        issued.cert, issued.key, issued.cert.parent / "authority.pem",
        verify=True, verify_and_map=True, timeout_s=5.0, min_version="1.3", pinned_certs=frozenset({digest.lower()}),
        insecure=True, curve_preferences=("CurveP256",), connection_rate_limit=100, handshake_first=True,
        cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "first", "fallback_s"),
    [
        ("true", True, 0.0),
        ('"on"', True, 0.0),
        ("false", False, 0.0),
        ('"off"', False, 0.0),
        ("auto", True, 0.05),
        ('"auto_fallback"', True, 0.05),
        ('"300ms"', True, 0.3),
    ],
)
@pytest.mark.parametrize("key", ["handshake_first", "first", "immediate"])
def test_a_handshake_may_come_first(tmp_path: Path, key: str, value: str, first: bool, fallback_s: float) -> None:
    assert tls(tmp_path, f"{key}: {value}") == TlsOptions(handshake_first=first, fallback_s=fallback_s)


def test_insecure_suites_need_a_word(tmp_path: Path) -> None:
    suites = "cipher_suites: [TLS_RSA_WITH_AES_128_GCM_SHA256]"
    assert tls(tmp_path, f"{suites}, allow_insecure_cipher_suites: true").cipher_suites
    with pytest.raises(ConfError, match="insecure cipher suites configured without"):
        tls(tmp_path, suites)


def test_pairs_are_read(tmp_path: Path, issued: Issued) -> None:
    pair = f'{{ cert_file: "{issued.cert}", key_file: "{issued.key}" }}'
    assert tls(tmp_path, f"certs: [ {pair}, {pair} ]").certs == ((issued.cert, issued.key),) * 2


@pytest.fixture
def clear() -> Iterator[str]:
    yield "port: -1, no_tls: true"


def test_every_key_of_websocket_is_read(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        'websocket { listen: "127.0.0.1:8080", no_tls: true, advertise: "a:1", same_origin: true, '
        'allowed_origins: ["http://a.com", "https://b.com:1"], compression: true, handshake_timeout: "3s", '
        "user_cookie: u, pass_cookie: p, token_cookie: t, headers { X-A: 1a, X-B: b }, ping_interval: 5, "
        "authorization { user: a, password: b, timeout: 1.5 } }",
    ).websocket
    assert found is not None
    assert (found.host, found.port, found.advertise, found.same_origin) == ("127.0.0.1", 8080, "a:1", True)
    assert found.allowed_origins == ("http://a.com", "https://b.com:1") and found.compression
    assert (found.handshake_timeout_s, found.ping_interval_s, found.auth_timeout_s) == (3.0, 5.0, 1.5)
    assert (found.user_cookie, found.pass_cookie, found.token_cookie) == ("u", "p", "t")
    assert found.headers == (("X-A", "1a"), ("X-B", "b")) and (found.user, found.password) == ("a", "b")


def test_an_unknown_user_of_websocket_is_reported_in_its_block(tmp_path: Path, clear: str) -> None:
    users = "authorization { users: [{user: b, password: x}] }\nno_auth_user: b\n"
    with pytest.raises(ConfError, match=r"nats.conf:3: .*\"a\" not present"):
        read(tmp_path, f"{users}websocket {{ {clear}, no_auth_user: a }}")


def test_own_logins_do_not_go_with_users(tmp_path: Path, clear: str) -> None:
    for given, what in (("user: a, password: b", "username"), ("token: t", "token")):
        users = "authorization { users: [ {user: a, password: b} ] }"
        text = f"websocket {{ {clear}, authorization {{ {given} }} }}\n{users}"
        with pytest.raises(ConfError, match=f"websocket authentication {what} not compatible with presence of users"):
            read(tmp_path, text)


def test_without_a_port_the_block_is_only_read(tmp_path: Path) -> None:
    assert read(tmp_path, "websocket { same_origin: true }").websocket is None
    assert replace(ServerOptions()).websocket is None
