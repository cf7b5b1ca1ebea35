//! The README is true: its transcripts are run, in order, against a real server.

use crate::server::Server;
use crate::transcripts;

#[test]
fn the_transcripts_of_the_first_page_happen_as_shown() {
    let server = Server::start(&[]);
    let steps = transcripts::run(&server, include_str!("../../../../README.md"));
    assert_eq!(steps, 7);
    assert_eq!((server.state_of(1), server.state_of(2)), ("completed".to_string(), "completed".to_string()));
}
