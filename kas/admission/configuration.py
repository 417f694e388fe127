"""``--admission-control-config-file``: an AdmissionConfiguration, and the configurations of the plug-ins in it.

``read`` gives a ``Configuration``; a plug-in that takes one gets its ``Section`` (or None) and decodes it with ``versioned``, or
``unversioned`` where upstream's type has no version; ``types/configfile.py`` does the decoding. Paths in the file are relative to it. Each
worker reads it once, when it starts. Upstream: ``apiserver/pkg/admission/config.go``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from typing import Any

from kas.meta.field import FieldError, duplicate, go_quote, required
from kas.meta.records import NamedTuple
from kas.types.configfile import (
    RAW,
    STRING,
    ConfigurationError,
    Document,
    KindError,
    Kinds,
    Struct,
    check,
    decode,
    of_kind,
    parse,
    read_file,
)  # fmt: skip

log = logging.getLogger("kas.admission")

FLAG = "--admission-control-config-file"
FAILED = "failed to apply admission"  # what upstream says before whatever went wrong
DIRECTORY = "staticManifestsDir"  # the field that names the files of ``manifests.Manifests``


class InitializationError(ConfigurationError):
    """A plug-in's configuration can be read, and what it names cannot be used."""


class Section(NamedTuple):
    """What the file says for one plug-in: an embedded object, or the path of a file that is read when somebody asks."""

    name: str
    path: str = ""
    embedded: Any = None

    def document(self) -> Document:
        """The plug-in's configuration: embedded, or read from its file now."""
        return Document(self.embedded, []) if self.embedded is not None else parse(read_file(self.path))


def versioned(section: Section | None, kinds: Kinds) -> dict[str, Any]:
    """The fields of a configuration that names its kind; {} without one."""
    return of_kind(section.document(), kinds) if section is not None else {}


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
    """The file at ``path``, "" for none; ``known`` are the plug-ins there are. Raises ConfigurationError."""
    if not path:
        return Configuration({})
    try:
        return Configuration(_sections(path, known))
    except ConfigurationError as e:
        raise ConfigurationError(f"{FAILED}: failed to read plugin config: {e}") from None


def _sections(path: str, known: Collection[str]) -> dict[str, Section]:
    try:
        data = read_file(path)
    except ConfigurationError as e:
        raise ConfigurationError(f"unable to read admission control configuration from {go_quote(path)} [{e}]") from None
    document = parse(data)
    try:
        plugins = of_kind(document, KINDS).get("plugins") or []
    except KindError:
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
    "EventRateLimit", "ImagePolicyWebhook", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "PodNodeSelector", "PodSecurity",
    "PodTolerationRestriction", "ResourceQuota", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
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
