//! Parents and children, and CancelJob.

use super::*;

struct Family {
    server: Bedrock,
    c: Conn,
    parent: u64,
    children: Vec<u64>,
}

/// Parent that was claimed and created children.
async fn family(profile: Profile, children: usize, parent_headers: &[(&str, &str)]) -> Family {
    let server = Bedrock::start(profile).await;
    let mut c = server.connect().await;
    let parent = c.create("parent", parent_headers).await;
    c.get("parent").await;
    let mut made = vec![];
    for _ in 0..children {
        made.push(c.create("child", &[("parentJobID", &parent.to_string())]).await);
    }
    Family { server, c, parent, children: made }
}

#[tokio::test]
async fn children_wait_for_the_run_of_their_parent_and_it_for_them() {
    for profile in BOTH {
        let Family { server: _server, mut c, parent, children } = family(profile, 2, &[]).await;
        assert_eq!(c.state(children[0]).await, "PAUSED");
        assert_eq!(c.status("GetJob", &[("name", "child")]).await, "404 No job found");
        assert_eq!(c.to("FinishJob", parent, &[("data", r#"{"n":1}"#)]).await, "200 OK");
        assert_eq!(c.state(parent).await, "PAUSED");
        assert_eq!(c.next_run(parent).await, START, "its nextRun is its lastRun");
        assert_eq!(c.state(children[0]).await, "QUEUED");
        let sibling = c.create("child", &[("parentJobID", &parent.to_string())]).await;
        assert_eq!(c.state(sibling).await, "QUEUED", "made while the parent is paused");
        for child in [children[0], children[1], sibling] {
            assert_eq!(c.state(parent).await, "PAUSED");
            let job = c.get("child").await;
            assert_eq!((&job["jobID"], &job["parentJobID"]), (&child.into(), &parent.into()));
            assert_eq!(job["parentData"]["n"], 1);
            assert_eq!(c.to("FinishJob", child, &[("data", r#"{"done":1}"#)]).await, "200 OK");
            assert_eq!(c.state(child).await, "FINISHED");
        }
        assert_eq!(c.state(parent).await, "QUEUED", "all are done");
        let job = c.ask("GetJob", &[("name", "parent")]).await.ok();
        let finished = job.json()["finishedChildJobs"].clone();
        assert_eq!(finished.as_array().unwrap().len(), 3);
        assert_eq!(finished[0], serde_json::json!({"data": {"done": 1}, "jobID": children[0]}));
        assert_eq!(job.json()["cancelledChildJobs"], serde_json::json!([]));
        let keys: Vec<String> = keys_in_order(&job.body);
        let expected = [
            "cancelledChildJobs",
            "created",
            "data",
            "finishedChildJobs",
            "jobID",
            "lastRun",
            "name",
            "nextRun",
            "priority",
            "repeat",
            "retryAfter",
        ];
        assert_eq!(keys, expected);
        c.finish(parent).await;
        assert_eq!(c.state(parent).await, "gone");
        for child in children {
            assert_eq!(c.state(child).await, "gone", "with their parent");
        }
    }
}

/// Keys of the outermost object, in order.
fn keys_in_order(body: &str) -> Vec<String> {
    let minified = windlass_dialects::bedrock::json::minified(body);
    windlass_dialects::bedrock::json::members(&minified).iter().map(|m| m.name().into_owned()).collect()
}

#[tokio::test]
async fn a_child_says_everything_about_itself_in_order() {
    let Family { server: _server, mut c, parent, .. } = family(Profile::Seed, 1, &[]).await;
    c.finish(parent).await;
    let job = c.ask("GetJob", &[("name", "child")]).await.ok();
    let expected = [
        "created",
        "data",
        "jobID",
        "lastRun",
        "name",
        "nextRun",
        "parentData",
        "parentJobID",
        "priority",
        "repeat",
        "retryAfter",
    ];
    assert_eq!(keys_in_order(&job.body), expected);
}

#[tokio::test]
async fn a_child_has_no_children() {
    for profile in BOTH {
        let Family { server: _server, mut c, parent, children } = family(profile, 1, &[]).await;
        c.finish(parent).await;
        c.get("child").await;
        let grandchild = [("name", "g"), ("parentJobID", &*children[0].to_string())];
        assert_eq!(c.status("CreateJob", &grandchild).await, "405 Cannot create grandchildren");
    }
}

#[tokio::test]
async fn a_parent_with_retry_after_has_children_too() {
    for profile in BOTH {
        let Family { server, mut c, parent, children } =
            family(profile, 1, &[("retryAfter", "+1 MINUTE")]).await;
        assert_eq!(c.state(parent).await, "RUNQUEUED");
        assert_eq!(c.state(children[0]).await, "PAUSED");
        // The worker is late, but no other worker has claimed the job: it may still create children and
        // finish.
        server.advance_s(61);
        let late = c.create("late", &[("parentJobID", &parent.to_string())]).await;
        assert_eq!(c.state(late).await, "PAUSED");
        c.finish(parent).await;
        assert_eq!(c.state(parent).await, "PAUSED");
        assert_eq!(c.state(late).await, "QUEUED");
    }
}

#[tokio::test]
async fn a_child_ends_only_while_its_parent_is_paused() {
    let Family { server: _server, mut c, parent, children } = family(Profile::Seed, 1, &[]).await;
    let child = children[0];
    // Started manually, while its parent still runs.
    c.status("RequeueJobs", &[("jobIDs", &child.to_string())]).await;
    c.get("child").await;
    let status = "405 Can only retry/finish child job when parent is PAUSED";
    assert_eq!(c.to("FinishJob", child, &[]).await, status);
    assert_eq!(c.to("RetryJob", child, &[]).await, status);
    c.finish(parent).await;
    c.finish(child).await;
    assert_eq!(c.state(parent).await, "QUEUED");
}

#[tokio::test]
async fn a_failed_child_is_as_good_as_finished_in_the_seed_profile_only() {
    for profile in BOTH {
        let Family { server: _server, mut c, parent, children } = family(profile, 1, &[]).await;
        c.finish(parent).await;
        c.get("child").await;
        assert_eq!(c.to("FailJob", children[0], &[]).await, "200 OK");
        let (seed, failed) = (profile == Profile::Seed, children[0]);
        assert_eq!(c.state(parent).await, if seed { "QUEUED" } else { "PAUSED" });
        assert_eq!(c.state(failed).await, "FAILED");
        if !seed {
            // An operator resolves this by cancelling or deleting the child.
            assert_eq!(c.to("CancelJob", failed, &[]).await, "200 OK");
            assert_eq!(c.state(parent).await, "QUEUED");
        }
        let job = c.get("parent").await;
        assert_eq!(
            job["finishedChildJobs"],
            if seed { serde_json::Value::Null } else { serde_json::json!([]) }
        );
        c.finish(parent).await;
        assert_eq!(c.state(failed).await, if seed { "FAILED" } else { "gone" }, "what failed is kept");
    }
}

#[tokio::test]
async fn no_parent_and_no_child_is_stuck() {
    for profile in BOTH {
        let Family { server: _server, mut c, parent, children } = family(profile, 1, &[]).await;
        c.finish(parent).await;
        assert_eq!(c.to("DeleteJob", children[0], &[]).await, "200 OK");
        assert_eq!(c.state(parent).await, "QUEUED", "its last child was deleted");

        let Family { server: _server, mut c, parent, children } =
            family(profile, 1, &[("retryAfter", "+1 HOUR")]).await;
        assert_eq!(c.to("DeleteJob", parent, &[]).await, "200 OK");
        assert_eq!(c.state(children[0]).await, "QUEUED", "its parent was deleted while it waited");
        c.get("child").await;
        c.finish(children[0]).await;

        let Family { server: _server, mut c, parent, children } = family(profile, 1, &[]).await;
        assert_eq!(c.to("FailJob", parent, &[]).await, "200 OK");
        c.get("child").await;
        c.finish(children[0]).await;
        assert_eq!(c.state(children[0]).await, "FINISHED", "its parent failed and will never be paused");
    }
}

#[tokio::test]
async fn a_retry_of_a_parent_forgets_settled_children_and_leaves_waiting_ones() {
    let Family { server: _server, mut c, parent, children } = family(Profile::Seed, 1, &[]).await;
    c.finish(parent).await;
    c.get("child").await;
    c.finish(children[0]).await;
    c.get("parent").await;
    let waiting = c.create("child", &[("parentJobID", &parent.to_string())]).await;
    assert_eq!(c.to("RetryJob", parent, &[]).await, "200 OK");
    assert_eq!(c.state(children[0]).await, "gone");
    assert_eq!(c.state(parent).await, "QUEUED");
    assert_eq!(c.state(waiting).await, "PAUSED");
}

#[tokio::test]
async fn a_repeating_parent_waits_for_its_children_first() {
    let Family { server: _server, mut c, parent, children } =
        family(Profile::Seed, 1, &[("repeat", "FINISHED, +1 HOUR")]).await;
    c.finish(parent).await;
    assert_eq!(c.state(parent).await, "PAUSED");
    c.get("child").await;
    c.finish(children[0]).await;
    c.get("parent").await;
    c.finish(parent).await;
    assert_eq!(
        (c.state(parent).await, c.next_run(parent).await),
        ("QUEUED".into(), "2024-01-31 13:00:00".into())
    );
    assert_eq!(c.state(children[0]).await, "gone");
}

#[tokio::test]
async fn cancelling_is_for_children_that_do_not_run() {
    for profile in BOTH {
        let Family { server: _server, mut c, parent, children } = family(profile, 2, &[]).await;
        let with_children = "404 Invalid jobID - Cannot cancel a job with children";
        assert_eq!(c.to("CancelJob", parent, &[]).await, with_children);
        let alone = c.create("alone", &[]).await;
        assert_eq!(
            c.to("CancelJob", alone, &[]).await,
            "404 Invalid jobID - Cannot cancel a job without a parent"
        );
        assert_eq!(c.to("CancelJob", children[0], &[]).await, "200 OK");
        assert_eq!(c.state(children[0]).await, "PAUSED", "nothing happens to a paused one");
        c.finish(parent).await;
        c.get("child").await;
        assert_eq!(c.to("CancelJob", children[0], &[]).await, "200 OK");
        assert_eq!(c.state(children[0]).await, "RUNNING", "nor to a running one");
        assert_eq!(c.to("CancelJob", children[1], &[]).await, "200 OK");
        assert_eq!(c.state(children[1]).await, "CANCELLED");
        assert_eq!(c.to("CancelJob", children[1], &[]).await, "200 OK", "once more changes nothing");
        assert_eq!(c.state(parent).await, "PAUSED");
        c.finish(children[0]).await;
        assert_eq!(c.to("CancelJob", children[0], &[]).await, "200 OK");
        assert_eq!(c.state(children[0]).await, "FINISHED", "nor to a finished one");
        let job = c.get("parent").await;
        assert_eq!(job["cancelledChildJobs"], serde_json::json!([{"data": {}, "jobID": children[1]}]));
        assert_eq!(job["finishedChildJobs"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn cancelling_the_last_child_resumes_the_parent() {
    for profile in BOTH {
        let Family { server: _server, mut c, parent, children } = family(profile, 1, &[]).await;
        c.finish(parent).await;
        assert_eq!(c.to("CancelJob", children[0], &[]).await, "200 OK");
        assert_eq!(c.state(parent).await, "QUEUED");
    }
}

#[tokio::test]
async fn a_runqueued_child_is_cancelled_under_its_worker_in_the_current_profile_only() {
    for profile in BOTH {
        let Family { server: _server, mut c, parent, .. } = family(profile, 0, &[]).await;
        let headers = [("parentJobID", &*parent.to_string()), ("retryAfter", "+1 HOUR")];
        let child = c.create("child", &headers).await;
        c.finish(parent).await;
        c.get("child").await;
        assert_eq!(c.to("CancelJob", child, &[]).await, "200 OK");
        if profile == Profile::Seed {
            assert_eq!(c.state(child).await, "RUNQUEUED");
            c.finish(child).await;
        } else {
            assert_eq!(c.state(child).await, "CANCELLED");
            assert_eq!(
                c.to("FinishJob", child, &[]).await,
                "405 Can only retry/finish RUNNING and RUNQUEUED jobs"
            );
        }
        assert_eq!(c.state(parent).await, "QUEUED");
    }
}

/// `nextRun` stays as it was while the parent waited, so the parent runs before jobs created in the meantime.
#[tokio::test]
async fn a_parent_that_is_resumed_keeps_its_place_in_the_line() {
    for profile in BOTH {
        let Family { server, mut c, parent, children } = family(profile, 1, &[]).await;
        server.advance_s(5);
        c.finish(parent).await;
        server.advance_s(5);
        let later = c.create("parent", &[]).await;
        c.get("child").await;
        c.finish(children[0]).await;
        assert_eq!((c.state(parent).await.as_str(), &*c.next_run(parent).await), ("QUEUED", START));
        let first = c.get("parent").await;
        assert_eq!((&first["jobID"], &first["nextRun"]), (&parent.into(), &START.into()));
        assert_eq!(c.next_run(parent).await, START, "a run without retryAfter leaves it");
        assert_eq!(c.get("parent").await["jobID"], later);
    }
}

#[tokio::test]
async fn a_child_that_waits_for_its_parent_has_no_children_either() {
    for profile in BOTH {
        let Family { server: _server, mut c, children, .. } = family(profile, 1, &[]).await;
        assert_eq!(c.state(children[0]).await, "PAUSED");
        let grandchild = [("name", "g"), ("parentJobID", &*children[0].to_string())];
        assert_eq!(c.status("CreateJob", &grandchild).await, "405 Cannot create grandchildren");
    }
}

#[tokio::test]
async fn a_failed_child_does_not_keep_its_parent_from_running_when_the_others_are_done() {
    for profile in BOTH {
        for ends in ["FinishJob", "CancelJob", "DeleteJob"] {
            let Family { server: _server, mut c, parent, children } = family(profile, 2, &[]).await;
            c.finish(parent).await;
            c.get("child").await;
            assert_eq!(c.to("FailJob", children[0], &[]).await, "200 OK");
            assert_eq!(c.state(parent).await, "PAUSED", "the other is pending");
            if ends == "FinishJob" {
                c.get("child").await;
            }
            assert_eq!(c.to(ends, children[1], &[]).await, "200 OK");
            assert_eq!(c.state(parent).await, "QUEUED", "{ends}");
            c.get("parent").await;
            c.finish(parent).await;
            assert_eq!((c.state(parent).await.as_str(), &*c.state(children[0]).await), ("gone", "FAILED"));
        }
    }
}

#[tokio::test]
async fn a_failed_child_that_is_run_again_is_waited_for_again() {
    let Family { server: _server, mut c, parent, children } = family(Profile::Current, 2, &[]).await;
    c.finish(parent).await;
    c.get("child").await;
    c.get("child").await;
    assert_eq!(c.to("FailJob", children[0], &[]).await, "200 OK");
    assert_eq!(c.status("RequeueJobs", &[("jobIDs", &children[0].to_string())]).await, "200 OK");
    c.finish(children[1]).await;
    assert_eq!(c.state(parent).await, "PAUSED");
    c.get("child").await;
    assert_eq!(c.to("FailJob", children[0], &[]).await, "200 OK");
    assert_eq!(c.state(parent).await, "PAUSED", "a failure alone resumes nobody");
    assert_eq!(c.to("DeleteJob", children[0], &[]).await, "200 OK");
    assert_eq!(c.state(parent).await, "QUEUED");
}
