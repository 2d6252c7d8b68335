"""Cases of limits of one client."""

from __future__ import annotations

from typing import Final

from tests.support.permission_table.case import CLOSED, Case, Step, error, message, publish

ACCOUNT: Final = "accounts { A { users: [{user: a1, password: x}], limits { %s } } }"
VERBOSE: Final = {"user": "a1", "pass": "x", "verbose": True}

LIMITS: Final = (
    Case(
        claim="more subscriptions than `max_subscriptions`",
        config="max_subscriptions: 2",
        clients={"m1": {}},
        steps=(
            Step("m1", b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n", error("maximum subscriptions exceeded")),
            Step("m1", b"SUB a 1\r\n", error("maximum subscriptions exceeded")),
            Step("m1", b"UNSUB 1\r\nSUB c 3\r\n" + publish("c"), message("c", 3)),
        ),
        log="maximum subscriptions exceeded",
    ),
    Case(
        claim="a message larger than `max_payload`",
        config="max_payload: 10",
        clients={"m2": {}},
        steps=(
            Step("m2", b"SUB a 1\r\nPUB a 10\r\n0123456789\r\n", b"MSG a 1 10\r\n0123456789\r\n"),
            Step("m2", b"PUB a 11\r\n", error("Maximum Payload Violation", closed=True)),
        ),
        log="maximum payload exceeded: 11 vs 10",
    ),
    Case(
        claim="header and payload together larger than `max_payload`",
        config="max_payload: 20",
        clients={"m3": {}},
        steps=(Step("m3", b"HPUB a 12 21\r\n", error("Maximum Payload Violation", closed=True)),),
        log="maximum payload exceeded: 21 vs 20",
    ),
    Case(
        claim="an operation longer than `max_control_line`",
        config="max_control_line: 64",
        clients={"m4": {"lang": "x"}},
        steps=(Step("m4", b"SUB " + b"a" * 80 + b" 1\r\n", error("maximum control line exceeded", closed=True)),),
        log="maximum control line exceeded",
    ),
    Case(
        claim="one connection more than `max_connections`",
        config="max_connections: 1",
        clients={"first": {}, "second": None},
        steps=(
            Step("first", b"SUB a 1\r\n"),
            Step("second", b"", error("maximum connections exceeded", closed=True)),
            Step("first", publish("a"), message("a", 1)),
        ),
        log="maximum connections exceeded",
    ),
    Case(
        claim="a subject with more tokens than `max_subscription_tokens`",
        config="max_subscription_tokens: 3",
        clients={"m5": {}},
        steps=(
            Step("m5", b"SUB a.b.c 1\r\n"),
            Step(
                "m5",
                b"SUB a.b.c.d 2\r\n",
                error('Permissions Violation for Subscription to "a.b.c.d", too many tokens'),
            ),
        ),
        log='Subscription Violation Too Many Tokens - Subject "a.b.c.d", SID 2',
    ),
    Case(
        claim="more connections than the account may have",
        config=ACCOUNT % "max_conn: 1",
        clients={"first": {"user": "a1", "pass": "x"}, "second": {"user": "a1", "pass": "x"}},
        steps=(
            Step("first", b"SUB a 1\r\n"),
            Step("second", b"", error("maximum account active connections exceeded", closed=True)),
            Step("first", publish("a"), message("a", 1)),
        ),
        log="maximum account active connections exceeded",
    ),
    Case(
        claim="more subscriptions than the account lets a connection have",
        config=ACCOUNT % "max_subs: 1",
        clients={"a1": VERBOSE},
        steps=(
            Step("a1", b"SUB a 1\r\n", b"+OK\r\n+OK\r\n"),
            Step("a1", b"SUB b 2\r\n", error("maximum subscriptions exceeded")),
        ),
        log="maximum subscriptions exceeded",
    ),
    Case(
        claim="a message larger than the account lets it be",
        config=ACCOUNT % "max_payload: 5",
        steps=(
            Step("a1", b"SUB a 1\r\nPUB a 5\r\n01234\r\n", b"MSG a 1 5\r\n01234\r\n"),
            Step("a1", b"PUB a 6\r\n", error("Maximum Payload Violation", closed=True)),
        ),
        log="maximum payload exceeded: 6 vs 5",
    ),
    Case(
        claim="headers without having said so in CONNECT",
        config="",
        clients={"m6": {"headers": False}},
        steps=(Step("m6", b"HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\n", CLOSED),),
    ),
    Case(
        claim="no_responders without headers",
        config="",
        clients={"m7": {"headers": False, "no_responders": True}},
        steps=(Step("m7", b"", error("no responders requires headers support", closed=True)),),
        log="no responders requires headers support",
    ),
    Case(
        claim="a protocol that does not exist",
        config="",
        clients={"m8": {"protocol": 2}},
        steps=(Step("m8", b"", error("invalid client protocol", closed=True)),),
        log="invalid client protocol",
    ),
    Case(
        claim="an operation that does not exist",
        config="",
        clients={"m9": {}},
        steps=(Step("m9", b"WHAT\r\n", error("Unknown Protocol Operation", closed=True)),),
    ),
    Case(
        claim="subscribing to a subject with an empty token",
        config="",
        clients={"m10": {}},
        steps=(Step("m10", b"SUB a..b 1\r\n", error("Invalid Subject")),),
    ),
)
