"""Jobs and CronJobs through the write pipeline, and the cron parser."""

from __future__ import annotations

import pytest

from kas.api import cron
from kas.api.validation.jobs import count_indexes
from tests.registry.helpers import UID, create, refused, update

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


def test_job_defaults_depend_on_what_was_given():
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


def test_indexed_job_scales_in_tandem():
    stored, _ = create("batch/v1/jobs", job(completionMode="Indexed", completions=3, parallelism=3))
    got, _ = update("batch/v1/jobs", stored, lambda o: o["spec"].update(completions=5, parallelism=5))
    assert got["spec"]["completions"] == 5
    assert fields(refused(update, "batch/v1/jobs", stored, lambda o: o["spec"].update(completions=5))) == ["spec.completions"]


def test_suspended_job_may_be_sent_elsewhere_until_it_starts():
    def move(obj):
        obj["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}

    stored, _ = create("batch/v1/jobs", job(suspend=True))
    got, _ = update("batch/v1/jobs", stored, move)
    assert got["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}
    running, _ = create("batch/v1/jobs", job())
    assert fields(refused(update, "batch/v1/jobs", running, move)) == ["spec.template"]


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
