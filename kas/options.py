"""The flags of ``kas serve``: one table, from which the command line, ``--help`` and ``Options`` come.

Where the meaning is kube-apiserver's the name is too. ``complete`` turns what was given into values everything else
can use, and raises ``OptionError`` with one clear line for what cannot work.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


class OptionError(Exception):
    """A flag that cannot work; the text names it."""


def _flag(default: Any, help: str, kind: str = "", many: bool = False, **more: Any) -> Any:
    meta = {"help": help, "kind": kind or _kind(default), "many": many, **more}
    return field(default_factory=lambda: list(default), metadata=meta) if many else field(default=default, metadata=meta)


def _kind(default: Any) -> str:
    return {bool: "bool", int: "int", float: "float"}.get(type(default), "str")


@dataclass
class Options:
    """Every flag with its default. Durations are seconds once completed; lists are comma separated or repeated."""

    # Serving
    bind_address: str = _flag("127.0.0.1", "Address of the secure port.")
    secure_port: str = _flag("6443", "TLS port; 0 = off, 'auto' = a free one.", metavar="PORT")
    insecure_port: str = _flag(
        "0", "Plain HTTP port on 127.0.0.1 whose requests are system:masters; 0 = off, 'auto' = a free one.", metavar="PORT"
    )
    read_only_port: str = _flag(
        "0", "Plain HTTP port on 127.0.0.1 for rate-limited anonymous GETs; 0 = off, 'auto' = a free one.", metavar="PORT"
    )
    api_rate: float = _flag(10.0, "Requests per second of the read-only port.")
    api_burst: int = _flag(200, "Burst of the read-only port.")
    advertise_address: str = _flag("", "Address in the kubernetes Service's endpoints. [the bind address, or this host's]")
    tls_cert_file: str = _flag("", "Serving certificate (PEM). [self-made in --data-dir]", kind="path")
    tls_private_key_file: str = _flag("", "Its key (PEM).", kind="path")
    tls_min_version: str = _flag("VersionTLS12", "Oldest TLS version accepted: VersionTLS12 or VersionTLS13.")
    tls_san: list[str] = _flag((), "Further names and addresses in the self-made certificate.", many=True)
    workers: int = _flag(0, "Worker processes. [number of cores]")
    cors_allowed_origins: list[str] = _flag((), "Regular expressions of origins that may ask across sites.", many=True)
    strict_transport_security_directives: list[str] = _flag((), "Directives of the HSTS header; empty = none.", many=True)
    request_timeout: float = _flag(60.0, "How long a request that is not long-running may take.", kind="duration")
    min_request_timeout: int = _flag(1800, "Shortest life of a watch without timeoutSeconds, in seconds; the real one is up to twice that.")
    max_requests_inflight: int = _flag(400, "Reads served at once; 0 = no limit.")
    max_mutating_requests_inflight: int = _flag(200, "Writes served at once; 0 = no limit.")
    goaway_chance: float = _flag(0.0, "Share of HTTP/2 requests answered with a GOAWAY, at most 0.02.")
    shutdown_delay_duration: float = _flag(0.0, "How long to serve on, with /readyz failing, after SIGTERM.", kind="duration")
    shutdown_grace: float = _flag(20.0, "How long requests in flight may take to end after that.", kind="duration")
    profiling: bool = _flag(False, "Serve /debug/.")
    enable_swagger_ui: bool = _flag(True, "Serve /swagger-ui.")
    enable_logs_handler: bool = _flag(False, "Serve the files of --log-dir under /logs/.")
    log_dir: str = _flag("", "Directory whose files /logs/ shows. [<data-dir>/logs]", kind="path")

    # Storage
    data_dir: str = _flag("kas-data", "Where everything is kept: store, certificates, tokens.", kind="path")
    storage_backend: str = _flag("lmdb", "Storage engine: lmdb.")
    store_max_size: str = _flag("64Gi", "Upper bound of the store file (a Kubernetes quantity).")
    unsafe_no_fsync: bool = _flag(False, "Answer writes before they are on disk. Fast; a power cut loses or breaks the store.")
    history_window: float = _flag(300.0, "How long old revisions stay readable and watches can resume.", kind="duration")
    history_max_size: str = _flag("512Mi", "Bound of the history in bytes (a Kubernetes quantity).")
    event_ttl: float = _flag(3600.0, "How long Events are kept.", kind="duration")

    # Identity
    token_auth_file: str = _flag("", 'CSV of token,user,uid,"group1,group2".', kind="path")
    anonymous_auth: bool = _flag(True, "Requests without credentials are system:anonymous instead of 401.")
    api_audiences: list[str] = _flag((), "Audiences of the API server. [the service-account issuer]", many=True)
    service_account_issuer: str = _flag("https://kubernetes.default.svc", "Issuer of service-account tokens.")
    service_account_signing_key_file: str = _flag("", "Key that signs service-account tokens. [self-made]", kind="path")
    service_account_max_token_expiration: float = _flag(0.0, "Longest life of a service-account token; 0 = no bound.", kind="duration")
    service_account_extend_token_expiration: bool = _flag(True, "Extend the tokens of pods to a year.")
    authorization_mode: list[str] = _flag(("Node", "RBAC"), "Authorizers in order: Node, RBAC, ABAC, AlwaysAllow, AlwaysDeny.", many=True)
    authorization_policy_file: str = _flag("", "ABAC policy, one JSON object a line.", kind="path")

    # Kubelets
    kubelet_certificate_authority: str = _flag("", "CA (PEM) that kubelets' certificates must be of. [any is believed]", kind="path")
    kubelet_client_certificate: str = _flag("", "Certificate (PEM) shown to kubelets.", kind="path")
    kubelet_client_key: str = _flag("", "Its key (PEM).", kind="path")
    kubelet_preferred_address_types: list[str] = _flag(
        ("InternalIP", "ExternalIP", "Hostname"), "Which of a node's addresses its kubelet is reached at, in order.", many=True
    )

    # API
    runtime_config: list[str] = _flag((), "API versions on or off: api/all=true, api/beta=true, apps/v1=false, …", many=True)
    feature_gates: list[str] = _flag((), "Feature gates: Name=true|false.", many=True)
    enable_admission_plugins: list[str] = _flag((), "Admission plug-ins on, besides the defaults.", many=True)
    disable_admission_plugins: list[str] = _flag((), "Admission plug-ins off.", many=True)
    admission_control_config_file: str = _flag("", "AdmissionConfiguration file (YAML or JSON): what plug-ins are told.", kind="path")
    service_cluster_ip_range: str = _flag("10.0.0.0/24", "One range of service IPs, or one of each family, comma separated.")
    service_node_port_range: str = _flag("30000-32767", "Node ports.")
    controllers: list[str] = _flag(("*",), "Loops that run in the server: *, name, -name; 'none' = all off.", many=True)

    # Logs
    v: int = _flag(0, "Log verbosity.", short="-v")
    logging_format: str = _flag("text", "text or json.")

    def set(self, name: str, value: Any) -> None:
        setattr(self, name, value)


SPECS = {f.name: f for f in fields(Options)}


@dataclass
class Completed:
    """Options with every question answered. Ports: 0 = off."""

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
    tls_min: str
    run_dir: Path = field(default_factory=Path)


def parse_duration(text: str) -> float:
    """Go's duration ("1m30s", "500ms") or a plain number of seconds."""
    try:
        return float(text)
    except ValueError:
        pass
    units = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
    total, number, rest, seen = 0.0, "", text, False
    while rest:
        if rest[0].isdigit() or rest[0] == ".":
            number, rest = number + rest[0], rest[1:]
            continue
        unit = next((u for u in ("ns", "us", "µs", "ms", "s", "m", "h") if rest.startswith(u)), None)
        if unit is None or not number:
            raise OptionError(f"{text!r} is not a duration (write 30s, 5m, 1h30m)")
        total, number, rest, seen = total + float(number) * units[unit], "", rest[len(unit) :], True
    if number or not seen:
        raise OptionError(f"{text!r} is not a duration (write 30s, 5m, 1h30m)")
    return total


def parse_size(text: str, flag: str) -> int:
    units = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    digits = text.rstrip("KMGTik")
    unit = text[len(digits) :]
    if not digits.isdigit() or unit not in units or int(digits) == 0:
        raise OptionError(f"--{flag}: {text!r} is not a size (write 512Mi, 64Gi)")
    return int(digits) * units[unit]


def _port(text: str, flag: str) -> int:
    """A port number; -1 stands for 'auto'."""
    if text == "auto":
        return -1
    if not text.isdigit() or int(text) > 65535:
        raise OptionError(f"--{flag}: {text!r} is not a port (0 to 65535, or auto)")
    return int(text)


AUTHORIZERS = ("Node", "RBAC", "ABAC", "AlwaysAllow", "AlwaysDeny")


def complete(o: Options) -> Completed:
    """Checks every value that can be checked without touching the disk. Raises OptionError."""
    try:
        ipaddress.ip_address(o.bind_address)
    except ValueError:
        raise OptionError(f"--bind-address: {o.bind_address!r} is not an IP address") from None
    if bool(o.tls_cert_file) != bool(o.tls_private_key_file):
        raise OptionError("--tls-cert-file and --tls-private-key-file go together")
    if bool(o.kubelet_client_certificate) != bool(o.kubelet_client_key):
        raise OptionError("--kubelet-client-certificate and --kubelet-client-key go together")
    for flag in (
        "tls_cert_file",
        "tls_private_key_file",
        "token_auth_file",
        "service_account_signing_key_file",
        "authorization_policy_file",
        "kubelet_certificate_authority",
        "kubelet_client_certificate",
        "kubelet_client_key",
        "admission_control_config_file",
    ):
        path = getattr(o, flag)
        if path:
            try:
                with open(path, "rb"):
                    pass
            except OSError as e:
                raise OptionError(f"--{flag.replace('_', '-')}: {path}: {e.strerror}") from None
    if o.workers < 0:
        raise OptionError("--workers: must not be negative")
    if not 0 <= o.goaway_chance <= 0.02:
        raise OptionError("--goaway-chance: must be between 0 and 0.02")
    for mode in o.authorization_mode:
        if mode not in AUTHORIZERS:
            raise OptionError(f"--authorization-mode: {mode!r} is not one of {', '.join(AUTHORIZERS)}")
    if len(set(o.authorization_mode)) != len(o.authorization_mode):
        raise OptionError("--authorization-mode: a mode is named twice")
    if "ABAC" in o.authorization_mode and not o.authorization_policy_file:
        raise OptionError("--authorization-mode: ABAC needs --authorization-policy-file")
    if o.storage_backend != "lmdb":
        raise OptionError(f"--storage-backend: {o.storage_backend!r} is not available (lmdb is)")
    versions = {"VersionTLS12": "tls1.2", "VersionTLS13": "tls1.3"}
    if o.tls_min_version not in versions:
        raise OptionError(f"--tls-min-version: {o.tls_min_version!r} is not one of {', '.join(versions)}")
    for pattern in o.cors_allowed_origins:
        _check_origin_pattern(pattern)
    if o.logging_format not in ("text", "json"):
        raise OptionError("--logging-format: must be text or json")
    for name in ("request_timeout", "history_window", "event_ttl", "shutdown_grace"):
        if getattr(o, name) <= 0:
            raise OptionError(f"--{name.replace('_', '-')}: must be greater than 0")
    ports: dict[str, Any] = {f: _port(str(getattr(o, f)), f.replace("_", "-")) for f in ("secure_port", "insecure_port", "read_only_port")}
    if not any(ports.values()):
        raise OptionError("--secure-port, --insecure-port and --read-only-port are all off: nothing to serve")
    return Completed(
        raw=o,
        data_dir=Path(o.data_dir).expanduser().absolute(),
        workers=o.workers or len(os.sched_getaffinity(0)),
        store_max_size=parse_size(o.store_max_size, "store-max-size"),
        history_max_size=parse_size(o.history_max_size, "history-max-size"),
        service_ranges=_service_ranges(o.service_cluster_ip_range),
        node_ports=_node_ports(o.service_node_port_range),
        advertise_address=o.advertise_address or o.bind_address,
        tls_min=versions[o.tls_min_version],
        **ports,
    )


def _check_origin_pattern(pattern: str) -> None:
    """Upstream's ``validateCORSAllowedOriginList``: what is not tied to both ends of the host also matches somebody else's."""
    try:
        re.compile(pattern)
    except re.error as e:
        raise OptionError(f"--cors-allowed-origins: {pattern!r} is not a regular expression: {e}") from None
    if not ("^" in pattern or "//" in pattern) or not ("$" in pattern or ":" in pattern):
        raise OptionError(f"--cors-allowed-origins: {pattern!r} must name the start (^ or //) and the end ($ or :) of the host")


def _service_ranges(text: str) -> list[Any]:
    out = []
    for part in text.split(","):
        try:
            out.append(ipaddress.ip_network(part.strip()))
        except ValueError as e:
            raise OptionError(f"--service-cluster-ip-range: {e}") from None
    if len(out) > 2 or (len(out) == 2 and out[0].version == out[1].version):
        raise OptionError("--service-cluster-ip-range: at most one range of each IP family")
    for net in out:
        if net.num_addresses < 8:
            raise OptionError(f"--service-cluster-ip-range: {net} has fewer than 8 addresses")
    return out


def _node_ports(text: str) -> tuple[int, int]:
    low, sep, high = text.partition("-")
    if not sep:
        low, plus, size = text.partition("+")
        high = str(int(low) + int(size)) if plus and low.isdigit() and size.isdigit() else ""
    if not (low.isdigit() and high.isdigit()) or not 1 <= int(low) <= int(high) <= 65535:
        raise OptionError(f"--service-node-port-range: {text!r} is not a range like 30000-32767")
    return int(low), int(high)
