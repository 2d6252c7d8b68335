"""The wheel that users install: the package alone, without the rig of its own tests."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from natsctl import native

CLONE = Path(__file__).parents[1]
LOCK = CLONE / ".ci" / "requirements.lock"
FOR_TESTS_OF_USERS = {"__init__", "certificates", "jetstream", "local_cluster", "process"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=CLONE, check=True
    )
    [path] = folder.iterdir()
    return ZipFile(path)


def test_it_holds_the_package_and_nothing_else_of_the_clone() -> None:
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(CLONE))
    paths = [Path(file.distribution_path) for file in builder.recurse_included_files()]
    assert {path.parts[0] for path in paths} == {"natsctl", "pyspark_jetstream"}
    assert Path("natsctl/py.typed") in paths
    tools = {path.stem for path in paths if path.parts[:2] == ("natsctl", "testing") and path.suffix == ".py"}
    assert tools == FOR_TESTS_OF_USERS


@pytest.mark.docs
def test_it_holds_completions_man_pages_and_examples(wheel: ZipFile) -> None:
    shared = {name.partition(".data/data/share/")[2] for name in wheel.namelist() if ".data/data/share/" in name}
    assert {"bash-completion/completions/natsctl", "zsh/site-functions/_natsctl"} <= shared
    assert "fish/vendor_completions.d/natsctl.fish" in shared and "doc/natsctl/examples/README.md" in shared
    pages = {name.removeprefix("man/man1/") for name in shared if name.startswith("man/")}
    nouns = {path.stem for path in (CLONE / "docs" / "commands").glob("*.md")} - {"README"}
    assert pages == {"natsctl.1", *(f"natsctl-{noun}.1" for noun in nouns)}


@pytest.mark.docs
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_its_man_pages_show_what_help_prints(wheel: ZipFile) -> None:
    [path] = [name for name in wheel.namelist() if name.endswith("/natsctl-stream.1")]
    command = ["groff", "-Kutf8", "-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=120n"]
    done = subprocess.run(command, input=wheel.read(path), capture_output=True)
    page, help_page = done.stdout.decode(), (CLONE / "docs" / "commands" / "stream.md").read_text()
    assert not done.stderr
    lines = re.search(r"## stream purge\n\n```text\n(.*?)```", help_page, re.DOTALL)
    assert lines is not None
    assert " ".join(lines[1].split()) in " ".join(page.split())


@pytest.mark.docs
def test_it_is_typed_and_names_its_licence_and_version(wheel: ZipFile) -> None:
    from natsctl import __version__

    [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    about = Parser().parsestr(wheel.read(metadata).decode())
    assert (about["License-Expression"], about["Version"]) == ("Apache-2.0", __version__)
    assert "natsctl/py.typed" in wheel.namelist()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())
    top = {name.partition("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith((".dist-info", ".data"))} == {"natsctl", "pyspark_jetstream"}
    of_pytest = [need.partition(";") for need in about.get_all("Requires-Dist", []) if need.startswith("pytest")]
    assert of_pytest and all("extra ==" in when for _, _, when in of_pytest)


OF_THE_BUILD = (
    "pyproject.toml", "README.md", "LICENSE", "natsctl/__init__.py", "natsctl/spark/pyspark_jetstream.py",
    ".ci/wheel_hook.py", "completions/natsctl.bash", "completions/natsctl.zsh", "completions/natsctl.fish",
    "docs/commands/stream.md", "examples/README.md",
)  # fmt: skip
MODULE = "natsctl/native/_native.abi3.so"
WITHOUT_IT = "natsctl is built without its native module, all in Python: "


@pytest.fixture
def small_clone(tmp_path: Path) -> Path:
    """The files of this clone that a build reads, beside a module that was built of other sources."""
    for name in OF_THE_BUILD:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CLONE / name, tmp_path / name)
    shutil.copytree(CLONE / "natsctl/native", tmp_path / "natsctl/native", ignore=shutil.ignore_patterns("*.so"))
    (tmp_path / MODULE).write_bytes(b"of other sources")
    return tmp_path


def build(clone: Path, **environment: str) -> tuple[list[Path], int, str]:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    variables = {name: value for name, value in os.environ.items() if name != "NATSCTL_NATIVE"}
    done = subprocess.run(words, cwd=clone, env=variables | environment, capture_output=True, text=True)
    return list((clone / "dist").glob("*.whl")), done.returncode, done.stderr


needs_a_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CC") or "cc") is None or not Path(sysconfig.get_path("include"), "Python.h").is_file(),
    reason="needs a C compiler and the headers of Python",
)


@pytest.mark.docs
@needs_a_compiler
def test_with_a_compiler_it_holds_the_native_module_for_every_later_python(small_clone: Path) -> None:
    [path], _, errors = build(small_clone, NATSCTL_NATIVE="require")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert path.name.endswith(f"-cp311-abi3-{platform}.whl") and WITHOUT_IT not in errors
    held = ZipFile(path)
    assert held.read(MODULE).startswith(b"\x7fELF")
    assert {Path(name).name for name in held.namelist() if name.startswith("natsctl/native/")} == {
        "__init__.py",
        "_native.pyi",
        "_native.abi3.so",
    }


@pytest.mark.docs
@needs_a_compiler
def test_the_native_module_compiles_without_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "native"
    shutil.copytree(CLONE / "natsctl/native", folder, ignore=shutil.ignore_patterns("*.so"))
    command = [sys.executable, str(folder / "build.py"), "-Werror"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.docs
@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"CC": "no-such-compiler"}, "there is no compiler (no-such-compiler)"),
        (
            {"CC": shutil.which("false") or "false"},
            f"{shutil.which('false')} ended with exit status 1: no error is shown",
        ),
        ({"NATSCTL_NATIVE": "no"}, None),
    ],
)
def test_without_the_native_module_it_is_for_any_platform(
    small_clone: Path, environment: dict[str, str], reason: str | None
) -> None:
    [path], _, errors = build(small_clone, **environment)
    assert path.name.endswith("-py3-none-any.whl")
    assert MODULE not in ZipFile(path).namelist()
    warnings = [line for line in errors.splitlines() if line.startswith(WITHOUT_IT)]
    assert warnings == ([WITHOUT_IT + reason] if reason else [])
    if reason:  # and a release is not built
        shutil.rmtree(small_clone / "dist")
        made, status, errors = build(small_clone, **environment | {"NATSCTL_NATIVE": "require"})
        assert (made, status, reason in errors) == ([], 1, True)


def build_editable(clone: Path) -> None:
    wheels = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(clone))
    for hook in wheels.get_build_hooks(str(clone)).values():
        hook.initialize("editable", wheels.get_default_build_data())


@pytest.mark.parametrize(("name", "value"), [("CC", "no-such-compiler"), ("NATSCTL_NATIVE", "no")])
def test_an_editable_installation_keeps_no_module_of_other_sources(
    small_clone: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delenv("NATSCTL_NATIVE", raising=False)
    monkeypatch.setenv(name, value)
    build_editable(small_clone)
    assert not (small_clone / MODULE).exists()


def test_an_editable_installation_has_bytecode_and_follows_edits(
    small_clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("NATSCTL_NATIVE", "no"), ("PYTHONDONTWRITEBYTECODE", "1"), ("SOURCE_DATE_EPOCH", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    module = small_clone / "natsctl" / "__init__.py"
    build_editable(small_clone)

    def version() -> tuple[str, bool]:
        command = [sys.executable, "-v", "-c", "import natsctl; print(natsctl.__version__)"]
        done = subprocess.run(command, cwd=small_clone, capture_output=True, text=True, check=True)
        return done.stdout.strip(), f"code object from {module}" in done.stderr

    before, compiled = version()
    assert not compiled
    module.write_text(module.read_text().replace(before, f"{before}.edited"))
    assert version() == (f"{before}.edited", True)


def test_a_module_older_than_its_sources_is_not_loaded(small_clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NATSCTL_PURE", raising=False)
    monkeypatch.setattr(native, "__path__", [str(small_clone / "natsctl/native")])
    os.utime(small_clone / MODULE, (2_000_000_000_000, 2_000_000_000_000))
    native._check()
    os.utime(small_clone / MODULE, (0, 0))
    with pytest.raises(ImportError, match="older than its sources"):
        native._check()
    (small_clone / MODULE).unlink()
    with pytest.raises(ImportError, match="was not built"):
        native._check()


def test_tests_refuse_a_native_module_that_does_not_load() -> None:
    code = f"""
from natsctl import native
import pytest, sys
native.absent = "it is older than its sources"
sys.exit(pytest.main(["-qq", "-n", "0", "--collect-only", {__file__!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=CLONE, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "the native module does not load: it is older than its sources" in done.stderr


def test_the_sources_of_the_native_module_are_in_the_source_distribution() -> None:
    sdist = pytest.importorskip("hatchling.builders.sdist")
    held = {file.distribution_path for file in sdist.SdistBuilder(str(CLONE)).recurse_included_files()}
    sources = {str(path.relative_to(CLONE)) for path in (CLONE / "natsctl/native").glob("*.[ch]")}
    assert len(sources) > 3 and sources <= held


def test_the_lock_has_each_dependency_in_a_version_that_is_allowed() -> None:
    from packaging.requirements import Requirement

    entries = [Requirement(line.rstrip(" \\")) for line in LOCK.read_text().splitlines() if line[:1].isalnum()]
    locked = {entry.name.lower(): str(entry.specifier).removeprefix("==") for entry in entries}
    wanted = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]["dependencies"]
    assert wanted
    for text in wanted:
        needed = Requirement(text)
        assert needed.specifier.contains(locked[needed.name.lower()]), f"{text}: run .ci/release lock"
    assert all("--hash=sha256:" in entry for entry in re.split(r"\n(?=\w)", LOCK.read_text())[1:])
