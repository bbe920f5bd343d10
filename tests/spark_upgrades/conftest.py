"""Tests that need a second environment with an older Spark. `make test-spark` names its Python in ``OLDER_SPARK``."""

from __future__ import annotations

import os

collect_ignore = [] if "OLDER_SPARK" in os.environ else ["test_spark_upgrade.py"]
