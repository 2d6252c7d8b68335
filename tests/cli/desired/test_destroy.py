"""`natsctl destroy` as a script and as a person run it, on both servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]
A = {"name": "A", "subjects": ["A.>"], "consumers": [{"durable_name": "C", "ack_policy": "explicit"}]}
MIRROR = {"name": "M", "mirror": {"name": "A"}}


def names(natsctl: Run) -> list[str]:
    return natsctl("str", "ls", "-n", "-a").out.split()


def test_all_that_documents_describe_is_removed_mirrors_before_their_origins(
    natsctl: Run, document: Run, audit: Any
) -> None:
    natsctl("str", "add", "OTHER", "--subjects", "other", "--defaults")
    path = document(A, MIRROR)
    natsctl("apply", "-f", path)
    audit.changes()
    done = natsctl("destroy", "-f", path, "--yes")
    assert done.code == 0, done.err
    asked = [subject for subject in audit.changes() if "JS_MIRROR" not in subject]  # that is the server's own
    assert asked == ["STREAM.DELETE.M", "STREAM.DELETE.A"]
    assert names(natsctl) == ["OTHER"]


def test_what_is_gone_is_done(natsctl: Run, document: Run) -> None:
    done = natsctl("destroy", "-f", document(A), "--yes", "-j")
    assert (done.code, done.json["results"]) == (0, [])
    assert natsctl("destroy", "-f", document(A), "--yes").out == "nothing to do\n"


def test_without_a_terminal_it_wants_to_be_told(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(A))
    refused = natsctl("destroy", "-f", document(A))
    assert refused.code == 2
    assert "--yes" in refused.err
    assert names(natsctl) == ["A"]
    assert natsctl("destroy", "-f", document(A), "--force").code == 0


def test_a_protected_asset_keeps_everything_from_being_removed(natsctl: Run, document: Run, audit: Any) -> None:
    path = document({**A, "protect": True}, {"name": "B", "subjects": ["B"]})
    natsctl("apply", "-f", path)
    audit.changes()
    refused = natsctl("destroy", "-f", path, "--yes")
    assert refused.code == 4
    assert "Stream A: it is protected" in refused.err
    assert "protect: false" in refused.err
    assert audit.changes() == []
    natsctl("apply", "-f", document({**A, "protect": False}))
    assert natsctl("destroy", "-f", path, "--yes").code == 0


def test_with_prune_the_rest_of_the_owner_goes_too(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(A, {"name": "OLD", "subjects": ["old"]}, owner="team"))
    natsctl("apply", "-f", document({"name": "HERS", "subjects": ["hers"]}, owner="other"))
    natsctl("destroy", "-f", document(A, owner="team"), "--prune", "--yes")
    assert names(natsctl) == ["HERS"]


def test_what_belongs_to_another_owner_is_refused(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(A, owner="other"))
    refused = natsctl("destroy", "-f", document(A, owner="team"), "--yes")
    assert refused.code == 4
    assert "belongs to other" in refused.err
    assert natsctl("destroy", "-f", document(A, owner="team"), "--yes", "--adopt").code == 0


def test_consumers_alone_are_removed_from_streams_that_stay(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(A))
    path = document(consumers=[{"stream": "A", "durable_name": "C", "ack_policy": "explicit"}])
    assert natsctl("destroy", "-f", path, "--yes").err == "deleted Consumer A > C\n"
    assert names(natsctl) == ["A"]


def test_a_dry_run_names_the_requests(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(A))
    done = natsctl("destroy", "-f", document(A), "--dry-run", "-j")
    assert done.code == 10
    assert [one["subject"] for one in done.json["requests"]] == ["$JS.API.STREAM.DELETE.A"]
    assert names(natsctl) == ["A"]


def test_a_person_sees_what_vanishes_and_types_its_number(natsctl: Run, document: Run, person: Run) -> None:
    path = document(A, {"name": "B", "subjects": ["B"]})
    natsctl("apply", "-f", path)
    natsctl("pub", "A.x", "hello", "--wait")
    typing = person("destroy", "-f", path)
    typing.answers("Really delete 2 streams with 1 message: type 2 to do it", "\r")
    assert typing.end()[0] == 0
    assert names(natsctl) == ["A", "B"]
    typing = person("destroy", "-f", path)
    typing.answers("type 2 to do it", "2\r")
    assert typing.end()[0] == 0
    assert names(natsctl) == []
