"""The GitHub action and the workflows: read as GitHub reads them, and every script of theirs run by bash on servers."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from natsctl.testing.process import ServerProcess
from tests.support.commands import Run

pytestmark = pytest.mark.ours("scripts around commands")

ROOT = Path(__file__).parents[3]
GITHUB = ROOT / "examples" / "github"
ACTION: dict[str, Any] = yaml.safe_load((GITHUB / "action" / "action.yml").read_text())
WORKFLOWS = sorted(path.name for path in GITHUB.glob("*.yml"))
LOCAL = "./.github/actions/natsctl"
EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")
EVENT = {
    "github.event_name": "push",
    "github.repository": 'shop/orders"; touch injected; "',
    "github.ref": "refs/heads/main",
    "vars.NATS_URL": "",
    "secrets.NATS_CREDENTIALS": "",
    "secrets.NATS_CREDENTIALS_READ": "",
    "vars.NATSCTL_WHEEL": "",
}


def workflow(name: str) -> dict[str, Any]:
    """A workflow, `on` under its name: YAML 1.1 reads that word as true."""
    found = yaml.safe_load((GITHUB / name).read_text())
    return {"on" if key is True else key: value for key, value in found.items()}


def steps_of(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for job, body in workflow(name)["jobs"].items():
        for step in body["steps"]:
            yield job, step


def expanded(text: Any, values: Mapping[str, str]) -> str:
    """A text with what stands in `${{ … }}` put in."""
    return EXPRESSION.sub(lambda found: values[found[1]], str(text))


@dataclass
class Ended:
    code: int
    log: str
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""


class Runner:
    """Runs the action as GitHub's runner does: inputs by the environment of its steps, files for what it answers."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        binaries = folder / "bin"
        binaries.mkdir()
        for name, words in (
            ("natsctl", f'"{sys.executable}" -m natsctl "$@"'),
            ("python", f'echo "$@" > "{folder}/pip"'),
        ):
            (binaries / name).write_text(f"#!/bin/sh\nexec {words}\n" if name == "natsctl" else f"#!/bin/sh\n{words}\n")
            (binaries / name).chmod(0o755)
        self._path = f"{binaries}:{os.environ['PATH']}"
        self._runs = 0

    def act(self, **given: str) -> Ended:
        defaults = {f"inputs.{name}": str(row.get("default", "")) for name, row in ACTION["inputs"].items()}
        inputs = {f"inputs.{name.replace('_', '-')}": value for name, value in given.items()}
        assert inputs.keys() <= defaults.keys()
        values = defaults | {"inputs.server": self.url, "inputs.install": ""} | inputs
        ended = Ended(0, "")
        for step in ACTION["runs"]["steps"]:
            if "run" in step and self._wanted(step, values):
                ended = self._step(step, values)
                if ended.code:
                    break
        return ended

    def _wanted(self, step: dict[str, Any], values: Mapping[str, str]) -> bool:
        condition = step.get("if")
        assert condition in (None, "inputs.install != ''")
        return condition is None or values["inputs.install"] != ""

    def _step(self, step: dict[str, Any], values: Mapping[str, str]) -> Ended:
        self._runs += 1
        files = {name: self.folder / f"{name}.{self._runs}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        script = self.folder / f"script.{self._runs}"
        script.write_text(expanded(step["run"], values))
        environment = {
            "PATH": self._path,
            "HOME": str(self.folder),
            "CI": "true",
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_ACTION_PATH": str(GITHUB / "action"),
            **{name: str(file) for name, file in files.items()},
            **{name: expanded(value, values) for name, value in step.get("env", {}).items()},
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)], cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        pairs = (line.partition("=") for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        outputs = {name: value for name, _, value in pairs}
        return Ended(done.returncode, done.stdout, outputs, files["GITHUB_STEP_SUMMARY"].read_text())


@pytest.fixture
def runner(natsctl: Run, shared_server: ServerProcess, tmp_path: Path) -> Runner:
    folder = tmp_path / "runner"
    folder.mkdir()
    return Runner(folder, shared_server.url)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_use_what_there_is(name: str) -> None:
    jobs = workflow(name)["jobs"]
    assert workflow(name)["on"]
    assert workflow(name)["permissions"] == {"contents": "read"}
    for job in jobs.values():
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= jobs.keys()
    required = {name for name, row in ACTION["inputs"].items() if row.get("required")}
    used = [step for _, step in steps_of(name) if step.get("uses") == LOCAL]
    assert used
    for step in used:
        assert required <= step["with"].keys() <= ACTION["inputs"].keys()
        assert all(isinstance(value, str) for value in step["with"].values()), "inputs are texts: quote true"


def test_every_input_is_used_told_and_reaches_scripts_by_the_environment_only() -> None:
    text = str(ACTION["runs"])
    for name, row in ACTION["inputs"].items():
        assert f"inputs.{name}" in text
        assert row["description"]
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert "run" not in step or step["shell"] == "bash"
    for name in WORKFLOWS:
        assert all("${{" not in step.get("run", "") for _, step in steps_of(name))
    script = (GITHUB / "action" / "natsctl.sh").read_text()
    given = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "natsctl")["env"]
    assert all(re.search(rf"\${{?{variable}\b", script) for variable in given)
    answered = set(re.findall(r"output ([a-z-]+) ", script))
    assert {f"${{{{ steps.natsctl.outputs.{name} }}}}" for name in answered} == {
        row["value"] for row in ACTION["outputs"].values()
    }


@pytest.mark.docs
def test_the_three_jobs_of_orders_run_in_their_order_and_again(runner: Runner, natsctl: Run) -> None:
    values = EVENT | {"vars.NATS_URL": runner.url}

    def run(step: dict[str, Any]) -> None:
        ended = runner.act(**{name.replace("-", "_"): expanded(text, values) for name, text in step["with"].items()})
        assert ended.code == 0, ended.log

    clean, create, publish = (step for _, step in steps_of("orders.yml") if step.get("uses") == LOCAL)
    for step in (clean, create, publish):
        run(step)
    assert natsctl("con", "ls", "ORDERS", "-n").out.split() == ["DISPATCH", "MONITOR", "NEW"]
    message = f'Published new deployment via "push" in "{EVENT["github.repository"]}"'
    assert natsctl("str", "get", "ORDERS", "--last-for", "ORDERS.deployment", "--raw").out.rstrip("\n") == message
    assert not (ROOT / "injected").exists()
    run(clean)
    assert natsctl("str", "ls", "-n").out == ""


@pytest.mark.docs
def test_a_plan_shows_what_would_change_and_an_apply_changes_it(runner: Runner, natsctl: Run, tmp_path: Path) -> None:
    documents = tmp_path / "streams"
    documents.mkdir()
    (documents / "a.yaml").write_text("streams: {A: {subjects: ['${PLACE:?}.a'], description: '`<b>`\\n::error::x'}}\n")
    given = {"documents": f"\n{documents}\n\n", "variables": "PLACE=berlin", "owner": "team/a b", "prune": "true"}
    planned = runner.act(mode="plan", **given)
    assert (planned.code, planned.outputs["changes"], planned.outputs["exit-code"]) == (0, "true", "10"), planned.log
    assert Path(planned.outputs["plan"]).is_file()
    assert natsctl("str", "ls", "-n").out == ""
    title, _, *shown = planned.summary.splitlines()
    assert title == "### natsctl plan"
    assert any("A" in line for line in shown)
    assert all(line.startswith("    ") or not line for line in shown), "text, never markup"
    assert re.search(r"^::stop-commands::([0-9a-f]{32})$[\s\S]*^::\1::$", planned.log, re.MULTILINE)

    applied = runner.act(mode="apply", **given)
    assert (applied.code, applied.outputs["changes"]) == (0, "true"), applied.log
    config = natsctl("str", "info", "A", "-j").json["config"]
    assert (config["subjects"], config["metadata"]["natsctl.owner"]) == (["berlin.a"], "team/a b")
    again = runner.act(mode="apply", **given)
    assert (again.code, again.outputs["changes"]) == (0, "false"), again.log

    (documents / "a.yaml").write_text("streams: {B: {subjects: [b]}}\n")
    drifted = runner.act(mode="plan", fail_on_changes="true", **given)
    assert (drifted.code, "- Stream A" in drifted.summary) == (10, True), drifted.log
    gone = runner.act(mode="destroy", **given)
    assert (gone.code, natsctl("str", "ls", "-n").out) == (0, ""), gone.log


@pytest.mark.docs
def test_what_can_not_be_done_fails_the_job_with_its_code(runner: Runner, natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("streams: {A: {subjects: [a], max_age: soon}}")
    assert "$.streams.A.max_age" in (faulty := runner.act(documents=str(path))).log
    assert faulty.code == 2
    natsctl("str", "add", "A", "--subjects", "a", "--storage", "memory")
    path.write_text("streams: {A: {subjects: [a], storage: file}}")
    assert runner.act(documents=str(path)).code == 4, "a pull request that could not be applied is told"
    assert natsctl("str", "info", "A", "-j").json["config"]["storage"] == "memory"
    replaced = runner.act(mode="apply", documents=str(path), allow_replace="true", adopt="true")
    assert replaced.code == 0, replaced.log
    assert natsctl("str", "info", "A", "-j").json["config"]["storage"] == "file"
    assert runner.act(mode="aply").code == 2
    assert "creds" in runner.act(documents=str(path), credentials="not a key").log
    nowhere = runner.act(server="", documents=str(path))
    assert (nowhere.code != 0, "the input server is empty" in nowhere.log) == (True, True)


@pytest.mark.docs
@pytest.mark.parametrize("message", ["@/etc/hostname", "two\nlines"])
def test_a_message_is_sent_as_it_is(runner: Runner, natsctl: Run, message: str) -> None:
    natsctl("str", "add", "A", "--subjects", "a")
    creds = (ROOT / "examples" / "configs" / "operator-app.creds").read_text()
    ended = runner.act(mode="publish", subject="a", message=message, credentials=creds)
    assert ended.code == 0, ended.log
    assert "PRIVATE KEY" not in ended.log
    assert natsctl("str", "get", "A", "1", "--raw").out.rstrip("\n") == message


@pytest.mark.docs
def test_the_plan_that_was_reviewed_is_carried_out_and_no_other(runner: Runner, natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("streams: {A: {subjects: [a], max_msgs: 5}}")
    planned = runner.act(mode="plan", documents=str(path), owner="team")
    folder = Path(planned.outputs["plan"]).parent
    artifact = sorted(file.name for file in folder.glob(Path(planned.outputs["plan"]).name + "*"))
    assert artifact == ["plan.json", "plan.json.sha256"]
    reviewed = {"mode": "apply", "reviewed_plan": planned.outputs["plan"], "plan_hash": planned.outputs["plan-hash"]}
    path.write_text("streams: {A: {subjects: [changed.since]}}")
    wrong = runner.act(**{**reviewed, "plan_hash": "0" * 64})
    assert (wrong.code, "is not the plan that was reviewed" in wrong.log) == (2, True)
    assert runner.act(**{**reviewed, "reviewed_plan": str(tmp_path / "gone")}).code == 2
    assert natsctl("str", "ls", "-n").out == ""
    applied = runner.act(**reviewed)
    assert applied.code == 0, applied.log
    assert natsctl("str", "info", "A", "-j").json["config"]["subjects"] == ["a"]
    natsctl("str", "rm", "A", "-f")
    natsctl("str", "add", "A", "--subjects", "by.hand", "--defaults")
    drifted = runner.act(**reviewed)
    assert (drifted.code, "the account differs from the plan's state" in drifted.log) == (4, True)
    assert natsctl("str", "info", "A", "-j").json["config"]["subjects"] == ["by.hand"]


@pytest.mark.docs
@pytest.mark.parametrize(
    ("install", "code", "what"),
    [
        ("source", 0, str(ROOT)),
        ("./dist/natsctl-1.2.3-py3-none-any.whl", 0, "./dist/natsctl-1.2.3-py3-none-any.whl"),
        ("https://x.example/natsctl.whl; echo", 0, "https://x.example/natsctl.whl; echo"),
        ("natsctl", 2, ""),
        ("natsctl==1.2.3", 2, ""),
    ],
)
def test_nothing_is_installed_by_its_name(runner: Runner, install: str, code: int, what: str) -> None:
    ended = runner.act(install=install, mode="publish", subject="a", message="")
    words = f"-m pip install --quiet --disable-pip-version-check {what}\n"
    pip = runner.folder / "pip"
    assert (pip.read_text() if pip.exists() else "") == (words if what else ""), ended.log
    assert code == 0 or ended.code == code
