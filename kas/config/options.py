"""The options of the command line: ``Options`` holds the flags' values, ``complete`` derives what they leave open."""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kas.config import address, authentication, features, flagset, validation
from kas.config.flags import BY_NAME, FLAGS, Flag
from kas.config.flagtypes import TYPES
from kas.config.overrides import Override, overrides
from kas.meta.records import NamedTuple

# The flags of etcd not named --etcd-*.
OF_ETCD = (
    "lease-reuse-duration-seconds", "storage-media-type", "storage-initialization-timeout", "peer-ca-file", "peer-advertise-ip",
    "peer-advertise-port",
)  # fmt: skip
OF_ANY_STORE = ("etcd-count-metric-poll-period",)
MULTIMAP = "colonSeparatedMultimapStringString"
# Element types of list flags.
_LISTS: dict[str, type] = {"strings": str, "stringArray": str, "namedCertKey": str, "int32Slice": int}
_MAPS = ("mapStringString", "stringToString", MULTIMAP)
_NUMBERS = ("int", "float", "float32", "duration", "port", "quantity", "Level")
OF_AUDIT = ("audit-log-path", "audit-webhook-config-file")
# The headers in which kube-apiserver sends the user in its requests to aggregated servers.
STANDARD_HEADERS = {"username-headers": "X-Remote-User", "group-headers": "X-Remote-Group", "extra-headers-prefix": "X-Remote-Extra-"}
EMPTY_IS_DEFAULT = ("service-cluster-ip-range", "storage-backend", "tls-min-version")  # and addresses


class OptionError(Exception):
    """The command line is invalid; ``errors`` has one line for each error."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = list(errors)


class Options:
    """The value of every flag, given or default, as an attribute of its name; ``given`` names those on the command line.

    Durations are in seconds, sizes in bytes; port 0 means off, and ``AUTO_PORT`` any free port. Only flags that are read somewhere are
    declared here.
    """

    given: tuple[str, ...]

    admission_control: list[str]
    admission_control_config_file: str
    advertise_address: str
    aggregator_reject_forwarding_redirect: bool
    allow_metric_labels: dict[str, str]
    allow_metric_labels_manifest: str
    allow_privileged: bool
    anonymous_auth: bool
    api_audiences: list[str]
    api_burst: int
    api_rate: float
    audit_log_batch_buffer_size: int
    audit_log_batch_max_size: int
    audit_log_batch_max_wait: float
    audit_log_batch_throttle_burst: int
    audit_log_batch_throttle_enable: bool
    audit_log_batch_throttle_qps: float
    audit_log_compress: bool
    audit_log_format: str
    audit_log_maxage: int
    audit_log_maxbackup: int
    audit_log_maxsize: int
    audit_log_mode: str
    audit_log_path: str
    audit_log_truncate_enabled: bool
    audit_log_truncate_max_batch_size: int
    audit_log_truncate_max_event_size: int
    audit_log_version: str
    audit_policy_file: str
    audit_webhook_batch_buffer_size: int
    audit_webhook_batch_max_size: int
    audit_webhook_batch_max_wait: float
    audit_webhook_batch_throttle_burst: int
    audit_webhook_batch_throttle_enable: bool
    audit_webhook_batch_throttle_qps: float
    audit_webhook_config_file: str
    audit_webhook_initial_backoff: float
    audit_webhook_mode: str
    audit_webhook_truncate_enabled: bool
    audit_webhook_truncate_max_batch_size: int
    audit_webhook_truncate_max_event_size: int
    audit_webhook_version: str
    authentication_config: str
    authentication_token_webhook_cache_ttl: float
    authentication_token_webhook_config_file: str
    authentication_token_webhook_version: str
    authorization_config: str
    authorization_mode: list[str]
    authorization_policy_file: str
    authorization_webhook_cache_authorized_ttl: float
    authorization_webhook_cache_unauthorized_ttl: float
    authorization_webhook_config_file: str
    authorization_webhook_version: str
    basic_auth_file: str
    bind_address: str
    cert_dir: str
    client_ca_file: str
    controllers: list[str]
    coordinated_leadership_lease_duration: float
    coordinated_leadership_renew_deadline: float
    coordinated_leadership_retry_period: float
    cors_allowed_origins: list[str]
    data_dir: str
    default_not_ready_toleration_seconds: int
    default_unreachable_toleration_seconds: int
    disable_admission_plugins: list[str]
    debug_socket_path: str
    disable_http2_serving: bool
    disabled_metrics: list[str]
    egress_selector_config_file: str
    enable_admission_plugins: list[str]
    enable_aggregator_routing: bool
    enable_bootstrap_token_auth: bool
    enable_garbage_collector: bool
    enable_logs_handler: bool
    enable_priority_and_fairness: bool
    enable_swagger_ui: bool
    delete_collection_workers: int
    encryption_provider_config: str
    encryption_provider_config_automatic_reload: bool
    endpoint_reconciler_type: str
    etcd_cafile: str
    etcd_certfile: str
    etcd_compaction_interval: float
    etcd_count_metric_poll_period: float
    etcd_healthcheck_timeout: float
    etcd_keyfile: str
    etcd_prefix: str
    etcd_readycheck_timeout: float
    etcd_servers: list[str]
    etcd_servers_overrides: list[str]
    event_ttl: float
    external_hostname: str
    feature_gates: dict[str, list[str]]
    goaway_chance: float
    history_max_size: int
    history_window: float
    http2_max_streams_per_connection: int
    insecure_port: int
    kubelet_certificate_authority: str
    kubelet_client_certificate: str
    kubelet_client_key: str
    kubelet_preferred_address_types: list[str]
    kubernetes_service_node_port: int
    lease_reuse_duration_seconds: int
    livez_grace_period: float
    log_dir: str
    log_flush_frequency: float
    log_json_info_buffer_size: int
    log_json_split_stream: bool
    log_text_info_buffer_size: int
    log_text_split_stream: bool
    logging_format: str
    max_connection_bytes_per_sec: int
    max_mutating_requests_inflight: int
    max_requests_inflight: int
    min_compatibility_version: list[str]
    min_request_timeout: int
    oidc_ca_file: str
    oidc_client_id: str
    oidc_groups_claim: str
    oidc_groups_prefix: str
    oidc_issuer_url: str
    oidc_required_claim: dict[str, str]
    oidc_signing_algs: list[str]
    oidc_username_claim: str
    oidc_username_prefix: str
    peer_advertise_ip: str
    peer_advertise_port: str
    peer_ca_file: str
    permit_port_sharing: bool
    profiling: bool
    proxy_client_cert_file: str
    proxy_client_key_file: str
    read_only_port: int
    request_timeout: float
    requestheader_allowed_names: list[str]
    requestheader_client_ca_file: str
    requestheader_extra_headers_prefix: list[str]
    requestheader_group_headers: list[str]
    requestheader_uid_headers: list[str]
    requestheader_username_headers: list[str]
    runtime_config: dict[str, str]
    secure_port: int
    send_retry_after_while_not_ready_once: bool
    service_account_extend_token_expiration: bool
    service_account_issuer: list[str]
    service_account_jwks_uri: str
    service_account_key_file: list[str]
    service_account_lookup: bool
    service_account_max_token_expiration: float
    service_account_signing_endpoint: str
    service_account_signing_key_file: str
    service_cluster_ip_range: str
    service_node_port_range: tuple[int, int]
    show_hidden_metrics_for_version: str
    shutdown_delay_duration: float
    shutdown_send_retry_after: bool
    storage_initialization_timeout: float
    shutdown_grace: float
    shutdown_watch_termination_grace_period: float
    worker_timeout: float
    storage_backend: str
    storage_media_type: str
    store_max_size: int
    strict_transport_security_directives: list[str]
    tls_cert_file: str
    tls_cipher_suites: list[str]
    tls_curve_preferences: list[int]
    tls_min_version: str
    tls_private_key_file: str
    tls_san: list[str]
    tls_sni_cert_key: list[str]
    token_auth_file: str
    tracing_config_file: str
    unsafe_no_fsync: bool
    v: int
    version: str
    vmodule: str
    workers: int

    def __init__(self, values: Mapping[str, Any] | None = None, /, **flags: Any) -> None:
        """``values`` are values by the flag's name; ``flags`` are further ones by attribute, as Python values or as command line text.

        Raises TypeError for an unknown flag, ValueError for an invalid value.
        """
        values = {**(values or {}), **dict(_given(name, value) for name, value in flags.items())}
        self.given = tuple(values)
        for flag in FLAGS:
            value = values.get(flag.name, flag.default)
            if value == "" and (flag.type == "ip" or flag.name in EMPTY_IS_DEFAULT):
                value = flag.default
            if value is flag.default and flag.type in ("strings", "stringArray", "namedCertKey"):
                value = list(value)
            setattr(self, flag.attribute, value)

    def shown(self) -> dict[str, str]:
        """Return every flag's value as text, by name, for ``/flagz``."""
        return {flag.name: flag.kind.show(getattr(self, flag.attribute)) for flag in FLAGS if flag.name not in ("help", "version")}

    def warnings(self) -> list[str]:
        """Return one line for each given flag that requests something kas does not do."""
        out = list(authentication.warnings(self))
        for name in self.given:
            flag = BY_NAME[name]
            if flag.effect.kind == "no effect" and getattr(self, flag.attribute) not in flag.effect.same:
                out.append(f"--{name} has no effect: {flag.effect.why}")
            elif ((name.startswith("etcd-") and name not in OF_ANY_STORE) or name in OF_ETCD) and self.storage_backend != "etcd3":
                out.append(f"--{name} has no effect: objects are kept in a file in --data-dir, as --storage-backend says")
            elif name in OF_AUDIT and getattr(self, flag.attribute) and not self.audit_policy_file:
                out.append(f"--{name} has no effect: without --audit-policy-file no request is recorded")
        for name, standard in STANDARD_HEADERS.items():
            given = getattr(self, f"requestheader_{name.replace('-', '_')}")
            if given and all(one.lower() != standard.lower() for one in given):
                what = f"the standard {standard} {'header prefix' if standard.endswith('-') else 'header'}"
                out.append(f"--requestheader-{name} is set without specifying {what} - API aggregation will not work")
        out += features.leaving(self.feature_gates)
        idle = features.without_effect(self.feature_gates)
        if idle:
            out.append(f"--feature-gates: nothing here depends on {', '.join(idle)}")
        return out


def _given(attribute: str, value: Any) -> tuple[str, Any]:
    """Return a flag's name and value, given the name of its attribute."""
    flag = BY_NAME.get(attribute.replace("_", "-"))
    if flag is None:
        raise TypeError(f"there is no flag --{attribute.replace('_', '-')}")
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return flag.name, _read(flag, value) if isinstance(value, str) else _python_value(flag, value)


def _read(flag: Flag, text: str) -> Any:
    try:
        return flag.kind.read(text, None)
    except ValueError as e:
        raise ValueError(f"--{flag.name}: {e}") from None


def _python_value(flag: Flag, value: Any) -> Any:
    """Convert a value that is not a text to the flag's form. Raises ValueError for an invalid one."""
    kind = flag.kind
    if kind.name in _LISTS:
        if isinstance(value, (list, tuple)) and all(type(item) is _LISTS[kind.name] for item in value):
            return list(value)
    elif kind.name in _MAPS:
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return _map(flag, value)
    elif kind.name == "portRange":
        if isinstance(value, (list, tuple)) and len(value) == 2 and all(type(port) is int for port in value):
            return _read(flag, kind.show(value))
    elif kind.name == "bool":
        if isinstance(value, bool):
            return value
    elif kind.name in _NUMBERS and type(value) in (int, float) and math.isfinite(value):
        return _read(flag, kind.show(value))
    raise ValueError(f"--{flag.name} is of type {kind.name}, not {value!r}")


def _map(flag: Flag, value: dict[str, Any]) -> dict[str, Any]:
    """Convert a map: bools are allowed as values, and gates may be named without a component."""
    told = {key: TYPES["bool"].show(v) if isinstance(v, bool) else v for key, v in value.items()}
    if flag.kind.name != MULTIMAP:
        if all(isinstance(v, str) for v in told.values()):
            return told
    else:
        out = {key: list(v) for key, v in told.items() if isinstance(v, (list, tuple))}
        if gates := [f"{key}={v}" for key, v in told.items() if isinstance(v, str)]:
            out[""] = [*out.get("", ()), *gates]
        if all(isinstance(v, (str, list, tuple)) for v in told.values()) and all(isinstance(v, str) for vs in out.values() for v in vs):
            return out
    raise ValueError(f"--{flag.name} is of type {flag.kind.name}, not {value!r}")


class Completed(NamedTuple):
    """Options in which nothing is left open. Port 0 means off. ``endpoint_address`` goes into the kubernetes Service's endpoints."""

    raw: Options
    data_dir: Path
    workers: int
    secure_port: int
    insecure_port: int
    read_only_port: int
    store_max_size: int
    history_max_size: int
    service_ranges: list[Any]
    node_ports: tuple[int, int]
    advertise_address: str
    endpoint_address: str
    external_host: str
    tls_min: str
    etcd: bool  # the store is an etcd cluster
    overrides: tuple[Override, ...]  # further etcd clusters, and the resources they store
    front: bool  # a separate process terminates TLS at the secure port
    client_cas: list[Path]  # CAs of client certificates: --client-ca-file, and this server's own for the administrator
    run_dir: Path = Path()

    @property
    def serving_pair(self) -> tuple[Path, Path]:
        """The files of the serving certificate and its key: given by flags, or in ``--cert-dir``, where they are created if absent."""
        if self.raw.tls_cert_file:
            return Path(self.raw.tls_cert_file), Path(self.raw.tls_private_key_file)
        directory = Path(self.raw.cert_dir) if self.raw.cert_dir else self.data_dir / "pki"
        return directory / "apiserver.crt", directory / "apiserver.key"

    @property
    def own_address(self) -> tuple[str, int] | None:
        """The host and port at which this host reaches the secure port; None without one."""
        if not self.secure_port:
            return None
        bind = ipaddress.ip_address(self.raw.bind_address)
        return (str(bind) if not bind.is_unspecified else "127.0.0.1" if bind.version == 4 else "::1"), self.secure_port


def read(args: Sequence[str]) -> tuple[Options, list[str]]:
    """Return the options of a command line, and all errors in its syntax, in values and between values, one line each."""
    parsed = flagset.parse(args)
    options = Options(parsed.values)
    return options, list(dict.fromkeys([*parsed.errors, *problems(options)]))


def problems(options: Options) -> list[str]:
    """Return all errors in values and between values, one line each."""
    return validation.validate(options)


def complete(o: Options) -> Completed:
    """Derive what the flags leave open: this host's address, the number of workers, IP ranges. Raises OptionError."""
    errors = validation.validate(o)
    if errors:
        raise OptionError(errors)
    advertise = address.advertised(o.advertise_address, o.bind_address)
    data_dir = validation.data_directory(o.data_dir)
    return Completed(
        raw=o,
        data_dir=data_dir,
        workers=o.workers or len(os.sched_getaffinity(0)),
        secure_port=o.secure_port,
        insecure_port=o.insecure_port,
        read_only_port=o.read_only_port,
        store_max_size=o.store_max_size,
        history_max_size=o.history_max_size,
        service_ranges=[address.network(part) for part in o.service_cluster_ip_range.split(",")],
        node_ports=o.service_node_port_range,
        advertise_address=advertise,
        endpoint_address=address.reachable(advertise),
        external_host=o.external_hostname or advertise,
        tls_min=validation.TLS_VERSIONS[o.tls_min_version],
        etcd=o.storage_backend == "etcd3",
        overrides=overrides(o.etcd_servers_overrides, o.etcd_servers) if o.storage_backend == "etcd3" else (),
        # The HTTP server's own TLS supports neither client certificates nor a choice of certificates, suites and curves; it reads its
        # certificate once, and sends no GOAWAY.
        front=bool(
            o.secure_port
            and (
                o.client_ca_file or o.requestheader_client_ca_file or o.tls_sni_cert_key or o.tls_cipher_suites
                or o.tls_curve_preferences or o.tls_cert_file or o.cert_dir or o.goaway_chance
            )
        ),
        client_cas=[Path(o.client_ca_file), data_dir / "pki" / "ca.crt"] if o.client_ca_file else [],
    )
