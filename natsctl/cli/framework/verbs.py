"""Tables of commands: each noun has a table of verbs, and only the module of the verb that runs is imported.

A row names its function, or the table of a group, by a path below natsctl.cli: `stream.create.add` is the function
`add` of natsctl/cli/stream/create.py, `server.report.VERBS` a table. A noun of one module refers to its functions.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any


class Verb:
    """One row of a noun's `VERBS`: its name and aliases, and its function or the table of its verbs.

    `answer` names the type of what `-j` prints: a type of natsctl.api by its name, or `module:Type` for one of ours
    (below natsctl.cli, or beginning with its room). `[]` after it means an array, `*` one document per line, and `|`
    separates alternatives. `examples` are whole command lines for its help page. `default` is the command that runs if
    none of the verbs of a group is given.
    """

    __slots__ = ("answer", "command", "default", "examples", "help", "name", "names", "words")

    def __init__(
        self,
        names: str,
        command: str | Callable[..., Any] | Sequence[Verb],
        help: str = "",
        answer: str = "",
        examples: tuple[str, ...] = (),
        default: str = "",
    ) -> None:
        self.names = names
        self.words = tuple(names.split(", "))
        self.name = self.words[0]
        self.command = command
        self.help = help
        self.answer = answer
        self.examples = examples
        self.default = default

    @property
    def is_group(self) -> bool:
        return self.command.endswith("VERBS") if isinstance(self.command, str) else isinstance(self.command, tuple)

    @property
    def verbs(self) -> Sequence[Verb]:
        """Return the table of the verbs below it; an empty one for a command."""
        return _loaded(self.command) if self.is_group else ()

    @property
    def function(self) -> Callable[..., Any] | None:
        """Return the function that runs; None for a group that needs a verb."""
        found: Callable[..., Any] | None = _loaded(self.default if self.is_group else self.command)
        return found

    @property
    def summary(self) -> str:
        """Return its help, else the first sentence of its function's docstring, without the full stop."""
        if self.help:
            return self.help
        first = (self.function.__doc__ or "").split("\n\n")[0]
        return " ".join(first.split()).removesuffix(".")

    def below(self) -> Iterator[tuple[str, Verb]]:
        for verb in self.verbs:
            yield verb.name, verb
            yield from ((f"{verb.name} {path}", found) for path, found in verb.below())


def verb(names: str, command: str | Callable[..., Any], answer: str = "", *examples: str) -> Verb:
    """Return the row of a command, with the answer and examples that `Verb` describes."""
    return Verb(names, command, answer=answer, examples=examples)


def _loaded(command: Any) -> Any:
    if not command or not isinstance(command, str):
        return command or None
    module, _, name = command.rpartition(".")
    # importlib.import_module does the same, and loads two modules that short commands do not need.
    return getattr(__import__(f"natsctl.cli.{module}", fromlist=[name]), name)
