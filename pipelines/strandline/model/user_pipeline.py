"""User stages of the change stream's pipeline: parsed from JSON and validated before the server gets them. Pure.

A stage is refused if it would lose more than the events that it filters: the resume token (`_id`), the fields that
bronze needs, and the control events that report creations, drops, renames and moves of a collection.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bson.regex import Regex

from strandline.model.json_input import parse_extended_json
from strandline.model.regex_input import compiled, pattern_problem

Order = Literal["internal_first", "user_first", "user_only"]
Stage = dict[str, Any]

CONTROL_OPERATIONS = ("create", "drop", "rename", "dropDatabase", "invalidate", "reshardCollection")
"""Events of collections that no filter hides. ``reshardCollection`` also comes after moveCollection, unshardCollection
and rewriteCollection (8.0)."""

_ALLOWED = ("$addFields", "$match", "$project", "$redact", "$replaceRoot", "$replaceWith", "$set", "$unset")
_FIXED = ("_id", "operationType", "clusterTime", "ns", "to", "documentKey", "collectionUUID")
_CONTENT = ("fullDocument", "updateDescription")  # parts of them may be removed, but not the whole field
_FOLDED = (*_CONTENT, "fullDocumentBeforeChange")  # silver needs these to fold patches
_INCLUSION_VALUES = {0, 1}


@dataclass(frozen=True)
class UserPipeline:
    """Validated stages, and their order: after, before or instead of the stages of the settings."""

    stages: tuple[Stage, ...] = ()
    order: Order = "internal_first"

    @property
    def passes_all(self) -> bool:
        """True if the stages certainly pass every event with its documents and its patch unchanged."""
        return all(_is_harmless(*next(iter(stage.items()))) for stage in self.stages)


def _is_harmless(name: str, content: Any) -> bool:
    if name == "$project" and isinstance(content, dict) and not any(content.values()):
        name = "$unset"
    if name not in ("$addFields", "$set", "$unset"):
        return False
    touched = [content] if isinstance(content, str) else list(content)
    return not any(path.partition(".")[0] in _FOLDED for path in touched)


def parse_user_pipeline(text: str | None, *, protects: bool = False) -> tuple[tuple[Stage, ...], list[str]]:
    """Parse ``capture.cursor_pipeline``.

    Args:
        text: A JSON list of stages (Extended JSON), or None for no stages.
        protects: True if fields are excluded, masked or hashed. Then a stage must not compute fields: it could copy
            one.

    Returns:
        The stages, and the problems (without values).
    """
    try:
        return _parsed(text, protects)
    except RecursionError:  # any step may raise it
        return (), ["cursor_pipeline is nested too deeply"]


def _parsed(text: str | None, protects: bool) -> tuple[tuple[Stage, ...], list[str]]:
    if text is None:
        return (), []
    try:
        parsed = parse_extended_json(text)
    except ValueError as error:
        return (), [f"cursor_pipeline {error}"]
    if not isinstance(parsed, list):
        return (), ["cursor_pipeline is no list of stages"]
    problems = []
    for number, stage in enumerate(parsed, 1):
        problems += [f"cursor_pipeline stage {number} {problem}" for problem in _problems(stage, protects)]
    return tuple(parsed), problems


def _problems(stage: Any, protects: bool) -> list[str]:
    if not isinstance(stage, dict) or len(stage) != 1:
        return ["is no document with one key"]
    name, content = next(iter(stage.items()))
    if name not in _ALLOWED:
        return [f"is not allowed in a change stream (allowed: {', '.join(_ALLOWED)})"]
    if name == "$match":
        return _match_problems(content)
    if name == "$redact":
        descends = "$$DESCEND" in json.dumps(content, default=str)
        return ["may use $$KEEP and $$PRUNE only: going deeper, it could prune _id or ns"] if descends else []
    if name == "$unset":
        names = [content] if isinstance(content, str) else content
        return _removal_problems(names if isinstance(names, list) else [])
    if name == "$project":
        return _project_problems(content, protects)
    return _computing_problems(name, content, protects)


def _match_problems(content: Any) -> list[str]:
    hidden = [operation for operation in CONTROL_OPERATIONS if _admits(content, operation) is False]
    if not hidden:
        return []
    return [f"would filter out the control events {', '.join(hidden)}: skip operations with capture.skipped_operations"]


def _admits(query: Any, operation: str) -> bool | None:
    """Return True if *query* matches the operation, False if not. None: it depends on more than ``operationType``."""
    if not isinstance(query, Mapping):
        return None
    verdicts = []
    for name, condition in query.items():
        inner = (
            [_admits(part, operation) for part in condition]
            if name in ("$and", "$or", "$nor") and isinstance(condition, list)
            else []
        )
        if name == "$and":
            verdicts.append(_all(inner))
        elif name in ("$or", "$nor"):
            any_of = _not(_all([_not(verdict) for verdict in inner]))
            verdicts.append(any_of if name == "$or" else _not(any_of))
        elif name == "operationType":
            verdicts.append(_fulfils(condition, operation))
        else:
            verdicts.append(None)
    return _all(verdicts)


def _fulfils(condition: Any, operation: str) -> bool | None:
    if isinstance(condition, str):
        return condition == operation
    if isinstance(condition, Regex):  # Extended JSON's {"$regex": …}
        return None if condition.flags else _pattern_verdict(str(condition.pattern), operation)
    if not isinstance(condition, Mapping):
        return None
    verdicts: list[bool | None] = []
    for operator, operand in condition.items():
        if operator in ("$eq", "$ne") and isinstance(operand, str):
            verdicts.append((operand == operation) is (operator == "$eq"))
        elif (
            operator in ("$in", "$nin")
            and isinstance(operand, list)
            and all(isinstance(entry, str) for entry in operand)
        ):
            verdicts.append((operation in operand) is (operator == "$in"))
        elif operator == "$not":
            verdicts.append(_not(_fulfils(operand, operation)))
        else:
            verdicts.append(None)
    return _all(verdicts)


def _pattern_verdict(pattern: str, operation: str) -> bool | None:
    return None if pattern_problem(pattern) is not None else compiled(pattern).search(operation) is not None


def _all(verdicts: list[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _not(verdict: bool | None) -> bool | None:
    return None if verdict is None else not verdict


def _removal_problems(names: list[Any]) -> list[str]:
    """Return a problem if *names* holds a fixed field, a part of one, or a whole field with the change."""
    gone = [str(name) for name in names if str(name).partition(".")[0] in _FIXED or name in _CONTENT]
    return [f"would remove {', '.join(gone)}, without which no event can be landed"] if gone else []


def _project_problems(content: Any, protects: bool) -> list[str]:
    if not isinstance(content, dict):
        return ["is no projection"]
    plain = {
        name: bool(value)
        for name, value in content.items()
        if isinstance(value, bool | int | float) and value in _INCLUSION_VALUES
    }
    computed = [name for name in content if name not in plain]
    problems = _removal_problems([name for name, included in plain.items() if not included])
    problems += [f"would change {name}" for name in computed if name.partition(".")[0] in _FIXED]
    if computed and protects:
        problems.append("computes fields, which could copy one that is excluded, masked or hashed")
    if computed or any(included for name, included in plain.items() if name != "_id"):
        named = set(plain) | {name.partition(".")[0] for name in content if name.partition(".")[0] in _CONTENT}
        missing = [name for name in (*_FIXED, *_CONTENT) if name != "_id" and name not in named]
        problems += [f"would remove {', '.join(missing)}, without which no event can be landed"] if missing else []
    return problems


def _computing_problems(name: str, content: Any, protects: bool) -> list[str]:
    problems = ["computes fields, which could copy one that is excluded, masked or hashed"] if protects else []
    if name in ("$set", "$addFields"):
        added = [content]
    else:
        merged = (content.get("newRoot") if name == "$replaceRoot" else content) if isinstance(content, dict) else None
        parts = merged.get("$mergeObjects") if isinstance(merged, dict) and len(merged) == 1 else None
        if not isinstance(parts, list) or not parts or parts[0] != "$$ROOT":
            return [*problems, "cannot be shown to keep _id: write it as $mergeObjects of $$ROOT and documents"]
        added = parts[1:]
    for document in added:
        if not isinstance(document, dict) or any(key.startswith("$") for key in document):
            problems.append("adds what is no document of names")
        else:
            problems += [f"would change {key}" for key in document if key.partition(".")[0] in _FIXED]
    return problems
