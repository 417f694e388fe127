"""PodSecurityConfiguration: the defaults for namespaces without labels, and the exemptions (``pod-security-admission/admission/api``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kas.admission.configuration import Section, versioned
from kas.admission.plugins._podsecurity.policy import LEVELS, PREFIX, PRIVILEGED, LevelVersion, Policy, parse_version
from kas.meta.field import FieldError, duplicate, invalid, required
from kas.meta.names import is_dns1123_label, is_dns1123_subdomain
from kas.meta.records import NamedTuple
from kas.types.configfile import STRING, Struct, check

MODES = ("enforce", "audit", "warn")
_SHAPE = Struct("PodSecurityConfiguration", {
    "defaults": Struct("PodSecurityDefaults", {name: STRING for mode in MODES for name in (mode, f"{mode}-version")}),
    "exemptions": Struct("PodSecurityExemptions", {"usernames": [STRING], "namespaces": [STRING], "runtimeClasses": [STRING]}),
})  # fmt: skip
KINDS = {
    (f"pod-security.admission.config.k8s.io/{version}", "PodSecurityConfiguration"): _SHAPE for version in ("v1", "v1beta1", "v1alpha1")
}


class Settings(NamedTuple):
    """The configuration: levels for namespaces without labels, and exemptions."""

    defaults: Policy = Policy()
    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


def load(section: Section | None) -> Settings:
    """Decode and validate the section. Raises ConfigurationError."""
    config = versioned(section, KINDS)
    given, exempt = config.get("defaults") or {}, config.get("exemptions") or {}
    found: list[FieldError] = []
    parts = {}
    for mode in ("enforce", "warn", "audit"):
        level, text = given.get(mode) or PRIVILEGED, given.get(f"{mode}-version") or "latest"
        if level not in LEVELS:
            found.append(invalid(f"defaults.{mode}", level, "must be one of privileged, baseline, restricted"))
        version = parse_version(text)
        if version is None:
            found.append(invalid(f"defaults.{mode}-version", text, 'must be "latest" or "v1.x"'))
        else:
            parts[mode] = LevelVersion(level, version)
    namespaces, classes, users = (exempt.get(name) or [] for name in ("namespaces", "runtimeClasses", "usernames"))
    found += _names("exemptions.namespaces", namespaces, is_dns1123_label)
    found += _names("exemptions.runtimeClasses", classes, is_dns1123_subdomain)
    found += _names("exemptions.usernames", users, None)
    check(found)
    return Settings(Policy(**parts), frozenset(users), frozenset(namespaces), frozenset(classes))


def _names(path: str, given: list[str], rule: Any) -> Iterable[FieldError]:
    seen = set()
    for i, name in enumerate(given):
        wrong = rule(name) if rule is not None else ()
        if wrong:
            yield invalid(f"{path}[{i}]", name, ", ".join(wrong))
        elif not name:
            yield required(f"{path}[{i}]")
        elif name in seen:
            yield duplicate(f"{path}[{i}]", name)
        seen.add(name)


def ignored_warning(namespace: str, policy: Policy, defaults: Policy, labels: dict[str, str]) -> str:
    """Return the warning for an exempt namespace with policy labels; "" if none is needed."""
    if policy.open or all(_equivalent(*pair) for pair in zip(policy, defaults, strict=True)):
        return ""
    shown = [
        f"{mode}={level}"
        for mode, level in zip(MODES, policy, strict=True)
        if level.level != PRIVILEGED and (PREFIX + mode in labels or f"{PREFIX}{mode}-version" in labels)
    ]
    return f'namespace "{namespace}" is exempt from Pod Security, and the policy ({", ".join(shown)}) will be ignored'


def _equivalent(a: LevelVersion, b: LevelVersion) -> bool:
    return a == b or a.level == b.level == PRIVILEGED
