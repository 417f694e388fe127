"""The loops that run inside the server, on the worker that leads (``runner.py``).

There are two sets. Those of kube-apiserver itself always run: status of flow schemas, identity leases, the objects every cluster has,
the repair of service addresses and ports, local APIServices. Those of kube-controller-manager run by default and are chosen with
``--controllers``, whose meaning is kube-controller-manager's: ``*`` is all that are on by default, ``name`` and ``-name`` turn one on
and off, and ``none`` alone turns all off. With a real kube-controller-manager beside kas, start kas with ``--controllers none``: the
names are the same there, so a part may be left to either side, but never the same one to both.

Each is a class made from the server, with ``name`` and ``async run()``, which works until cancelled and may be run again after a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kas.controllers.apiservices import LocalAPIServices
from kas.controllers.clusterroles import ClusterRoleAggregation
from kas.controllers.essentials import Essentials
from kas.controllers.flowcontrol_status import FlowControlStatus
from kas.controllers.garbage import GarbageCollector
from kas.controllers.identity import IdentityLease, IdentityLeaseCollector
from kas.controllers.namespace import NamespaceController
from kas.controllers.resourcequota import ResourceQuotas
from kas.controllers.service_repair import ServiceRepair
from kas.controllers.serviceaccounts import DefaultServiceAccounts, RootCA
from kas.controllers.servicecidrs import ServiceCIDRs
from kas.controllers.storage_protection import ClaimProtection, VolumeProtection

ALWAYS: tuple[Any, ...] = (FlowControlStatus, ServiceRepair, Essentials, IdentityLease, IdentityLeaseCollector, LocalAPIServices)
BY_CHOICE: tuple[Any, ...] = (
    NamespaceController,
    GarbageCollector,
    DefaultServiceAccounts,
    RootCA,
    ClusterRoleAggregation,
    ServiceCIDRs,
    ClaimProtection,
    VolumeProtection,
    ResourceQuotas,
)


def chosen(given: Sequence[str]) -> list[Any]:
    """The classes ``--controllers`` turns on. Raises ValueError for a name nobody has."""
    names = [c.name for c in BY_CHOICE]
    for text in given:
        if text not in ("*", "none") and text.removeprefix("-") not in names:
            raise ValueError(f"--controllers: {text!r} is not one of *, none, {', '.join(names)}")
    if "none" in given:
        if len(given) > 1:
            raise ValueError("--controllers: 'none' stands alone")
        return []
    return [c for c in BY_CHOICE if _is_on(c.name, given)]


def _is_on(name: str, given: Sequence[str]) -> bool:
    """The first mention of a name counts; a star stands for those not mentioned."""
    for text in given:
        if text == name:
            return True
        if text == "-" + name:
            return False
    return "*" in given
