"""The table of flags compared with kube-apiserver's list."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from kas.config.authentication import anonymous
from kas.config.flags import BY_NAME, FLAGS, SECTIONS
from kas.config.options import Options, read
from kas.config.validation import validate

ROOT = Path(__file__).parents[2]
UPSTREAM = json.loads((ROOT / "tools" / "facts" / "flags.json").read_text())
# Types that accept more than upstream's, or have more help.
WIDER = {"port": "int", "path": "string"}


def test_exactly_the_flags_of_kube_apiserver_are_known():
    assert len(UPSTREAM) == 173
    assert {f["name"] for f in UPSTREAM} == {f.name for f in FLAGS if not f.own}
    assert len(BY_NAME) == len(FLAGS)


@pytest.mark.parametrize("fact", UPSTREAM, ids=lambda f: f["name"])
def test_section_type_short_name_and_default_are_upstreams(fact):
    flag = BY_NAME[fact["name"]]
    assert flag in SECTIONS[fact["section"]]
    assert WIDER.get(flag.kind.name, flag.kind.name) == fact["type"]
    assert flag.short == fact.get("short", "")
    shown = flag.kind.show(flag.default) if flag.default else ""
    default = fact["default"] if fact["default"] not in (None, "[]") else ""
    if flag.upstream is None:
        assert shown == default
    else:
        assert flag.upstream == default != shown, "a default of our own is marked as such only where it is"


def test_every_row_has_an_effect():
    for flag in FLAGS:
        assert flag.text.endswith((".", "docs/flags.md.", "…")) or flag.text[-1] in '."', flag.name
        assert bool(flag.effect.why) == (flag.effect.kind != "works"), flag.name
        assert not (flag.own and flag.effect.kind != "works"), flag.name


def test_options_declare_flags_that_work():
    declared = set(get_type_hints(Options)) - {"given"}
    works = {f.attribute for f in FLAGS if f.effect.kind == "works"} - {"help"}
    assert declared == works


def test_working_flags_are_read_somewhere():
    """Not only by the checks of their values."""
    files = [p for p in (ROOT / "kas").rglob("*.py") if p.name not in ("options.py", "validation.py") and p.parent.name != "flags"]
    text = "\n".join(p.read_text() for p in files) + (ROOT / "kas/config/options.py").read_text().partition("class Completed")[2]
    read_ = set(re.findall(r"\.([a-z_0-9]+)\b", text))
    works = [flag for flag in FLAGS if flag.effect.kind == "works" and flag.name != "help"]
    assert [flag.name for flag in works if flag.attribute not in read_] == []


# A value of each type that is no default; of a flag where its type's value is invalid.
GIVEN = {
    "bool": "", "int": "7", "float": "0.01", "float32": "0.5", "string": "x", "path": __file__, "strings": "a,b", "stringArray": "a,b",
    "duration": "1h1m", "ip": "192.0.2.1", "port": "7", "quantity": "1Gi", "mapStringString": "a=b", "stringToString": "a=b",
    "colonSeparatedMultimapStringString": "a:b", "int32Slice": "1,2", "namedCertKey": "a,b", "portRange": "1-2", "Level": "3",
    "pattern=N,...": "a=1", "show-hidden-metrics-for-version": "1.35", "emulated-version": "1.36", "min-compatibility-version": "1.34",
    "watch-cache-sizes": "pods#7", "storage-media-type": "application/yaml",
}  # fmt: skip
ALPHA_LOGGING = "--feature-gates=LoggingAlphaOptions=true"
# Flags that others require.
TOGETHER = {
    **{f"log-{form}-{what}": [ALPHA_LOGGING] for form in ("text", "json") for what in ("split-stream", "info-buffer-size")},
}  # fmt: skip


def _asked(flag) -> str:
    if flag.type == "bool":
        return f"--{flag.name}={'false' if flag.default else 'true'}"
    return f"--{flag.name}={GIVEN.get(flag.name) or GIVEN[flag.kind.name]}"


@pytest.mark.parametrize("flag", [f for f in FLAGS if f.effect.kind == "no effect"], ids=lambda f: f.name)
def test_flags_without_effect_cause_one_warning(flag):
    options, errors = read([_asked(flag), *TOGETHER.get(flag.name, [])])
    assert errors == []
    said = [text for text in options.warnings() if text.startswith(f"--{flag.name} ")]
    value = getattr(options, flag.attribute)
    assert said == ([] if value in flag.effect.same else [f"--{flag.name} has no effect: {flag.effect.why}"])
    # What kas does anyway causes no warning.
    for same in flag.effect.same:
        shown = flag.kind.show(same)
        assert read([f"--{flag.name}={shown}"] if not isinstance(same, tuple) else [])[0].warnings() == []


@pytest.mark.parametrize(("flag", "standard"), [
    ("username-headers", "X-Remote-User header"), ("group-headers", "X-Remote-Group header"),
    ("extra-headers-prefix", "X-Remote-Extra- header prefix"),
])  # fmt: skip
def test_proxies_without_the_standard_headers_cause_a_warning(flag, standard):
    said = f"--requestheader-{flag} is set without specifying the standard {standard} - API aggregation will not work"
    assert read([f"--requestheader-{flag}=X-My-"])[0].warnings() == [said]
    assert read([f"--requestheader-{flag}=X-My-,{standard.split()[0].lower()}"])[0].warnings() == []


@pytest.mark.parametrize(("flags", "let_in", "warned"), [
    ([], True, False), (["--anonymous-auth=false"], False, False), (["--authorization-mode=RBAC,AlwaysAllow"], False, True),
    (["--authorization-mode=AlwaysAllow", "--anonymous-auth=false"], False, False),
])  # fmt: skip
def test_always_allow_excludes_anonymous_users(flags, let_in, warned):
    options, errors = read(flags)
    assert (errors, anonymous(options)) == ([], let_in)
    said = "--anonymous-auth has no effect: with --authorization-mode=AlwaysAllow requests without a credential are refused"
    assert options.warnings() == [said] * warned


def test_without_flags_there_are_no_messages():
    options, errors = read([])
    assert errors == [] and options.warnings() == [] and options.given == ()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--oidc-issuer-url=https://x", "--oidc-client-id=c", "--oidc-signing-algs=HS256"], ['oidc: unsupported signing alg: "HS256"']),
        (
            ["--show-hidden-metrics-for-version=1.36"],
            [
                "--show-hidden-metrics-for-version must be omitted or have the value '1.35'. Only the previous minor version is allowed"
            ],
        ),
        (
            ["--allow-metric-labels=apiserver_request_total=GET"],
            ["--allow-metric-labels must have a list of kv pair with format `metricName,labelName=labelValue, labelValue,...`"],
        ),
        (["--allow-metric-labels=apiserver_request_total,verb=GET,LIST"], []),
        (["--oidc-username-claim=email"], ["oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"]),
        (["--oidc-username-claim=sub"], ["oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"]),
        (["--service-account-issuer=a", "--service-account-issuer=a"], ['service-account-issuer "a" is already specified']),
        (["--service-account-jwks-uri=https://[x"],
         ['service-account-jwks-uri must be a valid URL: parse "https://[x": missing \']\' in host']),
        (["--service-account-jwks-uri=x"], ["service-account-jwks-uri requires https scheme, parsed as: x"]),
        (["--service-account-signing-key-file=/gone", "--service-account-issuer=a"],
         ["failed to parse service-account-issuer-key-file: open /gone: no such file or directory"]),
        (["--tls-sni-cert-key=/gone,/gone"], ["failed to load SNI cert and key: open /gone: no such file or directory"]),
        (["--livez-grace-period=-1s", "--shutdown-watch-termination-grace-period=-1s"],
         ["--livez-grace-period can not be a negative value",
          "shutdown-watch-termination-grace-period, if provided, can not be a negative value"]),
        (["--runtime-config=api/ga=false"], ["--runtime-config=api/ga=false conflicts with --enable-priority-and-fairness=true"]),
        (["--runtime-config=api/ga=false", "--enable-priority-and-fairness=false"], []),
        (["--runtime-config=api/all=false,flowcontrol.apiserver.k8s.io/v1=true"], []),
        (["--service-cluster-ip-range=foo"], ["service-cluster-ip-range[0] is not a valid cidr"]),
        (["--service-cluster-ip-range=10.0.0.0/24,foo"], ["service-cluster-ip-range[1] is not an ip net"]),
        (["--service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24"],
         ["--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family"]),
        (["--service-cluster-ip-range=10.0.0.0/24,fd00::/108,fd01::/108"],
         ["--service-cluster-ip-range must not contain more than two entries"]),
        (["--service-cluster-ip-range=10.0.0.0/30"],
         ["error determining service IP ranges for primary service cidr: the service cluster IP range must be at least 8 IP addresses"]),
        (["--kubernetes-service-node-port=70000"],
         ["--kubernetes-service-node-port 70000 must be between 0 and 65535, inclusive. If 0, the Kubernetes master service will be of "
          "type ClusterIP"]),
        (["--tls-san=a.example,*.b_c.example,192.0.2.1,::1"], []),
        (["--tls-san=é,,300.1.1.1,a b"],
         [f'--tls-san: "{name}" is neither a DNS name nor an IP address' for name in ("é", "", "300.1.1.1", "a b")]),
        (["--tls-san=" + 254 * "x"], [f'--tls-san: "{254 * "x"}" is neither a DNS name nor an IP address']),
        (["--peer-ca-file=/nowhere"], ["open /nowhere: no such file or directory"]),
        (["--service-cluster-ip-range=::/0", "--advertise-address=::1"],
         ["error determining service IP ranges for primary service cidr: shortest allowed prefix length for service CIDR is 64, got 0"]),
        (["--service-cluster-ip-range=10.0.0.0/24,fd00::/63"],
         ["error determining service IP ranges for secondary service cidr: shortest allowed prefix length for service CIDR is 64, got 63"]),
        (["--service-cluster-ip-range=0.0.0.0/0,fd00::/64"], []),  # the maximum size of ServiceCIDRs
        (["--service-cluster-ip-range=a,b,c"], ["service-cluster-ip-range[0] is not a valid cidr"]),
        (["--service-cluster-ip-range=10.0.0.5/24"], []),
        (["--service-cluster-ip-range=010.000.0.5/024,fd00::/0108"], []),  # as Go has long read them
        (["--service-cluster-ip-range=10.0.0.0"], ["service-cluster-ip-range[0] is not a valid cidr"]),
        (["--service-cluster-ip-range=10.0.0.0/255.255.255.0"], ["service-cluster-ip-range[0] is not a valid cidr"]),
        (["--service-cluster-ip-range=10.0.0.0/24, fd00::/108"], ["service-cluster-ip-range[1] is not an ip net"]),
        (["--service-cluster-ip-range="], []),
        (["--kubernetes-service-node-port=100"], ["kubernetes service port range {30000 2768} doesn't contain 100"]),
        (["--advertise-address=::1"], ['service IP family "10.0.0.0/24" must match public address family "::1"']),
        (["--advertise-address=::1", "--endpoint-reconciler-type=none"], []),
        (["--data-dir="], ["--data-dir must be specified"]),
        (
            ["--data-dir=~nobody-of-that-name/kas"],
            ['--data-dir: "~nobody-of-that-name/kas" begins with an unknown home directory: HOME is not set, or there is no such user'],
        ),
        (["--data-dir=/d\udcff"], ['--data-dir: "/d\udcff" is not a valid UTF-8 path']),
        (["--goaway-chance=1", "--cors-allowed-origins=", "--tls-min-version=x", "--livez-grace-period=-1s", "--etcd-servers="],
         ["--livez-grace-period can not be a negative value", "--goaway-chance can not be less than 0 or greater than 0.02",
          'unknown tls version "x"']),
        (["--coordinated-leadership-lease-duration=10s"], []),
        (["--coordinated-leadership-lease-duration=10s", "--feature-gates=CoordinatedLeaderElection=true"],
         ["--coordinated-leadership-lease-duration must be greater than --coordinated-leadership-renew-deadline"]),
        (["--coordinated-leadership-retry-period=9s", "--feature-gates=CoordinatedLeaderElection=true"],
         ["--coordinated-leadership-renew-deadline must be greater than 1.2 times --coordinated-leadership-retry-period, which must be "
          "greater than zero"]),
        (["--storage-initialization-timeout=-1s"], ["--storage-initialization-timeout can not be negative value"]),
        (["--logging-format=x"], ['format: Invalid value: "x": Unsupported log format']),
        (["--logging-format=json", "--vmodule=a=1"], ["vmodule: Forbidden: Only supported for text log format"]),
        (["--logging-format=json", "--feature-gates=LoggingBetaOptions=false"],
         ["format: Forbidden: Feature LoggingBetaOptions is disabled"]),
        (["--log-json-split-stream", "--log-text-info-buffer-size=1Ki"],
         ["options.text.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled",
          "options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"]),
        (["--storage-media-type=application/yaml", "--storage-backend=etcd3", "--etcd-servers=http://a:1"],
         ['--storage-media-type "application/yaml" is invalid, allowed values: application/json, application/vnd.kubernetes.protobuf']),
        (["--storage-backend=etcd3", "--etcd-servers=http://a:65536,b:2379,http://[::1"],
         ["--etcd-servers: http://a:65536 names no port between 1 and 65535", "--etcd-servers: http://[::1 is not the URL of a server"]),
        (["--watch-cache-sizes=pods#5,nodes"], ["invalid value of watch cache size: nodes"]),
        (["--watch-cache-sizes=pods#x"], ["invalid size of watch cache size: pods#x"]),
        (["--storage-media-type=application/vnd.kubernetes.protobuf"], []),
        (["--storage-media-type=text/x"], ['--storage-media-type "text/x" invalid, allowed values: '
                                           "application/json, application/vnd.kubernetes.protobuf, application/yaml"]),
        (["--storage-media-type="], ['"" is not a valid mime-type']),
        (["--watch-cache-sizes=pods#-1"], ["watch cache size cannot be negative: pods#-1"]),
        (["--watch-cache-sizes=pods", "--watch-cache=false"], []),
        (["--etcd-servers-overrides=pods"],
         ["--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"]),
        (["--oidc-signing-algs=none"], ["oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"]),
        (["--requestheader-uid-headers=X-Uid"],
         ["--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work"]),
        (["--requestheader-uid-headers=X-Uid,x-remote-uid"], []),
        (["--requestheader-uid-headers=X-Remote-Uid", "--feature-gates=RemoteRequestHeaderUID=false"],
         ['--requestheader-uid-headers requires the "RemoteRequestHeaderUID" feature to be enabled']),
        (["--emulated-version=kube=1.36", "--min-compatibility-version=v1.33"], []),
        (["--min-compatibility-version=v1.32"], ["minCompatibilityVersion version 1.32 is not between [1.33, 1.36]"]),
        (["--emulated-version=1.35"], ["emulation version 1.35 is not between [1.36, 1.36]"]),
        (["--emulation-forward-compatible", "--runtime-config-emulation-forward-compatible"],
         ["ServerRunOptions.EmulationForwardCompatible cannot be set to true if the emulation version is the same as the binary version",
          "ServerRunOptions.RuntimeConfigEmulationForwardCompatible cannot be set to true if the emulation version is the same as the "
          "binary version"]),
        (["--strict-transport-security-directives=max-age=,,preload"], ["empty value in strict-transport-security-directives"]),
        (["--service-cluster-ip-range=x", "--goaway-chance=1", "--logging-format=y"],  # in upstream's order
         ['format: Invalid value: "y": Unsupported log format', "--goaway-chance can not be less than 0 or greater than 0.02",
          "service-cluster-ip-range[0] is not a valid cidr"]),
        (["--emulated-version=1.37"], ["emulation version 1.37 is not between [1.36, 1.36]"]),
        (["--min-compatibility-version=1.37"], ["minCompatibilityVersion version 1.37 is not between [1.33, 1.36]"]),
        (["--emulated-version=1.34.2"], ["patch version not allowed, got: kube=1.34.2"]),
        (["--emulated-version=1.34,kube=1.35"], ["duplicate version flag, kube=1.34 and kube=1.35"]),
        (["--emulated-version=x=1.34"], ["component not registered: x"]),
        (["--emulated-version=x"], ['could not parse "x" as version']),
        (["--feature-gates=kube:KMSv1=true,KMSv1=true"],
         ["set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use"]),
        (["--peer-advertise-ip=::1", "--peer-advertise-port=6443"], []),
        (["--peer-advertise-ip=host", "--peer-advertise-port=https"],
         ['--peer-advertise-ip "host" is not an address', '--peer-advertise-port "https" must be between 1 and 65535, inclusive']),
        (["--peer-advertise-port=65536"], ['--peer-advertise-port "65536" must be between 1 and 65535, inclusive']),
        (["--peer-advertise-port=0"], ['--peer-advertise-port "0" must be between 1 and 65535, inclusive']),
        (["--peer-advertise-ip=::1", "--feature-gates=UnknownVersionInteroperabilityProxy=false"],
         ["--peer-advertise-ip requires UnknownVersionInteroperabilityProxy feature to be turned on"]),
        (["--oidc-required-claim=a"],
         ['invalid argument "a" for "--oidc-required-claim" flag: malformed pair, expect string=string',
          "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"][:1]),
        (["--tls-curve-preferences=29,70000"], ["curve preference 70000 is out of range (must be 1-65535)"]),
        (["--tls-curve-preferences=29,23,29"], ["duplicate curve preference 29"]),
        (["--tls-curve-preferences=1,29"], ["curve preference 1 is not supported by the current Go version"]),
        (["--tls-cipher-suites=A,B"], ["Cipher suite A not supported or doesn't exist"]),
        # Go can open a directory, and not read it.
        (["--client-ca-file=/tmp"], ["read /tmp: is a directory"]),
        (["--service-account-key-file=/tmp"], ["read /tmp: is a directory"]),
        (["--audit-log-path=a", "--audit-log-version=x", "--audit-log-mode=y", "--audit-log-format=z", "--audit-log-maxage=-1"],
         ['invalid audit log mode y, allowed modes are "batch,blocking,blocking-strict"',
          'invalid group version, allowed versions are ["audit.k8s.io/v1"]',
          'invalid audit log format z, allowed formats are "legacy,json"', "--audit-log-maxage -1 can't be a negative number"]),
        (["--requestheader-client-ca-file=/dev/null"], ['missing content for CA bundle "request-header::/dev/null"']),
    ],
)  # fmt: skip
def test_messages_about_values(flags, says):
    assert read(flags)[1] == says


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--authorization-webhook-config-file=x"], ["cannot specify --authorization-webhook-config-file without mode Webhook"]),
        (["--authorization-mode=Webhook"], ["authorization-mode Webhook's authorization config file not passed"]),
        (["--authorization-mode=Webhook,X", "--authorization-webhook-config-file=x"], ['authorization-mode "X" is not a valid mode']),
        (
            ["--authorization-config=x", "--authorization-webhook-version=v1"],
            ["--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"],
        ),
        (["--authorization-config=x", "--authorization-policy-file=y"], []),
    ],
)  # fmt: skip
def test_authorizers(flags, says):
    assert read(flags)[1] == says


def test_a_given_signing_key_needs_an_issuer():
    """The default issuer belongs to the key that this server generates."""
    together = "--service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified together"
    key = f"--service-account-signing-key-file={__file__}"
    assert read([key])[1] == ["service-account-issuer is a required flag", together]
    assert read([key, "--service-account-issuer=https://x"])[1] == []
    verifying = [f"--service-account-key-file={__file__}", "--service-account-issuer=https://x"]
    assert read(verifying)[1] == [] and read([*verifying, "--api-audiences=a"])[1] == [together]
    assert read([*verifying, "--api-audiences=a", key])[1] == []
    assert read(["--service-account-issuer="])[1] == ["service-account-issuer should not be an empty string"]
    assert read([key, "--service-account-issuer="])[1] == ["service-account-issuer should not be an empty string", together]


def test_at_least_one_port_is_open():
    assert read(["--secure-port=0"])[1] == ["--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0"]
    assert read(["--secure-port=0", "--insecure-port=8080"])[1] == []
    assert read(["--secure-port=-1"])[1] == ["--secure-port -1 must be between 1 and 65535, inclusive. It cannot be turned off with 0"]
    assert read(["--insecure-port=-1"])[1] == ["--insecure-port -1 must be between 0 and 65535, inclusive. 0 for turning off insecure port"]


@pytest.mark.parametrize(
    ("pattern", "tied"),
    [("example.com", False), ("example\\.com$", False), ("^https://example.com", True), (".*", False), ("^.*$", True),
     ("example.com:443", False), ("//example.com", False), ("//example.com$", True)],
)  # fmt: skip
def test_allowed_origins_must_be_anchored(pattern, tied):
    """An unanchored pattern also matches https://example.com.evil.net, or evil-example.com. As upstream, a scheme's colon counts as a
    port's."""
    found = [text for text in validate(Options({"cors-allowed-origins": [pattern]})) if "cors" in text]
    assert bool(found) is not tied
    assert all("regular expression does not pin to start/end of host in the origin header" in text for text in found)


def test_an_invalid_origin_pattern():
    (found,) = validate(Options({"cors-allowed-origins": ["^(https$"]}))
    why = "--cors-allowed-origins has an invalid regular expression: error parsing regexp: missing closing ): `^(https$`, help: List of"
    assert found.startswith(why)
    (found,) = validate(Options({"cors-allowed-origins": [""]}))
    assert found.startswith("empty value in --cors-allowed-origins, help: List of")


def test_maps():
    options, errors = read(["--runtime-config=batch/v1,apps/v1=false", "--runtime-config=api/beta=true"])
    assert errors == [] and options.runtime_config == {"batch/v1": "", "apps/v1": "false", "api/beta": "true"}
    options, _ = read(["--oidc-required-claim=a=b,c=d", "--oidc-required-claim=e=f=g"])
    assert options.oidc_required_claim == {"a": "b,c=d", "e": "f=g"}
