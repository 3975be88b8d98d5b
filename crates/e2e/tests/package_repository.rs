//! `scripts/build-repository`: apt accepts the repository with its key, and refuses what was
//! changed afterwards. apt has separate package lists, sources and keys, and reads the repository
//! as files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::{Tool, repository, skip};

const PATIENCE: Duration = Duration::from_secs(60);

/// Address of the key that signs.
const SIGNER: &str = "packages@localhost";

/// A directory with a keyring, packages, a repository and the files of apt.
struct Scene(PathBuf);

impl Scene {
    /// Returns `None` if a tool is missing.
    fn new(name: &str) -> Option<Self> {
        for tool in ["apt-get", "dpkg-scanpackages", "gpg"] {
            if Command::new(tool).arg("--version").output().is_err() {
                skip(format!("{tool} is not installed"));
                return None;
            }
        }
        let root = std::env::temp_dir().join(format!("tp{}-{name}", std::process::id()));
        drop(fs::remove_dir_all(&root));
        for directory in
            ["keys", "apt/state/lists/partial", "apt/cache/archives/partial", "apt/parts", "got"]
        {
            fs::create_dir_all(root.join(directory)).expect("a directory");
        }
        fs::set_permissions(root.join("keys"), fs::Permissions::from_mode(0o700)).expect("a mode");
        let scene = Self(root);
        scene.make_key(SIGNER);
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn make_key(&self, address: &str) {
        let options = ["--batch", "--passphrase", "", "--quick-generate-key"];
        let mut gpg = Command::new("gpg");
        gpg.args(options).args([address, "ed25519", "sign", "1d"]);
        let made = Tool::run(gpg.env("GNUPGHOME", self.path("keys")), PATIENCE);
        assert!(made.ok, "{}", made.output);
    }

    /// Builds a package with the size of a few bytes.
    fn package(&self, version: &str, architecture: &str, text: &str) -> PathBuf {
        let tree = self.path("tree");
        fs::create_dir_all(tree.join("DEBIAN")).expect("a directory");
        let control = format!(
            "Package: turnpike\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: T <t@localhost>\nDescription: TURN and STUN server\n"
        );
        fs::write(tree.join("DEBIAN/control"), control).expect("written");
        fs::write(tree.join("file"), text).expect("written");
        let package = self.path(&format!("{version}-{architecture}.deb"));
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "--build"]).arg(&tree).arg(&package);
        let built = Tool::run(&mut build, PATIENCE);
        assert!(built.ok, "{}", built.output);
        package
    }

    fn publish(&self, signer: &str, packages: &[&Path]) -> Tool {
        let mut script = Command::new(repository().join("scripts/build-repository"));
        script.args(["--key", signer]).arg(self.path("repository")).args(packages);
        Tool::run(script.env("GNUPGHOME", self.path("keys")), PATIENCE)
    }

    #[track_caller]
    fn published(&self, packages: &[&Path]) {
        let out = self.publish(SIGNER, packages);
        assert!(out.ok, "{}", out.output);
        assert!(out.output.trim().ends_with("dists/stable/InRelease"), "{}", out.output);
    }

    /// Runs apt-get for a machine of an architecture, with no files but the scene's.
    fn apt(&self, architecture: &str, arguments: &[&str]) -> Tool {
        let root = self.0.display();
        let configuration = format!(
            "Dir \"{root}/apt\";\nDir::State \"{root}/apt/state\";\n\
             Dir::State::status \"{root}/apt/status\";\nDir::Cache \"{root}/apt/cache\";\n\
             Dir::Etc::sourcelist \"{root}/apt/sources.list\";\nDir::Etc::sourceparts \"{root}/apt/parts\";\n\
             Dir::Etc::trustedparts \"{root}/apt/parts\";\nAPT::Architecture \"{architecture}\";\n\
             APT::Architectures {{ \"{architecture}\"; }};\nAPT::Sandbox::User \"root\";\n"
        );
        let source =
            format!("deb [signed-by={root}/key.gpg] file://{root}/repository stable main\n");
        fs::write(self.path("apt.conf"), configuration).expect("written");
        fs::write(self.path("apt/sources.list"), source).expect("written");
        fs::write(self.path("apt/status"), "").expect("written");
        let mut apt = Command::new("apt-get");
        // `apt-get download` writes to the current directory.
        apt.args(arguments).env("APT_CONFIG", self.path("apt.conf")).current_dir(self.path("got"));
        Tool::run(&mut apt, PATIENCE)
    }

    #[track_caller]
    fn downloads(&self, architecture: &str, package: &Path) {
        for arguments in [&["update"][..], &["download", "turnpike"]] {
            let out = self.apt(architecture, arguments);
            assert!(out.ok, "{}", out.output);
        }
        let mut got = fs::read_dir(self.path("got")).expect("a list");
        let file = got.next().expect("a package").expect("a package").path();
        assert!(file.to_string_lossy().contains(architecture), "{}", file.display());
        assert_eq!(fs::read(&file).expect("got"), fs::read(package).expect("made"));
        fs::remove_file(file).expect("removed");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let mut end = Command::new("gpgconf");
        drop(end.args(["--kill", "all"]).env("GNUPGHOME", self.path("keys")).status());
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Installs the repository's key, as an administrator does once.
fn trust(scene: &Scene) {
    let key = scene.path("repository/turnpike-archive-keyring.gpg");
    fs::copy(key, scene.path("key.gpg")).expect("the key");
}

#[test]
fn apt_downloads_from_the_repository_and_refuses_changed_packages() {
    let Some(scene) = Scene::new("repository") else { return };
    let amd64 = scene.package("0.2.0", "amd64", "of amd64");
    let arm64 = scene.package("0.2.0", "arm64", "of arm64");
    scene.published(&[&amd64, &arm64]);
    trust(&scene);
    scene.downloads("amd64", &amd64);
    scene.downloads("arm64", &arm64);

    // A later version in addition to the first.
    let later = scene.package("0.2.1", "amd64", "later");
    scene.published(&[&later]);
    scene.downloads("amd64", &later);
    scene.downloads("arm64", &arm64);

    // A version that was published does not change.
    let other = scene.package("0.2.1", "amd64", "other");
    let refused = scene.publish(SIGNER, &[&other]);
    assert!(!refused.ok);
    assert!(refused.output.contains("another turnpike_0.2.1_amd64.deb"), "{}", refused.output);
    scene.downloads("arm64", &arm64);

    // An intruder changes the package on the web server.
    let held = scene.path("repository/pool/main/turnpike_0.2.0_arm64.deb");
    fs::copy(&other, held).expect("changed");
    let download = scene.apt("arm64", &["download", "turnpike"]);
    assert!(!download.ok);
    assert!(download.output.contains("Hash Sum mismatch"), "{}", download.output);
}

#[test]
fn apt_refuses_a_changed_index_and_another_signer() {
    let Some(scene) = Scene::new("signatures") else { return };
    let package = scene.package("0.2.0", "amd64", "of amd64");
    scene.published(&[&package]);
    trust(&scene);
    let release = scene.path("repository/dists/stable/InRelease");
    let text = fs::read_to_string(&release).expect("signed");
    fs::write(&release, text.replace("Label: Turnpike", "Label: Turnpyke")).expect("changed");
    let update = scene.apt("amd64", &["update"]);
    assert!(!update.ok, "{}", update.output);
    assert!(update.output.contains("BADSIG"), "{}", update.output);

    let stranger = "stranger@localhost";
    let unknown = scene.publish(stranger, &[&package]);
    assert!(!unknown.ok);
    assert!(unknown.output.contains("no secret key stranger@localhost"), "{}", unknown.output);
    scene.make_key(stranger);
    assert!(scene.publish(stranger, &[&package]).ok);
    let update = scene.apt("amd64", &["update"]);
    assert!(!update.ok, "{}", update.output);
    assert!(update.output.contains("NO_PUBKEY"), "{}", update.output);
}
