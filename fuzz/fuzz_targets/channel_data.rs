//! See [`turnpike_fuzz::wire::channel_data`].
#![cfg_attr(fuzzing, no_main)]

turnpike_fuzz::target!(turnpike_fuzz::wire::channel_data);
