"""Resources that are stored sealed: what a watch says when it cannot open one, and what an old key leads to."""

from __future__ import annotations

import asyncio

from kas.store import open_store
from tests.contract.sealing import AESGCMTransformer
from tests.endpoints.inprocess import Api, Stream

MAPS = "/api/v1/namespaces/ns/configmaps"
OLD, NEW = b"1" * 32, b"2" * 32


def config_map(name: str):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


class Closed(AESGCMTransformer):
    """Opens nothing while ``shut``."""

    shut = False

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        if self.shut:
            raise ValueError("no key for it")
        return super().open(sealed, key)


def test_a_running_watch_says_that_it_cannot_open_an_event_and_ends(tmp_path):
    async def go():
        cipher = Closed(a=OLD)
        api = Api(tmp_path, transformers=lambda key: cipher)
        try:
            begin = api.store.revision
            assert (await api("POST", MAPS, config_map("a")))[0] == 201
            cipher.shut = True
            stream = Stream(await api.request("GET", f"{MAPS}?watch=true&resourceVersion={begin}"))
            event = await stream.next()
            await stream.ended
            assert event["type"] == "ERROR" and stream.rest() == []
            assert (event["object"]["code"], event["object"]["reason"]) == (500, "InternalError")
            assert "no key for it" in event["object"]["message"]
            cipher.shut = False
            stream = Stream(await api.request("GET", f"{MAPS}?watch=true&resourceVersion={begin}"))
            assert (await stream.next())["object"]["metadata"]["name"] == "a"
            stream.ended.cancel()
        finally:
            api.close()

    asyncio.run(go())


def test_an_update_that_changes_nothing_is_written_with_the_new_key_once(tmp_path):
    """Upstream writes stale data again (``GuaranteedUpdate``)."""

    async def go():
        api = Api(tmp_path, transformers=lambda key: AESGCMTransformer(old=OLD))
        _, made = await api("POST", MAPS, config_map("a"))
        assert (await api("PUT", f"{MAPS}/a", made))[1]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        api.close()
        api = Api(tmp_path, transformers=lambda key: AESGCMTransformer(new=NEW, old=OLD))
        _, again = await api("PUT", f"{MAPS}/a?dryRun=All", made)
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        _, again = await api("PUT", f"{MAPS}/a", made)
        assert int(again["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
        assert (await api("PUT", f"{MAPS}/a", again))[1] == again
        api.close()
        store = open_store(str(tmp_path), sync=False, transformers=lambda key: AESGCMTransformer(new=NEW))
        rec = store.get("/registry/configmaps/ns/a")
        assert rec is not None and not store.stale(rec)
        store.close()

    asyncio.run(go())
