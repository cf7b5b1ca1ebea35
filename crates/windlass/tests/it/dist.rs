//! Files in `dist/` and `.github/`: the settings, ports, paths and commands that they name exist in the program.

use crate::server::{PATIENCE, Ran, Server, request, windlass};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Default of `shutdown_s` and the half minute in which a shutdown ends after it, see docs/operating.md.
const SHUTDOWN_S: u64 = 10 + 30;

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Documents of a YAML file.
fn yaml(path: &str) -> Vec<Value> {
    let venv = workspace().join("target/venv/bin/python3");
    let python = if venv.exists() { venv } else { PathBuf::from("python3") };
    let script =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1]))), default=str))";
    let ran = Ran::of(Command::new(python).args(["-c", script]).arg(workspace().join(path)));
    assert_eq!(ran.code, 0, "{path}: {} (PyYAML is needed: ./test installs it)", ran.stderr);
    // YAML 1.1 reads the key `on` of a workflow as a truth value, which has no place in JSON but as text.
    serde_json::from_str::<Value>(&ran.stdout).unwrap().as_array().unwrap().clone()
}

/// Values of a setting in the unit file, in the order of its lines.
fn unit(setting: &str) -> Vec<String> {
    let text = read("dist/systemd/windlass.service");
    let values = text.lines().filter_map(|line| line.split_once('=')).filter(|(name, _)| *name == setting);
    values.map(|(_, value)| value.to_owned()).collect()
}

/// Instructions of the Dockerfile, with continued lines joined.
fn dockerfile() -> Vec<String> {
    let text: String = read("dist/docker/Dockerfile").replace("\\\n", " ");
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn seconds(text: &str) -> u64 {
    text.trim_end_matches('s').parse().unwrap()
}

/// Containers of the Kubernetes manifests, with the pods that they are in.
fn pods() -> Vec<Value> {
    let files = ["dist/kubernetes/embedded.yaml", "dist/kubernetes/postgres.yaml"];
    let pods: Vec<Value> = files
        .iter()
        .flat_map(|path| yaml(path))
        .map(|document| document["spec"]["template"]["spec"].clone())
        .filter(|pod| !pod.is_null())
        .collect();
    assert_eq!(pods.len(), 2);
    pods
}

/// Every variable that a file in `dist/` sets for the server, with its value.
fn variables() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut add = |name: &str, value: &str| found.insert(name.to_owned(), value.to_owned());
    for pair in unit("Environment") {
        let (name, value) = pair.split_once('=').unwrap();
        add(name, value);
    }
    for line in dockerfile().iter().filter_map(|line| line.strip_prefix("ENV ")) {
        for (name, value) in line.split_whitespace().filter_map(|pair| pair.split_once('=')) {
            add(name, value);
        }
    }
    for path in ["dist/docker/compose.yaml", "dist/docker/compose-postgres.yaml"] {
        let environment = yaml(path)[0]["services"]["windlass"]["environment"].clone();
        for (name, value) in environment.as_object().unwrap() {
            add(name, value.as_str().unwrap());
        }
    }
    for pod in pods() {
        for variable in pod["containers"][0]["env"].as_array().unwrap() {
            add(variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap_or_default());
        }
    }
    found
}

#[test]
fn every_variable_in_dist_is_a_setting_of_the_server() {
    let variables = variables();
    assert!(variables.len() >= 8, "{variables:?}");
    for name in variables.keys() {
        assert!(name.starts_with("WINDLASS_"), "{name}");
    }
    // Values that only a container has are not of interest here.
    let plain = variables.iter().filter(|(_, value)| !value.is_empty() && !value.contains(['%', '$']));
    let ran = Ran::of(windlass().args(["config", "--json"]).envs(plain));
    assert!(!ran.stderr.contains("unknown"), "{}", ran.stderr);
    let config = ran.json();
    for (name, value) in variables {
        let is_it = |key: &&String| format!("WINDLASS_{}", key.to_uppercase().replace('.', "_")) == name;
        let key = config.as_object().unwrap().keys().find(is_it);
        let key = key.unwrap_or_else(|| panic!("{name} is no setting"));
        assert!(
            value.is_empty() || value.contains(['%', '$']) || config[key]["source"] != "default",
            "{name}"
        );
    }
}

#[test]
fn the_packaged_configuration_can_be_read_as_it_is_and_with_every_line_in_use() {
    let text = read("dist/windlass.toml");
    let config = workspace().join("dist/windlass.toml");
    Ran::of(windlass().args(["config", "--json", "--config"]).arg(config)).json();
    let in_use: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| !line.starts_with(' '))
        .collect();
    assert!(in_use.len() >= 6, "{in_use:?}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("all.toml"), in_use.join("\n")).unwrap();
    let listing = Ran::of(windlass().args(["config", "--json", "--config", "all.toml"]).current_dir(&folder));
    let listing = listing.json();
    for key in in_use.iter().map(|line| line.split(" = ").next().unwrap()) {
        assert_eq!(listing[key]["source"], "all.toml", "{key}: {}", listing[key]);
    }
}

#[test]
fn probes_ports_and_times_fit_the_server() {
    let server = Server::start(&[]);
    for pod in pods() {
        let container = &pod["containers"][0];
        assert_eq!(container["ports"][0]["containerPort"], 7373);
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let path = container[probe]["httpGet"]["path"].as_str().unwrap();
            assert_eq!(request(server.http, "GET", path, "").unwrap().0, 200, "{probe} {path}");
        }
        let pause = container["lifecycle"]["preStop"]["exec"]["command"][1].as_str().unwrap();
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(grace >= seconds(pause) + SHUTDOWN_S, "{grace} s are too few");
        let image = container["image"].as_str().unwrap();
        assert_eq!(image, format!("windlass:{}", env!("CARGO_PKG_VERSION")));
        let security = &container["securityContext"];
        assert_eq!(
            (&security["readOnlyRootFilesystem"], &pod["securityContext"]["runAsNonRoot"]),
            (&true.into(), &true.into())
        );
    }
    for path in ["dist/docker/compose.yaml", "dist/docker/compose-postgres.yaml"] {
        let service = yaml(path)[0]["services"]["windlass"].clone();
        assert!(seconds(service["stop_grace_period"].as_str().unwrap()) >= SHUTDOWN_S, "{path}");
        let dockerfile = service["build"]["dockerfile"].as_str().unwrap();
        assert!(workspace().join(dockerfile).is_file(), "{dockerfile}");
        assert!(service["ports"][0].as_str().unwrap().ends_with(":7373"), "{path}");
    }
    assert!(dockerfile().contains(&"EXPOSE 7373".to_owned()));
    assert!(seconds(&unit("TimeoutStopSec")[0]) >= SHUTDOWN_S);
}

/// Answers one request as another program would, and returns the command's output.
fn health_of_another_program(args: &[&str]) -> Ran {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let program = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello").unwrap();
    });
    let ran = Ran::of(windlass().args(["health", "--server", &url]).args(args));
    program.join().unwrap();
    assert!(ran.code == 1 && ran.stderr.contains(&url), "{ran:?}");
    assert!(ran.stderr.contains("not from the Windlass API"), "{ran:?}");
    ran
}

#[test]
fn another_program_is_not_a_healthy_server() {
    assert_eq!(health_of_another_program(&[]).stdout, "");
    assert_eq!(health_of_another_program(&["--alive"]).stdout, "");
    let ran = health_of_another_program(&["--json"]);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(said["ok"], false);
    assert!(said["error"].as_str().unwrap().contains("not from the Windlass API"), "{said}");
}

#[test]
fn the_health_check_of_the_image_follows_the_readiness_of_the_server() {
    let check = dockerfile().into_iter().find(|line| line.starts_with("HEALTHCHECK")).unwrap();
    let words: Vec<String> = serde_json::from_str(check.split_once("CMD ").unwrap().1).unwrap();
    assert_eq!(words[0], "windlass");
    let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let mut server = Server::start(&[]);
    assert!(server.run(&args).ok().starts_with("OK"));
    assert_eq!(server.run(&["health", "--alive"]).ok(), "OK");
    assert_eq!(server.run(&["health", "--json"]).json()["ok"], true);
    assert!(server.stop().success());
    let gone = server.run(&args);
    assert_eq!(gone.code, 1, "{gone:?}");
    assert!(gone.stderr.contains("no server at"), "{gone:?}");
    let gone = server.run(&["health", "--json"]);
    let said: Value = serde_json::from_str(&gone.stdout).unwrap();
    assert!(gone.code == 1 && said["ok"] == false, "{gone:?}");
}

#[test]
fn the_service_manager_hears_of_the_start_and_of_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    assert_eq!(unit("Type"), ["notify"]);
    let mut server = Server::start_with_variable("NOTIFY_SOCKET", path.to_str().unwrap(), &[]);
    assert_eq!(heard(), "READY=1");
    assert!(server.stop().success());
    assert_eq!(heard(), "STOPPING=1");
}

#[test]
fn the_unit_starts_the_server_as_packaged() {
    let start = unit("ExecStart").join(" ");
    assert_eq!(start, "/usr/bin/windlass serve --config /etc/windlass/windlass.toml");
    let manifest: toml::Table = read("crates/windlass/Cargo.toml").parse().unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    let assets = deb["assets"].as_array().unwrap();
    let mut installed = Vec::new();
    for asset in assets {
        let (from, to) = (asset[0].as_str().unwrap(), asset[1].as_str().unwrap());
        // Built, or written by the built program.
        if !from.contains("target/") {
            let path = workspace().join("crates/windlass").join(from.split('*').next().unwrap());
            assert!(path.exists(), "{from} is not there");
        }
        let name = if to.ends_with('/') { from.rsplit('/').next().unwrap() } else { "" };
        installed.push(format!("/{to}{name}"));
    }
    for path in start.split(' ').filter(|word| word.starts_with('/')) {
        assert!(installed.iter().any(|to| to == path), "{path} is not among {installed:?}");
    }
    if Command::new("systemd-analyze").arg("--version").output().is_ok() {
        // The program and its manual page are not installed here.
        let folder = tempfile::tempdir().unwrap();
        let own = windlass().get_program().to_str().unwrap().to_owned();
        let text = read("dist/systemd/windlass.service").replace("/usr/bin/windlass", &own);
        let text = text.replace("Documentation=man:windlass(1)\n", "");
        let path = folder.path().join("windlass.service");
        std::fs::write(&path, text).unwrap();
        let ran = Ran::of(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path));
        let about_us: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("windlass")).collect();
        assert!(about_us.is_empty(), "{about_us:?}");
    }
}

#[test]
fn workflows_run_scripts_that_exist() {
    for path in [".github/workflows/test.yml", ".github/workflows/release.yml"] {
        let workflow = &yaml(path)[0];
        let steps =
            workflow["jobs"].as_object().unwrap().values().flat_map(|job| job["steps"].as_array().unwrap());
        let mut scripts = 0;
        for line in steps.filter_map(|step| step["run"].as_str()).flat_map(str::lines) {
            let words = line.split([' ', '"', '(', ')', ';']);
            for script in words.filter(|word| word.starts_with("dist/") || *word == "./test") {
                assert!(workspace().join(script).is_file(), "{path} runs {script}");
                scripts += 1;
            }
        }
        assert!(scripts > 0, "{path} runs nothing");
    }
}
