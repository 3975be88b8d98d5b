//! Tests of certificates whose files change while the confined server runs.

use std::fs;
use std::path::Path;

use super::support::*;

/// Writes a chain and its key to a new directory. The certificate is valid until this year.
fn put(directory: &Path, until: i32) {
    fs::create_dir_all(directory).unwrap();
    let mut params = rcgen::CertificateParams::new(["turn.example.org".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(directory.join("x.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(directory.join("x.key"), key.serialize_pem()).unwrap();
}

#[test]
fn directories_of_certificates_are_made_anew_and_a_reload_does_the_rest() {
    let (directory, certbot, own) = (Directory::new(), Directory::new(), Directory::new());
    let directories = [certbot.0.join("live/turn.example.org"), own.0.clone()];
    directories.iter().for_each(|directory| put(directory, 2090));
    let port = free_port();
    let config = |channels: u32| {
        let files = directories.each_ref().map(|directory| {
            let directory = directory.display();
            format!("{{ chain = \"{directory}/x.pem\", key = \"{directory}/x.key\" }}")
        });
        let text = format!(
            "realm = \"test.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
             [auth]\nsecret = \"north-of-the-wall\"\n[tls]\nlisten = []\ncertificates = [{}]\n\
             [quotas]\nchannels = {channels}\n",
            files.join(", ")
        );
        directory.file("turnpike.toml", &text)
    };
    let (file, data) = (config(7), directory.0.join("data"));
    let run_server = ["run", "--config", path(&file), "--data", path(&data)];
    let server = Server::start(turnpike(&run_server));
    let ask = |command: &str| {
        let output = run(&[command, "--json", "--config", path(&file), "--data", path(&data)]);
        let report = json(&output);
        let kept = report["certificates_kept"].as_array().is_some_and(|kept| !kept.is_empty());
        assert_eq!(output.status.code(), Some(i32::from(kept)), "{output:?}");
        report
    };
    let expires = |index: usize| ask("status")["certificates"][index]["expires_unix"].as_u64();
    let before = expires(0);

    directories.iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
    config(9);
    let report = ask("reload");
    assert_eq!(report["applied"][0]["key"], "quotas.channels", "{report}");
    assert_eq!(report["certificates_kept"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(expires(0), before, "the one before stays in force");

    directories.iter().for_each(|directory| put(directory, 2091));
    let report = ask("reload");
    assert!(expires(0) > before, "as certbot makes it anew: {report}");
    if ask("status")["confinement"]["landlock"]["on"] == true {
        // The parent directory is shared between programs, and no rule permits it.
        let kept = report["certificates_kept"][0].as_str().unwrap();
        assert!(kept.contains(path(&own.0)) && kept.contains("made anew"), "{kept}");
        assert!(kept.contains("start the server again"), "{kept}");
    } else {
        test_support::skip("the kernel has no landlock");
    }
    server.stop();
}
