"""The composition root: builds the parts of one worker and gives each what it needs of the others.

It is the only module that imports across the layers. The life of a worker process is in ``worker.py``.
"""

from __future__ import annotations

import functools
import logging
import secrets
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kas import KUBERNETES_VERSION, controllers, kinds
from kas._fastpath import PartOf
from kas.admission import Chain as AdmissionChain
from kas.admission import order as admission_order
from kas.admission.initializer import Initializer
from kas.admission.webhook.concurrency import room
from kas.aggregator.aggregator import REFRESH_S, Aggregator
from kas.apiextensions import celmetrics
from kas.auth import external
from kas.auth.authn import revocation, x509
from kas.auth.authn.bearer import CacheCounts
from kas.auth.authn.jwttokens import TokenCounts
from kas.auth.authn.revocation import Revocation
from kas.auth.authz import rbac_informer
from kas.auth.authz.modes import Union
from kas.auth.authz.node import NodeAuthorizer
from kas.auth.authz.node_graph import SOURCES
from kas.auth.authz.node_informer import NodeGraphInformer
from kas.auth.authz.rbac import RbacIndex
from kas.auth.authz.reload import LOOK_EVERY_S, Reloading, authorizer_of
from kas.auth.credentials import Credentials, Proxies, ServiceAccountKeys
from kas.auth.user import MASTERS
from kas.client.hookparts import HookParts
from kas.client.http import DIRECT, Egress
from kas.client.services import ServiceResolver
from kas.config import capabilities, features
from kas.config.authentication import anonymous
from kas.config.options import Completed
from kas.config.runtime import chosen, enabled_versions
from kas.controllers import Controller, Deferred, queue
from kas.controllers.runner import Periodic, Runner
from kas.controllers.tokenuse import TOKEN_USE_EVERY_S, TokenUse
from kas.director import Director
from kas.endpoints import discovery, healthchecks, openid, respond, translate
from kas.endpoints.custom.converters import converters
from kas.endpoints.custom.table import CustomResources
from kas.endpoints.delete import Deleter
from kas.endpoints.documents import Documents
from kas.endpoints.health import Health
from kas.endpoints.healthchecks import (
    DEFINITIONS,
    DISCOVERED,
    INFORMERS,
    REGISTERED,
    WRITTEN,
    HealthChecks,
)
from kas.endpoints.inventory import Inventory
from kas.endpoints.kubelet import KubeletAccess
from kas.endpoints.longrunning import LongRunning
from kas.endpoints.metrics import MetricsEndpoint
from kas.endpoints.replicafallback import ReplicaFallback
from kas.endpoints.rest import Rest
from kas.endpoints.reviews import review, review_answers
from kas.endpoints.served import Served
from kas.endpoints.shownmetrics import shown
from kas.endpoints.subresources import install as install_subresources
from kas.endpoints.watch import Watches
from kas.endpoints.write import Writer
from kas.endpoints.zpages import ZPages
from kas.extensions import NONE, CheckedAuthorizer, Extensions, Loopback, LoopbackToken, hook_name, virtual_resources
from kas.filters.chain import Port, handler_chain, parts
from kas.filters.deadline import timed_out
from kas.filters.goaway import send_away
from kas.filters.handler import Chain
from kas.filters.tracing import traced
from kas.filters.wait_group import WaitGroup
from kas.flowcontrol.controller import ADJUST_EVERY_S, FlowControl
from kas.flowcontrol.dumps import Dumps
from kas.flowcontrol.work import Stored, Work
from kas.kinds.apiextensions.definitionstorage import DefinitionRegistry
from kas.kinds.certificates import storage as certificates_storage
from kas.kinds.core.namespace.storage import NamespaceRegistry
from kas.kinds.core.pod.storage import PodRegistry
from kas.kinds.core.service import storage as service_storage
from kas.meta import clock
from kas.meta.deadlines import Deadlines
from kas.meta.lazy import Lazy
from kas.observe import caches, latencies
from kas.observe.heartbeat import Heartbeat
from kas.observe.hooks import Hooks
from kas.observe.metrics import Registry as Metrics
from kas.observe.process import Trimmer
from kas.observe.processmetrics import ProcessMetrics
from kas.observe.tracing import Tracer
from kas.registry import bootstrap
from kas.registry.bootstrap import Entry
from kas.registry.bootstrap_trust import Texts
from kas.registry.bootstrapper import Bootstrapper
from kas.registry.registries import Registries
from kas.registry.versions import Family
from kas.request.http import Handler, Response
from kas.request.negotiation import CUSTOM
from kas.request.requestinfo import RequestInfo
from kas.store import Store
from kas.store.shared import Shared
from kas.types.scheme import Scheme

if TYPE_CHECKING:
    from kas.aggregator.peers import Peers
    from kas.audit.auditor import Auditor
    from kas.controllers.signing import Authority
    from kas.edge.spdylistener import SPDYListener
    from kas.encryption.atrest import EncryptionAtRest
    from kas.endpoints.custom.handler import CustomHandler
    from kas.endpoints.debug import Debug
    from kas.kinds.authentication.tokenrequest import Issuer

log = logging.getLogger("kas")

RBAC_GROUP = "rbac.authorization.k8s.io"
FLOWCONTROL = "flowcontrol.apiserver.k8s.io"
BOOKMARK_EVERY_S, TELL_EVERY_S, CLEAN_EVERY_S = 55.0, 1.0, 10.0
PROBE_EVERY_S = ENCRYPTION_EVERY_S = SIGNER_EVERY_S = VERBOSITY_EVERY_S = 1.0
ANY = 4096  # requests in flight if there is no limit
SAMPLE = 8  # objects whose sizes stand for those of all


class Server:
    """All parts of one worker, connected. ``store`` is open, ``index`` is the worker's number, ``chain`` answers at the secure port.
    ``encryption`` is what the store encrypts values with, if it does."""

    def __init__(
        self, options: Completed, store: Store, shared: Shared, index: int, extensions: Extensions = NONE,
        encryption: EncryptionAtRest | None = None,
    ) -> None:  # fmt: skip
        self.options, self.store, self.shared, self.index, self.extensions = options, store, shared, index, extensions
        self.encryption = encryption
        self._other_hubs = [part.hub for part in store.parts()[1:]]
        raw = options.raw
        self.metrics = Metrics(shown(raw, index == 0))
        self.name = bootstrap.server_name(socket.gethostname())
        self.counts_as = self.name if index == 0 else ""
        if encryption is not None:
            encryption.observed.attach(self.metrics, self.name, encryption.reload, index == 0)
        self.started = self.shutting_down = self.not_accepting = False
        self._chains: list[Chain] = []
        self.ending: Any = None  # the task that ends the worker early
        self.spdy_listener: SPDYListener | None = None  # behind the TLS front, if SPDY is accepted
        features.DEFAULT.set(raw.feature_gates)
        self.features = features.DEFAULT.on
        capabilities.CURRENT.set(raw)
        self.own = controllers.own(self.features, raw.enable_priority_and_fairness)
        self.chosen = controllers.chosen(raw.controllers, self.features)
        if raw.service_account_signing_endpoint:  # it signs no tokens that never expire
            self.chosen = [name for name in self.chosen if name != "serviceaccount-token-controller"]
        leases = options.etcd and raw.endpoint_reconciler_type == "lease"
        bound = healthchecks.loops(self.own, self.features, leases, self._has_peers)
        steps = (*healthchecks.steps(self.features), *map(hook_name, extensions.post_start))
        self.hooks = Hooks(steps, bound, options.run_dir / "hooks.json", healthchecks.upkeep(raw))
        self.heartbeat = Heartbeat(tell=shared.memory.beat)
        self.waiting, self.deadlines, self._trimmer = WaitGroup(), Deadlines(), Trimmer()
        self.trim = self._trimmer.trim
        kinds.install()
        self.scheme = Scheme()
        self.enabled = enabled_versions(self.scheme, {**chosen(self.scheme, extensions.kinds), **raw.runtime_config})
        self.tracer = self._tracer() if raw.tracing_config_file else None
        self.egress = self._egress()
        self._build_storage()
        self._build_auth()
        self._build_api()
        self._build_documents()
        self.auditor = self._auditor() if raw.audit_policy_file else None
        self.flow_control = self._flow_control() if raw.enable_priority_and_fairness else None
        tells = "StorageVersionAPI" in self.features
        self.registration = controllers.registration(self.registries, self.name, self.scheme, self.served) if tells else None
        self.filter_parts = parts(
            raw, self.metrics, self.scheme, self, self.waiting, shared.memory, lambda: self.credentials.authenticators,
            self.revocation.listeners.append, self.authorizer, self.catch_up, self.auditor, options.run_dir, self.proxies.headers,
            (self._part_of(), ReplicaFallback(self._named, store.at_revision)) if options.etcd else None,  # type: ignore[attr-defined]
            self.flow_control.gate if self.flow_control is not None else None, self.tracer, self._deprecated_custom,
            self.registration,
        )  # fmt: skip
        self.chain = self.chain_of("secure")

    def _egress(self) -> Egress:
        if not self.options.raw.egress_selector_config_file:
            return DIRECT
        from kas.client import egress

        return egress.load(self.options.raw, self.metrics)

    def _auditor(self) -> Auditor | None:
        from kas.audit import auditor

        for part in self.store.parts():
            latencies.observe(part, "range", "range_json", "range_protobuf", "commit", "commit_many")
        return auditor.build(self.options.raw, self.options.run_dir, self.metrics, self.egress.controlplane, self.options.workers == 1)

    def _tracer(self) -> Tracer:
        """This worker's tracer; from here on the store's requests are spans."""
        from kas.filters import tracingconfig
        from kas.observe.otlp import OTLPExporter

        settings = tracingconfig.load(self.options.raw.tracing_config_file)
        tracer = Tracer(OTLPExporter(settings.endpoint, self.name), settings.per_million)
        for part in self.store.parts():
            tracer.observe(part, {"get": "store get", "range": "store range", "range_json": "store range",
                                  "range_protobuf": "store range"}, "key")  # fmt: skip
            tracer.observe(part, {"commit": "store commit", "commit_many": "store commit"})
        return tracer

    def _forget(self, group: str, resource: str) -> None:
        """Drops what was kept for the objects of a deleted definition."""
        self.metrics.forget(group, resource)
        if self.flow_control is not None:
            self.flow_control.forget(group, resource)
        self.admission.forget(group, resource)

    def _flow_control(self) -> FlowControl:
        raw, watched = self.options.raw, self.watches.counts
        work = Work(self._stored, watched, self.options.workers, "SizeBasedListCostEstimate" in self.features)
        control = FlowControl(
            self.shared, self.options.run_dir, raw.max_requests_inflight + raw.max_mutating_requests_inflight, work, self.metrics
        )
        control.gate.watched = watched
        Dumps(control).install(self.director)
        return control

    def _stored(self, group: str, resource: str) -> Stored | None:
        """The number and size of a resource's objects; None if it is not stored here."""
        try:
            root = self.registries.of(group, resource).root
        except KeyError:
            return None
        first = self.store.range(root, limit=SAMPLE).records
        return Stored(self.store.count(root), sum(map(len, first)) // len(first) if first else 0)

    # --- storage

    def _build_storage(self) -> None:
        o = self.options
        self.registries = Registries(self.store, clock.now, self.metrics)
        makers = {"Namespace": NamespaceRegistry, "Pod": PodRegistry, "CustomResourceDefinition": DefinitionRegistry}
        makers["CertificateSigningRequest"] = certificates_storage.SigningRequestRegistry
        self.registries.add_stored(self.scheme.resources, self.scheme.resource, int(o.raw.event_ttl), makers)
        service_storage.install(self.registries, [f"IPv{n.version}" for n in o.service_ranges], o.node_ports, o.etcd)
        certificates_storage.install(self.registries, self.metrics)
        self._authorities = Texts()
        self.bootstrapper = Bootstrapper(self.registries, self._wanted, self._authorities.changed)

    # --- authentication and authorization

    def _build_auth(self) -> None:
        o, raw = self.options, self.options.raw
        self.rbac = RbacIndex()
        self.revocation = Revocation(self.store, [self.registries.of("", resource).root for resource in revocation.RESOURCES])
        prefixes = {r: reg.root for (_, r), reg in self.registries.by_resource() if r in SOURCES}
        graph = NodeGraphInformer(self.store, prefixes, self.metrics)
        node = NodeAuthorizer(graph, lambda: bootstrap.role_rules("system:node", self.features))
        self.authorizer = authorizer_of(raw, self.metrics, self.rbac, node, self.counts_as, self.egress.controlplane)
        if self.extensions.authorizers:
            self.authorizer = Union([*map(CheckedAuthorizer, self.extensions.authorizers), self.authorizer], (MASTERS,))
        self._loopback = secrets.token_urlsafe(32)
        hooked = [LoopbackToken(self._loopback)] if self.extensions.post_start or self.extensions.pre_shutdown else []
        self.keys = ServiceAccountKeys(
            raw.service_account_issuer, Path(raw.service_account_signing_key_file or o.data_dir / "pki" / "sa.key"),
            [Path(p) for p in raw.service_account_key_file], own=not raw.service_account_signing_key_file,
            endpoint=raw.service_account_signing_endpoint,
        )  # fmt: skip
        self.audiences = raw.api_audiences or raw.service_account_issuer
        self.token_use = TokenUse(self.registries)
        self.external: external.External | None = None
        self.proxies = Proxies(
            raw.requestheader_client_ca_file, [n for n in raw.requestheader_allowed_names if n], raw.requestheader_username_headers,
            raw.requestheader_group_headers, raw.requestheader_extra_headers_prefix, raw.requestheader_uid_headers,
        )  # fmt: skip
        self.credentials = Credentials(
            o.data_dir / "admin.token", raw.token_auth_file, self.keys, self.audiences,
            lambda resource, namespace, name: self.registries.get("", resource, namespace, name), anonymous(raw), self.token_use.note,
            client_cas=o.client_cas, proxies=self.proxies, bootstrap_tokens=raw.enable_bootstrap_token_auth,
            more=[*self.extensions.authenticators, *hooked],
            counts=TokenCounts(self.metrics), basic_file=raw.basic_auth_file, lifetimes=x509.lifetimes(self.metrics),
            cache_counts=CacheCounts(self.metrics), lookup=raw.service_account_lookup,
        )  # fmt: skip

    def load_credentials(self) -> None:
        """Reads the token files, after the supervisor has made them and an external signer has answered. Needs a running event loop."""
        if external.wanted(self.options.raw):
            self.external = external.External(
                self.options.raw, self.audiences, self.metrics, self.revocation.notify, self.counts_as, self.egress, self.name,
            )
        self.credentials.load(self.external)
        self.revocation.listeners.append(self.credentials.bearer.invalidate)

    def load_derived(self) -> None:
        """Builds what is derived from the store, and follows the store from here on."""
        prefixes = {resource: self.registries.of(RBAC_GROUP, resource).root for resource in rbac_informer.RESOURCES}
        for reflector in rbac_informer.reflectors(self.rbac, self.store, prefixes):
            reflector.start()
        if self.flow_control is not None:
            self.flow_control.start(self.store, lambda resource: self.registries.of(FLOWCONTROL, resource).root)
        self.revocation.start()
        self.custom.start()
        self.hooks.done(DEFINITIONS)
        self.aggregator.start(lambda: self.hooks.done(DISCOVERED))
        self.registries.fill()
        self.hooks.done(INFORMERS, REGISTERED)

    def catch_up(self) -> None:
        """Brings derived state up to every write that any worker has acknowledged; one atomic load if there is none."""
        if self.shared.memory.revision > self.store.hub.revision:
            self.store.hub.catch_up()
        for hub in self._other_hubs:
            hub.catch_up()

    def _behind(self) -> int:
        """How many revisions derived state lacks of what was committed before the call. Later commits do not count: under a steady load
        of writes there is always something newer."""
        newest = self.shared.memory.revision
        self.catch_up()
        return max(0, newest - self.store.hub.revision)

    def _failing(self) -> int:
        """How many followers of the store could not read what they missed, over all of its parts."""
        return sum(hub.failing for hub in (self.store.hub, *self._other_hubs))

    # --- the API

    def _build_api(self) -> None:
        raw, own = self.options.raw, self.options.own_address
        self.services = ServiceResolver(self.registries, self.registries, raw.enable_aggregator_routing, own)
        hooks = HookParts(room(raw), self.services.resolve, self.egress)
        initializer = Initializer(
            objects=self.registries, informers=self.registries, registries=self.registries, authorizer=self.authorizer, rules=self.rbac,
            mapper=self._of_kind, metrics=self.metrics, equivalents=self._equivalents, resolve=self.services.resolve, shares=hooks.shares,
            egress=self.egress, run_dir=self.options.run_dir, settings=raw, identity=self.counts_as,
        )  # fmt: skip
        plugins = admission_order.build(
            initializer, *admission_order.wanted(raw), raw.admission_control_config_file, speak=self.index == 0,
            own=self.extensions.admission,
        )  # fmt: skip
        if self.extensions.admission:  # an extension may change ``a.obj`` to any depth
            self.registries.disable_sharing()
        self.admission = AdmissionChain(plugins, admission_order.observer(self.metrics))
        if self.tracer is not None:
            self.tracer.observe(self.admission, {"start_mutate": "admit", "start_validate": "validate"})
        self.writer = Writer(self.admission, clock.now, self.authorizer)
        deleter = Deleter(self.writer, raw.delete_collection_workers)
        events = self.metrics.counter(
            "apiserver_watch_events_total", "Number of events sent in watch clients", ("group", "version", "resource")
        )
        lists = self.metrics.histogram(
            "apiserver_watch_list_duration_seconds",
            "Response latency distribution in seconds for watch list requests broken by group, version, resource and scope.",
            ("group", "resource", "scope", "version"), (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60),
        )  # fmt: skip
        self.watches = Watches(raw.min_request_timeout, events, lists)
        self.metrics.add(celmetrics.COMPILATION)
        self.metrics.add(celmetrics.EVALUATION)
        self.rest, self.long_running = Rest(self.writer, deleter, self.watches), LongRunning()
        if self.encryption is not None and self.encryption.may_wait:
            from kas.endpoints.decryptahead import DecryptAhead  # not needed otherwise

            self.rest.decrypt_ahead = DecryptAhead(self.encryption.waits)
        self.custom = CustomResources(
            self.scheme, self.registries, lambda state: self.watches.end_of(state.versions.values()), lambda: self.documents.refresh(),
            converters(hooks.clients, self.metrics), self._forget,
        )  # fmt: skip
        self.served: list[Any] = []
        answers = review_answers(
            self.authorizer, self.authorizer, lambda token, audiences: self.credentials.tokens.review(token, audiences), self.audiences
        )
        for r in self.scheme.resources:
            if (r.group, r.version) not in self.enabled.versions or not self.enabled.serves(r):
                continue
            if r.feature_gate is not None and r.feature_gate not in self.features:
                continue
            self.served.append(r)
            answer = answers.get((r.group, r.resource))
            if answer is not None:
                self.rest.add(review(r, self.writer, answer))
            elif r.etcd_prefix is not None:
                self.rest.add(Served(r, self.registries.by_prefix[r.group, r.etcd_prefix]))
        self.virtual = virtual_resources(self.extensions.resources, self.scheme, self.rest, self.registries)
        local = self.registries.of(bootstrap.REGISTRATION, "apiservices").root
        groups = {(group, version) for group, version in self._group_versions() if group != bootstrap.REGISTRATION}
        self.checks = HealthChecks(
            self.store, self.hooks, self.heartbeat, self._behind, self._failing,
            [f"{local}{version}.{group}" for group, version in groups], lambda: self.shutting_down, self.encryption,
            [part.unreachable for part in self.store.parts()] if self.options.etcd else (),  # type: ignore[attr-defined]
            (raw.etcd_healthcheck_timeout, raw.etcd_readycheck_timeout), raw.livez_grace_period,
            (lambda: self.aggregator.certificate.why()) if raw.proxy_client_cert_file else None,
        )  # fmt: skip
        kubelet = KubeletAccess(
            raw.kubelet_preferred_address_types, raw.kubelet_client_certificate, raw.kubelet_client_key, raw.kubelet_certificate_authority,
            self.egress.cluster, raw.max_connection_bytes_per_sec,
        )  # fmt: skip
        install_subresources(
            self.rest, self.writer, self.registries, self.authorizer, self.served, kubelet, self._issuer, self.checks.storage,
            self.long_running,
        )

    def _group_versions(self) -> set[tuple[str, str]]:
        """The group versions that are served here, apart from custom resources."""
        return {(r.group, r.version) for r in self.served} | (self.virtual.group_versions if self.virtual is not None else set())

    def loopback(self) -> Loopback:
        """The transport for an embedding program's own requests."""
        return Loopback(self.chain, self._loopback)

    def _named(self, info: RequestInfo) -> Served | None:
        """The resource that stores the objects a request names."""
        found = (self.rest.resources.get((info.api_group, info.api_version)) or {}).get(info.resource)
        if found is None:
            found = self.custom.find(info.api_group, info.api_version, info.resource)
            return found if found is not None and found.loaded else None
        return found if isinstance(found, Served) else None

    def _deprecated_custom(self, group: str, version: str, resource: str) -> bool:
        found = self.custom.find(group, version, resource)
        return found is not None and found.deprecation is not None

    def _part_of(self) -> PartOf:
        main = self.store.parts()[0]
        return PartOf(main, {at: registry.store for at, registry in self.registries.by_resource() if registry.store is not main})

    def _of_kind(self, group: str, version: str, kind: str) -> list[Any]:
        found = self.rest.of_kind(group, version, kind) or self.custom.of_kind(group, version, kind)
        return found if self.virtual is None else [*self.virtual.of_kind(group, version, kind), *found]

    def _equivalents(self, group: str, resource: str) -> Family:
        found = self.rest.equivalents(group, resource)
        if "." in group and not found:  # every group of a definition has a dot, and none of its resources is built in
            found = self.custom.equivalents(group, resource)
        if self.virtual is not None and (more := self.virtual.equivalents(group, resource)):
            return Family((*more, *found))
        return found

    def _issuer(self) -> Issuer:
        """The issuer of service account tokens. Its key exists once the supervisor has made it."""
        from kas.auth.tokens import EXTENDED_EXPIRATION_S
        from kas.kinds.authentication.tokenrequest import Issuer

        raw = self.options.raw
        longest, outside = int(raw.service_account_max_token_expiration), self.keys.external
        if outside is None:
            return Issuer(self.keys.signer, self.audiences, longest, raw.service_account_extend_token_expiration)
        return Issuer(
            outside, self.audiences, longest or outside.longest_s, raw.service_account_extend_token_expiration,
            min(EXTENDED_EXPIRATION_S, outside.longest_s),
        )  # fmt: skip

    def _build_documents(self) -> None:
        raw = self.options.raw
        self.aggregator = Aggregator(
            raw, self.store, self.registries.of(bootstrap.REGISTRATION, "apiservices").root, self.services,
            lambda: self.documents.openapi, lambda: self.documents.refresh_discovery(), self._for_one_backend(),
            "RemoteRequestHeaderUID" in self.features, self.metrics, self.egress.cluster,
        )  # fmt: skip
        rest: Any = self.rest.handle
        others: list[Any] = [self.virtual] if self.virtual is not None else []
        others.append(Lazy(self._custom_handler))
        if "CBORServingAndStorage" in self.features:
            from kas.endpoints.cbor import speaking  # alpha, and off

            rest, others = speaking(rest), [speaking(handler, CUSTOM) for handler in others]
        self.director = Director(rest, self.rest.resources, self.aggregator.claims)
        if self._has_peers:
            self.director.peers = self.aggregator.peers = self._peers()
        for handler in others:
            self.director.fallback(handler)
        virtual = self.virtual
        versions = [*discovery.builtin_versions(self.served, self.scheme.groups), *(virtual.versions() if virtual is not None else ())]
        parts = virtual.parts() if virtual is not None else []
        version = KUBERNETES_VERSION.rpartition(".")[0]  # what is emulated, as upstream's documents say
        address = f"{self.options.external_host}:{self.options.secure_port}"
        self.documents = Documents(
            lambda: [*versions, *self.custom.versions()],
            lambda before: _openapi(self.served, version, [*parts, *self.custom.parts()], before, raw.service_account_issuer[0]), address,
            lambda: openid.documents(
                self.keys.verifier, raw.service_account_issuer[0], raw.service_account_jwks_uri or f"https://{address}/openid/v1/jwks"
            ),
            self.aggregator, self.scheme.groups,
        )  # fmt: skip
        if self.aggregator.peers is not None:
            self.documents.counts = self.aggregator.peers.discovery_asked
        self.documents.install(self.director, raw.enable_swagger_ui)
        slis = Metrics()
        ProcessMetrics(self.metrics)
        self.metrics.collectors.append(queue.collector(self.metrics))
        self.health = Health(self.checks.paths(), slis)
        self.health.install(self.director)
        count_s, first = raw.etcd_count_metric_poll_period, self.index == 0
        inventory = Inventory(self.metrics, self.registries, self.watches, self.long_running, first, count_s)
        self.metrics_endpoint = MetricsEndpoint(self.metrics, slis, self.options.run_dir, self.index, inventory.collect, raw.profiling)
        self.metrics_endpoint.install(self.director)
        extra = []
        if raw.enable_logs_handler:
            from kas.endpoints.logs import logs_handler

            self.director.prefix("/logs/", logs_handler(Path(raw.log_dir or self.options.data_dir / "logs")))
            self.director.exact("/logs", lambda req: Response(301, [(b"location", b"/logs/")]))
            extra.append("/logs")
        self.debug: Debug | None = None
        if raw.profiling or raw.debug_socket_path:
            from kas.endpoints.debug import Debug

            self.debug = Debug(self.index, self.watches, self.store, self.options.run_dir / "verbosity")
        if self.debug is not None and raw.profiling:
            self.debug.install(self.director)
            extra += ["/debug/pprof", "/debug/pprof/"]
        zpages = ZPages(raw.shown(), ["/healthz", "/livez", "/metrics", "/readyz", "/version"])
        zpages.install(self.director, features.DEFAULT)
        fixed = [*zpages.paths, "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version", *extra]
        listed, issuer = self.aggregator.listed, raw.service_account_issuer[0]
        self.documents.index_paths = lambda: sorted(
            {*discovery.paths(listed(versions)), *self.health.paths(), *fixed, *(openid.PATHS if openid.verifiable(issuer) else ())}
        )

    @property
    def _has_peers(self) -> bool:
        """Whether requests are forwarded to other API servers of the cluster."""
        raw = self.options.raw
        able = self.options.etcd and raw.peer_ca_file and raw.proxy_client_cert_file and self.options.secure_port
        return bool(able) and "UnknownVersionInteroperabilityProxy" in self.features

    def _peer_address(self) -> tuple[str, int]:
        raw, o = self.options.raw, self.options
        return raw.peer_advertise_ip or o.endpoint_address, int(raw.peer_advertise_port or o.secure_port)

    def _peers(self) -> Peers:
        from kas.aggregator.peers import PeerMetrics, Peers
        from kas.controllers import peerleases

        raw = self.options.raw
        return Peers(
            self.store, peerleases.PREFIX, peerleases.address_of, self._peer_address(), raw.peer_ca_file,
            (raw.proxy_client_cert_file, raw.proxy_client_key_file), lambda *at: self.documents.serves(*at),
            lambda: self.documents.refresh_discovery(), self._for_one_backend(), "RemoteRequestHeaderUID" in self.features,
            self.scheme.groups, PeerMetrics(self.metrics),
        )  # fmt: skip

    def _custom_handler(self) -> CustomHandler:
        """Loaded with the first path that nothing built in answers."""
        from kas.endpoints.custom.handler import CustomHandler
        from kas.endpoints.custom.scale import CustomScale

        return CustomHandler(self.custom, self.rest, CustomScale(self.writer))

    def _for_one_backend(self) -> int:
        """How many requests of a worker may wait for one aggregated server: half of the worker's share of the requests in flight."""
        limits = (self.options.raw.max_requests_inflight, self.options.raw.max_mutating_requests_inflight)
        return max(1, min(limit or ANY for limit in limits) // (2 * self.options.workers))

    def chain_of(self, port: Port) -> Chain:
        """The filters and the director behind them, for the "secure", "insecure" or "read-only" port."""
        filters = handler_chain(port, self.options.raw, self.metrics, self.filter_parts)
        endpoint: Handler = self.director
        if self.tracer is not None:
            filters, endpoint = traced(self.tracer, filters, endpoint)
        chain = Chain(filters, endpoint, respond.status, translate, self.deadlines, lambda req: respond.late(timed_out()))
        self._chains.append(chain)
        return chain

    def send_away(self) -> None:
        """Makes every response from now on ask its client to reconnect: this server ends, and load balancers have had time to notice."""
        for chain in self._chains:
            chain.also(send_away)

    def _authority(self) -> Authority:
        from kas.controllers.signing import Authority  # needed when a certificate is to be signed

        pki = self.options.data_dir / "pki"
        return Authority(pki / "ca.crt", pki / "ca.key")

    def controllers(self) -> Iterator[Controller]:
        """The controllers that the leading worker runs: kube-apiserver's own, and those chosen with ``--controllers``. Each is created
        when it runs."""
        o, raw = self.options, self.options.raw
        root_ca = o.serving_pair[0] if raw.tls_cert_file or raw.cert_dir else o.data_dir / "pki" / "ca.crt"
        authority: Any = Lazy(self._authority)
        initializer = controllers.Initializer(
            self.registries, self.bootstrapper, self.keys, root_ca, [str(n) for n in o.service_ranges], self.aggregator,
            self.authorizer, authority, self.admission,
        )  # fmt: skip
        from kas.controllers.election import LeaderElection
        from kas.controllers.masterleases import MasterCount, MasterLeases

        if raw.endpoint_reconciler_type == "master-count":  # first: the address is there already, and the server may end soon
            yield Deferred(MasterCount.name, lambda: MasterCount(self.registries, o.endpoint_address))
        yield from map(initializer.deferred, self.own)
        if self.registration is not None:
            yield self.registration.controller()
        if "CoordinatedLeaderElection" in self.features:
            from kas.controllers.coordinated import elections

            yield elections(self.registries, self.hooks, raw)
        if not o.etcd:
            yield from map(initializer.deferred, self.chosen)
            return
        if raw.endpoint_reconciler_type == "lease":
            yield Deferred(
                MasterLeases.name, lambda: MasterLeases(self.registries, o.endpoint_address, self.bootstrapper.forget)
            )
        if self._has_peers:
            from kas.controllers.peerleases import PeerLease

            yield Deferred(PeerLease.name, lambda: PeerLease(self.registries, self.name, *self._peer_address()))
        if self.chosen:
            yield LeaderElection(self.registries, lambda: [*map(initializer.deferred, self.chosen)], self.hooks)

    def runner(self, more: Sequence[Periodic] = ()) -> Runner:
        """The background tasks of this worker, and ``more``."""
        o = self.options
        told_s = TELL_EVERY_S if o.workers > 1 else CLEAN_EVERY_S  # a single worker's numbers are for its replacement
        periodic: list[Periodic] = [
            ("bookmarks", BOOKMARK_EVERY_S, self.watches.send_bookmarks), ("metrics", told_s, self.metrics_endpoint.dump),
            ("health of loops", TELL_EVERY_S, self.hooks.tell),
            ("legacy token use", TOKEN_USE_EVERY_S, self.token_use.write),
            ("discovery of backends", REFRESH_S, self.aggregator.discovery.refresh),
            ("old custom resources", CLEAN_EVERY_S, self.custom.look_for_clean),
            ("credentials that were good", CLEAN_EVERY_S, caches.sweep), *self._trimmer.periodic(),
            *(self.external.periodic if self.external is not None else ()), *more,
        ]  # fmt: skip
        if self.keys.external is not None:
            periodic.append(("keys of the external signer", SIGNER_EVERY_S, self.keys.external.follow))
        if self.debug is not None:
            periodic.append(("verbosity", VERBOSITY_EVERY_S, self.debug.flags.follow))
        if o.etcd:
            limit_s = max(o.raw.etcd_healthcheck_timeout, o.raw.etcd_readycheck_timeout)
            periodic.append(("etcd", PROBE_EVERY_S, functools.partial(self.store.probe, limit_s)))  # type: ignore[attr-defined]
        if isinstance(self.authorizer, Reloading):
            periodic.append(("authorization configuration", LOOK_EVERY_S, self.authorizer.look))
        if self.registration is not None:
            periodic.append(self.registration.periodic(functools.partial(self.hooks.done, healthchecks.STORAGE_VERSIONS)))
        periodic += admission_order.periodic(self.admission.plugins)
        if self.flow_control is not None:
            periodic.append(("flow control", ADJUST_EVERY_S, self.flow_control.adjust_in_turns))
        if self.encryption is not None:
            periodic.append(("encryption configuration", ENCRYPTION_EVERY_S, self.encryption.follow))
            periodic.append(("what cannot be decrypted", CLEAN_EVERY_S, functools.partial(self.encryption.read_again, self.store)))
        window, most = int(o.raw.history_window), o.history_max_size
        compact = functools.partial(self.store.maintain, window_s=window, max_history_bytes=most)
        return Runner(self.index, o.run_dir, self.store, compact, periodic, self.controllers, self.hooks)

    # --- bootstrap

    def bootstrap(self) -> None:
        """Writes the objects that every server has, unless another worker did."""
        self.bootstrapper.write(self.options.run_dir / "bootstrap.lock")
        self.hooks.done(*WRITTEN)

    def bootstrapped(self) -> bool:
        """Whether the objects of an earlier start exist, which is enough to serve."""
        if self.registries.get("", "namespaces", "", "kube-system") is None:
            return False
        self.hooks.done(*WRITTEN)
        return True

    def _addresses(self) -> list[str]:
        """The addresses of all API servers of the cluster, as far as the kubernetes Service shows them."""
        own, kind = self.options.endpoint_address, self.options.raw.endpoint_reconciler_type
        if kind == "lease" and self.options.etcd:
            from kas.controllers import masterleases

            return sorted({own, *masterleases.addresses(self.store)})
        return [] if kind == "none" else [own]

    def _wanted(self) -> list[Entry]:
        o = self.options
        service_ip = str(o.service_ranges[0].network_address + 1)
        groups, kept = sorted(self._group_versions()), {(r.group, r.resource) for r in self.served}
        cidrs, port = [str(n) for n in o.service_ranges], o.secure_port or o.insecure_port or 443
        addresses = self._addresses()
        client_ca, proxies = o.raw.client_ca_file, self.proxies
        vouching = {
            "request_header_ca": self._authorities.of(proxies.ca_file), "username_headers": proxies.username_headers,
            "uid_headers": proxies.uid_headers, "group_headers": proxies.group_headers, "extra_prefixes": proxies.extra_prefixes,
            "allowed_names": proxies.allowed_names,
        } if proxies.ca_file else {}  # fmt: skip
        found = bootstrap.initial(
            clock.now(), service_ip, cidrs, addresses, port, groups, self._authorities.of(client_ca), vouching,
            self.features, o.raw.kubernetes_service_node_port,
        )  # fmt: skip
        return [entry for entry in found if (entry.group, entry.resource) in kept]


def _openapi(served: list[Any], version: str, parts: Any, before: Any, issuer: str) -> Any:
    from kas.endpoints import openapi  # large, and needed only by the first kubectl

    made = [openapi.Part(group, name, tag, load) for group, name, tag, load in parts]
    return openapi.OpenAPI([openapi.builtin(r) for r in served], version, made, before, openid.verifiable(issuer))


