"""``python -m bench.children``: cost of a child table after changes, beside an ``explode`` that writes it anew."""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pymongo import UpdateOne

from bench.erasure import show, written
from bench.limits import COLLECTION, Client, insert_all
from bench.measure import print_line, settings_in
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_opener import LakeOpener
from strandline.jobs.silver.run_silver import run_silver
from strandline.settings.configuration import Settings
from strandline.source.mongod import EmbeddedMongod

_AT_ONCE: Final = 10_000
_CHILDREN: Final = {f"bench.{COLLECTION}": {"lines": {"table": "order_lines", "key": "sku"}}}
_COLUMNS: Final = ("_key", "_position", "_deleted", "_cluster_time", "posexplode(lines) AS (_ordinal, line)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.children", description=__doc__)
    parser.add_argument("--parents", type=int, default=1_000_000)
    parser.add_argument("--elements", type=int, default=10, help="elements of each parent")
    parser.add_argument("--changed", type=int, nargs="+", default=[100, 100_000], help="changed parents of each round")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, EmbeddedMongod(oplog_size_mb=4000) as server:
        plain = settings_in(Path(name), server.uri)
        with Client(server.uri) as client:
            measure(client, plain, options)


def measure(client: Client, plain: Settings, options: argparse.Namespace) -> None:
    """Print the cost of the child's first load, of the changes of each size, and of an `explode`. Lines of JSON.

    The parent is merged before, without its child: so a step shows the child alone.
    """
    silver = plain.silver.model_validate({**plain.silver.model_dump(), "children": _CHILDREN})
    parents, chance = LakeOpener(plain), random.Random(options.seed)
    both = LakeOpener(plain.model_copy(update={"silver": silver}))
    orders, root = client["bench"][COLLECTION], Path(plain.lake.root or "")
    insert_all(client, "bench", _orders(options.parents, options.elements, chance), _AT_ONCE)
    _land(parents)
    show("first load", options.parents, lambda: run_silver(both.for_silver()))
    print_line({"MB of the lake": round(written(root))})
    spark = both.with_spark()
    show("start of Spark", 0, lambda: spark.spark.range(1).count())
    for number in options.changed:
        chosen = chance.sample(range(options.parents), number)
        for first in range(0, number, _AT_ONCE):
            field = f"lines.{chance.randrange(options.elements)}.n"
            orders.bulk_write([UpdateOne({"_id": n}, {"$inc": {field: 1}}) for n in chosen[first : first + _AT_ONCE]])
        _land(parents)
        before = written(root)
        (result,) = show("child", number, lambda: run_silver(both.for_silver()))
        print_line({"elements": result.elements, "MB written": round(written(root) - before)})
        before, rows = written(root), spark.tables.read(result.table).selectExpr(*_COLUMNS)
        writer = rows.write.format("delta").mode("overwrite")
        show("explode and write all", number, lambda: writer.save(str(root / "exploded")))  # noqa: B023  # why: called at once
        print_line({"MB written": round(written(root) - before)})


def _orders(parents: int, elements: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    for number in range(parents):
        lines = [
            {
                "sku": f"article {place}",
                "n": chance.randrange(9),
                "price": chance.randrange(10**6) / 100,
                "note": "x" * 20,
            }
            for place in range(elements)
        ]
        yield {"_id": number, "customer": f"customer {number % 5000}", "lines": lines}


def _land(opener: LakeOpener) -> None:
    run_capture(opener.for_capture(), once=True)
    run_silver(opener.for_silver())


if __name__ == "__main__":
    main()
