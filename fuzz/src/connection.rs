//! First bytes of a connection: a load balancer's header, an HTTP request, or neither. The decision
//! does not depend on the segmentation.

use turn_session::proxy_protocol::{self, HEADER_MAX};
use turn_session::{HttpRequest, StreamProtocol, classify_request, detect_protocol};

/// The first bytes of a connection.
pub fn beginning(bytes: &[u8]) {
    assert_eq!(detect_protocol(bytes).is_none(), bytes.is_empty());
    let whole = proxy_protocol::read(bytes);
    let asked = classify_request(bytes);
    match whole {
        Ok(Some(header)) => assert!(header.len <= bytes.len().min(HEADER_MAX)),
        Ok(None) => assert!(bytes.len() < HEADER_MAX, "waits for ever"),
        Err(_) => {}
    }
    if let HttpRequest::Challenge(token) = asked {
        assert_eq!(detect_protocol(bytes), Some(StreamProtocol::Http));
        assert!(!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    for len in 0..bytes.len().min(HEADER_MAX + 1) {
        match proxy_protocol::read(&bytes[..len]) {
            Ok(None) => {}
            decided => assert_eq!(decided, whole, "{len} bytes"),
        }
        let decided = classify_request(&bytes[..len]);
        assert!(decided == HttpRequest::Incomplete || decided == asked, "{len} bytes");
    }
}
