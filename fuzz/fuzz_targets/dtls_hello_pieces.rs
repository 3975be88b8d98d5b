//! See [`turnpike_fuzz::dtls::hello_pieces`].
#![cfg_attr(fuzzing, no_main)]

turnpike_fuzz::target!(turnpike_fuzz::dtls::hello_pieces);
