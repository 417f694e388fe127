"""With a KMS plug-in that must be called for each value's key, no request calls it on the loop's thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kas.encryption.ciphers import AESGCM
from kas.encryption.kms.keys import Opened
from kas.encryption.kms.messages import DEKSource
from kas.endpoints.decryptahead import DecryptAhead
from tests.endpoints.inprocess import Api, whole

MAPS = "/api/v1/namespaces/ns/configmaps"
MERGE = "application/merge-patch+json"
KEY = b"k" * 32


class Asks:
    """A provider whose key depends on the value's place. Each use calls it, and answers are cached as briefly as possible."""

    plain, waits, refuses_plain = False, True, ""

    def __init__(self) -> None:
        self.loop = threading.get_ident()
        self.sealed_on_loop = self.asked_in = 0
        self.opened = Opened(lambda source, timeout_s: KEY, lambda source, key: AESGCM(key), "", 0)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        self.sealed_on_loop += threading.get_ident() == self.loop
        return AESGCM(KEY).seal(plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        if threading.get_ident() == self.loop:
            assert self.opened._known(DEKSource(key, "").digest()) is not None, f"the loop asks for the key of {key!r}"
        else:
            self.asked_in += 1
        return self.opened.get(DEKSource(key, "")).open(sealed, key)


@pytest.mark.parametrize("ask", [
    ("GET", f"{MAPS}/c1"), ("GET", MAPS), ("GET", f"{MAPS}?limit=2"), ("GET", f"{MAPS}?fieldSelector=metadata.name%3Dc2"),
    ("GET", "/api/v1/configmaps"),
    ("PATCH", f"{MAPS}/c1", {"data": {"a": "b"}}, MERGE), ("PUT", f"{MAPS}/c1", {"metadata": {"name": "c1"}, "data": {"a": "c"}}),
    ("DELETE", f"{MAPS}/c1"), ("DELETE", MAPS), ("GET", f"{MAPS}/nobody"), ("POST", MAPS, {"metadata": {"name": "new"}}),
], ids=str)  # fmt: skip
def test_the_plugin_is_never_called_on_the_loop(tmp_path, ask):
    async def main():
        asks = Asks()
        api = Api(tmp_path, transformers=lambda key: asks)
        api.rest.decrypt_ahead = DecryptAhead(lambda key: True)
        try:
            for i in range(5):
                assert (await api("POST", MAPS, {"metadata": {"name": f"c{i}"}}))[0] == 201
            asks.opened._opened_ahead.clear()  # as if a minute had passed
            asks.asked_in = 0
            resp = await api.request(*ask)
            body = await whole(resp)
            assert resp.status in (200, 201) or ("nobody" in ask[1] and resp.status == 404), body
            assert asks.sealed_on_loop == 0
            assert asks.asked_in or ask[0] == "POST" or resp.status == 404
        finally:
            api.rest.decrypt_ahead.close()
            asks.opened.close()
            api.close()

    asyncio.run(main())


def test_errors_are_reported_by_the_handler(tmp_path):
    async def main():
        asks = Asks()
        api = Api(tmp_path, transformers=lambda key: asks)
        api.rest.decrypt_ahead = DecryptAhead(lambda key: True)
        try:
            for path, code in ((f"{MAPS}?continue=x", 400), (f"{MAPS}?labelSelector=a%20in", 400), ("/api/v1/nonsense", 404)):
                assert (await api("GET", path))[0] == code
        finally:
            api.rest.decrypt_ahead.close()
            asks.opened.close()
            api.close()

    asyncio.run(main())
