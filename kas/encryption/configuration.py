"""The EncryptionConfiguration of ``--encryption-provider-config``: read, decoded strictly, defaulted and validated.

Error texts and their order are upstream's (``apiserver/pkg/apis/apiserver/validation/validation_encryption.go``, ``server/options/
encryptionconfig/config.go``). All errors are reported at once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from kas._codecs import DecodeError, go_base64
from kas.meta import duration, field, gourl
from kas.meta.field import FieldError
from kas.meta.records import NamedTuple
from kas.types.configfile import DURATION_POINTER, INT32, STRING, ConfigurationError, Kinds, Struct, check, of_kind, parse, read_file

Obj = dict[str, Any]

FLAG = "--encryption-provider-config"
V1, V2 = "v1", "v2"
DEFAULT_TIMEOUT_NS, DEFAULT_CACHE_SIZE = 3 * 10**9, 1000
AES_KEY_SIZES, SECRETBOX_KEY_SIZES = (16, 24, 32), (32,)
WITHOUT_REST = ("apiserveripinfo", "serviceipallocations", "servicenodeportallocations")
SCHEME = "k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go:142"
UNEXPECTED = "got unexpected config type:"
KEYED = ("aesgcm", "aescbc", "secretbox")

_KEYS = [Struct("Key", {"name": STRING, "secret": STRING})]
_PROVIDER = Struct("ProviderConfiguration", {
    "aesgcm": Struct("AESConfiguration", {"keys": _KEYS}),
    "aescbc": Struct("AESConfiguration", {"keys": _KEYS}),
    "secretbox": Struct("SecretboxConfiguration", {"keys": _KEYS}),
    "identity": Struct("IdentityConfiguration", {}),
    "kms": Struct("KMSConfiguration", {
        "apiVersion": STRING, "name": STRING, "cachesize": INT32, "endpoint": STRING, "timeout": DURATION_POINTER,
    }),
})  # fmt: skip
_RESOURCES = Struct("ResourceConfiguration", {"resources": [STRING], "providers": [_PROVIDER]})
KINDS: Kinds = {("apiserver.config.k8s.io/v1", "EncryptionConfiguration"): Struct("EncryptionConfiguration", {"resources": [_RESOURCES]})}


class Loaded(NamedTuple):
    """A valid configuration: its list ``resources``, defaulted, and a digest of its file."""

    resources: list[Obj]
    digest: str


def load(path: str, reload: bool) -> Loaded:
    """Returns the file's configuration. With ``reload`` it will be read again, which requires unique names of KMS plug-ins.
    Raises ConfigurationError."""
    try:
        data = _read(path)
        try:
            document = of_kind(parse(data), KINDS, SCHEME, _unexpected)
        except ConfigurationError as e:
            if str(e).startswith(UNEXPECTED):
                raise
            why = re.sub(r"(?s) is missing in '.*", " is missing", str(e))  # the message would show the document, with its secrets
            raise ConfigurationError(f'error decoding encryption provider configuration file "{path}": {why}') from None
        resources = document.get("resources") or []
        _default(resources)
        check(validate(resources, reload))
    except ConfigurationError as e:
        raise ConfigurationError(f"error while parsing file: {e}") from None
    return Loaded(resources, digest(data))


def _unexpected(version: str, kind: str) -> str:
    return f"{UNEXPECTED} {version}, Kind={kind}"


def digest(data: bytes) -> str:
    """Returns a digest that identifies a file in metrics without revealing its secrets."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _read(path: str) -> bytes:
    try:
        data = read_file(path)
    except ConfigurationError as e:
        raise ConfigurationError(f'error while loading file: error reading encryption provider configuration file "{path}": {e}') from None
    if not data:
        raise ConfigurationError(f'error while loading file: encryption provider configuration file "{path}" is empty')
    return data


def _default(resources: list[Obj]) -> None:
    for rule in resources:
        for provider in rule.get("providers") or ():
            kms = provider.get("kms")
            if kms is not None:
                kms.setdefault("timeout", DEFAULT_TIMEOUT_NS)
                kms["apiVersion"] = kms.get("apiVersion") or V1
                if kms["apiVersion"] == V1:
                    kms.setdefault("cachesize", DEFAULT_CACHE_SIZE)


def group_resource(text: str) -> tuple[str, str]:
    """``schema.ParseGroupResource``: returns (group, resource)."""
    resource, _, group = text.partition(".")
    return group, resource


# --- validation


def validate(resources: list[Obj], reload: bool) -> list[FieldError]:
    """``ValidateEncryptionConfiguration``, for a defaulted configuration."""
    if not resources:
        return [field.required("resources", "at least one resources is required")]
    errs: list[FieldError] = []
    kms_names: set[str] = set()
    for i, rule in enumerate(resources):
        at, names, providers = f"resources[{i}]", rule.get("resources") or [], rule.get("providers") or []
        if not names:
            errs.append(field.required(f"{at}.resources", f"at least one {at}.resources is required"))
        errs += _overlaps(names, f"{at}.resources")
        errs += filter(None, (_name(name, f"{at}.resources[{j}]") for j, name in enumerate(names)))
        if not providers:
            errs.append(field.required(f"{at}.providers", f"at least one {at}.providers is required"))
        for j, provider in enumerate(providers):
            errs += _provider(provider, f"{at}.providers[{j}]", kms_names, reload)
    return errs


def _overlaps(names: Sequence[str], path: str) -> Iterator[FieldError]:
    parsed = [group_resource(name) for name in names]
    if len(set(parsed)) < len(parsed):
        yield field.invalid(path, list(names), "the same resource cannot be specified multiple times")
    everything = len(parsed) > 1 and ("*", "*") in parsed
    # As upstream, a repeated wildcard is reported for both errors.
    if everything or any(sum(other == group for other, _ in parsed) > 1 for group, resource in parsed if resource == "*"):
        why = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"
        yield field.invalid(path, list(names), why)


def _name(name: str, path: str) -> FieldError | None:
    group, resource = group_resource(name)
    if name.lower() != name:
        why = "resource name should not contain capital letters"
    elif name == "*":
        why = "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
    elif name in WITHOUT_REST:
        why = "resources which do not have REST API/s cannot be encrypted"
    elif group == "events.k8s.io":
        why = "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
    elif group == "extensions":
        why = "'extensions' group has been removed and cannot be used for encryption"
    elif group == "*" and resource != "*":
        why = "encrypting the same resource across groups is not supported"
    else:
        return None
    return field.invalid(path, name, why)


def _provider(provider: Obj, path: str, kms_names: set[str], reload: bool) -> Iterator[FieldError]:
    if not provider:
        known = "KMS, AESGCM, AESCBC, Secretbox, Identity"
        yield field.invalid(path, _internal(provider), f"provider does not contain any of the expected providers: {known}")
    if len(provider) > 1:
        why = "more than one provider specified in a single element, should split into different list elements"
        yield field.invalid(path, _internal(provider), why)
    if "kms" in provider:
        kms = provider["kms"]
        yield from _kms(kms, f"{path}.kms", kms_names, reload)
        kms_names.add(kms.get("name", ""))
        return
    for name in KEYED:
        if name in provider:
            sizes = SECRETBOX_KEY_SIZES if name == "secretbox" else AES_KEY_SIZES
            yield from _keys(provider[name].get("keys") or [], f"{path}.{name}.keys", sizes)
            return


def _internal(provider: Obj) -> Obj:
    """Returns the provider as an error shows it: upstream's internal type, whose fields have no JSON names. Keys stay secret."""
    out: Obj = {}
    for name, shown in (("aesgcm", "AESGCM"), ("aescbc", "AESCBC"), ("secretbox", "Secretbox")):
        keys = provider[name].get("keys") if name in provider else None
        listed = [{"Name": k.get("name", ""), "Secret": "REDACTED"} for k in keys] if keys is not None else None
        out[shown] = {"Keys": listed} if name in provider else None
    out["Identity"] = {} if "identity" in provider else None
    kms = provider.get("kms")
    out["KMS"] = kms if kms is None else {
        "APIVersion": kms["apiVersion"], "Name": kms.get("name", ""), "CacheSize": kms.get("cachesize"),
        "Endpoint": kms.get("endpoint", ""), "Timeout": duration.format_ns(kms["timeout"]),
    }  # fmt: skip
    return out


def _keys(keys: list[Obj], path: str, sizes: Sequence[int]) -> Iterator[FieldError]:
    if not keys:
        yield field.required(path, "at least one keys is required")
    for i, key in enumerate(keys):
        if not key.get("name"):
            yield field.required(f"{path}[{i}].name", "name is a mandatory field for a key")
        at, encoded = f"{path}[{i}].secret", key.get("secret") or ""
        if not encoded:
            yield field.required(at, "secret is a mandatory field for a key")
            continue
        secret = decoded(encoded)
        if secret is None:
            yield field.invalid(at, "REDACTED", "secrets must be base64 encoded")
        elif len(secret) not in sizes:
            one_of = "[" + " ".join(map(str, sizes)) + "]"
            yield field.invalid(at, "REDACTED", f"secret is not of the expected length, got {len(secret)}, expected one of {one_of}")


def decoded(secret: str) -> bytes | None:
    """Returns the bytes of a key; None for invalid base64. As Go's decoder, it ignores line ends."""
    try:
        return go_base64(secret)
    except DecodeError:
        return None


def _kms(kms: Obj, path: str, names: set[str], reload: bool) -> Iterator[FieldError]:
    name, version = kms.get("name") or "", kms["apiVersion"]
    if not name:
        yield field.required(f"{path}.name", "name is a mandatory field for a provider")
    if version != V1 and ":" in name:
        yield field.invalid(f"{path}.name", name, f"invalid KMS provider name {name}, must not contain ':'")
    if (reload or version != V1) and name in names:
        yield field.invalid(f"{path}.name", name, f"duplicate KMS provider name {name}, names must be unique")
    if kms["timeout"] <= 0:
        yield field.invalid(f"{path}.timeout", duration.format_ns(kms["timeout"]), "timeout should be a positive value")
    yield from _endpoint(kms.get("endpoint") or "", f"{path}.endpoint")
    if version != V1 and "cachesize" in kms:
        yield field.invalid(f"{path}.cachesize", kms["cachesize"], "cachesize is not supported in v2")
    if version == V1 and kms["cachesize"] == 0:
        yield field.invalid(f"{path}.cachesize", 0, "cachesize should be a positive value, or negative to disable")
    if version not in (V1, V2):
        why = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"
        yield field.invalid(f"{path}.apiVersion", version, why)


def parse_endpoint(endpoint: str) -> tuple[str, str]:
    """Returns (scheme, path) as ``url.Parse`` does; the scheme of an invalid address is "". ValueError with Go's text."""
    url = gourl.parse(endpoint)
    return url.scheme, unquote(url.path)


def _endpoint(endpoint: str, path: str) -> Iterator[FieldError]:
    if not endpoint:
        yield field.invalid(path, "", "endpoint is a mandatory field for a kms")
        return
    try:
        scheme, _ = parse_endpoint(endpoint)
    except ValueError as e:
        yield field.invalid(path, endpoint, f"invalid endpoint for kms provider, error: {e}")
        return
    if scheme != "unix":
        yield field.invalid(path, endpoint, f"unsupported scheme {field.go_quote(scheme)} for KMS provider, only unix is supported")
