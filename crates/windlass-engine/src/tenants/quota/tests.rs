use super::*;

#[test]
fn a_rate_lets_a_second_of_requests_through_at_once_and_then_as_many_as_it_says() {
    let rate = Rate::default();
    let taken = |now_us: i64| (0..1_000).filter(|_| rate.take(10, now_us)).count();
    assert_eq!(taken(5_000_000), 10);
    assert_eq!(taken(5_050_000), 0);
    assert_eq!(taken(5_100_000), 1);
    assert_eq!(taken(5_500_000), 4);
    assert_eq!(taken(60_000_000), 10);
}

#[test]
fn a_rate_of_one_lets_one_through() {
    let rate = Rate::default();
    assert!(rate.take(1, 0));
    assert!(!rate.take(1, 999_999));
    assert!(rate.take(1, 1_000_000));
}

#[test]
fn a_stored_quota_has_the_servers_default_for_bounds_it_does_not_name() {
    let default = Quota { connections: 800, ..Quota::default() };
    let quota = stored_quota(br#"{"jobs":5}"#, &default).unwrap();
    assert_eq!(quota, Quota { jobs: 5, ..default });
    assert!(stored_quota(br#"{"jobs":"5"}"#, &default).is_err());
    assert!(stored_quota(br#"{"unknown":5}"#, &default).is_err());
}

#[test]
fn shares_come_back() {
    let count = Arc::default();
    let (one, two) = (Share::take(&count, 2), Share::take(&count, 2));
    assert!(one.is_some() && two.is_some() && Share::take(&count, 2).is_none());
    drop(one);
    assert!(Share::take(&count, 2).is_some());
}

#[test]
fn a_server_with_more_places_gives_one_tenant_more_of_them() {
    let of = |waiters_max| Quota::of_server(&Options { waiters_max, ..Options::default() });
    assert_eq!(of(10_000), Quota::default());
    assert_eq!((of(50_000).waiting_claims, of(50_000).requests_in_flight), (40_000, 40_000));
    assert_eq!(of(10), Quota::default());
    let of =
        |connections_max| Quota::of_server(&Options { connections_max, ..Options::default() }).connections;
    assert_eq!([1, 4, 5, 1_000].map(of), [1, 4, 4, 800]);
}
