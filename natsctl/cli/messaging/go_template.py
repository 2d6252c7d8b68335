"""Go templates in the extent that command lines use: actions, pipelines, variables, if, with and range.

A template is parsed once into nodes, and executed with functions and data. `TemplateError` is raised for templates that
Go refuses as well; `UsageError` names features that Go has and natsctl lacks (`define`, `template`, `block`, `break`,
`continue`, `call`, `js`), so that the result never differs from that of a tool in Go. Text is a str with surrogate
escapes, lengths and indices count bytes, as in Go. Source: Go's documentation of text/template.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from natsctl.api.errors import UsageError
from natsctl.cli.messaging.go_values import (
    BUILTINS,
    REFUSED,
    Foreign,
    TemplateError,
    is_true,
    printed,
    read_number,
    unquoted,
)

MAX_OUTPUT: Final = 64 * 1024 * 1024
"""The most characters of a result: the largest payload that any server accepts, in bytes."""
MAX_DEPTH: Final = 100
"""Levels of parentheses and blocks."""

_SPACE: Final = " \t\r\n"
_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<raw>`[^`]*`)
    |(?P<char>'(?:[^'\\\n]|\\.)+')
    |(?P<number>[+-]?(?:0[xXbBoO][0-9A-Fa-f_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?))
    |(?P<field>\.[^\W\d]\w*)
    |(?P<dot>\.)
    |(?P<variable>\$\w*)
    |(?P<word>[^\W\d]\w*)
    |(?P<mark>:=|[=|(),])""",
    re.VERBOSE,
)
_TRIMMED_END: Final = re.compile(r"[ \t\r\n]+-\}\}")
_COMMENT_END: Final = re.compile(r"\*/([ \t\r\n]-)?\}\}")
_NAMES: Final = frozenset(("word", "field", "variable"))
_AFTER_NAME: Final = re.compile(r"[ \t\r\n.,|:)(]|\}\}|$")
_BLOCKS: Final = frozenset(("if", "with", "range"))
_WORDS: Final = _BLOCKS | {"else", "end"}
_UNKNOWN_BLOCKS: Final = frozenset(("define", "template", "block", "break", "continue"))

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Token:
    """A word of an action: its kind is the name of a group of the pattern."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Operand:
    """A value in a command: a constant, a field of the data, a variable, a function or a pipeline in parentheses."""

    kind: str
    value: Any
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands, each of which gets the value of the one before as its last argument; `names` are set to the result."""

    commands: tuple[tuple[Operand, ...], ...]
    names: tuple[str, ...] = ()
    declares: bool = False


@dataclass(slots=True)
class Block:
    """An if, with or range, and what is done otherwise."""

    word: str
    pipeline: Pipeline
    body: list[Node] = field(default_factory=list)
    otherwise: list[Node] = field(default_factory=list)


Node = str | Pipeline | Block


def expand(
    text: str,
    functions: Mapping[str, Function],
    data: Mapping[str, Any] | None = None,
    mark: Callable[[str], str] | None = None,
) -> str:
    """Return the executed template `text`; `mark` is applied to foreign text that it writes.

    Raises TemplateError, and UsageError for unsupported features.
    """
    if "{{" not in text:
        return text
    nodes = parse(text, frozenset(functions))
    run = _Run({**BUILTINS, **functions}, data or {}, mark)
    run.nodes(nodes, run.data, {"$": run.data})
    return "".join(run.out)


@functools.lru_cache(maxsize=64)
def parse(text: str, functions: frozenset[str]) -> list[Node]:
    """Return the nodes of a template. Raises TemplateError, and UsageError for unsupported features."""
    return _Parser(text, functions | BUILTINS.keys()).template()


def _pieces(text: str) -> list[str | list[Token]]:
    """Return the texts, and the actions as tokens, of a template; trimmed by `{{-` and `-}}`."""
    pieces: list[str | list[Token]] = []
    at, trim = 0, False
    while True:
        start = text.find("{{", at)
        literal = text[at:] if start < 0 else text[at:start]
        literal = literal.lstrip(_SPACE) if trim else literal
        if start < 0:
            pieces.append(literal)
            return pieces
        at = start + 2
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] in tuple(_SPACE):
            literal, at = literal.rstrip(_SPACE), at + 2
        pieces.append(literal)
        tokens, at, trim = _action(text, at)
        if tokens is not None:
            pieces.append(tokens)


def _action(text: str, at: int) -> tuple[list[Token] | None, int, bool]:
    """Return the tokens of the action at a place, None for a comment; the place behind it, and whether it trims."""
    if text.startswith("/*", at):
        end = text.find("*/", at)
        if end < 0 or (found := _COMMENT_END.match(text, end)) is None:
            raise TemplateError("unclosed comment" if end < 0 else "comment ends before closing delimiter")
        return None, found.end(), bool(found[1])
    tokens: list[Token] = []
    while True:
        if (found := _TRIMMED_END.match(text, at)) is not None:
            return tokens, found.end(), True
        if text.startswith("}}", at):
            return tokens, at + 2, False
        found = _TOKEN.match(text, at)
        if found is None or (found.lastgroup in _NAMES and _AFTER_NAME.match(text, found.end()) is None):
            line = text.count("\n", 0, at) + 1
            at = found.end() if found is not None else at
            raise TemplateError(f"line {line}: {f'unexpected {text[at]!r}' if at < len(text) else 'unclosed action'}")
        tokens.append(Token(str(found.lastgroup), found[0]))
        at = found.end()


class _Parser:
    """A parser of the pieces of a template into nodes."""

    def __init__(self, text: str, functions: frozenset[str]) -> None:
        self._pieces = _pieces(text)
        self._functions = functions
        self._at = self._depth = 0
        self._tokens: list[Token] = []
        self._variables = ["$"]

    def template(self) -> list[Node]:
        nodes, ended = self._nodes()
        if ended is not None:
            raise TemplateError(f"unexpected {{{{{ended[0].text}}}}}")
        return nodes

    def _nodes(self) -> tuple[list[Node], list[Token] | None]:
        """Return nodes up to the next `else` or `end`, and the words of that action."""
        nodes: list[Node] = []
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._at += 1
            if isinstance(piece, str):
                if piece:
                    nodes.append(piece)
                continue
            tokens = _stripped(piece)
            first = tokens[0].text if tokens and tokens[0].kind == "word" else ""
            if first in _UNKNOWN_BLOCKS:
                raise UsageError(f"{{{{{first}}}}} is not supported in templates here")
            if first in ("else", "end"):
                return nodes, tokens
            nodes.append(self._block(tokens) if first in _BLOCKS else self._pipeline(tokens, 1))
        return nodes, None

    def _block(self, tokens: list[Token]) -> Block:
        if (word := tokens[0].text) not in _BLOCKS:
            raise TemplateError(f"unexpected {word!r} in {{{{else}}}}")
        self._deeper()
        known = len(self._variables)
        block = Block(word, self._pipeline(_stripped(tokens[1:]), 2 if word == "range" else 1))
        block.body, ended = self._nodes()
        if ended is not None and ended[0].text == "else":
            rest = _stripped(ended[1:])
            if rest:
                if rest[0].text != word or word == "range":
                    raise TemplateError(f"unexpected {rest[0].text!r} in {{{{else}}}}")
                block.otherwise = [self._block(rest)]
                ended = [Token("word", "end")]
            else:
                block.otherwise, ended = self._nodes()
        if ended is None or ended[0].text != "end" or len(ended) > 1:
            raise TemplateError(f"{{{{{word}}}}} has no {{{{end}}}}")
        del self._variables[known:]
        self._depth -= 1
        return block

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TemplateError(f"more than {MAX_DEPTH} levels")

    def _pipeline(self, tokens: list[Token], most_names: int) -> Pipeline:
        self._tokens = [*tokens]
        names, declares = self._names(most_names)
        commands = self._commands("")
        if declares:
            self._variables += names
        return Pipeline(commands, names, declares)

    def _names(self, most: int) -> tuple[tuple[str, ...], bool]:
        """Return the variables that a pipeline sets, and whether it declares them."""
        texts = [token.text for token in self._tokens if token.kind != "space"]
        mark = next((at for at, text in enumerate(texts[: 2 * most]) if text in (":=", "=")), None)
        if mark is None:
            return (), False
        names, commas = texts[:mark:2], texts[1:mark:2]
        if any(not name.startswith("$") for name in names) or any(comma != "," for comma in commas) or mark % 2 == 0:
            raise TemplateError(f"unexpected {texts[mark]!r}")
        if texts[mark] == "=" and (unknown := [name for name in names if name not in self._variables]):
            raise TemplateError(f"undefined variable {unknown[0]!r}")
        while self._tokens.pop(0).text not in (":=", "="):
            pass
        return tuple(names), texts[mark] == ":="

    def _commands(self, end: str) -> tuple[tuple[Operand, ...], ...]:
        """Return the commands up to the token `end`, or to the end of the action."""
        commands: list[tuple[Operand, ...]] = []
        while True:
            while self._tokens and self._tokens[0].kind == "space":
                self._tokens.pop(0)
            if commands and (self._tokens[0].text if self._tokens else "") == end:
                del self._tokens[:1]  # Go accepts a pipe with nothing behind it
                return tuple(commands)
            command = self._command()
            if commands and command[0].kind not in ("word", "field") and not command[0].fields:
                raise TemplateError(f"a pipeline goes to functions, not to {command[0].value!r}")
            commands.append(command)
            closing = self._tokens.pop(0).text if self._tokens else ""
            if closing == end:
                return tuple(commands)
            if closing != "|":
                raise TemplateError(f"unexpected {closing!r}" if closing else "unclosed left paren")

    def _command(self) -> tuple[Operand, ...]:
        operands: list[Operand] = []
        while True:
            spaced = not operands
            while self._tokens and self._tokens[0].kind == "space":
                self._tokens.pop(0)
                spaced = True
            if not self._tokens or self._tokens[0].text in ("|", ")"):
                break
            if not spaced:
                raise TemplateError(f"unexpected {self._tokens[0].text!r} in operand")
            operands.append(self._operand(self._tokens.pop(0)))
        if not operands:
            raise TemplateError("missing value for command")
        if operands[0].kind == "constant" and operands[0].value is None:
            raise TemplateError("nil is not a command")
        return tuple(operands)

    def _operand(self, token: Token) -> Operand:
        kind, value = self._term(token)
        fields = []
        while self._tokens and self._tokens[0].kind == "field":
            fields.append(self._tokens.pop(0).text[1:])
        if fields and kind == "constant":
            raise TemplateError(f"unexpected .{fields[0]} after term {token.text!r}")
        return Operand(kind, value, tuple(fields))

    def _term(self, token: Token) -> tuple[str, Any]:
        text = token.text
        match token.kind:
            case "word" if text in ("true", "false"):
                return "constant", text == "true"
            case "word" if text == "nil":
                return "constant", None
            case "word" if text in REFUSED:
                raise UsageError(f"the function {text} is not supported in templates here")
            case "word" if text not in self._functions or text in _WORDS:
                raise TemplateError(f'function "{text}" not defined')
            case "variable" if text not in self._variables:
                raise TemplateError(f"undefined variable {text!r}")
            case "word" | "variable" | "dot":
                return token.kind, text
            case "field":
                return "field", text[1:]
            case "string" | "char":
                return "constant", unquoted(text)
            case "raw":
                return "constant", text[1:-1].replace("\r", "")
            case "number":
                return "constant", read_number(text)
        if text != "(":
            raise TemplateError(f"unexpected {text!r}")
        self._deeper()
        commands = self._commands(")")
        self._depth -= 1
        return "pipeline", Pipeline(commands)


def _stripped(tokens: Sequence[Token]) -> list[Token]:
    """Return tokens without spaces at either end."""
    kept = list(tokens)
    while kept and kept[0].kind == "space":
        del kept[0]
    while kept and kept[-1].kind == "space":
        del kept[-1]
    return kept


class _Run:
    """One execution of a template."""

    def __init__(
        self, functions: Mapping[str, Function], data: Mapping[str, Any], mark: Callable[[str], str] | None
    ) -> None:
        self._mark = mark
        self.functions = functions
        self.data = data
        self.out: list[str] = []
        self._length = 0

    def nodes(self, nodes: Sequence[Node], dot: Any, variables: _Scope | dict[str, Any]) -> None:
        """Execute nodes; variables that they declare end with them, others keep their new values."""
        scope = _Scope(variables)
        for node in nodes:
            if isinstance(node, str):
                self._write(node)
            elif isinstance(node, Pipeline):
                value = self._value(node, dot, scope)
                if not node.names:
                    self._write(printed(value))
            else:
                self._block(node, dot, _Scope(scope))

    def _write(self, text: str) -> None:
        self._length += len(text)
        if self._length > MAX_OUTPUT:
            raise TemplateError(f"more than {MAX_OUTPUT} characters")
        self.out.append(self._mark(text) if self._mark is not None and isinstance(text, Foreign) else text)

    def _block(self, block: Block, dot: Any, scope: _Scope) -> None:
        if block.word == "range":
            self._range(block, dot, scope)
            return
        value = self._value(block.pipeline, dot, scope)
        body = block.body if is_true(value) else block.otherwise
        self.nodes(body, value if block.word == "with" and body is block.body else dot, scope)

    def _range(self, block: Block, dot: Any, scope: _Scope) -> None:
        items = self._value(Pipeline(block.pipeline.commands), dot, scope)
        names = block.pipeline.names
        pairs = _pairs_of(items)
        if isinstance(items, int) and len(names) > 1:
            raise TemplateError(f"can't use {items} to iterate over more than one variable")
        if not pairs:
            self.nodes(block.otherwise, dot, scope)
        for key, value in pairs:
            inner = _Scope(scope)
            for name, one in zip(names, (value,) if len(names) == 1 else (key, value), strict=False):
                inner.declare(name, one) if block.pipeline.declares else scope.assign(name, one)
            self._write("")
            self._length += 1  # bodies without output end as well
            if self._length > MAX_OUTPUT:
                raise TemplateError(f"more than {MAX_OUTPUT} rounds")
            self.nodes(block.body, value, inner)

    def _value(self, pipeline: Pipeline, dot: Any, scope: _Scope) -> Any:
        piped: list[Any] = []
        for command in pipeline.commands:
            piped = [self._command(command, piped, dot, scope)]
        for name in pipeline.names:
            (scope.declare if pipeline.declares else scope.assign)(name, piped[0])
        return piped[0]

    def _command(self, command: Sequence[Operand], piped: list[Any], dot: Any, scope: _Scope) -> Any:
        first, *rest = command
        if first.kind == "word" and not first.fields:
            return self._call(first.value, rest, piped, dot, scope)
        if rest or piped:
            raise TemplateError(f"can't give argument to non-function {first.value}")
        return self._operand(first, dot, scope)

    def _call(self, name: str, operands: Sequence[Operand], piped: list[Any], dot: Any, scope: _Scope) -> Any:
        if name in ("and", "or"):
            return self._shortened(name, operands, piped, dot, scope)
        given = [*(self._operand(one, dot, scope) for one in operands), *piped]
        try:
            value = self.functions[name](*given)
        except TypeError as fault:
            raise TemplateError(f"wrong arguments for {name}") from fault
        return Foreign(value) if isinstance(value, str) and any(isinstance(one, Foreign) for one in given) else value

    def _shortened(self, name: str, operands: Sequence[Operand], piped: list[Any], dot: Any, scope: _Scope) -> Any:
        """Return the first argument that decides `and` or `or`, else the last."""
        if not operands and not piped:
            raise TemplateError(f"wrong number of args for {name}: want at least 1 got 0")
        value: Any = None
        for one in operands:
            value = self._operand(one, dot, scope)
            if is_true(value) is (name == "or"):
                return value
        return piped[0] if piped else value

    def _operand(self, operand: Operand, dot: Any, scope: _Scope) -> Any:
        match operand.kind:
            case "constant":
                value = operand.value
            case "word":
                value = self._call(operand.value, (), [], dot, scope)
            case "variable":
                value = scope.get(operand.value)
            case "dot":
                value = dot
            case "field":
                value = _field_of(dot, operand.value)
            case _:
                value = self._value(operand.value, dot, scope)
        for name in operand.fields:
            value = _field_of(value, name)
        return value


def _pairs_of(value: Any) -> Sequence[tuple[Any, Any]]:
    """Return the pairs of key and value to iterate over: of a number those below it; raises TemplateError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _Numbers(max(value, 0))
    if isinstance(value, list):
        return list(enumerate(value))
    if isinstance(value, Mapping):
        return sorted(value.items())
    if value is None:
        return []
    raise TemplateError(f"range can't iterate over {printed(value)}")


class _Numbers(Sequence[tuple[int, int]]):
    """The numbers below a limit, each twice; none is kept in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def __len__(self) -> int:
        return self._limit

    def __getitem__(self, at: Any) -> Any:
        if at >= self._limit:
            raise IndexError
        return at, at


class _Scope:
    """Variables of a block; those of the blocks around it are seen and can be set."""

    def __init__(self, around: _Scope | dict[str, Any]) -> None:
        self._around = around
        self._own: dict[str, Any] = {}

    def declare(self, name: str, value: Any) -> None:
        """Declare a variable of this block."""
        self._own[name] = value

    def assign(self, name: str, value: Any) -> None:
        """Assign to the variable in the block of its declaration."""
        if name in self._own or isinstance(self._around, dict):
            self._own[name] = value
        else:
            self._around.assign(name, value)

    def get(self, name: str) -> Any:
        """Return the value of a variable."""
        if name in self._own:
            return self._own[name]
        return self._around[name] if isinstance(self._around, dict) else self._around.get(name)


def _field_of(value: Any, name: str) -> Any:
    """Return a field of the data: a value, or the result of its function."""
    if not isinstance(value, Mapping) or name not in value:
        raise TemplateError(f"can't evaluate field {name}")
    found = value[name]
    return found() if callable(found) else found
