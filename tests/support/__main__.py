"""Many sessions of a simulation of the store, the engine or two servers: `python -m tests.support --seeds 2000`."""

import argparse
from collections import Counter
from collections.abc import Callable

from tests.support.encrypted_simulation import simulate_encrypted
from tests.support.engine_simulation import simulate_engine
from tests.support.leaf_simulation import simulate_leaf
from tests.support.store_model import Report
from tests.support.store_simulation import simulate


def main() -> None:
    """Run the sessions and print what they did; the first broken promise ends the run and names its seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many sessions")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--engine", action="store_true", help="simulate the whole engine instead of the store alone")
    kind.add_argument("--leaf", action="store_true", help="simulate two servers that are joined as leaf nodes")
    kind.add_argument("--native", action="store_true", help="simulate the store with commits that native threads write")
    parser.add_argument("--encrypted", action="store_true", help="on a disk that encrypts; with --native or alone")
    options = parser.parse_args()
    run: Callable[[int], Report]
    run = simulate_leaf if options.leaf else simulate_engine if options.engine else simulate
    if options.encrypted:
        run = simulate_encrypted
    if options.native:
        from tests.support import native_disk  # only this one needs a compiler

        run = native_disk.simulate_natively_encrypted if options.encrypted else native_disk.simulate_natively
    totals: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.seeds):
        totals.update(run(seed))
    shown = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in totals.items())
    print(f"{options.seeds} sessions: {shown}")


if __name__ == "__main__":
    main()
