"""Validation of flag values, individually and in combination. The texts are kube-apiserver's where it has them."""

from __future__ import annotations

import binascii
import importlib.util
import ipaddress
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kas import KUBERNETES_VERSION
from kas.config import address, auditing, authentication, ciphers, features, overrides
from kas.config.flags import BY_NAME
from kas.config.flags.storage import MEDIA_TYPES
from kas.config.flagtypes import AUTO_PORT, quote
from kas.meta.goerrors import unreadable
from kas.observe.process import too_few_descriptors, too_few_tasks, unfit

if TYPE_CHECKING:
    from kas.config.options import Options

AUTHORIZERS = ("Node", "RBAC", "ABAC", "Webhook", "AlwaysAllow", "AlwaysDeny")
# The minimum version of the listener, which supports none older than 1.2.
TLS_VERSIONS = {"VersionTLS10": "tls1.2", "VersionTLS11": "tls1.2", "VersionTLS12": "tls1.2", "VersionTLS13": "tls1.3"}
SHORTEST_V6_PREFIX = 64  # of the ranges for service addresses
RECONCILERS = ("master-count", "lease", "none")
MAX_EXPIRATION_S = 1 << 32
MAX_STREAMS = (1 << 32) - 1  # the maximum of the HTTP/2 setting
WORKERS_PER_CPU, FEW_WORKERS = 8, 64  # each worker is a process with its own memory
LEAST_WORKER_TIMEOUT_S = 3.0  # workers send a heartbeat once a second
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----\s([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")
_METRIC_AND_LABEL = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*,[a-zA-Z_][a-zA-Z0-9_]*")
_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)(?:\.([0-9]+))?", re.ASCII)
# Other flags that must not be negative, upstream or only here.
OWN_LIMITS = (
    "workers", "http2-max-streams-per-connection", "api-burst", "api-rate", "default-not-ready-toleration-seconds",
    "default-unreachable-toleration-seconds", "worker-timeout",
)  # fmt: skip
KNOWN_MEDIA_TYPES = ("application/json", "application/vnd.kubernetes.protobuf", "application/yaml")  # upstream's
UIDS = "RemoteRequestHeaderUID"
PEERS = "UnknownVersionInteroperabilityProxy"
OLDEST_COMPATIBLE = 3  # minor releases before this one
_MAX_AGE = re.compile(r"max-age=[^=]*")
# Upstream's help of the flag, which its error repeats.
CORS_HELP = (
    "List of allowed origins for CORS, comma separated. An allowed origin can be a regular expression to support subdomain "
    "matching. If this list is empty CORS will not be enabled. Please ensure each expression matches the entire hostname by "
    "anchoring to the start with '^' or including the '//' prefix, and by anchoring to the end with '$' or including the ':' port "
    r"separator suffix. Examples of valid expressions are '//example\.com(:|$)' and '^https://example\.com(:|$)'"
)

BACKENDS = ("lmdb", "etcd3")
WRITTEN = ("audit-log-path", "debug-socket-path")  # paths that are not read from
# Flags whose files must be readable.
FILES = (
    "tls-cert-file", "tls-private-key-file", "token-auth-file", "proxy-client-cert-file",
    "proxy-client-key-file", "kubelet-certificate-authority", "kubelet-client-certificate", "kubelet-client-key",
    "basic-auth-file", "client-ca-file", "requestheader-client-ca-file", "peer-ca-file",
)  # fmt: skip


def validate(o: Options) -> list[str]:
    """Return every error, one line each; none if the options can be completed. Opens the files that flags name, unless one is a pipe."""
    if found := pipes(o):
        return found
    checks = (  # in upstream's order, where it has one
        _logging, _limits, _headers, _versions, _storage, _ports, _names, _serving, _files, authentication.problems, _identity, _clients,
        _authorization, auditing.problems, _api, _metrics, _network,
    )  # fmt: skip
    return [text for check in checks for text in check(o)]


def pipes(o: Options) -> list[str]:
    """Return errors for flags whose file is a pipe, as shells create for ``<(…)``.

    Opening a pipe may block forever, and only the first reader gets its contents, while every worker reads the file each time it starts.
    kube-apiserver reads most files once.
    """
    out = []
    for name in o.given:
        value, kind = getattr(o, name.replace("-", "_")), BY_NAME[name].type
        if kind == "namedCertKey":
            value = [path for text in value for path in text.partition(":")[0].split(",")]
        elif kind not in ("path", "string", "stringArray") or name in WRITTEN:
            continue
        for path in [value] if isinstance(value, str) else value:
            try:
                pipe = bool(path) and stat.S_ISFIFO(os.stat(path).st_mode)
            except (OSError, ValueError):  # reported by whoever opens it
                continue
            if pipe:
                out.append(f"--{name}: {path} is a pipe, but must be a file, because it is read more than once")
    return out


def _serving(o: Options) -> Iterator[str]:
    if bool(o.tls_cert_file) != bool(o.tls_private_key_file):
        yield "missing filename for serving cert"
    elif o.cert_dir and not o.tls_cert_file:
        pair = [os.path.join(o.cert_dir, name) for name in ("apiserver.crt", "apiserver.key")]
        missing = [path for path in pair if not os.access(path, os.R_OK)]
        if len(missing) == 1:
            yield f"error reading {missing[0]}, certificate and key must be supplied as a pair"
    if o.tls_min_version not in TLS_VERSIONS:
        yield f"unknown tls version {quote(o.tls_min_version)}"
    yield from list(filter(None, map(ciphers.problem, o.tls_cipher_suites)))[:1]  # upstream reports the first one
    if wrong := ciphers.groups_problem(o.tls_curve_preferences):
        yield wrong
    if o.egress_selector_config_file and not os.path.exists(o.egress_selector_config_file):
        yield f"egress-selector-config-file {o.egress_selector_config_file} does not exist"
    if o.tracing_config_file and not os.path.exists(o.tracing_config_file):
        yield f"tracing-config-file {o.tracing_config_file} does not exist"


def _logging(o: Options) -> Iterator[str]:
    """component-base's ``logs/api/v1``, whose messages name its fields and not the flags."""
    if o.logging_format not in ("text", "json"):
        yield f"format: Invalid value: {quote(o.logging_format)}: Unsupported log format"
    gates = frozenset[str]() if features.problems(o.feature_gates) else features.enabled(o.feature_gates)
    if o.logging_format == "json" and gates and "LoggingBetaOptions" not in gates:
        yield "format: Forbidden: Feature LoggingBetaOptions is disabled"
    if o.vmodule and o.logging_format not in ("", "text"):
        yield "vmodule: Forbidden: Only supported for text log format"
    if "LoggingAlphaOptions" in gates:
        return
    for form in ("text", "json"):
        for flag, field in (("split-stream", "splitStream"), ("info-buffer-size", "infoBufferSize")):
            if getattr(o, f"log-{form}-{flag}".replace("-", "_")):
                yield f"options.{form}.{field}: Forbidden: Feature LoggingAlphaOptions is disabled"


def _headers(o: Options) -> Iterator[str]:
    for directive in o.strict_transport_security_directives:
        if not directive.strip():
            yield "empty value in strict-transport-security-directives"
        elif directive not in ("includeSubDomains", "preload") and not _MAX_AGE.fullmatch(directive):
            yield (
                "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see "
                "https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
            )
    for pattern in o.cors_allowed_origins:
        yield from _origin(pattern)


def _origin(pattern: str) -> Iterator[str]:
    """Upstream's ``validateCORSAllowedOriginList``: a pattern that is not anchored at both ends of the host also matches other hosts."""
    from kas.meta import regex  # only needed if the flag is given

    if not pattern:
        yield f"empty value in --cors-allowed-origins, help: {CORS_HELP}"
        return
    try:
        regex.compiled(pattern)
    except regex.RegexError as e:
        yield f"--cors-allowed-origins has an invalid regular expression: {e}, help: {CORS_HELP}"
        return
    if not ("^" in pattern or "//" in pattern) or not ("$" in pattern or ":" in pattern):
        yield (
            "--cors-allowed-origins has an invalid regular expression: regular expression does not pin to start/end of host in the origin "
            f"header, help: {CORS_HELP}"
        )


def _limits(o: Options) -> Iterator[str]:
    negative = "--{} can not be {}negative value"
    for name, text in (
        ("livez-grace-period", negative.format("livez-grace-period", "a ")), ("max-requests-inflight", ""),
        ("max-mutating-requests-inflight", ""), ("request-timeout", ""), ("goaway-chance", ""), ("min-request-timeout", ""),
        ("storage-initialization-timeout", ""), ("shutdown-delay-duration", ""),
        ("shutdown-watch-termination-grace-period",
         "shutdown-watch-termination-grace-period, if provided, can not be a negative value"),
        *((name, "") for name in OWN_LIMITS),
    ):  # fmt: skip
        value = getattr(o, name.replace("-", "_"))
        if name == "goaway-chance":
            if not 0 <= value <= 0.02:
                yield "--goaway-chance can not be less than 0 or greater than 0.02"
        elif value < 0:
            yield text or negative.format(name, "")
    for name in ("request-timeout", "history-window", "event-ttl", "shutdown-grace", "store-max-size", "history-max-size"):
        value = getattr(o, name.replace("-", "_"))
        if value == 0 or (value < 0 and name != "request-timeout"):
            yield f"--{name} must be greater than 0"
    if o.http2_max_streams_per_connection > MAX_STREAMS:
        yield f"--http2-max-streams-per-connection must be at most {MAX_STREAMS}"
    if 0 < o.worker_timeout < LEAST_WORKER_TIMEOUT_S:
        yield f"--worker-timeout must be 0 or at least {LEAST_WORKER_TIMEOUT_S:.0f}s"
    reads, writes = o.max_requests_inflight, o.max_mutating_requests_inflight
    if o.enable_priority_and_fairness and reads == writes == 0:
        yield (
            f"invalid configuration: MaxRequestsInFlight={reads} and MaxMutatingRequestsInFlight={writes}; they must add up to something "
            "positive"
        )
    if o.enable_priority_and_fairness:
        # Flow control's own objects are of that version; the most specific key decides.
        for key in ("flowcontrol.apiserver.k8s.io/v1", "api/ga", "api/all"):
            if o.runtime_config.get(key) == "false":
                yield f"--runtime-config={key}=false conflicts with --enable-priority-and-fairness=true"
            if key in o.runtime_config:
                break
    if o.workers > (most := max(FEW_WORKERS, WORKERS_PER_CPU * (os.cpu_count() or 1))):
        yield f"--workers must be at most {most} on this machine"
    elif o.workers >= 0:
        n = o.workers or len(os.sched_getaffinity(0))
        yield from filter(None, (too_few_descriptors(n), too_few_tasks(n)))
    if why := unfit():
        yield why


def _versions(o: Options) -> Iterator[str]:
    """Check the emulated release, which must be this one, and the minimum compatibility version (component-base's ``compatibility``)."""
    said = []
    for texts in (getattr(o, "emulated_version"), o.min_compatibility_version):  # noqa: B009 - a flag of one value
        try:
            said.append(version_map(texts))
        except ValueError as e:
            yield str(e)
            return
    own = int(KUBERNETES_VERSION.split(".")[1])
    emulated = said[0].get(features.KUBE, (1, own))
    compatible = said[1].get(features.KUBE, (1, own - 1))
    for name, version, low, high in (
        ("emulation", emulated, (1, own), (1, own)), ("minCompatibilityVersion", compatible, (1, own - OLDEST_COMPATIBLE), (1, own))
    ):  # fmt: skip
        if not low <= version <= high:
            shown, lowest, highest = (".".join(map(str, v)) for v in (version, low, high))
            yield f"{name} version {shown} is not between [{lowest}, {highest}]"
    for flag, name in (
        ("emulation_forward_compatible", "EmulationForwardCompatible"),
        ("runtime_config_emulation_forward_compatible", "RuntimeConfigEmulationForwardCompatible"),
    ):  # fmt: skip
        if getattr(o, flag):
            yield f"ServerRunOptions.{name} cannot be set to true if the emulation version is the same as the binary version"


def version_map(texts: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return {component: (major, minor)} of ``1.34`` and ``kube=1.34``. Raises ValueError with upstream's text."""
    out = dict[str, tuple[int, int]]()
    for text in texts:
        left, sep, right = (part.strip() for part in text.partition("="))
        name, version = (left, right) if sep else (features.KUBE, left)
        m = _VERSION.fullmatch(version)
        if m is None:
            raise ValueError(f"could not parse {quote(version)} as version")
        if m[3] and int(m[3]):
            raise ValueError(f"patch version not allowed, got: {name}={m[1]}.{m[2]}.{m[3]}")
        if name in out:
            shown = ".".join(map(str, out[name]))
            raise ValueError(f"duplicate version flag, {name}={shown} and {name}={m[1]}.{m[2]}")
        if name != features.KUBE:
            raise ValueError(f"component not registered: {name}")
        out[name] = int(m[1]), int(m[2])
    return out


def _ports(o: Options) -> Iterator[str]:
    ports = {"secure": o.secure_port, "insecure": o.insecure_port, "read-only": o.read_only_port}
    for name, port in ports.items():
        if 0 <= port <= 65535 or port == AUTO_PORT:
            continue
        if name == "secure":
            yield f"--secure-port {port} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
        else:
            yield f"--{name}-port {port} must be between 0 and 65535, inclusive. 0 for turning off {name} port"
    if not any(ports.values()):  # upstream only has the secure one; here another port may be served instead
        yield "--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0"


def _names(o: Options) -> Iterator[str]:
    for name in o.tls_san:
        if not (address.is_address(name) or address.is_host_name(name)):
            yield f"--tls-san: {quote(name)} is neither a DNS name nor an IP address"


def data_directory(text: str) -> Path:
    """Return the absolute path of ``--data-dir``. Raises RuntimeError for an unknown home, OSError without a working directory."""
    return Path(text).expanduser().absolute()


def _data_dir(o: Options) -> Iterator[str]:
    try:
        str(data_directory(o.data_dir)).encode()  # in the form that the store and the kubeconfig use
    except RuntimeError:
        yield f"--data-dir: {quote(o.data_dir)} begins with an unknown home directory: HOME is not set, or there is no such user"
    except OSError as e:
        yield f"--data-dir: {quote(o.data_dir)} is relative to the working directory, which cannot be found: {e.strerror}"
    except UnicodeEncodeError:
        yield f"--data-dir: {quote(o.data_dir)} is not a valid UTF-8 path"


def _storage(o: Options) -> Iterator[str]:
    if not o.data_dir:  # probably an unset variable: the working directory is not meant
        yield "--data-dir must be specified"
    else:
        yield from _data_dir(o)
    yield from overrides.mistakes(o.etcd_servers_overrides)
    if getattr(o, "watch_cache"):  # noqa: B009 - flags without effect
        yield from list(_watch_cache_sizes(getattr(o, "watch_cache_sizes")))[:1]  # noqa: B009
    if o.encryption_provider_config_automatic_reload and not o.encryption_provider_config:
        yield "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
    if not o.storage_media_type:
        yield '"" is not a valid mime-type'
    elif o.storage_media_type not in KNOWN_MEDIA_TYPES:
        yield f"--storage-media-type {quote(o.storage_media_type)} invalid, allowed values: {', '.join(KNOWN_MEDIA_TYPES)}"
    if o.storage_backend not in BACKENDS:
        yield f"--storage-backend invalid, allowed values: {', '.join(BACKENDS)}: kas does not have {quote(o.storage_backend)} yet"
    elif o.storage_backend == "etcd3":
        if o.storage_media_type in KNOWN_MEDIA_TYPES and o.storage_media_type not in MEDIA_TYPES:
            yield f"--storage-media-type {quote(o.storage_media_type)} is invalid, allowed values: {', '.join(MEDIA_TYPES)}"
        if not o.etcd_servers:
            yield "--etcd-servers must be specified"
        others = [s for other in overrides.overrides(o.etcd_servers_overrides, o.etcd_servers) for s in other.servers]
        named = [("etcd-servers", s) for s in o.etcd_servers] + [("etcd-servers-overrides", s) for s in others]
        for flag, server in named:
            if why := overrides.server_mistake(server):
                yield f"--{flag}: {why}"
        if not _installed("google", "google.protobuf"):
            yield "--storage-backend=etcd3 needs the extra kas[etcd]: pip install '.[etcd]' in a clone of kas"


def _watch_cache_sizes(sizes: Sequence[str]) -> Iterator[str]:
    """Upstream's ``ParseWatchCacheSizes``."""
    for text in sizes:
        parts = text.split("#")
        if len(parts) != 2:
            yield f"invalid value of watch cache size: {text}"
        elif not re.fullmatch(r"[+-]?[0-9]+", parts[1], re.ASCII):
            yield f"invalid size of watch cache size: {text}"
        elif int(parts[1]) < 0:
            yield f"watch cache size cannot be negative: {text}"


def _installed(*modules: str) -> bool:
    """Whether modules can be imported; list packages before their modules."""
    return all(importlib.util.find_spec(module) is not None for module in modules)


def _files(o: Options) -> Iterator[str]:
    for path in (*(getattr(o, name.replace("-", "_")) for name in FILES), *o.service_account_key_file):
        yield from _unreadable(path)
    for text in o.tls_sni_cert_key:
        pair = text.partition(":")[0].split(",")
        yield from (f"failed to load SNI cert and key: {why}" for why in [*_unreadable(pair[0]), *_unreadable(pair[-1])][:1])
    for why in _unreadable(o.service_account_signing_key_file):
        yield f"failed to parse service-account-issuer-key-file: {why}"


def _unreadable(path: str) -> Iterator[str]:
    if path:
        try:
            with open(path, "rb"):
                pass
        except OSError as e:
            yield unreadable(path, e)


def _clients(o: Options) -> Iterator[str]:
    """Upstream's ``RequestHeaderAuthenticationOptions.Validate``; ``preflight`` checks the certificates in CA files."""
    uids = o.requestheader_uid_headers
    if uids and not features.problems(o.feature_gates) and UIDS not in features.enabled(o.feature_gates):
        yield f"--requestheader-uid-headers requires the {quote(UIDS)} feature to be enabled"
    elif uids and all(name.lower() != "x-remote-uid" for name in uids):
        yield (
            "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work"
        )
    for name in ("username-headers", "uid-headers", "group-headers", "extra-headers-prefix", "allowed-names"):
        if any(not v.strip() for v in getattr(o, f"requestheader_{name.replace('-', '_')}")):
            yield f"empty value in {quote(f'requestheader-{name}')}"
    clients, proxies = (_certificates(path) for path in (o.client_ca_file, o.requestheader_client_ca_file))
    for found, name, path in (
        (clients, "client-ca-bundle", o.client_ca_file), (proxies, "request-header", o.requestheader_client_ca_file)
    ):  # fmt: skip
        if found is not None and not os.path.getsize(path):
            yield f"missing content for CA bundle {quote(f'{name}::{path}')}"
    if clients and proxies and clients & proxies and not any(o.requestheader_allowed_names):
        yield (
            "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be "
            "specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users"
        )


def _certificates(path: str) -> frozenset[bytes] | None:
    """Return the blocks of a PEM file that may be certificates, as DER; None if the file cannot be read."""
    try:
        with open(path, "rb") as f:
            blocks = _PEM.findall(f.read())
    except OSError:
        return None
    out = []
    for block in blocks:
        try:
            out.append(binascii.a2b_base64(block))
        except binascii.Error:
            continue
    return frozenset(der for der in out if der[:1] == b"0")


def _identity(o: Options) -> Iterator[str]:
    seen = set[str]()
    for issuer in o.service_account_issuer if "service-account-issuer" in o.given else ():
        if not issuer:
            yield "service-account-issuer should not be an empty string"
        elif ":" in issuer:
            from kas.meta.gourl import parse

            try:
                parse(issuer)
            except ValueError as e:
                yield f"service-account-issuer {quote(issuer)} contained a ':' but was not a valid URL: {e}"
                continue
        if issuer and issuer in seen:
            yield f"service-account-issuer {quote(issuer)} is already specified"
        seen.add(issuer)
    # The default issuer belongs to the key that this server makes; with another key the issuer must be given.
    nameless = bool(o.service_account_signing_key_file) and "service-account-issuer" not in o.given
    if nameless:
        yield "service-account-issuer is a required flag"
    # Without any flags about keys this server makes one; with audiences or verification keys a signing key must be given, too.
    signing = o.service_account_signing_key_file or o.service_account_signing_endpoint
    keyless = bool(o.api_audiences and o.service_account_key_file) and not signing
    if nameless or keyless or (not o.service_account_issuer[0] and (o.service_account_signing_key_file or o.api_audiences)):
        yield "--service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified together"
    if o.service_account_signing_endpoint:
        if o.service_account_signing_key_file or o.service_account_key_file:
            yield (
                "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with "
                "`--service-account-signing-endpoint` (They are mutually exclusive)"
            )
        if importlib.util.find_spec("grpc") is None:
            yield "--service-account-signing-endpoint needs the extra kas[signer]: pip install '.[signer]' in a clone of kas"
    if o.service_account_max_token_expiration and not 3600 <= o.service_account_max_token_expiration <= MAX_EXPIRATION_S:
        yield "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"
    yield from _jwks_uri(o.service_account_jwks_uri)
    if bool(o.kubelet_client_certificate) != bool(o.kubelet_client_key):
        yield "--kubelet-client-certificate and --kubelet-client-key go together"


def _jwks_uri(uri: str) -> Iterator[str]:
    if not uri:
        return
    from kas.meta.gourl import parse  # only needed if the flag is given

    try:
        scheme = parse(uri).scheme
    except ValueError as e:
        yield f"service-account-jwks-uri must be a valid URL: {e}"
        return
    if scheme != "https":
        yield f"service-account-jwks-uri requires https scheme, parsed as: {uri}"


def _authorization(o: Options) -> Iterator[str]:
    """Upstream's ``BuiltInAuthorizationOptions.Validate``; configuration files are checked later."""
    if o.authorization_config:
        if any(name == "authorization-mode" or name.startswith("authorization-webhook-") for name in o.given):
            yield "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"
        return
    modes, webhook = o.authorization_mode, o.authorization_webhook_config_file
    if not modes:
        yield "at least one authorization-mode must be passed"
    for mode in modes:
        if mode not in AUTHORIZERS:
            yield f"authorization-mode {quote(mode)} is not a valid mode"
        if mode == "ABAC" and not o.authorization_policy_file:
            yield "authorization-mode ABAC's authorization policy file not passed"
        if mode == "Webhook" and not webhook:
            yield "authorization-mode Webhook's authorization config file not passed"
    if o.authorization_policy_file and "ABAC" not in modes:
        yield "cannot specify --authorization-policy-file without mode ABAC"
    if webhook and "Webhook" not in modes:
        yield "cannot specify --authorization-webhook-config-file without mode Webhook"
    if len(set(modes)) != len(modes):
        yield f"authorization-mode [{' '.join(map(quote, modes))}] has mode specified more than once"


def _network(o: Options) -> Iterator[str]:
    networks = []
    parts = o.service_cluster_ip_range.split(",")
    for i, part in enumerate(parts[:2]):
        network = address.network(part)
        if network is None:
            yield f"service-cluster-ip-range[{i}] is not {'an ip net' if i else 'a valid cidr'}"
            break
        networks.append(network)
    if len(parts) > 2 and len(networks) == 2:
        yield "--service-cluster-ip-range must not contain more than two entries"
    elif len(networks) == 2 and networks[0].version == networks[1].version:
        yield "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family"
    for which, net in zip(("primary", "secondary"), networks, strict=False):
        if net.num_addresses < 8:
            why = "the service cluster IP range must be at least 8 IP addresses"
            yield f"error determining service IP ranges for {which} service cidr: {why}"
        # kube-apiserver starts with such a range, and its allocator then refuses each Service.
        if net.version == 6 and net.prefixlen < SHORTEST_V6_PREFIX:
            why = f"shortest allowed prefix length for service CIDR is {SHORTEST_V6_PREFIX}, got {net.prefixlen}"
            yield f"error determining service IP ranges for {which} service cidr: {why}"
    # The kubernetes Service has the first family, and its endpoints have the advertised address.
    if networks and o.advertise_address and o.endpoint_reconciler_type != "none":
        advertised = ipaddress.ip_address(o.advertise_address)
        if advertised.version != networks[0].version:
            yield f"service IP family {quote(str(networks[0]))} must match public address family {quote(str(advertised))}"
    low, high = o.service_node_port_range
    own = o.kubernetes_service_node_port
    if not 0 <= own <= 65535:
        yield (
            f"--kubernetes-service-node-port {own} must be between 0 and 65535, inclusive. If 0, the Kubernetes master service will be of "
            "type ClusterIP"
        )
    elif own and not low <= own <= high:  # printed as a Go struct, with the size of the range
        yield f"kubernetes service port range {{{low} {high - low + 1}}} doesn't contain {own}"
    if low < 1:
        yield f"--service-node-port-range: {low}-{high} starts below 1"
    if o.endpoint_reconciler_type not in RECONCILERS:
        yield f"--endpoint-reconciler-type must be one of: {', '.join(RECONCILERS)}, got {quote(o.endpoint_reconciler_type)}"


def _api(o: Options) -> Iterator[str]:
    wrong = features.problems(o.feature_gates)
    yield from wrong
    if not wrong and "CoordinatedLeaderElection" in features.enabled(o.feature_gates):
        yield from _coordination(o)
    if not wrong and PEERS not in features.enabled(o.feature_gates):
        for name in ("peer-ca-file", "peer-advertise-ip", "peer-advertise-port"):
            if getattr(o, name.replace("-", "_")):
                yield f"--{name} requires {PEERS} feature to be turned on"
    elif not wrong:  # upstream accepts any text, but then no other server finds this one
        ip, port = o.peer_advertise_ip, o.peer_advertise_port
        if ip and not address.is_address(ip):
            yield f"--peer-advertise-ip {quote(ip)} is not an address"
        if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65535):
            yield f"--peer-advertise-port {quote(port)} must be between 1 and 65535, inclusive"


def _coordination(o: Options) -> Iterator[str]:
    """Check the times as client-go's ``leaderelection`` does; upstream only logs these errors."""
    before, flag = o.coordinated_leadership_renew_deadline, "--coordinated-leadership-"
    if o.coordinated_leadership_lease_duration <= before:
        yield f"{flag}lease-duration must be greater than {flag}renew-deadline"
    if o.coordinated_leadership_retry_period <= 0 or before <= 1.2 * o.coordinated_leadership_retry_period:
        yield f"{flag}renew-deadline must be greater than 1.2 times {flag}retry-period, which must be greater than zero"


def _metrics(o: Options) -> Iterator[str]:
    before = f"1.{int(KUBERNETES_VERSION.split('.')[1]) - 1}"
    if o.show_hidden_metrics_for_version not in ("", before):
        yield (
            f"--show-hidden-metrics-for-version must be omitted or have the value '{before}'. Only the previous minor version is allowed"
        )
    if any(_METRIC_AND_LABEL.fullmatch(key) is None for key in o.allow_metric_labels):
        yield "--allow-metric-labels must have a list of kv pair with format `metricName,labelName=labelValue, labelValue,...`"
