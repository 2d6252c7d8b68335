"""Servers for tests: natsctl's own, and the reference's where `nats-server` is on PATH."""

import contextlib
import gc
import importlib
import itertools
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from natsctl import native
from natsctl.testing.process import Kind, ServerProcess
from tests.support import forkserver, spark_starts, tiers

SPARK = Path(__file__).parent / "spark"
"""Tests in it that ask for it share a session of Spark: a start takes 17 s of CPU."""

# Each worker, and each natsctl that a test starts, would compile everything anew where bytecode is not kept.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that starts pytest in the background ignores Ctrl-C for it; commands that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which `.ci/run` bounds the tests of the default tier."""
    parser.addoption(
        "--max-cpu-s", type=float, help="print the cost of each tier; fail if a default test takes more CPU"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the tiers before modules with sizes of their own are imported.

    A native module that is there and does not load is no reason to skip its tests in silence.
    """
    if native.absent not in ("", "NATSCTL_PURE is set", "it was not built"):
        raise pytest.UsageError(f"the native module does not load: {native.absent}; python natsctl/native/build.py")
    config.pluginmanager.register(tiers.TierPlugin(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin the share of each worker with long tests, so that none of them is left for the end.

    The shares are equal runs of items; who has done his takes from the end of another. What shares a session of Spark
    is the beginning of one share. Other tests are long if their timeout is; those of a module may share a server.
    """
    dealt = {item for item in items if SPARK in item.path.parents and "spark" in getattr(item, "fixturenames", ())}
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    shares = [[item for item in items if item in dealt], *([] for _ in range(workers - 1))]
    long = [item for item in items if item not in dealt and _timeout_s(item)]
    dealt.update(long)
    modules = [[*module] for _, module in itertools.groupby(long, key=lambda item: item.path)]
    for module in sorted(modules, key=_all_s, reverse=True):
        min(shares, key=_all_s).extend(module)
    others = [item for item in items if item not in dealt]
    for number, share in enumerate(shares):
        size = (len(items) - sum(map(len, shares[:number]))) // (workers - number)  # as the scheduler counts
        short = max(size - len(share), 0)
        share += others[:short]
        del others[:short]
    items[:] = [*itertools.chain.from_iterable(shares), *others]


def _timeout_s(item: pytest.Item) -> float:
    """Return the timeout of a test, 0 if it has none of its own."""
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark else 0.0


def _all_s(items: list[pytest.Item]) -> float:
    return sum(map(_timeout_s, items))


def _import_share(paths: list[Path]) -> None:
    """Import this worker's share of the test modules first: in a fresh clone, pytest rewrites and compiles each.

    The others find the result on disk instead of doing the same at the same time.
    """
    number, count = (os.environ.get(f"PYTEST_XDIST_WORKER{suffix}", "") for suffix in ("", "_COUNT"))
    if not number.startswith("gw"):
        return
    files = sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py")))
    for file in files[int(number[2:]) :: int(count)]:
        name = ".".join(file.resolve().relative_to(Path(__file__).parents[1]).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collection reports it
            importlib.import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect no garbage among thousands of tests that all stay, which would take a quarter of the time."""
    gc.disable()
    try:
        _import_share([Path(argument.partition("::")[0]) for argument in session.config.args])
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test marked `both` once on each kind of server; `reference` only on the reference."""
    if "server" not in metafunc.fixturenames:
        return
    marks = metafunc.definition
    kinds = ["reference"] if marks.get_closest_marker("reference") else ["natsctl"]
    metafunc.parametrize("server", [*kinds, "reference"] if marks.get_closest_marker("both") else kinds, indirect=True)


@pytest.fixture(scope="session", autouse=True)
def quick_starts() -> Iterator[None]:
    """Let subprocesses that are natsctl's be forked from one that has imported everything, unless told otherwise."""
    if os.environ.get("NATSCTL_OWN_STARTS") or sys.platform != "linux":
        yield
        return
    with forkserver.installed():
        yield


@pytest.fixture(autouse=True)
def own_start(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the processes of a test marked `own_start` begin as they do elsewhere."""
    if request.node.get_closest_marker("own_start"):
        with forkserver.left_alone():
            yield
    else:
        yield


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A running server process of the kind that the test's marker asks for, on a fresh store."""
    kind: Kind = request.param
    with ServerProcess(tmp_path / "server", kind) as process:
        yield process


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of folders that are not there yet; `tmp_path` takes ten times as long as making one."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_home(request: pytest.FixtureRequest, homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's contexts, data folder or environment, or is as wide as their terminal."""
    for name in ("COLUMNS", "NATS_URL", "NATS_CONTEXT", "NATS_USER", "NATS_PASSWORD", "NATS_CREDS", "NATS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    home = next(homes)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / ".local" / "share"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if request.node.get_closest_marker("spark") and SPARK / "session" not in request.path.parents:
        monkeypatch.setenv("XDG_CACHE_HOME", str(spark_starts.CACHE_HOME))
    return home
