"""What the blocks of a nats.conf set: authorization, accounts, auth_callout, leafnodes, ocsp, tls and websocket."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from natsctl.broker.auth.permissions import ResponseRule, SubjectPermissions, SubjectRules
from natsctl.broker.auth.static_auth import User
from natsctl.broker.imports.account_config import (
    AccountConfig,
    ConnectionLimits,
    Destination,
    Latency,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectMap,
)
from natsctl.broker.jwt.callout import CalloutSettings
from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.logins import callout_faults
from natsctl.server.options import (
    LeafNodesOptions,
    LeafRemoteOptions,
    ServerOptions,
    TlsOptions,
)
from natsctl.testing.certificates import Authority, Issued
from tests.server.conf.faults import ISSUER, NKEY
from tests.server.conf.test_faults import said_by_reference
from tests.support.conf_server import ConfServer
from tests.support.operators import Operator

MINUTE = 60 * 1_000_000_000


def options(text: str) -> ServerOptions:
    return apply(load_text(text, {}), ServerOptions())


def user(text: str) -> User:
    (found,) = options(f"authorization {{ users: [ {{ {text} }} ] }}").users
    return found


def permissions(text: str) -> SubjectPermissions:
    return user(f"user: a, permissions: {{ {text} }}").permissions


def test_one_user_a_token_and_a_timeout() -> None:
    one = options("authorization { username: a, pass: b, timeout: 3 }")
    assert (one.user, one.password, one.auth_timeout_s) == ("a", "b", 3)
    assert options('authorization { token: "t", timeout: "500ms" }').auth_timeout_s == 0.5


def test_users_with_passwords_and_nkeys() -> None:
    assert user("user: a, password: b") == User("a", "b") == user("username: a, pass: b")
    assert user(f"nkey: {NKEY}") == User("", "", nkey=NKEY)
    hashed = "$2a$04$igRjN11Z3BPB1hnNNL88YeQOqI52IWeyoa6itve8ho4ksh1AyBrVa"
    assert user(f"user: a, password: {hashed}").password == hashed


def test_connection_types_without_regard_to_case() -> None:
    for key in ("allowed_connection_types", "connection_types", "clients"):
        assert user(f"user: a, {key}: [standard, WebSocket]").connection_types == {"STANDARD", "WEBSOCKET"}


@pytest.mark.parametrize("key", ["publish", "pub", "import"])
def test_forms_of_publish_rules(key: str) -> None:
    assert permissions(f"{key}: a").publish == SubjectRules(("a",))
    assert permissions(f'{key}: [a, "b.>"]').publish == SubjectRules(("a", "b.>"))
    assert permissions(f"{key}: {{ allow: a, deny: [b, c] }}").publish == SubjectRules(("a",), ("b", "c"))
    assert permissions(f"{key}: {{ deny: b }}").publish == SubjectRules(None, ("b",))
    assert permissions(f"{key}: {{}}").publish == permissions(f"{key}: []").publish == SubjectRules()


@pytest.mark.parametrize("key", ["subscribe", "sub", "export"])
def test_forms_of_subscribe_rules(key: str) -> None:
    assert permissions(f'{key}: ["a", "b q", "c v1.*"]').subscribe == SubjectRules(("a", "b q", "c v1.*"))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("allow_responses: true", ResponseRule()),
        ("publish_allow_responses: true", ResponseRule(1, 2 * MINUTE)),
        ("allow_responses: false", None),
        ('allow_responses: { max: 5, expires: "1m" }', ResponseRule(5, MINUTE)),
        ('allow_responses: { max_msgs: -1, ttl: "-1m" }', ResponseRule(-1, -MINUTE)),
        ("allow_responses: { max: 0 }", ResponseRule()),
    ],
)
def test_forms_of_response_rules(text: str, rule: ResponseRule | None) -> None:
    assert permissions(text).responses == rule


@pytest.mark.parametrize("key", ["default_permissions", "default_permission", "permissions"])
def test_default_permissions_are_for_those_without_their_own(key: str) -> None:
    text = f"authorization {{ users: [{{user: a}}, {{user: b, permissions: {{pub: x}}}}], {key}: {{sub: y}} }}"
    first, second = options(text).users
    assert first.permissions == SubjectPermissions(subscribe=SubjectRules(("y",)))
    assert second.permissions == SubjectPermissions(publish=SubjectRules(("x",)))


def test_a_variable_in_the_block_is_no_unknown_field() -> None:
    given = options("authorization { P: {pub: a}, users: [{user: a, permissions: $P}] }")
    assert given.users[0].permissions == SubjectPermissions(SubjectRules(("a",)))


def accounts(text: str) -> dict[str, AccountConfig]:
    return {account.name: account for account in options(text).accounts}


def test_every_key_of_an_account_is_read() -> None:
    found = accounts("""
        accounts {
          A {
            nkey: ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA
            users: [{user: a, password: b}, {user: c, password: d, permissions: {publish: x}}]
            default_permissions: {subscribe: y}
            exports: [
              {stream: "s.>", accounts: [B]}
              {stream: "t.*.>", account_token_position: 2}
              {service: q, response: chunked, threshold: "5s"}
              {service: r, latency: {sampling: "20%", subject: lat}}
              {service: h, latency: {sampling: headers, subject: lat}}
              {service: d, latency: lat}
            ]
            mappings: {a: b, "c.*": [{destination: "d.$1", weight: "30%"}, {dest: e, weight: 20, cluster: X}]}
            limits: {max_conn: 1, max_subs: 2, max_pay: 3, max_leafs: 4}
            jetstream: enabled
          }
          B {
            imports: [
              {stream: {account: A, subject: "s.>"}, prefix: imp}
              {stream: {account: A, subject: "t.B.>"}, to: "t.>"}
              {service: {account: A, subject: q}, to: ask, share: true}
            ]
          }
        }""")
    a, b = found["A"], found["B"]
    assert a.exports == (
        StreamExport("s.>", ("B",)),
        StreamExport("t.*.>", account_token_position=2),
        ServiceExport("q", response="chunked", response_threshold_ns=5_000_000_000),
        ServiceExport("r", latency=Latency("lat", 20)),
        ServiceExport("h", latency=Latency("lat", 0)),
        ServiceExport("d", latency=Latency("lat", 100)),
    )
    assert a.mappings == (SubjectMap("a", (Destination("b"),)), SubjectMap("c.*", (Destination("d.$1", 30),)))
    assert a.limits == ConnectionLimits(1, 4, 2, 3)
    assert a.jetstream is not None and b.jetstream is None
    assert b.imports == (
        StreamImport("A", "s.>", "imp.s.>"),
        StreamImport("A", "t.B.>", "t.>"),
        ServiceImport("A", "q", "ask", share=True),
    )


def test_users_without_permissions_have_the_default_ones() -> None:
    found = options(
        "accounts {A {users: [{user: a}, {user: b, permissions: {publish: x}}], default_permissions: {pub: y}}}"
    )
    allowed = [user.permissions.publish.allow for user in found.users if user.permissions is not None]
    assert allowed == [("y",), ("x",)]


def test_accounts_may_be_a_list_of_names() -> None:
    assert list(accounts("accounts: [A, B]")) == ["A", "B"]


def test_mappings_at_the_top_are_of_the_global_account() -> None:
    found = accounts("mappings { foo: bar }\naccounts {A {}}")
    assert found["$G"].mappings == (SubjectMap("foo", (Destination("bar"),)),)
    assert list(accounts("maps = { foo: bar }")) == ["$G"]


def test_an_error_names_the_line_of_the_import() -> None:
    with pytest.raises(ConfError, match=r"nats\.conf:4: "):
        options("accounts {\n A {}\n B { imports: [\n {service: {account: A, subject: s}}\n ] }\n}")


@pytest.mark.parametrize(
    ("text", "dest", "sampling"),
    [
        ("msg_trace: t.x", "t.x", 100),
        ("trace_dest: t", "t", 100),
        ('msg_trace: {dest: t, sampling: "20%"}', "t", 20),
        ("trace_dest: {Dest: t, Sampling: 7}", "t", 7),
        ("msg_trace: {sampling: 5}", "", 5),
    ],
)
def test_an_account_says_where_traces_go_and_how_many(text: str, dest: str, sampling: int) -> None:
    account = next(one for one in options(f"accounts {{A {{{text}}}}}").accounts if one.name == "A")
    assert (account.trace_dest, account.trace_sampling) == (dest, sampling)


def test_imports_and_exports_say_whether_traces_go_on() -> None:
    text = (
        "accounts {A {exports: [{stream: s}, {service: q, allow_trace: true}]}, "
        "B {imports: [{stream: {account: A, subject: s}, allow_trace: true}]}}"
    )
    accounts = {one.name: one for one in options(text).accounts}
    assert [getattr(one, "allow_trace", None) for one in accounts["A"].exports] == [None, True]
    assert [one.allow_trace for one in accounts["B"].imports if isinstance(one, StreamImport)] == [True]


XKEY = "XAB3NANV3M6N7AHSQP2U5FRWKKUT7EG2ZXXABV4XVXYQRJGM4S2CZGHT"
USERS = "users: [{user: auth, password: pwd}]"


def callout(text: str) -> str:
    return f"authorization {{ {USERS}\n auth_callout {{ {text} }} }}"


GOOD = {
    f"issuer: {ISSUER}, auth_users: [auth]": CalloutSettings(ISSUER, ("auth",)),
    f"issuer: {ISSUER}, users: [auth, other], acc: AUTH": CalloutSettings(ISSUER, ("auth", "other"), "AUTH"),
    f'ISSUER: {ISSUER}, Auth_Users: [auth], account: ""': CalloutSettings(ISSUER, ("auth",)),
    f"issuer: {ISSUER}, auth_users: [auth], key: {XKEY}": CalloutSettings(ISSUER, ("auth",), xkey=XKEY),
    f"issuer: {ISSUER}, auth_users: [auth], xkey: {XKEY}, allowed_accounts: []": CalloutSettings(
        ISSUER, ("auth",), xkey=XKEY
    ),
    f"I: {ISSUER}, U: [auth], issuer: $I, auth_users: $U": CalloutSettings(ISSUER, ("auth",)),
    f"issuer: {ISSUER[:-1]}B, issuer: {ISSUER}, auth_users: [x], auth_users: [auth]": CalloutSettings(
        ISSUER, ("auth",)
    ),
}


@pytest.mark.parametrize("text", GOOD)
def test_good_blocks_are_taken(text: str) -> None:
    assert options(callout(text)).auth_callout == GOOD[text]
    assert options(callout(text).replace("auth_callout", "auth_hook")).auth_callout == GOOD[text]


@pytest.mark.reference
@pytest.mark.parametrize("text", GOOD)
def test_nats_server_takes_the_same_callouts(tmp_path: Path, text: str) -> None:
    assert said_by_reference(tmp_path, callout(text))[0] == 0


def test_accounts_and_users_that_are_none_are_reported_and_do_not_keep_the_server() -> None:
    given = options(callout(f"issuer: {ISSUER}, account: NOPE, auth_users: [auth, nobody, '']"))
    assert list(callout_faults(given)) == [
        'Authorization callout account "NOPE" not valid',
        'Authorization callout user "nobody" not valid',
        'Authorization callout user "" not valid',
    ]


BY_AN_OPERATOR = f"authorization {{ auth_callout {{ issuer: {ISSUER}, auth_users: [auth] }} }}"
REFUSED = "operators do not allow authorization callouts to be configured directly"


def test_an_operator_decides_about_logins_itself() -> None:
    with pytest.raises(ConfError, match=REFUSED):
        options(Operator().conf(BY_AN_OPERATOR))


@pytest.mark.reference
def test_nats_server_lets_no_configuration_decide_for_an_operator_either(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=REFUSED):
        ConfServer(tmp_path, "reference", Operator().conf(BY_AN_OPERATOR)).start()


def leafnodes(text: str) -> LeafNodesOptions:
    return options(text).leafnodes


def remote(text: str) -> LeafRemoteOptions:
    return leafnodes(f"leafnodes {{ remotes: [ {{ {text} }} ] }}").remotes[0]


def test_what_clients_test_suites_write_into_every_file_is_a_listener() -> None:
    found = leafnodes("leafnodes { listen: 127.0.0.1:-1 }")
    assert (found.host, found.port, found.remotes, found.users) == ("127.0.0.1", -1, (), ())


def test_a_block_without_port_and_remotes_is_nothing() -> None:
    assert options("leafnodes { no_advertise: true }").leafnodes is None


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
        ("nats-leaf://hub", "nats-leaf", "hub", 7422), ("tls://hub:4443", "tls", "hub", 4443),
        ("hub:7000", "nats-leaf", "hub", 7000), ("ws://hub", "ws", "hub", 80), ("wss://hub/path", "wss", "hub", 443),
        ("nats://[::1]:7422", "nats", "::1", 7422),
    ],
)  # fmt: skip
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


def fault(text: str) -> str:
    with pytest.raises(ConfError) as found:
        options(text)
    return str(found.value).split(": ", 1)[1]


@pytest.mark.parametrize("block", ["%s", "leafnodes { port: -1, %s }", "websocket { port: -1, %s }"])
def test_listeners_that_check_must_ask_for_certificates(block: str) -> None:
    text = "OCSP peer verification for client connections requires TLS verify (mTLS) to be enabled"
    assert fault(block % "tls { ocsp_peer: true }") == text
    assert options(block % "tls { ocsp_peer: true, verify: true }").checks_peers


def test_a_remote_that_checks_its_hub_needs_no_certificate_of_its_own() -> None:
    line = "leafnodes { remotes: [{ url: nats-leaf://127.0.0.1, tls { ocsp_peer: true } }] }"
    assert options(line).checks_peers


def test_a_time_that_no_duration_can_have_is_refused() -> None:
    assert fault("tls { ocsp_peer { ca_timeout: 99999999999 } }").endswith("longer than a duration can be")


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Authority(tmp_path_factory.mktemp("tls")).issue("server", dns=["localhost"])


def tls(text: str) -> TlsOptions:
    return options(f"tls {{ {text} }}").tls


def test_every_key_of_tls_is_read(issued: Issued) -> None:
    digest = "AB" * 32
    found = tls(
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
        ("true", True, 0.0), ('"on"', True, 0.0), ("false", False, 0.0), ('"off"', False, 0.0), ("auto", True, 0.05),
        ('"auto_fallback"', True, 0.05), ('"300ms"', True, 0.3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["handshake_first", "first", "immediate"])
def test_a_handshake_may_come_first(key: str, value: str, first: bool, fallback_s: float) -> None:
    assert tls(f"{key}: {value}") == TlsOptions(handshake_first=first, fallback_s=fallback_s)


def test_insecure_suites_need_a_word() -> None:
    suites = "cipher_suites: [TLS_RSA_WITH_AES_128_GCM_SHA256]"
    assert tls(f"{suites}, allow_insecure_cipher_suites: true").cipher_suites
    with pytest.raises(ConfError, match="insecure cipher suites configured without"):
        tls(suites)


def test_pairs_are_read(issued: Issued) -> None:
    pair = f'{{ cert_file: "{issued.cert}", key_file: "{issued.key}" }}'
    assert tls(f"certs: [ {pair}, {pair} ]").certs == ((issued.cert, issued.key),) * 2


CLEAR = "port: -1, no_tls: true"


def test_every_key_of_websocket_is_read() -> None:
    found = options(
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


def test_an_unknown_user_of_websocket_is_reported_in_its_block() -> None:
    users = "authorization { users: [{user: b, password: x}] }\nno_auth_user: b\n"
    with pytest.raises(ConfError, match=r"nats.conf:3: .*\"a\" not present"):
        options(f"{users}websocket {{ {CLEAR}, no_auth_user: a }}")


def test_own_logins_do_not_go_with_users() -> None:
    for given, what in (("user: a, password: b", "username"), ("token: t", "token")):
        users = "authorization { users: [ {user: a, password: b} ] }"
        text = f"websocket {{ {CLEAR}, authorization {{ {given} }} }}\n{users}"
        with pytest.raises(ConfError, match=f"websocket authentication {what} not compatible with presence of users"):
            options(text)


def test_without_a_port_a_block_of_websocket_is_only_read() -> None:
    assert options("websocket { same_origin: true }").websocket is None
    assert replace(ServerOptions()).websocket is None
