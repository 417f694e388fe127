"""Security contexts of pods and containers (``pkg/apis/core/validation``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kas.config import capabilities
from kas.kinds.core.pod.volumesources import local_descending_path
from kas.meta import field, names
from kas.meta.checks import unsupported
from kas.meta.field import FieldError
from kas.meta.patterns import later
from kas.types.gostruct import render

if TYPE_CHECKING:
    from kas.kinds.core.pod.options import Options

Context = Mapping[str, Any]
ID_RANGE = "must be between 0 and 2147483647, inclusive"
MAX_ID = 2147483647
SYSCTL_LENGTH = 253
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
SYSCTL_PATTERN = rf"^({_SEGMENT}[\./])*{_SEGMENT}$"
_SYSCTL = later(rf"(?:{_SEGMENT}[\./])*{_SEGMENT}")
PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_LEGACY_PROFILES = (SECCOMP_POD, SECCOMP_CONTAINER, APPARMOR)


def containers(spec: Mapping[str, Any], path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield all containers with their paths in upstream's order: init, regular, ephemeral."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{i}]"


def _id(value: int | None, path: str) -> list[FieldError]:
    return [] if value is None or 0 <= value <= MAX_ID else [field.invalid(path, value, ID_RANGE)]


# -- profiles ----------------------------------------------------------------------------------------------------------


def seccomp_profile(profile: Context | None, path: str) -> list[FieldError]:
    """``validateSeccompProfileField``: a known type; Localhost requires a relative path, other types allow none. None is valid."""
    if profile is None:
        return []
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    errs: list[FieldError] = []
    if not kind:
        errs.append(field.required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in PROFILES:
        errs.append(unsupported(f"{path}.type", kind, PROFILES))
    at = f"{path}.localhostProfile"
    if kind == "Localhost":
        if local is None:
            errs.append(field.required(at, "must be set when seccomp type is Localhost"))
        else:
            errs += local_descending_path(local, at)
    elif local is not None:
        shown = render("core.SeccompProfile", profile)
        errs.append(field.invalid(at, shown, "can only be set when seccomp type is Localhost"))
    return errs


def apparmor_profile(profile: Context | None, path: str) -> list[FieldError]:
    """``ValidateAppArmorProfileField``: a known type; Localhost requires a name of at most 4095 bytes, others allow none. None is valid."""
    if profile is None:
        return []
    kind, local, at = profile.get("type") or "", profile.get("localhostProfile"), f"{path}.localhostProfile"
    errs: list[FieldError] = []
    if kind == "Localhost":
        if local is None:
            errs.append(field.required(at, "must be set when AppArmor type is Localhost"))
        else:
            if local.strip() != local:
                errs.append(field.invalid(at, local, "must not be padded with whitespace"))
            elif not local:
                errs.append(field.required(at, "must be set when AppArmor type is Localhost"))
            if len(local.encode()) > 4095:
                errs.append(field.too_long(at, 4095))
    elif kind in ("RuntimeDefault", "Unconfined"):
        if local is not None:
            errs.append(field.invalid(at, local, "can only be set when AppArmor type is Localhost"))
    elif not kind:
        errs.append(field.required(f"{path}.type", "type is required when appArmorProfile is set"))
    else:
        errs.append(unsupported(f"{path}.type", kind, PROFILES))
    return errs


# -- Windows -----------------------------------------------------------------------------------------------------------

_CONTROL = later(r"[\x00-\x1f\x7f]")
_NETBIOS = later(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS_DOMAIN = later(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_USER_CHARACTERS = later(r'["/\\:;|=,+*?<>@\[\]]')


def windows_options(options: Context | None, path: str) -> list[FieldError]:
    """``validateWindowsSecurityContextOptions``: names of the GMSA spec and the user, and a spec of at most 64 KiB; None is valid."""
    if options is None:
        return []
    errs: list[FieldError] = []
    name, spec, user = options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec"), options.get("runAsUserName")
    if name is not None:
        errs += [field.invalid(f"{path}.gmsaCredentialSpecName", name, m) for m in names.is_dns1123_subdomain(name)]
    if spec is not None:
        at = f"{path}.gmsaCredentialSpec"
        if not spec:
            errs.append(field.invalid(at, spec, "gmsaCredentialSpec cannot be an empty string"))
        elif len(spec.encode()) > 64 * 1024:
            errs.append(field.invalid(at, spec, "gmsaCredentialSpec size must be under 64 KiB"))
    if user is not None:
        errs += [field.invalid(f"{path}.runAsUserName", user, m) for m in _windows_user(user)]
    return errs


def _windows_user(text: str) -> list[str]:
    if not text:
        return ["runAsUserName cannot be an empty string"]
    if _CONTROL.search(text):
        return ["runAsUserName cannot contain control characters"]
    parts = text.split("\\")
    if len(parts) > 2:
        return ["runAsUserName cannot contain more than one backslash"]
    out = []
    domain, user = parts if len(parts) == 2 else ("", parts[0])
    if names.byte_length(domain) >= 256:
        out.append("runAsUserName's Domain length must be under 256 characters")
    if len(parts) == 2 and not (_NETBIOS.fullmatch(domain) or _DNS_DOMAIN.fullmatch(domain)):
        out.append("runAsUserName's Domain doesn't match the NetBios nor the DNS format")
    if not user:
        out.append("runAsUserName's User cannot be empty")
    elif names.byte_length(user) > 104:
        out.append("runAsUserName's User length must not be longer than 104 characters")
    if user and not user.strip(". "):
        out.append("runAsUserName's User cannot contain only periods or spaces")
    if _USER_CHARACTERS.search(user):
        out.append('runAsUserName\'s User cannot contain the following characters: "/\\:;|=,+*?<>@[]')
    return out


def _any_windows_options(spec: Mapping[str, Any]) -> bool:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            context = container.get("securityContext")
            if context and context.get("windowsOptions"):
                return True
    return False


def windows_host_process(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Check HostProcess containers: all or none, and only on the host's network."""
    context = spec.get("securityContext")
    if not (context and context.get("windowsOptions")) and not _any_windows_options(spec):
        return []
    errs: list[FieldError] = []
    total = count = 0
    pod = ((context or {}).get("windowsOptions") or {}).get("hostProcess")
    for container, at in containers(spec, path):
        total += 1
        own = ((container.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
        if pod is not None and own is not None and pod != own:
            message = f"pod hostProcess value must be identical if both are specified, was {str(pod).lower()}"
            errs.append(field.invalid(f"{at}.securityContext.windowsOptions.hostProcess", own, message))
        if own or (own is None and pod):
            count += 1
    if count:
        if count != total:
            message = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
            errs.append(field.invalid(path, "", message))
        if not spec.get("hostNetwork"):
            message = "hostNetwork must be true if pod contains any hostProcess containers"
            errs.append(field.invalid(f"{path}.hostNetwork", False, message))
        if not capabilities.CURRENT.allow_privileged:
            errs.append(field.forbidden(path, "hostProcess containers are disallowed by cluster policy"))
    return errs


# -- containers --------------------------------------------------------------------------------------------------------


def container_security(context: Context | None, host_users: bool, path: str) -> list[FieldError]:
    """``ValidateSecurityContext``."""
    if not context:
        return []
    errs = []
    if context.get("privileged") and not capabilities.CURRENT.allow_privileged:
        errs.append(field.forbidden(f"{path}.privileged", "disallowed by cluster policy"))
    errs += _id(context.get("runAsUser"), f"{path}.runAsUser")
    errs += _id(context.get("runAsGroup"), f"{path}.runAsGroup")
    mount = context.get("procMount")
    if mount is not None:
        if mount not in ("Default", "Unmasked"):
            errs.append(unsupported(f"{path}.procMount", mount, ("Default", "Unmasked")))
        if host_users and mount == "Unmasked":
            errs.append(field.invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`"))
    errs += seccomp_profile(context.get("seccompProfile"), f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        shown = None
        if context.get("privileged"):
            shown = render("core.SecurityContext", context)
            errs.append(field.invalid(path, shown, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
        for capability in (context.get("capabilities") or {}).get("add") or ():
            if capability == "CAP_SYS_ADMIN":
                shown = shown or render("core.SecurityContext", context)
                message = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
                errs.append(field.invalid(path, shown, message))
    errs += windows_options(context.get("windowsOptions"), f"{path}.windowsOptions")
    return errs + apparmor_profile(context.get("appArmorProfile"), f"{path}.appArmorProfile")


# -- pods --------------------------------------------------------------------------------------------------------------


def pod_security(spec: Mapping[str, Any], path: str, options: Options) -> list[FieldError]:
    """``validatePodSpecSecurityContext``; ``path`` is that of spec.securityContext."""
    context = spec.get("securityContext") or {}
    errs = _id(context.get("fsGroup"), f"{path}.fsGroup")
    errs += _id(context.get("runAsUser"), f"{path}.runAsUser")
    errs += _id(context.get("runAsGroup"), f"{path}.runAsGroup")
    for i, group in enumerate(context.get("supplementalGroups") or ()):
        errs += _id(group, f"{path}.supplementalGroups[{i}]")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        message = "ShareProcessNamespace and HostPID cannot both be enabled"
        errs.append(field.invalid(f"{path}.shareProcessNamespace", True, message))
    if context.get("sysctls"):
        errs += _sysctls(spec, context["sysctls"], f"{path}.sysctls", options)
    for name, valid in (("fsGroupChangePolicy", ("Always", "OnRootMismatch")),):
        if context.get(name) is not None and context[name] not in valid:
            errs.append(unsupported(f"{path}.{name}", context[name], valid))
    errs += seccomp_profile(context.get("seccompProfile"), f"{path}.seccompProfile")
    errs += windows_options(context.get("windowsOptions"), f"{path}.windowsOptions")
    errs += apparmor_profile(context.get("appArmorProfile"), f"{path}.appArmorProfile")
    groups, selinux = context.get("supplementalGroupsPolicy"), context.get("seLinuxChangePolicy")
    if groups is not None and groups not in ("Merge", "Strict"):
        errs.append(unsupported(f"{path}.supplementalGroupsPolicy", groups, ("Merge", "Strict")))
    if selinux is not None and selinux != "Recursive":
        if not options.any_selinux_policy:
            errs.append(unsupported(f"{path}.seLinuxChangePolicy", selinux, ("Recursive",)))
        elif selinux != "MountOption":
            errs.append(unsupported(f"{path}.seLinuxChangePolicy", selinux, ("MountOption", "Recursive")))
    return errs


_SWAPPED = str.maketrans("./", "/.")


def _dotted(sysctl: str) -> str:
    """Return the name in dotted form: if the first separator is a slash, dots and slashes are swapped."""
    first = min((i for i in (sysctl.find("."), sysctl.find("/")) if i >= 0), default=-1)
    return sysctl.translate(_SWAPPED) if first >= 0 and sysctl[first] == "/" else sysctl


def host_sysctl(spec: Mapping[str, Any], name: str, path: str) -> list[FieldError]:
    """Return errors for sysctls of a namespace that the pod shares with the host."""
    dotted = _dotted(name)
    if spec.get("hostNetwork") and dotted.startswith("net."):
        return [field.invalid(path, name, "may not be specified when 'hostNetwork' is true")]
    of_ipc = dotted == "kernel.sem" or dotted.startswith(("kernel.shm", "kernel.msg", "fs.mqueue."))
    if spec.get("hostIPC") and of_ipc:
        return [field.invalid(path, name, "may not be specified when 'hostIPC' is true")]
    return []


def _sysctls(spec: Mapping[str, Any], items: list[dict[str, Any]], path: str, options: Options) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, item in enumerate(items):
        at, name = f"{path}[{i}].name", item.get("name") or ""
        if not name:
            errs.append(field.required(at))
        elif len(name) > SYSCTL_LENGTH or not _SYSCTL.fullmatch(name):
            message = f"must have at most {SYSCTL_LENGTH} characters and match regex {SYSCTL_PATTERN}"
            errs.append(field.invalid(at, name, message))
        elif name in seen:
            errs.append(field.duplicate(at, name))
        found = host_sysctl(spec, name, at)
        if found and not options.host_sysctls:
            errs += found
        seen.add(name)
    return errs


def host_users(spec: Mapping[str, Any], path: str, options: Options) -> list[FieldError]:
    """Check that a pod in a user namespace shares no other namespace; upstream's spelling of the paths is kept."""
    if spec.get("hostUsers") is not False:
        return []
    why = "when `hostUsers` is false"
    shared: tuple[tuple[str, str], ...] = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
    if options.network_of_users:
        shared = shared[1:]
    errs = [field.forbidden(f"{path}.{shown}", why) for name, shown in shared if spec.get(name)]
    for container, at in containers(spec, path):
        if container.get("volumeDevices") and not options.devices_of_users:
            errs.append(field.forbidden(f"{at}.volumeDevices", why))
    return errs


_WINDOWS_POD = (
    ("securityContext", "appArmorProfile"), ("securityContext", "seLinuxOptions"), ("", "hostUsers"), ("", "hostPID"),
    ("", "hostIPC"), ("securityContext", "seccompProfile"), ("securityContext", "fsGroup"),
    ("securityContext", "fsGroupChangePolicy"), ("securityContext", "sysctls"), ("", "shareProcessNamespace"),
    ("securityContext", "runAsUser"), ("securityContext", "runAsGroup"), ("securityContext", "supplementalGroups"),
    ("securityContext", "supplementalGroupsPolicy"), ("securityContext", "seLinuxChangePolicy"),
)  # fmt: skip
_WINDOWS_CONTAINER = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip


def os_rules(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return errors for fields that the pod's operating system does not support."""
    name = (spec.get("os") or {}).get("name") or ""
    if not name:
        return [field.required(f"{path}.os.name")]
    if name not in ("linux", "windows"):
        return [unsupported(f"{path}.os", name, ("linux", "windows"))]
    context = spec.get("securityContext") or {}
    errs: list[FieldError] = []
    if name == "linux":
        why = "windows options cannot be set for a linux pod"
        if context.get("windowsOptions") is not None:
            errs.append(field.forbidden(f"{path}.securityContext.windowsOptions", why))
        for container, at in containers(spec, path):
            if (container.get("securityContext") or {}).get("windowsOptions") is not None:
                errs.append(field.forbidden(f"{at}.securityContext.windowsOptions", why))
        return errs
    why = "cannot be set for a windows pod"
    for parent, key in _WINDOWS_POD:
        value = (context if parent else spec).get(key)
        given = bool(value) if key in ("hostPID", "hostIPC", "sysctls") else value is not None
        if given:
            errs.append(field.forbidden(f"{path}.{parent}.{key}" if parent else f"{path}.{key}", why))
    for container, at in containers(spec, path):
        own = container.get("securityContext") or {}
        errs += [field.forbidden(f"{at}.securityContext.{k}", why) for k in _WINDOWS_CONTAINER if own.get(k) is not None]
    return errs


# -- annotations that were replaced by fields --------------------------------------------------------------------------


def has_legacy_profiles(annotations: Mapping[str, str]) -> bool:
    """Whether there is an annotation that the seccompProfile and appArmorProfile fields have replaced."""
    for key in annotations:  # noqa: SIM110 - every write of a pod asks several times, and a generator takes twice as long
        if key.startswith(_LEGACY_PROFILES):
            return True
    return False


def pod_annotations(annotations: Mapping[str, str], spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Seccomp and AppArmor annotations; ``path`` is that of metadata.annotations."""
    if not has_legacy_profiles(annotations):
        return []
    errs: list[FieldError] = []
    if SECCOMP_POD in annotations:
        errs += _seccomp_text(annotations[SECCOMP_POD], f"{path}.{SECCOMP_POD}")
    for key in sorted(annotations):
        if key.startswith(SECCOMP_CONTAINER):
            errs += _seccomp_text(annotations[key], f"{path}.{key}")
    known = {c.get("name") for c, _ in containers(spec, "")}
    for key in sorted(annotations):
        if not key.startswith(APPARMOR):
            continue
        name, profile = key[len(APPARMOR) :], annotations[key]
        if name not in known:
            errs.append(field.invalid(f"{path}[{key}]", name, "container not found"))
        if profile not in ("", "runtime/default", "unconfined") and not profile.startswith("localhost/"):
            message = f"invalid AppArmor profile name: {field.go_quote(profile)}"
            errs.append(field.invalid(f"{path}[{key}]", profile, message))
    return errs


def _seccomp_text(profile: str, path: str) -> list[FieldError]:
    if profile in ("runtime/default", "docker/default", "unconfined"):
        return []
    if profile.startswith("localhost/"):
        return local_descending_path(profile[len("localhost/") :], path)
    return [field.invalid(path, profile, "must be a valid seccomp profile")]


def _matches(what: str, text: str, profile: Context, path: str, runtime: tuple[str, ...]) -> list[FieldError]:
    kind = profile.get("type")
    same = f"{what} type in annotation and field must match"
    if kind == "Unconfined" and text != "unconfined":
        return [field.forbidden(f"{path}.type", same)]
    if kind == "RuntimeDefault" and text not in runtime:
        return [field.forbidden(f"{path}.type", same)]
    if kind == "Localhost":
        if not text.startswith("localhost/"):
            return [field.forbidden(f"{path}.type", same)]
        if profile.get("localhostProfile") != text[len("localhost/") :]:
            return [field.forbidden(f"{path}.localhostProfile", f"{what} profile in annotation and field must match")]
    return []


def annotations_match_fields(annotations: Mapping[str, str], spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """On create, a legacy annotation and its field must be equal if both are given."""
    if not annotations or not has_legacy_profiles(annotations):
        return []
    errs: list[FieldError] = []
    context = spec.get("securityContext") or {}
    runtime = ("runtime/default", "docker/default")
    profile = context.get("seccompProfile")
    if profile is not None and SECCOMP_POD in annotations:
        at = f"{path}.securityContext.seccompProfile"
        errs += _matches("seccomp", annotations[SECCOMP_POD], profile, at, runtime)
    for container, at in containers(spec, path):
        own = (container.get("securityContext") or {}).get("seccompProfile")
        text = annotations.get(SECCOMP_CONTAINER + (container.get("name") or ""))
        if own is not None and text is not None:
            errs += _matches("seccomp", text, own, f"{at}.securityContext.seccompProfile", runtime)
    if (spec.get("os") or {}).get("name") == "windows":
        return errs
    for container, at in containers(spec, path):
        own = (container.get("securityContext") or {}).get("appArmorProfile")
        own = context.get("appArmorProfile") if own is None else own
        text = annotations.get(APPARMOR + (container.get("name") or ""))
        if own is not None and text is not None:
            errs += _matches("apparmor", text, own, f"{at}.securityContext.appArmorProfile", ("runtime/default",))
    return errs
