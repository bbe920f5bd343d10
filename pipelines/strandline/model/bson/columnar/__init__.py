"""Columnar reading of BSON: numpy walks the documents of a batch together.

A walk in Python costs the interpreter a microsecond for each value. Here each document has a cursor, and one step
reads the next element of every document. So the interpreter works once for each step, not once for each value. Three
documents of a batch, and their cursors after the first step:

    {_id: 1, name: "Ada", tags: ["x", "y"]}     length │ int32 _id 1 ▲ string name "Ada" │ array tags … │
    {_id: 2, name: null, tags: []}              length │ int32 _id 2 ▲ null name │ array tags … │
    {_id: 3, tags: ["z"]}                       length │ int32 _id 3 ▲ array tags … │

In the next step two cursors stand at ``name`` and one at ``tags``: the elements of such a step are sorted by their
names when the walk is over. So a field that some documents lack takes no further steps. The result is a tree of
positions. No value is read before it is needed:

    Documents ┬ _id  ── Values(int32,  rows 0 1 2, where each starts and ends)
              ├ name ┬─ Values(string, rows 0)
              │      └─ Values(null,   rows 1)
              └ tags ── Values(array,  rows 0 1 2) ── Arrays(offsets 0 2 2 3) ── Values(string, rows 0 1 2)

An embedded document is the same walk from another start. The i-th elements of all arrays are one step, and the
elements of all arrays are the rows of one node, as in Arrow.

A document *leaves the batch*, alone, unless the tree holds all that a walk over its own bytes would give, in the same
order. It leaves because a length does not fit, a name occurs twice or is not UTF-8, the keys of an array are out of
order, it holds a regular expression, or almost no other document has one of its fields. `BsonBatch.has_left` marks it,
and its caller reads it in another way. The tree holds nothing that is not in the document, but may lack a part of it.
"""
