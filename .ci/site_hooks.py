"""Hooks of mkdocs: folders as entries of the navigation, and links that leave the folder of the documents.

In the repository a page links to examples and tests beside docs/. On the site examples are files to download, folders
of examples are lists of them, and everything else is named without a link.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
HIDDEN = re.compile(r"/(\.|__pycache__)")
CODE = re.compile(r"(<pre.*?</pre>)|(<code>.*?</code>)", re.DOTALL)
FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `folder/*` in the navigation by the pages of the folder, README.md first."""
    config.nav = [_expanded(entry) for entry in config.nav or ()]
    return config


def _expanded(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(below) for title, below in entry.items()}
    if isinstance(entry, list):
        return [_expanded(below) for below in entry]
    if not str(entry).endswith("/*"):
        return entry
    folder = ROOT / "docs" / entry.removesuffix("/*")
    pages = sorted(folder.glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
    return [f"{folder.name}/{page.name}" for page in pages]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the examples as files, a page for each of their folders, and the changelog."""
    for path in sorted(EXAMPLES.rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if HIDDEN.search(name):
            continue
        if path.is_dir():
            files.append(File.generated(config, f"{name}/index.md", content=_listing(path), inclusion=_unlisted()))
        else:
            files.append(File.generated(config, f"{name}.txt", content=path.read_text(encoding="utf-8")))
    files.append(File.generated(config, "changelog.md", content=_changelog()))
    return files


def _changelog() -> str:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](").replace("](examples", "](../examples")


def _unlisted() -> Any:
    from mkdocs.structure.files import InclusionLevel

    return InclusionLevel.NOT_IN_NAV


def _listing(folder: Path) -> str:
    lines = [f"# {folder.relative_to(ROOT).as_posix()}", ""]
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_file(), path.name)):
        if not HIDDEN.search(f"/{path.name}"):
            target = f"{path.name}/index.md" if path.is_dir() else f"{path.name}.txt"
            lines.append(f"* [{path.name}]({target})")
    return "\n".join(lines) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to examples lead to the site's files, and leave the text alone of links to other places."""
    here = posixpath.dirname(page.file.src_uri)

    def relinked(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join("docs", here, target))
        if path.startswith("docs/"):
            return match[0]
        if not path.startswith("examples/"):
            return text
        name = f"{path}/index.md" if (ROOT / path).is_dir() else f"{path}.txt"
        return f"[{text}]({posixpath.relpath(name, here or '.')}{anchor})"

    return LINK.sub(relinked, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep flags in running text from being broken after a hyphen."""

    def kept(match: re.Match[str]) -> str:
        return match[1] or FLAG.sub(r'<span class="flag">\g<0></span>', match[2])

    return CODE.sub(kept, html)
