"""Secrets with a service-account token (``pkg/controller/serviceaccount/tokens_controller.go``).

A Secret of type ``kubernetes.io/service-account-token`` names an account in an annotation. ``Tokens`` fills in a token that never
expires, the cluster's CA and the namespace, and deletes the Secret if the account is gone or was replaced by another of the same name.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from kas.auth.credentials import ServiceAccountKeys
from kas.auth.tokens import legacy_claims
from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.meta.stored import object_of
from kas.registry.registries import Registries
from kas.registry.strategy import Obj
from kas.store import Event, Record

TYPE = "kubernetes.io/service-account-token"
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
USER = "system:serviceaccount:kube-system:token-controller"
# (what to examine, namespace, name): "all" Secrets, one of "secrets", the Secrets of one of "serviceaccounts", or "reference ACCOUNT",
# that account's reference to a deleted Secret.
Item = tuple[str, str, str]


class Tokens:
    """Fills Secrets of type kubernetes.io/service-account-token, and deletes those whose account is gone."""

    name = "serviceaccount-token-controller"

    def __init__(self, registries: Registries, keys: ServiceAccountKeys, root_ca: Path) -> None:
        self.client = Client(registries, "kube-controller-manager", USER)
        self.accounts, self.secrets = registries.of("", "serviceaccounts"), registries.of("", "secrets")
        self.queue = WorkQueue(self._sync, self.name)
        self._keys, self._ca = keys, root_ca
        self._of_account: dict[tuple[str, str], set[str]] = {}  # names of Secrets by their account's (namespace, name)

    async def run(self) -> None:
        """Follow Secrets and service accounts until cancelled."""
        secrets = self.client.reflector(self.secrets.root, self._secret_events, self._replaced, lists=False)
        accounts = self.client.reflector(self.accounts.root, self._account_events, self._replaced, lists=False)
        await follow(self.queue, [secrets, accounts])

    def _replaced(self, records: Sequence[Record]) -> None:
        self.queue.add(("all", "", ""))

    def _secret_events(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.previous is not None and TYPE.encode() in e.previous.json:
                namespace, name = split_key(self.secrets, e.key)
                account = account_of(object_of(e.previous))
                if account:
                    self._forgotten((namespace, account), name)
                    if e.record is None:
                        self.queue.add((f"reference {account}", namespace, name))
            if e.record is not None:
                self._look(e.key, e.record)

    def _account_events(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.record is None:
                self.queue.add(("serviceaccounts", *split_key(self.accounts, e.key)))

    def _look(self, key: str, rec: Record) -> None:
        account = account_of(object_of(rec)) if TYPE.encode() in rec.json else ""
        if account:
            namespace, name = split_key(self.secrets, key)
            self._of_account.setdefault((namespace, account), set()).add(name)
            self.queue.add(("secrets", namespace, name))

    def _forgotten(self, account: tuple[str, str], secret: str) -> None:
        found = self._of_account.get(account, set())
        found.discard(secret)
        if not found:
            self._of_account.pop(account, None)

    async def _sync(self, item: Item) -> None:
        what, namespace, name = item
        if what == "secrets":
            await self._secret(namespace, name)
        elif what == "serviceaccounts":
            # Secrets that are not known yet are examined when all are read.
            for secret in sorted(self._of_account.get((namespace, name), ())):
                await self._secret(namespace, secret)
        elif what == "all":
            self._of_account.clear()
            async for rec in self.client.paced(self.secrets.root):
                self._look(rec.key, rec)
        else:
            await self._forget(namespace, what.removeprefix("reference "), name)

    async def _secret(self, namespace: str, name: str) -> None:
        secret = self.client.get("", "secrets", namespace, name)
        if secret is None or not account_of(secret):
            return
        uid, account = secret["metadata"].get("uid", ""), self._account(secret)
        if account is None:  # according to the local view
            await self.client.rest_fresh(self.secrets.root, (self.accounts.root,))
            account = self._account(secret)
        if account is None:
            await self.client.delete(self.secrets, namespace, name, uid)
        elif self._lacks(secret):
            await self.client.update(self.secrets, namespace, name, lambda live: self._fill(live, account), uid=uid)

    async def _forget(self, namespace: str, account: str, secret: str) -> None:
        """Remove the reference to a deleted Secret from its account."""

        def change(live: Obj) -> bool:
            listed = live.get("secrets") or []
            left = [ref for ref in listed if ref.get("name") != secret]
            if len(left) == len(listed) or self.client.get("", "secrets", namespace, secret) is not None:
                return False
            live["secrets"] = left
            return True

        await self.client.update(self.accounts, namespace, account, change)

    def _account(self, secret: Obj) -> Obj | None:
        """Return the account of a Secret; None if it does not exist or was created after the Secret."""
        meta = secret["metadata"]
        account = self.client.get("", "serviceaccounts", meta["namespace"], account_of(secret))
        uid = (meta.get("annotations") or {}).get(UID)
        return None if account is None or (uid and uid != account["metadata"].get("uid")) else account

    def _lacks(self, secret: Obj) -> bool:
        data = secret.get("data") or {}
        return not data.get("token") or not data.get("namespace") or data.get("ca.crt") != _encoded(self._ca.read_bytes())

    def _fill(self, secret: Obj, account: Obj) -> bool:
        if account_of(secret) != account["metadata"]["name"] or not self._lacks(secret):
            return False
        meta, data = secret["metadata"], secret.setdefault("data", {})
        data["ca.crt"] = _encoded(self._ca.read_bytes())
        if not data.get("namespace"):
            data["namespace"] = _encoded(meta["namespace"].encode())
        if not data.get("token"):
            data["token"] = _encoded(self._keys.own_signer.sign(legacy_claims(account, secret)).encode())
        meta.setdefault("annotations", {})[UID] = account["metadata"].get("uid", "")
        return True


def account_of(secret: Obj) -> str:
    """Return the name of the account to which a token Secret belongs; "" for other Secrets."""
    return (secret["metadata"].get("annotations") or {}).get(NAME, "") if secret.get("type") == TYPE else ""


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
