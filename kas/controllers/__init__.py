"""The loops that run inside the server, on the worker that leads (``runner.py``).

There are two sets. Those of kube-apiserver itself always run: status of flow schemas, identity leases, the objects every cluster has,
the repair of service addresses and ports, local APIServices. Those of kube-controller-manager run by default and are chosen with
``--controllers``, whose meaning is kube-controller-manager's: ``*`` is all that are on by default, ``name`` and ``-name`` turn one on
and off, and ``none`` alone turns all off. With a real kube-controller-manager beside kas, start kas with ``--controllers none``: the
names are the same there, so a part may be left to either side, but never the same one to both.

Each is a class whose constructor names what it wants of ``Initializer``, and a ``Controller``. What one needs in memory it keeps by
reflectors (``kas.informers``), which begin when it runs and end with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kas.admission import Chain
from kas.aggregator.aggregator import Aggregator
from kas.auth.attributes import Authorizer
from kas.auth.credentials import ServiceAccountKeys
from kas.meta import inject
from kas.meta.records import NamedTuple
from kas.registry.bootstrapper import Bootstrapper
from kas.registry.registries import Registries

if TYPE_CHECKING:
    from kas.controllers.signing import Authority
    from kas.controllers.storageversions import Registration
    from kas.types.scheme import Resource, Scheme

# Name to module and class; they are imported when they are to run, which is after the server has begun to serve.
ALWAYS = {
    "priority-and-fairness-config-consumer": "flowcontrol_status.FlowControlStatus",
    "service-ip-and-port-repair-controller": "service_repair.ServiceRepair",
    "bootstrap-controller": "essentials.Essentials",
    "kube-apiserver-identity-lease-controller": "identity.IdentityLease",
    "kube-apiserver-identity-lease-gc": "identity.IdentityLeaseCollector",
    "kube-apiserver-autoregistration": "apiservices.AutoRegistration",
    "apiservice-status-local-available-controller": "apiservices.LocalAPIServices",
    "crd-conditions-controller": "definitions.DefinitionConditions",
    "crd-finalizer": "definition_finalizer.DefinitionFinalizer",
    "apiservice-status-remote-available-controller": "availability.RemoteAPIServices",
    "crd-autoregistration": "crdregistration.CRDRegistration",
}
FAIRNESS = "priority-and-fairness-config-consumer"
# Those of a feature gate.
GATED = {
    "kube-apiserver-identity-lease-controller": "APIServerIdentity", "kube-apiserver-identity-lease-gc": "APIServerIdentity",
    "podgroup-protection-controller": "GenericWorkload",
}  # fmt: skip
BY_CHOICE = {
    "namespace-controller": "namespace.NamespaceController",
    "garbage-collector-controller": "garbage.GarbageCollector",
    "serviceaccount-controller": "serviceaccounts.DefaultServiceAccounts",
    "serviceaccount-token-controller": "serviceaccounttokens.Tokens",
    "root-ca-certificate-publisher-controller": "serviceaccounts.RootCA",
    "clusterrole-aggregation-controller": "clusterroles.ClusterRoleAggregation",
    "service-cidr-controller": "servicecidrs.ServiceCIDRs",
    "persistentvolumeclaim-protection-controller": "protection.ClaimProtection",
    "persistentvolume-protection-controller": "protection.VolumeProtection",
    "volumeattributesclass-protection-controller": "protection.ClassProtection",
    "podgroup-protection-controller": "protection.PodGroupProtection",
    "resourcequota-controller": "resourcequota.ResourceQuotas",
    "validatingadmissionpolicy-status-controller": "policystatus.PolicyStatus",
    "certificatesigningrequest-signing-controller": "certificates.Signing",
    "certificatesigningrequest-approving-controller": "certificates.Approving",
    "certificatesigningrequest-cleaner-controller": "certificates.Cleaner",
}
# Older names, which kube-controller-manager also takes.
ALIASES = {
    f"csr{what}": f"certificatesigningrequest-{what}-controller" for what in ("signing", "approving", "cleaner")
}


class Controller(Protocol):
    """A loop of the worker that leads; ``name`` is upstream's."""

    name: str

    async def run(self) -> None:
        """Works until cancelled; may be run again after a failure."""
        ...


class Deferred:
    """A controller that is loaded and made when it is first run: one that cannot be made fails as one that crashes does, so it is logged,
    its health check fails, and it is tried again. (A kube-controller-manager whose controller cannot be made exits, and is started again
    with a growing pause; here the others go on meanwhile.)"""

    def __init__(self, name: str, make: Callable[[], Controller]) -> None:
        self.name, self._make = name, make
        self._made: Controller | None = None

    async def run(self) -> None:
        """Makes it unless it is made, and runs it."""
        if self._made is None:
            self._made = self._make()
        await self._made.run()


class Initializer(NamedTuple):
    """What controllers may ask for: ``registries`` to read, follow and write objects; ``bootstrapper``, which puts back the objects
    every server has; ``keys``, which sign service-account tokens; the file ``root_ca`` with the certificates (PEM) that clients trust;
    ``service_ranges`` as the flags name them; the ``aggregator`` of the worker knows the way to backends; the ``authorizer`` says who may
    do what; the ``authority`` signs certificates that this server trusts; the plug-ins of ``admission`` are asked about deletes."""

    registries: Registries
    bootstrapper: Bootstrapper
    keys: ServiceAccountKeys
    root_ca: Path
    service_ranges: list[str]
    aggregator: Aggregator
    authorizer: Authorizer
    authority: Authority
    admission: Chain

    def deferred(self, name: str) -> Controller:
        """The controller of that name, which is made when it is to run."""
        return Deferred(name, partial(self.make, name))

    def make(self, name: str) -> Controller:
        """The controller of that name. Raises what its module or constructor does."""
        module, _, cls = {**ALWAYS, **BY_CHOICE}[name].partition(".")
        controller: Controller = inject.make(getattr(import_module(f"kas.controllers.{module}"), cls), self._asdict())
        return controller


def own(gates: Collection[str], fairness: bool = True) -> list[str]:
    """Names of the loops of kube-apiserver itself, without those whose feature gate is not among ``gates``, and without that of
    ``--enable-priority-and-fairness`` where nobody asks FlowSchemas."""
    return [name for name in ALWAYS if _has_its_gate(name, gates) and (fairness or name != FAIRNESS)]


def chosen(given: Sequence[str], gates: Collection[str] = ()) -> list[str]:
    """The names ``--controllers`` turns on, without those whose feature gate is not among ``gates``. Raises ValueError for a name nobody
    has."""
    names = list(BY_CHOICE)
    given = [_known_as(text) for text in given]
    for text in given:
        if text not in ("*", "none") and text.removeprefix("-") not in names:
            raise ValueError(f"--controllers: {text!r} is not one of *, none, {', '.join(names)}")
    if "none" in given:
        if len(given) > 1:
            raise ValueError("--controllers: 'none' stands alone")
        return []
    return [name for name in names if _has_its_gate(name, gates) and _is_on(name, given)]


def _has_its_gate(name: str, gates: Collection[str]) -> bool:
    return name not in GATED or GATED[name] in gates


def _known_as(text: str) -> str:
    """The name without its older form."""
    off, name = ("-", text[1:]) if text.startswith("-") else ("", text)
    return off + ALIASES.get(name, name)


def _is_on(name: str, given: Sequence[str]) -> bool:
    """The first mention of a name counts; a star stands for those not mentioned."""
    for text in given:
        if text == name:
            return True
        if text == "-" + name:
            return False
    return "*" in given


def registration(registries: Registries, identity: str, scheme: Scheme, served: Sequence[Resource]) -> Registration:
    """What this server is to tell of its storage versions."""
    from kas.controllers.storageversions import Registration  # which few servers have

    return Registration(registries, identity, scheme, served)
