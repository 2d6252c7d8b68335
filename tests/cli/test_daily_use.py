"""What commands say beside their work: which message is missing, what an edit changed, what stays, how to install."""

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from natsctl.api.answers import ApiError
from natsctl.api.errors import ApiResponseError, UsageError, install_command
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.top import HELP, Shown
from natsctl.client.received import Received, not_traced
from natsctl.client.requests import Requests
from natsctl.spark.sql_queries import check_form
from tests.support.commands import Run


@pytest.mark.both
def test_a_missing_message_is_named_with_those_there_are(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*", "--defaults")
    for words in (("get", "S", "99"), ("rmm", "S", "99", "-f")):
        assert "Stream S has no message 99; it is empty" in natsctl("str", *words).err
    natsctl("pub", "s.a", "x", "--count", "3", "-J", "-q")
    assert "Stream S has no message on s.b; it holds 1 to 3" in natsctl("str", "get", "S", "--last-for", "s.b").err


@pytest.mark.both
def test_an_edit_and_a_purge_show_what_changed_and_no_page(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*", "--defaults")
    natsctl("con", "add", "S", "C", "--pull", "--defaults")
    natsctl("pub", "s.a", "x", "--count", "3", "-J", "-q")
    edits = ("str edit S --max-age 1h -f", "con edit S C --max-deliver 5 -f", "str purge S -f")
    done = [natsctl(*line.split()) for line in edits]
    assert [one.out for one in done] == ["", "", ""]
    assert done[0].err.splitlines()[1:] == ["  Maximum Age (max_age): unlimited → 1h0m0s", "Stream S was updated"]
    assert done[1].err.splitlines()[-1] == "Consumer S > C was updated"
    assert done[2].err.splitlines()[:2] == ["Purged 3 messages from S", "  Messages: 3 → 0"]
    assert done[2].err.splitlines()[-1] == "  First Sequence: 1 → 4"


@pytest.mark.both
def test_a_durable_subscription_tells_that_its_consumer_stays(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*", "--defaults")
    natsctl("pub", "s.a", "x", "-J", "-q")
    done = natsctl("sub", "s.*", "--durable", "D", "--count", "1")
    assert "consumer D stays: natsctl consumer rm S D removes it" in done.err
    assert natsctl("con", "ls", "S", "-n").out == "D\n"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("str", "help"), "Usage: natsctl stream COMMAND"),
        (("str", "help", "add"), "Usage: natsctl stream add"),
        (("version",), "0."),
    ],
)
def test_help_and_version_are_words_too(natsctl: Run, words: tuple[str, ...], shown: str) -> None:
    done = natsctl(*words)
    assert (done.code, done.out.startswith(shown)) == (0, True)


@pytest.mark.parametrize(
    ("file", "tool"),
    [("pipx_metadata.json", "pipx inject natsctl x"), ("uv-receipt.toml", "uv pip install --python P x")],
)
def test_a_missing_package_is_installed_by_the_tool_that_installed_natsctl(
    file: str, tool: str, tmp_path: Path
) -> None:
    (tmp_path / file).touch()
    assert install_command("x", str(tmp_path), "P") == tool


@pytest.mark.parametrize(
    ("found", "shown"),
    [(("pip",), "P -m pip install x"), (("uv",), "uv pip install --python P x"), ((), "this installation has no pip")],
)
def test_pip_is_named_only_where_it_is(
    found: tuple[str, ...], shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name in found else None)
    monkeypatch.setattr("shutil.which", lambda name: name if name in found else None)
    assert install_command("x", str(tmp_path), "P").startswith(shown)


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("selec * from S", "no SQL statement begins with selec"),
        ("select * frm S", "SELECT * needs FROM"),
        ("select (1", "an open ("),
        ("select 1]", "a ] too many"),
        ("select 'a", "an open '"),
    ],
)
def test_what_is_no_sql_is_refused_before_spark_is_looked_for(query: str, fault: str) -> None:
    with pytest.raises(UsageError, match=re.escape(fault)):
        check_form(query, did_you_mean)


@pytest.mark.parametrize(
    "query", ["(select 1)", "with a as (select ')') select * from a", "BEGIN SELECT 1; END", "select a[0] -- ("]
)
def test_sql_in_other_forms_is_left_to_spark(query: str) -> None:
    check_form(query, did_you_mean)


async def test_no_suitable_peers_tells_how_many_servers_there_are() -> None:
    class Cluster:
        reconnects = False
        received = Received()
        tracer = None
        trace = trace_answer = staticmethod(not_traced)
        timeout_s = 1.0
        info: ClassVar = {"connect_urls": ["10.0.0.1:4222", "10.0.0.2:4222", "10.0.0.3:4222", "[fd00::1]:4222"]}

        async def request(self, *words: Any, **options: Any) -> Any:
            body = b'{"error": {"code": 400, "err_code": 10005, "description": "no suitable peers for placement"}}'
            return type("Answer", (), {"body": body, "status": 0, "description": ""})

    with pytest.raises(ApiResponseError) as failed:
        await Requests(Cluster()).exchange("$JS.API.STREAM.CREATE.S", b"{}")  # type: ignore[arg-type]
    assert failed.value.hint == "the cluster has 3 servers; each replica needs one of its own"


def test_a_cluster_without_leader_points_to_what_helps() -> None:
    from natsctl.cli.framework.output import render_error

    shown = render_error(ApiResponseError(ApiError(code=503, err_code=10008, description="unavailable")), False)
    assert "natsctl server report jetstream" in shown
    assert "natsctl server cluster rescue" in shown


def test_top_explains_its_keys_on_a_question_mark() -> None:
    shown = Shown("", raw=False, subs=False)
    assert (shown.press("?", None), shown.help) == (True, True)  # type: ignore[arg-type]
    assert (shown.press("?", None), shown.help) == (True, False)  # type: ignore[arg-type]
    assert all(f"  {key} " in HELP for key in "q<bs?")
