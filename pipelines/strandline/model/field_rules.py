"""Field rules of the settings: ``database.collection.field.nested``. Pure. `source.fields` applies them to BSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import pbkdf2_hmac, sha256
from typing import Literal, NamedTuple

Action = Literal["exclude", "mask", "hash", "rename"]

DEFAULT_MASK = "****"
_LIST_OF: dict[Action, str] = {
    "exclude": "field_exclude_list",
    "mask": "field_mask_list",
    "hash": "field_hash_list",
    "rename": "field_renames",
}


@dataclass(frozen=True)
class FieldRule:
    """Action on one field path in the collections that match two patterns (``*``: any characters, dots included)."""

    action: Action
    database: str
    collection: str
    path: tuple[str, ...]
    new_name: str = ""

    def applies_to(self, database: str, collection: str) -> bool:
        return _matches(self.database, database) and _matches(self.collection, collection)

    def __str__(self) -> str:
        return f"{self.database}.{self.collection}.{'.'.join(self.path)}"


def wildcard_regex(pattern: str) -> str:
    """Return the regular expression (not anchored) of a name with ``*``. It is valid in Python and in MongoDB."""
    return ".*".join(re.escape(part) for part in pattern.split("*"))


def _matches(pattern: str, name: str) -> bool:
    return pattern == name or ("*" in pattern and re.fullmatch(wildcard_regex(pattern), name, re.DOTALL) is not None)


class StoredRule(NamedTuple):
    """Field rule as stored in the lake, without secrets."""

    database: str
    collection: str
    fingerprint: str
    """Hash of the rule's action. Another salt or mask gives another hash."""

    def applies_to(self, database: str, collection: str) -> bool:
        return _matches(self.database, database) and _matches(self.collection, collection)


def _fingerprint(rule: FieldRule, secret: str) -> str:
    return sha256(json.dumps([rule.action, rule.path, rule.new_name, secret]).encode()).hexdigest()[:16]


@lru_cache(maxsize=8)
def _fingerprint_of_secret(secret: bytes) -> str:
    """Return a hash of *secret* that is slow (against guessing) and short (many secrets share one hash)."""
    return pbkdf2_hmac("sha256", secret, b"strandline", 100_000, dklen=4).hex()


@dataclass(frozen=True)
class FieldPolicy:
    """Field rules of a source, in the order of the settings, with salt and mask. Sent to the executors."""

    rules: tuple[FieldRule, ...] = ()
    salt: bytes = field(default=b"", repr=False)
    mask: str = DEFAULT_MASK

    def for_collection(self, database: str, collection: str) -> FieldPolicy:
        """Return the policy with only the rules of one collection."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.applies_to(database, collection)))

    def as_stored(self) -> list[StoredRule]:
        """Return the rules without secrets. A later run compares its own rules with them."""
        secrets = {"hash": _fingerprint_of_secret(self.salt), "mask": _fingerprint_of_secret(self.mask.encode())}
        return [
            StoredRule(rule.database, rule.collection, _fingerprint(rule, secrets.get(rule.action, "")))
            for rule in self.rules
        ]

    @property
    def protects(self) -> bool:
        """True if a rule hides a value. A rename hides nothing."""
        return any(rule.action != "rename" for rule in self.rules)


def parse_field_rules(
    *, exclude: Sequence[str] = (), mask: Sequence[str] = (), hashed: Sequence[str] = (), renames: Sequence[str] = ()
) -> tuple[tuple[FieldRule, ...], list[str]]:
    """Parse the four field lists of the settings.

    Returns:
        The valid rules in the order of the lists, and the problems: list, number of the entry and reason, without
            values.
    """
    rules: list[FieldRule] = []
    problems: list[str] = []
    lists: tuple[tuple[Action, Sequence[str]], ...] = (
        ("exclude", exclude),
        ("mask", mask),
        ("hash", hashed),
        ("rename", renames),
    )
    for action, entries in lists:
        for number, entry in enumerate(entries, 1):
            parsed = _parse(action, entry)
            if isinstance(parsed, str):
                problems.append(f"{_LIST_OF[action]} entry {number} {parsed}")
            else:
                rules.append(parsed)
    return tuple(rules), problems + _contradictions(rules)


def _parse(action: Action, entry: str) -> FieldRule | str:
    """Return the rule of *entry*, or its problem as text. A dot inside a collection's name is written ``\\.``."""
    new_name = ""
    if action == "rename":
        entry, _, new_name = entry.rpartition(":")
        if not entry or not new_name:
            return "is no database.collection.field:new_name"
    parts = [part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", entry)]
    if len(parts) < 3 or not all(parts) or "\0" in entry:
        return "is no database.collection.field"
    database, collection, path = parts[0], parts[1], ".".join(parts[2:]).split(".")
    if path[0] == "_id":
        return "names _id, which stands in every resume token and is every row's key"
    if action == "rename" and (
        set(".\0") & set(new_name) or new_name.startswith("$") or (new_name == "_id" and len(path) == 1)
    ):
        return "renames to what is no field name, or to _id"
    return FieldRule(action, database, collection, tuple(path), new_name)


def _contradictions(rules: Sequence[FieldRule]) -> list[str]:
    """Return the problems between rules: one field in two hiding lists, or two fields renamed to one name."""
    problems = []
    hidden = Counter((rule.database, rule.collection, rule.path) for rule in rules if rule.action != "rename")
    if any(count > 1 for count in hidden.values()):
        problems.append("a field stands twice in field_exclude_list, field_mask_list and field_hash_list together")
    renamed = [rule for rule in rules if rule.action == "rename"]
    targets = Counter((rule.database, rule.collection, rule.path[:-1], rule.new_name) for rule in renamed)
    if any(count > 1 for count in targets.values()):
        problems.append("field_renames gives two fields the same name")
    if any(rule.path[-1] == rule.new_name for rule in renamed):
        problems.append("field_renames gives a field the name that it has")
    return problems
