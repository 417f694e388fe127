"""The PolicyParamsAuthorization plug-in alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kas.admission.plugins import policy_params_authorization
from kas.auth.user import UserInfo
from tests.admission.admission_fakes import ADMIN, Request, refused

BOB = UserInfo("bob", ("team", "system:authenticated"), "u1", {"b": ["1", "2"], "a": []})
SHOWN = "user &{bob u1 [team system:authenticated] map[a:[] b:[1 2]]}"
SECRET = {"apiVersion": "v1", "kind": "Secret"}
GROUP = "admissionregistration.k8s.io"
SORTS = ["validating", "mutating"]


@pytest.fixture
def plugin(server):
    server.kinds["", "v1", "Secret"] = [SimpleNamespace(resource="secrets")]
    return server.plugin(policy_params_authorization)


def policy(sort: str, kind: dict[str, str] | None, name: str = "p") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {} if kind is None else {"paramKind": kind}}


def binding(policy_name: str, **ref: Any) -> dict[str, Any]:
    return {"metadata": {"name": "b"}, "spec": {"policyName": policy_name, **({"paramRef": ref} if ref else {})}}


def written(plugin, sort: str, obj, old=None, what: str = "policy", user: UserInfo = BOB) -> Request:
    resource = f"{sort}admissionpolic{'ies' if what == 'policy' else 'ybindings'}"
    kind = f"{sort.capitalize()}AdmissionPolicy{'' if what == 'policy' else 'Binding'}"
    operation = "CREATE" if old is None else "UPDATE"
    return Request(plugin, operation=operation, group=GROUP, resource=resource, kind=kind, namespace="", obj=obj, old=old, user=user)


@pytest.mark.parametrize("sort", SORTS)
def test_writing_a_policy_needs_read_access_to_its_param_kind(server, plugin, sort):
    server.grants.add(("bob", "get", "secrets", "one"))
    for old in (None, policy(sort, None), policy(sort, {"apiVersion": "v1", "kind": "ConfigMap"})):
        e = refused(written(plugin, sort, policy(sort, SECRET), old))
        assert e.code == 422 and e.message.endswith(
            f'spec.paramKind: Forbidden: {SHOWN} must have "get" permission on all objects of the referenced paramKind '
            "(kind=Secret, apiVersion=v1)"
        )
    written(plugin, sort, policy(sort, SECRET), policy(sort, SECRET)).run()
    written(plugin, sort, policy(sort, None), policy(sort, SECRET)).run()
    written(plugin, sort, policy(sort, SECRET), user=ADMIN).run()
    server.grants.add(("bob", "get", "secrets", "*"))
    written(plugin, sort, policy(sort, SECRET)).run()


@pytest.mark.parametrize("sort", SORTS)
def test_an_unserved_kind_needs_access_to_everything(server, plugin, sort):
    server.grants.add(("bob", "get", "secrets", "*"))
    assert refused(written(plugin, sort, policy(sort, {"apiVersion": "example.com/v1", "kind": "Secret"}))).code == 422
    server.grants.add(("bob", "get", "*", "*"))
    written(plugin, sort, policy(sort, {"apiVersion": "example.com/v1", "kind": "Secret"})).run()


@pytest.mark.parametrize("sort", SORTS)
def test_writing_a_binding_needs_read_access_to_its_params(server, plugin, sort):
    server.add(GROUP, f"{sort}admissionpolicies", policy(sort, SECRET))
    named, selected = binding("p", name="x", namespace="ns"), binding("p", selector={})
    for obj, verb, name in ((named, "get", "x"), (selected, "list", "")):
        for old in (None, binding("p"), obj):
            e = refused(written(plugin, sort, obj, old, "binding"))
            text = f'spec.paramRef: Forbidden: {SHOWN} does not have "{verb}" permission on the object referenced by paramRef'
            assert e.code == 422 and e.message.endswith(text)
        server.grants.add(("bob", verb, "secrets", name))
        written(plugin, sort, obj, what="binding").run()
    written(plugin, sort, binding("p"), what="binding").run()


@pytest.mark.parametrize("sort", SORTS)
def test_an_unknown_param_kind(server, plugin, sort):
    server.add(GROUP, f"{sort}admissionpolicies", policy(sort, None, "plain"))
    server.add(GROUP, f"{sort}admissionpolicies", policy(sort, {"apiVersion": "example.com/v1", "kind": "A"}, "odd"))
    server.grants.add(("bob", "get", "secrets", "x"))
    lacks = f'{SHOWN} does not have "get" permission'
    unknown = f"to determine minimum required permissions and {lacks} for all groups, versions and resources"
    for name, text in (
        ("none", f"unable to get policy none {unknown}"), ("odd", f"unable to resolve paramKind &{{example.com/v1 A}} {unknown}"),
        ("plain", f"{lacks} on the object referenced by paramRef"),
    ):  # fmt: skip
        e = refused(written(plugin, sort, binding(name, name="x"), what="binding"))
        assert e.code == 422 and e.message.endswith(f"spec.paramRef: Forbidden: {text}")
    server.grants.add(("bob", "get", "*", "x"))
    for name in ("none", "odd", "plain"):
        written(plugin, sort, binding(name, name="x"), what="binding").run()


def test_an_authorizer_error_refuses(server, monkeypatch):
    monkeypatch.setattr(server.initializer.authorizer, "authorize", lambda q: (2, "", "it is down"))
    server.kinds["", "v1", "Secret"] = [SimpleNamespace(resource="secrets")]
    plugin = server.plugin(policy_params_authorization)
    assert refused(written(plugin, "validating", policy("validating", SECRET))).message.endswith("spec.paramKind: Forbidden: it is down")
    assert refused(written(plugin, "mutating", binding("p", name="x"), what="binding")).message.endswith("Forbidden: it is down")
