"""Kinds whose use is answered with a deprecation warning (``APILifecycleDeprecated`` of upstream's types, up to this release)."""

from __future__ import annotations

# (group, version, kind) -> the release that no longer serves it, where one is planned.
REMOVED: dict[tuple[str, str, str], str] = {}
WARNINGS: dict[tuple[str, str, str], str] = {
    ("", "v1", "ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
    ("", "v1", "Endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ("coordination.k8s.io", "v1alpha2", "LeaseCandidate"): "coordination.k8s.io/v1alpha2 LeaseCandidate is deprecated in v1.35+",
}
# By default a pre-release version is deprecated three releases after its introduction and removed three releases later.
_RELEASES: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {
    ("certificates.k8s.io", "v1alpha1"): (34, ("ClusterTrustBundle",)),
    ("certificates.k8s.io", "v1beta1"): (36, ("ClusterTrustBundle",)),
    ("coordination.k8s.io", "v1beta1"): (36, ("LeaseCandidate",)),
    ("networking.k8s.io", "v1beta1"): (34, ("IPAddress", "ServiceCIDR")),
    ("resource.k8s.io", "v1beta1"): (35, ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")),
    ("resource.k8s.io", "v1beta2"): (36, ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")),
    ("storage.k8s.io", "v1beta1"): (34, ("VolumeAttributesClass",)),
}
for (_group, _version), (_minor, _kinds) in _RELEASES.items():
    for _kind in _kinds:
        REMOVED[_group, _version, _kind] = f"1.{_minor + 3}"
        WARNINGS[_group, _version, _kind] = (
            f"{_group}/{_version} {_kind} is deprecated in v1.{_minor}+, unavailable in v1.{_minor + 3}+"
        )
