"""Strandline: ingestion of MongoDB change streams into a Delta lakehouse (bronze, silver, gold)."""

__version__ = "0.1.0"
