"""The block `auth_callout`: what it may say, and its faults in nats-server's words and at its lines."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from natsctl.broker.jwt.callout import CalloutSettings
from natsctl.server.conf.config import read_config
from natsctl.server.conf.syntax import ConfError
from natsctl.server.logins import callout_faults
from natsctl.server.options import ServerOptions
from natsctl.testing.process import reference_binary
from tests.support.operators import Operator

REFERENCE = reference_binary()
ISSUER = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
XKEY = "XAB3NANV3M6N7AHSQP2U5FRWKKUT7EG2ZXXABV4XVXYQRJGM4S2CZGHT"
USERS = "users: [{user: auth, password: pwd}]"


def block(text: str) -> str:
    return f"authorization {{ {USERS}\n auth_callout {{ {text} }} }}"


def read(folder: Path, text: str) -> ServerOptions:
    (folder / "x.conf").write_text(text)
    return read_config(folder / "x.conf", ServerOptions(), {})


def reference_fault(folder: Path, text: str) -> tuple[int, str]:
    """Return line and text of what nats-server has against a file; (0, "") for nothing."""
    assert REFERENCE is not None
    path = folder / "x.conf"
    path.write_text(text)
    command = [REFERENCE, "-t", "-c", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        return 0, ""
    said = (done.stdout + done.stderr).strip().splitlines()[0].removeprefix("nats-server: ")
    found = re.match(rf"(?:{re.escape(str(path))}:(\d+):\d+: )?(.*)", said)
    assert found is not None
    return int(found[1] or 0), found[2]


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


BAD = {
    block("issuer: A, auth_users: [auth]"): 'Expected callout user to be a valid public account nkey, got "A"',
    block(f"issuer: U{ISSUER[1:]}, auth_users: [auth]"): (
        f'Expected callout user to be a valid public account nkey, got "U{ISSUER[1:]}"'
    ),
    block(f"issuer: {ISSUER}, auth_users: [auth], xkey: {ISSUER}"): (
        f'Expected callout xkey to be a valid public xkey, got "{ISSUER}"'
    ),
    block("auth_users: [auth]"): "Authorization callouts require an issuer to be specified",
    block(f"issuer: {ISSUER}"): "Authorization callouts require authorized users to be specified",
    block(f"issuer: {ISSUER}, auth_users: []"): "Authorization callouts require authorized users to be specified",
    block(f"issuer: {ISSUER}, auth_users: auth"): "Expected auth_users field to be an array",
    block(f"issuer: {ISSUER}, auth_users: [auth], allowed_accounts: A"): (
        "Expected allowed accounts field to be an array"
    ),
    block(f"issuer: {ISSUER}, auth_users: [auth], no_such: 1"): 'Unknown field "no_such" parsing authorization callout',
    f"authorization {{ {USERS}\n auth_callout: x }}": "Expected authorization callout to be a map/struct",
    block(f"issuer: {ISSUER}, auth_users: [auth], allowed_accounts: [NOPE]"): (
        'auth_callout allowed account "NOPE" not found in configured accounts'
    ),
}


@pytest.mark.parametrize("text", BAD)
def test_bad_blocks_are_refused_in_the_words_of_nats_server(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfError) as error:
        read(tmp_path, text)
    line, said = re.match(r".*x\.conf:(\d+): (.*)", str(error.value)).groups()  # type: ignore[union-attr]
    assert said == BAD[text]
    if REFERENCE is not None:
        at, reference = reference_fault(tmp_path, text)
        assert reference.startswith(said) and at in (0, int(line))


def test_an_operator_decides_about_logins_itself(tmp_path: Path) -> None:
    text = Operator().conf(f"authorization {{ auth_callout {{ issuer: {ISSUER}, auth_users: [auth] }} }}")
    with pytest.raises(ConfError, match="operators do not allow authorization callouts to be configured directly"):
        read(tmp_path, text)
    if REFERENCE is not None:
        expected = "operators do not allow authorization callouts to be configured directly"
        assert expected in subprocess.run(
            [REFERENCE, "-c", str(tmp_path / "x.conf"), "-p", "-1"], capture_output=True, text=True, timeout=60,
            check=False,
        ).stderr  # fmt: skip


@pytest.mark.parametrize("text", [*GOOD, "issuer: A, auth_users: [auth]"])
@pytest.mark.reference
def test_nats_server_takes_the_same_blocks(tmp_path: Path, text: str) -> None:
    if text.count("issuer:") + text.count("ISSUER:") == 1 or text in GOOD:
        assert (reference_fault(tmp_path, block(text)) == (0, "")) is (text in GOOD)


def test_accounts_and_users_that_are_none_are_reported_and_do_not_keep_the_server(tmp_path: Path) -> None:
    given = read(tmp_path, block(f"issuer: {ISSUER}, account: NOPE, auth_users: [auth, nobody, '']"))
    assert list(callout_faults(given)) == [
        'Authorization callout account "NOPE" not valid',
        'Authorization callout user "nobody" not valid',
        'Authorization callout user "" not valid',
    ]
