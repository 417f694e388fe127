"""Encrypted resources: watches with events that cannot be decrypted, and the effect of an old key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace

import pytest

from kas.auth.attributes import NO_OPINION
from kas.config import features
from kas.endpoints.unsafedelete import OPTION, VERB
from kas.store import open_store
from tests.contract.sealing import AESGCMTransformer
from tests.endpoints.inprocess import Api, Stream

MAPS = "/api/v1/namespaces/ns/configmaps"
OLD, NEW = b"1" * 32, b"2" * 32


def config_map(name: str):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


class Closed(AESGCMTransformer):
    """A provider that decrypts nothing while ``shut``."""

    shut = False

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        if self.shut:
            raise ValueError("no key for it")
        return super().open(sealed, key)


def test_a_running_watch_reports_an_event_that_cannot_be_decrypted_and_ends(tmp_path):
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


def corrupt(name: str) -> str:
    return (
        f"StorageError: corrupt object, Code: 7, Key: /registry/configmaps/ns/{name}, ResourceVersion: 0, "
        "AdditionalErrorMsg: data from the storage is not transformable revision=0: no key for it"
    )


@pytest.fixture
def unreadable(tmp_path) -> Iterator[Callable[[Callable[[Api, Closed], Awaitable[None]]], None]]:
    """Runs with an API whose ConfigMaps a and b cannot be decrypted, and c, which can."""

    def run(what: Callable[[Api, Closed], Awaitable[None]]) -> None:
        async def go() -> None:
            cipher = Closed(a=OLD)
            api = Api(tmp_path, transformers=lambda key: cipher if key[-1] in "ab" else None)
            try:
                for name in "abc":
                    body = config_map(name)
                    body["metadata"]["finalizers"] = ["example.com/stays"]
                    assert (await api("POST", MAPS, body))[0] == 201
                cipher.shut = True
                await what(api, cipher)
            finally:
                api.close()

        asyncio.run(go())

    yield run


def test_without_the_gate_unreadable_objects_cannot_be_deleted(unreadable):
    async def what(api: Api, cipher: Closed) -> None:
        for method, query in (("GET", ""), ("DELETE", ""), ("DELETE", f"?{OPTION}=true&dryRun=All")):
            status, told = await api(method, f"{MAPS}/a{query}")
            assert (status, told["reason"], told["message"]) == (500, "InternalError", "Internal error occurred: no key for it")
        status, told = await api("GET", MAPS)
        key = 'unable to transform key "/registry/configmaps/ns/a": no key for it'
        assert (status, told["message"]) == (500, f"Internal error occurred: {key}")

    unreadable(what)


def test_with_the_gate_unreadable_objects_are_named(unreadable, monkeypatch):
    async def what(api: Api, cipher: Closed) -> None:
        for method in ("GET", "DELETE"):
            status, told = await api(method, f"{MAPS}/a")
            assert (status, told["reason"], told["message"]) == (500, "InternalError", f"Internal error occurred: {corrupt('a')}")
        causes = [
            {"reason": "UnexpectedServerResponse", "message": corrupt(x), "field": f"/registry/configmaps/ns/{x}"} for x in "ab"
        ]
        for path in (MAPS, f"{MAPS}?pretty=1", f"{MAPS}?labelSelector=x%3Dy"):
            status, told = await api("GET", path)
            assert (status, told["reason"]) == (500, "StoreReadError")
            assert told["message"] == "failed to read one or more configmaps from the storage"
            assert told["details"] == {"name": "list", "kind": "configmaps", "causes": causes}
        monkeypatch.setattr("kas.endpoints.unsafedelete.MOST_TOLD", 1)
        more = {"reason": "FieldValueTooMany", "message": "too many errors, the list is truncated"}
        assert (await api("GET", MAPS))[1]["details"]["causes"] == [causes[0], more]

    with features.DEFAULT.overridden(AllowUnsafeMalformedObjectDeletion=True):
        unreadable(what)


def test_with_the_gate_unreadable_objects_are_deleted_by_authorized_users(unreadable):
    async def what(api: Api, cipher: Closed) -> None:
        option, asked = {OPTION: True}, []
        status, told = await api("DELETE", f"{MAPS}/c", option)
        assert (status, told["reason"]) == (422, "Invalid")
        why = f"{OPTION}: Invalid value: true: is exclusively used to delete corrupt object(s), try again by removing this option"
        assert told["message"] == f'configmaps "c" is invalid: {why}'
        assert (await api("DELETE", f"{MAPS}/none", option))[0] == 422
        status, told = await api("DELETE", MAPS, option)
        assert status == 422 and "is not allowed with DELETECOLLECTION" in told["message"]
        status, told = await api("DELETE", f"{MAPS}/a", {**option, "gracePeriodSeconds": 0})
        assert status == 422 and "cannot be set together with .gracePeriodSeconds" in told["message"]
        may = api.writer.authorizer
        for answer, why in (
            ((NO_OPINION, "no rule", ""), f'not permitted to do "{VERB}", reason: no rule'),
            ((NO_OPINION, "", "gone"), f'error while checking permission for "{VERB}", gone'),
        ):
            api.writer.authorizer = SimpleNamespace(authorize=lambda a, answer=answer: asked.append(a) or answer)
            status, told = await api("DELETE", f"{MAPS}/a", option)
            assert (status, told["message"]) == (403, f'configmaps "a" is forbidden: {why}')
        assert (asked[0].verb, asked[0].namespace, asked[0].resource, asked[0].name) == (VERB, "ns", "configmaps", "a")
        api.writer.authorizer = may
        status, told = await api("DELETE", f"{MAPS}/a", option)
        assert (status, told["status"], told["details"]) == (200, "Success", {"name": "a", "kind": "ConfigMap"})
        cipher.shut = False
        assert (await api("GET", f"{MAPS}/a"))[0] == 404
        assert [x["metadata"]["name"] for x in (await api("GET", MAPS))[1]["items"]] == ["b", "c"]

    with features.DEFAULT.overridden(AllowUnsafeMalformedObjectDeletion=True):
        unreadable(what)
