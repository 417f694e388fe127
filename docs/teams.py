"""A platform of one's own: a bare API server with three kinds, rules about them, and users from a list.

    python docs/teams.py /var/lib/platform        # then: kubectl --kubeconfig /var/lib/platform/admin.kubeconfig get teams

There are no pods and no nodes here, only what every API server has (``kinds="none"``) and what this program defines.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import kas
from kas.admission import CREATE, Attributes
from kas.admission.initializer import RESTMapper
from kas.auth import attributes as authz
from kas.auth.user import UserInfo
from kas.informers import Objects

GROUP = "platform.example.com"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Schema = dict[str, Any]


def definition(plural: str, kind: str, spec: Schema, namespaced: bool = True, **more: Any) -> dict[str, Any]:
    """A CustomResourceDefinition of one version."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}, "required": ["spec"]}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    scope = "Namespaced" if namespaced else "Cluster"
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": scope, "versions": [version]},
    }  # fmt: skip


DEFINITIONS = [
    definition("teams", "Team", {"properties": {"members": {"type": "array", "items": {"type": "string"}}}}, namespaced=False),
    definition(
        "environments", "Environment",
        {
            "properties": {"stage": {"type": "string", "enum": ["dev", "prod"], "default": "dev"}, "team": {"type": "string"}},
            "required": ["team"],
        },
        additionalPrinterColumns=[{"name": "Stage", "type": "string", "jsonPath": ".spec.stage"}],
    ),
    definition(
        "databases", "Database",
        {
            "properties": {"environment": {"type": "string"}, "sizeGiB": {"type": "integer", "minimum": 1, "default": 10}},
            "x-kubernetes-validations": [
                {"rule": "!has(oldSelf.sizeGiB) || self.sizeGiB >= oldSelf.sizeGiB", "message": "a database cannot shrink"}
            ],
        },
        subresources={"status": {}},
    ),
]  # fmt: skip


async def install(context: kas.HookContext) -> None:
    """The definitions are there before anybody is served; another worker, or an earlier start, may have made them. Made is not yet served:
    each worker takes a definition up once its names are accepted."""
    for wanted in DEFINITIONS:
        code, answer = await context.request("POST", CRDS, wanted)
        if code not in (201, 409):
            raise RuntimeError(answer["message"])
    names, served = {wanted["spec"]["names"]["plural"] for wanted in DEFINITIONS}, set[str]()
    async with asyncio.timeout(30):
        while not names <= served:
            code, answer = await context.request("GET", f"/apis/{GROUP}/v1")
            served = {resource["name"] for resource in answer["resources"]} if code == 200 else set()
            await asyncio.sleep(0.01)


class TeamMustExist:
    """An admission plug-in: who makes an environment names a team there is. What the constructor names, it is given."""

    name = "TeamMustExist"

    def __init__(self, objects: Objects, mapper: RESTMapper) -> None:
        self._objects, self._mapper = objects, mapper

    def handles(self, a: Attributes) -> bool:
        """New environments; asked once for each sort of request."""
        return (a.operation, a.group, a.resource) == (CREATE, GROUP, "environments")

    def validate(self, a: Attributes) -> None:
        """Raises 403 for a team that is not there."""
        team = a.obj["spec"]["team"]
        if self._mapper(GROUP, "v1", "Team") and self._objects.get(GROUP, "teams", "", team) is None:
            raise a.forbid(f"there is no team {team}")


class Members:
    """An authenticator: tokens of a list, which may as well be a directory's."""

    def __init__(self, tokens: dict[str, str]) -> None:
        self._tokens = tokens

    def authenticate_token(self, token: str) -> UserInfo | None:
        """Whose token it is, None for nobody's here."""
        name = self._tokens.get(token)
        return UserInfo(name, ("platform:members",)) if name is not None else None


class MembersRead:
    """An authorizer: members read what the platform defines. For the rest there are RBAC's roles."""

    def authorize(self, a: authz.Attributes) -> authz.Outcome:
        """Allow reads of our group, have no opinion of anything else."""
        ours = a.resource_request and a.api_group == GROUP and a.verb in ("get", "list", "watch")
        return (authz.ALLOW, "", "") if ours and "platform:members" in a.user.groups else (authz.NO_OPINION, "", "")


def build(data_dir: str, tokens: dict[str, str] | None = None, **flags: Any) -> kas.Server:
    """The server of this platform."""
    hooks: dict[str, Callable[[kas.HookContext], Any]] = {"platform-definitions": install}
    return kas.Server(
        kas.Options(data_dir=data_dir, **flags), kinds="none", admission=[TeamMustExist], authenticators=[Members(tokens or {})],
        authorizers=[MembersRead()], post_start=hooks,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(build(sys.argv[1], **dict(flag.split("=") for flag in sys.argv[2:])).run())
