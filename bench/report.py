"""Measurements as terminal tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

from rich.table import Table

from bench.commands import CommandCost
from bench.compaction import CompactionCost
from bench.decoding import DecodingCost
from bench.figures import Figure
from bench.measure import Measurement
from bench.open_tables import KindCost, LayoutCost
from bench.recovery import Recovered
from bench.service import ServiceCost
from bench.silver import Compared
from bench.sustained import Delays
from bench.trickle import Trickle

T = TypeVar("T")

_THROUGHPUT = (
    "",
    "documents",
    "seconds",
    "documents/s",
    "MB/s",
    "of limit",
    "steady/s",
    "of limit",
    "stored MB",
    "Python MB",
    "JVM MB",
    "both MB",
)
_DECODING = (
    "documents",
    "bytes",
    "bson.decode µs",
    "kept in a list µs",
    "census µs",
    "columns µs",
    "census and columns / kept",
)
_RECOVERY = (
    "bronze rows",
    "commits",
    "MB",
    "data files",
    "seconds",
    "of the first",
    "from … to",
    "data files read",
    "log files read",
)
_KINDS = (
    "kind",
    "table rows",
    "changed",
    "silver s",
    "by hand s",
    "silver / by hand",
    "MB written",
    "read s",
    "MB",
)
_LAYOUTS = ("layout", "files", "date range s", "files read", "look-up s", "files read", "silver s")
_SILVER = (
    "table rows",
    "changed",
    "where",
    "silver s",
    "of the first",
    "files read",
    "MB read",
    "MB written",
    "by hand s",
    "of the first",
    "silver / by hand",
    "bare MERGE s",
    "of the first",
    "silver / MERGE",
    "rewrite s",
    "silver / rewrite",
)


def throughput_table(title: str, pairs: Sequence[Sequence[Measurement]]) -> Table:
    """One row per measurement. Ratios are to the first measurement of each group."""
    return _by_group(title, _THROUGHPUT, pairs, _throughput)


def trickle_table(found: Sequence[Trickle]) -> Table:
    """One row per engine."""
    result = _table(
        "From the source to bronze, a hundred changes a second",
        ("engine", "changes", "commits", "median s", "90 % within s", "99 % within s", "all within s"),
    )
    for one in found:
        waits = (f"{wait:.2f}" for wait in (one.median, one.within(0.9), one.within(0.99), max(one.waits)))
        result.add_row(one.engine, f"{len(one.waits):,}", f"{one.commits:,}", *waits)
    return result


def service_table(one: ServiceCost) -> Table:
    """One row per figure."""
    result = _table("strandline run: ten tables, a hundred changes a second", ("figure", "seen"))
    commits = ", ".join(f"{layer} {count}" for layer, count in sorted(one.idle_commits.items()) if count) or "none"
    memory = " → ".join(f"{size / 1e6:,.0f}" for size in one.memory) + " MB"
    for figure, seen in (
        ("idle: share of a core", f"{one.idle_cores:.1%}"),
        (f"idle: commits in {one.idle_seconds} s", commits),
        ("busy: cores", f"{one.busy_cores:.2f}"),
        ("source to silver: median", f"{one.median:.1f} s"),
        ("source to silver: 95 % within", f"{one.within(0.95):.1f} s"),
        ("source to silver: 99 % within", f"{one.within(0.99):.1f} s"),
        ("source to incremental gold: 95 % within", f"{one.to_gold_p95:.0f} s"),
        (f"memory of all processes (PSS), in {one.busy_seconds} busy seconds", memory),
        ("SIGTERM to exit", f"{one.stop_seconds:.1f} s"),
    ):
        result.add_row(figure, seen)
    return result


def commands_table(found: Sequence[CommandCost]) -> Table:
    """One row per command."""
    result = _table(
        "Whole commands, from start to exit", ("command", "seconds", "CPU s", "MB (PSS)", "limit s", "of limit")
    )
    for one in found:
        beside = (f"{one.limit:.1f}", f"{one.limit / one.seconds:.2f}") if one.limit else ("", "")
        result.add_row(one.name, f"{one.seconds:.2f}", f"{one.cpu_seconds:.1f}", f"{one.memory / 1e6:,.0f}", *beside)
    return result


def figures_table(found: Sequence[Figure]) -> Table:
    """One row per command."""
    headings = ("command", "documents", "median s", "from … to", "CPU s", "CPU µs each", "MB (PSS)")
    result = _table("From a collection to a typed table", headings)
    for one in found:
        seconds = [cost.seconds for cost in one.rounds]
        spans = f"{one.seconds:.1f}", f"{min(seconds):.1f} … {max(seconds):.1f}"
        cpu = f"{one.cpu_seconds:.1f}", f"{one.cpu_seconds / one.documents * 1e6:.0f}"
        result.add_row(one.name, f"{one.documents:,}", *spans, *cpu, f"{one.memory / 1e6:,.0f}")
    return result


def sustained_table(found: Sequence[Delays]) -> Table:
    """One row per rate that was tried, and one for the long run at the rate that was found."""
    headings = ("engine", "seconds", "changes/s", "written/s", "median s", "95 % within s", "held", "cores", "MB (PSS)")
    result = _table("strandline run: ten tables, 70 % inserts, 20 % updates, 10 % deletes", headings)
    for one in found:
        load = f"{one.seconds:,}", f"{one.rate:,}", f"{one.written:,.0f}"
        delays = f"{one.median:.1f}", f"{one.p95:.1f}", "yes" if one.are_short else "no"
        result.add_row(one.engine, *load, *delays, f"{one.cores:.2f}", f"{one.memory / 1e6:,.0f}")
    return result


def kinds_table(found: Sequence[KindCost]) -> Table:
    """One row per kind of silver table."""
    result = _table("Silver tables of each kind, scattered changes", _KINDS)
    for one in found:
        result.add_row(
            one.compatibility,
            f"{one.rows:,}",
            f"{one.changed:,}",
            f"{one.silver.seconds:.1f}",
            f"{one.by_hand.seconds:.1f}",
            f"{one.silver.seconds / one.by_hand.seconds:.2f}",
            f"{one.silver.written / 1e6:,.0f}",
            f"{one.read_seconds:.1f}",
            f"{one.megabytes:,.0f}",
        )
    return result


def layouts_table(found: Sequence[LayoutCost]) -> Table:
    """One row per layout of the same rows."""
    result = _table("A silver table without and with a layout", _LAYOUTS)
    for one in found:
        result.add_row(
            one.layout,
            str(one.files),
            f"{one.date_range.seconds:.2f}",
            str(one.date_range.files),
            f"{one.look_up.seconds:.2f}",
            str(one.look_up.files),
            f"{one.silver.seconds:.1f}",
        )
    return result


def decoding_table(found: Sequence[DecodingCost]) -> Table:
    """One row per kind of documents."""
    result = _table("Census and columns of documents, µs of one core for each", _DECODING)
    for one in found:
        costs = one.driver, one.driver_kept, one.census, one.columns
        ratio = (one.census + one.columns) / one.driver_kept
        result.add_row(one.kind, str(one.size), *(f"{cost:.1f}" for cost in costs), f"{ratio:.2f}")
    return result


def compaction_table(costs: Sequence[CompactionCost]) -> Table:
    headings = ("events", "removed", "MB before", "MB after", "seconds", "CPU s per million", "peak MB")
    table = _table("Compaction of a year of bronze: 200,000 documents, 30 days kept", headings)
    for one in costs:
        table.add_row(
            f"{one.events:,}",
            f"{one.removed:,}",
            f"{one.megabytes_before:,.0f}",
            f"{one.megabytes_after:,.0f}",
            f"{one.seconds:.1f}",
            f"{one.cpu_seconds / one.events * 1e6:.1f}",
            f"{one.memory / 1e6:,.0f}",
        )
    return table


def recovery_table(found: Sequence[Recovered]) -> Table:
    """One row per bronze table."""
    result = _table('Recovery: from nothing to "position known"', _RECOVERY)
    for one in found:
        result.add_row(
            f"{one.rows:,}",
            f"{one.commits:,}",
            f"{one.megabytes:,.0f}",
            f"{one.files:,}",
            f"{one.median:.2f}",
            f"{one.median / found[0].median:.2f}",
            f"{min(one.seconds):.2f} … {max(one.seconds):.2f}",
            str(one.data_files_read),
            str(one.log_files_read),
        )
    return result


def silver_tables(compared: Sequence[Compared]) -> list[Table]:
    """Two tables: cost by number of changes for each table size, and cost by table size for each number of changes."""
    by_change = sorted(compared, key=lambda one: (one.case.rows, one.case.where, one.case.changed))
    by_table = sorted(compared, key=lambda one: (one.case.changed, one.case.where, one.case.rows))
    return [
        _by_group(
            "Silver, by the change", _SILVER, _grouped(by_change, lambda one: (one.case.rows, one.case.where)), _silver
        ),
        _by_group(
            "Silver, by the table", _SILVER, _grouped(by_table, lambda one: (one.case.changed, one.case.where)), _silver
        ),
    ]


def _silver(one: Compared, first: Compared) -> list[str]:
    silver, by_hand, merge, rewrite = one.silver, one.by_hand, one.merge, one.rewrite
    return [
        f"{one.case.rows:,}",
        f"{one.case.changed:,}",
        one.case.where,
        f"{silver.seconds:.2f}",
        f"{silver.seconds / first.silver.seconds:.2f}",
        f"{silver.files:,}",
        f"{silver.read / 1e6:,.0f}",
        f"{silver.written / 1e6:,.0f}",
        f"{by_hand.seconds:.2f}",
        f"{by_hand.seconds / first.by_hand.seconds:.2f}",
        f"{silver.seconds / by_hand.seconds:.2f}",
        f"{merge.seconds:.2f}",
        f"{merge.seconds / first.merge.seconds:.2f}",
        f"{silver.seconds / merge.seconds:.2f}",
        f"{rewrite.seconds:.2f}" if rewrite else "",
        f"{silver.seconds / rewrite.seconds:.2f}" if rewrite else "",
    ]


def _grouped(ordered: Sequence[Compared], key: Callable[[Compared], object]) -> list[list[Compared]]:
    """Group the results by *key*. Groups with a single result are left out."""
    groups = (list(group) for _, group in groupby(ordered, key))
    return [group for group in groups if len(group) > 1]


def _by_group(
    title: str, headings: Sequence[str], groups: Sequence[Sequence[T]], cells: Callable[[T, T], list[str]]
) -> Table:
    """One section per group. *cells* formats a row, given the result and the first result of its group."""
    result = _table(title, headings)
    for group in groups:
        for one in group:
            result.add_row(*cells(one, group[0]))
        result.add_section()
    return result


def _table(title: str, headings: Sequence[str]) -> Table:
    result = Table(title=title)
    for heading in headings:
        result.add_column(heading, justify="right")
    return result


def _throughput(one: Measurement, limit: Measurement) -> list[str]:
    against = one is not limit
    return [
        one.name,
        f"{one.documents:,}",
        f"{one.seconds:.1f}",
        f"{one.rate:,.0f}",
        f"{one.size / one.seconds / 1e6:,.0f}",
        f"{one.rate / limit.rate:.2f}" if against else "",
        f"{one.steady:,.0f}" if one.steady else "",
        f"{one.steady / limit.rate:.2f}" if one.steady and against else "",
        f"{one.stored / 1e6:,.0f}" if one.stored else "",
        f"{one.peak.python / 1e6:,.0f}" if one.peak else "",
        f"{one.peak.jvm / 1e6:,.0f}" if one.peak else "",
        f"{one.peak.both / 1e6:,.0f}" if one.peak else "",
    ]
