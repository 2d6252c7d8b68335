"""Schemas as DDL text: PySpark's own parser stands in the JVM, which the processes that plan a read do not reach."""

from __future__ import annotations

import json
import re
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from natsctl.spark.source.errors import OptionError

WORDS: Final = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:])")

PLAIN: Final[dict[str, type[DataType]]] = {
    "boolean": BooleanType,
    "tinyint": ByteType, "byte": ByteType,
    "smallint": ShortType, "short": ShortType,
    "int": IntegerType, "integer": IntegerType,
    "bigint": LongType, "long": LongType,
    "float": FloatType, "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType, "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
}  # fmt: skip
DECIMAL: Final = frozenset({"decimal", "dec", "numeric"})


def parsed_schema(text: str) -> StructType:
    """Return a schema of DDL (`id bigint, total double`), of `struct<…>`, or of Spark's JSON; raises OptionError."""
    if text.lstrip().startswith("{"):
        try:
            return StructType.fromJson(json.loads(text))
        except (ValueError, KeyError, TypeError) as failure:
            raise OptionError(f"the schema is not Spark's JSON of a struct: {failure}") from None
    reader = _Reader(text)
    if [word.lower() for word in reader.words[:2]] == ["struct", "<"]:
        kind = reader.type()
        reader.end()
        return kind if isinstance(kind, StructType) else StructType()
    fields = reader.fields()
    reader.end()
    return StructType(fields)


class _Reader:
    """Words of a DDL text, taken from the left."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[str] = []
        self.at = 0
        end = 0
        while text[end:].strip():
            found = WORDS.match(text, end)
            if found is None:
                raise OptionError(f"the schema {text!r} cannot be read from {text[end:].strip()[:20]!r} on")
            self.words.append(found[1])
            end = found.end()

    def fields(self) -> list[StructField]:
        """Fields by commas."""
        found = [self._field()]
        while self._next(","):
            found.append(self._field())
        return found

    def type(self) -> DataType:
        """Return one type."""
        name = self._take("a type").lower()
        if name in PLAIN:
            return PLAIN[name]()
        if name in DECIMAL:
            numbers = self._numbers()
            return DecimalType(*numbers[:2])
        if name in ("varchar", "char"):
            self._numbers()
            return StringType()
        if name in ("array", "map", "struct"):
            return self._nested(name)
        raise OptionError(f"the schema {self.text!r} has the type {name!r}, which Spark does not know")

    def end(self) -> None:
        """Raise OptionError where something is left."""
        if self.at < len(self.words):
            raise OptionError(f"the schema {self.text!r} cannot be read from {self.words[self.at]!r} on")

    def _nested(self, name: str) -> DataType:
        self._must("<")
        kind: DataType
        if name == "array":
            kind = ArrayType(self.type())
        elif name == "map":
            key = self.type()
            self._must(",")
            kind = MapType(key, self.type())
        else:
            kind = StructType([] if self._sees(">") else self.fields())
        self._must(">")
        return kind

    def _field(self) -> StructField:
        name = self._take("a column's name")
        self._next(":")
        kind = self.type()
        nullable = True
        if self._next("not"):
            self._must("null")
            nullable = False
        if self._next("comment"):
            self._take("a comment")
        bare = name[1:-1].replace("``", "`") if name.startswith("`") else name
        return StructField(bare, kind, nullable)

    def _numbers(self) -> list[int]:
        """Numbers in parentheses, if they follow."""
        found: list[int] = []
        if self._next("("):
            while not self._next(")"):
                word = self._take("a number")
                if word.isdigit():
                    found.append(int(word))
                elif word != ",":
                    raise OptionError(f"the schema {self.text!r} has {word!r} where a number is expected")
        return found

    def _sees(self, word: str) -> bool:
        return self.at < len(self.words) and self.words[self.at].lower() == word

    def _next(self, word: str) -> bool:
        found = self._sees(word)
        self.at += found
        return found

    def _must(self, word: str) -> None:
        if not self._next(word):
            raise OptionError(f"the schema {self.text!r} lacks a {word!r}")

    def _take(self, what: str) -> str:
        if self.at >= len(self.words):
            raise OptionError(f"the schema {self.text!r} ends where {what} is expected")
        self.at += 1
        return self.words[self.at - 1]
