"""Fuzzing what reads other people's bytes; each kind of input is a module with `make` and `check`."""
