"""ABAC: a file of policies, one JSON object a line (``pkg/auth/authorizer/abac``).

Versions v1beta1 ({"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {...}}) and the older
one without apiVersion, which is converted as upstream converts it.
"""

from __future__ import annotations

import json
from typing import Any

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes, Outcome
from kas.auth.user import AUTHENTICATED, UserInfo

Spec = dict[str, Any]

_GO_TYPE = (
    r'Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)
API_VERSION = "abac.authorization.kubernetes.io/v1beta1"


class PolicyError(ValueError):
    """The policy file cannot be used; the text names file and line, and what stands there."""


class Abac:
    """Authorizes by ``policies``, the specs of a policy file."""

    def __init__(self, policies: list[Spec]) -> None:
        self._policies = policies

    def authorize(self, a: Attributes) -> Outcome:
        """Allow what some policy matches, have no opinion on the rest."""
        for p in self._policies:
            if _matches(p, a):
                return ALLOW, "", ""
        return NO_OPINION, "No policy matched.", ""

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[dict], list[dict], bool, str]:
        """Rules of resources and of paths that the policies give the user there; they are complete."""
        resource: list[dict] = []
        other: list[dict] = []
        for p in self._policies:
            if not _subject_matches(p, user) or (p.get("namespace") or "") not in ("*", namespace):
                continue
            verbs = ["get", "list", "watch"] if p.get("readonly") else ["*"]
            if p.get("resource"):
                resource.append({"verbs": verbs, "apiGroups": [p.get("apiGroup") or ""], "resources": [p["resource"]]})
            if p.get("nonResourcePath"):
                other.append({"verbs": verbs, "nonResourceURLs": [p["nonResourcePath"]]})
        return resource, other, False, ""


def load_policy_file(path: str) -> Abac:
    """Read ``--authorization-policy-file``; OSError when it cannot be read, PolicyError when a line is no policy."""
    with open(path, encoding="utf-8") as f:
        return Abac(parse_policies(f.read(), path))


def parse_policies(text: str, path: str = "policy file") -> list[Spec]:
    """The specs of the policies, one a line; PolicyError, with the line's number, for a line that is neither policy nor comment."""
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        where = f"error reading policy file {path}, line {number}: {line}"
        try:
            obj = json.loads(line)
        except ValueError as e:
            # What is not JSON is read as YAML, and there a bare text is a string.
            if line[0] in "{[":
                raise PolicyError(f"{where}: couldn't get version/kind; json parse error: {e}") from e
            obj = line
        if not isinstance(obj, dict):
            shown = "array" if isinstance(obj, list) else "string" if isinstance(obj, str) else "number"
            raise PolicyError(f"{where}: couldn't get version/kind; json parse error: json: cannot unmarshal {shown} into {_GO_TYPE}")
        if not obj.get("apiVersion") and not obj.get("kind"):
            out.append(_from_v0(obj))
        elif obj.get("apiVersion") == API_VERSION and obj.get("kind") == "Policy" and isinstance(obj.get("spec"), dict):
            out.append(_checked_group(obj["spec"]))
        else:
            raise PolicyError(f"{where}: expected a Policy of {API_VERSION}")
    return out


def _checked_group(spec: Spec) -> Spec:
    # "*" means every authenticated user, and whatever user stood beside it is forgotten.
    if spec.get("user") == "*" or spec.get("group") == "*":
        spec = {k: v for k, v in spec.items() if k != "user"}
        spec["group"] = AUTHENTICATED
    return spec


def _from_v0(old: Spec) -> Spec:
    spec = {k: old[k] for k in ("user", "group", "readonly", "namespace", "resource") if old.get(k)}
    if not spec.get("user") and not spec.get("group"):
        spec["group"] = AUTHENTICATED
    spec["apiGroup"] = "*"
    if not spec.get("namespace"):
        spec["namespace"] = "*"
    if not spec.get("resource"):
        spec["resource"] = "*"
        # Only an unrestricted policy of old reached non-resource paths.
        if not old.get("namespace"):
            spec["nonResourcePath"] = "*"
    return _checked_group(spec)


def _matches(p: Spec, a: Attributes) -> bool:
    if not _subject_matches(p, a.user) or (p.get("readonly") and not a.is_read_only()):
        return False
    if not a.resource_request:
        path = p.get("nonResourcePath") or ""
        return bool(path) and (path == "*" or path == a.path or (path.endswith("*") and a.path.startswith(path.rstrip("*"))))
    # An absent namespace, resource or group in the policy matches only the empty one of the request.
    wanted = ((p.get("namespace"), a.namespace), (p.get("resource"), a.resource), (p.get("apiGroup"), a.api_group))
    return all(have == "*" or (have or "") == value for have, value in wanted)


def _subject_matches(p: Spec, user: UserInfo) -> bool:
    name, group = p.get("user") or "", p.get("group") or ""
    if not name and not group:
        return False
    return (not name or name == user.name) and (not group or group in user.groups)
