"""What a kind adds to the generic registry: upstream's ``rest.RESTCreateStrategy`` and its siblings.

``Strategy`` is the behaviour every kind has, driven by its ``Resource`` record; a kind with behaviour of its own
subclasses it in ``kas/kinds/<group>/<kind>.py`` and names the class with ``@strategy_for``. Objects are plain dicts
in the *storage* version of the kind, constant and computed defaults already applied.

A strategy never does I/O. What it needs of the outside comes in ``Context``. The hooks are called in upstream's order
by ``kas.registry.pipeline``; a hook may change ``obj`` and must not change ``old``. Parts may be shared between the two:
a hook that edits something nested in ``obj`` which came from ``old`` copies it first.
"""

from __future__ import annotations

import weakref
from copy import copy
from typing import TYPE_CHECKING, Any

from kas.meta.equality import semantic_equal
from kas.meta.random import random_suffix
from kas.registry.gated import GatedFields
from kas.types import rooms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kas.meta.field import FieldError
    from kas.patch.fieldmanager import Answers
    from kas.types.scheme import Resource

Obj = dict[str, Any]
MAX_GENERATED_BASE = 58


class Context:
    """What a strategy may know of the request.

    ``now`` is an RFC 3339 second in UTC ("2024-01-02T03:04:05Z"); ``user`` is {"username", "uid", "groups", "extra"}; ``dry_run`` says
    nothing will be stored, ``apply`` that this is a server-side apply; ``uid`` is the identity a created object gets ("" lets the
    pipeline draw one); ``warnings`` collects what a prepare hook wants to tell the client; ``no_warnings`` is a validation's word that
    there is nothing to warn of in what it looked at, so that the warnings need not look again; ``answers`` is what has been converted to
    find out who manages which fields, where that waits; ``annotations`` are for the audit log.
    """

    __slots__ = (
        "annotations", "answers", "apply", "dry_run", "namespace", "no_warnings", "now", "subresource", "uid", "user", "warnings"
    )  # fmt: skip

    def __init__(
        self, now: str = "", namespace: str = "", user: dict[str, Any] | None = None, subresource: str = "", dry_run: bool = False,
        apply: bool = False, uid: str = "",
    ) -> None:  # fmt: skip
        self.now, self.namespace, self.user, self.subresource = now, namespace, {} if user is None else user, subresource
        self.dry_run, self.apply, self.uid, self.no_warnings = dry_run, apply, uid, False
        self.warnings: list[str] = []
        self.answers: Answers | None = None
        self.annotations: Mapping[str, str] | None = None

    def within(self, subresource: str, dry_run: bool | None = None) -> Context:
        """The same for another subresource; warnings are told in the same place."""
        out = copy(self)
        out.subresource = subresource
        if dry_run is not None:
            out.dry_run = dry_run
        return out


def take(obj: Obj, old: Obj, path: str) -> None:
    """Make ``path`` of ``obj`` what it is in ``old``, absent included."""
    *parents, last = path.split(".")
    for name in parents:
        old = old.get(name) or {}
        nxt = obj.get(name)
        if nxt is None:
            if last not in old and name not in old:
                return
            nxt = obj[name] = {}
        obj = nxt
    if last in old:
        obj[last] = old[last]
    else:
        obj.pop(last, None)


class Strategy:
    """Generic behaviour; each hook is named after upstream's and does nothing more than its name says.

    ``generation_parts`` are the top-level fields whose change bumps metadata.generation; None means the kind has none.
    ``validates_metadata`` promises that ``validate`` and ``validate_update`` include ``object_meta``, under a rule for names that is as
    strict as that for path segments, and ``validate_update`` also ``object_meta_update``: where they find nothing, the pipeline's own
    look at metadata would find nothing either, but for finalizers and ``generateName``.
    ``costly`` kinds are validated beside the event loop however small they are: they hold patterns, expressions or certificates.
    ``grows`` says of a kind that what is stored once stands many times in the versions that are served.
    """

    validates_metadata = False
    costly = grows = False
    generation_parts: tuple[str, ...] | None = None
    generation_on_annotations = False
    generation_on_labels = False
    generation_on_create = True

    def __init__(self, resource: Resource) -> None:
        self._resource = weakref.ref(resource)
        self.type = resource.storage_kind.type if resource.storage_kind is not None else resource.type
        self.reset = tuple(resource.reset_on_spec_write or ())
        self.gated = GatedFields(*(resource.storage_gvk or (resource.group, resource.version, resource.kind)))
        if self.generation_parts is None:
            self._read_generation_rule(resource.generation)
        self._status_reset: dict[str, tuple[str, ...]] = {
            name: tuple(getattr(sub, "reset", None) or ()) for name, sub in (resource.subresources or {}).items()
        }

    @property
    def resource(self) -> Resource:
        """The record it is the strategy of. That one keeps it, and not the other way round: records of definitions that are deleted go
        with the last request that uses them, not when somebody looks for cyclic garbage."""
        found = self._resource()
        assert found is not None, "a strategy is asked through its record"
        return found

    def _read_generation_rule(self, rule: str | None) -> None:
        """The record's ``generation`` is prose with a regular beginning; these are all its forms."""
        if rule is None:
            return
        if rule.startswith("set to 1 on create"):
            self.generation_parts = ()
        elif rule.startswith("any non-metadata field"):
            self.generation_parts, self.generation_on_labels = ("*",), True
        else:
            self.generation_parts = (rule.split()[0].rstrip(";"),)
            self.generation_on_annotations = "metadata.annotations" in rule
            self.generation_on_create = "not set on create" not in rule

    # -- writes of the main resource -------------------------------------------------------------------------------

    def generate_name(self, base: str) -> str:
        """``names.SimpleNameGenerator``: the base cut to 58 characters and five random ones without vowels."""
        return base[:MAX_GENERATED_BASE] + random_suffix()

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drop what a create may not set (status where the kind resets it) and start the generation; a kind that does not count its
        generations keeps what the client says."""
        for path in self.reset:
            if "." not in path and path != "spec":
                obj.pop(path, None)
        if self.generation_parts is not None and self.generation_on_create:
            obj["metadata"]["generation"] = 1

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over what an update of the main resource may not change and bump the generation when due."""
        for path in self.reset:
            take(obj, old, path)
        self.bump_generation(obj, old)

    def bump_generation(self, obj: Obj, old: Obj) -> None:
        """One more than ``old`` has, where something of the kind's generation parts changed."""
        if self.generation_parts is not None and self.generation_changed(obj, old):
            obj["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def generation_changed(self, obj: Obj, old: Obj) -> bool:
        """Whether an update changed anything that the kind's generation counts."""
        parts = self.generation_parts or ()
        if parts == ("*",):
            parts = tuple((obj.keys() | old.keys()) - {"metadata", "status", "kind", "apiVersion"})
        for part in parts:
            if not self.same(obj, old, part):
                return True
        new_meta, old_meta = obj["metadata"], old["metadata"]
        if self.generation_on_annotations and (new_meta.get("annotations") or {}) != (old_meta.get("annotations") or {}):
            return True
        return self.generation_on_labels and (new_meta.get("labels") or {}) != (old_meta.get("labels") or {})

    def same(self, obj: Obj, old: Obj, part: str) -> bool:
        """Semantic equality of a top-level field: see ``semantic_equal``."""
        of = self.type if self.type.schema is not None else self.type.by_name[part]
        return semantic_equal(obj.get(part), old.get(part), of)

    # -- writes of subresources ------------------------------------------------------------------------------------

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over what a write to /status may not change."""
        self.carry_over(obj, old, self._status_reset.get("status", ("spec",)))

    def carry_over(self, obj: Obj, old: Obj, paths: tuple[str, ...]) -> None:
        """Make each path of ``obj`` what it is in ``old``; "metadata" stands for the parts of it that a status may not change."""
        for path in paths:
            if path == "metadata":
                # metadata-resetting kinds keep only the managedFields of the request (metav1.ResetObjectMetaForStatus).
                new, kept = obj["metadata"], old["metadata"]
                for name in ("deletionTimestamp", "generation", "annotations", "labels", "finalizers", "ownerReferences"):
                    if name in kept:
                        new[name] = kept[name]
                    else:
                        new.pop(name, None)
            else:
                take(obj, old, path)

    # -- the rest --------------------------------------------------------------------------------------------------

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """What is wrong with a new object, in upstream's order; nothing in general."""
        return []

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """What is wrong with an update of the main resource, in upstream's order; nothing in general."""
        return []

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """What is wrong with a write to /status, in upstream's order; nothing in general."""
        return []

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """What the client is told of a new object that is valid; nothing in general."""
        return []

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """What the client is told of an update that is valid; nothing in general."""
        return []

    def warnings_on_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Of a write to /status; those to other subresources never warn."""
        return []

    def warnings_on_delete(self, options: dict[str, Any]) -> list[str]:
        """Of a delete, or a deletion of many, with these DeleteOptions."""
        return []

    def refuse_delete(self, name: str) -> None:
        """Raises ApiError for the name of an object that is not to be deleted by itself; a deletion of many does not ask."""

    def canonicalize(self, obj: Obj) -> None:
        """Last touch before storing."""

    def as_read(self, obj: Obj) -> None:
        """What decoding the stored object will default anew because preparing cleared it, and what upstream's Decorator changes of what
        is read; run before it is encoded, and when another server has stored it."""

    def check_graceful_delete(self, ctx: Context, obj: Obj, options: dict[str, Any]) -> bool:
        """Set ``options["gracePeriodSeconds"]`` and say whether the object is deleted gracefully."""
        return False


STRATEGIES: dict[tuple[str, str], type[Strategy]] = {}


def strategy_for(group: str, resource: str) -> Callable[[type[Strategy]], type[Strategy]]:
    """Class decorator: this strategy serves ``resource`` of ``group`` in all versions."""

    def register(cls: type[Strategy]) -> type[Strategy]:
        STRATEGIES[group, resource] = cls
        return cls

    return register


def strategy_of(resource: Resource) -> Strategy:
    """The one strategy object of a resource record; the generic ``Strategy`` when the kind has none of its own."""
    found: Strategy | None = resource.strategy
    if found is None:
        rooms.load(resource.group)
        found = resource.strategy = STRATEGIES.get((resource.group, resource.resource), Strategy)(resource)
    return found
