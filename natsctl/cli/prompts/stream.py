"""The questions of `stream add`, in order. Source: docs/compatibility.md#questions-of-stream-add-and-consumer-add."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from natsctl.api.subjects import MAX_NAME, is_valid_name
from natsctl.api.units import format_duration
from natsctl.cli.flags import Config, Flag, Given
from natsctl.cli.prompts.ask import Question, prompt, prompt_confirm
from natsctl.cli.prompts.source import read_subject
from natsctl.cli.stream.create import STREAM_FLAGS
from natsctl.client.asset_config import window_of

FLAGS: dict[str, Flag] = {flag.name: flag for flag in STREAM_FLAGS}
REQUIRED_MAX_BYTES = "256MB"
"""Limit that is offered when the account does not allow streams without a limit of bytes."""

Skip = Callable[[Config, Given], bool]


class Step(NamedTuple):
    """One question of the dialogue: the flag it stands for, and when it is left out although the flag was not given."""

    flag: str
    text: str
    default: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    required: bool = False
    skip: Skip = lambda config, given: False


class Switch(NamedTuple):
    """One yes/no question: the flag it stands for; `inverted` when yes means that the flag is off."""

    flag: str
    text: str
    default: bool
    inverted: bool


def _copies(config: Config, given: Given) -> bool:
    return bool(config.get("mirror") or config.get("sources"))


def _no_subjects(config: Config, given: Given) -> bool:
    return not config.get("subjects")


def _mirrors(config: Config, given: Given) -> bool:
    return bool(config.get("mirror"))


RETENTIONS = (("Limits", "limits"), ("Interest", "interest"), ("Work Queue", "workqueue"))
STEPS: tuple[Step, ...] = (
    Step("--subjects", "Subjects", required=True, skip=_copies),
    Step("--storage", "Storage", "file", (("file", "file"), ("memory", "memory"))),
    Step("--replicas", "Replication", "1"),
    Step("--retention", "Retention Policy", "limits", RETENTIONS),
    Step("--discard", "Discard Policy", "old", (("New", "new"), ("Old", "old"))),
    Step("--max-msgs", "Stream Messages Limit", "-1"),
    Step("--max-msgs-per-subject", "Per Subject Messages Limit", "-1", skip=_no_subjects),
    Step("--max-bytes", "Total Stream Size", "-1"),
    Step("--max-age", "Message TTL", "-1"),
    Step("--max-msg-size", "Max Message Size", "-1"),
    Step("--dupe-window", "Duplicate tracking time window", skip=_mirrors),
)
SWITCHES: tuple[Switch, ...] = (
    Switch("--allow-rollup", "Allow message Roll-ups", False, False),
    Switch("--deny-delete", "Allow message deletion", True, True),
    Switch("--deny-purge", "Allow purging subjects or the entire stream", True, True),
)


def _name(text: str) -> str:
    if not is_valid_name(text):
        raise ValueError(f"a name has 1 to {MAX_NAME} characters, none of them blank or one of . * > \\ /")
    return text


def prompt_stream_name() -> str:
    """Return the name for a new stream."""
    help = "The name that the stream will have. Settable as the first argument"
    return str(prompt(Question("Stream Name", help, required=True, read=_name)))


def prompt_stream(config: Config, given: Given, max_bytes_required: bool) -> None:
    """Ask for everything that was not given, and put the answers into the configuration."""
    for step in STEPS:
        if step.flag not in given and not step.skip(config, given):
            flag = FLAGS[step.flag]
            flag.place(config, prompt(_question(step, flag, config, max_bytes_required)))
    for switch in SWITCHES:
        if switch.flag not in given:
            flag = FLAGS[switch.flag]
            answer = prompt_confirm(switch.text, switch.default, _help(flag))
            flag.place(config, answer is not switch.inverted)
    _prompt_origins(config)


def _prompt_origins(config: Config) -> None:
    """Ask about a mirror and sources of which only the name was given."""
    from natsctl.cli.prompts.source import prompt_mirror, prompt_source

    mirror = config.get("mirror")
    if mirror and mirror.keys() == {"name"}:
        config["mirror"] = prompt_mirror(mirror["name"])
    if config.get("sources"):
        config["sources"] = [
            prompt_source(source["name"]) if source.keys() == {"name"} else source for source in config["sources"]
        ]


def _question(step: Step, flag: Flag, config: Config, max_bytes_required: bool) -> Question:
    default = step.default
    if step.flag == "--dupe-window":
        default = format_duration(window_of(int(config.get("max_age") or 0)))
    if step.flag == "--max-bytes" and max_bytes_required:
        default = REQUIRED_MAX_BYTES

    def read(text: str) -> object:
        value = flag.kind.read(text)
        if step.flag == "--replicas" and value < 1:
            raise ValueError("expected at least 1")
        if step.flag == "--subjects":
            return [read_subject(subject) for subject in value]
        if step.flag == "--max-bytes" and max_bytes_required and value <= 0:
            raise ValueError("MaxBytes is required per Account Settings")
        return value

    return Question(step.text, _help(flag), default, read, step.required, step.choices)


def _help(flag: Flag) -> str:
    return f"{flag.help[0].upper()}{flag.help[1:]}. Settable using {flag.name}"
