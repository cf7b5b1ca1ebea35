//! Blobs as files: damage, restarts, leftovers of interrupted uploads, full durability.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::{Tenant, Timestamp};
use windlass_store::blobs::{AddrForm, BlobAddr, Digests, PutBlob};
use windlass_store::sqlite::SqliteStore;
use windlass_store::{OpenOptions, Store, StoreError};

/// Opens with full durability, because these tests are about the disk.
fn open(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(&folder.join("windlass.db"), OpenOptions::default()).unwrap())
}

async fn put(store: &dyn Store, bytes: &[u8]) -> PutBlob {
    let mut writer = store.blobs().create(&Tenant::default()).await.unwrap();
    writer.write(bytes).await.unwrap();
    writer.finish(Timestamp::from_millis(1_800_000_000_000)).await.unwrap()
}

/// Bytes read, and the result of the read.
async fn get(store: &dyn Store, addr: &str) -> (Vec<u8>, Result<bool, StoreError>) {
    let addr = BlobAddr::parse(addr).unwrap();
    let mut bytes = Vec::new();
    let mut blob = match store.blobs().open(&Tenant::default(), &addr).await {
        Ok(Some(blob)) => blob,
        Ok(None) => return (bytes, Ok(false)),
        Err(error) => return (bytes, Err(error)),
    };
    loop {
        match blob.reader.next().await {
            Ok(Some(piece)) => bytes.extend_from_slice(&piece),
            Ok(None) => return (bytes, Ok(true)),
            Err(error) => return (bytes, Err(error)),
        }
    }
}

fn bytes_path(folder: &Path, bytes: &[u8]) -> PathBuf {
    let name = Digests::of(bytes).show(AddrForm::Sha256);
    folder.join("windlass.db.blobs/t-default/sha256").join(&name[..2]).join(name)
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut found = vec![];
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() { found.extend(files_in(&path)) } else { found.push(path) }
    }
    found
}

#[tokio::test]
async fn blobs_are_plain_files_that_survive_a_restart() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    assert!(matches!(put(&*store, b"WILSON!").await, PutBlob::New(_)));
    store.close().await.unwrap();
    drop(store);
    assert_eq!(std::fs::read(bytes_path(folder.path(), b"WILSON!")).unwrap(), b"WILSON!");
    let store = open(folder.path());
    let (bytes, ended) = get(&*store, "68d5b57378f76645bf12506c88fb06a81ddb3965").await;
    assert_eq!((bytes.as_slice(), ended.unwrap()), (&b"WILSON!"[..], true));
    assert!(matches!(put(&*store, b"WILSON!").await, PutBlob::Known(_)));
}

#[tokio::test]
async fn damage_is_an_error_and_putting_the_bytes_again_heals_it() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    // A blob read at once, and a blob read in pieces.
    for bytes in [b"small".to_vec(), vec![3; 3 << 20]] {
        let address = Digests::of(&bytes).show(AddrForm::Sha1);
        put(&*store, &bytes).await;
        let path = bytes_path(folder.path(), &bytes);
        type Harm = fn(&mut Vec<u8>);
        let harms: [Harm; 4] =
            [|b| b[0] ^= 1, |b| *b.last_mut().unwrap() ^= 128, |b| b.truncate(2), |b| b.push(0)];
        for (number, harm) in harms.into_iter().enumerate() {
            let mut damaged = bytes.clone();
            harm(&mut damaged);
            std::fs::write(&path, &damaged).unwrap();
            let (given, ended) = get(&*store, &address).await;
            assert!(matches!(ended, Err(StoreError::Corrupt(_))), "harm {number}: {ended:?}");
            assert_eq!(given.len(), 0, "harm {number}");
            assert!(matches!(put(&*store, &bytes).await, PutBlob::New(_)), "harm {number}");
            assert!(get(&*store, &address).await.1.unwrap(), "harm {number}");
        }
    }
}

#[tokio::test]
async fn a_blob_that_changes_while_it_is_read_never_ends_as_if_complete() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let bytes = vec![3; 3 << 20];
    put(&*store, &bytes).await;
    let addr = BlobAddr::parse(&Digests::of(&bytes).show(AddrForm::Sha1)).unwrap();
    let mut blob = store.blobs().open(&Tenant::default(), &addr).await.unwrap().unwrap();
    let mut damaged = bytes.clone();
    damaged[2 << 20] ^= 1;
    std::fs::write(bytes_path(folder.path(), &bytes), &damaged).unwrap();
    let mut given = 0;
    let error = loop {
        match blob.reader.next().await {
            Ok(Some(piece)) => given += piece.len(),
            Ok(None) => panic!("ended after {given} bytes as if all were well"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    assert!(given < bytes.len());
}

#[tokio::test]
async fn uploads_that_never_ended_leave_nothing() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let uploads = folder.path().join("windlass.db.blobs/uploads");
    let mut writer = store.blobs().create(&Tenant::default()).await.unwrap();
    writer.write(&vec![1; 2 << 20]).await.unwrap();
    assert_eq!(files_in(&uploads).len(), 1);
    drop(writer);
    assert_eq!(files_in(&uploads).len(), 0);
    put(&*store, b"whole").await;
    put(&*store, b"whole").await;
    store.close().await.unwrap();
    drop(store);
    // Leftover of a killed server.
    std::fs::write(uploads.join("17"), b"half of someth").unwrap();
    let store = open(folder.path());
    assert_eq!(files_in(&uploads).len(), 0);
    assert_eq!(store.blobs().list(None).await.unwrap().len(), 1);
    assert_eq!(files_in(&folder.path().join("windlass.db.blobs")).len(), 2, "a name and the bytes");
}

#[tokio::test]
async fn other_bytes_with_a_known_sha1_are_refused() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    put(&*store, b"first").await;
    // Simulates a SHA-1 collision of "second" with a stored blob: its name leads to other bytes.
    let (first, second) = (Digests::of(b"first"), Digests::of(b"second"));
    let name = second.show(AddrForm::Sha1);
    let path = folder.path().join("windlass.db.blobs/t-default/sha1").join(&name[..2]).join(&name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, first.show(AddrForm::Sha256)).unwrap();
    assert_eq!(put(&*store, b"second").await, PutBlob::Sha1Taken);
    let (given, ended) = get(&*store, &name).await;
    assert!(given.is_empty() && matches!(ended, Err(StoreError::Corrupt(_))), "{ended:?}");
}

#[tokio::test]
async fn a_name_without_bytes_is_a_blob_that_is_not_there() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    put(&*store, b"lost").await;
    std::fs::remove_file(bytes_path(folder.path(), b"lost")).unwrap();
    assert!(!get(&*store, &Digests::of(b"lost").show(AddrForm::Sha1)).await.1.unwrap());
    assert_eq!(store.blobs().list(None).await.unwrap(), []);
    assert!(matches!(put(&*store, b"lost").await, PutBlob::New(_)));
}

#[tokio::test]
async fn a_backup_takes_blobs_along() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    put(&*store, b"WILSON!").await;
    let copy = folder.path().join("copy.db");
    windlass_store::sqlite::backup_file(&folder.path().join("windlass.db"), &copy, &|_, _| {}).unwrap();
    let before = store.blobs().list(None).await.unwrap();
    let copied = SqliteStore::open(&copy, OpenOptions::default()).unwrap();
    assert_eq!(copied.blobs().list(None).await.unwrap(), before);
    let (bytes, ended) = get(&copied, "68d5b57378f76645bf12506c88fb06a81ddb3965").await;
    assert_eq!((bytes.as_slice(), ended.unwrap()), (&b"WILSON!"[..], true));
}
