"""crds-real: definitions of well-known projects and their objects, on descriptors made from every version's schema.

Left out are errors about metadata, which the registry validates, warnings of deprecated versions, and samples that are no objects of the
definitions.
"""

from __future__ import annotations

import copy
import json
import re

from kas.apiextensions import celrules, customtypes, mergeschema
from kas.apiextensions.schema import RULES, walk
from kas.meta.field import FieldError
from kas.types.scheme import schema_type

WARNING = re.compile(r'299 - ("(?:[^"\\]|\\.)*")')


def warnings(out):
    found = [json.loads(text) for text in WARNING.findall(out.get("warning") or "")]
    return sorted(text for text in found if text.startswith("unknown field"))


def causes(out):
    found = ((out.get("error") or {}).get("details") or {}).get("causes") or []
    return [(c["field"], c["message"], c["reason"]) for c in found]


def check(vector, group):
    crd = vector["crd"]["spec"]
    versions = {v["name"]: v for v in crd["versions"] if (v.get("schema") or {}).get("openAPIV3Schema")}
    types = {name: schema_type(f"{name}.{crd['names']['kind']}", v["schema"]["openAPIV3Schema"]) for name, v in versions.items()}
    for name, type in types.items():
        mergeschema.crd_schema(type, f"{crd['group']}/{name}", crd["names"]["kind"])
        assert (celrules.of_type(type) is None) is not any(s.get(RULES) for s in walk(type.schema))
    for sample in vector["samples"]:
        version = sample["in"]["apiVersion"].rpartition("/")[2]
        if version not in types or sample["out"]["status"] not in (201, 422):
            continue
        obj = copy.deepcopy(sample["in"])
        unknown = customtypes.decode(types[version], obj)
        if "status" in (versions[version].get("subresources") or {}):
            obj.pop("status", None)
        customtypes.default(types[version], obj)
        wanted = causes(sample["out"])
        meta = [FieldError(reason, path, "", message) for path, message, reason in wanted if path.startswith("metadata.")]
        errs, _ = customtypes.errors(types[version], obj, found=meta)
        got = sorted((e.field, str(e)[len(e.field) + 2 :]) for e in errs if e not in meta)
        assert got == sorted((path, message) for path, message, _ in wanted if not path.startswith("metadata.")), sample["path"]
        assert sorted(f'unknown field "{path}"' for path in unknown) == warnings(sample["out"]), sample["path"]
        if sample["out"]["status"] == 201:
            assert delta(sample["in"], obj) == {tuple(path): value for path, value in sample["out"]["delta"]}, sample["path"]


def delta(sent, stored, path=()):
    """The differences from what was sent, without metadata: path -> value, null for a removed field."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        keys = [key for key in {**sent, **stored} if path or key != "metadata"]
        parts = [delta(sent[k], stored[k], (*path, k)) if k in sent and k in stored else {(*path, k): stored.get(k)} for k in keys]
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        parts = [delta(a, b, (*path, i)) for i, (a, b) in enumerate(zip(sent, stored, strict=True))]
    else:
        parts = [] if sent == stored else [{path: stored}]
    return {key: value for part in parts for key, value in part.items()}
