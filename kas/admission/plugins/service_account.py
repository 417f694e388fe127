"""ServiceAccount: a pod runs as an existing account, and gets its pull secrets and a token for the API.

Upstream: ``plugin/pkg/admission/serviceaccount/admission.go``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission import pods as pod_objects
from kas.informers import Informers
from kas.meta.field import go_quote
from kas.meta.random import random_suffix

Obj = dict[str, Any]
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME_PREFIX = "kube-api-access-"
ENFORCE_MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"
DEFAULT = "default"
# Together about as long as upstream's ten attempts.
TRIES, PAUSE_S = 27, 0.05
TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))  # the values that strconv.ParseBool accepts
# A little more than an hour: clients distinguish such a token from one that was requested explicitly.
TOKEN_EXPIRATION_S = 3607


class Plugin:
    """Applies to new pods and new ephemeral containers; reads their ServiceAccount."""

    name = "ServiceAccount"

    def __init__(self, informers: Informers) -> None:
        self._accounts = informers.lister("", "serviceaccounts", _relevant)

    def handles(self, a: Attributes) -> bool:
        """Handle creates of pods, and updates of their ephemeral containers."""
        if a.group or a.resource != "pods":
            return False
        return (a.operation == CREATE and not a.subresource) or (a.operation == UPDATE and a.subresource == "ephemeralcontainers")

    def admit(self, a: Attributes) -> Awaitable[None] | None:
        """Set a new pod's account, pull secrets and token; mirror pods are only checked. Returns an awaitable if the default account is
        missing."""
        if a.operation != CREATE:
            return None
        pod = a.obj
        if pod_objects.is_mirror(pod):
            # The kubelet compares a mirror pod with its file: it is validated, never changed.
            _check_mirror(a)
            return None
        spec = pod["spec"]
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = DEFAULT
        name = spec["serviceAccount"] = spec["serviceAccountName"]
        account = self._accounts.namespace(a.namespace).get(name)
        if account is None and name == DEFAULT:
            return self._wait_for_default(a, spec)
        self._complete(a, spec, account or self._account(a, name))
        return None

    async def _wait_for_default(self, a: Attributes, spec: Obj) -> None:
        """Wait for the default account: a new namespace gets it at any moment, and its first pod must not fail for being early."""
        for _ in range(TRIES):
            await asyncio.sleep(PAUSE_S)
            if DEFAULT in self._accounts.namespace(a.namespace):
                break
        self._complete(a, spec, self._account(a, DEFAULT))

    def _complete(self, a: Attributes, spec: Obj, account: Obj) -> None:
        if _automounts(spec, account):
            _mount_token(spec)
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": s.get("name") or ""} for s in account["imagePullSecrets"]]
            a.adds(len(spec["imagePullSecrets"]))
        self._check_secrets(a, account, spec)

    def validate(self, a: Attributes) -> None:
        """Refuse a pod without an account, or with secrets that its account does not allow."""
        spec = a.obj["spec"]
        if a.operation == UPDATE:
            if spec.get("ephemeralContainers"):
                account = self._account(a, spec.get("serviceAccountName") or "")
                if account["enforces"]:
                    _refuse_first(a, _foreign_ephemeral(account, spec))
            return
        if pod_objects.is_mirror(a.obj):
            _check_mirror(a)
            return
        if not spec.get("serviceAccountName"):
            raise a.forbid(f"no service account specified for pod {a.namespace}/{a.obj['metadata'].get('name', '')}")
        self._check_secrets(a, self._account(a, spec["serviceAccountName"]), spec)

    def _account(self, a: Attributes, name: str) -> Obj:
        account = self._accounts.namespace(a.namespace).get(name)
        if account is None:
            raise a.forbid(f'error looking up service account {a.namespace}/{name}: serviceaccount "{name}" not found')
        return account

    def _check_secrets(self, a: Attributes, account: Obj, spec: Obj) -> None:
        if account["enforces"]:
            _refuse_first(a, _foreign_secrets(account, spec))


def _relevant(account: Obj) -> Obj:
    """Return only the fields of an account that the checks use, since there may be many accounts."""
    meta = account["metadata"]
    out = {key: account[key] for key in ("automountServiceAccountToken", "imagePullSecrets", "secrets") if account.get(key) is not None}
    out["name"] = meta["name"]
    out["enforces"] = (meta.get("annotations") or {}).get(ENFORCE_MOUNTABLE_SECRETS) in TRUE
    return out


def _automounts(spec: Obj, account: Obj) -> bool:
    for source in (spec, account):
        if source.get("automountServiceAccountToken") is not None:
            return source["automountServiceAccountToken"]
    return True


def _mount_token(spec: Obj) -> None:
    volumes = spec.get("volumes") or []
    names = [v["name"] for v in volumes if v.get("name", "").startswith(VOLUME_PREFIX)]
    name = names[0] if names else VOLUME_PREFIX + random_suffix()
    needed = False
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            mounts = container.get("volumeMounts") or []
            if MOUNT_PATH in [m.get("mountPath") for m in mounts]:
                continue
            container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}]
            needed = True
    if needed and not names:
        spec["volumes"] = [*volumes, {"name": name, "projected": token_source()}]


def token_source() -> Obj:
    """Return the volume with a token, the cluster's CA and the pod's namespace."""
    field_ref = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_EXPIRATION_S, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field_ref}]}},
        ],
        "defaultMode": 0o644,
    }


def _check_mirror(a: Attributes) -> None:
    spec = a.obj["spec"]
    if spec.get("serviceAccountName"):
        raise a.forbid("a mirror pod may not reference service accounts")
    if next(pod_objects.secret_names(spec), None) is not None:
        raise a.forbid("a mirror pod may not reference secrets")
    if next(pod_objects.config_map_names(spec), None) is not None:
        raise a.forbid("a mirror pod may not reference configmaps")
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                raise a.forbid("a mirror pod may not use ServiceAccountToken volume projections")


def _refuse_first(a: Attributes, found: Iterator[str]) -> None:
    for text in found:
        raise a.forbid(text)


def _foreign_secrets(account: Obj, spec: Obj) -> Iterator[str]:
    own = {s.get("name") or "" for s in account.get("secrets") or ()}
    who = account["name"]
    for volume in spec.get("volumes") or ():
        secret = (volume.get("secret") or {}).get("secretName")
        if volume.get("secret") is not None and secret not in own:
            because = f"is not allowed because service account {who} does not reference that secret"
            yield f"volume with secret.secretName={_raw(secret)} {because}"
    for kind, title in (("initContainers", "init container"), ("containers", "container")):
        for container in spec.get(kind) or ():
            yield from _foreign_env(container, title, own, who)
    pull = {s.get("name") or "" for s in account.get("imagePullSecrets") or ()}
    for i, ref in enumerate(spec.get("imagePullSecrets") or ()):
        if (ref.get("name") or "") not in pull:
            yield (
                f"imagePullSecrets[{i}].name={_raw(ref.get('name'))} is not allowed because service account {who} does not "
                "reference that imagePullSecret"
            )


def _foreign_ephemeral(account: Obj, spec: Obj) -> Iterator[str]:
    own = {s.get("name") or "" for s in account.get("secrets") or ()}
    for container in spec.get("ephemeralContainers") or ():
        yield from _foreign_env(container, "ephemeral container", own, account["name"])


def _foreign_env(container: Obj, title: str, own: set[str], who: str) -> Iterator[str]:
    because = f"is not allowed because service account {who} does not reference that secret"
    name = container.get("name", "")
    for env in container.get("env") or ():
        ref = (env.get("valueFrom") or {}).get("secretKeyRef")
        if ref is not None and (ref.get("name") or "") not in own:
            yield f"{title} {name} with envVar {env.get('name', '')} referencing secret.secretName={_raw(ref.get('name'))} {because}"
    for source in container.get("envFrom") or ():
        ref = source.get("secretRef")
        if ref is not None and (ref.get("name") or "") not in own:
            yield f"{title} {name} with envFrom referencing secret.secretName={_raw(ref.get('name'))} {because}"


def _raw(text: str | None) -> str:
    return go_quote(text or "")
