//! See [`turnpike_fuzz::dtls::first_flight`].
#![cfg_attr(fuzzing, no_main)]

turnpike_fuzz::target!(turnpike_fuzz::dtls::first_flight);
