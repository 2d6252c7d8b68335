"""What is wrong with a nats.conf is said at its place, as are numbers in the place of durations."""

import re
import subprocess
from pathlib import Path

import pytest

from natsctl.api.errors import UsageError
from natsctl.server.conf.config import apply, duration_warnings, read_config
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions
from natsctl.server.process.process import main
from natsctl.testing.certificates import Authority, Issued
from natsctl.testing.process import reference_binary
from tests.server.conf.faults import (
    ACCEPTED,
    ACCEPTED_HERE_ALONE,
    IN_OWN_WORDS,
    IN_OWN_WORDS_ALONE,
    IN_WORDS_OF_BOTH,
    OCSP,
    REFUSED,
    REFUSED_HERE_ALONE,
)

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


ROOT = Path(__file__).parents[3]
WARNED = {
    "ping_interval: 10": "ping_interval",
    "write_deadline: 5": "write_deadline",
    "jetstream { sync_interval: 2m }": "sync_interval",
    'leafnodes { listen: "127.0.0.1:-1", reconnect: 3 }': "reconnect",
    'leafnodes { remotes: [{ url: "nats://127.0.0.1:1", first_info_timeout: 3 }] }': "first_info_timeout",
    'websocket { listen: "127.0.0.1:-1", no_tls: true, ping_interval: 3 }': "ping_interval",
    'ping_interval: "10s", jetstream { sync_interval: always }': "",
}


def written(folder: Path, text: str) -> Path:
    path = folder / "nats.conf"
    path.write_text(text)
    return path


def warnings(path: Path) -> tuple[str, ...]:
    return read_config(path, ServerOptions(), {}).config_warnings


@pytest.mark.parametrize("text", WARNED)
def test_a_number_for_a_duration_is_reported_at_its_line(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    expected = f'{path}:1: invalid use of field "{{0}}": {{0}} should be converted to a duration'
    assert warnings(path) == ((expected.format(WARNED[text]),) if WARNED[text] else ())


@pytest.mark.reference
@pytest.mark.parametrize("text", WARNED)
def test_nats_server_reports_the_same_numbers(tmp_path: Path, text: str) -> None:
    status, said = said_by_reference(tmp_path, text)
    reported = re.findall(r'field "(\w+)": \1 should be converted to a duration', said)
    assert reported == [field for field in [WARNED[text]] if field]
    assert status == (1 if reported else 0)


def test_a_check_of_the_file_fails_with_the_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-t", "-c", str(written(tmp_path, "ping_interval: 10"))]) == 1
    assert "ping_interval should be converted to a duration" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["2m", "5", "0.5"])
def test_the_key_of_natsctl_takes_no_number(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match=r":1: expected always, never or a duration with its unit"):
        read_config(written(tmp_path, f"jetstream {{ sync: {value} }}"), ServerOptions(), {})


@pytest.mark.parametrize("text", ["", "# a comment\n", "\n\n"])
@pytest.mark.parametrize("flags", [[], ["-t"]])
def test_a_file_without_keys_starts_no_server(
    tmp_path: Path, text: str, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-c", str(written(tmp_path, text)), *flags]) == 1
    assert "config has no values or is empty" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["-js"], ["-p", "-1"], ["-js", "--apply", "x.yaml"]])
def test_a_check_without_a_file_starts_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["-t", *flags, *(["-sd", str(tmp_path)] if "-js" in flags else [])]) == 1
    assert capsys.readouterr().err.startswith("nats-server: must specify [-c, --config] option")
    assert list(tmp_path.iterdir()) == []


def test_no_example_and_no_page_has_a_number_for_a_duration(tmp_path: Path) -> None:
    files = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.glob("examples/**/*.conf"))}
    for page in sorted(ROOT.glob("docs/**/*.md")):
        for number, text in enumerate(
            re.findall(r"^```(?:conf|nats)\b[^\n]*\n(.*?)^```$", page.read_text(), re.M | re.S)
        ):
            files[f"{page.relative_to(ROOT)} block {number}"] = text
    assert len(files) > 10
    found = {name: warnings_of(text) for name, text in files.items()}
    assert {name: texts for name, texts in found.items() if texts} == {}


def warnings_of(text: str) -> list[str]:
    return list(duration_warnings(load_text(re.sub(r"^\s*include .*$", "", text, flags=re.M), {})))
