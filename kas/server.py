"""The composition root: one worker of ``kas serve``, from the store up to its listeners. The only module that imports across.

``work`` runs a worker to its end. Start-up: open the store, bring the bootstrap objects up to date, load derived state, wait
for the certificates, listen, report ready. Shutdown (SIGTERM), as upstream: readyz fails, delay, no new work, requests in
flight end, watches end, the store closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import gc
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from kas import __version__, controllers, features
from kas.admission import Chain as AdmissionChain
from kas.admission import order as admission_order
from kas.api.errors import ApiError
from kas.api.scheme import SCHEME
from kas.auth.authn.bearer import BearerToken
from kas.auth.authn.serviceaccount import ServiceAccountTokens
from kas.auth.authn.tokenfile import TokenFileError, admin_token, load_token_file
from kas.auth.authn.union import Authenticators, TokenUnion
from kas.auth.authz import modes
from kas.auth.authz.node import NodeAuthorizer
from kas.auth.authz.node_feed import FollowedNodeGraph
from kas.auth.authz.node_graph import SOURCES
from kas.auth.authz.rbac import RbacIndex
from kas.auth.tokens import LEGACY_ISSUER, Signer, Verifier, discovery_document
from kas.controllers.runner import Runner
from kas.director import Director
from kas.edge.asgi import App
from kas.edge.http import Request, Response
from kas.edge.listener import Listener, TLSFiles
from kas.endpoints import discovery, respond, translate
from kas.endpoints.delete import Deleter
from kas.endpoints.documents import Documents
from kas.endpoints.health import Health
from kas.endpoints.metrics import MetricsEndpoint
from kas.endpoints.rest import Rest
from kas.endpoints.reviews import review, review_answers
from kas.endpoints.served import Served
from kas.endpoints.subresources import install as install_subresources
from kas.endpoints.watch import Watches
from kas.endpoints.write import Writer
from kas.endpoints.zpages import ZPages
from kas.filters import audit, audit_id, cors, deadline, goaway, http_logging, response_headers, shutdown_retry, tracing
from kas.filters.authentication import authentication, trusted
from kas.filters.authorization import authorization
from kas.filters.chain import Chain, Deadlines, Filter
from kas.filters.impersonation import impersonation
from kas.filters.latency import latency
from kas.filters.max_in_flight import max_in_flight
from kas.filters.mux_complete import mux_complete
from kas.filters.panic_recovery import panic_response
from kas.filters.rate_limit import TokenBucket, read_only
from kas.filters.request_info import request_info
from kas.filters.wait_group import WaitGroup
from kas.later import Later
from kas.observe.logs import setup_logging
from kas.observe.metrics import Registry as Metrics
from kas.options import Completed
from kas.registry import bootstrap
from kas.registry.bootstrap import Change, Entry
from kas.registry.core.namespace_registry import NamespaceRegistry
from kas.registry.core.pod_registry import PodRegistry
from kas.registry.generic import Registry
from kas.registry.strategy import Context, strategy_modules
from kas.runtime_config import enabled_versions
from kas.store import StoreError, open_store
from kas.store.shared import Shared

log = logging.getLogger("kas")

RBAC_RESOURCES = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
RBAC_GROUP = "rbac.authorization.k8s.io"


_second = (0, "")  # the last one formatted: every write asks for the time


def clock() -> str:
    """Now as metav1.Time prints it."""
    global _second
    whole = int(time.time())
    shown = _second
    if shown[0] != whole:
        shown = _second = whole, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(whole))
    return shown[1]


class Server:
    """Everything of one worker, connected. ``handler(kind)`` is the chain of a port."""

    def __init__(self, options: Completed, store: Any, shared: Shared, index: int) -> None:
        self.options, self.store, self.shared, self.index = options, store, shared, index
        raw = options.raw
        self.metrics = m = Metrics()
        m.gauge("apiserver_longrunning_requests", "Gauge of all active long-running apiserver requests.", ("verb",))
        m.gauge("apiserver_storage_size_bytes", "Size of the storage database file physically allocated in bytes.", ("storage_cluster_id",))
        m.gauge("apiserver_resource_objects", "Number of stored objects at the time of last check split by kind.", ("group", "resource"))
        self.started = self.shutting_down = self.not_accepting = False
        self.waiting, self.deadlines = WaitGroup(), Deadlines()
        self.when_revoked: list[Any] = []
        self.chosen = controllers.chosen(options.raw.controllers)
        self.features = features.enabled(raw.feature_gates)
        self.enabled = enabled_versions(SCHEME, raw.runtime_config)
        self._build_storage()
        self._build_auth()
        self._build_api()
        self._build_documents()
        self.chain = self._chain("secure")

    # --- storage

    def _build_storage(self) -> None:
        """One registry per stored resource, whichever of its versions are served."""
        self.registries: dict[tuple[str, str], Registry] = {}
        for r in SCHEME.resources:
            if r.etcd_prefix is None or r.storage_gvk is None:
                continue
            # Versions of one resource share a registry. Events have one per group over the same keys: their rules differ.
            key = (r.group, r.etcd_prefix)
            if key in self.registries:
                continue
            home = (SCHEME.resource(r.group, r.storage_gvk[1], r.resource) if r.storage_gvk[0] == r.group else None) or r
            lease = int(self.options.raw.event_ttl) if home.kind == "Event" else 0
            make = {"Namespace": NamespaceRegistry, "Pod": PodRegistry}.get(home.kind, Registry)
            self.registries[key] = make(home, self.store, clock, lease)
        self.by_resource: dict[tuple[str, str], Registry] = {}
        for reg in self.registries.values():
            self.by_resource[reg.resource.group, reg.resource.resource] = reg
        self._build_allocation()

    def _build_allocation(self) -> None:
        """Services take addresses and ports; their Endpoints go with them."""
        o, services, endpoints = self.options, self.registry("", "services"), self.registry("", "endpoints")
        families = [f"IPv{n.version}" for n in o.service_ranges]

        def allocator() -> Any:
            from kas.registry.core.allocation import ServiceAllocator

            addresses, ranges = self.registry("networking.k8s.io", "ipaddresses"), self.registry("networking.k8s.io", "servicecidrs")
            return ServiceAllocator(families, o.node_ports, addresses, ranges)

        services.allocator = Later(allocator)

        async def delete_endpoints(service: dict[str, Any], ctx: Context) -> None:
            with contextlib.suppress(ApiError):  # there may be none, and somebody may have been quicker
                await endpoints.delete(ctx, service["metadata"]["name"], {})

        services.after_delete = delete_endpoints

    def registry(self, group: str, resource: str) -> Registry:
        return self.by_resource[group, resource]

    def object(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """A stored object as a dict, None when absent; for plug-ins, authenticators and controllers."""
        reg = self.by_resource[group, resource]
        rec = self.store.get(f"{reg.root}{namespace}/{name}" if reg.resource.namespaced else reg.root + name)
        return orjson.loads(rec.json) if rec is not None else None

    # --- who and whether

    def _build_auth(self) -> None:
        o, raw = self.options, self.options.raw
        self.rbac = RbacIndex()
        abac = None
        if raw.authorization_policy_file:
            from kas.auth.authz.abac import load_policy_file

            abac = load_policy_file(raw.authorization_policy_file)
        roots = {r: reg.root for (_, r), reg in self.by_resource.items() if r in SOURCES}
        self.node_graph = FollowedNodeGraph(self.store, roots)
        node = NodeAuthorizer(self.node_graph, bootstrap.role_rules("system:node"))
        self.authorizer = modes.build(raw.authorization_mode, rbac=self.rbac, node=node, abac=abac)
        key = Path(raw.service_account_signing_key_file or o.data_dir / "pki" / "sa.key")
        self.signing_key = key
        issuer = raw.service_account_issuer
        self.audiences = raw.api_audiences or [issuer]
        self._signer: Signer | None = None
        self._verifier: Verifier | None = None

    def load_credentials(self) -> None:
        """Reads tokens and keys; after the supervisor has made them."""
        o, raw = self.options, self.options.raw
        members: list[Any] = [admin_token((o.data_dir / "admin.token").read_text().strip())]
        if raw.token_auth_file:
            members.append(load_token_file(raw.token_auth_file))
        members.append(_ServiceAccounts(self))
        self.tokens = TokenUnion(members, self.audiences)
        self.bearer = BearerToken(self.tokens)
        self.authenticators = Authenticators([self.bearer], anonymous=raw.anonymous_auth)

    @property
    def signer(self) -> Signer:
        if self._signer is None:
            self._signer = Signer(self.signing_key.read_bytes(), self.options.raw.service_account_issuer)
        return self._signer

    @property
    def verifier(self) -> Verifier:
        if self._verifier is None:
            self._verifier = Verifier([self.signing_key.read_bytes()], [self.options.raw.service_account_issuer, LEGACY_ISSUER])
        return self._verifier

    def oidc(self) -> tuple[bytes, bytes]:
        """(discovery document, key set) of the token issuer."""
        keys = self.verifier.jwks()
        algorithms = sorted({k["alg"] for k in keys["keys"]})
        uri = f"https://{self.options.advertise_address}:{self.options.secure_port}/openid/v1/jwks"
        return orjson.dumps(discovery_document(self.options.raw.service_account_issuer, uri, algorithms)), orjson.dumps(keys)

    def load_derived(self) -> None:
        """Builds what is derived from the store and follows it from here on."""
        for resource in RBAC_RESOURCES:
            root = self.registry(RBAC_GROUP, resource).root
            self._load_rbac(resource, root)
            self.store.listen(
                root,
                lambda events, resource=resource, root=root: self._rbac_changed(resource, root, events),
                reset=lambda resource=resource, root=root: self._load_rbac(resource, root),
            )
        for resource in ("serviceaccounts", "secrets", "pods"):
            self.store.listen(self.registry("", resource).root, self._credentials_changed, reset=self._forget_credentials)

    def _load_rbac(self, resource: str, root: str) -> None:
        """Every object of an RBAC resource into the index; what is gone meanwhile goes."""
        there = set()
        for rec in self.store.range(root).records:
            obj = orjson.loads(rec.json)
            there.add((obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))
            self.rbac.put(resource, obj)
        self.rbac.keep_only(resource, there)

    def _rbac_changed(self, resource: str, root: str, events: list[Any]) -> None:
        for e in events:
            if e.record is not None:
                self.rbac.put(resource, orjson.loads(e.record.json))
            else:
                namespace, _, name = e.key[len(root) :].rpartition("/")
                self.rbac.delete(resource, namespace, name)

    def _credentials_changed(self, events: list[Any]) -> None:
        if any(e.record is None for e in events):
            self._forget_credentials()

    def _forget_credentials(self) -> None:
        self.bearer.invalidate()
        for forget in self.when_revoked:
            forget()

    def catch_up(self) -> None:
        """Derived state is as new as any acknowledged write of any worker; one atomic load when nothing happened."""
        if self.shared.memory.revision > self.store.hub.revision:
            self.store.hub.catch_up()

    # --- the API

    def _build_api(self) -> None:
        raw = self.options.raw
        self.admission = AdmissionChain(admission_order.build(self), admission_order.observer(self.metrics))
        self.writer = Writer(self.admission, clock, self.authorizer)
        deleter = Deleter(self.writer)
        events = self.metrics.counter(
            "apiserver_watch_events_total", "Number of events sent in watch clients", ("group", "version", "resource")
        )
        self.watches = Watches(self.store, raw.min_request_timeout, events)
        self.rest = Rest(self.writer, deleter, self.watches)
        self.served: list[Any] = []
        answers = review_answers(
            self.authorizer, self.authorizer, lambda token, audiences: self.tokens.review(token, audiences), self.audiences
        )
        for r in SCHEME.resources:
            if (r.group, r.version) not in self.enabled.versions or not self.enabled.serves(r):
                continue
            self.served.append(r)
            answer = answers.get((r.group, r.resource))
            if answer is not None:
                self.rest.add(review(r, self.writer, answer))
            elif r.etcd_prefix is not None:
                self.rest.add(Served(r, self.registries[r.group, r.etcd_prefix]))
        install_subresources(self)

    def _build_documents(self) -> None:
        raw = self.options.raw
        self.director = Director(self.rest.handle, lambda group, version: (group, version) in self.rest.resources)
        versions = discovery.builtin_versions(self.served, SCHEME.groups)
        version = f"v{__version__}"
        address = f"{self.options.advertise_address}:{self.options.secure_port}"
        self.documents = Documents(
            lambda: versions, lambda: _openapi(self.served, version), address, self.oidc
        )
        self.documents.install(self.director, raw.enable_swagger_ui)
        self.health = Health(lambda: self.started, self._store_check, lambda: self.shutting_down)
        self.health.install(self.director)
        self.metrics_endpoint = MetricsEndpoint(self.metrics, self.options.run_dir, self.index, self._collect)
        self.metrics_endpoint.install(self.director)
        extra = []
        if raw.enable_logs_handler:
            from kas.endpoints.logs import logs_handler

            self.director.prefix("/logs/", logs_handler(Path(raw.log_dir or self.options.data_dir / "logs")))
            self.director.exact("/logs", lambda req: Response(301, [(b"location", b"/logs/")]))
            extra.append("/logs")
        if raw.profiling:
            from kas.endpoints.debug import Debug

            Debug(self).install(self.director)
            extra += ["/debug/pprof", "/debug/flags/v"]
        ZPages(vars(raw), lambda: ["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"]).install(self.director)
        fixed = [
            "/flagz", "/statusz", "/.well-known/openid-configuration", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3",
            "/openapi/v3/", "/openid/v1/jwks", "/version",
        ]  # fmt: skip
        self.documents.index_paths = lambda: sorted({*discovery.paths(versions), *self.health.paths(), *fixed, *extra})

    def _store_check(self) -> str:
        try:
            self.store.get("/registry/health")
        except StoreError as e:
            return str(e)
        return ""

    def _collect(self) -> None:
        m = self.metrics
        m.gauge_value("apiserver_longrunning_requests", ("WATCH",), len(self.watches.open))
        if self.index != 0:
            return  # what follows is the same for all workers, and gauges are added up
        stats = self.store.statistics()
        m.gauge_value("apiserver_storage_size_bytes", ("lmdb-0",), stats["file_bytes"] - stats["free_bytes"])
        for (group, resource), reg in self.by_resource.items():
            m.gauge_value("apiserver_resource_objects", (group, resource), self.store.count(reg.root))

    def _chain(self, port: str) -> Chain:
        raw = self.options.raw
        if port == "insecure":
            who: list[Filter] = [trusted()]
        else:
            who = [_Deferred(lambda: authentication(self.authenticators, self.metrics, self.when_revoked.append)).filter("authentication")]
        if not hasattr(self, "_shared_filters"):
            # Filters with counters of their own are made once, whatever the number of ports.
            self._shared_filters = {
                "latency": latency(self.metrics),
                "max_in_flight": max_in_flight(
                    self.shared.memory, raw.max_requests_inflight, raw.max_mutating_requests_inflight, self.metrics
                ),
                "authorization": authorization(self.authorizer, self.metrics),
            }
        shared = self._shared_filters
        catch_up = Filter("catch_up", lambda req: self.catch_up())
        filters = [
            audit_id.audit_id(), mux_complete(lambda: self.started), request_info(), shared["latency"], tracing.tracing(),
            http_logging.http_logging(raw.v), shutdown_retry.shutdown_retry(lambda: self.not_accepting),
            response_headers.hsts(raw.strict_transport_security_directives), response_headers.cache_control(), response_headers.warnings(),
            goaway.goaway(raw.goaway_chance), self.waiting.filter(), deadline.deadline(raw.request_timeout),
            cors.cors(raw.cors_allowed_origins),
            *([read_only(TokenBucket(raw.api_rate, raw.api_burst, time.monotonic))] if port == "read-only" else []),
            catch_up, *who, audit.audit(), impersonation(self.authorizer), shared["max_in_flight"], shared["authorization"],
        ]  # fmt: skip
        return Chain(
            filters, self.director, respond.status, translate, lambda req, e: panic_response(req, e, self.metrics),
            self.deadlines, lambda req: respond.status(req, deadline.timed_out()),
        )  # fmt: skip

    def controllers(self) -> list[Any]:
        """What the worker that leads runs: kube-apiserver's own loops, and those chosen with ``--controllers``."""
        return [controllers.make(name, self) for name in (*controllers.ALWAYS, *self.chosen)]

    # --- bootstrap

    def bootstrap(self) -> None:
        """Writes the objects every server has; under a lock, so that one worker does it and the others find it done."""
        o = self.options
        with open(o.run_dir / "bootstrap.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            changes = bootstrap.plan(self._wanted(), self.object)
            ops = [op for change in changes for op in self._bootstrap_ops(change)]
            if len({op.key for op in ops}) == len(ops):
                if ops:
                    self.store.commit_now(*ops)
            else:
                for op in ops:  # a recreated binding is two operations on one key
                    self.store.commit_now(op)

    def _wanted(self) -> list[Entry]:
        o = self.options
        service_ip = str(o.service_ranges[0].network_address + 1)
        groups = sorted({(r.group, r.version) for r in self.served})
        cidrs, port = [str(n) for n in o.service_ranges], o.secure_port or o.insecure_port or 443
        return bootstrap.initial(clock(), service_ip, cidrs, [_endpoint_address(o)], port, groups, features=self.features)

    def missing(self, resources: frozenset[str]) -> list[list[Any]]:
        """The writes, each group for itself, that bring bootstrap objects of these resources back to what they have to be."""
        if not bootstrap.plan(self._kept(resources), self.object):
            return []
        wanted = [e for e in self._wanted() if e.resource in resources]
        return [ops for ops in (list(self._bootstrap_ops(c)) for c in bootstrap.plan(wanted, self.object)) if ops]

    @cache  # noqa: B019 — one server per process
    def _kept(self, resources: frozenset[str]) -> list[Entry]:
        """For looking whether there is anything to do: never written, their uids and times are of the first look."""
        return [e for e in self._wanted() if e.resource in resources]

    def _bootstrap_ops(self, change: Change) -> Iterator[Any]:
        from kas._fastpath import Op

        entry = change.entry
        reg = self.registry(entry.group, entry.resource)
        key = reg.key(entry.namespace, entry.name)
        obj = entry.obj
        if change.action == "recreate":
            yield Op(key, None, None)
        expected = (
            int(obj["metadata"].pop("resourceVersion", 0) or 0)
            if change.action == "update"
            else (None if change.action == "recreate" else 0)
        )
        yield Op(key, reg.draft(obj), expected)
        if entry.resource == "services" and change.action == "create":
            # Its address is taken from the first moment on; when somebody else has it, the repair loop says so.
            assert reg.allocator is not None  # services have one
            yield from (op for op in reg.allocator.ops(Context(clock()), obj, None) if self.store.get(op.key) is None)


def _endpoint_address(o: Completed) -> str:
    """An address of the kubernetes service's endpoints; validation upstream refuses loopback ones, so a fallback stands in."""
    return o.advertise_address


def _openapi(served: list[Any], version: str) -> Any:
    from kas.endpoints import openapi  # large, and wanted by the first kubectl only

    return openapi.OpenAPI([openapi.builtin(r) for r in served], version)


class _Deferred:
    """A filter made when the first request comes, because its parts are not there while the chain is built."""

    def __init__(self, make: Callable[[], Filter]) -> None:
        self._make = make
        self._filter: Filter | None = None

    def filter(self, name: str) -> Filter:
        def before(req: Request):
            if self._filter is None:
                self._filter = self._make()
            assert self._filter.before is not None  # what is deferred looks at requests
            return self._filter.before(req)

        return Filter(name, before)


class _ServiceAccounts:
    """Service-account tokens; keys are read when the first one comes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._inner: ServiceAccountTokens | None = None

    def _tokens(self) -> ServiceAccountTokens:
        if self._inner is None:
            s = self._server
            self._inner = ServiceAccountTokens(s.verifier, s.audiences, lambda resource, ns, name: s.object("", resource, ns, name))
        return self._inner

    def authenticate_token(self, token: str):
        if token.count(".") != 2:
            return None
        return self._tokens().authenticate_token(token)

    def review(self, token: str, audiences):
        if token.count(".") != 2:
            return None
        return self._tokens().review(token, audiences)


def work(options: Completed, index: int, report_fd: int, go_fd: int, shared_spec: str) -> None:
    """Runs worker number ``index`` until it is told to stop. ``report_fd`` gets "ready" or the reason of a failure;
    ``go_fd`` reads end of file once certificates and keys exist."""
    import uvloop

    setup_logging(options.raw.v, options.raw.logging_format)
    log.info("start: worker %d imported %.0f ms after its fork", index, (time.clock_gettime(time.CLOCK_BOOTTIME) - _born()) * 1000)
    try:
        # Not uvloop.run: it ends by looking at all tasks, among which granian keeps one that only stands for its own scheduler.
        loop = uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(_serve(options, index, report_fd, go_fd, shared_spec))
    except (StoreError, TokenFileError, OSError, ValueError) as e:
        os.write(report_fd, str(e).encode())
        os.close(report_fd)
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    # granian's runtime threads have nothing left to say, and waiting for them would delay the exit.
    os._exit(0)


def _born() -> float:
    """When this process was made, in seconds since boot (/proc/self/stat, field 22)."""
    ticks = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


async def _serve(options: Completed, index: int, report_fd: int, go_fd: int, shared_spec: str) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for s in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(s, stop.set)
    shared = Shared.attach(shared_spec, index)
    raw = options.raw
    step = _steps()
    store = open_store(str(options.data_dir / "store"), max_size=options.store_max_size, sync=not raw.unsafe_no_fsync, shared=shared)
    step("store open")
    server = Server(options, store, shared, index)
    step("server built")
    store.start(loop)
    server.bootstrap()
    step("bootstrap objects there")
    server.store.hub.catch_up()
    server.load_derived()
    step("derived state loaded")
    while os.read(go_fd, 1):  # start-up, nothing else runs yet
        pass
    os.close(go_fd)
    server.load_credentials()
    step("credentials loaded")
    listeners = _listeners(server)
    server.started = True
    for listener in listeners:
        listener.start(index)
    runner = Runner(server)
    runner.start()
    # What was made so far lives as long as the process. Requests make many small dicts and no cycles, so looking for cycles
    # after every 700 of them finds nothing and costs up to a third of a pod's create.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    os.write(report_fd, b"ready\n")
    warming = loop.create_task(_warm(server))
    if raw.v >= 4:
        loop.set_debug(True)
    await stop.wait()
    warming.cancel()
    await _shut_down(server, listeners, runner)


def _steps():
    """Logs what of the start took how long, at -v 1."""
    began = time.monotonic()

    def step(what: str) -> None:
        log.info("start: %s after %.0f ms", what, (time.monotonic() - began) * 1000)

    return step


async def _warm(server: Server) -> None:
    """Loads in small steps, between requests, what the first client would otherwise wait for."""
    groups = dict.fromkeys(reg.resource.group for reg in server.registries.values())
    modules = [name for group in groups for name in strategy_modules(group)]
    modules += ["kas.api.printers.core", "kas.api.yaml_codec", "isal.igzip"]
    steps: list[Callable[[], Any]] = [functools.partial(importlib.import_module, name) for name in modules]
    steps.append(lambda: [reg.strategy for reg in server.registries.values()])
    for one in steps:
        await asyncio.sleep(0.02)
        one()
    gc.collect()
    gc.freeze()


def _listeners(server: Server) -> list[Listener]:
    o, raw = server.options, server.options.raw
    refuse = lambda e: respond.status(_bare(), e)  # noqa: E731
    out = []
    if o.secure_port:
        pki = o.data_dir / "pki"
        tls = TLSFiles(raw.tls_cert_file or str(pki / "apiserver.crt"), raw.tls_private_key_file or str(pki / "apiserver.key"), o.tls_min)
        out.append(Listener(App(server.chain, refuse), raw.bind_address, o.secure_port, tls))
    if o.insecure_port:
        out.append(Listener(App(server._chain("insecure"), refuse), "127.0.0.1", o.insecure_port))
    if o.read_only_port:
        out.append(Listener(App(server._chain("read-only"), refuse, read_only=True), "127.0.0.1", o.read_only_port))
    return out


def _bare() -> Request:
    from kas.api.requestinfo import Query

    req = Request("POST", "/", "", [])
    req.params = Query("")
    return req


async def _shut_down(server: Server, listeners: list[Listener], runner: Runner) -> None:
    raw = server.options.raw
    server.shutting_down = True
    log.info("shutdown initiated")
    if raw.shutdown_delay_duration:
        await asyncio.sleep(raw.shutdown_delay_duration)
    server.not_accepting = True
    await runner.stop()
    end = time.monotonic() + raw.shutdown_grace
    await server.waiting.wait(raw.shutdown_grace)
    server.watches.end_all()
    for _ in range(100):
        if not server.watches.open:
            break
        await asyncio.sleep(0.01)
    for listener in listeners:
        listener.stop()
    with contextlib.suppress(TimeoutError):
        # Answers given to the listener may still be on their way.
        async with asyncio.timeout(max(2.0, end - time.monotonic())):
            await asyncio.gather(*(x.stopped for x in listeners if x.stopped is not None))
    server.store.close()
