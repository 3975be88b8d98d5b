//! See [`turnpike_fuzz::wire::message`].
#![cfg_attr(fuzzing, no_main)]

turnpike_fuzz::target!(turnpike_fuzz::wire::message);
