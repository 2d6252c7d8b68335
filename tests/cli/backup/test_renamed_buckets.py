"""Buckets restored under another name: their keys and objects are there, or the restore is refused with the reason."""

import json
import subprocess
from pathlib import Path

import pytest

from natsctl.api.archive.archive import ArchivedMessage
from natsctl.client.backup.renaming import BucketRenaming
from natsctl.client.buckets import OBJECTS
from natsctl.testing.process import ServerProcess
from tests.support.commands import Run

BODY = b"payload " * 40_000


@pytest.fixture
def saved(natsctl: Run, tmp_path: Path) -> Path:
    (tmp_path / "body").write_bytes(BODY)
    for words in (
        ("kv", "add", "OLD", "--history", "3"),
        ("kv", "put", "OLD", "a.b", "1"),
        ("kv", "put", "OLD", "a.b", "2"),
        ("kv", "put", "OLD", "c", "3"),
        ("kv", "del", "OLD", "c", "-f"),
        ("consumer", "add", "KV_OLD", "W", "--filter", "$KV.OLD.a.>", "--pull", "--defaults"),
        ("object", "add", "OLD"),
        ("object", "put", "OLD", str(tmp_path / "body"), "--name", "a file"),
        ("stream", "backup", "KV_OLD", str(tmp_path / "kv.tgz")),
        ("stream", "backup", "OBJ_OLD", str(tmp_path / "obj.tgz")),
    ):
        assert natsctl(*words).code == 0, words
    for name in ("kv", "obj"):
        for version in ("1", "2"):
            source, target = str(tmp_path / f"{name}.tgz"), str(tmp_path / f"{name}{version}")
            assert natsctl("backup", "edit", source, target, "--archive", version).code == 0
    return tmp_path


def has_keys(natsctl: Run, bucket: str) -> bool:
    assert natsctl("kv", "ls", bucket).out == "a.b\n"
    assert natsctl("kv", "get", bucket, "a.b", "--raw").out.strip() == "2"
    assert len(natsctl("kv", "history", bucket, "a.b", "-j").json) == 2
    assert (
        natsctl("consumer", "info", f"KV_{bucket}", "W", "-j").json["config"]["filter_subject"] == f"$KV.{bucket}.a.>"
    )
    return bool(natsctl("kv", "put", bucket, "more", "5").code == 0)


@pytest.mark.parametrize("more", [(), ("--subjects", "$KV.NEW.>")], ids=["", "subjects"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_key_value_bucket_has_its_keys_under_another_name(
    natsctl: Run, saved: Path, version: int, more: tuple[str, ...]
) -> None:
    done = natsctl("stream", "restore", "KV_NEW", str(saved / f"kv{version}"), *more)
    assert done.code == 0 and "subjects $KV.OLD.> rewritten as $KV.NEW.>" in done.err, done.err
    assert has_keys(natsctl, "NEW")


@pytest.mark.parametrize("version", [1, 2])
def test_an_object_store_has_its_objects_under_another_name(natsctl: Run, saved: Path, version: int) -> None:
    assert natsctl("stream", "restore", "OBJ_NEW", str(saved / f"obj{version}")).code == 0
    assert natsctl("object", "info", "NEW", "a file", "-j").json["bucket"] == "NEW"
    assert natsctl("object", "get", "NEW", "a file", "-O", str(saved / "out")).code == 0
    assert (saved / "out").read_bytes() == BODY
    assert natsctl("object", "put", "NEW", str(saved / "body"), "-f").code == 0


@pytest.mark.reference("nats")
def test_nats_reads_a_bucket_that_was_restored_under_another_name(
    natsctl: Run, saved: Path, shared_server: ServerProcess
) -> None:
    def nats(*words: str) -> str:
        command = ["nats", "-s", shared_server.url, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    nats("backup", "stream", "KV_OLD", str(saved / "theirs"))
    for number, source in enumerate(("kv1", "kv2", "theirs")):
        assert natsctl("stream", "restore", f"KV_N{number}", str(saved / source)).code == 0
        assert nats("kv", "get", f"N{number}", "a.b", "--raw").strip() == "2"
        assert nats("kv", "ls", f"N{number}").split() == ["a.b"]
    for number, source in enumerate(("obj1", "obj2")):
        assert natsctl("stream", "restore", f"OBJ_N{number}", str(saved / source)).code == 0
        assert "a file" in nats("object", "ls", f"N{number}")
        nats("object", "get", f"N{number}", "a file", "-O", str(saved / f"o{number}"), "--no-progress")
        assert (saved / f"o{number}").read_bytes() == BODY


def test_the_hint_of_an_overlap_leads_to_a_command_that_works(natsctl: Run, saved: Path) -> None:
    refused = natsctl("stream", "restore", "COPY", str(saved / "kv2"))
    assert refused.code == 4 and "give the name of another bucket, KV_NAME" in refused.err
    assert natsctl("stream", "restore", "KV_NAME", str(saved / "kv2")).code == 0 and has_keys(natsctl, "NAME")
    assert natsctl("stream", "restore", "COPY", str(saved / "kv2"), "--subjects", "copy.>").code == 0
    assert natsctl("stream", "backup", "COPY", str(saved / "copy")).code == 0
    assert natsctl("stream", "restore", "KV_BACK", str(saved / "copy")).code == 0 and has_keys(natsctl, "BACK")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("KV_NEW", "obj2"), "cannot restore {} as Key-Value bucket NEW: it is a backup of OBJ_OLD, which is not"),
        (("OBJ_NEW", "kv1"), "cannot restore {} as Object bucket NEW: it is a backup of KV_OLD, which is not"),
        (("KV_NEW", "plain"), "cannot restore {} as Key-Value bucket NEW: it is a backup of PLAIN, which is not"),
        (("KV_NEW", "kv2", "--subjects", "$KV.OTHER.>"), "has the subjects $KV.NEW.>, not $KV.OTHER.>"),
        (("OBJ_NEW", "obj2", "--subjects", "$O.NEW.C.>"), "has the subjects $O.NEW.C.>, $O.NEW.M.>, not $O.NEW.C.>"),
        (("KV_OLD", "kv2", "--subjects", "foo.>"), "has the subjects $KV.OLD.>, not foo.>"),
    ],
)
def test_what_would_be_a_bucket_without_keys_is_refused(
    natsctl: Run, saved: Path, words: tuple[str, ...], reason: str
) -> None:
    natsctl("stream", "add", "PLAIN", "--subjects", "p", "--defaults")
    natsctl("pub", "p", "x", "--wait")
    natsctl("stream", "backup", "PLAIN", str(saved / "plain"))
    name, source, *rest = words
    refused = natsctl("stream", "restore", name, str(saved / source), *rest)
    assert refused.code == 2 and reason.format(saved / source) in refused.err, refused.err
    assert natsctl("stream", "info", "KV_NEW").code == natsctl("stream", "info", "OBJ_NEW").code == 3


def test_a_renamed_folder_of_an_account_is_refused_with_the_command_that_restores_it(natsctl: Run, saved: Path) -> None:
    assert natsctl("account", "backup", str(saved / "all")).code == 0
    (saved / "all" / "KV_OLD").rename(saved / "all" / "KV_NEW")
    natsctl("kv", "rm", "OLD", "--all", "-f")
    refused = natsctl("account", "restore", str(saved / "all"), "--on-existing", "skip")
    assert refused.code == 2 and "KV_NEW is a backup of KV_OLD" in refused.err
    assert natsctl("kv", "info", "OLD").code == 3
    command = refused.err.split("  natsctl ")[1].partition(" restores it")[0]
    assert natsctl(*command.split()).code == 0 and has_keys(natsctl, "NEW")


def test_an_account_backup_with_a_new_name_in_its_file_has_the_keys(natsctl: Run, saved: Path) -> None:
    assert natsctl("account", "backup", str(saved / "all")).code == 0
    folder = (saved / "all" / "KV_OLD").rename(saved / "all" / "KV_NEW")
    (folder / "manifest.json").unlink()  # as the nats tool writes it
    text = (folder / "backup.json").read_text()
    (folder / "backup.json").write_text(text.replace("KV_OLD", "KV_NEW").replace("$KV.OLD", "$KV.NEW"))
    assert natsctl("account", "restore", str(saved / "all"), "--on-existing", "skip").code == 0
    assert has_keys(natsctl, "NEW")


def test_a_backup_that_is_edited_under_another_name_has_the_keys(natsctl: Run, saved: Path) -> None:
    assert natsctl("backup", "edit", str(saved / "kv1"), str(saved / "edited"), "--name", "KV_NEW").code == 0
    assert natsctl("stream", "restore", str(saved / "edited")).code == 0 and has_keys(natsctl, "NEW")


def test_a_copy_under_another_name_has_no_owner_whose_documents_would_remove_it(natsctl: Run, tmp_path: Path) -> None:
    document = {"owner": "us", "key_values": {"OLD": {"metadata": {"team": "x"}}}, "streams": [{"name": "S"}]}
    (tmp_path / "set.json").write_text(json.dumps(document))
    assert natsctl("apply", str(tmp_path / "set.json")).code == 0
    assert natsctl("stream", "backup", "KV_OLD", str(tmp_path / "kv")).code == 0
    assert natsctl("stream", "restore", "KV_NEW", str(tmp_path / "kv")).code == 0
    assert natsctl("stream", "copy", "S", "T", "--subjects", "t").code == 0
    assert natsctl("apply", str(tmp_path / "set.json"), "--prune", "--yes").code == 0
    assert natsctl("kv", "info", "NEW").code == natsctl("stream", "info", "T").code == 0


def test_links_of_objects_follow_their_bucket_and_what_cannot_be_read_stays() -> None:
    renaming = BucketRenaming(OBJECTS, "OLD", "NEW")
    bodies = [
        '{"name":"é","bucket":"OLD","options":{"link":{"bucket":"OLD","name":"OLD"}}}',
        '{"bucket":"OTHER","options":{"link":{"bucket":"OTHER"}},"size":9007199254740993}',
        "no JSON of OLD",
    ]
    messages = [ArchivedMessage(at, 0, b"$O.OLD.M.eA==", b"", body.encode()) for at, body in enumerate(bodies)]
    messages += [
        ArchivedMessage(9, 0, b"$O.OLD.C.x", b"", b'{"bucket":"OLD"}'),
        ArchivedMessage(10, 0, b"$O.OLDER.M.x", b"", b""),
    ]
    found = [(one.subject.decode(), one.payload.decode()) for one in renaming.messages(messages)]
    assert found == [
        ("$O.NEW.M.eA==", '{"name":"é","bucket":"NEW","options":{"link":{"bucket":"NEW","name":"OLD"}}}'),
        ("$O.NEW.M.eA==", bodies[1]),
        ("$O.NEW.M.eA==", bodies[2]),
        ("$O.NEW.C.x", '{"bucket":"OLD"}'),
        ("$O.OLDER.M.x", ""),
    ]
