"""Every command on a catalog that you have: Unity Catalog, or any other that Spark can use.

``CATALOG_SETTINGS`` names a YAML file with the sections ``lake`` and ``spark`` of the configuration. The lake must be
empty, and is empty afterwards except for its schemas, gold, and the control tables.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from catalog_steps import run_in_a_process
from pymongo.database import Database

SETTINGS = os.environ.get("CATALOG_SETTINGS")


@pytest.mark.skipif(SETTINGS is None, reason="CATALOG_SETTINGS names no settings of a catalog")
def test_every_command_works_in_the_catalog(mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path) -> None:
    given = yaml.safe_load(Path(str(SETTINGS)).read_text(encoding="utf-8"))
    run_in_a_process(tmp_path, mongo_uri, database.name, given["lake"], given["spark"])
