"""Generate docs/doctor.md from the checks in the code."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Final

from pydantic import TypeAdapter

from strandline.jobs.doctor import file_checks, lake_checks, setting_checks, source_checks, spark_checks
from strandline.jobs.doctor.findings import AREAS, Check, Finding
from strandline.model.support_dates import MONGODB, READ_ON, SPARK

_HEAD: Final = """# What doctor checks

`strandline doctor` tells what a careful operator would check before a run, and later from time to time. It writes no
table. `make docs` generates this page.

    strandline doctor                # with Spark
    strandline doctor --no-spark     # a lake in a folder or in S3, without a JVM
    strandline doctor --offline      # settings and files only; opens nothing
    strandline doctor --json

Each finding has a severity, the reason why it matters, and the command or setting that mends it.

| severity | meaning |
|---|---|
| `error` | A command would fail. |
| `warning` | It works now, and somebody should act. |
| `info` | Good to know, or not looked at. |
| `ok` | As it should be. |

- The exit code is 0 if there is no error. Otherwise it is the code of the first error ([errors](errors.md)), and the
  error is on standard error, too.
- If a check cannot get its information, that is its finding. The other checks go on.
- To see if the lake can be written, `doctor` writes a file and removes it. In S3 it creates the object
  `_strandline/two-writers`, as every capture does at its start.
- The first line is the verdict: how many errors and warnings there are, and the names of their checks. Problems come
  first. A pipe gets one line for each finding, which begins with the severity and the name of the check.
- It runs with whatever is installed. A package or a Java that is missing is a finding, and its fix is a command that
  can be pasted.
"""

_SCHEMA_HEAD: Final = """
## JSON

`--json` prints a list of findings. The names of checks and fields stay the same from release to release. New checks
and new fields may come. The schema of the list:

"""
_DATES_HEAD: Final = """
## Ends of life

Read on {day}. MongoDB's days are from [its own page](https://www.mongodb.com/legal/support-policy/lifecycles). Spark
announces none: it maintains a release for 18 months, and the days are the estimates of
[endoflife.date](https://endoflife.date/apache-spark). A release without a day is reported as `info`.

| release | end of life |
|---|---|
"""


def doctor_checks() -> list[Check]:
    """Return all checks, area by area, in the order of the code."""
    modules = (setting_checks, source_checks, lake_checks, spark_checks, file_checks)
    checks = {each.name: each for module in modules for each in vars(module).values() if isinstance(each, Check)}
    return sorted(checks.values(), key=lambda check: AREAS.index(check.area))


def doctor_page() -> str:
    """Return the text of docs/doctor.md."""
    page = _HEAD
    for area, checks in groupby(doctor_checks(), key=lambda check: check.area):
        page += f"\n## {area.capitalize()}\n\n| check | looks at | why | what mends it |\n|---|---|---|---|\n"
        page += "".join(
            f"| {each.name} | {_cell(each.subject)} | {_cell(each.why)} | {_cell(each.fix)} |\n" for each in checks
        )
    page += _DATES_HEAD.format(day=READ_ON)
    for product, dates in (("MongoDB", MONGODB), ("Spark", SPARK)):
        page += "".join(f"| {product} {release} | {day} |\n" for release, day in sorted(dates.items()))
    schema = TypeAdapter(list[Finding]).json_schema()
    return page + _SCHEMA_HEAD + f"```json\n{json.dumps(schema, indent=2)}\n```\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
