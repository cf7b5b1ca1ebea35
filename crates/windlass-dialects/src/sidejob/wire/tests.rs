use super::*;

fn ask(text: &str) -> Ask<'_> {
    Ask::read(text.as_bytes()).unwrap()
}

#[test]
fn values_stay_as_they_were_written() {
    let ask =
        ask(r#"{"data":{"z":1,"a":123456789012345678901234567890},"list":[1.0e400,"\u0041"],"n":null}"#);
    assert_eq!(ask.value("data").unwrap().unwrap().as_str(), r#"{"z":1,"a":123456789012345678901234567890}"#);
    let list = ask.list("list").unwrap().unwrap();
    assert_eq!(list.iter().map(RawJson::as_str).collect::<Vec<_>>(), ["1.0e400", r#""\u0041""#]);
    assert_eq!(ask.value("n").unwrap().unwrap().as_str(), "null", "null is a value");
    assert_eq!(ask.text("n").unwrap(), None, "and no text");
    assert_eq!(ask.value("missing").unwrap(), None);
}

#[test]
fn a_body_is_an_object_or_nothing() {
    assert_eq!(Ask::read(b" \n").unwrap().fields().count(), 0);
    for bad in ["[1]", "5", "{", "{\"a\":1}x", "\u{feff}{}"] {
        assert!(Ask::read(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(Ask::read(b"{\"a\":\"\xff\"}").is_err());
}

#[test]
fn the_last_of_several_holds() {
    assert_eq!(ask(r#"{"a":1,"a":2}"#).raw("a"), Some("2"));
}

#[test]
fn ids_are_digits_and_nothing_else() {
    assert_eq!(job_id("12").map(JobId::get), Some(12));
    for bad in ["", "0", "-1", "+1", "1.0", "1a", "a", "99999999999999999999"] {
        assert_eq!(job_id(bad), None, "{bad}");
    }
    assert!(ask(r#"{"parent":"1"}"#).job("parent").is_err());
    assert!(ask(r#"{"parent":1.5}"#).job("parent").is_err());
}

#[test]
fn moments_are_seconds_or_texts_and_go_before_spans() {
    let wish = |text: &str| ask(text).run_wish().unwrap();
    assert_eq!(wish(r#"{"at":1.5,"wait":9}"#).when, Some(When::At(Timestamp::from_millis(1_500))));
    assert_eq!(wish(r#"{"at":"1970-01-01T00:00:02Z"}"#).when, Some(When::At(Timestamp::from_millis(2_000))));
    assert_eq!(wish(r#"{"wait":0.25}"#).when, Some(When::AfterMs(250)));
    assert_eq!(wish("{}"), RunWish::default());
    assert!(ask(r#"{"at":"soon"}"#).run_wish().is_err());
    let huge = wish(r#"{"wait":1e300}"#).when.unwrap().from(Timestamp::EPOCH);
    assert_eq!(huge, Timestamp::MAX);
}

#[test]
fn ports_are_declared_with_their_defaults() {
    let declared =
        ask(r#"{"inports":{"a":{},"b":{"default":null},"*":{"default":[1]}}}"#).declared("inports");
    let declared = declared.unwrap().unwrap();
    assert_eq!(declared["a"], None);
    assert_eq!(declared["b"].as_ref().map(RawJson::as_str), Some("null"));
    assert_eq!(declared["*"].as_ref().map(RawJson::as_str), Some("[1]"));
    assert!(ask(r#"{"inports":{"a":1}}"#).declared("inports").is_err());
    assert_eq!(ask(r#"{"inports":null}"#).declared("inports").unwrap(), None);
}

#[test]
fn a_port_is_named_by_one_side() {
    let port = ask(r#"{"job":3,"inport":"a"}"#).port_alone().unwrap();
    assert_eq!(port, PortAt { job: JobId::new(3), side: Side::In, port: "a".into() });
    assert!(ask("{}").port_alone().is_err());
    assert!(ask(r#"{"inport":"a","outport":"b"}"#).port_alone().is_err());
    assert!(ask(r#"{"inport":"a","prot":"b"}"#).port_alone().is_err());
}

#[test]
fn what_is_written_is_one_value_or_a_list() {
    let values = |text: &str| {
        let values = ask(text).values().unwrap();
        values.map(|values| values.iter().map(|value| value.to_string()).collect::<Vec<_>>())
    };
    let some = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    assert_eq!(values(r#"{"data":[1,2]}"#), some(&["[1,2]"]));
    assert_eq!(values(r#"{"data":null}"#), some(&["null"]), "null is a value");
    assert_eq!(values(r#"{"list":[1,[2]]}"#), some(&["1", "[2]"]));
    assert_eq!(values(r#"{"data":1,"list":null}"#), some(&["1"]));
    assert_eq!(values("{}"), None);
    assert!(ask(r#"{"list":5}"#).values().is_err());
    assert!(ask(r#"{"data":1,"list":[2]}"#).values().is_err());
    let writes = |text: &str| ask(text).writes("writes").map(|writes| writes.len());
    let good = r#"{"writes":[{"outport":"x","data":1},{"job":2,"inport":"y","list":[]}]}"#;
    assert_eq!(writes(good), Ok(2));
    for (bad, expected) in [
        (r#"{"writes":[{"outport":"x"}]}"#, "a write requires data or list: x"),
        (
            r#"{"writes":{"outport":"x","dat":1}}"#,
            "unknown member dat; the members are: data, list, job, inport, outport",
        ),
    ] {
        assert_eq!(writes(bad), Err(BadCall::Member(expected.to_owned())));
    }
}

#[test]
fn members_that_nobody_reads_are_refused_with_those_that_are() {
    let refused = |text: &str, own: &[&str]| ask(text).only(own, OF_JOB_CALLS).map_err(|bad| bad.to_string());
    assert_eq!(refused(r#"{"data":1,"run":{},"log_context":{}}"#, &["data"]), Ok(()));
    assert_eq!(refused("{}", &["data"]), Ok(()));
    let message = "unknown member Data; the members are: data, run, log_context";
    assert_eq!(refused(r#"{"data":1,"Data":2}"#, &["data"]), Err(message.to_owned()));
    let long = format!("{{\"{}\":1}}", "é".repeat(5_000));
    assert!(refused(&long, &[]).unwrap_err().len() < 300, "however long it is");
    let ports = r#"{"inports":{"a":{"defualt":1}}}"#;
    let message = "port a: unknown member defualt; the members are: default";
    assert_eq!(ask(ports).declared("inports"), Err(BadCall::Member(message.to_owned())));
    assert_eq!(ask(ports).configured("inports").unwrap().unwrap()["a"], None, "classes say what they like");
}

#[test]
fn tokens_are_texts_or_numbers() {
    assert_eq!(ask(r#"{"token":65537}"#).token().unwrap().as_deref(), Some("65537"));
    assert_eq!(ask(r#"{"token":"abc"}"#).token().unwrap().as_deref(), Some("abc"));
    assert_eq!(ask("{}").token().unwrap(), None);
    assert!(ask(r#"{"token":[]}"#).token().is_err());
}

#[test]
fn members_are_found_by_name_however_many_there_are() {
    for count in [1, INDEX_FROM - 1, INDEX_FROM, 1_000] {
        // Each key twice, out of order.
        let member = |number: usize, value: usize| format!("\"k{}\":{value}", number * 7 % count);
        let members: Vec<String> = (0..2 * count).map(|at| member(at % count, at)).collect();
        let text = format!("{{{}}}", members.join(","));
        let ask = ask(&text);
        assert_eq!(ask.fields().count(), 2 * count);
        for (key, _) in ask.fields() {
            let last = ask.fields().filter(|(name, _)| *name == key).last().unwrap().1;
            assert_eq!(ask.raw(key), Some(last), "{key} of {count}");
        }
        assert_eq!((ask.raw(""), ask.raw("k"), ask.raw("z")), (None, None, None));
    }
}
