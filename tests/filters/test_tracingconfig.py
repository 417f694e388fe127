"""The file of ``--tracing-config-file``: what is refused, with which messages."""

from __future__ import annotations

import pytest

from kas.filters.tracingconfig import TracingSettings, load
from kas.observe.tracing import MILLION
from kas.types.configfile import ConfigurationError
from tests.observe.test_tracing import configuration

DECODE = "failed to read tracing config: unable to decode tracing configuration data: "
VALIDATE = "failed to validate tracing configuration: "
NEGATIVE = "samplingRatePerMillion: Invalid value: -2: sampling rate must be positive"
TOO_MANY = "samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million"
UNSUPPORTED = (
    'endpoint: Invalid value: "http://x:1": unsupported scheme: http.  Options are none, dns, unix, or unix-abstract.  '
    "See https://github.com/grpc/grpc/blob/master/doc/naming.md"
)
NO_URL = (
    'endpoint: Invalid value: "dn%2s://localhost:4317": parse "dn%2s://localhost:4317": '
    "first path segment in URL cannot contain colon"
)
WRONG = [
    ({"samplingRatePerMillion": -2}, VALIDATE + NEGATIVE),
    ({"samplingRatePerMillion": MILLION + 1}, VALIDATE + TOO_MANY),
    ({"endpoint": "http://x:1", "samplingRatePerMillion": -2}, f"{VALIDATE}[{NEGATIVE}, {UNSUPPORTED}]"),
    ({"endpoint": "dn%2s://localhost:4317"}, VALIDATE + NO_URL),
    ({"nope": 1}, DECODE + 'strict decoding error: unknown field "nope"'),
    ({"kind": "X"}, DECODE + 'no kind "X" is registered for version "apiserver.config.k8s.io/v1" in scheme '
                             '"k8s.io/apiserver/pkg/server/options/tracing.go:49"'),
]  # fmt: skip


@pytest.mark.parametrize(("said", "text"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_unusable_files(tmp_path, said, text):
    with pytest.raises(ConfigurationError) as e:
        load(configuration(tmp_path, **said))
    assert str(e.value) == text


@pytest.mark.parametrize("endpoint", ["localhost:4317", "dns://google.com:4317", "unix://path/to/socket", "unix:///run/otel.sock", "unix-abstract:///x"])
def test_usable_files(tmp_path, endpoint):
    for version in ("v1alpha1", "v1beta1", "v1"):
        path = configuration(tmp_path, apiVersion=f"apiserver.config.k8s.io/{version}", endpoint=endpoint)
        assert load(path) == TracingSettings(endpoint, 0)


@pytest.mark.parametrize("text, endpoint", [
    ("", ""), ("endpoint: x:1", "x:1"), ("kind: TracingConfiguration\nendpoint: x:1", "x:1"),
    ("apiVersion: apiserver.config.k8s.io/v1beta1\nendpoint: x:1", "x:1"),
])  # fmt: skip
def test_a_missing_kind_is_the_expected_one(tmp_path, text, endpoint):
    file = tmp_path / "tracing.yaml"
    file.write_text(text)
    assert load(str(file)) == TracingSettings(endpoint, 0)
