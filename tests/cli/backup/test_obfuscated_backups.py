"""`backup edit --obfuscate` and `backup lookup`: hashes, key files, and what of a backup stays."""

import base64
import json
import stat
import subprocess
from pathlib import Path

import pytest

from natsctl.api import headers
from natsctl.api.archive.archive import ArchivedMessage
from natsctl.client.backup.obfuscation import Obfuscator
from tests.support.commands import Run

ORDERS = Path(__file__).parent / "nats" / "0.5.1" / "ORDERS"
SECRET = "IPl7FerQ4ONilPdy78R0Zs5sKpUm0A9hpI5pMqzkilY="
LONG = "abcdefghij" * 12
HASHES = {
    "LONGS": "0vljnci9su5q647m",
    "C9": "4tc674gjbfg4fu1t",
    "orders": "qqhne5v08mlbjviq",
    LONG: "fdm2is5p6i79jcf1u7g2g5eubdk17n9j6e2uovg7rji1kct0nju0go128kntpa96"
    "j7bu59u7hqrb7i0knnbonbg72704e8bk1jbdbrf36f51dled0fdp3seb",
}
"""Hashes under the secret above, as nats 0.5.1 computed them."""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A key file that has a secret, and the hash of one token."""
    path = tmp_path / "known.json"
    path.write_text(json.dumps({"version": 1, "secret": SECRET, "map": {HASHES["C9"]: "C9"}}))
    return path


def test_hashes_are_those_of_the_tool(keys: Path) -> None:
    obfuscator = Obfuscator(keys)
    assert {token: obfuscator.token(token) for token in HASHES} == HASHES
    assert obfuscator.subject("$KV.orders.*.C9.>") == f"$KV.{HASHES['orders']}.*.{HASHES['C9']}.>"
    assert obfuscator.subject("{{wildcard(1)}}.C9", destination=True) == f"{{{{wildcard(1)}}}}.{HASHES['C9']}"
    assert obfuscator.stream_name("KV_orders") == f"KV_{HASHES['orders']}"
    assert obfuscator.reveal(f"a.{HASHES['C9']}.OBJ_{HASHES['orders']}") == "a.C9.OBJ_orders"
    assert Obfuscator().token("C9") != Obfuscator().token("C9")


def test_every_name_in_a_configuration_is_hashed_and_limits_stay(keys: Path) -> None:
    source = {
        "name": "SECRET", "opt_start_seq": 5, "filter_subject": "SECRET.a",
        "subject_transforms": [{"src": "SECRET.*", "dest": "SECRET.{{wildcard(1)}}"}],
        "external": {"api": "$JS.SECRET.API", "deliver": "SECRET.d"},
        "consumer": {"name": "SECRET", "deliver_subject": "SECRET.x"},
    }  # fmt: skip
    config = {
        "name": "SECRET", "subjects": ["SECRET.>"], "description": "SECRET", "metadata": {"SECRET": "SECRET"},
        "placement": {"cluster": "SECRET"}, "sources": [source], "mirror": source, "max_msgs": 7, "unknown": "SECRET",
        "republish": {"src": "SECRET.>", "dest": "SECRET.{{wildcard(1)}}", "headers_only": True},
        "subject_transform": {"src": "SECRET.*", "dest": "SECRET.{{wildcard(1)}}"},
    }  # fmt: skip
    hidden = Obfuscator(keys).config(config)
    assert "SECRET" not in json.dumps(hidden)
    assert "{{wildcard(1)}}" in hidden["republish"]["dest"]
    assert (hidden["max_msgs"], hidden["sources"][0]["opt_start_seq"]) == (7, 5)
    assert hidden["republish"]["headers_only"] is True
    assert hidden["name"] == hidden["mirror"]["name"] == hidden["subjects"][0].removesuffix(".>")


def test_headers_that_the_server_acts_on_stay(keys: Path) -> None:
    obfuscator = Obfuscator(keys)
    block = headers.encode([(b"Nats-TTL", b"1h"), (b"X", b"C9"), (b"Nats-Schedule-Target", b"C9.orders")])
    (changed,) = obfuscator.messages([ArchivedMessage(3, 9, b"C9.\xff", block, b"body")])
    assert headers.parse(changed.header) == [
        (b"Nats-Schedule-Target", f"{HASHES['C9']}.{HASHES['orders']}".encode()),
        (b"Nats-TTL", b"1h"),
        (b"X", HASHES["C9"].encode()),
    ]
    assert (changed.seq, changed.ts_ns, changed.payload) == (3, 9, b"0000")
    assert changed.subject.startswith(HASHES["C9"].encode() + b".")
    assert obfuscator.bodies == 1


def test_an_obfuscated_backup_names_nothing_and_is_whole(offline: Run, tmp_path: Path) -> None:
    target = tmp_path / "shared"
    done = offline("backup", "edit", str(ORDERS), str(target), "--obfuscate", "--subject", "ORDERS.*", "-j").json
    assert done["obfuscation"] == {"tokens_mapped": 4, "bodies_padded": 5, "key_file": f"{target}.keys.json"}
    assert stat.S_IMODE(Path(f"{target}.keys.json").stat().st_mode) == 0o600
    assert offline("backup", "verify", str(target)).code == 0
    shown = offline("backup", "inspect", str(target)).out + offline("backup", "info", str(target), "--subjects").out
    described = (target / "backup.json").read_text() + (target / "manifest.json").read_text()
    for word in ("ORDERS", "NEW", "order"):
        assert word not in shown + described
    assert "Obfuscated: true" in shown
    said = json.loads((target / "backup.json").read_text())
    (subject,) = said["config"]["subjects"]
    assert said["edit"]["options"] == [f"subject={subject}", "obfuscate"]
    before = offline("backup", "cat", str(ORDERS), "-j").lines
    after = offline("backup", "cat", str(target), "-j").lines
    assert [one["seq"] for one in after] == [one["seq"] for one in before]
    for old, new in zip(before, after, strict=True):
        assert base64.b64decode(new["data"]) == b"0" * len(base64.b64decode(old["data"]))
    found = offline("backup", "lookup", f"{target}.keys.json", said["config"]["name"], subject, "other")
    assert (found.code, found.out) == (3, "ORDERS\nORDERS.*\nother\n")
    assert found.err == f"other is not in {target}.keys.json\n"
    found = offline("backup", "lookup", f"{target}.keys.json", subject, "-j")
    assert (found.code, found.json) == (0, [{"value": subject, "original": "ORDERS.*"}])


@pytest.mark.reference("nats")
def test_the_tool_makes_the_same_backup_with_the_same_key(offline: Run, keys: Path, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    flags = ["--obfuscate", "--obfuscation-key", str(keys)]
    assert offline("backup", "edit", str(ORDERS), str(ours), *flags).code == 0
    nats = ["nats", "backup", "edit", str(ORDERS), str(theirs), *flags, "--no-progress"]
    assert "Key File" in subprocess.run(nats, capture_output=True, text=True, check=True).stdout
    assert offline("backup", "cat", str(ours), "-j").out == offline("backup", "cat", str(theirs), "-j").out
    assert Path(f"{ours}.keys.json").read_bytes() == Path(f"{theirs}.keys.json").read_bytes()
    known = [offline("backup", "info", str(path), "-j").json for path in (ours, theirs)]
    assert [one["consumers"] for one in known] == [known[0]["consumers"]] * 2
    assert known[0]["config"]["name"] == known[1]["config"]["name"]


def test_an_obfuscated_backup_is_restored(natsctl: Run, tmp_path: Path) -> None:
    for line in ("kv add SHOP", "kv put SHOP a.b value", "str add CNT --subjects cnt.* --allow-counter --defaults"):
        assert natsctl(*line.split()).code == 0, line
    natsctl("counter", "increment", "cnt.a", "5")
    keys = str(tmp_path / "SHOP.keys.json")
    for stream, target in (("KV_SHOP", "SHOP"), ("CNT", "CNT")):
        source = str(tmp_path / f"{stream}.tgz")
        assert natsctl("str", "backup", stream, source).code == 0
        more = ["--obfuscation-key", keys] if target == "CNT" else []
        done = natsctl("backup", "edit", source, str(tmp_path / target), "--obfuscate", *more, "-j")
        assert natsctl("str", "restore", str(tmp_path / target), "-j").code == 0, done.err
    hidden = Obfuscator(Path(keys))
    (key,) = natsctl("kv", "ls", hidden.token("SHOP"), "-n").out.split()
    assert hidden.reveal(key) == "a.b"
    assert natsctl("kv", "get", hidden.token("SHOP"), key, "--raw").out == "00000"
    counted = f"{hidden.token('cnt')}.{hidden.token('a')}"
    assert natsctl("counter", "get", counted).out.strip() == "5"


def test_key_files_are_not_replaced_unasked(offline: Run, keys: Path, tmp_path: Path) -> None:
    target = tmp_path / "shared"
    dry = offline("backup", "edit", str(ORDERS), str(target), "--obfuscate", "--dry-run")
    assert "Message Bodies Padded: 5" in dry.out
    assert "Key File" not in dry.out
    assert [one.name for one in tmp_path.iterdir()] == ["known.json"]
    own = tmp_path / "shared.keys.json"
    own.write_text(keys.read_text())
    refused = offline("backup", "edit", str(ORDERS), str(target), "--obfuscate", "--force")
    assert (refused.code, "exists already" in refused.err, target.exists()) == (2, True, False)
    assert own.read_text() == keys.read_text()
    again = offline("backup", "edit", str(ORDERS), str(target), "--obfuscate", "--obfuscation-key", str(own), "-j")
    assert again.code == 0
    held = json.loads(own.read_text())
    assert (held["secret"], held["map"][HASHES["C9"]]) == (SECRET, "C9")
    assert "ORDERS" in held["map"].values()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("x", "Expecting value"),
        ("[]", "no key file of version 1"),
        ('{"version": 2}', "no key file of version 1"),
        ('{"version": 1, "secret": "AAAA"}', "its secret is invalid"),
        ('{"version": 1, "secret": "%"}', "its secret is invalid"),
        (json.dumps({"version": 1, "secret": SECRET, "map": [1]}), "its map is invalid"),
        (json.dumps({"version": 1, "secret": SECRET, "map": {"0": "C9"}}), "does not match the secret"),
        (None, "No such file"),
    ],
)
def test_a_key_file_that_is_none_is_refused(offline: Run, tmp_path: Path, content: str | None, text: str) -> None:
    path, target = tmp_path / "keys.json", tmp_path / "shared"
    if content is not None:
        path.write_text(content)
    for words in (
        ("backup", "lookup", str(path), "x"),
        ("backup", "edit", str(ORDERS), str(target), "--obfuscate", "--obfuscation-key", str(path)),
    ):
        done = offline(*words)
        assert (done.code, done.out, text in done.err) == (2, "", True), done.err
