//! Registry of STUN error codes, with their reason phrases.

/// Returns the registered reason phrase of an error code (RFC 8489 §18.4, RFC 8656 §19, RFC 6062
/// §6.3, RFC 8016 §7, RFC 8445 §15.2). Empty for an unregistered code.
#[must_use]
pub const fn reason_phrase(code: u16) -> &'static str {
    match code {
        300 => "Try Alternate",
        400 => "Bad Request",
        401 => "Unauthenticated",
        403 => "Forbidden",
        405 => "Mobility Forbidden",
        420 => "Unknown Attribute",
        437 => "Allocation Mismatch",
        438 => "Stale Nonce",
        440 => "Address Family not Supported",
        441 => "Wrong Credentials",
        442 => "Unsupported Transport Protocol",
        443 => "Peer Address Family Mismatch",
        446 => "Connection Already Exists",
        447 => "Connection Timeout or Failure",
        486 => "Allocation Quota Reached",
        487 => "Role Conflict",
        500 => "Server Error",
        508 => "Insufficient Capacity",
        _ => "",
    }
}
