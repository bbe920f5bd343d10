"""MongoDB as a data source of Spark: bronze's rows for a streaming query, a declarative pipeline, or one DataFrame.

    from strandline.spark_source import into_bronze, register

    register(spark)                                   # not needed where the wheel is installed on Spark's driver
    spark.read.format("strandline").option("source.uri", uri).load()             # a snapshot, at one cluster time
    spark.readStream.format("strandline").option("source.uri", uri).load()       # a snapshot, then changes

Options are the names of settings. Spark lists data sources by importing this module: so the rest is imported later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from strandline.errors import ConfigurationError
from strandline.model.table_schemas import BRONZE_DDL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.jobs.spark_source.into_bronze import BronzeTarget

_STREAM_SINCE: Final = "4.2"


class StrandlineSource(DataSource):
    """Data source ``strandline``: rows of bronze, with bronze's columns."""

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def schema(self) -> str:
        return BRONZE_DDL

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # why: Spark's signature
        from strandline.jobs.spark_source.batch_reader import BronzeReader

        return BronzeReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002  # why: Spark's signature
        try:
            from strandline.jobs.spark_source.stream_reader import BronzeStreamReader
        except ImportError as error:
            raise ConfigurationError(
                f"a stream of this source needs Spark {_STREAM_SINCE}, which tells it where a batch starts",
                next_step="strandline capture, or spark.read",
            ) from error
        return BronzeStreamReader(self.options)


def register(spark: SparkSession) -> None:
    """Register the data source with a session. I/O: asks Spark. Idempotent."""
    spark.dataSource.register(StrandlineSource)


def into_bronze(spark: SparkSession, options: Mapping[str, str]) -> BronzeTarget:
    """Return the bronze table of a source, and the options of the stream that continues it.

    I/O: reads the source and bronze; creates the table if it is missing.

    Args:
        options: Settings by name, as the reader takes them.

    Raises:
        ConfigurationError: Only ``strandline capture`` can continue the table. The message says why.
    """
    from strandline.jobs.spark_source.into_bronze import open_bronze

    return open_bronze(spark, options)
