//! The README is true: its transcripts are run, in order, against a real server, with its program.

use crate::server::Server;
use crate::walkthrough::{Walked, walk};

#[test]
fn the_first_page_happens_as_shown() {
    let server = Server::start(&[]);
    let walked = walk(&server, include_str!("../../../../README.md"), &[]);
    assert_eq!(walked, Walked { files: 1, commands: 11 });
    assert_eq!((server.state_of(1), server.state_of(2)), ("completed".to_string(), "completed".to_string()));
}
