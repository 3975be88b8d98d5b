//! Compose files: the service whose image is coturn's, in the part of YAML that such files use.

use super::{CommandLine, Variables, mount, of_container, words};

/// A line with its depth.
#[derive(Clone, Copy)]
struct Line<'a> {
    depth: usize,
    text: &'a str,
}

pub(super) fn read(text: &str, known: &Variables) -> Result<CommandLine, String> {
    let lines: Vec<Line<'_>> = text.lines().filter_map(line).collect();
    let is_image = |line: &Line<'_>| {
        let text = line.text.trim_start_matches("- ");
        let image = text.strip_prefix("image:").unwrap_or_default();
        image.contains("coturn") || image.contains("turnserver")
    };
    let Some(image) = lines.iter().position(is_image) else {
        return Err("no service has an image of coturn".to_owned());
    };
    let is_first = lines[image].text.starts_with("- ");
    let depth = lines[image].depth + if is_first { "- ".len() } else { 0 };
    let begin = lines[..image].iter().rposition(|line| line.depth < depth).map_or(0, |at| at + 1);
    let end = lines[image + 1..].iter().position(|line| line.depth < depth);
    let service = &lines[begin..end.map_or(lines.len(), |length| image + 1 + length)];
    let mut variables = known.clone();
    for pair in items(service, "environment:", depth) {
        let colon = || pair.split_once(": ").map(|(name, value)| (name, scalar(value)));
        let pair =
            pair.split_once('=').map(|(name, value)| (name, value.to_owned())).or_else(colon);
        if let Some((name, value)) = pair {
            words::set(&mut variables, name, &value);
        }
    }
    let mounts: Vec<_> =
        items(service, "volumes:", depth).iter().filter_map(|one| mount(one)).collect();
    let mut command = items(service, "command:", depth);
    if let [one] = command.as_slice()
        && !value(service, "command:", depth).starts_with('[')
        && !is_list(service, "command:", depth)
    {
        command = words::split(one)?;
    }
    // A container of Kubernetes.
    command.extend(items(service, "args:", depth));
    for (name, value) in environment(service, depth) {
        let (written, value) = (format!("$({name})"), value.replace('$', "$$"));
        command.iter_mut().for_each(|word| *word = word.replace(&written, &value));
    }
    of_container(&command, &variables, &mounts)
}

/// Variables of a Kubernetes container, with their values.
fn environment(service: &[Line<'_>], depth: usize) -> Vec<(String, String)> {
    let (mut all, mut name) = (Vec::new(), None);
    for line in below(service, "env:", depth) {
        let text = line.text.trim_start_matches("- ");
        if let Some(written) = text.strip_prefix("name:") {
            name = Some(scalar(written));
        } else if let Some(written) = text.strip_prefix("value:") {
            all.extend(name.take().map(|name| (name, scalar(written))));
        }
    }
    all
}

fn line(text: &str) -> Option<Line<'_>> {
    let trimmed = text.trim_start();
    let is_comment = trimmed.is_empty() || trimmed.starts_with('#') || trimmed == "---";
    (!is_comment).then(|| Line { depth: text.len() - trimmed.len(), text: trimmed.trim_end() })
}

/// The text behind a key.
fn value<'a>(service: &[Line<'a>], key: &str, depth: usize) -> &'a str {
    let is = |line: &&Line<'a>| line.depth == depth && line.text.starts_with(key);
    service.iter().find(is).map_or("", |line| line.text[key.len()..].trim())
}

/// The lines below a key.
fn below<'a, 'b>(service: &'b [Line<'a>], key: &str, depth: usize) -> &'b [Line<'a>] {
    let is = |line: &Line<'a>| line.depth == depth && line.text.starts_with(key);
    let Some(at) = service.iter().position(is) else { return &[] };
    let rest = &service[at + 1..];
    let belongs =
        |line: &Line<'a>| line.depth > depth || line.text.starts_with("- ") || line.text == "]";
    &rest[..rest.iter().position(|line| !belongs(line)).unwrap_or(rest.len())]
}

fn is_list(service: &[Line<'_>], key: &str, depth: usize) -> bool {
    below(service, key, depth).first().is_some_and(|line| line.text.starts_with("- "))
}

/// Values of a key: of a list its entries, of anything else one text.
fn items(service: &[Line<'_>], key: &str, depth: usize) -> Vec<String> {
    let value = value(service, key, depth);
    let below = below(service, key, depth);
    if value.starts_with('[') {
        let whole: Vec<&str> =
            std::iter::once(value).chain(below.iter().map(|line| line.text)).collect();
        return flow(&whole.join(" "));
    }
    if is_list(service, key, depth) {
        let entries = below.iter().filter_map(|line| line.text.strip_prefix("- "));
        return entries.map(scalar).collect();
    }
    if key == "environment:" {
        return below.iter().map(|line| line.text.to_owned()).collect();
    }
    let folded: Vec<&str> = below.iter().map(|line| line.text).collect();
    match value {
        // A text in the lines below.
        "" | ">" | ">-" | "|" | "|-" if folded.is_empty() => Vec::new(),
        "" | ">" | ">-" | "|" | "|-" => vec![folded.join("\n")],
        one => vec![
            std::iter::once(scalar(one))
                .chain(folded.iter().map(|line| (*line).to_owned()))
                .collect::<Vec<_>>()
                .join(" "),
        ],
    }
}

/// `[a, "b, c"]`.
pub(super) fn flow(text: &str) -> Vec<String> {
    let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
    let mut entries = vec![String::new()];
    let mut quote = None;
    for c in inner.chars() {
        match (c, quote) {
            (',', None) => entries.push(String::new()),
            (_, Some(open)) if c == open => {
                quote = None;
                entries.last_mut().into_iter().for_each(|one| one.push(c));
            }
            _ => {
                if quote.is_none() && (c == '"' || c == '\'') {
                    quote = Some(c);
                }
                entries.last_mut().into_iter().for_each(|one| one.push(c));
            }
        }
    }
    entries.iter().map(|one| scalar(one)).filter(|one| !one.is_empty()).collect()
}

/// A value without its quotes, or without the comment behind it.
fn scalar(text: &str) -> String {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote)
            && let Some((inner, _)) = rest.rsplit_once(quote)
        {
            return inner.to_owned();
        }
    }
    text.split(" #").next().unwrap_or_default().trim_end().to_owned()
}
