"""Regular expressions that people write: whatever is wrong with one is a problem to tell, never an exception. Pure."""

from __future__ import annotations

import re


def pattern_problem(pattern: str) -> str | None:
    """Why *pattern* cannot be used, without quoting it; None: it can. Judged with the flag that it is matched with."""
    try:
        re.compile(pattern, re.ASCII)
    except RecursionError:
        return "is nested too deeply for a regular expression"
    except (re.error, OverflowError, ValueError) as error:  # a count of 2³² or more; (?u), which contradicts the flag
        return f"is no regular expression ({error})"
    return None
