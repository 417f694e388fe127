"""crdschema/create* and crdschema/update: custom objects through the functions that serve them, on descriptors made from their schemas."""

from __future__ import annotations

import copy

from kas.apiextensions import celrules, embeddedmeta, listtypes
from kas.apiextensions.customtypes import schema_errors
from kas.types.scheme import apply_schema_defaults, drop_nulls, prune, schema_type


def shown(errors):
    return [{"type": e.type, "field": e.field, "detail": e.detail, "message": str(e)} for e in errors]


def in_order(errors):
    return sorted(errors, key=lambda e: (e["field"], e["message"]))


def run(vector):
    given = vector["in"]
    type = schema_type("com.example.v1.Thing", given["schema"])
    obj = copy.deepcopy(given["object"])
    if "oldObject" in given:
        return {"celErrors": shown(celrules.errors(type, obj, given["oldObject"], ratchet=False)[0])}
    unknown = prune(type, obj)
    out = {"unknownFieldPaths": unknown or None, "pruned": copy.deepcopy(obj)}
    drop_nulls(type, obj)
    apply_schema_defaults(type, obj)
    out |= {"defaulted": obj, "schemaErrors": shown(schema_errors(type, obj)), "listErrors": shown(listtypes.errors(type, obj))}
    out["embeddedMetaErrors"] = shown(embeddedmeta.errors(type, obj))
    if not out["schemaErrors"]:
        out["celErrors"] = shown(celrules.errors(type, obj)[0])
    return out


def check(vector, group):
    want, got = vector["out"], run(vector)
    if "celErrors" not in want:  # a schema without rules
        assert not got.pop("celErrors", None)
    for key in ("schemaErrors", "listErrors", "embeddedMetaErrors", "celErrors"):
        if key in want:  # upstream walks maps in random order
            want, got = {**want, key: in_order(want[key])}, {**got, key: in_order(got[key])}
    assert got == want
