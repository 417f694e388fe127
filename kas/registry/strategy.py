"""What a kind adds to the generic registry: upstream's ``rest.RESTCreateStrategy`` and its siblings.

``Strategy`` is the behaviour common to all kinds, driven by the kind's ``Resource`` record. A kind with behaviour of its own
subclasses it in ``kas/kinds/<group>/<kind>.py`` and registers the class with ``@strategy_for``. Objects are plain dicts in
the *storage* version of the kind, with constant and computed defaults already applied.

A strategy never does I/O; external input comes in ``Context``. ``kas.registry.pipeline`` calls the hooks in upstream's order.
A hook may change ``obj`` and must not change ``old``. The two may share parts: a hook that edits a nested part of ``obj``
that came from ``old`` copies it first.
"""

from __future__ import annotations

import weakref
from copy import copy
from typing import TYPE_CHECKING, Any

from kas.meta.equality import semantic_equal
from kas.meta.random import random_suffix
from kas.registry.gated import GatedFields
from kas.types import kindloader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kas.meta.field import FieldError
    from kas.patch.fieldmanager import Answers
    from kas.types.scheme import Resource

Obj = dict[str, Any]
MAX_GENERATED_BASE = 58


class Context:
    """The request, as far as a strategy may see it.

    ``now`` is an RFC 3339 second in UTC ("2024-01-02T03:04:05Z"); ``user`` is {"username", "uid", "groups", "extra"};
    ``dry_run``: nothing will be stored; ``apply``: this is a server-side apply; ``uid`` is the UID for a created object ("":
    the pipeline generates one); ``warnings`` collects warnings of prepare hooks for the client; ``no_warnings`` is set by a
    validation that found nothing to warn of in what it visited, so that the warning hooks need not visit it again;
    ``metadata_passed``: ``validate_replaced_object_meta`` has found nothing in the update, so that the strategy need not look;
    ``answers`` are the conversions made to compute field ownership, where these wait; ``annotations`` are for the audit log.
    """

    __slots__ = (
        "annotations", "answers", "apply", "dry_run", "metadata_passed", "namespace", "no_warnings", "now", "subresource", "uid", "user",
        "warnings",
    )  # fmt: skip

    def __init__(
        self, now: str = "", namespace: str = "", user: dict[str, Any] | None = None, subresource: str = "", dry_run: bool = False,
        apply: bool = False, uid: str = "",
    ) -> None:  # fmt: skip
        self.now, self.namespace, self.user, self.subresource = now, namespace, {} if user is None else user, subresource
        self.dry_run, self.apply, self.uid, self.no_warnings = dry_run, apply, uid, False
        self.metadata_passed = False
        self.warnings: list[str] = []
        self.answers: Answers | None = None
        self.annotations: Mapping[str, str] | None = None

    def within(self, subresource: str, dry_run: bool | None = None) -> Context:
        """Returns a copy for another subresource; it shares the list of warnings."""
        out = copy(self)
        out.subresource = subresource
        if dry_run is not None:
            out.dry_run = dry_run
        return out


def take(obj: Obj, old: Obj, path: str) -> None:
    """Sets ``path`` of ``obj`` to its value in ``old``; removes it if absent there."""
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
    """The generic behaviour; each hook is named after upstream's and does no more than its name says.

    ``generation_parts`` are the top-level fields whose change bumps metadata.generation; None means the kind has no
    generation. ``validates_metadata`` promises that ``validate`` and ``validate_update`` include ``validate_object_meta``, with a
    rule for names at least as strict as that for path segments, and ``validate_update`` also ``validate_object_meta_update``: if
    they find no error, the pipeline's own validation of metadata would find none either, except for finalizers and
    ``generateName``.
    Kinds that are ``costly`` are validated in a thread however small they are: they hold patterns, expressions or
    certificates. ``grows`` marks a kind of which one stored value may appear many times in the served versions.
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
        """The record that this is the strategy of. The record owns the strategy, which has only a weak reference to it:
        records of deleted definitions are freed with the last request that uses them, not by the cyclic garbage collector."""
        found = self._resource()
        assert found is not None, "a strategy is asked through its record"
        return found

    def _read_generation_rule(self, rule: str | None) -> None:
        """Parses the record's ``generation``, which is prose with a regular beginning; these are all its forms."""
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
        """``names.SimpleNameGenerator``: the base cut to 58 characters, and five random characters without vowels."""
        return base[:MAX_GENERATED_BASE] + random_suffix()

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drops fields that a create may not set (status, where the kind resets it) and sets the first generation; a kind
        without a generation keeps the client's value."""
        for path in self.reset:
            if "." not in path and path != "spec":
                obj.pop(path, None)
        if self.generation_parts is not None and self.generation_on_create:
            obj["metadata"]["generation"] = 1

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carries over fields that an update of the main resource may not change, and bumps the generation if needed."""
        for path in self.reset:
            take(obj, old, path)
        self.bump_generation(obj, old)

    def bump_generation(self, obj: Obj, old: Obj) -> None:
        """Sets the generation to one more than that of ``old`` if one of the kind's generation parts changed."""
        if self.generation_parts is not None and self.generation_changed(obj, old):
            obj["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def generation_changed(self, obj: Obj, old: Obj) -> bool:
        """Returns whether an update changed anything that counts for the kind's generation."""
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
        """Returns whether a top-level field is semantically equal in both: see ``semantic_equal``."""
        of = self.type if self.type.schema is not None else self.type.by_name[part]
        return semantic_equal(obj.get(part), old.get(part), of)

    # -- writes of subresources ------------------------------------------------------------------------------------

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carries over fields that a write to /status may not change."""
        self.carry_over(obj, old, self._status_reset.get("status", ("spec",)))

    def carry_over(self, obj: Obj, old: Obj, paths: tuple[str, ...]) -> None:
        """Sets each path of ``obj`` to its value in ``old``; "metadata" stands for those parts of it that a status update may
        not change."""
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
        """Returns the errors of a new object, in upstream's order; none by default."""
        return []

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Returns the errors of an update of the main resource, in upstream's order; none by default."""
        return []

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Returns the errors of a write to /status, in upstream's order; none by default."""
        return []

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Returns the warnings for a valid new object; none by default."""
        return []

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Returns the warnings for a valid update; none by default."""
        return []

    def warnings_on_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Returns the warnings for a write to /status; writes to other subresources never warn."""
        return []

    def warnings_on_delete(self, options: dict[str, Any]) -> list[str]:
        """Returns the warnings for a delete or deletecollection with these DeleteOptions."""
        return []

    def refuse_delete(self, name: str) -> None:
        """Raises ApiError if the named object must not be deleted individually; not called for deletecollection."""

    def canonicalize(self, obj: Obj) -> None:
        """The last change of the object before it is stored."""

    def as_read(self, obj: Obj) -> None:
        """Applies, in advance, the changes of a later read: the defaults that decoding sets again for fields that preparing
        cleared, and the changes of upstream's Decorator. Called before an object is encoded, and for objects that another
        server has stored."""

    def check_graceful_delete(self, ctx: Context, obj: Obj, options: dict[str, Any]) -> bool:
        """Sets ``options["gracePeriodSeconds"]``; returns whether the object is deleted gracefully."""
        return False


STRATEGIES: dict[tuple[str, str], type[Strategy]] = {}


def strategy_for(group: str, resource: str) -> Callable[[type[Strategy]], type[Strategy]]:
    """Class decorator: registers the strategy for ``resource`` of ``group``, in all versions."""

    def register(cls: type[Strategy]) -> type[Strategy]:
        STRATEGIES[group, resource] = cls
        return cls

    return register


def strategy_of(resource: Resource) -> Strategy:
    """Returns the single strategy object of a resource record; the generic ``Strategy`` if the kind has none of its own."""
    found: Strategy | None = resource.strategy
    if found is None:
        kindloader.load(resource.group)
        found = resource.strategy = STRATEGIES.get((resource.group, resource.resource), Strategy)(resource)
    return found
