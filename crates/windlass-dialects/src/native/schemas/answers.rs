//! What is answered: the fields of `views.rs`.

use super::Need::{Always, Maybe};
use super::*;

pub fn answers() -> Vec<(&'static str, Value)> {
    let gone = words("What became of it.", &["gone"]);
    let state =
        words("Where the job stands now.", &[&StateName::ALL.map(StateName::as_str)[..], &["gone"]].concat());
    vec![
        (
            "Kept",
            object(
                "What was kept in the journal (`journal.native`); the jobs are made a moment later, or when the store is back.",
                vec![(
                    "aliases",
                    Always,
                    list(
                        "By which each job can be looked up, in the order of the jobs sent.",
                        json!({"type": "string"}),
                    ),
                )],
            ),
        ),
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
                vec![
                    (
                        "settled",
                        Always,
                        list(
                            "The answers.",
                            entry(vec![
                                ("state", Maybe, state.clone()),
                                ("run_at", Maybe, time("When it runs again.")),
                            ]),
                        ),
                    ),
                    ("jobs", Maybe, list("What `claim` asked for, best first.", reference("ClaimedJob"))),
                ],
            ),
        ),
        (
            "Extended",
            object(
                "One answer per entry, in order.",
                vec![("extended", Always, list("The answers.", extended()))],
            ),
        ),
        ("ExtendedOne", extended()),
        ("Handlers", object("Handlers.", vec![("handlers", Always, list("By tenant and name.", handler()))])),
        ("FamilyTree", object("A job's family.", family_tree())),
        (
            "WorkerIs",
            object(
                "What became of a worker.",
                vec![
                    ("worker", Always, text("Its id.")),
                    ("state", Always, words("What it is now.", &["active", "quiet", "gone"])),
                ],
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
            "Count",
            object(
                "How many jobs a search finds.",
                vec![
                    ("count", Always, count("So many were found.")),
                    ("at_least", Always, flag("There may be more: counting on would have taken long.")),
                ],
            ),
        ),
        (
            "BulkDone",
            object(
                "What became of an action on many jobs.",
                vec![
                    ("done", Always, count("To so many it was done.")),
                    ("refused", Always, count("So many are gone, or not in a state for it.")),
                    (
                        "errors",
                        Always,
                        list(
                            "The first of the refusals.",
                            object(
                                "A refusal.",
                                vec![
                                    ("id", Always, id("The job.")),
                                    ("code", Always, text("Why, for programs.")),
                                    ("message", Always, text("Why, for people.")),
                                ],
                            ),
                        ),
                    ),
                    ("next", Always, or_null(text("Send it as `cursor` to go on; null: that was all."))),
                ],
            ),
        ),
        (
            "Me",
            object(
                "Who is asking.",
                vec![
                    ("tenant", Always, text("Whose jobs they see.")),
                    ("role", Always, words("What they may.", &["viewer", "worker", "operator", "admin"])),
                    ("version", Always, text("Of the server.")),
                    ("open", Always, flag("Nobody needs a token here.")),
                    ("payloads", Always, flag("Whether payloads, results and errors are shown to them.")),
                    ("queues", Maybe, list(TOKEN_QUEUES, json!({"type": "string"}))),
                    (
                        "doors",
                        Always,
                        object(
                            "Where other dialects listen, beside HTTP.",
                            vec![("bedrock", Maybe, text("Bedrock::Jobs: an address and port."))],
                        ),
                    ),
                ],
            ),
        ),
        (
            "History",
            object("What happened in each step of a span of time, the oldest first.", {
                let mut fields = vec![
                    ("from", Always, time("When the first step begins; for 15m, when it ends.")),
                    ("step_ms", Always, count("How long a step is.")),
                ];
                let steps = |name| (name, Always, list("How many in each step.", json!({"type": "integer"})));
                fields.extend(["pushed", "claimed", "finished", "failed"].map(steps));
                fields
            }),
        ),
        (
            "Workers",
            object(
                "Who holds jobs now.",
                vec![
                    ("workers", Always, list("By tenant and name.", reference("WorkerView"))),
                    ("more", Always, flag("There are more leases than were looked at.")),
                    ("registered", Always, list("Workers that jobs are pushed to.", registered())),
                    ("waiting", Always, list("Workers whose claims wait, by the name they gave.", waiting())),
                    ("waiting_claims", Maybe, count("Claims that wait for jobs, on the whole server.")),
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
        (
            "Blobs",
            object(
                "Blobs.",
                vec![
                    ("blobs", Always, list("The newest.", reference("Blob"))),
                    ("count", Always, count("How many there are.")),
                    ("bytes", Always, count("Their bytes in all.")),
                ],
            ),
        ),
        (
            "TenantQuota",
            object(
                "What a tenant may take, and what it takes.",
                vec![
                    ("tenant", Always, text("The tenant.")),
                    ("quota", Always, object("The most it may take.", quota_fields(Always))),
                    (
                        "in_use",
                        Always,
                        object(
                            "What it takes now.",
                            vec![
                                ("jobs", Always, count("Jobs that have not ended.")),
                                ("blob_bytes", Always, count("Bytes of blobs.")),
                                ("requests_in_flight", Always, count("Requests at this server.")),
                                ("waiting_claims", Always, count("Claims that wait at this server.")),
                            ],
                        ),
                    ),
                ],
            ),
        ),
        (
            "SigningKey",
            object(
                "What requests for a tenant are signed with.",
                vec![
                    ("tenant", Always, text("The tenant.")),
                    ("signing_key", Always, text("The key of HMAC-SHA256, as text.")),
                ],
            ),
        ),
        (
            "Tokens",
            object("Tokens.", vec![("tokens", Always, list("All that are in force.", reference("Token")))]),
        ),
        (
            "NewToken",
            object("A token that was made.", {
                let secret = ("token", Always, text("What its holder sends. Shown only here."));
                std::iter::once(secret).chain(token_fields()).collect()
            }),
        ),
        ("Token", object("A token in force.", token_fields())),
        (
            "TokenGone",
            object("A token that was revoked.", vec![("revoked", Always, text("Its public part."))]),
        ),
        (
            "UnnamedBlobs",
            object(
                "Blobs that no job names.",
                vec![
                    ("count", Always, count("Blobs there are, named or not.")),
                    (
                        "unnamed",
                        Always,
                        list("Those that no job names, or the newest of them.", reference("Blob")),
                    ),
                    ("unnamed_count", Always, count("How many those are.")),
                    ("unnamed_bytes", Always, count("Their bytes in all.")),
                    ("removed", Always, count("How many of them were removed.")),
                ],
            ),
        ),
        ("Limits", object("All limits.", vec![("limits", Always, list("The limits.", reference("Limit")))])),
        ("Limit", {
            let mut fields = limit_fields(Always);
            fields.push(("running", Always, count("Jobs under it that are running.")));
            fields.push(("waiting", Always, count("Jobs under it that are due and wait.")));
            fields.push(("held", Always, count("How many of these it holds back now.")));
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
                        "oldest_ms",
                        Always,
                        or_null(count("How long the oldest job that could run has been waiting.")),
                    ),
                    (
                        "pickup_ms",
                        Maybe,
                        or_null(percentiles("From due to picked up, over the last minute.")),
                    ),
                    (
                        "run_ms",
                        Maybe,
                        or_null(percentiles("From picked up to reported, over the last minute.")),
                    ),
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

pub fn parts() -> Vec<(&'static str, Value)> {
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
        (
            "pushed_per_s",
            Always,
            json!({"type": "number", "description": "Over the last minute, through this server."}),
        ),
        (
            "claimed_per_s",
            Always,
            json!({"type": "number", "description": "Over the last minute, through this server."}),
        ),
        ("empty_in_ms", Maybe, count("When nothing is ready any more, if all goes on like this.")),
    ];
    queue.extend(state_counts());
    vec![
        ("ClaimedJob", object("A job as its worker gets it.", claimed)),
        ("Queue", object("A queue.", queue)),
        (
            "Blob",
            object(
                "Bytes named by their hash.",
                vec![
                    ("tenant", Always, text("Whose it is.")),
                    ("sha1", Always, text("Its address, as SHA-1 in hex.")),
                    ("sha256", Always, text("The same as SHA-256.")),
                    ("bytes", Always, count("How many it has.")),
                    ("stored_at", Always, time("When it was last put.")),
                ],
            ),
        ),
        ("WorkerView", object("A worker, by the jobs it holds.", worker_fields())),
        ("Job", object("All about a job.", job_view_fields())),
        ("Kin", object("One of a family.", kin_fields())),
        (
            "KinWithChildren",
            object("One of a family, and what came of it.", [kin_fields(), descendants()].concat()),
        ),
        (
            "Log",
            object(
                "What its runs have said last; only of a single job.",
                vec![
                    ("lines", Always, list("Oldest first.", object("A line.", log_line_fields()))),
                    ("dropped", Always, count("Older lines that had to make room.")),
                ],
            ),
        ),
        (
            "Happening",
            object(
                "Something that happened to a job.",
                vec![
                    ("at", Always, time("When.")),
                    (
                        "what",
                        Always,
                        text(
                            "pushed, claimed, attempt_failed, a state it ended in, or what somebody did to it.",
                        ),
                    ),
                    ("who", Maybe, text("The worker, or whoever did it.")),
                    ("attempt", Maybe, count("Which attempt.")),
                    ("message", Maybe, text("What went wrong.")),
                ],
            ),
        ),
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

fn percentiles(description: &str) -> Value {
    let fields = ["p50", "p95", "p99"]
        .map(|name| (name, Always, json!({"type": "number", "description": "Milliseconds."})));
    object(description, fields.to_vec())
}

fn entry(fields: Vec<Field>) -> Value {
    let mut all = vec![
        ("id", Always, id("The job.")),
        ("ok", Always, flag("Whether it was done.")),
        ("error", Maybe, reference("ErrorBody")),
    ];
    all.extend(fields);
    object("The answer to one entry.", all)
}

fn extended() -> Value {
    entry(vec![
        ("lease_until", Maybe, or_null(time("When the lease ends; null if it has no end."))),
        ("cancel", Maybe, flag("The job should be stopped: a finish still counts.")),
    ])
}

fn handler() -> Value {
    let version = object(
        "One of its versions.",
        vec![
            ("id", Always, text("Which one; later ones sort behind.")),
            ("text", Maybe, any("As it was set; left out where payloads are hidden.")),
        ],
    );
    object(
        "What runs one kind of jobs.",
        vec![
            ("name", Always, text("The name of the jobs.")),
            ("queue", Always, text("Where they wait.")),
            ("tenant", Always, text("Whose it is.")),
            ("dialect", Always, text("What it was set by.")),
            ("trouble", Maybe, text("Why it would not run.")),
            ("versions", Always, list("The one in force first.", version)),
        ],
    )
}

fn family_tree() -> Vec<Field> {
    let mut fields = vec![("ancestors", Always, list("Its parents, the oldest first.", reference("Kin")))];
    fields.extend(descendants());
    fields
}

fn kin_fields() -> Vec<Field> {
    vec![
        ("id", Always, id("The job.")),
        ("name", Always, text("Its kind.")),
        ("state", Always, state()),
        ("run_at", Always, time("When it is or was due.")),
        ("finished_at", Maybe, time("When it ended.")),
        ("child_name", Maybe, text("What its parent calls it.")),
    ]
}

fn descendants() -> Vec<Field> {
    vec![
        ("children", Always, list("The first of them, with theirs.", reference("KinWithChildren"))),
        ("more", Always, count("Children that are not told of.")),
    ]
}

fn log_line_fields() -> Vec<Field> {
    vec![
        ("at", Always, time("When it came in.")),
        ("attempt", Always, count("Which attempt said so.")),
        ("source", Maybe, text("Where it comes from, such as stderr.")),
        ("text", Always, text("The line.")),
    ]
}

fn registered() -> Value {
    object(
        "A worker that has registered, with or without jobs.",
        vec![
            ("worker", Always, text("Its id: what its jobs name as their holder.")),
            ("tenant", Always, text("Whose jobs it works on.")),
            ("dialect", Always, text("What it registered by.")),
            ("address", Maybe, text("Where it is reached.")),
            ("slots", Always, count("Jobs it takes at once.")),
            ("running", Always, count("Jobs it has.")),
            ("quiet", Always, flag("It is given no more jobs.")),
            ("fixed", Always, flag("It stands in the configuration.")),
            ("last_sign", Maybe, time("Its last word beside its jobs.")),
        ],
    )
}

fn waiting() -> Value {
    object(
        "A worker that waits for jobs.",
        vec![
            ("worker", Always, text("As it named itself.")),
            ("tenant", Always, text("Whose jobs it works on.")),
            ("claims", Always, count("How many claims of its wait.")),
        ],
    )
}

fn worker_fields() -> Vec<Field> {
    let job = object(
        "A job it holds.",
        vec![
            ("id", Always, id("The job.")),
            ("name", Always, text("Its kind.")),
            ("until", Maybe, time("When its lease ends without a heartbeat.")),
        ],
    );
    vec![
        ("worker", Maybe, text("As it named itself; those that did not are one.")),
        ("tenant", Always, text("Whose jobs it works on.")),
        ("origin", Always, text("The dialect its jobs came by.")),
        ("holds", Always, count("How many jobs it holds.")),
        ("since", Always, time("When it was given the oldest of them.")),
        ("last_sign", Always, time("Its last claim, heartbeat or report on one of them.")),
        ("jobs", Always, list("The newest of them.", job)),
    ]
}

fn ports() -> Field {
    let side = |about: &str| {
        let port = object(
            "A port.",
            vec![
                ("size", Always, count("Values that wait in it.")),
                ("default", Maybe, json!({"description": "What is read when none waits."})),
                ("values", Always, list("The first of them.", json!({}))),
            ],
        );
        json!({"type": "object", "description": about, "additionalProperties": port})
    };
    let sides = vec![
        ("inports", Always, side("Its inputs by name.")),
        ("outports", Always, side("Its outputs by name.")),
    ];
    ("ports", Maybe, object("Values that flow in and out of a long-lived job.", sides))
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
                        ("started_at", Maybe, time("When it began.")),
                        ("worker", Maybe, text("Who was at it.")),
                    ],
                ),
            ),
        ),
        ("log", Maybe, reference("Log")),
        (
            "history",
            Maybe,
            list("What became of it, oldest first; only of a single job.", reference("Happening")),
        ),
        ports(),
        ("custom_state", Maybe, json!({"type": "object", "description": "What was set as its state."})),
        ("repeat", Maybe, text("Its repeat rule.")),
        ("next_runs", Maybe, list("When it runs next, if every run is on time.", json!({"type": "integer"}))),
        ("hidden", Maybe, flag("Payload, result and errors are not shown to viewers.")),
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

/// What a token's `queues` mean.
pub const TOKEN_QUEUES: &str =
    "Which jobs it is for: QUEUE or QUEUE/NAME, both may be GLOB patterns; all of the tenant if left out.";

fn token_fields() -> Vec<Field> {
    vec![
        ("prefix", Always, text("Its public part, by which it is named.")),
        ("tenant", Always, text("Whose jobs it is about.")),
        ("role", Always, words("What its holder may do.", &ROLES)),
        ("note", Always, text("Who has it, for people.")),
        ("source", Always, words("Where it is kept.", &["configuration", "store"])),
        ("queues", Maybe, list(TOKEN_QUEUES, json!({"type": "string"}))),
        ("created_at", Maybe, int("When it was made, in milliseconds since 1970.")),
        ("expires_at", Maybe, int("When it ends.")),
        ("last_used_at", Maybe, int("When it was last used, to the minute.")),
    ]
}
