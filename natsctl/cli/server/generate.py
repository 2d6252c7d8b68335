"""Configurations of nats-server from bundles of templates: `natsctl server generate`.

A bundle is a folder, or a zip file of one, in the format of the `nats` tool:

    bundle.yaml     description, pre_scaffold and post_scaffold (templates of text to show), requires.operator
    form.yaml       the questions: name, description, properties
    scaffold.json   source_directory
    scaffold/       templates of the files; those below a folder that begins with `_` are parts for `render`

Answers come from --set, from a person at a terminal, or are the defaults. All files are rendered before any is written.
"""

from __future__ import annotations

import ast
import base64
import io
import ipaddress
import json as json_module
import math
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from natsctl.api.errors import NatsctlError, StorageError, UnreachableError, UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, session_of
from natsctl.cli.framework.parameters import Argument, Context, Option
from natsctl.cli.messaging.go_values import TemplateError, printed
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.cli.framework.session import Session

BUNDLED: Final = Path(__file__).with_name("scaffolds")
MAX_BUNDLE_BYTES: Final = 16 * 1024 * 1024
"""Size limit of a bundle, of its zip file and of all its files together."""
MAX_FILES: Final = 1000
OLDER_NAMES: Final = {"ngsleafnodeconfig": "leafnode", "natsbuilder": "cluster"}
"""Names of the tool's own bundles, and those here that serve the same purpose."""
_UTF8: Final = "utf-8"
_BYTES: Final = "surrogateescape"


class Property(msgspec.Struct):
    """One question of a form; with properties of its own it is an object, or an array of them."""

    name: str
    description: str = ""
    help: str = ""
    type: str = ""
    default: Any = ""
    required: bool = False
    conditional: str = ""
    validation: str = ""
    empty: str = ""
    enum: list[str] = []
    properties: list[Property] = []


class Form(msgspec.Struct):
    """The questions of a bundle."""

    name: str = ""
    description: str = ""
    properties: list[Property] = []


class Requires(msgspec.Struct):
    """Conditions of a bundle."""

    operator: bool = False


class Bundle(msgspec.Struct):
    """A bundle: its facts, its form and its files by path."""

    description: str
    pre_scaffold: str = ""
    post_scaffold: str = ""
    contact: str = ""
    source: str = ""
    version: str = ""
    requires: Requires = msgspec.field(default_factory=Requires)
    form: Form | None = None
    files: dict[str, str] = {}


class Generated(msgspec.Struct):
    """A generated configuration: its folder, the files in it, and the text about them."""

    target: str
    source: str
    files: list[str]
    notes: str = ""


class BundleError(NatsctlError):
    """A bundle that cannot be read or rendered."""


def generate(
    ctx: Context,
    target: Annotated[str, Argument(metavar="TARGET", help="the folder to write, which must not exist")],
    source: Annotated[
        str | None,
        Option("--source", metavar="SOURCE", help="a bundle: a name, a folder, a zip file or a URL of one [server]"),
    ] = None,
    given: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="the answer to a question of the bundle, such as jetstream=true"),
    ] = None,
    json: Json = False,
) -> None:
    """Generate a configuration of nats-server from templates and a few answers.

    Included are server (a single server), cluster (servers for Docker Compose), leafnode and operator (for `natsctl
    auth`). Without a terminal the answers that are not given are the defaults.
    """
    session, place = session_of(ctx), Path(target)
    if place.exists():
        raise UsageError(f"{target} exists already", hint="name a folder that does not exist")
    chosen = source or _picked(session)
    bundle = load_bundle(chosen)
    answers = Answers(bundle.form or Form(), read_answers(given or ()), session if session.interactive else None)
    data: dict[str, Any] = {**answers.values(), "_target": target, "_source": chosen}
    if bundle.requires.operator:
        data["Requirements"] = {"Operator": _operator_values(session)}
    facts = {"Description": "description", "Contact": "contact", "Source": "source", "Version": "version"}
    data |= {key: getattr(bundle, name) for key, name in facts.items() if key not in data}
    rendering = Rendering(bundle, data)
    before = rendering.text(bundle.pre_scaffold)
    files = rendering.files()
    notes = rendering.text(bundle.post_scaffold)
    if not session.dry_run:
        write_files(place, files)
    found = Generated(target, chosen, sorted(files), "\n".join(filter(None, (before, notes))))
    if json:
        output.emit_json(msgspec.to_builtins(found))
        return
    for path in found.files:
        output.emit(f"{'Would create' if session.dry_run else 'Created'} {safe(str(place / path))}")
    if found.notes:
        output.emit(f"\n{safe(found.notes, block=True)}")


def _picked(session: Session) -> str:
    if not session.interactive:
        return "server"
    from natsctl.cli.framework.prompts import Question, prompt

    named = [(one, load_bundle(one).description) for one in bundled_names()]
    choices = tuple((f"{name}: {description}", name) for name, description in named)
    return str(prompt(Question("Select a template", "Given as --source", choices=choices)))


def _operator_values(session: Session) -> dict[str, Any]:
    """Return the facts of an operator in the words of templates."""
    from natsctl.cli.auth.selection import picked_operator, store

    operator = picked_operator(session, store(), None)
    found: dict[str, Any] = {"Name": operator.name, "Subject": operator.subject, "JWT": operator.token}
    if (account := operator.system_account) is not None:
        found["SystemAccount"] = {"Name": account.name, "Subject": account.subject, "JWT": account.token}
    return found


def bundled_names() -> list[str]:
    """Return the names of the bundles in this package."""
    return sorted(path.name for path in BUNDLED.iterdir() if path.is_dir())


# -- reading


def load_bundle(source: str) -> Bundle:
    """Return a bundle by name, folder, zip file or URL; raises UsageError, BundleError, UnreachableError."""
    scheme, colon, rest = source.partition("://")
    if colon and scheme == "fs":
        source = rest.strip("/")
        source = OLDER_NAMES.get(source, source)
        if source not in bundled_names():
            raise _unknown(source)
    if source in bundled_names():
        return bundle_of(_folder_files(BUNDLED / source), source)
    if colon and scheme in ("http", "https"):
        return bundle_of(_zip_files(_fetched(source), source), source)
    if colon and scheme != "fs":
        raise UsageError(f"--source: a URL begins with http:// or https://, not {scheme}://")
    path = Path(source)
    if path.is_dir():
        return bundle_of(_folder_files(path), source)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BUNDLE_BYTES + 1)
    except FileNotFoundError:
        raise _unknown(source) from None
    except OSError as failure:
        raise UsageError(f"--source: {source}: {failure.strerror or failure}") from failure
    return bundle_of(_zip_files(content, source), source)


def _unknown(source: str) -> UsageError:
    from natsctl.cli.framework.resolve import did_you_mean

    names = bundled_names()
    hint = did_you_mean(source, names) or f"included are {', '.join(names)}"
    return UsageError(f"--source: there is no bundle, folder or file {source!r}", hint=hint)


def _fetched(url: str) -> bytes:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # nosec B310 # http and https alone, as checked above
            return bytes(answer.read(MAX_BUNDLE_BYTES + 1))
    except (urllib.error.URLError, OSError, ValueError) as failure:
        raise UnreachableError(f"{url}: {getattr(failure, 'reason', failure)}") from failure


def _folder_files(folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    size = 0
    try:
        for path in sorted(folder.rglob("*")):
            if not path.is_file():
                continue
            size += path.stat().st_size
            if size > MAX_BUNDLE_BYTES or len(found) >= MAX_FILES:
                raise BundleError(f"{folder}: more than {MAX_FILES} files or {MAX_BUNDLE_BYTES >> 20} MiB")
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    except OSError as failure:
        raise UsageError(f"--source: {failure.filename or folder}: {failure.strerror or failure}") from failure
    return found


def _zip_files(content: bytes, source: str) -> dict[str, bytes]:
    if len(content) > MAX_BUNDLE_BYTES:
        raise BundleError(f"{source}: larger than {MAX_BUNDLE_BYTES >> 20} MiB")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [one for one in archive.infolist() if not one.is_dir()]
            if len(entries) > MAX_FILES or sum(one.file_size for one in entries) > MAX_BUNDLE_BYTES:
                raise BundleError(f"{source}: more than {MAX_FILES} files or {MAX_BUNDLE_BYTES >> 20} MiB unpacked")
            for one in entries:
                check_path(one.filename, source)
            return {one.filename: archive.read(one) for one in entries}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as failure:
        raise BundleError(f"{source}: not a zip file of a bundle: {failure}") from failure


def check_path(name: str, origin: str) -> None:
    """Raise BundleError for a path that may lead out of its folder."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or ":" in name or "\0" in name:
        raise BundleError(f"{origin}: unsafe path {name!r}")


def bundle_of(files: Mapping[str, bytes], origin: str) -> Bundle:
    """Return the bundle of these files; raises BundleError."""
    for name in ("bundle.yaml", "scaffold.json"):
        if name not in files:
            raise BundleError(f"{origin}: no bundle, as it has no {name}")
    facts: Bundle = _yaml(files["bundle.yaml"], f"{origin}: bundle.yaml", Bundle)
    form = _yaml(files["form.yaml"], f"{origin}: form.yaml", Form) if "form.yaml" in files else None
    try:
        folder = json_module.loads(files["scaffold.json"] or b"{}").get("source_directory") or "scaffold"
    except (ValueError, AttributeError) as failure:
        raise BundleError(f"{origin}: scaffold.json: {failure}") from failure
    start = f"{str(folder).strip('/')}/"
    facts.files = {
        name[len(start) :]: content.decode(_UTF8, _BYTES) for name, content in files.items() if name.startswith(start)
    }
    facts.form = form
    if not facts.files:
        raise BundleError(f"{origin}: there are no templates in {folder}")
    return facts


def _yaml(content: bytes, origin: str, kind: type[Any]) -> Any:
    import yaml

    try:
        return msgspec.convert(yaml.safe_load(content), kind, strict=False)
    except (yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError) as failure:
        raise BundleError(f"{origin}: {failure}") from failure


# -- answers


def read_answers(words: Sequence[str]) -> dict[str, str]:
    """Return the answers of --set by name; raises UsageError."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"--set: expected NAME=VALUE, not {word!r}")
        found[name] = value
    return found


class Answers:
    """The answers to a form: given by name (`jetstream.store_dir`, `users.0.name`), asked for, or the defaults."""

    def __init__(self, form: Form, given: Mapping[str, str], session: Session | None) -> None:
        self._form = form
        self._given = given
        self._asks = session is not None
        self._used: set[str] = set()
        self._known: list[str] = []
        self._answers: dict[str, Any] = {}

    def values(self) -> dict[str, Any]:
        """Return the answers; raises UsageError."""
        if self._asks and self._form.description and self._form.properties:
            output.note(self._form.description.strip())
        self._fill(self._form.properties, self._answers, "")
        for name in self._given:
            if name not in self._used:
                from natsctl.cli.framework.resolve import did_you_mean

                hint = did_you_mean(name, self._known) or f"there are {', '.join(self._known) or 'none'}"
                raise UsageError(f"--set {name}: no such question", hint=hint)
        return self._answers

    def _fill(self, properties: Sequence[Property], into: dict[str, Any], prefix: str) -> None:
        for one in properties:
            if one.conditional and not holds(one.conditional, {"input": self._answers, "Input": self._answers}):
                continue
            name = f"{prefix}{one.name}"
            if one.type == "array":
                value = self._array(one, name)
                if value or one.empty != "absent":
                    into[one.name] = value
            elif one.properties and one.type in ("", "object"):
                into[one.name] = {}
                for key in self._keys(one, name) if one.type == "object" else ():
                    into[one.name][key] = {}
                    self._fill(one.properties, into[one.name][key], f"{name}.{key}.")
                if one.type == "":
                    self._note(one)
                    self._fill(one.properties, into[one.name], f"{name}.")
            else:
                value = self._value(one, name)
                if value != "" or one.empty != "absent":
                    into[one.name] = {"array": [], "object": {}}.get(one.empty, value) if value == "" else value

    def _array(self, one: Property, name: str) -> list[Any]:
        if not one.properties:
            text = str(self._value(Property(**{**_fields(one), "type": "string"}), name))
            return [part.strip() for part in text.split(",") if part.strip()]
        found: list[Any] = []
        while self._has_below(f"{name}.{len(found)}.") or self._another(one, len(found)):
            found.append({})
            self._fill(one.properties, found[-1], f"{name}.{len(found) - 1}.")
        return found

    def _keys(self, one: Property, name: str) -> Iterator[str]:
        """Yield the names of the entries of an object whose names are answers."""
        start = f"{name}."
        yield from dict.fromkeys(key[len(start) :].partition(".")[0] for key in self._given if key.startswith(start))
        number = 0
        while self._another(one, number):
            from natsctl.cli.framework.prompts import Question, prompt

            number += 1
            yield str(prompt(Question(f"Name of this entry of {one.name}", required=True)))

    def _has_below(self, prefix: str) -> bool:
        return any(key.startswith(prefix) for key in self._given)

    def _another(self, one: Property, number: int) -> bool:
        if not self._asks:
            return False
        if one.required and not number:
            return True
        from natsctl.cli.framework.prompts import prompt_confirm

        self._note(one)
        return prompt_confirm(f"Add {'another' if number else 'a first'} entry of {one.name}", False)

    def _note(self, one: Property) -> None:
        if self._asks and one.description:
            output.note(one.description.strip())

    def _value(self, one: Property, name: str) -> Any:
        """Return the answer to one question; raises UsageError."""
        self._known.append(name)
        default = str(one.default).lower() if isinstance(one.default, bool) else str(one.default)
        default = default or (one.enum[0] if one.enum else "false" if one.type == "bool" else "")

        def read(text: str) -> Any:
            return checked(one, text)

        if name in self._given:
            self._used.add(name)
            try:
                return read(self._given[name])
            except ValueError as failure:
                raise UsageError(f"--set {name}: {failure}") from failure
        if self._asks:
            from natsctl.cli.framework.prompts import Question, prompt, prompt_confirm

            self._note(one)
            help = f"{one.help or one.description}".strip() or f"Given as --set {name}=VALUE"
            if one.type == "bool":
                return prompt_confirm(one.name, default == "true", help)
            choices = tuple((word, word) for word in one.enum)
            return prompt(Question(one.name, help, default, read, one.required, choices, at_once=False))
        try:
            return read(default)
        except ValueError as failure:
            raise UsageError(f"{name}: {failure}", hint=f"give --set {name}=VALUE") from failure


def _fields(one: Property) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def checked(one: Property, text: str) -> Any:
    """Return the value of an answer; raises ValueError."""
    if not text and one.required:
        raise ValueError("an answer is required")
    if one.enum and text not in one.enum:
        raise ValueError(f"expected one of {', '.join(one.enum)}, not {text!r}")
    value: Any = text
    if one.type in ("integer", "float"):
        try:
            value = int(text) if one.type == "integer" else float(text)
        except ValueError:
            raise ValueError(f"expected a {'whole ' * (one.type == 'integer')}number, not {text!r}") from None
    elif one.type == "bool":
        if text.lower() not in ("true", "false"):
            raise ValueError(f"expected true or false, not {text!r}")
        value = text.lower() == "true"
    elif one.type not in ("", "string", "password"):
        raise BundleError(f"the form has a question of the unknown type {one.type!r}")
    if one.validation and text and not holds(one.validation, {"value": text, "Value": text}):
        raise ValueError(f"{text!r} does not fit {one.validation}")
    return value


# -- conditions


def _is_number(kind: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            kind(text)
        except ValueError:
            return False
        return True

    return check


def _is_address(version: int = 0) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return version in (0, ipaddress.ip_address(text).version)
        except ValueError:
            return False

    return check


def _is_shell_safe(text: str) -> bool:
    return not re.search(r"[$()|<>&;`\n\"'\\]", text)


_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    **dict.fromkeys(("isIP", "is_ip"), _is_address()),
    **dict.fromkeys(("isIPv4", "is_ipv4"), _is_address(4)),
    **dict.fromkeys(("isIPv6", "is_ipv6"), _is_address(6)),
    **dict.fromkeys(("isInt", "is_int"), _is_number(int)),
    **dict.fromkeys(("isFloat", "is_float"), _is_number(float)),
    **dict.fromkeys(("isShellSafe", "is_shellsafe"), _is_shell_safe),
}
_CONSTANTS: Final = {"true": True, "false": False, "nil": None}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: lambda one, other: one == other,
    ast.NotEq: lambda one, other: one != other,
    ast.Lt: lambda one, other: one < other,
    ast.LtE: lambda one, other: one <= other,
    ast.Gt: lambda one, other: one > other,
    ast.GtE: lambda one, other: one >= other,
    ast.In: lambda one, other: one in other,
}


def holds(condition: str, names: Mapping[str, Any]) -> bool:
    """Return whether a condition of a form holds, such as `input.jetstream == true && isIP(value)`.

    Raises BundleError for a condition that is not understood.
    """
    text = re.sub(r"!(?!=)", " not ", condition.replace("&&", " and ").replace("||", " or ")).strip()
    try:
        return bool(_evaluated(ast.parse(text, mode="eval").body, names))
    except (SyntaxError, TypeError, ValueError, RecursionError) as failure:
        raise BundleError(f"the form has a condition that is not understood: {condition}") from failure


def _evaluated(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _CONSTANTS[name] if name in _CONSTANTS else names.get(name)
        case ast.Attribute(value=place, attr=name):
            held = _evaluated(place, names)
            return held.get(name) if isinstance(held, Mapping) else None
        case ast.BoolOp(op=operator, values=values):
            found = (bool(_evaluated(one, names)) for one in values)
            return all(found) if isinstance(operator, ast.And) else any(found)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _evaluated(operand, names)
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISONS:
            return _COMPARISONS[type(operator)](_evaluated(left, names), _evaluated(right, names))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _CHECKS:
            return _CHECKS[name](str(_evaluated(argument, names)))
    raise ValueError(ast.dump(node))


# -- rendering


def _split(separator: str, text: Any) -> dict[str, str]:
    return {f"_{at}": part for at, part in enumerate(str(text).split(separator))}


def _set(place: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    place[key] = value
    return place


def _indented(width: int, text: str) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))


def _dict(*pairs: Any) -> dict[str, Any]:
    return _Data(zip(pairs[::2], pairs[1::2], strict=False))


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "add": lambda *numbers: sum(map(int, numbers)),
    "sub": lambda one, other: int(one) - int(other),
    "mul": lambda one, other: int(one) * int(other),
    "div": lambda one, other: int(int(one) / int(other)),
    "mod": lambda one, other: int(math.fmod(int(one), int(other))),
    "int": lambda value: int(value),
    "seq": lambda number: " ".join(map(str, range(1, int(number) + 1))),
    "until": lambda number: list(range(int(number))),
    "split": _split,
    "splitList": lambda separator, text: str(text).split(separator),
    "join": lambda separator, values: separator.join(map(printed, values)),
    "list": lambda *values: list(values),
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "append": lambda values, value: [*values, value],
    "dict": _dict,
    "get": lambda place, key: place.get(key, ""),
    "set": _set,
    "hasKey": lambda place, key: place.get(key) is not None,
    "default": lambda otherwise, value=None: value or otherwise,
    "empty": lambda value: not value,
    "coalesce": lambda *values: next((one for one in values if one), None),
    "ternary": lambda one, other, chosen: one if chosen else other,
    "cat": lambda *values: " ".join(map(printed, values)),
    "nospace": lambda text: "".join(str(text).split()),
    "upper": lambda text: str(text).upper(),
    "lower": lambda text: str(text).lower(),
    "trim": lambda text: str(text).strip(),
    "trimPrefix": lambda prefix, text: str(text).removeprefix(prefix),
    "trimSuffix": lambda suffix, text: str(text).removesuffix(suffix),
    "replace": lambda old, new, text: str(text).replace(old, new),
    "repeat": lambda number, text: str(text) * min(int(number), 10_000),
    "contains": lambda part, text: part in str(text),
    "hasPrefix": lambda prefix, text: str(text).startswith(prefix),
    "hasSuffix": lambda suffix, text: str(text).endswith(suffix),
    "quote": lambda *values: " ".join(json_module.dumps(printed(one), ensure_ascii=False) for one in values),
    "squote": lambda *values: " ".join(f"'{printed(one)}'" for one in values),
    "indent": _indented,
    "nindent": lambda width, text: "\n" + _indented(width, text),
    "toString": printed,
    "b64enc": lambda text: base64.b64encode(str(text).encode()).decode(),
    "b64dec": lambda text: base64.b64decode(str(text)).decode(),
}
"""Functions of templates beside those of Go itself: those of sprig that bundles use most."""


class _Data(dict[str, Any]):
    """Data of templates, in which a field that is missing has no value."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> None:
        return None


class Rendering:
    """The texts and files of a bundle, with the answers in them."""

    def __init__(self, bundle: Bundle, data: Mapping[str, Any]) -> None:
        self._bundle = bundle
        self._data: dict[str, Any] = _as_data(data)
        self._written: dict[str, str] = {}

    def text(self, template: str, origin: str = "bundle.yaml", data: Any = None) -> str:
        """Return a template with the answers; raises BundleError."""
        from natsctl.cli.messaging.go_template import expand

        own = {"write": self._write, "render": self._render}
        try:
            return expand(template, {**_FUNCTIONS, **own}, self._data if data is None else data)
        except (TemplateError, UsageError, ValueError, ArithmeticError, TypeError) as failure:
            raise BundleError(f"{origin}: {failure}") from failure

    def files(self) -> dict[str, str]:
        """Return the content of every file by path; those that are empty are left out."""
        found = {}
        for name, template in self._bundle.files.items():
            if not any(part.startswith("_") for part in PurePosixPath(name).parts[:-1]):
                found[name] = self.text(template, name)
        return {name: text for name, text in {**found, **self._written}.items() if text.strip()}

    def _write(self, name: str, text: str) -> str:
        check_path(str(name), "write")
        self._written[str(name)] = str(text)
        return ""

    def _render(self, name: str, data: Any) -> str:
        if name not in self._bundle.files:
            raise TemplateError(f"render: there is no {name!r}")
        return self.text(self._bundle.files[name], name, data)


def _as_data(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _Data({key: _as_data(one) for key, one in value.items()})
    return [_as_data(one) for one in value] if isinstance(value, list) else value


def write_files(target: Path, files: Mapping[str, str]) -> None:
    """Write a folder of files, as a whole or not at all. Raises StorageError."""
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".natsctl-", dir=target.absolute().parent))
        try:
            made.chmod(0o755)
            for name, text in files.items():
                path = made / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode(_UTF8, _BYTES))
            made.rename(target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as failure:
        raise StorageError(f"{target}: {failure.strerror or failure}") from failure
