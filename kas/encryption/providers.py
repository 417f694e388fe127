"""Builds the transformers of each resource from a configuration.

Upstream: ``getTransformerOverridesAndKMSPluginProbes`` of ``apiserver/pkg/server/options/encryptionconfig/config.go``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from kas.encryption import ciphers
from kas.encryption.ciphers import SealError
from kas.encryption.configuration import V1, decoded, group_resource
from kas.encryption.observed import FROM, TO, Observed
from kas.encryption.union import Opener, Union
from kas.meta.field import go_quote
from kas.types.configfile import ConfigurationError

Obj = dict[str, Any]
GroupResource = tuple[str, str]  # ("apps", "deployments"); "*" matches any
Members = list[tuple[bytes, Opener]]

NO_PREFIX = "no matching prefix found"
KMS_V1_OFF = (
    "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use "
    "the deprecated KMSv1 feature."
)
_AES = "no matching key was found for the provided AES transformer"
_KEYED: dict[str, tuple[Callable[[bytes], Opener], str]] = {
    "aesgcm": (ciphers.AESGCM, _AES),
    "aescbc": (ciphers.AESCBC, _AES),
    "secretbox": (ciphers.Secretbox, "no matching key was found for the provided Secretbox transformer"),
}


class Plugins(Protocol):
    """Creates the providers that use a KMS plug-in."""

    def provider(self, kms: Obj) -> Opener:
        """Returns the provider of a validated, defaulted KMS configuration; one for each name. Raises ConfigurationError."""
        ...


class Sealing:
    """The ``Transformer`` of the store for the values of one resource."""

    def __init__(self, resource: GroupResource, members: Members, observed: Observed) -> None:
        self._union, self._observed = Union(NO_PREFIX, members), observed
        self._resource = shown(resource)
        self._prefix = members[0][0].decode()
        self.plain = not self._prefix
        self.refuses_plain = "" if any(not prefix for prefix, _ in members) else NO_PREFIX
        self.waits = any(getattr(member, "waits", False) for _, member in members)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """See ``kas/store/transform.py``."""
        began, ok = time.perf_counter(), False
        try:
            sealed = self._union.seal(plain, key)
            ok = True
            return sealed
        finally:
            self._observed.value(self._resource, TO, self._prefix, began, ok)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """See ``kas/store/transform.py``."""
        began = time.perf_counter()
        try:
            plain, stale, prefix = self._union.open_with(sealed, key)
        except SealError:
            self._observed.value(self._resource, FROM, self._union.claims(sealed) or "unknown", began, False)
            raise
        self._observed.value(self._resource, FROM, prefix.decode() or "identity", began, True)
        return plain, stale

    def key_of(self, sealed: bytes) -> bytes:
        """See ``kas/store/transform.py``."""
        return self._union.key_of(sealed)

    def writes_with(self, key: bytes) -> bool:
        """See ``kas/store/transform.py``."""
        return self._union.writes_with(key)


def build(resources: list[Obj], plugins: Plugins, kms_v1: bool) -> dict[GroupResource, Members]:
    """Returns the providers of each resource, with their prefixes; several rules for one resource are combined. Raises
    ConfigurationError."""
    members: dict[GroupResource, Members] = {}
    for rule in resources:
        made = [_provider(provider, plugins, kms_v1) for provider in rule["providers"]]
        for name in rule["resources"]:
            wanted = group_resource(name)
            for mask in ((wanted[0], "*"), ("*", "*")):
                if mask in members:
                    why = f"resource {go_quote(shown(wanted))} is masked by earlier rule {go_quote(shown(mask))}"
                    raise ConfigurationError(f"error while building transformers: {why}")
            members.setdefault(wanted, []).extend(made)
    return members


def shown(resource: GroupResource) -> str:
    """Returns a resource as a configuration names it: ``deployments.apps``, ``secrets``, ``*.``."""
    group, name = resource
    return "*." if resource == ("", "*") else f"{name}.{group}" if group else name


def _provider(provider: Obj, plugins: Plugins, kms_v1: bool) -> tuple[bytes, Opener]:
    if "kms" in provider:
        kms = provider["kms"]
        if kms["apiVersion"] == V1 and not kms_v1:
            raise ConfigurationError(f"error while building transformers: {KMS_V1_OFF}")
        return f"k8s:enc:kms:{kms['apiVersion']}:{kms['name']}:".encode(), plugins.provider(kms)
    for name, (cipher, missing) in _KEYED.items():
        if name in provider:
            keys = provider[name]["keys"]
            union = Union(missing, [(k["name"].encode() + b":", cipher(decoded(k["secret"]) or b"")) for k in keys])
            return f"k8s:enc:{name}:v1:".encode(), union
    return b"", ciphers.Identity()


def find(members: dict[GroupResource, Members], resource: GroupResource) -> Members | None:
    """Returns the rule for a resource: its own, that of its group, or that of all; None if there is none."""
    return members.get(resource) or members.get((resource[0], "*")) or members.get(("*", "*"))
