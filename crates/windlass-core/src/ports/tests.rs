use super::*;

const A: At<'_> = (Side::In, "a");
const B: At<'_> = (Side::In, "b");
const OUT: At<'_> = (Side::Out, "a");

fn json(text: &str) -> RawJson {
    RawJson::new(text).unwrap()
}

fn all(texts: &[&str]) -> Vec<RawJson> {
    texts.iter().map(|text| json(text)).collect()
}

/// Ports by name, with `name=default` where there is one.
fn declared(ports: &[&str]) -> Declared {
    let port = |text: &&str| match text.split_once('=') {
        Some((name, default)) => (name.to_string(), Some(json(default))),
        None => (text.to_string(), None),
    };
    ports.iter().map(port).collect()
}

fn job(inports: &[&str], outports: &[&str]) -> Ports {
    Ports::new(declared(inports), declared(outports)).unwrap()
}

fn names(ports: &Ports, side: Side) -> Vec<&str> {
    ports.iter(side).map(|(name, _)| name).collect()
}

#[track_caller]
fn check_items(ports: &Ports, at: At<'_>, expected: &[&str]) {
    let items: Vec<_> = ports.port(at).unwrap().items().map(RawJson::as_str).collect();
    assert_eq!(items, expected);
}

#[test]
fn a_port_name_is_letters_digits_and_underscores_all_through() {
    for good in ["a", "Port_1", "0", "_", &"x".repeat(255)] {
        assert_eq!(check_port_name(good), Ok(()));
    }
    for bad in ["", "PORT.1", "é", "*", "ab\n!!", "ab\n", " a", "a b"] {
        let error = PortError::BadName { name: bad.into() };
        assert_eq!(check_port_name(bad), Err(error.clone()));
        assert_eq!(job(&["*"], &[]).read((Side::In, bad)), Err(error.clone()));
        if bad != "*" {
            assert_eq!(Ports::new(declared(&[bad]), declared(&[])), Err(error.clone()));
            assert_eq!(job(&[], &[]).set_ports(Side::Out, declared(&[bad])), Err(error));
        }
    }
    assert!(check_port_name(&"x".repeat(256)).is_err());
}

#[test]
fn case_and_side_tell_ports_apart() {
    let mut ports = job(&["Port1", "port1"], &["port1"]);
    ports.write((Side::In, "Port1"), all(&["1"])).unwrap();
    assert_eq!(ports.size((Side::In, "port1")), Ok(0));
    assert_eq!(ports.size((Side::Out, "port1")), Ok(0));
    assert_eq!(ports.size((Side::In, "Port1")), Ok(1));
}

#[test]
fn an_undeclared_port_is_missing() {
    let mut ports = job(&["a"], &[]);
    let missing = Err(PortError::Missing { side: Side::Out, name: "a".into() });
    assert_eq!(ports.read(OUT), missing);
    assert_eq!(ports.write(B, all(&["1"])).unwrap_err().to_string(), "inport b not found");
    assert!(ports.port(B).is_err() && ports.size(B).is_err() && ports.entries(B).is_err());
    assert!(
        ports.default_value(B).is_err() && ports.set_default(B, None).is_err() && ports.has_data(B).is_err()
    );
    assert!(ports.for_inputs(&["a", "b"], None).is_err());
}

#[test]
fn with_a_star_any_name_becomes_a_port_at_its_first_use() {
    let mut ports = job(&["*=5"], &[]);
    assert_eq!(names(&ports, Side::In), [""; 0]);
    assert_eq!(ports.port((Side::In, "zz")).unwrap().default_value(), Some(&json("5")));
    assert_eq!(names(&ports, Side::In), [""; 0], "a look makes nothing");
    assert_eq!(ports.read((Side::In, "zz")), Ok(Some(json("5"))));
    assert_eq!(names(&ports, Side::In), ["zz"]);
    ports.write((Side::In, "yy"), all(&["1"])).unwrap();
    assert_eq!(names(&ports, Side::In), ["yy", "zz"]);
    assert_eq!(ports.size((Side::In, "xx")), Ok(0), "values of one port are not those of the next");
    assert!(ports.read((Side::Out, "zz")).is_err());
}

#[test]
fn setting_ports_drops_missing_ones_keeps_values_and_replaces_defaults() {
    let mut ports = job(&["a=1", "b=2", "*"], &["a"]);
    for at in [A, B, (Side::In, "dynamic"), OUT] {
        ports.write(at, all(&["7"])).unwrap();
    }
    ports.set_ports(Side::In, declared(&["a", "c=3", "*=9"])).unwrap();
    assert_eq!(names(&ports, Side::In), ["a", "c"]);
    check_items(&ports, A, &["7"]);
    assert_eq!(ports.default_value(A), Ok(None));
    assert_eq!(ports.read((Side::In, "c")), Ok(Some(json("3"))));
    assert_eq!(ports.read((Side::In, "dynamic")), Ok(Some(json("9"))), "made anew, without its values");
    check_items(&ports, OUT, &["7"]);
}

#[test]
fn values_come_out_as_and_in_the_order_they_went_in() {
    let values = [
        r#""abc""#,
        "123",
        "true",
        "false",
        "null",
        r#"{"z":1,"a":{"y":2,"b":3}}"#,
        r#"[1,{"foo":true}]"#,
        "123456789012345678901234567890",
        "1.10",
        r#""ünï \u00e9""#,
    ];
    let mut ports = job(&["a"], &[]);
    ports.write(A, all(&values)).unwrap();
    for value in values {
        assert_eq!(ports.read(A).unwrap().unwrap().as_str(), value);
    }
    assert_eq!(ports.read(A), Ok(None));
}

#[test]
fn a_default_is_read_when_nothing_waits_and_is_not_used_up() {
    let mut ports = job(&["a=1"], &[]);
    ports.write(A, all(&["2"])).unwrap();
    let read: Vec<_> = (0..3).map(|_| ports.read(A).unwrap().unwrap()).collect();
    assert_eq!(read, all(&["2", "1", "1"]));
}

#[test]
fn null_and_false_are_defaults_and_none_clears() {
    let mut ports = job(&["a"], &[]);
    assert_eq!(ports.has_data(A), Ok(false));
    for default in ["null", "false"] {
        ports.set_default(A, Some(json(default))).unwrap();
        assert_eq!(ports.has_data(A), Ok(true));
        assert_eq!(ports.default_value(A), Ok(Some(json(default))));
        assert_eq!(ports.read(A), Ok(Some(json(default))));
    }
    ports.set_default(A, None).unwrap();
    assert_eq!((ports.has_data(A), ports.read(A)), (Ok(false), Ok(None)));
}

#[test]
fn size_and_entries_leave_the_default_out() {
    let mut ports = job(&["a=9"], &[]);
    ports.write(A, all(&["1", "2"])).unwrap();
    assert_eq!(ports.size(A), Ok(2));
    assert_eq!(ports.entries(A), Ok(all(&["1", "2"])));
    assert_eq!((ports.size(A), ports.entries(A)), (Ok(0), Ok(vec![])));
}

#[test]
fn connecting_moves_all_values_to_every_destination() {
    let (mut source, mut destination) = (job(&[], &["a"]), job(&["a", "b"], &[]));
    source.write(OUT, all(&["1", "[2,3]"])).unwrap();
    destination.write(B, all(&["0"])).unwrap();
    let (moved, changed) = connect(&mut source, OUT, &mut destination, &[A, B]).unwrap();
    assert_eq!((moved.items, changed), (all(&["1", "[2,3]"]), vec![true, true]));
    check_items(&source, OUT, &[]);
    check_items(&destination, A, &["1", "[2,3]"]);
    check_items(&destination, B, &["0", "1", "[2,3]"]);
    let (moved, changed) = connect(&mut source, OUT, &mut destination, &[A, B]).unwrap();
    assert_eq!((moved, changed), (Moved::default(), vec![false, false]));
}

#[test]
fn connecting_copies_the_default_where_it_differs() {
    let (mut source, mut destination) = (job(&[], &["a=null"]), job(&["a=1", "b=null"], &[]));
    let mut connect = || connect(&mut source, OUT, &mut destination, &[A, B]).unwrap().1;
    assert_eq!(connect(), [true, false]);
    assert_eq!(connect(), [false, false]);
    assert_eq!(source.default_value(OUT), Ok(Some(json("null"))));
    assert_eq!(destination.default_value(A), Ok(Some(json("null"))));
    source.set_default(OUT, None).unwrap();
    super::connect(&mut source, OUT, &mut destination, &[A]).unwrap();
    assert_eq!(destination.default_value(A), Ok(Some(json("null"))), "no default is nothing to copy");
}

#[test]
fn a_failed_connect_moves_nothing() {
    let (mut source, mut destination) = (job(&[], &["a=1"]), job(&["a"], &[]));
    source.write(OUT, all(&["1"])).unwrap();
    let before = (source.clone(), destination.clone());
    assert_eq!(connect(&mut source, OUT, &mut destination, &[]), Err(PortError::NoDestination));
    assert!(connect(&mut source, OUT, &mut destination, &[A, B]).is_err());
    assert!(source.connect_within(OUT, &[B]).is_err());
    assert!(connect(&mut source, A, &mut destination, &[A]).is_err());
    assert_eq!((source, destination), before);
}

#[test]
fn a_job_may_be_connected_to_itself() {
    let mut ports = job(&["a", "b"], &["a=1"]);
    ports.write(OUT, all(&["1", "2"])).unwrap();
    assert_eq!(ports.connect_within(OUT, &[A, B]).unwrap().1, [true, true]);
    ports.connect_within(A, &[A]).unwrap();
    check_items(&ports, A, &["1", "2"]);
    check_items(&ports, OUT, &[]);
}

/// Calls `for_inputs` on a and b until the result is no longer `Values`; returns the results as text.
fn run_inputs(ports: &mut Ports, last_defaults: &mut Option<Vec<RawJson>>) -> Vec<String> {
    let mut said = Vec::new();
    let join = |values: Vec<RawJson>| values.iter().map(RawJson::as_str).collect::<Vec<_>>().join(" ");
    loop {
        match ports.for_inputs(&["a", "b"], last_defaults.as_deref()).unwrap() {
            ForInputs::Values(values) => said.push(join(values)),
            ForInputs::Nothing => return said,
            ForInputs::Suspend => {
                said.push("suspend".into());
                return said;
            }
            ForInputs::Defaults(values) => {
                *last_defaults = Some(values.clone());
                said.push(format!("defaults {}", join(values)));
                return said;
            }
        }
    }
}

#[track_caller]
fn check_inputs(declared: &[&str], a: &[&str], b: &[&str], expected: &[&str]) -> Ports {
    let mut ports = job(declared, &[]);
    ports.write(A, all(a)).unwrap();
    ports.write(B, all(b)).unwrap();
    assert_eq!(run_inputs(&mut ports, &mut None), expected);
    ports
}

#[test]
fn inputs_are_read_together() {
    check_inputs(
        &["a", "b"],
        &["1", r#""a""#],
        &["[2,3]", r#"{"foo":123}"#],
        &["1 [2,3]", r#""a" {"foo":123}"#],
    );
    check_inputs(&["a", "b=9"], &["1", "2"], &[], &["1 9", "2 9"]);
    check_inputs(&["a", "b"], &[], &[], &[]);
}

#[test]
fn inputs_without_their_match_wait_and_are_kept() {
    let ports = check_inputs(&["a", "b"], &["1"], &["[2,3]", "3"], &["1 [2,3]", "suspend"]);
    check_items(&ports, B, &["3"]);
    check_inputs(&["a=1", "b"], &["2"], &[], &["suspend"]);
}

#[test]
fn some_defaults_and_no_values_are_nothing_to_do() {
    check_inputs(&["a", "b=9"], &[], &[], &[]);
}

#[test]
fn all_defaults_are_given_once_until_one_changes() {
    let (mut ports, mut last) = (job(&["a=1", "b=null"], &[]), None);
    assert_eq!(run_inputs(&mut ports, &mut last), ["defaults 1 null"]);
    assert_eq!(run_inputs(&mut ports, &mut last), [""; 0]);
    ports.set_default(B, Some(json("2"))).unwrap();
    assert_eq!(run_inputs(&mut ports, &mut last), ["defaults 1 2"]);
    ports.write(A, all(&["7"])).unwrap();
    assert_eq!(run_inputs(&mut ports, &mut last), ["7 2"], "the defaults were given before");
    check_inputs(&["a=0", "b=1"], &["7"], &[], &["7 1", "defaults 0 1"]);
}

#[test]
fn no_names_are_nothing_and_a_name_given_twice_is_read_twice() {
    let mut ports = job(&["a"], &[]);
    ports.write(A, all(&["1", "2", "3"])).unwrap();
    assert_eq!(ports.for_inputs(&[], None), Ok(ForInputs::Nothing));
    assert_eq!(ports.for_inputs(&["a", "a"], None), Ok(ForInputs::Values(all(&["1", "2"]))));
    assert_eq!(ports.for_inputs(&["a", "a"], None), Ok(ForInputs::Suspend));
    check_items(&ports, A, &["3"]);
}

#[test]
fn whoever_reads_beside_a_run_leaves_it_what_it_has_in_hand() {
    let mut ports = job(&["a"], &[]);
    ports.write((Side::In, "a"), all(&["1", "2", "3"])).unwrap();
    assert_eq!(ports.hand_out(&["a"], true), Ok(ForInputs::Values(all(&["1"]))));
    assert_eq!(ports.hand_out(&["a"], false), Ok(ForInputs::Values(all(&["2"]))));
    ports.inputs_returned();
    check_items(&ports, (Side::In, "a"), &["1", "3"]);
    // The next step of the run marks the previous inputs as consumed.
    ports.hand_out(&["a"], true).unwrap();
    ports.hand_out(&["a"], true).unwrap();
    ports.inputs_returned();
    check_items(&ports, (Side::In, "a"), &["3"]);
}

#[test]
fn state_merges_and_unset_removes_only_what_is_named() {
    let mut ports = Ports::default();
    let set =
        |values: &[(&str, &str)]| values.iter().map(|(key, text)| (key.to_string(), json(text))).collect();
    ports.set_state(set(&[("a", "1"), ("b", "[1,[2]]"), ("c", "null")])).unwrap();
    ports.set_state(set(&[("a", "2")])).unwrap();
    ports.set_state(set(&[])).unwrap();
    ports.unset_state(&["b", "missing"]);
    assert_eq!(*ports.state(), set(&[("a", "2"), ("c", "null")]));
}

#[test]
fn only_json_is_a_value_and_only_blanks_around_it_are_dropped() {
    assert_eq!(json(" {\"a\" : 1}\r\n\t").as_str(), "{\"a\" : 1}");
    for bad in ["", " ", "NaN", "Infinity", "{'a':1}", "1 2", "[1,]", "\"a", "\u{a0}1", "tru"] {
        assert!(matches!(RawJson::new(bad), Err(PortError::NotJson { .. })), "{bad:?}");
    }
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let too_deep = Err(PortError::TooDeep { max: VALUE_DEPTH_MAX });
    assert!(serde_json::from_str::<serde_json::Value>(json(&nested(VALUE_DEPTH_MAX)).as_str()).is_ok());
    assert_eq!(RawJson::new(&nested(VALUE_DEPTH_MAX + 1)), too_deep);
    assert_eq!(RawJson::new(&nested(500_000)), too_deep);
    assert!(RawJson::new(&format!(r#"["\"{}\\",[]]"#, "[".repeat(1_000))).is_ok());
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    assert!(RawJson::new(&text(VALUE_BYTES_MAX)).is_ok());
    let too_long = PortError::ValueTooLong { bytes: VALUE_BYTES_MAX + 1, max: VALUE_BYTES_MAX };
    assert_eq!(RawJson::new(&text(VALUE_BYTES_MAX + 1)), Err(too_long));
}

#[test]
fn a_port_holds_so_many_values_and_a_write_is_all_or_nothing() {
    let mut ports = job(&["a"], &[]);
    ports.write(A, vec![json("1"); PORT_ITEMS_MAX - 1]).unwrap();
    let error = ports.write(A, all(&["2", "3"])).unwrap_err();
    assert!(matches!(error, PortError::TooManyItems { items: 10_001, max: PORT_ITEMS_MAX, .. }));
    assert_eq!(ports.size(A), Ok(PORT_ITEMS_MAX - 1));
    ports.write(A, all(&["2"])).unwrap();
}

#[test]
fn a_job_holds_so_many_bytes_in_all() {
    let large = json(&format!("\"{}\"", "x".repeat(VALUE_BYTES_MAX - 2)));
    let mut ports = job(&["a", "b=1"], &["a"]);
    ports.write(A, vec![large.clone(); 4]).unwrap();
    ports.write(OUT, vec![large.clone(); 3]).unwrap();
    let before = ports.clone();
    assert!(matches!(ports.write(B, vec![large.clone()]), Err(PortError::TooLarge { .. })));
    assert!(matches!(ports.set_default(B, Some(large.clone())), Err(PortError::TooLarge { .. })));
    let state = BTreeMap::from([("key".to_string(), large.clone())]);
    assert!(matches!(ports.set_state(state), Err(PortError::TooLarge { .. })));
    let declared = Declared::from([("a".to_string(), Some(large))]);
    assert!(matches!(ports.set_ports(Side::In, declared), Err(PortError::TooLarge { .. })));
    assert!(matches!(ports.connect_within(A, &[B, OUT]), Err(PortError::TooLarge { .. })));
    assert_eq!(ports, before);
    assert!(ports.bytes() <= PORTS_BYTES_MAX);
}

#[test]
fn ports_made_on_demand_are_so_many() {
    let mut ports = job(&["*"], &[]);
    for n in 1..PORTS_MAX {
        ports.read((Side::In, &format!("p{n}"))).unwrap();
    }
    let error = PortError::TooManyPorts { side: Side::In, ports: PORTS_MAX + 1, max: PORTS_MAX };
    assert_eq!(ports.read((Side::In, "more")), Err(error));
    assert_eq!(ports.read((Side::In, "p1")), Ok(None));
}

#[test]
fn what_is_stored_comes_back() {
    let mut ports = job(&["a=null", "b", "*=5"], &["a"]);
    ports.write(A, all(&[r#"{"z":123456789012345678901234567890,"a":1}"#, "\"\\u0000\""])).unwrap();
    ports.set_state(BTreeMap::from([("k".to_string(), json("[ 1 ]"))])).unwrap();
    let text = serde_json::to_string(&ports).unwrap();
    assert_eq!(serde_json::from_str::<Ports>(&text).unwrap(), ports);
    for packed in [rmp_serde::to_vec(&ports).unwrap(), rmp_serde::to_vec_named(&ports).unwrap()] {
        assert_eq!(rmp_serde::from_slice::<Ports>(&packed).unwrap(), ports);
    }
    assert_eq!(serde_json::from_str::<Ports>("{}").unwrap(), Ports::default());
    assert!(serde_json::from_str::<Ports>(r#"{"state":{"k":"not json"}}"#).is_err());
}
