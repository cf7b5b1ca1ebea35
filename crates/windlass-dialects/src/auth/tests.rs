use super::tokens::public_part;
use super::*;
use windlass_core::Timestamp;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn table(expires_at: Option<Timestamp>) -> (Tokens, String) {
    let token = generate_token().unwrap();
    let record = TokenRecord::of(&token, Tenant::new("acme").unwrap(), Role::Worker, expires_at).unwrap();
    (Tokens::new([record]).unwrap(), token)
}

#[test]
fn a_token_has_its_shape_and_is_never_the_same() {
    let (one, two) = (generate_token().unwrap(), generate_token().unwrap());
    assert_ne!(one, two);
    assert_eq!(one.len(), 3 + 8 + 1 + 64);
    assert!(public_part(&one).is_some());
}

#[test]
fn only_the_right_token_lets_in() {
    let (tokens, token) = table(None);
    let caller = tokens.check(&token, at(0)).unwrap();
    assert_eq!((caller.tenant.as_str(), caller.role), ("acme", Role::Worker));
    for position in [0, 3, 5, 12, 30, token.len() - 1] {
        let mut wrong = token.clone().into_bytes();
        wrong[position] = if wrong[position] == b'0' { b'1' } else { b'0' };
        assert_eq!(tokens.check(&String::from_utf8(wrong).unwrap(), at(0)), None, "{position}");
    }
    assert_eq!(tokens.check("", at(0)), None);
    assert_eq!(tokens.check(&token[..token.len() - 1], at(0)), None);
    assert_eq!(tokens.check(&format!("{token}0"), at(0)), None);
}

#[test]
fn an_expired_or_revoked_token_is_refused_and_the_server_stays_closed() {
    let (tokens, token) = table(Some(at(100)));
    assert!(tokens.check(&token, at(99)).is_some());
    assert!(tokens.check(&token, at(100)).is_none());
    assert!(tokens.revoke(public_part(&token).unwrap()));
    assert!(tokens.check(&token, at(0)).is_none());
    assert!(!tokens.is_open(), "revoking the last token must not let everyone in");
    assert!(Tokens::open().is_open());
    assert!(!Tokens::new([]).unwrap().is_open());
}

#[test]
fn a_record_holds_no_secret_and_survives_the_store() {
    let (token, tenant) = (generate_token().unwrap(), Tenant::default());
    let record = TokenRecord::of(&token, tenant, Role::Admin, Some(at(5))).unwrap();
    let stored = serde_json::to_vec(&record).unwrap();
    let secret = token.rsplit('_').next().unwrap();
    assert!(!String::from_utf8(stored.clone()).unwrap().contains(secret));
    assert_eq!(serde_json::from_slice::<TokenRecord>(&stored).unwrap(), record);
    assert!(!format!("{:?}", Tokens::new([record]).unwrap()).contains(secret));
}

#[test]
fn bad_records_are_told_apart() {
    let token = generate_token().unwrap();
    let record = TokenRecord::of(&token, Tenant::default(), Role::Viewer, None).unwrap();
    let twice = Tokens::new([record.clone(), record.clone()]).unwrap_err();
    assert!(matches!(twice, BadToken::Twice { .. }));
    let broken = TokenRecord { hash: "zz".into(), ..record };
    assert!(matches!(Tokens::new([broken]).unwrap_err(), BadToken::Hash { .. }));
    assert_eq!(TokenRecord::of("wl_x", Tenant::default(), Role::Viewer, None).unwrap_err(), BadToken::Shape);
}

#[test]
fn only_an_admin_names_another_tenant() {
    let caller = |role| Caller { tenant: Tenant::new("a").unwrap(), ..Caller::unnamed(role) };
    for role in [Role::Viewer, Role::Worker, Role::Operator] {
        assert_eq!(caller(role).tenant_for(None).unwrap().as_str(), "a");
        assert_eq!(caller(role).tenant_for(Some("a")).unwrap().as_str(), "a");
        assert_eq!(caller(role).tenant_for(Some("b")), Err(BadTenant::NotYours));
        assert_eq!(caller(role).tenants_for(None).unwrap().unwrap().as_str(), "a");
    }
    assert_eq!(caller(Role::Admin).tenant_for(Some("b")).unwrap().as_str(), "b");
    assert_eq!(caller(Role::Admin).tenants_for(None), Ok(None));
    assert!(matches!(caller(Role::Admin).tenant_for(Some("b/c")), Err(BadTenant::Name(_))));
}
