"""Selection of databases, collections, fields and operations: settings of the section ``capture``.

Used by `settings`, `cli` and `jobs` only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from strandline.model.field_rules import DEFAULT_MASK, FieldPolicy, FieldRule, parse_field_rules
from strandline.model.namespaces import Namespace
from strandline.model.regex_input import pattern_problem, split_outside_brackets
from strandline.model.update_kinds import UpdateKind
from strandline.model.user_pipeline import UserPipeline, parse_user_pipeline

CaptureMode = Literal[
    "change_streams",
    "change_streams_update_full",
    "change_streams_with_pre_image",
    "change_streams_update_full_with_pre_image",
]
Engine = Literal["auto", "spark"]
_Skippable = Literal["c", "u", "d", "t", "none"]
_FIELD_RULE = "database.collection.field.nested; in database and collection, * means any characters"


class Section(BaseModel):
    """Base of all settings sections: frozen, without unknown keys, and no values in error messages."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def split_names(value: Any) -> Any:
    """Split a comma-separated string (as Debezium's) or a JSON list into entries, without blanks around them."""
    entries = _entries(value) if isinstance(value, str) else value
    if not isinstance(entries, list | tuple | None):
        return entries
    stripped = (entry.strip() if isinstance(entry, str) else entry for entry in entries or ())
    return tuple(entry for entry in stripped if entry != "")


def _entries(text: str) -> list[Any]:
    """Split a JSON list, else text with commas. A regular expression may begin with a bracket as a JSON list does."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return split_outside_brackets(text)
    return entries if isinstance(entries, list) else split_outside_brackets(text)


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_names)]
"""List of texts, which may also be given as one text (`split_names`)."""


class SelectionSettings(Section):
    """Databases, collections, fields and operations to capture. Names are Debezium's, in snake case."""

    scope: Literal["deployment", "database", "collection"] | None = Field(
        None,
        description="Scope of the change stream: the whole deployment, one database or one collection. null: as "
        "`target` says; without a target, `deployment` if an include list is set. One of the three must be set.",
    )
    target: str | None = Field(
        None, description="Database, or database.collection, that `scope` refers to. null with scope `deployment`."
    )
    mode: CaptureMode = Field(
        "change_streams_update_full",
        description="Content of change events. `update_full`: an update holds the whole document; otherwise only its "
        "changed fields. `pre_image`: updates and deletes also hold the document before the change.",
    )
    full_update_type: Literal["lookup", "post_image"] = Field(
        "lookup",
        description="Source of the whole document of an update. `lookup`: the document as it is when the event is "
        "read. `post_image`: the recorded post-image (MongoDB 6.0 and newer).",
    )
    filters_match_mode: Literal["regex", "literal"] = Field(
        "regex",
        description="Syntax of the four lists below. `regex`: anchored, case-sensitive regular expressions. `literal`: "
        "plain names.",
    )
    database_include_list: Names = Field((), description="Databases to capture. Empty: all except system databases.")
    database_exclude_list: Names = Field(
        (), description="Databases to leave out. Cannot be combined with `database_include_list`."
    )
    collection_include_list: Names = Field(
        (), description="Collections to capture, as database.collection. Empty: all."
    )
    collection_exclude_list: Names = Field(
        (),
        description="Collections to leave out, as database.collection. Cannot be combined with "
        "`collection_include_list`.",
    )
    skipped_operations: Annotated[tuple[_Skippable, ...], NoDecode] = Field(
        (),
        description="Operations that the stream leaves out: `c` inserts, `u` updates and replaces, `d` deletes. "
        "`t` and `none` skip nothing in MongoDB. Snapshots are not affected.",
    )
    field_exclude_list: Names = Field((), description=f"Fields to leave out: {_FIELD_RULE}.")
    field_renames: Names = Field((), description="Fields to rename: database.collection.field.nested:new_name.")
    field_hash_list: Names = Field(
        (),
        description="Fields whose values are replaced by salted SHA-256 hashes. Same syntax as `field_exclude_list`.",
    )
    field_hash_salt: SecretStr | None = Field(
        None,
        min_length=8,
        description="Salt of the hashes of `field_hash_list`, at least 8 characters. Required by that list.",
    )
    field_mask_list: Names = Field(
        (), description="Fields whose values are replaced by `field_mask_text`. Same syntax as `field_exclude_list`."
    )
    field_mask_text: str = Field(DEFAULT_MASK, description="Replacement text for the fields of `field_mask_list`.")
    sharded_ids_are_unique: bool = Field(
        False,
        description="Capture sharded collections whose shard key is not `_id`. Set it only if the application "
        "makes `_id`s that are unique in the whole cluster, such as ObjectIds. No server checks this: "
        "if two documents have the same `_id`, silver keeps one of them.",
    )
    cursor_pipeline: str | None = Field(
        None, description="Stages to add to the change stream's pipeline, as a JSON list. null: none."
    )
    cursor_pipeline_order: Literal["internal_first", "user_first", "user_only"] = Field(
        "internal_first",
        description="Order of the stages of `cursor_pipeline`: after (`internal_first`), before (`user_first`) or "
        "instead of (`user_only`) the stages that Strandline creates.",
    )

    @model_validator(mode="before")
    @classmethod
    def _implied_scope(cls, values: Any) -> Any:
        """Fill in the scope that target or include lists imply."""
        if not isinstance(values, dict) or values.get("scope") is not None:
            return values
        if isinstance(target := values.get("target"), str) and target:
            return values | {"scope": "collection" if "." in target else "database"}
        includes = values.get("database_include_list") or values.get("collection_include_list")
        return values | {"scope": "deployment"} if includes else values

    @field_validator("skipped_operations", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return split_names(value)

    @model_validator(mode="after")
    def _consistent(self) -> SelectionSettings:
        """Report all contradictions together. Entries are named by list and number, never by value."""
        problems = [*_list_problems(self), *self._field_problems()]
        problems += (
            parse_user_pipeline(self.cursor_pipeline, protects=self.field_policy.protects)[1]
            or self._pipeline_problems()
        )
        if self.cursor_pipeline is None and self.cursor_pipeline_order != "internal_first":
            problems.append("cursor_pipeline_order stands without a cursor_pipeline")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _field_problems(self) -> list[str]:
        problems = _rules(self)[1]
        if self.field_hash_list and self.field_hash_salt is None:
            problems.append("field_hash_list needs field_hash_salt: without one a guess at the value proves itself")
        if self.field_renames and self.update_kind == "patch":
            problems.append(
                f"field_renames needs whole documents: by mode {self.mode} "
                "a patch cannot tell whether the new name is taken"
            )
        return problems

    def _pipeline_problems(self) -> list[str]:
        """Return the problems of allowed stages in combination with the mode."""
        if self.user_pipeline.passes_all or self.update_kind != "patch":
            return []
        return [
            f"cursor_pipeline may leave out changes, or change documents, and by mode {self.mode} silver folds patches "
            "onto the document before them: choose mode change_streams_update_full, or filter by the lists of "
            "databases, collections and fields"
        ]

    @property
    def update_kind(self) -> UpdateKind:
        """Form of update events: patch, looked-up document or post-image."""
        return self.full_update_type if "update_full" in self.mode else "patch"

    @property
    def field_policy(self) -> FieldPolicy:
        """The four field lists as one plain value."""
        salt = self.field_hash_salt.get_secret_value().encode() if self.field_hash_salt is not None else b""
        return FieldPolicy(_rules(self)[0], salt, self.field_mask_text)

    @property
    def user_pipeline(self) -> UserPipeline:
        """Stages of ``cursor_pipeline`` as a plain value."""
        return UserPipeline(parse_user_pipeline(self.cursor_pipeline)[0], self.cursor_pipeline_order)


def _rules(settings: SelectionSettings) -> tuple[tuple[FieldRule, ...], list[str]]:
    return parse_field_rules(
        exclude=settings.field_exclude_list,
        mask=settings.field_mask_list,
        hashed=settings.field_hash_list,
        renames=settings.field_renames,
    )


def _list_problems(settings: SelectionSettings) -> list[str]:
    problems = []
    for level in ("database", "collection"):
        included, excluded = getattr(settings, f"{level}_include_list"), getattr(settings, f"{level}_exclude_list")
        if included and excluded:
            problems.append(f"{level}_include_list and {level}_exclude_list exclude each other: set one of them")
        for name, entries in ((f"{level}_include_list", included), (f"{level}_exclude_list", excluded)):
            problems += entry_problems(name, entries, level, settings.filters_match_mode)
    if "none" in settings.skipped_operations and len(settings.skipped_operations) > 1:
        problems.append("skipped_operations: none stands beside others")
    return problems


def entry_problems(name: str, entries: Iterable[str], level: str, mode: str) -> list[str]:
    """Return the problems of the list *name* of databases or collections (*level*), by the number of the entry."""
    judged = ((number, _entry_problem(entry, level, mode)) for number, entry in enumerate(entries, 1))
    return [f"{name} entry {number} {problem}" for number, problem in judged if problem is not None]


def _entry_problem(entry: str, level: str, mode: str) -> str | None:
    if mode == "regex":
        return pattern_problem(entry)
    return "is no database.collection" if level == "collection" and not is_namespace(entry) else None


def is_namespace(name: str) -> bool:
    """Return True if *name* is a plain ``database.collection``, with neither part empty."""
    return all(Namespace.parse(name))


def key_problems(name: str, keys: Iterable[str]) -> list[str]:
    """Return the problems of the setting *name*: each of *keys* must be a plain ``database.collection``."""
    return [f"{name}: {key!r} is no database.collection" for key in keys if not is_namespace(key)]
