//! Requests to servers on this host, over sockets.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use outgoing_http::{Bounds, Client, HttpError, Roots, Url};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

const BODY_MAX: usize = 1000;
const BOUNDS: Bounds = Bounds { deadline: Duration::from_secs(20), body: BODY_MAX };

/// Reads a request, with a body if there is one.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let head = text.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        if let Some(head) = head {
            let heading = String::from_utf8_lossy(&text[..head]).to_lowercase();
            let length = heading.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if text.len() >= head + 4 + length {
                return String::from_utf8(text).unwrap();
            }
        }
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the client left early");
        text.extend_from_slice(&buffer[..read]);
    }
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), status: &str, body: &str) {
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{body}", body.len());
    let (head, body) = text.split_at(text.len() - body.len());
    let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes()).await;
}

/// A server for one connection and one request, which it returns.
async fn server(status: &'static str, body: String) -> (Url, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/path?query=1", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let text = request(&mut stream).await;
        answer(&mut stream, status, &body).await;
        text
    });
    (Url::parse(&url).unwrap(), served)
}

fn client() -> Client {
    Client::new(&Roots::public()).unwrap()
}

#[tokio::test]
async fn a_document_is_posted_with_headers_and_the_response_returned() {
    let (url, served) = server("201 Created", "{}".to_owned()).await;
    let headers = [("authorization", "Bearer 1"), ("x-signature", "abc")];
    let answer = client().post_json(&url, &headers, b"[1]".to_vec(), BOUNDS).await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (201, b"{}".as_slice()));
    assert!(answer.is_success());
    let request = served.await.unwrap();
    assert!(request.starts_with("POST /path?query=1 HTTP/1.1\r\n"), "{request}");
    for line in ["authorization: Bearer 1", "x-signature: abc", "content-type: application/json"] {
        assert!(request.contains(&format!("{line}\r\n")), "{request}");
    }
    assert!(request.ends_with("\r\n\r\n[1]"), "{request}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (url, served) =
        server("302 Found\r\nlocation: http://127.0.0.1:1/other", "moved".to_owned()).await;
    let answer = client().get(&url, &[], BOUNDS).await.unwrap();
    assert_eq!((answer.status, answer.is_success()), (302, false));
    assert!(served.await.unwrap().starts_with("GET /path?query=1 HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_response_is_bounded_in_size_and_time() {
    let (url, _) = server("200 OK", "x".repeat(BODY_MAX)).await;
    let answer = client().get(&url, &[], BOUNDS).await.unwrap();
    assert_eq!(answer.body.len(), BODY_MAX);
    let (url, _) = server("200 OK", "x".repeat(BODY_MAX + 1)).await;
    let answer = client().get(&url, &[], BOUNDS).await;
    assert_eq!(answer, Err(HttpError::TooLarge(BODY_MAX)));

    // A server that accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", silent.local_addr().unwrap())).unwrap();
    let answer =
        client().get(&url, &[], Bounds { deadline: Duration::from_millis(100), ..BOUNDS }).await;
    assert_eq!(answer, Err(HttpError::TooSlow));
    // And none at all.
    drop(silent);
    let answer = client().get(&url, &[], BOUNDS).await;
    let Err(HttpError::Unreachable(why)) = answer else { panic!("{answer:?}") };
    assert!(why.contains("refused"), "the cause is told: {why}");
}

#[tokio::test]
async fn a_header_with_a_line_break_is_refused() {
    let url = Url::parse("http://127.0.0.1:1/").unwrap();
    let answer = client().get(&url, &[("authorization", "a\r\nb: c")], BOUNDS).await;
    assert_eq!(answer, Err(HttpError::Header("authorization".to_owned())));
}

#[tokio::test]
async fn only_certificates_of_the_roots_are_trusted() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    let url = Url::parse(&url).unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust the certificate ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            request(&mut stream).await;
            answer(&mut stream, "200 OK", "trusted").await;
        }
    });

    let path = std::env::temp_dir().join(format!("outgoing-http-{}.pem", std::process::id()));
    std::fs::write(&path, cert.pem()).unwrap();
    let own = Client::new(&Roots::read(&path).unwrap()).unwrap();
    std::fs::write(&path, "no certificate").unwrap();
    let refused = Roots::read(&path).unwrap_err().to_string();
    assert!(refused.ends_with("no certificate found (expected PEM)"), "{refused}");
    std::fs::remove_file(&path).unwrap();

    let answer = own.get(&url, &[], BOUNDS).await.unwrap();
    assert_eq!(answer.body, b"trusted");
    let Err(HttpError::Unreachable(why)) = client().get(&url, &[], BOUNDS).await else {
        panic!("a foreign certificate was trusted");
    };
    assert!(why.contains("certificate"), "{why}");
}

/// A web server may close a connection that it has kept at any time, also without notice.
#[tokio::test]
async fn a_request_on_a_connection_that_the_service_closes_is_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let served = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        request(&mut first).await;
        answer(&mut first, "200 OK", "one").await;
        // It has the next request, and answers nothing.
        request(&mut first).await;
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        let text = request(&mut second).await;
        answer(&mut second, "200 OK", "two").await;
        (text, listener)
    });
    let client = client();
    let post = || client.post_json(&url, &[], b"{}".to_vec(), BOUNDS);
    assert_eq!(post().await.unwrap().body, b"one");
    assert_eq!(post().await.unwrap().body, b"two");
    let (text, listener) = served.await.unwrap();
    assert!(text.ends_with("{}"));
    // A service that closes each connection is asked a few times.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            request(&mut stream).await;
        }
    });
    let error = post().await.unwrap_err();
    assert!(matches!(error, HttpError::BrokenOff(_)), "{error:?}");
}
