//! Slow services: a user database, and an authorizer (a web service that decides about
//! allocations).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use e2e::{Host, Lab};
use test_support::{DatabaseKind, DatabaseServer};

/// Time of each response: a busy service on another host of the site.
const TIME: Duration = Duration::from_millis(20);

/// Concurrent questions of each service: hundreds per second are too many.
const CONCURRENT: usize = 2;

/// Port of the web service.
const PORT: u16 = 9700;

/// A database server and a web service in the server's host. The web service runs until the program
/// exits.
pub(crate) struct Services(DatabaseServer);

impl Services {
    /// Starts both.
    ///
    /// # Errors
    /// PostgreSQL or coturn, which has its tables, is not installed.
    pub(crate) fn start(lab: &Lab, namespace: File) -> Result<Self, String> {
        let entered = std::thread::spawn(move || -> io::Result<TcpListener> {
            lab_net::enter_network_namespace(namespace)?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))
        });
        let listener = entered.join().expect("a listener").map_err(|error| error.to_string())?;
        let listener = Arc::new(listener);
        for _ in 0..CONCURRENT {
            let listener = Arc::clone(&listener);
            std::thread::spawn(move || decide_all(&listener));
        }
        let name = lab.namespace(Host::Server);
        let through = ["ip", "netns", "exec", &name];
        DatabaseServer::start_through(DatabaseKind::Postgres, &through).map(Self)
    }

    /// Tables of the configuration for both.
    pub(crate) fn tables(&self) -> String {
        format!(
            "[users]\ndatabase = \"{}\"\n\
             [authorizer]\nurl = \"http://127.0.0.1:{PORT}/\"\n",
            self.0.url()
        )
    }

    /// Delays each look-up of a user by [`TIME`], with [`CONCURRENT`] at a time.
    pub(crate) fn slow_down(&self) {
        let seconds = TIME.as_secs_f64();
        self.0.run(&format!(
            "ALTER TABLE turnusers_lt RENAME TO quick_users;
             CREATE VIEW turnusers_lt AS
             SELECT * FROM quick_users WHERE (
                 SELECT pg_sleep({seconds})
                 FROM pg_advisory_xact_lock(floor(random() * {CONCURRENT})::int)
             ) IS NOT NULL;"
        ));
    }
}

/// Permits every allocation, one question after the other.
fn decide_all(listener: &TcpListener) {
    crate::phase::precede_attackers();
    for stream in listener.incoming().flatten() {
        // The server may have exited.
        let _ = decide(stream);
    }
}

fn decide(mut stream: TcpStream) -> io::Result<()> {
    let mut question = BufReader::new(stream.try_clone()?);
    let mut len = 0;
    loop {
        let mut line = String::new();
        if question.read_line(&mut line)? <= 2 {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            len = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    io::copy(&mut question.take(len), &mut io::sink())?;
    std::thread::sleep(TIME);
    stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
}
