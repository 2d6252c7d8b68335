"""What is wrong with a nats.conf is said at its place: in nats-server's words, or clearly in natsctl's own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from natsctl.server.conf.config import apply, read_config
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions
from natsctl.testing.certificates import Authority, Issued
from natsctl.testing.process import reference_binary
from tests.server.conf.agreement_files import ACCEPTED, ACCEPTED_HERE_ALONE, REFUSED, REFUSED_HERE_ALONE
from tests.server.conf.faults import IN_OWN_WORDS, IN_OWN_WORDS_ALONE, IN_WORDS_OF_BOTH, OCSP

FAULTS = {**IN_WORDS_OF_BOTH, **IN_OWN_WORDS, **IN_OWN_WORDS_ALONE}


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Authority(tmp_path_factory.mktemp("tls")).issue("server", dns=["localhost"])


def spelled(text: str, issued: Issued) -> str:
    return text.replace("%CERT%", f'"{issued.cert}"').replace("%KEY%", f'"{issued.key}"')


def fault_of(text: str) -> str:
    """Return what is wrong with a text, which begins with the place."""
    with pytest.raises(ConfError) as error:
        apply(load_text(text, {}), ServerOptions())
    return str(error.value)


def said_by_reference(folder: Path, text: str) -> tuple[int, str]:
    (folder / "nats.conf").write_text(text)
    command = [str(reference_binary()), "-t", "-c", str(folder / "nats.conf")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("text", FAULTS)
def test_what_is_wrong_is_said_with_its_place(issued: Issued, text: str) -> None:
    said = fault_of(spelled(text, issued))
    assert re.match(r"nats\.conf:\d+: ", said) and FAULTS[text] in said


@pytest.mark.reference
def test_the_reference_has_the_same_words(issued: Issued, tmp_path: Path) -> None:
    found = {text: said_by_reference(tmp_path, spelled(text, issued))[1] for text in IN_WORDS_OF_BOTH}
    assert {text: said for text, said in found.items() if IN_WORDS_OF_BOTH[text] not in said} == {}


@pytest.mark.reference
def test_the_reference_has_the_same_words_for_every_fault_of_ocsp(tmp_path: Path) -> None:
    for text in OCSP:
        said = said_by_reference(tmp_path, text)[1].strip()
        assert re.sub(r"^.*nats\.conf:\d+:\d+: ", "", said) == fault_of(text).partition(": ")[2]


@pytest.mark.parametrize("text", [*REFUSED, *REFUSED_HERE_ALONE, *OCSP])
def test_bad_files_are_refused_with_file_and_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.conf"
    path.write_text(text)
    with pytest.raises(ConfError, match=f"^{re.escape(str(path))}:"):
        read_config(path, ServerOptions(), {})


@pytest.mark.parametrize("text", [*ACCEPTED, *ACCEPTED_HERE_ALONE])
def test_good_files_are_accepted(text: str) -> None:
    apply(load_text(text, {}), ServerOptions())


@pytest.mark.reference
def test_the_reference_thinks_the_same_of_each_file(issued: Issued, tmp_path: Path) -> None:
    expected = dict.fromkeys((*REFUSED, *OCSP, *FAULTS, *ACCEPTED_HERE_ALONE), False)
    expected |= dict.fromkeys((*ACCEPTED, *REFUSED_HERE_ALONE, *IN_OWN_WORDS_ALONE), True)
    found = {text: said_by_reference(tmp_path, spelled(text, issued))[0] == 0 for text in expected}
    assert {text: ok for text, ok in found.items() if ok is not expected[text]} == {}


@pytest.mark.parametrize(
    "text",
    [
        "authorization { users: [{password: SECRET}] }",
        "authorization { users: [{user: a, password: SECRET, x: 1}] }",
        "authorization { users: {password: SECRET} }",
        "authorization { users: SECRET }",
        'leafnodes { remotes: [{ nkey: "SUSECRETSECRET", url: "a" }] }',
        'leafnodes { remotes: [{ url: "nats://u:SECRET@[bad" }] }',
    ],
)
def test_secrets_are_in_no_error(text: str) -> None:
    assert "SECRET" not in fault_of(text)
