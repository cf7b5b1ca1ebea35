//! Conformance suite: the checks that every store has to pass.
//!
//! [`exercise`] asks for a new, empty store per check and panics with an explanation if the check fails.
//! Stores on disk also run [`restart_equivalence`]. The checks are plain functions, so that the test of a
//! store is one call; everything random follows from the seed, which every failure names.
//!
//! | file | checks |
//! |---|---|
//! | [`insert`] | ids, reading back, unique keys, aliases |
//! | [`claim`] | order, time, filters, pauses, leases; [`gate`]: limits |
//! | [`commit`] | version guards, atomic steps, order of steps; [`roundtrip`]: every field is read back |
//! | [`taken`] | steps that check whether a key is taken |
//! | [`due`] | deadlines, the next due time, notifications of the listener |
//! | [`query`] | load, pages, filters, counts, settings, children |
//! | [`restore`] | insertion of jobs unchanged, and copies of whole stores |
//! | [`audit`] | audit log: order, pages, filters, bounds |
//! | [`blobs`] | content-addressed blobs, visible to their tenant only |
//! | [`random`] | the same answers as [`crate::memory`] to thousands of random calls, across restarts |
//! | [`model`] | invariants over random histories, checked from the outside |

mod audit;
mod blobs;
mod chance;
mod claim;
mod commit;
mod due;
mod fixtures;
mod gate;
mod insert;
pub mod model;
mod query;
pub mod random;
mod restore;
mod roundtrip;
mod script;
mod taken;

use crate::Store;
use fixtures::Rig;
use std::sync::Arc;

pub use random::{copy_equivalence, restart_equivalence};

/// Random operations per comparison: enough for each pair of kinds to meet many times, few enough for every
/// test run.
const OPERATIONS: usize = 3_000;

/// Runs each check on its own store, which is closed afterwards.
macro_rules! run_checks {
    ($new_store:expr, [$($check:path),* $(,)?]) => {
        $(
            let rig = Rig::new($new_store().await);
            Box::pin($check(&rig)).await;
            rig.close(stringify!($check)).await;
        )*
    };
}

/// Runs every check. `new_store` returns a new, empty store each time.
pub async fn exercise<F, Fut>(new_store: F, seed: u64)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Arc<dyn Store>>,
{
    Box::pin(exercise_writes(&new_store)).await;
    Box::pin(exercise_reads(&new_store)).await;
    let store = new_store().await;
    Box::pin(random::compare(store, seed, OPERATIONS)).await;
    let store = new_store().await;
    Box::pin(model::check_invariants(store, seed, OPERATIONS)).await;
}

/// Requirements on a store as source and target of a copy.
pub async fn exercise_copies<F, Fut>(new_store: F, seed: u64)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Arc<dyn Store>>,
{
    run_checks!(
        new_store,
        [
            restore::restored_jobs_are_as_they_were,
            restore::restored_jobs_take_part_in_everything,
            restore::ids_go_on_after_what_was_restored,
            restore::a_restore_in_the_way_of_a_job_changes_nothing,
            restore::a_restored_job_takes_no_key_from_another_unless_told_to,
            restore::a_target_in_use_is_refused,
            restore::an_interrupted_copy_says_so_and_is_begun_again,
            restore::a_source_that_changes_meanwhile_is_noticed,
        ]
    );
    Box::pin(copy_equivalence(&new_store, seed)).await;
}

async fn exercise_writes<F, Fut>(new_store: &F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Arc<dyn Store>>,
{
    run_checks!(
        new_store,
        [
            insert::ids_are_consecutive_and_never_reused,
            insert::a_new_job_reads_back_as_it_was_made,
            insert::a_held_unique_key_makes_no_second_job,
            insert::a_key_is_held_exactly_as_long_as_its_rule_says,
            insert::a_key_is_free_once_its_job_is_gone,
            insert::of_several_with_a_claim_the_oldest_job_holds_the_key,
            insert::a_key_and_an_alias_follow_an_update,
            insert::an_alias_is_taken_as_long_as_its_job_exists,
            insert::the_holder_of_the_key_is_named_before_that_of_the_alias,
            insert::odd_keys_are_told_apart,
            insert::a_large_batch_is_one_step,
            commit::a_stale_step_writes_nothing,
            commit::a_step_of_several_changes_is_atomic,
            commit::settings_of_a_step_come_with_it_or_not_at_all,
            commit::steps_stand_for_themselves,
            commit::steps_see_what_earlier_ones_did,
            commit::inserts_see_the_changes_of_their_step,
            commit::changes_of_one_step_may_follow_each_other,
            commit::a_job_that_is_gone_stays_gone,
            commit::empty_requests_are_answered,
            commit::of_rival_commits_one_wins,
            taken::inserts_that_must_be_new_are_all_made_or_none,
            taken::inserts_that_must_be_new_see_the_changes_of_their_step,
            taken::a_change_that_asks_gets_no_key_that_another_has,
            taken::a_change_that_asks_gets_no_alias_that_another_has,
            taken::changes_of_one_step_that_ask_see_each_other,
            taken::a_change_that_yields_happens_although_its_key_is_taken,
            roundtrip::payloads_come_back_byte_for_byte,
            roundtrip::every_state_comes_back,
            roundtrip::every_policy_comes_back,
            roundtrip::all_extras_come_back,
            roundtrip::bodies_come_back,
            roundtrip::odd_names_and_extreme_numbers_come_back,
            gate::due_jobs_are_counted_by_the_limits_they_are_under,
        ]
    );
}

async fn exercise_reads<F, Fut>(new_store: &F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Arc<dyn Store>>,
{
    run_checks!(
        new_store,
        [
            claim::jobs_come_by_priority_then_time_then_id,
            claim::no_job_is_given_out_before_its_time,
            claim::a_call_that_read_its_clock_earlier_is_answered,
            claim::names_are_matched_as_asked,
            claim::queues_priority_and_limit_are_as_asked,
            claim::a_claim_gets_no_job_outside_its_scope,
            claim::tenants_do_not_see_each_other,
            claim::a_paused_queue_gives_out_nothing,
            claim::a_claim_is_committed,
            claim::waiting_and_settled_jobs_are_not_given_out,
            claim::a_job_being_terminated_gets_its_last_run,
            claim::a_job_is_found_where_it_was_moved_to,
            claim::rival_claims_share_no_job,
            gate::held_jobs_are_passed_over,
            gate::admissions_equal_claims,
            gate::reopened_jobs_are_given_out_and_told_of,
            gate::jobs_held_until_a_time_are_tried_again_then,
            due::an_ended_lease_is_due_then_and_not_before,
            due::a_suspended_job_is_due_at_its_time,
            due::a_lease_made_longer_is_due_later,
            due::a_settled_job_is_due_when_its_keep_time_is_over,
            due::next_is_the_earliest_moment_planned,
            due::what_the_limit_cuts_off_comes_with_the_next_call,
            due::the_listener_hears_of_jobs_that_can_be_claimed_at_once,
            due::the_listener_hears_once_of_all_jobs_of_a_commit,
            due::the_listener_hears_of_delayed_jobs_at_their_time,
            due::the_listener_hears_when_a_queue_goes_on,
            query::load_answers_in_the_order_asked,
            query::pages_contain_every_job_once,
            query::a_page_ends_by_the_bytes_of_its_jobs,
            query::pages_hold_still_while_jobs_come_and_go,
            query::a_job_is_found_by_its_name_in_every_state,
            query::filters_pick_what_fits,
            query::counts_equal_rows,
            query::waiting_names_are_those_with_a_job_to_give_out,
            query::settings_are_kept_by_key,
            query::children_are_found_by_their_parent,
            query::a_closed_store_says_so,
            audit::entries_come_back_newest_first_and_in_pages,
            audit::entries_are_found_by_what_they_say,
            audit::the_log_is_bounded_by_number_and_age,
            blobs::what_is_put_is_read_by_any_spelling_of_its_address,
            blobs::the_same_bytes_are_kept_once,
            blobs::a_large_blob_comes_back_in_pieces,
            blobs::an_unfinished_blob_is_nowhere,
            blobs::a_tenant_has_its_own_blobs,
            blobs::a_blob_goes_when_removed_unless_it_was_put_again,
            blobs::rivals_putting_the_same_bytes_all_succeed,
        ]
    );
}
