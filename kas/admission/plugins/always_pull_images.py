"""AlwaysPullImages: the creator of a pod must be able to pull its images. Upstream: ``plugin/pkg/admission/alwayspullimages``."""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission import pods as pod_objects
from kas.auth.attributes import aggregate
from kas.meta.errors import ApiError
from kas.meta.field import go_quote

Obj = dict[str, Any]
KINDS = ("initContainers", "containers", "ephemeralContainers")


def _image_volumes(spec: Obj) -> list[tuple[int, Obj]]:
    return [(i, v["image"]) for i, v in enumerate(spec.get("volumes") or ()) if v.get("image") is not None]


class Plugin:
    """Applies to pods and their ephemeral containers."""

    name = "AlwaysPullImages"

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of pods, and ephemeral containers."""
        if a.resource != "pods" or a.group or a.operation not in (CREATE, UPDATE):
            return False
        return a.subresource in ("", "ephemeralcontainers")

    def admit(self, a: Attributes) -> None:
        """Set the pull policy of every image, including those of volumes, to Always."""
        # An update without a new image leaves the policies as they are, so that pods from before the plug-in was enabled keep working.
        if a.operation == UPDATE and not _new_images(a.obj["spec"], a.old["spec"]):
            return
        for container in pod_objects.containers(a.obj["spec"]):
            container["imagePullPolicy"] = "Always"
        for _, image in _image_volumes(a.obj["spec"]):
            image["pullPolicy"] = "Always"

    def validate(self, a: Attributes) -> None:
        """Refuse a pod if a later plug-in changed the pull policy."""
        spec = a.obj["spec"]
        if a.operation == UPDATE and not _new_images(spec, a.old["spec"]):
            return
        found = []
        for kind in KINDS:
            for i, container in enumerate(spec.get(kind) or ()):
                if container.get("imagePullPolicy") != "Always":
                    found.append((f"spec.{kind}[{i}].imagePullPolicy", container.get("imagePullPolicy") or ""))
        for i, image in _image_volumes(spec):
            if image.get("pullPolicy") != "Always":
                found.append((f"spec.volumes[{i}].image.pullPolicy", image.get("pullPolicy") or ""))
        if found:
            raise _refused(a, found)


def _refused(a: Attributes, found: list[tuple[str, str]]) -> ApiError:
    """Combine one refusal for each. As upstream, the combined error is a bare error, which the client receives as a 500."""
    refusals = [a.forbid(f'{path}: Unsupported value: {go_quote(value)}: supported values: "Always"') for path, value in found]
    return ApiError(500, "", aggregate([e.message for e in refusals]))


def _new_images(spec: Obj, old: Obj) -> bool:
    had = {c.get("image") for c in pod_objects.containers(old)} | {i.get("reference") for _, i in _image_volumes(old)}
    wanted = [c.get("image") for c in pod_objects.containers(spec)] + [i.get("reference") for _, i in _image_volumes(spec)]
    return any(image not in had for image in wanted)
