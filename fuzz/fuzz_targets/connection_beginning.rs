#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turnpike_fuzz::connection::beginning(bytes));
