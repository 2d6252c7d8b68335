"""Many sessions of the store simulation: `python -m natsctl.testing --seeds 2000`."""

import argparse
from collections import Counter
from dataclasses import asdict

from natsctl.testing.simulation import simulate


def main() -> None:
    """Run the sessions and print what they did; the first broken promise ends the run and names its seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many sessions")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    totals: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.seeds):
        totals.update(asdict(simulate(seed)))
    del totals["seed"]
    shown = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in totals.items())
    print(f"{options.seeds} sessions: {shown}")


if __name__ == "__main__":
    main()
