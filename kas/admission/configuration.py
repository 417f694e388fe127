"""``--admission-control-config-file``: an AdmissionConfiguration, and the configurations of the plug-ins in it.

``read`` gives a ``Configuration``; a plug-in that takes one gets its ``Section`` (or None) and decodes it with ``versioned``, or
``unversioned`` where upstream's type has no version. Decoding is strict: what the file says and nobody reads is an error, so that a
misspelt name never weakens a policy. Every error is one line, in upstream's words where it has any. Paths in the file are relative to
it. Each worker reads it once, when it starts. Upstream: ``apiserver/pkg/admission/config.go``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from kas.meta.field import FieldError, duplicate, go_quote, required

log = logging.getLogger("kas.admission")

FLAG = "--admission-control-config-file"
# Shown of a document whose kind is not known.
MAX_SHOWN = 200


class ConfigurationError(ValueError):
    """What is wrong with a configuration, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(message.replace("\n", "\\n"))


# --- shapes: what a document may say

STRING, BOOL, INT32, INT64, STRINGS, RAW = "string", "bool", "int32", "int64", "map[string]string", "raw"
_BITS = {INT32: 31, INT64: 63}


@dataclass(frozen=True)
class Struct:
    """A Go struct: its name, and the shapes of its fields. A list has a shape of one element in brackets."""

    name: str
    fields: Mapping[str, Any]


Shape = str | list[Any] | Struct
Kinds = Mapping[tuple[str, str], Struct]


def decode(value: Any, shape: Struct, same_case: bool = True) -> dict[str, Any]:
    """The fields of ``shape`` that ``value`` has, null ones left out. Raises ConfigurationError for wrong types and unknown fields.

    ``same_case`` is off for types that upstream reads with encoding/json, which does not mind the case of a name.
    """
    unknown: list[str] = []
    out = _decode(value, shape, "", "", shape.name, unknown, same_case)
    if unknown:
        raise ConfigurationError("strict decoding error: " + ", ".join(f"unknown field {go_quote(path)}" for path in unknown))
    return out or {}


def _decode(value: Any, shape: Any, path: str, go_path: str, root: str, unknown: list[str], same_case: bool) -> Any:
    if value is None or shape == RAW:
        return value
    if isinstance(shape, Struct) and isinstance(value, dict):
        out = {}
        for key, item in value.items():
            here = f"{path}.{key}" if path else key
            name = key if same_case else next((f for f in shape.fields if f.lower() == key.lower()), key)
            if name not in shape.fields:
                unknown.append(here)
            elif item is not None:
                out[name] = _decode(item, shape.fields[name], here, f"{go_path}.{name}", root, unknown, same_case)
        return out
    if isinstance(shape, list) and isinstance(value, list):
        made = [_decode(item, shape[0], f"{path}[{i}]", go_path, root, unknown, same_case) for i, item in enumerate(value)]
        return [_zero(shape[0]) if item is None else item for item in made]
    if shape == STRINGS and isinstance(value, dict):
        return {k: "" if v is None else _decode(v, STRING, f"{path}.{k}", go_path, root, unknown, same_case) for k, v in value.items()}
    if shape == STRING and isinstance(value, str):
        return value
    if shape == BOOL and isinstance(value, bool):
        return value
    if isinstance(shape, str) and shape in _BITS and type(value) is int and -(1 << _BITS[shape]) <= value < 1 << _BITS[shape]:
        return value
    where = f"Go struct field {root}{go_path}" if go_path else "Go value"
    raise ConfigurationError(f"json: cannot unmarshal {_json_type(value)} into {where} of type {_go_type(shape)}")


def _zero(shape: Any) -> Any:
    return {STRING: "", BOOL: False, INT32: 0, INT64: 0}.get(shape) if isinstance(shape, str) else {}


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return f"number {value}" if not isinstance(value, int) or not -(1 << 31) <= value < 1 << 31 else "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"


def _go_type(shape: Any) -> str:
    if isinstance(shape, list):
        return "[]" + _go_type(shape[0])
    return shape.name if isinstance(shape, Struct) else shape


def check(found: Iterable[FieldError]) -> None:
    """Raises ConfigurationError with all that validation found, as ``field.ErrorList.ToAggregate`` prints it."""
    texts = list(dict.fromkeys(map(str, found)))
    if texts:
        raise ConfigurationError(texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]")


# --- documents


class Document(NamedTuple):
    """A JSON value and what strict decoding has against its text."""

    value: Any
    repeated: list[str]


def _parse(data: bytes) -> Document:
    from kas.types import yaml_codec  # PyYAML is large and few servers have such a file

    try:
        value, repeated = yaml_codec.decode(data)
    except yaml_codec.YAMLError as e:
        raise ConfigurationError(" ".join(str(e).split())) from None
    return Document(value, [" ".join(text.split()) for text in repeated])


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise ConfigurationError(f"open {path}: {(e.strerror or str(e)).lower()}") from None


class _KindError(ConfigurationError):
    """The document says no kind, or one that is not known here."""


def _of_kind(document: Document, kinds: Kinds) -> dict[str, Any]:
    value = {} if document.value is None else document.value
    unfit = "couldn't get version/kind; json parse error: json: cannot unmarshal"
    if not isinstance(value, dict):
        raise ConfigurationError(f"{unfit} {_json_type(value)} into an object")
    api_version, kind = value.get("apiVersion") or "", value.get("kind") or ""
    for name, said in (("Kind", kind), ("apiVersion", api_version)):
        if not isinstance(said, str):
            raise ConfigurationError(f"{unfit} {_json_type(said)} into a string")
        if not said:
            shown = orjson.dumps(value).decode() if value else ""
            raise _KindError(f"Object '{name}' is missing in '{shown[:MAX_SHOWN]}'")
    shape = kinds.get((api_version, kind))
    if shape is None:
        raise _KindError(f"no kind {go_quote(kind)} is registered for version {go_quote(api_version)}")
    if document.repeated:
        raise ConfigurationError("strict decoding error: " + ", ".join(document.repeated))
    return decode({k: v for k, v in value.items() if k not in ("apiVersion", "kind")}, shape)


@dataclass(frozen=True)
class Section:
    """What the file says for one plug-in: an embedded object, or the path of a file that is read when somebody asks."""

    name: str
    path: str = ""
    embedded: Any = None

    def document(self) -> Document:
        """The plug-in's configuration: embedded, or read from its file now."""
        return Document(self.embedded, []) if self.embedded is not None else _parse(_read_file(self.path))


def versioned(section: Section | None, kinds: Kinds) -> dict[str, Any]:
    """The fields of a configuration that names its kind; {} without one."""
    return _of_kind(section.document(), kinds) if section is not None else {}


def unversioned(section: Section | None, shape: Struct) -> dict[str, Any]:
    """The fields of a configuration of the old form. {} without one.

    Such a file may serve both plug-ins that have one, and may name a kind that nobody looks at: upstream has no versioned form either.
    """
    if section is None:
        return {}
    document = section.document()
    if document.repeated:
        raise ConfigurationError("strict decoding error: " + ", ".join(document.repeated))
    if document.value is None:
        return {}
    others = dict.fromkeys(("apiVersion", "kind", *LEGACY), RAW)
    return decode(document.value, Struct(shape.name, {**others, **shape.fields}), same_case=False)


# --- the file

# The key that says what an unversioned file is about.
LEGACY = {"imagePolicy": "ImagePolicyWebhook", "podNodeSelectorPluginConfig": "PodNodeSelector"}
_PLUGIN = Struct("AdmissionPluginConfiguration", {"name": STRING, "path": STRING, "configuration": RAW})
_FILE = Struct("AdmissionConfiguration", {"plugins": [_PLUGIN]})
KINDS: Kinds = {
    (version, "AdmissionConfiguration"): _FILE
    for version in ("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1", "apiserver.k8s.io/v1alpha1")
}


class Configuration:
    """The sections of the file, by the plug-ins' names."""

    def __init__(self, sections: Mapping[str, Section]) -> None:
        self.sections = dict(sections)

    def section(self, name: str) -> Section | None:
        """What the file says of the plug-in; None when it says nothing."""
        return self.sections.get(name)


def read(path: str, known: Collection[str]) -> Configuration:
    """The file at ``path``, "" for none; ``known`` are the plug-ins there are. Raises ConfigurationError, which names flag and file."""
    if not path:
        return Configuration({})
    try:
        return Configuration(_sections(path, known))
    except ConfigurationError as e:
        raise ConfigurationError(f"{FLAG}: {path}: {e}") from None


def _sections(path: str, known: Collection[str]) -> dict[str, Section]:
    document = _parse(_read_file(path))
    try:
        plugins = _of_kind(document, KINDS).get("plugins") or []
    except _KindError:
        # From before there was a kind: the whole file is the configuration of these two.
        if isinstance(document.value, dict) and any(key in document.value for key in LEGACY):
            return {name: Section(name, os.path.abspath(path)) for key, name in LEGACY.items() if key in document.value}
        raise
    base = os.path.dirname(os.path.abspath(path))
    out: dict[str, Section] = {}
    found: list[FieldError] = []
    for i, plugin in enumerate(plugins):
        name = plugin.get("name") or ""
        if not name:
            found.append(required(f"plugins[{i}].name"))
        elif name not in known:
            raise ConfigurationError(f"plugins[{i}].name: plugin {go_quote(name)} is unknown")
        elif name in out:
            found.append(duplicate(f"plugins[{i}].name", name))
        else:
            where = plugin.get("path") or ""
            out[name] = Section(name, os.path.join(base, where) if where else "", plugin.get("configuration"))
    check(found)
    # A plug-in that is named without saying anything has no configuration.
    return {name: section for name, section in out.items() if section.path or section.embedded is not None}


# --- plug-ins

# Their ``Plugin`` takes a section. What is said for others is nobody's, upstream too.
TAKERS = frozenset((
    "EventRateLimit", "ImagePolicyWebhook", "MutatingAdmissionWebhook", "PodNodeSelector", "PodSecurity", "PodTolerationRestriction",
    "ResourceQuota", "ValidatingAdmissionWebhook",
))  # fmt: skip


def keep_rest(configuration: Configuration, on: Collection[str], speak: bool) -> None:
    """Logs (``speak``) what of the file has no effect; ``on`` are the plug-ins that run."""
    for name in configuration.sections:
        if name not in on:
            why = "the configuration has no effect: the plug-in is not on"
        elif name not in TAKERS:
            why = "the configuration has no effect: the plug-in takes none"
        else:
            continue
        if speak:
            log.warning("%s: %s: %s", FLAG, name, why)
