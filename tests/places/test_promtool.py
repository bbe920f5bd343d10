"""Prometheus' own tool accepts what is served, and the alerts fire when they should and only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from strandline.io.telemetry.live_metrics import LiveMetrics
from strandline.io.telemetry.live_state import CaptureState
from strandline.io.telemetry.metrics import Labelled

PROMTOOL: Final = Path(sys.prefix) / "share" / "strandline" / "bin" / "promtool"
RULES: Final = Path(__file__).parents[2] / "ops" / "prometheus"


def promtool(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    assert PROMTOOL.exists(), "promtool is not there: make places fetches it"
    return subprocess.run([str(PROMTOOL), *arguments], input=given, capture_output=True, text=True, check=False)


def test_the_alerts_fire_when_they_should(tmp_path: Path) -> None:
    for file in ("strandline.rules.test.yml", "overdue.rules.test.yml"):
        done = promtool("test", "rules", str(RULES / file))
        assert done.returncode == 0, done.stdout + done.stderr
    for name in ("strandline.rules.yml", "strandline.rules.test.yml"):
        text = (RULES / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("behind_source_seconds > 300", "behind_source_seconds > 3000"))
    broken = promtool("test", "rules", str(tmp_path / "strandline.rules.test.yml"))
    assert broken.returncode != 0, "the test would not see a wrong rule"


def test_the_rules_and_what_is_served_are_valid() -> None:
    assert promtool("check", "rules", str(RULES / "strandline.rules.yml")).returncode == 0
    registry = CollectorRegistry()
    registry.register(Labelled({"source": "shop"}, LiveMetrics(CaptureState())))
    done = promtool("check", "metrics", given=generate_latest(registry).decode())
    told = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("strandline_")]
    assert told == [], told
