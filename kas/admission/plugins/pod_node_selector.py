"""PodNodeSelector: restricts the nodes on which the pods of a namespace run.

The namespace's annotation, or the configuration's ``clusterDefaultNodeSelector`` without one, gives the labels that the node must have.
The configuration for a namespace is a whitelist: its pods may select by these labels and no others.

Selectors in the configuration are validated at start; upstream detects errors at every pod. Upstream:
``plugin/pkg/admission/podnodeselector``.
"""

from __future__ import annotations

from kas.admission import CREATE, Attributes
from kas.admission.configuration import Section, unversioned
from kas.informers import Objects
from kas.meta import errors, field
from kas.meta.names import is_label_value, is_qualified_name
from kas.types.configfile import STRINGS, ConfigurationError, Struct

Labels = dict[str, str]
ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"
CLUSTER = "clusterDefaultNodeSelector"
SHAPE = Struct("pluginConfig", {"podNodeSelectorPluginConfig": STRINGS})
CONFLICT = "pod node label selector conflicts with its namespace node label selector"
NOT_LISTED = "pod node label selector labels conflict with its namespace whitelist"


def parse(text: str) -> Labels:
    """Parse comma-separated key=value pairs (``labels.ConvertSelectorToLabelsMap``). Raises ValueError for anything else."""
    out: Labels = {}
    for part in text.split(",") if text else ():
        pair = part.split("=")
        if len(pair) != 2:
            raise ValueError(f"invalid selector: [{' '.join(pair)}]")
        key, value = pair[0].strip(), pair[1].strip()
        # The path is Go's nil there, printed as such.
        if wrong := is_qualified_name(key):
            raise ValueError(str(field.invalid("<nil>", key, "; ".join(wrong))))
        if wrong := is_label_value(value):
            raise ValueError(str(field.invalid(f"[{key}]", value, "; ".join(wrong))))
        out[key] = value
    return out


class Plugin:
    """Applies to new pods; reads their namespace's annotation."""

    name = "PodNodeSelector"

    def __init__(self, objects: Objects, section: Section | None = None) -> None:
        self._objects = objects
        self._allowed = self.configured(section)
        self._default = self._allowed.get(CLUSTER, {})

    @staticmethod
    def configured(section: Section | None) -> dict[str, Labels]:
        """Return the labels that each namespace may select. Raises ConfigurationError."""
        out: dict[str, Labels] = {}
        for name, text in (unversioned(section, SHAPE).get("podNodeSelectorPluginConfig") or {}).items():
            try:
                out[name] = parse(text)
            except ValueError as e:
                raise ConfigurationError(f"podNodeSelectorPluginConfig.{name}: {e}") from None
        return out

    def handles(self, a: Attributes) -> bool:
        """Handle creates of pods."""
        return a.operation == CREATE and a.resource == "pods" and not a.group and not a.subresource

    def _wanted(self, a: Attributes) -> Labels:
        namespace = self._objects.get("", "namespaces", "", a.namespace)
        if namespace is None:
            raise errors.internal(f"namespace {a.namespace} does not exist")  # upstream loses the original error
        text = (namespace["metadata"].get("annotations") or {}).get(ANNOTATION)
        if text is None:
            return self._default
        try:
            return parse(text)
        except ValueError as e:
            # As upstream, a bare error, which the client receives as a 500.
            raise errors.ApiError(500, "", str(e)) from None

    def admit(self, a: Attributes) -> None:
        """Add the namespace's node selector; raise 403 if the pod contradicts it or violates the whitelist."""
        wanted = self._wanted(a)
        own = a.obj["spec"].get("nodeSelector") or {}
        self._check(a, wanted, own)
        if wanted:
            a.obj["spec"]["nodeSelector"] = own = {**wanted, **own}
            a.adds(len(wanted))
        self._check_list(a, own)

    def validate(self, a: Attributes) -> None:
        """Refuse a pod that contradicts the selector or whitelist after changes by a later plug-in."""
        own = a.obj["spec"].get("nodeSelector") or {}
        self._check(a, self._wanted(a), own)
        self._check_list(a, own)

    @staticmethod
    def _check(a: Attributes, wanted: Labels, own: Labels) -> None:
        if any(key in own and own[key] != value for key, value in wanted.items()):
            raise errors.forbidden(a.group, a.resource, a.obj["metadata"].get("name", ""), CONFLICT)

    def _check_list(self, a: Attributes, own: Labels) -> None:
        allowed = self._allowed.get(a.namespace)
        if allowed and any(allowed.get(key) != value for key, value in own.items()):
            raise errors.forbidden(a.group, a.resource, a.obj["metadata"].get("name", ""), NOT_LISTED)
