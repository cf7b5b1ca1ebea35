//! The libraries and examples of `clients/`, against the real server.

mod gate;
mod python_jq;
mod rust_jq;
