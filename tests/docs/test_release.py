"""A release: its version, the changelog, the names that documents install, and the workflows that build it."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest
import yaml

from natsctl import __version__

CLONE = Path(__file__).parents[2]
SHOWN = ("README.md", "CHANGELOG.md", "pyproject.toml", "docs", "examples", "natsctl", "completions", ".ci", ".github")
"""What users read, run or are shown."""
BY_NAME = re.compile(
    r"""
    \b(?:pip|pipx|uv\ tool|uv\ pip)\ (?:install|download|run|upgrade)\b
        [^\n`|]*?(?<![\w./=-])natsctl(?![\w./*-])(?![^\n`|]{0,30}@\ )
    | \buvx\ (?!--from\b)[^\n`|]*?\bnatsctl\b
    | \b(?:npm|npx|yarn|brew|cargo|snap)\ (?:install|add|i|exec)\ [^\n`|]*?\bnatsctl\b
    | (?:docker|podman)\ (?:run|pull)\b[^\n`|]*?(?<![\w./:@-])natsctl(?![\w./:-])
    | \bimage:\ natsctl\b
    | \b(?:ghcr|quay|docker)\.io/[\w./-]*natsctl
    | \b(?:github|gitlab)\.com/natsctl\b
    """,
    re.VERBOSE,
)
"""An installation of natsctl by a name in an index, a registry or a forge, which somebody else may take."""


def test_the_manifest_runs_the_image_of_this_version() -> None:
    text = (CLONE / "examples" / "kubernetes" / "natsctl.yaml").read_text()
    assert re.findall(r"image: \S+/natsctl:(\S+)", text) == [__version__]


def test_the_page_on_installing_names_the_files_of_this_version() -> None:
    text = (CLONE / "docs" / "how-to" / "install.md").read_text()
    assert set(re.findall(r"natsctl[-_:](\d+\.\d+\.\d+)", text)) == {__version__}
    extras = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == extras.keys() - {"dev", "docs"}


def test_the_changelog_begins_with_this_version_and_has_the_sections_of_keep_a_changelog() -> None:
    changelog = (CLONE / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (\S+) (?:- (\d{4}-\d\d-\d\d)|\(not released\))$", changelog, re.MULTILINE)
    assert len(headings) == changelog.count("\n## ") > 1
    assert headings[0][0] == __version__
    numbers = [tuple(map(int, name.split("."))) for name, _ in headings]
    assert numbers == sorted(set(numbers), reverse=True) and numbers[-1] == (0, 1, 0)
    assert all(date for _, date in headings[1:])
    known = ["Upgrading", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for part in changelog.split("\n## ")[1:]:
        sections = re.findall(r"^### (.+)$", part, re.MULTILINE)
        assert sections == sorted(set(sections), key=known.index) and sections, part[:20]


@pytest.mark.docs
@pytest.mark.skipif(not (CLONE / ".git").exists(), reason="this is not a clone")
def test_nothing_is_installed_by_a_name_that_somebody_else_may_take() -> None:
    listed = subprocess.run(["git", "ls-files", "-z", *SHOWN], cwd=CLONE, capture_output=True, text=True, check=True)
    files = [CLONE / name for name in listed.stdout.split("\0") if name]
    found = {
        f"{path.relative_to(CLONE)}: {match[0]}"
        for path in files
        if path.suffix not in (".png", ".gz", ".pb", ".jar")
        for match in BY_NAME.finditer(path.read_text(encoding="utf-8"))
    }
    assert len(files) > 500 and not found


WORKFLOWS = sorted((CLONE / ".github" / "workflows").glob("*.yml"))


@pytest.mark.docs
@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not on PATH")
def test_actionlint_accepts_the_workflows() -> None:
    done = subprocess.run(["actionlint", *map(str, WORKFLOWS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_workflows_build_parts_that_a_release_has_and_write_no_more_than_they_need() -> None:
    assert {path.name for path in WORKFLOWS} == {"audit.yml", "docs.yml", "release.yml", "tests.yml"}
    parts = set(re.findall(r'^    "(\w+)": \1,$', (CLONE / ".ci" / "release").read_text(), re.MULTILINE))
    assert parts == {"packages", "sbom", "deb", "image", "docs"}
    for path in WORKFLOWS:
        text = path.read_text()
        for line in re.findall(r"\.ci/release --out dist (.+)", text):
            assert set(line.split()) <= parts
        workflow = yaml.safe_load(text)
        assert workflow["permissions"] == {"contents": "read"}
        for step in (step for job in workflow["jobs"].values() for step in job["steps"]):
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


BUILDS = """\
#!/usr/bin/env python3
import pathlib, subprocess, sys
if sys.argv[1] == "notes":
    sys.exit(subprocess.call([sys.executable, {release!r}, *sys.argv[1:]]))
dist = pathlib.Path(sys.argv[2])
kinds = {{
    "packages": ["natsctl-{v}.tar.gz", "natsctl-{v}-cp311-abi3-linux_x86_64.whl", "natsctl-{v}-py3-none-any.whl"],
    "sbom": ["natsctl-{v}.cdx.json"],
    "deb": ["natsctl_{v}_amd64.deb"],
    "image": ["natsctl-{v}-amd64.oci.tar"],
    "docs": ["site/index.html"],
}}
for part in sys.argv[3:]:
    for name in kinds[part]:
        (dist / name).parent.mkdir(parents=True, exist_ok=True)
        (dist / name).write_text(name)
"""
"""`.ci/release`, but for the minutes that its builds take."""


@pytest.fixture
def runner() -> ModuleType:
    """The script that runs workflows, `.ci/workflows`."""
    loader = SourceFileLoader("natsctl_ci_workflows", str(CLONE / ".ci" / "workflows"))
    module = module_from_spec(cast(ModuleSpec, spec_from_loader(loader.name, loader)))
    loader.exec_module(module)
    return module


@pytest.fixture
def small_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with workflows, changelog and version, and a release that builds nothing."""
    clone = tmp_path / "clone"
    for name in (".github", "CHANGELOG.md", "natsctl/__init__.py"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (CLONE / name).is_dir() else shutil.copy
        copy(CLONE / name, clone / name)
    (clone / ".ci").mkdir()
    (clone / ".ci/release").write_text(BUILDS.format(release=str(CLONE / ".ci" / "release"), v=__version__))
    (clone / ".ci/release").chmod(0o755)
    author = ("-c", "user.name=nobody", "-c", "user.email=nobody@invalid")
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "All of it"]):
        subprocess.run(["git", *words], cwd=clone, check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "dist").mkdir()
    (tmp_path / f"dist/natsctl-{__version__}-cp311-abi3-linux_x86_64.whl").touch()
    return clone


@pytest.mark.docs
def test_the_steps_of_a_release_and_of_the_site_publish_everything_that_is_built(
    runner: ModuleType, small_clone: Path
) -> None:
    folder = small_clone.parent
    found = list(runner.run_workflow("release", small_clone, folder, folder / "dist"))
    assert found[-1].startswith(f"the draft of v{__version__} has 7 files")
    assert len(list(runner.run_workflow("docs", small_clone, folder, folder / "dist"))) == 2


@pytest.mark.docs
def test_the_notes_of_a_release_are_its_part_of_the_changelog() -> None:
    command = [sys.executable, str(CLONE / ".ci" / "release"), "notes"]
    done = subprocess.run([*command, __version__], capture_output=True, text=True)
    assert done.stdout.startswith("### ") and "\n## " not in done.stdout
    assert subprocess.run([*command, "9.9.9"], capture_output=True).returncode == 1
