"""The block `auth_callout`: what it may say, and its faults in nats-server's words and at its lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from natsctl.broker.jwt.callout import CalloutSettings
from natsctl.server.conf.config import read_config
from natsctl.server.conf.syntax import ConfError
from natsctl.server.logins import callout_faults
from natsctl.server.options import ServerOptions
from tests.support.conf_server import ConfServer
from tests.support.operators import Operator

ISSUER = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
XKEY = "XAB3NANV3M6N7AHSQP2U5FRWKKUT7EG2ZXXABV4XVXYQRJGM4S2CZGHT"
USERS = "users: [{user: auth, password: pwd}]"


def block(text: str) -> str:
    return f"authorization {{ {USERS}\n auth_callout {{ {text} }} }}"


def read(folder: Path, text: str) -> ServerOptions:
    (folder / "x.conf").write_text(text)
    return read_config(folder / "x.conf", ServerOptions(), {})


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
def test_good_blocks_are_taken(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, block(text)).auth_callout == GOOD[text]
    assert read(tmp_path, block(text).replace("auth_callout", "auth_hook")).auth_callout == GOOD[text]


def test_accounts_and_users_that_are_none_are_reported_and_do_not_keep_the_server(tmp_path: Path) -> None:
    given = read(tmp_path, block(f"issuer: {ISSUER}, account: NOPE, auth_users: [auth, nobody, '']"))
    assert list(callout_faults(given)) == [
        'Authorization callout account "NOPE" not valid',
        'Authorization callout user "nobody" not valid',
        'Authorization callout user "" not valid',
    ]


BY_AN_OPERATOR = f"authorization {{ auth_callout {{ issuer: {ISSUER}, auth_users: [auth] }} }}"
REFUSED = "operators do not allow authorization callouts to be configured directly"


def test_an_operator_decides_about_logins_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfError, match=REFUSED):
        read(tmp_path, Operator().conf(BY_AN_OPERATOR))


@pytest.mark.reference
def test_nats_server_lets_no_configuration_decide_for_an_operator_either(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=REFUSED):
        ConfServer(tmp_path, "reference", Operator().conf(BY_AN_OPERATOR)).start()
