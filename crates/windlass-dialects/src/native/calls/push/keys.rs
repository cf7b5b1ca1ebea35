//! Keys and relations of a new job: alias, unique key, idempotency key, tags, parent.

use super::PushJob;
use crate::native::commands::{tags, within};
use crate::native::wire::{self, Id, UniqueAsk};
use std::sync::Arc;
use windlass_core::family::{Family, FamilyRule};
use windlass_core::unique::{HeldUntil, IDEMPOTENCY_MARK, OnConflict, Unique};
use windlass_core::{Extras, KeepFor};

/// Shortest keep time of a completed job with an idempotency key: longer than any client repeats a push.
const IDEMPOTENT_KEEP_MS: i64 = 10 * 60_000;

pub(super) fn extras(ask: &PushJob<'_>) -> Result<Option<Box<Extras>>, String> {
    let has_key = ask.alias.is_some() || ask.unique.is_some() || ask.idempotency_key.is_some();
    if !has_key && ask.tags.is_empty() && ask.parent.is_none() {
        return Ok(None);
    }
    if let Some(alias) = &ask.alias {
        within("alias", alias, wire::KEY_BYTES_MAX)?;
    }
    let mut extras = Extras {
        alias: ask.alias.as_ref().map(|alias| Arc::from(&**alias)),
        tags: tags(&ask.tags)?,
        unique: ask.unique.as_ref().map(unique).transpose()?,
        family: ask.parent.map(|Id(parent)| Family {
            parent,
            child_name: None,
            // The parent continues even if a child fails, and can check the outcome of each.
            rule: FamilyRule::ParentWaits { failure_settles: true },
        }),
        ..Extras::default()
    };
    if let Some(key) = &ask.idempotency_key {
        add_idempotency_key(&mut extras, key)?;
    }
    Ok(Some(Box::new(extras)))
}

/// An idempotency key is a unique key that is held until the job is deleted. Beside another unique key it is an
/// alias.
fn add_idempotency_key(extras: &mut Extras, key: &str) -> Result<(), String> {
    within("idempotency_key", key, wire::LABEL_BYTES_MAX)?;
    let key: Arc<str> = format!("{IDEMPOTENCY_MARK}{key}").into();
    match &extras.unique {
        None => {
            let (on_conflict, held_until) = (OnConflict::Return, HeldUntil::Forgotten);
            extras.unique = Some(Unique { key, on_conflict, held_until });
        }
        Some(_) if extras.alias.is_some() => {
            return Err(
                "`idempotency_key` cannot be combined with both `unique` and `alias`; a push with an alias \
                        can be repeated anyway"
                    .into(),
            );
        }
        Some(_) => extras.alias = Some(key),
    }
    Ok(())
}

fn unique(UniqueAsk(ask): &UniqueAsk<'_>) -> Result<Unique, String> {
    within("unique", &ask.key, wire::KEY_BYTES_MAX)?;
    Ok(Unique { key: Arc::from(&*ask.key), on_conflict: ask.on_conflict, held_until: ask.held_until })
}

pub(super) fn kept_for_key(keep: KeepFor) -> KeepFor {
    match keep {
        KeepFor::Drop => KeepFor::Ms(IDEMPOTENT_KEEP_MS),
        KeepFor::Ms(ms) => KeepFor::Ms(ms.max(IDEMPOTENT_KEEP_MS)),
        KeepFor::Ever => KeepFor::Ever,
    }
}
