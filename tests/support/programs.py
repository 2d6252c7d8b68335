"""Many random programs on natsctl's engine and on the reference: `python -m tests.support.programs --seeds 200`.

A difference is cut down to the steps that it needs, and printed. `--first N` begins with another seed; `--upstreams`
has mirrors and sources in the programs as well, which takes longer.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from natsctl.testing.process import ServerProcess
from tests.support.program_steps import Maker
from tests.support.twins import PATIENCE_S, Difference, Step, Twins, told

LENGTH: Final = 60
"""Steps of a program."""


SHORT_S: Final = 0.8
"""Patience while a program is cut down."""


def made(seed: int, length: int = LENGTH, upstreams: bool = False) -> list[Step]:
    """Return the program of a seed."""
    return Maker(seed, upstreams).program(length)


def played(program: Sequence[Step], url: str, patience_s: float = PATIENCE_S) -> Difference | None:
    """Play a program on fresh servers' accounts and return the first difference."""
    twins = Twins(url, patience_s)
    try:
        return twins.play(program)
    finally:
        twins.close()


def shrunk(program: Sequence[Step], difference: Difference, url: str) -> tuple[list[Step], Difference]:
    """Return as few steps as show a difference after the same step."""
    steps, last = list(program[: difference.at + 1]), difference
    size = max(len(steps) // 2, 1)
    while True:
        at, dropped = 0, False
        while at < len(steps) - 1:
            fewer = steps[:at] + steps[min(at + size, len(steps) - 1) :]
            found = played(fewer, url, SHORT_S)
            if found is not None and found.step == difference.step and alike(found, difference):
                steps, last, dropped = fewer[: found.at + 1], found, True
            else:
                at += size
        if size == 1 and not dropped:
            return steps, last
        size = max(size // 2, 1)


def alike(one: Difference, other: Difference) -> bool:
    """Whether two differences are in the same inboxes and answers."""
    return signature(one) == signature(other)


def signature(difference: Difference) -> list[str]:
    """Return where a difference is, whatever the number of the step."""
    return ["step" if label[:1].isdigit() else label for label in difference.ours]


def main() -> None:
    """Play programs until all seeds are done; print each difference with its few steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many programs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--length", type=int, default=LENGTH, help="steps of each program")
    parser.add_argument("--upstreams", action="store_true", help="with mirrors and sources")
    parser.add_argument("--whole", action="store_true", help="do not cut programs down")
    options = parser.parse_args()
    steps = 0
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder), "reference") as server:
        for seed in range(options.first, options.first + options.seeds):
            program = made(seed, options.length, options.upstreams)
            difference = played(program, server.url)
            steps += len(program) if difference is None else difference.at
            if difference is None:
                continue
            fewer, last = ([], difference) if options.whole else shrunk(program, difference, server.url)
            print(f"seed {seed}", *(f"  {told(step)}" for step in fewer), str(last), sep="\n", end="\n\n", flush=True)
    print(f"{options.seeds} programs, {steps} steps")


if __name__ == "__main__":
    main()
