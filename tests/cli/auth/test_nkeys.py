"""`natsctl auth nkey` and `nuid`: keys in files, signatures and sealed files, shared with nats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from natsctl.client.auth.keys import KINDS, parse_key
from tests.cli.auth.conftest import Run
from tests.cli.auth.test_operators import nats, needs_nats


@pytest.mark.parametrize("kind", [*KINDS, "x25519", "USER"])
def test_a_key_is_made_and_shown(natsctl: Run, kind: str) -> None:
    code, out, err = natsctl("auth", "nkey", "gen", kind, "--public")
    seed, public = out.split()
    assert (code, err) == (0, "") and parse_key(seed).public == public
    assert natsctl("auth", "nkey", "gen", kind, "--output", "key.nk") == (0, "", "")
    assert Path("key.nk").stat().st_mode & 0o777 == 0o600
    key = parse_key(Path("key.nk").read_text())
    assert natsctl("auth", "nk", "show", "key.nk")[1] == f"{key.public}\n"
    assert json.loads(natsctl("auth", "nkey", "show", "key.nk", "-j")[1]) == {"kind": key.kind, "key": key.public}
    code, _, err = natsctl("auth", "nkey", "gen", kind, "--output", "key.nk")
    assert code == 4 and "--force" in err and parse_key(Path("key.nk").read_text()).public == key.public
    made = json.loads(natsctl("auth", "nkey", "gen", kind, "--output", "key.nk", "--force", "-j")[1])
    assert made == {"kind": key.kind, "key": parse_key(Path("key.nk").read_text()).public, "file": "key.nk"}


def test_the_source_of_entropy_makes_the_key(natsctl: Run) -> None:
    Path("random").write_bytes(bytes(range(40)))
    lines = {natsctl("auth", "nkey", "gen", "user", "--entropy", "random")[1] for _ in range(2)}
    assert len(lines) == 1
    Path("random").write_bytes(b"short")
    code, _, err = natsctl("auth", "nkey", "gen", "user", "--entropy", "random")
    assert code == 2 and "a key needs 32 bytes, and it has 5" in err
    assert natsctl("auth", "nkey", "gen", "user", "--entropy", "none")[0] == 2
    assert natsctl("auth", "nkey", "gen", "queen")[0] == 2


def test_a_signature_is_verified_with_either_key(natsctl: Run) -> None:
    natsctl("auth", "nkey", "gen", "user", "--output", "user.nk", "--public")
    Path("public").write_text(natsctl("auth", "nkey", "show", "user.nk")[1])
    Path("data").write_bytes(bytes(range(256)))
    Path("sig").write_text(natsctl("auth", "nkey", "sign", "data", "user.nk")[1])
    for key in ("user.nk", "public"):
        assert natsctl("auth", "nkey", "verify", "data", "sig", key) == (0, "Verified OK\n", "")
    Path("data").write_bytes(b"other")
    assert natsctl("auth", "nkey", "verify", "data", "sig", "public")[0] == 1
    Path("sig").write_text("!")
    assert natsctl("auth", "nkey", "verify", "data", "sig", "public")[0] == 1
    code, _, err = natsctl("auth", "nkey", "sign", "data", "public")
    assert code == 2 and "needs the private key" in err
    code, _, err = natsctl("auth", "nkey", "show", "data")
    assert code == 2 and "data: no nkey in it" in err


@pytest.mark.parametrize("b64", ["--b64", "--no-b64"])
def test_what_is_sealed_is_opened(natsctl: Run, b64: str) -> None:
    public = {}
    for name in ("a", "b"):
        natsctl("auth", "nkey", "gen", "curve", "--output", f"{name}.xk")
        public[name] = natsctl("auth", "nkey", "show", f"{name}.xk")[1].strip()
    Path("data").write_bytes(bytes(range(256)))
    assert natsctl("auth", "nkey", "seal", "data", "a.xk", public["b"], "--output", "sealed", b64) == (0, "", "")
    assert natsctl("auth", "nkey", "unseal", "sealed", "b.xk", public["a"], "--output", "out", b64) == (0, "", "")
    assert Path("out").read_bytes() == bytes(range(256)) and Path("out").stat().st_mode & 0o777 == 0o600
    assert natsctl("auth", "nkey", "open", "sealed", "b.xk", public["b"], b64)[0] == 1
    other = "--no-b64" if b64 == "--b64" else "--b64"
    code, out, err = natsctl("auth", "nkey", "open", "sealed", "b.xk", public["a"], other)
    assert (code, out) == (1, "") and "b64" in err
    code, _, err = natsctl("auth", "nkey", "seal", "data", "a.xk", "XNOKEY")
    assert code == 2 and "begins with X" in err


@needs_nats
def test_keys_signatures_and_sealed_files_are_shared_with_nats(natsctl: Run) -> None:
    Path("data").write_text("hello")
    nats("nkey", "gen", "user", "--output", "theirs.nk")
    natsctl("auth", "nkey", "gen", "user", "--output", "ours.nk")
    assert natsctl("auth", "nkey", "sign", "data", "theirs.nk")[1] == nats("nkey", "sign", "data", "theirs.nk")
    Path("sig").write_text(natsctl("auth", "nkey", "sign", "data", "ours.nk")[1].strip())
    assert nats("nkey", "verify", "data", "sig", "ours.nk") == "Verified OK\n"
    nats("nkey", "gen", "curve", "--output", "theirs.xk")
    natsctl("auth", "nkey", "gen", "curve", "--output", "ours.xk")
    theirs, ours = (nats("nkey", "show", name).strip() for name in ("theirs.xk", "ours.xk"))
    Path("sealed").write_text(nats("nkey", "seal", "data", "theirs.xk", ours))
    assert natsctl("auth", "nkey", "unseal", "sealed", "ours.xk", theirs)[1] == "hello\n"
    natsctl("auth", "nkey", "seal", "data", "ours.xk", theirs, "--output", "sealed")
    assert nats("nkey", "unseal", "sealed", "theirs.xk", ours) == "hello\n"


def test_nuids_are_unique(natsctl: Run) -> None:
    made = {natsctl("auth", "nuid", "gen")[1] for _ in range(20)} | {
        json.loads(natsctl("auth", "nuid", "gen", "-j")[1])["nuid"]
    }
    assert len(made) == 21 and all(one.strip().isalnum() and len(one.strip()) == 22 for one in made)


def test_a_dry_run_writes_no_file(natsctl: Run, tmp_path: Path) -> None:
    assert natsctl("auth", "nkey", "gen", "curve", "--output", "curve.nk")[0] == 0
    public = natsctl("auth", "nkey", "show", "curve.nk")[1].strip()
    Path("data").write_text("hello")
    for words in (("gen", "user"), ("seal", "data", "curve.nk", public)):
        code, out, _ = natsctl("--dry-run", "auth", "nkey", *words, "--output", "made")
        assert (code, "made" in out, Path("made").exists()) == (0, True, False), words
