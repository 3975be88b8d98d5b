//! The Helm chart: accepted by helm, with a configuration that the server accepts.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use e2e::{Tool, binary, helm, repository, require};

const PATIENCE: Duration = Duration::from_secs(60);

fn chart() -> PathBuf {
    repository().join("dist/helm/turnpike")
}

/// The objects of the chart with these values.
fn template(helm: &PathBuf, values: &[&str]) -> Tool {
    let set = values.iter().flat_map(|value| ["--set", value]);
    Tool::run(Command::new(helm).args(["template", "calls"]).arg(chart()).args(set), PATIENCE)
}

#[test]
fn the_chart_keeps_calls_and_configures_the_server() {
    let Some(helm) = require(helm()) else { return };
    let lint = Tool::run(Command::new(&helm).args(["lint", "--strict"]).arg(chart()), PATIENCE);
    assert!(lint.ok, "{}", lint.output);

    let plain = template(&helm, &["drainSeconds=1800"]);
    for part in [
        "hostNetwork: true",
        "enableServiceLinks: false",
        "terminationGracePeriodSeconds: 1860",
        "command: [\"/usr/bin/turnpike\", \"drain\", \"--wait\", \"--deadline\", \"1800 s\"]",
        "path: /readyz",
        "path: /healthz",
        "runAsUser: 65532",
        "drop: [\"ALL\"]",
        "readOnlyRootFilesystem: true",
    ] {
        assert!(plain.output.contains(part), "no {part} in {}", plain.output);
    }
    assert!(!plain.output.contains("secretName"), "{}", plain.output);
    let names = ["secretName=mine", "tlsSecretName=of-tls", "kernelPath=true"];
    let full = template(&helm, &names);
    for part in ["secretName: mine", "secretName: of-tls", "\"BPF\"", "TURNPIKE_AUTH__SECRET_FILE"]
    {
        assert!(full.output.contains(part), "no {part} in {}", full.output);
    }

    // The server takes the configuration and the variables, with those that Kubernetes sets.
    let check = |output: &str| {
        let mut command = Command::new(binary());
        let lines: Vec<&str> = output.lines().map(str::trim).collect();
        for pair in lines.windows(2) {
            let name = pair[0].strip_prefix("- name: TURNPIKE_");
            if let (Some(name), Some(value)) = (name, pair[1].strip_prefix("value: ")) {
                let value = value.trim_matches('"').replace("$(NODE_ADDRESS)", "192.0.2.1");
                command.env(format!("TURNPIKE_{name}"), value);
            }
        }
        // The secret is not here.
        command.env_remove("TURNPIKE_AUTH__SECRET_FILE");
        let file = std::env::temp_dir().join(format!("tp{}-helm.toml", std::process::id()));
        let (_, config) = output.split_once("turnpike.toml: |").expect("the configuration");
        let config: String = config.split("---").next().unwrap_or_default().replace("\n    ", "\n");
        std::fs::write(&file, config).expect("written");
        let out = Tool::run(command.args(["check", "--json"]).arg(&file), PATIENCE);
        drop(std::fs::remove_file(&file));
        assert!(
            out.output.contains("\"valid\":true") || out.output.contains("\"valid\": true"),
            "{}",
            out.output
        );
    };
    check(&plain.output);
    check(&full.output);
}

#[test]
fn values_that_are_no_values_are_refused() {
    let Some(helm) = require(helm()) else { return };
    for wrong in [
        "drainSeconds=0",
        "drainSeconds=never",
        "monitoringPort=80",
        "kernelpath=true",
        "image.repository=",
    ] {
        let out = template(&helm, &[wrong]);
        assert!(!out.ok && out.output.contains("schema"), "{wrong}: {}", out.output);
    }
}
