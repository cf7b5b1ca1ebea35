//! [`JobSource`] of the server's own engine: claims wait instead of polling, blobs are local, and
//! cancellations arrive at once.

use super::Storage;
use super::storage::no_address;
use async_trait::async_trait;
use windlass_core::Tenant;
use windlass_dialects::queuey::in_process_runner::{Ending, Held, InProcessRunner, StillHeld};
use windlass_engine::blob::{AddrForm, BlobAddr, PutBlob};
use windlass_engine::{Engine, EngineError};
use windlass_runners::wasi::job_source::{
    Assignment, FetchError, GiveBack, JobSource, JobSourceError, News, Tickled, Verdict,
};

/// Duration of one waiting claim; the next one follows at once.
const WAIT_MS: u64 = 60_000;

pub(crate) struct Local {
    pub runner: InProcessRunner,
    pub engine: Engine,
    pub tenant: Tenant,
    /// Notation of output addresses.
    pub addresses: AddrForm,
    /// External storage for blobs that are not stored here, and for outputs.
    pub storage: Option<Storage>,
}

impl Local {
    async fn fetch_here(&self, address: &BlobAddr) -> Result<Option<Vec<u8>>, EngineError> {
        let Some(mut blob) = self.engine.get_blob(&self.tenant, address).await? else { return Ok(None) };
        let mut bytes = Vec::with_capacity(usize::try_from(blob.info.bytes).unwrap_or(0));
        while let Some(piece) = blob.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(bytes))
    }

    async fn keep(&self, output: Vec<u8>) -> Result<String, JobSourceError> {
        if let Some(storage) = &self.storage {
            return storage.put(output).await;
        }
        match self.engine.put_blob_bytes(&self.tenant, &output).await.map_err(trouble)? {
            PutBlob::New(info) | PutBlob::Known(info) => Ok(info.digests.show(self.addresses)),
            PutBlob::Sha1Taken => Err(JobSourceError(
                "SHA-1 collision: different data with the same SHA-1 as the output is stored".to_owned(),
            )),
        }
    }
}

fn trouble(error: EngineError) -> JobSourceError {
    JobSourceError(error.to_string())
}

#[async_trait]
impl JobSource for Local {
    type Ticket = Held;

    async fn claim(&self, limit: usize) -> Result<Vec<Assignment<Held>>, JobSourceError> {
        let held = self.runner.claim(limit, WAIT_MS).await.map_err(trouble)?;
        let assignment = |held: Held| {
            let binary = held.binary_addr.clone().unwrap_or_default();
            Assignment {
                id: held.job_id.clone(),
                // Normalized, so that a module with several notations of its address is compiled once.
                binary: BlobAddr::parse(&binary).map_or(binary, |address| address.to_string()),
                input: held.input_addr.clone(),
                lease: Some(held.lease),
                ticket: held,
            }
        };
        Ok(held.into_iter().map(assignment).collect())
    }

    async fn fetch(&self, address: &str) -> Result<Vec<u8>, FetchError> {
        let wanted = BlobAddr::parse(address).ok_or_else(|| no_address(address))?;
        match self.fetch_here(&wanted).await {
            Ok(Some(bytes)) => return Ok(bytes),
            Ok(None) => {}
            Err(error) => return Err(FetchError::Trouble(error.to_string())),
        }
        match &self.storage {
            Some(storage) => storage.fetch(address).await,
            None => Err(FetchError::Missing(format!("blob {address} not found"))),
        }
    }

    async fn tickle(&self, held: &Held) -> Result<Tickled, JobSourceError> {
        Ok(match self.runner.tickle(held).await.map_err(trouble)? {
            StillHeld::Yes => Tickled::GoOn,
            StillHeld::AskedToStop => Tickled::Stop,
            StillHeld::No => Tickled::Lost,
        })
    }

    fn listen(&self, held: &Held) -> News<'_> {
        Box::pin(self.runner.news(held))
    }

    async fn settle(&self, held: &Held, verdict: Verdict) -> Result<(), JobSourceError> {
        let ending = match verdict {
            Verdict::Completed(stdout) => Ending::Completed { output_addr: self.keep(stdout).await? },
            Verdict::Failed { message, exit_code, stderr } => {
                Ending::Failed { output_addr: self.keep(stderr).await?, message, exit_code }
            }
        };
        self.runner.complete(held, ending).await.map(drop).map_err(trouble)
    }

    async fn give_back(&self, held: &Held, how: GiveBack) -> Result<(), JobSourceError> {
        self.runner.release(held, how.counts, how.delay).await.map_err(trouble)
    }
}
