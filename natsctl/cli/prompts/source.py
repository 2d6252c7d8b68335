"""The dialogue about a stream that is mirrored or sourced from. Source: reference/cli.md 2.1."""

from __future__ import annotations

import re
from typing import Any

from natsctl.api.times import parse_time
from natsctl.cli.flags import WHOLE, Config
from natsctl.cli.prompts.ask import Question, prompt, prompt_confirm

_LOOSE_TIME = re.compile(r"(\d{4})[:-](\d{2})[:-](\d{2})[ T](\d{2}:\d{2}:\d{2})")


def read_start_time(text: str) -> str:
    """The wire form of `2026:01:31 12:00:00` (or with dashes), which is UTC, or of an RFC 3339 time; "" for nothing."""
    if not text:
        return ""
    loose = _LOOSE_TIME.fullmatch(text)
    moment = f"{loose[1]}-{loose[2]}-{loose[3]}T{loose[4]}Z" if loose else text
    parse_time(moment)
    return moment


def prompt_mirror(name: str) -> Config:
    """The mirror of that name, with what the person adjusts."""
    source: Config = {"name": name}
    if prompt_confirm("Configure a custom durable consumer"):
        source["consumer"] = _durable("")
    elif prompt_confirm("Adjust mirror start") and not _start_sequence(source, "Mirror Start Sequence"):
        _start_time(source, "Mirror Start Time (YYYY:MM:DD HH:MM:SS)")
    if prompt_confirm("Adjust mirror filter and transform"):
        _filters(source, "Filter mirror by subject (enter to finish)")
    _import(source, "mirror")
    return source


def prompt_source(name: str) -> Config:
    """The source of that name, with what the person adjusts."""
    source: Config = {"name": name}
    if prompt_confirm(f"Configure a custom durable consumer for source {name}"):
        source["consumer"] = _durable(f" for source {name}")
    elif prompt_confirm(f"Adjust source {name} start"):
        _start_sequence(source, f"{name} Start Sequence")
        _start_time(source, f"{name} Start Time (YYYY:MM:DD HH:MM:SS)")
    if prompt_confirm(f"Adjust source {name} filter and transform"):
        _filters(source, f"Filter {name} by subject (enter to finish)")
    _import(source, f"source {name}")
    return source


def _needed(text: str) -> str:
    return str(prompt(Question(text, required=True)))


def _durable(of: str) -> dict[str, str]:
    return {"name": _needed(f"Durable consumer name{of}"), "deliver_subject": _needed(f"Delivery subject{of}")}


def _start_sequence(source: Config, text: str) -> bool:
    """Whether a sequence above 0 was given."""
    seq = int(prompt(Question(text, default="0", read=WHOLE.read)))
    if seq > 0:
        source["opt_start_seq"] = seq
    return seq > 0


def _start_time(source: Config, text: str) -> None:
    moment = prompt(Question(text, read=read_start_time))
    if moment:
        source["opt_start_time"] = moment


def _filters(source: Config, text: str) -> None:
    """Ask for filters and what they become; a single one without that is a plain filter."""
    transforms: list[dict[str, Any]] = []
    while subject := prompt(Question(text)):
        transforms.append({"src": subject, "dest": prompt(Question("Subject transform destination"))})
    if len(transforms) == 1 and not transforms[0]["dest"]:
        source["filter_subject"] = transforms[0]["src"]
    elif transforms:
        source["subject_transforms"] = transforms


def _import(source: Config, what: str) -> None:
    if prompt_confirm(f"Import {what} from a different JetStream domain"):
        domain = _needed("Foreign JetStream domain name")
        source["external"] = {"api": f"$JS.{domain}.API", "deliver": prompt(Question("Delivery prefix"))}
    elif prompt_confirm(f"Import {what} from a different account"):
        api = _needed("Foreign account API prefix")
        source["external"] = {"api": api, "deliver": _needed("Foreign account delivery prefix")}
