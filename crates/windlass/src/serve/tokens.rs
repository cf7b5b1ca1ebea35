//! Tokens in the configuration: `ROLE TENANT PREFIX:SHA256 [expires=TIME] [queue=QUEUE …] [NOTE]`, or the
//! token itself in place of its hash (for a secret passed in the environment).

use crate::fault::{Fault, Outcome};
use std::sync::Arc;
use windlass_core::{Tenant, Timestamp};
use windlass_dialects::auth::keeper;
use windlass_dialects::{Role, TokenRecord, Tokens};
use windlass_engine::Engine;

const EXPIRES: &str = "expires=";
const QUEUE: &str = "queue=";

pub(crate) fn written(record: &TokenRecord) -> String {
    let TokenRecord { role, tenant, prefix, hash, note, .. } = record;
    let expires = match record.expires_at {
        Some(at) => format!(" {EXPIRES}{}", shown(at)),
        None => String::new(),
    };
    let queues: String = record.queues.iter().map(|queue| format!(" {QUEUE}{queue}")).collect();
    format!("{role} {} {prefix}:{hash}{expires}{queues} {note}", tenant.as_str()).trim_end().to_string()
}

fn shown(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.calendar_ms()).unwrap_or_default().to_string()
}

/// Parses an entry. Errors never contain parts of the secret.
fn parse(entry: &str) -> Result<TokenRecord, String> {
    let form = "expected ROLE TENANT PREFIX:SHA256, as printed by `windlass token`";
    let mut words = entry.splitn(4, ' ');
    let mut word = || words.next().filter(|word| !word.is_empty()).ok_or(form);
    let (role, tenant, secret) = (word()?, word()?, word()?);
    let Rest { expires_at, queues, note } = rest_of(words.next().unwrap_or_default())?;
    let role = Role::parse(role).ok_or("unknown role; use viewer, worker, operator or admin")?;
    let tenant = Tenant::new(tenant).map_err(|error| error.to_string())?;
    match secret.split_once(':') {
        Some((prefix, hash)) => {
            let (prefix, hash) = (prefix.to_string(), hash.to_string());
            Ok(TokenRecord { prefix, hash, tenant, role, created_at: None, expires_at, note, queues })
        }
        None => {
            let record =
                TokenRecord::of(secret, tenant, role, expires_at).map_err(|error| error.to_string())?;
            Ok(TokenRecord { note, queues, ..record })
        }
    }
}

/// Fields after the hash.
#[derive(Default)]
struct Rest {
    expires_at: Option<Timestamp>,
    queues: Vec<String>,
    note: String,
}

fn rest_of(mut text: &str) -> Result<Rest, String> {
    let mut rest = Rest::default();
    loop {
        let (word, after) = text.split_once(' ').unwrap_or((text, ""));
        if let Some(time) = word.strip_prefix(EXPIRES) {
            let time: jiff::Timestamp = time
                .parse()
                .map_err(|_| format!("invalid time after {EXPIRES}; use the form 2030-01-31T09:00:00Z"))?;
            rest.expires_at = Some(Timestamp::from_calendar_ms(time.as_millisecond()));
        } else if let Some(queue) = word.strip_prefix(QUEUE) {
            rest.queues.push(queue.to_owned());
        } else {
            rest.note = text.to_owned();
            return Ok(rest);
        }
        text = after;
    }
}

/// Reads the tokens of the configuration and of the store. Without any, the server is open.
pub(crate) async fn read(entries: &[String], engine: &Engine) -> Outcome<Arc<Tokens>> {
    let mut records = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let record =
            parse(entry).map_err(|why| Fault::usage(format!("auth.tokens, entry {}: {why}", index + 1)))?;
        records.push(record);
    }
    let tokens = match records.is_empty() {
        true => Tokens::open(),
        false => {
            Arc::new(Tokens::new(records).map_err(|error| Fault::usage(format!("auth.tokens: {error}")))?)
        }
    };
    keeper::load(engine, &tokens).await.map_err(|error| Fault::failed(error.to_string()))?;
    Ok(tokens)
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
        record.expires_at = Some(Timestamp::from_millis(1_900_000_000_000));
        assert_eq!(parse(&written(&record)).unwrap(), record);
        let written_by_hand = format!("operator shop {token} expires=2030-03-17T17:46:40Z the shop team");
        assert_eq!(parse(&written_by_hand).unwrap(), record);
        record.queues = vec!["mail".to_string(), "default/report-*".to_string()];
        assert_eq!(parse(&written(&record)).unwrap(), record);
        let rest = "queue=mail expires=2030-03-17T17:46:40Z queue=default/report-* the shop team";
        assert_eq!(parse(&format!("operator shop {token} {rest}")).unwrap(), record);
    }

    #[test]
    fn a_bad_entry_is_refused_without_repeating_it() {
        for entry in [
            "hush",
            "worker default",
            "boss default a:b",
            "worker default hush",
            "worker default a:b expires=hush",
        ] {
            let why = parse(entry).unwrap_err();
            assert!(!why.contains("hush"), "{why}");
        }
    }
}
