//! Fair sharing of worker slots between groups: the group that gets the next slot, the most slots one group
//! may hold, and the batch that is preempted because another group waits. A slot runs one batch at a time; a
//! batch can be stopped between two of its steps.

/// Most slots, out of `total`, that one group may hold. An eighth stays free so that a newly arriving group
/// need not wait for the end of a step. With fewer than eight slots none is reserved: a newly arriving group
/// waits for a preemption.
pub fn share_max(total: usize) -> usize {
    total - total / 8
}

/// Groups with the fewest slots, as indexes into `held`.
pub fn next_in_turn(held: &[usize]) -> Vec<usize> {
    let least = held.iter().min();
    (0..held.len()).filter(|group| Some(&held[*group]) == least).collect()
}

/// A slot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPlaces<G> {
    pub group: G,
    /// Running time of the batch.
    pub ran_ms: i64,
    /// Time since the batch was asked to stop after its current step.
    pub cut_for_ms: Option<i64>,
}

/// Preemptions for the groups that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Batches to stop, as indexes into `held`.
    pub now: Vec<usize>,
    /// Time of the next check, if nothing else happens before.
    pub look_again_in_ms: Option<i64>,
}

/// A batch runs at least this long before preemption; a shorter quantum would spend more time on switching
/// than on work.
pub const QUANTUM_MS: i64 = 500;
/// A batch that has not stopped this long after it was asked to is in a long step; another batch is stopped
/// in its place.
pub const CUT_PATIENCE_MS: i64 = 1_000;

/// Chooses the batches to stop. `waiting` lists each group that has work and no slot for it once. A group
/// with slots takes one from the group with the most only if that group still holds at least as many
/// afterwards. A group without any slot always takes one: there may be more groups than slots.
pub fn cuts<G: Copy + Eq>(held: &[HeldPlaces<G>], waiting: &[G]) -> Cuts {
    let mut cuts = Cuts::default();
    // A batch that was asked to stop counts as a free slot and for no group.
    let mut live: Vec<usize> = (0..held.len()).filter(|place| held[*place].cut_for_ms.is_none()).collect();
    let ending = held.iter().filter_map(|one| one.cut_for_ms).filter(|ms| *ms < CUT_PATIENCE_MS);
    let coming = ending.clone().count();
    let mut look_again: Vec<i64> = ending.map(|ms| CUT_PATIENCE_MS - ms).collect();
    let count = |live: &[usize], group: G| live.iter().filter(|place| held[**place].group == group).count();
    let mut waiting: Vec<(usize, G)> = waiting.iter().map(|group| (count(&live, *group), *group)).collect();
    // Stable sort: groups with the same number of slots keep their order.
    waiting.sort_by_key(|(own, _)| *own);
    for (own, group) in waiting.into_iter().skip(coming) {
        let most = |place: &&usize| {
            let of = held[**place].group;
            (count(&live, of), held[**place].ran_ms)
        };
        let others = live.iter().filter(|place| held[**place].group != group);
        let Some(place) = others.max_by_key(most).copied() else { continue };
        let theirs = count(&live, held[place].group);
        if own > 0 && theirs < own + 2 {
            continue;
        }
        match QUANTUM_MS - held[place].ran_ms {
            ..=0 => {
                cuts.now.push(place);
                live.retain(|other| *other != place);
                look_again.push(CUT_PATIENCE_MS);
            }
            left => look_again.push(left),
        }
    }
    cuts.look_again_in_ms = look_again.into_iter().min();
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_group_leaves_an_eighth_where_there_is_one() {
        let shares: Vec<usize> = [1, 2, 7, 8, 15, 16, 64].into_iter().map(share_max).collect();
        assert_eq!(shares, [1, 2, 7, 7, 14, 14, 56]);
    }

    #[test]
    fn whoever_holds_the_fewest_places_is_next() {
        let check = |held: &[usize], expected: &[usize]| assert_eq!(next_in_turn(held), expected, "{held:?}");
        check(&[], &[]);
        check(&[3], &[0]);
        check(&[3, 0, 1], &[1]);
        check(&[2, 5, 2], &[0, 2]);
    }

    /// `a600`: batch of group a that has run for 600 ms; `a600!100`: it was asked to stop 100 ms ago.
    fn held(text: &str) -> Vec<HeldPlaces<char>> {
        let one = |word: &str| {
            let (group, times) = word.split_at(1);
            let (ran, cut) = times.split_once('!').map_or((times, None), |(ran, cut)| (ran, Some(cut)));
            HeldPlaces {
                group: group.chars().next().unwrap(),
                ran_ms: ran.parse().unwrap(),
                cut_for_ms: cut.map(|cut| cut.parse().unwrap()),
            }
        };
        text.split_whitespace().map(one).collect()
    }

    #[test]
    fn the_table_of_cuts() {
        let check = |text: &str, waiting: &str, now: &[usize], look_again: Option<i64>| {
            let waiting: Vec<char> = waiting.chars().collect();
            let expected = Cuts { now: now.to_vec(), look_again_in_ms: look_again };
            assert_eq!(cuts(&held(text), &waiting), expected, "{text} | {waiting:?}");
        };
        // No group waits, or only the group that holds every slot.
        check("a900 a800", "", &[], None);
        check("a900 a800", "a", &[], None);
        check("", "b", &[], None);
        // The longest running batch of the group with the most slots.
        check("a900 a800", "b", &[0], Some(1_000));
        check("a900 a950 c2000", "b", &[1], Some(1_000));
        check("a900 c2000", "b", &[1], Some(1_000));
        // Not before the quantum is over.
        check("a300 a400", "b", &[], Some(100));
        // A group with a slot gets a second one only from a group that still holds as many afterwards.
        check("a900 a900 b900", "b", &[], None);
        check("a900 a800 a800 b900", "b", &[0], Some(1_000));
        check("a900 a900 b900 b900", "ab", &[], None);
        // With fewer slots than groups, the groups take turns.
        check("a900", "b", &[0], Some(1_000));
        check("b10", "a", &[], Some(490));
        // A slot for each waiting group.
        check("a900 a800 a700", "bc", &[0, 1], Some(1_000));
        // A batch that was asked to stop counts as a free slot until the patience runs out.
        check("a900!100 a800", "b", &[], Some(900));
        check("a900!100 a800 a700", "bc", &[1], Some(900));
        check("a9000!1000 a800", "b", &[1], Some(1_000));
        check("a9000!1000 a100", "b", &[], Some(400));
    }

    /// However long the steps are, a group without a slot gets one after a quantum, the patience and a step.
    #[test]
    fn a_flood_gives_way() {
        let mut ran = vec![HeldPlaces { group: 'a', ran_ms: 0, cut_for_ms: None }; 8];
        let mut now_ms = 0;
        loop {
            let cuts = cuts(&ran, &['b']);
            if let [place] = cuts.now[..] {
                assert!(now_ms <= QUANTUM_MS, "{now_ms}");
                ran[place].cut_for_ms = Some(0);
                break;
            }
            let step = cuts.look_again_in_ms.unwrap();
            now_ms += step;
            ran.iter_mut().for_each(|one| one.ran_ms += step);
        }
    }
}
