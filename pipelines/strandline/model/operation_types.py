"""Operation types of change events that this release knows. Pure.

Sources: https://www.mongodb.com/docs/manual/reference/change-events/ and the change stream sources of mongodb/mongo
(read 2026-11-28, up to 9.0). Events of any other type are stored, and silver ignores them.
"""

from __future__ import annotations

from typing import Final

from strandline.model.namespaces import NAMESPACE_OPERATIONS

_OF_DOCUMENTS: Final = ("insert", "update", "replace", "delete")
_FOLLOWED: Final = ("dropDatabase", "invalidate", "reshardCollection")
"""A drop of each collection comes before ``dropDatabase``. Capture acts on the other two."""
_WITHOUT_EFFECT: Final = (
    *("createIndexes", "dropIndexes", "startIndexBuild", "abortIndexBuild", "modify"),
    *("shardCollection", "refineCollectionShardKey", "migrateChunkToNewShard", "migrateLastChunkFromShard"),
    *("reshardBegin", "reshardBlockingWrites", "reshardDoneCatchUp", "endOfTransaction"),
)
"""They change neither documents nor the name or the UUID of a collection."""

KNOWN_OPERATIONS: Final = frozenset((*_OF_DOCUMENTS, *NAMESPACE_OPERATIONS, *_FOLLOWED, *_WITHOUT_EFFECT))
