//! Bodies of the fuzz targets, as plain functions: the ordinary tests of the crates replay the
//! corpora through the same functions. `cargo xtask fuzz` searches for new inputs.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic is a finding")]
#![allow(dead_code, missing_docs, reason = "modules shared with tests")]

pub mod connection;
pub mod dtls;
pub mod dtls_session;
pub mod server;
/// The world of the simulation, whose checks the session keeps.
#[path = "../../crates/turn-proto/tests/sim/mod.rs"]
pub mod sim;
pub mod wire;

#[cfg(fuzzing)]
#[doc(hidden)]
pub use libfuzzer_sys;

/// The program of a target: a fuzzer with `--cfg fuzzing`; otherwise it runs the files that are its
/// arguments, such as the input of a crash.
#[macro_export]
macro_rules! target {
    ($function:path) => {
        #[cfg(fuzzing)]
        use $crate::libfuzzer_sys;
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $function(bytes));

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            $crate::replay($function)
        }
    };
}

/// Runs `function` with the content of each file that is an argument.
///
/// # Errors
/// A file that cannot be read.
pub fn replay(function: fn(&[u8])) -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        function(&std::fs::read(&path)?);
        println!("{}: passed", path.display());
    }
    Ok(())
}
