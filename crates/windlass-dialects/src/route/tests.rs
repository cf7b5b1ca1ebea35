use super::*;
use crate::budget::Budget;

async fn read(pieces: &[usize], max: usize) -> Result<Bytes, BadBody> {
    let pieces: Vec<_> =
        pieces.iter().map(|bytes| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; *bytes]))).collect();
    let mut arriving = Arriving::new(Budget::default());
    read_body(Body::from_stream(futures_util::stream::iter(pieces)), max, &mut arriving).await
}

#[tokio::test]
async fn a_body_may_come_in_pieces_of_any_size() {
    for pieces in [&[] as &[usize], &[5], &[5, 7], &[700_000, 1], &[2 << 20, 2 << 20, 3], &[1; 100]] {
        let body = read(pieces, 8 << 20).await.unwrap();
        assert_eq!(body.len(), pieces.iter().sum::<usize>(), "{pieces:?}");
    }
}

#[tokio::test]
async fn a_body_that_grows_too_large_is_refused() {
    assert!(matches!(read(&[60, 41], 100).await, Err(BadBody::TooLarge { max: 100 })));
    assert_eq!(read(&[60, 40], 100).await.unwrap().len(), 100);
}
