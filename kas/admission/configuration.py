"""``--admission-control-config-file``: an AdmissionConfiguration, and the plug-ins' configurations in it.

``read`` returns a ``Configuration``. A plug-in with a configuration receives its ``Section`` (or None) and decodes it with ``versioned``,
or with ``unversioned`` if upstream's type has no version; ``types/configfile.py`` does the decoding. Paths in the file are relative to
it. Each worker reads the file once, at start. Upstream: ``apiserver/pkg/admission/config.go``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kas.meta.field import go_quote
from kas.meta.records import NamedTuple
from kas.meta.suggest import did_you_mean
from kas.types.configfile import (
    RAW,
    STRING,
    ConfigurationError,
    Document,
    KindError,
    Kinds,
    Struct,
    decode,
    of_kind,
    parse,
    read_file,
)  # fmt: skip

log = logging.getLogger("kas.admission")

FLAG = "--admission-control-config-file"
FAILED = "failed to apply admission"  # the prefix of upstream's errors
DIRECTORY = "staticManifestsDir"  # the field with the directory of ``manifests.Manifests``


class InitializationError(ConfigurationError):
    """A plug-in's configuration is valid, but what it refers to cannot be used."""


class Section(NamedTuple):
    """The configuration of one plug-in: an embedded object, or the path of a file that is read on demand."""

    name: str
    path: str = ""
    embedded: Any = None

    def document(self) -> Document:
        """Return the plug-in's configuration: embedded, or read from its file now."""
        return Document(self.embedded, []) if self.embedded is not None else parse(read_file(self.path))


def versioned(section: Section | None, kinds: Kinds) -> dict[str, Any]:
    """Return the fields of a configuration that names its kind; {} without one."""
    return of_kind(section.document(), kinds) if section is not None else {}


def unversioned(section: Section | None, shape: Struct) -> dict[str, Any]:
    """Return the fields of an unversioned configuration; {} without one.

    Such a file may serve both plug-ins of this form, and may name a kind, which is ignored: upstream has no versioned form of it, and
    reads it with encoding/json, which ignores unknown fields.
    """
    value = section.document().value if section is not None else None
    return decode(value, shape, same_case=False, strict=False) if value is not None else {}


# --- the file

# The top-level keys of an unversioned file, and their plug-ins.
LEGACY = {"imagePolicy": "ImagePolicyWebhook", "podNodeSelectorPluginConfig": "PodNodeSelector"}
_PLUGIN = Struct("AdmissionPluginConfiguration", {"name": STRING, "path": STRING, "configuration": RAW})
_FILE = Struct("AdmissionConfiguration", {"plugins": [_PLUGIN]})
KINDS: Kinds = {
    (version, "AdmissionConfiguration"): _FILE
    for version in ("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1", "apiserver.k8s.io/v1alpha1")
}


class Configuration:
    """The sections of the file by plug-in; ``unheard`` describes the entries that are ignored."""

    def __init__(self, sections: Mapping[str, Section], unheard: Sequence[str] = ()) -> None:
        self.sections, self.unheard = dict(sections), unheard

    def section(self, name: str) -> Section | None:
        """Return the configuration of the plug-in; None if there is none."""
        return self.sections.get(name)


def read(path: str) -> Configuration:
    """Read the file at ``path``, "" for none. Raises ConfigurationError."""
    if not path:
        return Configuration({})
    try:
        return _read(path)
    except ConfigurationError as e:
        raise ConfigurationError(f"{FAILED}: failed to read plugin config: {e}") from None


def _read(path: str) -> Configuration:
    try:
        data = read_file(path)
    except ConfigurationError as e:
        raise ConfigurationError(f"unable to read admission control configuration from {go_quote(path)} [{e}]") from None
    document = parse(data)
    try:
        plugins = of_kind(document, KINDS).get("plugins") or []
    except KindError:
        # The format from before there was a kind: the whole file is the configuration of these two plug-ins.
        if isinstance(document.value, dict) and any(key in document.value for key in LEGACY):
            return Configuration({name: Section(name, os.path.abspath(path)) for key, name in LEGACY.items() if key in document.value})
        raise
    base = os.path.dirname(os.path.abspath(path))
    out: dict[str, Section] = {}
    unheard = []
    for i, plugin in enumerate(plugins):
        name, where = plugin.get("name") or "", plugin.get("path") or ""
        if not name:
            unheard.append(f"plugins[{i}] has no name")
        elif name in out:
            unheard.append(f"plugins[{i}]: {name} is named before")
        else:
            out[name] = Section(name, os.path.join(base, where) if where else "", plugin.get("configuration"))
    # An entry with a name and nothing else is no configuration.
    return Configuration({name: section for name, section in out.items() if section.path or section.embedded is not None}, unheard)


# --- plug-ins

# The plug-ins that accept a section. As upstream, sections of others are ignored.
TAKERS = frozenset((
    "EventRateLimit", "ImagePolicyWebhook", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "PodNodeSelector", "PodSecurity",
    "PodTolerationRestriction", "ResourceQuota", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
))  # fmt: skip


def keep_rest(configuration: Configuration, on: Collection[str], known: Collection[str], speak: bool) -> None:
    """Log (if ``speak``) the parts of the file without effect.

    ``on`` are the enabled plug-ins, ``known`` all that exist. As upstream, a plug-in uses the first entry of its name, and further
    entries are not errors.
    """
    if not speak:
        return
    for text in configuration.unheard:
        log.warning("%s: %s: the configuration has no effect", FLAG, text)
    for name in configuration.sections:
        if name not in known:
            why = f"there is no such plug-in{did_you_mean(name, known)}"
        elif name not in on:
            why = "the plug-in is not on"
        elif name not in TAKERS:
            why = "the plug-in takes none"
        else:
            continue
        log.warning("%s: %s: the configuration has no effect: %s", FLAG, name, why)
