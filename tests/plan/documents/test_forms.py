"""What kinds of documents there are, and the assets that they describe."""

from pathlib import Path

import pytest

from natsctl.plan.asset import AssetKey
from natsctl.plan.documents import load_documents
from natsctl.plan.wanted import DocumentFaults, DocumentSet


def load(tmp_path: Path, text: str, name: str = "set.yaml", **options: str) -> DocumentSet:
    (tmp_path / name).write_text(text)
    return load_documents([str(tmp_path / name)], {}, **options)


PLAIN = """
owner: shop
streams:
  - name: ORDERS
    subjects: [ORDERS.*]
    max_age: 1y
    consumers:
      - name: NEW
        ack_policy: explicit
        ack_wait: 30s
consumers:
  - stream: OTHER
    durable_name: X
"""


def test_a_plain_document_lists_streams_and_consumers(tmp_path: Path) -> None:
    found = load(tmp_path, PLAIN)
    assert found.owner == "shop"
    assert [str(key) for key in found.wanted] == ["Stream ORDERS", "Consumer ORDERS > NEW", "Consumer OTHER > X"]
    assert found.wanted[AssetKey("ORDERS")].config == {
        "name": "ORDERS",
        "subjects": ["ORDERS.*"],
        "max_age": 365 * 86_400 * 10**9,
    }
    assert found.wanted[AssetKey("ORDERS", "NEW")].config == {
        "name": "NEW",
        "durable_name": "NEW",
        "ack_policy": "explicit",
        "ack_wait": 30 * 10**9,
    }
    assert found.wanted[AssetKey("ORDERS", "NEW")].place.line == 8


def test_all_faults_of_a_document_are_told_with_their_lines(tmp_path: Path) -> None:
    with pytest.raises(DocumentFaults) as caught:
        load(tmp_path, "streams:\n- name: A\n  max_agee: 1\n- name: B\n  storage: disk\n  storage: file\n")
    told = [(fault.place.line, fault.place.path, fault.reason) for fault in caught.value.faults]
    assert told == [
        (3, "$.streams[0].max_agee", "unknown key, did you mean max_age?"),
        (5, "$.streams[1].storage", 'expected one of file, memory, got "disk"'),
        (6, "$.streams[1].storage", "storage stands here twice, first on line 5"),
    ]


def test_a_bucket_in_its_own_words_is_the_stream_that_the_command_makes(tmp_path: Path) -> None:
    found = load(tmp_path, "kind: KeyValue\nbucket: CFG\nhistory: 5\nttl: 1h\nmax_value_size: 1KiB\nprotect: true\n")
    asset = found.wanted[AssetKey("KV_CFG")]
    assert asset.protect
    assert asset.config["max_msgs_per_subject"] == 5
    assert (asset.config["max_age"], asset.config["max_msg_size"]) == (3600 * 10**9, 1024)
    assert asset.config["subjects"] == ["$KV.CFG.>"]
