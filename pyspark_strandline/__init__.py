"""Spark finds data sources in packages of this prefix: ``spark.read.format("strandline")`` needs no registration."""

from pipelines.spark_source import StrandlineSource as DefaultSource

__all__ = ["DefaultSource"]
