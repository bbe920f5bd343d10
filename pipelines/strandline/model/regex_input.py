"""Regular expressions from settings and signals. An invalid one gives a message, never an exception. Pure."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

# An escaped character, a whole character class (brackets inside it are literal), or a single bracket or comma.
_BRACKETS_AND_COMMAS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|[(){}[,]", re.DOTALL)
_DEPTH: Final = {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1}


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile *pattern* with the flag ``re.ASCII``, without Python's warnings about patterns such as ``[[``.

    Raises:
        Exception: Any error of `re.compile`; `pattern_problem` describes it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(pattern, re.ASCII)


def pattern_problem(pattern: str) -> str | None:
    """Return the reason why *pattern* is invalid, without quoting it. None: it is valid."""
    try:
        compiled(pattern)
    except RecursionError:
        return "is nested too deeply for a regular expression"
    except (re.error, OverflowError, ValueError) as error:  # a count of 2³² or more; (?u), which contradicts the flag
        return f"is no regular expression ({error})"
    return None


def outside_pattern_problem(pattern: str) -> str | None:
    """Return the reason why *pattern*, which a signal brings, is not accepted. None: `matching` takes it."""
    if (problem := pattern_problem(pattern)) is not None:
        return problem
    from pyarrow import ArrowInvalid

    try:
        _matches(pattern, [""])
    except ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ").partition(": ")[0]
        return f"has a construct that signals do not take, such as look-ahead or a back-reference ({reason})"
    except UnicodeEncodeError:
        return "is no text"
    return None


def matching(pattern: str, names: Sequence[str]) -> set[str]:
    """Return the *names* that *pattern* matches as a whole.

    RE2 does it, in a time that is linear in the length of a name. Python's matcher may need years for one name.
    """
    return {name for name, is_match in zip(names, _matches(rf"\A(?:{pattern})\z", names), strict=True) if is_match}


def _matches(pattern: str, names: Sequence[str]) -> list[bool]:
    import pyarrow as pa  # here: a quarter of a second, and only signals need it
    import pyarrow.compute as pc

    matches: list[bool] = pc.match_substring_regex(pa.array(names, pa.string()), pattern).to_pylist()
    return matches


def split_outside_brackets(text: str) -> list[str]:
    """Split *text* at commas, except commas inside ``()``, ``[]`` or ``{}`` or after a backslash.

    If the brackets are not balanced, as may be in plain names, every comma splits.
    """
    parts, depth, begin = [], 0, 0
    for token in _BRACKETS_AND_COMMAS.finditer(text):
        depth += _DEPTH.get(token[0], 0)
        if depth < 0:
            break
        if token[0] == "," and depth == 0:
            parts.append(text[begin : token.start()])
            begin = token.end()
    return [*parts, text[begin:]] if depth == 0 else text.split(",")
