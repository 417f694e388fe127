"""Secrets (upstream ``pkg/registry/core/secret``, ``pkg/apis/core/validation``)."""

from __future__ import annotations

import base64
from typing import Any

from kas import checks
from kas.kinds.core.configmap import MAX_SIZE, decoded_length, frozen_fields
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, gojson, names
from kas.meta.age import age
from kas.meta.field import FieldError
from kas.meta.pem import pem_blocks, unreadable
from kas.meta.publickeys import known, private_key, public_key
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.checktables import ANY, TOP, Checked, each
from kas.types.defaults import defaults_for

SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
REDACTED = "<secret contents redacted>"
# Types whose data must have a JSON document under this key.
_JSON_KEYS = {"kubernetes.io/dockercfg": ".dockercfg", "kubernetes.io/dockerconfigjson": ".dockerconfigjson"}


# Types with requirements for the data or the metadata.
_DEMANDING = (
    *_JSON_KEYS, "kubernetes.io/service-account-token", "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth", "kubernetes.io/tls",
)  # fmt: skip
CHECK = Checked(
    "core.v1.Secret",
    {
        **TOP, "immutable": ANY, "data": each(checks.text(), key=checks.data_key(), total=MAX_SIZE), "type": checks.text(but=_DEMANDING),
    },
)  # fmt: skip


def _json_error(encoded: str) -> str:
    """Return Go's error for text that is not a JSON object, "" if it is one."""
    try:
        value = gojson.loads(base64.b64decode(encoded))
    except gojson.JSONError as err:
        return str(err)
    return "" if value is None or isinstance(value, dict) else gojson.cannot_unmarshal(value, "map[string]interface {}")


def _validate(obj: Obj) -> list[FieldError]:
    meta, data, kind = obj["metadata"], obj.get("data") or {}, obj.get("type") or ""
    errs = object_meta(meta, True, names.dns_subdomain)
    if CHECK.passes(obj):
        return errs
    total = 0
    for key in sorted(data):
        messages = names.is_config_map_key(key)
        if messages:
            errs += [field.invalid(f"data[{key}]", key, m) for m in messages]
        total += decoded_length(data[key])
    if total > MAX_SIZE:
        errs.append(field.too_long("data", MAX_SIZE))
    if kind in ("Opaque", ""):
        return errs
    if kind == "kubernetes.io/service-account-token":
        if not (meta.get("annotations") or {}).get(SERVICE_ACCOUNT_NAME):
            errs.append(field.required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]"))
    elif kind in _JSON_KEYS:
        key = _JSON_KEYS[kind]
        if key not in data:
            errs.append(field.required(f"data[{key}]"))
        else:
            message = _json_error(data[key] or "")
            if message:
                errs.append(field.invalid(f"data[{key}]", REDACTED, message))
    elif kind == "kubernetes.io/basic-auth":
        if "username" not in data and "password" not in data:
            errs += [field.required("data[username]"), field.required("data[password]")]
    elif kind == "kubernetes.io/ssh-auth":
        if not data.get("ssh-privatekey"):
            errs.append(field.required("data[ssh-privatekey]"))
    elif kind == "kubernetes.io/tls":
        errs += [field.required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]
    return errs


def _skipped(types: list[str]) -> str:
    return f"after skipping PEM blocks of the following types: [{' '.join(types)}]"


def _tls_warnings(obj: Obj) -> list[str]:
    """Return the error of a key that does not belong to its certificate (``tls.X509KeyPair``)."""
    if obj.get("type") != "kubernetes.io/tls":
        return []
    data = obj.get("data") or {}
    certificate, key = (base64.b64decode(data.get(k) or "") for k in ("tls.crt", "tls.key"))
    blocks = list(pem_blocks(certificate))
    found = [block.kind for block in blocks]
    if not found:
        return ["tls: failed to find any PEM data in certificate input"]
    if "CERTIFICATE" not in found:
        if len(found) == 1 and found[0].endswith("PRIVATE KEY"):
            switched = "but did find a private key; PEM inputs may have been switched"
            return [f"tls: failed to find certificate PEM data in certificate input, {switched}"]
        return [f'tls: failed to find "CERTIFICATE" PEM block in certificate input {_skipped(found)}']
    found = [block.kind for block in pem_blocks(key)]
    if not found:
        return ["tls: failed to find any PEM data in key input"]
    if not any(kind == "PRIVATE KEY" or kind.endswith(" PRIVATE KEY") for kind in found):
        if found == ["CERTIFICATE"]:
            return ["tls: found a certificate rather than a key in the PEM for the private key"]
        return [f'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input {_skipped(found)}']
    from cryptography import x509

    try:
        read = x509.load_der_x509_certificate(next(b.der for b in blocks if b.kind == "CERTIFICATE"))
        if not known(read):
            return ["tls: unknown public key algorithm"]
        public = public_key(read)
    except unreadable() as err:
        return [f"x509: malformed certificate: {err}"]
    try:
        private = private_key(key)
    except ValueError:
        return ["tls: failed to parse private key"]
    if private.public_key() != public:
        return ["tls: private key does not match public key"]
    return []


@strategy_for("", "secrets")
class SecretStrategy(Strategy):
    """Secrets; the immutable type determines the required keys, and an immutable secret cannot become mutable."""

    validates_metadata = True

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the type if the request omits it."""
        super().prepare_for_update(ctx, obj, old)
        if not obj.get("type") and old.get("type"):
            obj["type"] = old["type"]

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateSecret``: keys, total size in bytes, and the requirements of the type."""
        return _validate(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateSecretUpdate``: the type may not change, nor the data of an immutable secret."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if (obj.get("type") or "") != (old.get("type") or ""):
            errs.append(field.invalid("type", obj.get("type") or "", "field is immutable"))
        return errs + frozen_fields(obj, old, "data") + _validate(obj)

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning if certificate and key of a TLS secret do not match."""
        return _tls_warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return _tls_warnings(obj)


@defaults_for("", "v1", "Secret")
def default_secret(obj: Obj) -> None:
    """Move the write-only stringData into data."""
    strings = obj.pop("stringData", None)
    if strings:
        data = obj.get("data")
        if data is None:
            data = obj["data"] = {}
        for key, text in strings.items():
            data[key] = base64.b64encode(text.encode()).decode()


@printer("", "Secret")
def secret_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, type, number of keys, age."""
    return [obj["metadata"].get("name", ""), obj.get("type", ""), len(obj.get("data") or ()), age(obj, now)]
