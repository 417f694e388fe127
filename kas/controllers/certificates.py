"""CertificateSigningRequests: signs approved ones, approves those of authorized kubelets, and removes finished ones.

Upstream: ``pkg/controller/certificates/{signer,approver,cleaner}``.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import logging
from typing import TYPE_CHECKING, Any

from kas.auth.attributes import ALLOW, Attributes, Authorizer
from kas.auth.user import UserInfo
from kas.controllers.client import Client
from kas.controllers.queue import WorkQueue, follow
from kas.informers.reflector import split_key
from kas.meta.offload import LARGE, step
from kas.meta.pem import unreadable
from kas.meta.stored import object_of
from kas.meta.waiting import awaited
from kas.registry.registries import Registries
from kas.registry.strategy import Obj
from kas.store import Record

if TYPE_CHECKING:
    from cryptography.x509 import CertificateSigningRequest

    from kas.controllers.signing import Authority

log = logging.getLogger("kas.controllers")

GROUP, RESOURCE = "certificates.k8s.io", "certificatesigningrequests"
CLEAN_EVERY_S = 3600.0
DONE, PENDING = datetime.timedelta(hours=1), datetime.timedelta(hours=24)
APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 1000.0


def condition(obj: Obj, kind: str) -> Obj | None:
    """Return the condition of that type if it is True, else None."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind and c.get("status") == "True"), None)


def certificate(obj: Obj) -> bytes:
    """Return the issued certificate (PEM), b"" if there is none yet."""
    return base64.b64decode((obj.get("status") or {}).get("certificate") or "")


class _Requests:
    """A control loop over certificate requests. A request that cannot be decided yet is retried with growing delays, as upstream
    (``certificate_controller.go``)."""

    name = ""

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, self.name, "system:serviceaccount:kube-system:certificate-controller")
        self.registry = registries.of(GROUP, RESOURCE)
        self.queue = WorkQueue(self._sync, self.name)
        self._tried: dict[str, int] = {}  # number of failed attempts for existing requests

    async def run(self) -> None:
        """Follow the requests until cancelled."""
        await follow(self.queue, [self.client.each(self.registry.root, self._look)])

    def _look(self, record: Record) -> None:
        self.queue.add(split_key("", record.key)[1])

    async def _sync(self, name: str) -> float | None:
        obj = self.client.get(GROUP, RESOURCE, "", name)
        if obj is None or certificate(obj) or await self.handle(obj):
            self._tried.pop(name, None)
            return None
        tried = self._tried[name] = self._tried.get(name, 0) + 1
        return min(FIRST_PAUSE_S * 2.0 ** min(tried - 1, 30), LONGEST_PAUSE_S)

    async def handle(self, obj: Obj) -> bool:
        """Process a request without a certificate; return whether nothing more is to be done while it stays unchanged."""
        raise NotImplementedError

    async def request(self, obj: Obj) -> CertificateSigningRequest | None:
        """Return the parsed request; if it is invalid, log that and return None."""
        from kas.controllers.signing import request_of  # imports the X.509 library: 4 MiB that only some servers need

        text = (obj.get("spec") or {}).get("request") or ""
        try:
            return await step(len(text) >= LARGE, request_of, base64.b64decode(text))
        except ValueError as e:
            log.error("unable to parse csr %s: %s", obj["metadata"]["name"], e)
            return None

    async def write(self, obj: Obj, subresource: str, status: Obj) -> None:
        """Merge ``status`` into the stored status, unless its conditions were changed concurrently; then the request is processed
        again."""
        seen = (obj.get("status") or {}).get("conditions")

        def change(current: Obj) -> bool:
            if (current.get("status") or {}).get("conditions") != seen or certificate(current):
                return False
            current["status"] = {**(current.get("status") or {}), **status}
            return True

        meta = obj["metadata"]
        await self.client.update(self.registry, "", meta["name"], change, subresource, meta.get("uid", ""))

    def _with(self, obj: Obj, kind: str, reason: str, message: str) -> Obj:
        """Return a status with one more condition."""
        now = self.client.context().now
        added = {
            "type": kind, "status": "True", "reason": reason, "message": message, "lastUpdateTime": now, "lastTransitionTime": now,
        }  # fmt: skip
        return {"conditions": [*((obj.get("status") or {}).get("conditions") or ()), added]}


class Signing(_Requests):
    """Signs approved requests for Kubernetes' signers with this server's CA, which it trusts for clients."""

    name = "certificatesigningrequest-signing-controller"

    def __init__(self, registries: Registries, authority: Authority) -> None:
        super().__init__(registries)
        self._authority = authority

    async def handle(self, obj: Obj) -> bool:
        """Issue the certificate, or set a condition with the reason why not. Requests that are not approved, or are for other signers,
        are left alone. A CA that cannot sign now is retried later."""
        if not condition(obj, APPROVED) or condition(obj, DENIED) or condition(obj, FAILED):
            return True
        from kas.controllers.signing import SIGNERS  # see ``request``

        spec = obj.get("spec") or {}
        problem_of = SIGNERS.get(spec.get("signerName") or "")
        request = await self.request(obj) if problem_of is not None else None
        if problem_of is None or request is None:
            return True
        usages = spec.get("usages") or []
        problem = problem_of(request, usages)
        if problem:
            await self.write(obj, "status", self._with(obj, FAILED, "SignerValidationFailure", problem))
            return True
        try:
            issued = self._authority.sign(request, usages, spec.get("expirationSeconds"))
        except (OSError, ValueError) as e:
            log.error("cannot sign csr %s: %s", obj["metadata"]["name"], e)
            return False
        await self.write(obj, "status", {"certificate": base64.b64encode(issued).decode()})
        return True


class Approving(_Requests):
    """Approves client certificates of kubelets whose requester is authorized (``sarapprove.go``)."""

    name = "certificatesigningrequest-approving-controller"

    def __init__(self, registries: Registries, authorizer: Authorizer) -> None:
        super().__init__(registries)
        self._authorizer = authorizer

    async def handle(self, obj: Obj) -> bool:
        """Approve a kubelet's request for a client certificate, its own renewal or one for a joining node, if the authorizer allows it;
        otherwise retry later."""
        if condition(obj, APPROVED) or condition(obj, DENIED):
            return True
        from kas.controllers.signing import KUBELET_CLIENT, common_name, kubelet_client_problem  # see ``request``

        spec = obj.get("spec") or {}
        request = await self.request(obj) if spec.get("signerName") == KUBELET_CLIENT else None
        if request is None or kubelet_client_problem(request, spec.get("usages") or ()):
            return True
        user = UserInfo(spec.get("username") or "", spec.get("groups") or (), spec.get("uid") or "", spec.get("extra"))
        for subresource, what in (("selfnodeclient", "self kubelet"), ("nodeclient", "kubelet")):
            if subresource == "selfnodeclient" and user.name != common_name(request):
                continue
            question = Attributes(user, "create", "", GROUP, "*", RESOURCE, subresource)
            if (await awaited(self._authorizer.authorize(question)))[0] == ALLOW:
                message = f"Auto approving {what} client certificate after SubjectAccessReview."
                await self.write(obj, "approval", self._with(obj, APPROVED, "AutoApproved", message))
                return True
        return False


class Cleaner:
    """Removes finished requests: issued, denied and failed ones after an hour, pending ones after a day."""

    name = "certificatesigningrequest-cleaner-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, self.name, "system:serviceaccount:kube-system:certificate-controller")
        self.registry = registries.of(GROUP, RESOURCE)

    async def run(self) -> None:
        """Check every ``CLEAN_EVERY_S`` seconds until cancelled."""
        while True:
            now = datetime.datetime.now(datetime.UTC)
            async for rec in self.client.paced(self.registry.root):
                obj = object_of(rec)
                if is_over(obj, now):
                    await self.client.delete(self.registry, "", obj["metadata"]["name"], obj["metadata"].get("uid", ""))
            await asyncio.sleep(CLEAN_EVERY_S)


def is_over(obj: Obj, now: datetime.datetime) -> bool:
    """Return whether a request is finished at ``now``: decided an hour ago, expired, or undecided for a day."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    if not conditions:
        return now - _moment(obj["metadata"].get("creationTimestamp")) > PENDING
    issued = certificate(obj)
    for found in conditions:
        late = now - _moment(found.get("lastUpdateTime")) > DONE
        if found.get("type") in (DENIED, FAILED) and late:
            return True
        if found.get("type") == APPROVED and issued and (late or _expired(issued, now)):
            return True
    return False


def _moment(text: Any) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text) if text else datetime.datetime.now(datetime.UTC)


def _expired(issued: bytes, now: datetime.datetime) -> bool:
    from cryptography import x509  # see ``Signing``

    try:
        return x509.load_pem_x509_certificate(issued).not_valid_after_utc < now  # the first certificate: intermediates may expire earlier
    except unreadable():
        return False  # stored before certificates were validated
