//! Common part of simulation, model and fuzzing: a server with everything that a process would
//! provide (`driver`), and a record of its grants that judges its actions (`ledger`).

pub mod caller;
pub mod driver;
pub mod ledger;
pub mod setup;
