"""Every path, module, decision and anchor that code and documents name exists in the repository."""

import functools
import os
import re
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
TEXTS = (".py", ".md", ".toml", ".yml", ".yaml", ".conf", ".sh", ".ci/run")
TOP = "natsctl|tests|docs|bench|examples|completions"
PATH = re.compile(
    rf"(?<![\w/.@<~$-])(?:{TOP})/(?:[\w*-]+/)*(?:[\w*-]+\.(?:py|md|json|txt|yaml|yml|conf|svg)\b|[\w*-]+/)"
)
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")
ANCHOR = re.compile(r"(docs/[\w/-]+\.md)#([\w-]+)")
RUN = re.compile(rf"python -m ((?:{TOP})(?:\.\w+)*)\b")
DECISION = re.compile(r"(?:\bADR |docs/adr/)(\d{4})\b")
DOCUMENT = re.compile(r"(?<![\w/.<{-])[\w-]+\.md\b")
LINK = re.compile(r"(?<!!)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *(?:\{ *#([\w-]+) *\})?$", re.MULTILINE)
EXPLICIT = re.compile(r"<a (?:id|name)=\"([\w-]+)\"")
MODULE = re.compile(r"(?<![\w/.@<~$-])(?:[a-z_]+/)*[a-z]\w*\.py\b")
OTHERS = frozenset({"nats.py", "transformations/by_subject.py", "version.py"})
"""A repository of that name, a file that `pipeline init` writes, and one of PySpark."""
SKIPPED = ("__pycache__", "node_modules", "build", "dist", ".bin")
"""Folders of what is installed and built."""


@functools.cache
def files() -> tuple[str, ...]:
    """Return the paths of the repository's files, without what is installed, built or hidden."""
    found = [".ci/run"]
    for folder, folders, names in os.walk(ROOT):
        below = Path(folder).relative_to(ROOT)
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED]
        folders[:] = [name for name in folders if not (Path(folder) / name / "pyvenv.cfg").exists()]
        found += [(below / name).as_posix() for name in names]
    return tuple(sorted(found))


@functools.cache
def known() -> frozenset[str]:
    return frozenset(files()) | {str(parent) for path in files() for parent in PurePosixPath(path).parents}


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page, as GitHub and the site make them of its headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found: list[str] = EXPLICIT.findall(text)
    for title, given in HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = given or re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return frozenset(found)


@functools.cache
def texts() -> tuple[tuple[str, str], ...]:
    citing = (path for path in files() if path.endswith(TEXTS) and path != "tests/docs/test_citations.py")
    return tuple((path, (ROOT / path).read_text(encoding="utf-8", errors="replace")) for path in citing)


def exists(cited: str) -> bool:
    """Report whether a path, possibly with `*`, names something in the repository."""
    cited = cited.rstrip("/")
    return cited in known() or ("*" in cited and any(fnmatch(path, cited) for path in known()))


def test_every_path_that_is_cited_exists() -> None:
    missing = [f"{path}: {cited}" for path, text in texts() for cited in PATH.findall(text) if not exists(cited)]
    for path, text in texts():
        for module in RUN.findall(text) if "python -m " in text else ():
            name = module.replace(".", "/")
            if not {f"{name}.py", f"{name}/__main__.py"} & known():
                missing.append(f"{path}: python -m {module}")
    assert missing == []


def test_every_test_that_is_named_exists_and_every_row_of_the_threat_model_names_one() -> None:
    named = {(path, cited) for path, text in texts() if path.endswith(".md") for cited in TEST.findall(text)}
    missing = {
        f"{path}: {file}::{name}"
        for path, (file, name) in named
        if not (ROOT / file).is_file() or not re.search(rf"def {name}\b", (ROOT / file).read_text(encoding="utf-8"))
    }
    _, _, model = (ROOT / "docs" / "SECURITY.md").read_text(encoding="utf-8").partition("## Threat model")
    rows = re.findall(r"^\| (\d+) \|", model, re.MULTILINE)
    held = [number for number, line in re.findall(r"^(\d+)\. (.*)$", model, re.MULTILINE) if TEST.search(line)]
    assert missing == set() and rows == held and rows


def test_every_decision_and_document_that_is_named_exists() -> None:
    names = {PurePosixPath(path).name for path in files()}
    numbers = {Path(path).name[:4] for path in files() if path.startswith("docs/adr/")}
    missing = []
    for path, text in texts():
        missing += [f"{path}: {number}" for number in DECISION.findall(text) if number not in numbers]
        if path.startswith("natsctl/") and path.endswith(".py") and ".md" in text:
            missing += [f"{path}: {cited}" for cited in DOCUMENT.findall(text) if cited not in names]
    assert missing == []


def test_every_module_that_is_named_without_its_whole_path_exists() -> None:
    ends = {
        "/".join(path.split("/")[start:]) for path in files() if path.endswith(".py") for start in range(9)
    } | OTHERS
    missing = [
        f"{path}: {cited}"
        for path, text in texts()
        if path.endswith(".md") or path.startswith("natsctl/")
        for cited in (MODULE.findall(text) if ".py" in text else ())
        if cited not in ends
    ]
    assert missing == []


def test_every_anchor_that_code_names_exists() -> None:
    missing = [
        f"{path}: {page}#{anchor}"
        for path, text in texts()
        if ".md#" in text
        for page, anchor in ANCHOR.findall(text)
        if not (ROOT / page).exists() or anchor not in anchors(ROOT / page)
    ]
    assert missing == []


def test_every_link_of_a_page_leads_somewhere() -> None:
    broken = []
    paths = (path for path in files() if path.endswith(".md"))
    for page in (ROOT / path for path in paths if path.startswith(("docs/", "examples/")) or "/" not in path):
        for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            target, _, anchor = link.partition("#")
            path = page.parent / target if target else page
            if re.match(r"[a-z]+:", target):
                continue
            if not path.exists() or (anchor and anchor not in anchors(path.resolve())):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_every_decision_has_its_number_a_status_and_a_date() -> None:
    form = re.compile(r"# (\d{4}): .+\n\n\| status \| date \|\n\| --- \| --- \|\n\| .+ \| \d{4}-\d\d-\d\d \|\n")
    pages = sorted((ROOT / "docs" / "adr").glob("0*.md"))
    heads = [form.match(page.read_text(encoding="utf-8")) for page in pages]
    assert [page.name for page, head in zip(pages, heads, strict=True) if not head or head[1] != page.name[:4]] == []
    assert len({page.name[:4] for page in pages}) == len(pages)
