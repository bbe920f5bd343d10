"""Seeds of random histories."""

from __future__ import annotations

from hypothesis import strategies as st

SEEDS = st.integers(0, 2**32).filter(bool)
"""Hypothesis begins with the simplest example: a test of one would play the history of seed 0 for ever, each part of several once more."""
