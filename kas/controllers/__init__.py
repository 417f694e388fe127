"""Controllers that run inside the server, on the leading worker (``runner.py``).

There are two sets:

- Those of kube-apiserver itself always run: status of flow schemas, identity leases, the objects every cluster has, repair of service
  addresses and ports, local APIServices.
- Those of kube-controller-manager run by default and are selected with ``--controllers``, with kube-controller-manager's meaning: ``*``
  is all that are on by default, ``name`` and ``-name`` turn one on and off, and a single ``none`` turns all off. With a real
  kube-controller-manager beside kas, start kas with ``--controllers none``. The names are the same there, so a controller may be left to
  either side, but never to both.

Each is a ``Controller`` whose constructor names the dependencies it wants from ``Initializer``. State in memory is kept by reflectors
(``kas.informers``), which start and stop with the controller.
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

# Name to module and class. They are imported when they are to run, after the server has begun to serve.
ALWAYS = {
    "priority-and-fairness-config-consumer": "flowcontrol_status.FlowControlStatus",
    "service-ip-and-port-repair-controller": "service_repair.ServiceRepair",
    "bootstrap-controller": "bootstrapcontroller.BootstrapController",
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
# Controllers that depend on a feature gate.
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
# Older names that kube-controller-manager also accepts.
ALIASES = {
    f"csr{what}": f"certificatesigningrequest-{what}-controller" for what in ("signing", "approving", "cleaner")
}


class Controller(Protocol):
    """A control loop of the leading worker; ``name`` is upstream's."""

    name: str

    async def run(self) -> None:
        """Work until cancelled; may be called again after a failure."""
        ...


class Deferred:
    """A controller that is imported and constructed on its first run.

    A failure to construct it is handled like a crash: it is logged, its health check fails, and it is tried again.
    (kube-controller-manager exits if a controller cannot be constructed, and is restarted with a growing delay; here the other
    controllers keep running.)
    """

    def __init__(self, name: str, make: Callable[[], Controller]) -> None:
        self.name, self._make = name, make
        self._made: Controller | None = None

    async def run(self) -> None:
        """Construct the controller if necessary, and run it."""
        if self._made is None:
            self._made = self._make()
        await self._made.run()


class Initializer(NamedTuple):
    """The dependencies of controllers.

    - ``registries``: to read, watch and write objects.
    - ``bootstrapper``: restores the objects that every server has.
    - ``keys``: sign service-account tokens.
    - ``root_ca``: the file with the certificates (PEM) that clients trust.
    - ``service_ranges``: the service CIDRs of the flags.
    - ``aggregator``: the worker's; forwards requests to backends.
    - ``authorizer``: authorizes requests.
    - ``authority``: signs certificates that this server trusts.
    - ``admission``: the admission chain for deletes.
    """

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
        """Return the controller of that name, to be constructed when it runs."""
        return Deferred(name, partial(self.make, name))

    def make(self, name: str) -> Controller:
        """Construct the controller of that name. Raises what its module or constructor raises."""
        module, _, cls = {**ALWAYS, **BY_CHOICE}[name].partition(".")
        controller: Controller = inject.make(getattr(import_module(f"kas.controllers.{module}"), cls), self._asdict())
        return controller


def own(gates: Collection[str], fairness: bool = True) -> list[str]:
    """Return the names of kube-apiserver's own controllers, except those whose feature gate is not in ``gates``, and the one for
    ``--enable-priority-and-fairness`` if ``fairness`` is off."""
    return [name for name in ALWAYS if _has_its_gate(name, gates) and (fairness or name != FAIRNESS)]


def chosen(given: Sequence[str], gates: Collection[str] = ()) -> list[str]:
    """Return the names that ``--controllers`` selects, except those whose feature gate is not in ``gates``. Raises ValueError for an
    unknown name."""
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
    """Return the current form of a name."""
    off, name = ("-", text[1:]) if text.startswith("-") else ("", text)
    return off + ALIASES.get(name, name)


def _is_on(name: str, given: Sequence[str]) -> bool:
    """Return whether a controller is selected: by the first mention of its name, else by a star."""
    for text in given:
        if text == name:
            return True
        if text == "-" + name:
            return False
    return "*" in given


def registration(registries: Registries, identity: str, scheme: Scheme, served: Sequence[Resource]) -> Registration:
    """Return the registration of this server's storage versions."""
    from kas.controllers.storageversions import Registration  # few servers use it

    return Registration(registries, identity, scheme, served)
