"""Seeds of random histories."""

from __future__ import annotations

from hypothesis import strategies as st

SEEDS = st.integers(0, 2**32).filter(bool)
"""Seeds without 0: Hypothesis begins with the simplest example, so a test of one example would always run seed 0."""
