"""Bronze rows of one collection, as silver reads them."""

from __future__ import annotations

CHANGES_DDL = (
    "key STRING, position STRING, op STRING, cluster_time TIMESTAMP, collection_uuid STRING, document_size INT, "
    "envelope BINARY, "
    "_commit_version BIGINT, inexact STRING"
)
