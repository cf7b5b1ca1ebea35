//! Content-addressed blobs.

use super::fixtures::{Rig, at, tenant};
use crate::Store;
use crate::blobs::{AddrForm, BlobAddr, Digests, PutBlob};
use windlass_core::Tenant;

async fn put(store: &dyn Store, owner: &Tenant, bytes: &[u8], now: i64) -> PutBlob {
    let mut writer = store.blobs().create(owner).await.expect("a blob can be begun");
    // Uneven chunks, as they arrive from a socket.
    for piece in bytes.chunks(300_007) {
        writer.write(piece).await.expect("a piece is taken");
    }
    writer.finish(at(now)).await.expect("a blob is kept")
}

async fn get(store: &dyn Store, owner: &Tenant, addr: &str) -> Option<Vec<u8>> {
    let addr = BlobAddr::parse(addr).expect("checks use good addresses");
    let mut blob = store.blobs().open(owner, &addr).await.expect("a blob can be looked for")?;
    let mut bytes = Vec::new();
    while let Some(piece) = blob.reader.next().await.expect("a piece is read") {
        bytes.extend_from_slice(&piece);
    }
    assert_eq!(blob.info.bytes, bytes.len() as u64);
    assert_eq!(blob.info.digests, Digests::of(&bytes));
    Some(bytes)
}

pub(super) async fn what_is_put_is_read_by_any_spelling_of_its_address(rig: &Rig) {
    let owner = Tenant::default();
    for bytes in [&b"WILSON!"[..], b"", b"\0\xff"] {
        let PutBlob::New(info) = put(&*rig.store, &owner, bytes, 5).await else { panic!("it is new") };
        assert_eq!((info.bytes, info.stored_at), (bytes.len() as u64, at(5)));
        for form in [AddrForm::Sha1, AddrForm::Sha256, AddrForm::Sri] {
            let found = get(&*rig.store, &owner, &info.digests.show(form)).await;
            assert_eq!(found.as_deref(), Some(bytes), "{form:?}");
        }
    }
    let never = Digests::of(b"never put");
    for form in [AddrForm::Sha1, AddrForm::Sha256] {
        assert_eq!(get(&*rig.store, &owner, &never.show(form)).await, None);
    }
}

pub(super) async fn the_same_bytes_are_kept_once(rig: &Rig) {
    let owner = Tenant::default();
    assert!(matches!(put(&*rig.store, &owner, b"twice", 1).await, PutBlob::New(_)));
    assert!(matches!(put(&*rig.store, &owner, b"twice", 2).await, PutBlob::Known(_)));
    let listed = rig.store.blobs().list(None).await.expect("blobs are listed");
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].tenant, listed[0].info.bytes), (&owner, 5));
    assert_eq!((listed[0].info.digests, listed[0].info.stored_at), (Digests::of(b"twice"), at(2)));
}

pub(super) async fn a_large_blob_comes_back_in_pieces(rig: &Rig) {
    let owner = Tenant::default();
    let bytes: Vec<u8> =
        (0..5_000_011_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert!(matches!(put(&*rig.store, &owner, &bytes, 1).await, PutBlob::New(_)));
    assert!(matches!(put(&*rig.store, &owner, &bytes, 1).await, PutBlob::Known(_)));
    let address = Digests::of(&bytes).show(AddrForm::Sha1);
    assert!(get(&*rig.store, &owner, &address).await == Some(bytes), "other bytes came back");
    let addr = BlobAddr::parse(&address).expect("an address");
    let mut blob = rig.store.blobs().open(&owner, &addr).await.expect("it opens").expect("it is there");
    let first = blob.reader.next().await.expect("a piece").expect("a first one");
    assert!(first.len() <= 1 << 20, "a piece of {} bytes", first.len());
}

pub(super) async fn an_unfinished_blob_is_nowhere(rig: &Rig) {
    let owner = Tenant::default();
    let bytes = vec![7; 3 << 20];
    let mut writer = rig.store.blobs().create(&owner).await.expect("a blob can be begun");
    writer.write(&bytes).await.expect("a piece is taken");
    assert_eq!(get(&*rig.store, &owner, &Digests::of(&bytes).show(AddrForm::Sha1)).await, None);
    drop(writer);
    assert_eq!(get(&*rig.store, &owner, &Digests::of(&bytes).show(AddrForm::Sha256)).await, None);
    assert_eq!(rig.store.blobs().list(None).await.expect("blobs are listed"), []);
}

pub(super) async fn a_tenant_has_its_own_blobs(rig: &Rig) {
    // The last two would be parent folders in a path.
    let owners = [tenant("a"), tenant("b"), tenant("."), tenant("..")];
    for owner in &owners {
        let address = Digests::of(b"shared").show(AddrForm::Sha256);
        assert_eq!(get(&*rig.store, owner, &address).await, None, "{owner} sees another's blob");
        assert!(
            matches!(put(&*rig.store, owner, b"shared", 1).await, PutBlob::New(_)),
            "{owner} is told of another's"
        );
        let listed = rig.store.blobs().list(Some(owner)).await.expect("blobs are listed");
        assert_eq!(listed.len(), 1, "{owner}");
    }
    let digests = Digests::of(b"shared");
    assert!(rig.store.blobs().remove(&owners[0], &digests, at(9)).await.expect("it is removed"));
    assert_eq!(get(&*rig.store, &owners[0], &digests.show(AddrForm::Sha1)).await, None);
    assert!(get(&*rig.store, &owners[1], &digests.show(AddrForm::Sha1)).await.is_some());
}

pub(super) async fn a_blob_goes_when_removed_unless_it_was_put_again(rig: &Rig) {
    let owner = Tenant::default();
    let digests = Digests::of(b"old");
    put(&*rig.store, &owner, b"old", 10).await;
    put(&*rig.store, &owner, b"old", 30).await;
    assert!(!rig.store.blobs().remove(&owner, &digests, at(20)).await.expect("an answer"));
    assert!(get(&*rig.store, &owner, &digests.show(AddrForm::Sha1)).await.is_some());
    assert!(rig.store.blobs().remove(&owner, &digests, at(30)).await.expect("an answer"));
    assert_eq!(get(&*rig.store, &owner, &digests.show(AddrForm::Sha1)).await, None);
    assert!(!rig.store.blobs().remove(&owner, &digests, at(30)).await.expect("an answer"));
    assert!(matches!(put(&*rig.store, &owner, b"old", 40).await, PutBlob::New(_)));
}

pub(super) async fn rivals_putting_the_same_bytes_all_succeed(rig: &Rig) {
    let putting = (0..16).map(|number| {
        let store = rig.store.clone();
        tokio::spawn(async move { put(&*store, &Tenant::default(), b"rivals", number).await })
    });
    for put in putting.collect::<Vec<_>>() {
        let done = put.await.expect("the put ends");
        assert!(matches!(done, PutBlob::New(_) | PutBlob::Known(_)), "{done:?}");
    }
    assert_eq!(rig.store.blobs().list(None).await.expect("blobs are listed").len(), 1);
}
