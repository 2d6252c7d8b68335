"""Many sessions of the store simulation, or of the engine's: `python -m natsctl.testing [--engine] --seeds 2000`."""

import argparse
from collections import Counter
from dataclasses import asdict

from natsctl.testing.engine_simulation import simulate_engine
from natsctl.testing.simulation import simulate


def main() -> None:
    """Run the sessions and print what they did; the first broken promise ends the run and names its seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many sessions")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--engine", action="store_true", help="simulate the whole engine instead of the store alone")
    options = parser.parse_args()
    run = simulate_engine if options.engine else simulate
    totals: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.seeds):
        totals.update(asdict(run(seed)))
    del totals["seed"]
    shown = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in totals.items())
    print(f"{options.seeds} sessions: {shown}")


if __name__ == "__main__":
    main()
