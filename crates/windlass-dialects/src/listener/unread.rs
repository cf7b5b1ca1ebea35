//! Unread rests of request bodies: of calls that need no body, and of refused requests.
//!
//! A connection with an unread rest cannot carry another request: it would be closed after the response
//! without notice, and a client that reuses it would fail with its next request. So a small rest is read here
//! before the response is sent; with a large or late one the response announces that the connection closes.

use http_body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Reading more costs more than a new connection.
const REST_BYTES_MAX: u64 = 64 << 10;
/// Most clients send header and body one after the other, without waiting.
const REST_WAIT: Duration = Duration::from_secs(5);

/// Body that can still be read here after its reader is dropped.
pub(super) struct Lent<B>(Arc<Mutex<Reading<B>>>);

/// Access to the rest of the body.
pub(super) struct Rest<B>(Arc<Mutex<Reading<B>>>);

struct Reading<B> {
    body: B,
    /// The client sends the body only after the first read.
    is_held_back: bool,
}

/// Splits a body. `waits`: the client waits for `100 Continue` before it sends the body.
pub(super) fn lend<B>(body: B, waits: bool) -> (Lent<B>, Rest<B>) {
    let shared = Arc::new(Mutex::new(Reading { body, is_held_back: waits }));
    (Lent(Arc::clone(&shared)), Rest(shared))
}

fn locked<B>(shared: &Mutex<Reading<B>>) -> MutexGuard<'_, Reading<B>> {
    shared.lock()
}

impl<B: Body + Unpin> Body for Lent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut reading = locked(&self.0);
        reading.is_held_back = false;
        Pin::new(&mut reading.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        locked(&self.0).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        locked(&self.0).body.size_hint()
    }
}

impl<B: Body<Data: AsRef<[u8]>> + Unpin> Rest<B> {
    /// Reads the rest. Returns false if it is too large or too slow.
    pub(super) async fn read_out(self) -> bool {
        self.read_out_within(REST_WAIT).await
    }

    async fn read_out_within(self, wait: Duration) -> bool {
        {
            let reading = locked(&self.0);
            if reading.body.is_end_stream() {
                return true;
            }
            if reading.is_held_back || reading.body.size_hint().lower() > REST_BYTES_MAX {
                return false;
            }
        }
        tokio::time::timeout(wait, self.reach_end()).await.unwrap_or(false)
    }

    async fn reach_end(&self) -> bool {
        let mut room = REST_BYTES_MAX;
        loop {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut locked(&self.0).body).poll_frame(cx)).await;
            let frame = match frame {
                None => return true,
                Some(Ok(frame)) => frame,
                Some(Err(_)) => return false,
            };
            let bytes = frame.data_ref().map_or(0, |data| data.as_ref().len() as u64);
            match room.checked_sub(bytes) {
                Some(left) => room = left,
                None => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{BodyExt, StreamBody};

    fn pieces(sizes: &[usize]) -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin + use<> {
        let frames: Vec<_> =
            sizes.iter().map(|size| Ok(Frame::data(Bytes::from(vec![b'x'; *size])))).collect();
        StreamBody::new(futures_util::stream::iter(frames))
    }

    #[tokio::test]
    async fn a_small_rest_is_read_and_a_large_one_is_not() {
        const MAX: usize = REST_BYTES_MAX as usize;
        for (sizes, is_read) in [
            (&[] as &[usize], true),
            (&[2], true),
            (&[MAX - 1, 1], true),
            (&[MAX, 1], false),
            (&[MAX + 1], false),
        ] {
            let (lent, rest) = lend(pieces(sizes), false);
            drop(lent);
            assert_eq!(rest.read_out().await, is_read, "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn what_was_read_is_no_rest() {
        const MAX: usize = REST_BYTES_MAX as usize;
        let (mut lent, rest) = lend(pieces(&[MAX, MAX, 5]), false);
        for size in [MAX, MAX] {
            assert_eq!(lent.frame().await.unwrap().unwrap().into_data().unwrap().len(), size);
        }
        assert!(rest.read_out().await);
    }

    #[tokio::test]
    async fn a_client_that_waits_to_be_asked_is_not_asked() {
        let (lent, rest) = lend(pieces(&[2]), true);
        drop(lent);
        assert!(!rest.read_out().await);
        let (mut lent, rest) = lend(pieces(&[2, 2]), true);
        lent.frame().await.unwrap().unwrap();
        assert!(rest.read_out().await, "somebody has asked it before");
    }

    #[tokio::test]
    async fn a_rest_that_does_not_come_is_not_waited_for() {
        let never = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
        let (lent, rest) = lend(never, false);
        drop(lent);
        assert!(!rest.read_out_within(Duration::from_millis(1)).await);
    }
}
