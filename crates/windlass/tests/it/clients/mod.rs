//! Libraries and examples of `clients/`, against the real server.

mod gate;
mod python_jq;
mod python_sidejob;
mod rust_jq;
