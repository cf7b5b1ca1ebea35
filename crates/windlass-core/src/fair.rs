//! Fair use of places that several groups want at once: whose turn it is, how many of them one group may hold, and whose work is
//! cut short because another group waits. A place is whatever runs one piece of work at a time; a piece of work (a batch) can be
//! cut between two of its steps.

/// How many of `total` places one group may hold. The rest is there for whoever comes next, so that he does not have to wait for
/// the end of a step. Where there are few places every one is wanted: a group that comes then waits for a cut.
pub fn share_max(total: usize) -> usize {
    total - total / 8
}

/// The groups whose turn it is, by their places in `held`: those that hold the fewest.
pub fn next_in_turn(held: &[usize]) -> Vec<usize> {
    let least = held.iter().min();
    (0..held.len()).filter(|group| Some(&held[*group]) == least).collect()
}

/// A place in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<G> {
    pub group: G,
    /// For how long its work has run.
    pub ran_ms: i64,
    /// For how long it has been asked to end after its present step.
    pub cut_for_ms: Option<i64>,
}

/// What to do for those who wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Work to be cut, by its place in the list.
    pub now: Vec<usize>,
    /// When to look again, if nothing happens before.
    pub look_again_in_ms: Option<i64>,
}

/// Work is not cut before it has run this long: otherwise places would change hands more than they work.
pub const QUANTUM_MS: i64 = 500;
/// Work that was cut and has not ended after this long is in a long step. Other work is cut in its place.
pub const CUT_PATIENCE_MS: i64 = 1_000;

/// Which work to cut. `waiting` are the groups that have work and no place for it, each once. A group gets a place from the
/// one that holds the most if that leaves it no worse off, and if it holds none in any case: there may be more groups than places.
pub fn cuts<G: Copy + Eq>(held: &[Held<G>], waiting: &[G]) -> Cuts {
    let mut cuts = Cuts::default();
    // What has been asked to end soon is as good as free, and counts for nobody.
    let mut live: Vec<usize> = (0..held.len()).filter(|place| held[*place].cut_for_ms.is_none()).collect();
    let ending = held.iter().filter_map(|one| one.cut_for_ms).filter(|ms| *ms < CUT_PATIENCE_MS);
    let coming = ending.clone().count();
    let mut look_again: Vec<i64> = ending.map(|ms| CUT_PATIENCE_MS - ms).collect();
    let count = |live: &[usize], group: G| live.iter().filter(|place| held[**place].group == group).count();
    let mut waiting: Vec<(usize, G)> = waiting.iter().map(|group| (count(&live, *group), *group)).collect();
    // Stable: those who hold the same stay in their order.
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

    /// `a600`: work of group a that has run for 600 ms; `a600!100`: it was cut 100 ms ago.
    fn held(text: &str) -> Vec<Held<char>> {
        let one = |word: &str| {
            let (group, times) = word.split_at(1);
            let (ran, cut) = times.split_once('!').map_or((times, None), |(ran, cut)| (ran, Some(cut)));
            Held {
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
        // Nobody waits, or nobody but those who hold everything.
        check("a900 a800", "", &[], None);
        check("a900 a800", "a", &[], None);
        check("", "b", &[], None);
        // The longest running work of the group with the most places.
        check("a900 a800", "b", &[0], Some(1_000));
        check("a900 a950 c2000", "b", &[1], Some(1_000));
        check("a900 c2000", "b", &[1], Some(1_000));
        // Not before it has had its time.
        check("a300 a400", "b", &[], Some(100));
        // Whoever has a place gets a second only from one who keeps as many.
        check("a900 a900 b900", "b", &[], None);
        check("a900 a800 a800 b900", "b", &[0], Some(1_000));
        check("a900 a900 b900 b900", "ab", &[], None);
        // With fewer places than groups they take turns.
        check("a900", "b", &[0], Some(1_000));
        check("b10", "a", &[], Some(490));
        // One place for each who waits.
        check("a900 a800 a700", "bc", &[0, 1], Some(1_000));
        // What was cut is on its way, and has to be waited for only so long.
        check("a900!100 a800", "b", &[], Some(900));
        check("a900!100 a800 a700", "bc", &[1], Some(900));
        check("a9000!1000 a800", "b", &[1], Some(1_000));
        check("a9000!1000 a100", "b", &[], Some(400));
    }

    /// However long steps take, whoever holds nothing has a place after a quantum, a patience and a step.
    #[test]
    fn a_flood_gives_way() {
        let mut ran = vec![Held { group: 'a', ran_ms: 0, cut_for_ms: None }; 8];
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
