"""Random documents and random updates of them, for tests that hold a real server's events against each other."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from random import Random
from typing import Any

import bson

Document = dict[str, Any]
Update = Document | list[Document]

PLAIN = ("a", "b", "c", "B", "é", "0", "1", "10", "02")
HOSTILE = (*PLAIN, "a.b", "b.0", "a.b.c", "", ".", "$d", "c.")

_SCALARS: tuple[Any, ...] = (
    *(
        0,
        1,
        2,
        3,
        5,
        1.0,
        -0.0,
        2.5,
        "",
        "x",
        "text",
        None,
        True,
        bson.Int64(1),
        bson.Int64(2**40),
        bson.Decimal128("1.0"),
    ),
    *(
        bson.ObjectId(b"0" * 12),
        bson.Binary(b"ab", 5),
        bson.Regex("a", "i"),
        bson.Timestamp(3, 4),
        bson.MinKey(),
        bson.Code("f"),
    ),
    datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC),
)


def random_value(chance: Random, names: tuple[str, ...], depth: int = 3) -> Any:
    shape = chance.random() if depth else 0.0
    if shape < 0.5:
        return chance.choice(_SCALARS)
    if shape < 0.7:
        return [random_value(chance, names, depth - 1) for _ in range(chance.randint(0, 4))]
    if shape < 0.8:
        return [chance.choice((1, 2, 3, 2.5)) for _ in range(chance.randint(1, 5))]
    return random_document(chance, names, depth - 1)


def random_document(chance: Random, names: tuple[str, ...], depth: int) -> Document:
    return {name: random_value(chance, names, depth) for name in chance.sample(names, chance.randint(0, 4))}


def bulky(chance: Random, document: Document) -> Document:
    """Most hold a bulky field: an update that is larger than its result is logged as a replacement."""
    items = [*document.items(), *([("bulk", "x" * 400)] if chance.random() < 0.8 else [])]
    chance.shuffle(items)
    return dict(items)


def paths_of(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every dotted path of a document that an update operator can name, and what stands there."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        items = [
            (name, inner)
            for name, inner in value.items()
            if name not in ("", "_id") and "." not in name and name[0] != "$"
        ]
    elif isinstance(value, list):
        items = [(str(index), inner) for index, inner in enumerate(value)]
    for name, inner in items:
        yield prefix + name, inner
        yield from paths_of(inner, f"{prefix}{name}.")


class Target:
    """What an update may name in a document."""

    def __init__(self, chance: Random, document: Document) -> None:
        self.chance = chance
        known = list(paths_of(document))
        self.known = [path for path, _ in known] or ["a"]
        self.parents = [path for path, value in known if isinstance(value, dict)]
        self.arrays = [path for path, value in known if isinstance(value, list)] or ["list"]
        self.numbers = [path for path, value in known if isinstance(value, int | float) and value is not True] or [
            "count"
        ]
        self.tops = [path for path in self.known if "." not in path]

    def path(self) -> str:
        """One that exists mostly; else one that would be new."""
        roll = self.chance.random()
        if roll < 0.6:
            return self.chance.choice(self.known)
        if roll < 0.8 and self.parents:
            return f"{self.chance.choice(self.parents)}.{self.chance.choice(PLAIN)}"
        return self.chance.choice([*PLAIN, "new", "z.y", f"{self.chance.choice(self.known)}.x.y"])


def random_operator(target: Target) -> tuple[str, str, Any]:
    chance = target.chance
    path, array, name, value = (
        target.path(),
        chance.choice(target.arrays),
        chance.choice(PLAIN),
        random_value(chance, PLAIN, 2),
    )
    each: Document = {"$each": [random_value(chance, PLAIN, 1) for _ in range(chance.randint(0, 3))]}
    each |= chance.choice(
        ({}, {"$sort": 1}, {"$sort": {"a": -1}}, {"$slice": 2}, {"$slice": -2}, {"$position": 0}, {"$position": 1})
    )
    number = chance.choice((0, 1, -1, 2, 1.5, bson.Int64(2**33), bson.Decimal128("0.1")))
    return chance.choice(
        (
            *[("$set", path, value)] * 5,
            *[("$unset", path, 1)] * 3,
            *[(chance.choice(("$inc", "$mul")), chance.choice(target.numbers), number)] * 2,
            (chance.choice(("$min", "$max")), path, value),
            ("$bit", chance.choice(target.numbers), {chance.choice(("and", "or", "xor")): 5}),
            ("$rename", chance.choice(target.known), target.path()),
            ("$push", array, value),
            ("$push", array, each),
            ("$push", array, {"$each": [], "$sort": 1}),
            ("$addToSet", array, chance.choice((value, {"$each": [1, value]}))),
            ("$pop", array, chance.choice((1, -1))),
            ("$pull", array, chance.choice((value, {"$gt": 1}, 1))),
            ("$pullAll", array, [1, "x", value]),
            ("$set", f"{array}.$[]", value),
            ("$inc", f"{array}.$[]", number),
            ("$set", f"{array}.$[].{name}", value),
            ("$set", f"{array}.$[e]", value),
            ("$unset", f"{array}.$[].{name}", 1),
            ("$set", f"{array}.{chance.randint(0, 12)}", value),
        )
    )


def random_operators(chance: Random, document: Document) -> tuple[Update, dict[str, Any]]:
    """An update of one to four operators, and the options that it needs."""
    target, update = Target(chance, document), dict[str, Any]()
    for _ in range(chance.choice((1, 1, 2, 3, 4))):
        operator, path, operand = random_operator(target)
        update.setdefault(operator, {})[path] = operand
    has_filter = any("$[e]" in path for paths in update.values() for path in paths)
    return update, {"array_filters": [{"e": chance.choice((1, {"$gte": 1}, {"$ne": "x"}))}]} if has_filter else {}


def random_stage(target: Target, names: tuple[str, ...]) -> Document:
    chance = target.chance
    top, literal = chance.choice(target.tops), {"$literal": random_value(chance, names, 2)}
    order = chance.sample(target.tops, len(target.tops)) if chance.random() < 0.5 else target.tops
    rebuilt: Document = {name: f"${name}" if chance.random() < 0.8 else literal for name in order}
    field = {"$literal": chance.choice((*names, *target.tops))}
    to_the_end = {name: value for name, value in rebuilt.items() if name != top} | {
        top: chance.choice((f"${top}", literal))
    }
    return chance.choice(
        (
            *[{"$set": {target.path(): literal, target.path(): chance.choice((literal, f"${top}"))}}] * 2,
            {
                "$set": {
                    top: {"$cond": [{"$isArray": f"${top}"}, {"$slice": [f"${top}", chance.randint(1, 3)]}, literal]}
                }
            },
            {"$set": {top: {"$cond": [{"$isArray": f"${top}"}, {"$concatArrays": [f"${top}", [literal]]}, literal]}}},
            {"$set": {top: {"$cond": [{"$isArray": f"${top}"}, {"$concatArrays": [[literal], f"${top}"]}, literal]}}},
            {"$unset": chance.choice((target.path(), top))},
            {"$replaceWith": {"$mergeObjects": ["$$ROOT", {top: literal, "extra": 1}]}},
            {"$replaceWith": {"$mergeObjects": [{"default": 1, top: literal}, "$$ROOT"]}},
            {"$replaceWith": {"_id": "$_id", **rebuilt}},
            {"$replaceWith": {"_id": "$_id", **to_the_end}},
            {"$replaceWith": {"_id": "$_id", **dict(list(rebuilt.items())[1:]), "new": 1}},
            {"$project": {**dict.fromkeys(order[: chance.randint(1, 3)], 1), "computed": literal}},
            {"$project": dict.fromkeys(order[:1], 0)},
            *[{"$replaceWith": {"$setField": {"field": field, "input": "$$ROOT", "value": literal}}}] * 2,
            {"$replaceWith": {"$unsetField": {"field": field, "input": "$$ROOT"}}},
        )
    )


def random_pipeline(chance: Random, document: Document, names: tuple[str, ...]) -> tuple[Update, dict[str, Any]]:
    target = Target(chance, document)
    return [random_stage(target, names) for _ in range(chance.choice((1, 1, 2)))], {}
