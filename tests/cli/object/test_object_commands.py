"""Files into buckets and out of them, as a script does it: exit codes, stdout and stderr, what is left behind."""

import base64
import hashlib
import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import eventually
from tests.support.commands import Run


@pytest.fixture
def bucket(natsctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert natsctl("obj", "add", "F", "-j").code == 0
    return "F"


def messages(natsctl: Run) -> int:
    return int(natsctl("str", "info", "OBJ_F", "-j").json["state"]["messages"])


def here() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def put_link(natsctl: Run, name: str, target: dict[str, str]) -> None:
    meta = {"name": name, "bucket": "F", "nuid": f"LINK{name}", "options": {"link": target}}
    subject = f"$O.F.M.{base64.urlsafe_b64encode(name.encode()).decode()}"
    assert natsctl("pub", subject, json.dumps(meta), "-H", "Nats-Rollup:sub", "--wait").code == 0


def test_every_flag_of_add_reaches_the_stream(natsctl: Run) -> None:
    flags = "--description d --ttl 1d --max-bucket-size 5GiB --storage memory --metadata team=a --compress --replicas 1"
    made = natsctl("object", "add", "B", *shlex.split(flags), "-j").json
    assert (made["description"], made["ttl"], made["max_bucket_size"]) == ("d", 86400 * 10**9, 5 * 1024**3)
    assert (made["storage"], made["metadata"], made["compressed"]) == ("memory", {"team": "a"}, True)
    config = made["stream_info"]["config"]
    assert config["subjects"] == ["$O.B.C.>", "$O.B.M.>"]
    assert (config["discard"], config["allow_rollup_hdrs"], config["allow_direct"]) == ("new", True, True)
    other = natsctl("obj", "add", "B", "-j")
    assert (other.code, other.error["err_code"]) == (4, 10058)
    assert natsctl("obj", "add", "B", "--if-not-exists").err == "Bucket B exists already\n"
    edited = natsctl("obj", "edit", "B", "--ttl", "2d", "--unset", "description", "-j").json
    assert (edited["ttl"], edited["description"], edited["compressed"]) == (2 * 86400 * 10**9, "", True)
    assert natsctl("obj", "edit", "B", "--ttl", "1d", "--dry-run").code == 10


def test_a_file_comes_back_as_it_was(natsctl: Run, bucket: str) -> None:
    body = os.urandom(300_000)
    Path("data.bin").write_bytes(body)
    made = natsctl(
        *("obj", "put", bucket, "data.bin", "--chunk-size", "64KB", "--description", "d"),
        *("-H", "K:V", "-H", "K:W", "--metadata", "a=b", "-j"),
    ).json
    assert (made["name"], made["size"], made["chunks"]) == ("data.bin", 300_000, 5)
    assert (made["headers"], made["metadata"], made["description"]) == ({"K": ["V", "W"]}, {"a": "b"}, "d")
    assert made["digest"] == "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    done = natsctl("obj", "get", bucket, "data.bin", "-O", "copy.bin")
    assert (done.code, done.out, done.err) == (0, "", "Wrote 293 KiB of F > data.bin to copy.bin\n")
    assert Path("copy.bin").read_bytes() == body
    page = natsctl("obj", "info", bucket, "data.bin").out
    assert f"SHA-256 {hashlib.sha256(body).hexdigest()}" in page
    assert "300,000 bytes" in page
    assert here() == ["copy.bin", "data.bin"]


def test_stdin_and_stdout_are_asked_for_by_a_dash(natsctl: Run, bucket: str) -> None:
    assert "--name" in natsctl("obj", "put", bucket, "-", stdin=b"x").err
    assert natsctl("obj", "put", bucket, stdin=b"x").code == 2
    assert natsctl("obj", "put", bucket, "-", "--name", "dir/piped", stdin=b"piped").code == 0
    assert natsctl("obj", "get", bucket, "dir/piped", "-O", "-").out == "piped"
    assert natsctl("obj", "get", bucket, "dir/piped", "-O", "-", "-j").code == 2
    assert natsctl("obj", "get", bucket, "dir/piped", "-j").json["output"] == "piped"
    assert natsctl("obj", "put", bucket, "-", "--name", "empty", "-j", stdin=b"").json["chunks"] == 0
    assert natsctl("obj", "get", bucket, "empty", "-O", "-").out == ""


def test_nothing_is_replaced_unasked(natsctl: Run, bucket: str) -> None:
    Path("f").write_text("one")
    natsctl("obj", "put", bucket, "f")
    Path("f").write_text("two")
    for words in (("put", bucket, "f"), ("get", bucket, "f")):
        done = natsctl("obj", *words)
        assert (done.code, "--force" in done.err) == (2, True)
    assert Path("f").read_text() == "two"
    assert natsctl("obj", "get", bucket, "f", "-f").code == 0
    assert Path("f").read_text() == "one"
    natsctl("obj", "put", bucket, "-", "--name", "f", "-f", stdin=b"three")
    assert natsctl("obj", "get", bucket, "f", "-O", "-").out == "three"
    assert messages(natsctl) == 2


def test_what_is_not_there_is_told_with_what_was_meant(natsctl: Run, bucket: str) -> None:
    natsctl("obj", "put", bucket, "-", "--name", "notes.txt", stdin=b"x")
    done = natsctl("obj", "get", bucket, "note.txt")
    assert (done.code, done.out) == (3, "")
    assert 'did you mean "notes.txt"?' in done.err
    assert (
        natsctl("obj", "info", "FF", "notes.txt", "-j").error["hint"] == "natsctl object ls shows the buckets there are"
    )
    assert natsctl("obj", "put", bucket, "absent").code == 2
    assert natsctl("obj", "put", "G", "-", "--name", "x", stdin=b"x").code == 3


def test_what_came_damaged_is_not_kept(natsctl: Run, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nuid = natsctl("obj", "put", bucket, "-", "--name", "f", "-j", stdin=b"right").json["nuid"]
    natsctl("str", "purge", "OBJ_F", "--subject", f"$O.F.C.{nuid}", "-f")
    with monkeypatch.context() as impatient:
        impatient.setattr("natsctl.client.object_store.LAGS_S", 0.2)  # no chunk comes later
        done = natsctl("obj", "get", bucket, "f", "-j")
    assert (done.code, done.out) == (1, "")
    assert "0 bytes" in done.error["description"]
    natsctl("pub", f"$O.F.C.{nuid}", "wrong", "--wait")
    done = natsctl("obj", "get", bucket, "f")
    assert (done.code, "digest" in done.err) == (1, True)
    assert here() == []


def test_an_upload_that_fails_leaves_the_bucket_as_it_was(natsctl: Run, bucket: str) -> None:
    natsctl("obj", "put", bucket, "-", "--name", "f", stdin=b"old")
    natsctl("obj", "edit", bucket, "--max-bucket-size", "200KB", "-f")
    Path("big").write_bytes(os.urandom(400_000))
    done = natsctl("obj", "put", bucket, "big", "--name", "f", "-f")
    assert (done.code, "the bucket is full" in done.err) == (1, True)
    assert messages(natsctl) == 2
    assert natsctl("obj", "get", bucket, "f", "-O", "-").out == "old"
    assert natsctl("obj", "put", bucket, "big", "--chunk-size", "1GB").code == 2


def test_links_are_followed_to_objects_and_not_to_buckets(natsctl: Run, bucket: str) -> None:
    natsctl("obj", "add", "OTHER")
    natsctl("obj", "put", "OTHER", "-", "--name", "real", stdin=b"there")
    put_link(natsctl, "to-object", {"bucket": "OTHER", "name": "real"})
    put_link(natsctl, "to-bucket", {"bucket": "OTHER"})
    put_link(natsctl, "circle", {"bucket": "F", "name": "circle"})
    assert natsctl("obj", "get", bucket, "to-object").code == 0
    assert Path("to-object").read_text() == "there"
    done = natsctl("obj", "get", bucket, "to-bucket")
    assert (done.code, "natsctl object ls OTHER" in done.err) == (1, True)
    assert "circle" in natsctl("obj", "get", bucket, "circle").err
    assert "to object OTHER > real" in natsctl("obj", "ls", bucket).out
    assert "Link To: bucket OTHER" in natsctl("obj", "info", bucket, "to-bucket").out


def test_names_lead_nowhere_and_drive_no_terminal(natsctl: Run, bucket: str) -> None:
    natsctl("obj", "put", bucket, "-", "--name", "../../evil", stdin=b"x")
    natsctl("obj", "put", bucket, "-", "--name", "a/..", stdin=b"x")
    natsctl("obj", "put", bucket, "-", "--name", "\x1b[2J", stdin=b"x")
    assert natsctl("obj", "get", bucket, "../../evil").code == 0
    assert here() == ["evil"]
    assert natsctl("obj", "get", bucket, ".").code == 2, "the name is cleaned as the path that it may be"
    assert "\x1b" not in natsctl("obj", "ls", bucket).out + natsctl("obj", "info", bucket, "\x1b[2J").out
    assert "\x1b" not in natsctl("obj", "watch", bucket, "--count", "3").out


def test_lists_are_tables_names_or_whole_objects(natsctl: Run, bucket: str) -> None:
    assert natsctl("obj", "ls", bucket, "-j").json == []
    natsctl("kv", "add", "B")
    for name in ("b", "a"):
        natsctl("obj", "put", bucket, "-", "--name", name, stdin=b"12345")
    assert natsctl("obj", "ls", "-n").out == "F\n"
    assert [one["bucket"] for one in natsctl("obj", "ls", "-j").json] == ["F"]
    assert "Object Store Buckets" in natsctl("obj", "ls").out
    assert natsctl("obj", "ls", bucket, "-n").out == "a\nb\n"
    assert natsctl("obj", "ls", bucket, "-n", "-j").json == ["a", "b"]
    listed = natsctl("obj", "ls", bucket, "-j").json
    assert [(one["name"], one["size"]) for one in listed] == [("a", 5), ("b", 5)]
    assert all(one["mtime"].startswith("20") for one in listed)
    assert "Contents for bucket F" in natsctl("obj", "ls", bucket).out


def test_a_removed_object_is_gone_with_its_chunks(natsctl: Run, bucket: str) -> None:
    natsctl("obj", "put", bucket, "-", "--name", "f", "--chunk-size", "1KB", stdin=bytes(3000))
    assert natsctl("obj", "rm", bucket, "f").code == 2
    assert natsctl("obj", "rm", bucket, "f", "-f", "--dry-run", "-j").json["effect"] == {"bytes": 3000, "chunks": 3}
    assert natsctl("obj", "rm", bucket, "f", "-f", "-j").json["purged"] == 3
    assert messages(natsctl) == 1
    gone = natsctl("obj", "rm", bucket, "f", "-f")
    assert (gone.code, "was deleted" in gone.err) == (3, True)
    assert natsctl("obj", "rm", bucket, "f", "-f", "--missing-ok").code == 0
    assert natsctl("obj", "put", bucket, "-", "--name", "f", stdin=b"again").code == 0
    refused = natsctl("obj", "del", bucket, "-f")
    assert (refused.code, "--all" in refused.err) == (2, True)
    assert natsctl("obj", "del", bucket, "--all").code == 2
    assert natsctl("obj", "del", bucket, "--all", "-f", "-j").json["success"] is True
    assert natsctl("obj", "del", bucket, "--all", "-f").code == 3
    assert natsctl("obj", "del", bucket, "--all", "-f", "--missing-ok", "-j").json["missing"] is True


def test_a_sealed_bucket_is_read_and_nothing_else(natsctl: Run, bucket: str) -> None:
    natsctl("obj", "put", bucket, "-", "--name", "f", stdin=b"x")
    assert natsctl("obj", "seal", bucket).code == 2
    shown = natsctl("obj", "seal", bucket, "-f", "--dry-run", "-j").json
    assert shown["requests"][0]["body"]["sealed"] is True
    assert natsctl("obj", "seal", bucket, "-f", "-j").json["sealed"] is True
    done = natsctl("obj", "put", bucket, "-", "--name", "g", stdin=b"x")
    assert (done.code, "the bucket is sealed" in done.err) == (1, True)
    assert natsctl("obj", "get", bucket, "f", "-O", "-").out == "x"
    assert natsctl("obj", "seal", bucket, "-f").err == "Bucket F is sealed already\n"


def test_a_dry_put_shows_the_metadata_and_stores_nothing(natsctl: Run, bucket: str) -> None:
    done = natsctl("obj", "put", bucket, "-", "--name", "f", "--dry-run", "-j", stdin=b"12345").json
    assert [one["subject"].rpartition(".")[0] for one in done["requests"]] == ["$O.F.C", "$O.F.M"]
    assert (done["requests"][1]["body"]["size"], done["effect"]) == (5, {"chunks": 1, "bytes": 5})
    assert messages(natsctl) == 0
    natsctl("obj", "put", bucket, "-", "--name", "f", stdin=b"12345")
    assert natsctl("obj", "get", bucket, "f", "--dry-run", "-j").json["effect"] == {"writes_file": "f", "bytes": 5}
    assert here() == []


def test_watch_shows_what_is_there_and_what_comes_until_it_was_told_to_end(natsctl: Run, bucket: str) -> None:
    natsctl("obj", "put", bucket, "-", "--name", "a", stdin=b"x")
    natsctl("obj", "put", bucket, "-", "--name", "b", stdin=b"x")
    natsctl("obj", "rm", bucket, "a", "-f")
    seen = natsctl("obj", "watch", bucket, "--count", "2", "-j").lines
    assert [(one["name"], one.get("deleted", False)) for one in seen] == [("b", False), ("a", True)]
    assert " DEL F > a\n" in natsctl("obj", "watch", bucket, "--wait", "1s").out
    assert natsctl("obj", "watch", bucket, "--no-deletes", "--count", "1", "-j").json["name"] == "b"
    assert natsctl("obj", "watch", bucket, "--updates", "--wait", "200ms").code == 7
    assert natsctl("con", "ls", "OBJ_F", "-n").out == ""


CHUNK_BYTES = 128 * 1024


@pytest.mark.ours("signals do not reach a server")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_chunk_behind(natsctl: Run, begun: Run, number: signal.Signals, status: int) -> None:
    natsctl("obj", "add", "F")
    process = begun("obj", "put", "F", "-", "--name", "f", stdin=subprocess.PIPE, text=False)
    process.stdin.write(bytes(3 * CHUNK_BYTES))
    process.stdin.flush()
    eventually(lambda: natsctl("obj", "info", "F", "-j").json["stream_info"]["state"]["messages"] >= 2)
    process.send_signal(number)
    assert process.wait(60) == status
    assert natsctl("obj", "info", "F", "-j").json["stream_info"]["state"]["messages"] == 0
