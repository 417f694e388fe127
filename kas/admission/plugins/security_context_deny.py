"""SecurityContextDeny: pods may not set users, groups or SELinux options.

Upstream until 1.29: ``plugin/pkg/admission/securitycontext/scdeny``; replaced by PodSecurity.
"""

from __future__ import annotations

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission import pods as pod_objects

POD_FIELDS = {
    "supplementalGroups": "SupplementalGroups", "seLinuxOptions": "SELinuxOptions", "runAsUser": "RunAsUser", "fsGroup": "FSGroup",
}  # fmt: skip
CONTAINER_FIELDS = {"seLinuxOptions": "SELinuxOptions", "runAsUser": "RunAsUser"}


class Plugin:
    """Applies to new and updated pods."""

    name = "SecurityContextDeny"

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of pods."""
        return a.resource == "pods" and not a.group and not a.subresource and a.operation in (CREATE, UPDATE)

    def validate(self, a: Attributes) -> None:
        """Refuse security settings that pods or containers may not have."""
        spec = a.obj["spec"]
        for field, name in POD_FIELDS.items():
            if (spec.get("securityContext") or {}).get(field) is not None:
                raise a.forbid(f"pod.Spec.SecurityContext.{name} is forbidden")
        for container in pod_objects.containers(spec):
            for field, name in CONTAINER_FIELDS.items():
                if (container.get("securityContext") or {}).get(field) is not None:
                    raise a.forbid(f"SecurityContext.{name} is forbidden")
