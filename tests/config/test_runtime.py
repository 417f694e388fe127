"""``--runtime-config``."""

from __future__ import annotations

import pytest

from kas.config.runtime import enabled_versions, problems
from kas.types.scheme import BUILTIN


def test_versions_classes_and_resources():
    everything = enabled_versions(BUILTIN, {"api/all": "true"}).versions
    assert everything == {(r.group, r.version) for r in BUILTIN.resources}
    stable = enabled_versions(BUILTIN, {"api/beta": "false", "apps/v1": "false", "/v1": "true"}).versions
    assert ("apps", "v1") not in stable and ("", "v1") in stable
    assert not [v for _, v in stable if "beta" in v]
    # The more specific key wins, whatever the order; a key without a value is true.
    assert ("apps", "v1") in enabled_versions(BUILTIN, {"apps/v1": "", "api/all": "false"}).versions


def test_single_resources():
    core = enabled_versions(BUILTIN, {"/v1/pods": "false"})
    assert [r.resource for r in BUILTIN.resources if (r.group, r.version) == ("", "v1") and not core.serves(r)] == ["pods"]
    on = enabled_versions(BUILTIN, {"apps/v1/deployments": "false"})
    by_name = {r.resource: r for r in BUILTIN.resources if (r.group, r.version) == ("apps", "v1")}
    assert not on.serves(by_name["deployments"]) and on.serves(by_name["daemonsets"])


@pytest.mark.parametrize("key", ["v1", "api/v1", "v1/pods", "api/v1/pods"])
def test_old_names_of_the_core_group(key: str):
    """kube-apiserver treats each of them as ``/v1``; upstream's test-cmd.sh starts it with ``api/v1``."""
    assert ("", "v1") in enabled_versions(BUILTIN, {"api/all": "false", key: ""}).versions
    assert ("", "v1") not in enabled_versions(BUILTIN, {key: "false", "api/legacy": "true"}).versions


@pytest.mark.parametrize("turn", [1, -1])
def test_the_order_of_keys_does_not_matter(turn: int):
    """Classes come before versions, the wider before the narrower, and resources last (resourceconfig's MergeAPIResourceConfigs)."""
    stable = enabled_versions(BUILTIN, dict([("api/all", "true"), ("api/beta", "false"), ("api/alpha", "false")][::turn])).versions
    assert stable == {(r.group, r.version) for r in BUILTIN.resources if "alpha" not in r.version and "beta" not in r.version}
    one = enabled_versions(BUILTIN, dict([("apps/v1", "false"), ("apps/v1/deployments", "true")][::turn]))
    served = [r.resource for r in BUILTIN.resources if (r.group, r.version) == ("apps", "v1") and one.serves(r)]
    assert ("apps", "v1") in one.versions and served == ["deployments"]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"foo/v9": "true", "api/nope": "true"}, ["unknown api groups api/nope,foo/v9"]),
        ({"api/all": "false"}, ["invalid runtime-config with only api/all=false"]),
        ({"apps/v9": "true"}, ["group version apps/v9 that has not been registered"]),
        ({"apps/v9/deployments": "true"}, ["group version apps/v9 that has not been registered"]),
        ({"apps/v1/Deployments": "false"},
         ['invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not "Deployments"']),
        ({"apps/v1": "maybe", "foo/v1": "true"}, ["unknown api groups foo/v1"]),
        ({"v1/pods": "maybe"}, ['invalid value of /v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax']),
        ({"v2": "false"}, ["runtime-config invalid key v2"]),
        ({"api/all": "false", "api/legacy": "true"}, ["invalid runtime-config with only api/all=false"]),
        ({"/v2": "false"}, ["group version v2 that has not been registered"]),
        ({"apps": "true", "foo/v1": "true"}, ["runtime-config invalid key apps"]),
        ({"api/all": "maybe", "api/beta": "1"}, ["invalid value api/all=maybe", "invalid value api/beta=1"]),
        ({"apps/v1": "maybe"}, ['invalid value of apps/v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax']),
    ],
)  # fmt: skip
def test_unknown_names_are_reported(config, says):
    assert problems(BUILTIN, config) == says
    with pytest.raises(ValueError, match=r"invalid|unknown|registered"):
        enabled_versions(BUILTIN, config)
