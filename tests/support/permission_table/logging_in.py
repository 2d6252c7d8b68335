"""Cases of logins."""

from __future__ import annotations

from typing import Final

from tests.support.permission_table.case import CLOSED, WAIT, Case, Step, error, message, publish

VIOLATION: Final = error("Authorization Violation", closed=True)
HASH: Final = "$2a$04$igRjN11Z3BPB1hnNNL88YeQOqI52IWeyoa6itve8ho4ksh1AyBrVa"
"""bcrypt of `x`."""
SEED: Final = "SUADCMJRGEYTCMJRGEYTCMJRGEYTCMJRGEYTCMJRGEYTCMJRGEYTCMNPLI"
NKEY: Final = "UBEAOWSZPZZBUFLOFYDZTXS4YDCTETOG47VPDTOUMJIINDWFGIK52DYE"
OTHER_SEED: Final = "SUADEMRSGIZDEMRSGIZDEMRSGIZDEMRSGIZDEMRSGIZDEMRSGIZDEMTOLU"
OTHER_NKEY: Final = "UBPCCLAJQDSLHH6AS4QRGSVAEEETOTW72JQMBU6QHS2QDSGWKRL2SFXC"

LOGGING_IN: Final = (
    Case(
        claim="a wrong password",
        users="{user: l1, password: x}",
        clients={"l1": {"user": "l1", "pass": "y"}},
        steps=(Step("l1", b"", VIOLATION),),
        log='authentication error - User "l1"',
    ),
    Case(
        claim="a user that does not exist",
        users="{user: l2, password: x}",
        clients={"other": {"user": "nobody-l2", "pass": "x"}},
        steps=(Step("other", b"", VIOLATION), Step("l2", b"")),
        log='authentication error - User "nobody-l2"',
    ),
    Case(
        claim="no credentials",
        users="{user: l3, password: x}",
        clients={"nobody": {}},
        steps=(Step("nobody", b"", VIOLATION),),
        log="authentication error",
    ),
    Case(
        claim="saying something else than CONNECT first",
        users="{user: l4, password: x}",
        clients={"silent": None},
        steps=(Step("silent", b"PING\r\n", VIOLATION),),
        log="authentication error",
    ),
    Case(
        claim="a token where users are configured",
        users="{user: l5, password: x}",
        clients={"token": {"auth_token": "secret-l5"}},
        steps=(Step("token", b"", VIOLATION),),
        log='authentication error - Token "[REDACTED]"',
    ),
    Case(
        claim="choosing an account",
        users="{user: l6, password: x}",
        clients={"l6": {"user": "l6", "pass": "x", "account": "B"}},
        steps=(Step("l6", b"", VIOLATION),),
        log='authentication error - User "l6"',
    ),
    Case(
        claim="a password that is configured as a bcrypt hash",
        users=f'{{user: l7, password: "{HASH}"}}',
        steps=(Step("l7", b"SUB l7 1\r\n" + publish("l7"), message("l7", 1)),),
    ),
    Case(
        claim="a wrong password for a bcrypt hash",
        users=f'{{user: l8, password: "{HASH}"}}',
        clients={"l8": {"user": "l8", "pass": "y"}},
        steps=(Step("l8", b"SUB l8 1\r\n", VIOLATION),),
        log='authentication error - User "l8"',
    ),
    Case(
        claim="the bcrypt hash itself as the password",
        users=f'{{user: l9, password: "{HASH}"}}',
        clients={"l9": {"user": "l9", "pass": HASH}},
        steps=(Step("l9", b"", VIOLATION),),
        log='authentication error - User "l9"',
    ),
    Case(
        claim="an nkey that has signed the nonce",
        users=f"{{nkey: {NKEY}}}",
        clients={"nkey": {"nkey": NKEY, "seed": SEED}},
        steps=(Step("nkey", b"SUB l10 1\r\n" + publish("l10"), message("l10", 1)),),
    ),
    Case(
        claim="an nkey without a signature, with a bad one, and with another key's",
        users=f"{{nkey: {OTHER_NKEY}, permissions: {{publish: l11}}}}",
        clients={
            "unsigned": {"nkey": OTHER_NKEY},
            "garbage": {"nkey": OTHER_NKEY, "sig": "!!!"},
            "other": {"nkey": OTHER_NKEY, "seed": SEED},
            "right": {"nkey": OTHER_NKEY, "seed": OTHER_SEED},
        },
        steps=(
            Step("unsigned", b"", VIOLATION),
            Step("garbage", b"", VIOLATION),
            Step("other", b"", VIOLATION),
            Step("right", publish("l11")),
        ),
        log=f'authentication error - Nkey "{OTHER_NKEY}"',
    ),
    Case(
        claim="an nkey that is not configured",
        users="{user: l12, password: x}",
        clients={"stranger": {"nkey": "U" + NKEY[1:-1] + "F", "seed": SEED}},
        steps=(Step("stranger", b"", VIOLATION),),
        log=f'authentication error - Nkey "U{NKEY[1:-1]}F"',
    ),
    Case(
        claim="a user that may come over another kind of connection only",
        users="{user: l13, password: x, allowed_connection_types: [WEBSOCKET]}",
        steps=(Step("l13", b"", VIOLATION),),
        log='authentication error - User "l13"',
    ),
    Case(
        claim="a user that may come over this kind of connection",
        users="{user: l14, password: x, allowed_connection_types: [standard, MQTT]}",
        steps=(Step("l14", b"SUB l14 1\r\n" + publish("l14"), message("l14", 1)),),
    ),
    Case(
        claim="a second CONNECT as another user: what was subscribed to is gone",
        users="{user: l15, password: x}\n{user: l15b, password: x, permissions: {subscribe: l15.b}}",
        steps=(
            Step("l15", b"SUB l15 1\r\n" + publish("l15"), message("l15", 1)),
            Step("l15", b'CONNECT {"user":"l15b"}\r\n' + publish("l15")),
            Step("l15", b"SUB l15.b 1\r\n" + publish("l15.b"), message("l15.b", 1)),
        ),
    ),
    Case(
        claim="a second CONNECT with a wrong password",
        users="{user: l16, password: x}",
        steps=(Step("l16", b""), Step("l16", b'CONNECT {"pass":"y"}\r\n', VIOLATION)),
        log='authentication error - User "l16"',
    ),
    Case(
        claim="a token",
        config="authorization { token: secret-t1 }",
        clients={"wrong": {"auth_token": "other"}, "none": {}, "right": {"auth_token": "secret-t1"}},
        steps=(
            Step("wrong", b"", VIOLATION),
            Step("none", b"", VIOLATION),
            Step("right", b"SUB t1 1\r\n" + publish("t1"), message("t1", 1)),
        ),
        log='authentication error - Token "[REDACTED]"',
    ),
    Case(
        claim="a token that is configured as a bcrypt hash",
        config=f'authorization {{ token: "{HASH}" }}',
        clients={"wrong": {"auth_token": "y"}, "right": {"auth_token": "x"}},
        steps=(Step("wrong", b"", VIOLATION), Step("right", b"SUB t2 1\r\n" + publish("t2"), message("t2", 1))),
        log='authentication error - Token "[REDACTED]"',
    ),
    Case(
        claim="one user with a password",
        config="authorization { user: u1, password: x, timeout: 1.2 }",
        clients={"wrong": {"user": "u1", "pass": "y"}, "silent": None},
        steps=(
            Step("wrong", b"", VIOLATION),
            Step("u1", b"SUB u1 1\r\n" + publish("u1"), message("u1", 1)),
            Step("silent", b"", error("Authentication Timeout", closed=True)),
        ),
        log='authentication error - User "u1"',
    ),
    Case(
        claim="not saying CONNECT in time",
        config="authorization { user: u2, password: x, timeout: 1.2 }",
        clients={"silent": None},
        steps=(Step("silent", b"", error("Authentication Timeout", closed=True)),),
    ),
    Case(
        claim="a user for those without credentials (`no_auth_user`), with its permissions",
        config="no_auth_user: n1\nauthorization { timeout: 1.2, users: [{user: n1, password: x, permissions: "
        "{publish: n1}}, {user: n2, password: x}] }",
        clients={"nobody": {}, "silent": None, "wrong": {"user": "n2", "pass": "y"}, "mute": None},
        steps=(
            Step("nobody", publish("n2"), b"-ERR 'Permissions Violation for Publish to \"n2\"'\r\n"),
            Step("nobody", b"SUB n1 1\r\n" + publish("n1"), message("n1", 1)),
            # Who says something before CONNECT is verbose, as every client is that has not said otherwise.
            Step("silent", b"SUB n1 1\r\n", b"+OK\r\n"),
            Step(WAIT, b"1500"),
            Step("silent", publish("n1"), b"+OK\r\n" + message("n1", 1)),
            Step("n2", publish("n2")),
            Step("wrong", b"", VIOLATION),
            Step("mute", b"", error("Authentication Timeout", closed=True)),
        ),
        log='Publish Violation - Subject "n2"',
    ),
    Case(
        claim="an nkey for those without credentials",
        config=f"no_auth_user: {NKEY}\nauthorization {{ users: [{{nkey: {NKEY}, permissions: {{publish: n3}}}}] }}",
        clients={"nobody": {}},
        steps=(Step("nobody", publish("n4"), b"-ERR 'Permissions Violation for Publish to \"n4\"'\r\n"),),
        log='Publish Violation - Subject "n4"',
    ),
    Case(
        claim="CONNECT that is no JSON",
        users="{user: l17, password: x}",
        clients={"broken": None},
        steps=(Step("broken", b"CONNECT {bad\r\n", CLOSED),),
    ),
    Case(
        claim="credentials where nobody asks for them",
        config="",
        clients={"anyone": {"user": "a", "pass": "b"}},
        steps=(Step("anyone", b"SUB o1 1\r\n" + publish("o1"), message("o1", 1)),),
    ),
)
