"""ABAC: a file of policies, one JSON object per line (``pkg/auth/authorizer/abac``).

Versions v1beta1 ({"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {...}}) and the older one without
an apiVersion, which is converted as upstream converts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes, Outcome
from kas.auth.user import AUTHENTICATED, UserInfo
from kas.meta import gojson
from kas.meta.field import go_quote
from kas.types.configfile import BOOL, STRING, UNREADABLE, ConfigurationError, Struct, decode, kind_of, parse

Spec = dict[str, Any]

API_VERSION = "abac.authorization.kubernetes.io/v1beta1"
V0 = "abac.authorization.kubernetes.io/v0"  # the version upstream assumes for a line without an apiVersion
SCHEME = "pkg/apis/abac/register.go:33"
_SPEC = {"user": STRING, "group": STRING, "readonly": BOOL, "namespace": STRING, "resource": STRING}
_V0 = Struct("Policy", _SPEC)
_V1BETA1 = Struct("Policy", {"spec": Struct("PolicySpec", {**_SPEC, "apiGroup": STRING, "nonResourcePath": STRING})})


class PolicyError(ValueError):
    """The policy file cannot be used; the text names the file and line, and quotes the line."""


class Abac:
    """Authorizes by ``policies``, the specs of a policy file."""

    def __init__(self, policies: list[Spec]) -> None:
        self._policies = policies
        # Policies by one of their subjects, named as in ``UserInfo.subjects``: a request does not look at the policies of other users, of
        # which there may be thousands.
        self._by_subject: dict[str, list[Spec]] = {}
        for p in policies:
            name, group = p.get("user"), p.get("group")
            if name or group:
                self._by_subject.setdefault(f"u{name}" if name else f"g{group}", []).append(p)

    def authorize(self, a: Attributes) -> Outcome:
        """Allow what a policy matches; no opinion on the rest."""
        if any(_matches(p, a) for policies in self._about(a.user) for p in policies):
            return ALLOW, "", ""
        return NO_OPINION, "No policy matched.", ""

    def _about(self, user: UserInfo) -> Iterator[list[Spec]]:
        found, subjects = self._by_subject, user.subjects
        if len(subjects) < len(found):
            return (found[subject] for subject in subjects if subject in found)
        return (policies for subject, policies in found.items() if subject in subjects)

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[dict], list[dict], bool, str]:
        """Return the resource and non-resource rules that the policies give the user in the namespace; the answer is complete."""
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
    """Read ``--authorization-policy-file``. Raises OSError if it cannot be read, PolicyError for an invalid line."""
    with open(path, encoding="utf-8", errors="replace") as f:
        return Abac(parse_policies(f.read(), path))


def parse_policies(text: str, path: str = "policy file") -> list[Spec]:
    """Return the specs of the policies, one per line. Raises PolicyError, with the line's number, for a line that is neither a policy nor
    a comment."""
    out = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if line.strip() and not line.strip().startswith("#"):
            try:
                out.append(_policy(line))
            except ConfigurationError as e:
                raise PolicyError(f"error reading policy file {path}, line {number}: {line}: {e}") from None
    return out


def _policy(line: str) -> Spec:
    """Parse a line as upstream's codec does: as JSON, or as YAML if it does not look like JSON; unknown fields are ignored."""
    data = line.encode()
    try:
        value = gojson.loads(data) if line.lstrip().startswith("{") else parse(data).value
    except gojson.JSONError as e:
        raise ConfigurationError(f"{UNREADABLE}: {e}") from None
    version, kind = kind_of({} if value is None else value)
    if not version and kind in ("", "Policy"):
        return _from_v0(decode(value or {}, _V0, package="v0", strict=False))
    if version == API_VERSION and not kind:
        raise ConfigurationError("converting (v1beta1.Policy) to (v0.Policy): unknown conversion")
    if (version, kind) != (API_VERSION, "Policy"):
        said = f"no kind {go_quote(kind or 'Policy')} is registered for version {go_quote(version or V0)}"
        raise ConfigurationError(f"{said} in scheme {go_quote(SCHEME)}")
    return _checked_group(decode(value, _V1BETA1, package="v1beta1", strict=False).get("spec") or {})


def _checked_group(spec: Spec) -> Spec:
    # "*" means every authenticated user; a user name beside it is dropped.
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
        # Only an unrestricted v0 policy covered non-resource paths.
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
    return (not name or name == user.name) and (not group or "g" + group in user.subjects)
