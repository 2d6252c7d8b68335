"""The block `accounts`, and mappings: what they make, and what is wrong with them in the reference's words."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

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
from natsctl.testing.process import reference_binary


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


SERVER = """
jetstream {
    store_dir: /data/jetstream
    max_mem: 1G
    max_file: 100G
}
"""


def test_the_specifications_examples_work_as_they_stand() -> None:
    assert read("jetstream: enabled").jetstream
    (enabled,) = read(SERVER + "accounts {\n    HR: {\n        jetstream: enabled\n    }\n}\n").accounts
    assert enabled.jetstream is not None and enabled.jetstream.max_storage == -1
    (limited,) = read(
        SERVER
        + """
        accounts {
            HR: {
                jetstream {
                    max_mem: 512M
                    max_file: 1G
                    max_streams: 10
                    max_consumers: 100
                }
            }
        }"""
    ).accounts
    limits = limited.jetstream
    assert limits is not None
    assert (limits.max_memory, limits.max_storage) == (512_000_000, 1_000_000_000)
    assert (limits.max_streams, limits.max_consumers) == (10, 100)


A = "accounts { A { exports: [%s] }, B { imports: [%s] } }"
FAULTS = {
    'accounts: ["$G"]': '"$G" is a Reserved Account',
    "accounts: [A, A]": "Duplicate Account Entry: A",
    "accounts {A: 1}": "Expected map entries for accounts",
    'accounts {"$G" {}}': '"$G" is a Reserved Account',
    "accounts {A {nkey: x}}": 'Not a valid public nkey for an account: "x"',
    "accounts {A {other: x}}": 'unknown field "other"',
    "accounts {A {limits {x: 1}}}": 'Unknown field "x" parsing account limits',
    "accounts {A {exports: x}}": "Exports should be an array, got ",
    "accounts {A {imports: x}}": "Imports should be an array, got ",
    A % ("x", ""): "Export Items should be a map with type entry, got ",
    A % ("", "x"): "Import Items should be a map with type entry, got ",
    A % ("{service: s, response: x}", ""): 'Unknown response type: "x"',
    A % ("{stream: s, response: single}", ""): "Detected response directive on non-service",
    A % ("{stream: s, latency: l}", ""): "Detected latency directive on non-service",
    A % ("{stream: s, allow_trace: true}", ""): "Detected allow_trace directive on non-service",
    A
    % ("", "{service: {account: B, subject: s}, allow_trace: true}"): "Detected allow_trace directive on a non-stream",
    "accounts {A {msg_trace: 1}}": 'Expected account message trace "msg_trace" to be a string or a map/struct, got ',
    "accounts {A {trace_dest: a.*}}": 'Trace destination "a.*" is not valid',
    "accounts {A {msg_trace: {dest: 1}}}": 'Field "dest" should be a string, got ',
    "accounts {A {msg_trace: {sampling: 0}}}": "Ttrace destination sampling value 0 is invalid, needs to be [1..100]",
    "accounts {A {msg_trace: {sampling: x}}}": 'Invalid trace destination sampling value "x"',
    "accounts {A {msg_trace: {sampling: 1.5}}}": (
        'Trace destination sampling field "sampling" should be an integer or a percentage, got '
    ),
    "accounts {A {msg_trace: {x: 1}}}": 'Unknown field "x" parsing account message trace map/struct "msg_trace"',
    A % ("{service: s, threshold: x}", ""): "Expected response threshold to be a parseable time duration, got",
    A % ("{service: s, latency: {sampling: 0, subject: l}}", ""): "bad sampling percentage, should be 1-100",
    A % ("{service: s, latency: {sampling: x, subject: l}}", ""): "Failed to parse latency sample: strconv.Atoi: ",
    A % ("{service: s, latency: {sampling: 1}}", ""): "Latency subject required, but missing",
    A
    % ("{service: s, latency: s}", ""): 'Error adding service latency sampling for "s" on subject "s": invalid publish',
    A
    % ("{service: s, response: stream, latency: l}", ""): 'sampling for "s" on subject "l": bad service response type',
    A % ("{stream: s, accounts: [X]}", ""): '"X" account not defined for stream export',
    A % ("{service: s, accounts: [X]}", ""): '"X" account not defined for service export',
    A % ("{stream: s, account_token_position: 1}", ""): 'Error adding stream export "s": sublist: invalid subject',
    A % ("{other: s}", ""): 'unknown field "other"',
    A % ("", "{stream: {account: X, subject: s}}"): '"X" account not defined for stream import',
    A % ("", "{service: {account: X, subject: s}}"): '"X" account not defined for service import',
    A % ("", "{service: {account: A}}"): "Expect an account name and a subject",
    A % ("", "{service: x}"): "Service entry should be an account map, got ",
    A % ("", "{stream: x}"): "Stream entry should be an account map, got ",
    A % ("", "{stream: {account: A, subject: s}}"): 'Error adding stream import "s": stream import not authorized',
    A % ("", "{service: {account: A, subject: s}}"): 'Error adding service import "s": service import not authorized',
    A % ("{stream: s}", "{stream: {account: A, subject: s}, prefix: '*'}"): (
        'Error adding stream import "s": stream import prefix can not contain wildcard tokens'
    ),
    A % ("{stream: s}", "{stream: {account: A, subject: s}}, {stream: {account: A, subject: s}, to: t}"): (
        'Error adding stream import "s": stream import already exists'
    ),
    A % ("{service: s}", "{service: {account: A, subject: s}}, {service: {account: A, subject: s}}"): (
        'Duplicate service import subject "s", previously used in import for account "A", subject "s"'
    ),
    A % ('{service: "s.*"}', '{service: {account: A, subject: "s.*"}, to: "t.*.*"}'): (
        'Error adding service import "s.*": failed to create mapping transform for service import subject from '
        '"t.*.*" to "s.*": invalid mapping destination'
    ),
    A % ('{stream: "s.*"}', '{stream: {account: A, subject: "s.*"}, to: t}'): (
        'Error adding stream import "s.*": failed to create mapping transform for stream import subject from "s.*" to '
        '"t": invalid mapping destination: not using all of the token wildcard(s)'
    ),
    'accounts { A { exports: [{service: "q.*"}], imports: [{service: {account: B, subject: "q.*"}}] },'
    ' B { exports: [{service: "q.*"}], imports: [{service: {account: A, subject: "q.*"}}] } }': (
        'Error adding service import "q.*": import forms a cycle'
    ),
    "mappings {foo: [{dest: a, weight: 60}, {dest: b, weight: 60}]}": "total weight needs to be <= 100",
    "mappings {foo: [{dest: a, weight: 60}, {dest: a, weight: 10}]}": 'duplicate entry for "a"',
    "mappings {foo: [{dest: a, weight: 160}]}": "Invalid weight 160 for mapping destination",
    "mappings {foo: [{dest: a, weight: x}]}": 'Invalid weight "x" for mapping destination',
    "mappings {foo: {dest: a}}": 'Missing weight for mapping destination "a"',
    "mappings {foo: [{dest: a, x: 1}]}": 'Unknown field "x" for mapping destination',
    'mappings {"foo..": a}': 'Subject "foo.." is not a valid subject',
    'mappings {"foo.*": "a.$2"}': 'Error adding mapping for "foo.*" to "a.$2" : invalid mapping destination',
}


@pytest.mark.parametrize(("text", "fault"), FAULTS.items(), ids=list(FAULTS))
def test_what_is_wrong_is_said_with_its_line(text: str, fault: str) -> None:
    with pytest.raises(ConfError, match=rf"nats\.conf:1: .*{re.escape(fault)}"):
        read(text)


@pytest.mark.reference
@pytest.mark.parametrize(("text", "fault"), FAULTS.items(), ids=list(FAULTS))
def test_the_reference_says_the_same(text: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(text)
    told = subprocess.run([str(reference_binary()), "-t", "-c", str(file)], capture_output=True, text=True, timeout=60)
    assert fault in told.stderr


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
