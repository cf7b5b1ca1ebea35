//! All SQL statements by name. The texts are in `queries/`; `{s}` in them stands for the schema.

use tokio_postgres::types::Type;

/// Index of a statement in [`Statements`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    place: usize,
}

struct Described {
    sql: &'static str,
    types: &'static [Type],
    /// Planned at every execution: a generic plan made while the table was small would stay bad when it
    /// grows. For statements that run about once a second and read many rows.
    planned_anew: bool,
}

macro_rules! is_planned_anew {
    () => {
        false
    };
    (planned_anew) => {
        true
    };
}

macro_rules! queries {
    ($($name:ident $file:literal [$($type:ident),*] $($planned_anew:ident)?;)*) => {
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "only counts them")]
        enum Place { $($name),* }
        $(pub(super) const $name: Query = Query { place: Place::$name as usize };)*
        const ALL: &[Described] = &[$(
            Described {
                sql: include_str!(concat!("queries/", $file, ".sql")),
                types: &[$(Type::$type),*],
                planned_anew: is_planned_anew!($($planned_anew)?),
            }
        ),*];
    };
}

queries! {
    XACT_ID "xact_id" [];
    XACT_STATUS "xact_status" [TEXT];
    NEW_IDS "new_ids" [INT8];
    INSERT_JOBS "insert_jobs" [INT8_ARRAY, INT4_ARRAY, INT2_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY,
                               BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY];
    LOCK_JOBS "lock_jobs" [INT8_ARRAY];
    LOCK_DONE "lock_done" [INT8_ARRAY];
    LOCK_KEYS "lock_keys" [INT8_ARRAY];
    CLAIMANTS "claimants" [BYTEA_ARRAY];
    RESPEC_JOBS "respec_jobs" [INT8_ARRAY, INT4_ARRAY, INT2_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY];
    RESPEC_DONE "respec_done" [INT8_ARRAY, INT4_ARRAY, INT2_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY];
    UPDATE_JOBS "update_jobs" [INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BOOL_ARRAY,
                               BYTEA_ARRAY];
    UPDATE_DONE "update_done" [INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BOOL_ARRAY,
                               BYTEA_ARRAY, INT8_ARRAY];
    ARCHIVE "archive" [INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BOOL_ARRAY, BYTEA_ARRAY,
                       INT8_ARRAY];
    REVIVE "revive" [INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BOOL_ARRAY, BYTEA_ARRAY];
    DELETE_JOBS "delete_jobs" [INT8_ARRAY];
    DELETE_DONE "delete_done" [INT8_ARRAY];
    TALLY "tally" [INT4_ARRAY, INT2_ARRAY, INT8_ARRAY];
    SUM_TALLIES "sum_tallies" [INT8];
    UNCHECKED "unchecked" [INT4_ARRAY, INT8];
    NOTIFY "notify" [TEXT, TEXT];
    LIMIT_USE "limit_use" [INT4_ARRAY];
    BUCKETS "buckets" [BYTEA_ARRAY];
    PUT_BUCKETS "put_buckets" [BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY];
    DROP_BUCKETS "drop_buckets" [BYTEA_ARRAY];
    REFUND_BUCKET "refund_bucket" [INT8, BYTEA, BYTEA, BYTEA, INT8];
    REFUND_FULL "refund_full" [INT8, BYTEA, BYTEA];
    DROP_FULL_BUCKETS "drop_full_buckets" [];
    CLOCK "clock" [];
    HELLO "hello" [TEXT];
    SET_CLOCK "set_clock" [BYTEA, BYTEA];
    GOODBYE "goodbye" [TEXT];
    CLAIM "claim" [INT4_ARRAY, INT4_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8, INT8, INT8, INT4, INT8, INT8, INT8_ARRAY];
    CLAIM_ONE_LANE "claim_one_lane" [INT4, INT8, INT8, INT8, INT8, INT8_ARRAY];
    HEADS "heads" [] planned_anew;
    HEADS_OF "heads_of" [INT4_ARRAY];
    LANES_SINCE "lanes_since" [TEXT, INT8, TEXT];
    LANES_BY_ID "lanes_by_id" [INT4_ARRAY];
    ENTER_LANES "enter_lanes" [TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT4_ARRAY, BYTEA_ARRAY];
    PAUSED "paused" [];
    LOAD "load" [INT8_ARRAY];
    OVERDUE "overdue" [INT8, INT8];
    NEXT_MOMENT "next_moment" [INT8];
    STARTS "starts" [INT8, INT8] planned_anew;
    CHILDREN "children" [INT8];
    FIND_ALIAS "find_alias" [BYTEA];
    FIND_ALIASES "find_aliases" [BYTEA_ARRAY] planned_anew;
    COUNTS "counts" [];
    PAYLOAD_BYTES "payload_bytes" [];
    COUNTS_BY_TIME "counts_by_time" [INT4_ARRAY, INT8];
    COUNTS_LATER "counts_later" [INT4_ARRAY, INT8];
    PUT_SETTING "put_setting" [TEXT, BYTEA];
    ADD_SETTING "add_setting" [TEXT, BYTEA];
    SWAP_SETTING "swap_setting" [TEXT, BYTEA, BYTEA];
    DELETE_SETTING "delete_setting" [TEXT];
    PUT_SETTINGS "put_settings" [TEXT_ARRAY, BYTEA_ARRAY];
    DELETE_SETTINGS "delete_settings" [TEXT_ARRAY];
    SETTINGS "settings" [TEXT];
    SETTING_KEYS "setting_keys" [TEXT];
    PAUSE "pause" [TEXT, TEXT];
    UNPAUSE "unpause" [TEXT, TEXT];
    BLOB_BEGIN "blob_begin" [TEXT];
    BLOB_PIECE "blob_piece" [INT8, INT4, BYTEA];
    BLOB_FINISH "blob_finish" [INT8, BYTEA, BYTEA, INT8, INT8, TEXT];
    BLOB_PUT_AGAIN "blob_put_again" [TEXT, BYTEA, BYTEA, INT8];
    BLOB_FORGET "blob_forget" [INT8];
    BLOB_FIND "blob_find" [TEXT, BYTEA];
    BLOB_READ "blob_read" [INT8, INT4];
    BLOB_LIST "blob_list" [TEXT];
    BLOB_REMOVE "blob_remove" [TEXT, BYTEA, BYTEA, INT8];
    AUDIT_APPEND "audit_append" [INT8_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY];
    AUDIT_TRIM "audit_trim" [INT8, INT8, INT8];
    AUDIT_LIST "audit_list" [INT8, TEXT, TEXT, TEXT, TEXT, INT8];
    NEXT_ID "next_id" [];
    IDS_GO_ON "ids_go_on" [INT8];
    RESTORE_JOBS "restore_jobs" [INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, INT2_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY,
                                 BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY];
    RESTORE_DONE "restore_done" [INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, INT2_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY,
                                 BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY,
                                 INT8_ARRAY];
    LIST_JOBS "list_jobs" [INT8, INT2_ARRAY, INT4_ARRAY, BYTEA, INT8, INT8];
    LIST_DONE "list_done" [INT8, INT2_ARRAY, INT4_ARRAY, BYTEA, INT8, INT8];
    LIST_ALL "list_all" [INT8, INT2_ARRAY, INT4_ARRAY, BYTEA, INT8, INT2_ARRAY, INT8];
    LIST_RETRIED "list_retried" [INT8, INT2_ARRAY, INT4_ARRAY, BYTEA, INT8, INT2_ARRAY, INT8] planned_anew;
}

/// Statement texts with the name of the schema.
pub(super) struct Statements {
    texts: Vec<String>,
}

impl Statements {
    pub(super) fn new(schema: &str) -> Statements {
        let quoted = quote(schema);
        Statements { texts: ALL.iter().map(|described| described.sql.replace("{s}", &quoted)).collect() }
    }

    pub(super) fn text(&self, query: Query) -> &str {
        &self.texts[query.place]
    }

    pub(super) fn types(&self, query: Query) -> &'static [Type] {
        ALL[query.place].types
    }

    pub(super) fn is_planned_anew(&self, query: Query) -> bool {
        ALL[query.place].planned_anew
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Query> {
        (0..ALL.len()).map(|place| Query { place })
    }
}

impl Query {
    pub(super) fn place(self) -> usize {
        self.place
    }
}

/// Quotes an SQL identifier.
pub(super) fn quote(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}
