"""``pyspark.sql.functions``, imported with the first use of a function.

Silver imports this module where one module has rules for Spark and for rows in this process. So a batch is merged
in this process without the second in which PySpark is imported, and where PySpark is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.functions import *  # noqa: F403  # why: all of them, for mypy
else:

    def __getattr__(name):
        from pyspark.sql import functions

        return getattr(functions, name)
