"""Jobs and CronJobs through the write pipeline, and the cron parser."""

from __future__ import annotations

import zoneinfo

import pytest

from kas.config import features
from kas.kinds.batch import cron
from kas.kinds.batch.job.validation import count_indexes
from tests.kinds.helpers import UID, create, refused, update

TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}


def job(**spec):
    return {"metadata": {"name": "j"}, "spec": {"template": TEMPLATE, **spec}}


def cron_job(**spec):
    return {"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}, **spec}}


def failure_rule(**rule):
    return {"podFailurePolicy": {"rules": [rule]}}


def fields(found):
    return [where for where, _ in found]


def test_job_selects_its_pods_by_uid():
    stored, _ = create("batch/v1/jobs", job())
    assert stored["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}
    labels = stored["spec"]["template"]["metadata"]["labels"]
    assert labels["job-name"] == "j" and labels["controller-uid"] == UID
    assert (stored["spec"]["completions"], stored["spec"]["parallelism"], stored["spec"]["backoffLimit"]) == (1, 1, 6)


def test_job_defaults_depend_on_other_fields():
    stored, _ = create("batch/v1/jobs", job(parallelism=2))
    assert "completions" not in stored["spec"]
    stored, _ = create("batch/v1/jobs", job(completionMode="Indexed", completions=3, backoffLimitPerIndex=1))
    assert stored["spec"]["backoffLimit"] == 2147483647


@pytest.mark.parametrize(
    "spec,field",
    [
        ({"completionMode": "Indexed", "parallelism": 1}, "spec.completions"),
        ({"backoffLimitPerIndex": 1}, "spec.backoffLimitPerIndex"),
        (failure_rule(action="FailIndex", onPodConditions=[{"type": "a"}]), "spec.podFailurePolicy.rules[0].action"),
        (failure_rule(action="Ignore"), "spec.podFailurePolicy.rules[0]"),
        ({"successPolicy": {"rules": []}}, "spec.successPolicy"),
        ({"podReplacementPolicy": "Never"}, "spec.podReplacementPolicy"),
        ({"managedBy": "nodomain"}, "spec.managedBy"),
        ({"template": {"spec": {"containers": TEMPLATE["spec"]["containers"]}}}, "spec.template.spec.restartPolicy"),
    ],
)  # fmt: skip
def test_job_refused(spec, field):
    assert field in fields(refused(create, "batch/v1/jobs", job(**spec)))


def test_indexed_jobs_scale_completions_and_parallelism_together():
    stored, _ = create("batch/v1/jobs", job(completionMode="Indexed", completions=3, parallelism=3))
    got, _ = update("batch/v1/jobs", stored, lambda o: o["spec"].update(completions=5, parallelism=5))
    assert got["spec"]["completions"] == 5
    assert fields(refused(update, "batch/v1/jobs", stored, lambda o: o["spec"].update(completions=5))) == ["spec.completions"]


def test_a_suspended_jobs_scheduling_may_change_until_it_starts():
    def move(obj):
        obj["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}

    stored, _ = create("batch/v1/jobs", job(suspend=True))
    got, _ = update("batch/v1/jobs", stored, move)
    assert got["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}
    running, _ = create("batch/v1/jobs", job())
    assert fields(refused(update, "batch/v1/jobs", running, move)) == ["spec.template"]


STARTED = {"startTime": "2024-01-01T00:00:00Z"}
SUSPENDED = {"conditions": [{"type": "Suspended", "status": "True"}]}
DIRECTIVES, RESOURCES = "MutableSchedulingDirectivesForSuspendedJobs", "MutablePodResourcesForSuspendedJobs"


@pytest.mark.parametrize(
    ("status", "off", "moves", "grows"),
    [
        ({}, (), True, False),
        (SUSPENDED, (), True, True),
        (STARTED, (), False, False),
        (STARTED | SUSPENDED, (), True, True),
        (STARTED | SUSPENDED | {"active": 1}, (), False, False),
        (SUSPENDED | {"active": 1}, (), True, False),
        (SUSPENDED, (RESOURCES,), True, False),
        (STARTED | SUSPENDED, (DIRECTIVES,), False, True),
        (STARTED | SUSPENDED, (DIRECTIVES, RESOURCES), False, False),
    ],
)
def test_mutable_fields_of_a_suspended_job_follow_its_status_and_gates(status, off, moves, grows):
    def move(obj):
        obj["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}

    def grow(obj):
        obj["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}

    stored, _ = create("batch/v1/jobs", job(suspend=True))
    stored["status"] = status
    path = "spec.template.spec" if grows else "spec.template"
    with features.DEFAULT.overridden(**dict.fromkeys(off, False)):
        for change, free in ((move, moves), (grow, grows)):
            if free:
                got, _ = update("batch/v1/jobs", stored, change)
                assert got["spec"] != stored["spec"]
            else:
                assert fields(refused(update, "batch/v1/jobs", stored, change)) == [path]


@pytest.mark.parametrize(("status", "path"), [({}, "spec.template"), (SUSPENDED, "spec.template.spec")])
def test_other_fields_of_a_suspended_job_are_immutable(status, path):
    def change(obj):
        obj["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2"

    stored, _ = create("batch/v1/jobs", job(suspend=True))
    stored["status"] = status
    ((where, message),) = refused(update, "batch/v1/jobs", stored, change)
    assert where == path and message.endswith("field is immutable")


def test_a_job_without_labels_gets_those_of_its_template():
    body = job()
    body["spec"]["template"] = {**TEMPLATE, "metadata": {"labels": {"a": "b"}}}
    stored, _ = create("batch/v1/jobs", body)
    assert stored["metadata"]["labels"]["a"] == "b" and stored["metadata"]["labels"]["job-name"] == "j"
    body["metadata"]["labels"] = {"x": "y"}
    stored, _ = create("batch/v1/jobs", body)
    assert stored["metadata"]["labels"] == {"x": "y"}


def test_errors_of_failure_policy_rules_are_in_order():
    both = failure_rule(action="Ignore", onPodConditions=[{"type": "a b", "status": "True"}], onExitCodes={"operator": "In", "values": [0]})
    at = "spec.podFailurePolicy.rules[0]"
    found = fields(refused(create, "batch/v1/jobs", job(**both)))
    assert found == [f"{at}.onExitCodes.values[0]", f"{at}.onPodConditions[0].type", at]
    found = refused(create, "batch/v1/jobs", job(maxFailedIndexes=1))
    assert ("spec.backoffLimitPerIndex", "Required value: when maxFailedIndexes is specified") in found


def test_many_indexes_get_a_warning():
    many = {"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001}
    text = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4"
    _, warnings = create("batch/v1/jobs", job(**many))
    assert [w.startswith(f"spec: {text}") for w in warnings] == [True]
    _, warnings = create("batch/v1/cronjobs", cron_job(jobTemplate={"spec": {"template": TEMPLATE, **many}}))
    assert [w.startswith(f"spec.jobTemplate.spec: {text}") for w in warnings] == [True]


@pytest.mark.parametrize(("name", "long"), [("a" * 52, False), ("a" * 53, True), ("é" * 27, True)])
def test_names_of_cron_jobs_are_counted_in_bytes(name, long):
    obj = cron_job() | {"metadata": {"name": name}}
    messages = [why for _, why in refused(create, "batch/v1/cronjobs", obj)] if long else create("batch/v1/cronjobs", obj) and []
    assert any(why.endswith("must be no more than 52 characters") for why in messages) == long


def test_a_time_zone_in_a_stored_schedule_gets_a_warning():
    stored, _ = create("batch/v1/cronjobs", cron_job())
    stored["spec"]["schedule"] = "TZ=UTC 0 0 * * *"
    _, warnings = update("batch/v1/cronjobs", stored, lambda o: o["metadata"].update(labels={"a": "b"}))
    assert [w.startswith("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead") for w in warnings] == [True]


@pytest.fixture
def no_zones_of_the_system():
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


def test_time_zones_are_known_where_the_system_has_no_database_of_them(no_zones_of_the_system):
    """kube-apiserver has its own, too. These are the first, the last, and some with other letters, of those of upstream's test."""
    for zone in ("Africa/Abidjan", "America/Argentina/ComodRivadavia", "America/Port-au-Prince", "Etc/GMT+10", "GMT-0", "NZ-CHAT", "Zulu"):
        create("batch/v1/cronjobs", cron_job(timeZone=zone))


@pytest.mark.parametrize(
    ("zone", "messages"),
    [
        ("Europe/Paris", []),
        ("local", ["timeZone must be an explicit time zone as defined in", "unknown time zone local"]),
        ("a/../b", ["unknown time zone a/../b"]),
        ("-x", ["unknown time zone -x"]),
        ("fifteen-letters", ["unknown time zone fifteen-letters"]),
        ("a..b", ["time: invalid location name"]),
    ],
)
def test_time_zones(zone, messages):
    if not messages:
        create("batch/v1/cronjobs", cron_job(timeZone=zone))
        return
    found = refused(create, "batch/v1/cronjobs", cron_job(timeZone=zone))
    assert [where for where, _ in found] == ["spec.timeZone"] * len(messages)
    assert all(part in text for part, (_, text) in zip(messages, found, strict=True)), found


def test_cron_job_template_gets_no_job_defaults():
    stored, _ = create("batch/v1/cronjobs", cron_job())
    assert "parallelism" not in stored["spec"]["jobTemplate"]["spec"]
    assert stored["spec"]["concurrencyPolicy"] == "Allow" and stored["spec"]["successfulJobsHistoryLimit"] == 3


@pytest.mark.parametrize(
    "spec,field",
    [({"schedule": ""}, "spec.schedule"), ({"schedule": "TZ=UTC * * * * *"}, "spec.schedule"), ({"timeZone": "Local"}, "spec.timeZone"),
     ({"timeZone": "Nowhere/Land"}, "spec.timeZone"), ({"concurrencyPolicy": "x"}, "spec.concurrencyPolicy")],
)  # fmt: skip
def test_cron_job_refused(spec, field):
    assert field in fields(refused(create, "batch/v1/cronjobs", cron_job(**spec)))


def test_cron_job_name_leaves_room_for_job_names():
    body = cron_job()
    body["metadata"]["name"] = "x" * 53
    assert fields(refused(create, "batch/v1/cronjobs", body)) == ["metadata.name"]


@pytest.mark.parametrize("text", ["* * * * *", "*/5 1-3 1,15 jan-mar MON", "@daily", "@every 1h30m", "0 0 ? * 0", "TZ=UTC 0 0 * * *"])
def test_schedules(text):
    cron.check(text)


@pytest.mark.parametrize(
    "text,message",
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("*/1/2 * * * *", "too many slashes: */1/2"),
        ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
        ("TZ=UTC", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
        ("TZ=Nowhere * * * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
        ("TZ=../x * * * * *", "provided bad location ../x: time: invalid location name"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
        ("@every 1", 'failed to parse duration @every 1: time: missing unit in duration "1"'),
        ("@fortnightly", "unrecognized descriptor: @fortnightly"),
    ],
)
def test_bad_schedules(text, message):
    with pytest.raises(cron.ScheduleError) as caught:
        cron.check(text)
    assert str(caught.value) == message


def test_count_indexes():
    assert count_indexes("0,2-4,7", 8) == 5
    for bad in ("1-", "3,2", "4-4", "9", "1-2-3"):
        with pytest.raises(ValueError):
            count_indexes(bad, 8)
