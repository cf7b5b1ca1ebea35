//! Blobs of another server: castaway, a successor of it, or Windlass.

use super::Clients;
use crate::client::{Client, escaped};
use windlass_runners::wasi::job_source::{FetchError, JobSourceError};
use windlass_store::blobs::{AddrForm, BlobAddr, Digests};

/// Blob paths of such servers; the first is used by castaway and Windlass.
const PATHS: [&str; 2] = ["/blob/", "/v1/storage/blobs/"];

pub(crate) struct Storage {
    clients: Clients,
}

impl Storage {
    pub(crate) fn new(client: Client) -> Storage {
        Storage { clients: Clients::new(client) }
    }

    /// Fetches a blob and verifies its hash.
    pub(crate) async fn fetch(&self, address: &str) -> Result<Vec<u8>, FetchError> {
        let wanted = BlobAddr::parse(address).ok_or_else(|| no_address(address))?;
        let server = self.clients.server();
        for path in PATHS {
            let path = format!("{path}{}", escaped(address));
            let (status, body) = self
                .clients
                .call("GET", path, None)
                .await
                .map_err(|error| FetchError::Trouble(error.to_string()))?;
            match status {
                200 if Digests::of(&body).fit(&wanted) => return Ok(body),
                200 => {
                    let why = format!("{server} returned data that does not match the hash {address}");
                    return Err(FetchError::Trouble(why));
                }
                400 | 404 | 405 | 410 => {}
                status => {
                    return Err(FetchError::Trouble(format!(
                        "{server} responded with status {status} for blob {address}"
                    )));
                }
            }
        }
        Err(FetchError::Missing(format!("blob {address} not found at {server}")))
    }

    /// Stores bytes and returns their address.
    pub(crate) async fn put(&self, bytes: Vec<u8>) -> Result<String, JobSourceError> {
        let digests = Digests::of(&bytes);
        let server = self.clients.server();
        let answer = self.clients.call("PUT", "/blob".to_owned(), Some(bytes)).await;
        let (status, body) = answer.map_err(|error| JobSourceError(error.to_string()))?;
        if !(200..300).contains(&status) {
            let said: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            return Err(JobSourceError(format!("{server} did not store the output: {status} {said}")));
        }
        let address = String::from_utf8_lossy(&body).trim().to_owned();
        match BlobAddr::parse(&address) {
            Some(kept) if digests.fit(&kept) => Ok(address),
            _ => Err(JobSourceError(format!(
                "{server} stored the output under {address:?} instead of its hash {}",
                digests.show(AddrForm::Sha1)
            ))),
        }
    }
}

pub(super) fn no_address(address: &str) -> FetchError {
    let shown: String = address.chars().filter(|c| !c.is_control()).take(100).collect();
    FetchError::Missing(format!("{shown:?} is not a blob address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const WILSON: &str = "68d5b57378f76645bf12506c88fb06a81ddb3965";

    /// Server that answers each request according to its first line.
    fn server(answer: fn(&str) -> (u16, &'static str)) -> Storage {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap();
                let text = String::from_utf8_lossy(&request[..length]).into_owned();
                let (status, body) = answer(text.lines().next().unwrap_or_default());
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        });
        Storage::new(Client::new(&url, None, None).unwrap())
    }

    #[tokio::test]
    async fn bytes_are_taken_only_if_they_are_those_of_the_address() {
        let honest = server(|line| {
            assert!(line.starts_with("GET /blob/"), "{line}");
            (200, "WILSON!")
        });
        let sha256 = "979f59d88a9ea9a2ce524f679861133cdfb7318570302f3147f129a12f2e9698";
        let sri = Digests::of(b"WILSON!").show(AddrForm::Sri);
        for address in [WILSON, &WILSON.to_uppercase(), sha256, &sri] {
            assert_eq!(honest.fetch(address).await.unwrap(), b"WILSON!", "{address}");
        }
        let liar = server(|_| (200, "SPALDING!"));
        let error = liar.fetch(WILSON).await.unwrap_err();
        assert!(
            matches!(&error, FetchError::Trouble(why) if why.contains("does not match the hash")),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn both_places_are_looked_at_and_a_blob_in_neither_is_missing() {
        let successor = server(|line| match line.starts_with("GET /v1/storage/blobs/68d5") {
            true => (200, "WILSON!"),
            false => (404, ""),
        });
        assert_eq!(successor.fetch(WILSON).await.unwrap(), b"WILSON!");
        let empty = server(|_| (404, "Blob not found"));
        assert!(matches!(empty.fetch(WILSON).await, Err(FetchError::Missing(_))));
        assert!(matches!(empty.fetch("../etc/passwd").await, Err(FetchError::Missing(_))));
        let broken = server(|_| (500, "oh"));
        assert!(matches!(broken.fetch(WILSON).await, Err(FetchError::Trouble(_))));
    }

    #[tokio::test]
    async fn an_output_is_kept_only_under_an_address_of_its_own() {
        let keeper = server(|_| (201, WILSON));
        assert_eq!(keeper.put(b"WILSON!".to_vec()).await.unwrap(), WILSON);
        assert!(
            keeper.put(b"SPALDING!".to_vec()).await.unwrap_err().to_string().contains("instead of its hash")
        );
        let full = server(|_| (507, "no room"));
        assert!(full.put(b"WILSON!".to_vec()).await.unwrap_err().to_string().contains("507 no room"));
    }
}
