"""DRAClaimStatus: writing a claim's status requires the permission for each part that changes (KEP-4817).

The allocation and the reservations belong to schedulers (``resourceclaims/binding``), the state of devices to each driver
(``resourceclaims/driver``, by the driver's name). A driver on the node the claim is allocated to needs the verb with the prefix
``associated-node:``, any other ``arbitrary-node:``.

Upstream this is part of the storage of claims (``pkg/registry/resource/utils.go``), so it cannot be disabled; the gate
DRAResourceClaimGranularStatusAuthorization governs it.
"""

from __future__ import annotations

from typing import Any

from kas.admission import UPDATE, Attributes
from kas.auth.attributes import ALLOW, Authorizer, forbidden
from kas.auth.attributes import Attributes as Question
from kas.auth.user import NODE_NAME, UserInfo, split_service_account
from kas.config import features
from kas.meta import errors, field, names
from kas.meta.equality import semantic_equal
from kas.meta.offload import POOL, is_large
from kas.meta.waiting import TimeSlice, awaited, eager
from kas.types.scheme import builtin_field, builtin_type

GROUP = "resource.k8s.io"
Obj = dict[str, Any]
DeviceKey = tuple[str, str, str, str]


class Plugin:
    """Applies to status updates of ResourceClaims; authorizes what they change."""

    name = "DRAClaimStatus"
    of_storage = True

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handles(self, a: Attributes) -> bool:
        """Handle updates of a ResourceClaim's status."""
        return a.operation == UPDATE and a.group == GROUP and a.resource == "resourceclaims" and a.subresource == "status"

    @eager
    async def validate(self, a: Attributes) -> None:
        """Raise 422 for a part of the status that the user may not change."""
        if not features.DEFAULT.enabled("DRAResourceClaimGranularStatusAuthorization"):
            return
        new, old = a.obj.get("status") or {}, a.old.get("status") or {}
        verb = a.verb or "update"
        found: list[field.FieldError] = []
        if not all(_same(a.version, "ResourceClaimStatus", name, new, old) for name in ("allocation", "reservedFor")):
            why = await self._missing(_question(a, verb, "binding", "", ""))
            if why:
                text = f'status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="{verb}" permission'
                found.append(field.forbidden("status", f"changing {text}: {why}"))
        verbs = [f"arbitrary-node:{verb}"]
        if on_its_node(a.user, new.get("allocation")):
            verbs.insert(0, f"associated-node:{verb}")
        drivers = await awaited(POOL.run(changed_drivers, a.version, new, old) if is_large(new) else changed_drivers(a.version, new, old))
        time_slice = TimeSlice()
        for driver in sorted(drivers):
            if time_slice.over:  # an unvalidated object may name tens of thousands of drivers
                await time_slice.pause()
            why = await self._missing(*(_question(a, one, "driver", a.namespace, driver) for one in verbs))
            if why:
                text = f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission'
                found.append(field.forbidden("status.devices", f"{text}: {why}"))
        if found:
            raise errors.invalid(GROUP, a.kind, a.name, found)

    async def _missing(self, *questions: Question) -> str:
        """Return "" if one of the checks is allowed, else why the first of them is not."""
        first = ""
        for question in questions:
            decision, reason, error = await awaited(self._authorizer.authorize(question))
            if decision == ALLOW:
                return ""
            first = first or forbidden(question, ": ".join(filter(None, (error, reason)))).message
        return first


def _question(a: Attributes, verb: str, part: str, namespace: str, name: str) -> Question:
    return Question(a.user, verb, namespace, GROUP, a.version, "resourceclaims", part, name)


def _same(version: str, type_name: str, name: str, new: Obj, old: Obj) -> bool:
    return semantic_equal(new.get(name), old.get(name), builtin_field(f"resource.{version}.{type_name}", name))


def _devices(status: Obj) -> dict[DeviceKey, Obj]:
    return {
        (d.get("driver") or "", d.get("pool") or "", d.get("device") or "", d.get("shareID") or ""): d for d in status.get("devices") or ()
    }


def changed_drivers(version: str, new: Obj, old: Obj) -> set[str]:
    """Return the drivers with an added, removed or changed device."""
    now, before, of = _devices(new), _devices(old), builtin_type(f"resource.{version}.AllocatedDeviceStatus")
    return {key[0] for key in now.keys() | before.keys() if not semantic_equal(now.get(key), before.get(key), of)}


def allocated_node(allocation: Obj | None) -> str:
    """Return the name of the single node that an allocation requires; "" if it requires anything else."""
    terms = ((allocation or {}).get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or ()) != 1:
        return ""
    wanted = terms[0]["matchFields"][0]
    values: list[str] = wanted.get("values") or []
    return values[0] if (wanted.get("key"), wanted.get("operator"), len(values)) == ("metadata.name", "In", 1) else ""


def on_its_node(user: UserInfo, allocation: Obj | None) -> bool:
    """Return whether a service account's token belongs to a pod on the single node of the allocation."""
    node = allocated_node(allocation)
    if not node or split_service_account(user.name) is None:
        return False
    return user.extra.get(NODE_NAME) == [node] and not names.is_dns1123_subdomain(node)
