//! Repeat rules, through the protocol.

use super::*;

async fn next_after_finish(profile: Profile, repeat: &str, first_run: &str, wait_s: i64) -> String {
    let server = Bedrock::start(profile).await;
    let mut c = server.connect().await;
    let id = c.create("a", &[("repeat", repeat), ("firstRun", first_run)]).await;
    c.get("a").await;
    server.advance_s(wait_s);
    c.finish(id).await;
    assert_eq!(c.state(id).await, "QUEUED");
    c.next_run(id).await
}

#[tokio::test]
async fn the_words_mean_what_the_profile_says() {
    for (word, seed, current) in [
        ("HOURLY", "2024-01-31 13:05:00", "2024-01-31 13:00:00"),
        ("daily", "2024-02-01 12:05:00", "2024-02-01 00:00:00"),
        ("Weekly", "2024-02-07 12:05:00", "2024-02-04 00:00:00"),
    ] {
        assert_eq!(next_after_finish(Profile::Seed, word, START, 300).await, seed, "{word}");
        assert_eq!(next_after_finish(Profile::Current, word, START, 300).await, current, "{word}");
    }
}

#[tokio::test]
async fn rules_count_from_their_base() {
    for profile in BOTH {
        for (rule, next) in [
            ("SCHEDULED, +1 DAY", "2024-02-01 11:00:00"),
            ("STARTED, +1 DAY", "2024-02-01 12:00:00"),
            ("FINISHED, +1 DAY", "2024-02-01 12:05:00"),
            ("FINISHED, +1 DAY, START OF DAY, +4 HOURS", "2024-02-01 04:00:00"),
            ("FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "2024-02-05 06:00:00"),
            ("FINISHED,+1 MONTH", "2024-03-02 12:05:00"),
            ("FINISHED, + 1 HOUR", "2024-01-31 13:05:00"),
            ("FINISHED, - 0 SECONDS", "2024-01-31 12:05:00"),
            ("FINISHED, START OF HOUR, +90 MINUTES,", "2024-01-31 13:30:00"),
            ("FINISHED, +12345678 SECONDS", "2024-06-22 09:26:18"),
        ] {
            let found = next_after_finish(profile, rule, "2024-01-31 11:00:00", 300).await;
            assert_eq!(found, next, "{rule}");
        }
    }
}

#[tokio::test]
async fn a_scheduled_rule_that_fell_behind_catches_up_or_jumps() {
    let behind = |profile| next_after_finish(profile, "SCHEDULED, +1 HOUR", "2024-01-31 06:30:00", 0);
    assert_eq!(behind(Profile::Seed).await, "2024-01-31 07:30:00");
    assert_eq!(behind(Profile::Current).await, "2024-01-31 12:30:00");
    let long = |profile| next_after_finish(profile, "SCHEDULED, +5 HOURS", "2024-01-31 01:00:00", 0);
    assert_eq!(long(Profile::Seed).await, "2024-01-31 06:00:00");
    assert_eq!(long(Profile::Current).await, "2024-01-31 06:00:00", "four hours and more are worth each run");
}

#[tokio::test]
async fn what_is_no_rule_is_refused() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for rule in [
        "often",
        "FINISHED",
        "FINISHED,",
        "FINISHED , +1 HOUR",
        "FINISHED, +1 HOUR , +1 DAY",
        "FINISHED, 1 HOUR",
        "FINISHED, +1234 DAYS",
        "FINISHED, +123456789 SECONDS",
        "FINISHED, WEEKDAY 7",
        "FINISHED, START OF WEEK",
        "HOURLY, +1 DAY",
        "every 5m",
        "0 4 * * *",
    ] {
        let status = c.status("CreateJob", &[("name", "a"), ("repeat", rule)]).await;
        assert_eq!(status, "402 Malformed repeat", "{rule}");
    }
    assert_eq!(
        c.status("CreateJob", &[("name", "a"), ("repeat", "")]).await,
        "200 OK",
        "an empty one is none"
    );
}
