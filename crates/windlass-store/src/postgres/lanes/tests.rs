use super::*;

fn ask(names: NameMatch) -> ClaimAsk {
    ClaimAsk {
        scope: windlass_core::Scope::default(),
        tenant: Tenant::default(),
        queues: Vec::new(),
        names,
        priority: None,
        limit: 1,
        worker: None,
        lease_ms: None,
        seed: 1,
        gate: None,
    }
}

#[test]
fn a_claim_looks_at_the_lanes_it_asks_for_and_at_each_once() {
    let mut lanes = Lanes::default();
    let names = ["mail", "mail.big", "mail.small", "main", "report", "mail"];
    for (id, name) in (1..).zip(names) {
        let name = Name::new(name).expect("a name");
        let (tenant, queue) = (Tenant::default(), Queue::default());
        lanes.learn(id, LaneKey { tenant, queue, name, priority: 0, limit_keys: Vec::new() });
    }
    let other = Tenant::new("other").expect("a tenant");
    let words = LaneKey { tenant: other, ..(*lanes.words(1).expect("lane 1")).clone() };
    lanes.learn(7, words);
    let one_of = |names: &[&str]| NameMatch::OneOf(names.iter().map(|name| (*name).into()).collect());
    for (asked, expected) in [
        (NameMatch::Any, vec![1, 2, 3, 4, 5, 6]),
        (NameMatch::glob("mail"), vec![1, 6]),
        (NameMatch::glob("mail*"), vec![1, 2, 3, 6]),
        (NameMatch::glob("mai[ln]"), vec![1, 4, 6]),
        (NameMatch::glob("*l"), vec![1, 3, 6]),
        (NameMatch::glob("zebra*"), vec![]),
        (NameMatch::glob("absent"), vec![]),
        (one_of(&["report", "mail", "report", "absent"]), vec![1, 5, 6]),
        (NameMatch::NoneOf(vec!["mail".into()]), vec![2, 3, 4, 5]),
    ] {
        let looks = lanes.looks(&ask(asked.clone()), Timestamp::EPOCH, LANES_PER_LOOK);
        let mut found: Vec<LaneId> = looks.lanes.iter().map(|look| look.lane).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{asked:?}");
    }
}

/// Expected result of `looks`, by a scan of every lane.
fn looked_for(lanes: &Lanes, ask: &ClaimAsk, now: Timestamp) -> Vec<LaneId> {
    let fits = |lane: &Lane| {
        lane.floor.0 <= now.as_millis() && is_asked_for(&lane.words, ask) && lanes.is_open(lane, now)
    };
    let mut found: Vec<Rank> = lanes
        .lanes
        .iter()
        .filter(|(_, lane)| fits(lane))
        .map(|(id, lane)| (lane.words.priority, lane.floor, *id))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(.., lane)| lane).collect()
}

/// With random lanes, jobs, limits and pauses, a claim queries exactly the lanes that a scan of every lane
/// finds, even with more kinds of claims than there are cached views.
#[test]
fn views_show_what_looking_at_every_lane_shows() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % sides
    };
    let queues: Vec<Queue> = ["q", "r"].iter().map(|name| Queue::new(name).expect("a queue")).collect();
    let held = |until: Option<Timestamp>| Held { key: "k".into(), until };
    let mut lanes = Lanes::default();
    let mut known: LaneId = 0;
    for round in 0..20_000_i64 {
        let now = Timestamp::from_millis(round / 10);
        let lane = 1 + random(u64::try_from(known.max(1)).unwrap_or(1)) as LaneId;
        let place = (round / 10 + random(20) as i64 - 10, round);
        match random(12) {
            0 if known < 200 => {
                known += 1;
                let name = Name::new(&format!("{}.{}", random(40), random(5))).expect("a name");
                let (tenant, queue) = (Tenant::default(), queues[random(2) as usize].clone());
                let priority = random(3) as i32;
                lanes.learn(known, LaneKey { tenant, queue, name, priority, limit_keys: Vec::new() });
            }
            0 | 1 => lanes.set_paused(&Tenant::default(), &queues[random(2) as usize], random(3) == 0),
            2 => lanes.park(lane, held((random(2) == 0).then(|| now.plus_ms(5)))),
            3 => lanes.unpark(|_| true),
            4 | 5 => {
                // Sometimes a job has entered since the query started.
                let missed = random(2);
                let entries = lanes.lanes.get(&lane).map_or(0, |lane| lane.entries.saturating_sub(missed));
                lanes.head_is(lane, entries, (random(2) == 0).then_some(place), now);
            }
            6..=8 => lanes.entered(lane, place, now, Some(1)),
            _ => {
                let looks = lanes.looks(&ask(NameMatch::Any), now, LANES_PER_LOOK);
                if let Some(look) = looks.lanes.first() {
                    lanes.passed(look, place);
                }
            }
        }
        let names = match random(8) {
            0 => NameMatch::Any,
            1 => NameMatch::NoneOf(vec!["7.1".into()]),
            2 => NameMatch::Exact("3.3".into()),
            3 | 4 => NameMatch::glob(&format!("*.{}", random(5))),
            _ => NameMatch::glob(&format!("{}*", random(60))),
        };
        let mut asked = ask(names);
        if random(4) == 0 {
            asked.queues = vec![queues[random(2) as usize].clone()];
        }
        asked.priority = (random(5) == 0).then(|| random(3) as i32);
        let expected = looked_for(&lanes, &asked, now);
        let looks = lanes.looks(&asked, now, LANES_PER_LOOK);
        let found: Vec<LaneId> = looks.lanes.iter().map(|look| look.lane).collect();
        assert_eq!(found, expected[..found.len()], "round {round}, {:?}", asked.names);
        assert!(
            found.len() == expected.len() || found.len() >= LANES_PER_LOOK,
            "{} of {}",
            found.len(),
            expected.len()
        );
        assert_eq!(looks.bound.is_some(), found.len() < expected.len());
        assert_eq!(lanes.may_have(&asked, now), !expected.is_empty());
        let mut all = lanes.asked_for(&asked);
        all.sort_unstable();
        let mut fitting = lanes.fitting(|words| is_asked_for(words, &asked));
        fitting.sort_unstable();
        assert_eq!(all, fitting);
    }
    assert_eq!(known, 200);
}
