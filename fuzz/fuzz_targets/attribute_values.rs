//! See [`turnpike_fuzz::wire::attribute_values`].
#![cfg_attr(fuzzing, no_main)]

turnpike_fuzz::target!(turnpike_fuzz::wire::attribute_values);
