//! Tokens as they are written in the configuration: `ROLE TENANT PREFIX:SHA256 [NOTE]`, or the token itself in place of
//! its hash (for a secret that comes by the environment).

use crate::fault::{Fault, Outcome};
use std::sync::Arc;
use windlass_core::Tenant;
use windlass_dialects::auth::SETTING_PREFIX;
use windlass_dialects::{Role, TokenRecord, Tokens};
use windlass_store::Store;

pub fn written(record: &TokenRecord) -> String {
    let TokenRecord { role, tenant, prefix, hash, note, .. } = record;
    format!("{role} {} {prefix}:{hash} {note}", tenant.as_str()).trim_end().to_string()
}

/// Errors say which entry, never what is in it.
fn parse(entry: &str) -> Result<TokenRecord, String> {
    let form = "write it as ROLE TENANT PREFIX:SHA256, as made by `windlass token`";
    let mut words = entry.splitn(4, ' ');
    let mut word = || words.next().filter(|word| !word.is_empty()).ok_or(form);
    let (role, tenant, secret) = (word()?, word()?, word()?);
    let note = words.next().unwrap_or_default().to_string();
    let role = Role::parse(role).ok_or("the role is none of viewer, worker, operator, admin")?;
    let tenant = Tenant::new(tenant).map_err(|error| error.to_string())?;
    match secret.split_once(':') {
        Some((prefix, hash)) => {
            let (prefix, hash) = (prefix.to_string(), hash.to_string());
            Ok(TokenRecord { prefix, hash, tenant, role, expires_at: None, note })
        }
        None => {
            let record = TokenRecord::of(secret, tenant, role, None).map_err(|error| error.to_string())?;
            Ok(TokenRecord { note, ..record })
        }
    }
}

/// Those of the configuration, and those kept in the store. None at all: the server is open.
pub async fn read(entries: &[String], store: &dyn Store) -> Outcome<Arc<Tokens>> {
    let mut records = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let record =
            parse(entry).map_err(|why| Fault::usage(format!("auth.tokens, entry {}: {why}", index + 1)))?;
        records.push(record);
    }
    let stored = store.settings(SETTING_PREFIX).await.map_err(|error| Fault::failed(error.to_string()))?;
    for (_, value) in stored {
        records.push(TokenRecord::from_setting(&value).map_err(|error| Fault::failed(error.to_string()))?);
    }
    if records.is_empty() {
        return Ok(Tokens::open());
    }
    Tokens::new(records).map(Arc::new).map_err(|error| Fault::usage(format!("auth.tokens: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let token = windlass_dialects::generate_token().unwrap();
        let mut record = TokenRecord::of(&token, Tenant::new("shop").unwrap(), Role::Operator, None).unwrap();
        record.note = "the shop team".to_string();
        assert_eq!(parse(&written(&record)).unwrap(), record);
        assert_eq!(parse(&format!("operator shop {token} the shop team")).unwrap(), record);
    }

    #[test]
    fn a_bad_entry_is_refused_without_repeating_it() {
        for entry in ["hush", "worker default", "boss default a:b", "worker default hush"] {
            let why = parse(entry).unwrap_err();
            assert!(!why.contains("hush"), "{why}");
        }
    }
}
