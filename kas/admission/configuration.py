"""``--admission-control-config-file``: an AdmissionConfiguration, and the configurations of the plug-ins in it.

``read`` gives a ``Configuration``; a plug-in that takes one gets its ``Section`` (or None) and decodes it with ``versioned``, or
``unversioned`` where upstream's type has no version; ``types/configfile.py`` does the decoding. Paths in the file are relative to it. Each
worker reads it once, when it starts. Upstream: ``apiserver/pkg/admission/config.go``.
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

    Such a file may serve both plug-ins that have one, and may name a kind that nobody looks at: upstream has no versioned form either, and
    reads it with encoding/json, which leaves alone what it does not know.
    """
    value = section.document().value if section is not None else None
    return decode(value, shape, same_case=False, strict=False) if value is not None else {}


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
    """The sections of the file, by the plug-ins' names; ``unheard`` says which entries of it nobody looks for."""

    def __init__(self, sections: Mapping[str, Section], unheard: Sequence[str] = ()) -> None:
        self.sections, self.unheard = dict(sections), unheard

    def section(self, name: str) -> Section | None:
        """What the file says of the plug-in; None when it says nothing."""
        return self.sections.get(name)


def read(path: str) -> Configuration:
    """The file at ``path``, "" for none. Raises ConfigurationError."""
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
        # From before there was a kind: the whole file is the configuration of these two.
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
    # A plug-in that is named without saying anything has no configuration.
    return Configuration({name: section for name, section in out.items() if section.path or section.embedded is not None}, unheard)


# --- plug-ins

# Their ``Plugin`` takes a section. What is said for others is nobody's, upstream too.
TAKERS = frozenset((
    "EventRateLimit", "ImagePolicyWebhook", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "PodNodeSelector", "PodSecurity",
    "PodTolerationRestriction", "ResourceQuota", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
))  # fmt: skip


def keep_rest(configuration: Configuration, on: Collection[str], known: Collection[str], speak: bool) -> None:
    """Logs (``speak``) what of the file has no effect; ``on`` are the plug-ins that run, ``known`` those there are. Upstream each plug-in
    looks for the first entry of its name and nobody for the others, so they are no errors."""
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
