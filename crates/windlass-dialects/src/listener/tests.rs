use super::*;
use http_body::Body;
use std::sync::atomic::AtomicU8;

/// Records whether it was dropped or taken.
struct Job(Arc<AtomicU8>);

const GIVEN_BACK: u8 = 1;
const TAKEN: u8 = 2;

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.compare_exchange(0, GIVEN_BACK, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn sealed(fate: &Arc<AtomicU8>) -> TakenBody<Job, impl FnOnce(Job) + Unpin> {
    let take = |job: Job| job.0.store(TAKEN, Ordering::Relaxed);
    TakenBody::new(Bytes::from_static(b"answer"), Job(Arc::clone(fate)), take)
}

#[test]
fn what_nobody_takes_is_given_back() {
    let fate = Arc::default();
    let body = sealed(&fate);
    assert_eq!(body.size_hint().exact(), Some(6));
    assert!(!body.is_end_stream());
    drop(body);
    assert_eq!(fate.load(Ordering::Relaxed), GIVEN_BACK);
}

#[test]
fn what_is_taken_is_kept() {
    let fate = Arc::default();
    let mut body = sealed(&fate);
    let cx = &mut Context::from_waker(std::task::Waker::noop());
    let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(cx) else { panic!("no frame") };
    assert_eq!(frame.into_data().unwrap(), "answer");
    assert!(body.is_end_stream());
    assert!(matches!(Pin::new(&mut body).poll_frame(cx), Poll::Ready(None)));
    drop(body);
    assert_eq!(fate.load(Ordering::Relaxed), TAKEN);
}
