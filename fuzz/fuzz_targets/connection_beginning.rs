//! See [`turnpike_fuzz::connection::beginning`].
#![cfg_attr(fuzzing, no_main)]

turnpike_fuzz::target!(turnpike_fuzz::connection::beginning);
