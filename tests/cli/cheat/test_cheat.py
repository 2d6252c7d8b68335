"""Every line of every cheat runs as it stands, in its order, on a server that was empty before."""

import json
import shlex
from functools import partial
from pathlib import Path

import pytest

from natsctl.cli.cheat import Topic, text, topics
from tests.support.commands import Run

TOPICS = topics()


@pytest.mark.ours("each line has tests on both servers")
@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_every_line_runs(
    natsctl: Run, begun: Run, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    for name in ("prod.creds", "notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "setup.txt").write_text(
        "stream add ORDERS --subjects 'ORDERS.*' --if-not-exists\npub ORDERS.new 'a b' -J\n"
    )
    beside = []
    for line in (line.command for line in topic.lines):
        first, *words = shlex.split(line.removesuffix("&"))
        assert first == "natsctl"
        if line.endswith("&"):
            beside.append(begun(*words))
            beside[-1].stderr.readline()  # it listens then
            continue
        done = natsctl(*words, stdin=b"from stdin")
        fine = {"plan": (0, 10), "backup lookup": (0, 3), "browse": (2,)}  # a key file of another backup, no terminal
        done_well = fine.get(words[0]) or fine.get(" ".join(words[:2]), (0,))
        assert done.code in done_well, f"{line}\n{done.out}{done.err}"
    for process in beside:
        assert process.wait(timeout=60) == 0
        process.communicate()
    natsctl("str", "rm", "KV_CFG", "-f", "--missing-ok")


def test_lines_fit_and_commands_are_told_as_such() -> None:
    for topic in TOPICS:
        assert max(map(len, text(topic).splitlines())) <= 100
        assert len({line.command for line in topic.lines}) == len(topic.lines)


def test_topics_are_listed_shown_and_saved(offline: Run, tmp_path: Path) -> None:
    cheat = partial(offline, "cheat")
    assert all(topic.name in cheat()[1] for topic in TOPICS)
    assert cheat("--list")[1].split() == [topic.name for topic in TOPICS]
    assert "natsctl kv put CFG" in cheat("kv")[1]
    assert json.loads(cheat("KV", "-j")[1])[0]["lines"][0]["command"] == "natsctl kv add CFG --history 5"
    assert len(json.loads(cheat("-j")[1])) == len(TOPICS)
    assert cheat("--save", str(tmp_path / "cheats"), "--dry-run")[0] == 0
    assert not (tmp_path / "cheats").exists()
    assert cheat("--save", str(tmp_path / "cheats"))[0] == 0
    assert (tmp_path / "cheats" / "natsctl-kv").read_text() == cheat("kv")[1]
    code, _, err = cheat("strem")
    assert (code, 'did you mean "stream"' in err) == (3, True)
