"""Tests of natsctl; a package, so that `tests.support` is found from the root of the clone."""
