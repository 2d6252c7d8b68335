"""Build the native module with the compiler at hand: `python natsctl/native/build.py`, and the wheel's hook.

The module uses Python's stable ABI, so one file serves 3.11 and every later release. Without a compiler, Python's
headers or room for the module, natsctl is installed without it, and everything runs in Python. NATSCTL_NATIVE=require
makes a missing module an error, as released wheels need it; NATSCTL_NATIVE=no leaves it out.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
NAME = "_native.abi3.so"
TARGET = HERE / NAME
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra")
MACOS_FLAGS = ("-bundle", "-undefined", "dynamic_lookup")


class BuildError(Exception):
    """The module could not be built; the text is the reason, in one line."""


def build(target: Path = TARGET, flags: tuple[str, ...] = ()) -> Path:
    """Compile the module and return its path. Raises BuildError; an earlier module is then deleted too."""
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
    """Return the command line that compiles the sources. Raises BuildError if something that it needs is missing."""
    if os.name != "posix":
        raise BuildError("it needs POSIX threads")
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError("it needs the stable ABI of CPython: this Python lacks it")
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
    system = sysconfig.get_platform().replace("universal2", platform.machine())  # we build for this machine only
    return f"cp311-abi3-{system.replace('-', '_').replace('.', '_')}"


if __name__ == "__main__":
    try:
        print(build(flags=tuple(sys.argv[1:])))
    except BuildError as failure:
        TARGET.unlink(missing_ok=True)  # one of other sources would still be imported
        sys.exit(f"the native module is not built, everything runs in Python: {failure}")
