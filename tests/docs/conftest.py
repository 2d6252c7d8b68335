"""The fixtures of commands, for what documents promise."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("cli_conftest", Path(__file__).parents[1] / "cli" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_COMMANDS = importlib.util.module_from_spec(_SPEC)
sys.modules["cli_conftest"] = _COMMANDS
_SPEC.loader.exec_module(_COMMANDS)

pytest_generate_tests = _COMMANDS.pytest_generate_tests
shared_server = _COMMANDS.shared_server
natsctl = _COMMANDS.natsctl
published = _COMMANDS.published
person = _COMMANDS.person
forked = _COMMANDS.forked
