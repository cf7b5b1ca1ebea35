//! Group commit: requests that arrive during a commit share the next one.

/// Most requests and jobs in one group. A single request above the job limit still forms a group.
pub(crate) struct GroupLimits {
    pub(crate) requests: usize,
    pub(crate) jobs: usize,
}

impl GroupLimits {
    /// Fills `group` with `first` and the requests that `next` has ready, up to the limits.
    pub(crate) fn gather<R>(
        &self,
        group: &mut Vec<R>,
        first: R,
        jobs: impl Fn(&R) -> usize,
        mut next: impl FnMut() -> Option<R>,
    ) {
        let mut total = jobs(&first);
        group.push(first);
        while group.len() < self.requests && total < self.jobs {
            let Some(request) = next() else { return };
            total += jobs(&request);
            group.push(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(waiting: &[usize]) -> Vec<usize> {
        let limits = GroupLimits { requests: 3, jobs: 100 };
        let mut rest = waiting.iter().copied();
        let first = rest.next().unwrap();
        let mut group = Vec::new();
        limits.gather(&mut group, first, |jobs| *jobs, || rest.next());
        group
    }

    #[test]
    fn a_group_takes_the_requests_that_have_arrived_up_to_its_limits() {
        assert_eq!(gathered(&[1]), [1]);
        assert_eq!(gathered(&[1, 2]), [1, 2]);
        assert_eq!(gathered(&[1, 2, 3, 4]), [1, 2, 3]);
        assert_eq!(gathered(&[60, 60, 1]), [60, 60]);
        assert_eq!(gathered(&[500, 1]), [500]);
    }
}
