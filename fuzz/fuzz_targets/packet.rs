//! See [`turnpike_fuzz::wire::packet`].
#![cfg_attr(fuzzing, no_main)]

turnpike_fuzz::target!(turnpike_fuzz::wire::packet);
