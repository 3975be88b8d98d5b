//! What simulation, model and fuzzing share: a server with everything around it that a process would
//! provide ([`driver`]), and a record of what it granted that judges whatever it does ([`ledger`]).

pub mod caller;
pub mod driver;
pub mod ledger;
pub mod setup;
