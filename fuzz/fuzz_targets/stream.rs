//! See [`turnpike_fuzz::wire::stream`].
#![cfg_attr(fuzzing, no_main)]

turnpike_fuzz::target!(turnpike_fuzz::wire::stream);
