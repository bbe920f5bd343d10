"""Spark finds data sources in packages of this prefix: ``spark.read.format("strandline")`` needs no registration."""

from strandline.spark_source import StrandlineSource as DefaultSource

__all__ = ["DefaultSource"]
