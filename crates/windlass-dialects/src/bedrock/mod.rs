//! The Bedrock::Jobs dialect.

pub mod query;
