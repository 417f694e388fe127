"""The checks of the baseline and restricted levels, by version (``pod-security-admission/policy/check_*.go``).

A check receives the pod's metadata and spec, and returns None or (reason, detail) of the violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kas.admission.plugins._podsecurity.policy import BASELINE, PRIVILEGED, RESTRICTED, LevelVersion
from kas.meta.field import go_quote

Obj = dict[str, Any]
Finding = tuple[str, str]
Check = Callable[[Obj, Obj], Finding | None]

APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
DEFAULT_CAPABILITIES = frozenset((
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP",
    "SETUID", "SYS_CHROOT",
))  # fmt: skip
SYSCTLS = frozenset((
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
))  # fmt: skip
SYSCTLS_1_27 = SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
SYSCTLS_1_29 = SYSCTLS_1_27 | {
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
SYSCTLS_1_32 = SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
SELINUX_TYPES = frozenset(("", "container_t", "container_init_t", "container_kvm_t"))
SELINUX_TYPES_1_31 = SELINUX_TYPES | {"container_engine_t"}
OPEN_VOLUMES = ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret")
RESTRICTED_VOLUMES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd", "flexVolume", "cinder",
    "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk", "portworxVolume", "photonPersistentDisk", "scaleIO",
    "storageos",
)  # fmt: skip


# --- texts of violations


def quoted(items: Iterable[str]) -> str:
    """Return the items in double quotes, separated by commas."""
    return ", ".join(f'"{i}"' for i in items)


def plural(one: str, many: str, count: int) -> str:
    """Return the singular or plural form for a count."""
    return one if count == 1 else many


def named(containers: list[str]) -> str:
    """"container" or "containers" with the quoted names."""
    return f"{plural('container', 'containers', len(containers))} {quoted(containers)}"


def containers(spec: Obj) -> Iterator[tuple[str, Obj, Obj]]:
    """Yield (name, container, security context) for all kinds of containers."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for c in spec.get(kind) or ():
            yield c.get("name") or "", c, c.get("securityContext") or {}


def pod_context(spec: Obj) -> Obj:
    """Return the pod's securityContext, or an empty one."""
    return spec.get("securityContext") or {}


def setters(pod: bool, bad: list[str]) -> list[str]:
    """Return descriptions of who sets a field: the pod, some containers, both or neither."""
    return (["pod"] if pod else []) + ([named(bad)] if bad else [])


def in_user_namespace(spec: Obj) -> bool:
    """Return whether the pod has its own user namespace (KEP-127)."""
    return spec.get("hostUsers") is False


# --- baseline


def app_armor_annotations(meta: Obj) -> list[str]:
    """Return the annotations with a profile that is neither the runtime's default nor local, as ``key="value"``."""
    return [
        f"{key}={go_quote(value)}"
        for key, value in (meta.get("annotations") or {}).items()
        if key.startswith(APPARMOR_ANNOTATION) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    ]


def _wrong_profile(spec: Obj, key: str) -> tuple[list[str], set[str]]:
    """Return who sets an AppArmor or seccomp profile of a forbidden type, and these types."""
    allowed, values = ("RuntimeDefault", "Localhost"), set()
    profile: Any = pod_context(spec).get(key)
    pod = profile is not None and profile.get("type") not in allowed
    if pod:
        values.add(profile.get("type") or "")
    bad = []
    for name, _, context in containers(spec):
        own = context.get(key)
        if own is not None and own.get("type") not in allowed:
            bad.append(name)
            values.add(own.get("type") or "")
    return setters(pod, bad), values


def app_armor(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline: only AppArmor profiles of the runtime or the node, in fields and annotations."""
    who, values = _wrong_profile(spec, "appArmorProfile")
    shown = sorted(values)
    annotations = sorted(app_armor_annotations(meta))
    if annotations:
        shown += annotations
        who.append(plural("annotation", "annotations", len(annotations)))
    if not who:
        return None
    reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", len(shown))
    return reason, f"{' and '.join(who)} must not set AppArmor profile type to {quoted(shown)}"


def capabilities_baseline(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline: containers may only add capabilities that runtimes grant by default."""
    bad, forbidden = [], set()
    for name, _, context in containers(spec):
        extra = set((context.get("capabilities") or {}).get("add") or ()) - DEFAULT_CAPABILITIES
        if extra:
            bad.append(name)
            forbidden |= extra
    if not bad:
        return None
    return "non-default capabilities", f"{named(bad)} must not include {quoted(sorted(forbidden))} in securityContext.capabilities.add"


def host_namespaces(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline: no use of the node's network, PID and IPC namespaces."""
    found = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return ("host namespaces", ", ".join(found)) if found else None


def host_path_volumes(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline: no hostPath volumes."""
    found = [v.get("name") or "" for v in spec.get("volumes") or () if v.get("hostPath") is not None]
    return ("hostPath volumes", f"{plural('volume', 'volumes', len(found))} {quoted(found)}") if found else None


def host_ports(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline: no host ports."""
    bad, ports = [], set()
    for name, c, _ in containers(spec):
        own = {str(p["hostPort"]) for p in c.get("ports") or () if p.get("hostPort")}
        if own:
            bad.append(name)
            ports |= own
    if not bad:
        return None
    uses, noun = plural("uses", "use", len(bad)), plural("hostPort", "hostPorts", len(ports))
    return "hostPort", f"{named(bad)} {uses} {noun} {', '.join(sorted(ports))}"


def host_probes(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline: probes and lifecycle handlers must not set a host."""
    bad, hosts = [], set()
    for name, c, _ in containers(spec):
        lifecycle = c.get("lifecycle") or {}
        handlers = [c.get(probe) for probe in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers += [lifecycle.get("postStart"), lifecycle.get("preStop")]
        own = {
            h[kind]["host"]
            for h in handlers
            if h
            for kind in ("httpGet", "tcpSocket")
            if h.get(kind) and h[kind].get("host")
        }  # fmt: skip
        if own:
            bad.append(name)
            hosts |= own
    if not bad:
        return None
    bad = sorted(set(bad))
    uses, noun = plural("uses", "use", len(bad)), plural("probe or lifecycle host", "probe or lifecycle hosts", len(hosts))
    return "probe or lifecycle host", f"{named(bad)} {uses} {noun} {quoted(sorted(hosts))}"


def privileged(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline: no privileged containers."""
    bad = [name for name, _, context in containers(spec) if context.get("privileged")]
    return ("privileged", f"{named(bad)} must not set securityContext.privileged=true") if bad else None


def proc_mount(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline and, from the version on that relaxes it there, restricted: only the default masking of /proc."""
    bad, values = [], set()
    for name, _, context in containers(spec):
        value = context.get("procMount")
        if value is not None and value != "Default":
            bad.append(name)
            values.add(value)
    if not bad:
        return None
    return "procMount", f"{named(bad)} must not set securityContext.procMount to {quoted(sorted(values))}"


def relaxed(check: Check) -> Check:
    """Skip the check for a pod with its own user namespace, whose root user has no rights outside it."""
    return lambda meta, spec: None if in_user_namespace(spec) else check(meta, spec)


def se_linux(types: frozenset[str]) -> Check:
    """Return the check that SELinux types are in ``types`` and that user and role are not set."""
    def check(meta: Obj, spec: Obj) -> Finding | None:
        bad_types: set[str] = set()
        user = role = False

        def wrong(options: Obj | None) -> bool:
            nonlocal user, role
            if options is None:
                return False
            kind = options.get("type") or ""
            if kind not in types:
                bad_types.add(kind)
            user, role = user or bool(options.get("user")), role or bool(options.get("role"))
            return kind not in types or bool(options.get("user")) or bool(options.get("role"))

        pod = wrong(pod_context(spec).get("seLinuxOptions"))
        bad = [name for name, _, context in containers(spec) if wrong(context.get("seLinuxOptions"))]
        who = setters(pod, bad)
        if not who:
            return None
        data = []
        if bad_types:
            data.append(f"{plural('type', 'types', len(bad_types))} {quoted(sorted(bad_types))}")
        if user:
            data.append("user may not be set")
        if role:
            data.append("role may not be set")
        return "seLinuxOptions", f"{' and '.join(who)} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"

    return check


def _seccomp_annotation_ok(value: str) -> bool:
    return value in ("runtime/default", "docker/default") or value.startswith("localhost/")


def seccomp_annotations(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline in old versions: no annotations with a forbidden seccomp profile."""
    annotations = meta.get("annotations") or {}
    keys = [SECCOMP_POD, *(SECCOMP_CONTAINER + name for name, _, _ in containers(spec))]
    found = sorted({f"{k}={go_quote(annotations[k])}" for k in keys if k in annotations and not _seccomp_annotation_ok(annotations[k])})
    if not found:
        return None
    return "seccompProfile", f"forbidden {plural('annotation', 'annotations', len(found))} {', '.join(found)}"


def seccomp_baseline(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline: no forbidden seccomp profiles."""
    who, values = _wrong_profile(spec, "seccompProfile")
    if not who:
        return None
    return "seccompProfile", f"{' and '.join(who)} must not set securityContext.seccompProfile.type to {quoted(sorted(values))}"


def sysctls(allowed: frozenset[str]) -> Check:
    """Return the check that a pod only sets sysctls in ``allowed``."""
    def check(meta: Obj, spec: Obj) -> Finding | None:
        found = [s.get("name") or "" for s in pod_context(spec).get("sysctls") or () if s.get("name") not in allowed]
        return ("forbidden sysctls", ", ".join(found)) if found else None

    return check


def windows_host_process(meta: Obj, spec: Obj) -> Finding | None:
    """Baseline: no Windows host processes, in the pod or in a container."""
    def asks(context: Obj) -> bool:
        return bool((context.get("windowsOptions") or {}).get("hostProcess"))

    who = setters(asks(pod_context(spec)), [name for name, _, context in containers(spec) if asks(context)])
    return ("hostProcess", f"{' and '.join(who)} must not set securityContext.windowsOptions.hostProcess=true") if who else None


# --- restricted


def allow_privilege_escalation(meta: Obj, spec: Obj) -> Finding | None:
    """Restricted: every container must disallow privilege escalation."""
    bad = [name for name, _, context in containers(spec) if context.get("allowPrivilegeEscalation") is not False]
    if not bad:
        return None
    return "allowPrivilegeEscalation != false", f"{named(bad)} must set securityContext.allowPrivilegeEscalation=false"


def capabilities_restricted(meta: Obj, spec: Obj) -> Finding | None:
    """Restricted: every container must drop all capabilities and may only add NET_BIND_SERVICE."""
    undropped, adding, forbidden = [], [], set()
    for name, _, context in containers(spec):
        capabilities = context.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or ()):
            undropped.append(name)
        extra = set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}
        if extra:
            adding.append(name)
            forbidden |= extra
    details = []
    if undropped:
        details.append(f'{named(undropped)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        details.append(f"{named(adding)} must not include {quoted(sorted(forbidden))} in securityContext.capabilities.add")
    return ("unrestricted capabilities", "; ".join(details)) if details else None


def restricted_volumes(meta: Obj, spec: Obj) -> Finding | None:
    """Restricted: only volume types without access beyond the pod."""
    bad: list[str] = []
    kinds: set[str] = set()
    for volume in spec.get("volumes") or ():
        if any(volume.get(kind) is not None for kind in OPEN_VOLUMES):
            continue
        bad.append(volume.get("name") or "")
        kinds.add(next((kind for kind in RESTRICTED_VOLUMES if volume.get(kind) is not None), "unknown"))
    if not bad:
        return None
    uses, noun = plural("uses", "use", len(bad)), plural("type", "types", len(kinds))
    return "restricted volume types", (
        f"{plural('volume', 'volumes', len(bad))} {quoted(bad)} {uses} restricted volume {noun} {quoted(sorted(kinds))}"
    )


def run_as_non_root(meta: Obj, spec: Obj) -> Finding | None:
    """Restricted: the pod or every container must set runAsNonRoot to true, and none may set it to false."""
    pod = pod_context(spec).get("runAsNonRoot")
    said, silent = [], []
    for name, _, context in containers(spec):
        own = context.get("runAsNonRoot")
        if own is False:
            said.append(name)
        elif own is None and not pod:
            silent.append(name)
    who = setters(pod is False, said)
    if who:
        return "runAsNonRoot != true", f"{' and '.join(who)} must not set securityContext.runAsNonRoot=false"
    return ("runAsNonRoot != true", f"pod or {named(silent)} must set securityContext.runAsNonRoot=true") if silent else None


def run_as_user(meta: Obj, spec: Obj) -> Finding | None:
    """Restricted: user 0 must not be requested."""
    who = setters(pod_context(spec).get("runAsUser") == 0, [name for name, _, context in containers(spec) if context.get("runAsUser") == 0])
    return ("runAsUser=0", f"{' and '.join(who)} must not set runAsUser=0") if who else None


def seccomp_restricted(meta: Obj, spec: Obj) -> Finding | None:
    """Restricted: the pod or every container must set an allowed seccomp profile."""
    found = seccomp_baseline(meta, spec)
    if found:
        return found
    profile = pod_context(spec).get("seccompProfile")
    if profile is not None and profile.get("type") in ("RuntimeDefault", "Localhost"):
        return None
    silent = [name for name, _, context in containers(spec) if context.get("seccompProfile") is None]
    if not silent:
        return None
    return "seccompProfile", f'pod or {named(silent)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'


def unless_windows(check: Check) -> Check:
    """Skip the check, which is specific to Linux, for a pod that declares Windows as its OS."""
    return lambda meta, spec: None if (spec.get("os") or {}).get("name") == "windows" else check(meta, spec)


# --- the standard

# In the order in which violations are listed: by name within a level. (first minor version, check), oldest first.
BASELINE_CHECKS: tuple[tuple[tuple[int, Check], ...], ...] = (
    ((0, app_armor),),
    ((0, capabilities_baseline),),
    ((0, host_namespaces),),
    ((0, host_path_volumes),),
    ((0, host_ports),),
    ((34, host_probes),),
    ((0, privileged),),
    ((0, proc_mount), (35, relaxed(proc_mount))),
    ((0, se_linux(SELINUX_TYPES)), (31, se_linux(SELINUX_TYPES_1_31))),
    ((0, seccomp_annotations), (19, seccomp_baseline)),
    ((0, sysctls(SYSCTLS)), (27, sysctls(SYSCTLS_1_27)), (29, sysctls(SYSCTLS_1_29)), (32, sysctls(SYSCTLS_1_32))),
    ((0, windows_host_process),),
)
RESTRICTED_CHECKS: tuple[tuple[tuple[int, Check], ...], ...] = (
    ((8, allow_privilege_escalation), (25, unless_windows(allow_privilege_escalation))),
    ((22, capabilities_restricted), (25, unless_windows(capabilities_restricted))),
    ((35, proc_mount),),
    ((0, restricted_volumes),),
    ((0, run_as_non_root), (35, relaxed(run_as_non_root))),
    ((23, run_as_user), (35, relaxed(run_as_user))),
    ((19, seccomp_restricted), (25, unless_windows(seccomp_restricted))),
)
# From these versions on, a restricted check covers its baseline counterpart, which is skipped at that level.
OVERRIDES = {0: (3, 3), 19: (6, 9), 22: (1, 1), 35: (2, 7)}


def _at(versions: tuple[tuple[int, Check], ...], minor: int) -> Check | None:
    found = None
    for since, check in versions:
        if since <= minor:
            found = check
    return found


def checks_of(policy: LevelVersion) -> list[Check]:
    """Return the checks of a level in a version, in order."""
    if policy.level == PRIVILEGED:
        return []
    hidden = {twin for since, (_, twin) in OVERRIDES.items() if policy.level == RESTRICTED and since <= policy.version}
    chosen = [_at(versions, policy.version) for i, versions in enumerate(BASELINE_CHECKS) if i not in hidden]
    if policy.level != BASELINE:
        chosen += [_at(versions, policy.version) for versions in RESTRICTED_CHECKS]
    return [check for check in chosen if check is not None]


def evaluate(policy: LevelVersion, meta: Obj, spec: Obj) -> list[Finding]:
    """Return the violations of the policy by a pod; empty if it is allowed."""
    return found_by(checks_of(policy), meta, spec)


def found_by(checks: Sequence[Check], meta: Obj, spec: Obj) -> list[Finding]:
    """Return the violations of the checks by a pod."""
    return [found for check in checks if (found := check(meta, spec)) is not None]


def detail(found: list[Finding]) -> str:
    """Return all violations in one line: each reason, with the detail in parentheses."""
    return ", ".join(f"{reason} ({more})" if more else reason for reason, more in found)
