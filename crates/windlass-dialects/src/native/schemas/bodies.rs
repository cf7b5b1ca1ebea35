//! What is asked: the fields of `wire.rs`.

use super::Need::{Always, Maybe};
use super::*;

fn job_fields() -> Vec<Field> {
    vec![
        ("name", Always, text_max("The kind of job; workers ask for it.", NAME_BYTES_MAX)),
        ("payload", Maybe, any("What the worker gets: any value. Kept byte for byte.")),
        ("payload_base64", Maybe, text("Instead of `payload`: bytes that are not JSON.")),
        ("format", Maybe, format()),
        ("queue", Maybe, text_max("Where it waits; `default` if left out.", NAME_BYTES_MAX)),
        ("priority", Maybe, int_within("Smaller first.", i32::MIN.into(), i32::MAX.into())),
        ("run_at", Maybe, when("Not before this time.")),
        ("delay_ms", Maybe, count("Not before so many milliseconds from now; instead of `run_at`.")),
        ("repeat", Maybe, text_max("When it runs again: `every 5m`, `0 4 * * *`, …", wire::REPEAT_BYTES_MAX)),
        (
            "unique",
            Maybe,
            one_of("One live job per key.", vec![json!({"type": "string"}), reference("Unique")]),
        ),
        (
            "retry",
            Maybe,
            one_of(
                "Attempts in all, or more exactly.",
                vec![json!({"type": "integer", "minimum": 1}), reference("Retry")],
            ),
        ),
        (
            "lease_ms",
            Maybe,
            int_within(
                "How long a worker holds it without a heartbeat.",
                wire::LEASE_MS_MIN,
                wire::LEASE_MS_MAX,
            ),
        ),
        ("keep", Maybe, reference("Keep")),
        ("parent", Maybe, id("A running job that goes on once this one and its other children are settled.")),
        ("alias", Maybe, text_max("Another id for it, unique per tenant.", wire::KEY_BYTES_MAX)),
        (
            "tags",
            Maybe,
            json!({"type": "array", "description": "Words to find it by.", "maxItems": wire::TAGS_MAX, "items": {"type": "string", "maxLength": wire::LABEL_BYTES_MAX}}),
        ),
    ]
}

fn import_entry() -> Value {
    let stands = words(
        "Where it stands; a parent waits for children that are imported after it.",
        &["ready", "waiting", "completed", "failed", "cancelled"],
    );
    let fields = vec![
        (
            "alias",
            Always,
            text_max("Says which job it was; sent again, it makes no second one.", wire::KEY_BYTES_MAX),
        ),
        ("name", Always, text_max("The kind of job.", NAME_BYTES_MAX)),
        ("queue", Maybe, text_max("Where it waits; `default` if left out.", NAME_BYTES_MAX)),
        ("payload", Maybe, any("Any value. Kept byte for byte.")),
        ("payload_base64", Maybe, text("Instead of `payload`: bytes that are not JSON.")),
        ("format", Maybe, format()),
        ("priority", Maybe, int_within("Smaller first.", i32::MIN.into(), i32::MAX.into())),
        ("stands", Always, stands),
        ("created_at", Always, when("When it was made.")),
        ("due_at", Always, when("When its present or next run is or was due.")),
        ("started_at", Maybe, when("When it was last given to a worker.")),
        ("parent", Maybe, id("A job that was imported before, as waiting.")),
        ("failure_settles", Maybe, flag("Whether its failure is an end to its parent; true if left out.")),
        ("policy", Maybe, any("The rules it lives by, as the engine writes them.")),
        ("origin", Maybe, text_max("Where it came from.", wire::LABEL_BYTES_MAX)),
        ("facts", Maybe, any("Words that its dialect keeps with it.")),
    ];
    object("A job as it stands.", fields)
}

pub fn bodies() -> Vec<(&'static str, Value)> {
    let mut single = job_fields();
    single.push(tenant());
    let jobs = json!({"type": "array", "description": "The jobs.", "maxItems": wire::BATCH_MAX, "items": reference("NewJob")});
    vec![
        (
            "Push",
            one_of(
                "One job, or a batch.",
                vec![object("One job.", single), object("A batch.", vec![("jobs", Always, jobs), tenant()])],
            ),
        ),
        ("NewJob", object("A job to be made.", job_fields())),
        (
            "Import",
            object(
                "Jobs from elsewhere. Parents come in an earlier call than their children.",
                vec![("jobs", Always, list("The jobs.", import_entry())), tenant()],
            ),
        ),
        (
            "Claim",
            object(
                "What a worker wants.",
                vec![
                    (
                        "queues",
                        Maybe,
                        list("Only from these queues; any if empty.", json!({"type": "string"})),
                    ),
                    ("queue", Maybe, text("Only from this queue.")),
                    ("name", Maybe, text("Only jobs whose name matches this GLOB.")),
                    (
                        "names",
                        Maybe,
                        list(
                            "Only jobs with one of these names; instead of `name`.",
                            json!({"type": "string"}),
                        ),
                    ),
                    ("priority", Maybe, int("Only jobs of exactly this priority.")),
                    ("limit", Maybe, count("How many at most; 1 if left out.")),
                    (
                        "wait_ms",
                        Maybe,
                        count("How long to wait if there is none; at most five minutes are waited."),
                    ),
                    (
                        "lease_ms",
                        Maybe,
                        int_within(
                            "How long to hold them without a heartbeat.",
                            wire::LEASE_MS_MIN,
                            wire::LEASE_MS_MAX,
                        ),
                    ),
                    ("worker", Maybe, text_max("Who is asking, for people to see.", wire::LABEL_BYTES_MAX)),
                    tenant(),
                ],
            ),
        ),
        (
            "Settle",
            object(
                "Ends of runs.",
                vec![
                    ("settle", Always, list("One entry per run.", reference("SettleEntry"))),
                    (
                        "claim",
                        Maybe,
                        described("The next jobs in the same call; its `tenant` must be left out.", "Claim"),
                    ),
                    tenant(),
                ],
            ),
        ),
        (
            "SettleEntry",
            object(
                "The end of one run.",
                vec![
                    ("id", Always, id("The job.")),
                    ("token", Always, count("From the claim.")),
                    ("outcome", Always, words("How it ended.", &["finish", "fail", "release"])),
                    ("result", Maybe, any("What came of it: any value.")),
                    ("error", Maybe, any("What went wrong: a text for people, or any value.")),
                    ("message", Maybe, text_max("What happened, for people.", wire::MESSAGE_BYTES_MAX)),
                    ("code", Maybe, text_max("What happened, for programs.", wire::LABEL_BYTES_MAX)),
                    ("exit_code", Maybe, int("Of a process.")),
                    (
                        "delay_ms",
                        Maybe,
                        count("fail: when to try again; release: when it may be claimed again."),
                    ),
                    ("retry", Maybe, flag("fail: false gives it up at once.")),
                    ("payload", Maybe, any("What the next run starts with, if there is one.")),
                ],
            ),
        ),
        (
            "Extend",
            object(
                "Heartbeats.",
                vec![("extend", Always, list("One entry per run.", reference("ExtendEntry"))), tenant()],
            ),
        ),
        (
            "ExtendEntry",
            object(
                "A sign of life.",
                vec![
                    ("id", Always, id("The job.")),
                    ("token", Always, count("From the claim.")),
                    (
                        "lease_ms",
                        Maybe,
                        int_within(
                            "How long to hold it from now; never shortens.",
                            wire::LEASE_MS_MIN,
                            wire::LEASE_MS_MAX,
                        ),
                    ),
                    ("progress", Maybe, int_within("Percent done.", 0, 100)),
                    ("note", Maybe, text_max("How far it has come, for people.", wire::MESSAGE_BYTES_MAX)),
                ],
            ),
        ),
        (
            "LogLines",
            object(
                "What a run has to say; the last lines are kept with the job.",
                vec![
                    ("token", Always, count("From the claim.")),
                    ("lines", Always, list("Line by line.", json!({"type": "string"}))),
                    (
                        "source",
                        Maybe,
                        text_max("Where they come from, such as stderr.", wire::LABEL_BYTES_MAX),
                    ),
                ],
            ),
        ),
        (
            "Patch",
            object(
                "What to change; the rest stays.",
                vec![
                    ("payload", Maybe, any("A new payload.")),
                    ("payload_base64", Maybe, text("A new payload that is not JSON.")),
                    ("format", Maybe, format()),
                    ("priority", Maybe, int("Smaller first.")),
                    ("name", Maybe, text_max("The kind of job.", NAME_BYTES_MAX)),
                    ("queue", Maybe, text_max("Where it waits.", NAME_BYTES_MAX)),
                    ("run_at", Maybe, when("Not before this time.")),
                    ("delay_ms", Maybe, count("Not before so many milliseconds from now.")),
                    ("repeat", Maybe, or_null(text("A new repeat rule; null ends the repetition."))),
                    ("tags", Maybe, list("All tags.", json!({"type": "string"}))),
                ],
            ),
        ),
        (
            "Cancel",
            object(
                "How to cancel.",
                vec![(
                    "now",
                    Maybe,
                    flag("Take it from its worker at once instead of asking the worker to stop."),
                )],
            ),
        ),
        (
            "Run",
            object(
                "When to run.",
                vec![
                    ("run_at", Maybe, when("At this time; now if left out.")),
                    ("delay_ms", Maybe, count("So many milliseconds from now.")),
                    ("force", Maybe, flag("run: also what has ended; retry: also what is running.")),
                ],
            ),
        ),
        (
            "BlobGc",
            object(
                "Which blobs to look for.",
                vec![
                    ("remove", Maybe, flag("Remove what is found; otherwise it is only shown.")),
                    (
                        "older_than_s",
                        Maybe,
                        count("Leave alone what was put within so many seconds; a day if left out."),
                    ),
                ],
            ),
        ),
        (
            "Bulk",
            object(
                "What to do, and to which jobs: `search` or `ids`.",
                vec![
                    (
                        "action",
                        Always,
                        words("What to do.", &["retry", "cancel", "run", "delete", "priority"]),
                    ),
                    ("search", Maybe, text("The words of a search: to all jobs it finds.")),
                    ("ids", Maybe, list("To these jobs, at most 1,000.", json!({"type": "integer"}))),
                    ("priority", Maybe, int("With the action priority: the new one.")),
                    ("cursor", Maybe, text("`next` of the call before, to go on.")),
                    tenant(),
                ],
            ),
        ),
        ("QuotaAsk", object("What a tenant may take; what is left out stays.", quota_fields(Maybe))),
        (
            "TokenAsk",
            object(
                "A token to be made.",
                vec![
                    ("role", Maybe, words("What its holder may do; worker if left out.", &ROLES)),
                    ("tenant", Maybe, text("Whose jobs it is about; `default` if left out.")),
                    ("note", Maybe, text("Who has it, for people; shown in lists and in the log.")),
                    ("expires_at", Maybe, int("When it ends, in milliseconds since 1970.")),
                    ("expires_in_ms", Maybe, count("After how many milliseconds it ends.")),
                    ("queues", Maybe, list(super::answers::TOKEN_QUEUES, json!({"type": "string"}))),
                ],
            ),
        ),
        (
            "RotateAsk",
            object(
                "How to rotate a token.",
                vec![("grace_ms", Maybe, count("How long the old one goes on; an hour if left out."))],
            ),
        ),
        ("LimitAsk", object("A limit: a rate, a number at once, or both.", limit_fields(Maybe))),
    ]
}
