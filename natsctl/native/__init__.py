"""The optional native module: C code for a server's work on each message, and for bytes by the gigabyte.

`lib` is the module, or None for the reason in `absent`: it was not built (no compiler, another platform), it is older
than the sources next to it, or NATSCTL_PURE is set to anything but 0. The Python code stays the specification: each
native function replaces one in the module that uses it, does the same on the same arguments, and is tested against it.
A function that is unsure leaves the rest to Python. Source: docs/adr/0029-native-module.md.
"""

from __future__ import annotations

import os


def _check() -> None:
    """Raise ImportError where the module is not to be loaded."""
    if os.environ.get("NATSCTL_PURE", "") not in ("", "0"):
        raise ImportError("NATSCTL_PURE is set")
    try:
        files = [file for file in os.scandir(__path__[0]) if file.name.endswith((".c", ".h", ".abi3.so"))]
        times_ns = {file.name: file.stat().st_mtime_ns for file in files}
    except OSError:  # a package in a zip file, or files that are being replaced
        times_ns = {}
    built_ns = times_ns.get("_native.abi3.so")
    if built_ns is None:
        raise ImportError("it was not built")
    if any(time_ns > built_ns for time_ns in times_ns.values()):
        raise ImportError("it is older than its sources")


absent = ""
"""Why Python does everything; empty where the native module does its part."""

try:
    _check()
    from natsctl.native import _native as lib
except ImportError as _failure:
    lib, absent = None, str(_failure)  # type: ignore[assignment]  # mypy reads the stub
