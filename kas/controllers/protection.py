"""Keeps deleted claims, volumes, volume attributes classes and pod groups until nothing uses them.

``pkg/controller/volume/{pvc,pv,vac}protection``, ``pkg/controller/scheduling/podgroupprotection``. Each has a finalizer, set by admission
or else, except for pod groups, by this controller. A deleted object keeps it while in use: a claim by a pod, a volume by a claim, a class
by a claim or volume, a pod group by a pod that is not over.
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
REST_TIMES, LONGEST_REST_S = 4, 1.0  # the pause after a search for users, as a multiple of its duration
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
        self.users: list[Registry] = []  # the kinds that may use the objects

    async def run(self) -> None:
        await follow(self.queue, [self.client.each(self.registry.root, self._look), *self._more()], 2)

    def _more(self) -> list[Reflectors]:
        """Return reflectors of the objects whose changes matter."""
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
        """Remove the finalizer of a deleted object that is not in use; otherwise return after how many seconds to check again."""
        namespace, name = split_key(self.registry, key)
        if not await self._used(obj):  # according to the local view
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
    """Searches once per namespace for users of all objects deleted by then, with pauses: thousands of objects may be deleted, with
    thousands of possible users."""

    def __init__(self, registries: Registries) -> None:
        super().__init__(registries)
        self._deleted: dict[str, set[str]] = {}  # store keys by namespace, until the next search

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
            used = await self._in_use(namespace, going)  # according to the local view
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
        """Return the names of those that are in use."""
        raise NotImplementedError


class ClaimProtection(_Together):
    """Keeps a deleted claim until no pod uses it."""

    name = "persistentvolumeclaim-protection-controller"
    resource, finalizer, user = "persistentvolumeclaims", PVC, "pvc-protection-controller"

    def _more(self) -> list[Reflectors]:
        pods = self.client.registries.of("", "pods")
        self.users = [pods]
        return [self.client.reflector(pods.root, self._pod_events)]

    def _pod_events(self, events: Sequence[Event]) -> None:
        """Check the claims of a pod that was deleted, or that the kubelet has shut down: it may have been the last user."""
        for e in events:
            if e.record is not None and b'"deletionGracePeriodSeconds":0' not in e.record.json:
                continue
            rec = e.record or e.previous
            assert rec is not None  # a deletion carries the previous object
            if b'"persistentVolumeClaim":' in rec.json or b'"ephemeral":' in rec.json:
                pod = object_of(rec)
                for name in _claims(pod):
                    self.queue.add_after(f"{self.registry.root}{pod['metadata']['namespace']}/{name}", 0.01)

    async def _in_use(self, namespace: str, going: dict[str, dict[str, Any]]) -> set[str]:
        """Return which of the claims are used by pods of the namespace."""
        (pods,) = self.users
        used, named = set[str](), {name.encode() for name in going}
        async for rec in self.client.paced(pods.prefix(namespace)):
            # Pods may be large and many, so most are not decoded.
            if b'"ephemeral":' in rec.json or not named.isdisjoint(_CLAIM_NAME.findall(rec.json)):
                pod = object_of(rec)
                used.update(name for name in _claims(pod) & going.keys() if _uses(pod, going[name]))
        return used


class VolumeProtection(_Protection):
    """Keeps a deleted volume until no claim is bound to it."""

    name = "persistentvolume-protection-controller"
    resource, finalizer, user = "persistentvolumes", PV, "pv-protection-controller"

    async def _used(self, obj: dict[str, Any]) -> bool:
        return (obj.get("status") or {}).get("phase") == "Bound"


class ClassProtection(_Together):
    """Keeps a deleted VolumeAttributesClass until no claim or volume names it."""

    name = "volumeattributesclass-protection-controller"
    group, resource, finalizer = "storage.k8s.io", "volumeattributesclasses", VAC
    user = "volumeattributesclass-protection-controller"

    def _more(self) -> list[Reflectors]:
        self.users = [self.client.registries.of("", r) for r in ("persistentvolumeclaims", "persistentvolumes")]
        return [self.client.reflector(reg.root, self._user_events) for reg in self.users]

    def _user_events(self, events: Sequence[Event]) -> None:
        """Check the classes that an object no longer names."""
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
    """Keeps a deleted PodGroup until every pod that names it is over or gone. Only admission sets its finalizer."""

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
        """Check the group of a pod that was deleted or is over: it may have been the last."""
        for e in events:
            rec = e.record or e.previous
            assert rec is not None  # a deletion carries the previous object
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
    """Return the name of the pod's PodGroup, "" without one."""
    return ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or ""


def _is_over(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _classes(obj: dict[str, Any]) -> set[str]:
    """Return the volume attributes classes that a claim or volume names."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    found = (
        spec.get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return {name for name in found if name}


def _uses(pod: dict[str, Any], claim: dict[str, Any]) -> bool:
    """Return whether a pod uses a claim. A pod that never reached a node does not; one that is over does, until it is deleted."""
    spec, meta = pod.get("spec") or {}, pod["metadata"]
    if not spec.get("nodeName"):
        return False
    name, owners = claim["metadata"]["name"], claim["metadata"].get("ownerReferences") or ()
    volumes = spec.get("volumes") or ()
    if any((v.get("persistentVolumeClaim") or {}).get("claimName") == name for v in volumes):
        return True
    # A claim created for the pod is released when the kubelet has shut the pod down: the pod itself may wait for the claim.
    shut_down = meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds") == 0
    made_for_it = any(ref.get("controller") and ref.get("uid") == meta.get("uid", "") for ref in owners)
    return not shut_down and made_for_it and any(v.get("ephemeral") and f"{meta['name']}-{v['name']}" == name for v in volumes)


def _claims(pod: dict[str, Any]) -> set[str]:
    """Return the names of the claims a pod uses."""
    out = set()
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            out.add(volume["persistentVolumeClaim"].get("claimName"))
        elif volume.get("ephemeral"):
            out.add(f"{pod['metadata']['name']}-{volume['name']}")
    return out
