//! See [`turnpike_fuzz::server::server_session`].
#![cfg_attr(fuzzing, no_main)]

turnpike_fuzz::target!(turnpike_fuzz::server::server_session);
