"""The block `accounts`, and mappings: what they make, and what is wrong with them in the reference's words."""

from __future__ import annotations

import pytest

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
from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions


def read(text: str) -> ServerOptions:
    return apply(load_text(text, {}), ServerOptions())


def accounts(text: str) -> dict[str, AccountConfig]:
    return {account.name: account for account in read(text).accounts}


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
    options = read(
        "accounts {A {users: [{user: a}, {user: b, permissions: {publish: x}}], default_permissions: {pub: y}}}"
    )
    allowed = [user.permissions.publish.allow for user in options.users if user.permissions is not None]
    assert allowed == [("y",), ("x",)]


def test_accounts_may_be_a_list_of_names() -> None:
    assert list(accounts("accounts: [A, B]")) == ["A", "B"]


def test_mappings_at_the_top_are_of_the_global_account() -> None:
    found = accounts("mappings { foo: bar }\naccounts {A {}}")
    assert found["$G"].mappings == (SubjectMap("foo", (Destination("bar"),)),)
    assert list(accounts("maps = { foo: bar }")) == ["$G"]


def test_an_error_names_the_line_of_the_import() -> None:
    with pytest.raises(ConfError, match=r"nats\.conf:4: "):
        read("accounts {\n A {}\n B { imports: [\n {service: {account: A, subject: s}}\n ] }\n}")


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
    account = next(one for one in read(f"accounts {{A {{{text}}}}}").accounts if one.name == "A")
    assert (account.trace_dest, account.trace_sampling) == (dest, sampling)


def test_imports_and_exports_say_whether_traces_go_on() -> None:
    text = (
        "accounts {A {exports: [{stream: s}, {service: q, allow_trace: true}]}, "
        "B {imports: [{stream: {account: A, subject: s}, allow_trace: true}]}}"
    )
    accounts = {one.name: one for one in read(text).accounts}
    assert [getattr(one, "allow_trace", None) for one in accounts["A"].exports] == [None, True]
    assert [one.allow_trace for one in accounts["B"].imports if isinstance(one, StreamImport)] == [True]
