//! Words of a command, and the variables in them.

use super::Variables;

/// Substitution that images of coturn offer; it stays as it is.
const DETECTION: &str = "$(detect-external-ip)";

/// Splits a command as a shell does. Variables stay as they are.
pub(super) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => match chars.next() {
                // A command that goes on in the next line.
                Some('\n') | None => {}
                Some(next) => word.get_or_insert_default().push(next),
            },
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (_, Some(open)) if c == open => quote = None,
            ('#', None) if word.is_none() => while chars.next_if(|next| *next != '\n').is_some() {},
            ('$', None | Some('"')) if chars.peek() == Some(&'(') => {
                let word = word.get_or_insert_default();
                word.push(c);
                for next in chars.by_ref() {
                    word.push(next);
                    if next == ')' {
                        break;
                    }
                }
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("a {quote} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

/// A word with the values of its variables.
pub(super) fn expanded(word: &str, variables: &Variables) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = word;
    while let Some((before, behind)) = rest.split_once('$') {
        text.push_str(before);
        let from_dollar = &rest[before.len()..];
        if let Some(left) = behind.strip_prefix('$') {
            text.push('$');
            rest = left;
        } else if let Some(left) = from_dollar.strip_prefix(DETECTION) {
            text.push_str(DETECTION);
            rest = left;
        } else if behind.starts_with('(') {
            return Err(format!("{word} runs a command: write its result instead"));
        } else {
            let (name, default, left) = variable(behind);
            if name.is_empty() {
                text.push('$');
                rest = behind;
                continue;
            }
            let value = variables.get(name).map(String::as_str).or(default);
            let Some(value) = value else {
                return Err(format!(
                    "the value of ${name} is elsewhere: write it in a copy of the file"
                ));
            };
            text.push_str(value);
            rest = left;
        }
    }
    text.push_str(rest);
    Ok(text)
}

/// Sets a variable, or removes a variable with an unknown value.
pub(super) fn set(variables: &mut Variables, name: &str, value: &str) {
    match expanded(value, variables) {
        Ok(value) => variables.insert(name.to_owned(), value),
        Err(_) => variables.remove(name),
    };
}

/// Name and default of the variable behind a dollar sign, and the rest.
fn variable(text: &str) -> (&str, Option<&str>, &str) {
    if let Some((inner, rest)) = text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        let end = inner.find([':', '-', '?']).unwrap_or(inner.len());
        let default = inner[end..].trim_start_matches(':').strip_prefix('-');
        return (&inner[..end], default, rest);
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (&text[..end], None, &text[end..])
}

/// Words with the words of variables in place of words that are a variable.
pub(super) fn separated(words: &[String], variables: &Variables) -> Vec<String> {
    let value = |word: &String| variables.get(word.strip_prefix('$')?);
    let all = words.iter().flat_map(|word| match value(word) {
        Some(value) => value.split_whitespace().map(str::to_owned).collect(),
        None => vec![word.clone()],
    });
    all.collect()
}
