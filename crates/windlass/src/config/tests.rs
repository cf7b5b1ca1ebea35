use super::keys::Keys;
use super::*;
use std::io::Write;
use windlass_core::{Keep, KeepFor};
use windlass_dialects::{bedrock, jq, native};

/// Reads a configuration from the text of a file, variables, `--set` arguments and flags, as `windlass serve`
/// does.
fn read(
    file: &str,
    variables: &[(&str, &str)],
    set: &[&str],
    http: Option<&str>,
) -> Result<Config, BadConfig> {
    let mut on_disk = tempfile::NamedTempFile::new().unwrap();
    on_disk.write_all(file.as_bytes()).unwrap();
    let args = ConfigArgs {
        config: Some(on_disk.path().to_path_buf()),
        set: set.iter().map(|text| text.to_string()).collect(),
        http: http.map(str::to_string),
        ..ConfigArgs::default()
    };
    args.read_with(ALL, variables.iter().map(|(name, text)| (name.to_string(), text.to_string())))
}

fn shown(config: &Config, name: &str) -> (Value, ValueSource) {
    let entry = config.values.0.iter().find(|entry| entry.key.name == name).unwrap();
    (entry.value.clone(), entry.source.clone())
}

#[test]
fn every_default_fits_its_key() {
    let config = read("", &[], &[], None).unwrap();
    assert_eq!(config.values.0.len(), Keys(ALL).all().count());
    assert_eq!(config.store, "sqlite:windlass-data/windlass.db");
    assert_eq!(config.http.text, "127.0.0.1:7373");
    assert!(!config.http.asked && config.http.is_loopback());
    assert_eq!(config.limits.batch, 10_000);
}

#[test]
fn every_key_is_there_once() {
    let mut names: Vec<&str> = Keys(ALL).all().map(|key| key.name).collect();
    names.sort_unstable();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn flags_win_over_set_over_variables_over_the_file() {
    let file = "http = \"127.0.0.1:1\"\n";
    let variable = [("WINDLASS_HTTP", "127.0.0.1:2")];
    let set = ["http=127.0.0.1:3"];
    let http = |config: Result<Config, BadConfig>| config.unwrap().http.text;
    assert_eq!(http(read(file, &[], &[], None)), "127.0.0.1:1");
    assert_eq!(http(read(file, &variable, &[], None)), "127.0.0.1:2");
    assert_eq!(http(read(file, &variable, &set, None)), "127.0.0.1:3");
    assert_eq!(http(read(file, &variable, &set, Some("127.0.0.1:4"))), "127.0.0.1:4");
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    let check = |wrong: &str, near: &str| {
        let BadConfig(message) = read("", &[], &[&format!("{wrong}=1")], None).unwrap_err();
        assert!(message.contains(wrong) && message.contains(&format!("did you mean {near:?}")), "{message}");
    };
    check("queuey.abandoned_age", "queuey.abandoned_age_s");
    check("qeuey.max_attempts", "queuey.max_attempts");
    check("max_attempts", "queuey.max_attempts");
    check("htp", "http");
    let BadConfig(message) = read("[miniq]\nlocks = 3\n", &[], &[], None).unwrap_err();
    assert!(message.contains("miniq.lock_s"), "{message}");
    let BadConfig(message) = read("", &[], &["zzzzzzzzzzzz=1"], None).unwrap_err();
    assert!(message.contains("windlass config"), "{message}");
}

#[test]
fn an_unknown_variable_is_a_warning() {
    let config =
        read("", &[("WINDLASS_HTPP", "x"), ("WINDLASS_TOKEN", "t"), ("HOME", "/")], &[], None).unwrap();
    assert_eq!(config.warnings.len(), 1);
    assert!(config.warnings[0].contains("did you mean WINDLASS_HTTP?"), "{:?}", config.warnings);
}

#[test]
fn a_key_below_a_dot_has_a_variable_too() {
    let config = read("", &[("WINDLASS_QUEUEY_MAX_ATTEMPTS", "7")], &[], None).unwrap();
    let expected = (Value::Whole(7), ValueSource::Variable("WINDLASS_QUEUEY_MAX_ATTEMPTS".to_string()));
    assert_eq!(shown(&config, "queuey.max_attempts"), expected);
}

#[test]
fn bedrock_may_be_an_address_or_a_table_or_off() {
    let config =
        read("[bedrock]\nlisten = \"127.0.0.1:9\"\nprofile = \"current\"\n", &[], &[], None).unwrap();
    let listen = |config: Config| config.settings.get::<bedrock::Settings>().listen;
    assert_eq!(listen(config).unwrap().text, "127.0.0.1:9");
    assert_eq!(listen(read("bedrock = \"off\"", &[], &[], None).unwrap()), None);
    assert_eq!(listen(read("", &[], &["bedrock=off"], None).unwrap()), None);
}

#[test]
fn values_that_do_not_fit_say_what_would() {
    let check = |file: &str, words: &str| {
        let BadConfig(message) = read(file, &[], &[], None).unwrap_err();
        assert!(message.contains(words), "{message}");
    };
    check("durability = \"none\"", "one of full, relaxed");
    check("[limits]\nbatch = 0", "a whole number from 1");
    check("[limits]\nbatch = \"many\"", "a whole number from 1");
    check("http = \"nowhere\"", "HOST:PORT");
    check("insecure = \"perhaps\"", "true or false");
    check("[keep]\ncompleted = 7", "a duration such as 7d");
    check("[keep]\nfailed = \"7\"", "a duration such as 7d");
    check("tls.cert = \"a.pem\"", "must be set together");
    check("http = ", "");
}

#[test]
fn keep_times_are_durations_or_words() {
    let keep = |file: &str, set: &[&str]| {
        read(file, &[], set, None).unwrap().settings.get::<native::Settings>().keep
    };
    assert_eq!(keep("", &[]), Keep::default(), "the defaults of a job");
    let file = "[keep]\ncompleted = 0\nfailed = \"30d\"\ncancelled = \"forever\"";
    let asked =
        Keep { completed: KeepFor::Drop, failed: KeepFor::Ms(30 * 86_400_000), cancelled: KeepFor::Ever };
    assert_eq!(keep(file, &[]), asked);
    assert_eq!(keep(file, &["keep.failed=0"]).failed, KeepFor::Drop);
}

#[test]
fn variables_of_opentelemetry_are_read_and_our_own_win() {
    let standard = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hush,x=y"),
        ("OTEL_SERVICE_NAME", "shop"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", ""),
        ("OTEL_LOG_LEVEL", "debug"),
    ];
    let config = read("otel.sample = 0.25\notel.service_name = \"file\"", &standard, &[], None).unwrap();
    let otel = config.otel.clone().unwrap();
    assert_eq!(
        (otel.endpoint.as_str(), otel.service_name.as_str(), otel.sample),
        ("http://localhost:4318", "shop", 0.25)
    );
    assert_eq!((otel.headers.len(), otel.ca.is_none(), config.warnings.len()), (2, true, 0));
    let source = ValueSource::Variable("OTEL_SERVICE_NAME".to_string());
    assert_eq!(shown(&config, "otel.service_name"), (Value::Text("shop".to_string()), source));
    assert!(!format!("{otel:?}").contains("hush"));
    let own = [("WINDLASS_OTEL_SERVICE_NAME", "own"), ("OTEL_SERVICE_NAME", "shop")];
    assert_eq!(
        shown(&read("", &own, &[], None).unwrap(), "otel.service_name").0,
        Value::Text("own".to_string())
    );
    assert!(read("", &own, &[], None).unwrap().otel.is_none());
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317");
    for (variables, warnings) in [
        // Meant for other programs, or unusable: neither an error nor an export.
        (vec![endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], 0),
        (vec![endpoint, ("OTEL_SDK_DISABLED", "true")], 0),
        (vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")], 1),
        (vec![("OTEL_EXPORTER_OTLP_HEADERS", "no header")], 0),
    ] {
        let config = read("", &variables, &[], None).unwrap();
        assert_eq!((config.otel.is_none(), config.warnings.len()), (true, warnings), "{variables:?}");
    }
    for (set, is_valid) in
        [("0", true), ("1", true), ("0.5", true), ("1.1", false), ("-1", false), ("NaN", false), ("", false)]
    {
        assert_eq!(read("", &[], &[&format!("otel.sample={set}")], None).is_ok(), is_valid, "{set}");
    }
    assert!(
        read("otel.sample = 1", &[], &[], None).is_ok() && read("otel.sample = 2", &[], &[], None).is_err()
    );
}

#[test]
fn a_secret_is_not_repeated_in_an_error() {
    let BadConfig(message) = read("auth.tokens = [1, \"hush\"]", &[], &[], None).unwrap_err();
    assert!(!message.contains("hush"), "{message}");
}

#[test]
fn a_list_in_a_flag_is_written_with_commas_or_as_in_the_file() {
    let workers = |text: &str| {
        let config = read("", &[], &[&format!("jq.workers={text}")], None);
        config.map(|config| config.settings.get::<jq::Settings>().workers)
    };
    let one = workers("mailer http://127.0.0.1:6401 8").unwrap();
    assert_eq!((one.len(), one[0].max_jobs), (1, 8));
    assert_eq!(workers(r#"["mailer http://127.0.0.1:6401 8"]"#).unwrap(), one);
    assert_eq!(
        workers(r#"[ "mailer http://127.0.0.1:6401 8", 'b http://127.0.0.1:1 1' ]"#).unwrap().len(),
        2
    );
    assert_eq!(workers("mailer http://127.0.0.1:6401 8, b http://127.0.0.1:1 1").unwrap().len(), 2);
    for (bad, says) in [
        (r#"["mailer http://127.0.0.1:6401 8""#, "is not a list of strings"),
        (r#"["mailer", 8]"#, "is not a list of strings"),
        ("mailer http://127.0.0.1:6401", "expected NAME URL MAX_JOBS"),
        ("mailer http://127.0.0.1:6401 many", "MAX_JOBS is \"many\" and must be a whole number from 1 to"),
        ("mailer 127.0.0.1:6401 8", "mailer 127.0.0.1:6401 8"),
    ] {
        let BadConfig(message) = workers(bad).unwrap_err();
        assert!(message.contains("jq.workers") && message.contains(says), "{message}");
    }
    let hosts = read("", &[], &["hosts=[::1], a.example"], None).unwrap().hosts;
    assert_eq!(hosts, ["[::1]", "a.example"]);
}
