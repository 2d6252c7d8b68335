"""The optional native module: C code for what a server does for each message, and for bytes by the gigabyte.

`lib` is the module, or None where it was not built (no compiler, another platform) or NATSCTL_PURE is set to anything
but 0. The Python code stays the specification: each native function stands for one in the module that uses it, does
the same on the same arguments, and is tested against it. A function that is unsure leaves the rest to Python.
Source: docs/adr/0029-native-module.md.
"""

from __future__ import annotations

import os

if os.environ.get("NATSCTL_PURE", "0") == "0":
    try:
        from natsctl.native import _native as lib
    except ImportError:
        lib = None  # type: ignore[assignment]
else:
    lib = None  # type: ignore[assignment]
