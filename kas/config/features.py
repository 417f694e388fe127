"""``--feature-gates``: which features of Kubernetes 1.36 are on (component-base ``featuregate``).

Names, defaults, stages and locks are upstream's. As upstream, a process has one set of gates: ``DEFAULT`` is set once, before anything is
served, and read wherever a gate governs something.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path

from kas.config.flagtypes import parse_bool
from kas.meta.records import NamedTuple
from kas.meta.suggest import did_you_mean

TABLE = Path(__file__).parent / "tables" / "gates.json"
FIELDS = Path(__file__).parent / "tables" / "gated.json"
CLASSES = {"AllAlpha": "Alpha", "AllBeta": "Beta"}
KUBE = "kube"
COMPONENTS = ("", KUBE)


# What gates govern here besides the fields of ``gated_fields``. Gates that are permanently on are not listed.
GOVERNED = {
    "AllowInsecureKubeletCertificateSigningRequests": "kubelets may request certificates of other nodes",
    "AllowParsingUserUIDFromCertAuth": "uid of a user with a client certificate, from its subject",
    "AllowUnsafeMalformedObjectDeletion": "ignoreStoreReadErrorWithClusterBreakingPotential, and how unreadable objects are reported",
    "APIResponseCompression": "gzip of large answers",
    "APIServerIdentity": "the Lease of this API server in kube-system",
    "AuthorizePodWebsocketUpgradeCreatePermission": "exec, attach and port-forward by GET (WebSockets) need the verb create, too",
    "CBORServingAndStorage": "application/cbor for bodies, answers and watches; stored objects stay JSON",
    "ClearingNominatedNodeNameAfterBinding": "no node is nominated for a pod that is bound",
    "ClusterTrustBundle": "clustertrustbundles are served, once their version is on; rules of bootstrap roles",
    "ComponentFlagz": "/flagz; rules of bootstrap roles",
    "ComponentStatusz": "/statusz; rules of bootstrap roles",
    "ConstrainedImpersonation": "verbs `impersonate:<mode>` and `impersonate-on:<mode>:<verb>` beside `impersonate`",
    "CoordinatedLeaderElection": "leaders are elected among leasecandidates, once their version is on",
    "CrossNamespaceVolumeDataSource": "claims may name a source in another namespace",
    "DRADeviceTaintRules": "rules of bootstrap roles",
    "DRADeviceTaints": "a bootstrap role",
    "DRAExtendedResource": "rules of bootstrap roles",
    "DRAResourcePoolStatus": "rules of bootstrap roles",
    "DRAResourceClaimGranularStatusAuthorization":
        "writes of the status of a ResourceClaim need resourceclaims/binding or /driver; rules of bootstrap roles",
    "DRAWorkloadResourceClaims": "rules of bootstrap roles",
    "ExtendWebSocketsToKubelet": "WebSockets of exec, attach and port-forward pass unchanged to kubelets whose nodes declare this feature",
    "GenericWorkload":
        "workloads and podgroups are served, once their version is on; rules of bootstrap roles; three admission plug-ins; a controller",
    "HPAScaleToZero": "minReplicas may be 0",
    "InPlacePodVerticalScalingInitContainers": "resources of init containers that are no sidecars may change",
    "KMSv1": "KMS plug-ins of version 1",
    "KubeletServiceAccountTokenForCredentialProviders": "kubelets may read the service accounts of their pods; rules of bootstrap roles",
    "LoggingBetaOptions": "--logging-format=json is allowed",
    "LoggingAlphaOptions": "--log-*-split-stream and --log-*-info-buffer-size are allowed",
    "ManifestBasedAdmissionControlConfig": "staticManifestsDir: webhooks and policies from files; names ending with .static.k8s.io",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": "matchLabelKeys of a pod's topology spread become part of its selector",
    "MutablePodResourcesForSuspendedJobs": "resources in the template of a suspended Job whose pods are gone may change",
    "MutablePVNodeAffinity": "nodeAffinity of PersistentVolumes may change",
    "MutableSchedulingDirectivesForSuspendedJobs": "scheduling directives may also change in a suspended Job that was started before",
    "MutatingAdmissionPolicy": "whether these policies are evaluated",
    "NativeHistograms":
        "native histograms beside classic ones in /metrics as protobuf, except those of flow control; histograms take ten times the memory",
    "NodeDeclaredFeatures": "the plug-in NodeDeclaredFeatureValidator",
    "OpenAPIEnums": "enums of built-in fields in OpenAPI",
    "PodCertificateRequest": "podcertificaterequests are served, once their version is on; rules of bootstrap roles",
    "PodDeletionCost": "the annotation must be a 32-bit integer",
    "PodLogsQuerySplitStreams": "the parameter stream of pods/log",
    "PodTopologyLabelsAdmission": "the plug-in PodTopologyLabels",
    "PortForwardWebsockets": "port-forwards by WebSocket reach kubelets as SPDY, without the gate unchanged",
    "RelaxedServiceNameValidation": "names of Services, also those in an Ingress, may begin with a digit",
    "RemoteRequestHeaderUID": "X-Remote-Uid to aggregated servers",
    "RestartAllContainersOnContainerExits": "restart rules may start all containers again, and sidecars may have rules",
    "SELinuxMount": "seLinuxChangePolicy may be other than Recursive",
    "ServiceAccountNodeAudienceRestriction": "kubelets get tokens only for audiences named by a pod's volumes or a role",
    "ShardedListAndWatch": "shardSelector of lists, watches and deletes of collections; shardInfo of lists",
    "SizeBasedListCostEstimate": "seats of lists by the size of their objects, not by their number alone",
    "StorageVersionAPI":
        "StorageVersions report what each server of the cluster writes and reads; before that it refuses writes; rules of bootstrap roles",
    "StorageVersionHash": "storageVersionHash in discovery",
    "StorageVersionMigrator": "storageversionmigrations are served, once their version is on; rules of bootstrap roles",
    "ServiceCIDRStatusFieldWiping": "writes of a ServiceCIDR leave its status as it is",
    "StrictIPCIDRValidation": "addresses with leading zeros and sloppy ranges are refused in old fields, too",
    "StructuredAuthenticationConfigurationEgressSelector": "egressSelectorType of an issuer of an AuthenticationConfiguration",
    "StructuredAuthenticationConfigurationJWKSMetrics": "metrics of the keys of the issuers of an AuthenticationConfiguration",
    "TaintTolerationComparisonOperators": "tolerations may have the operators Lt and Gt",
    "TokenRequestServiceAccountUIDValidation": "a token request that names another uid than the service account's is refused",
    "TranslateStreamCloseWebsocketRequests": "exec and attach by WebSocket (v5) reach kubelets as SPDY, without the gate unchanged",
    "UnauthenticatedHTTP2DOSMitigation":
        "behind the TLS front, an unauthenticated request ends its HTTP/2 connection: GOAWAY, then a close if requests continue after 2 s",
    "UnknownVersionInteroperabilityProxy": "requests that only another API server of the cluster can serve are forwarded to it",
    "UserNamespacesHostNetworkSupport": "pods with hostNetwork may have a user namespace (hostUsers: false)",
    "WatchCacheInitializationPostStartHook": "the health check poststarthook/storage-readiness",
    "WorkloadWithJob": "rules of bootstrap roles",
    "WatchList": "sendInitialEvents, and initial events of watches without it",
}


# What gates of fields do not govern, contrary to what one might expect; kube-apiserver behaves the same.
NOT_GOVERNED = {
    "CRDObservedGenerationTracking": "kept when a client writes them; no loop of the server does",
}


# Gates that require others (``defaultKubernetesFeatureGateDependencies``), where the others can be switched off.
NEEDS = {
    "ClusterTrustBundleProjection": ("ClusterTrustBundle",),
    "DRADeviceBindingConditions": ("DRAResourceClaimDeviceStatus",),
    "DRADeviceTaintRules": ("DRADeviceTaints",),
    "GangScheduling": ("GenericWorkload",),
    "GracefulNodeShutdownBasedOnPodPriority": ("GracefulNodeShutdown",),
    "InPlacePodLevelResourcesVerticalScaling": ("PodLevelResources", "NodeDeclaredFeatures"),
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": ("MatchLabelKeysInPodTopologySpread",),
    "RestartAllContainersOnContainerExits": ("ContainerRestartRules", "NodeDeclaredFeatures"),
    "StaleControllerConsistencyDaemonSet": ("AtomicFIFO",),
    "StaleControllerConsistencyJob": ("AtomicFIFO",),
    "StaleControllerConsistencyReplicaSet": ("AtomicFIFO",),
    "StaleControllerConsistencyStatefulSet": ("AtomicFIFO",),
    "StorageVersionAPI": ("APIServerIdentity",),
    "TopologyAwareWorkloadScheduling": ("GenericWorkload",),
    "UnknownVersionInteroperabilityProxy": ("APIServerIdentity",),
    "WindowsGracefulNodeShutdown": ("GracefulNodeShutdown",),
    "WorkloadAwarePreemption": ("GangScheduling",),
    "WorkloadWithJob": ("GenericWorkload",),
}


class Gate(NamedTuple):
    """A feature gate; ``stage`` is Alpha, Beta, GA or Deprecated; a locked gate keeps its default."""

    default: bool
    locked: bool
    stage: str


@cache
def known() -> dict[str, Gate]:
    """Return every gate that kube-apiserver knows, by name."""
    return {name: Gate(*row) for name, row in json.loads(TABLE.read_text()).items()}


@cache
def gated_fields() -> dict[str, list[tuple[list[str], list[str]]]]:
    """Return ``group/version/Kind`` -> rows of a field's path and the gates that must all be on for it."""
    return json.loads(FIELDS.read_text())


@cache
def effective() -> frozenset[str]:
    """Return every gate that governs something here."""
    return frozenset(GOVERNED) | {gate for rows in gated_fields().values() for _, names in rows for gate in names}


class FeatureGate:
    """The set of gates that are on."""

    def set(self, given: Mapping[str, list[str]]) -> None:
        """Set the gates from the flag. Raises ValueError for invalid values."""
        self.on = enabled(given)

    @cached_property
    def on(self) -> frozenset[str]:
        """The gates that are on; the same object until they are set again."""
        return enabled({})

    def enabled(self, name: str) -> bool:
        """Whether a gate is on. Raises KeyError for an unknown one."""
        if name in self.on:
            return True
        if name not in known():
            raise KeyError(name)
        return False

    @contextlib.contextmanager
    def overridden(self, **gates: bool) -> Iterator[None]:
        """For tests: temporarily change gates, including locked ones."""
        before = self.on
        self.on = (before | {name for name, on in gates.items() if on}) - {name for name, on in gates.items() if not on}
        try:
            yield
        finally:
            self.on = before


DEFAULT = FeatureGate()


def problems(given: Mapping[str, list[str]]) -> list[str]:
    """Return the errors in the flag's values, in upstream's words."""
    gates, out = known(), list[str]()
    if {"", KUBE} <= given.keys():
        out.append(f"set {KUBE} feature gates with default empty prefix or {KUBE}: prefix consistently, do not mix use")
    for component, entries in given.items():
        if component not in COMPONENTS:
            out.append(f"component not registered: {component}")
            continue
        for entry in entries:
            name, sep, value = (part.strip() for part in entry.partition("="))
            if not sep:
                out.append(f"missing bool value for {name}")
                continue
            try:
                on = parse_bool(value)
            except ValueError as e:
                out.append(f"invalid value of {name}={value}, err: {e}")
                continue
            if name not in gates and name not in CLASSES:
                out.append(f"unrecognized feature gate: {name}{did_you_mean(name, gates)}")
            elif name in gates and gates[name].locked and on != gates[name].default:
                default = str(gates[name].default).lower()
                out.append(f"cannot set feature gate {name} to {value.lower()}, feature is locked to {default}")
    return out or _lacking(_on(_said(given)))


def _lacking(on: frozenset[str]) -> list[str]:
    out = []
    for name, needs in NEEDS.items():
        off = [other for other in needs if other not in on]
        if name in on and off:
            out.append(f"{name} is enabled, but depends on features that are disabled: [{' '.join(off)}]")
    return out


def wanted(given: Mapping[str, list[str]]) -> dict[str, bool]:
    """Return the value that the flag gives each gate and class it names. Raises ValueError for invalid values."""
    wrong = problems(given)
    if wrong:
        raise ValueError("; ".join(wrong))
    return _said(given)


def _said(given: Mapping[str, list[str]]) -> dict[str, bool]:
    pairs = (entry.partition("=") for entries in given.values() for entry in entries)
    return {name.strip(): parse_bool(value.strip()) for name, _, value in pairs}


def enabled(given: Mapping[str, list[str]]) -> frozenset[str]:
    """Return the gates that are on. Raises ValueError for invalid values of the flag."""
    return _on(wanted(given))


def _on(said: Mapping[str, bool]) -> frozenset[str]:
    out = set()
    for name, gate in known().items():
        on = gate.default
        if not gate.locked and gate.stage in CLASSES.values():
            on = said.get(f"All{gate.stage}", on)
        if said.get(name, on):
            out.add(name)
    return frozenset(out)


def leaving(given: Mapping[str, list[str]]) -> list[str]:
    """Return a line in upstream's words for each named gate that a future release will remove."""
    gates = known()
    stages = {"Deprecated": "deprecated", "GA": "GA"}
    return [
        f"setting {stages[gates[name].stage]} feature gate. It will be removed in a future release: {name}={str(on).lower()}"
        for name, on in wanted(given).items() if name in gates and gates[name].stage in stages
    ]  # fmt: skip


def without_effect(given: Mapping[str, list[str]]) -> list[str]:
    """Return the named gates that were changed from their default and govern nothing here."""
    gates = known()
    changed = [name for name, on in wanted(given).items() if name in gates and on != gates[name].default]
    # The supervisor runs this at every start and keeps what is loaded, so the table of fields is loaded only if a gate was changed.
    return sorted(set(changed) - effective()) if changed else []
