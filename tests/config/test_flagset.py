"""The syntax of the command line: pflag's, and every type of value with Go's messages."""

from __future__ import annotations

import pytest

from kas.config.flagset import parse
from kas.config.flagtypes import AUTO_PORT, TYPES


def values(*args: str):
    parsed = parse(args)
    assert parsed.errors == []
    return parsed.values


def test_values_follow_an_equals_sign_or_are_the_next_argument():
    assert values("--event-ttl=1h", "--secure-port", "7", "-v", "4") == {"event-ttl": 3600.0, "secure-port": 7, "v": 4}
    assert values("--log-dir", "-odd") == {"log-dir": "-odd"}
    assert values("--log-dir=a=b") == {"log-dir": "a=b"}
    assert values("-v4") == values("-v=4") == values("--v=4") == {"v": 4}


def test_a_bool_takes_its_value_only_after_an_equals_sign():
    assert values("--profiling") == values("--profiling=t") == values("--profiling=1") == {"profiling": True}
    assert values("--anonymous-auth=false") == values("--anonymous-auth=F") == {"anonymous-auth": False}
    assert parse(["--anonymous-auth", "false"]).errors == ['"kas serve" does not take any arguments, got ["false"]']


def test_underscores_count_as_dashes():
    assert values("--event_ttl=1s") == {"event-ttl": 1.0}


def test_lists_are_appended_to_and_not_trimmed():
    assert values("--tls-san=a,b", "--tls-san", "c") == {"tls-san": ["a", "b", "c"]}
    assert values('--tls-san="a,b", c') == {"tls-san": ["a,b", " c"]}
    assert values("--tls-san=") == {"tls-san": []}
    assert values("--tls-san=a,b\n") == values("--tls-san=\r\na,b\r\nc") == {"tls-san": ["a", "b"]}, "the first record"
    assert values('--tls-san="a""b\nc",') == {"tls-san": ['a"b\nc', ""]}
    assert values("--service-account-issuer=a,b", "--service-account-issuer=c") == {"service-account-issuer": ["a,b", "c"]}
    assert values("--tls-curve-preferences=1,2", "--tls-curve-preferences=3") == {"tls-curve-preferences": [1, 2, 3]}


def test_maps_are_added_to():
    assert values("--runtime-config=api/all=true,apps/v1=false", "--runtime-config", "api/all=false") == {
        "runtime-config": {"api/all": "false", "apps/v1": "false"}
    }
    assert values("--feature-gates=A=true,kube:B=false", "--feature-gates=C=true") == {
        "feature-gates": {"": ["A=true", "C=true"], "kube": ["B=false"]}
    }


def test_two_dashes_end_the_flags():
    assert parse(["--", "--event-ttl=x"]).errors == ['"kas serve" does not take any arguments, got ["--event-ttl=x"]']


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--nope=1"], "unknown flag: --nope"),
        (["--nope", "1"], "unknown flag: --nope"),
        (["--secure-prt=1"], "unknown flag: --secure-prt (did you mean --secure-port?)"),
        (["--Service_Cluster_IP", "1"], "unknown flag: --Service_Cluster_IP (did you mean --service-cluster-ip-range?)"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["-v"], "flag needs an argument: 'v' in -v"),
        (["--v"], "flag needs an argument: --v"),
        (["--=x"], "bad flag syntax: --=x"),
        (["---v"], "bad flag syntax: ---v"),
        (["-vx"], 'invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid syntax'),
        (["--workers=1.5"], 'invalid argument "1.5" for "--workers" flag: strconv.ParseInt: parsing "1.5": invalid syntax'),
        (["--workers=99999999999999999999"],
         'invalid argument "99999999999999999999" for "--workers" flag: '
         'strconv.ParseInt: parsing "99999999999999999999": value out of range'),
        (["--profiling=yes"],
         'invalid argument "yes" for "--profiling" flag: strconv.ParseBool: parsing "yes": invalid syntax'),
        (["--api-rate=x"], 'invalid argument "x" for "--api-rate" flag: strconv.ParseFloat: parsing "x": invalid syntax'),
        (["--api-rate=nan"], 'invalid argument "nan" for "--api-rate" flag: strconv.ParseFloat: parsing "nan": invalid syntax'),
        (["--api-rate=1e999"], 'invalid argument "1e999" for "--api-rate" flag: strconv.ParseFloat: parsing "1e999": value out of range'),
        (["--api-rate=1_0"], 'invalid argument "1_0" for "--api-rate" flag: strconv.ParseFloat: parsing "1_0": invalid syntax'),
        (["--audit-log-batch-throttle-qps=inf"],
         'invalid argument "inf" for "--audit-log-batch-throttle-qps" flag: strconv.ParseFloat: parsing "inf": invalid syntax'),
        (["--bind-address=x"], 'invalid argument "x" for "--bind-address" flag: failed to parse IP: "x"'),
        (["--bind-address=fe80::1%lo"], 'invalid argument "fe80::1%lo" for "--bind-address" flag: failed to parse IP: "fe80::1%lo"'),
        (["--version=vx"], 'invalid argument "vx" for "--version" flag: could not parse "vx" as version'),
        (["--version=v1.36"], 'invalid argument "v1.36" for "--version" flag: illegal version string "v1.36"'),
        (["--version=v1.36.02"],
         'invalid argument "v1.36.02" for "--version" flag: illegal zero-prefixed version component "02" in "v1.36.02"'),
        (["--version=v1.36.2-a_"],
         'invalid argument "v1.36.2-a_" for "--version" flag: could not parse pre-release/metadata (-a_) in version "v1.36.2-a_"'),
        (["--version=v1.36.3"],
         'invalid argument "v1.36.3" for "--version" flag: version "v1.36.3" must match major/minor/patch of default version "v1.36.2"'),
        (["--version=x"], 'invalid argument "x" for "--version" flag: strconv.ParseBool: parsing "x": invalid syntax'),
        (['--tls-san=é"b'],
         'invalid argument "é\\"b" for "--tls-san" flag: parse error on line 1, column 3: bare " in non-quoted field'),
        (['--tls-san=x,"a'],
         'invalid argument "x,\\"a" for "--tls-san" flag: parse error on line 1, column 5: extraneous or missing " in quoted-field'),
        (['--tls-san="a"b'],
         'invalid argument "\\"a\\"b" for "--tls-san" flag: parse error on line 1, column 3: extraneous or missing " in quoted-field'),
        (["--tls-san=\n"], 'invalid argument "\n" for "--tls-san" flag: EOF'),
        (["--service-node-port-range=3-2"],
         'invalid argument "3-2" for "--service-node-port-range" flag: end port cannot be less than start port: 3-2'),
        (["--service-node-port-range=x"],
         'invalid argument "x" for "--service-node-port-range" flag: strconv.Atoi: parsing "x": invalid syntax'),
        (["--tls-sni-cert-key=x,y:"], 'invalid argument "x,y:" for "--tls-sni-cert-key" flag: empty names list is not allowed'),
        (["--tls-sni-cert-key=x"],
         'invalid argument "x" for "--tls-sni-cert-key" flag: expected comma separated certificate and key file paths'),
        (["--vmodule=x"], 'invalid argument "x" for "--vmodule" flag: "x" does not have the pattern=N format'),
        (["--vmodule=a=1=2"], 'invalid argument "a=1=2" for "--vmodule" flag: "a=1=2" does not have the pattern=N format'),
        (["--vmodule=a=b,"],
         'invalid argument "a=b," for "--vmodule" flag: parsing verbosity in "a=b": strconv.ParseUint: parsing "b": invalid syntax'),
        (["--v=-1"], 'invalid argument "-1" for "-v, --v" flag: strconv.ParseUint: parsing "-1": invalid syntax'),
        (["--v=2147483648"],
         'invalid argument "2147483648" for "-v, --v" flag: strconv.ParseUint: parsing "2147483648": value out of range'),
        (["--history-max-size=1Qi"],
         'invalid argument "1Qi" for "--history-max-size" flag: quantities must match the regular expression '
         "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        (["--store-max-size=1e30"], 'invalid argument "1e30" for "--store-max-size" flag: value out of range'),
    ],
)  # fmt: skip
def test_errors_are_pflags(args, says):
    assert parse(args).errors == [says]


def test_parsing_continues_after_an_error():
    parsed = parse(["--nope", "1", "--workers=x", "--event-ttl=2s", "--v"])
    assert len(parsed.errors) == 3 and parsed.values == {"event-ttl": 2.0}


@pytest.mark.parametrize(
    ("kind", "text", "value", "shown"),
    [
        ("int", "0x10", 16, "16"), ("int", "010", 8, "8"), ("int", "-1_0", -10, "-10"),
        ("duration", "1m30s", 90.0, "1m30s"), ("duration", "0", 0.0, "0s"), ("duration", "500ms", 0.5, "500ms"),
        ("quantity", "64Gi", 64 << 30, "64Gi"), ("quantity", "1e3", 1000, "1000"), ("quantity", "1.5Ki", 1536, "1536"),
        ("quantity", "100m", 1, "1"),
        ("portRange", "30000+9", (30000, 30009), "30000-30009"), ("portRange", "80", (80, 80), "80-80"),
        ("port", "auto", AUTO_PORT, "auto"), ("port", "-1", -1, "-1"), ("ip", "::1", "::1", "::1"),
        ("ip", "::ffff:127.0.0.1 ", "127.0.0.1", "127.0.0.1"), ("version[=true]", "F", "false", "false"),
        ("version[=true]", "raw", "raw", "raw"), ("float", "0.5", 0.5, "0.5"),
        ("version[=true]", "v1.36.2-gke.1+b", "v1.36.2-gke.1+b", "v1.36.2-gke.1+b"),
        ("namedCertKey", "c,k:a,b", ["c,k:a,b"], "[c,k:a,b]"),
    ],
)  # fmt: skip
def test_types_are_parsed_and_printed(kind, text, value, shown):
    assert TYPES[kind].read(text, None) == value
    assert TYPES[kind].show(value) == shown
