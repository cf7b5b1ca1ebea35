//! The shapes of bodies and answers, for the API's description. The fields of `wire.rs` and `views.rs`, each with a
//! sentence.

use super::wire;
use serde_json::{Map, Value, json};
use windlass_core::StateName;
use windlass_core::names::{NAME_BYTES_MAX, TENANT_BYTES_MAX};

pub fn all() -> Value {
    let mut schemas = Map::new();
    for (name, schema) in bodies().into_iter().chain(answers()).chain(parts()) {
        schemas.insert(name.into(), schema);
    }
    Value::Object(schemas)
}

/// Only these calls mean something without a body.
pub fn body_is_required(schema: &str) -> bool {
    !matches!(schema, "Cancel" | "Run" | "Claim")
}

/// A field: its name, whether it is always there, its shape.
type Field = (&'static str, Need, Value);

#[derive(Clone, Copy, PartialEq)]
enum Need {
    Always,
    Maybe,
}
use Need::{Always, Maybe};

fn object(description: &str, fields: Vec<Field>) -> Value {
    let required: Vec<&str> = fields.iter().filter(|field| field.1 == Always).map(|field| field.0).collect();
    let properties: Map<String, Value> =
        fields.into_iter().map(|(name, _, shape)| (name.into(), shape)).collect();
    json!({
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn text_max(description: &str, bytes: usize) -> Value {
    json!({"type": "string", "description": description, "minLength": 1, "maxLength": bytes})
}

fn words(description: &str, words: &[&str]) -> Value {
    json!({"type": "string", "description": description, "enum": words})
}

fn int(description: &str) -> Value {
    json!({"type": "integer", "description": description})
}

fn int_within(description: &str, min: i64, max: i64) -> Value {
    json!({"type": "integer", "description": description, "minimum": min, "maximum": max})
}

fn count(description: &str) -> Value {
    json!({"type": "integer", "description": description, "minimum": 0})
}

fn time(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": format!("{description} Milliseconds since 1970.")})
}

fn id(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 1, "description": description})
}

fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn any(description: &str) -> Value {
    json!({"description": description})
}

fn list(description: &str, items: Value) -> Value {
    json!({"type": "array", "description": description, "items": items})
}

fn one_of(description: &str, shapes: Vec<Value>) -> Value {
    json!({"description": description, "anyOf": shapes})
}

fn or_null(mut shape: Value) -> Value {
    let description = shape["description"].take();
    if let Some(fields) = shape.as_object_mut() {
        fields.remove("description");
    }
    json!({"description": description, "anyOf": [shape, {"type": "null"}]})
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn tenant() -> Field {
    (
        "tenant",
        Maybe,
        text_max("Whose jobs; only an admin may name another tenant than their own.", TENANT_BYTES_MAX),
    )
}

fn format() -> Value {
    words("How the payload is kept.", &["json", "text", "msgpack", "binary"])
}

fn when(description: &str) -> Value {
    one_of(description, vec![json!({"type": "integer"}), json!({"type": "string", "format": "date-time"})])
}

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

fn bodies() -> Vec<(&'static str, Value)> {
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
                vec![("settle", Always, list("One entry per run.", reference("SettleEntry"))), tenant()],
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
        ("LimitAsk", object("A limit: a rate, a number at once, or both.", limit_fields(Maybe))),
    ]
}

fn limit_fields(id: Need) -> Vec<Field> {
    vec![
        ("id", id, text("Its id, as in the path.")),
        (
            "matcher",
            Always,
            json!({"type": "object", "description": "Which jobs it is about: {\"name\"}, {\"name_glob\"}, {\"queue\"}, {\"priority\"}, {\"arg\",\"op\",\"value\"}, {\"all\"}, {\"any\"}, {\"not\"}."}),
        ),
        (
            "rate",
            Maybe,
            object(
                "How fast jobs may start.",
                vec![
                    ("per_second", Always, json!({"type": "number", "description": "Starts per second."})),
                    ("burst", Maybe, count("How many may start at once after a rest.")),
                ],
            ),
        ),
        ("max_running", Maybe, count("How many may run at once.")),
        (
            "group_by",
            Maybe,
            list(
                "Paths into the payload; each group of equal values has the limit for itself.",
                json!({"type": "array"}),
            ),
        ),
    ]
}

fn answers() -> Vec<(&'static str, Value)> {
    let gone = words("What became of it.", &["gone"]);
    let entry = |fields: Vec<Field>| {
        let mut all = vec![
            ("id", Always, id("The job.")),
            ("ok", Always, flag("Whether it was done.")),
            ("error", Maybe, reference("ErrorBody")),
        ];
        all.extend(fields);
        object("The answer to one entry.", all)
    };
    let state =
        words("Where the job stands now.", &[&StateName::ALL.map(StateName::as_str)[..], &["gone"]].concat());
    vec![
        (
            "Pushed",
            object(
                "What was made.",
                vec![
                    (
                        "ids",
                        Always,
                        list(
                            "In the order of the jobs sent; null where one was refused.",
                            json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
                        ),
                    ),
                    ("id", Maybe, id("When there is one.")),
                    ("existing", Always, list("Those that were there already.", json!({"type": "integer"}))),
                    (
                        "refused",
                        Maybe,
                        list(
                            "Those that were not made.",
                            object(
                                "A refused job.",
                                vec![
                                    ("index", Always, count("Its place in the batch.")),
                                    ("code", Always, text("Why, for programs.")),
                                    ("message", Always, text("Why, for people.")),
                                    ("id", Maybe, id("The job in the way.")),
                                ],
                            ),
                        ),
                    ),
                ],
            ),
        ),
        (
            "Claimed",
            object(
                "Jobs to work on; none when there were none in time.",
                vec![("jobs", Always, list("Best first.", reference("ClaimedJob")))],
            ),
        ),
        (
            "Settled",
            object(
                "One answer per entry, in order.",
                vec![(
                    "settled",
                    Always,
                    list(
                        "The answers.",
                        entry(vec![
                            ("state", Maybe, state.clone()),
                            ("run_at", Maybe, time("When it runs again.")),
                        ]),
                    ),
                )],
            ),
        ),
        (
            "Extended",
            object(
                "One answer per entry, in order.",
                vec![(
                    "extended",
                    Always,
                    list(
                        "The answers.",
                        entry(vec![
                            (
                                "lease_until",
                                Maybe,
                                or_null(time("When the lease ends; null if it has no end.")),
                            ),
                            ("cancel", Maybe, flag("The job should be stopped: a finish still counts.")),
                        ]),
                    ),
                )],
            ),
        ),
        (
            "Page",
            object(
                "Jobs, newest first.",
                vec![
                    ("jobs", Always, list("The jobs.", reference("Job"))),
                    ("next", Always, or_null(text("Send it as `cursor` to go on; null: that was all."))),
                ],
            ),
        ),
        (
            "Children",
            object(
                "The children.",
                vec![("jobs", Always, list("In the order of their ids.", reference("Job")))],
            ),
        ),
        (
            "Gone",
            object("It is gone.", vec![("id", Always, id("The job.")), ("state", Always, gone.clone())]),
        ),
        (
            "LimitGone",
            object("It is gone.", vec![("id", Always, text("The limit.")), ("state", Always, gone)]),
        ),
        ("Result", object("How a job ended, or where it stands.", result_fields())),
        ("Queues", object("All queues.", vec![("queues", Always, list("The queues.", reference("Queue")))])),
        (
            "QueuePaused",
            object(
                "A queue that was paused or resumed.",
                vec![
                    ("queue", Always, text("The queue.")),
                    ("tenant", Always, text("Whose it is.")),
                    ("paused", Always, flag("Whether it is paused now.")),
                ],
            ),
        ),
        ("Limits", object("All limits.", vec![("limits", Always, list("The limits.", reference("Limit")))])),
        ("Limit", {
            let mut fields = limit_fields(Always);
            fields.push(("running", Always, count("Jobs under it that are running.")));
            object("A limit.", fields)
        }),
        (
            "Stats",
            object(
                "Figures.",
                vec![
                    ("queues", Always, count("How many queues there are.")),
                    ("totals", Always, object("Jobs by state.", state_counts())),
                    ("version", Always, text("Of the server.")),
                    ("uptime_ms", Always, count("Since the start.")),
                    (
                        "rates",
                        Maybe,
                        object(
                            "Per second, over the last minute.",
                            ["pushed", "claimed", "finished", "failed"]
                                .map(|name| {
                                    (name, Always, json!({"type": "number", "description": "Per second."}))
                                })
                                .to_vec(),
                        ),
                    ),
                    ("store", Maybe, text("Which store it is.")),
                    ("waiting_claims", Maybe, count("Claims that wait for jobs.")),
                ],
            ),
        ),
        ("Error", object("What went wrong.", vec![("error", Always, reference("ErrorBody"))])),
        (
            "Event",
            object(
                "The data of one server-sent event; its type is what happened.",
                vec![
                    ("id", Always, id("The job.")),
                    ("tenant", Always, text("Whose it is.")),
                    ("queue", Always, text("Its queue.")),
                    ("name", Always, text("Its name.")),
                    ("state", Always, text("Where it stands afterwards.")),
                    ("at", Always, time("When it happened.")),
                ],
            ),
        ),
    ]
}

fn payload_fields(key: &'static str, base64: &'static str, format_key: &'static str) -> Vec<Field> {
    vec![
        (key, Maybe, any("The value.")),
        (base64, Maybe, text("Its bytes, where JSON cannot say them.")),
        (format_key, Maybe, format()),
    ]
}

fn outcome_fields() -> Vec<Field> {
    let mut fields = payload_fields("result", "result_base64", "result_format");
    fields.extend(payload_fields("error", "error_base64", "error_format"));
    fields.extend([
        ("message", Maybe, text("What happened, for people.")),
        ("code", Maybe, text("What happened, for programs.")),
        ("exit_code", Maybe, int("Of a process.")),
    ]);
    fields
}

fn progress() -> Field {
    (
        "progress",
        Maybe,
        object(
            "How far the run has come.",
            vec![
                ("percent", Maybe, int_within("Percent done.", 0, 100)),
                ("note", Maybe, text("For people.")),
            ],
        ),
    )
}

fn state() -> Value {
    words("Where it stands.", &StateName::ALL.map(StateName::as_str))
}

fn result_fields() -> Vec<Field> {
    let mut fields = vec![("id", Always, id("The job.")), ("state", Always, state()), progress()];
    fields.extend(outcome_fields());
    fields.push(("finished_at", Maybe, time("When it ended.")));
    fields
}

fn state_counts() -> Vec<Field> {
    let mut fields: Vec<Field> =
        StateName::ALL.map(|state| (state.as_str(), Always, count("Jobs in this state."))).to_vec();
    fields.push(("delayed", Always, count("Ready jobs whose time has not come; not counted under ready.")));
    fields
}

fn parts() -> Vec<(&'static str, Value)> {
    let keep = |description: &str| {
        one_of(
            description,
            vec![json!({"type": "integer", "minimum": 0}), json!({"type": "string", "enum": ["ever"]})],
        )
    };
    let mut claimed = vec![
        ("id", Always, id("The job.")),
        ("token", Always, count("Proof of holding it: send it with settle and extend.")),
        ("lease_until", Always, or_null(time("Send a heartbeat before then; null: held until settled."))),
        ("name", Always, text("Its kind.")),
        ("queue", Always, text("Where it came from.")),
        ("attempt", Always, count("Which attempt this is, from 1.")),
        ("priority", Always, int("Smaller first.")),
        ("created_at", Always, time("When it was pushed.")),
        ("run_at", Always, time("When this run was due.")),
        ("tags", Maybe, list("Its tags.", json!({"type": "string"}))),
        progress(),
    ];
    claimed.extend(payload_fields("payload", "payload_base64", "format"));
    let mut queue = vec![
        ("queue", Always, text("Its name.")),
        ("tenant", Always, text("Whose it is.")),
        ("paused", Always, flag("No job of it is handed out.")),
        ("oldest_ms", Always, or_null(count("How long the oldest job that could run has been waiting."))),
    ];
    queue.extend(state_counts());
    vec![
        ("ClaimedJob", object("A job as its worker gets it.", claimed)),
        ("Queue", object("A queue.", queue)),
        ("Job", object("All about a job.", job_view_fields())),
        (
            "ErrorBody",
            object(
                "One shape for all errors.",
                vec![
                    ("code", Always, text("Stable word for programs.")),
                    ("message", Always, text("For people; says what to do.")),
                    ("id", Maybe, id("The job in the way.")),
                ],
            ),
        ),
        (
            "Unique",
            object(
                "One live job per key.",
                vec![
                    ("key", Always, text_max("The key.", wire::KEY_BYTES_MAX)),
                    (
                        "on_conflict",
                        Maybe,
                        words("What a second push does.", &["return", "update", "refuse"]),
                    ),
                    (
                        "held_until",
                        Maybe,
                        words("How long the key keeps others out.", &["settled", "started", "forgotten"]),
                    ),
                ],
            ),
        ),
        (
            "Retry",
            object(
                "How often and how soon it is tried again.",
                vec![
                    ("max_attempts", Maybe, or_null(count("Attempts in all; null: no bound."))),
                    (
                        "backoff",
                        Maybe,
                        one_of(
                            "How long to wait before the next.",
                            vec![
                                words("At once.", &["none"]),
                                object("Always as long.", vec![("fixed_ms", Always, count("So long."))]),
                                object(
                                    "Doubles each time.",
                                    vec![
                                        ("base_ms", Always, count("The first wait.")),
                                        ("cap_ms", Maybe, count("The longest wait.")),
                                        (
                                            "jitter_percent",
                                            Maybe,
                                            int_within("Up to so much more, by chance.", 0, 100),
                                        ),
                                    ],
                                ),
                            ],
                        ),
                    ),
                    ("give_up_after_ms", Maybe, count("No attempt begins later than this after the push.")),
                ],
            ),
        ),
        (
            "Keep",
            object(
                "How long it stays to be looked at; 0 forgets it at once.",
                vec![
                    ("completed_ms", Maybe, keep("Once completed.")),
                    ("failed_ms", Maybe, keep("Once failed.")),
                    ("cancelled_ms", Maybe, keep("Once cancelled.")),
                ],
            ),
        ),
    ]
}

fn job_view_fields() -> Vec<Field> {
    let mut fields = vec![
        ("id", Always, id("1, 2, 3, …; never used again.")),
        ("name", Always, text("Its kind.")),
        ("queue", Always, text("Where it waits.")),
        ("tenant", Always, text("Whose it is.")),
        ("state", Always, state()),
        ("priority", Always, int("Smaller first.")),
        ("attempts", Always, count("Attempts that counted, the present one included.")),
        ("max_attempts", Maybe, count("Attempts in all; without it there is no bound.")),
        ("created_at", Always, time("When it was pushed.")),
        ("run_at", Always, time("When it is or was due.")),
        ("updated_at", Always, time("When it last changed.")),
        ("started_at", Maybe, time("When its last run began.")),
        ("finished_at", Maybe, time("When it ended.")),
        ("expires_at", Maybe, time("When it will be forgotten.")),
        (
            "lease",
            Maybe,
            object(
                "Who is working on it.",
                vec![
                    ("worker", Maybe, text("As it named itself.")),
                    ("granted_at", Always, time("Since when.")),
                    ("until", Maybe, time("Until when, without a heartbeat.")),
                    ("cancel_asked", Always, flag("It was asked to stop.")),
                ],
            ),
        ),
        progress(),
        (
            "errors",
            Maybe,
            list(
                "The last attempts that went wrong.",
                object(
                    "One of them.",
                    vec![
                        ("attempt", Always, count("Which attempt.")),
                        ("at", Always, time("When.")),
                        ("message", Always, text("What happened.")),
                    ],
                ),
            ),
        ),
        ("repeat", Maybe, text("Its repeat rule.")),
        ("origin", Always, text("The dialect it came by.")),
        ("alias", Maybe, text("Another id for it.")),
        ("unique", Maybe, reference("Unique")),
        ("parent", Maybe, id("Its parent.")),
        ("child_name", Maybe, text("What its parent calls it.")),
        ("pending_children", Maybe, count("Children it waits for.")),
        ("tags", Maybe, list("Its tags.", json!({"type": "string"}))),
        (
            "waiting_for",
            Maybe,
            text("Why nobody is working on it: due, paused queue, limit X, children N, parent, a worker."),
        ),
    ];
    fields.extend(payload_fields("payload", "payload_base64", "format"));
    fields.extend(outcome_fields());
    fields
}

/// What a parameter of a path or query is.
pub fn parameter(path: &str, name: &str) -> (&'static str, Value) {
    match (path, name) {
        ("/api/v1/limits/{id}", "id") => ("The limit's id.", json!({"type": "string"})),
        (_, "id") => ("The job's id.", json!({"type": "integer", "minimum": 1})),
        (_, "alias") => ("The job's alias.", json!({"type": "string"})),
        (_, "queue") => ("The queue.", json!({"type": "string"})),
        (_, "state") => ("Only jobs in these states, separated by commas.", json!({"type": "string"})),
        (_, "name") => ("Only jobs whose name matches this GLOB.", json!({"type": "string"})),
        (_, "tag") => ("Only jobs with this tag.", json!({"type": "string"})),
        (_, "q") => ("Only jobs with this text in the payload.", json!({"type": "string"})),
        (_, "limit") => (
            "Jobs per page; 50 if left out.",
            json!({"type": "integer", "minimum": 1, "maximum": wire::PAGE_MAX}),
        ),
        (_, "cursor") => ("`next` of the page before.", json!({"type": "string"})),
        (_, "wait_ms") => (
            "How long to wait for the end.",
            json!({"type": "integer", "minimum": 0, "maximum": wire::WAIT_MS_MAX}),
        ),
        (_, "tenant") => (
            "Another tenant than your own, for admins; admins who name none see all.",
            json!({"type": "string"}),
        ),
        _ => ("", json!({})),
    }
}

pub fn examples(schema: &str) -> Value {
    let example = |summary: &str, value: Value| json!({"summary": summary, "value": value});
    match schema {
        "Push" => json!({
            "one": example("one job", json!({"name": "mail", "payload": {"to": "ann@example.org"}})),
            "later": example("in ten minutes, tried three times", json!({"name": "mail", "delay_ms": 600_000, "retry": 3})),
            "batch": example("a batch", json!({"jobs": [{"name": "mail", "payload": 1}, {"name": "mail", "payload": 2}]})),
            "repeating": example("every night, once", json!({"name": "report", "repeat": "0 4 * * *", "unique": "report"})),
        }),
        "Claim" => json!({"wait": example("up to ten mail jobs, waiting up to thirty seconds", json!({
            "name": "mail*", "limit": 10, "wait_ms": 30_000, "worker": "w1",
        }))}),
        "Settle" => json!({"both": example("one went well, one did not", json!({"settle": [
            {"id": 1, "token": 65537, "outcome": "finish", "result": {"sent": true}},
            {"id": 2, "token": 131_075, "outcome": "fail", "error": "mailbox full", "delay_ms": 60_000},
        ]}))}),
        "Extend" => json!({"beat": example("half way through", json!({"extend": [
            {"id": 1, "token": 65537, "lease_ms": 30_000, "progress": 50, "note": "page 5 of 10"},
        ]}))}),
        "Patch" => json!({"first": example("first in line", json!({"priority": -10}))}),
        "Cancel" => json!({"now": example("at once", json!({"now": true}))}),
        "Run" => json!({"now": example("now", json!({}))}),
        "LimitAsk" => json!({"per_user": example("two at once per user", json!({
            "matcher": {"name_glob": "mail*"}, "max_running": 2, "group_by": [["user", "id"]],
        }))}),
        _ => json!({}),
    }
}
