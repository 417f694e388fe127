"""kas.Server: its options, its errors, and how it ends."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kas
from kas.auth.attributes import ALLOW, DENY, NO_OPINION, Attributes
from kas.auth.user import UserInfo
from kas.config.flagtypes import AUTO_PORT
from kas.config.runtime import chosen
from kas.endpoints.custom.virtual import VirtualServed, load
from kas.extensions import CheckedAuthorizer, Loopback
from kas.meta import errors
from kas.registry.rest import Event, ObjectList, event_of, listing_of
from kas.request.http import Response
from kas.types.scheme import BUILTIN, Scheme
from tests.descriptors import opened
from tests.library.calling import Caller

FLAGS: dict[str, Any] = {"secure_port": "auto", "unsafe_no_fsync": True, "workers": 1}
PATIENCE_S = 90.0


def options(directory: Path, **flags: Any) -> kas.Options:
    return kas.Options(data_dir=directory / "data", **{**FLAGS, **flags})


def test_an_internal_call_releases_its_answers_resources():
    given_back = []

    async def pieces(write: Any) -> None:
        await write(b'{"a":')
        await write(b"1}")

    answer = Response(200, [(b"content-type", b"application/json")], stream=pieces)
    answer.finish = lambda: given_back.append(answer.sent)
    assert asyncio.run(Loopback(lambda req: answer, "t")("GET", "/")) == (200, {"a": 1})
    assert given_back == [7]


# --- options


def test_flags_are_attributes_with_values_of_python_or_the_command_line(tmp_path):
    o = kas.Options(data_dir=tmp_path, workers=2, event_ttl="1m", enable_admission_plugins=["AlwaysPullImages"], anonymous_auth=False)
    assert (o.data_dir, o.workers, o.event_ttl, o.anonymous_auth) == (str(tmp_path), 2, 60.0, False)
    assert kas.Options(event_ttl=60.0).event_ttl == 60.0 and kas.Options(secure_port="auto").secure_port == AUTO_PORT
    assert set(o.given) == {"data-dir", "workers", "event-ttl", "enable-admission-plugins", "anonymous-auth"}


@pytest.mark.parametrize(("flags", "error"), [
    ({"nope": 1}, TypeError), ({"workers": "many"}, ValueError), ({"workers": True}, ValueError), ({"anonymous_auth": 1}, ValueError),
    ({"event_ttl": "soon"}, ValueError), ({"workers": 1.5}, ValueError), ({"workers": None}, ValueError), ({"workers": (1, 2)}, ValueError),
    ({"workers": {}}, ValueError), ({"event_ttl": [1]}, ValueError), ({"event_ttl": float("inf")}, ValueError),
    ({"api_rate": float("nan")}, ValueError), ({"service_node_port_range": (1,)}, ValueError),
    ({"service_node_port_range": (40000, 30000)}, ValueError), ({"tls_san": [1]}, ValueError), ({"tls_san": {"a": "b"}}, ValueError),
    ({"data_dir": b"data"}, ValueError), ({"data_dir": 1}, ValueError), ({"oidc_required_claim": {"a": 1}}, ValueError),
    ({"feature_gates": {"A": 1}}, ValueError), ({"feature_gates": {"": [1]}}, ValueError), ({"runtime_config": ["api/all"]}, ValueError),
])  # fmt: skip
def test_invalid_flags(flags, error):
    with pytest.raises(error, match=f"--{next(iter(flags)).replace('_', '-')}"):
        kas.Options(**flags)


def test_switches_may_be_bools():
    o = kas.Options(runtime_config={"api/all": True, "apps/v1": "false"}, feature_gates={"AllAlpha": True, "kube": ["AllBeta=false"]})
    assert o.runtime_config == {"api/all": "true", "apps/v1": "false"}
    assert o.feature_gates == {"kube": ["AllBeta=false"], "": ["AllAlpha=true"]}
    assert kas.Options(service_node_port_range=(30000, 30010)).service_node_port_range == (30000, 30010)


def test_incompatible_options_are_refused_with_all_errors(tmp_path):
    with pytest.raises(kas.OptionError) as e:
        kas.Server(options(tmp_path, authorization_mode=["Nope"], enable_admission_plugins=["Odd"]))
    assert any("Nope" in text for text in e.value.errors) and any("Odd" in text for text in e.value.errors)


# --- kinds


def test_chosen_kinds():
    assert chosen(BUILTIN, "all") == {}
    bare = chosen(BUILTIN, "none")
    assert "/v1/pods" in bare and "apps/v1/deployments" in bare and "/v1/namespaces" not in bare
    some = chosen(BUILTIN, ["pods", "batch", "deployments.apps"])
    assert set(bare) - set(some) >= {"/v1/pods", "batch/v1/jobs", "batch/v1/cronjobs", "apps/v1/deployments"}
    assert "apps/v1/daemonsets" in some
    with pytest.raises(ValueError, match="'nonsense' is neither an API group nor a resource that is built in"):
        chosen(BUILTIN, ["nonsense"])


# --- a server


class Label:
    """A plug-in that is passed as an object."""

    name = "Label"

    def handles(self, a: Any) -> bool:
        return a.resource == "configmaps" and a.operation == "CREATE"

    async def admit(self, a: Any) -> None:
        await asyncio.sleep(0)
        a.obj["metadata"].setdefault("labels", {})["by"] = "plug-in"


class Meddles:
    """Changes a nested value of an object in place."""

    name = "Meddles"

    def handles(self, a: Any) -> bool:
        return a.resource == "configmaps" and a.operation == "UPDATE"

    def admit(self, a: Any) -> None:
        if a.name == "meddled":
            for entry in a.obj["metadata"]["managedFields"]:
                entry["fieldsV1"].setdefault("f:data", {})["f:meddled"] = {}


class NoDeletes:
    def authorize(self, a: Any) -> tuple[int, str, str]:
        return (DENY, "nobody deletes here", "") if a.verb == "delete" and a.resource == "configmaps" else (NO_OPINION, "", "")


class Bearer:
    """Authenticates by a header of its own."""

    def authenticate(self, get: Any, peer: Any = None) -> Any:
        from kas.auth.user import UserInfo

        name = get("x-name")
        return UserInfo(name, ("named",)) if name else None


class Planets:
    """Computed, read-only and slow."""

    async def get(self, ctx: Any, name: str) -> dict[str, Any] | None:
        await asyncio.sleep(0)
        return {"metadata": {"name": name}, "spec": {"moons": 1}} if name == "earth" else None

    async def list(self, ctx: Any) -> ObjectList:
        return ObjectList([o for name in ("earth",) if (o := await self.get(ctx, name)) is not None])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("library")

    async def goodbye(context: kas.HookContext) -> None:
        answers = [await context.request("GET", path) for path in ("/apis/nobody.example.com/v1", "/livez")]
        assert answers == [(404, "404 page not found\n"), (200, "ok")]
        code, _ = await context.request("GET", "/api/v1/namespaces/default")
        (directory / f"goodbye-{context.index}").write_text(str(code))

    planets = kas.VirtualResource("space.example.com", "v1", "planets", "Planet", Planets(), namespaced=False)
    made = kas.Server(
        options(directory, authorization_mode=["RBAC"]), kinds=["pods", "batch"], admission=[Label(), Meddles()], authorizers=[NoDeletes()],
        authenticators=[Bearer()], resources=[planets], pre_shutdown={"goodbye": goodbye},
    )  # fmt: skip
    with made:
        yield made
        assert made.stop() == 0
        assert (directory / "goodbye-0").read_text() == "200"


def test_only_chosen_kinds_are_served(server):
    call = Caller(server)
    assert call("GET", "/api/v1/pods")[0] == call("GET", "/apis/batch/v1/jobs")[0] == 200
    assert call("GET", "/apis/apps/v1/deployments")[0] == call("GET", "/api/v1/services")[0] == 404


def test_own_plug_ins_come_before_policies(server):
    call = Caller(server)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    validation = {"expression": "object.metadata.labels['by'] == 'plug-in'", "message": "it was not labelled"}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    assert call("POST", f"{base}ies", {"metadata": {"name": "p"}, "spec": spec})[0] == 201
    bound = {"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    assert call("POST", f"{base}ybindings", bound)[0] == 201
    code, made = call("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})
    assert code == 201 and made["metadata"]["labels"] == {"by": "plug-in"}


def test_in_place_changes_by_a_plugin_affect_one_object(server):
    call, maps = Caller(server), "/api/v1/namespaces/default/configmaps"
    for name in ("meddled", "other"):
        assert call("POST", f"{maps}?fieldManager=first", {"metadata": {"name": name}, "data": {"a": "b"}})[0] == 201
    label = {"metadata": {"labels": {"a": "b"}}}
    for name, manager, patch in (("meddled", "second", label), ("other", "second", label), ("other", "first", {"data": {"z": "c"}})):
        code, found = call("PATCH", f"{maps}/{name}?fieldManager={manager}", patch, "application/merge-patch+json")
        assert code == 200
    assert [sorted(entry["fieldsV1"].get("f:data", {})) for entry in found["metadata"]["managedFields"]] == [[".", "f:a", "f:z"], []]


def test_own_authorizers_come_before_the_modes_but_not_before_masters(server):
    name = "/api/v1/namespaces/default/configmaps/none"
    role = {"metadata": {"name": "all"}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}
    rbac, call = "/apis/rbac.authorization.k8s.io/v1", Caller(server)
    assert call("POST", f"{rbac}/clusterroles", role)[0] == 201
    group = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "named"}
    reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "all"}
    assert call("POST", f"{rbac}/clusterrolebindings", {"metadata": {"name": "all"}, "subjects": [group], "roleRef": reference})[0] == 201
    ada = Caller(server, headers={"x-name": "ada"})
    assert ada("GET", name)[0] == 404
    code, e = ada("DELETE", name)
    assert code == 403 and e["message"].endswith(": nobody deletes here")
    assert call("DELETE", name)[0] == 404


class Says:
    """An authorizer with a fixed answer."""

    def __init__(self, outcome: Any) -> None:
        self._outcome = outcome

    def authorize(self, a: Attributes) -> Any:
        return self._outcome


@pytest.mark.parametrize("outcome", [(ALLOW, "why"), (DENY, "why", "how"), (NO_OPINION, "")])
def test_an_authorizers_answer_may_omit_the_error(outcome):
    async def later() -> Any:
        return outcome

    wanted = (*outcome, "")[:3]
    assert CheckedAuthorizer(Says(outcome)).authorize(Attributes(UserInfo("ada"), "get")) == wanted
    assert asyncio.run(CheckedAuthorizer(Says(later())).authorize(Attributes(UserInfo("ada"), "get"))) == wanted
    assert not hasattr(CheckedAuthorizer(Says(outcome)), "rules_for")


@pytest.mark.parametrize("outcome", [True, None, ALLOW, (True, "why"), ("allow", "why"), (3, ""), (ALLOW,), [ALLOW, ""]])
def test_an_invalid_decision_allows_nothing(outcome):
    with pytest.raises(TypeError, match=r"Says.authorize gave .*, not ALLOW, DENY or NO_OPINION with a reason"):
        CheckedAuthorizer(Says(outcome)).authorize(Attributes(UserInfo("ada"), "get"))


@pytest.mark.parametrize("code", [404, 409])
def test_a_storage_may_raise_not_found(code):
    class Storage:
        def get(self, ctx: Any, name: str) -> None:
            raise errors.ApiError(code, "", "said by the storage")

    found = load(SimpleNamespace(resource_of=SimpleNamespace(storage=Storage())), None, "x")  # type: ignore[arg-type]
    if code == 404:  # so that an apply creates it
        assert asyncio.run(found) is None
    else:
        with pytest.raises(errors.ApiError, match="said by the storage"):
            asyncio.run(found)


def test_wrongly_shaped_objects_of_a_storage_are_reported():
    planets = kas.VirtualResource("space.example.com", "v1", "planets", "Planet", Planets())
    earth = {"metadata": {"name": "earth"}}
    assert event_of(planets, ("ADDED", earth)) == Event("ADDED", earth)
    with pytest.raises(TypeError, match=r"list\(\) of planets.space.example.com gave a dict, not a kas.registry.rest.ObjectList"):
        listing_of(planets, {"items": []})
    for told in ({"type": "ADDED", "object": earth}, ("ERROR", earth), ("ADDED", "x")):
        with pytest.raises(TypeError, match=r"watch\(\) of planets.space.example.com told .*, not a kas.registry.rest.Event of ADDED"):
            event_of(planets, told)


def test_unknown_fields_added_by_admission_never_reach_a_storage():
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"moons": {"type": "integer"}}}}}
    served = VirtualServed(kas.VirtualResource("space.example.com", "v1", "planets", "Planet", Planets(), schema=schema), Scheme())
    planet = {"apiVersion": "space.example.com/v1", "kind": "Planet", "metadata": {"name": "x"}, "spec": {"moons": 1, "rings": 2}}
    assert asyncio.run(served.to_storage(planet))["spec"] == {"moons": 1}


def test_a_resource_has_the_verbs_of_its_storage(server):
    call, path = Caller(server), "/apis/space.example.com/v1/planets"
    (found,) = call("GET", "/apis/space.example.com/v1")[1]["resources"]
    assert found["verbs"] == ["get", "list"] and found["namespaced"] is False
    code, earth = call("GET", f"{path}/earth")
    assert code == 200 and earth["spec"] == {"moons": 1} and earth["kind"] == "Planet"
    assert call("GET", f"{path}/mars")[1]["reason"] == "NotFound"
    assert [o["metadata"]["name"] for o in call("GET", path)[1]["items"]] == ["earth"]
    planet = {"apiVersion": "space.example.com/v1", "kind": "Planet", "metadata": {"name": "x"}}
    assert call("POST", path, planet)[0] == call("DELETE", f"{path}/earth")[0] == call("GET", f"{path}?watch=true")[0] == 405
    assert call("GET", "/apis/space.example.com/v1/namespaces/default/planets")[0] == 404


# --- failures to start, and the end


async def broken(context: kas.HookContext) -> None:
    raise RuntimeError("no")


class Nothing:
    def create(self, ctx: Any, obj: Any) -> Any:
        return obj


@pytest.mark.parametrize("more", [
    {"kinds": ["nonsense"]}, {"post_start": {"broken": broken}},
    {"resources": [kas.VirtualResource("apps", "v1", "things", "Thing", Planets())]},
    {"resources": [kas.VirtualResource("x.example.com", "v1", "things", "Thing", Nothing())]},
    {"resources": [kas.VirtualResource("x.example.com", "v1", "things", "Thing", Planets(), schema={"type": "string"})]},
], ids=["kinds", "hook", "group", "storage", "schema"])  # fmt: skip
def test_failures_to_start(tmp_path, more):
    made = kas.Server(options(tmp_path), **more)
    with pytest.raises(kas.StartError):
        made.start()
    assert made.url == "" and made.stop() == 0


def test_a_hook_that_is_no_coroutine_function_is_reported(tmp_path, capfd):
    with pytest.raises(kas.StartError):
        kas.Server(options(tmp_path), kinds="none", post_start={"mine": lambda context: None}).start()
    says = "kas: hook mine failed: TypeError: it gave None, nothing to wait for: a hook is a coroutine function"
    assert says in capfd.readouterr().err.splitlines()


@pytest.mark.parametrize(("more", "says"), [
    ({"admission": [Nothing]}, "admission: <class '.*Nothing'> has no method handles"),
    ({"admission": [SimpleNamespace(handles=print)]}, "has no method admit or validate"),
    ({"authenticators": [Nothing()]}, "has no method authenticate or authenticate_token"),
    ({"kinds": None}, 'kinds are "all", "none" or a list of names, not None'),
    ({"kinds": ["apps", 1]}, r"or a list of names, not \['apps', 1\]"),
    ({"resources": [print]}, "resources: <built-in function print> is no kas.VirtualResource"),
    ({"post_start": [print]}, r"post_start: hooks are a mapping by name, not \["),
    ({"authorizers": [print]}, "authorizers: <built-in function print> has no method authorize"),
    ({"post_start": {"mine": 1}}, "post_start: 'mine' is no function: 1"),
    ({"pre_shutdown": {"mine": None}}, "pre_shutdown: 'mine' is no function: None"),
])  # fmt: skip
def test_missing_methods_are_reported_at_once(tmp_path, more, says):
    with pytest.raises(TypeError, match=says):
        kas.Server(options(tmp_path), **more)
    with pytest.raises(TypeError, match=r"options are kas.Options, not {'data_dir': 'd'}"):
        kas.Server({"data_dir": "d"})


def test_unexpected_errors_are_printed_to_standard_error(tmp_path, monkeypatch, capfd):
    def broken(*_: object) -> int:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(kas.supervisor, "run", broken)
    with pytest.raises(kas.StartError, match="stands on its standard error"):
        kas.Server(options(tmp_path)).start()
    assert capfd.readouterr().err.rstrip().endswith("RuntimeError: no such thing")


def test_a_system_without_a_free_process_is_reported(tmp_path, monkeypatch):
    def none() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    server = kas.Server(options(tmp_path))
    held = opened()
    with monkeypatch.context() as patch, pytest.raises(kas.StartError, match="no process can be created: Resource temporarily unavailable"):
        patch.setattr(os, "fork", none)
        server.start()
    assert server.stop() == 0 and opened() <= held


def test_a_server_ends_with_its_program(tmp_path):
    code = f"""
import os, kas
options = kas.Options(data_dir={str(tmp_path / "data")!r}, secure_port="auto", unsafe_no_fsync=True, workers=1)
server = kas.Server(options, kinds="none").start()
print(server.url.rpartition(":")[2], flush=True)
os._exit(7)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 7
    port, until = int(done.stdout.split()[-1]), time.monotonic() + PATIENCE_S
    while True:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)):
                break
        assert time.monotonic() < until, "it still listens"
        time.sleep(0.05)
