"""The options of one read or write: checked against the table, with values in place of texts."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.options.table import OF_KAFKA, OF_SPARK, TABLE, Option


class Options:
    """The options that were given, by name in any case; `options["stream"]` is the value, its default, or None."""

    def __init__(self, given: Mapping[str, str], place: str) -> None:
        """Raise OptionError for an option that is unknown, does not count in that place, or has a wrong value."""
        self.place = place
        self.raw = {name.lower(): said for name, said in given.items()}
        self._known = {option.name.lower(): option for option in TABLE if place in (*option.where, *option.idle)}
        for name in self.raw:
            if name not in self._known and name not in OF_SPARK:
                raise _unknown(name, place)
        self._values = {name: self._parsed(option) for name, option in self._known.items()}

    def __getitem__(self, name: str) -> Any:
        return self._values[name.lower()]

    def given(self, name: str) -> bool:
        """Return whether the option was said, and not as an empty text."""
        return bool(self.raw.get(name.lower()))

    @property
    def path(self) -> str:
        """The argument of `load` or `save`, or ""."""
        return self.raw.get("path", "")

    def said(self) -> list[str]:
        """Return the names of all options that were given, as the table spells them."""
        return [option.name for name, option in self._known.items() if self.given(name)]

    def _parsed(self, option: Option) -> Any:
        said = self.raw.get(option.name.lower()) or option.default
        if not said:
            return None
        try:
            return option.parse(said)
        except ValueError as failure:
            raise OptionError(f"option {option.name}: {failure}") from None


def _unknown(name: str, place: str) -> OptionError:
    """Return the text about an option that is not for this place, or for none."""
    places = [where for option in TABLE if option.name.lower() == name for where in option.where]
    spelled = next((option.name for option in TABLE if option.name.lower() == name), name)
    if places:
        return OptionError(f"option {spelled} is for a {' or a '.join(places)}, and this is a {place}")
    known = {option.name.lower(): option.name for option in TABLE if place in (*option.where, *option.idle)}
    near = [known[found] for found in get_close_matches(name, list(known), n=2, cutoff=0.6)]
    if OF_KAFKA.get(name, "").lower() in known:
        near = [OF_KAFKA[name]]
    meant = (
        f"; did you mean {' or '.join(near)}?"
        if near
        else f"; known for a {place} are {', '.join(sorted(known.values()))}"
    )
    return OptionError(f"there is no option {name}{meant}")


def as_markdown() -> str:
    """Return the table of options as docs/spark.md shows it."""
    head = ["| option | default | for | meaning |", "|---|---|---|---|"]
    return "\n".join(head + [_row(option) for option in TABLE]) + "\n"


def _row(option: Option) -> str:
    default = option.otherwise or (f"`{option.default}`" if option.default else "")
    meaning = option.meaning.replace("|", "\\|")
    return f"| `{option.name}` | {default} | {_places(option)} | {meaning} |"


def _places(option: Option) -> str:
    """Return the uses for which an option counts, in few words."""
    kinds = {where.split()[1] for where in option.where}
    names = [kind for kind in ("read", "write") if kind in kinds]
    short = {where.split()[0] for where in option.where}
    only = "" if len(short) == 2 else f"{short.pop()} "
    return f"{only}{' and '.join(names)}"
