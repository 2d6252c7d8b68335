"""Every key of nats-server's configuration is taken, taken without effect, or refused by name with a reason.

keys.yaml has the keys of nats-server 2.15.2 (server/opts.go) by the function that reads them there, each with a line in
which it can be tried. Where the sources of that version are in Go's folder of modules, they are compared with the list.
"""

import os
import re
from pathlib import Path

import pytest
import yaml

from natsctl.api.versions import SERVER_VERSION
from natsctl.server.conf import config
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions
from tests.support.server_page import REFUSING

PAGE = Path(__file__).parents[3] / "docs" / "not-served.md"
MODULES = Path(os.environ.get("GOMODCACHE") or Path.home() / "go" / "pkg" / "mod")
SOURCE = MODULES / f"github.com/nats-io/nats-server/v2@v{SERVER_VERSION}" / "server" / "opts.go"
FUNCTION = re.compile(r"(?m)^func (?:\([^)]*\) )?")
CASE = re.compile(r'case ((?:"[^"]+"(?:,\s*)?)+):')
KEYS: dict[str, list[str]] = yaml.safe_load((Path(__file__).parent / "keys.yaml").read_text(encoding="utf-8"))
VALUES = {
    "processConfigFileLine": "mode urls url CACHE FULL MEM MEMORY",
    "parseJetStreamForAccount": "enabled enable disabled disable owner",
    "parseJetStream": "disabled disable",
    "parseRemoteLeafNodes": "username password timeout",
    "parseExportStreamOrService": "single singleton chunk chunked",
    "parseTLS": "true on false off auto auto_fallback",
}
"""Cases of the same functions that are values, or keys of a block within a block that is refused as a whole."""
OTHERS = {"parseWriteDeadlinePolicy", "setJetStreamEkCipher", "ConfigureOptions"}
"""Functions whose cases are values or flags."""
ALL = [(block, line, key) for block, (line, keys) in KEYS.items() for key in keys.split()]


def answer(line: str) -> str:
    """Return the error for a configuration, "" where it is taken."""
    try:
        config.apply(load_text(line, {}), ServerOptions())
    except ConfError as fault:
        return str(fault)
    return ""


@pytest.mark.parametrize(("line", "key"), [(line, key) for _, line, key in ALL])
def test_no_key_of_nats_server_is_unknown(line: str, key: str) -> None:
    assert "unknown field" not in answer(line.format(key=key)).lower()


def test_a_key_that_nats_server_does_not_have_is_unknown_in_every_block() -> None:
    refused = ("cluster", "gateway", "mqtt", "tpm")
    lines = [line for line, _ in KEYS.values() if not any(block in line for block in refused)]
    assert len(lines) > 20
    known = [line for line in lines if "unknown field" not in answer(line.format(key="no_such_key")).lower()]
    assert known == []


@pytest.mark.reference
@pytest.mark.skipif(not SOURCE.is_file(), reason=f"the sources of nats-server {SERVER_VERSION} are not here")
def test_the_list_has_every_key_of_the_sources() -> None:
    found: dict[str, set[str]] = {}
    for text in FUNCTION.split(SOURCE.read_text(encoding="utf-8"))[1:]:
        keys = {key for case in CASE.findall(text) for key in re.findall('"([^"]+)"', case)}
        name = text.partition("(")[0]
        if keys and name not in OTHERS:
            found[name] = keys - set(VALUES.get(name, "").split())
    assert found == {name: set(keys.split()) for name, (_, keys) in KEYS.items()}


def test_the_page_names_what_is_refused_and_nothing_else() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("<!-- refused keys -->")[2].partition("\n\n")[0]
    spans = [span for row in table.splitlines()[3:] for span in re.findall(r"`([^`]+)`", row.split("|")[2])]
    named = {word for span in spans for word in re.findall(r"\w+", span)}
    assert {key for keys in REFUSING for key in re.findall(r"\w+", keys)} - named == set()
    lines = [span for span in spans if ":" in span or "{" in span]
    assert len(lines) >= len(REFUSING)
    assert [line for line in lines if not answer(line)] == []
