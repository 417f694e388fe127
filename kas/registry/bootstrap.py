"""The objects that a server creates by itself.

``initial`` returns everything that an empty store needs as finished objects (with uids, times and managedFields; only the
resourceVersion comes from the store), so that one group commit writes them. For a store that already has some, ``plan``
returns what to create, update or recreate: upstream's post-start hooks (``pkg/registry/rbac/rest``,
``pkg/registry/flowcontrol/rest`` and ``ensurer``, ``pkg/registry/scheduling/rest``,
``pkg/controlplane/controller/{systemnamespaces,kubernetesservice,...}``).
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import orjson

from kas.meta.largejson import let_go
from kas.meta.names import is_label_value
from kas.meta.random import new_uid
from kas.meta.records import NamedTuple
from kas.registry import bootstrap_rbac, bootstrap_trust
from kas.store import TransformError
from kas.types.mistakes import mistake

log = logging.getLogger("kas")

Obj = dict[str, Any]
# (group, resource, namespace, name) -> the stored object or None
Get = Callable[[str, str, str, str], Obj | None]

RBAC = "rbac.authorization.k8s.io"
FLOWCONTROL = "flowcontrol.apiserver.k8s.io"
REGISTRATION = "apiregistration.k8s.io"
AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
TRACKING = "kube-apiserver-legacy-service-account-token-tracking"
APF_AUTOUPDATE = "apf.kubernetes.io/autoupdate-spec"
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
# The values that Go's ``strconv.ParseBool`` accepts.
_BOOLS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False)
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")  # date.fromisoformat accepts weeks, too
TABLE = Path(__file__).resolve().parent.parent / "auth" / "tables" / "bootstrap.json"


class Entry(NamedTuple):
    """An object and its place in the store."""

    group: str
    resource: str
    obj: Obj

    @property
    def namespace(self) -> str:
        """The object's namespace; "" for none."""
        found: str = self.obj["metadata"].get("namespace", "")
        return found

    @property
    def name(self) -> str:
        """The object's name."""
        found: str = self.obj["metadata"]["name"]
        return found


class Change(NamedTuple):
    """``action`` is create, update (``entry.obj`` has the resourceVersion it was computed from), recreate or delete (likewise)."""

    action: str
    entry: Entry


_kept: dict[str, Any] = {}  # the table without its objects, cached by the first read


def _objects(now: str) -> dict[str, Any]:
    """Returns the table with its times filled in; a new copy with each call, so the objects may be changed."""
    found: dict[str, Any] = orjson.loads(TABLE.read_bytes().replace(b'"@now"', json.dumps(now).encode()))
    if not _kept:
        _kept.update({k: v for k, v in found.items() if k not in ("objects", "gated", "gatedByDefault")})
    return found


def _constants() -> dict[str, Any]:
    if not _kept:
        _objects("")
    return _kept


def system_objects(now: str, features: Iterable[str] = ()) -> list[Entry]:
    """Returns the namespaces, priority classes, RBAC and flow-control objects; ``features`` are the enabled gates."""
    table = _objects(now)
    on = frozenset(features)
    lacking = [item for item in table["gatedByDefault"] if item["gate"] not in on]
    gone = {item["clusterRole"] for item in lacking if len(item) == 2}
    rows = [row for row in table["objects"] if row[2]["metadata"]["name"] not in gone]
    extra: dict[str, list[Obj]] = {}
    for item in table["gated"]:
        if item["gate"] not in on:
            continue
        if "object" in item:
            rows.append(item["object"])
        else:
            extra.setdefault(item["clusterRole"], []).append(item["rule"])
    out = []
    for group, resource, obj in rows:
        meta = obj["metadata"]
        meta["uid"] = new_uid()
        if resource == "clusterroles" and meta["name"] in extra:
            obj["rules"] = [*(obj["rules"] or ()), *extra[meta["name"]]]
        for item in lacking:
            if resource == "clusterroles" and meta["name"] == item["clusterRole"]:
                _take_away(obj, item)
        out.append(Entry(group, resource, obj))
    return out


def _take_away(role: Obj, item: Mapping[str, Any]) -> None:
    """Removes from a ClusterRole what a gate that is off does not add."""
    if "rule" in item:
        role["rules"].remove(item["rule"])
    for rule in role["rules"] if "url" in item else ():
        if item["url"] in rule.get("nonResourceURLs", ()):
            rule["nonResourceURLs"].remove(item["url"])


def role_rules(name: str, features: Iterable[str] = ()) -> list[Obj]:
    """Returns the rules of a bootstrap ClusterRole: the Node authorizer uses those of ``system:node``."""
    for entry in system_objects("", features):
        if entry.resource == "clusterroles" and entry.name == name:
            rules: list[Obj] = entry.obj["rules"]
            return rules
    raise KeyError(name)


# --- objects that depend on parameters -------------------------------------------------------------------------------


def _object(
    kind: str,
    api_version: str,
    name: str,
    now: str,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    generation: int = 0,
    fields: Obj | None = None,
    more: Sequence[Obj] = (),
) -> Obj:
    """Returns the head of an object in output order. ``fields`` are the managed fields besides the labels."""
    meta: Obj = {"name": name}
    if namespace:
        meta["namespace"] = namespace
    meta["uid"] = new_uid()
    if generation:
        meta["generation"] = generation
    meta["creationTimestamp"] = now
    owned = dict(fields or {})
    if labels:
        meta["labels"] = dict(labels)
        owned["f:metadata"] = {"f:labels": {".": {}, **{f"f:{k}": {} for k in sorted(labels)}}}
    entry = {"manager": "kube-apiserver", "operation": "Update", "apiVersion": api_version, "time": now, "fieldsType": "FieldsV1"}
    meta["managedFields"] = [{**entry, "fieldsV1": dict(sorted(owned.items()))}, *more]
    return {"kind": kind, "apiVersion": api_version, "metadata": meta}


def kubernetes_service(now: str, cluster_ip: str, target_port: int, node_port: int = 0) -> Entry:
    """Returns the Service ``kubernetes`` in the namespace default: clients connect to port 443, and to ``node_port`` of every
    node (0 = none); the server listens on ``target_port``."""
    port_fields: Obj = {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}}
    fields = {
        "f:spec": {
            "f:clusterIP": {},
            "f:internalTrafficPolicy": {},
            "f:ipFamilyPolicy": {},
            "f:ports": {".": {}, 'k:{"port":443,"protocol":"TCP"}': port_fields},
            "f:sessionAffinity": {},
            "f:type": {},
        }
    }
    labels = {"component": "apiserver", "provider": "kubernetes"}
    obj = _object("Service", "v1", "kubernetes", now, "default", labels, fields=fields)
    obj["spec"] = {
        "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": target_port}],
        "clusterIP": cluster_ip,
        "clusterIPs": [cluster_ip],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "ipFamilies": ["IPv6" if ":" in cluster_ip else "IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
    }
    obj["status"] = {"loadBalancer": {}}
    if node_port:
        port_fields["f:nodePort"] = {}
        obj["spec"]["ports"][0]["nodePort"] = node_port
        fields["f:spec"]["f:externalTrafficPolicy"] = {}
        obj["spec"] |= {"type": "NodePort", "externalTrafficPolicy": "Cluster"}
    return Entry("", "services", obj)


def kubernetes_endpoints(now: str, addresses: Sequence[str], port: int) -> list[Entry]:
    """Returns Endpoints and EndpointSlice of the kubernetes service, with one address per API server."""
    ips = sorted(addresses)
    old = _object(
        "Endpoints", "v1", "kubernetes", now, "default", {"endpointslice.kubernetes.io/skip-mirror": "true"}, fields={"f:subsets": {}}
    )
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    old["subsets"] = [{"addresses": [{"ip": ip} for ip in ips], "ports": ports}]
    fields: Obj = {"f:addressType": {}, "f:endpoints": {}, "f:ports": {}}
    labels = {"kubernetes.io/service-name": "kubernetes"}
    new = _object("EndpointSlice", "discovery.k8s.io/v1", "kubernetes", now, "default", labels, 1, fields)
    new["addressType"] = "IPv6" if ":" in ips[0] else "IPv4"
    new["endpoints"] = [{"addresses": [ip], "conditions": {"ready": True}} for ip in ips]
    new["ports"] = [{"name": "https", "protocol": "TCP", "port": port}]
    return [Entry("", "endpoints", old), Entry("discovery.k8s.io", "endpointslices", new)]


def service_cidr(now: str, cidrs: Sequence[str]) -> Entry:
    """Returns the default ServiceCIDR, already Ready."""
    owned: Obj = {".": {}, "f:lastTransitionTime": {}, "f:message": {}, "f:status": {}, "f:type": {}}
    api_version = "networking.k8s.io/v1"
    status: Obj = {
        "manager": "kubernetes-service-cidr-controller",
        "operation": "Apply",
        "apiVersion": api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:conditions": {'k:{"type":"Ready"}': owned}}},
        "subresource": "status",
    }
    obj = _object("ServiceCIDR", api_version, "kubernetes", now, fields={"f:spec": {"f:cidrs": {}}}, more=[status])
    obj["spec"] = {"cidrs": list(cidrs)}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now, "reason": ""}
    obj["status"] = {"conditions": [{**ready, "message": "Kubernetes default Service CIDR is ready"}]}
    return Entry("networking.k8s.io", "servicecidrs", obj)


def authentication_config_map(
    now: str,
    client_ca: str = "",
    request_header_ca: str = "",
    username_headers: Sequence[str] = ("X-Remote-User",),
    uid_headers: Sequence[str] = (),
    group_headers: Sequence[str] = ("X-Remote-Group",),
    extra_prefixes: Sequence[str] = ("X-Remote-Extra-",),
    allowed_names: Sequence[str] = (),
) -> Entry:
    """Returns extension-apiserver-authentication: how aggregated API servers authenticate requests that are proxied to them."""
    lists = dict(zip(bootstrap_trust.LISTS, (allowed_names, extra_prefixes, group_headers, uid_headers, username_headers), strict=True))
    data = bootstrap_trust.combined({}, client_ca, request_header_ca, lists)
    return _config_map("extension-apiserver-authentication", now, data)


def token_tracking_config_map(now: str) -> Entry:
    """Returns the ConfigMap that says since when the use of legacy service-account tokens is recorded."""
    return _config_map(TRACKING, now, {"since": now[:10]})


def _config_map(name: str, now: str, data: dict[str, str]) -> Entry:
    fields: Obj = {"f:data": {".": {}, **{f"f:{k}": {} for k in sorted(data)}}} if data else {}
    obj = _object("ConfigMap", "v1", name, now, "kube-system", fields=fields)
    if data:
        obj["data"] = dict(sorted(data.items()))
    return Entry("", "configmaps", obj)


def api_service(now: str, group: str, version: str) -> Entry:
    """Returns the APIService of a group version that this server serves; groups of virtual resources follow all built-in ones."""
    minimum, priority = _constants()["apiPriorities"].get(f"{group}/{version}", (1000, 100))
    name = f"{version}.{group}"
    spec: Obj = {**({"group": group} if group else {}), "version": version, "groupPriorityMinimum": minimum, "versionPriority": priority}
    fields: Obj = {"f:spec": {f"f:{k}": {} for k in sorted(spec)}}
    obj = _object("APIService", f"{REGISTRATION}/v1", name, now, labels={AUTOMANAGED: "onstart"}, fields=fields)
    obj["spec"] = spec
    available = {"type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local"}
    obj["status"] = {"conditions": [{**available, "message": "Local APIServices are always available"}]}
    return Entry(REGISTRATION, "apiservices", obj)


def api_services(now: str, group_versions: Iterable[tuple[str, str]] | None = None) -> list[Entry]:
    """Returns an APIService for every served group version; without a list, for those served by default. apiregistration
    itself has none."""
    if group_versions is None:
        group_versions = [(g, v) for g, v in _constants()["apiServices"]]
    return [api_service(now, g, v) for g, v in group_versions if g != REGISTRATION]


def server_name(hostname: str) -> str:
    """Returns the identity of the kube-apiserver on this host: a hash of both names, each preceded by its length."""
    names = b"".join(len(name).to_bytes(2, "big") + name for name in (hostname.encode(), b"kube-apiserver"))
    digest = hashlib.sha256(names).digest()[:16]
    bits = int.from_bytes(digest, "big") << 2  # in base 32, whole digits; base64.b32encode would keep a table of 43 kB for this
    return "apiserver-" + "".join(_BASE32[bits >> at & 31] for at in range(125, -1, -5))


def identity_lease(now: str, now_micro: str, hostname: str) -> Entry:
    """Returns the Lease by which API servers know one another. A host name that is no valid label value is left out: Linux
    permits longer ones."""
    name = server_name(hostname)
    labels = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    if not is_label_value(hostname):
        labels["kubernetes.io/hostname"] = hostname
    fields: Obj = {"f:spec": {"f:holderIdentity": {}, "f:leaseDurationSeconds": {}, "f:renewTime": {}}}
    obj = _object("Lease", "coordination.k8s.io/v1", name, now, "kube-system", labels, fields=fields)
    obj["spec"] = {"holderIdentity": f"{name}_{new_uid()}", "leaseDurationSeconds": 3600, "renewTime": now_micro}
    return Entry("coordination.k8s.io", "leases", obj)


def initial(
    now: str,
    cluster_ip: str,
    service_cidrs: Sequence[str],
    advertise: Sequence[str],
    port: int,
    group_versions: Iterable[tuple[str, str]] | None = None,
    client_ca: str = "",
    request_header: Mapping[str, Any] | None = None,
    features: Iterable[str] = (),
    node_port: int = 0,
) -> list[Entry]:
    """Returns everything, in the order in which to write it. ``now`` is an RFC 3339 second; ``request_header`` has the
    keyword arguments of ``authentication_config_map`` besides the client CA."""
    return [
        *system_objects(now, features),
        service_cidr(now, service_cidrs),
        kubernetes_service(now, cluster_ip, port, node_port),
        *(kubernetes_endpoints(now, advertise, port) if advertise else ()),
        authentication_config_map(now, client_ca, **(request_header or {})),
        token_tracking_config_map(now),
        *api_services(now, group_versions),
    ]


# --- a store that is not empty ---------------------------------------------------------------------------------------


def plan(wanted: Iterable[Entry], get: Get, starting: bool = True) -> list[Change]:
    """Returns the changes that the store needs to contain the ``wanted`` objects, keeping changes that users may make. Some
    objects may be changed while a server runs, but are restored when it starts (``starting``)."""
    out = []
    for entry in wanted:
        try:
            old = get(entry.group, entry.resource, entry.namespace, entry.name)
        except TransformError as e:
            if not e.revision:  # it can be read with the right key
                raise
            if starting:
                log.error("%s %s cannot be read and is left as it is: %s", entry.resource, _called(entry), e.why)
            continue
        if old is None:
            out.append(Change("create", _split_off(entry, get)))
            continue
        try:
            action, obj = _reconcile(entry, old)
        except Exception:  # of any kind: the stored object is not valid
            why = mistake(old)
            if not why:
                raise
            log.error("%s %s is stored with wrong types and left as it is: %s", entry.resource, _called(entry), why)
            continue
        if action and (starting or entry.resource != "services"):
            out.append(Change(action, Entry(entry.group, entry.resource, obj)))
    return out


def _split_off(entry: Entry, get: Get) -> Entry:
    name = bootstrap_rbac.SPLIT_OFF.get((entry.resource, entry.name)) if entry.group == RBAC else None
    if name is None:
        return entry
    try:
        source = get(entry.group, entry.resource, "", name)
    except TransformError as e:
        if not e.revision:
            raise
        return entry  # plan reports it
    if source is None or mistake(source):
        return entry
    return Entry(entry.group, entry.resource, bootstrap_rbac.split_off(entry.resource, entry.obj, source))


def _called(entry: Entry) -> str:
    return f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name


_FOLLOWED = {"endpoints": ("subsets",), "endpointslices": ("endpoints", "ports")}


def _reconcile(entry: Entry, old: Obj) -> tuple[str, Obj]:
    if entry.group == RBAC:
        return bootstrap_rbac.reconcile(entry.resource, entry.obj, old)
    if entry.group == FLOWCONTROL:
        return _flow_control(entry.obj, old)
    if entry.resource == "apiservices":
        if old["spec"] != entry.obj["spec"] and AUTOMANAGED in (old["metadata"].get("labels") or {}):
            return "update", {**old, "spec": entry.obj["spec"]}
    if entry.resource == "servicecidrs":
        cidrs, had = entry.obj["spec"]["cidrs"], old["spec"].get("cidrs") or []
        if len(cidrs) == 2 and had == cidrs[:1]:  # a second IP family was enabled
            return "update", {**old, "spec": {"cidrs": cidrs}}
    if entry.resource == "services":
        return _service(entry.obj, old)
    if entry.resource in _FOLLOWED:
        return _followed(entry.obj, old, _FOLLOWED[entry.resource])
    if entry.name == "extension-apiserver-authentication":
        known = old.get("data") or {}
        data = bootstrap_trust.wanted(entry.obj.get("data") or {}, known)
        return ("", old) if data == known else ("update", {**old, "data": data})
    if entry.name == TRACKING and not _is_date((old.get("data") or {}).get("since") or ""):
        return "update", {**old, "data": {**(old.get("data") or {}), **entry.obj["data"]}}
    return "", old


def _followed(new: Obj, old: Obj, keys: tuple[str, ...]) -> tuple[str, Obj]:
    """Updates the server's address. The labels tell other controllers that the endpoints are managed."""
    if old.get("addressType") != new.get("addressType"):  # the field is immutable
        return "recreate", new
    labels = old["metadata"].get("labels") or {}
    if all(new[key] == old.get(key) for key in keys) and new["metadata"]["labels"].items() <= labels.items():
        return "", old
    meta = {**old["metadata"], "labels": {**labels, **new["metadata"]["labels"]}}
    return "update", {**old, "metadata": meta, **{key: new[key] for key in keys}}


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _service(new: Obj, old: Obj) -> tuple[str, Obj]:
    """Type and ports follow the flags (upstream's ``getMasterServiceUpdateIfNeeded``)."""
    spec, had = new["spec"], old["spec"]
    if (spec["type"], spec["ports"]) == (had.get("type"), had.get("ports")):
        return "", old
    changed = {**had, "type": spec["type"], "ports": spec["ports"]}
    changed.pop("externalTrafficPolicy", None)
    if "externalTrafficPolicy" in spec:
        changed["externalTrafficPolicy"] = had.get("externalTrafficPolicy") or spec["externalTrafficPolicy"]
    (own,) = new["metadata"]["managedFields"]
    others = [e for e in old["metadata"].get("managedFields") or () if (e["manager"], e["operation"]) != (own["manager"], own["operation"])]
    return "update", {**old, "metadata": {**old["metadata"], "managedFields": [own, *others]}, "spec": changed}


def _flow_control(new: Obj, old: Obj) -> tuple[str, Obj]:
    """Upstream's ``ensurer``: the spec of an object annotated "true" is restored, one annotated "false" is left alone. An
    object with another or no annotation is managed as long as its spec was not edited (generation 1), and gets its
    annotation. Mandatory objects are always managed."""
    meta = old["metadata"]
    annotations = meta.get("annotations") or {}
    said = _BOOLS.get(annotations.get(APF_AUTOUPDATE) or "")
    ours = meta["name"] in _constants()["mandatoryFlowControl"] or (meta.get("generation") == 1 if said is None else said)
    wanted = annotations if ours is said else {**annotations, APF_AUTOUPDATE: "true" if ours else "false"}
    changed = ours and old["spec"] != new["spec"]
    if not changed and annotations == wanted:
        return "", old
    meta = {**meta, "annotations": wanted}
    if changed:
        meta["generation"] = (meta.get("generation") or 0) + 1
    return "update", {**old, "metadata": meta, "spec": new["spec"] if changed else old["spec"]}


def obsolete(wanted: Iterable[Entry], listed: Callable[[str, str], list[Obj]]) -> list[Change]:
    """Returns the removal of suggested flow-control objects of an earlier release that are managed and no longer suggested;
    ``listed(group, resource)`` returns the stored objects."""
    names: dict[str, set[str]] = {}
    for e in wanted:
        if e.group == FLOWCONTROL:
            names.setdefault(e.resource, set()).add(e.name)
    changes = []
    for resource, known in names.items():
        found = listed(FLOWCONTROL, resource)
        changes += [
            Change("delete", Entry(FLOWCONTROL, resource, obj)) for obj in found
            if obj["metadata"]["name"] not in known and _BOOLS.get((obj["metadata"].get("annotations") or {}).get(APF_AUTOUPDATE) or "")
        ]  # fmt: skip
        let_go(found)
    return changes
