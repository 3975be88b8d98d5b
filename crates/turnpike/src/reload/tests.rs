use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use control::{OffloadInfo, Request, Wake, WorkerCounters, Workers, mailbox};
use settings::Environment;
use turn_types::Secret;
use user_db::NewUser;

use super::*;

const BASE: &str = "listen = [\"127.0.0.1:3478\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n";

fn settings(tables: &str) -> Settings {
    let text = format!("{BASE}{tables}");
    settings::parse(Path::new("test.toml"), &text, &Environment::empty()).unwrap()
}

fn loaded(settings: Settings) -> Result<LoadedConfiguration> {
    Ok(LoadedConfiguration { settings, certificates: None })
}

/// Starts a worker that applies each command and stores the last policy.
fn worker() -> (Handle, Arc<Mutex<Option<Arc<Policy>>>>) {
    struct Knock(std::sync::mpsc::Sender<()>);
    impl Wake for Knock {
        fn wake(&self) {
            let _ = self.0.send(());
        }
    }
    let (knock, knocks) = channel();
    let (mailbox, inbox) = mailbox(4, Arc::new(Knock(knock)));
    let applied = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&applied);
    std::thread::spawn(move || {
        while knocks.recv().is_ok() {
            match inbox.take() {
                Some(Request::Apply { policy, done }) => {
                    *seen.lock().unwrap() = Some(policy);
                    done(());
                }
                other => panic!("a reload applies and nothing else: {other:?}"),
            }
        }
    });
    let workers = Workers::new(vec![(mailbox, Arc::new(WorkerCounters::new()))]);
    let policy = policy(&settings(""));
    let listeners = vec![([127, 0, 0, 1], 3478).into()];
    let info = boot::info(&policy, &settings(""), listeners, (1, true), OffloadInfo::default());
    (Handle::new(workers, info).0, applied)
}

fn policy(settings: &Settings) -> Policy {
    let own = OwnAddresses::read().unwrap();
    boot::rules(settings, &own, Secret::new([7; 32]), None, 1).unwrap()
}

fn in_force() -> InForce {
    let settings = settings("");
    let policy = Arc::new(policy(&settings));
    let certificates = CertificateReloader::new(&settings).unwrap();
    InForce {
        settings,
        policy,
        log: logging::LogLevel::default(),
        pseudonyms: PseudonymKey::new(Secret::new([7; 32])),
        when_silent: WhenSilentInForce::default(),
        certificates,
        own: OwnAddresses::read().unwrap(),
        devices: Devices::default(),
        certificate_watch: CertificateWatch::new(),
        readable: ReadableFiles::default(),
        revocations: Revocations::read("nowhere/revoked.json".into(), linux_net::Clock::now())
            .unwrap(),
        external_is_silent: false,
        unread_tables: None,
        silent: Silent::default(),
    }
}

fn keys(changes: &[Change]) -> Vec<&str> {
    changes.iter().map(|change| change.key.as_str()).collect()
}

#[tokio::test]
async fn addresses_that_the_host_has_now_are_protected() {
    let (handle, applied) = worker();
    let mut in_force = in_force();
    assert!(in_force.follow_own_addresses(&handle).await);
    assert!(applied.lock().unwrap().is_none(), "nothing changed");

    // As if all addresses had appeared since.
    in_force.own = OwnAddresses::of_nothing();
    let elsewhere = "[relay]\naddresses = [\"auto\"]\nexternal = \"2001:db8::1\"\n";
    in_force.settings = settings::parse(Path::new("t"), elsewhere, &Environment::empty()).unwrap();
    assert!(in_force.follow_own_addresses(&handle).await);
    let policy = applied.lock().unwrap().take().unwrap();
    for ip in OwnAddresses::read().unwrap().host().usable() {
        assert_ne!(policy.peer_rules.judge(*ip), turn_proto::PeerAccess::Allowed, "{ip}");
    }
    assert!(in_force.follow_own_addresses(&handle).await);
    assert!(applied.lock().unwrap().is_none(), "once for each change");
}

#[tokio::test]
async fn applies_what_it_can_and_says_what_has_to_wait() {
    let (handle, applied) = worker();
    let mut in_force = in_force();
    let new = || loaded(settings("[quotas]\nchannels = 9\n[workers]\ncount = 7\n"));
    let report = in_force.reload(&handle, new(), false).await;
    assert_eq!(report.refused, None);
    assert_eq!(keys(&report.applied), ["quotas.channels"]);
    assert_eq!(keys(&report.needs_restart), ["workers.count"]);
    let policy = applied.lock().unwrap().clone().unwrap();
    assert_eq!(policy.quotas.channels, 9);
    assert_eq!(*policy.auth.nonce_key.expose(), [7; 32], "nobody has to log in again");
    let before = Arc::clone(&policy.relay[0].ports);

    let report = in_force.reload(&handle, new(), false).await;
    assert_eq!(keys(&report.applied), [""; 0]);
    assert_eq!(keys(&report.needs_restart), ["workers.count"], "it still waits");
    let policy = applied.lock().unwrap().clone().unwrap();
    assert!(Arc::ptr_eq(&before, &policy.relay[0].ports), "ports in use stay known");
}

/// Loads a configuration with a certificate from these files.
fn with_certificate(directory: &Path) -> Settings {
    let path = directory.display();
    settings(&format!(
        "[tls]\ncertificates = [{{ chain = \"{path}/x.pem\", key = \"{path}/x.key\" }}]\n"
    ))
}

fn put_certificate(directory: &Path) {
    let params = rcgen::CertificateParams::new(["turn.example.org".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(directory.join("x.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(directory.join("x.key"), key.serialize_pem()).unwrap();
}

/// A file on a disk that hangs stops neither the loop nor a reload.
#[tokio::test]
async fn certificates_are_read_on_another_thread() {
    let directory = crate::testing::Directory::new("certificates-read");
    put_certificate(directory.path());
    let (handle, _applied) = worker();
    let mut in_force = in_force();
    in_force.settings = with_certificate(directory.path());
    let (watch, release) = CertificateWatch::hanging();
    in_force.certificate_watch = watch;
    in_force.watch_certificates();
    in_force.reload_certificates();
    let report = in_force.reload(&handle, loaded(in_force.settings.clone()), false).await;
    assert_eq!(report.refused, None);
    drop(release);
    assert!(in_force.certificate_watch.next().await.is_none(), "from before the reload");
    assert!(in_force.certificates.infos().is_empty());

    // The operator's signal arrived during the read.
    in_force.watch_certificates();
    let read = in_force.certificate_watch.next().await.unwrap();
    in_force.take_certificates(&handle, read);
    assert_eq!(in_force.certificates.infos().len(), 1);
    in_force.watch_certificates();
    assert!(in_force.certificate_watch.next().await.is_none(), "no file has changed");
}

/// Clients must not receive addresses without a listener.
#[tokio::test]
async fn discovery_waits_for_a_restart() {
    let (handle, applied) = worker();
    let mut in_force = in_force();
    let on = "[discovery]\naddresses = [\"127.0.0.1\", \"127.0.0.2\"]\n";
    let report = in_force.reload(&handle, loaded(settings(on)), false).await;
    assert_eq!(keys(&report.needs_restart), ["discovery.addresses"]);
    assert_eq!(applied.lock().unwrap().clone().unwrap().discovery, []);
}

#[tokio::test]
async fn whatever_is_wrong_leaves_everything_as_it_was() {
    let (handle, applied) = worker();
    let mut in_force = in_force();
    let broken = || Err(Failure::usage(anyhow!("line 3: no")));
    let report = in_force.reload(&handle, broken(), false).await;
    assert!(report.refused.unwrap().contains("line 3"));

    let elsewhere = || {
        let text = "realm = \"x\"\n[relay]\naddresses = [\"192.0.2.1\"]\n";
        loaded(settings::parse(Path::new("t"), text, &Environment::empty()).unwrap())
    };
    let report = in_force.reload(&handle, elsewhere(), false).await;
    assert!(report.refused.unwrap().contains("192.0.2.1"), "not an address of this host");
    assert!(report.applied.is_empty());
    assert!(applied.lock().unwrap().is_none());
    assert_eq!(in_force.settings, settings(""));
}

#[tokio::test]
async fn a_reload_sees_which_keys_users_have() {
    let directory = crate::testing::Directory::new("keys-at-reload");
    let (handle, applied) = worker();
    let mut in_force = in_force();
    in_force.settings.set_data_directory(directory.path().to_owned());
    let new = || {
        let mut new = settings("[[realms]]\nname = \"b\"\n[[realms]]\nname = \"c\"\n");
        new.set_data_directory(directory.path().to_owned());
        loaded(new)
    };
    let mut store = users::editor(&in_force.settings.user_database()).unwrap();
    let password = Secret::new("secret-of-bob".to_owned());
    store.add(&NewUser::new("b", "bob", &password, None).unwrap()).unwrap();
    store.add(&NewUser::with_md5("c", "carol", Secret::new([7; 16]), None).unwrap()).unwrap();
    let report = in_force.reload(&handle, new(), false).await;
    assert_eq!(report.refused, None);
    let policy = applied.lock().unwrap().clone().unwrap();
    let offers = |name: &str| policy.realms.named(name).unwrap().auth.sha256;
    assert_eq!((offers("b"), offers("c"), policy.auth.sha256), (true, false, true));
}

/// Covers both directions. After the switch-off no client can request TCP.
#[tokio::test]
async fn relaying_of_tcp_is_switched_off_and_on() {
    let (handle, applied) = worker();
    let mut in_force = in_force();
    for on in [true, false, true] {
        let new = || loaded(settings(&format!("[tcp]\nrelaying = {on}\n")));
        let report = in_force.reload(&handle, new(), false).await;
        assert_eq!(keys(&report.applied), ["tcp.relaying"]);
        assert_eq!(applied.lock().unwrap().clone().unwrap().tcp_relaying, on);
    }
}

/// The listeners remain until a restart, so their ports are not allocated.
#[tokio::test]
async fn ports_that_are_listened_at_now_are_not_relayed_from() {
    let (handle, applied) = worker();
    let mut in_force = in_force();
    let elsewhere = || {
        let text = "listen = [\"127.0.0.1:1\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
                    ports = \"3000-4000\"\n";
        loaded(settings::parse(Path::new("t"), text, &Environment::empty()).unwrap())
    };
    let refused = in_force.reload(&handle, elsewhere(), false).await.refused.unwrap();
    assert!(refused.contains("relay.ports: port 3478 of 3000-4000"), "{refused}");
    assert!(applied.lock().unwrap().is_none());
}
