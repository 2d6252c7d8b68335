"""Test rig of natsctl itself: simulations, fault injection, differential runs, fuzzing, soak and kill loops.

Not in the wheel. Programs run from the root of the clone: `python -m tests.support --seeds 2000`. Tools for
the tests of users are in `natsctl.testing`.
"""
