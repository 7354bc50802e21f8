"""The finished cross-check of tests.crosscheck."""

from tests.crosscheck.conftest import runs as runs
