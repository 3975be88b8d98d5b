//! Messages of the running server to its service manager (sd_notify(3)), and the signals that
//! coturn's users send.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io};

use e2e::certificates::ECDSA;
use e2e::{Account, Caller, Certificates, Config, Host, Lab, Server, require};
use lab_net::StoppedThread;
use turn_types::IpFamily;

const PATIENCE: Duration = Duration::from_secs(60);

/// The place of the manager's socket.
enum Place {
    Path,
    Abstract,
}

/// A service manager: its socket, and the messages so far.
struct Manager {
    socket: UnixDatagram,
    variable: String,
    path: Option<PathBuf>,
    messages: Vec<String>,
}

impl Manager {
    fn new(lab: &Lab, place: &Place) -> Self {
        let name = format!("{}-notify", lab.namespace(Host::Server));
        let (address, variable, path) = match place {
            Place::Path => {
                let path = std::env::temp_dir().join(name);
                drop(fs::remove_file(&path));
                let address = SocketAddr::from_pathname(&path);
                (address, path.display().to_string(), Some(path))
            }
            Place::Abstract => (SocketAddr::from_abstract_name(&name), format!("@{name}"), None),
        };
        // An abstract name belongs to a network namespace.
        let namespace = format!("/run/netns/{}", lab.namespace(Host::Server));
        let bind = move || {
            lab_net::enter_network_namespace(fs::File::open(namespace)?)?;
            UnixDatagram::bind_addr(&address?)
        };
        let socket = std::thread::spawn(bind).join().expect("a result").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
        Self { socket, variable, path, messages: Vec::new() }
    }

    /// Starts a server under this manager.
    fn start(&self, lab: &Lab, mut config: Config) -> Server {
        config.through = vec![
            "env".to_owned(),
            format!("NOTIFY_SOCKET={}", self.variable),
            "WATCHDOG_USEC=30000000".to_owned(),
        ];
        Server::start(lab, &config)
    }

    fn receive(&mut self) {
        let mut bytes = [0; 4096];
        match self.socket.recv(&mut bytes) {
            Ok(length) => {
                self.messages.push(String::from_utf8_lossy(&bytes[..length]).into_owned())
            }
            // A stopped child interrupts the wait.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => panic!("the manager's socket: {error}"),
        }
    }

    /// Waits for a message that begins so, and returns its index among those since `from`.
    #[track_caller]
    fn wait_for(&mut self, message: &str, from: usize, server: &Server) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rest = self.messages.iter().skip(from);
            if let Some(index) = rest.enumerate().find(|(_, one)| one.starts_with(message)) {
                return from + index.0;
            }
            assert!(
                Instant::now() < deadline,
                "no {message} in {:?}\n{}",
                &self.messages[from..],
                server.process.output()
            );
            self.receive();
        }
    }

    /// Reads the messages until the server has ended.
    fn wait_for_end(&mut self, server: &mut Server) -> bool {
        while fs::metadata(format!("/proc/{}/fd/0", server.process.pid())).is_ok() {
            self.receive();
        }
        server.process.wait(PATIENCE)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            drop(fs::remove_file(path));
        }
    }
}

fn call(lab: &Lab) -> Caller {
    let account = Account { name: "alice", password: "correct-horse-battery" };
    let socket = lab.socket(Host::Client, (lab.v4.client, 0));
    Caller::allocate(socket, (lab.v4.listen, 3478).into(), account, IpFamily::V4)
}

#[test]
fn a_manager_is_notified_of_the_start_of_reloads_and_of_the_end() {
    for place in [Place::Path, Place::Abstract] {
        let Some(lab) = require(Lab::new()) else { return };
        let mut manager = Manager::new(&lab, &place);
        let mut config = Config::for_lab(&lab);
        let mut server = manager.start(&lab, config.clone());
        // Confined, as ever.
        let confined = &server.json(&["status"])["confinement"];
        assert_eq!(
            (&confined["landlock"]["on"], &confined["seccomp"]["on"]),
            (&true.into(), &true.into())
        );

        let ready = manager.wait_for("READY=1", 0, &server);
        assert_eq!(ready, 0, "{:?}", manager.messages);
        manager.wait_for("WATCHDOG=1", 0, &server);
        let status = manager.wait_for("STATUS=", 0, &server);
        assert_eq!(manager.messages[status], "STATUS=0 allocations are live");

        // As of systemd 253 (Type=notify-reload), and by the command.
        server.process.signal("HUP");
        let reloading = manager.wait_for("RELOADING=1", ready, &server);
        assert!(
            manager.messages[reloading].contains("\nMONOTONIC_USEC="),
            "{:?}",
            manager.messages
        );
        let ready = manager.wait_for("READY=1", reloading, &server);
        config.top = "relm = 5\n".to_owned();
        server.rewrite(&config);
        assert!(!server.ask(&["reload"]).ok);
        let reloading = manager.wait_for("RELOADING=1", ready, &server);
        let ready = manager.wait_for("READY=1", reloading, &server);
        let status = manager.wait_for("STATUS=", ready, &server);
        assert!(manager.messages[status].contains("the last reload was refused"));

        server.process.signal("TERM");
        manager.wait_for("STOPPING=1", ready, &server);
        assert!(manager.wait_for_end(&mut server));
    }
}

/// A drain takes longer than the manager's deadline for the end.
#[test]
fn the_deadline_for_the_end_is_extended_while_calls_are_drained() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut manager = Manager::new(&lab, &Place::Abstract);
    let mut config = Config::for_lab(&lab);
    config.tables = "[shutdown]\ndrain = \"10 min\"\n".to_owned();
    let mut server = manager.start(&lab, config);
    let _call = call(&lab);
    server.process.signal("TERM");
    let stopping = manager.wait_for("STOPPING=1", 0, &server);
    let first = manager.wait_for("EXTEND_TIMEOUT_USEC=30000000", stopping, &server);
    let second = manager.wait_for("EXTEND_TIMEOUT_USEC=30000000", first + 1, &server);
    manager.wait_for("EXTEND_TIMEOUT_USEC=30000000", second + 1, &server);
    let status = manager.wait_for("STATUS=draining: 1 allocation is live; ends in ", 0, &server);
    assert!(manager.messages[status].ends_with(" min at the latest"), "{:?}", manager.messages);
    server.process.signal("TERM");
    assert!(manager.wait_for_end(&mut server));
}

/// A worker that hangs ends the process in the end; until then the manager gets no heartbeat.
#[test]
fn a_hung_worker_gets_no_heartbeat() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut manager = Manager::new(&lab, &Place::Path);
    let mut server = manager.start(&lab, Config::for_lab(&lab));
    let beat = manager.wait_for("WATCHDOG=1", 0, &server);
    manager.wait_for("WATCHDOG=1", beat + 1, &server);
    let Some(stopped) = require(StoppedThread::stop(worker(&server))) else { return };
    let hangs = manager.wait_for("STATUS=a worker has done nothing for 5 s", 0, &server);
    // The process waits for the worker before it ends; a killed one does not.
    server.process.wait_for("has done nothing for 15 s", PATIENCE);
    drop(stopped);
    assert!(!manager.wait_for_end(&mut server));
    let since = &manager.messages[hangs..];
    assert!(!since.iter().any(|message| message == "WATCHDOG=1"), "{since:?}");
}

/// The id of the first worker's thread.
fn worker(server: &Server) -> i32 {
    let tasks = format!("/proc/{}/task", server.process.pid());
    let mut tasks =
        fs::read_dir(&tasks).expect("its threads").map(|task| task.expect("one").path());
    let worker = tasks.find(|task| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "worker-0")
    });
    let name = worker.as_ref().and_then(|task| task.file_name()?.to_str()?.parse().ok());
    name.expect("a worker")
}

#[test]
fn sigusr1_drains_as_it_does_with_coturn() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut server = Server::start(&lab, &Config::for_lab(&lab));
    let mut call = call(&lab);
    server.process.signal("USR1");
    server.process.wait_for("draining", PATIENCE);
    let status = server.json(&["status"]);
    assert_eq!((&status["draining"], &status["allocations"]["live"]), (&true.into(), &1.into()));
    let left = || server.json(&["status"])["drain_seconds_left"].as_u64();
    assert!(left().is_some_and(|seconds| seconds > 6 * 86_400), "as long as it takes: {status}");
    // Again: it changes nothing.
    server.process.signal("USR1");
    call.release();
    assert!(server.process.wait(PATIENCE), "{}", server.process.output());
}

/// Also if the files have not changed: coturn's users send it after each renewal.
#[test]
fn sigusr2_reloads_the_certificates() {
    let Some(lab) = require(Lab::new()) else { return };
    let certificates = Certificates::new(&lab);
    certificates.make("x", "turn.example.org", ECDSA, "90");
    let mut config = Config::for_lab(&lab);
    config.tables = format!(
        "[tls]\ncertificates = [{{ chain = \"{}\", key = \"{}\" }}]\n",
        certificates.path("x.pem").display(),
        certificates.path("x.key").display()
    );
    let mut server = Server::start(&lab, &config);
    server.process.signal("USR2");
    server.process.wait_for("new certificates are in force", PATIENCE);
    fs::write(certificates.path("x.pem"), "nonsense").expect("written");
    server.process.signal("USR2");
    server.process.wait_for("the previous one stays", PATIENCE);
    assert_eq!(server.json(&["status"])["certificates"].as_array().map(Vec::len), Some(1));
}
