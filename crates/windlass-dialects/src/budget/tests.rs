use super::*;

const MIB: usize = 1 << 20;

async fn share(budget: &Budget, bytes: usize) -> Result<Share, Busy> {
    let mut share = Share::default();
    budget.cover(&mut share, bytes).await.map(|()| share)
}

fn impatient(bytes: usize) -> Budget {
    Budget::with_wait(bytes as u64, Duration::from_millis(5))
}

#[tokio::test]
async fn large_requests_wait_for_each_other_and_small_ones_for_nobody() {
    let budget = Budget::new(10 * MIB as u64);
    let first = share(&budget, 2 * MIB).await.unwrap();
    let small = share(&budget, SMALL_BYTES).await.unwrap();
    assert!(!small.is_large() && first.is_large());
    assert!(!budget.is_wanted());
    let waiting = budget.clone();
    let second = tokio::spawn(async move {
        let mut share = Share::default();
        waiting.cover(&mut share, 2 * MIB).await.map(|()| share)
    });
    while !budget.is_wanted() {
        tokio::task::yield_now().await;
    }
    drop(first);
    assert!(second.await.unwrap().unwrap().is_large());
    assert!(!budget.is_wanted());
}

#[tokio::test]
async fn a_request_that_costs_more_than_there_is_has_all_of_it() {
    let budget = impatient(MIB);
    let all = share(&budget, 64 * MIB).await.unwrap();
    assert!(budget.is_short());
    assert_eq!(share(&budget, MIB).await.unwrap_err(), Busy);
    drop(all);
    assert!(!budget.is_short());
    share(&budget, MIB).await.unwrap();
}

#[tokio::test]
async fn a_share_grows_with_its_request_and_is_given_back_whole() {
    let budget = impatient(12 * MIB);
    let mut growing = Share::default();
    for bytes in [10, SMALL_BYTES, SMALL_BYTES + 1, MIB, 3 * MIB, 2 * MIB] {
        budget.cover(&mut growing, bytes).await.unwrap();
    }
    assert_eq!(share(&budget, 2 * MIB).await.unwrap_err(), Busy);
    drop(growing);
    assert_eq!(budget.0.free.available_permits(), budget.0.units as usize);
    assert_eq!(budget.0.small.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn small_requests_in_great_number_are_counted_like_large_ones() {
    let budget = impatient(4 * MIB);
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(share(&budget, SMALL_BYTES).await.unwrap());
    }
    assert!(held.iter().all(|share| !share.is_large()));
    assert!(share(&budget, SMALL_BYTES).await.unwrap().is_large());
}
