//! Actions on many jobs, copies, and undo.

use super::*;

#[test]
fn many_jobs_are_moved_and_rescheduled_after_their_number_was_said() {
    let server = Server::start(&[]);
    push(&server, json!({"jobs": (0..60).map(|_| json!({"name": "mail"})).collect::<Vec<_>>()}));
    let browser = Browser::open();
    browser.go(&page(&server, "jobs?search=name%3Amail"));
    browser.until_shows("#found", "60 jobs");
    browser.click("#pick-matches");
    browser.click("[data-action=move]");
    browser.until_shows("#ask-count", "Move: all 60 jobs matching name:mail?");
    browser.fill("#ask-queue", "slow");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "60 moved");
    assert_eq!((&server.job(1)["queue"], &server.job(60)["queue"]), (&json!("slow"), &json!("slow")));
    browser.until_shows("main tbody", "slow");
    browser.click("main tbody tr:nth-child(1) input");
    browser.click("[data-action=reschedule]");
    browser.fill("#ask-in", "soon");
    browser.click("#ask-yes");
    browser.until_shows(".toast.bad", "“soon” is not a duration");
    browser.click("[data-action=reschedule]");
    browser.fill("#ask-in", "3h");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "1 rescheduled");
    assert_eq!(server.state_of(60), "delayed");
}

#[test]
fn failed_jobs_are_started_again_in_another_queue() {
    let server = Server::start(&[]);
    failed(&server, 2, "mail");
    let browser = Browser::open();
    browser.go(&page(&server, "jobs?search=state%3Afailed"));
    browser.until_shows("#found", "2 jobs");
    browser.click("#pick-matches");
    browser.click("[data-action=retry]");
    browser.fill("#ask-queue", "again");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "2 retried");
    assert_eq!((&server.job(1)["queue"], &server.job(1)["state"]), (&json!("again"), &json!("ready")));
}

#[test]
fn deleted_jobs_come_back_with_undo() {
    let server = Server::start(&[]);
    failed(&server, 3, "mail");
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.click("[data-action=delete]");
    browser.click("#ask-yes");
    browser.until_shows("main", "Job 1 (mail) was deleted.");
    browser.click("[data-offer=Undo]");
    browser.until_shows(".toasts", "1 job restored");
    browser.until_shows("#state", "failed");
    browser.go(&page(&server, "jobs"));
    browser.until_shows("#found", "3 jobs");
    browser.click("#pick-all");
    browser.click("[data-action=delete]");
    browser.click("#ask-yes");
    browser.until_shows("#found", "0 jobs");
    browser.click("[data-offer=Undo]");
    browser.until_shows("#found", "3 jobs");
}

#[test]
fn a_deletion_of_all_matches_is_undone_and_says_before_if_it_cannot_be() {
    let server = Server::start(&[]);
    push(&server, json!({"jobs": (0..1_500).map(|_| json!({"name": "mail"})).collect::<Vec<_>>()}));
    let browser = Browser::open();
    browser.go(&page(&server, "jobs?search=queue%3Adefault"));
    browser.until_shows("#found", "1,500 jobs");
    browser.click("#pick-matches");
    browser.click("[data-action=delete]");
    browser.until_shows("#ask-count", "Delete: all 1,500 jobs matching queue:default?");
    browser.until_shows("#ask-undo", "Undo is offered");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "1,500 deleted");
    browser.until_shows("#found", "0 jobs");
    browser.click("[data-offer=Undo]");
    browser.until_shows(".toasts", "1,500 jobs restored");
    browser.until_shows("#found", "1,500 jobs");
    // With more jobs than the server keeps, or if it keeps none, the question says so.
    let many: Vec<Value> = (0..9_000).map(|_| json!({"name": "mail"})).collect();
    push(&server, json!({"jobs": many}));
    browser.until_shows("#found", "10,500 jobs");
    browser.click("#pick-matches");
    browser.click("[data-action=delete]");
    browser.until_shows("#ask-undo", "This can't be undone: the server keeps only 10,000 deleted jobs.");
    let server = Server::start(&["--set", "native.undo_delete_s=0"]);
    push(&server, json!({"name": "mail"}));
    browser.go(&page(&server, "jobs"));
    browser.until_shows("#found", "1 job");
    browser.click("#pick-all");
    browser.click("[data-action=delete]");
    browser.until_shows("#ask-undo", "This can't be undone.");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "1 deleted");
    assert_eq!(browser.count("[data-offer=Undo]"), 0);
}

#[test]
fn a_job_is_cloned_as_it_is_or_into_the_form() {
    let server = Server::start(&[]);
    push(
        &server,
        json!({"name": "mail", "payload": {"to": "ann"}, "priority": -3, "tags": ["vip"], "alias": "first"}),
    );
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.click("[data-action=clone]");
    browser.fill("#clone-in", "1h");
    browser.click("#clone-push");
    browser.until_shows("h1", "mail #2");
    let copy = server.job(2);
    assert_eq!(
        (&copy["payload"], &copy["priority"], &copy["tags"], &copy["state"]),
        (&json!({"to": "ann"}), &json!(-3), &json!(["vip"]), &json!("delayed"))
    );
    browser.go(&page(&server, "push?from=1"));
    browser.until_shows("main", "Filled with job 1");
    browser.fill("#push-payload", "{\"to\": \"bob\"}");
    browser.click("#push-send");
    browser.until_shows("main", "Pushed: job 3");
    let copy = server.job(3);
    assert_eq!(
        (&copy["name"], &copy["payload"], &copy["priority"]),
        (&json!("mail"), &json!({"to": "bob"}), &json!(-3))
    );
}
