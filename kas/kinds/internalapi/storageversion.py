"""Strategy of StorageVersion (upstream ``pkg/registry/apiserverinternal/storageversion``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta
from kas.meta import errors, field, names
from kas.meta.age import age
from kas.meta.checks import dns_subdomain, qualified_name
from kas.meta.field import FieldError
from kas.registry.printing.cells import UNSET, first_three, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


def storage_version_name(name: str, prefix: bool) -> list[str]:
    """``ValidateStorageVersionName``: ``group.resource``; errors repeat the whole name. ``prefix`` has no effect."""
    group, dot, resource = name.rpartition(".")
    if not dot:
        return ["name must be in the form of <group>.<resource>"]
    found = [f"the group segment {message}" for message in names.is_dns1123_subdomain(group)]
    return found + [f"the resource segment {message}" for message in names.is_dns1035_label(resource)]


@strategy_for("internal.apiserver.k8s.io", "storageversions")
class StorageVersionStrategy(Strategy):
    """StorageVersions; the spec is empty, and servers report in the status what they write and read."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateStorageVersion``, the status included."""
        return object_meta(obj["metadata"], False, storage_version_name) + _status(obj.get("status") or {})

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateStorageVersionStatusUpdate``: the status only."""
        return _status(obj.get("status") or {})


def _status(status: dict[str, Any]) -> list[FieldError]:
    errs: list[FieldError] = []
    servers = status.get("storageVersions") or []
    ids: set[str] = set()
    for i, server in enumerate(servers):
        path, name = field.index("status.storageVersions", i), server.get("apiServerID") or ""
        if name in ids:
            errs.append(field.duplicate(field.child(path, "apiServerID"), name))
        ids.add(name)
        errs += _server(server, path)
    errs += _common_version(status, {s.get("encodingVersion") or "" for s in servers})
    seen: dict[str, int] = {}
    for i, condition in enumerate(status.get("conditions") or ()):
        path, kind = field.index("status", i), condition.get("type") or ""  # upstream omits "conditions" from the path
        if kind in seen:
            text = f"the type of the condition is not unique, it also appears in conditions[{seen[kind]}]"
            errs.append(field.invalid(field.child(path, "type"), kind, text))
        seen[kind] = i
        errs += qualified_name(kind, field.child(path, "type")) + qualified_name(condition.get("status") or "", field.child(path, "status"))
        for name in ("reason", "message"):
            if not condition.get(name):
                errs.append(field.required(field.child(path, name), f"{name} cannot be empty"))
    return errs


def _server(server: dict[str, Any], path: str) -> list[FieldError]:
    errs = dns_subdomain(server.get("apiServerID") or "", field.child(path, "apiServerID"))
    encoding = server.get("encodingVersion") or ""
    found = _api_version(encoding)
    if found:
        errs.append(field.invalid(field.child(path, "encodingVersion"), encoding, ",".join(found)))
    for name in ("decodableVersions", "servedVersions"):
        for i, version in enumerate(server.get(name) or ()):
            found = _api_version(version)
            if found:
                errs.append(field.invalid(field.index(field.child(path, name), i), version, ",".join(found)))
    listed = server.get("decodableVersions") or []
    decodable = frozenset(listed)
    if encoding not in decodable:
        text = f"decodableVersions must include encodingVersion {encoding}"
        errs.append(field.invalid(field.child(path, "decodableVersions"), server.get("decodableVersions"), text))
    shown, left = " ".join(listed), errors.MAX_PRINTED
    for i, version in enumerate(server.get("servedVersions") or ()):
        if version not in decodable:
            # The list is repeated in each error, up to a limit.
            text = f"individual served version : {version} must be included in decodableVersions : [{shown if left > 0 else '...'}]"
            left -= len(text)
            errs.append(field.invalid(field.index(field.child(path, "servedVersions"), i), version, text))
    return errs


def _common_version(status: dict[str, Any], encodings: set[str]) -> list[FieldError]:
    actual = next(iter(encodings)) if len(encodings) == 1 else None
    said, path = status.get("commonEncodingVersion"), "status.commonEncodingVersion"
    if actual is None and said is not None:
        text = (
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported "
            "versions yet"
        )
        return [field.invalid(path, said, text)]
    if actual is not None and said is None:
        return [field.invalid(path, None, f"the common encoding version is {actual}")]
    if actual != said:
        return [field.invalid(path, said, f"the actual common encoding version is {actual}")]
    return []


def _api_version(text: str) -> list[str]:
    """Check ``[group/]version``: a DNS subdomain and a DNS-1035 label."""
    parts = text.split("/")
    if len(parts) > 2:
        label = names.regex_error(
            "a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
            "and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            "my-name",
            "abc-123",
        )
        return [f"an apiVersion is {label} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"]
    found: list[str] = []
    version = parts[-1]
    if len(parts) == 2:
        messages = names.is_dns1123_subdomain(parts[0]) if parts[0] else ["must be non-empty"]
        found += [f"group part: {message}" for message in messages]
    messages = names.is_dns1035_label(version) if version else ["must be non-empty"]
    return found + [f"version part: {message}" for message in messages]


@printer("internal.apiserver.k8s.io", "StorageVersion")
def storage_version_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, common encoding version, the first three servers with theirs, age."""
    status = part(obj, "status")
    versions = [f"{v.get('apiServerID', '')}={v.get('encodingVersion', '')}" for v in status.get("storageVersions") or ()]
    return [obj["metadata"].get("name", ""), status.get("commonEncodingVersion", UNSET), first_three(versions) or UNSET, age(obj, now)]
