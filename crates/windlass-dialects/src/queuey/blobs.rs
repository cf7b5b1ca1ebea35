//! Upload and download of blobs in chunks, never a whole blob in memory.

use super::State;
use super::calls::Answer;
use super::errors::Problem;
use crate::answer::{TEXT, answer};
use crate::route::Call;
use ::http::{HeaderValue, Method, StatusCode, header};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use windlass_engine::EngineError;
use windlass_engine::blob::{AddrForm, BlobAddr, BlobDownload, PutBlob};

pub(super) async fn put(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let max = call.engine.blob_bytes_max();
    if call.body_bytes_announced() > max {
        return Err(EngineError::BlobTooLarge { max }.into());
    }
    let mut upload = call.engine.put_blob(&tenant).await?;
    while let Some(piece) = call.body_piece().await? {
        upload.write(&piece).await?;
    }
    let (status, info) = match upload.finish().await? {
        PutBlob::New(info) => (StatusCode::CREATED, info),
        PutBlob::Known(info) => (StatusCode::OK, info),
        PutBlob::Sha1Taken => {
            let message =
                "SHA-1 collision: different data with the same SHA-1 is stored; the upload was refused";
            return Err(Problem::new(StatusCode::CONFLICT, message));
        }
    };
    Ok(answer(status, TEXT, info.digests.show(call.server.state::<State>().settings.addresses)))
}

pub(super) async fn get(call: Call) -> Answer {
    if call.hides_payloads() {
        return Err(Problem::new(StatusCode::FORBIDDEN, "viewers may not see blobs on this server"));
    }
    let tenant = call.tenant()?;
    let text = address(&call).ok_or_else(|| bad_address("?"))?;
    let addr = BlobAddr::parse(&text).ok_or_else(|| bad_address(&text))?;
    let Some(blob) = call.engine.get_blob(&tenant, &addr).await? else {
        return Err(Problem::new(StatusCode::NOT_FOUND, format!("Blob {addr} not found")));
    };
    let (bytes, etag) = (blob.info.bytes, format!("\"{}\"", blob.info.digests.show(AddrForm::Sha256)));
    let body = match call.parts.method {
        Method::HEAD => Body::empty(),
        _ => Body::new(Outgoing { left: bytes, reading: Some(reading(blob)) }),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    Ok(response)
}

/// Path after `/blob/`, slashes included. `None`: not UTF-8.
fn address(call: &Call) -> Option<String> {
    let written = call.parts.uri.path().strip_prefix("/blob/")?;
    let text = percent_encoding::percent_decode_str(written).decode_utf8().ok()?;
    Some(text.into_owned())
}

fn bad_address(text: &str) -> Problem {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
    Problem::bad_request(format!(
        "{shown:?} is not a blob address; use 40 hex digits (SHA-1), 64 hex digits (SHA-256), or \
         sha256- followed by base64"
    ))
}

type Piece = (BlobDownload, Result<Option<Vec<u8>>, EngineError>);
type Reading = Pin<Box<dyn Future<Output = Piece> + Send>>;

fn reading(mut blob: BlobDownload) -> Reading {
    Box::pin(async move {
        let piece = blob.next().await;
        (blob, piece)
    })
}

/// Response body of a blob with its length announced. After an error the body is too short, so that the
/// client notices.
struct Outgoing {
    left: u64,
    /// `None` after the end.
    reading: Option<Reading>,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = EngineError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, EngineError>>> {
        let Some(next) = self.reading.as_mut() else { return Poll::Ready(None) };
        let (blob, piece) = ready!(next.as_mut().poll(cx));
        self.reading = None;
        match piece {
            Ok(None) => Poll::Ready(None),
            Ok(Some(piece)) => {
                self.left = self.left.saturating_sub(piece.len() as u64);
                self.reading = Some(reading(blob));
                Poll::Ready(Some(Ok(Frame::data(Bytes::from(piece)))))
            }
            Err(error) => {
                tracing::warn!(code = error.code(), "cannot send a complete blob: {error}");
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
