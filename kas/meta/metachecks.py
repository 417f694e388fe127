"""Fast checks of object metadata that accept what is certainly valid, which is nearly every object.

The full rules and all error texts are in ``kas.meta.objectmeta`` and ``labelselectors``.
"""

from __future__ import annotations

from kas import checks
from kas.checks import Check, Scope
from kas.meta import names

TOTAL_ANNOTATION_SIZE_LIMIT_B = 256 * 1024
FIELD_MANAGER_MAX_LENGTH = 128
SUBRESOURCE_MAX_LENGTH = 256
DEPENDENTS = ("orphan", "foregroundDeletion")
ANY = checks.anything()

LABELS = checks.mapping(checks.label_value(), checks.qualified_name())
_KEY = checks.qualified_name()
_EXPRESSION = checks.any_of(
    checks.record(
        {"key": _KEY, "operator": checks.option("In", "NotIn"), "values": checks.listing(checks.label_value(), low=1)},
        required=("key", "operator", "values"),
    ),
    checks.record({"key": _KEY, "operator": checks.option("Exists", "DoesNotExist")}, required=("key", "operator")),
)
LABEL_SELECTOR = checks.record({"matchLabels": LABELS, "matchExpressions": checks.listing(_EXPRESSION)})
# Upstream lower-cases keys before it checks them.
ANNOTATIONS = checks.mapping(checks.text(), checks.qualified_name(capitals=True), total=TOTAL_ANNOTATION_SIZE_LIMIT_B)


def _owners() -> Check:
    controller = Scope("controller")
    reference = checks.record(
        {
            "apiVersion": checks.group_version(), "kind": checks.text(1, but=("Event",)), "name": checks.text(1), "uid": checks.text(1),
            "controller": checks.any_of(checks.same(False).or_null(), checks.same(True).claim(controller)), "blockOwnerDeletion": ANY,
        },
        required=("apiVersion", "kind", "name", "uid"),
    )  # fmt: skip
    return checks.listing(reference).opening(controller)


def _finalizers(*others: Check) -> Check:
    """Finalizers: qualified names with a prefix, at most one of the two that govern dependents, and whatever ``others`` accept."""
    dependents = Scope("dependents")
    either = checks.option(*DEPENDENTS).claim(dependents, "dependents")
    others = (checks.qualified_name(prefixed=True), either, *others)
    return checks.listing(checks.any_of(*others)).opening(dependents)


def _managers() -> Check:
    entry = {
        "manager": checks.printable(0, FIELD_MANAGER_MAX_LENGTH), "operation": checks.option("Update", "Apply"), "apiVersion": ANY,
        "time": ANY,
        "fieldsType": checks.option("FieldsV1"), "fieldsV1": ANY, "subresource": checks.ascii(0, SUBRESOURCE_MAX_LENGTH),
    }  # fmt: skip
    return checks.listing(checks.record(entry, required=("operation",), rest=ANY))


_PARTS = {
    **dict.fromkeys(
        ("uid", "creationTimestamp", "resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"), ANY
    ),
    "labels": LABELS.or_null(), "annotations": ANNOTATIONS.or_null(), "ownerReferences": _owners().or_null(),
    "managedFields": _managers().or_null(),
}  # fmt: skip
_FINALIZERS = _finalizers(checks.all_of(checks.text(but=DEPENDENTS), checks.qualified_name())).or_null()
# The parts of metadata whose rules are the same for all kinds.
METADATA = checks.record(
    {**dict.fromkeys(("name", "generateName", "namespace", "generation"), ANY), **_PARTS, "finalizers": _FINALIZERS}, rest=ANY
)


def _object_meta(name: Check, generate_name: Check, namespaced: bool) -> Check:
    namespace = {"namespace": checks.dns_label()} if namespaced else {}
    return checks.record(
        {"name": name, "generateName": generate_name, **namespace, "generation": checks.integer(0), **_PARTS, "finalizers": _FINALIZERS},
        required=("name", *namespace),
    )  # fmt: skip


_NAMES: tuple[tuple[names.NameFunction, Check, Check], ...] = (
    (names.dns_subdomain, checks.dns_subdomain(), checks.generated(dots=True)),
    (names.dns_label, checks.dns_label(), checks.generated(dots=False)),
    (names.dns1035_label, checks.dns1035_label(), checks.unknown()),
    (names.path_segment, checks.path_segment(), checks.path_segment()),
)
# All of an object's metadata, by the kind's name rule and whether it is namespaced.
OBJECT_META: dict[tuple[names.NameFunction, bool], Check] = {}


def name_rule(rule: names.NameFunction, name: Check, generate_name: Check) -> None:
    """Registers fast checks for kinds with the name rule ``rule``. ``name`` and ``generate_name`` must accept only what the rule accepts.
    """
    for namespaced in (True, False):
        OBJECT_META[rule, namespaced] = _object_meta(name, generate_name, namespaced)


for _rule in _NAMES:
    name_rule(*_rule)
