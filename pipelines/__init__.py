"""Strandline: MongoDB change streams into a Delta lake, medallion style."""

__version__ = "0.1.0"
