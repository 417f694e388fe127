"""ImagePolicyWebhook: an external service decides about images.

Its configuration (``imagePolicy``) names the kubeconfig of the service, relative to the working directory, as upstream. A server with the
plug-in enabled but no configuration does not start. Answers are cached by request, with separate lifetimes for allowed and denied ones.
``defaultAllow`` decides if there is no answer; then the audit annotation ``failed-open`` is set. Upstream also sets an annotation on the
pod, which is never stored there, because validation works on a copy; so there is none here.

Upstream: ``plugin/pkg/admission/imagepolicy``.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from typing import Any

import orjson

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission.configuration import Section, unversioned
from kas.client.kubeconfig import Backend, KubeconfigError, load
from kas.client.webhook import Webhook, WebhookError
from kas.meta.names import is_qualified_name
from kas.meta.scalars import format_duration
from kas.observe.caches import Cache
from kas.types.configfile import BOOL, INT64, STRING, ConfigurationError, Struct

log = logging.getLogger("kas.admission.imagepolicy")

Obj = dict[str, Any]
CACHE_BYTES, LONGEST_ANSWER = 4 << 20, 16 << 10
AUDIT = "imagepolicywebhook.image-policy.k8s.io/"
API_VERSION, KIND = "imagepolicy.k8s.io/v1alpha1", "ImageReview"
SHAPE = Struct("AdmissionConfig", {"imagePolicy": Struct("imagePolicyWebhookConfig", {
    "kubeConfigFile": STRING, "allowTTL": INT64, "denyTTL": INT64, "retryBackoff": INT64, "defaultAllow": BOOL,
})})  # fmt: skip

MILLISECOND, SECOND = 10**6, 10**9
# (unit, minimum, maximum), in nanoseconds.
TTL = (SECOND, SECOND, 30 * 60 * SECOND)
BACKOFF = (MILLISECOND, 1, 5 * 60 * SECOND)


def _seconds(value: int, bounds: tuple[int, int, int], default: int) -> float:
    """Return a duration in seconds (``normalizeConfigDuration``): 0 means the default, -1 none. Raises ConfigurationError."""
    if value == -1:
        return 0.0
    unit, low, high = bounds
    if value:
        value *= unit
        if not low <= value <= high:
            bad, least, most = (format_duration(v) for v in (value, low, high))
            raise ConfigurationError(f"valid value is between {least} and {most}, got {bad}")
    return (value or default) / SECOND


class Plugin:
    """Applies to pods and their ephemeral containers; calls the configured service."""

    name = "ImagePolicyWebhook"

    def __init__(self, section: Section | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        backend, backoff_s, self._ttl_s, self._default_allow = self.configured(section)
        self._webhook = Webhook(backend, backoff_s)
        self._clock = clock
        self._answers: Cache[bytes, tuple[float, Obj]] = Cache(
            "image_reviews", "what the image policy backend answered", CACHE_BYTES, LONGEST_ANSWER
        )

    @staticmethod
    def configured(section: Section | None) -> tuple[Backend, float, dict[bool, float], bool]:
        """Return the service, the initial retry delay, the cache lifetimes of allowing (True) and denying answers in seconds, and whether
        to allow without an answer. Raises ConfigurationError."""
        if section is None:
            raise ConfigurationError("no config specified")
        config = unversioned(section, SHAPE).get("imagePolicy") or {}
        backoff_s = _seconds(config.get("retryBackoff") or 0, BACKOFF, 500 * MILLISECOND)
        ttl_s = {
            True: _seconds(config.get("allowTTL") or 0, TTL, 5 * 60 * SECOND),
            False: _seconds(config.get("denyTTL") or 0, TTL, 30 * SECOND),
        }
        try:
            return load(config.get("kubeConfigFile") or ""), backoff_s, ttl_s, config.get("defaultAllow") or False
        except KubeconfigError as e:
            raise ConfigurationError(str(e)) from None

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of pods, and ephemeral containers."""
        return (
            a.operation in (CREATE, UPDATE) and a.resource == "pods" and not a.group and a.subresource in ("", "ephemeralcontainers")
        )

    async def validate(self, a: Attributes) -> None:
        """Refuse images that the service does not allow. If it does not answer, ``defaultAllow`` decides. Answers are cached."""
        question = self._question(a)
        key = hashlib.sha256(orjson.dumps(question, option=orjson.OPT_SORT_KEYS)).digest()
        status = self._remembered(key)
        if status is None:
            try:
                status = await self._ask(question)
            except WebhookError as e:
                log.info("error contacting webhook backend: %s", e)
                if not self._default_allow:
                    raise a.forbid(str(e)) from None
                a.annotate(AUDIT + "failed-open", "true")
                return
            self._remember(key, status)
        for name, value in (status.get("auditAnnotations") or {}).items():
            if is_qualified_name(AUDIT + name):
                log.warning("failed to set admission audit annotation %s: it is no qualified name", AUDIT + name)
            else:
                a.annotate(AUDIT + name, value)
        if not status.get("allowed"):
            reason = status.get("reason")
            if reason:
                raise a.forbid(f"image policy webhook backend denied one or more images: {reason}")
            raise a.forbid("one or more images rejected by webhook backend")

    @staticmethod
    def _question(a: Attributes) -> Obj:
        spec = a.obj.get("spec") or {}
        out: Obj = {}
        kinds = ("ephemeralContainers",) if a.subresource else ("containers", "initContainers")
        images = [c.get("image") or "" for kind in kinds for c in spec.get(kind) or ()]
        if images:
            out["containers"] = [{"image": image} if image else {} for image in images]
        annotations = a.obj["metadata"].get("annotations") or {}
        annotations = {k: annotations[k] for k in sorted(annotations) if ".image-policy.k8s.io/" in k}
        if annotations:
            out["annotations"] = annotations
        if a.namespace:
            out["namespace"] = a.namespace
        return out

    async def _ask(self, spec: Obj) -> Obj:
        review = {"kind": KIND, "apiVersion": API_VERSION, "metadata": {}, "spec": spec, "status": {"allowed": False}}
        answer = await self._webhook.post(review)
        kind, version = answer.get("kind") or KIND, answer.get("apiVersion") or API_VERSION
        if (kind, version) != (KIND, API_VERSION):
            raise WebhookError(f'no kind "{kind}" is registered for version "{version}"')
        status = answer.get("status") or {}
        wrong = not isinstance(status, dict) or not isinstance(status.get("allowed") or False, bool)
        wrong = wrong or not isinstance(status.get("reason") or "", str) or not isinstance(status.get("auditAnnotations") or {}, dict)
        if wrong or not all(isinstance(v, str) for v in (status.get("auditAnnotations") or {}).values()):
            raise WebhookError("the status of the ImageReview that the webhook answered is malformed")
        return status

    # --- cache of answers

    def _remembered(self, key: bytes) -> Obj | None:
        found = self._answers.entries.get(key)
        if found is None or self._clock() >= found[0]:
            return None
        return found[1]

    def _remember(self, key: bytes, status: Obj) -> None:
        ttl_s = self._ttl_s[bool(status.get("allowed"))]
        if not ttl_s:
            return
        self._answers.put(key, (self._clock() + ttl_s, status), len(key) + len(orjson.dumps(status)))
