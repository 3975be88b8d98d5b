//! The key of pseudonyms in the log.

use std::fs;
use std::path::Path;

use settings::{Environment, Settings, SettingsErrors, diff, parse};

fn read(directory: &Path, addresses: &str) -> Result<Settings, SettingsErrors> {
    let text = format!("log = {{ addresses = '{addresses}', address_key_file = 'key' }}\n");
    parse(&directory.join("t.toml"), &text, &Environment::empty())
}

#[test]
fn a_reload_reads_the_key_again_and_a_bad_one_is_refused() {
    let directory = std::env::temp_dir().join(format!("turnpike-key-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let write = |text: &str| fs::write(directory.join("key"), text).unwrap();
    write("north-of-the-wall\n");
    let before = read(&directory, "pseudonym").unwrap();
    assert_eq!(&**before.address_key.as_ref().unwrap().expose(), b"north-of-the-wall");
    assert_eq!(before.secret_files()[0].0, "log.address_key_file");
    assert!(diff(&before, &read(&directory, "pseudonym").unwrap()).is_empty());
    write("south-of-the-wall\n");
    let after = read(&directory, "pseudonym").unwrap();
    let change = &diff(&before, &after).live[0];
    assert_eq!((change.key, &*change.new), ("log.address_key_file", "\"key\", with another key"));
    assert_eq!(before.reloaded(&after).unwrap().address_key, after.address_key);

    let refused = |addresses| read(&directory, addresses).unwrap_err().to_string();
    assert!(refused("whole").contains("t.toml:1: log.address_key_file: there are no pseudonyms"));
    write("short");
    assert!(refused("pseudonym").contains("log.address_key_file: the key has 5 bytes, and needs"));
    fs::remove_file(directory.join("key")).unwrap();
    assert!(refused("pseudonym").contains("key could not be read"));
    fs::remove_dir_all(&directory).unwrap();
}
