"""Many spoilt inputs: `python -m tests.support.fuzz conf --inputs 1000000 --seed 1`.

The first input that is not taken as it should be ends the run; its bytes are kept, and its number and seed make it
again. An input that takes longer than `HANG_S` is a fault too.
"""

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Final

KINDS: Final = ("conf", "connect", "leaf", "protocol", "proxy", "websocket")
HANG_S: Final = 5.0
REPORT_EVERY: Final = 100_000


def main() -> int:
    """Run the inputs; return 1 where one of them found a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--inputs", type=int, default=100_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path(), help="the folder where an input that found a fault is put")
    options = parser.parse_args()
    kind = import_module(f"tests.support.fuzz.{options.kind}")
    signal.signal(signal.SIGALRM, _hang)
    began = time.monotonic()
    for number in range(options.first, options.first + options.inputs):
        found = _one(kind.make, kind.check, options.seed, number)
        if found is not None:
            path = options.keep / f"{options.kind}-{options.seed}-{number}"
            path.write_bytes(found)
            print(f"input {number} of seed {options.seed} found a fault; it is kept in {path}", file=sys.stderr)
            return 1
        if (number + 1) % REPORT_EVERY == 0:
            print(f"{number + 1:,} inputs in {time.monotonic() - began:.0f} s", flush=True)
    print(f"{options.inputs:,} inputs of {options.kind}, seed {options.seed}: no fault")
    return 0


def _one(
    make: Callable[[random.Random], bytes], check: Callable[[bytes, random.Random], None], seed: int, number: int
) -> bytes | None:
    """Return the input where it found a fault, after printing it."""
    chance = random.Random(f"{seed}:{number}")
    data = make(chance)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        check(data, chance)
    except Exception as error:  # the outermost shell: whatever comes is the finding
        import traceback

        traceback.print_exception(error)
        return data
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _hang(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"an input took longer than {HANG_S:g} s")


if __name__ == "__main__":
    sys.exit(main())
