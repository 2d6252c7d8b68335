"""Build the native module with the compiler at hand: `python natsctl/native/build.py`, and hatchling's build hook.

The module uses Python's stable ABI, so one file serves 3.11 and every later release. Where no compiler or no header of
Python is found the wheel is built without it, and everything runs in Python. NATSCTL_NATIVE=require makes a missing
module an error, as released wheels need it; NATSCTL_NATIVE=no leaves it out.
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
from typing import Any

HERE = Path(__file__).parent
TARGET = HERE / "_native.abi3.so"
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra")
MACOS_FLAGS = ("-bundle", "-undefined", "dynamic_lookup")


class BuildError(Exception):
    """The module could not be built; the text is the reason."""


def build(target: Path = TARGET, flags: tuple[str, ...] = ()) -> Path:
    """Compile the module and return its path. Raises BuildError."""
    if os.name != "posix":
        raise BuildError("the native module needs POSIX threads")
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        raise BuildError(f"there is no compiler ({compiler[0]})")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").is_file():
        raise BuildError(f"there is no Python.h in {include}")
    shared = MACOS_FLAGS if sys.platform == "darwin" else ("-shared",)
    partial = target.with_suffix(f".{os.getpid()}")
    sources = sorted(str(path) for path in HERE.glob("*.c"))
    words = [*compiler, *FLAGS, *shared, *flags, f"-I{include}", *sources, "-o", str(partial)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        partial.unlink(missing_ok=True)
        raise BuildError(f"{shlex.join(words)}:\n{done.stderr}")
    partial.replace(target)
    return target


def wheel_tag() -> str:
    """Return the tag of a wheel with the module."""
    return f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script
    pass
else:

    class NativeHook(BuildHookInterface):  # type: ignore[type-arg]
        """Hook of hatchling for wheels and editable installations."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Build the module, and add it to the wheel."""
            wanted = os.environ.get("NATSCTL_NATIVE", "")
            if wanted == "no" or self.target_name != "wheel" or platform.python_implementation() != "CPython":
                return
            try:
                build()
            except BuildError as failure:
                if wanted == "require":
                    raise
                self.app.display_warning(f"natsctl is built without its native module: {failure}")
                return
            build_data["pure_python"] = False
            build_data["tag"] = wheel_tag()
            build_data["artifacts"].append("natsctl/native/*.so")


if __name__ == "__main__":
    try:
        print(build(flags=tuple(sys.argv[1:])))
    except BuildError as failure:
        sys.exit(str(failure))
