"""Figures of the code's cut: `python -m bench.house [--source CLONE]`.

Modules, packages, lines, names that are used twice, import circles and the openings of docstrings, each with the limit
of docs/adr or design where there is one. `--source` reads another clone, for a comparison.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Final

SMALL_LINES: Final = 80
LARGE_LINES: Final = 700
FUNCTION_LINES: Final = 60
CIRCLE_FILES: Final = 6
"""Largest circle of imports, those for types and those inside functions included."""
RELATIVE: Final = re.compile(r"(What|Which|Who|Whoever|Whatever|How|Where|When|Whether)\b")
TELL: Final = re.compile(r"\b(tell|tells|told|telling)\b", re.IGNORECASE)


class Code:
    """The Python files below a folder, parsed."""

    def __init__(self, root: Path, folder: str) -> None:
        """Read and parse every module below `root/folder`."""
        self.texts = {p.relative_to(root): p.read_text() for p in sorted((root / folder).rglob("*.py"))}
        self.trees = {path: ast.parse(text) for path, text in self.texts.items()}

    def modules(self) -> list[Path]:
        """Return the modules that are not a package's `__init__`."""
        return [path for path in self.texts if path.name != "__init__.py"]

    def lines(self, path: Path) -> int:
        """Return how many lines a module has."""
        return self.texts[path].count("\n")

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Yield every function and method."""
        for tree in self.trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield node

    def docstrings(self) -> Iterator[str]:
        """Yield the first line of every docstring."""
        for tree in self.trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    text = ast.get_docstring(node)
                    if text:
                        yield text.splitlines()[0]

    def imports(self) -> dict[Path, set[Path]]:
        """Return the modules that each module imports, for types and inside functions as well."""
        named = {_dotted(path): path for path in self.texts}
        graph: dict[Path, set[Path]] = {}
        for path, tree in self.trees.items():
            found = {named[name] for name in _imported(tree, named) if name in named}
            graph[path] = found - {path}
        return graph


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(tree: ast.Module, named: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in named else node.module


def circles(graph: dict[Path, set[Path]]) -> list[list[Path]]:
    """Return the strongly connected parts of more than one module, the largest first (Tarjan, without recursion)."""
    index: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    held: set[Path] = set()
    found: list[list[Path]] = []
    for root in graph:
        if root in index:
            continue
        work: list[tuple[Path, Iterator[Path]]] = [(root, iter(graph[root]))]
        while work:
            node, following = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                held.add(node)
            for after in following:
                if after not in index:
                    work.append((after, iter(graph[after])))
                    break
                if after in held:
                    low[node] = min(low[node], index[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = stack[stack.index(node) :]
                    del stack[stack.index(node) :]
                    held.difference_update(part)
                    if len(part) > 1:
                        found.append(sorted(part))
    return sorted(found, key=len, reverse=True)


def figures(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each figure of the package in a clone by name."""
    code = Code(root, "natsctl")
    modules = code.modules()
    sizes = [code.lines(path) for path in modules]
    yield "modules", f"{len(code.texts)} ({len(modules)} without __init__)"
    yield "packages", str(sum(path.name == "__init__.py" for path in code.texts))
    yield "lines", f"{sum(map(code.lines, code.texts)):,}"
    yield "lines of a module, median / largest", f"{median(sizes):.0f} / {max(sizes)}"
    yield (
        f"modules below {SMALL_LINES} lines / above {LARGE_LINES}",
        (f"{sum(size < SMALL_LINES for size in sizes)} / {sum(size > LARGE_LINES for size in sizes)}"),
    )
    yield "deepest package below natsctl", str(max(len(path.parts) - 2 for path in code.texts))
    names = Counter((path.parts[1], path.stem) for path in modules)
    yield "module names used twice in a room", str(sum(count > 1 for count in names.values()))
    large = [len(part) for part in circles(code.imports())]
    yield f"import circles above {CIRCLE_FILES} files", ", ".join(str(n) for n in large if n > CIRCLE_FILES) or "none"
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in code.functions()]
    yield (
        "lines of a function, median / p90 / longest",
        (f"{median(lengths):.0f} / {quantiles(lengths, n=10)[8]:.0f} / {max(lengths)}"),
    )
    yield f"functions above {FUNCTION_LINES} lines", str(sum(length > FUNCTION_LINES for length in lengths))
    first = list(code.docstrings())
    yield "docstrings that begin with a bare relative clause", str(sum(bool(RELATIVE.match(line)) for line in first))
    yield "lines with tell or told", str(sum(len(TELL.findall(text)) for text in code.texts.values()))
    yield "lines with `the reference`", str(sum(text.count("the reference") for text in code.texts.values()))
    tests = Code(root, "tests")
    yield "lines of tests", f"{sum(map(tests.lines, tests.texts)):,}"
    yield "words of README", str(len((root / "README.md").read_text().split()))
    for room in sorted({path.parts[1] for path in modules if len(path.parts) > 2}):
        own = [path for path in modules if path.parts[1] == room]
        yield f"  {room}", f"{len(own)} modules, {sum(map(code.lines, own)):,} lines"


def main() -> None:
    """Print the figures of this clone, or of another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=Path(__file__).resolve().parents[1])
    print("\n".join(f"{name:<52} {value}" for name, value in figures(parser.parse_args().source)))


if __name__ == "__main__":
    main()
