"""From a configuration to what seals and opens the values of each resource (``encryptionconfig.getTransformerOverridesAndKMSPluginProbes``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kas.encryption import ciphers
from kas.encryption.configuration import V1, decoded, group_resource
from kas.encryption.union import Opener, Union
from kas.meta.field import go_quote
from kas.types.configfile import ConfigurationError

Obj = dict[str, Any]
GroupResource = tuple[str, str]  # ("apps", "deployments"); "*" stands for any

NO_PREFIX = "no matching prefix found"
KMS_V1_OFF = (
    "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use "
    "the deprecated KMSv1 feature."
)
_KEYED: dict[str, tuple[Callable[[bytes], Opener], str]] = {
    "aesgcm": (ciphers.AESGCM, "no matching key was found for the provided AES transformer"),
    "aescbc": (ciphers.AESCBC, "no matching key was found for the provided AES transformer"),
    "secretbox": (ciphers.Secretbox, "no matching key was found for the provided Secretbox transformer"),
}


class Plugins(Protocol):
    """Where the providers come from that ask a KMS plug-in."""

    def provider(self, kms: Obj) -> Opener:
        """The provider of a checked, defaulted KMS configuration; one for each name."""
        ...


class Provided:
    """What a resource's values pass on their way to the store and back: a ``Transformer`` of the store.

    ``plain`` says whether values are stored as they are, ``reads_plain`` whether such values are taken.
    """

        self._union = Union(NO_PREFIX, members)
        self.plain = not members[0][0]
        self.reads_plain = any(not prefix for prefix, _ in members)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """See ``kas/store/transform.py``."""
        return self._union.seal(plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """See ``kas/store/transform.py``."""
        return self._union.open(sealed, key)


def build(resources: list[Obj], plugins: Plugins, kms_v1: bool) -> dict[GroupResource, Provided]:
    """What is configured for each resource; several rules for one resource add up. Raises ConfigurationError."""
    members: dict[GroupResource, list[tuple[bytes, Opener]]] = {}
    for rule in resources:
        made = [_provider(provider, plugins, kms_v1) for provider in rule["providers"]]
        for name in rule["resources"]:
            wanted = group_resource(name)
            for mask in ((wanted[0], "*"), ("*", "*")):
                if mask in members:
                    why = f"resource {go_quote(_shown(wanted))} is masked by earlier rule {go_quote(_shown(mask))}"
                    raise ConfigurationError(f"error while building transformers: {why}")
            members.setdefault(wanted, []).extend(made)
    return {wanted: Provided(listed) for wanted, listed in members.items()}


def _shown(wanted: GroupResource) -> str:
    group, resource = wanted
    return "*." if wanted == ("", "*") else f"{resource}.{group}" if group else resource


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


def find(provided: dict[GroupResource, Provided], group: str, resource: str) -> Provided | None:
    """What holds for a resource: its own rule, that of its group, that of all; None without any."""
    return provided.get((group, resource)) or provided.get((group, "*")) or provided.get(("*", "*"))
