//! See [`turnpike_fuzz::dtls_session::session`].
#![cfg_attr(fuzzing, no_main)]

turnpike_fuzz::target!(turnpike_fuzz::dtls_session::session);
