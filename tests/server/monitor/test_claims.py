"""What endpoints tell of JWTs, and what they keep to themselves."""

from __future__ import annotations

import json
import time
from pathlib import Path

from natsctl.server.monitor.connz import payload, presentable
from natsctl.testing.process import ServerProcess
from tests.support.operators import Operator, login

from .test_reference import ask, monitoring_port


def test_jwts_of_accounts_and_users_are_shown_but_none_that_would_let_its_reader_in(tmp_path: Path) -> None:
    operator = Operator()
    account = operator.account("A", {"name": "ACME"}, tags=["team:red"], revocations={"*": int(time.time()) - 3600})
    user, bearer = operator.user(account), operator.user(account, bearer_token=True)
    (tmp_path / "nats.conf").write_text(operator.conf() + "\nhttp: 127.0.0.1:-1\n")
    with ServerProcess(tmp_path / "server", "natsctl", "-c", str(tmp_path / "nats.conf")) as process:
        visitors = [login(process.url, one) for one in (user, bearer)]
        port = monitoring_port(process)
        pages = {
            path: ask(port, path)[2]
            for path in ("/varz", "/connz?auth=1", f"/accountz?acc={account.public}", "/metrics")
        }
        for visitor in visitors:
            visitor.close()
    first, second = json.loads(pages["/connz?auth=1"])["connections"]
    assert (first["jwt"], first["issuer_key"], first["account"]) == (user.jwt, account.public, account.public)
    assert "jwt" not in second
    assert bearer.jwt not in str(pages)
    detail = json.loads(pages[f"/accountz?acc={account.public}"])["account_detail"]
    assert detail["decoded_jwt"]["sub"] == account.public
    assert detail["tags"] == ["team:red"]
    assert list(detail["revoked_user"]) == ["*"]
    varz = json.loads(pages["/varz"])
    assert varz["trusted_operators_claim"][0]["nats"]["type"] == "operator"
    assert "trusted_operators_jwt" not in varz


def test_what_is_no_jwt_is_neither_read_nor_shown() -> None:
    for token in ("", "a", "a.b.c", "a.!!.c", "a.W10.c", "a.e30.c"):
        assert payload(token) == {}
        assert presentable(token) == ""
