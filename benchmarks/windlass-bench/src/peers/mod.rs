//! Other job servers, measured in the same run by the same workloads.

pub(super) mod beanstalk;
