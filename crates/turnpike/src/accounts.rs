//! User accounts of the database, for the operators' interface.

use std::path::PathBuf;

use admin::accounts::{AccountEntry, AccountError, AccountWish, Accounts, AddedAccount};
use settings::{Database, Settings};
use user_db::{Credentials, NewUser, Page, Position, StoreError, UserEditor};

use crate::{first_start, users};

/// Accounts of a configuration's user database. Each operation opens the database anew. Operators
/// are few, and a permanent connection could be lost.
#[derive(Debug)]
pub(crate) struct DatabaseAccounts {
    database: Database,
    /// Path of the data directory.
    data: PathBuf,
}

impl DatabaseAccounts {
    /// Returns the accounts of a configuration's database.
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { database: settings.user_database(), data: settings.data.directory.clone() }
    }

    fn open(&self) -> Result<Box<dyn UserEditor>, AccountError> {
        users::editor(&self.database).map_err(failed)
    }

    /// Deletes the record of the user that the first start generated, if the record has this name.
    /// The record is wrong after a deletion of the user or a change of the password.
    fn forget(&self, realm: &str, name: &str) -> Result<(), AccountError> {
        first_start::forget(&self.data, realm, name)
            .map_err(|failure| AccountError::Failed(failure.reason()))
    }
}

impl Accounts for DatabaseAccounts {
    fn list(
        &self,
        realm: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<AccountEntry>, AccountError> {
        let after = after.map(|name| Position { realm: realm.to_owned(), name: name.to_owned() });
        let page = Page { realm: Some(realm.to_owned()), after, limit };
        let users = self.open()?.list(&page).map_err(failed)?;
        let entry = |user: user_db::UserSummary| AccountEntry {
            name: user.name,
            allocations_max: user.allocations_max,
            created_unix: user.created,
        };
        Ok(users.into_iter().map(entry).collect())
    }

    fn add(&self, wish: AccountWish) -> Result<AddedAccount, AccountError> {
        let AccountWish { realm, name, password, allocations_max, replaces } = wish;
        let (password, generated) = match password {
            Some(password) => {
                users::check_chosen(&password).map_err(AccountError::Invalid)?;
                (password, None)
            }
            None => {
                let made = Credentials::generate()
                    .map_err(|error| AccountError::Failed(format!("no random numbers: {error}")))?;
                (made.password.clone(), Some(made.password))
            }
        };
        let user = NewUser::new(&realm, &name, &password, allocations_max).map_err(failed)?;
        let mut store = self.open()?;
        let replaced = if replaces {
            self.forget(user.realm(), user.name())?;
            store.replace(&user).map_err(failed)?
        } else {
            store.add(&user).map_err(failed)?;
            false
        };
        Ok(AddedAccount { name: user.name().to_owned(), generated, replaced })
    }

    fn delete(&self, realm: &str, name: &str) -> Result<Option<String>, AccountError> {
        let name = user_db::prepared_name(name).map_err(failed)?;
        self.forget(realm, &name)?;
        let was_there = self.open()?.delete(realm, &name).map_err(failed)?;
        Ok(was_there.then_some(name))
    }
}

fn failed(error: StoreError) -> AccountError {
    match error {
        StoreError::Exists { name, .. } => AccountError::Exists(name),
        StoreError::Name { .. }
        | StoreError::Realm { .. }
        | StoreError::Password { .. }
        | StoreError::NoLimits => AccountError::Invalid(error.to_string()),
        StoreError::TimedOut { .. }
        | StoreError::Threads(_)
        | StoreError::Overloaded
        | StoreError::TooManyRows { .. }
        | StoreError::Row { .. }
        | StoreError::Database { .. } => AccountError::Failed(error.to_string()),
    }
}
