//! A client of another library, over a pair of sockets.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use openssl::ssl::{
    HandshakeError, MidHandshakeSslStream, ShutdownResult, SslConnector, SslMethod, SslStream,
    SslVerifyMode, SslVersion,
};
use state_format::{Value as _, Writer};
use turn_session::Tls;

use super::support::{NAME, resume, server};

/// A server that echoes all data over a socket.
struct Echo {
    socket: UnixStream,
    tls: Tls,
}

impl Echo {
    fn serve(&mut self) {
        let Self { socket, tls } = self;
        let mut bytes = vec![0; 70_000];
        let len = socket.read(&mut bytes).unwrap_or(0);
        let mut room = vec![0; 100_000];
        let heard = tls.take(&bytes[..len], &mut room).unwrap();
        assert_eq!(tls.write([&room[..heard], &[]]), heard);
        self.flush();
    }

    fn flush(&mut self) {
        while self.tls.wants_write() {
            self.tls.write_to(&mut self.socket).unwrap();
        }
    }

    fn moved(self) -> Self {
        let mut out = Writer::new();
        self.tls.leave().unwrap().write(&mut out);
        Self { tls: resume(&out.into_bytes()), ..self }
    }
}

fn connect(version: SslVersion, suites: &str) -> (Echo, SslStream<UnixStream>) {
    let (socket, theirs) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut connector = SslConnector::builder(SslMethod::tls()).unwrap();
    connector.set_verify(SslVerifyMode::NONE);
    connector.set_min_proto_version(Some(version)).unwrap();
    connector.set_max_proto_version(Some(version)).unwrap();
    if version == SslVersion::TLS1_3 {
        connector.set_ciphersuites(suites).unwrap();
    } else {
        connector.set_cipher_list(suites).unwrap();
    }
    let mut echo = Echo { socket, tls: Tls::new(&server().0).unwrap() };
    let mut begun = connector.build().connect(NAME, theirs);
    let stream = loop {
        match begun {
            Ok(stream) => break stream,
            Err(HandshakeError::WouldBlock(waits)) => {
                echo.serve();
                begun = MidHandshakeSslStream::handshake(waits);
            }
            Err(error) => panic!("{error}"),
        }
    };
    echo.serve();
    (echo, stream)
}

fn notices_nothing(version: SslVersion, suites: &str) {
    let (mut echo, mut stream) = connect(version, suites);
    assert_eq!(stream.ssl().version2(), Some(version));
    for number in 0..200_u8 {
        let said = vec![number; 1 + usize::from(number) * 50];
        stream.write_all(&said).unwrap();
        echo.serve();
        let mut heard = vec![0; said.len()];
        stream.read_exact(&mut heard).unwrap();
        assert!(heard == said, "{number}");
        if number % 20 == 0 {
            echo = echo.moved();
        }
    }
    assert_eq!(stream.shutdown().unwrap(), ShutdownResult::Sent);
    echo.serve();
    assert!(echo.tls.has_ended());
    echo.tls.end();
    echo.flush();
    assert_eq!(stream.shutdown().unwrap(), ShutdownResult::Received);
}

#[test]
fn openssl_notices_nothing_of_tls_1_2() {
    for suite in ["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"] {
        for key in ["ECDHE-RSA", "ECDHE-ECDSA"] {
            notices_nothing(SslVersion::TLS1_2, &format!("{key}-{suite}"));
        }
    }
}

#[test]
fn openssl_notices_nothing_of_tls_1_3() {
    for suite in ["AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256"] {
        notices_nothing(SslVersion::TLS1_3, &format!("TLS_{suite}"));
    }
}
