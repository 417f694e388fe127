"""The TracingConfiguration of ``--tracing-config-file``: read, strictly decoded and validated. Error texts are
upstream's (``component-base/tracing/api/v1/config.go``, ``apiserver/pkg/server/options/tracing.go``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from kas.meta import field, gourl
from kas.meta.field import FieldError
from kas.meta.goerrors import unreadable
from kas.meta.records import NamedTuple
from kas.observe.tracing import MILLION
from kas.types.configfile import INT32, STRING, ConfigurationError, Document, Kinds, Struct, check, kind_of, of_kind, parse

SCHEME = "k8s.io/apiserver/pkg/server/options/tracing.go:49"
GROUP, KIND = "apiserver.config.k8s.io", "TracingConfiguration"
_SHAPE = Struct(KIND, {"endpoint": STRING, "samplingRatePerMillion": INT32})
KINDS: Kinds = {(f"{GROUP}/{v}", KIND): _SHAPE for v in ("v1alpha1", "v1beta1", "v1")}
NAMING = "https://github.com/grpc/grpc/blob/master/doc/naming.md"
TRANSPORTS = ("dns", "unix", "unix-abstract")


class TracingSettings(NamedTuple):
    """Where spans go, in gRPC's naming ("" for the default), and how many of a million requests without a parent span are recorded."""

    endpoint: str
    per_million: int


def load(path: str) -> TracingSettings:
    """Loads the settings from a file. Raises ConfigurationError."""
    if importlib.util.find_spec("grpc") is None:
        raise ConfigurationError("--tracing-config-file needs the extra kas[tracing]: pip install '.[tracing]' in a clone of kas")
    try:
        said = of_kind(_named(parse(_read(path))), KINDS, SCHEME)
    except _Unreadable as e:
        raise ConfigurationError(f"failed to read tracing config: {e}") from None
    except ConfigurationError as e:
        raise ConfigurationError(f"failed to read tracing config: unable to decode tracing configuration data: {e}") from None
    try:
        check(_problems(said))
    except ConfigurationError as e:
        raise ConfigurationError(f"failed to validate tracing configuration: {e}") from None
    return TracingSettings(said.get("endpoint", ""), said.get("samplingRatePerMillion", 0))


def _named(document: Document) -> Document:
    """Fills in a missing kind and apiVersion: upstream decodes into an object that has them."""
    value = {} if document.value is None else document.value
    version, kind = kind_of(value)
    return document._replace(value={**value, "apiVersion": version or f"{GROUP}/v1", "kind": kind or KIND})


class _Unreadable(ConfigurationError):
    pass


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        why = unreadable(path, e)
        raise _Unreadable(f"unable to read tracing configuration from {field.go_quote(path)}: {why}") from None


def _problems(said: dict[str, object]) -> Iterator[FieldError]:
    rate, endpoint = said.get("samplingRatePerMillion"), said.get("endpoint")
    if isinstance(rate, int):
        if rate < 0:
            yield field.invalid("samplingRatePerMillion", rate, "sampling rate must be positive")
        if rate > MILLION:
            yield field.invalid("samplingRatePerMillion", rate, "sampling rate per million must be less than or equal to one million")
    if isinstance(endpoint, str):
        whole = endpoint if "//" in endpoint else f"dns://{endpoint}"
        try:
            scheme = gourl.parse(whole).scheme
        except ValueError as e:
            yield field.invalid("endpoint", whole, str(e))
            return
        if scheme not in TRANSPORTS:
            why = f"unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See {NAMING}"
            yield field.invalid("endpoint", whole, why)
