"""Build the native module with the compiler at hand: `python natsctl/native/build.py`, and hatchling's build hook.

The module uses Python's stable ABI, so one file serves 3.11 and every later release. Where there is no compiler, no
header of Python or no room for the module, natsctl is installed without it, and everything runs in Python.
NATSCTL_NATIVE=require makes a missing module an error, as released wheels need it; NATSCTL_NATIVE=no leaves it out.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAME = "_native.abi3.so"
TARGET = HERE / NAME
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra")
MACOS_FLAGS = ("-bundle", "-undefined", "dynamic_lookup")


class BuildError(Exception):
    """The module could not be built; the text is the reason, in one line."""


def build(target: Path = TARGET, flags: tuple[str, ...] = ()) -> Path:
    """Compile the module and return its path. Raises BuildError, and then an earlier module is gone too."""
    partial = target.with_name(f"_native.{os.getpid()}.so")
    words = [*_command(), *flags, "-o", str(partial)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace")
        if done.returncode == 0:
            partial.replace(target)
            return target
    except OSError as failure:
        raise BuildError(f"{words[0]}: {failure}") from failure
    finally:
        partial.unlink(missing_ok=True)
    complaint = next((line for line in done.stderr.splitlines() if "error" in line.lower()), "no error is shown")
    raise BuildError(f"{words[0]} ended with exit status {done.returncode}: {complaint.strip()}")


def _command() -> list[str]:
    """Return the words that compile the sources. Raises BuildError where something that they need is missing."""
    if os.name != "posix":
        raise BuildError("it needs POSIX threads")
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError("it needs the stable ABI of CPython, which this Python does not have")
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        raise BuildError(f"there is no compiler ({compiler[0]})")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").is_file():
        raise BuildError(f"there is no Python.h in {include}")
    shared = MACOS_FLAGS if sys.platform == "darwin" else ("-shared",)
    sources = sorted(str(path) for path in HERE.glob("*.c"))
    return [*compiler, *FLAGS, *shared, f"-I{include}", *sources]


def wheel_tag() -> str:
    """Return the tag of a wheel with the module."""
    system = sysconfig.get_platform().replace("universal2", platform.machine())  # we build for this machine alone
    return f"cp311-abi3-{system.replace('-', '_').replace('.', '_')}"


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script
    pass
else:

    class NativeHook(BuildHookInterface):  # type: ignore[type-arg]  # its configuration has no type of ours
        """Hook of hatchling for wheels and editable installations; an sdist holds the sources."""

        _folder: tempfile.TemporaryDirectory[str] | None = None

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Build the module: beside its sources where these are installed, else into the wheel alone."""
            wanted = os.environ.get("NATSCTL_NATIVE", "")
            if self.target_name != "wheel":
                return
            if version == "editable":
                TARGET.unlink(missing_ok=True)  # one of other sources would still be imported
            if wanted == "no":
                return
            self._folder = tempfile.TemporaryDirectory()
            try:
                built = build(TARGET if version == "editable" else Path(self._folder.name, NAME))
            except BuildError as failure:
                self._folder.cleanup()
                if wanted == "require":
                    raise
                self.app.display_warning(f"natsctl is built without its native module, all in Python: {failure}")
                return
            if version != "editable":
                build_data["pure_python"] = False
                build_data["tag"] = wheel_tag()
                build_data["force_include"][str(built)] = f"natsctl/native/{NAME}"

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            """Remove the module that has been put into the wheel."""
            if self._folder is not None:
                self._folder.cleanup()


if __name__ == "__main__":
    try:
        print(build(flags=tuple(sys.argv[1:])))
    except BuildError as failure:
        TARGET.unlink(missing_ok=True)  # one of other sources would still be imported
        sys.exit(f"the native module is not built, everything runs in Python: {failure}")
