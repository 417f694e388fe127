"""Managed fields of a custom resource with several versions: the merge schemas of a definition, and conversion between its versions.

Field ownership is computed synchronously (``kas.patch.fieldmanager``), but a conversion webhook has to be awaited. So a write keeps the
conversions that it has made. If one is missing, the computation stops with ``Unanswered`` and starts again once the result is there.
Upstream: apimachinery ``pkg/util/managedfields/internal/versionconverter.go`` over apiextensions-apiserver's
``pkg/apiserver/conversion/converter.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kas.apiextensions import customtypes, mergeschema
from kas.meta.errors import ApiError
from kas.meta.field import go_quote
from kas.patch.fieldmanager.schema import Answers, Schema, Unanswered
from kas.registry.versions import Converter
from kas.types.scheme import TypeDesc, write_json

Obj = dict[str, Any]


class MergeSchemas:
    """The merge schemas of one definition. ``types`` has all its versions, served or not."""

    def __init__(self, group: str, kind: str, types: Mapping[str, TypeDesc], preserve_unknown: bool, converter: Converter) -> None:
        self._group, self._kind, self._types, self._preserve, self._converter = group, kind, types, preserve_unknown, converter
        self._schemas: dict[str, Schema] = {}

    def of(self, version: str) -> Schema:
        """Return the schema of a version, built on first use."""
        found = self._schemas.get(version)
        if found is None:
            type_ = self._types[version]
            convert = partial(self._convert, None)
            found = mergeschema.crd_schema(type_, f"{self._group}/{version}", self._kind, self._preserve, convert)
            found.certain = customtypes.check(type_).soon_passes
            self._schemas[version] = found
        return found

    def forget(self) -> None:
        """Drop the cached schemas, which refer back to this object. They are built again if still needed."""
        self._schemas = {}

    def answered(self, version: str, answers: Answers) -> Schema:
        """Return ``of`` for a write that has the conversions ``answers`` and adds more."""
        return self.of(version).converting(partial(self._convert, answers))

    def _convert(self, answers: Answers | None, obj: Obj, api_version: str) -> tuple[Schema, Obj]:
        """Convert an object.

        Raises ApiError (500) for an unknown version and for a failed conversion, and Unanswered if the converter has to wait.
        """
        group, _, version = api_version.rpartition("/")
        if group != self._group:
            of = f"{obj['apiVersion']}, Kind={obj['kind']}"
            raise ApiError(500, "", f"{of} is unstructured and is not suitable for converting to {go_quote(api_version)}")
        if version not in self._types:
            raise ApiError(500, "", f"request to convert CR to an invalid group/version: {api_version}")
        shown = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}} if "metadata" in obj else obj
        converted = self._convert_once(answers, shown, (group, version, self._kind))
        schema = self.of(version) if answers is None else self.answered(version, answers)
        # No pruning here: fields unknown to the other version are an error.
        schema.check(converted)
        return schema, converted

    def _convert_once(self, answers: Answers | None, obj: Obj, target: tuple[str, str, str]) -> Obj:
        key = target[1], b"" if answers is None else write_json(obj)
        if answers is not None and key in answers:
            known = answers[key]
            if isinstance(known, ApiError):
                raise known
            return known
        found = self._converter.convert([obj], target)
        if isinstance(found, list):
            return found[0]
        assert answers is not None  # passed wherever a converter may wait
        raise Unanswered(answers, key, found)
