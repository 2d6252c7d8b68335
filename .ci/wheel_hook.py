"""Hatchling's build hook of the wheel: the native module, the shells' completions, man pages and examples.

Man pages say what docs/commands says, which is the output of `--help`; pip installs them, like the completions, below
the environment's share/. An editable installation gets the native module and bytecode next to its sources: pip compiles
only what it copies, and a Python with PYTHONDONTWRITEBYTECODE, as in most images, would compile them for every command.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import py_compile
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parents[1]
SHELLS = {
    "natsctl.bash": "bash-completion/completions/natsctl",
    "natsctl.zsh": "zsh/site-functions/_natsctl",
    "natsctl.fish": "fish/vendor_completions.d/natsctl.fish",
}


def native_build() -> Any:
    """Return the module natsctl/native/build.py, which no package holds."""
    spec = importlib.util.spec_from_file_location("natsctl_native_build", ROOT / "natsctl" / "native" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def man_pages(commands: Path, version: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of the man page of each page of docs/commands, that of natsctl itself first."""
    nouns = []
    for path in sorted(commands.glob("*.md")):
        if path.stem != "README":
            title, about, rest = path.read_text(encoding="utf-8").split("\n\n", 2)
            nouns.append((path.stem, about.rstrip(".")))
            name = title.removeprefix("# ").replace(" ", "-")
            yield f"{name}.1", _page(name, about, rest, version)
    below = "".join(f".TP\n.BR natsctl\\-{_roff(noun)} (1)\n{_roff(about)}\n" for noun, about in nouns)
    head = _page(
        "natsctl", "Administer NATS JetStream, run a JetStream server, connect streams with Spark.", "", version
    )
    yield "natsctl.1", f"{head}.SH SYNOPSIS\n.B natsctl\n.I COMMAND\n[\\fIFLAGS\\fR]\n.SH COMMANDS\n{below}"


def _page(name: str, about: str, markdown: str, version: str) -> str:
    """Return a page in man(7): sections for the headings, text as it stands for what `--help` prints."""
    out = [f'.TH "{name.upper()}" 1 "" "natsctl {version}" "natsctl"\n.SH NAME\n']
    out.append(f"{_roff(name)} \\- {_roff(about.rstrip('.'))}\n")
    for heading, text in re.findall(r"(?:^## ([^\n]+)\n\n)?```text\n(.*?)```", markdown, re.DOTALL | re.MULTILINE):
        out.append(f".SH {_roff(heading.upper() or 'SYNOPSIS')}\n.nf\n{_roff(text)}.fi\n")
    return "".join(out)


def _roff(text: str) -> str:
    """Return text that roff shows as it is."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    )
    return re.sub(r"^(?=[.'])", r"\\&", escaped, flags=re.MULTILINE)


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]  # its configuration has no type of ours
    """Hook for wheels and editable installations; an sdist holds the sources."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the module: beside its sources where these are installed, else into the wheel alone."""
        if version == "editable":
            self._build_module(None, build_data)
            # By timestamp, also with SOURCE_DATE_EPOCH: an edited module is compiled again, no other is read.
            mode = py_compile.PycInvalidationMode.TIMESTAMP
            compileall.compile_dir(ROOT / "natsctl", quiet=2, invalidation_mode=mode)
            return
        self._folder = tempfile.TemporaryDirectory()
        self._build_module(Path(self._folder.name), build_data)
        self._add_shared(Path(self._folder.name), build_data["force_include"])

    def _build_module(self, folder: Path | None, build_data: dict[str, Any]) -> None:
        """Build the module for the wheel in `folder`, or without one beside its sources."""
        native, wanted = native_build(), os.environ.get("NATSCTL_NATIVE", "")
        if folder is None:
            native.TARGET.unlink(missing_ok=True)  # one of other sources would still be imported
        if wanted == "no":
            return
        try:
            built = native.build(folder / native.NAME if folder is not None else native.TARGET)
        except native.BuildError as failure:
            if wanted == "require":
                raise
            self.app.display_warning(f"natsctl is built without its native module, all in Python: {failure}")
            return
        if folder is not None:
            build_data["pure_python"] = False
            build_data["tag"] = native.wheel_tag()
            build_data["force_include"][str(built)] = f"natsctl/native/{native.NAME}"

    def _add_shared(self, folder: Path, include: dict[str, str]) -> None:
        version = self.metadata.version
        share = f"natsctl-{version}.data/data/share"
        for source, target in SHELLS.items():
            include[str(ROOT / "completions" / source)] = f"{share}/{target}"
        for name, text in man_pages(ROOT / "docs" / "commands", version):
            (folder / name).write_text(text, encoding="utf-8")
            include[str(folder / name)] = f"{share}/man/man1/{name}"
        include[str(ROOT / "examples")] = f"{share}/doc/natsctl/examples"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what has been put into the wheel."""
        if self._folder is not None:
            self._folder.cleanup()
