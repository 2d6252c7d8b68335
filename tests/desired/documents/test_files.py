"""Which files a set is: folders, globs, includes, each file once."""

import os
from pathlib import Path

import pytest

from natsctl.api.errors import UsageError
from natsctl.desired.assets import DocumentSet
from natsctl.desired.documents import load_documents, read_documents


def write(folder: Path, **texts: str) -> None:
    """Write files: `sub__a_yaml` is sub/a.yaml."""
    for name, text in texts.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        path = folder / (f"{stem}.{suffix}" if stem else suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(documents: DocumentSet) -> list[str]:
    return [key.name for key in documents.wanted]


def told(path: Path) -> list[tuple[str, int, str]]:
    _, faults = read_documents([str(path)], {})
    return [(Path(fault.place.file).name, fault.place.line, fault.reason) for fault in faults]


def test_a_folder_is_its_documents_and_those_of_its_folders(tmp_path: Path) -> None:
    write(tmp_path, b_yml="name: B", a_yaml="name: A", c__d_json='{"name": "D"}', notes="x: [")
    write(tmp_path / ".git", x_yaml="name: 5")
    (tmp_path / ".hidden.yaml").write_text("name: 5")
    found = load_documents([str(tmp_path)], {})
    assert names(found) == ["A", "B", "D"]
    assert [Path(file).name for file in found.files] == ["a.yaml", "b.yml", "d.json"]


def test_a_folder_that_links_to_itself_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, a_yaml="name: A", sub__b_yaml="name: B")
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "again.yaml").symlink_to(tmp_path / "a.yaml")
    assert names(load_documents([str(tmp_path)], {})) == ["A", "B"]


def test_a_glob_names_files(tmp_path: Path) -> None:
    write(tmp_path, a_yaml="name: A", b_yaml="name: B", x__c_yaml="name: C")
    assert names(load_documents([f"{tmp_path}/*.yaml"], {})) == ["A", "B"]
    assert names(load_documents([f"{tmp_path}/**/*.yaml"], {})) == ["A", "B", "C"]


def test_a_file_is_read_whatever_its_name_is(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text('{"name": "A"}')
    (tmp_path / "[x].conf").write_text("name: B\n")
    assert names(load_documents([f"{tmp_path}/orders", f"{tmp_path}/[x].conf"], {})) == ["A", "B"]


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"name: A\n")
    os.close(writer)
    try:
        assert names(load_documents([f"/dev/fd/{reader}"], {})) == ["A"]
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("none.yaml", "no such file"), ("*.yaml", "no file matches"), ("dangling", "a broken link")],
)
def test_a_path_that_is_not_there_is_a_usage_error(tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=reason):
        load_documents([str(tmp_path / path)], {})


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, a_yaml="name: A", b_yaml="name: B")

    def refuse(path: str, *_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.open", refuse)
    _, faults = read_documents([str(tmp_path)], {})
    assert [(Path(fault.place.file).name, fault.reason) for fault in faults] == [
        ("a.yaml", "Permission denied"),
        ("b.yaml", "Permission denied"),
    ]


def test_includes_are_seen_from_the_file_that_includes(tmp_path: Path) -> None:
    write(
        tmp_path,
        main_yaml="include: [parts, more/*.yaml, one.json]\nstreams: [{name: MAIN}]",
        parts__a_yaml="include: ../one.json\nstreams: [{name: A}]",
        more__b_yaml="name: B",
        more__c_yaml="name: C",
        one_json='{"name": "ONE"}',
    )
    # What is included comes before what follows it, and each file once.
    assert names(load_documents([str(tmp_path / "main.yaml")], {})) == ["ONE", "A", "B", "C", "MAIN"]


def test_a_circle_of_includes_is_told(tmp_path: Path) -> None:
    write(tmp_path, a_yaml="include: b.yaml", b_yaml="streams: []\ninclude: [a.yaml]", c_yaml="include: ./c.yaml")
    assert told(tmp_path / "a.yaml") == [("b.yaml", 2, "a.yaml includes this file")]
    assert told(tmp_path / "c.yaml") == [("c.yaml", 1, "./c.yaml includes this file")]


def test_a_folder_or_glob_may_hold_the_file_that_includes_it(tmp_path: Path) -> None:
    write(tmp_path, a_yaml="include: .", b_yaml='include: "*.yaml"\nstreams: [{name: B}]')
    assert names(load_documents([str(tmp_path / "a.yaml")], {})) == ["B"]


def test_includes_end_at_a_depth(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.yaml").write_text(f"include: {number + 1}.yaml\n")
    assert told(tmp_path / "0.yaml") == [("16.yaml", 1, "more than 16 files include each other")]


def test_includes_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    write(tmp_path, a_yaml='include:\n- none.yaml\n- "x*.yaml"\n- 5\n- "a\\0b"\nstreams: [{name: A}]')
    assert [(line, reason.rpartition("/")[2]) for _, line, reason in told(tmp_path / "a.yaml")][:3] == [
        (2, "none.yaml: no such file or folder"),
        (3, "x*.yaml: no file matches"),
        (4, "expected the path of a file or folder"),
    ]


def test_faults_of_all_files_are_told_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, a_yaml="name: A\nx: 1\ny: 2", b_yaml="name: B\nstorage: disk", c_json='{"name": ', d_yaml="name: A")
    assert told(tmp_path) == [
        ("a.yaml", 2, "unknown key"),
        ("a.yaml", 3, "unknown key"),
        ("b.yaml", 2, 'expected one of file, memory, got "disk"'),
        ("c.json", 1, "not JSON: expecting value, got the end"),
        ("d.yaml", 1, f"Stream A stands twice, first at {tmp_path}/a.yaml:1: $"),
    ]


def test_a_set_has_one_owner(tmp_path: Path) -> None:
    write(
        tmp_path, a_yaml="owner: shop\nstreams: []", b_yaml="owner: shop", c_yaml="kind: Stream\nname: A\nowner: bank"
    )
    (fault,) = told(tmp_path)
    assert fault == ("c.yaml", 3, f"owner bank, but shop at {tmp_path}/a.yaml:1: $.owner: a set has one owner")
    assert load_documents([str(tmp_path)], {}, owner="mine").owner == "mine"
    assert load_documents([str(tmp_path / "b.yaml")], {}).owner == "shop"
