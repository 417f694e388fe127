"""Conversion by webhooks: their requests, and the validation of their answers. The webhook is a TLS server on loopback."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from kas.apiextensions.nopconverter import NopConverter
from kas.client.hooks import HookClients, Shares
from kas.client.kubeconfig import Users
from kas.endpoints.custom import webhookconverter
from kas.endpoints.custom.converters import converters
from kas.endpoints.custom.webhookconverter import WebhookConverter
from kas.meta.errors import ApiError
from kas.meta.offload import LARGE, POOL
from kas.observe.metrics import Registry as Metrics
from tests.admission.webhook.hook_server import HookServer, raw_answer
from tests.endpoints.customs import Customs, definition, until, version

V1, V2 = "example.com/v1", "example.com/v2"
TARGET = ("example.com", "v2", "Widget")
LEFT_OUT = object()
FOR = "conversion webhook for example.com/v1, Kind=Widget"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with HookServer(tmp_path_factory.mktemp("hook")) as running:
        yield running


@pytest.fixture
def hook(server):
    server.seen.clear()
    server.answers = answer
    return server


def obj(name: str = "a", api_version: str = V1, **spec) -> dict:
    return {"apiVersion": api_version, "kind": "Widget", "metadata": {"name": name, "uid": f"u-{name}", "generation": 3}, "spec": spec}


def answer(asked, change=lambda o: o, objects=lambda found: found, review=None, **response):
    """The review's answer: every object in the wanted version, changed by ``change``."""
    request = asked["request"]
    found = objects([change({**o, "apiVersion": request["desiredAPIVersion"]}) for o in request["objects"]])
    response = {"uid": request["uid"], "convertedObjects": found, "result": {"status": "Success"}, **response}
    body = {"apiVersion": asked["body"]["apiVersion"], "kind": "ConversionReview", "response": response, **(review or {})}
    return raw_answer(json.dumps({k: v for k, v in body.items() if v is not LEFT_OUT}).encode())


def converter(hook, *versions: str) -> WebhookConverter:
    """Returns the converter of a definition as it is stored."""
    conversion = {"strategy": "Webhook", "webhookClientConfig": hook.client(), "conversionReviewVersions": versions or ("v1",)}
    return made_of(conversion)


def made_of(conversion: dict):
    clients = HookClients(Users({}), None, Shares(10))
    make = converters(lambda: clients, Metrics())
    versions = [SimpleNamespace(name=name) for name in ("v1", "v2")]
    return make(SimpleNamespace(name="widgets.example.com", group="example.com", versions=versions, conversion=conversion))


def convert(made: WebhookConverter, *objects: dict) -> list[dict]:
    async def run():
        found = made.convert(objects, TARGET)
        return found if isinstance(found, list) else await found

    return asyncio.run(run())


def says(made: WebhookConverter, *objects: dict) -> str:
    with pytest.raises(ApiError) as e:
        convert(made, *(objects or (obj(),)))
    assert (e.value.code, e.value.reason) == (500, "")
    return e.value.message


def test_a_converter_for_each_strategy(hook):
    assert all(isinstance(made_of(c), NopConverter) for c in ({}, {"strategy": "None"}))
    webhook = {"clientConfig": hook.client(), "conversionReviewVersions": ["v1"]}
    assert convert(made_of({"strategy": "Webhook", "webhook": webhook}), obj())[0]["apiVersion"] == V2


@pytest.mark.parametrize(("versions", "used"), [(("v1",), "v1"), (("v2", "v1beta1", "v1"), "v1beta1")])
def test_a_batch_is_one_review(hook, versions, used):
    objects = [obj("a", size=1), obj("b", V2, length=2), obj("c", size=3)]
    found = convert(converter(hook, *versions), *objects)
    assert [o["metadata"]["name"] for o in found] == ["a", "b", "c"] and {o["apiVersion"] for o in found} == {V2}
    assert [o["spec"] for o in found] == [{"size": 1}, {"length": 2}, {"size": 3}]
    [asked] = hook.seen
    request = asked["request"]
    assert asked["path"] == "/hook?timeout=30s"
    assert (asked["body"]["apiVersion"], asked["body"]["kind"]) == (f"apiextensions.k8s.io/{used}", "ConversionReview")
    assert request == {"uid": request["uid"], "desiredAPIVersion": V2, "objects": [objects[0], objects[2]]}
    assert asked["body"]["response"] == {"uid": "", "convertedObjects": None, "result": {"metadata": {}}}
    assert [o["apiVersion"] for o in objects] == [V1, V2, V1]


def test_objects_already_in_the_version_are_not_sent(hook):
    objects = [obj("a", V2), obj("b", V2)]
    assert convert(converter(hook), *objects) == objects and not hook.seen


def test_large_reviews_are_encoded_and_decoded_off_the_loop(hook):
    before = POOL.done
    convert(converter(hook), obj("a"), obj("b"))
    assert POOL.done == before + 1  # the client is created
    assert convert(converter(hook), obj("a", text="x" * LARGE))[0]["spec"]["text"] == "x" * LARGE
    assert POOL.done == before + 5  # again, and encoded, decoded, checked


def test_a_large_batch_is_several_reviews(hook, monkeypatch):
    monkeypatch.setattr(webhookconverter, "MAX_SENT", 1000)
    objects = [obj(f"o{i}", text="x" * 300) for i in range(7)] + [obj("large", text="x" * 2000)]
    found = convert(converter(hook), *objects)
    assert [o["metadata"]["name"] for o in found] == [o["metadata"]["name"] for o in objects]
    assert [len(asked["request"]["objects"]) for asked in hook.seen] == [2, 2, 2, 1, 1]
    assert len({asked["request"]["uid"] for asked in hook.seen}) == 5


def test_only_labels_and_annotations_of_the_metadata_may_change(hook):
    def change(o):
        o["metadata"] |= {"labels": {"l": "new"}, "generation": 99, "finalizers": ["x/y"], "resourceVersion": "7"}
        del o["metadata"]["annotations"]
        return o

    hook.answers = lambda asked: answer(asked, change)
    given = obj()
    given["metadata"] |= {"labels": {"l": "old"}, "annotations": {"a": "b"}}
    [found] = convert(converter(hook), given)
    assert found["metadata"] == {"name": "a", "uid": "u-a", "generation": 3, "labels": {"l": "new"}}


META = "returned invalid metadata: "


@pytest.mark.parametrize(("how", "message"), [
    ({"result": {"status": "Failure", "message": "no"}}, "failed: no"),
    ({"result": {"status": "Failure"}}, "failed: response.result.status was 'Failure', not 'Success'"),
    ({"result": {}}, "failed: response.result.status was '', not 'Success'"),
    ({"convertedObjects": []}, "returned 0 objects, expected 1"),
    ({"convertedObjects": None}, "returned 0 objects, expected 1"),
    ({"objects": lambda found: found * 2}, "returned 2 objects, expected 1"),
    ({"review": {"response": LEFT_OUT}}, "failed: no response provided"),
    ({"review": {"apiVersion": LEFT_OUT}},
     "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=ConversionReview"),
    ({"review": {"kind": "Pod"}}, 'failed: no kind "Pod" is registered for version "apiextensions.k8s.io/v1" in scheme'),
    ({"change": lambda o: o | {"apiVersion": V1}},
     "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)"),
    ({"change": lambda o: o | {"kind": "Other"}}, "returned invalid object at index 0: invalid kind (expected Widget, received Other)"),
    ({"change": lambda o: o | {"metadata": o["metadata"] | {"name": "b"}}}, "returned invalid object: must have the same name: a != b"),
    ({"change": lambda o: o | {"metadata": o["metadata"] | {"namespace": "n"}}},
     "returned invalid object: must have the same namespace:  != n"),
    ({"change": lambda o: o | {"metadata": o["metadata"] | {"uid": 1}}}, "returned invalid object: must have the same UID: u-a != "),
    ({"change": lambda o: o | {"metadata": o["metadata"] | {"labels": []}}},
     META + "invalid metadata.labels of type []interface {} in converted object"),
    ({"change": lambda o: o | {"metadata": o["metadata"] | {"labels": {"a": 1}}}},
     META + "metadata.labels[a] must be a string, but is int64 in converted object"),
    ({"change": lambda o: o | {"metadata": o["metadata"] | {"labels": {"a": "-"}}}}, META + 'metadata.labels: Invalid value: "-": '),
    ({"change": lambda o: o | {"metadata": o["metadata"] | {"annotations": {"a b": ""}}}},
     META + 'metadata.annotation: Invalid value: "a b": '),
])  # fmt: skip
def test_invalid_answers_are_refused(hook, how, message):
    hook.answers = lambda asked: answer(asked, **how)
    assert says(converter(hook)).startswith(f"{FOR} {message}")


@pytest.mark.parametrize(("thing", "message"), [
    (None, "unexpected end of JSON input"), ("x", "json: cannot unmarshal string into Go value of type map[string]interface {}"),
    (1, "json: cannot unmarshal number into Go value of type map[string]interface {}"),
    ([], "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ({}, "Object 'Kind' is missing in '{}'"), ({"kind": 1}, "Object 'Kind' is missing in '"),
    ({"kind": "Widget", "apiVersion": "a/b/c"}, "Object 'Kind' is missing in '"),
    ({"kind": "Widget", "apiVersion": []},
     f"{FOR} returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received )"),
])  # fmt: skip
def test_converted_objects_that_are_no_objects(hook, thing, message):
    hook.answers = lambda asked: answer(asked, convertedObjects=[thing])
    assert says(converter(hook)).startswith(message)


def test_one_object_of_several_fails_as_if_it_was_sent_alone(hook):
    """Upstream reads lists of the store one object at a time."""

    def change(o):
        return o | {"kind": "Other"} if o["metadata"]["name"] == "c" else o

    hook.answers = lambda asked: answer(asked, change)
    assert says(converter(hook), obj("a"), obj("b", V2), obj("c")) == (
        f"{FOR} returned invalid object at index 0: invalid kind (expected Widget, received Other)"
    )


def test_only_v1_identifies_the_review_by_its_uid(hook):
    hook.answers = lambda asked: answer(asked, uid="wrong")
    assert says(converter(hook)).startswith(f"{FOR} failed: expected response.uid=")
    assert convert(converter(hook, "v1beta1"), obj())[0]["apiVersion"] == V2


def test_unknown_review_versions(hook):
    assert says(converter(hook, "v7")) == "no supported conversion review versions"
    hook.answers = lambda asked: raw_answer(b"oops", 503)
    assert says(converter(hook)).startswith(f"{FOR} failed: ")
    assert says(made_of({"strategy": "Webhook", "conversionReviewVersions": ["v1"]})) == (
        f"{FOR} failed: webhook configuration must have either service or URL"
    )


SPEC = {"size": {"type": "integer"}, "color": {"type": "string"}}
OTHER_SPEC = {"length": {"type": "integer"}, "color": {"type": "string"}}
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


def renamed(o):
    """Renames size to length in v2."""
    names = ("size", "length") if o["apiVersion"].endswith("/v2") else ("length", "size")
    spec = dict(o.get("spec") or {})
    if names[0] in spec:
        spec[names[1]] = spec.pop(names[0])
    return o | {"spec": spec}


@pytest.fixture
def lengths(client, namespace, hook):
    """A definition whose versions v1 (stored) and v2 differ by a field's name."""
    hook.answers = lambda asked: answer(asked, renamed)
    crd = definition(f"{namespace}.example.com", version("v1", SPEC), version("v2", OTHER_SPEC, storage=False))
    webhook = {"clientConfig": hook.client(), "conversionReviewVersions": ["v1"]}
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    customs = Customs(client, crd).install()
    yield customs
    customs.remove()


def managers(found) -> dict:
    """Returns the fields of spec of each manager: (manager, version) -> names."""
    out = {}
    for e in found["metadata"]["managedFields"]:
        names = {k.removeprefix("f:") for k in e["fieldsV1"].get("f:spec", {})}
        out[e["manager"], e["apiVersion"].rpartition("/")[2]] = names - {"."}
    return out


def test_managed_fields_of_another_version_are_converted(client, lengths):
    lengths.client("POST", lengths.path() + "?fieldManager=one", lengths.obj("a", {"size": 1, "color": "red"}))
    _, found = client("GET", lengths.path("a", "v2"))
    found["spec"]["length"] = 2
    status, found = client("PUT", lengths.path("a", "v2") + "?fieldManager=two", found)
    assert status == 200 and found["spec"] == {"length": 2, "color": "red"}
    assert managers(found) == {("one", "v1"): {"color"}, ("two", "v2"): {"length"}}
    status, found = client("PATCH", lengths.path("a") + "?fieldManager=three", {"spec": {"size": 3}}, ctype=MERGE)
    assert status == 200 and managers(found) == {("one", "v1"): {"color"}, ("three", "v1"): {"size"}}


def test_an_apply_in_another_version(client, lengths, hook):
    applied = lengths.obj("a", {"size": 1, "color": "red"})
    assert client("PATCH", lengths.path("a") + "?fieldManager=one", applied, ctype=APPLY)[0] == 201
    path, other = lengths.path("a", "v2") + "?fieldManager=", lengths.obj("a", {"length": 2}, "v2")
    status, body = client("PATCH", path + "two", other, ctype=APPLY)
    assert status == 409 and body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".spec.size"}]  # fmt: skip
    status, found = client("PATCH", path + "two&force=true", other, ctype=APPLY)
    assert status == 200 and found["spec"] == {"length": 2, "color": "red"}
    assert managers(found) == {("one", "v1"): {"color"}, ("two", "v2"): {"length"}}
    # What an applier omits in another version than before is removed, too.
    status, found = client("PATCH", path + "one", lengths.obj("a", {}, "v2"), ctype=APPLY)
    assert status == 200 and found["spec"] == {"length": 2} and managers(found) == {("one", "v2"): set(), ("two", "v2"): {"length"}}
    hook.answers = lambda asked: answer(asked, result={"status": "Failure", "message": "no"})
    before = client("GET", lengths.path("a"))[1]
    status, body = client("PATCH", lengths.path("a") + "?fieldManager=one", applied, ctype=APPLY)
    assert (status, body["message"]) == (500, f"conversion webhook for {lengths.group}/v1, Kind=Widget failed: no")
    # An update is not prevented, and its fields have no other owner.
    assert client("GET", lengths.path("a"))[1] == before
    status, found = client("PATCH", lengths.path("a"), {"spec": {"size": 3}}, ctype=MERGE)
    assert status == 200 and "managedFields" not in found["metadata"]


def test_fields_that_a_webhook_renames(client, lengths):
    def selectable(crd):
        for v, field in zip(crd["spec"]["versions"], ("size", "length"), strict=True):
            v["selectableFields"] = [{"jsonPath": f".spec.{field}"}]

    lengths.change(selectable)
    until(lambda: client("GET", lengths.path(version="v2") + "?fieldSelector=spec.length%3D2")[0] == 200, "the field is known")
    for i in range(4):
        lengths.create(f"w{i}", {"size": i % 2 + 1})
    for path in (lengths.path(version="v2") + "?fieldSelector=spec.length%3D2", lengths.path() + "?fieldSelector=spec.size%3D2"):
        assert [item["metadata"]["name"] for item in client("GET", path)[1]["items"]] == ["w1", "w3"]
    path = lengths.path(version="v2") + "?fieldSelector=spec.length%3D2&watch=1&resourceVersion=0&timeoutSeconds=60"
    with client.session.get(client.server.url + path, stream=True, timeout=60) as answer:
        lines = answer.iter_lines()
        assert [json.loads(next(lines))["object"]["spec"] for _ in range(2)] == [{"length": 2}] * 2
        client("PATCH", lengths.path("w1"), {"spec": {"size": 5}}, MERGE)
        event = json.loads(next(lines))
        assert (event["type"], event["object"]["metadata"]["name"], event["object"]["spec"]) == ("DELETED", "w1", {"length": 2})


def test_watches_by_fields_of_their_version(client, lengths):
    """Upstream's e2e test of selectable fields: each watch with a selector gets its creates, deletes and updates."""

    def selectable(crd):
        for v, field in zip(crd["spec"]["versions"], ("size", "length"), strict=True):
            v["selectableFields"] = [{"jsonPath": f".spec.{field}"}, {"jsonPath": ".spec.color"}]

    lengths.change(selectable)
    selected = {
        lengths.path(version="v2") + "?fieldSelector=spec.length%3D1": {"red", "blue"},
        lengths.path(version="v2") + "?fieldSelector=spec.length%3D1,spec.color%3Dred": {"red"},
        lengths.path() + "?fieldSelector=spec.size%3D1,spec.color%3Dred": {"red"},
    }
    until(lambda: all(client("GET", path)[0] == 200 for path in selected), "the fields are known")
    rv = client("GET", lengths.path())[1]["metadata"]["resourceVersion"]
    began = ("", f"&resourceVersion={rv}", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
    with ExitStack() as stack:
        watches = []
        for path, names in selected.items():
            for more in began:
                url = f"{client.server.url}{path}&watch=true&timeoutSeconds=60{more}"
                answer = stack.enter_context(client.session.get(url, stream=True, timeout=60))
                watches.append((names, (e for e in map(json.loads, answer.iter_lines(chunk_size=1)) if e["type"] != "BOOKMARK")))
        for name, length in (("red", 1), ("blue", 1), ("green", 2)):
            lengths.create(name, {"length": length, "color": name}, "v2")
        assert client("DELETE", list(selected)[1])[0] == 200
        client("PATCH", lengths.path("blue", "v2"), {"spec": {"length": 2}}, MERGE)
        for names, events in watches:
            told = [next(events) for _ in range(2 * len(names))]
            for kind in ("ADDED", "DELETED"):
                assert {e["object"]["metadata"]["name"] for e in told if e["type"] == kind} == names
    assert all(client("GET", path)[1]["items"] == [] for path in selected)


def test_the_stored_version_changes(client, lengths):
    """What was stored before is converted in lists of the now stored version; a version can be removed when nothing is stored in it."""
    for name in ("a", "b"):
        lengths.create(name, {"size": 1})

    def swap(crd):
        for v in crd["spec"]["versions"]:
            v["storage"] = not v["storage"]

    changed = lengths.change(swap)
    assert changed["status"]["storedVersions"] == ["v1", "v2"]
    in_v2 = lengths.path(version="v2")
    status, body = client("PATCH", f"{in_v2}/a", {"metadata": {"labels": {"x": "y"}}}, MERGE)
    assert status == 200 and body["spec"] == {"length": 1}
    for query in ("", "?limit=1", "?labelSelector=!x"):
        status, found = client("GET", in_v2 + query)
        assert status == 200 and all(o["spec"] == {"length": 1} for o in found["items"]), found
    rows = client.raw("GET", in_v2, Accept="application/json;as=Table;v=v1;g=meta.k8s.io").json()["rows"]
    assert [row["cells"][0] for row in rows] == ["a", "b"]
    assert [o["spec"] for o in client("GET", lengths.path())[1]["items"]] == [{"size": 1}] * 2
    # The status claims that nothing is stored in v1 any more although "b" is.
    client("PATCH", lengths.where + "/status", {"status": {"storedVersions": ["v2"]}}, MERGE)
    lengths.change(lambda crd: crd["spec"]["versions"].pop(0))
    until(lambda: client("GET", lengths.path())[0] == 404, "v1 is served no more")
    assert client("GET", f"{in_v2}/a")[1]["spec"] == {"length": 1}
    for path in (f"{in_v2}/b", in_v2):
        status, body = client("GET", path)
        assert (status, body["message"]) == (500, f"request to convert CR from an invalid group/version: {lengths.group}/v1")


def test_managed_fields_of_a_removed_version(client, namespace):
    """As upstream: an apply is refused, an update succeeds and drops them all."""
    both = definition(f"{namespace}.example.com", version("v1", SPEC), version("v2", SPEC, storage=False))
    customs = Customs(client, both).install()
    try:
        customs.create("a", {"size": 1}, version="v2")
        customs.create("b", {"size": 1}, version="v2")
        customs.change(lambda crd: crd["spec"]["versions"][1].update(served=False))
        until(lambda: client("GET", customs.path("a", "v2"))[0] == 404, "v2 is served no more")
        # It is a known version, though.
        applied = customs.obj("a", {"color": "red"})
        status, found = client("PATCH", customs.path("a") + "?fieldManager=x", applied, ctype=APPLY)
        assert status == 200 and {v for _, v in managers(found)} == {"v1", "v2"}
        customs.change(lambda crd: crd["spec"]["versions"].pop())
        until(lambda: client("PATCH", customs.path("a") + "?fieldManager=x", applied, ctype=APPLY)[0] == 500, "v2 is gone")
        status, body = client("PATCH", customs.path("a") + "?fieldManager=x", applied, ctype=APPLY)
        assert (status, body["message"]) == (500, f"request to convert CR to an invalid group/version: {customs.group}/v2")
        status, found = client("PATCH", customs.path("b"), {"spec": {"size": 2}}, ctype=MERGE)
        assert status == 200 and "managedFields" not in found["metadata"]
    finally:
        customs.remove()
