//! Conversion between rows and coturn's documents other than those of users. A realm is one
//! document with its origins, limits and ranges of peers.

use mongodb::bson::{Bson, Document, doc};

use crate::table::{Row, Table};

/// Collection of realms.
const REALM: &str = "realm";

/// Collections, and their fields for sorting.
pub(super) const COLLECTIONS: [(&str, &[&str]); 4] = [
    ("turn_secret", &["realm", "value"]),
    (REALM, &["realm"]),
    ("oauth_key", &["kid"]),
    ("admin_user", &["name"]),
];

/// Returns true if the rows of a table are in this collection.
pub(super) fn is_in(table: Table, collection: &str) -> bool {
    collection_of(table) == collection
}

fn collection_of(table: Table) -> &'static str {
    match table {
        Table::Secrets | Table::TokenKeys | Table::Admins => table.name(),
        Table::Origins | Table::Options | Table::AllowedPeers | Table::DeniedPeers => REALM,
    }
}

/// Returns the field of a realm's document that contains the rows of a table.
fn part(table: Table) -> &'static str {
    match table {
        Table::Origins => "origin",
        Table::Options => "options",
        // The fields of peers have the names of the SQL tables.
        Table::AllowedPeers
        | Table::DeniedPeers
        | Table::Secrets
        | Table::TokenKeys
        | Table::Admins => table.name(),
    }
}

/// Returns the rows of a table that a document of the table's collection contains.
pub(super) fn rows(table: Table, document: &Document) -> Vec<Row> {
    let realm = || text(document.get("realm"));
    match table {
        Table::Secrets | Table::TokenKeys | Table::Admins => {
            let value = |column: &&str| match *column {
                // Stored by coturn as an unsigned number in four bytes.
                "lifetime" => match document.get("lifetime") {
                    Some(Bson::Int32(bits)) => bits.cast_unsigned().to_string(),
                    value => number(value).to_string(),
                },
                "timestamp" => number(document.get("timestamp")).to_string(),
                column => text(document.get(column)),
            };
            vec![table.columns().iter().map(value).collect()]
        }
        Table::Options => {
            let Ok(options) = document.get_document(part(table)) else { return Vec::new() };
            let row =
                |(name, value): (&String, &Bson)| vec![realm(), name.clone(), text(Some(value))];
            options.iter().map(row).collect()
        }
        Table::Origins | Table::AllowedPeers | Table::DeniedPeers => {
            let Ok(values) = document.get_array(part(table)) else { return Vec::new() };
            let row = |value: &Bson| {
                let mut row = vec![realm(), text(Some(value))];
                if table == Table::Origins {
                    row.reverse();
                }
                row
            };
            values.iter().map(row).collect()
        }
    }
}

/// Converts text or a number to text. Other values become empty.
fn text(value: Option<&Bson>) -> String {
    match value {
        Some(Bson::String(text)) => text.clone(),
        Some(Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_)) => number(value).to_string(),
        _ => String::new(),
    }
}

/// Converts any numeric type that shells write to an integer. Other values become 0.
pub(super) fn number(value: Option<&Bson>) -> u64 {
    match value {
        Some(Bson::Int32(number)) => u64::try_from(*number).unwrap_or(0),
        Some(Bson::Int64(number)) => u64::try_from(*number).unwrap_or(0),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and coturn drops the fraction as well"
        )]
        Some(Bson::Double(number)) => *number as u64,
        _ => 0,
    }
}

/// Change of documents.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) collection: &'static str,
    pub(super) filter: Document,
    /// Update operation; `None` deletes the documents.
    pub(super) update: Option<Document>,
    /// True: one document is changed, or added if none exists. False: all existing documents are
    /// changed.
    pub(super) adds: bool,
}

impl Change {
    fn adding(collection: &'static str, filter: Document, update: Document) -> Self {
        Self { collection, filter, update: Some(update), adds: true }
    }

    fn of_all(collection: &'static str, filter: Document, update: Document) -> Self {
        Self { collection, filter, update: Some(update), adds: false }
    }
}

/// Returns the changes that add or replace a row.
///
/// # Errors
/// A value that must be a number is not one.
pub(super) fn put(table: Table, row: &[String]) -> Result<Vec<Change>, String> {
    let collection = collection_of(table);
    let value = |at: usize| row.get(at).map(String::as_str).unwrap_or_default();
    let part = part(table);
    Ok(match table {
        Table::Secrets => {
            let filter = doc! { "realm": value(0), "value": value(1) };
            vec![Change::adding(collection, filter.clone(), doc! { "$setOnInsert": filter })]
        }
        Table::AllowedPeers | Table::DeniedPeers => {
            let update = doc! { "$addToSet": { part: value(1) } };
            vec![Change::adding(collection, doc! { "realm": value(0) }, update)]
        }
        Table::Origins => {
            let (origin, realm) = (value(0), value(1));
            let elsewhere = doc! { "origin": origin, "realm": { "$ne": realm } };
            let update = doc! { "$addToSet": { part: origin } };
            vec![
                Change::of_all(collection, elsewhere, doc! { "$pull": { part: origin } }),
                Change::adding(collection, doc! { "realm": realm }, update),
            ]
        }
        Table::Options => {
            let update = doc! { "$set": { format!("{part}.{}", value(1)): whole(value(2))? } };
            vec![Change::adding(collection, doc! { "realm": value(0) }, update)]
        }
        Table::TokenKeys | Table::Admins => {
            let mut set = Document::new();
            for (column, value) in table.columns().iter().zip(row) {
                let value = match *column {
                    "timestamp" => Bson::Int64(parsed(value)?),
                    "lifetime" => Bson::Int32(parsed::<u32>(value)?.cast_signed()),
                    _ => Bson::String(value.clone()),
                };
                set.insert(*column, value);
            }
            let key = table.columns().first().copied().unwrap_or_default();
            set.remove(key);
            vec![Change::adding(collection, doc! { key: value(0) }, doc! { "$set": set })]
        }
    })
}

/// Converts a number to the smaller of the two types that can represent it, as coturn writes
/// limits.
fn whole(text: &str) -> Result<Bson, String> {
    let number: i64 = parsed(text)?;
    Ok(i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32))
}

fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("\"{text}\" is no number that coturn's layout has a place for"))
}

/// Returns the change that deletes the rows with these values of the first key columns.
pub(super) fn remove(table: Table, key: &[String]) -> Change {
    let collection = collection_of(table);
    let part = part(table);
    let first = key.first().map(String::as_str).unwrap_or_default();
    match (table, key.get(1)) {
        (Table::Origins, _) => {
            let update = doc! { "$pull": { part: first } };
            Change::of_all(collection, doc! { "origin": first }, update)
        }
        (Table::Options, option) => {
            let field = option.map_or_else(|| part.to_owned(), |option| format!("{part}.{option}"));
            Change::of_all(collection, doc! { "realm": first }, doc! { "$unset": { field: 1 } })
        }
        (Table::AllowedPeers | Table::DeniedPeers, range) => {
            let update = match range {
                Some(range) => doc! { "$pull": { part: range } },
                None => doc! { "$unset": { part: 1 } },
            };
            Change::of_all(collection, doc! { "realm": first }, update)
        }
        (Table::Secrets | Table::TokenKeys | Table::Admins, _) => {
            let columns = table.columns().iter().take(table.keys());
            let filter =
                columns.zip(key).map(|(column, value)| ((*column).to_owned(), value.into()));
            Change { collection, filter: filter.collect(), update: None, adds: false }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[&str]) -> Row {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    /// Documents of coturn's testmongosetup.sh: numbers of a shell are doubles, and fields may be
    /// absent.
    #[test]
    fn documents_of_coturn_become_rows() {
        let realm = doc! {
            "realm": "crinna.org",
            "origin": ["http://crinna.org:80", "https://bligh.edu:443"],
            "options": { "max-bps": 400_000.0, "user-quota": 8000, "total-quota": 10_000_i64 },
            "denied_peer_ip": ["172.17.13.133-172.17.14.56"],
        };
        assert_eq!(
            rows(Table::Origins, &realm),
            [
                row(&["http://crinna.org:80", "crinna.org"]),
                row(&["https://bligh.edu:443", "crinna.org"])
            ]
        );
        assert_eq!(
            rows(Table::Options, &realm),
            [
                row(&["crinna.org", "max-bps", "400000"]),
                row(&["crinna.org", "user-quota", "8000"]),
                row(&["crinna.org", "total-quota", "10000"])
            ]
        );
        assert!(rows(Table::AllowedPeers, &realm).is_empty());
        let denied = row(&["crinna.org", "172.17.13.133-172.17.14.56"]);
        assert_eq!(rows(Table::DeniedPeers, &realm), [denied]);
        let key = doc! { "kid": "oldempire", "ikm_key": "MTIz", "as_rs_alg": "A256GCM" };
        let expected = row(&["oldempire", "MTIz", "0", "0", "A256GCM", ""]);
        assert_eq!(rows(Table::TokenKeys, &key), [expected]);
    }

    #[test]
    fn a_lifetime_has_the_bits_of_coturn() {
        let long = row(&["k", "MTIz", "5", "4000000000", "", "r"]);
        let changes = put(Table::TokenKeys, &long).unwrap();
        let set = changes[0].update.as_ref().unwrap().get_document("$set").unwrap();
        assert_eq!(set.get_i32("lifetime").unwrap(), -294_967_296);
        assert_eq!(set.get_i64("timestamp").unwrap(), 5);
        let mut document = set.clone();
        document.insert("kid", "k");
        assert_eq!(rows(Table::TokenKeys, &document), [long]);
        assert!(put(Table::Options, &row(&["r", "max-bps", "many"])).is_err());
    }
}
