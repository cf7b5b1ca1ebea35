//! Fixed address in front of a server that restarts on changing ports.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Forwards connections to the current server.
pub struct Gate {
    pub address: SocketAddr,
    to: Arc<Mutex<Option<SocketAddr>>>,
    tasks: JoinSet<()>,
}

impl Gate {
    pub async fn open(to: SocketAddr) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let to = Arc::new(Mutex::new(Some(to)));
        let mut tasks = JoinSet::new();
        tasks.spawn(hand_on(listener, Arc::clone(&to)));
        Gate { address, to, tasks }
    }

    pub fn url(&self) -> String {
        assert!(!self.tasks.is_empty());
        format!("http://{}/jq", self.address)
    }

    /// Closes new connections at once from now on.
    pub fn close(&self) {
        *self.to.lock().unwrap() = None;
    }

    pub fn lead_to(&self, to: SocketAddr) {
        *self.to.lock().unwrap() = Some(to);
    }
}

async fn hand_on(listener: TcpListener, to: Arc<Mutex<Option<SocketAddr>>>) {
    let mut connections = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let to = *to.lock().unwrap();
        connections.spawn(async move {
            // The connection is closed if there is no server, or if it just died.
            let Some(to) = to else { return };
            let Ok(mut server) = TcpStream::connect(to).await else { return };
            let _ = copy_bidirectional(&mut client, &mut server).await;
        });
        while connections.try_join_next().is_some() {}
    }
}
