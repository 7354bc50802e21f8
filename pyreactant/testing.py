"""For the tests of your own package; `assert_crosscheck` is in `check/testing.py`."""

from .check.testing import assert_crosscheck as assert_crosscheck
