"""Type stubs of the review texts; guarantees are documented at the functions, the design in ``_texts.pxd``."""

from collections.abc import Callable
from typing import Any

from kas.admission import Attributes
from kas.admission.matching import GVK, Invocation
from kas.admission.versioned import Versioned
from kas.admission.webhook.calling import Webhooks
from kas.admission.webhook.hooks import Hook
from kas.observe.metrics import Counter

class Texts:
    def __init__(self, begin: bytes, most: int) -> None: ...
    def request(self, a: Attributes, shown: Invocation, own: GVK, uid: str, obj: bytes | None, old: bytes | None) -> bytes: ...
    def keep(self, before: bytes, after: bytes, found: Any) -> None: ...
    def response(self, body: bytes, uid: str) -> Any: ...

class Allowed:
    def __init__(self, requests: Counter) -> None: ...
    def allowed(self, name: str, operation: str, seconds: float) -> None: ...

async def only(
    webhooks: Webhooks, a: Attributes, objects: Versioned, hook: Hook, invocation: Invocation, refused: Callable[[Exception, float], None]
) -> None: ...
