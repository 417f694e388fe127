"""Lets claims, volumes, volume attribute classes and pod groups go once nothing uses them.

``pkg/controller/volume/{pvc,pv,vac}protection``, ``pkg/controller/scheduling/podgroupprotection``. Each has a finalizer, by admission or
else, but for pod groups, from here; deleted ones keep it while a pod uses the claim, a claim the volume, either the class, or a pod
that is not over is of the group.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any

from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.informers.reflector import Reflectors
from kas.meta.stored import object_of
from kas.meta.waiting import TimeSlice
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.store import Event, Record

PVC, PV, VAC = "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection", "kubernetes.io/vac-protection"
POD_GROUP = "scheduling.k8s.io/podgroup-protection"
RECHECK_S = 30.0
REST_TIMES, LONGEST_REST_S = 4, 1.0  # after a look at all that may use something, of what that took
_POD_GROUP_NAME = re.compile(rb'"podGroupName":"([^"]*)"')
_CLAIM_NAME = re.compile(rb'"claimName":"([^"]*)"')


class _Protection:
    name = ""
    group = ""
    resource = ""
    finalizer = ""
    user = ""

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-controller-manager", f"system:serviceaccount:kube-system:{self.user}")
        self.registry = registries.of(self.group, self.resource)
        self.queue = WorkQueue(self._sync, self.name)
        self.users: list[Registry] = []  # of what is looked for

    async def run(self) -> None:
        await follow(self.queue, [self.client.each(self.registry.root, self._look), *self._more()], 2)

    def _more(self) -> list[Reflectors]:
        """Of those whose coming and going decides."""
        return []

    def _look(self, rec: Record) -> None:
        if b'"deletionTimestamp":' in rec.json or self.finalizer.encode() not in rec.json:
            self.queue.add(rec.key)

    async def _sync(self, key: str) -> float | None:
        namespace, name = split_key(self.registry, key)
        obj = self.client.get(self.group, self.resource, namespace, name)
        if obj is None:
            return None
        meta = obj["metadata"]
        has = self.finalizer in (meta.get("finalizers") or ())
        if not meta.get("deletionTimestamp"):
            if not has:
                await self.client.update(self.registry, namespace, name, self._hold, uid=meta.get("uid", ""))
            return None
        return await self._release(key, obj) if has else None

    async def _release(self, key: str, obj: dict[str, Any]) -> float | None:
        """Lets go what is deleted and not used; else after how many seconds it is looked at again."""
        namespace, name = split_key(self.registry, key)
        if not await self._used(obj):  # as far as is known here
            await self.client.rest_fresh(key, (reg.root for reg in self.users))
        if await self._used(obj):
            return RECHECK_S
        await self.client.update(self.registry, namespace, name, self._let_go, uid=obj["metadata"].get("uid", ""))
        return None

    def _hold(self, obj: dict[str, Any]) -> bool:
        meta = obj["metadata"]
        if meta.get("deletionTimestamp") or self.finalizer in (meta.get("finalizers") or ()):
            return False
        meta["finalizers"] = [*(meta.get("finalizers") or ()), self.finalizer]
        return True

    def _let_go(self, obj: dict[str, Any]) -> bool:
        obj["metadata"]["finalizers"] = [f for f in obj["metadata"].get("finalizers") or () if f != self.finalizer]
        return True

    async def _used(self, obj: dict[str, Any]) -> bool:
        raise NotImplementedError


class _Together(_Protection):
    """Thousands may go beside thousands that may use them, so one look at those of a namespace is for all that are deleted by then, with
    rests."""

    def __init__(self, registries: Registries) -> None:
        super().__init__(registries)
        self._deleted: dict[str, set[str]] = {}  # their keys by namespace, until it is looked at

    async def _sync(self, key: str) -> float | None:
        if key.startswith("/"):
            return await super()._sync(key)
        await self._look_for_users(key)
        return None

    async def _release(self, key: str, obj: dict[str, Any]) -> float | None:
        namespace = split_key(self.registry, key)[0]
        self._deleted.setdefault(namespace, set()).add(key)
        self.queue.add(namespace)
        return None

    async def _look_for_users(self, namespace: str) -> None:
        began, keys = time.monotonic(), self._deleted.pop(namespace, set())
        going: dict[str, dict[str, Any]] = {}
        time_slice = TimeSlice()
        try:
            for key in keys:
                if time_slice.over:
                    await time_slice.pause()
                name = split_key(self.registry, key)[1]
                obj = self.client.get(self.group, self.resource, namespace, name)
                meta = obj["metadata"] if obj is not None else {}
                if obj is not None and meta.get("deletionTimestamp") and self.finalizer in (meta.get("finalizers") or ()):
                    going[name] = obj
            if not going:
                return
            used = await self._in_use(namespace, going)  # as far as is known here
            if len(used) < len(going):
                await self.client.rest_fresh(next(iter(keys)), (reg.root for reg in self.users))
                used = await self._in_use(namespace, going)
            for name in used:
                if time_slice.over:
                    await time_slice.pause()
                self.queue.add_after(f"{self.registry.prefix(namespace)}{name}", RECHECK_S)
            for name in going.keys() - used:
                await self.client.update(self.registry, namespace, name, self._let_go, uid=going[name]["metadata"].get("uid", ""))
        except BaseException:
            self._deleted.setdefault(namespace, set()).update(keys)
            raise
        await asyncio.sleep(min(LONGEST_REST_S, REST_TIMES * (time.monotonic() - began)))

    async def _in_use(self, namespace: str, going: dict[str, dict[str, Any]]) -> set[str]:
        """Which of them something uses."""
        raise NotImplementedError


class ClaimProtection(_Together):
    """Lets a claim go once no pod uses it."""

    name = "persistentvolumeclaim-protection-controller"
    resource, finalizer, user = "persistentvolumeclaims", PVC, "pvc-protection-controller"

    def _more(self) -> list[Reflectors]:
        pods = self.client.registries.of("", "pods")
        self.users = [pods]
        return [self.client.reflector(pods.root, self._pod_events)]

    def _pod_events(self, events: Sequence[Event]) -> None:
        """A pod that went, or that the kubelet is done with, may have been the last user of a claim."""
        for e in events:
            if e.record is not None and b'"deletionGracePeriodSeconds":0' not in e.record.json:
                continue
            rec = e.record or e.previous
            assert rec is not None  # a deletion brings what was
            if b'"persistentVolumeClaim":' in rec.json or b'"ephemeral":' in rec.json:
                pod = object_of(rec)
                for name in _claims(pod):
                    self.queue.add_after(f"{self.registry.root}{pod['metadata']['namespace']}/{name}", 0.01)

    async def _in_use(self, namespace: str, going: dict[str, dict[str, Any]]) -> set[str]:
        """Which of the claims pods of the namespace use."""
        (pods,) = self.users
        used, named = set[str](), {name.encode() for name in going}
        async for rec in self.client.paced(pods.prefix(namespace)):
            # Pods may be large and many: most are not decoded.
            if b'"ephemeral":' in rec.json or not named.isdisjoint(_CLAIM_NAME.findall(rec.json)):
                pod = object_of(rec)
                used.update(name for name in _claims(pod) & going.keys() if _uses(pod, going[name]))
        return used


class VolumeProtection(_Protection):
    """Lets a volume go once no claim is bound to it."""

    name = "persistentvolume-protection-controller"
    resource, finalizer, user = "persistentvolumes", PV, "pv-protection-controller"

    async def _used(self, obj: dict[str, Any]) -> bool:
        return (obj.get("status") or {}).get("phase") == "Bound"


class ClassProtection(_Together):
    """Lets a VolumeAttributesClass go once neither claims nor volumes name it."""

    name = "volumeattributesclass-protection-controller"
    group, resource, finalizer = "storage.k8s.io", "volumeattributesclasses", VAC
    user = "volumeattributesclass-protection-controller"

    def _more(self) -> list[Reflectors]:
        self.users = [self.client.registries.of("", r) for r in ("persistentvolumeclaims", "persistentvolumes")]
        return [self.client.reflector(reg.root, self._user_events) for reg in self.users]

    def _user_events(self, events: Sequence[Event]) -> None:
        """What named a class may no longer do so."""
        for e in events:
            if e.previous is not None and b"olumeAttributesClassName" in e.previous.json:
                before = _classes(object_of(e.previous))
                for name in before - (_classes(object_of(e.record)) if e.record is not None else set()):
                    self.queue.add(self.registry.root + name)

    async def _in_use(self, namespace: str, going: dict[str, dict[str, Any]]) -> set[str]:
        used = set[str]()
        for reg in self.users:
            async for rec in self.client.paced(reg.root):
                if b"olumeAttributesClassName" in rec.json:
                    used |= _classes(object_of(rec)) & going.keys()
        return used


class PodGroupProtection(_Together):
    """Lets a PodGroup go once each pod that names it is over or gone. Its finalizer is from admission alone."""

    name = "podgroup-protection-controller"
    group, resource, finalizer = "scheduling.k8s.io", "podgroups", POD_GROUP
    user = "podgroup-protection-controller"

    def _more(self) -> list[Reflectors]:
        pods = self.client.registries.of("", "pods")
        self.users = [pods]
        return [self.client.reflector(pods.root, self._pod_events)]

    def _look(self, rec: Record) -> None:
        if b'"deletionTimestamp":' in rec.json:
            super()._look(rec)

    def _hold(self, obj: dict[str, Any]) -> bool:
        return False

    def _pod_events(self, events: Sequence[Event]) -> None:
        """A pod that went, or is over, may have been the last of its group."""
        for e in events:
            rec = e.record or e.previous
            assert rec is not None  # a deletion brings what was
            if b'"podGroupName":' in rec.json:
                pod = object_of(rec)
                if _group_of(pod) and (e.record is None or _is_over(pod)):
                    self.queue.add(f"{self.registry.prefix(pod['metadata']['namespace'])}{_group_of(pod)}")

    async def _in_use(self, namespace: str, going: dict[str, dict[str, Any]]) -> set[str]:
        (pods,) = self.users
        used, named = set[str](), {name.encode() for name in going}
        async for rec in self.client.paced(pods.prefix(namespace)):
            if not named.isdisjoint(_POD_GROUP_NAME.findall(rec.json)):
                pod = object_of(rec)
                if not _is_over(pod):
                    used.add(_group_of(pod))
        return used & going.keys()


def _group_of(pod: dict[str, Any]) -> str:
    """The name of the PodGroup that a pod is of, "" without one."""
    return ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or ""


def _is_over(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _classes(obj: dict[str, Any]) -> set[str]:
    """The volume attribute classes that a claim or a volume names."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    found = (
        spec.get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return {name for name in found if name}


def _uses(pod: dict[str, Any], claim: dict[str, Any]) -> bool:
    """A pod that never reached a node uses nothing yet. One that is over still does, until it is deleted."""
    spec, meta = pod.get("spec") or {}, pod["metadata"]
    if not spec.get("nodeName"):
        return False
    name, owners = claim["metadata"]["name"], claim["metadata"].get("ownerReferences") or ()
    volumes = spec.get("volumes") or ()
    if any((v.get("persistentVolumeClaim") or {}).get("claimName") == name for v in volumes):
        return True
    # A claim made for the pod goes when the kubelet is done with it: the pod itself may wait for the claim.
    shut_down = meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds") == 0
    made_for_it = any(ref.get("controller") and ref.get("uid") == meta.get("uid", "") for ref in owners)
    return not shut_down and made_for_it and any(v.get("ephemeral") and f"{meta['name']}-{v['name']}" == name for v in volumes)


def _claims(pod: dict[str, Any]) -> set[str]:
    """Names of the claims a pod uses."""
    out = set()
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            out.add(volume["persistentVolumeClaim"].get("claimName"))
        elif volume.get("ephemeral"):
            out.add(f"{pod['metadata']['name']}-{volume['name']}")
    return out
