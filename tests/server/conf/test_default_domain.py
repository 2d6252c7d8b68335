"""Whose JetStream is another server's: what the file may say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from natsctl.server.conf.config import read_config
from natsctl.server.conf.syntax import ConfError
from natsctl.server.options import ServerOptions


def options(folder: Path, text: str) -> ServerOptions:
    path = folder / "nats.conf"
    path.write_text(text)
    return read_config(path, ServerOptions(), {})


def test_accounts_and_their_domains_are_read(tmp_path: Path) -> None:
    found = options(tmp_path, 'accounts { A {}, B {} }\ndefault_js_domain { A: hub, B: "" }\n')
    assert found.default_js_domain == (("A", "hub"), ("B", ""))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("default_js_domain { A: hub }", "in non operator mode, `default_js_domain` references non existing account"),
        (
            "accounts { A { jetstream: enabled } }\ndefault_js_domain { A: hub }",
            'default_js_domain contains account name "A" with enabled JetStream',
        ),
        ("default_js_domain { $SYS: hub }", 'system account "$SYS" can not be in default_js_domain'),
        (
            'accounts { A {} }\ndefault_js_domain { A: "a b" }',
            'default_js_domain contains account "A" with invalid domain name "a b"',
        ),
    ],
)
def test_what_can_not_be_is_refused_in_the_words_of_the_reference(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfError, match="default_js_domain") as caught:
        options(tmp_path, text + "\n")
    assert fault in str(caught.value)
