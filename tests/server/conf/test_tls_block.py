from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from natsctl.server.conf.config import read_config
from natsctl.server.conf.syntax import ConfError
from natsctl.server.options import ServerOptions, TlsOptions
from natsctl.testing.certificates import Authority, Issued
from natsctl.testing.process import reference_binary


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


WRONG = [
    ("cert_file: 1", "error parsing tls config, expected 'cert_file' to be filename"),
    ("verify: 1", "error parsing tls config, expected 'verify' to be a boolean"),
    ("foo: 1", 'error parsing tls config, unknown field "foo"'),
    ("cert_file: CERT", "missing 'key_file' in TLS configuration"),
    ("key_file: KEY", "missing 'cert_file' in TLS configuration"),
    ("cert_file: nope, key_file: KEY", "error parsing X509 certificate/key pair: open nope: no such file or directory"),
    ("cert_file: CERT, key_file: KEY, ca_file: nope", "open nope: no such file or directory"),
    ("cert_file: CERT, key_file: KEY, ca_file: KEY", "failed to parse root ca certificate"),
    ('min_version: "1.1"', "error parsing tls config: unsupported TLS version: TLS 1.1"),
    ('min_version: "1.9"', "error parsing tls config: unknown version: 1.9"),
    ("min_version: 1.2", "error parsing tls config: 'min_version' wrong type: 1.2"),
    ("cipher_suites: []", "error parsing tls config, 'cipher_suites' cannot be empty"),
    ("cipher_suites: [X]", "unrecognized cipher X"),
    ("curve_preferences: []", "error parsing tls config, 'curve_preferences' cannot be empty"),
    ("curve_preferences: [P]", "unrecognized curve preference P"),
    ("timeout: x", "error parsing tls config, 'timeout' time: invalid duration \"x\""),
    ("timeout: true", "error parsing tls config, 'timeout' wrong type"),
    ("connection_rate_limit: x", "error parsing tls config, 'connection_rate_limit' wrong type"),
    ("pinned_certs: [ab]", "'pinned_certs' key ab does not look like hex-encoded sha256 of DER encoded"),
    ("handshake_first: x", 'field "handshake_first"\'s value "x" is invalid'),
    ("certs: [ {cert_file: a} ]", "both 'cert_file' and 'cert_key' options are required"),
    ("certs: [ {cert_file: a, key_file: b} ]", "error parsing X509 certificate/key pair 1/1: open a: no such file"),
    ("certs: [ {cert: a} ]", 'error parsing tls certs config, unknown field "cert"'),
    ("verify_cert_and_check_known_urls: true", "verify_cert_and_check_known_urls not supported in this context"),
    ("cert_store: WindowsCurrentUser", "cert_store not compatible with current operating system"),
]


def spelled(text: str, issued: Issued) -> str:
    for word, path in (("CERT", issued.cert), ("KEY", issued.key)):
        text = text.replace(word, f'"{path}"')
    return f"tls {{ {text} }}"


@pytest.mark.parametrize(("text", "complaint"), WRONG)
def test_what_is_wrong_is_told(tmp_path: Path, issued: Issued, text: str, complaint: str) -> None:
    with pytest.raises(ConfError) as caught:
        read(tmp_path, spelled(text, issued))
    assert "nats.conf:1: " in str(caught.value) and complaint in str(caught.value)


@pytest.mark.reference
def test_the_reference_uses_the_same_words(tmp_path: Path, issued: Issued) -> None:
    import subprocess

    conf = tmp_path / "nats.conf"
    different = []
    for text, complaint in WRONG:
        conf.write_text(spelled(text, issued))
        told = subprocess.run(
            [str(reference_binary()), "-t", "-c", conf], capture_output=True, text=True, timeout=60
        ).stderr
        if complaint not in told:
            different.append((text, told))
    assert not different


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


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("foo: 1", 'unknown field "foo"'),
        ("authorization { users: [] }", 'unknown field "users"'),
        ("handshake_timeout: 1.5", "error parsing handshake timeout: unsupported type"),
        ("headers: 1", "error parsing headers: unsupported type"),
        ("headers { Host: a }", 'websocket: invalid header "Host" not allowed'),
        ("headers { Sec-WebSocket-X: a }", '"Sec-WebSocket-" prefix not allowed'),
        ('headers { X: "a\\r\\nb" }', "has control characters"),
        ("allowed_origins: [x]", 'unable to parse allowed origin: parse "x": invalid URI for request'),
        ('allowed_origins: ["ftp://x"]', "allowed origins must be absolute URLs with http or https scheme"),
        ('allowed_origins: ["http://"]', "host is required"),
        ("no_auth_user: a", 'no_auth_user: "a" present, but users/nkeys are not defined'),
        ("jwt_cookie: a", 'is required for JWT authentication via cookie "a"'),
        ("no_tls: false", "websocket requires TLS configuration"),
    ],
)
def test_what_is_wrong_with_websocket_is_told(tmp_path: Path, clear: str, text: str, complaint: str) -> None:
    with pytest.raises(ConfError) as caught:
        read(tmp_path, f"websocket {{ {clear}, {text} }}")
    assert complaint in str(caught.value)


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
